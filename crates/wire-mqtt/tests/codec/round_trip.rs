//! An arbitrary valid packet is written, read, and is the same; the promised length is the real one.

use proptest::prelude::*;
use tidegate_wire_mqtt::{Decoded, Encode, Encoded, Limits, Packet, Peer, Sink, Version, decode, version_of_connect};

use super::generate;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, ..ProptestConfig::default() })]

    #[test]
    fn packets_of_3_1_1_read_back(packet in generate::packet(Version::V311)) {
        reads_back(packet, Version::V311)?;
    }

    #[test]
    fn packets_of_5_read_back(packet in generate::packet(Version::V5)) {
        reads_back(packet, Version::V5)?;
    }

    #[test]
    fn a_smaller_receiver_gets_a_smaller_packet_or_none(
        (version, packet) in generate::version().prop_flat_map(|version| (Just(version), generate::packet(version))),
        packet_bytes_max in 0_u32..200,
    ) {
        let mut out = Vec::new();
        let peer = Peer { packet_bytes_max, ..Peer::new(version) };
        match packet.encode(peer, &mut out) {
            Encoded::Written { len } | Encoded::Trimmed { len } => {
                prop_assert_eq!(len, out.len());
                prop_assert!(len <= packet_bytes_max as usize);
                prop_assert!(decode(&out, version, &Limits::default()).is_ok());
            }
            Encoded::TooLarge => prop_assert!(out.is_empty()),
            Encoded::NotInVersion => prop_assert!(false, "generated packets exist"),
        }
    }
}

fn reads_back(packet: Packet<'static>, version: Version) -> Result<(), TestCaseError> {
    let mut out = vec![0xee];
    let len = packet.encoded_len(version).unwrap();
    prop_assert_eq!(packet.encode(Peer::new(version), &mut out), Encoded::Written { len });
    let bytes = &out[1..];
    prop_assert_eq!(bytes.len(), len);
    prop_assert_eq!(decode(bytes, version, &Limits::default()), Ok(Decoded::Packet { packet, consumed: len }));
    if let Packet::Connect(_) = packet {
        prop_assert_eq!(version_of_connect(bytes), Some(version));
    }
    let mut own = Own(Vec::new());
    let _ = packet.encode(Peer::new(version), &mut own);
    prop_assert_eq!(&own.0, bytes);
    Ok(())
}

/// A buffer of the caller's own, with the one method that it must have.
struct Own(Vec<u8>);

impl Sink for Own {
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }
}
