//! One MQTT connection without a socket: frames, packet numbers, topic aliases, signs of life, what the broker announced,
//! and the steps of QoS 2 that need nobody's decision.
//!
//! It refuses to know what is published and when, who reads, and what follows a cut: that is its owner's. [`MqttSession`]
//! has a backlog and comes back; `tidegate pub` and `sub` wait for each packet in turn.
//!
//! - told: [`MqttConnection::open`], [`MqttConnection::handle_bytes`], [`MqttConnection::write`],
//!   [`MqttConnection::acknowledge`], [`MqttConnection::note_sent`]
//! - asked: [`MqttConnection::poll_packet`], [`MqttConnection::take_output`], [`MqttConnection::turn`],
//!   [`MqttConnection::poll_timeout`]
//!
//! [`MqttSession`]: super::MqttSession

use alloc::collections::{BTreeMap, BTreeSet};
use core::num::NonZeroU16;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::hints::Hints;
use tidegate_wire_mqtt::{
    Ack, AckKind, ConnAck, Connect, Decoded, Delivery, Encode, Encoded, Limits, Packet, PacketId, PacketType, Peer,
    Properties, Publish, QoS, ReasonCode, Sender, Version, decode,
};

use crate::prelude::*;

/// What a connection may grow to, whatever the broker allows.
#[derive(Clone, Debug)]
pub struct ConnectionBounds {
    /// Limits of what arrives.
    pub limits: Limits,
    /// Messages under way.
    pub window_max: usize,
    /// Topic aliases of the broker.
    pub aliases_max: usize,
    /// The shortest time between signs of life that a broker may ask for; with zero it may ask for none.
    pub keep_alive_min: Duration,
}

/// A message that arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// Its topic, also if the broker sent an alias.
    pub topic: String,
    /// The payload.
    pub payload: Vec<u8>,
    /// Quality of service of the delivery.
    pub qos: QoS,
    /// Whether it was retained.
    pub retain: bool,
    /// Whether it may have been sent before.
    pub dup: bool,
    /// Its number, to [acknowledge](MqttConnection::acknowledge) it; none at QoS 0.
    pub packet_id: Option<PacketId>,
    /// Properties as on the wire.
    pub encoded_properties: Vec<u8>,
}

impl ReceivedMessage {
    /// The properties.
    pub fn properties(&self) -> Properties<'_> {
        Properties::from_encoded(&self.encoded_properties)
    }
}

/// What a packet means to the owner of a connection.
#[derive(Clone, Debug, PartialEq)]
pub enum PacketMeaning {
    /// Nothing: it is dealt with.
    Nothing,
    /// The broker is there.
    Connected {
        /// Whether the broker has kept the session.
        session_present: bool,
        /// The identifier that the broker chose.
        client_id: Option<String>,
    },
    /// The broker does not want us.
    Refused(BrokerReason),
    /// The broker ends the connection.
    Ended(BrokerReason),
    /// A message came.
    Message(ReceivedMessage),
    /// The broker has this QoS 2 message, and was told to release it.
    Stored(PacketId),
    /// This message of ours is done, well or not.
    Done(PacketId, BrokerReason),
    /// A subscription was answered.
    Subscribed(PacketId, Vec<ReasonCode>),
    /// An unsubscription was answered.
    Unsubscribed(PacketId),
    /// What the broker sends is no MQTT; the connection is to be given up.
    Nonsense(String),
}

/// What the broker says about something.
#[derive(Clone, Debug, PartialEq)]
pub struct BrokerReason {
    /// The reason code.
    pub reason: ReasonCode,
    /// The broker's reason string.
    pub detail: Option<String>,
    /// What it said about coming back.
    pub hints: Hints,
}

impl BrokerReason {
    fn new(reason: ReasonCode, properties: Properties<'_>) -> Self {
        let mut hints = Hints::default();
        for (name, text) in properties.user_properties() {
            hints.read(name, text);
        }
        Self { reason, detail: properties.reason_string().map(str::to_owned), hints }
    }
}

/// A packet is larger than the broker takes, or than MQTT can say; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketTooLarge {
    /// What it would have been.
    pub bytes: Option<usize>,
    /// What the broker takes, if it said so.
    pub most: Option<u32>,
}

/// See the [module](self).
#[derive(Debug)]
pub struct MqttConnection {
    bounds: ConnectionBounds,
    peer: Peer,
    is_up: bool,
    inbox: Vec<u8>,
    /// Bytes of the inbox that are done with.
    read: usize,
    out: Vec<u8>,
    /// QoS 2 messages that came and are not released; they outlive the connection if the broker keeps the session.
    incoming: BTreeSet<PacketId>,
    aliases: BTreeMap<NonZeroU16, String>,
    next_id: PacketId,
    window: usize,
    /// Zero is never.
    keep_alive: Duration,
    last_sent: Timestamp,
    pinged: Option<Timestamp>,
}

impl MqttConnection {
    /// Nothing is open yet.
    pub fn new(version: Version, bounds: ConnectionBounds) -> Self {
        let window = bounds.window_max;
        let limits = bounds.limits.with_sender(Sender::Server);
        Self {
            bounds: ConnectionBounds { limits, ..bounds },
            peer: Peer::new(version),
            is_up: false,
            inbox: Vec::new(),
            read: 0,
            out: Vec::new(),
            incoming: BTreeSet::new(),
            aliases: BTreeMap::new(),
            next_id: PacketId::MIN,
            window,
            keep_alive: Duration::ZERO,
            last_sent: Timestamp::ZERO,
            pinged: None,
        }
    }

    /// A new connection is open: greets. What an earlier one was told does not hold for it.
    pub fn open(&mut self, greeting: &Connect<'_>, now: Timestamp) -> Result<(), PacketTooLarge> {
        self.peer = Peer::new(greeting.version);
        (self.is_up, self.read, self.pinged) = (false, 0, None);
        self.inbox.clear();
        self.out.clear();
        self.aliases.clear();
        self.window = self.bounds.window_max;
        self.keep_alive = Duration::from_secs(greeting.keep_alive.into());
        self.last_sent = now;
        self.write(&Packet::Connect(*greeting))
    }

    /// The version that is spoken.
    pub fn version(&self) -> Version {
        self.peer.version
    }

    /// The version of the next greeting.
    pub fn set_version(&mut self, version: Version) {
        self.peer = Peer::new(version);
    }

    /// Limits of what arrives.
    pub fn limits(&self) -> &Limits {
        &self.bounds.limits
    }

    /// How many messages of ours may be under way (Receive Maximum).
    pub fn window(&self) -> usize {
        self.window
    }

    /// Bytes arrived; [`Self::poll_packet`] says what they are.
    pub fn handle_bytes(&mut self, bytes: &[u8]) {
        self.inbox.drain(..self.read);
        self.read = 0;
        self.inbox.extend_from_slice(bytes);
    }

    /// What the next packet means that is there as a whole; `trace` is told its kind and length before.
    pub fn poll_packet(&mut self, trace: impl FnOnce(PacketType, usize)) -> Option<PacketMeaning> {
        let inbox = core::mem::take(&mut self.inbox);
        let received = match decode(&inbox[self.read..], self.peer.version, &self.bounds.limits) {
            Ok(Decoded::Packet { packet, consumed }) => {
                trace(packet.kind(), consumed);
                self.read += consumed;
                Some(self.handle(&packet))
            }
            Ok(Decoded::Incomplete { .. }) => None,
            Err(error) => Some(PacketMeaning::Nonsense(format!("{} [{}]", error.detail, error.section))),
        };
        self.inbox = inbox;
        received
    }

    fn handle(&mut self, packet: &Packet<'_>) -> PacketMeaning {
        match (self.is_up, packet) {
            (false, Packet::ConnAck(answer)) => self.welcome(answer),
            (true, Packet::Publish(publish)) => self.on_publish(publish),
            (true, Packet::Ack(ack)) => self.on_ack(ack),
            (true, Packet::SubAck(answer)) => {
                PacketMeaning::Subscribed(answer.packet_id, answer.reasons.iter().collect())
            }
            (true, Packet::UnsubAck(answer)) => PacketMeaning::Unsubscribed(answer.packet_id),
            (true, Packet::PingResp) => {
                self.pinged = None;
                PacketMeaning::Nothing
            }
            (_, Packet::Disconnect(goodbye)) => {
                PacketMeaning::Ended(BrokerReason::new(goodbye.reason, goodbye.properties))
            }
            (_, other) => PacketMeaning::Nonsense(format!("unexpected {:?}", other.kind())),
        }
    }

    fn welcome(&mut self, answer: &ConnAck<'_>) -> PacketMeaning {
        let properties = answer.properties;
        if answer.reason != ReasonCode::Success {
            return PacketMeaning::Refused(BrokerReason::new(answer.reason, properties));
        }
        let ConnectionBounds { window_max, keep_alive_min, .. } = self.bounds;
        self.window = properties.receive_maximum().map_or(window_max, |max| window_max.min(max.get().into()));
        if let Some(most) = properties.maximum_packet_size() {
            self.peer.packet_bytes_max = most.get();
        }
        if let Some(seconds) = properties.server_keep_alive() {
            self.keep_alive = Duration::from_secs(seconds.into()).max(keep_alive_min);
        }
        let session_present = answer.session_present;
        if !session_present {
            self.incoming.clear();
        }
        self.is_up = true;
        PacketMeaning::Connected { session_present, client_id: properties.assigned_client_id().map(str::to_owned) }
    }

    fn on_publish(&mut self, publish: &Publish<'_>) -> PacketMeaning {
        let topic = match (publish.properties.topic_alias(), publish.topic) {
            (Some(alias), "") => self.aliases.get(&alias).cloned(),
            (Some(alias), name)
                if self.aliases.len() < self.bounds.aliases_max || self.aliases.contains_key(&alias) =>
            {
                self.aliases.insert(alias, name.to_owned());
                Some(name.to_owned())
            }
            (Some(_), _) => None,
            (None, name) => Some(name.to_owned()),
        };
        let Some(topic) = topic else {
            return PacketMeaning::Nonsense("a topic alias that is not known".to_owned());
        };
        // Until it is released, the same identifier is the same message. [MQTT-4.3.3-10]
        if let Delivery::ExactlyOnce { packet_id, .. } = publish.delivery
            && !self.incoming.insert(packet_id)
        {
            self.acknowledge(QoS::ExactlyOnce, packet_id);
            return PacketMeaning::Nothing;
        }
        let mut encoded_properties = Vec::new();
        publish.properties.encode(&mut encoded_properties, |_| true);
        PacketMeaning::Message(ReceivedMessage {
            topic,
            payload: publish.payload.to_vec(),
            qos: publish.delivery.qos(),
            retain: publish.retain,
            dup: publish.delivery.dup(),
            packet_id: publish.delivery.packet_id(),
            encoded_properties,
        })
    }

    fn on_ack(&mut self, ack: &Ack<'_>) -> PacketMeaning {
        let id = ack.packet_id;
        match ack.kind {
            AckKind::PubRel => {
                self.incoming.remove(&id);
                self.write_ack(AckKind::PubComp, id);
                PacketMeaning::Nothing
            }
            // A refused PUBREC is the end of the message, too. [MQTT-4.3.3-4]
            AckKind::PubRec if !ack.reason.is_failure() => {
                self.write_ack(AckKind::PubRel, id);
                PacketMeaning::Stored(id)
            }
            AckKind::PubAck | AckKind::PubRec | AckKind::PubComp => {
                PacketMeaning::Done(id, BrokerReason::new(ack.reason, ack.properties))
            }
        }
    }

    /// A message that came is taken.
    pub fn acknowledge(&mut self, qos: QoS, id: PacketId) {
        self.write_ack(if qos == QoS::ExactlyOnce { AckKind::PubRec } else { AckKind::PubAck }, id);
    }

    /// A message that came was not taken, and comes again: it is new then.
    pub fn forget_incoming(&mut self, id: PacketId) {
        self.incoming.remove(&id);
    }

    /// Tells the broker to release a QoS 2 message that it has.
    pub fn release(&mut self, id: PacketId) {
        self.write_ack(AckKind::PubRel, id);
    }

    fn write_ack(&mut self, kind: AckKind, id: PacketId) {
        // Four bytes: the smallest maximum that a broker can announce and still be sent a message is larger.
        let _ = self.write(&Packet::Ack(Ack::success(kind, id)));
    }

    /// Writes a packet to the output.
    pub fn write(&mut self, packet: &Packet<'_>) -> Result<(), PacketTooLarge> {
        let before = self.out.len();
        match packet.encode(self.peer, &mut self.out) {
            Encoded::Written { .. } | Encoded::Trimmed { .. } => Ok(()),
            Encoded::TooLarge | Encoded::NotInVersion => {
                self.out.truncate(before);
                let most = Some(self.peer.packet_bytes_max).filter(|most| *most < u32::MAX);
                Err(PacketTooLarge { bytes: packet.encoded_len(self.peer.version), most })
            }
        }
    }

    /// Bytes to be sent.
    pub fn take_output(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.out)
    }

    /// Something was sent that shows the broker that we are there.
    pub fn note_sent(&mut self, now: Timestamp) {
        self.last_sent = now;
    }

    /// Pings when it is time. False: the broker is silent, the connection is to be given up.
    pub fn turn(&mut self, now: Timestamp) -> bool {
        if self.keep_alive.is_zero() {
            return true;
        }
        if let Some(pinged) = self.pinged {
            return now < pinged + self.keep_alive;
        }
        if now >= self.ping_due() {
            let _ = self.write(&Packet::PingReq);
            (self.pinged, self.last_sent) = (Some(now), now);
        }
        true
    }

    /// A little early, so that the broker's clock is not the one that decides.
    fn ping_due(&self) -> Timestamp {
        self.last_sent + self.keep_alive.mul_f32(0.9)
    }

    /// When to turn again, if nothing arrives.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let due = self.pinged.map_or_else(|| self.ping_due(), |pinged| pinged + self.keep_alive);
        (!self.keep_alive.is_zero()).then_some(due)
    }

    /// A packet number that is free. There is one: the window is smaller than their number.
    pub fn take_id(&mut self, is_used: impl Fn(PacketId) -> bool) -> PacketId {
        loop {
            let id = self.next_id;
            self.next_id = id.checked_add(1).unwrap_or(PacketId::MIN);
            if !is_used(id) {
                return id;
            }
        }
    }
}
