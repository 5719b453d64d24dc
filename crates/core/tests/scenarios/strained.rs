//! Level 2: those who send the most of what counts for the least give way, by name, and nobody else.

use std::time::Duration;

use tidegate_control::pressure::Level;
use tidegate_core::access::Open;
use tidegate_core::classes::{ClassBy, OnFull, Priority};
use tidegate_core::ledger::Loss;
use tidegate_core::settings::Settings;

use crate::net::{Net, Wire};
use crate::priority_policies::{on, settings};

/// Ten publishers of each rate, in messages per second.
struct Fleet(Vec<(Wire, String, u32)>);

const RATES: [u32; 3] = [1, 5, 50];

impl Fleet {
    fn new(net: &mut Net) -> Self {
        let names = RATES.into_iter().flat_map(|rate| (0..10).map(move |n| (format!("{rate}-{n}"), rate)));
        Self(names.map(|(name, rate)| (net.v5(&name), name, rate)).collect())
    }

    fn run(&self, net: &mut Net, seconds: u32, qos: u8) {
        for tick in 0..seconds * 50 {
            for (n, (wire, name, rate)) in self.0.iter().enumerate() {
                if (tick + n as u32).is_multiple_of(50 / rate) {
                    net.publish(*wire, &format!("t/{name}"), "x", qos, false, (tick % 60_000) as u16 + 1);
                }
            }
            net.live(Duration::from_millis(20));
        }
    }

    /// What those of each rate have lost for this reason.
    fn lost(&self, net: &Net, loss: Loss) -> [u64; RATES.len()] {
        let of = |name: &str| net.shards[0].client(name, net.now).map_or(0, |report| report.client.ledger.lost(loss));
        RATES.map(|rate| self.0.iter().filter(|(.., own)| *own == rate).map(|(_, name, _)| of(name)).sum())
    }
}

#[test]
fn at_level_2_the_chatty_lose_by_name_and_the_rare_nothing() {
    let mut net = Net::new(1);
    let (fleet, reader) = (Fleet::new(&mut net), net.v5("reader"));
    net.subscribe(reader, "t/#", 0);
    fleet.run(&mut net, 40, 0);
    assert_eq!(net.stats().dropped_strained, 0, "nobody gives way to nobody");
    net.receive(reader);
    net.shards[0].set_level(Level::Strained);
    fleet.run(&mut net, 30, 0);
    let [rare, middle, chatty] = fleet.lost(&net, Loss::Strained);
    assert_eq!((rare, middle), (0, 0));
    // 560 a second are 18.7 for each: twice that passes of 50, a quarter goes.
    assert!((3000..4500).contains(&chatty), "{chatty} of 15 000");
    let stats = net.stats();
    assert_eq!(stats.publish_passed + chatty, stats.publish_received, "and for no other reason");
    assert_eq!(net.payloads(reader).len() as u64, 560 * 30 - chatty);
    net.shards[0].set_level(Level::Calm);
    fleet.run(&mut net, 10, 0);
    assert_eq!(net.stats().dropped_strained, chatty, "calm again: nothing more");
}

#[test]
fn what_was_promised_is_not_shed() {
    let mut net = Net::new(1);
    let fleet = Fleet::new(&mut net);
    fleet.run(&mut net, 40, 1);
    net.shards[0].set_level(Level::Strained);
    fleet.run(&mut net, 10, 1);
    assert_eq!((net.stats().dropped_strained, net.stats().publish_passed), (0, 560 * 50));
}

#[test]
fn a_class_that_counts_for_more_is_not_shed_however_busy() {
    let alarm = on("alarm", 8, "t/#", OnFull::DropLongest);
    let mut net = Net::with(1, settings(vec![alarm], ClassBy::Both), Open);
    let fleet = Fleet::new(&mut net);
    net.shards[0].set_level(Level::Strained);
    fleet.run(&mut net, 40, 0);
    assert_eq!(net.stats().dropped_strained, 0);
}

#[test]
fn without_priorities_nobody_is_the_least() {
    let mut net = Net::with(1, Settings { priority: Priority::off(), ..Settings::default() }, Open);
    let fleet = Fleet::new(&mut net);
    net.shards[0].set_level(Level::Strained);
    fleet.run(&mut net, 40, 0);
    assert_eq!(net.stats().dropped_strained, 0);
}
