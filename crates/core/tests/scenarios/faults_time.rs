//! Time and counters at the places where they were too small elsewhere (F121).

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{AckKind, Property};

use crate::net::{Got, Net, Options};

#[test]
fn f121_after_2_to_the_32_milliseconds_everything_goes_on() {
    for bits in [31, 32, 41, 43] {
        let mut net = Net::new(1);
        let edge = Timestamp::ZERO + Duration::from_millis(1 << bits);
        net.now = Timestamp::from_nanos(edge.as_nanos() - 5_000_000_000);
        let lasting = vec![Property::SessionExpiry(8)];
        let reader = net.connect("reader", &Options { keep_alive: 4, ..Options::default() });
        let absent = net.connect("absent", &Options { clean: false, properties: lasting, ..Options::default() });
        net.subscribe(reader, "t", 1);
        net.cut(absent);
        let sender = net.v5("sender");
        net.publish_with(sender, "kept", "x", 0, true, 0, &[Property::MessageExpiry(7)]);
        for second in 0..10 {
            net.live(Duration::from_secs(1));
            net.send_bytes(reader, b"\xc0\x00");
            net.publish(sender, "t", &second.to_string(), 1, false, 1 + second);
            let got = net.receive(reader);
            let [Got::Pong, Got::Message { id: Some(id), payload, .. }] = &got[..] else { panic!("{bits}: {got:?}") };
            assert_eq!(*payload, second.to_string());
            net.ack(reader, AckKind::PubAck, *id);
            let retained = net.stats().retained_messages;
            assert_eq!(retained, u64::from(second < 6), "{bits}: a lifetime of seven seconds, after {second}");
            assert_eq!(net.stats().sessions, 2 + u64::from(second < 7), "{bits}: eight seconds, after {second}");
        }
        net.live(Duration::from_secs(7));
        assert!(net.is_closed(reader), "{bits}: silent for more than six seconds");
    }
}

#[test]
fn f121_packet_identifiers_go_round_without_a_zero_and_without_one_in_use() {
    let mut net = Net::new(1);
    let (sender, reader) = (net.v5("sender"), net.v5("reader"));
    net.subscribe(reader, "t", 1);
    let (mut stays, mut seen_max) = (None, 0);
    for number in 0..66_000_u32 {
        net.publish(sender, "t", "x", 1, false, 1);
        net.receive(sender);
        let got = net.receive(reader);
        let [Got::Message { id: Some(id), .. }] = got[..] else { panic!("{number}: {got:?}") };
        assert!(id != 0 && Some(id) != stays, "{number}: {id}");
        seen_max = seen_max.max(id);
        if stays.is_none() {
            stays = Some(id);
        } else {
            net.ack(reader, AckKind::PubAck, id);
        }
    }
    assert_eq!(seen_max, u16::MAX, "all were used");
}
