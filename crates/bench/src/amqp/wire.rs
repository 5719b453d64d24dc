//! As much of AMQP 1.0's bytes as a measurement needs: frames of known fields out, and whatever a server says in.

/// Performatives and what belongs to them, by their codes.
pub(super) mod code {
    pub(crate) const OPEN: u8 = 0x10;
    pub(crate) const BEGIN: u8 = 0x11;
    pub(crate) const ATTACH: u8 = 0x12;
    pub(crate) const FLOW: u8 = 0x13;
    pub(crate) const TRANSFER: u8 = 0x14;
    pub(crate) const DISPOSITION: u8 = 0x15;
    pub(crate) const DETACH: u8 = 0x16;
    pub(crate) const END: u8 = 0x17;
    pub(crate) const CLOSE: u8 = 0x18;
    pub(crate) const ACCEPTED: u8 = 0x24;
    pub(crate) const SOURCE: u8 = 0x28;
    pub(crate) const TARGET: u8 = 0x29;
    pub(crate) const DATA: u8 = 0x75;
}

/// Bytes of a frame, at most: whatever says that it is longer speaks something else.
const FRAME_MAX: usize = 1 << 20;

pub(super) const NULL: &[u8] = &[0x40];

pub(super) fn flag(is_so: bool) -> Vec<u8> {
    vec![if is_so { 0x41 } else { 0x42 }]
}

pub(super) fn uint(number: u32) -> Vec<u8> {
    [&[0x70][..], &number.to_be_bytes()].concat()
}

pub(super) fn small(number: u8) -> Vec<u8> {
    vec![0x50, number]
}

/// Of at most 255 bytes.
pub(super) fn text(text: &str) -> Vec<u8> {
    [&[0xa1, text.len() as u8], text.as_bytes()].concat()
}

/// A list that has a meaning.
pub(super) fn described(code: u8, fields: &[Vec<u8>]) -> Vec<u8> {
    let list = fields.concat();
    let (size, count) = (list.len() as u32 + 4, fields.len() as u32);
    [&[0, 0x53, code, 0xd0][..], &size.to_be_bytes(), &count.to_be_bytes(), &list].concat()
}

/// A frame of the first channel.
pub(super) fn frame(code: u8, fields: &[Vec<u8>], payload: &[u8]) -> Vec<u8> {
    let body = [&described(code, fields), payload].concat();
    [&(body.len() as u32 + 8).to_be_bytes()[..], &[2, 0, 0, 0], &body].concat()
}

/// What a server says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Said<'a> {
    pub(super) code: u8,
    fields: Vec<&'a [u8]>,
}

impl<'a> Said<'a> {
    /// The first frame of these bytes and how long it is; an empty one says nothing. None: more is needed. An error: no AMQP.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Option<(Option<Self>, usize)>, &'static str> {
        let Some(head) = bytes.first_chunk::<8>() else { return Ok(None) };
        let size = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let begin = usize::from(head[4]) * 4;
        if begin < 8 || size < begin || size > FRAME_MAX {
            return Err("a frame whose sizes do not fit");
        }
        let Some(frame) = bytes.get(..size) else { return Ok(None) };
        let body = &frame[begin..];
        if body.is_empty() {
            return Ok(Some((None, size)));
        }
        let said = described_list(body).ok_or("a frame without a performative")?;
        Ok(Some((Some(said), size)))
    }

    /// A number, or a flag as one; none if it was left out.
    pub(super) fn number(&self, place: usize) -> Option<u32> {
        number(self.fields.get(place)?)
    }

    pub(super) fn is_set(&self, place: usize) -> bool {
        self.number(place) == Some(1)
    }

    /// What the value of this field means.
    pub(super) fn meaning(&self, place: usize) -> Option<u8> {
        described_list(self.fields.get(place)?).map(|described| described.code)
    }

    /// All words in it, for a complaint.
    pub(super) fn words(&self) -> String {
        let bytes = self.fields.concat();
        let is_word = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
        let words = bytes.split(|byte| !is_word(byte)).filter(|word| word.len() > 3);
        words.map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>().join(" ")
    }
}

fn described_list(bytes: &[u8]) -> Option<Said<'_>> {
    let rest = bytes.strip_prefix(&[0])?;
    let (code, rest) = (number(rest)? as u8, rest.get(size(rest)?..)?);
    let (mut list, count) = match rest.first()? {
        0x45 => (&rest[1..], 0),
        0xc0 => (rest.get(3..)?, u32::from(*rest.get(2)?)),
        0xd0 => (rest.get(9..)?, u32::from_be_bytes(*rest.get(5..)?.first_chunk()?)),
        _ => return None,
    };
    let mut fields = Vec::new();
    for _ in 0..count.min(32) {
        let (field, rest) = list.split_at_checked(size(list)?)?;
        fields.push(field);
        list = rest;
    }
    Some(Said { code, fields })
}

/// Bytes of the value that begins here.
fn size(bytes: &[u8]) -> Option<usize> {
    let first = *bytes.first()?;
    Some(match first >> 4 {
        0 => {
            let descriptor = size(bytes.get(1..)?)?;
            1 + descriptor + size(bytes.get(1 + descriptor..)?)?
        }
        4 => 1,
        5 => 2,
        6 => 3,
        7 => 5,
        8 => 9,
        9 => 17,
        0xa | 0xc | 0xe => 2 + usize::from(*bytes.get(1)?),
        0xb | 0xd | 0xf => 5 + u32::from_be_bytes(*bytes.get(1..)?.first_chunk()?) as usize,
        _ => return None,
    })
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(match *bytes.first()? {
        0x42..=0x44 => 0,
        0x41 => 1,
        0x50 | 0x52 | 0x53 | 0x56 => u32::from(*bytes.get(1)?),
        0x70 => u32::from_be_bytes(*bytes.get(1..)?.first_chunk()?),
        0x80 => u64::from_be_bytes(*bytes.get(1..)?.first_chunk()?) as u32,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let state = described(code::ACCEPTED, &[]);
        let bytes = frame(code::DISPOSITION, &[flag(true), uint(7), NULL.to_vec(), flag(true), state], b"more");
        let (said, length) = Said::read(&bytes).unwrap().unwrap();
        let said = said.unwrap();
        assert_eq!((said.code, length), (code::DISPOSITION, bytes.len()));
        assert_eq!((said.number(1), said.number(2), said.is_set(3)), (Some(7), None, true));
        assert_eq!((said.meaning(4), said.meaning(9)), (Some(code::ACCEPTED), None));
        for short in 0..bytes.len() {
            assert_eq!(Said::read(&bytes[..short]), Ok(None));
        }
        assert_eq!(Said::read(&[0, 0, 0, 8, 2, 0, 0, 0]), Ok(Some((None, 8))), "a sign of life");
        assert!(Said::read(b"HTTP/1.1 400").is_err());
    }

    #[test]
    fn descriptors_and_lists_are_read_however_long_they_are_written() {
        let list = [0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x13, 0xc0, 4, 2, 0x52, 9, 0x43];
        let bytes = [&(list.len() as u32 + 8).to_be_bytes()[..], &[2, 0, 0, 0], &list].concat();
        let (said, _) = Said::read(&bytes).unwrap().unwrap();
        let said = said.unwrap();
        assert_eq!((said.code, said.number(0), said.number(1)), (code::FLOW, Some(9), Some(0)));
    }
}
