//! Whole brokers in virtual time: shards, clients, and a disk that fails by seed; then a checker that has seen everything.
//!
//! What is checked is what a client may rely on: a message that was acknowledged reaches every session that was subscribed,
//! at QoS 2 exactly once, in the order of its publisher; nothing comes that was not sent; a session that was promised is
//! there; the last retained message that was acknowledged, or a later one, is there. Whatever happens to disk, process
//! and connections in between.
//!
//! `TIDEGATE_SEEDS=10000` runs more of them, `TIDEGATE_SEED=7` one. A seed that fails prints how to run it again.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod client;
mod full;
mod group;
mod wills;
mod world;

use client::Client;
pub(crate) use tidegate_test_support::Dice;
use tidegate_wire_mqtt::{QoS, Version};
use world::World;

const SEEDS: u64 = 2000;

/// What happens, if somebody wants to see it: `TIDEGATE_TRACE=1`, with one seed.
pub(crate) fn trace(what: impl FnOnce() -> String) {
    if std::env::var_os("TIDEGATE_TRACE").is_some() {
        println!("{}", what());
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

struct Replay(u64, &'static str);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(seed, test) = self;
            eprintln!("again: TIDEGATE_SEED={seed} cargo nextest run -p tidegate-broker --test simulation {test}");
        }
    }
}

/// Lives through all seeds, or the one that is asked for; how often a disk was full.
fn run(test: &'static str, seeds: u64, clients: fn() -> Vec<Client>, check: fn(&mut World)) -> u64 {
    let seeds = match number("TIDEGATE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TIDEGATE_SEEDS").unwrap_or(seeds),
    };
    let (mut crashes, mut delivered, mut repeated, mut pages, mut fulls) = (0, 0, 0, 0, 0);
    for seed in seeds {
        let replay = Replay(seed, test);
        let mut world = World::new(seed, clients());
        world.live();
        world.come_to_rest();
        check(&mut world);
        crashes += world.crashes;
        pages += world.pages;
        fulls += world.fulls;
        let (all, twice) = world.deliveries();
        (delivered, repeated) = (delivered + all, repeated + twice);
        drop(replay);
    }
    println!(
        "{crashes} crashes, {delivered} messages delivered, {repeated} of them repeated at QoS 1, {pages} pages read, \
         {fulls} times full"
    );
    assert!(delivered > 0);
    fulls
}

fn everybody() -> Vec<Client> {
    vec![
        Client::new("alice", Version::V5, Some("t/alice"), None),
        Client::new("bob", Version::V311, Some("t/bob"), None),
        Client::new("carol", Version::V5, Some("t/carol"), Some(("t/bob", QoS::ExactlyOnce))),
        Client::new("once", Version::V5, None, Some(("t/#", QoS::ExactlyOnce))),
        Client::new("more", Version::V311, None, Some(("t/+", QoS::AtLeastOnce))),
        Client::new("twin", Version::V311, None, Some(("t/alice", QoS::ExactlyOnce))),
    ]
}

#[test]
fn f110_f114_whatever_fails_what_was_acknowledged_is_there_and_exactly_once_is_once() {
    run("f110_f114", SEEDS, everybody, World::check);
}
