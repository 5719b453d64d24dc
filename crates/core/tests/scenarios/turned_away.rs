//! What a full queue does about a flood, and how soon and how gently the flood is held back for it.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_core::access::Open;
use tidegate_core::report::ClientState;
use tidegate_core::settings::Settings;
use tidegate_core::{Then, shard_of};
use tidegate_wire_mqtt::{Delivery, Encode, PacketId, Peer, Properties, Publish, ReasonCode, Version};

use crate::net::{Got, Net, Options, Wire};
use crate::priority::SlowReader;

const MILLI: Duration = Duration::from_millis(1);
/// Messages of a block: more than may be turned away in a row.
const BLOCK: usize = 100;
const PAYLOAD: &str = "0123456789012345678901234567890123456789";
/// Bytes of one of them on the way to a reader, about.
const PACKET: usize = 50;

fn block(topic: &str, qos: u8) -> Vec<u8> {
    let packet_id = PacketId::MIN;
    let delivery = if qos == 0 { Delivery::AtMostOnce } else { Delivery::AtLeastOnce { packet_id, dup: false } };
    let (retain, properties, payload) = (false, Properties::EMPTY, PAYLOAD.as_bytes());
    let mut bytes = Vec::new();
    let _ = Publish { delivery, retain, topic, properties, payload }.encode(Peer::new(Version::V5), &mut bytes);
    bytes.repeat(BLOCK)
}

fn small(messages: usize) -> Settings {
    Settings { queue_messages_max: messages, ..Settings::default() }
}

/// A block every millisecond, as far as it is read; messages that were read, and how often reading stopped.
fn flood(net: &mut Net, flooder: Wire, bytes: &[u8], millis: usize) -> (usize, usize) {
    let (mut read, mut pauses) = (0, 0);
    for _ in 0..millis {
        let progress = net.offer(flooder, bytes);
        read += progress.consumed * BLOCK / bytes.len();
        pauses += usize::from(progress.then == Then::Pause);
        net.receive(flooder);
        net.pass(MILLI);
    }
    (read, pauses)
}

#[test]
fn of_a_flood_into_a_full_queue_little_is_kept_for_a_moment_and_the_rare_get_in() {
    let mut net = Net::with(1, small(1000), Open);
    let (flooder, rare) =
        (net.v5("flooder"), net.connect("rare", &Options { peer: "10.9.0.1:1", ..Options::default() }));
    let mut reader = SlowReader::new(&mut net, "#", 0);
    let (read, _) = flood(&mut net, flooder, &block("flood", 0), 100);
    let stats = net.stats();
    let (lost, replaced) = (stats.dropped_queue_full, stats.dropped_queue_oldest);
    assert!(lost as usize + 1500 > read, "{lost} of {read} were lost");
    assert!((900..=1100).contains(&replaced), "{replaced} took the place of an older one: what waits is not old");
    assert!(lost > 3 * replaced, "{lost} were lost, and {replaced} of them after they had been kept");
    net.publish(rare, "rare", "x", 0, false, 0);
    // 16 KiB lay before the reader already, where nothing can be overtaken; 40 KiB more wait.
    let seen = reader.look(&mut net, 20 * 1024).iter().any(|(topic, _)| topic == "rare");
    assert!(seen, "the rare are next");
}

/// Nothing is known of this flooder yet: its receiver's trouble has a name all the same, and ends with it.
#[test]
fn a_receiver_that_loses_is_called_so_and_names_the_newcomer_whose_messages_those_are() {
    for shards in [1, 2] {
        let mut net = Net::with(shards, small(1000), Open);
        let (flooder, rare) = (net.v5("flooder"), net.v5("rare"));
        let mut reader = SlowReader::new(&mut net, "#", 0);
        for _ in 0..20 {
            flood(&mut net, flooder, &block("flood", 0), 5);
            net.publish(rare, "rare", "x", 0, false, 0);
        }
        let report = |net: &Net, id: &str| net.shards[shard_of(id, shards)].client(id, net.now).unwrap().client;
        let (slow, guilty) = (report(&net, "reader"), report(&net, "flooder"));
        assert_eq!(slow.state, ClientState::Losing, "{shards} shards");
        let first = slow.receiver.crowding[0];
        assert_eq!(first.origin, guilty.origin);
        assert_eq!(first.lost, slow.receiver.lost_of_late, "none of the rare: {:?}", slow.receiver);
        assert!(first.waiting > 900 && slow.receiver.fill > 0.9, "{:?}", slow.receiver);
        assert_eq!(guilty.publisher.unwrap().usual, None, "a newcomer");
        for _ in 0..100 {
            reader.look(&mut net, 1_000_000);
            net.pass(MILLI);
        }
        net.live(Duration::from_secs(11));
        assert_eq!(report(&net, "reader").state, ClientState::Ok, "{shards} shards");
    }
}

#[test]
fn who_goes_on_sending_what_nobody_has_room_for_is_read_slower_and_not_locked_out() {
    for qos in [0, 1] {
        let mut net = Net::with(1, small(1000), Open);
        let flooder = net.v5("flooder");
        let mut reader = SlowReader::new(&mut net, "#", qos);
        flood(&mut net, flooder, &block("flood", qos), 50);
        let progress = net.offer(flooder, &block("flood", qos));
        assert!(progress.then == Then::Pause || !net.may_read(flooder), "QoS {qos}: {progress:?}");
        assert!(!net.may_read(flooder));
        let state = net.shards[0].client("flooder", net.now).unwrap().client.state;
        assert_eq!(state, ClientState::Ok, "for a moment: nobody is told");
        net.pass(2 * MILLI);
        assert!(net.may_read(flooder), "QoS {qos}");
        let before = net.stats().publish_received;
        let mut got = 0;
        for _ in 0..500 {
            net.offer(flooder, &block("flood", qos));
            net.receive(flooder);
            net.pass(MILLI);
            got += if qos == 0 {
                reader.look(&mut net, PACKET).len()
            } else {
                reader.look_and_ack(&mut net, PACKET).len()
            };
        }
        let read = net.stats().publish_received - before;
        assert!((16_000..=40_000).contains(&read), "QoS {qos}: {read} of 50 000 in half a second");
        assert!(got > 400, "QoS {qos}: the reader is as busy as ever: {got}");
    }
}

#[test]
fn one_message_that_somebody_takes_is_reason_enough_to_read_on() {
    let mut net = Net::with(1, small(1000), Open);
    let (flooder, healthy) = (net.v5("flooder"), net.v5("healthy"));
    let _stuck = SlowReader::new(&mut net, "#", 0);
    net.subscribe(healthy, "wanted", 0);
    let mut mixed = block("flood", 0);
    mixed.truncate(mixed.len() / 2);
    let wanted = &block("wanted", 0)[..block("wanted", 0).len() / BLOCK];
    mixed.extend_from_slice(wanted);
    let mixed = [mixed.as_slice(), mixed.as_slice()].concat();
    let mut pauses = 0;
    for _ in 0..100 {
        pauses += usize::from(net.offer(flooder, &mixed).then == Then::Pause);
        net.pass(MILLI);
        net.receive(flooder);
    }
    assert_eq!((pauses, net.payloads(healthy).len()), (0, 200));
}

#[test]
fn a_queue_that_would_run_dry_meanwhile_stops_nobody() {
    let mut net = Net::with(1, small(50), Open);
    let flooder = net.v5("flooder");
    let mut reader = SlowReader::new(&mut net, "#", 0);
    let (mut pauses, mut got) = (0, 0);
    for _ in 0..500 {
        pauses += usize::from(net.offer(flooder, &block("flood", 0)).then == Then::Pause);
        net.pass(MILLI);
        got += reader.look(&mut net, 30 * PACKET).len();
    }
    assert_eq!(pauses, 0);
    assert!(got > 500 * 25, "{got}");
}

#[test]
fn the_shard_of_a_flooder_is_told_that_nobody_has_room_elsewhere() {
    let mut net = Net::with(2, small(1000), Open);
    let name =
        (0..100).map(|n| format!("flooder-{n}")).find(|name| shard_of(name, 2) != shard_of("reader", 2)).unwrap();
    let flooder = net.v5(&name);
    let _reader = SlowReader::new(&mut net, "#", 0);
    let bytes = block("flood", 0);
    flood(&mut net, flooder, &bytes, 50);
    let (read, pauses) = flood(&mut net, flooder, &bytes, 100);
    assert!(pauses >= 20, "{pauses}");
    assert!((3_000..=9_000).contains(&read), "{read} of 10 000");
}

/// When the queue of its only receiver was full first, and when the flooder was refused first.
fn reaction(net: &mut Net, flooder: Wire, reader: &mut SlowReader) -> (Timestamp, Timestamp) {
    let mut full_at = None;
    for tick in 0..20_000_u32 {
        // 2 000 a second, of which 500 are taken.
        net.publish(flooder, "flood", PAYLOAD, 1, false, 1 + (tick % 60_000) as u16);
        net.publish(flooder, "flood", PAYLOAD, 1, false, 1 + (tick % 60_000) as u16);
        net.pass(MILLI);
        if tick.is_multiple_of(2) {
            reader.look_and_ack(net, PACKET);
        }
        if net.stats().dropped_queue_full > 0 {
            full_at.get_or_insert(net.now);
        }
        let is_refusal = |got: &Got| matches!(got, Got::Ack { reason: ReasonCode::QuotaExceeded, .. });
        if net.receive(flooder).iter().any(is_refusal) {
            return (full_at.unwrap(), net.now);
        }
    }
    panic!("never refused");
}

#[test]
fn a_flooder_hears_of_a_full_receiver_within_1_2_seconds() {
    let mut net = Net::with(1, small(1000), Open);
    let flooder = net.v5("flooder");
    let mut reader = SlowReader::new(&mut net, "#", 1);
    let (full_at, refused_at) = reaction(&mut net, flooder, &mut reader);
    let reaction = refused_at.since(full_at);
    assert!(reaction <= Duration::from_millis(1200), "{reaction:?}");
}
