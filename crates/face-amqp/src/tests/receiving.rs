//! Clients that receive.

use std::time::Duration;

use super::world::{World, attach_receiver, close, credit, detach, flow, performative, settle};
use crate::limits::{PARKED_MAX, RETURNS_MAX};

#[test]
fn a_receiver_is_sent_what_its_credit_is_for_and_the_rest_later() {
    let mut world = World::new();
    let ear = world.dial("ear");
    assert_eq!(world.say(ear, &attach_receiver(0, "r", "a/#", 2)), ["attach 0"]);
    for number in 0..5 {
        world.publish("a/b", &number.to_string());
    }
    assert_eq!(world.hear(ear), [""; 0]);
    assert_eq!(world.say(ear, &credit(0, 0, 2)), ["transfer 0 0", "transfer 0 1"]);
    assert_eq!(world.say(ear, &settle(0, 1, 0x24)), [""; 0]);
    assert_eq!(world.say(ear, &credit(0, 2, 10)), ["transfer 0 2", "transfer 0 3", "transfer 0 4"]);
    // Of what was not answered the core knows.
    assert_eq!(world.shard.stats().inflight_messages, 3);
    world.say(ear, &settle(2, 4, 0x25));
    assert_eq!((world.shard.stats().inflight_messages, world.door.stats().declined), (0, 3));
}

#[test]
fn what_a_receiver_releases_comes_again_within_its_credit_and_not_for_ever() {
    let mut world = World::new();
    let ear = world.dial("ear");
    world.say(ear, &attach_receiver(0, "r", "a", 2));
    world.say(ear, &credit(0, 0, 2));
    world.publish("a", "x");
    assert_eq!(world.hear(ear), ["transfer 0 x"]);
    assert_eq!(world.say(ear, &settle(0, 0, 0x26)), ["transfer 0 x"]);
    // Its credit is used up: the message waits here.
    assert_eq!(world.say(ear, &settle(1, 1, 0x26)), [""; 0]);
    assert_eq!(world.say(ear, &credit(0, 2, 100)), ["transfer 0 x"]);
    for delivery in 2..u32::from(RETURNS_MAX) {
        assert_eq!(world.say(ear, &settle(delivery, delivery, 0x26)), ["transfer 0 x"]);
    }
    assert_eq!((world.shard.stats().inflight_messages, world.door.stats().declined), (1, 0));
    let last = u32::from(RETURNS_MAX);
    assert_eq!(world.say(ear, &settle(last, last, 0x26)), [""; 0]);
    let stats = world.door.stats();
    assert_eq!((world.shard.stats().inflight_messages, stats.declined, stats.returned), (0, 1, u64::from(RETURNS_MAX)));
    assert!(world.shard.audit().is_ok());
    // Another message is another one.
    world.publish("a", "y");
    assert_eq!(world.hear(ear), ["transfer 0 y"]);
    assert_eq!(world.say(ear, &settle(last + 1, last + 1, 0x24)), [""; 0]);
    assert_eq!(world.shard.stats().inflight_messages, 0);
}

#[test]
fn more_than_a_few_wait_in_the_queue_of_the_session_and_none_is_lost() {
    let mut world = World::new();
    let ear = world.dial("ear");
    world.say(ear, &attach_receiver(0, "r", "a", 2));
    let all = PARKED_MAX + 36;
    for number in 0..all {
        world.publish("a", &number.to_string());
    }
    let mut heard = Vec::new();
    for seen in (0..all as u32).step_by(10) {
        heard.extend(world.say(ear, &credit(0, seen, 10)));
        world.say(ear, &settle(seen, seen + 9, 0x24));
    }
    let expected: Vec<String> = (0..all).map(|number| format!("transfer 0 {number}")).collect();
    assert_eq!(heard, expected);
    assert_eq!(world.shard.stats().inflight_messages, 0);
}

#[test]
fn settled_links_get_settled_messages_and_a_drained_one_says_that_there_is_no_more() {
    let mut world = World::new();
    let ear = world.dial("ear");
    world.say(ear, &attach_receiver(0, "r", "a", 1));
    world.publish("a", "x");
    assert_eq!(world.say(ear, &flow(0, 0, 5, (0, 2048), true)), ["transfer 0 settled x", "flow 0 count 5 credit 0"]);
    world.publish("a", "y");
    assert_eq!(world.hear(ear), [""; 0]);
    assert_eq!(world.say(ear, &credit(0, 5, 1)), ["transfer 0 settled y"]);
}

#[test]
fn a_link_that_drains_is_told_when_the_session_has_had_room_for_all() {
    let mut world = World::new();
    let ear = world.dial("ear");
    world.say(ear, &attach_receiver(0, "r", "a", 1));
    world.publish("a", "x");
    assert_eq!(world.say(ear, &flow(0, 0, 5, (0, 0), true)), [""; 0]);
    let window = performative(0, 0x13, |fields| {
        fields.uint(0).uint(10).uint(0).uint(2048);
    });
    assert_eq!(world.say(ear, &window), ["transfer 0 settled x", "flow 0 count 5 credit 0"]);
}

#[test]
fn a_message_goes_once_to_each_link_that_wants_it() {
    let mut world = World::new();
    let ear = world.dial("ear");
    for (handle, filter) in [(0, "a/#"), (1, "a/+"), (2, "a/#")] {
        world.say(ear, &attach_receiver(handle, &format!("r{handle}"), filter, 2));
        world.say(ear, &credit(handle, 0, 10));
    }
    world.publish("a/b", "x");
    let mut heard = world.hear(ear);
    heard.sort();
    assert_eq!(heard, ["transfer 0 x", "transfer 1 x", "transfer 2 x"]);
    world.say(ear, &settle(0, 1, 0x24));
    assert_eq!(world.shard.stats().inflight_messages, 1);
    world.say(ear, &settle(2, 2, 0x24));
    assert_eq!(world.shard.stats().inflight_messages, 0);
    // What is left of a filter stays subscribed.
    world.say(ear, &detach(0, true));
    world.publish("a/b", "y");
    assert_eq!(world.hear(ear).len(), 2);
    for handle in [1, 2] {
        world.say(ear, &detach(handle, true));
    }
    world.publish("a/b", "z");
    assert_eq!((world.hear(ear).len(), world.shard.stats().inflight_messages), (0, 0));
}

#[test]
fn a_long_message_goes_in_pieces_as_the_window_of_the_session_opens() {
    let mut world = World::new();
    let hello = crate::AmqpHello { max_frame_size: 512, ..Default::default() };
    let ear = world.dial_with("ear", hello);
    world.say(ear, &super::world::begin(0));
    world.say(ear, &attach_receiver(0, "r", "a", 2));
    world.say(ear, &flow(0, 0, 1, (0, 2), false));
    world.publish("a", &"x".repeat(1500));
    let pieces = world.hear(ear);
    assert_eq!(pieces.len(), 2, "{pieces:?}");
    assert!(pieces.iter().all(|piece| piece.contains("more")), "{pieces:?}");
    let rest = world.say(ear, &flow(0, 0, 1, (2, 100), false));
    assert_eq!(rest.len(), 2, "{rest:?}");
    assert!(!rest[1].contains("more"), "{rest:?}");
    world.say(ear, &settle(0, 0, 0x24));
    assert_eq!(world.shard.stats().inflight_messages, 0);
}

#[test]
fn a_session_that_lasts_keeps_what_was_not_answered_for_who_comes_back() {
    let mut world = World::new();
    let lasting = || crate::AmqpHello { session_expiry: Duration::from_secs(60), ..Default::default() };
    let ear = world.dial_with("ear", lasting());
    world.say(ear, &super::world::begin(0));
    world.say(ear, &attach_receiver(0, "r", "a", 2));
    world.say(ear, &credit(0, 0, 10));
    world.publish("a", "unanswered");
    assert_eq!(world.hear(ear), ["transfer 0 unanswered"]);
    world.lose(ear);
    world.publish("a", "away");
    let back = world.dial_with("ear", lasting());
    world.say(back, &super::world::begin(0));
    world.say(back, &attach_receiver(5, "r", "a", 2));
    assert_eq!(world.say(back, &credit(5, 0, 10)), ["transfer 5 unanswered", "transfer 5 away"]);
    world.say(back, &settle(0, 1, 0x24));
    assert_eq!(world.shard.stats().inflight_messages, 0);
    assert_eq!(world.say(back, &close()), ["close"]);
}
