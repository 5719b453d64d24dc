//! What a driver calls.

use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_core::datagrams::{Admission, DatagramEndpoint, DatagramOwner};
use tidegate_core::event::Why;
use tidegate_core::{ConnId, Shard};

use super::{SnEndpoint, TIMERS_PER_TURN_MAX};
use crate::frame::{self, Frame};
use crate::greet::Greeting;
use crate::link::{Presence, SnLink};
use crate::packet::{Packet, Publish, Quality};

/// *Handle what arrived, turn once, drain what is to be sent.*
impl DatagramEndpoint for SnEndpoint {
    fn owner(&self, from: SocketAddr, bytes: &[u8]) -> DatagramOwner {
        match Packet::read(bytes) {
            Some(Packet::Connect { client_id, .. }) => DatagramOwner::Client(client_id.into()),
            _ => DatagramOwner::Address(Self::sender_id(from.ip())),
        }
    }

    fn knows(&self, address: SocketAddr) -> bool {
        self.peers.contains_key(&address) || self.greetings.knows(address)
    }

    fn handle_datagram(
        &mut self,
        shard: &mut Shard,
        (from, bytes): (SocketAddr, &[u8]),
        admission: &mut dyn Admission,
        dry_at: Timestamp,
        now: Timestamp,
    ) {
        self.stats.datagrams += 1;
        let replied = self.replies.len();
        let known = self.peers.get(&from).map(|peer| peer.conn).filter(|conn| !shard.is_closing(*conn));
        let Some(packet) = Packet::read(bytes) else {
            self.stats.malformed += 1;
            return;
        };
        if let Some((link, _)) = known.and_then(|conn| shard.face_mut::<SnLink>(conn)) {
            link.heard_at = now;
            link.outbound.note_received(bytes.len());
        }
        match packet {
            Packet::SearchGw { .. } => self.reply(from, Packet::GwInfo { gateway: self.gateway, address: &[] }),
            Packet::Connect { will, clean, protocol, seconds, client_id } => {
                let keep_alive = Duration::from_secs(seconds.into());
                let greeting = Greeting { client_id: client_id.into(), is_clean: clean, keep_alive, will: None };
                self.on_connect(shard, from, (greeting, protocol, will), admission, now);
            }
            Packet::WillTopic(topic) => {
                let next = self.greetings.on_topic(from, topic, now);
                self.follow(shard, from, next, admission, now);
            }
            Packet::WillMsg(message) => {
                let next = self.greetings.on_message(from, message);
                self.follow(shard, from, next, admission, now);
            }
            // Only a gateway says such things.
            Packet::Advertise { .. }
            | Packet::GwInfo { .. }
            | Packet::ConnAck(_)
            | Packet::WillTopicReq
            | Packet::WillMsgReq
            | Packet::SubAck { .. }
            | Packet::UnsubAck(_)
            | Packet::WillTopicResp(_)
            | Packet::WillMsgResp(_) => self.stats.stray += 1,
            Packet::Publish(Publish { quality: Quality::Unconnected, .. }) => {
                let conn = known.or_else(|| self.sender(shard, from, admission, now));
                let Some(conn) = conn else { return };
                if let Some((link, _)) = shard.face_mut::<SnLink>(conn) {
                    link.heard_at = now;
                }
                self.pass_on(shard, (conn, from), (&packet, bytes), dry_at, now);
            }
            packet => match known {
                Some(conn) => self.hear(shard, (conn, from), (&packet, bytes), dry_at, now),
                None => self.on_stranger(from, &packet),
            },
        }
        let conn = self.peers.get(&from).map(|peer| peer.conn);
        let Some((link, _)) = conn.and_then(|conn| shard.face_mut::<SnLink>(conn)) else { return };
        if conn != known {
            link.outbound.note_received(bytes.len());
        }
        for (_, bytes) in self.replies.iter().skip(replied).filter(|(to, _)| *to == from) {
            link.outbound.note_sent(bytes.len());
        }
    }

    fn handle_moved(&mut self, shard: &mut Shard, address: SocketAddr, now: Timestamp) {
        self.greetings.forget(address);
        if let Some(conn) = self.peers.get(&address).map(|peer| peer.conn) {
            self.leave(shard, conn, Why::TakenOver, now);
        }
        self.left.push(address);
    }

    fn poll_reply(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.replies.pop_front()
    }

    fn poll_left(&mut self) -> Option<SocketAddr> {
        loop {
            let address = self.left.pop()?;
            if !self.knows(address) {
                return Some(address);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        let timer = self.timers.first().map(|(at, _)| *at);
        timer.into_iter().chain(self.greetings.due()).min()
    }

    fn turn(&mut self, shard: &mut Shard, now: Timestamp) {
        if self.greetings.due().is_some_and(|due| due <= now) {
            let mut questions = Vec::new();
            self.greetings.turn(now, |address, question| questions.push((address, question)));
            for (address, question) in questions {
                match question {
                    Some(question) => self.reply(address, question),
                    None => self.left.push(address),
                }
            }
        }
        for _ in 0..TIMERS_PER_TURN_MAX {
            let Some(&(at, conn)) = self.timers.first() else { return };
            if at > now {
                return;
            }
            self.timers.pop_first();
            if self.tick(shard, conn, now) {
                self.settle(shard, conn);
                continue;
            }
            let address = self.addresses.get(&conn).copied().filter(|address| address.port() != 0);
            self.leave(shard, conn, Why::KeepAlive, now);
            if let Some(address) = address {
                self.reply(address, Packet::Disconnect { seconds: None });
            }
        }
    }

    fn write(
        &mut self,
        shard: &mut Shard,
        conn: ConnId,
        now: Timestamp,
        send: &mut dyn FnMut(SocketAddr, &[u8]),
    ) -> bool {
        let Some(&address) = self.addresses.get(&conn) else { return false };
        let is_closing = shard.is_closing(conn);
        let is_full = shard.face_mut::<SnLink>(conn).is_some_and(|(link, _)| link.is_asleep() && link.is_full());
        if is_full && !is_closing {
            return true;
        }
        let mut bytes = core::mem::take(&mut self.scratch);
        bytes.clear();
        for slice in shard.outbox(conn) {
            bytes.extend_from_slice(slice);
        }
        let Some((link, memory)) = shard.face_mut::<SnLink>(conn) else { return false };
        let mut send = |bytes: &[u8]| send(address, bytes);
        link.send_held(memory, now, &mut send);
        let mut consumed = 0;
        while let Some((found, length)) = frame::split(&bytes[consumed..]) {
            match found {
                Frame::Datagram([]) => {}
                Frame::Datagram(datagram) => link.outbound.say(datagram, &mut send),
                Frame::Answer { message, qos, code } => {
                    if let Some(datagram) = link.inbound.finish(message, qos, code) {
                        link.outbound.say(&datagram, &mut send);
                    }
                }
                Frame::Release { message, is_known } => link.outbound.release(message, is_known, now, &mut send),
                Frame::Publication(_) if is_closing => {}
                Frame::Publication(outgoing) => {
                    let frame = &bytes[consumed..consumed + length];
                    if !link.take((frame, &outgoing), memory, now, &mut send) {
                        break;
                    }
                }
            }
            consumed += length;
        }
        if consumed > 0 && !is_closing {
            // Behind CONNACK.
            link.ask_for_proof(memory, now, &mut send);
        }
        let declined = core::mem::take(&mut link.outbound.declined);
        self.scratch = bytes;
        if consumed > 0 {
            shard.handle_written(conn, consumed, now);
        }
        for (number, confirmation) in declined {
            let _ = shard.confirm(conn, number, confirmation, now);
        }
        if shard.outbox(conn).iter().all(|slice| slice.is_empty())
            && let Some((link, _)) = shard.face_mut::<SnLink>(conn)
            && let Presence::Awake(time) = link.presence
            && link.outbound.is_empty()
        {
            // It has all that waited for it, and may sleep on.
            link.presence = Presence::Asleep(time);
            link.outbound.say(&Packet::PingResp.bytes(), &mut send);
        }
        self.set_timer(shard, conn);
        true
    }

    fn close(&mut self, shard: &mut Shard, conn: ConnId, now: Timestamp) -> bool {
        if !self.addresses.contains_key(&conn) {
            return false;
        }
        self.leave(shard, conn, Why::Lost, now);
        true
    }
}
