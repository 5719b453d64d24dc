//! What waits for a bridge or a sink: a spool, of which the lowest class pays when it is full.

use tidegate_core::access::Open;
use tidegate_core::classes::{ClassBy, OnFull};
use tidegate_core::settings::{Settings, Spool};
use tidegate_wire_mqtt::AckKind;

use crate::net::{Got, Net, lasting};
use crate::priority_policies::{on, settings};

const SPOOL_BYTES: usize = 64 << 10;

fn spooled() -> Settings {
    let own = vec![on("alarm", 16, "alarm/#", OnFull::default()), on("bulk", 1, "bulk/#", OnFull::default())];
    let spools = vec![Spool { client_id: "reader".into(), bytes_max: SPOOL_BYTES }];
    Settings { spools, ..settings(own, ClassBy::Both) }
}

fn payload(n: u16) -> String {
    format!("{n:1000}")
}

/// A reader that was away takes everything; the numbers that it gets.
fn read_back(net: &mut Net) -> Vec<u16> {
    let reader = net.dial("reader", &lasting());
    let mut numbers = Vec::new();
    loop {
        let got = net.receive(reader);
        if got.is_empty() {
            return numbers;
        }
        for got in got {
            if let Got::Message { payload, id: Some(id), .. } = got {
                net.ack(reader, AckKind::PubAck, id);
                numbers.push(payload.trim().parse().unwrap());
            }
        }
    }
}

fn full_spool_of(mut net: Net) {
    let reader = net.connect("reader", &lasting());
    net.subscribe(reader, "#", 1);
    net.cut(reader);
    let site = net.v5("site");
    for n in 0..50 {
        net.publish(site, "alarm/1", &payload(n), 1, false, n + 1);
    }
    for n in 50..90 {
        net.publish(site, "bulk/1", &payload(n), 1, false, n + 1);
    }
    let lost = net.stats().dropped_queue_full;
    let by_class: Vec<u64> = net.stats().by_class.iter().map(|class| class.dropped).filter(|lost| *lost > 0).collect();
    assert!(lost > 20 && by_class == [lost], "{by_class:?} of {lost}: one class pays, and is counted");
    // A newcomer of the better class takes the place of bulk, too.
    net.publish(site, "alarm/1", &payload(90), 1, false, 91);
    let lost = net.stats().dropped_queue_full;
    let mut got = read_back(&mut net);
    got.sort_unstable();
    let kept: Vec<u16> = (0..50).chain(50 + lost as u16..91).collect();
    assert_eq!(got, kept, "every alarm, and the newest of bulk");
}

#[test]
fn of_a_full_spool_the_oldest_of_the_lowest_class_go() {
    full_spool_of(Net::with(1, spooled(), Open));
}

#[test]
fn the_same_where_most_of_it_is_on_disk() {
    full_spool_of(Net::durable_with(1, Settings { queue_memory_max: 8 << 10, ..spooled() }));
}
