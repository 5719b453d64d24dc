//! What a client has not read yet is known to the driver: only what is in excess waits for it.

use tidegate_core::Shard;
use tidegate_core::access::Open;
use tidegate_core::classes::{Priority, PriorityMode};
use tidegate_core::settings::Settings;

use crate::backoff::{SECOND, flood, learn};
use crate::net::{Net, Wire};

/// A flooder and a rare client whose rhythms are known, and a reader that was sent something in excess.
fn flooded(settings: Settings) -> (Net, Wire, Wire, Wire) {
    let mut net = Net::with(1, settings, Open);
    let (flooder, rare, reader) = (net.v5("flooder"), net.v5("rare"), net.v5("reader"));
    net.subscribe(reader, "#", 1);
    for _ in 0..90 {
        net.publish(rare, "rare", "learning", 0, false, 0);
        net.publish(flooder, "t", "learning", 0, false, 0);
        net.live(SECOND);
    }
    net.payloads(reader);
    flood(&mut net, flooder, 200, 0);
    assert_eq!(net.payloads(reader).len(), 200, "nobody knows what it has not read");
    (net, flooder, rare, reader)
}

#[test]
fn what_is_in_excess_waits_and_nobody_else() {
    let (mut net, flooder, rare, reader) = flooded(Settings::default());
    assert_ne!(net.excess_allowance(reader), Some(Shard::NO_EXCESS_YET));
    net.set_excess_allowance(reader, 0);
    flood(&mut net, flooder, 100, 0);
    assert_eq!(net.payloads(reader), [""; 0]);
    let mut leaked = 0;
    for qos in [0, 1, 0, 1, 0, 0, 0, 0] {
        net.live(SECOND);
        net.publish(rare, "rare", "now", qos, false, 7);
        let got = net.payloads(reader);
        assert_eq!(got.iter().filter(|payload| *payload == "now").count(), 1, "behind it, and not held back: {got:?}");
        leaked += got.len() - 1;
    }
    // A new flow is taken for entitled, and now and then excess has its turn.
    assert!(leaked <= 4, "{leaked} of what was held");
}

#[test]
fn an_allowance_is_used_up_in_order_and_nothing_is_lost() {
    let (mut net, flooder, _, reader) = flooded(Settings::default());
    net.set_excess_allowance(reader, 0);
    flood(&mut net, flooder, 100, 0);
    net.set_excess_allowance(reader, 1);
    assert_eq!(net.payloads(reader), ["1"], "one message, however little it is");
    assert_eq!(net.excess_allowance(reader), Some(0));
    let mut got = Vec::new();
    while got.len() < 99 {
        net.set_excess_allowance(reader, 50);
        got.extend(net.payloads(reader));
    }
    let expected: Vec<String> = (2..=100).map(|n: u32| n.to_string()).collect();
    assert_eq!(got, expected);
}

#[test]
fn with_one_line_for_all_nobody_is_held() {
    let priority = Priority { mode: PriorityMode::Off, ..Priority::default() };
    let mut net = Net::with(1, Settings { priority, ..Settings::default() }, Open);
    let (flooder, reader) = (net.v5("flooder"), net.v5("reader"));
    net.subscribe(reader, "#", 0);
    learn(&mut net, flooder);
    net.payloads(reader);
    assert_eq!(net.excess_allowance(reader), None);
    net.set_excess_allowance(reader, 0);
    flood(&mut net, flooder, 100, 0);
    assert_eq!(net.payloads(reader).len(), 100);
}
