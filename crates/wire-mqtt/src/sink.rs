//! Where encoded bytes go.
//!
//! One small trait instead of a dependency. The same code that writes a packet also measures it, by writing into a
//! [`Counter`]: the length that was promised and the bytes that follow cannot differ.

use alloc::vec::Vec;

/// Something that takes bytes: `Vec<u8>`, or a buffer of the caller's own.
pub trait Sink {
    /// Append bytes.
    fn put(&mut self, bytes: &[u8]);

    /// Room for so many bytes will be needed at once.
    fn reserve(&mut self, additional: usize) {
        let _ = additional;
    }

    /// Append one byte.
    #[inline]
    fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    /// Append a two-byte integer, big end first.
    #[inline]
    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }

    /// Append a four-byte integer, big end first.
    #[inline]
    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    /// Append a string or binary field with its two-byte length. Longer ones never get here: the measuring pass refuses
    /// the packet.
    #[inline]
    fn put_field(&mut self, field: &[u8]) {
        self.put_u16(field.len() as u16);
        self.put(field);
    }
}

impl Sink for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn reserve(&mut self, additional: usize) {
        Vec::reserve(self, additional);
    }

    #[inline]
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }
}

/// A sink that only counts, and notices fields that no two-byte length can describe.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    len: usize,
    oversize: bool,
}

impl Counter {
    /// Bytes so far; `None` if something in them cannot be encoded.
    #[inline]
    pub(crate) fn total(&self) -> Option<usize> {
        if self.oversize { None } else { Some(self.len) }
    }

    /// Bytes so far, encodable or not.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Sink for Counter {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
    }

    #[inline]
    fn put_field(&mut self, field: &[u8]) {
        self.oversize |= field.len() > usize::from(u16::MAX);
        self.len += 2 + field.len();
    }
}
