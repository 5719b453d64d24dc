//! UTF-8 strings as MQTT wants them (section 1.5.4).
//!
//! Well-formed UTF-8 without U+0000. Rust's own check refuses overlong forms and surrogates. A byte order mark is an
//! ordinary character [MQTT-1.5.4-3]; control characters and non-characters *should not* be sent, a receiver may take
//! them, and so do we: whoever shows a string must escape it anyway.

use crate::error::{Parse, Violation, violation};

pub(crate) const NUL: &Violation = violation!(MalformedPacket, "U+0000 in a string", "MQTT-1.5.4-2");

/// The bytes of a string field as text, if they are what section 1.5.4 allows.
#[inline]
pub fn check(bytes: &[u8]) -> Result<&str, &'static Violation> {
    let text = utf8(bytes)?;
    if bytes.contains(&0) {
        return Err(NUL);
    }
    Ok(text)
}

/// The bytes as text; U+0000 is not looked for.
#[inline]
pub(crate) fn utf8(bytes: &[u8]) -> Parse<&str> {
    core::str::from_utf8(bytes).map_err(|_| violation!(MalformedPacket, "string is not UTF-8", "MQTT-1.5.4-1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_order_mark_is_kept() {
        assert_eq!(check(b"\xef\xbb\xbfa"), Ok("\u{feff}a"));
    }

    #[test]
    fn control_characters_are_accepted() {
        assert_eq!(check(b"a\x01\x7f\xc2\x80"), Ok("a\u{1}\u{7f}\u{80}"));
    }

    #[test]
    fn nul_surrogates_overlong_and_cut_sequences_are_malformed() {
        for bytes in [&b"a\0"[..], b"\xed\xa0\x80", b"\xc0\x80", b"\xe2\x82", b"\xf4\x90\x80\x80", b"\xff"] {
            assert!(check(bytes).is_err(), "{bytes:x?}");
        }
    }
}
