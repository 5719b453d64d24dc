//! Bodies in blocks (RFC 7959).

use std::time::Duration;

use coap_lite::MessageType;
use tidegate_core::settings::Settings;

use crate::world::{Ask, World, code, empty, here, number, to};

fn body(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|place| (place % 251) as u8).collect()
}

fn block(number: u32, has_more: bool, exponent: u8) -> Vec<u8> {
    let value = number << 4 | u32::from(has_more) << 3 | u32::from(exponent);
    value.to_be_bytes().iter().copied().skip_while(|byte| *byte == 0).collect()
}

/// Sends a body in blocks of 2^(exponent + 4) bytes; the last answer.
fn send(world: &mut World, whole: &[u8], exponent: u8, mut message: u16) -> coap_lite::Packet {
    let size = 1 << (exponent + 4);
    let count = whole.len().div_ceil(size);
    let mut last = None;
    for (place, part) in whole.chunks(size).enumerate() {
        let option = block(place as u32, place + 1 < count, exponent);
        let answer = world.ask(here(1), &Ask::new(3, "ps/large", message).payload(part).option(27, &option));
        if place + 1 < count {
            assert_eq!((code(&answer).as_str(), number(&answer, 27)), ("2.31", Some(u32::from_be_bytes(pad(&option)))));
        }
        message += 1;
        last = Some(answer);
    }
    last.unwrap()
}

fn pad(option: &[u8]) -> [u8; 4] {
    let mut padded = [0; 4];
    padded[4 - option.len()..].copy_from_slice(option);
    padded
}

#[test]
fn a_large_state_goes_in_and_comes_out_in_blocks() {
    let mut world = World::new();
    for (exponent, start) in [(6, 100), (2, 1000)] {
        let whole = body(5000);
        let last = send(&mut world, &whole, exponent, start);
        assert!(code(&last).starts_with("2.0") && number(&last, 27).is_some(), "{last:?}");
        let mut found = Vec::new();
        let mut message = start + 500;
        loop {
            let next = (found.len() / 256) as u32;
            let answer = world.ask(here(2), &Ask::get("ps/large", message).option(23, &block(next, false, 4)));
            assert_eq!(code(&answer), "2.05");
            found.extend_from_slice(&answer.payload);
            message += 1;
            if number(&answer, 23).unwrap() & 8 == 0 {
                break;
            }
        }
        assert_eq!(found, whole);
        let answer = world.ask(here(2), &Ask::get("ps/large", message).option(23, &block(99, false, 4)));
        assert_eq!(code(&answer), "4.02", "there is no such block");
    }
    let unasked = world.ask(here(2), &Ask::get("ps/large", 9000));
    assert_eq!((unasked.payload.len(), number(&unasked, 23)), (1024, Some(8 | 6)), "it does not fit: the first block");
    assert_eq!(number(&unasked, 28), Some(5000));
}

#[test]
fn a_block_whose_answer_was_lost_is_answered_again_and_taken_once() {
    let mut world = World::new();
    let whole = body(200);
    for (place, (part, message)) in whole.chunks(64).zip(10..).enumerate() {
        let ask = Ask::new(3, "ps/large", message).payload(part).option(27, &block(place as u32, place < 3, 2));
        let first = world.ask(here(1), &ask);
        assert_eq!(code(&first), if place < 3 { "2.31" } else { "2.01" });
        assert_eq!(world.ask(here(1), &ask).to_bytes().unwrap(), first.to_bytes().unwrap(), "block {place}");
    }
    assert_eq!(world.ask(here(2), &Ask::get("ps/large", 1)).payload, whole);
    assert_eq!((world.endpoint.stats().repeated, world.shard.stats().publish_received), (4, 1));
}

#[test]
fn blocks_that_do_not_fit_together_are_refused() {
    let mut world = World::new();
    let part = |message, at: &str, option: Vec<u8>, bytes: usize| {
        Ask::new(3, at, message).payload(&body(bytes)).option(27, &option)
    };
    assert_eq!(code(&world.ask(here(1), &part(1, "ps/a", block(1, true, 2), 64))), "4.08", "no first one");
    assert_eq!(code(&world.ask(here(1), &part(2, "ps/a", block(0, true, 2), 64))), "2.31");
    assert_eq!(code(&world.ask(here(1), &part(3, "ps/b", block(1, false, 2), 64))), "4.08", "of another resource");
    assert_eq!(code(&world.ask(here(1), &part(4, "ps/a", block(0, true, 2), 64))), "2.31");
    assert_eq!(code(&world.ask(here(1), &part(5, "ps/a", block(2, false, 2), 64))), "4.08", "one is missing");
    assert_eq!(code(&world.ask(here(1), &part(6, "ps/a", block(0, true, 2), 63))), "4.00", "too short");
    assert_eq!(code(&world.ask(here(1), &part(7, "ps/a", block(0, true, 2), 64))), "2.31");
    world.wait(Duration::from_secs(250));
    assert_eq!(code(&world.ask(here(1), &part(8, "ps/a", block(1, false, 2), 64))), "4.08", "too late");
    assert_eq!(world.shard.stats().publish_received, 0);
}

#[test]
fn a_body_that_never_ends_is_cut_short() {
    let settings = Settings { packet_bytes_max: 10_000, ..Settings::default() };
    let mut world = World::with(settings, std::sync::Arc::new(tidegate_core::access::Open));
    let mut answers = Vec::new();
    for place in 0..12 {
        let ask = Ask::new(3, "ps/a", 10 + place).payload(&body(1024)).option(27, &block(place.into(), true, 6));
        let answer = world.ask(here(1), &ask);
        answers.push((code(&answer), number(&answer, 60)));
    }
    assert_eq!(answers[8].0, "2.31");
    assert_eq!(answers[9], ("4.13".into(), Some(10_000)), "the size that would do");
}

#[test]
fn the_rest_of_a_large_notification_is_there_even_if_nothing_is_retained() {
    let mut world = World::new();
    world.ask(here(2), &Ask::get("ps/large", 1).observe().token(5));
    let whole = body(3000);
    let mut told = Vec::new();
    for (place, (part, message)) in whole.chunks(1024).zip(50..).enumerate() {
        let option = block(place as u32, place < 2, 6);
        let ask = Ask::new(3, "ps/large", message).payload(part).option(27, &option).option(15, b"retain=0");
        told = to(&world.receive(here(1), &ask.bytes()), here(2));
    }
    assert_eq!((told[0].payload.len(), number(&told[0], 23)), (1024, Some(8 | 6)));
    world.receive(here(2), &empty(MessageType::Acknowledgement, told[0].header.message_id));
    let mut found = told[0].payload.clone();
    for place in 1..3 {
        let rest = world.ask(here(2), &Ask::get("ps/large", 60 + place).option(23, &block(place.into(), false, 6)));
        found.extend_from_slice(&rest.payload);
    }
    assert_eq!(found, whole);
}

#[test]
fn the_blocks_of_an_answer_are_of_one_state_and_of_the_newest() {
    let mut world = World::new();
    let get = |world: &mut World, place: u32, message| {
        world.ask(here(2), &Ask::get("ps/large", message).option(23, &block(place, false, 6)))
    };
    let (older, newer): (Vec<u8>, Vec<u8>) = (vec![1; 3000], vec![2; 3000]);
    // A large state was told of, and nobody asked for the rest.
    world.ask(here(2), &Ask::get("ps/large", 1).observe().token(5));
    send(&mut world, &older, 6, 100);
    world.ask(here(2), &Ask::get("ps/large", 2).option(6, &[1]).token(5));
    send(&mut world, &newer, 6, 200);
    for place in 0..3 {
        let part = get(&mut world, place, 10 + place as u16);
        assert!(part.payload.iter().all(|byte| *byte == 2), "block {place} is of the newer one");
    }
    // The state changes between two blocks: the rest is of the body that was begun.
    assert_eq!(get(&mut world, 0, 20).payload[0], 2);
    send(&mut world, &older, 6, 300);
    assert_eq!(get(&mut world, 1, 21).payload[0], 2);
    // And what is small ends it.
    world.ask(here(1), &Ask::put("ps/large", "small", 400));
    assert_eq!(get(&mut world, 0, 22).payload, b"small");
    assert_eq!(code(&get(&mut world, 1, 23)), "4.02");
    world.shard.audit().unwrap();
}

#[test]
fn a_small_state_that_is_told_of_ends_a_large_one() {
    let mut world = World::new();
    world.ask(here(2), &Ask::get("ps/large", 1).observe().token(5));
    let told = |world: &mut World, said: Vec<(std::net::SocketAddr, Vec<u8>)>| {
        let told = to(&said, here(2));
        world.receive(here(2), &empty(MessageType::Acknowledgement, told[0].header.message_id));
    };
    let mut said = Vec::new();
    for (place, part) in body(3000).chunks(1024).enumerate() {
        let option = block(place as u32, place < 2, 6);
        let ask = Ask::new(3, "ps/large", 50 + place as u16).payload(part).option(27, &option);
        said = world.receive(here(1), &ask.bytes());
    }
    told(&mut world, said);
    let mut said = world.receive(here(1), &Ask::put("ps/large", "small", 60).bytes());
    if to(&said, here(2)).is_empty() {
        said = world.wait(Duration::from_secs(60));
    }
    told(&mut world, said);
    let rest = world.ask(here(2), &Ask::get("ps/large", 61).option(23, &block(1, false, 6)));
    assert_eq!(code(&rest), "4.02", "there is no such block");
}
