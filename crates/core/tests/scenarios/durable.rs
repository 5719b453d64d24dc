//! With a store: nothing is promised before it is kept, and what needs no store never waits.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_core::Whom;
use tidegate_core::access::Identity;
use tidegate_core::persist::{SavedMessage, SavedSession, SavedWill, SubscriberOptions, Trouble};
use tidegate_core::settings::{Rate, Settings};
use tidegate_wire_mqtt::{AckKind, Packet, Property, QoS, ReasonCode};

use crate::net::{Got, Net, Options, ack, lasting, lasting_v311, message};

fn puback(id: u16) -> Got {
    ack(AckKind::PubAck, id, ReasonCode::Success)
}

fn kinds(got: &[Got]) -> Vec<AckKind> {
    got.iter().filter_map(|got| if let Got::Ack { kind, .. } = got { Some(*kind) } else { None }).collect()
}

#[test]
fn a_message_is_acknowledged_when_it_is_kept_and_delivered_at_once() {
    for shards in [1, 4] {
        let mut net = Net::durable(shards);
        let (sender, reader) = (net.v5("sender"), net.connect("reader", &lasting()));
        net.subscribe(reader, "t", 1);
        net.hold_disk();
        net.publish(sender, "t", "one", 1, false, 1);
        assert_eq!(net.payloads(reader), ["one"], "twice is allowed, so it need not wait");
        assert_eq!(net.receive(sender), []);
        net.ack(reader, AckKind::PubAck, 1);
        net.release_disk();
        assert_eq!(net.receive(sender), [puback(1)]);
    }
}

#[test]
fn what_does_not_last_never_touches_the_store() {
    let mut net = Net::durable(2);
    let (sender, reader) = (net.v5("sender"), net.v5("reader"));
    net.subscribe(reader, "t", 2);
    net.hold_disk();
    for qos in 0..3 {
        net.publish(sender, "t", "x", qos, false, 1 + u16::from(qos));
    }
    assert_eq!(net.payloads(reader).len(), 3);
    assert_eq!(kinds(&net.receive(sender)), [AckKind::PubAck, AckKind::PubRec]);
    assert_eq!(net.changes, 0);
}

#[test]
fn a_message_of_qos_2_is_sent_when_its_identifier_is_kept() {
    let mut net = Net::durable(1);
    let (sender, reader) = (net.connect("sender", &lasting()), net.connect("reader", &lasting()));
    net.subscribe(reader, "t", 2);
    net.hold_disk();
    net.publish(sender, "t", "once", 2, false, 7);
    net.publish(sender, "t", "after", 1, false, 8);
    net.publish(sender, "t", "zero", 0, false, 0);
    assert_eq!(net.payloads(reader), ["zero"], "QoS 0 never waits, QoS 1 does not overtake");
    assert_eq!(net.receive(sender), []);
    net.release_disk();
    assert_eq!(net.payloads(reader), ["once", "after"]);
    assert_eq!(kinds(&net.receive(sender)), [AckKind::PubRec, AckKind::PubAck]);

    net.hold_disk();
    net.ack(reader, AckKind::PubRec, 1);
    net.ack(sender, AckKind::PubRel, 7);
    assert_eq!((net.receive(reader), net.receive(sender)), (vec![], vec![]));
    net.release_disk();
    assert_eq!(net.receive(reader), [ack(AckKind::PubRel, 1, ReasonCode::Success)]);
    assert_eq!(net.receive(sender), [ack(AckKind::PubComp, 7, ReasonCode::Success)]);
}

#[test]
fn answers_keep_their_order_and_pings_never_wait() {
    let mut net = Net::durable(1);
    let (sender, reader) = (net.v5("sender"), net.connect("reader", &lasting()));
    net.subscribe(reader, "kept", 1);
    net.hold_disk();
    net.publish(sender, "kept", "x", 1, false, 1);
    net.publish(sender, "nobody", "x", 1, false, 2);
    net.send(sender, &Packet::PingReq);
    assert_eq!(net.receive(sender), [Got::Pong]);
    net.release_disk();
    assert_eq!(net.receive(sender), [puback(1), ack(AckKind::PubAck, 2, ReasonCode::NoMatchingSubscribers)]);
}

#[test]
fn a_session_is_promised_when_it_is_kept() {
    let mut net = Net::durable(1);
    net.hold_disk();
    let reader = net.dial("reader", &lasting_v311());
    net.subscribe_quietly(reader, "t");
    let other = net.v5("other");
    net.publish(other, "t", "x", 0, false, 0);
    assert_eq!(net.receive(reader), [], "nothing comes before a CONNACK");
    net.release_disk();
    let got = net.receive(reader);
    assert!(matches!(got[..], [Got::ConnAck { present: false, .. }, Got::Message { .. }, Got::SubAck(_)]), "{got:?}");
}

#[test]
fn a_repeated_message_is_not_acknowledged_before_the_first_is_kept() {
    let mut net = Net::durable(2);
    let (sender, reader) = (net.connect("sender", &lasting()), net.connect("reader", &lasting()));
    net.subscribe(reader, "t", 2);
    net.hold_disk();
    net.publish(sender, "t", "once", 2, false, 7);
    net.publish_again(sender, "t", "once", 2, 7);
    assert_eq!(net.receive(sender), []);
    net.release_disk();
    assert_eq!(kinds(&net.receive(sender)), [AckKind::PubRec, AckKind::PubRec]);
    assert_eq!(net.payloads(reader), ["once"]);
}

#[test]
fn f116_whoever_is_owed_too_much_is_not_read_and_not_expelled() {
    let mut net = Net::durable(1);
    let sender = net.connect("sender", &Options { keep_alive: 10, ..lasting_v311() });
    let reader = net.connect("reader", &lasting());
    net.subscribe(reader, "t", 1);
    net.cut(reader);
    net.hold_disk();
    let many = 20_000_u16;
    (1..=many).for_each(|id| net.publish(sender, "t", "x", 1, false, id));
    assert!(!net.may_read(sender));
    net.live(Duration::from_secs(60));
    assert!(!net.is_closed(sender), "a slow disk is nobody's fault");
    net.release_disk();
    net.live(Duration::from_secs(1));
    assert_eq!(net.receive(sender).len(), usize::from(many));
}

#[test]
fn f114_while_the_disk_fails_what_needs_none_goes_on_and_the_rest_is_refused() {
    let mut net = Net::durable(1);
    let (new, old) = (net.v5("new"), net.connect("old", &lasting_v311()));
    let (reader, fleeting) = (net.connect("reader", &lasting()), net.v5("fleeting"));
    net.subscribe(reader, "kept", 1);
    net.subscribe(fleeting, "#", 1);
    net.hold_disk();
    net.shards[0].handle_store_health(Some(Trouble::Full));
    net.publish(new, "kept", "one", 1, false, 1);
    net.publish(new, "free", "two", 1, false, 2);
    net.publish(new, "kept", "three", 0, false, 0);
    net.publish(old, "kept", "four", 1, false, 4);
    assert_eq!(net.receive(new), [ack(AckKind::PubAck, 1, ReasonCode::QuotaExceeded), puback(2)]);
    assert_eq!(net.payloads(fleeting), ["two", "three"]);
    assert!(!net.may_read(old), "who cannot be told has to wait");
    assert_eq!(net.payloads(reader), ["three"]);
    assert_eq!(net.subscribe(fleeting, "more", 1), ReasonCode::GrantedQos1);
    assert_eq!(net.subscribe(reader, "more", 1), ReasonCode::QuotaExceeded);
    let late = net.dial("late", &lasting());
    assert!(matches!(net.receive(late)[0], Got::ConnAck { reason: ReasonCode::ServerUnavailable, .. }));
    assert_eq!(net.stats().publish_store_error, 1);

    net.shards[0].handle_store_health(None);
    net.release_disk();
    net.live(Duration::from_secs(2));
    assert_eq!(net.receive(old), [puback(4)]);
    net.connect("late", &lasting());
    assert_eq!(net.payloads(reader), ["four"]);
}

/// F114: what makes less of what is kept is taken also then.
#[test]
fn f114_while_the_store_is_full_what_is_retained_can_be_taken_back() {
    let mut net = Net::durable(1);
    let client = net.v5("client");
    net.publish(client, "t", "value", 1, true, 1);
    net.shards[0].handle_store_health(Some(Trouble::Full));
    net.publish(client, "t", "", 1, true, 2);
    net.publish(client, "t", "another", 1, true, 3);
    // Nobody subscribes, which MQTT 5 says with a success of its own.
    let taken = |id| ack(AckKind::PubAck, id, ReasonCode::NoMatchingSubscribers);
    let refused = ack(AckKind::PubAck, 3, ReasonCode::QuotaExceeded);
    assert_eq!(net.receive(client), [taken(1), taken(2), refused]);
}

#[test]
fn a_retained_message_is_kept_before_it_is_acknowledged_and_expires_everywhere() {
    let mut net = Net::durable(3);
    let sender = net.v5("sender");
    net.hold_disk();
    net.publish_with(sender, "state", "on", 1, true, 1, &[Property::MessageExpiry(10)]);
    assert_eq!(net.receive(sender), []);
    net.release_disk();
    assert_eq!(kinds(&net.receive(sender)), [AckKind::PubAck]);
    let before = net.changes;
    net.live(Duration::from_secs(11));
    assert_eq!(net.changes - before, 2, "one shard says that it is gone, as a whole");
    net.publish(sender, "state", "off", 0, true, 0);
    net.publish(sender, "state", "", 0, true, 0);
    net.publish(sender, "state", "", 0, true, 0);
    assert_eq!(net.changes - before, 2 + 3 + 2, "and one that there is one, and none");
}

#[test]
fn versions_before_5_get_their_answers_too() {
    let mut net = Net::durable(2);
    let (sender, reader) = (net.connect("sender", &lasting_v311()), net.connect("reader", &lasting_v311()));
    net.subscribe(reader, "t", 1);
    net.publish(sender, "t", "x", 1, false, 1);
    assert_eq!(net.receive(sender), [puback(1)]);
    assert_eq!(net.receive(reader), [message("t", "x", 1, Some(1))]);
}

#[test]
fn f116_while_the_disk_stalls_answers_wait_pings_do_not_and_little_more_is_taken() {
    let mut net = Net::durable(1);
    let (sender, reader) = (net.v5("sender"), net.connect("reader", &lasting()));
    let (other, fleeting) = (net.v5("other"), net.v5("fleeting"));
    net.subscribe(reader, "kept", 1);
    net.subscribe(fleeting, "free", 1);
    net.hold_disk();
    net.shards[0].handle_store_lag(Duration::from_secs(30));
    let large = "x".repeat(60_000);
    for id in 1..=20 {
        net.publish(sender, "kept", &large, 1, false, id);
    }
    assert!(!net.may_read(sender), "half a megabyte waits for the disk: enough");
    assert_eq!(net.receive(sender), [], "nothing is acknowledged");
    let taken = net.stats().publish_received;
    assert!((8..12).contains(&taken), "{taken}");
    // Nobody else suffers.
    net.publish(other, "free", "now", 1, false, 1);
    net.send(other, &Packet::PingReq);
    assert_eq!(net.payloads(fleeting), ["now"]);
    assert_eq!(net.receive(other), [puback(1), Got::Pong]);

    net.shards[0].handle_store_lag(Duration::ZERO);
    net.release_disk();
    net.live(Duration::from_secs(2));
    net.release_disk();
    let acked = net.receive(sender).len();
    assert_eq!(acked, 20, "all by itself");
    assert_eq!(net.stats().publish_store_error, 0);
}

#[test]
fn a_will_on_its_way_to_other_shards_is_remembered_until_it_is_there() {
    let mut net = Net::durable(4);
    let readers: Vec<_> = (0..6).map(|n| net.connect(&format!("reader{n}"), &lasting())).collect();
    for reader in &readers {
        net.subscribe(*reader, "will", 1);
    }
    let will = Options { will: Some(("will", "dead", QoS::AtLeastOnce, false)), ..lasting_v311() };
    let fragile = net.connect("fragile", &will);
    net.hold_disk();
    net.cut(fragile);
    assert_eq!((net.routings, net.routed), (1, 0), "the turn in which it is gone says where it is");
    net.release_disk();
    assert_eq!((net.routings, net.routed), (1, 1));
    for reader in readers {
        assert_eq!(net.payloads(reader), ["dead"]);
    }
}

/// After a crash wills that are due go out in the first turn; a client may be faster than that.
#[test]
fn f109_a_client_that_comes_back_before_the_first_turn_does_not_replace_its_will_unpublished() {
    for (delay, due, expected) in [(0, None, &["dead"][..]), (60, Some(Timestamp::ZERO), &["dead"]), (60, None, &[])] {
        let mut net = Net::durable(1);
        let (shard, now) = (&mut net.shards[0], net.now);
        let message = SavedMessage {
            qos: QoS::AtLeastOnce,
            retain: false,
            expires: None,
            origin: 0,
            standing: None,
            topic: "will",
            properties: &[],
            payload: b"dead",
        };
        let message = shard.restore_message(1000, &message);
        let will = SavedWill { message, delay: Duration::from_secs(delay), due };
        let qos = QoS::AtLeastOnce;
        let wish = SubscriberOptions { qos, no_local: false, retain_as_published: false, is_latest: false, id: None };
        let expiry = Duration::from_secs(3600);
        let session = |session, client_id, subscriptions, will| SavedSession {
            session,
            client_id,
            owner: Identity::default(),
            expiry,
            ends: None,
            subscriptions,
            inbound: Vec::new(),
            will,
        };
        shard.restore_session(session(1001, "fragile", Vec::new(), Some(will)), |_| None, now);
        shard.restore_session(session(1002, "reader", vec![("will", wish)], None), |_| None, now);
        let patient = || Options { keep_alive: 0, ..lasting() };
        let second = Options { will: Some(("will", "second", QoS::AtLeastOnce, false)), ..patient() };
        let fragile = net.dial("fragile", &second);
        let got = net.receive(fragile);
        assert!(matches!(got[..], [Got::ConnAck { present: true, .. }]), "{got:?}");
        let reader = net.connect_quietly("reader", &patient());
        assert_eq!(net.payloads(reader), expected, "delay {delay}, due {due:?}");
        net.live(Duration::from_secs(120));
        assert_eq!(net.payloads(reader), [""; 0], "once");
    }
}

#[test]
fn what_needs_no_disk_does_not_take_the_place_of_those_who_wait_for_it() {
    let mut net = Net::durable_with(1, Settings { queue_bytes_max: 64 * 1024 * 1024, ..Settings::default() });
    let (flooder, chatter) = (net.v5("flooder"), net.v5("chatter"));
    let reader = net.connect("reader", &lasting());
    net.subscribe(reader, "#", 1);
    net.publish(chatter, "chat", "x", 0, false, 0);
    net.hold_disk();
    let large = "x".repeat(64 * 1024);
    let mut sent = 0;
    while net.may_read(flooder) && sent < 1000 {
        sent += 1;
        net.publish(flooder, "flood", &large, 1, false, sent);
    }
    let before = net.stats().publish_received;
    for _ in 0..100 {
        net.publish(chatter, "chat", "x", 0, false, 0);
        net.live(Duration::from_millis(5));
    }
    assert!(net.stats().publish_received > before + 100, "the one that waited came in beside the chatter");
}

#[test]
fn who_is_within_its_claim_is_let_in_while_those_in_excess_wait_for_the_disk() {
    let mut net = Net::durable_with(1, Settings { queue_bytes_max: 64 * 1024 * 1024, ..Settings::default() });
    let (flooder, gateway) = (net.v5("flooder"), net.v5("gateway"));
    let reader = net.connect("reader", &lasting());
    net.subscribe(reader, "#", 1);
    let whom = Whom::Client("gateway".into());
    let rate = Rate::new(50, Duration::from_secs(1), 50);
    net.shards[0].set_grant(&whom, Some(rate), net.now).unwrap();
    net.publish(gateway, "usual", "x", 1, false, 1);
    net.pass(Duration::from_secs(1));
    net.receive(gateway);
    net.hold_disk();
    let large = "x".repeat(64 * 1024);
    let mut sent = 0;
    while net.may_read(flooder) && sent < 1000 {
        sent += 1;
        net.publish(flooder, "flood", &large, 1, false, sent);
    }
    assert!((120..=140).contains(&sent), "{sent} of 64 KiB are 8 MiB");
    let before = net.stats().publish_received;
    net.publish(gateway, "usual", "x", 1, false, 2);
    assert!(net.may_read(gateway) && net.stats().publish_received == before + 1, "it need not wait");
    // Who waits gets in by and by, one at a time.
    for _ in 0..10 {
        net.live(Duration::from_millis(20));
    }
    assert!(net.stats().publish_received > before + 1);
    net.release_disk();
    net.live(Duration::from_secs(1));
    assert!(net.may_read(flooder));
    assert_eq!(net.stats().publish_received, before + 2, "nothing is lost");
}
