//! Any sequence of messages, answers and writes, against two lists.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Operation {
    Message(usize),
    Answer(usize),
    Write(usize),
}

fn operation() -> impl Strategy<Value = Operation> {
    let size = || prop_oneof![4 => 4..200_usize, 2 => 1000..3000_usize, 1 => 20_000..40_000_usize];
    prop_oneof![
        5 => size().prop_map(Operation::Message),
        3 => (4..60_usize).prop_map(Operation::Answer),
        3 => prop_oneof![1..50_usize, 1000..5000_usize, 30_000..90_000_usize].prop_map(Operation::Write),
    ]
}

const MESSAGE: u8 = 0x30;
const ANSWER: u8 = 0x40;

/// A packet with a number in it, and so much more.
fn packet(kind: u8, number: u32, size: usize) -> Vec<u8> {
    let mut packet = vec![kind];
    let mut length = size;
    loop {
        let byte = (length % 128) as u8;
        length /= 128;
        packet.push(byte | if length > 0 { 0x80 } else { 0 });
        if length == 0 {
            break;
        }
    }
    packet.extend_from_slice(&number.to_le_bytes());
    packet.resize(packet.len() + size - 4, 0xff);
    packet
}

/// Kind and number of each packet in what was written, and what is left of the last one.
fn packets(mut written: &[u8]) -> Vec<(u8, u32)> {
    let mut found = Vec::new();
    while let Some(length) = packet_length(written).filter(|length| *length <= written.len()) {
        let head = length - packet_size(&written[..length]);
        let number = u32::from_le_bytes(written[head..head + 4].try_into().unwrap());
        found.push((written[0], number));
        written = &written[length..];
    }
    assert!(written.is_empty(), "whole packets");
    found
}

fn packet_size(packet: &[u8]) -> usize {
    let head = 1 + packet[1..].iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
    packet.len() - head
}

struct Peer {
    outbox: Outbox,
    spares: Spares,
    written: Vec<u8>,
}

impl Peer {
    fn new() -> Self {
        Self { outbox: Outbox::new(Some(packet_length)), spares: Spares::default(), written: Vec::new() }
    }

    fn message(&mut self, number: u32, size: usize) {
        self.outbox.writer(&mut self.spares).extend(packet(MESSAGE, number, size));
    }

    fn answer(&mut self, number: u32, size: usize) {
        let packet = packet(ANSWER, number, size);
        let length = self.outbox.answer(&mut self.spares, |out| out.extend_from_slice(&packet));
        assert_eq!(length, packet.len());
    }

    fn write(&mut self, most: usize) {
        let shown = self.outbox.slices().concat();
        let taken = shown.len().min(most);
        self.written.extend_from_slice(&shown[..taken]);
        self.outbox.on_written(taken, &mut self.spares);
    }

    fn write_all(&mut self) {
        while self.outbox.len() > 0 {
            self.write(usize::MAX);
        }
    }
}

proptest! {
    #[test]
    fn packets_stay_whole_and_each_kind_in_order(operations in prop::collection::vec(operation(), 1..80)) {
        let (mut peer, mut sent, mut bytes) = (Peer::new(), [0_u32; 2], 0);
        for operation in operations {
            match operation {
                Operation::Message(size) => {
                    peer.message(sent[0], size);
                    sent[0] += 1;
                    bytes += packet(MESSAGE, 0, size).len();
                }
                Operation::Answer(size) => {
                    peer.answer(sent[1], size);
                    sent[1] += 1;
                    bytes += packet(ANSWER, 0, size).len();
                }
                Operation::Write(most) => peer.write(most),
            }
            prop_assert_eq!(peer.outbox.len() + peer.written.len(), bytes);
        }
        peer.write_all();
        let found = packets(&peer.written);
        for (kind, count) in [(MESSAGE, sent[0]), (ANSWER, sent[1])] {
            let numbers: Vec<u32> = found.iter().filter(|(own, _)| *own == kind).map(|(_, number)| *number).collect();
            prop_assert_eq!(numbers, (0..count).collect::<Vec<_>>());
        }
        prop_assert!(peer.outbox.lane.is_none() && peer.outbox.bytes.capacity() == 0);
    }

    #[test]
    fn an_answer_waits_for_one_packet_and_a_few_kib(
        sizes in prop::collection::vec(4..3000_usize, 1..300),
        taken in 0..100_000_usize,
    ) {
        let mut peer = Peer::new();
        for (number, size) in sizes.iter().enumerate() {
            peer.message(number as u32, *size);
        }
        peer.write(taken);
        let before = peer.written.len();
        peer.answer(7, 20);
        // What comes later never comes before it.
        peer.message(u32::MAX, 5000);
        peer.write_all();
        let end = before + 3003 + LANE_WORTH_BYTES + 22;
        let found = peer.written.windows(6).position(|window| window[0] == ANSWER && window[2..] == 7_u32.to_le_bytes());
        prop_assert!(found.is_some_and(|place| place < end), "{:?} {}", found, before);
    }
}

#[test]
fn a_full_lane_keeps_the_order_too() {
    let mut peer = Peer::new();
    peer.message(0, 100_000);
    for number in 0..10_000 {
        peer.answer(number, 20);
    }
    assert!(peer.outbox.lane.as_ref().is_some_and(|lane| lane.bytes.len() < LANE_BYTES_MAX + 100));
    peer.write(200_000);
    peer.answer(10_000, 20);
    peer.write_all();
    let answers = packets(&peer.written).into_iter().filter(|(kind, _)| *kind == ANSWER);
    assert!(answers.map(|(_, number)| number).eq(0..=10_000));
}

/// Packets of these tests are framed as those of MQTT.
fn packet_length(bytes: &[u8]) -> Option<usize> {
    let (mut length, mut shift) = (0_usize, 0);
    for (place, byte) in bytes.iter().enumerate().skip(1).take(4) {
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return Some(place + 1 + length);
        }
    }
    None
}
