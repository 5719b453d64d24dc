//! What this face puts into an outbox. A datagram is whole already; the others become datagrams when they are written: whether
//! a message can be sent depends on what its client knows and does then, and what was answered is known only when it is said.

use alloc::vec::Vec;
use core::num::NonZeroU16;

use tidegate_wire_mqtt::{Delivery, QoS};

use crate::packet::ReturnCode;

const HEADER: usize = 3;
const DATAGRAM: u8 = 0;
const ANSWER: u8 = 1;
const RELEASE: u8 = 2;
const PUBLICATION: u8 = 3;

/// A frame, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    Datagram(&'a [u8]),
    /// What became of the client's message of this number.
    Answer {
        message: u16,
        qos: QoS,
        code: ReturnCode,
    },
    /// The client may forget this number. `is_known`: it has to say that it did.
    Release {
        message: NonZeroU16,
        is_known: bool,
    },
    Publication(Outgoing<'a>),
}

/// A message on its way to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing<'a> {
    pub(crate) qos: QoS,
    pub(crate) dup: bool,
    pub(crate) retain: bool,
    /// 0 at QoS 0.
    pub(crate) message: u16,
    pub(crate) topic: &'a str,
    pub(crate) payload: &'a [u8],
}

pub(crate) fn put_datagram(bytes: &[u8], out: &mut Vec<u8>) {
    put(DATAGRAM, &[bytes], out);
}

pub(crate) fn put_answer(message: u16, qos: QoS, code: ReturnCode, out: &mut Vec<u8>) {
    put(ANSWER, &[&message.to_be_bytes(), &[qos as u8, code.code()]], out);
}

pub(crate) fn put_release(message: NonZeroU16, is_known: bool, out: &mut Vec<u8>) {
    put(RELEASE, &[&message.get().to_be_bytes(), &[u8::from(is_known)]], out);
}

pub(crate) fn put_publication(delivery: Delivery, retain: bool, topic: &str, payload: &[u8], out: &mut Vec<u8>) {
    let dup = match delivery {
        Delivery::AtMostOnce => false,
        Delivery::AtLeastOnce { dup, .. } | Delivery::ExactlyOnce { dup, .. } => dup,
    };
    let flags = delivery.qos() as u8 | u8::from(dup) << 2 | u8::from(retain) << 3;
    let message = delivery.packet_id().map_or(0, NonZeroU16::get);
    let length = topic.len() as u16;
    let parts = [&[flags][..], &message.to_be_bytes(), &length.to_be_bytes(), topic.as_bytes(), payload];
    put(PUBLICATION, &parts, out);
}

fn put(kind: u8, parts: &[&[u8]], out: &mut Vec<u8>) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    // Datagrams are far shorter, and a message that is not was refused before.
    let Ok(length) = u16::try_from(length) else { return };
    out.extend_from_slice(&length.to_be_bytes());
    out.push(kind);
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// Length of the frame that begins here.
pub(crate) fn length(bytes: &[u8]) -> Option<usize> {
    let length = bytes.first_chunk::<2>()?;
    Some(HEADER + usize::from(u16::from_be_bytes(*length)))
}

/// The first frame, and how long it is.
pub(crate) fn split(bytes: &[u8]) -> Option<(Frame<'_>, usize)> {
    let length = length(bytes)?;
    let frame = bytes.get(..length)?;
    let (kind, body) = (*frame.get(2)?, frame.get(HEADER..)?);
    let frame = match kind {
        DATAGRAM => Frame::Datagram(body),
        ANSWER => {
            let &[high, low, qos, code] = body.first_chunk::<4>()?;
            let message = u16::from_be_bytes([high, low]);
            Frame::Answer { message, qos: qos_of(qos), code: ReturnCode::of(code) }
        }
        RELEASE => {
            let (message, known) = body.split_first_chunk::<2>()?;
            let message = NonZeroU16::new(u16::from_be_bytes(*message))?;
            Frame::Release { message, is_known: *known.first()? != 0 }
        }
        _ => Frame::Publication(publication(body)?),
    };
    Some((frame, length))
}

fn publication(body: &[u8]) -> Option<Outgoing<'_>> {
    let (flags, body) = body.split_first()?;
    let (message, body) = body.split_first_chunk::<2>()?;
    let (length, body) = body.split_first_chunk::<2>()?;
    let (topic, payload) = body.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    let qos = qos_of(flags & 3);
    let (dup, retain, topic) = (flags & 4 != 0, flags & 8 != 0, core::str::from_utf8(topic).ok()?);
    Some(Outgoing { qos, dup, retain, message: u16::from_be_bytes(*message), topic, payload })
}

/// What was written by `QoS as u8`.
fn qos_of(bits: u8) -> QoS {
    match bits {
        0 => QoS::AtMostOnce,
        1 => QoS::AtLeastOnce,
        _ => QoS::ExactlyOnce,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_were_put_in() {
        let mut out = Vec::new();
        let number = NonZeroU16::new(700).unwrap();
        put_datagram(&[2, 0x17], &mut out);
        put_answer(7, QoS::AtLeastOnce, ReturnCode::Congestion, &mut out);
        put_release(number, true, &mut out);
        put_publication(Delivery::ExactlyOnce { packet_id: number, dup: true }, true, "a/b", b"x", &mut out);
        let mut found = Vec::new();
        let mut rest = out.as_slice();
        while let Some((frame, length)) = split(rest) {
            found.push(frame);
            rest = &rest[length..];
        }
        let (qos, message) = (QoS::ExactlyOnce, 700);
        let outgoing = Outgoing { qos, dup: true, retain: true, message, topic: "a/b", payload: b"x" };
        let expected = [
            Frame::Datagram(&[2, 0x17]),
            Frame::Answer { message: 7, qos: QoS::AtLeastOnce, code: ReturnCode::Congestion },
            Frame::Release { message: number, is_known: true },
            Frame::Publication(outgoing),
        ];
        assert_eq!(found, expected);
        assert!(rest.is_empty() && split(&out[..4]).is_none());
    }
}
