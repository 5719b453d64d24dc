//! Frames of a WebSocket, as much of RFC 6455 as it takes to leave one out.

/// What a buffer begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// Not a whole frame yet.
    Incomplete,
    /// A frame of so many bytes, and its text if it has one.
    Whole { len: usize, text: Option<Vec<u8>> },
}

/// A frame with text; others are signs of life, the end, or a part of something longer, which goes on as it is.
const TEXT: u8 = 0x81;
const MASKED: u8 = 0x80;
const LENGTH: u8 = 0x7f;

pub(super) fn read(bytes: &[u8]) -> Frame {
    whole(bytes).unwrap_or(Frame::Incomplete)
}

fn whole(bytes: &[u8]) -> Option<Frame> {
    let (first, second) = (*bytes.first()?, *bytes.get(1)?);
    let (payload, mut at) = match second & LENGTH {
        126 => (usize::from(u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?)), 4),
        127 => (usize::try_from(u64::from_be_bytes(*bytes.get(2..)?.first_chunk()?)).ok()?, 10),
        short => (usize::from(short), 2),
    };
    let mask = if second & MASKED == 0 {
        [0; 4]
    } else {
        at += 4;
        *bytes.get(at - 4..)?.first_chunk()?
    };
    let len = at.checked_add(payload)?;
    let masked = bytes.get(at..len)?;
    let text =
        (first == TEXT).then(|| masked.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect());
    Some(Frame::Whole { len, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_whole_or_not_whatever_its_length_is_written_with() {
        let long = [vec![0x81, 126, 0, 200], vec![b'x'; 200]].concat();
        let longer = [vec![0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0], vec![b'x'; 65536]].concat();
        let masked = [vec![0x81, 0x82, 1, 2, 3, 4], vec![b'a' ^ 1, b'b' ^ 2]].concat();
        for (bytes, text) in
            [(&long, Some(vec![b'x'; 200])), (&longer, None), (&masked, Some(b"ab".to_vec())), (&vec![0x8a, 0], None)]
        {
            assert_eq!(read(bytes), Frame::Whole { len: bytes.len(), text });
            for end in [0, 1, bytes.len() - 1] {
                assert_eq!(read(&bytes[..end]), Frame::Incomplete);
            }
        }
        // A length that no memory has is not believed, and waits for bytes that never come.
        assert_eq!(read(&[0x81, 127, 255, 255, 255, 255, 255, 255, 255, 255, 1]), Frame::Incomplete);
    }
}
