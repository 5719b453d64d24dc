//! A patched copy of a frame is what encoding the message for that receiver would give.

use std::num::{NonZeroU16, NonZeroU32};

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_wire_mqtt::property::PropertyId;
use tidegate_wire_mqtt::{
    Delivery, Encode, Encoded, OutgoingAlias, Patch, PayloadPlace, Peer, Properties, Property, Publish, PublishFrame,
    Version,
};

use super::generate;

fn alias() -> impl Strategy<Value = OutgoingAlias> {
    prop_oneof![
        Just(OutgoingAlias::None),
        generate::packet_id().prop_map(OutgoingAlias::Define),
        generate::packet_id().prop_map(OutgoingAlias::Use),
    ]
}

fn ids() -> impl Strategy<Value = Vec<NonZeroU32>> {
    vec((1_u32..268_435_456).prop_map(|id| NonZeroU32::new(id).unwrap()), 0..3)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn a_patched_copy_equals_a_fresh_packet(
        (version, message) in generate::version().prop_flat_map(|version| (Just(version), generate::publish(version))),
        delivery in generate::delivery(),
        retain in any::<bool>(),
        message_expiry in prop::option::of(any::<u32>()),
        subscription_ids in ids(),
        alias in alias(),
    ) {
        let patch = Patch { delivery, retain, message_expiry, subscription_ids: &subscription_ids, alias };
        let expected = encoded_for_receiver(&message, &patch, version);
        let peer = Peer::new(version);

        let mut out = vec![0xee];
        let frame = PublishFrame::new(&message, version, PayloadPlace::Inside).unwrap();
        prop_assert_eq!(frame.write(&patch, peer, &mut out), Encoded::Written { len: expected.len() });
        prop_assert_eq!(&out[1..], &expected[..]);

        let mut head = Vec::new();
        let frame = PublishFrame::new(&message, version, PayloadPlace::Outside).unwrap();
        let written = expected.len() - message.payload.len();
        prop_assert_eq!(frame.write(&patch, peer, &mut head), Encoded::Written { len: written });
        prop_assert_eq!(&head[..], &expected[..written]);

        let small = Peer { packet_bytes_max: expected.len() as u32 - 1, ..peer };
        prop_assert_eq!(frame.write(&patch, small, &mut head), Encoded::TooLarge);
        prop_assert_eq!(head.len(), written);
    }
}

/// The long way: a new list of properties, a new packet.
fn encoded_for_receiver(message: &Publish<'_>, patch: &Patch<'_>, version: Version) -> Vec<u8> {
    let mut list = Vec::new();
    if let OutgoingAlias::Define(alias) | OutgoingAlias::Use(alias) = patch.alias {
        list.push(Property::TopicAlias(alias));
    }
    list.extend(patch.subscription_ids.iter().map(|&id| Property::SubscriptionId(id)));
    for property in &message.properties {
        match (property.id(), patch.message_expiry) {
            (PropertyId::TopicAlias | PropertyId::SubscriptionId, _) => {}
            (PropertyId::MessageExpiry, Some(left)) => list.push(Property::MessageExpiry(left)),
            _ => list.push(property),
        }
    }
    let by_alias = version == Version::V5 && matches!(patch.alias, OutgoingAlias::Use(_));
    let topic = if by_alias { "" } else { message.topic };
    let (delivery, retain) = (patch.delivery, patch.retain);
    let fresh = Publish { delivery, retain, topic, properties: Properties::new(&list), payload: message.payload };
    let mut out = Vec::new();
    let _ = fresh.encode(Peer::new(version), &mut out);
    out
}

#[test]
fn a_copy_differs_from_its_frame_only_in_flags_and_identifier() {
    let packet_id = NonZeroU16::new(0x0102).unwrap();
    let delivery = Delivery::AtLeastOnce { packet_id, dup: false };
    let message = Publish { delivery, retain: true, topic: "a/b", properties: Properties::EMPTY, payload: b"hi" };
    let frame = PublishFrame::new(&message, Version::V311, PayloadPlace::Inside).unwrap();
    assert_eq!(frame.packet_len(), 11);
    let mut out = Vec::new();
    let dup = Delivery::ExactlyOnce { packet_id, dup: true };
    for (delivery, retain) in [(delivery, false), (dup, true), (Delivery::AtMostOnce, false)] {
        let _ = frame.write(&Patch::new(delivery, retain), Peer::new(Version::V311), &mut out);
    }
    assert_eq!(out, b"\x32\x09\x00\x03a/b\x01\x02hi\x3d\x09\x00\x03a/b\x01\x02hi\x30\x07\x00\x03a/bhi");
}

#[test]
fn what_mqtt_cannot_say_makes_no_frame() {
    let topic = "x".repeat(65_536);
    let message = Publish {
        delivery: Delivery::AtMostOnce,
        retain: false,
        topic: &topic,
        properties: Properties::EMPTY,
        payload: b"",
    };
    assert!(PublishFrame::new(&message, Version::V5, PayloadPlace::Inside).is_none());
}
