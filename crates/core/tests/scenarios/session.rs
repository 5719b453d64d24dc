//! Connecting, taking over, expiring, dying.

use std::time::Duration;

use tidegate_core::access::{Action, Open};
use tidegate_core::event::{Event, Why};
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::{Disconnect, Packet, Properties, Property, QoS, ReasonCode, Version};

use crate::net::{Forbid, Got, Net, Options};

fn lasting(seconds: u32) -> Options<'static> {
    Options { clean: false, properties: vec![Property::SessionExpiry(seconds)], ..Options::default() }
}

fn present(got: &[Got]) -> bool {
    matches!(got[0], Got::ConnAck { present: true, .. })
}

#[test]
fn a_session_lasts_as_long_as_it_was_to() {
    let mut net = Net::new(1);
    let wire = net.connect("c", &lasting(100));
    net.cut(wire);
    net.pass(Duration::from_secs(99));
    let wire = net.dial("c", &lasting(100));
    assert!(present(&net.receive(wire)));
    net.cut(wire);
    net.pass(Duration::from_secs(101));
    assert_eq!(net.stats().sessions, 0);
    let wire = net.dial("c", &lasting(100));
    assert!(!present(&net.receive(wire)));
    assert_eq!(net.stats().sessions_expired, 1);
}

#[test]
fn clean_start_forgets_and_a_session_without_expiry_ends_with_its_connection() {
    let mut net = Net::new(1);
    let wire = net.connect("c", &lasting(100));
    net.subscribe(wire, "a", 1);
    let wire = net.dial("c", &Options::default());
    assert!(!present(&net.receive(wire)));
    assert_eq!(net.stats().subscriptions, 0);
    net.cut(wire);
    assert_eq!(net.stats().sessions, 0);
}

#[test]
fn the_last_word_is_a_sentence_too_unless_it_would_not_fit() {
    let mut net = Net::new(1);
    let first = net.v5("c");
    let properties = vec![Property::MaximumPacketSize(20.try_into().expect("not zero"))];
    let second = net.connect("c", &Options { properties, ..Options::default() });
    let words = ReasonCode::SessionTakenOver.name();
    let sentence = [&[0x8e, 3 + words.len() as u8, 0x1f, 0, words.len() as u8], words.as_bytes()].concat();
    assert_eq!(net.raw(first), [&[0xe0, sentence.len() as u8], &sentence[..]].concat());
    net.v5("c");
    assert_eq!(net.raw(second), [0xe0, 1, 0x8e]);
}

#[test]
fn before_version_5_only_a_clean_session_is_forgotten() {
    let mut net = Net::new(1);
    let options = Options { version: Version::V311, clean: false, ..Options::default() };
    let wire = net.connect("c", &options);
    net.subscribe(wire, "a", 1);
    net.cut(wire);
    let wire = net.dial("c", &options);
    assert!(present(&net.receive(wire)));
    assert_eq!(net.stats().subscriptions, 1);
}

#[test]
fn a_second_connection_takes_over() {
    let mut net = Net::new(1);
    let first = net.connect("c", &lasting(100));
    let second = net.dial("c", &lasting(100));
    assert_eq!(net.receive(first), [Got::Disconnect(ReasonCode::SessionTakenOver)]);
    assert!(net.is_closed(first));
    assert!(present(&net.receive(second)));
    assert_eq!(net.stats().connections, 1);
    assert!(net.events.iter().any(|event| matches!(event, Event::Disconnected { why: Why::TakenOver, .. })));
}

/// What a session of another user's is told.
fn is_not_its_own(got: &[Got]) -> bool {
    matches!(got, [Got::ConnAck { reason: ReasonCode::ClientIdentifierNotValid, .. }])
}

#[test]
fn nobody_who_speaks_mqtt_is_called_as_an_address_that_speaks_coap() {
    let mut net = Net::new(1);
    let mallory = net.dial("$coap/127.0.0.1:40000", &Options::default());
    assert!(is_not_its_own(&net.receive(mallory)) && net.is_closed(mallory));
    let other = net.dial("coap/127.0.0.1:40000", &Options::default());
    assert!(!is_not_its_own(&net.receive(other)) && !net.is_closed(other));
}

#[test]
fn f039_another_user_does_not_get_the_session() {
    let mut net = Net::new(1);
    let alice = net.connect("c", &Options { user: Some("alice"), ..lasting(100) });
    let mallory = net.dial("c", &Options { user: Some("mallory"), ..lasting(100) });
    assert!(is_not_its_own(&net.receive(mallory)));
    assert!(net.is_closed(mallory) && !net.is_closed(alice));
    // Neither does a clean start end it.
    let mallory = net.dial("c", &Options { user: Some("mallory"), ..Options::default() });
    assert!(is_not_its_own(&net.receive(mallory)));
    assert!(!net.is_closed(alice));
    assert_eq!(net.receive(alice), []);
}

#[test]
fn f039_nobody_else_ends_the_session_of_a_user_who_is_away() {
    let mut net = Net::new(1);
    let bob = || Options { user: Some("bob"), ..lasting(100) };
    let wire = net.connect("bob-1", &bob());
    net.subscribe(wire, "mail", 1);
    net.cut(wire);
    let sender = net.v5("sender");
    net.publish(sender, "mail", "kept", 1, false, 1);
    let lasting_v311 = Options { version: Version::V311, clean: false, ..Options::default() };
    for user in [Some("alice"), None] {
        for options in [Options::default(), lasting(100), lasting_v311.clone()] {
            let other = net.dial("bob-1", &Options { user, ..options });
            assert!(is_not_its_own(&net.receive(other)), "{user:?}");
            assert!(net.is_closed(other));
        }
    }
    assert_eq!((net.stats().subscriptions, net.stats().queued_messages), (1, 1));
    // Its user goes on with it, whatever the password was meanwhile, and may take it over from itself.
    let wire = net.dial("bob-1", &bob());
    let got = net.receive(wire);
    assert!(present(&got) && got.len() == 2, "the session and its message: {got:?}");
    let again = net.dial("bob-1", &bob());
    assert!(present(&net.receive(again)) && net.is_closed(wire));
}

#[test]
fn f039_an_identifier_is_free_again_when_its_session_ends() {
    let mut net = Net::new(1);
    let wire = net.connect("c", &Options { user: Some("bob"), ..lasting(100) });
    net.cut(wire);
    net.pass(Duration::from_secs(101));
    let alice = net.dial("c", &Options { user: Some("alice"), ..lasting(100) });
    assert!(matches!(net.receive(alice)[..], [Got::ConnAck { reason: ReasonCode::Success, .. }]));
}

#[test]
fn f039_a_user_is_not_kept_out_by_an_anonymous_client_and_inherits_nothing_from_it() {
    let mut net = Net::new(1);
    let squatter = net.connect("c", &lasting(100));
    net.subscribe(squatter, "trap", 1);
    let alice = net.dial("c", &Options { user: Some("alice"), ..lasting(100) });
    assert_eq!(net.receive(squatter), [Got::Disconnect(ReasonCode::SessionTakenOver)]);
    assert!(!present(&net.receive(alice)), "a session of its own");
    assert_eq!((net.stats().subscriptions, net.stats().connections), (0, 1));
    // The other way round the user stays, connected or not.
    for _ in 0..2 {
        let nobody = net.dial("c", &Options::default());
        assert!(is_not_its_own(&net.receive(nobody)));
        net.cut(alice);
    }
    let alice = net.dial("c", &Options { user: Some("alice"), ..lasting(100) });
    assert!(present(&net.receive(alice)));
}

#[test]
fn f039_where_identifiers_are_not_bound_a_user_that_has_left_keeps_no_other_out_and_leaves_it_nothing() {
    let mut net = Net::with(1, Settings { bind_sessions: false, ..Settings::default() }, Open);
    let squatter = net.connect("c", &Options { user: Some("mallory"), ..lasting(100) });
    net.subscribe(squatter, "trap", 1);
    net.cut(squatter);
    let sender = net.v5("sender");
    net.publish(sender, "trap", "x", 1, false, 1);
    let alice = net.dial("c", &Options { user: Some("alice"), ..lasting(100) });
    assert!(!present(&net.receive(alice)), "a session of its own");
    assert_eq!((net.stats().subscriptions, net.stats().queued_messages), (0, 0));
    net.publish(sender, "trap", "y", 1, false, 2);
    assert_eq!(net.receive(alice), []);
    // While she is connected she stays.
    let mallory = net.dial("c", &Options { user: Some("mallory"), ..lasting(100) });
    assert!(is_not_its_own(&net.receive(mallory)));
    assert!(!net.is_closed(alice));
}

#[test]
fn silence_beyond_one_and_a_half_keep_alives_ends_a_connection() {
    let mut net = Net::new(1);
    let wire = net.connect("c", &Options { keep_alive: 10, ..Options::default() });
    net.pass(Duration::from_secs(14));
    net.send(wire, &Packet::PingReq);
    assert_eq!(net.receive(wire), [Got::Pong]);
    net.pass(Duration::from_secs(14));
    assert!(!net.is_closed(wire));
    net.pass(Duration::from_secs(2));
    assert_eq!(net.receive(wire), [Got::Disconnect(ReasonCode::KeepAliveTimeout)]);
    assert!(net.is_closed(wire));
}

fn with_will(delay: u32, expiry: u32) -> Options<'static> {
    Options {
        clean: false,
        properties: vec![Property::SessionExpiry(expiry)],
        will: Some(("will", "dead", QoS::AtLeastOnce, false)),
        will_properties: if delay > 0 { vec![Property::WillDelay(delay)] } else { Vec::new() },
        ..Options::default()
    }
}

#[test]
fn a_will_is_published_when_the_connection_is_lost_and_not_after_a_goodbye() {
    let mut net = Net::new(1);
    let watcher = net.v5("watcher");
    net.subscribe(watcher, "will", 0);
    let wire = net.connect("c", &with_will(0, 0));
    net.cut(wire);
    assert_eq!(net.payloads(watcher), ["dead"]);

    let wire = net.connect("c", &with_will(0, 0));
    net.send(wire, &Disconnect::because(ReasonCode::Success));
    assert!(net.is_closed(wire));
    assert_eq!(net.payloads(watcher), [""; 0]);

    let wire = net.connect("c", &with_will(0, 0));
    net.send(wire, &Disconnect::because(ReasonCode::DisconnectWithWill));
    assert_eq!(net.payloads(watcher), ["dead"]);
}

#[test]
fn a_delayed_will_waits_and_is_forgotten_if_the_client_comes_back() {
    let mut net = Net::new(1);
    let watcher = net.v5("watcher");
    net.subscribe(watcher, "will", 0);
    let wire = net.connect("c", &with_will(30, 3600));
    net.cut(wire);
    net.pass(Duration::from_secs(29));
    assert_eq!(net.payloads(watcher), [""; 0]);
    net.pass(Duration::from_secs(2));
    assert_eq!(net.payloads(watcher), ["dead"]);

    let wire = net.connect("c", &with_will(30, 3600));
    net.cut(wire);
    net.pass(Duration::from_secs(20));
    net.connect("c", &lasting(3600));
    net.pass(Duration::from_secs(60));
    assert_eq!(net.payloads(watcher), [""; 0]);

    let wire = net.connect("d", &with_will(30, 5));
    net.cut(wire);
    net.pass(Duration::from_secs(6));
    assert_eq!(net.payloads(watcher), ["dead"], "the end of the session ends the delay");
}

#[test]
fn an_empty_client_id_is_replaced_and_told() {
    let mut net = Net::new(1);
    let wire = net.dial("", &Options::default());
    let got = net.receive(wire);
    assert!(matches!(&got[0], Got::ConnAck { assigned: Some(id), .. } if id == "auto-1"), "{got:?}");
}

#[test]
fn what_we_do_not_support_is_refused_in_the_connack() {
    let refused = |options: Options<'_>, settings: Settings| {
        let mut net = Net::with(1, settings, Forbid(Action::Publish, "secret"));
        let wire = net.dial("c", &options);
        assert!(net.is_closed(wire));
        match net.receive(wire)[..] {
            [Got::ConnAck { reason, .. }] => reason,
            ref other => panic!("{other:?}"),
        }
    };
    let auth = Options { properties: vec![Property::AuthenticationMethod("SCRAM")], ..Options::default() };
    assert_eq!(refused(auth, Settings::default()), ReasonCode::BadAuthenticationMethod);
    let will = Options { will: Some(("secret", "x", QoS::AtMostOnce, false)), ..Options::default() };
    assert_eq!(refused(will, Settings::default()), ReasonCode::NotAuthorized);
    let will = Options { will: Some(("t", "x", QoS::AtMostOnce, true)), ..Options::default() };
    let settings = Settings { retain_available: false, ..Settings::default() };
    assert_eq!(refused(will, settings), ReasonCode::RetainNotSupported);
    let settings = Settings { sessions_max: 0, ..Settings::default() };
    assert_eq!(refused(Options::default(), settings), ReasonCode::QuotaExceeded);
    let settings = Settings { client_id_bytes_max: 0, ..Settings::default() };
    assert_eq!(refused(Options::default(), settings), ReasonCode::ClientIdentifierNotValid);
}

#[test]
fn f054_a_session_that_was_to_end_cannot_be_made_to_last_by_a_goodbye() {
    let mut net = Net::new(1);
    let wire = net.v5("c");
    let list = [Property::SessionExpiry(100)];
    net.send(wire, &Disconnect { reason: ReasonCode::Success, properties: Properties::new(&list) });
    assert_eq!(net.receive(wire), [Got::Disconnect(ReasonCode::ProtocolError)]);
}

#[test]
fn shutdown_tells_everybody_and_closes() {
    let mut net = Net::new(1);
    let (new, old) = (net.v5("new"), net.connect("old", &Options { version: Version::V311, ..Options::default() }));
    net.shards[0].handle_shutdown(ReasonCode::ServerShuttingDown, net.now);
    net.settle();
    assert_eq!(net.receive(new), [Got::Disconnect(ReasonCode::ServerShuttingDown)]);
    assert_eq!(net.receive(old), []);
    assert!(net.is_closed(new) && net.is_closed(old));
    assert_eq!(net.stats().connections, 0);
}

#[test]
fn nonsense_ends_the_connection_with_its_reason() {
    let mut net = Net::with(1, Settings::default(), Open);
    for (bytes, reason) in [
        (&b"\xc1\x00"[..], ReasonCode::MalformedPacket),
        (b"\x30\x06\x00\x03a/#\x00", ReasonCode::TopicNameInvalid),
        (b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x00", ReasonCode::ProtocolError),
        (b"\xf0\x02\x18\x00", ReasonCode::ProtocolError),
    ] {
        let wire = net.v5("c");
        net.send_bytes(wire, bytes);
        assert_eq!(net.receive(wire), [Got::Disconnect(reason)], "{bytes:x?}");
        assert!(net.is_closed(wire));
    }
}
