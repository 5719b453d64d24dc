//! Whatever comes: no panic; what is decoded encodes to what decodes to the same; half of it is not another packet.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_wire_mqtt::{Decoded, Encode, Encoded, Limits, Peer, Sender, Version, decode, decode_connect};

fuzz_target!(|bytes: &[u8]| {
    let _ = decode_connect(bytes, &Limits::before_connect());
    for version in [Version::V31, Version::V311, Version::V5] {
        for sender in [Sender::Client, Sender::Server] {
            let limits = Limits::default().with_sender(sender);
            let Ok(Decoded::Packet { packet, consumed }) = decode(bytes, version, &limits) else { continue };
            assert!(matches!(decode(&bytes[..consumed - 1], version, &limits), Ok(Decoded::Incomplete { .. })));
            if version == Version::V31 {
                // Read tolerantly: what its reserved bits say is not said again.
                continue;
            }
            let mut again = Vec::new();
            if let Encoded::Written { .. } = packet.encode(Peer::new(version), &mut again) {
                match decode(&again, version, &limits) {
                    Ok(Decoded::Packet { packet: same, consumed }) => {
                        assert_eq!(same, packet);
                        assert_eq!(consumed, again.len());
                    }
                    other => panic!("{packet:?} became {again:?}, which is {other:?}"),
                }
            }
        }
    }
});
