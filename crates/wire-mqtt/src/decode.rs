//! From bytes to a packet.
//!
//! Stateless: the caller keeps a buffer, asks for the packet at its start, and drops `consumed` bytes when it is done
//! with the packet, which borrows them. Nothing is allocated. Asking again with more bytes starts over at the fixed
//! header, which costs two nanoseconds and saves a state machine.

use crate::ack::{self, AckKind};
use crate::auth::Auth;
use crate::connack::ConnAck;
use crate::connect::Connect;
use crate::disconnect::Disconnect;
use crate::error::{Parse, PeerError, violation};
use crate::header::{self, FixedHeader, HeaderProgress};
use crate::kind::{PacketType, Sender};
use crate::limits::Limits;
use crate::packet::Packet;
use crate::publish::Publish;
use crate::reader::PacketReader;
use crate::suback::{SubAck, UnsubAck};
use crate::subscribe::Subscribe;
use crate::unsubscribe::Unsubscribe;
use crate::version::Version;

/// What stands at the start of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// A whole packet.
    Packet {
        /// The packet, borrowed from the buffer.
        packet: Packet<'a>,
        /// Bytes that it took.
        consumed: usize,
    },
    /// The beginning of a packet with nothing wrong so far.
    Incomplete {
        /// Bytes that the buffer must hold before it is worth asking again. Within the maximum packet size.
        at_least: usize,
    },
}

/// Read the packet at the start of `input`, in the version that the connection agreed on.
///
/// A CONNECT is read in the version that it names itself.
#[inline]
pub fn decode<'a>(input: &'a [u8], version: Version, limits: &Limits) -> Result<Decoded<'a>, PeerError> {
    let header = match header::read(input, version, limits)? {
        HeaderProgress::Complete(header) => header,
        HeaderProgress::NeedsAtLeast(at_least) => return Ok(Decoded::Incomplete { at_least }),
    };
    let consumed = header.size + header.remaining;
    let Some(body) = input.get(header.size..consumed) else {
        return Ok(Decoded::Incomplete { at_least: consumed });
    };
    // PUBLISH goes straight into the result: `Packet` is as large as CONNECT, and moving it took longer than reading
    // it.
    let packet = if header.kind == PacketType::Publish {
        match Publish::read(header.flags, PacketReader::new(body), version, limits) {
            Ok(publish) => return Ok(Decoded::Packet { packet: Packet::Publish(publish), consumed }),
            Err(rule) => Err(rule),
        }
    } else {
        decode_other(&header, PacketReader::new(body), version, limits)
    };
    match packet {
        Ok(packet) => Ok(Decoded::Packet { packet, consumed }),
        Err(rule) => Err(PeerError::new(rule, Some(header.kind))),
    }
}

/// Read the first packet of a connection, which must be a CONNECT; the type is judged on the first byte.
pub fn decode_connect<'a>(input: &'a [u8], limits: &Limits) -> Result<Decoded<'a>, PeerError> {
    if let Some(&first) = input.first()
        && first >> 4 != PacketType::Connect as u8
    {
        let rule = violation!(ProtocolError, "first packet is not CONNECT", "MQTT-3.1.0-1");
        return Err(PeerError::new(rule, PacketType::from_bits(first >> 4, Version::V5)));
    }
    // The version only matters to packets that cannot come here; a CONNECT names its own.
    match limits.sender {
        Sender::Server => decode(input, Version::V5, &limits.clone().with_sender(Sender::Client)),
        Sender::Client | Sender::Either => decode(input, Version::V5, limits),
    }
}

/// All but PUBLISH, out of its way.
#[inline(never)]
fn decode_other<'a>(
    header: &FixedHeader,
    body: PacketReader<'a>,
    version: Version,
    limits: &Limits,
) -> Parse<Packet<'a>> {
    Ok(match header.kind {
        PacketType::Connect => Packet::Connect(Connect::read(header.flags, body, limits)?),
        PacketType::ConnAck => Packet::ConnAck(ConnAck::read(body, version, limits)?),
        PacketType::Publish => Packet::Publish(Publish::read(header.flags, body, version, limits)?),
        PacketType::PubAck => Packet::Ack(ack::read(AckKind::PubAck, body, version, limits)?),
        PacketType::PubRec => Packet::Ack(ack::read(AckKind::PubRec, body, version, limits)?),
        PacketType::PubRel => Packet::Ack(ack::read(AckKind::PubRel, body, version, limits)?),
        PacketType::PubComp => Packet::Ack(ack::read(AckKind::PubComp, body, version, limits)?),
        PacketType::Subscribe => Packet::Subscribe(Subscribe::read(body, version, limits)?),
        PacketType::SubAck => Packet::SubAck(SubAck::read(body, version, limits)?),
        PacketType::Unsubscribe => Packet::Unsubscribe(Unsubscribe::read(body, version, limits)?),
        PacketType::UnsubAck => Packet::UnsubAck(UnsubAck::read(body, version, limits)?),
        PacketType::PingReq => Packet::PingReq,
        PacketType::PingResp => Packet::PingResp,
        PacketType::Disconnect => Packet::Disconnect(Disconnect::read(body, version, limits)?),
        PacketType::Auth => Packet::Auth(Auth::read(body, limits)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::ReasonCode;

    #[test]
    fn an_incomplete_packet_says_how_much_is_missing() {
        let limits = Limits::default();
        assert_eq!(decode(b"", Version::V5, &limits), Ok(Decoded::Incomplete { at_least: 2 }));
        assert_eq!(decode(b"\x30", Version::V5, &limits), Ok(Decoded::Incomplete { at_least: 2 }));
        assert_eq!(decode(b"\x30\x80", Version::V5, &limits), Ok(Decoded::Incomplete { at_least: 3 }));
        assert_eq!(decode(b"\x30\x0a\x00", Version::V5, &limits), Ok(Decoded::Incomplete { at_least: 12 }));
    }

    #[test]
    fn only_the_first_packet_is_consumed() {
        let input = b"\xc0\x00\xd0\x00";
        let expected = Decoded::Packet { packet: Packet::PingReq, consumed: 2 };
        assert_eq!(decode(input, Version::V311, &Limits::default()), Ok(expected));
    }

    #[test]
    fn f006_whatever_is_not_connect_is_refused_on_its_first_byte() {
        for first in [0x00_u8, 0x20, 0x30, 0x40, 0x82, 0xc0, 0xe0, 0xf0, 0xff, b'G'] {
            let refused = decode_connect(&[first], &Limits::before_connect()).unwrap_err();
            assert_eq!(refused.section, "MQTT-3.1.0-1", "{first:x}");
        }
        // A TLS hello is a CONNECT by type, with flags that 3.1 does not use; it is a short one.
        assert_eq!(decode_connect(b"\x16\x03", &Limits::before_connect()).unwrap_err().section, "4.13.1");
    }

    #[test]
    fn packets_in_the_wrong_direction_are_protocol_errors() {
        let clients = Limits::default().with_sender(Sender::Client);
        for first in [0x20, 0x90, 0xb0, 0xd0] {
            let refused = decode(&[first], Version::V5, &clients).unwrap_err();
            assert_eq!(refused.reason, ReasonCode::ProtocolError);
        }
        let servers = Limits::default().with_sender(Sender::Server);
        for first in [0x10, 0x82, 0xa2, 0xc0] {
            assert!(decode(&[first], Version::V5, &servers).is_err());
        }
        assert!(decode(b"\xe0\x00", Version::V311, &servers).is_err());
        assert!(decode(b"\xe0\x00", Version::V5, &servers).is_ok());
    }
}
