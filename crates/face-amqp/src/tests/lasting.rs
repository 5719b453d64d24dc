//! Sessions that outlive their links, and their connection.

use std::time::Duration;

use super::world::{
    World, attach_receiver, attach_sender, begin, credit, data, detach, performative, settle, transfer,
};

/// A container whose session lasts, with one session of AMQP.
fn dial_lasting(world: &mut World, name: &str) -> usize {
    let hello = crate::AmqpHello { session_expiry: Duration::from_secs(60), ..Default::default() };
    let socket = world.dial_with(name, hello);
    world.say(socket, &begin(0));
    socket
}

#[test]
fn what_a_link_has_not_answered_comes_again_when_it_is_back() {
    let mut world = World::new();
    let ear = dial_lasting(&mut world, "ear");
    world.say(ear, &attach_receiver(0, "r", "a", 2));
    world.say(ear, &credit(0, 0, 1));
    world.publish("a", "one");
    world.publish("a", "two");
    assert_eq!(world.hear(ear), ["transfer 0 one"]);
    assert_eq!(world.say(ear, &detach(0, false)), ["detach 0"]);
    assert_eq!(world.shard.stats().inflight_messages, 2);
    world.say(ear, &attach_receiver(1, "r", "a", 2));
    assert_eq!(world.say(ear, &credit(1, 0, 10)), ["transfer 1 one", "transfer 1 two"]);
    world.say(ear, &settle(1, 2, 0x24));
    let stats = world.shard.stats();
    assert_eq!((stats.inflight_messages, stats.dropped_session_ended), (0, 0));
    // The end of the session is no other matter.
    world.publish("a", "three");
    assert_eq!(world.hear(ear), ["transfer 1 three"]);
    world.say(ear, &performative(0, 0x17, |_| {}));
    world.say(ear, &begin(0));
    world.say(ear, &attach_receiver(0, "r", "a", 2));
    assert_eq!(world.say(ear, &credit(0, 0, 10)), ["transfer 0 three"]);
    // A link that is closed gives up what it has not answered, and that is counted.
    world.say(ear, &detach(0, true));
    let stats = world.shard.stats();
    assert_eq!((stats.inflight_messages, stats.dropped_session_ended, world.door.stats().given_up), (0, 1, 1));
}

#[test]
fn what_a_link_has_released_before_it_went_comes_again_when_it_is_back() {
    let mut world = World::new();
    let ear = dial_lasting(&mut world, "ear");
    world.say(ear, &attach_receiver(0, "r", "a", 2));
    world.say(ear, &credit(0, 0, 1));
    world.publish("a", "one");
    assert_eq!(world.hear(ear), ["transfer 0 one"]);
    assert_eq!(world.say(ear, &settle(0, 0, 0x26)), [""; 0], "its credit is used up");
    world.say(ear, &detach(0, false));
    world.say(ear, &attach_receiver(1, "r", "a", 2));
    assert_eq!(world.say(ear, &credit(1, 0, 10)), ["transfer 1 one"]);
    world.say(ear, &settle(1, 1, 0x24));
    let stats = world.door.stats();
    assert_eq!((world.shard.stats().inflight_messages, stats.returned, stats.given_up), (0, 1, 0));
    assert!(world.shard.audit().is_ok());
}

#[test]
fn a_message_of_two_filters_comes_again_only_to_the_link_that_was_away() {
    let mut world = World::new();
    let ear = dial_lasting(&mut world, "ear");
    for (handle, filter) in [(0, "a/#"), (1, "a/+")] {
        world.say(ear, &attach_receiver(handle, filter, filter, 2));
        world.say(ear, &credit(handle, 0, 10));
    }
    world.publish("a/b", "x");
    assert_eq!(world.hear(ear).len(), 2);
    world.say(ear, &detach(0, false));
    world.say(ear, &attach_receiver(2, "a/#", "a/#", 2));
    assert_eq!(world.say(ear, &credit(2, 0, 10)), ["transfer 2 x"]);
    world.say(ear, &detach(1, true));
    assert_eq!(world.shard.stats().inflight_messages, 1);
    world.say(ear, &settle(0, 9, 0x24));
    let stats = world.shard.stats();
    assert_eq!((stats.inflight_messages, stats.dropped_session_ended), (0, 0), "one of the two has it");
}

#[test]
fn an_attach_waits_for_the_disk_and_messages_wait_for_the_attach() {
    let mut world = World::with_disk();
    let desk = world.dial("desk");
    world.say(desk, &attach_sender(0, "s", Some("a")));
    let ear = dial_lasting(&mut world, "ear");
    world.turn();
    world.hear(ear);
    world.is_disk_stuck = true;
    assert_eq!(world.say(ear, &attach_receiver(0, "r", "a", 2)), [""; 0]);
    assert_eq!(world.say(ear, &credit(0, 0, 10)), [""; 0]);
    world.say(desk, &transfer(0, 0, true, &data("x")));
    assert_eq!(world.hear(ear), [""; 0]);
    world.is_disk_stuck = false;
    world.turn();
    assert_eq!(world.hear(ear), ["attach 0", "transfer 0 settled x"]);
}

#[test]
fn only_dispositions_wait_for_the_disk() {
    let mut world = World::with_disk();
    let ear = dial_lasting(&mut world, "ear");
    world.say(ear, &attach_receiver(0, "r", "a", 2));
    world.say(ear, &credit(0, 0, 10));
    world.say(ear, &attach_sender(5, "s", Some("a")));
    world.turn();
    world.hear(ear);
    world.is_disk_stuck = true;
    let said = world.say(ear, &transfer(5, 0, false, &data("x")));
    assert_eq!(said, ["transfer 0 x"], "it is kept before it is acknowledged");
    let said = world.say(ear, &attach_sender(6, "t", Some("b")));
    assert!(said.contains(&"attach 6".to_owned()), "{said:?}");
    // What ends a link comes after the answers of the link.
    assert_eq!(world.say(ear, &detach(5, true)), [""; 0]);
    world.is_disk_stuck = false;
    world.turn();
    let said: Vec<String> = world.hear(ear).into_iter().filter(|words| !words.starts_with("flow")).collect();
    assert_eq!(said, ["disposition 0 accepted", "detach 5"]);
}
