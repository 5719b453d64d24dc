//! Clients that break the rules: the exact condition, and nobody else is harmed.

use std::sync::Arc;

use proptest::prelude::*;
use tidegate_core::access::Open;
use tidegate_core::settings::Settings;

use super::world::{World, attach_receiver, attach_sender, begin, credit, data, detach, performative, piece, transfer};
use crate::limits::{CHANNEL_MAX, CREDIT_MAX, HANDLE_MAX};

fn last(world: &mut World, socket: usize, bytes: &[u8]) -> String {
    world.say(socket, bytes).pop().unwrap_or_default()
}

#[test]
fn frames_that_are_none_end_the_connection() {
    let long = [0x80, 0, 0, 0, 2, 0, 0, 0];
    let cases: [(&[u8], &str); 8] = [
        (&long, "close amqp:connection:framing-error"),
        (&[0, 0, 0, 4], "close amqp:connection:framing-error"),
        (&[0, 0, 0, 9, 1, 0, 0, 0, 0], "close amqp:connection:framing-error"),
        (&[0, 0, 0, 9, 2, 1, 0, 0, 0x40], "close amqp:connection:framing-error"),
        (&[0, 0, 0, 9, 2, 0, 0, 0, 0x40], "close amqp:decode-error"),
        (&[0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x99, 0x45], "close amqp:decode-error"),
        (&[0, 0, 0, 16, 2, 0, 0, 0, 0, 0x53, 0x12, 0xd0, 0x7f, 0xff, 0xff, 0xff], "close amqp:decode-error"),
        (&[0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x12, 0x45], "close amqp:decode-error"),
    ];
    let mut world = World::new();
    let other = world.dial("other");
    world.say(other, &attach_sender(0, "s", Some("a")));
    for (number, (bytes, expected)) in cases.into_iter().enumerate() {
        let socket = world.dial(&format!("bad-{number}"));
        assert_eq!(last(&mut world, socket, bytes), expected, "{bytes:?}");
        assert!(world.is_closed(socket));
        let said = world.say(other, &transfer(0, number as u32, false, &data("x")));
        assert_eq!(said[0], format!("disposition {number} accepted"));
    }
    assert_eq!(world.door.stats().faults, 8);
}

#[test]
fn what_comes_in_the_wrong_state_has_its_condition() {
    let on = |channel: u16, bytes: Vec<u8>| {
        let mut bytes = bytes;
        bytes[6..8].copy_from_slice(&channel.to_be_bytes());
        bytes
    };
    let open = performative(0, 0x10, |fields| {
        fields.text("x");
    });
    let no_count = performative(0, 0x12, |fields| {
        fields.text("n").uint(9).boolean(false);
    });
    let answer = performative(1, 0x11, |fields| {
        fields.put(|out| crate::write::ushort(0, out)).uint(0).uint(1).uint(1);
    });
    let cases = [
        (open, "close amqp:illegal-state"),
        (begin(0), "close amqp:illegal-state"),
        (answer, "close amqp:not-allowed"),
        (begin(CHANNEL_MAX + 1), "close amqp:connection:framing-error"),
        (on(5, credit(0, 0, 1)), "close amqp:illegal-state"),
        (credit(7, 0, 1), "end amqp:session:unattached-handle"),
        (transfer(7, 0, false, &data("x")), "end amqp:session:unattached-handle"),
        (detach(7, true), "end amqp:session:unattached-handle"),
        (transfer(1, 0, false, &data("x")), "end amqp:not-allowed"),
        (attach_sender(0, "again", Some("a")), "end amqp:session:handle-in-use"),
        (attach_sender(HANDLE_MAX + 1, "far", Some("a")), "close amqp:connection:framing-error"),
        (no_count, "end amqp:invalid-field"),
        (piece(0, None, false, false, &data("x")), "end amqp:invalid-field"),
    ];
    for (bytes, expected) in cases {
        let mut world = World::new();
        let socket = world.dial("desk");
        world.say(socket, &attach_sender(0, "s", Some("a")));
        world.say(socket, &attach_receiver(1, "r", "a", 2));
        assert_eq!(last(&mut world, socket, &bytes), expected);
        let is_closed = expected.starts_with("close");
        assert_eq!(world.is_closed(socket), is_closed, "{expected}");
        if !is_closed {
            // Nothing counts on the session that has ended, until the client has seen that.
            assert_eq!(world.say(socket, &transfer(0, 1, false, &data("x"))), [""; 0]);
            assert_eq!(world.say(socket, &performative(0, 0x17, |_| {})), [""; 0]);
            assert_eq!(world.say(socket, &begin(0)), ["begin"]);
        }
    }
}

#[test]
fn more_than_was_granted_ends_the_link() {
    let mut world = World::new();
    let socket = world.dial("desk");
    world.say(socket, &attach_sender(0, "s", Some("a")));
    // Frames of one portion: nobody has had time to give more.
    let mut all = Vec::new();
    for id in 0..=CREDIT_MAX {
        all.extend(transfer(0, id, true, &data("x")));
    }
    let said = world.say(socket, &all);
    assert_eq!(
        said.iter().find(|words| words.starts_with("detach")).unwrap(),
        "detach 0 amqp:link:transfer-limit-exceeded"
    );
    assert_eq!(world.shard.stats().publish_passed, u64::from(CREDIT_MAX));
    let settings = Settings { packet_bytes_max: 1000, ..Settings::default() };
    let mut world = World::with(settings, Arc::new(Open));
    let socket = world.dial("desk");
    world.say(socket, &attach_sender(0, "s", Some("a")));
    world.say(socket, &piece(0, Some(0), false, true, &[0; 900]));
    assert_eq!(
        last(&mut world, socket, &piece(0, None, false, true, &[0; 200])),
        "detach 0 amqp:link:message-size-exceeded"
    );
    assert!(!world.is_closed(socket));
}

#[test]
fn transactions_and_topics_that_are_made_up_are_not_there() {
    let mut world = World::new();
    let socket = world.dial("desk");
    let coordinator = performative(0, 0x12, |fields| {
        fields.text("t").uint(0).boolean(false).null().null().null();
        fields.put(|out| crate::write::composite(0x30, out, |_| {})).null().null().uint(0);
    });
    assert_eq!(world.say(socket, &coordinator), ["attach 0 none", "detach 0 amqp:not-implemented"]);
    let dynamic = performative(0, 0x12, |fields| {
        fields.text("d").uint(1).boolean(true).null().null().put(|out| {
            crate::write::composite(0x28, out, |fields| {
                fields.null().null().null().null().boolean(true);
            });
        });
    });
    assert_eq!(world.say(socket, &dynamic), ["attach 1 none", "detach 1 amqp:not-implemented"]);
    assert_eq!(
        world.say(socket, &attach_receiver(2, "f", "a/#/b", 2)),
        ["attach 2 none", "detach 2 amqp:invalid-field"]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever comes after a good beginning, the shard goes on and every message is in one counter.
    #[test]
    fn bytes_of_chance_harm_nobody(
        changes in prop::collection::vec((0_usize..600, any::<u8>()), 0..12),
        cut in 0_usize..600,
    ) {
        let mut world = World::new();
        let socket = world.dial("desk");
        let mut bytes = [
            attach_sender(0, "s", Some("a")),
            attach_receiver(1, "r", "a", 2),
            credit(1, 0, 10),
            piece(0, Some(0), false, true, &data("x")[..3]),
            piece(0, None, false, false, &data("x")[3..]),
            transfer(0, 1, true, &super::world::retained("b", "y")),
            super::world::settle(0, 9, 0x24),
            detach(1, false),
            begin(1),
        ].concat();
        for (place, byte) in changes {
            let length = bytes.len();
            bytes[place % length] = byte;
        }
        bytes.truncate(bytes.len().saturating_sub(cut % 100));
        world.say(socket, &bytes);
        world.publish("z", "still there");
    }
}
