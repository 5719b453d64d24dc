//! What one client may make the broker keep, or write at once.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::access::Open;
use tidegate_core::settings::Settings;

use super::sending::Rules;
use super::world::{World, attach_receiver, attach_sender, credit, data, detach, flow, piece, settle, transfer};
use crate::limits::{AHEAD_BYTES_MAX, FRAME_BYTES_MAX, UNSETTLED_MAX};

#[test]
fn so_many_deliveries_wait_for_their_answers_and_more_for_those() {
    let mut world = World::new();
    let (desk, ear) = (world.dial("desk"), world.dial("ear"));
    world.say(ear, &attach_receiver(0, "r", "a", 0));
    world.say(ear, &flow(0, 0, u32::MAX, (0, u32::MAX), false));
    world.say(desk, &attach_sender(0, "s", Some("a")));
    let before = world.shard.memory().charged();
    let more = 10;
    for id in 0..(UNSETTLED_MAX + more) as u32 {
        world.say(desk, &transfer(0, id, true, &data("x")));
    }
    assert_eq!(world.hear(ear).len(), UNSETTLED_MAX);
    assert!(world.shard.memory().charged() > before + UNSETTLED_MAX, "they are charged");
    assert_eq!(world.say(ear, &settle(0, 3, 0x24)).len(), 4);
    assert_eq!(world.say(ear, &settle(0, u32::MAX - 1, 0x24)).len(), more - 4);
    world.say(ear, &settle(0, u32::MAX - 1, 0x24));
    assert_eq!(world.shard.memory().charged(), before);
    // Nor does a link that goes leave any behind.
    world.say(desk, &transfer(0, 9999, true, &data("x")));
    assert_eq!(world.hear(ear).len(), 1);
    world.say(ear, &detach(0, true));
    assert_eq!(world.shard.memory().charged(), before);
}

#[test]
fn many_links_of_one_filter_get_their_copies_as_the_outbox_empties_and_they_are_kept_once() {
    let links = 100;
    let mut world = World::new();
    let (desk, ear) = (world.dial("desk"), world.dial("ear"));
    for handle in 0..links {
        world.say(ear, &attach_receiver(handle, &format!("r{handle}"), "a", 1));
        world.say(ear, &credit(handle, 0, 10));
    }
    world.say(desk, &attach_sender(0, "s", Some("a")));
    let before = world.shard.memory().charged();
    let length = 60_000;
    let waiting = world.say_and_wait(desk, &transfer(0, 0, true, &data(&"x".repeat(length))), ear);
    assert!(waiting <= AHEAD_BYTES_MAX + 2 * FRAME_BYTES_MAX, "{waiting} bytes at once");
    let kept = world.shard.memory().charged() - before;
    assert!((length..2 * length).contains(&kept), "{kept} bytes for one message");
    // What comes meanwhile waits behind it.
    world.say_and_wait(desk, &transfer(0, 1, false, &data("last")), ear);
    world.turn();
    let heard = world.hear(ear);
    assert_eq!(heard.len(), 2 * links as usize);
    let order: Vec<bool> =
        heard.iter().filter(|words| words.starts_with("transfer 7 ")).map(|words| words.ends_with("last")).collect();
    assert_eq!(order, [false, true]);
    world.say(ear, &crate::reply::HEARTBEAT);
    assert_eq!(world.shard.memory().charged(), before);
}

#[test]
fn credit_for_many_links_frees_no_flood_either() {
    let links = 100;
    let mut world = World::new();
    let (desk, ear) = (world.dial("desk"), world.dial("ear"));
    let mut credits = Vec::new();
    for handle in 0..links {
        world.say(ear, &attach_receiver(handle, &format!("r{handle}"), "a", 1));
        credits.extend(credit(handle, 0, 10));
    }
    world.say(desk, &attach_sender(0, "s", Some("a")));
    world.say(desk, &transfer(0, 0, true, &data(&"x".repeat(60_000))));
    assert_eq!(world.hear(ear), [""; 0]);
    let waiting = world.say_and_wait(ear, &credits, ear);
    assert!(waiting <= AHEAD_BYTES_MAX + 2 * FRAME_BYTES_MAX, "{waiting} bytes at once");
    for _ in 0..links {
        world.turn();
    }
    assert_eq!(world.hear(ear).len(), links as usize);
}

#[test]
fn beginnings_of_messages_have_one_bound_for_a_connection() {
    let settings = Settings { packet_bytes_max: 100_000, ..Settings::default() };
    let mut world = World::with(settings, Arc::new(Open));
    let desk = world.dial("desk");
    let begun = vec![0; 60_000];
    for handle in 0..3 {
        world.say(desk, &attach_sender(handle, &format!("s{handle}"), Some("a")));
        assert_eq!(world.say(desk, &piece(handle, Some(handle), false, true, &begun)), [""; 0]);
    }
    world.say(desk, &attach_sender(3, "s3", Some("a")));
    let said = world.say(desk, &piece(3, Some(3), false, true, &begun));
    assert_eq!(said, ["detach 3 amqp:resource-limit-exceeded"]);
    assert!(!world.is_closed(desk));
}

#[test]
fn beginnings_of_messages_need_memory_that_is_there() {
    let mut world = World::new();
    let desk = world.dial("desk");
    world.say(desk, &attach_sender(0, "s", Some("a")));
    let used = world.shard.memory_used();
    world.shard.set_memory(used + 20_000, 0);
    let said = world.say(desk, &piece(0, Some(0), false, true, &vec![0; 60_000]));
    assert_eq!(said, ["detach 0 amqp:resource-limit-exceeded"]);
}

#[test]
fn the_rest_of_a_message_comes_in_time_or_its_link_ends() {
    let mut world = World::new();
    let desk = world.dial("desk");
    world.say(desk, &attach_sender(0, "s", Some("a")));
    world.say(desk, &piece(0, Some(0), false, true, &[0; 10_240]));
    for _ in 0..2 {
        world.wait(Duration::from_secs(34));
        assert!(!world.say(desk, &crate::reply::HEARTBEAT).iter().any(|words| words.starts_with("detach")));
    }
    world.wait(Duration::from_secs(3));
    assert!(world.hear(desk).contains(&"detach 0 amqp:resource-limit-exceeded".to_owned()));
    assert!(!world.is_closed(desk));
}

#[test]
fn of_a_message_that_nobody_may_send_nothing_is_kept() {
    let mut world = World::with(Settings::default(), Arc::new(Rules));
    let desk = world.dial("desk");
    world.say(desk, &attach_sender(0, "s", Some("secret")));
    let before = world.shard.memory().charged();
    world.say(desk, &piece(0, Some(0), false, true, &vec![0; 60_000]));
    assert_eq!(world.shard.memory().charged(), before);
    let said = world.say(desk, &piece(0, None, false, false, &[0; 10]));
    assert_eq!(said[0], "disposition 0 rejected amqp:unauthorized-access");
    assert_eq!(world.shard.stats().publish_denied, 1);
}
