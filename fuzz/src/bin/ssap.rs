//! Whatever comes at the SSAP port: no panic, and what is a message is one whole or split.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_wire_ssap::{Scanned, Scanner, SsapMessage, SsapRequest, read_triples};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = read_triples(text);
    }
    let whole = Scanner::default().scan(bytes, 1 << 16);
    let mut split = Scanner::default();
    let _ = split.scan(&bytes[..bytes.len() / 2], 1 << 16);
    assert_eq!(split.scan(bytes, 1 << 16), whole);
    let Scanned::Message(range) = whole else { return };
    let Ok(message) = SsapMessage::parse(&bytes[range]) else { return };
    let _ = SsapRequest::read(&message);
});
