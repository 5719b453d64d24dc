//! PUT, GET and DELETE on topics; repetition; rules and gates.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use coap_lite::{MessageType, Packet};
use tidegate_core::Whom;
use tidegate_core::access::{Action, Identity, Policy};
use tidegate_core::event::Event;
use tidegate_core::settings::{Rate, Settings};
use tidegate_face_coap::CoapEndpoint;

use crate::world::{Ask, World, code, empty, here, number, to};

#[test]
fn a_topic_says_what_was_put_there_last_until_that_is_deleted() {
    let mut world = World::new();
    assert_eq!(code(&world.ask(here(1), &Ask::put("ps/room/t", "20", 1).option(12, &[50]))), "2.01");
    assert_eq!(code(&world.ask(here(1), &Ask::put("ps/room/t", "21", 2).option(12, &[50]).unconfirmed())), "2.04");
    let state = world.ask(here(2), &Ask::get("ps/room/t", 1));
    assert_eq!((code(&state).as_str(), state.payload.as_slice(), number(&state, 12)), ("2.05", &b"21"[..], Some(50)));
    let etag = state.get_first_option(coap_lite::CoapOption::ETag).unwrap().clone();
    assert_eq!(code(&world.ask(here(2), &Ask::get("ps/room/t", 2).option(4, &etag))), "2.03");
    assert_eq!(code(&world.ask(here(2), &Ask::get("ps/room/t", 3).option(17, &[60]))), "4.06");
    assert_eq!(code(&world.ask(here(2), &Ask::put("ps/room/t", "9", 4).option(5, &[]))), "4.12");
    assert_eq!(code(&world.ask(here(2), &Ask::put("ps/room/t", "9", 5).option(1, b"old"))), "4.12");
    assert_eq!(code(&world.ask(here(2), &Ask::put("ps/room/t", "22", 6).option(1, &etag))), "2.04");
    assert_eq!(code(&world.ask(here(2), &Ask::new(4, "ps/room/t", 7))), "2.02");
    assert_eq!(code(&world.ask(here(2), &Ask::get("ps/room/t", 8))), "4.04");
    world.ask(here(1), &Ask::put("ps/room/t", "an event", 9).option(15, b"retain=0"));
    assert_eq!(code(&world.ask(here(2), &Ask::get("ps/room/t", 9))), "4.04", "not kept");
    world.shard.audit().unwrap();
}

#[test]
fn a_request_that_comes_again_is_answered_again_and_done_once() {
    let mut world = World::new();
    world.ask(here(2), &Ask::get("ps/a", 1).observe());
    for is_confirmable in [true, false] {
        let ask = Ask::put("ps/a", "once", 40 + u16::from(is_confirmable));
        let ask = if is_confirmable { ask } else { ask.unconfirmed() };
        let said = world.receive(here(1), &ask.bytes());
        assert_eq!(to(&said, here(2)).len(), 1);
        let first = to(&said, here(1))[0].to_bytes().unwrap();
        acknowledge(&mut world, &to(&said, here(2))[0]);
        world.now = world.now + Duration::from_secs(30);
        assert_eq!(world.receive(here(1), &ask.bytes()), [(here(1), first)], "the same bytes, and nobody else hears");
    }
    assert_eq!((world.endpoint.stats().repeated, world.shard.stats().publish_received), (2, 2));
    // After the lifetime of an exchange the number means another message.
    world.now = world.now + Duration::from_secs(250);
    let said = world.receive(here(1), &Ask::put("ps/a", "another", 41).bytes());
    assert_eq!(to(&said, here(2)).len(), 1);
}

fn acknowledge(world: &mut World, message: &Packet) {
    if message.header.get_type() == MessageType::Confirmable {
        world.receive(here(2), &empty(MessageType::Acknowledgement, message.header.message_id));
    }
}

#[test]
fn what_is_remembered_of_an_address_has_an_end() {
    let mut world = World::new();
    for message in 0..200 {
        world.ask(here(1), &Ask::put("ps/a", "x", message));
    }
    // The last 64 are recognised, and what is older is done again: at least once.
    world.ask(here(1), &Ask::put("ps/a", "x", 199));
    world.ask(here(1), &Ask::put("ps/a", "x", 0));
    assert_eq!((world.endpoint.stats().repeated, world.shard.stats().publish_received), (1, 201));
}

#[derive(Debug)]
struct Strict;

impl Policy for Strict {
    fn allows(&self, _: &Identity, _: &str, action: Action, topic: &str) -> bool {
        match action {
            Action::Publish => topic.starts_with("mine/"),
            Action::Subscribe | Action::Receive => topic != "secret" && topic != "mine/blind",
            Action::Prioritize => false,
        }
    }
}

#[test]
fn rules_of_access_hold_here_as_everywhere() {
    let mut world = World::with(Settings::default(), Arc::new(Strict));
    let cases = [
        (Ask::put("ps/mine/a", "x", 1), "2.01"),
        (Ask::put("ps/yours", "x", 2), "4.03"),
        (Ask::put("ps/yours", "x", 3).unconfirmed(), "4.03"),
        (Ask::new(4, "ps/yours", 4), "4.03"),
        (Ask::get("ps/secret", 5), "4.03"),
        (Ask::get("ps/secret", 6).observe(), "4.03"),
        (Ask::put("ps/$SYS/x", "x", 7), "4.03"),
    ];
    for (ask, expected) in cases {
        assert_eq!(code(&world.ask(here(1), &ask)), expected, "{:?}", ask.0);
    }
    assert_eq!(world.endpoint.stats().observers, 0);
    world.shard.audit().unwrap();
}

#[test]
fn who_may_write_and_not_read_is_denied_nothing_unless_it_asks_what_is_there() {
    let mut world = World::with(Settings::default(), Arc::new(Strict));
    let denied = |world: &mut World| {
        let events = std::iter::from_fn(|| world.shard.poll_event());
        events.filter(|event| matches!(event, Event::Denied { .. })).count()
    };
    for message in 1..3 {
        world.handle(here(1), &Ask::put("ps/mine/blind", "x", message).bytes());
        assert_eq!(denied(&mut world), 0);
        world.turn();
    }
    world.handle(here(1), &Ask::new(4, "ps/mine/blind", 3).bytes());
    assert_eq!(denied(&mut world), 0);
    world.turn();
    let taken = world.shard.stats().publish_received;
    for (option, message) in [(1, 4), (5, 5)] {
        let asked = world.ask(here(1), &Ask::put("ps/mine/blind", "y", message).option(option, b""));
        assert_eq!(code(&asked), "4.03");
    }
    assert_eq!((taken, world.shard.stats().publish_received), (3, 3));
}

#[test]
fn who_is_too_fast_hears_when_to_come_back_and_nobody_else_notices() {
    for is_confirmable in [true, false] {
        let mut world = World::new();
        let flooder = Whom::Client(CoapEndpoint::client_id(here(1)).into());
        world.shard.set_limit(&flooder, Some(Rate::new(1, Duration::from_secs(10), 1)), world.now).unwrap();
        let (mut answers, mut refusals) = (Vec::new(), 0);
        for message in 0..60 {
            let ask = Ask::put("ps/a", "x", message);
            let ask = if is_confirmable { ask } else { ask.unconfirmed() };
            for (_, bytes) in world.receive(here(1), &ask.bytes()) {
                let answer = Packet::from_bytes(&bytes).unwrap();
                if code(&answer) == "4.29" {
                    let seconds = number(&answer, 14).unwrap();
                    assert!((1..=3600).contains(&seconds), "{seconds}");
                    refusals += 1;
                }
                answers.push(code(&answer));
            }
            // A limit of a port holds for its address: another port is no way out of it.
            let other = world.ask(SocketAddr::from(([127, 0, 0, 2], 2)), &Ask::put("ps/b", "y", message));
            assert!(code(&other).starts_with("2."), "{}", code(&other));
        }
        assert!(!answers.iter().any(|answer| answer == "5.03"), "{answers:?}");
        assert!(refusals > 10, "confirmable {is_confirmable}: {answers:?}");
        world.shard.audit().unwrap();
    }
}

#[test]
fn an_obedient_publisher_loses_nothing() {
    let mut world = World::new();
    let whom = Whom::Client(CoapEndpoint::client_id(here(1)).into());
    world.shard.set_limit(&whom, Some(Rate::new(1, Duration::from_secs(2), 2)), world.now).unwrap();
    let (mut taken, mut message, mut acks) = (0, 0_u16, 0);
    while taken < 12 && message < 200 {
        message += 1;
        let mut said = world.receive(here(1), &Ask::put("ps/a", &taken.to_string(), message).bytes());
        // An answer may come later, after an acknowledgement, and has to be acknowledged then.
        let answer = loop {
            let answer = to(&said, here(1)).into_iter().find(|packet| code(packet) != "0.00");
            if let Some(answer) = answer {
                break answer;
            }
            acks += usize::from(!said.is_empty());
            said = world.wait(Duration::from_secs(100));
        };
        if answer.header.get_type() == MessageType::Confirmable {
            world.receive(here(1), &empty(MessageType::Acknowledgement, answer.header.message_id));
        }
        match code(&answer).as_str() {
            "4.29" | "5.03" => {
                let seconds = number(&answer, 14).unwrap();
                world.wait(Duration::from_secs(seconds.into()));
            }
            _ => taken += 1,
        }
    }
    assert_eq!(taken, 12, "after {message} messages and {acks} acknowledgements ahead");
    assert_eq!(world.ask(here(2), &Ask::get("ps/a", 1)).payload, b"11");
    let stats = world.shard.stats();
    assert_eq!(stats.publish_passed, 12, "{stats:?}");
    world.shard.audit().unwrap();
}

#[test]
fn an_answer_that_takes_long_comes_by_itself_and_is_sent_again_until_it_is_acknowledged() {
    let mut world = World::new();
    let whom = Whom::Client(CoapEndpoint::client_id(here(1)).into());
    world.shard.set_limit(&whom, Some(Rate::new(1, Duration::from_secs(2), 1)), world.now).unwrap();
    assert_eq!(code(&world.ask(here(1), &Ask::put("ps/a", "0", 1))), "2.01");
    // This one has to wait for its time.
    assert!(world.receive(here(1), &Ask::put("ps/a", "1", 2).bytes()).is_empty());
    let said = world.wait(Duration::from_secs(20));
    assert_eq!(said, [(here(1), empty(MessageType::Acknowledgement, 2))], "before it is sent again");
    let again = world.receive(here(1), &Ask::put("ps/a", "1", 2).bytes());
    assert_eq!(again, said, "and if it is, the same is said");
    let late = to(&world.wait(Duration::from_secs(20)), here(1));
    assert_eq!((code(&late[0]).as_str(), late[0].header.get_type()), ("2.04", MessageType::Confirmable));
    assert_eq!(late[0].get_token(), [2, 7]);
    let repeated = to(&world.wait(Duration::from_secs(20)), here(1));
    assert_eq!(repeated, late, "nobody acknowledged it");
    world.receive(here(1), &empty(MessageType::Acknowledgement, late[0].header.message_id));
    assert!(world.wait(Duration::from_secs(60)).is_empty());
    assert_eq!(world.endpoint.stats().retransmitted, 1);
    world.shard.audit().unwrap();
}

#[test]
fn who_is_not_read_while_the_disk_is_slow_is_told_so_and_counted() {
    let mut world = World::new();
    world.shard.keep_journal(0);
    world.shard.handle_store_lag(Duration::from_secs(30));
    let (payload, mut sent, mut busy) = ("x".repeat(1000), 0, 0);
    for port in 10..110 {
        for message in 0..10 {
            let said = world.receive(here(port), &Ask::put("ps/a", &payload, message).bytes());
            busy += to(&said, here(port)).iter().filter(|answer| code(answer) == "5.03").count();
            world.shard.poll_journal();
            sent += 1;
        }
    }
    let stats = world.shard.stats();
    assert!(busy > 100, "{busy}");
    assert_eq!(stats.publish_received, sent, "each of them came");
    assert!(stats.publish_refused >= busy as u64, "{} of {busy}", stats.publish_refused);
    world.shard.audit().unwrap();
}
