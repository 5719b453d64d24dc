//! What an observer costs that has nothing to hear: counted, so that it does not creep back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::net::SocketAddr;
use std::time::Duration;

use coap_lite::{MessageType, Packet};
use world::{Ask, World, empty};

#[path = "door/world.rs"]
#[expect(dead_code, reason = "the other tests use the rest of it")]
mod world;

/// Observers that are there before anything is counted, and as many again: each table doubles once meanwhile.
const OBSERVERS: u16 = 1024;
/// Bytes of one, in the core and at this door, tables with the room that they have left included. The connection's and the session's
/// own are some 680 of them.
const BYTES_MAX: i64 = 1100;

fn observer(number: u16) -> SocketAddr {
    SocketAddr::from(([127, 1, 0, (number / 500) as u8], 20_000 + number % 500))
}

fn observe(world: &mut World, numbers: std::ops::Range<u16>) {
    for number in numbers {
        let said = world.receive(observer(number), &Ask::get("ps/idle", 1).observe().bytes());
        assert_eq!(said.len(), 1);
    }
}

#[test]
fn an_observer_that_hears_nothing_has_memory_for_its_name_and_its_wish_alone() {
    let mut world = World::new();
    observe(&mut world, 0..OBSERVERS);
    let counted = allocation_counter::measure(|| observe(&mut world, OBSERVERS..2 * OBSERVERS));
    let each = counted.bytes_current / i64::from(OBSERVERS);
    println!("{each} bytes of each observer, in {:.1} pieces", counted.count_current as f64 / f64::from(OBSERVERS));
    assert!(each <= BYTES_MAX, "{each} bytes");
}

#[test]
fn what_an_observer_has_heard_long_ago_is_no_memory_any_more() {
    let mut world = World::new();
    observe(&mut world, 0..OBSERVERS);
    let publisher = SocketAddr::from(([127, 0, 0, 1], 9));
    world.receive(publisher, &Ask::put("ps/idle", "before", 1).bytes());
    world.wait(Duration::from_secs(1));
    let mut is_heard = false;
    let counted = allocation_counter::measure(|| {
        let mut said = world.receive(publisher, &Ask::put("ps/idle", "21.5", 2).bytes());
        // All of it is acknowledged, signs of life as well, which are wanted after ten minutes; then there is nothing for five.
        let end = world.now + Duration::from_secs(900);
        while world.now < end {
            for (to, bytes) in std::mem::take(&mut said) {
                let packet = Packet::from_bytes(&bytes).unwrap();
                is_heard |= packet.payload == b"21.5";
                if packet.header.get_type() == MessageType::Confirmable {
                    let kind =
                        if packet.payload.is_empty() { MessageType::Reset } else { MessageType::Acknowledgement };
                    said.extend(world.receive(to, &empty(kind, packet.header.message_id)));
                }
            }
            said.extend(world.wait(Duration::from_secs(60)));
        }
    });
    assert!(is_heard);
    let each = counted.bytes_current / i64::from(OBSERVERS);
    assert!(each < 16, "{each} bytes more");
}
