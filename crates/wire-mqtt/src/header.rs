//! The fixed header: type, flags, length. Checked before the body arrives.
//!
//! Whatever is wrong with the first two to five bytes is said at once, so a hostile length costs neither memory nor
//! patience. The order of the checks is fixed, and each looks only at bytes that are there: whether a frame comes whole
//! or byte by byte, the answer is the same.

use crate::error::{PeerError, Violation, violation};
use crate::kind::PacketType;
use crate::limits::Limits;
use crate::qos::QoS;
use crate::varint::{self, VarInt};
use crate::version::Version;

/// A fixed header that passed all checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FixedHeader {
    pub(crate) kind: PacketType,
    /// The lower four bits of the first byte.
    pub(crate) flags: u8,
    /// Bytes of the header itself: 2 to 5.
    pub(crate) size: usize,
    /// Bytes that follow.
    pub(crate) remaining: usize,
}

/// What the bytes say so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderProgress {
    Complete(FixedHeader),
    /// So many bytes from the start of the packet are needed to know more.
    NeedsAtLeast(usize),
}

/// Read the fixed header at the start of `input`.
#[inline]
pub(crate) fn read(input: &[u8], version: Version, limits: &Limits) -> Result<HeaderProgress, PeerError> {
    let Some((&first, rest)) = input.split_first() else {
        return Ok(HeaderProgress::NeedsAtLeast(SIZE_MIN));
    };
    let flags = first & 0x0f;
    let Some(kind) = PacketType::from_bits(first >> 4, version) else {
        return Err(PeerError::new(violation!(MalformedPacket, "reserved packet type", "2.1.2"), None));
    };
    let refuse = |rule| PeerError::new(rule, Some(kind));
    if !limits.sender.may_send(kind, version) {
        return Err(refuse(violation!(ProtocolError, "packet sent in the wrong direction", "2.1.2")));
    }
    check_flags(kind, flags, version).map_err(refuse)?;
    let (remaining, size) = match varint::read(rest).map_err(refuse)? {
        VarInt::Value { value, size } => (value as usize, 1 + size),
        VarInt::Incomplete => return Ok(HeaderProgress::NeedsAtLeast(input.len() + 1)),
    };
    check_length(kind, size, remaining, version, limits).map_err(refuse)?;
    Ok(HeaderProgress::Complete(FixedHeader { kind, flags, size, remaining }))
}

#[inline]
fn check_flags(kind: PacketType, flags: u8, version: Version) -> Result<(), &'static Violation> {
    if kind == PacketType::Publish {
        return check_publish_flags(flags);
    }
    let wanted = kind.fixed_flags();
    let ignored = match (version, kind) {
        // It says itself which version it is: `check_connect_flags`.
        (_, PacketType::Connect) => ALL,
        // 3.1 lets a sender mark a repeated PUBREL, SUBSCRIBE or UNSUBSCRIBE with DUP, and calls the others unused; later
        // versions reserve all of them.
        (Version::V31, _) if wanted == 0 => ALL,
        (Version::V31, _) => DUP | RETAIN,
        _ => 0,
    };
    if flags & !ignored == wanted & !ignored {
        return Ok(());
    }
    Err(violation!(MalformedPacket, "wrong flags in the fixed header", "MQTT-2.1.3-1"))
}

/// The flags of CONNECT, when its version is known: 3.1 does not use them, and later versions reserve them.
pub(crate) fn check_connect_flags(flags: u8, version: Version) -> Result<(), &'static Violation> {
    if flags == 0 || version == Version::V31 {
        return Ok(());
    }
    Err(violation!(MalformedPacket, "wrong flags in the fixed header", "MQTT-2.1.3-1"))
}

#[inline]
fn check_publish_flags(flags: u8) -> Result<(), &'static Violation> {
    match QoS::from_bits(flags >> 1 & 3) {
        None => Err(violation!(MalformedPacket, "QoS 3", "MQTT-3.3.1-4")),
        Some(QoS::AtMostOnce) if flags & DUP != 0 => {
            Err(violation!(MalformedPacket, "DUP on a message at QoS 0", "MQTT-3.3.1-2"))
        }
        Some(_) => Ok(()),
    }
}

#[inline]
fn check_length(
    kind: PacketType,
    size: usize,
    remaining: usize,
    version: Version,
    limits: &Limits,
) -> Result<(), &'static Violation> {
    if size + remaining > limits.packet_bytes_max as usize {
        return Err(violation!(PacketTooLarge, "packet larger than the maximum packet size", "MQTT-3.2.2-15"));
    }
    let (least, most) = body_bytes(kind, version);
    if remaining < least {
        return Err(violation!(MalformedPacket, "packet too short for its type", "4.13.1"));
    }
    if remaining > most {
        return Err(violation!(MalformedPacket, "packet too long for its type", "4.13.1"));
    }
    Ok(())
}

/// Least and most bytes that a body of this type can have.
#[inline]
const fn body_bytes(kind: PacketType, version: Version) -> (usize, usize) {
    use PacketType as T;
    const ANY: usize = varint::MAX;
    match kind {
        // Protocol name, level, flags, keep alive, and a client identifier of no bytes.
        T::Connect => (12, ANY),
        T::Publish | T::Subscribe | T::SubAck | T::Unsubscribe => (2, ANY),
        T::PubAck | T::PubRec | T::PubRel | T::PubComp | T::UnsubAck if version.is_v5() => (2, ANY),
        T::ConnAck if version.is_v5() => (3, ANY),
        T::Disconnect | T::Auth if version.is_v5() => (0, ANY),
        T::PubAck | T::PubRec | T::PubRel | T::PubComp | T::UnsubAck | T::ConnAck => (2, 2),
        T::PingReq | T::PingResp | T::Disconnect | T::Auth => (0, 0),
    }
}

/// The shortest header: type and a length of one byte.
const SIZE_MIN: usize = 2;
/// "This was sent before", in the flags of PUBLISH.
pub(crate) const DUP: u8 = 0b1000;
/// All four flags.
const ALL: u8 = 0b1111;
/// "Keep this", in the flags of PUBLISH.
pub(crate) const RETAIN: u8 = 0b0001;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::ReasonCode;

    fn header(input: &[u8], version: Version) -> Result<HeaderProgress, ReasonCode> {
        read(input, version, &Limits::default()).map_err(|error| error.reason)
    }

    #[test]
    fn a_hostile_length_is_refused_on_its_last_byte() {
        let limits = Limits::before_connect();
        for sent in 0..5 {
            let progress = read(&b"\x10\xff\xff\xff\x7f"[..sent], Version::V5, &limits);
            assert_eq!(progress, Ok(HeaderProgress::NeedsAtLeast(2.max(sent + 1))), "{sent}");
        }
        let refused = read(b"\x10\xff\xff\xff\x7f", Version::V5, &limits).unwrap_err();
        assert_eq!(refused.reason, ReasonCode::PacketTooLarge);
    }

    #[test]
    fn a_fifth_length_byte_is_never_waited_for() {
        assert_eq!(header(b"\x30\xff\xff\xff\xff", Version::V311), Err(ReasonCode::MalformedPacket));
    }

    #[test]
    fn a_wrong_first_byte_is_refused_alone() {
        for first in [0x00, 0x36, 0x38, 0x41, 0x60, 0x80, 0xa0, 0xc1] {
            assert_eq!(header(&[first], Version::V5), Err(ReasonCode::MalformedPacket), "{first:x}");
        }
        assert_eq!(header(&[0xf0], Version::V311), Err(ReasonCode::MalformedPacket));
    }

    #[test]
    fn packet_size_counts_the_header() {
        let limits = Limits { packet_bytes_max: 10, ..Limits::default() };
        assert!(read(b"\x30\x08", Version::V5, &limits).is_ok());
        assert!(read(b"\x30\x09", Version::V5, &limits).is_err());
    }

    #[test]
    fn dup_on_a_repeated_subscribe_is_legal_in_3_1_only() {
        assert!(header(b"\x8a\x02", Version::V31).is_ok());
        assert_eq!(header(b"\x8a\x02", Version::V311), Err(ReasonCode::MalformedPacket));
    }

    #[test]
    fn flags_that_3_1_does_not_use_are_ignored_there_and_nowhere_else() {
        for first in [0x4f, 0x51, 0x7a, 0xc3, 0xe8, 0x63, 0x83, 0xa3] {
            let length = if first >= 0xc0 { 0 } else { 2 };
            assert!(header(&[first, length], Version::V31).is_ok(), "{first:x}");
            assert_eq!(header(&[first], Version::V311), Err(ReasonCode::MalformedPacket), "{first:x}");
            assert_eq!(header(&[first], Version::V5), Err(ReasonCode::MalformedPacket), "{first:x}");
        }
        // These are sent at QoS 1, and at no other.
        for first in [0x60, 0x84, 0xa6] {
            assert_eq!(header(&[first], Version::V31), Err(ReasonCode::MalformedPacket), "{first:x}");
        }
    }
}
