//! Clients that publish.

use std::sync::Arc;

use tidegate_control::rhythm::ArrivalTime;
use tidegate_core::Incoming;
use tidegate_core::access::{Action, Identity, Policy};
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::{Delivery, Properties, QoS};

use super::world::{
    World, attach_receiver, attach_sender, begin, close, credit, data, detach, performative, piece, retained, transfer,
};
use crate::limits::CREDIT_MAX;

/// Nobody may write to `secret`.
#[derive(Debug)]
pub(super) struct Rules;

impl Policy for Rules {
    fn allows(&self, _: &Identity, _: &str, action: Action, topic: &str) -> bool {
        topic != "secret" || action != Action::Publish
    }
}

#[test]
fn a_sender_has_credit_and_each_message_an_answer() {
    let mut world = World::new();
    let desk = world.dial("desk");
    let said = world.say(desk, &attach_sender(0, "s", Some("a/b")));
    assert_eq!(said, ["attach 0", &format!("flow 0 count 0 credit {CREDIT_MAX}")]);
    assert_eq!(world.say(desk, &transfer(0, 0, false, &data("one"))), ["disposition 0 accepted"]);
    assert_eq!(world.say(desk, &transfer(0, 1, true, &data("two"))), [""; 0]);
    let stats = world.shard.stats();
    assert_eq!((stats.publish_received, stats.publish_passed), (2, 2));
    assert_eq!(world.say(desk, &detach(0, true)), ["detach 0"]);
    assert_eq!(world.say(desk, &close()), ["close"]);
    assert!(world.is_closed(desk));
}

#[test]
fn a_message_may_come_in_pieces_and_may_be_left_off() {
    let mut world = World::new();
    let (desk, ear) = (world.dial("desk"), world.dial("ear"));
    world.say(ear, &attach_receiver(0, "r", "a", 1));
    world.say(ear, &credit(0, 0, 10));
    world.say(desk, &attach_sender(3, "s", Some("a")));
    let message = data(&"x".repeat(50));
    assert_eq!(world.say(desk, &piece(3, Some(0), false, true, &message[..10])), [""; 0]);
    assert_eq!(world.say(desk, &piece(3, None, false, true, &message[10..30])), [""; 0]);
    assert_eq!(world.say(desk, &piece(3, None, false, false, &message[30..])), ["disposition 0 accepted"]);
    assert_eq!(world.hear(ear), [format!("transfer 0 settled {}", "x".repeat(50))]);
    world.say(desk, &piece(3, Some(1), false, true, &message[..10]));
    let aborted = performative(0, 0x14, |fields| {
        fields.uint(3).null().null().null().null().null().null().null().null().boolean(true);
    });
    assert_eq!(world.say(desk, &aborted), [""; 0]);
    assert_eq!(world.say(desk, &transfer(3, 2, false, &data("y"))), ["disposition 2 accepted"]);
}

#[test]
fn a_relay_takes_messages_for_every_topic_that_they_name() {
    let mut world = World::new();
    let (desk, ear) = (world.dial("desk"), world.dial("ear"));
    world.say(desk, &attach_sender(0, "s", None));
    assert_eq!(world.say(desk, &transfer(0, 0, false, &retained("x/y", "kept"))), ["disposition 0 accepted"]);
    let nowhere = world.say(desk, &transfer(0, 1, false, &data("lost")));
    assert_eq!(nowhere, ["disposition 1 rejected amqp:precondition-failed"]);
    let filter = world.say(desk, &transfer(0, 2, false, &retained("x/#", "lost")));
    assert_eq!(filter, ["disposition 2 rejected amqp:invalid-field"]);
    world.say(ear, &attach_receiver(0, "r", "x/+", 2));
    assert_eq!(world.say(ear, &credit(0, 0, 10)), ["transfer 0 retained kept"]);
}

#[test]
fn what_may_never_be_taken_is_rejected_with_its_condition() {
    let mut world = World::with(Settings::default(), Arc::new(Rules));
    let desk = world.dial("desk");
    world.say(desk, &attach_sender(0, "s", Some("secret")));
    let said = world.say(desk, &transfer(0, 0, false, &data("x")));
    assert_eq!(said, ["disposition 0 rejected amqp:unauthorized-access"]);
    let sequence = world.say(desk, &transfer(0, 1, false, b"\0\x53\x76\x45"));
    assert_eq!(sequence, ["disposition 1 rejected amqp:not-implemented"]);
    let broken = world.say(desk, &transfer(0, 2, false, b"\0\x53\x75\xb0\xff\xff\xff\xff"));
    assert_eq!(broken, ["disposition 2 rejected amqp:decode-error"]);
    assert!(!world.is_closed(desk));
    for topic in ["a/#", "", "a/\0"] {
        let said = world.say(desk, &attach_sender(1, "t", Some(topic)));
        assert_eq!(said, ["attach 1 none", "detach 1 amqp:invalid-field"], "{topic:?}");
        world.say(desk, &detach(1, true));
    }
}

#[test]
fn the_scheme_of_an_address_is_no_part_of_the_topic_once() {
    let mut world = World::new();
    let (desk, ear) = (world.dial("desk"), world.dial("ear"));
    assert_eq!(
        world.say(desk, &attach_sender(1, "t", Some("topic://"))),
        ["attach 1 none", "detach 1 amqp:invalid-field"]
    );
    world.say(ear, &attach_receiver(0, "r", "topic://topic://", 2));
    world.say(ear, &credit(0, 0, 10));
    world.say(desk, &attach_sender(0, "s", Some("topic://topic://")));
    assert_eq!(world.say(desk, &transfer(0, 0, false, &data("x"))), ["disposition 0 accepted"]);
    assert_eq!(world.hear(ear), ["transfer 0 x"]);
}

#[test]
fn no_door_gets_a_message_in_whose_topic_is_none() {
    let mut world = World::new();
    let desk = world.dial("desk");
    let conn = world.conn(desk).unwrap();
    let incoming = Incoming {
        topic: "",
        payload: b"x",
        properties: Properties::EMPTY,
        delivery: Delivery::AtMostOnce,
        retain: true,
    };
    let now = world.now;
    assert!(world.shard.publish(conn, &incoming, ArrivalTime::new(now, now, now), now).is_ok());
    let stats = world.shard.stats();
    assert_eq!((stats.publish_rejected, stats.publish_passed, stats.retained_messages), (1, 0, 0));
}

#[test]
fn a_refusal_is_heard_where_nothing_beyond_qos_0_is_promised() {
    let settings = Settings { qos_max: QoS::AtMostOnce, ..Settings::default() };
    let mut world = World::with(settings, Arc::new(Rules));
    let desk = world.dial("desk");
    world.say(desk, &attach_sender(0, "s", Some("secret")));
    let said = world.say(desk, &transfer(0, 0, false, &data("x")));
    assert_eq!(said, ["disposition 0 rejected amqp:unauthorized-access"]);
    world.say(desk, &attach_sender(1, "t", Some("open")));
    assert_eq!(world.say(desk, &transfer(1, 1, false, &data("x"))), ["disposition 1 accepted"]);
}

#[test]
fn who_takes_the_same_name_takes_over() {
    let mut world = World::new();
    let (before, after) = (world.dial("desk"), world.dial("desk"));
    assert_eq!(world.hear(before), ["close amqp:connection:forced"]);
    assert!(world.is_closed(before) && !world.is_closed(after));
    // A link that is attached again is the other's.
    world.say(after, &attach_sender(0, "s", Some("a")));
    let said = world.say(after, &attach_sender(1, "s", Some("b")));
    assert!(
        said.contains(&"detach 0 amqp:link:stolen".to_owned()) && said.contains(&"attach 1".to_owned()),
        "{said:?}"
    );
    assert_eq!(world.say(after, &begin(1)), ["begin"]);
}

#[test]
fn silence_ends_a_connection_and_signs_of_life_are_given() {
    let mut world = World::new();
    let hello = crate::AmqpHello { idle: Some(std::time::Duration::from_secs(20)), ..Default::default() };
    let desk = world.dial_with("desk", hello);
    world.hear(desk);
    world.wait(std::time::Duration::from_secs(35));
    assert_eq!(world.hear(desk), ["heartbeat"; 3]);
    world.say(desk, &crate::reply::HEARTBEAT);
    world.wait(std::time::Duration::from_secs(89));
    assert!(!world.is_closed(desk));
    world.wait(std::time::Duration::from_secs(2));
    assert!(world.hear(desk).contains(&"close amqp:resource-limit-exceeded".to_owned()));
    assert!(world.is_closed(desk));
}
