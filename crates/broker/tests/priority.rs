//! Classes through real sockets.

mod support;

use std::time::Duration;

use support::{Client, address, config, encode, publish, start};
use tidegate_broker::config::{Config, ListenerKind};
use tidegate_core::classes::{Class, ClassBy, Classes, Priority};
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::{QoS, Version};

#[test]
fn what_is_urgent_overtakes_what_waits_for_a_slow_reader() {
    const BULK: usize = 8000;
    let alarm = Class { topics: vec!["alarm".into()], ..Class::new("alarm", 8) };
    let priority = Priority { by: ClassBy::Rules, classes: Classes::new(vec![alarm]).unwrap(), ..Priority::default() };
    let settings = Settings { priority, queue_messages_max: BULK, ..Settings::default() };
    let broker = start(Config { settings, ..config() });
    let address = address(&broker, ListenerKind::Mqtt);
    let mut reader = Client::tcp(address, Version::V311, "reader");
    reader.subscribe("#", QoS::AtMostOnce);
    let (mut bulk, mut urgent) =
        (Client::tcp(address, Version::V311, "bulk"), Client::tcp(address, Version::V311, "urgent"));
    // Eight megabytes that nobody reads: more than outbox and kernel hold, less than the queue does.
    let one = encode(&publish("bulk", &[b'x'; 1024]), Version::V311);
    bulk.send_bytes(&one.repeat(BULK));
    bulk.ping();
    urgent.publish("alarm", b"!");
    urgent.ping();
    let before = (0..=BULK).take_while(|_| reader.message().topic != "alarm").count();
    assert!(before < BULK / 2, "{before} of {BULK} came first");
    for _ in before..BULK {
        assert_eq!(reader.message().topic, "bulk");
    }
    broker.shutdown();
}

#[test]
fn what_others_send_does_not_lie_behind_a_flood_in_the_buffers_of_a_slow_reader() {
    /// Messages of the flood that may be read before it: a tenth of a second of this reader's.
    const BEFORE_MAX: usize = 50;
    const TRIES: usize = 40;
    let broker = start(Config { shards: 1, ..config() });
    let address = address(&broker, ListenerKind::Mqtt);
    let mut reader = Client::tcp(address, Version::V311, "reader");
    reader.subscribe("#", QoS::AtMostOnce);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut bulk = Client::tcp(address, Version::V311, "bulk");
            let some = encode(&publish("bulk", &[b'x'; 48]), Version::V311).repeat(10);
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                bulk.send_bytes(&some);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let mut rare = Client::tcp(address, Version::V311, "rare");
        let mut read = || {
            // Five hundred a second.
            std::thread::sleep(Duration::from_millis(2));
            reader.message().topic
        };
        // Not what the flood finds at first: thousands lie there, and go on doing so unless somebody sees to it.
        while read() != "bulk" {}
        let tries = (0..TRIES).map(|_| {
            rare.publish("rare", b"!");
            let before = std::iter::repeat_with(&mut read).take_while(|topic| topic != "rare").count();
            (before, broker.stats().receivers_portioned)
        });
        let tries: Vec<_> = tries.collect();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        if tries.iter().all(|(_, portioned)| *portioned == 0) && !cfg!(target_os = "linux") {
            eprintln!("SKIPPED: this system tells nothing of what a receiver has read");
            return;
        }
        let prompt = tries.iter().filter(|(before, _)| *before <= BEFORE_MAX).count();
        assert!(prompt >= TRIES / 2, "{tries:?}");
    });
    broker.shutdown();
}
