//! FAULTS.md, section B: the handshakes of QoS 1 and 2 under bad clients and broken connections.

use std::num::NonZeroU16;
use std::time::Duration;

use tidegate_core::access::{Action, Open};
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::AckKind::{PubAck, PubComp, PubRec, PubRel};
use tidegate_wire_mqtt::ReasonCode::{self, PacketIdentifierNotFound, ReceiveMaximumExceeded, Success};
use tidegate_wire_mqtt::{Property, Version};

use crate::net::{Forbid, Got, Net, Options, Wire, ack, lasting, lasting_v311};

fn receive_maximum(count: u16) -> Options<'static> {
    let mut options = lasting();
    options.properties.push(Property::ReceiveMaximum(NonZeroU16::new(count).unwrap()));
    options
}

fn answered(reason: ReasonCode, kind: tidegate_wire_mqtt::AckKind, got: &[Got]) -> usize {
    got.iter().filter(|got| matches!(got, Got::Ack { kind: k, reason: r, .. } if *k == kind && *r == reason)).count()
}

#[test]
fn f029_a_qos_2_message_sent_a_hundred_times_is_delivered_once() {
    for version in [Version::V311, Version::V5] {
        let mut net = Net::new(1);
        let sender = net.connect("sender", &Options { version, ..Options::default() });
        let receiver = net.v5("receiver");
        net.subscribe(receiver, "t", 0);
        net.publish(sender, "t", "x", 2, false, 5);
        for _ in 0..100 {
            net.publish_again(sender, "t", "x", 2, 5);
        }
        assert_eq!(net.receive(sender), vec![ack(PubRec, 5, Success); 101]);
        net.ack(sender, PubRel, 5);
        assert_eq!(net.receive(sender), [ack(PubComp, 5, Success)]);
        assert_eq!(net.payloads(receiver), ["x"]);
        assert!(!net.is_closed(sender));
    }
}

#[test]
fn f030_dup_on_a_first_arrival_is_no_duplicate() {
    let mut net = Net::new(1);
    let (sender, receiver) = (net.v5("sender"), net.v5("receiver"));
    net.subscribe(receiver, "t", 2);
    net.publish_again(sender, "t", "two", 2, 1);
    net.publish_again(sender, "t", "one", 1, 2);
    let got = net.receive(receiver);
    // [MQTT-3.3.1-3] And the flag is not sent on.
    assert!(matches!(&got[..], [Got::Message { dup: false, .. }, Got::Message { dup: false, .. }]), "{got:?}");
}

#[test]
fn f031_unreleased_messages_are_bounded_and_go_with_their_session() {
    let mut net = Net::new(1);
    let sender = net.connect("sender", &lasting());
    for id in 1..=1025 {
        net.publish(sender, "t", "x", 2, false, id);
    }
    let got = net.receive(sender);
    assert_eq!(answered(ReasonCode::NoMatchingSubscribers, PubRec, &got), 1024);
    assert_eq!(got.last(), Some(&Got::Disconnect(ReceiveMaximumExceeded)));
    net.pass(Duration::from_secs(3601));
    assert_eq!(net.stats().sessions, 0);
    // 3.1.1 has no word for a window: all identifiers may be open, and finding them stays cheap.
    let old = net.connect("old", &Options { version: Version::V311, ..Options::default() });
    for id in (1..=u16::MAX).rev() {
        net.publish(old, "t", "x", 2, false, id);
    }
    for id in 1..=u16::MAX {
        net.publish_again(old, "t", "x", 2, id);
    }
    assert_eq!(net.receive(old).len(), 2 * usize::from(u16::MAX));
    assert!(!net.is_closed(old));
}

#[test]
fn f032_an_identifier_that_is_open_names_the_first_message() {
    let mut net = Net::new(1);
    let (sender, receiver) = (net.v5("sender"), net.v5("receiver"));
    net.subscribe(receiver, "#", 0);
    net.publish(sender, "t", "first", 2, false, 9);
    net.publish(sender, "u", "second", 2, false, 9);
    assert_eq!(net.payloads(receiver), ["first"], "not mixed, not delivered twice");
    net.ack(sender, PubRel, 9);
    net.publish(sender, "u", "second", 2, false, 9);
    assert_eq!(net.payloads(receiver), ["second"]);
}

/// One message from sender to receiver at QoS 2, whose connections break after this number of packets of theirs. The
/// answer is how often it was received for the first time.
fn interrupted(version: Version, sender_breaks_after: usize, receiver_breaks_after: usize) -> usize {
    let options = if version == Version::V5 { lasting() } else { lasting_v311() };
    let mut net = Net::new(1);
    let mut receiver = net.connect("receiver", &options);
    net.subscribe(receiver, "t", 2);
    let mut sender = net.connect("sender", &options);
    net.publish(sender, "t", "x", 2, false, 7);
    if sender_breaks_after == 0 {
        sender = back(&mut net, sender, "sender", &options);
        net.publish_again(sender, "t", "x", 2, 7);
    }
    net.ack(sender, PubRel, 7);
    if sender_breaks_after == 1 {
        sender = back(&mut net, sender, "sender", &options);
        net.ack(sender, PubRel, 7);
    }
    assert_eq!(net.receive(sender).last().map(|got| matches!(got, Got::Ack { kind: PubComp, .. })), Some(true));
    let (mut stored, mut delivered, mut sent) = (None, 0, 0);
    for _ in 0..10 {
        for got in net.receive(receiver) {
            let (kind, id) = match got {
                Got::Message { id, .. } => {
                    if stored != id {
                        (stored, delivered) = (id, delivered + 1);
                    }
                    (PubRec, id.unwrap())
                }
                Got::Ack { kind: PubRel, id, .. } => {
                    stored = None;
                    (PubComp, id)
                }
                Got::ConnAck { .. } => continue,
                other => panic!("{other:?}"),
            };
            if sent == receiver_breaks_after {
                net.cut(receiver);
                receiver = net.dial("receiver", &options);
                sent += 1;
                break;
            }
            sent += 1;
            net.ack(receiver, kind, id);
        }
    }
    assert_eq!(stored, None, "the handshake came to its end");
    delivered
}

fn back(net: &mut Net, wire: Wire, client_id: &str, options: &Options<'_>) -> Wire {
    net.cut(wire);
    net.connect(client_id, options)
}

#[test]
fn f033_a_handshake_interrupted_anywhere_delivers_once() {
    for version in [Version::V311, Version::V5] {
        for sender in 0..3 {
            for receiver in 0..3 {
                assert_eq!(interrupted(version, sender, receiver), 1, "{version:?} {sender} {receiver}");
            }
        }
    }
}

#[test]
fn f033_a_refused_message_of_3_1_1_is_no_duplicate_when_it_comes_again() {
    let mut net = Net::with(1, Settings::default(), Forbid(Action::Publish, "secret"));
    let receiver = net.v5("receiver");
    net.subscribe(receiver, "#", 0);
    let sender = net.connect("sender", &lasting_v311());
    net.publish(sender, "secret", "x", 2, false, 3);
    assert!(net.is_closed(sender) && net.receive(sender).is_empty());
    // Sent again, it must be refused again: a PUBREC would say that it was taken.
    let sender = net.connect("sender", &lasting_v311());
    net.publish_again(sender, "secret", "x", 2, 3);
    assert!(net.is_closed(sender) && net.receive(sender).is_empty());
    net.shards[0].set_policy(std::sync::Arc::new(Open));
    let sender = net.connect("sender", &lasting_v311());
    net.publish_again(sender, "secret", "x", 2, 3);
    assert_eq!(net.receive(sender), [ack(PubRec, 3, Success)]);
    assert_eq!(net.payloads(receiver), ["x"]);
}

#[test]
fn f034_a_lifetime_that_ends_during_a_handshake_does_not_end_it() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    let receiver = net.connect("receiver", &lasting());
    net.subscribe(receiver, "t", 2);
    let lifetime = [Property::MessageExpiry(10)];
    net.publish_with(sender, "t", "received", 2, false, 1, &lifetime);
    net.publish_with(sender, "t", "sent", 2, false, 2, &lifetime);
    net.receive(receiver);
    net.ack(receiver, PubRec, 1);
    net.cut(receiver);
    net.pass(Duration::from_secs(60));
    let receiver = net.connect("receiver", &lasting());
    // The CONNACK is gone with `connect`; ask for everything once more.
    net.cut(receiver);
    let receiver = net.dial("receiver", &lasting());
    let got = net.receive(receiver);
    assert_eq!(got[1], ack(PubRel, 1, Success));
    assert!(matches!(&got[2], Got::Message { payload, dup: true, id: Some(2), .. } if payload == "sent"), "{got:?}");
    net.ack(receiver, PubComp, 1);
    net.ack(receiver, PubRec, 2);
    assert_eq!(net.receive(receiver), [ack(PubRel, 2, Success)]);
    net.ack(receiver, PubComp, 2);
    assert_eq!(net.stats().dropped_expired, 0);
}

#[test]
fn f035_a_flood_of_unknown_identifiers_is_answered_and_told_nobody() {
    for (version, reason) in [(Version::V311, Success), (Version::V5, PacketIdentifierNotFound)] {
        let mut net = Net::new(1);
        let client = net.connect("c", &Options { version, ..Options::default() });
        let events = net.events.len();
        for id in 1..=1000 {
            for kind in [PubAck, PubRec, PubRel, PubComp] {
                net.ack(client, kind, id);
            }
        }
        let got = net.receive(client);
        assert_eq!(got.len(), 2000, "a PUBREL for each PUBREC and a PUBCOMP for each PUBREL");
        assert_eq!((answered(reason, PubRel, &got), answered(reason, PubComp, &got)), (1000, 1000));
        assert!(!net.is_closed(client));
        assert_eq!(net.events.len(), events, "nothing for the log");
    }
}

#[test]
fn f036_the_window_is_kept_exactly_and_is_new_on_each_connection() {
    let mut net = Net::with(1, Settings { inflight_max: u16::MAX, ..Settings::default() }, Open);
    let sender = net.v5("sender");
    let wide = net.connect("wide", &receive_maximum(u16::MAX));
    let narrow = net.connect("narrow", &receive_maximum(5));
    net.subscribe(wide, "t", 1);
    net.subscribe(narrow, "t", 1);
    for id in 1..=200 {
        net.publish(sender, "t", &id.to_string(), 1, false, id);
    }
    assert_eq!(net.payloads(wide).len(), 200);
    assert_eq!(net.payloads(narrow), ["1", "2", "3", "4", "5"]);
    net.cut(narrow);
    // The same five are open, and now one at a time is wanted.
    let narrow = net.dial("narrow", &receive_maximum(1));
    for expected in 1..=6_u16 {
        let got = net.receive(narrow);
        let messages: Vec<_> = got.iter().filter(|got| matches!(got, Got::Message { .. })).collect();
        let [Got::Message { payload, id: Some(id), dup, .. }] = messages[..] else { panic!("{expected}: {got:?}") };
        assert_eq!((payload, *id, *dup), (&expected.to_string(), expected, expected <= 5));
        net.ack(narrow, PubAck, *id);
    }
}

#[test]
fn f037_one_too_many_is_told_and_not_taken() {
    for excess in [1, 10_000] {
        let mut net = Net::with(1, Settings { receive_max: 3, ..Settings::default() }, Open);
        let (sender, receiver) = (net.v5("sender"), net.v5("receiver"));
        net.subscribe(receiver, "t", 0);
        // All in one piece, as a client that does not count would send them.
        let mut bytes = Vec::new();
        for id in 1..=3 + excess {
            let [high, low] = u16::to_be_bytes(id);
            bytes.extend_from_slice(&[0x34, 6, 0, 1, b't', high, low, 0]);
        }
        net.send_bytes(sender, &bytes);
        let got = net.receive(sender);
        assert_eq!(answered(Success, PubRec, &got), 3);
        assert_eq!(got.last(), Some(&Got::Disconnect(ReceiveMaximumExceeded)));
        assert_eq!(net.payloads(receiver).len(), 3, "what was not acknowledged was not delivered");
    }
}

#[test]
fn f037_what_is_left_from_before_does_not_count_against_a_new_connection() {
    let mut net = Net::with(1, Settings { receive_max: 3, ..Settings::default() }, Open);
    let sender = net.connect("sender", &lasting());
    for id in 1..=3 {
        net.publish(sender, "t", "x", 2, false, id);
    }
    net.cut(sender);
    let sender = net.connect("sender", &lasting());
    for id in 4..=6 {
        net.publish(sender, "t", "x", 2, false, id);
    }
    for id in 1..=6 {
        net.ack(sender, PubRel, id);
    }
    let got = net.receive(sender);
    assert_eq!(answered(Success, PubComp, &got), 6, "{got:?}");
    for id in 11..=14 {
        net.publish(sender, "t", "x", 2, false, id);
    }
    assert_eq!(net.receive(sender).last(), Some(&Got::Disconnect(ReceiveMaximumExceeded)));
}
