//! Answers do not wait behind messages that are not written yet.

use tidegate_core::access::Open;
use tidegate_core::classes::Priority;
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::{AckKind, Decoded, Limits, Packet, Sender, Version, decode};

use crate::net::{Net, Wire};

/// Packets of a server in these bytes, by name, each with where it begins.
fn packets(bytes: &[u8]) -> Vec<(usize, &'static str)> {
    let (mut at, mut found) = (0, Vec::new());
    let limits = Limits::default().with_sender(Sender::Server);
    while let Ok(Decoded::Packet { packet, consumed }) = decode(&bytes[at..], Version::V5, &limits) {
        let name = match packet {
            Packet::Publish(_) => "publish",
            Packet::PingResp => "pingresp",
            Packet::SubAck(_) => "suback",
            Packet::Ack(ack) if ack.kind == AckKind::PubAck => "puback",
            _ => "other",
        };
        found.push((at, name));
        at += consumed;
    }
    assert_eq!(at, bytes.len(), "whole packets to the end");
    found
}

/// Without priorities an outbox has a fixed room, and messages do not wait elsewhere.
fn flooding() -> Settings {
    Settings { outbox_bytes_max: 4 * 1024 * 1024, priority: Priority::off(), ..Settings::default() }
}

/// A reader with a megabyte of messages in its outbox, of which nothing is written.
fn flooded(net: &mut Net) -> Wire {
    let (reader, sender) = (net.v5("reader"), net.v5("sender"));
    net.subscribe(reader, "t", 0);
    let message = net_message();
    let heap: Vec<u8> = (0..1000).flat_map(|_| message.clone()).collect();
    // All of it in one turn: nobody knows yet that the reader is slow.
    net.slip(sender, &heap);
    assert!(net.waiting(reader) > 900_000, "{}", net.waiting(reader));
    reader
}

fn net_message() -> Vec<u8> {
    let payload = [b'x'; 1000];
    let mut bytes = vec![0x30, 0x8b, 0x08, 0, 1, b't', 0];
    bytes[1..3].copy_from_slice(&[(1004 % 128) as u8 | 0x80, (1004 / 128) as u8]);
    bytes.extend_from_slice(&payload);
    bytes
}

#[test]
fn a_pingresp_is_not_behind_a_megabyte_of_messages() {
    let mut net = Net::with(1, flooding(), Open);
    let reader = flooded(&mut net);
    // It has taken half of the third packet.
    let mut got = net.take(reader, 2500);
    net.slip(reader, &[0xc0, 0]);
    net.slip(reader, &[0x82, 7, 0, 9, 0, 0, 1, b'u', 0]);
    let mut publish = vec![0x32, 6, 0, 1, b'v', 0, 5, 0];
    net.slip(reader, &publish);
    publish[6] = 6;
    net.slip(reader, &publish);
    got.extend(net.take(reader, usize::MAX));
    let found = packets(&got);
    let answers: Vec<_> = found.iter().filter(|(_, name)| *name != "publish").collect();
    assert_eq!(answers.iter().map(|(_, name)| *name).collect::<Vec<_>>(), ["pingresp", "suback", "puback", "puback"]);
    assert!(answers.iter().all(|(at, _)| *at < 4000), "right behind the packet that had begun: {answers:?}");
    assert_eq!(found.len() - answers.len(), 1000, "and no message is lost");
}

#[test]
fn a_goodbye_comes_last() {
    let mut net = Net::with(1, flooding(), Open);
    let reader = flooded(&mut net);
    net.slip(reader, &[0xc0, 0]);
    net.shards[0].handle_kick("reader", tidegate_wire_mqtt::ReasonCode::AdministrativeAction, net.now);
    let got = net.take(reader, usize::MAX);
    let found = packets(&got);
    assert_eq!((found.first().unwrap().1, found.last().unwrap().1), ("pingresp", "other"));
}
