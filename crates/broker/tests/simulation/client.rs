//! A client as the specification wants it: it keeps its state through every loss, of connections and of the broker. Only
//! bytes go in and out: the test of `kill -9` in `crates/cli` gives it a socket.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_wire_mqtt::{
    Ack, AckKind, Decoded, Delivery, Encode, Limits, Packet, PacketId, Peer, Properties, Publish, QoS, ReasonCode,
    Sender, Subscribe, Subscription, SubscriptionList, SubscriptionOptions, TopicFilter, Version, decode,
};

use crate::{Dice, trace};

/// A message on its way to the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    /// PUBLISH was sent.
    Sent,
    /// PUBREC came.
    Received,
}

/// How long it listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    Steady,
    /// It leaves and comes back: what it listens to may have passed it by.
    Fickle,
    /// It subscribes, is gone, and comes back only when everything comes to rest.
    Away,
}

#[expect(clippy::struct_excessive_bools, reason = "facts that do not exclude each other")]
pub(crate) struct Client {
    pub(crate) id: String,
    pub(crate) version: Version,
    /// Topic that it publishes to; none if it only listens.
    pub(crate) publishes: Option<String>,
    /// What it listens to.
    pub(crate) filter: Option<(String, QoS)>,
    pub(crate) is_subscribed: bool,
    pub(crate) habit: Habit,
    /// It leaves a will with each connection, with the number of the connection.
    pub(crate) leaves_wills: bool,
    pub(crate) dials: u32,
    /// It was told that it has a session.
    pub(crate) is_known: bool,
    pub(crate) is_connected: bool,
    pub(crate) out: Vec<u8>,
    pub(crate) incoming: Vec<u8>,
    /// Messages that it sends in all.
    pub(crate) messages_max: u32,
    pub(crate) next: u32,
    under_way: BTreeMap<u16, (u32, QoS, bool, Sending)>,
    next_id: u16,
    /// Numbers that were sent, and those that the broker has taken over.
    pub(crate) sent: BTreeMap<u32, QoS>,
    pub(crate) acknowledged: BTreeSet<u32>,
    pub(crate) retained_sent: u32,
    pub(crate) retained_acknowledged: u32,
    /// Identifiers of QoS 2 messages that were received and not released.
    received: BTreeSet<u16>,
    /// What came, in order: from whom, and its number.
    pub(crate) got: Vec<(String, u32)>,
}

/// Messages without an answer, at most.
const WINDOW: usize = 5;

impl Client {
    pub(crate) fn new(id: &str, version: Version, publishes: Option<&str>, filter: Option<(&str, QoS)>) -> Self {
        Self {
            id: id.to_owned(),
            version,
            publishes: publishes.map(Into::into),
            filter: filter.map(|(filter, qos)| (filter.to_owned(), qos)),
            is_subscribed: false,
            habit: Habit::Steady,
            leaves_wills: false,
            dials: 0,
            is_known: false,
            is_connected: false,
            out: Vec::new(),
            incoming: Vec::new(),
            messages_max: 40,
            next: 1,
            under_way: BTreeMap::new(),
            next_id: 1,
            sent: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            retained_sent: 0,
            retained_acknowledged: 0,
            received: BTreeSet::new(),
            got: Vec::new(),
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.is_connected && self.has_subscribed()
    }

    /// Whatever it wants to hear, it was told that it will.
    pub(crate) fn has_subscribed(&self) -> bool {
        self.filter.is_none() || self.is_subscribed || self.habit == Habit::Fickle
    }

    pub(crate) fn is_done(&self) -> bool {
        self.under_way.is_empty() && (self.publishes.is_none() || self.next > self.messages_max) && self.out.is_empty()
    }

    pub(crate) fn say(&mut self, packet: &impl Encode) {
        let _ = packet.encode(Peer::new(self.version), &mut self.out);
    }

    /// The connection is gone, with whatever was on it.
    pub(crate) fn lose(&mut self) {
        self.is_connected = false;
        self.out.clear();
        self.incoming.clear();
    }

    /// Publishes the next message, if there is room for one.
    pub(crate) fn publish(&mut self, dice: &mut Dice) {
        if self.next > self.messages_max || self.under_way.len() >= WINDOW || self.publishes.is_none() {
            return;
        }
        let number = self.next;
        self.next += 1;
        while self.under_way.contains_key(&self.next_id) {
            self.next_id = self.next_id % 20 + 1;
        }
        let (id, qos) = (self.next_id, if dice.one_in(2) { QoS::AtLeastOnce } else { QoS::ExactlyOnce });
        self.next_id = self.next_id % 20 + 1;
        // Of one kind only: a QoS 1 message that is sent again may come after a QoS 2 one that is not, and replace it.
        let kind = if self.version == Version::V5 { QoS::ExactlyOnce } else { QoS::AtLeastOnce };
        let retain = qos == kind && dice.one_in(2);
        self.sent.insert(number, qos);
        if retain {
            self.retained_sent = number;
        }
        self.under_way.insert(id, (number, qos, retain, Sending::Sent));
        self.send(id, false);
    }

    fn send(&mut self, id: u16, dup: bool) {
        let (Some(&(number, qos, retain, _)), Some(topic)) = (self.under_way.get(&id), self.publishes.clone()) else {
            return;
        };
        let packet_id = PacketId::new(id).unwrap();
        let delivery = match qos {
            QoS::AtLeastOnce => Delivery::AtLeastOnce { packet_id, dup },
            _ => Delivery::ExactlyOnce { packet_id, dup },
        };
        let payload = format!("{} {number}", self.id);
        trace(|| format!("{payload} is sent as {delivery:?}, retain {retain}"));
        self.say(&Publish {
            delivery,
            retain,
            topic: &topic,
            properties: Properties::EMPTY,
            payload: payload.as_bytes(),
        });
    }

    fn welcome(&mut self, session_present: bool) {
        assert!(session_present || !self.is_known, "{}: the session that was promised is gone", self.id);
        trace(|| format!("{} is connected, session {session_present}", self.id));
        self.is_known = true;
        self.is_connected = true;
        // In the order in which they were sent first.
        let mut again: Vec<(u32, u16, Sending)> =
            self.under_way.iter().map(|(id, &(number, _, _, stage))| (number, *id, stage)).collect();
        again.sort_unstable_by_key(|(number, ..)| *number);
        for (_, id, stage) in again {
            match stage {
                Sending::Sent => self.send(id, true),
                Sending::Received => self.say(&Ack::success(AckKind::PubRel, PacketId::new(id).unwrap())),
            }
        }
        if !self.is_subscribed {
            self.subscribe();
        }
    }

    pub(crate) fn subscribe(&mut self) {
        let Some((filter, qos)) = self.filter.clone() else { return };
        let filter = TopicFilter::parse(&filter, &Limits::default()).unwrap();
        let list = [Subscription { filter, options: SubscriptionOptions::with_qos(qos) }];
        let subscriptions = SubscriptionList::new(&list);
        self.say(&Subscribe { packet_id: PacketId::MIN, properties: Properties::EMPTY, subscriptions });
    }

    /// Reads one packet of what has arrived; false if there is none.
    pub(crate) fn read(&mut self) -> bool {
        let bytes = std::mem::take(&mut self.incoming);
        let limits = Limits::default().with_sender(Sender::Server);
        let (packet, consumed) = match decode(&bytes, self.version, &limits).unwrap() {
            Decoded::Packet { packet, consumed } => (packet, consumed),
            Decoded::Incomplete { .. } => {
                self.incoming = bytes;
                return false;
            }
        };
        match packet {
            Packet::ConnAck(connack) if connack.reason == ReasonCode::Success => self.welcome(connack.session_present),
            Packet::SubAck(suback) => self.is_subscribed = suback.reasons.iter().all(|reason| !reason.is_failure()),
            Packet::Publish(publish) => self.receive(&publish),
            Packet::Ack(ack) => self.on_ack(ack.kind, ack.packet_id.get(), ack.reason),
            _ => {}
        }
        self.incoming = bytes[consumed..].to_vec();
        true
    }

    fn on_ack(&mut self, kind: AckKind, id: u16, reason: ReasonCode) {
        trace(|| format!("{} gets {kind:?} {id} {reason:?}", self.id));
        let packet_id = PacketId::new(id).unwrap();
        match kind {
            AckKind::PubRel => {
                self.received.remove(&id);
                self.say(&Ack::success(AckKind::PubComp, packet_id));
            }
            AckKind::PubAck | AckKind::PubRec => {
                let Some(&(number, qos, retain, _)) = self.under_way.get(&id) else { return };
                if reason.is_failure() {
                    // It was told that it was not taken; it does not try again.
                    self.under_way.remove(&id);
                    return;
                }
                self.acknowledged.insert(number);
                if retain {
                    self.retained_acknowledged = self.retained_acknowledged.max(number);
                }
                if kind == AckKind::PubRec {
                    self.under_way.insert(id, (number, qos, retain, Sending::Received));
                    self.say(&Ack::success(AckKind::PubRel, packet_id));
                } else {
                    self.under_way.remove(&id);
                }
            }
            AckKind::PubComp => drop(self.under_way.remove(&id)),
        }
    }

    fn receive(&mut self, publish: &Publish<'_>) {
        let text = std::str::from_utf8(publish.payload).unwrap();
        let (from, number) = text.split_once(' ').unwrap();
        trace(|| format!("{} gets {text} as {:?}", self.id, publish.delivery));
        let came = (from.to_owned(), number.parse().unwrap());
        match publish.delivery {
            Delivery::AtMostOnce => self.got.push(came),
            Delivery::AtLeastOnce { packet_id, .. } => {
                self.got.push(came);
                self.say(&Ack::success(AckKind::PubAck, packet_id));
            }
            Delivery::ExactlyOnce { packet_id, .. } => {
                if self.received.insert(packet_id.get()) {
                    self.got.push(came);
                }
                self.say(&Ack::success(AckKind::PubRec, packet_id));
            }
        }
    }
}
