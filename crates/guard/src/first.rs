//! What the other broker says to a CONNECT, and what a client says before that is decided (AUTH of MQTT 5, section 4.12).

use tidegate_wire_mqtt::Version;

use crate::frame::{AUTH, CONNACK, DISCONNECT as GOODBYE, Front, front};

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
    /// It is asked for more, by so many bytes (AUTH).
    Step(usize),
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
        Front::Packet(head) if head.kind == AUTH && head.total > AUTH_BYTES_MAX => {
            FirstAnswer::Unusable("an AUTH of it is larger than any")
        }
        Front::Packet(head) if head.kind == AUTH && bytes.len() < head.total => {
            FirstAnswer::Incomplete { at_least: head.total }
        }
        Front::Packet(head) if head.kind == AUTH => FirstAnswer::Step(head.total),
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

/// Bytes of one AUTH, at most: what methods say in a step is far less, and it has to go into an empty socket at once.
pub const AUTH_BYTES_MAX: usize = 16 * 1024;

/// What a client says that was asked for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthAnswer {
    /// Not all is there.
    Incomplete,
    /// So many bytes go on: an AUTH, or a goodbye.
    Step(usize),
    /// It may not say that now (MQTT-3.1.2-30).
    OutOfPlace,
}

/// Looks at the front of what it says.
pub fn auth_answer(bytes: &[u8]) -> AuthAnswer {
    match front(bytes) {
        Front::Incomplete => AuthAnswer::Incomplete,
        Front::Packet(head) if matches!(head.kind, AUTH | GOODBYE) && head.total <= AUTH_BYTES_MAX => {
            if bytes.len() < head.total { AuthAnswer::Incomplete } else { AuthAnswer::Step(head.total) }
        }
        Front::Packet(_) | Front::Malformed => AuthAnswer::OutOfPlace,
    }
}

/// Whether a client's packet is its last.
pub fn is_goodbye(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 4 == GOODBYE)
}

/// Whether a refusal says that somebody is not who it says it is, or may not come in: what a wrong password is answered with.
pub fn is_wrong_password(connack: &[u8], version: Version) -> bool {
    let Front::Packet(head) = front(connack) else { return false };
    let reason = connack.get(head.body_at + 1);
    match version {
        Version::V5 => matches!(reason, Some(0x86 | 0x87)),
        Version::V31 | Version::V311 => matches!(reason, Some(4 | 5)),
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
        for garbage in [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"\x30\x02\x00\x00", b"\x20\x00"] {
            assert!(matches!(first_answer(garbage), FirstAnswer::Unusable(_)), "{garbage:?}");
        }
        assert!(matches!(first_answer(b"\x20\xff\xff\xff\x7f"), FirstAnswer::Unusable(_)), "256 MiB of CONNACK");
    }
    #[test]
    fn steps_of_an_authentication_are_told_from_all_else() {
        assert_eq!(first_answer(b"\xf0\x02\x18\x00\x20"), FirstAnswer::Step(4));
        assert_eq!(first_answer(b"\xf0\x02\x18"), FirstAnswer::Incomplete { at_least: 4 });
        assert!(matches!(first_answer(b"\xf0\xff\xff\x7f"), FirstAnswer::Unusable(_)), "2 MiB of AUTH");
        assert_eq!(auth_answer(b"\xf0\x02\x18\x00\xf0"), AuthAnswer::Step(4));
        assert_eq!(auth_answer(b"\xe0\x00"), AuthAnswer::Step(2));
        for part in [&b""[..], b"\xf0", b"\xf0\x02\x18"] {
            assert_eq!(auth_answer(part), AuthAnswer::Incomplete, "{part:?}");
        }
        for other in [&b"\x30\x03\x00\x01n"[..], b"\xf0\xff\xff\x7f", b"\xf0\xff\xff\xff\xff\xff", b"\x10\x00"] {
            assert_eq!(auth_answer(other), AuthAnswer::OutOfPlace, "{other:?}");
        }
    }

    #[test]
    fn a_wrong_password_has_its_words_in_both_versions() {
        let is_wrong = |reason: u8, version| is_wrong_password(&[0x20, 3, 0, reason, 0], version);
        assert!([4, 5].into_iter().all(|reason| is_wrong(reason, Version::V311)));
        assert!([0x86, 0x87].into_iter().all(|reason| is_wrong(reason, Version::V5)));
        assert!(![1, 2, 3, 0x86].into_iter().any(|reason| is_wrong(reason, Version::V311)));
        assert!(![4, 5, 0x88, 0x8c, 0x9f].into_iter().any(|reason| is_wrong(reason, Version::V5)));
        assert!(!is_wrong_password(b"\x20\x02\x00", Version::V311));
    }
}
