//! Classes through real sockets.

mod support;

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
