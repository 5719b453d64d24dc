//! A disk that what waits for somebody who is away fills: whoever publishes is refused in time, nothing that was
//! acknowledged is lost, and when everything was taken there is room again, without a restart and after one.

use std::time::Duration;

use tidegate_broker::store_link::records::StoreImage;
use tidegate_store::{DiskTrouble, Log, StoreError};
use tidegate_wire_mqtt::{QoS, Version};

use crate::client::{Client, Habit};
use crate::world::World;
use crate::{run, trace};

/// Each of them takes a few milliseconds more than others: many messages.
const SEEDS: u64 = 400;
/// Far more than the disk has room for.
const MESSAGES: u32 = 200;

impl World {
    /// What the writer does about a disk with little room; whether it is full.
    pub(crate) fn look(&mut self, error: Option<&StoreError>) -> bool {
        let (Some(log), Some(room)) = (&mut self.log, &mut self.room) else { return false };
        let is_disk_full = |error: &StoreError| error.trouble() == DiskTrouble::DiskFull;
        if error.is_some_and(is_disk_full) {
            log.release_reserve();
        }
        if log.usage().has_room() {
            log.restore_reserve();
        }
        let was_full = room.is_full();
        self.fulls += u64::from(room.look(&log.usage()) && !was_full);
        let records = log.metrics().records;
        if room.wants_compaction(records) && self.dice.one_in(3) {
            room.on_compaction(records);
            let done = log.compact::<StoreImage>();
            trace(|| format!("compacted for want of room: {:?}, {:?}", done.as_ref().map(drop), log.usage()));
            match done {
                Ok(compacted) => {
                    self.moves.values_mut().for_each(|to| *to = compacted.moved.get(to).copied().unwrap_or(*to));
                    self.moves.extend(&compacted.moved);
                }
                Err(error) if is_disk_full(&error) => drop(log.release_reserve()),
                Err(_) => {}
            }
            room.look(&log.usage());
        }
        room.is_full()
    }

    /// Everything was taken: the disk has room again, by itself.
    pub(crate) fn heal(&mut self) {
        for _ in 0..500 {
            if self.room.as_ref().is_some_and(|room| !room.is_full()) {
                return;
            }
            self.now = self.now + Duration::from_millis(10);
            self.write();
        }
        panic!("the disk stays full: {:?}", self.log.as_ref().map(Log::usage));
    }
}

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
