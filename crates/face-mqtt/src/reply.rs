//! What a shard has to say, as packets; never a success that is none.
//!
//! MQTT 5 has reason codes, and carries the pace in user properties. Before, an acknowledgement is a success, and who is
//! not to be thanked is not answered: a shard does not ask for it (`Face::hears_refusals`), and a DISCONNECT is not sent.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use tidegate_core::event::Why;
use tidegate_core::face::ClientAnswer;
use tidegate_wire_mqtt::{
    Ack, AckKind, ConnAck, Delivery, Disconnect, Encode, Packet, PacketId, Peer, Properties, Property, QoS, ReasonCode,
    ReasonCodes, SubAck, UnsubAck, Version,
};

use crate::link::FaceLink;
use crate::pace::PaceWords;

/// Appends an answer.
pub(crate) fn write(link: &mut FaceLink, answer: &ClientAnswer<'_>, out: &mut Vec<u8>) {
    let peer = link.peer;
    match *answer {
        ClientAnswer::Taken { delivery, is_reached, interval } => taken(peer, delivery, is_reached, interval, out),
        ClientAnswer::Refused { delivery, refusal } => {
            let pace = PaceWords::new(refusal.interval, Some(refusal.retry_after));
            let properties = pace.properties(refusal.why);
            ack(peer, delivery, ReasonCode::QuotaExceeded, Properties::new(&properties), out);
        }
        ClientAnswer::Rejected { delivery, reason } => ack(peer, delivery, reason, Properties::EMPTY, out),
        ClientAnswer::Release { number, is_known } => step(peer, AckKind::PubRel, number, is_known, out),
        ClientAnswer::Complete { number, is_known } => step(peer, AckKind::PubComp, number, is_known, out),
        ClientAnswer::Subscribed { number, grants } => {
            let reasons: Vec<ReasonCode> =
                grants.iter().map(|grant| grant.map_or_else(|reason| reason, granted)).collect();
            let reasons = ReasonCodes::new(&reasons);
            put(&SubAck { packet_id: number, properties: Properties::EMPTY, reasons }, peer, out);
        }
        ClientAnswer::Unsubscribed { number, existed } => {
            let reason = |existed| if existed { ReasonCode::Success } else { ReasonCode::NoSubscriptionExisted };
            let reasons: Vec<ReasonCode> = existed.iter().map(|existed| reason(*existed)).collect();
            let reasons = ReasonCodes::new(&reasons);
            put(&UnsubAck { packet_id: number, properties: Properties::EMPTY, reasons }, peer, out);
        }
        ClientAnswer::Alive => put(&Packet::PingResp, peer, out),
        ClientAnswer::Due => {}
        ClientAnswer::Welcome { is_resumed } => {
            if let Some(greeting) = link.greeting.take() {
                // It fits: a client that would not accept it was not let in.
                let _ = greeting.write(is_resumed, peer, out);
            }
        }
        ClientAnswer::Unwelcome { reason, later } => unwelcome(peer, reason, later, out),
        ClientAnswer::Goodbye(why) => goodbye(peer, why, out),
    }
}

/// A packet that the client would not accept is not sent.
fn put(packet: &impl Encode, peer: Peer, out: &mut Vec<u8>) {
    let _ = packet.encode(peer, out);
}

fn granted(qos: QoS) -> ReasonCode {
    match qos {
        QoS::AtMostOnce => ReasonCode::Success,
        QoS::AtLeastOnce => ReasonCode::GrantedQos1,
        QoS::ExactlyOnce => ReasonCode::GrantedQos2,
    }
}

fn taken(peer: Peer, delivery: Delivery, is_reached: bool, interval: Option<Duration>, out: &mut Vec<u8>) {
    let reason = if is_reached { ReasonCode::Success } else { ReasonCode::NoMatchingSubscribers };
    if interval.is_none() {
        return ack(peer, delivery, reason, Properties::EMPTY, out);
    }
    let pace = PaceWords::new(interval, None);
    ack(peer, delivery, reason, Properties::new(&pace.words()), out);
}

/// PUBACK or PUBREC; at QoS 0 nobody waits for an answer.
fn ack(peer: Peer, delivery: Delivery, reason: ReasonCode, properties: Properties<'_>, out: &mut Vec<u8>) {
    let (kind, packet_id) = match delivery {
        Delivery::AtMostOnce => return,
        Delivery::AtLeastOnce { packet_id, .. } => (AckKind::PubAck, packet_id),
        Delivery::ExactlyOnce { packet_id, .. } => (AckKind::PubRec, packet_id),
    };
    put(&Ack { kind, packet_id, reason, properties }, peer, out);
}

fn step(peer: Peer, kind: AckKind, packet_id: PacketId, is_known: bool, out: &mut Vec<u8>) {
    let reason = if is_known { ReasonCode::Success } else { ReasonCode::PacketIdentifierNotFound };
    put(&Ack { kind, packet_id, reason, properties: Properties::EMPTY }, peer, out);
}

/// A CONNACK that says no; `later` is why, in words, and when to come back.
pub fn unwelcome(peer: Peer, reason: ReasonCode, later: Option<(&str, Duration)>, out: &mut Vec<u8>) {
    let pace = PaceWords::new(None, later.map(|(_, retry_after)| retry_after));
    let list = later.map_or_else(Vec::new, |(words, _)| pace.properties(words));
    let properties = if list.is_empty() { Properties::EMPTY } else { Properties::new(&list) };
    put(&ConnAck { session_present: false, reason, properties }, peer, out);
}

/// Always in words as well: rumqttc does not understand a DISCONNECT that ends after the reason code. Before MQTT 5 only
/// clients say goodbye.
pub fn goodbye(peer: Peer, why: &Why, out: &mut Vec<u8>) {
    let Some(reason) = reason_of(why).filter(|_| peer.version == Version::V5) else { return };
    let pace;
    let properties = match why {
        Why::Protocol { detail, .. } => vec![Property::ReasonString(detail)],
        Why::TooFast { interval, retry_after } => {
            pace = PaceWords::new(*interval, Some(*retry_after));
            pace.properties("publishing too fast for too long")
        }
        _ => vec![Property::ReasonString(reason.name())],
    };
    put(&Disconnect { reason, properties: Properties::new(&properties) }, peer, out);
}

/// The reason code that a `Why` is told with; none where nobody is left to tell.
fn reason_of(why: &Why) -> Option<ReasonCode> {
    match why {
        Why::Goodbye | Why::Lost | Why::UpstreamClosed => None,
        // The word for "unavailable" is one of a CONNACK only.
        Why::UpstreamLost => Some(ReasonCode::ServerShuttingDown),
        Why::KeepAlive => Some(ReasonCode::KeepAliveTimeout),
        Why::TooFast { .. } => Some(ReasonCode::MessageRateTooHigh),
        Why::NotReading { .. } => Some(ReasonCode::QuotaExceeded),
        Why::TakenOver => Some(ReasonCode::SessionTakenOver),
        Why::Protocol { reason, .. } | Why::Ended(reason) => Some(*reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use tidegate_core::Refusal;
    use tidegate_wire_mqtt::{Decoded, Limits, Sender, decode};

    fn said(version: Version, answer: &ClientAnswer<'_>) -> Vec<u8> {
        let peer = Peer::new(version);
        let mut link = FaceLink { peer, is_bridge: false, greeting: None, aliases_in: None, aliases_out: None };
        let mut out = Vec::new();
        write(&mut link, answer, &mut out);
        out
    }

    fn with<T>(bytes: &[u8], version: Version, look: impl FnOnce(&Packet<'_>) -> T) -> T {
        match decode(bytes, version, &Limits::default().with_sender(Sender::Server)).unwrap() {
            Decoded::Packet { packet, consumed } if consumed == bytes.len() => look(&packet),
            other => panic!("one packet: {other:?}"),
        }
    }

    fn reason_string(properties: &Properties<'_>) -> Option<String> {
        properties.iter().find_map(|property| match property {
            Property::ReasonString(text) => Some(text.into()),
            _ => None,
        })
    }

    fn words(properties: &Properties<'_>) -> Vec<(String, String)> {
        properties.user_properties().map(|(name, text)| (name.into(), text.into())).collect()
    }

    #[test]
    fn a_refusal_says_why_and_when_to_come_back_and_which_interval_would_do() {
        let delivery = Delivery::ExactlyOnce { packet_id: PacketId::MIN, dup: false };
        let (retry_after, interval) = (Duration::from_millis(1500), Some(Duration::from_secs(2)));
        let refusal = Refusal { why: "publishing too fast", retry_after, interval };
        let bytes = said(Version::V5, &ClientAnswer::Refused { delivery, refusal: &refusal });
        with(&bytes, Version::V5, |packet| {
            let Packet::Ack(ack) = packet else { panic!("{packet:?}") };
            assert_eq!((ack.kind, ack.reason), (AckKind::PubRec, ReasonCode::QuotaExceeded));
            assert_eq!(reason_string(&ack.properties), Some("publishing too fast".into()));
            let expected = [("pace-interval-ms", "2000"), ("pace-retry-after-ms", "1500")];
            let mut found = words(&ack.properties);
            found.sort();
            assert_eq!(found, expected.map(|(name, text)| (name.into(), text.into())));
        });
    }

    #[test]
    fn a_message_that_reached_nobody_is_a_success_before_mqtt_5() {
        let delivery = Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false };
        let answer = ClientAnswer::Taken { delivery, is_reached: false, interval: None };
        for (version, expected) in
            [(Version::V311, ReasonCode::Success), (Version::V5, ReasonCode::NoMatchingSubscribers)]
        {
            with(&said(version, &answer), version, |packet| {
                let Packet::Ack(ack) = packet else { panic!("{packet:?}") };
                assert_eq!((ack.kind, ack.reason), (AckKind::PubAck, expected));
            });
        }
        let nobody_waits = ClientAnswer::Taken { delivery: Delivery::AtMostOnce, is_reached: true, interval: None };
        assert_eq!(said(Version::V5, &nobody_waits), []);
    }

    #[test]
    fn only_mqtt_5_hears_a_goodbye_and_only_if_there_is_a_reason() {
        for why in [Why::KeepAlive, Why::TakenOver, Why::Ended(ReasonCode::ServerShuttingDown)] {
            for version in [Version::V31, Version::V311] {
                assert_eq!(said(version, &ClientAnswer::Goodbye(&why)), []);
            }
            with(&said(Version::V5, &ClientAnswer::Goodbye(&why)), Version::V5, |packet| {
                let Packet::Disconnect(goodbye) = packet else { panic!("{packet:?}") };
                assert_eq!(Some(goodbye.reason), reason_of(&why));
                assert!(reason_string(&goodbye.properties).is_some(), "always in words as well");
            });
        }
        assert_eq!(said(Version::V5, &ClientAnswer::Goodbye(&Why::Lost)), []);
    }
}
