//! The message layer: what is answered, by what, and how large (RFC 7252, RFC 9175, RFC 7967).

use std::time::Duration;

use coap_lite::{CoapOption, MessageType, Packet};
use proptest::prelude::*;
use tidegate_core::datagrams::{DatagramEndpoint, NotAdmitted};
use tidegate_wire_mqtt::ReasonCode;

use crate::world::{Ask, World, code, empty, here, number};

#[test]
fn a_ping_is_answered_by_a_reset_and_leaves_nothing() {
    let mut world = World::new();
    let said = world.receive(here(1), &empty(MessageType::Confirmable, 77));
    assert_eq!(said, [(here(1), empty(MessageType::Reset, 77))]);
    assert!(world.endpoint.is_empty());
}

#[test]
fn an_address_that_has_left_and_is_back_has_not_left() {
    let mut world = World::new();
    world.ask(here(1), &Ask::get("ps/a", 1));
    world.ask(here(2), &Ask::get("ps/a", 1));
    world.shard.handle_expel(|_, _| true, ReasonCode::AdministrativeAction, world.now);
    while let Some(conn) = world.shard.poll_close() {
        world.endpoint.close(&mut world.shard, conn, world.now);
    }
    // Before anybody has asked who left.
    world.handle(here(1), &Ask::get("ps/a", 2).bytes());
    assert!(world.endpoint.knows(here(1)) && !world.endpoint.knows(here(2)));
    assert_eq!((world.endpoint.poll_left(), world.endpoint.poll_left()), (Some(here(2)), None));
}

#[test]
fn what_cannot_be_read_is_reset_if_somebody_waits_and_counted_in_any_case() {
    let mut world = World::new();
    // A confirmable message with a token of nine bytes; an empty one with something behind it; an option that ends too early; a
    // marker without a payload.
    for bytes in [
        &[0x49, 1, 0, 5, 1, 2, 3, 4, 5, 6, 7, 8, 9][..],
        &[0x40, 0, 0, 5, 1],
        &[0x40, 1, 0, 5, 0xbd],
        &[0x40, 1, 0, 5, 0xff],
    ] {
        assert_eq!(world.receive(here(1), bytes), [(here(1), empty(MessageType::Reset, 5))], "{bytes:?}");
    }
    // The same without anybody who waits; another version; too short; an answer to nothing; a reserved class.
    for bytes in [&[0x50, 1, 0, 5, 0xbd][..], &[0x80, 1, 0, 5], &[0x40], &[], &[0x50, 0x45, 0, 5], &[0x50, 0x20, 0, 5]]
    {
        assert!(world.receive(here(1), bytes).is_empty(), "{bytes:?}");
    }
    assert_eq!(world.endpoint.stats().malformed, 10);
    assert!(world.receive(here(1), &empty(MessageType::Acknowledgement, 9)).is_empty());
    assert!(world.receive(here(1), &empty(MessageType::Reset, 9)).is_empty());
    assert_eq!(world.endpoint.stats().stray, 2);
    assert!(world.endpoint.is_empty(), "nothing is remembered of whom asked nothing");
}

#[test]
fn an_answer_goes_with_the_acknowledgement_and_an_unconfirmed_request_has_one_of_its_own() {
    let mut world = World::new();
    let answer = world.ask(here(1), &Ask::get("ps/a", 10));
    assert_eq!((code(&answer), answer.header.get_type()), ("4.04".into(), MessageType::Acknowledgement));
    assert_eq!((answer.header.message_id, answer.get_token()), (10, &[10, 7][..]));
    let answer = world.ask(here(1), &Ask::get("ps/a", 11).unconfirmed());
    assert_eq!((code(&answer), answer.header.get_type()), ("4.04".into(), MessageType::NonConfirmable));
    assert_eq!(answer.get_token(), [11, 7]);
}

#[test]
fn requests_that_ask_for_what_there_is_not_hear_which() {
    let mut world = World::new();
    let cases = [
        (Ask::get("nowhere", 1), "4.04"),
        (Ask::get("ps", 2), "4.05"),
        (Ask::new(2, "ps/a", 3), "4.05"),
        (Ask::new(5, "ps/a", 4), "4.05"),
        (Ask::put(".well-known/core", "x", 5), "4.05"),
        (Ask::get("ps/a", 6).option(9, b"x"), "4.02"),
        (Ask::get("ps/a", 7).option(35, b"coap://x/"), "5.05"),
        (Ask::get("ps/a", 8).option(15, b"colour=red"), "4.00"),
        (Ask::put("ps/+/a", "x", 9), "4.00"),
        (Ask::get("ps/a", 10).option(23, &[7]), "4.02"),
        (Ask::get("ps", 11).option(15, b"filter=a/#"), "4.00"),
        (Ask::get("ps/a", 12).option(11, &[0xff]), "4.02"),
    ];
    for (ask, expected) in cases {
        assert_eq!(code(&world.ask(here(1), &ask)), expected, "{:?}", ask.0);
    }
    // An option that is not critical changes nothing; a critical one in a message that nobody waits for is not answered.
    assert_eq!(code(&world.ask(here(1), &Ask::get("ps/a", 20).option(2048, b"x"))), "4.04");
    assert!(world.receive(here(1), &Ask::get("ps/a", 21).option(9, b"x").unconfirmed().bytes()).is_empty());
    let found = world.ask(here(1), &Ask::get(".well-known/core", 22));
    assert_eq!((code(&found).as_str(), number(&found, 12)), ("2.05", Some(40)));
    assert!(String::from_utf8(found.payload).unwrap().starts_with("</ps>;rt=\"core.ps"));
}

#[test]
fn a_stranger_proves_its_address_first_and_costs_nothing_until_then() {
    let mut world = World::new();
    let far = "192.0.2.7:40000".parse().unwrap();
    let ask = Ask::put("ps/a", "1", 30);
    let answer = world.ask(far, &ask);
    assert_eq!(code(&answer), "4.01");
    assert!(answer.to_bytes().unwrap().len() <= 3 * ask.bytes().len());
    assert!(world.endpoint.is_empty() && world.endpoint.stats().challenged == 1);
    let proof = answer.get_first_option(CoapOption::from(252)).unwrap().clone();
    let another = "192.0.2.8:40000".parse().unwrap();
    assert_eq!(code(&world.ask(another, &Ask::put("ps/a", "1", 31).option(252, &proof))), "4.01", "not its own");
    assert_eq!(code(&world.ask(far, &Ask::put("ps/a", "1", 31).option(252, &proof))), "2.01");
    assert_eq!(code(&world.ask(far, &Ask::put("ps/a", "2", 32))), "2.04", "it is known now");
    assert_eq!(world.endpoint.stats().peers, 1);
}

#[test]
fn whoever_is_not_let_in_hears_why() {
    let mut world = World::new();
    for (why, expected) in [(NotAdmitted::Unknown, "4.01"), (NotAdmitted::Banned, "4.03"), (NotAdmitted::Full, "5.03")]
    {
        world.verdict = Err(why);
        assert_eq!(code(&world.ask(here(1), &Ask::get("ps/a", 1))), expected);
    }
    assert!(world.endpoint.is_empty() && world.endpoint.stats().refused == 3);
}

#[test]
fn one_address_does_not_take_every_place() {
    let mut world = World::new();
    for port in 1..=1000 {
        world.ask(here(port), &Ask::get("ps/a", 1));
    }
    assert_eq!(code(&world.ask(here(1001), &Ask::get("ps/a", 1))), "5.03");
    let neighbour = ([127, 0, 0, 2], 1).into();
    assert_eq!(code(&world.ask(neighbour, &Ask::get("ps/a", 1))), "4.04", "others have places of their own");
    while world.now < tidegate_control::Timestamp::from_secs_f64(1400.0) {
        world.wait(Duration::from_secs(100));
    }
    assert!(world.endpoint.is_empty());
    assert_eq!(code(&world.ask(here(1001), &Ask::get("ps/a", 1))), "4.04", "and what was taken is given back");
}

#[test]
fn inside_a_session_an_address_is_proved_and_has_a_name_of_its_own() {
    let mut world = World::new();
    world.endpoint = tidegate_face_coap::CoapEndpoint::inside_sessions([1, 2, 3, 4]);
    let afar = ([192, 0, 2, 7], 40_000).into();
    assert_eq!(code(&world.ask(afar, &Ask::put("ps/a", "x", 1))), "2.01");
    assert_eq!(world.endpoint.id_of(afar), "$coap/dtls/192.0.2.7:40000");
    assert_eq!(world.endpoint.stats().challenged, 0);
    // Its session is over.
    world.endpoint.lose(&mut world.shard, afar, world.now);
    assert!(world.endpoint.is_empty() && world.endpoint.poll_left() == Some(afar));
    world.endpoint.lose(&mut world.shard, afar, world.now);
}

#[test]
fn answers_that_nobody_wants_are_not_given() {
    let mut world = World::new();
    let quiet = |message| Ask::put("ps/a", "x", message).option(258, &[26]);
    assert!(world.receive(here(1), &quiet(1).unconfirmed().bytes()).is_empty());
    let said = world.receive(here(1), &quiet(2).bytes());
    assert_eq!(said, [(here(1), empty(MessageType::Acknowledgement, 2))]);
    // Only successes are not wanted: a failure is heard.
    let refused = Ask::put("ps/+", "x", 3).option(258, &[2]).unconfirmed();
    assert_eq!(code(&world.ask(here(1), &refused)), "4.00");
}

#[test]
fn silent_addresses_are_forgotten_and_observers_are_asked_for_a_sign_of_life() {
    let mut world = World::new();
    world.ask(here(1), &Ask::get("ps/a", 1));
    world.ask(here(2), &Ask::get("ps/a", 1).observe());
    assert_eq!(world.endpoint.stats().peers, 2);
    assert!(world.wait(Duration::from_secs(400)).is_empty());
    assert_eq!(world.endpoint.stats().peers, 1, "who observes stays");
    let said = world.wait(Duration::from_secs(400));
    let ping = Packet::from_bytes(&said[0].1).unwrap();
    assert_eq!((said[0].0, ping.header.get_type(), said[0].1.len()), (here(2), MessageType::Confirmable, 4));
    world.receive(here(2), &empty(MessageType::Reset, ping.header.message_id));
    assert_eq!(world.endpoint.stats().peers, 1, "a reset is a sign of life");
    // The next one is not answered.
    for _ in 0..40 {
        world.wait(Duration::from_secs(120));
    }
    assert!(world.endpoint.is_empty());
    assert_eq!(world.endpoint.stats().observers, 0);
    world.shard.audit().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_datagram_does_harm_and_no_answer_to_a_stranger_is_large(
        datagrams in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 0..80)), 1..20)
    ) {
        let mut world = World::new();
        for (is_near, mut bytes) in datagrams {
            // Most of what is random is no CoAP at all: half of it is made to look like a request.
            if is_near && bytes.len() > 2 {
                bytes[0] = 0x40 | (bytes[0] & 0x18);
                bytes[1] &= 7;
            }
            let from = if is_near { here(1) } else { "198.51.100.1:9".parse().unwrap() };
            for (to, said) in world.receive(from, &bytes) {
                prop_assert!(to == here(1) || said.len() <= 3 * bytes.len(), "{} for {}", said.len(), bytes.len());
            }
        }
        world.shard.audit().unwrap();
    }
}
