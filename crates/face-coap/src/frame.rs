//! What a face puts into an outbox. A datagram is whole already; an answer of the core becomes one when it is written: whether it
//! goes with the acknowledgement depends on whether that went ahead meanwhile.

use alloc::vec::Vec;

const HEADER: usize = 3;
const DATAGRAM: u8 = 0;
const ANSWER: u8 = 1;

/// A frame, read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    Datagram(&'a [u8]),
    /// An answer to the exchange of this number.
    Answer {
        number: u16,
        code: u8,
        max_age: Option<u32>,
        why: &'a [u8],
    },
}

pub(crate) fn put_datagram(bytes: &[u8], out: &mut Vec<u8>) {
    put(DATAGRAM, &[bytes], out);
}

pub(crate) fn put_answer(number: u16, code: u8, max_age: Option<u32>, why: &str, out: &mut Vec<u8>) {
    // Nobody is told to wait for no time at all.
    let max_age = max_age.map_or(0, |age| age.max(1));
    put(ANSWER, &[&number.to_be_bytes(), &[code], &max_age.to_be_bytes(), why.as_bytes()], out);
}

fn put(kind: u8, parts: &[&[u8]], out: &mut Vec<u8>) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    // Datagrams are far shorter; one that is not is cut nowhere, because it is not sent at all.
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

/// The first frame, and what is behind it.
pub(crate) fn split(bytes: &[u8]) -> Option<(Frame<'_>, &[u8])> {
    let length = length(bytes)?;
    let (frame, rest) = bytes.split_at_checked(length)?;
    let (kind, body) = (*frame.get(2)?, frame.get(HEADER..)?);
    let frame = if kind == DATAGRAM {
        Frame::Datagram(body)
    } else {
        let (number, body) = body.split_first_chunk::<2>()?;
        let (code, body) = body.split_first()?;
        let (age, why) = body.split_first_chunk::<4>()?;
        let max_age = Some(u32::from_be_bytes(*age)).filter(|age| *age > 0);
        Frame::Answer { number: u16::from_be_bytes(*number), code: *code, max_age, why }
    };
    Some((frame, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_were_put_in() {
        let mut out = Vec::new();
        put_datagram(&[1, 2, 3], &mut out);
        put_answer(7, 0x9d, Some(0), "too fast", &mut out);
        put_answer(8, 0x44, None, "", &mut out);
        assert_eq!(length(&out), Some(6));
        let (first, rest) = split(&out).unwrap();
        assert_eq!(first, Frame::Datagram(&[1, 2, 3]));
        let (second, rest) = split(rest).unwrap();
        assert_eq!(second, Frame::Answer { number: 7, code: 0x9d, max_age: Some(1), why: b"too fast" });
        let (third, rest) = split(rest).unwrap();
        assert_eq!(third, Frame::Answer { number: 8, code: 0x44, max_age: None, why: b"" });
        assert!(rest.is_empty() && split(rest).is_none() && split(&out[..4]).is_none());
    }
}
