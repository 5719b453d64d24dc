//! Levels say how hard the broker is pressed, and gate no publisher: order decides who is served, and nothing is thrown away.

use std::time::Duration;

use tidegate_control::pressure::Level;

use crate::net::{Net, Wire};

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
}

#[test]
fn no_level_holds_refuses_or_drops_what_anybody_publishes() {
    for qos in [0, 1] {
        let mut net = Net::new(1);
        let (fleet, reader) = (Fleet::new(&mut net), net.v5("reader"));
        net.subscribe(reader, "t/#", 0);
        for level in [Level::Calm, Level::Busy, Level::Strained, Level::Overloaded] {
            net.shards[0].set_level(level);
            net.receive(reader);
            fleet.run(&mut net, 10, qos);
            assert_eq!(net.payloads(reader).len(), 560 * 10, "{level:?}");
            // A hundred times as much as usual, at once.
            for (wire, name, _) in &fleet.0 {
                (1..=100).for_each(|id| net.publish(*wire, &format!("t/{name}"), "y", qos, false, id));
            }
            assert_eq!(net.payloads(reader).len(), 3000, "{level:?}");
        }
        let stats = net.stats();
        assert_eq!((stats.publish_passed, stats.held_messages), (stats.publish_received, 0));
    }
}
