//! Frames (section 2.3) and the headers of protocols (section 2.2).

use crate::limits::FRAME_BYTES_MAX;

/// `AMQP`, which protocol, and version 1.0.0.
pub(crate) const AMQP_HEADER: &[u8; 8] = b"AMQP\x00\x01\x00\x00";
pub(crate) const SASL_HEADER: &[u8; 8] = b"AMQP\x03\x01\x00\x00";

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: u8,
    pub(crate) channel: u16,
    pub(crate) body: &'a [u8],
    /// Bytes of all of it.
    pub(crate) size: usize,
}

/// What the bytes of a connection begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framed<'a> {
    Frame(Frame<'a>),
    /// So many bytes have to be there.
    Incomplete(usize),
    /// No frame, and why.
    Broken(&'static str),
}

/// The frame that begins these bytes, of `most` bytes. One that is announced as longer is refused by its first four bytes.
pub(crate) fn read(bytes: &[u8], most: usize) -> Framed<'_> {
    let Some(head) = bytes.first_chunk::<8>() else {
        return match bytes.first_chunk::<4>() {
            Some(size) if !(8..=most).contains(&length(*size)) => Framed::Broken(WRONG_SIZE),
            _ => Framed::Incomplete(8),
        };
    };
    let [s0, s1, s2, s3, offset, kind, high, low] = *head;
    let (size, offset) = (length([s0, s1, s2, s3]), usize::from(offset) * 4);
    if !(8..=most).contains(&size) {
        return Framed::Broken(WRONG_SIZE);
    }
    if offset < 8 || offset > size {
        return Framed::Broken("a frame whose body begins outside of it");
    }
    match bytes.get(offset..size) {
        Some(body) => Framed::Frame(Frame { kind, channel: u16::from_be_bytes([high, low]), body, size }),
        None => Framed::Incomplete(size),
    }
}

const WRONG_SIZE: &str = "a frame is smaller than its head or larger than max-frame-size";

fn length(bytes: [u8; 4]) -> usize {
    usize::try_from(u32::from_be_bytes(bytes)).unwrap_or(usize::MAX)
}

const _: () = assert!(FRAME_BYTES_MAX > 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_whole_or_not_yet_or_none() {
        let frame = [0, 0, 0, 10, 2, 0, 0, 3, 1, 2, 99];
        let Framed::Frame(read_frame) = read(&frame, 512) else { panic!() };
        assert_eq!((read_frame.channel, read_frame.body, read_frame.size), (3, &[1, 2][..], 10));
        assert_eq!(read(&frame[..9], 512), Framed::Incomplete(10));
        assert_eq!(read(&frame[..3], 512), Framed::Incomplete(8));
        // Two GiB, known by four bytes.
        assert_eq!(read(&[0x80, 0, 0, 0], 512), Framed::Broken(WRONG_SIZE));
        assert_eq!(read(&[0, 0, 0, 7, 2, 0, 0, 0], 512), Framed::Broken(WRONG_SIZE));
        assert!(matches!(read(&[0, 0, 0, 8, 3, 0, 0, 0], 512), Framed::Broken(_)));
        assert!(matches!(read(&[0, 0, 0, 8, 1, 0, 0, 0], 512), Framed::Broken(_)));
        // An extended header is stepped over.
        let Framed::Frame(extended) = read(&[0, 0, 0, 13, 3, 0, 0, 0, 7, 7, 7, 7, 5], 512) else { panic!() };
        assert_eq!(extended.body, [5]);
    }
}
