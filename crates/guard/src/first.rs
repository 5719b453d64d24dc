//! What the other broker says to a CONNECT.

use crate::frame::{CONNACK, Front, front};

/// What its first bytes come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstAnswer {
    /// Too few to tell; so many are needed.
    Incomplete {
        /// Bytes.
        at_least: usize,
    },
    /// The client is let in, by so many bytes.
    Welcome(usize),
    /// It is not, by so many bytes.
    Unwelcome(usize),
    /// That is no answer to a CONNECT.
    Unusable(&'static str),
}

/// A sign of life in the place of a client that is not read for a while.
pub const PINGREQ: [u8; 2] = [0xc0, 0];
/// The goodbye in the place of a client that the other broker has let in and the guard has not: its will is not to be published.
pub const DISCONNECT: [u8; 2] = [0xe0, 0];

/// Bytes of a CONNACK, at most: its properties are a few names and numbers.
const CONNACK_BYTES_MAX: usize = 256 * 1024;

/// Looks at the first bytes of the other broker.
pub fn first_answer(bytes: &[u8]) -> FirstAnswer {
    match front(bytes) {
        Front::Incomplete => FirstAnswer::Incomplete { at_least: bytes.len() + 1 },
        Front::Malformed => FirstAnswer::Unusable("what answers there does not speak MQTT"),
        Front::Packet(head) if head.kind == 15 => {
            FirstAnswer::Unusable("authentication in several steps (AUTH) does not pass a guard")
        }
        Front::Packet(head)
            if head.kind != CONNACK || head.total < head.body_at + 2 || head.total > CONNACK_BYTES_MAX =>
        {
            FirstAnswer::Unusable("its first packet is no CONNACK")
        }
        Front::Packet(head) if bytes.len() < head.total => FirstAnswer::Incomplete { at_least: head.total },
        Front::Packet(head) if bytes[head.body_at + 1] == 0 => FirstAnswer::Welcome(head.total),
        Front::Packet(head) => FirstAnswer::Unwelcome(head.total),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        assert_eq!(first_answer(b"\x20\x02\x00"), FirstAnswer::Incomplete { at_least: 4 });
        assert_eq!(first_answer(b"\x20\x02\x01\x00more"), FirstAnswer::Welcome(4));
        assert_eq!(first_answer(b"\x20\x02\x00\x05"), FirstAnswer::Unwelcome(4));
        assert_eq!(first_answer(b"\x20\x03\x00\x87\x00"), FirstAnswer::Unwelcome(5));
        for garbage in [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"\x30\x02\x00\x00", b"\x20\x00", b"\xf0\x02\x18\x00"] {
            assert!(matches!(first_answer(garbage), FirstAnswer::Unusable(_)), "{garbage:?}");
        }
        assert!(matches!(first_answer(b"\x20\xff\xff\xff\x7f"), FirstAnswer::Unusable(_)), "256 MiB of CONNACK");
    }
}
