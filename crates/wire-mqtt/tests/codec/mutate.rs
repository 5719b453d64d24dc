//! A seeded mutator: valid packets with bytes changed, added and taken away.
//!
//! The body, [`survives`], is what a fuzzer would call. `TIDEGATE_MUTATIONS` sets the number of mutants for a long run
//! and `TIDEGATE_SEED` where it starts; a failure prints the mutant as a byte literal.

use tidegate_test_support::Dice;
use tidegate_wire_mqtt::{Decoded, Encode, Encoded, Limits, Packet, Peer, Sender, Version, decode, decode_connect};

/// What takes about a second in the test profile.
const MUTANTS: u64 = 1_000_000;

#[test]
fn f027_mutants_never_panic_and_what_is_accepted_is_stable() {
    let mutants = from_environment("TIDEGATE_MUTATIONS").unwrap_or(MUTANTS);
    let mut random = Dice::new(from_environment("TIDEGATE_SEED").unwrap_or(0x7469_6465));
    let mut accepted = 0;
    for _ in 0..mutants {
        let mutant = mutant(&mut random);
        let version = [Version::V31, Version::V311, Version::V5][random.index(3)];
        let sender = [Sender::Client, Sender::Server, Sender::Either][random.index(3)];
        accepted += u64::from(survives(&mutant, version, sender));
    }
    // Both ways must be well trodden, or this tests nothing.
    assert!(accepted * 20 > mutants && accepted * 20 < mutants * 19, "{accepted} of {mutants} accepted");
}

#[test]
fn noise_never_panics() {
    let mut random = Dice::new(1);
    for _ in 0..50_000 {
        let len = random.index(64);
        let noise: Vec<u8> = (0..len).map(|_| random.bits() as u8).collect();
        for version in [Version::V31, Version::V311, Version::V5] {
            survives(&noise, version, Sender::Either);
        }
    }
}

/// Everything that must hold for any input. True if it was accepted.
fn survives(input: &[u8], version: Version, sender: Sender) -> bool {
    let limits = Limits { packet_bytes_max: 4096, ..Limits::default() }.with_sender(sender);
    let _ = decode_connect(input, &limits);
    match decode(input, version, &limits) {
        Err(error) => {
            assert!(error.reason.is_failure() && !error.detail.is_empty() && !error.section.is_empty());
            false
        }
        Ok(Decoded::Incomplete { at_least }) => {
            assert!(at_least > input.len() && at_least <= 4096, "{input:x?}");
            false
        }
        Ok(Decoded::Packet { packet, consumed }) => {
            assert!(consumed <= input.len());
            walk(&packet);
            is_stable(&packet, consumed, version, &limits);
            true
        }
    }
}

/// Written and read again, an accepted packet is the same.
fn is_stable(packet: &Packet<'_>, consumed: usize, version: Version, limits: &Limits) {
    let version = if let Packet::Connect(connect) = packet { connect.version } else { version };
    let mut out = Vec::new();
    let Encoded::Written { len } = packet.encode(Peer::new(version), &mut out) else {
        panic!("cannot be written: {packet:?}");
    };
    // Short forms may be shorter than what was sent, never longer.
    assert!(len <= consumed, "{packet:?}");
    let again = decode(&out, version, limits);
    // 3.1 cannot say that a session is present.
    if version != Version::V31 {
        assert_eq!(again, Ok(Decoded::Packet { packet: *packet, consumed: len }));
    }
}

/// Visit everything that a packet gives access to.
fn walk(packet: &Packet<'_>) {
    match packet {
        Packet::Connect(connect) => {
            assert!(connect.properties.iter().count() <= 128);
            if let Some(will) = connect.will {
                assert!(!will.topic.is_empty() && !will.topic.contains(['+', '#', '\0']));
                assert!(will.properties.topic_alias().is_none());
            }
        }
        Packet::Publish(publish) => {
            assert!(!publish.topic.contains(['+', '#', '\0']));
            assert!(!publish.topic.is_empty() || publish.properties.topic_alias().is_some());
        }
        Packet::Subscribe(subscribe) => assert!(subscribe.subscriptions.iter().count() > 0),
        Packet::Unsubscribe(unsubscribe) => assert!(unsubscribe.filters.iter().count() > 0),
        Packet::SubAck(suback) => assert_eq!(suback.reasons.iter().count(), suback.reasons.len()),
        _ => {}
    }
}

fn mutant(random: &mut Dice) -> Vec<u8> {
    let mut bytes = SEEDS[random.index(SEEDS.len())].to_vec();
    for _ in 0..random.index(4) {
        let at = random.index(bytes.len().max(1));
        match random.index(6) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.index(8),
            1 if !bytes.is_empty() => bytes[at] = random.bits() as u8,
            2 if !bytes.is_empty() => bytes[at] = INTERESTING[random.index(INTERESTING.len())],
            3 if !bytes.is_empty() => drop(bytes.remove(at)),
            4 => bytes.insert(at, random.bits() as u8),
            _ => {
                let other = SEEDS[random.index(SEEDS.len())];
                let from = random.index(other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
        }
    }
    // Half of the time the length is made right again, or most mutants would end at the fixed header.
    if random.index(2) == 0 && (2..=129).contains(&bytes.len()) {
        bytes[1] = (bytes.len() - 2) as u8;
    }
    bytes
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

const INTERESTING: &[u8] = b"\x00\x01\x02\x7f\x80\xff+#/$\x0b\x1f\x23\x26\xc0\xed\xf4";

/// Every type in each shape that it has.
const SEEDS: &[&[u8]] = &[
    b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02id",
    b"\x10\x10\x00\x06MQIsdp\x03\x02\x00\x0a\x00\x02id",
    b"\x10\x1a\x00\x04MQTT\x04\xee\x00\x0a\x00\x02id\x00\x01t\x00\x01m\x00\x01u\x00\x01p",
    b"\x10\x23\x00\x04MQTT\x05\x46\x00\x3c\x05\x11\x00\x00\x00\x0a\
      \x00\x02id\x05\x18\x00\x00\x00\x05\x00\x01t\x00\x00\x00\x02pw",
    b"\x10\x29\x00\x04MQTT\x05\x02\x00\x3c\x1a\x21\x00\x14\x27\x00\x00\x10\x00\x22\x00\x0a\x19\x01\x17\x00\
      \x26\x00\x01k\x00\x01v\x15\x00\x01m\x00\x02id",
    b"\x20\x02\x01\x00",
    b"\x20\x0a\x01\x00\x07\x21\x00\x01\x12\x00\x01x",
    b"\x20\x13\x00\x00\x10\x24\x01\x25\x01\x28\x01\x29\x01\x2a\x00\x13\x00\x3c\x1a\x00\x00",
    b"\x30\x07\x00\x03a/bhi",
    b"\x3b\x09\x00\x03a/b\x00\x0ahi",
    b"\x34\x11\x00\x03a/b\x00\x01\x07\x02\x00\x00\x00\x3c\x01\x01hi",
    b"\x30\x06\x00\x00\x03\x23\x00\x05",
    b"\x30\x1e\x00\x01a\x18\x0b\x07\x0b\xff\x7f\x08\x00\x01r\x09\x00\x02cd\x03\x00\x02ct\x26\x00\x00\x00\x00hi",
    b"\x40\x02\x00\x01",
    b"\x50\x03\x00\x01\x10",
    b"\x62\x09\x00\x01\x00\x05\x1f\x00\x02ok",
    b"\x70\x04\x00\x01\x92\x00",
    b"\x82\x0e\x00\x0a\x00\x03a/b\x01\x00\x03c/d\x02",
    b"\x82\x0b\x00\x01\x02\x0b\x07\x00\x03a/+\x2d",
    b"\x82\x10\x00\x01\x00\x00\x0a$share/g/#\x01",
    b"\x90\x04\x00\x01\x01\x80",
    b"\x90\x05\x00\x01\x00\x01\x87",
    b"\xa2\x0c\x00\x0a\x00\x03a/b\x00\x03c/d",
    b"\xa2\x0f\x00\x01\x00\x00\x0a$share/g/x",
    b"\xb0\x02\x00\x01",
    b"\xb0\x04\x00\x01\x00\x11",
    b"\xc0\x00",
    b"\xd0\x00",
    b"\xe0\x00",
    b"\xe0\x01\x8b",
    b"\xe0\x07\x00\x05\x11\x00\x00\x00\x00",
    b"\xf0\x00",
    b"\xf0\x0a\x18\x08\x15\x00\x01m\x16\x00\x01\x00",
];

#[test]
fn every_seed_is_accepted_in_some_version() {
    for seed in SEEDS {
        let whole = |version| match decode(seed, version, &Limits::default()) {
            Ok(Decoded::Packet { consumed, .. }) => consumed == seed.len(),
            _ => false,
        };
        assert!(whole(Version::V311) || whole(Version::V5), "{seed:x?}");
    }
}
