//! However a stream is cut, the same packets come out, and the same error at the same place.

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_wire_mqtt::{Decoded, Encode, Limits, Packet, Peer, PeerError, Version, decode};

use super::generate;

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn f027_any_cut_gives_the_same_packets(
        (version, packets) in generate::version()
            .prop_flat_map(|version| (Just(version), vec(generate::packet(version), 1..6))),
        cuts in vec(1_usize..40, 1..200),
    ) {
        let stream = encode_all(&packets, version);
        let (read, error) = read_in_chunks(&stream, &cuts, version);
        prop_assert_eq!(error, None);
        prop_assert_eq!(read, described(&packets));
        let (byte_by_byte, error) = read_in_chunks(&stream, &[1], version);
        prop_assert_eq!(error, None);
        prop_assert_eq!(byte_by_byte, described(&packets));
    }

    #[test]
    fn f027_any_cut_gives_the_same_error(
        (version, packets) in generate::version()
            .prop_flat_map(|version| (Just(version), vec(generate::packet(version), 1..4))),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cuts in vec(1_usize..40, 1..200),
    ) {
        let mut stream = encode_all(&packets, version);
        for (at, byte) in damage {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        let whole = read_in_chunks(&stream, &[stream.len()], version);
        prop_assert_eq!(&read_in_chunks(&stream, &cuts, version), &whole);
        prop_assert_eq!(&read_in_chunks(&stream, &[1], version), &whole);
    }
}

fn encode_all(packets: &[Packet<'_>], version: Version) -> Vec<u8> {
    let mut stream = Vec::new();
    for packet in packets {
        let _ = packet.encode(Peer::new(version), &mut stream);
    }
    stream
}

fn described(packets: &[Packet<'_>]) -> Vec<String> {
    packets.iter().map(|packet| format!("{packet:?}")).collect()
}

/// A connection's read loop: append a chunk, take out what is complete. `Incomplete` must never ask for too much, or
/// for what is already there.
fn read_in_chunks(stream: &[u8], cuts: &[usize], version: Version) -> (Vec<String>, Option<PeerError>) {
    let limits = Limits::default();
    let mut packets = Vec::new();
    let mut buffer = Vec::new();
    let mut rest = stream;
    for &cut in cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (chunk, later) = rest.split_at(cut.min(rest.len()));
        rest = later;
        buffer.extend_from_slice(chunk);
        loop {
            match decode(&buffer, version, &limits) {
                Ok(Decoded::Packet { packet, consumed }) => {
                    packets.push(format!("{packet:?}"));
                    buffer.drain(..consumed);
                }
                Ok(Decoded::Incomplete { at_least }) => {
                    assert!(at_least > buffer.len());
                    assert!(at_least <= limits.packet_bytes_max as usize);
                    break;
                }
                Err(error) => return (packets, Some(error)),
            }
        }
    }
    (packets, None)
}
