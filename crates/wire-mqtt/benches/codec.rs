//! The codec beside peer crates, in one run: `cargo bench -p tidegate-wire-mqtt`.
//!
//! Each iteration works through a buffer of 64 packets, as a read from a busy socket delivers them, so divide the times
//! by 64; the second line of each row gives packets per second. Peers read from a `BytesMut`, which their design takes
//! apart; filling it is not counted. Rows of 3.1.1 are `mqttbytes`, rows of 5 `mqtt-bytes-v5` (from rumqttc).
#![allow(clippy::unwrap_used, clippy::wildcard_imports, reason = "a benchmark")]

use std::hint::black_box;
use std::num::{NonZeroU16, NonZeroU32};

use bytes::BytesMut;
use divan::Bencher;
use divan::counter::ItemsCount;
use tidegate_wire_mqtt::{
    Decoded, Delivery, Encode, Limits, OutgoingAlias, Packet, Patch, PayloadPlace, Peer, Properties, Publish,
    PublishFrame, QoS, Version, decode,
};

const BATCH: usize = 64;
const SIZES_MAX: usize = 1 << 20;

fn main() {
    divan::main();
}

/// A PUBLISH of 100 bytes in all, and a buffer full of them.
fn publish_stream(version: Version, qos: QoS) -> Vec<u8> {
    let topic = "site/7/room/12/temperature";
    let packet_id = NonZeroU16::new(4711).unwrap();
    let delivery = match qos {
        QoS::AtMostOnce => Delivery::AtMostOnce,
        _ => Delivery::AtLeastOnce { packet_id, dup: false },
    };
    let properties = Properties::EMPTY;
    let mut message = Publish { delivery, retain: false, topic, properties, payload: &[b'x'; 100] };
    let excess = message.encoded_len(version).unwrap() - 100;
    message.payload = &[b'x'; 100][excess..];
    repeat(|out| {
        let _ = message.encode(Peer::new(version), out);
    })
}

fn repeat(mut write: impl FnMut(&mut Vec<u8>)) -> Vec<u8> {
    let mut stream = Vec::new();
    for _ in 0..BATCH {
        write(&mut stream);
    }
    stream
}

fn decode_all<'a>(mut stream: &'a [u8], version: Version, limits: &Limits, mut each: impl FnMut(Packet<'a>)) {
    while !stream.is_empty() {
        let Ok(Decoded::Packet { packet, consumed }) = decode(stream, version, limits) else { panic!("refused") };
        each(packet);
        stream = &stream[consumed..];
    }
}

const MESSAGES: [(Version, QoS); 4] = [
    (Version::V311, QoS::AtMostOnce),
    (Version::V311, QoS::AtLeastOnce),
    (Version::V5, QoS::AtMostOnce),
    (Version::V5, QoS::AtLeastOnce),
];

/// The row of a table, written so that rows of different codecs line up.
struct Case(Version, QoS);

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} QoS {}", self.0, self.1.bits())
    }
}

fn cases() -> impl Iterator<Item = Case> {
    MESSAGES.into_iter().map(|(version, qos)| Case(version, qos))
}

mod publish_decode {
    use super::*;

    #[divan::bench(args = cases())]
    fn tidegate(bencher: Bencher<'_, '_>, case: &Case) {
        let stream = publish_stream(case.0, case.1);
        let limits = Limits::default();
        bencher.counter(ItemsCount::new(BATCH)).bench(|| {
            decode_all(black_box(&stream), case.0, &limits, |packet| {
                black_box(&packet);
            });
        });
    }

    #[divan::bench(args = cases())]
    fn peers(bencher: Bencher<'_, '_>, case: &Case) {
        let stream = publish_stream(case.0, case.1);
        let bencher = bencher.counter(ItemsCount::new(BATCH)).with_inputs(|| BytesMut::from(&stream[..]));
        match case.0 {
            Version::V5 => bencher.bench_refs(|input| {
                while !input.is_empty() {
                    black_box(mqtt_bytes_v5::Packet::read(input, Some(SIZES_MAX)).unwrap());
                }
            }),
            _ => bencher.bench_refs(|input| {
                while !input.is_empty() {
                    black_box(mqttbytes::v4::read(input, SIZES_MAX).unwrap());
                }
            }),
        }
    }
}

/// What a broker does with every message: decode and encode.
mod publish_decode_and_encode {
    use super::*;

    #[divan::bench(args = cases())]
    fn tidegate(bencher: Bencher<'_, '_>, case: &Case) {
        let stream = publish_stream(case.0, case.1);
        let limits = Limits::default();
        let mut out = Vec::with_capacity(2 * stream.len());
        bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
            out.clear();
            decode_all(black_box(&stream), case.0, &limits, |packet| {
                if let Packet::Publish(message) = packet {
                    let _ = message.encode(Peer::new(case.0), &mut out);
                }
            });
            black_box(&out);
        });
    }

    #[divan::bench(args = cases())]
    fn peers(bencher: Bencher<'_, '_>, case: &Case) {
        let stream = publish_stream(case.0, case.1);
        let mut out = BytesMut::with_capacity(2 * stream.len());
        let bencher = bencher.counter(ItemsCount::new(BATCH)).with_inputs(|| BytesMut::from(&stream[..]));
        match case.0 {
            Version::V5 => bencher.bench_local_refs(|input| {
                out.clear();
                while !input.is_empty() {
                    if let mqtt_bytes_v5::Packet::Publish(message) =
                        mqtt_bytes_v5::Packet::read(input, Some(SIZES_MAX)).unwrap()
                    {
                        message.write(&mut out).unwrap();
                    }
                }
                black_box(&out);
            }),
            _ => bencher.bench_local_refs(|input| {
                out.clear();
                while !input.is_empty() {
                    if let mqttbytes::v4::Packet::Publish(message) = mqttbytes::v4::read(input, SIZES_MAX).unwrap() {
                        message.write(&mut out).unwrap();
                    }
                }
                black_box(&out);
            }),
        }
    }
}

/// Copies of one frame for 64 receivers.
mod fan_out {
    use super::*;

    fn frame(version: Version, qos: QoS) -> PublishFrame {
        let stream = publish_stream(version, qos);
        let Ok(Decoded::Packet { packet: Packet::Publish(message), .. }) = decode(&stream, version, &Limits::default())
        else {
            panic!("refused")
        };
        PublishFrame::new(&message, version, PayloadPlace::Inside).unwrap()
    }

    fn delivery(qos: QoS, receiver: usize) -> Delivery {
        match qos {
            QoS::AtMostOnce => Delivery::AtMostOnce,
            _ => Delivery::AtLeastOnce { packet_id: NonZeroU16::new(receiver as u16 + 1).unwrap(), dup: false },
        }
    }

    fn fan_out(bencher: Bencher<'_, '_>, case: &Case, patch: Patch<'_>) {
        let frame = frame(case.0, case.1);
        let peer = Peer::new(case.0);
        let mut out = Vec::with_capacity(BATCH * 200);
        bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
            out.clear();
            for receiver in 0..BATCH {
                let patch = Patch { delivery: delivery(case.1, receiver), ..patch };
                let _ = black_box(&frame).write(&patch, peer, &mut out);
            }
            black_box(&out);
        });
    }

    #[divan::bench(args = cases())]
    fn patched_copy(bencher: Bencher<'_, '_>, case: &Case) {
        fan_out(bencher, case, Patch::new(Delivery::AtMostOnce, false));
    }

    #[divan::bench]
    fn with_subscription_id(bencher: Bencher<'_, '_>) {
        let ids = [NonZeroU32::new(7).unwrap()];
        let patch = Patch { subscription_ids: &ids, ..Patch::new(Delivery::AtMostOnce, false) };
        fan_out(bencher, &Case(Version::V5, QoS::AtLeastOnce), patch);
    }

    #[divan::bench]
    fn with_topic_alias(bencher: Bencher<'_, '_>) {
        let alias = OutgoingAlias::Use(NonZeroU16::MIN);
        let patch = Patch { alias, ..Patch::new(Delivery::AtMostOnce, false) };
        fan_out(bencher, &Case(Version::V5, QoS::AtLeastOnce), patch);
    }
}

/// Packets that come once per connection or subscription.
mod seldom {
    use super::*;

    const CONNECT: &[u8] = b"\x10\x2a\x00\x04MQTT\x04\xc2\x00\x3c\x00\x0dsensor-000042\x00\x06sensor\x00\x07s3cr3t!";
    const SUBSCRIBE: &[u8] =
        b"\x82\x2f\x00\x0a\x00\x0esite/7/+/alarm\x01\x00\x10$share/g/site/+/\x00\x00\x06site/#\x02";

    #[divan::bench(args = ["connect", "subscribe"])]
    fn tidegate(bencher: Bencher<'_, '_>, name: &str) {
        let stream = repeat(|out| out.extend_from_slice(bytes_of(name)));
        let limits = Limits::default();
        bencher.counter(ItemsCount::new(BATCH)).bench(|| {
            decode_all(black_box(&stream), Version::V311, &limits, |packet| {
                black_box(&packet);
            });
        });
    }

    #[divan::bench(args = ["connect", "subscribe"])]
    fn mqttbytes(bencher: Bencher<'_, '_>, name: &str) {
        let stream = repeat(|out| out.extend_from_slice(bytes_of(name)));
        let bencher = bencher.counter(ItemsCount::new(BATCH)).with_inputs(|| BytesMut::from(&stream[..]));
        bencher.bench_refs(|input| {
            while !input.is_empty() {
                black_box(::mqttbytes::v4::read(input, SIZES_MAX).unwrap());
            }
        });
    }

    fn bytes_of(name: &str) -> &'static [u8] {
        if name == "connect" { CONNECT } else { SUBSCRIBE }
    }
}
