//! A disk that what waits for somebody who is away fills: whoever publishes is refused in time, nothing that was
//! acknowledged is lost, and when everything was taken there is room again, without a restart and after one.

use tidegate_wire_mqtt::{QoS, Version};

use crate::client::{Client, Habit};
use crate::run;
use crate::world::World;

/// Each of them takes a few milliseconds more than others: many messages.
const SEEDS: u64 = 400;
/// Far more than the disk has room for.
const MESSAGES: u32 = 200;

fn clients() -> Vec<Client> {
    let mut clients = vec![
        Client::new("alice", Version::V5, Some("t/alice"), None),
        Client::new("bob", Version::V311, Some("t/bob"), None),
        Client::new("once", Version::V5, None, Some(("t/#", QoS::ExactlyOnce))),
        Client::new("more", Version::V311, None, Some(("t/+", QoS::AtLeastOnce))),
    ];
    for client in &mut clients {
        client.messages_max = MESSAGES;
        if client.publishes.is_none() {
            client.habit = Habit::Away;
        }
    }
    clients
}

fn check(world: &mut World) {
    world.heal();
    world.check();
}

#[test]
fn f114_a_disk_that_is_filled_refuses_in_time_and_heals_when_everything_was_taken() {
    let fulls = run("f114_a_disk", SEEDS, clients, check);
    assert!(fulls > 0, "no disk was ever full");
}
