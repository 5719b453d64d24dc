//! What the generator does with what arrives: finish handshakes, answer, count.

use std::time::Duration;

use anyhow::{Result, bail};
use tidegate_wire_mqtt::{
    Ack, AckKind, Decoded, Delivery, Encode, Limits, Packet, Peer, Publish, QoS, ReasonCode, decode,
};

use super::cases::PublishPace;
use super::clients::ReadSpeed;
use super::connection::{BytesRead, ConnectState};
use super::engine::{ClientActivity, Engine, GeneratorSubscriber, Greeting};
use super::packets::{self, PEER, PEER_V5, PayloadHead, SessionLifetime};
use super::stream::SequenceCheck;

/// Buffers read from one connection per turn, so that one busy subscriber does not hold up the rest.
const READS_MAX: usize = 4;
/// A slow subscriber takes so much at a time: with the pause below about 3 MiB a second, far less than a flood.
const SLOW_BYTES: usize = 16 * 1024;
const SLOW_PAUSE_NS: u64 = 5_000_000;

impl Engine {
    /// Something happened to this connection.
    pub(super) fn serve(&mut self, place: usize) {
        match self.connections[place].state {
            ConnectState::Closed => {}
            ConnectState::Opening => match self.connections[place].is_open() {
                Ok(true) => self.greet(place),
                Ok(false) => {}
                Err(_) => self.lose(place),
            },
            _ => {
                self.flush(place);
                self.read(place);
            }
        }
    }

    fn greet(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        if self.greeting == Greeting::None {
            connection.state = ConnectState::Ready;
            self.ready += 1;
            return;
        }
        connection.state = ConnectState::Greeting;
        let receive_max = match &self.roles[place] {
            ClientActivity::Subscriber(GeneratorSubscriber {
                reader: ReadSpeed::Worker { receive_max, .. }, ..
            }) => Some(*receive_max),
            _ => None,
        };
        let is_lasting = matches!(
            &self.roles[place],
            ClientActivity::Subscriber(GeneratorSubscriber { reader: ReadSpeed::Lasting, .. })
        );
        let stay = if is_lasting { SessionLifetime::Lasting } else { SessionLifetime::Clean };
        if packets::connect_as(&self.ids[place], None, receive_max, stay, &mut connection.outbox).is_err() {
            self.lose(place);
        }
        self.flush(place);
    }

    /// Reads what is there, within bounds; what may be left is remembered, because readiness is told once only.
    pub(super) fn read(&mut self, place: usize) {
        let size = match &mut self.roles[place] {
            ClientActivity::Subscriber(subscriber) if subscriber.reader == ReadSpeed::Slow && !self.is_hurried => {
                let now = self.clock.now_ns();
                if now < subscriber.next_read_ns {
                    return self.remember(place);
                }
                subscriber.next_read_ns = now + SLOW_PAUSE_NS;
                SLOW_BYTES
            }
            ClientActivity::Subscriber(subscriber) => {
                subscriber.next_read_ns = 0;
                self.buffer.len()
            }
            _ => self.buffer.len(),
        };
        let reads = if size == SLOW_BYTES { 1 } else { READS_MAX };
        for _ in 0..reads {
            if self.connections[place].state == ConnectState::Closed {
                return;
            }
            match self.connections[place].read(&mut self.buffer[..size]) {
                Ok(BytesRead::Bytes(count)) => {
                    if self.take(place, count).is_err() {
                        return self.lose(place);
                    }
                    if count < size {
                        return;
                    }
                }
                Ok(BytesRead::Nothing) => return,
                Err(_) => return self.lose(place),
            }
        }
        self.remember(place);
    }

    fn remember(&mut self, place: usize) {
        if !self.unread.contains(&place) {
            self.unread.push(place);
        }
    }

    /// Handles the packets in the first `count` bytes of the buffer, after what was left over from before.
    fn take(&mut self, place: usize, count: usize) -> Result<()> {
        let limits = packets::limits();
        let now = self.clock.now_ns();
        let buffer = std::mem::take(&mut self.buffer);
        let mut partial = std::mem::take(&mut self.connections[place].partial);
        let outcome = if partial.is_empty() {
            self.packets(place, &buffer[..count], now, &limits)
        } else {
            partial.extend_from_slice(&buffer[..count]);
            self.packets(place, &partial, now, &limits)
        };
        let rest = match &outcome {
            Ok(used) if partial.is_empty() => buffer[*used..count].to_vec(),
            Ok(used) => partial.split_off(*used),
            Err(_) => Vec::new(),
        };
        self.connections[place].partial = rest;
        self.buffer = buffer;
        outcome?;
        if self.connections[place].backlog() > 0 {
            self.flush(place);
        }
        Ok(())
    }

    fn packets(&mut self, place: usize, bytes: &[u8], now: u64, limits: &Limits) -> Result<usize> {
        let mut used = 0;
        let version = self.peer(place).version;
        while let Decoded::Packet { packet, consumed } = decode(&bytes[used..], version, limits)? {
            used += consumed;
            match packet {
                Packet::Publish(publish) => self.delivery(place, &publish, now),
                Packet::Ack(ack) => self.ack(place, &ack),
                Packet::ConnAck(answer) if !answer.reason.is_failure() => self.welcome(place)?,
                Packet::SubAck(answer) if !answer.reasons.iter().any(ReasonCode::is_failure) => {
                    self.be_ready(place);
                }
                Packet::PingResp => {}
                other => bail!("unexpected answer: {:?}", other.kind()),
            }
        }
        Ok(used)
    }

    fn welcome(&mut self, place: usize) -> Result<()> {
        let peer = self.peer(place);
        if let ClientActivity::Subscriber(subscriber) = &self.roles[place] {
            let connection = &mut self.connections[place];
            connection.state = ConnectState::Subscribing;
            packets::subscribe(peer, &subscriber.filter, self.flows[subscriber.flow].qos, &mut connection.outbox)?;
        } else {
            self.be_ready(place);
        }
        Ok(())
    }

    fn be_ready(&mut self, place: usize) {
        if self.connections[place].state != ConnectState::Ready {
            self.connections[place].state = ConnectState::Ready;
            self.ready += 1;
        }
    }

    fn delivery(&mut self, place: usize, publish: &Publish<'_>, now: u64) {
        let head = PayloadHead::of(publish.payload);
        match publish.delivery {
            Delivery::AtMostOnce => {}
            Delivery::AtLeastOnce { packet_id, .. } => {
                if let (ClientActivity::Subscriber(GeneratorSubscriber { worker: Some(worker), .. }), Some(head)) =
                    (&mut self.roles[place], head)
                {
                    return worker.put(packet_id, head, now);
                }
                self.answer(place, Ack::success(AckKind::PubAck, packet_id));
            }
            Delivery::ExactlyOnce { packet_id, .. } => self.answer(place, Ack::success(AckKind::PubRec, packet_id)),
        }
        if let Some(head) = head {
            self.count(place, head, now);
        }
    }

    /// Counts a message that was received, or that was worked on.
    fn count(&mut self, place: usize, head: PayloadHead, now: u64) {
        let ClientActivity::Subscriber(subscriber) = &mut self.roles[place] else { return };
        let index = head.stream.wrapping_sub(subscriber.first) as usize;
        let (Some(stream), Some(&flow)) = (subscriber.streams.get_mut(index), self.flow_of.get(head.stream as usize))
        else {
            return;
        };
        let tally = &mut self.tallies[flow];
        match stream.see(head.sequence) {
            SequenceCheck::New => {}
            SequenceCheck::Late => tally.reordered += 1,
            SequenceCheck::Again => {
                tally.duplicated += 1;
                return;
            }
        }
        tally.received += 1;
        if self.is_measuring {
            tally.measured += 1;
            tally.latency.record(now.saturating_sub(head.time_ns));
        }
        self.delivered[head.stream as usize] += 1;
    }

    /// Lets those work that do; returns how long until the next of them is done.
    pub(super) fn work(&mut self) -> Duration {
        let mut wait = Duration::MAX;
        for index in 0..self.workers.len() {
            let place = self.workers[index];
            let now = self.clock.now_ns();
            let deadline = if self.is_hurried { u64::MAX } else { now };
            let mut is_done = false;
            while let ClientActivity::Subscriber(GeneratorSubscriber { worker: Some(worker), .. }) =
                &mut self.roles[place]
                && let Some(task) = worker.take(deadline)
            {
                is_done = true;
                self.answer(place, Ack::success(AckKind::PubAck, task.packet_id));
                self.count(place, task.head, now);
            }
            if is_done {
                self.flush(place);
            }
            if let ClientActivity::Subscriber(GeneratorSubscriber { worker: Some(worker), .. }) = &self.roles[place]
                && let Some(due) = worker.due_ns()
            {
                wait = wait.min(Duration::from_nanos(due.saturating_sub(now)));
            }
        }
        wait
    }

    /// What this client speaks.
    fn peer(&self, place: usize) -> Peer {
        let is_worker =
            matches!(&self.roles[place], ClientActivity::Subscriber(GeneratorSubscriber { worker: Some(_), .. }));
        if is_worker { PEER_V5 } else { PEER }
    }

    fn ack(&mut self, place: usize, ack: &Ack<'_>) {
        match ack.kind {
            AckKind::PubRec => self.answer(place, Ack::success(AckKind::PubRel, ack.packet_id)),
            AckKind::PubRel => self.answer(place, Ack::success(AckKind::PubComp, ack.packet_id)),
            AckKind::PubAck | AckKind::PubComp => {
                if let ClientActivity::Publisher(publisher) = &mut self.roles[place]
                    && self.flows[publisher.flow].qos != QoS::AtMostOnce
                {
                    // A broker that acknowledges twice must not make the count negative.
                    publisher.acked = publisher.sent.min(publisher.acked + 1);
                    if self.is_measuring && self.flows[publisher.flow].pace == PublishPace::OneByOne {
                        let took = self.clock.now_ns().saturating_sub(publisher.sent_ns);
                        self.tallies[publisher.flow].acks.record(took);
                    }
                }
            }
        }
    }

    fn answer(&mut self, place: usize, ack: Ack<'_>) {
        // Four bytes: there is no peer for whom this is too large.
        let peer = self.peer(place);
        let _ = ack.encode(peer, &mut self.connections[place].outbox);
    }
}
