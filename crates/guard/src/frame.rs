//! Where packets end, and as much of a PUBLISH as a guard has to know. Forgiving: what is wrong is for the other broker to
//! judge, and what cannot be understood is passed on as it is.

use tidegate_wire_mqtt::{QoS, Version};

pub(crate) const CONNACK: u8 = 2;
pub(crate) const PUBLISH: u8 = 3;
pub(crate) const PINGRESP: u8 = 13;
pub(crate) const DISCONNECT: u8 = 14;
pub(crate) const AUTH: u8 = 15;

/// The beginning of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Its kind, as the first four bits say.
    pub(crate) kind: u8,
    flags: u8,
    /// Bytes before its body.
    pub(crate) body_at: usize,
    /// All its bytes.
    pub(crate) total: usize,
}

/// What the front of some bytes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    /// Too few to tell.
    Incomplete,
    Packet(Head),
    /// The length is none.
    Malformed,
}

/// Looks at the front (section 2.1.4).
pub(crate) fn front(bytes: &[u8]) -> Front {
    let Some(&first) = bytes.first() else { return Front::Incomplete };
    let mut length = 0_usize;
    for (place, byte) in bytes.iter().enumerate().skip(1).take(4) {
        length |= usize::from(byte & 0x7f) << (7 * (place - 1));
        if byte & 0x80 == 0 {
            let head = place + 1;
            return Front::Packet(Head { kind: first >> 4, flags: first & 0xf, body_at: head, total: head + length });
        }
    }
    if bytes.len() > 4 { Front::Malformed } else { Front::Incomplete }
}

/// Length of the packet that begins here.
pub(crate) fn packet_length(bytes: &[u8]) -> Option<usize> {
    match front(bytes) {
        Front::Packet(head) => Some(head.total),
        Front::Incomplete | Front::Malformed => None,
    }
}

/// What a guard knows of a PUBLISH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PublishHead<'a> {
    /// As it stands there; empty if an alias stands for it.
    pub(crate) topic: &'a [u8],
    pub(crate) alias: Option<u16>,
    /// None if the bits say three.
    pub(crate) qos: Option<QoS>,
    pub(crate) retain: bool,
}

/// Whether so much of a PUBLISH is there that its topic is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen<'a> {
    /// So many bytes are needed, as far as can be said.
    Incomplete(usize),
    Known(PublishHead<'a>),
}

impl Head {
    fn qos(self) -> Option<QoS> {
        QoS::from_bits(self.flags >> 1 & 3)
    }

    /// The topic of a PUBLISH that begins these bytes, and its alias. Whatever does not add up is no topic and no alias.
    pub(crate) fn publish(self, bytes: &[u8], version: Version) -> Seen<'_> {
        let known =
            |topic, alias| Seen::Known(PublishHead { topic, alias, qos: self.qos(), retain: self.flags & 1 == 1 });
        let end = bytes.len().min(self.total);
        let (body, is_whole) = (&bytes[self.body_at.min(end)..end], end == self.total);
        let Some((length, rest)) = body.split_first_chunk::<2>() else {
            return if is_whole { known(&[], None) } else { Seen::Incomplete(self.body_at + 2) };
        };
        let length = usize::from(u16::from_be_bytes(*length));
        let Some(topic) = rest.get(..length) else {
            let needed = self.body_at + 2 + length;
            return if is_whole || needed > self.total { known(&[], None) } else { Seen::Incomplete(needed) };
        };
        if version != Version::V5 {
            return known(topic, None);
        }
        let number = if self.qos() == Some(QoS::AtMostOnce) { 0 } else { 2 };
        let start = self.body_at + 2 + length + number;
        if start >= self.total {
            return known(topic, None);
        }
        // No alias is worth waiting for so much: the message goes on without its topic being known by it.
        if number_of_properties(&bytes[start.min(end)..end]).is_some_and(|length| length > PROPERTIES_BYTES_MAX) {
            return known(topic, None);
        }
        match properties(&bytes[start.min(end)..end]) {
            Some(properties) => known(topic, alias(properties)),
            None if is_whole => known(topic, None),
            // One more is read at least; the length is known with the first few.
            None => Seen::Incomplete((end + 1).max(start + 1)),
        }
    }
}

/// Bytes of properties that are waited for, to find an alias among them.
const PROPERTIES_BYTES_MAX: usize = 64 * 1024;

/// How many bytes the properties that begin here have, if that is there.
fn number_of_properties(bytes: &[u8]) -> Option<usize> {
    number(bytes).map(|(length, _)| length)
}

/// The properties that begin here, if all of them are there.
fn properties(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = number(bytes)?;
    rest.get(..length)
}

/// A number of variable length, and what follows it.
fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0_usize;
    for (place, byte) in bytes.iter().enumerate().take(4) {
        value |= usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[place + 1..]));
        }
    }
    None
}

/// The topic alias among the properties of a PUBLISH (table 2-4).
fn alias(mut rest: &[u8]) -> Option<u16> {
    while let Some((&kind, after)) = rest.split_first() {
        let text = |bytes: &[u8]| Some(2 + usize::from(u16::from_be_bytes(*bytes.first_chunk::<2>()?)));
        let skip = match kind {
            0x01 => 1,
            0x02 => 4,
            0x03 | 0x08 | 0x09 => text(after)?,
            0x0b => after.len() - number(after)?.1.len(),
            0x23 => return Some(u16::from_be_bytes(*after.first_chunk::<2>()?)),
            0x26 => {
                let name = text(after)?;
                name + text(after.get(name..)?)?
            }
            _ => return None,
        };
        rest = after.get(skip..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn head(bytes: &[u8]) -> Head {
        match front(bytes) {
            Front::Packet(head) => head,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_length_has_four_bytes_at_most() {
        assert_eq!(front(&[]), Front::Incomplete);
        assert_eq!(front(&[0x30, 0x80, 0x80]), Front::Incomplete);
        assert_eq!(front(&[0x30, 0xff, 0xff, 0xff, 0xff]), Front::Malformed);
        assert_eq!(head(&[0xd0, 0]), Head { kind: PINGRESP, flags: 0, body_at: 2, total: 2 });
        assert_eq!(head(&[0x30, 0xff, 0xff, 0xff, 0x7f]).total, 5 + 268_435_455);
    }

    #[test]
    fn topics_and_aliases_are_found() {
        let old = b"\x33\x07\x00\x01t\x00\x01ab";
        let Seen::Known(known) = head(old).publish(old, Version::V311) else { panic!("all is there") };
        assert_eq!(
            (known.topic, known.alias, known.qos, known.retain),
            (&b"t"[..], None, Some(QoS::AtLeastOnce), true)
        );
        // A user property, a content type, and alias 7.
        let properties = b"\x26\x00\x01a\x00\x01b\x03\x00\x01c\x23\x00\x07";
        let mut body = b"\x00\x01t".to_vec();
        body.push(properties.len() as u8);
        body.extend_from_slice(properties);
        body.extend_from_slice(b"payload");
        let packet = [&[0x30, body.len() as u8], &body[..]].concat();
        let Seen::Known(known) = head(&packet).publish(&packet, Version::V5) else { panic!("all is there") };
        assert_eq!((known.topic, known.alias, known.qos), (&b"t"[..], Some(7), Some(QoS::AtMostOnce)));
    }

    #[test]
    fn every_prefix_asks_for_more_until_the_topic_is_there_and_never_for_more_than_there_is() {
        let packet = b"\x30\x0e\x00\x03a/b\x03\x23\x00\x02hello";
        let packet: Vec<u8> = [&packet[..], b"next"].concat();
        let mut have = 2;
        loop {
            match head(&packet).publish(&packet[..have], Version::V5) {
                Seen::Known(known) => {
                    assert_eq!((known.topic, known.alias), (&b"a/b"[..], Some(2)));
                    break;
                }
                Seen::Incomplete(needed) => {
                    assert!(needed > have && needed <= 15, "{needed} of {have}");
                    have += 1;
                }
            }
        }
    }

    #[test]
    fn what_does_not_add_up_is_no_topic() {
        for (packet, version) in [
            (&b"\x30\x00"[..], Version::V311),
            (b"\x30\x03\x00\x09a", Version::V311),
            (b"\x30\x04\x00\x01a\x7f", Version::V5),
            (b"\x30\x06\x00\x01a\x02\x99\x99", Version::V5),
        ] {
            assert!(matches!(head(packet).publish(packet, version), Seen::Known(PublishHead { alias: None, .. })));
        }
    }
}
