//! Shards and clients joined without sockets: bytes are carried by hand, time passes by hand.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_core::access::{Action, Identity, Open, Policy};
use tidegate_core::event::{Event, Stats, Why};
use tidegate_core::settings::Settings;
use tidegate_core::{ConnId, Hello, Shard, Then, shard_of};
use tidegate_wire_mqtt::{
    Ack, AckKind, Connect, Decoded, Delivery, Encode, Limits, Packet, PacketId, Peer, Properties, Property, Publish,
    QoS, ReasonCode, RetainHandling, Sender, Subscribe, Subscription, SubscriptionOptions, Subscriptions, TopicFilter,
    TopicFilters, Unsubscribe, Version, Will, decode,
};

/// A client's end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wire(usize);

struct End {
    shard: usize,
    conn: ConnId,
    version: Version,
    received: Vec<u8>,
    /// Sent, and not yet taken by the shard, which does not want to read now.
    unread: Vec<u8>,
    is_closed: bool,
    /// The client does not read: nothing is written to it.
    is_deaf: bool,
}

/// What a client received, in owned form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    ConnAck { present: bool, reason: ReasonCode, assigned: Option<String> },
    Message { topic: String, payload: String, qos: u8, retain: bool, dup: bool, id: Option<u16>, ids: Vec<u32> },
    Ack { kind: AckKind, id: u16, reason: ReasonCode },
    SubAck(Vec<ReasonCode>),
    UnsubAck(Vec<ReasonCode>),
    Pong,
    Disconnect(ReasonCode),
}

pub(crate) struct Net {
    pub(crate) shards: Vec<Shard>,
    ends: Vec<End>,
    pub(crate) now: Timestamp,
    pub(crate) events: VecDeque<Event>,
}

/// CONNECT with everything that tests vary.
#[derive(Clone)]
pub(crate) struct Options<'a> {
    pub(crate) version: Version,
    pub(crate) clean: bool,
    pub(crate) keep_alive: u16,
    pub(crate) properties: Vec<Property<'a>>,
    pub(crate) will: Option<(&'a str, &'a str, QoS, bool)>,
    pub(crate) will_properties: Vec<Property<'a>>,
    pub(crate) user: Option<&'a str>,
    pub(crate) peer: &'a str,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            version: Version::V5,
            clean: true,
            keep_alive: 0,
            properties: Vec::new(),
            will: None,
            will_properties: Vec::new(),
            user: None,
            peer: "10.0.0.1:50312",
        }
    }
}

impl Net {
    pub(crate) fn new(shards: usize) -> Self {
        Self::with(shards, Settings::default(), Open)
    }

    pub(crate) fn with(shards: usize, settings: Settings, policy: impl Policy + 'static) -> Self {
        let policy: Arc<dyn Policy> = Arc::new(policy);
        let settings = Arc::new(settings);
        let shards =
            (0..shards).map(|index| Shard::new(index, shards, Arc::clone(&settings), Arc::clone(&policy), 7)).collect();
        Self { shards, ends: Vec::new(), now: Timestamp::from_secs_f64(1000.0), events: VecDeque::new() }
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.settle();
    }

    /// Time passes, and every timer fires at its time.
    pub(crate) fn live(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.shards.iter().filter_map(Shard::poll_timeout).min().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.settle();
        }
        self.now = end;
        self.settle();
    }

    /// Connects and returns the wire; the CONNACK is still to be received.
    pub(crate) fn dial(&mut self, client_id: &str, options: &Options<'_>) -> Wire {
        let will = options.will.map(|(topic, payload, qos, retain)| Will {
            qos,
            retain,
            properties: Properties::new(&options.will_properties),
            topic,
            payload: payload.as_bytes(),
        });
        let connect = Connect {
            version: options.version,
            clean_start: options.clean,
            keep_alive: options.keep_alive,
            properties: Properties::new(&options.properties),
            client_id,
            will,
            user_name: None,
            password: None,
        };
        let name = if client_id.is_empty() { "auto-1" } else { client_id };
        let identity = Identity { user: options.user.map(Into::into), peer: options.peer.into(), listener: "mqtt" };
        let shard = shard_of(name, self.shards.len());
        let hello = Hello { connect: &connect, client_id: name, identity };
        let conn = self.shards[shard].handle_connect(&hello, self.now).unwrap();
        self.ends.push(End {
            shard,
            conn,
            version: options.version,
            received: Vec::new(),
            unread: Vec::new(),
            is_closed: false,
            is_deaf: false,
        });
        self.settle();
        Wire(self.ends.len() - 1)
    }

    /// Connects and swallows the CONNACK.
    pub(crate) fn connect(&mut self, client_id: &str, options: &Options<'_>) -> Wire {
        let wire = self.dial(client_id, options);
        let got = self.receive(wire);
        assert!(matches!(got.first(), Some(Got::ConnAck { reason: ReasonCode::Success, .. })), "{got:?}");
        wire
    }

    /// Connects and takes the CONNACK only: what follows it stays to be received.
    pub(crate) fn connect_quietly(&mut self, client_id: &str, options: &Options<'_>) -> Wire {
        let wire = self.dial(client_id, options);
        let first = self.receive_one(wire);
        assert!(matches!(first, Some(Got::ConnAck { reason: ReasonCode::Success, .. })), "{first:?}");
        wire
    }

    pub(crate) fn v5(&mut self, client_id: &str) -> Wire {
        self.connect(client_id, &Options::default())
    }

    pub(crate) fn send(&mut self, wire: Wire, packet: &impl Encode) {
        let mut bytes = Vec::new();
        let _ = packet.encode(Peer::new(self.ends[wire.0].version), &mut bytes);
        self.send_bytes(wire, &bytes);
    }

    pub(crate) fn send_bytes(&mut self, wire: Wire, bytes: &[u8]) {
        self.ends[wire.0].unread.extend_from_slice(bytes);
        self.feed(wire.0);
        self.settle();
    }

    /// Hands over what a client has sent, if the shard reads; true if it took something.
    fn feed(&mut self, end: usize) -> bool {
        let End { shard, conn, ref mut unread, .. } = self.ends[end];
        if unread.is_empty() || !self.shards[shard].may_read(conn) {
            return false;
        }
        let progress = self.shards[shard].handle_input(conn, unread, self.now);
        unread.drain(..progress.consumed);
        if progress.then == Then::Continue {
            assert_eq!(unread.len(), 0, "whole packets only");
        }
        progress.consumed > 0
    }

    /// Whether the shard does not want to read this client now.
    pub(crate) fn is_paused(&self, wire: Wire) -> bool {
        let End { shard, conn, .. } = self.ends[wire.0];
        !self.shards[shard].may_read(conn)
    }

    pub(crate) fn publish(&mut self, wire: Wire, topic: &str, payload: &str, qos: u8, retain: bool, id: u16) {
        self.publish_with(wire, topic, payload, qos, retain, id, &[]);
    }

    #[allow(clippy::too_many_arguments, reason = "a test reads best as one line")]
    pub(crate) fn publish_with(
        &mut self,
        wire: Wire,
        topic: &str,
        payload: &str,
        qos: u8,
        retain: bool,
        id: u16,
        properties: &[Property<'_>],
    ) {
        let packet_id = PacketId::new(id.max(1)).unwrap();
        let delivery = match qos {
            0 => Delivery::AtMostOnce,
            1 => Delivery::AtLeastOnce { packet_id, dup: false },
            _ => Delivery::ExactlyOnce { packet_id, dup: false },
        };
        let properties = Properties::new(properties);
        self.send(wire, &Publish { delivery, retain, topic, properties, payload: payload.as_bytes() });
    }

    pub(crate) fn subscribe(&mut self, wire: Wire, filter: &str, qos: u8) -> ReasonCode {
        let options = SubscriptionOptions::with_qos(QoS::from_bits(qos).unwrap());
        self.subscribe_with(wire, filter, options, &[])
    }

    /// Subscribes; the SUBACK is taken out of what was received, the rest stays.
    pub(crate) fn subscribe_with(
        &mut self,
        wire: Wire,
        filter: &str,
        options: SubscriptionOptions,
        properties: &[Property<'_>],
    ) -> ReasonCode {
        let filter = TopicFilter::parse(filter, &Limits::default()).unwrap();
        let list = [Subscription { filter, options }];
        let packet = Subscribe {
            packet_id: PacketId::MIN,
            properties: Properties::new(properties),
            subscriptions: Subscriptions::new(&list),
        };
        self.send(wire, &packet);
        match self.receive_one(wire) {
            Some(Got::SubAck(reasons)) => reasons[0],
            other => panic!("{other:?} instead of a SUBACK"),
        }
    }

    pub(crate) fn unsubscribe(&mut self, wire: Wire, filter: &str) -> Vec<ReasonCode> {
        let list = [TopicFilter::parse(filter, &Limits::default()).unwrap()];
        let packet =
            Unsubscribe { packet_id: PacketId::MIN, properties: Properties::EMPTY, filters: TopicFilters::new(&list) };
        self.send(wire, &packet);
        match self.receive_one(wire) {
            Some(Got::UnsubAck(reasons)) => reasons,
            other => panic!("{other:?} instead of an UNSUBACK"),
        }
    }

    pub(crate) fn ack(&mut self, wire: Wire, kind: AckKind, id: u16) {
        self.send(wire, &Ack::success(kind, PacketId::new(id).unwrap()));
    }

    /// The socket breaks.
    pub(crate) fn cut(&mut self, wire: Wire) {
        let End { shard, conn, .. } = self.ends[wire.0];
        self.ends[wire.0].is_closed = true;
        self.shards[shard].handle_closed(conn, Why::Lost, self.now);
        self.settle();
    }

    /// The client stops reading.
    pub(crate) fn deafen(&mut self, wire: Wire) {
        self.ends[wire.0].is_deaf = true;
    }

    pub(crate) fn is_closed(&self, wire: Wire) -> bool {
        self.ends[wire.0].is_closed
    }

    /// Everything that arrived.
    pub(crate) fn receive(&mut self, wire: Wire) -> Vec<Got> {
        std::iter::from_fn(|| self.receive_one(wire)).collect()
    }

    pub(crate) fn receive_one(&mut self, wire: Wire) -> Option<Got> {
        let end = &mut self.ends[wire.0];
        let limits = Limits { packet_bytes_max: u32::MAX, ..Limits::default().with_sender(Sender::Server) };
        let (got, consumed) = match decode(&end.received, end.version, &limits) {
            Ok(Decoded::Packet { packet, consumed }) => (owned(&packet), consumed),
            Ok(Decoded::Incomplete { .. }) => {
                assert!(end.received.is_empty(), "half a packet: {:x?}", end.received);
                return None;
            }
            Err(error) => panic!("the broker sent nonsense: {error}"),
        };
        end.received.drain(..consumed);
        Some(got)
    }

    /// The bytes that arrived.
    pub(crate) fn raw(&mut self, wire: Wire) -> Vec<u8> {
        std::mem::take(&mut self.ends[wire.0].received)
    }

    /// Payloads of the messages that arrived; everything else is dropped.
    pub(crate) fn payloads(&mut self, wire: Wire) -> Vec<String> {
        let got = self.receive(wire).into_iter();
        got.filter_map(|got| if let Got::Message { payload, .. } = got { Some(payload) } else { None }).collect()
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        self.shards.iter().for_each(|shard| sum.add(&shard.stats()));
        sum
    }

    /// Turns every shard and carries everything until nothing moves any more.
    pub(crate) fn settle(&mut self) {
        for _ in 0..100 {
            let mut moved = false;
            for shard in 0..self.shards.len() {
                self.shards[shard].turn(self.now);
                moved |= self.carry_writes(shard) | self.carry_batches(shard);
                while let Some(event) = self.shards[shard].poll_event() {
                    self.events.push_back(event);
                }
            }
            for end in 0..self.ends.len() {
                moved |= self.feed(end);
            }
            if !moved {
                self.shards.iter().for_each(|shard| assert_eq!(shard.stats().check(), Ok(()), "{:?}", shard.stats()));
                return;
            }
        }
        panic!("the shards do not come to rest");
    }

    fn carry_writes(&mut self, shard: usize) -> bool {
        let mut moved = false;
        while let Some(conn) = self.shards[shard].poll_write() {
            moved = true;
            if self.ends.iter().any(|end| end.shard == shard && end.conn == conn && end.is_deaf) {
                continue;
            }
            let bytes = self.shards[shard].outbox(conn).concat();
            if let Some(end) = self.ends.iter_mut().find(|end| end.shard == shard && end.conn == conn) {
                end.received.extend_from_slice(&bytes);
            }
            self.shards[shard].handle_written(conn, bytes.len(), self.now);
        }
        while let Some(conn) = self.shards[shard].poll_close() {
            moved = true;
            if let Some(end) = self.ends.iter_mut().find(|end| end.shard == shard && end.conn == conn) {
                end.is_closed = true;
            }
            self.shards[shard].handle_closed(conn, Why::Lost, self.now);
        }
        moved
    }

    fn carry_batches(&mut self, from: usize) -> bool {
        let mut moved = false;
        for to in 0..self.shards.len() {
            while let Some(batch) = self.shards[from].poll_batch(to) {
                moved = true;
                self.shards[to].handle_batch(&batch, self.now);
            }
        }
        moved
    }
}

fn owned(packet: &Packet<'_>) -> Got {
    match packet {
        Packet::ConnAck(packet) => Got::ConnAck {
            present: packet.session_present,
            reason: packet.reason,
            assigned: packet.properties.assigned_client_id().map(Into::into),
        },
        Packet::Publish(packet) => Got::Message {
            topic: packet.topic.into(),
            payload: String::from_utf8_lossy(packet.payload).into(),
            qos: packet.delivery.qos().bits(),
            retain: packet.retain,
            dup: packet.delivery.dup(),
            id: packet.delivery.packet_id().map(PacketId::get),
            ids: packet.properties.subscription_ids().map(std::num::NonZeroU32::get).collect(),
        },
        Packet::Ack(packet) => Got::Ack { kind: packet.kind, id: packet.packet_id.get(), reason: packet.reason },
        Packet::SubAck(packet) => Got::SubAck(packet.reasons.iter().collect()),
        Packet::UnsubAck(packet) => Got::UnsubAck(packet.reasons.iter().collect()),
        Packet::PingResp => Got::Pong,
        Packet::Disconnect(packet) => Got::Disconnect(packet.reason),
        other => panic!("a server does not send {other:?}"),
    }
}

/// A message as most tests expect it.
pub(crate) fn message(topic: &str, payload: &str, qos: u8, id: Option<u16>) -> Got {
    Got::Message { topic: topic.into(), payload: payload.into(), qos, retain: false, dup: false, id, ids: Vec::new() }
}

/// Rules for tests: whatever touches a topic with this word is forbidden for this action.
#[derive(Debug)]
pub(crate) struct Forbid(pub(crate) Action, pub(crate) &'static str);

impl Policy for Forbid {
    fn allows(&self, _: &Identity, _: &str, action: Action, topic: &str) -> bool {
        action != self.0 || !topic.contains(self.1)
    }
}

pub(crate) fn options(qos: QoS) -> SubscriptionOptions {
    SubscriptionOptions { retain_handling: RetainHandling::Send, ..SubscriptionOptions::with_qos(qos) }
}
