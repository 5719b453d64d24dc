//! Fields of records: numbers in as few bytes as they need, bytes and text with their length before them.

use crate::error::StoreError;

/// Text of a record: MQTT's strings have two bytes of length.
pub const TEXT_BYTES_MAX: usize = 65_535;

pub(crate) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// None is 0, and everything else one more.
pub(crate) fn put_option(out: &mut Vec<u8>, number: Option<u64>) {
    put_number(out, number.map_or(0, |number| number.saturating_add(1)));
}

/// Reads the fields of one record, in order.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    tag: u8,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(tag: u8, payload: &'a [u8]) -> Self {
        Self { rest: payload, tag }
    }

    pub(crate) fn wrong(&self, what: &'static str) -> StoreError {
        StoreError::Record { tag: self.tag, what }
    }

    pub(crate) fn number(&mut self) -> Result<u64, StoreError> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or(self.wrong("ends in a number"))?;
            self.rest = rest;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits || byte == 0 && shift > 0 {
                return Err(self.wrong("has a number that is too long"));
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(self.wrong("has a number that is too long"))
    }

    pub(crate) fn small<N: TryFrom<u64>>(&mut self) -> Result<N, StoreError> {
        let number = self.number()?;
        N::try_from(number).map_err(|_| self.wrong("has a number out of range"))
    }

    pub(crate) fn option(&mut self) -> Result<Option<u64>, StoreError> {
        Ok(self.number()?.checked_sub(1))
    }

    pub(crate) fn small_option<N: TryFrom<u64>>(&mut self) -> Result<Option<N>, StoreError> {
        let number = self.option()?;
        number.map(N::try_from).transpose().map_err(|_| self.wrong("has a number out of range"))
    }

    pub(crate) fn bytes(&mut self, bytes_max: usize) -> Result<&'a [u8], StoreError> {
        let len: usize = self.small()?;
        if len > bytes_max {
            return Err(self.wrong("has a field over its limit"));
        }
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(self.wrong("ends in a field"))?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, StoreError> {
        let bytes = self.bytes(TEXT_BYTES_MAX)?;
        std::str::from_utf8(bytes).map_err(|_| self.wrong("has text that is not UTF-8"))
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Nothing may be left: a longer layout has another version.
    pub(crate) fn end(self) -> Result<(), StoreError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.wrong("is longer than its fields")) }
    }
}
