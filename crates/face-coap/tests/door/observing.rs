//! Observe (RFC 7641): registrations, notifications, slow and lost observers.

use std::time::Duration;

use coap_lite::{CoapOption, MessageType, Packet};
use tidegate_core::datagrams::DatagramEndpoint;

use crate::world::{Ask, World, code, empty, here, number, to};

fn put(world: &mut World, payload: &str, message: u16) -> Vec<Packet> {
    to(&world.receive(here(1), &Ask::put("ps/a", payload, message).bytes()), here(2))
}

fn acknowledge(world: &mut World, message: &Packet) -> Vec<Packet> {
    let said = world.receive(here(2), &empty(MessageType::Acknowledgement, message.header.message_id));
    to(&said, here(2))
}

#[test]
fn an_observer_hears_the_state_and_then_each_change_with_a_growing_number() {
    let mut world = World::new();
    put(&mut world, "first", 1);
    let first = world.ask(here(2), &Ask::get("ps/a", 1).observe().token(9));
    assert_eq!((code(&first).as_str(), first.payload.as_slice()), ("2.05", &b"first"[..]));
    let mut last = number(&first, 6).unwrap();
    let (mut confirmed, mut heard) = (0, Vec::new());
    for message in 2..40 {
        let mut told = put(&mut world, &message.to_string(), message);
        if told.is_empty() {
            told = to(&world.wait(Duration::from_secs(1)), here(2));
        }
        for notification in told {
            let next = number(&notification, 6).unwrap();
            assert!(next > last, "{next} after {last}");
            assert_eq!(notification.get_token(), [9]);
            last = next;
            heard.push(notification.payload.clone());
            world.now = world.now + Duration::from_millis(20);
            if notification.header.get_type() == MessageType::Confirmable {
                confirmed += 1;
                acknowledge(&mut world, &notification);
            }
        }
    }
    assert_eq!(heard.len(), 38, "one at a time, none is missed");
    assert!((4..20).contains(&confirmed), "from time to time: {confirmed}");
    assert_eq!(world.endpoint.stats().conflated, 0);
}

#[test]
fn a_slow_observer_gets_the_newest_only() {
    let mut world = World::new();
    world.ask(here(2), &Ask::get("ps/a", 1).observe());
    let told = put(&mut world, "0", 10);
    assert_eq!(told[0].header.get_type(), MessageType::Confirmable, "nothing is known of the way yet");
    for number in 1..50 {
        assert!(put(&mut world, &number.to_string(), 10 + number).is_empty(), "one is on its way");
    }
    let next = acknowledge(&mut world, &told[0]);
    assert_eq!((next.len(), next[0].payload.as_slice()), (1, &b"49"[..]));
    assert_eq!(world.endpoint.stats().conflated, 48);
    world.shard.audit().unwrap();
}

#[test]
fn a_lost_observer_is_asked_four_times_more_and_then_forgotten() {
    let mut world = World::new();
    world.ask(here(2), &Ask::get("ps/a", 1).observe());
    let told = put(&mut world, "x", 10)[0].to_bytes().unwrap();
    let (begun, mut before, mut repeated, mut gaps) = (world.now, world.now, 0, Vec::new());
    while world.endpoint.knows(here(2)) {
        let said = world.wait(Duration::from_secs(1));
        if said == [(here(2), told.clone())] {
            repeated += 1;
            gaps.push(world.now.since(before));
            before = world.now;
        }
    }
    assert_eq!(repeated, 4);
    assert!(gaps.windows(2).all(|pair| pair[0] < pair[1]), "longer and longer: {gaps:?}");
    assert!(gaps[0] >= Duration::from_secs(2) && gaps[0] <= Duration::from_secs(3), "{gaps:?}");
    assert!(world.now.since(begun) < Duration::from_secs(100));
    let stats = world.endpoint.stats();
    assert_eq!((stats.retransmitted, stats.given_up, stats.observers), (4, 1, 0));
    assert!(put(&mut world, "y", 11).is_empty());
    world.shard.audit().unwrap();
}

#[test]
fn an_observation_ends_by_a_request_or_by_a_reset_of_a_notification() {
    let mut world = World::new();
    world.ask(here(2), &Ask::get("ps/a", 1).observe().token(1));
    world.ask(here(2), &Ask::get("ps/a", 2).observe().token(1));
    assert_eq!(world.endpoint.stats().observers, 1, "the same token is the same observation");
    let answer = world.ask(here(2), &Ask::get("ps/a", 3).option(6, &[1]).token(1));
    assert_eq!((world.endpoint.stats().observers, number(&answer, 6)), (0, None));
    assert!(put(&mut world, "x", 10).is_empty());
    world.ask(here(2), &Ask::get("ps/a", 4).observe().token(2));
    let told = put(&mut world, "y", 11);
    world.receive(here(2), &empty(MessageType::Reset, told[0].header.message_id));
    assert_eq!(world.endpoint.stats().observers, 0);
    assert!(put(&mut world, "z", 12).is_empty());
}

#[test]
fn a_notification_that_nobody_confirms_can_be_reset_too() {
    let mut world = World::new();
    world.ask(here(2), &Ask::get("ps/a", 1).observe());
    let told = put(&mut world, "0", 10);
    acknowledge(&mut world, &told[0]);
    let told = put(&mut world, "1", 11);
    assert_eq!(told[0].header.get_type(), MessageType::NonConfirmable);
    world.receive(here(2), &empty(MessageType::Reset, told[0].header.message_id));
    assert_eq!(world.endpoint.stats().observers, 0);
}

#[test]
fn topics_by_a_filter_are_told_with_their_names() {
    let mut world = World::new();
    world.ask(here(1), &Ask::put("ps/room/1/t", "20", 1));
    let said = world.receive(here(2), &Ask::get("ps", 1).option(15, b"filter=room/+/t").observe().bytes());
    let told = to(&said, here(2));
    assert_eq!(code(&told[0]), "2.05");
    let name = |packet: &Packet| {
        let levels = packet.get_option(CoapOption::LocationPath).unwrap();
        levels.iter().map(|level| String::from_utf8(level.clone()).unwrap()).collect::<Vec<_>>().join("/")
    };
    assert_eq!((name(&told[1]).as_str(), told[1].payload.as_slice()), ("room/1/t", &b"20"[..]), "what was there");
    acknowledge(&mut world, &told[1]);
    let said = world.receive(here(1), &Ask::put("ps/room/2/t", "21", 2).bytes());
    assert_eq!(name(&to(&said, here(2))[0]), "room/2/t");
    assert_eq!(code(&world.ask(here(2), &Ask::get("ps", 2).option(15, b"filter=a/#/b").observe())), "4.00");
    assert_eq!(code(&world.ask(here(2), &Ask::get("ps", 3).option(15, b"filter=$share/g/a").observe())), "4.00");
}

#[test]
fn observations_of_one_address_have_an_end_and_two_of_one_topic_are_two() {
    let mut world = World::new();
    for token in 0..40 {
        let answer =
            world.ask(here(2), &Ask::get(&format!("ps/t{token}"), 100 + u16::from(token)).observe().token(token));
        let is_observed = number(&answer, 6).is_some();
        // Without room the state is told all the same (RFC 7641, section 4.1).
        assert_eq!(is_observed, token < 32, "{token}");
    }
    assert_eq!(world.endpoint.stats().observers, 32);
    world.ask(here(3), &Ask::get("ps/a", 1).observe().token(1));
    world.ask(here(3), &Ask::get("ps/a", 2).observe().token(2));
    let mut said = to(&world.receive(here(1), &Ask::put("ps/a", "x", 9).bytes()), here(3));
    let ack = empty(MessageType::Acknowledgement, said[0].header.message_id);
    said.extend(to(&world.receive(here(3), &ack), here(3)));
    let mut tokens: Vec<_> = said.iter().map(|packet| packet.get_token()[0]).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, [1, 2]);
}

#[test]
fn when_the_broker_ends_observers_hear_it() {
    let mut world = World::new();
    world.ask(here(2), &Ask::get("ps/a", 1).observe().token(3));
    world.shard.handle_shutdown(tidegate_wire_mqtt::ReasonCode::ServerShuttingDown, world.now);
    let said = to(&world.turn(), here(2));
    assert_eq!((code(&said[0]).as_str(), said[0].get_token()), ("5.03", &[3][..]));
    assert!(world.endpoint.is_empty());
}

#[test]
fn who_is_refused_for_what_it_accepts_does_not_observe() {
    let mut world = World::new();
    // 50 is application/json, 60 application/cbor.
    world.ask(here(1), &Ask::put("ps/a", "{}", 1).option(12, &[50]));
    let answer = world.ask(here(2), &Ask::get("ps/a", 2).observe().option(17, &[60]).token(7));
    assert_eq!((code(&answer).as_str(), world.endpoint.stats().observers), ("4.06", 0));
    assert!(put(&mut world, "x", 10).is_empty());
    world.shard.audit().unwrap();
}
