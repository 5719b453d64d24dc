//! What tests say and see: options of a CONNECT, and packets in owned form.

use tidegate_core::access::{Action, Identity, Policy};
use tidegate_wire_mqtt::{
    AckKind, Packet, PacketId, Property, QoS, ReasonCode, RetainHandling, SubscriptionOptions, Version,
};

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

pub(crate) fn owned(packet: &Packet<'_>) -> Got {
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

/// A session that is kept for an hour, of a client of MQTT 5.
pub(crate) fn lasting() -> Options<'static> {
    Options { clean: false, properties: vec![Property::SessionExpiry(3600)], ..Options::default() }
}

/// A session that is kept, of a client of 3.1.1.
pub(crate) fn lasting_v311() -> Options<'static> {
    Options { version: Version::V311, clean: false, ..Options::default() }
}

/// An acknowledgement with this reason.
pub(crate) fn ack(kind: AckKind, id: u16, reason: ReasonCode) -> Got {
    Got::Ack { kind, id, reason }
}

pub(crate) fn options(qos: QoS) -> SubscriptionOptions {
    SubscriptionOptions { retain_handling: RetainHandling::Send, ..SubscriptionOptions::with_qos(qos) }
}
