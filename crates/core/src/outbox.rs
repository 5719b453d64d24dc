//! Bytes on their way to a client, and the spare buffers that outboxes are made of.
//!
//! A silent connection holds no buffer at all; an outbox borrows one when something is to be sent and gives it back when
//! the last byte is written. One buffer and one write per connection and turn is worth ten to twenty times a write per
//! message; sharing large payloads instead of copying them would pay from about 1 KiB on, and can be added behind this
//! type.

use alloc::vec::Vec;

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    written: usize,
}

impl Outbox {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.written
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// Where new bytes are appended.
    #[inline]
    pub(crate) fn writer<'a>(&'a mut self, spares: &mut Spares) -> &'a mut Vec<u8> {
        if self.bytes.capacity() == 0 {
            self.bytes = spares.take();
        } else if self.written > COMPACT_BYTES && self.written * 2 > self.bytes.len() {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
        &mut self.bytes
    }

    pub(crate) fn on_written(&mut self, bytes: usize, spares: &mut Spares) {
        self.written = (self.written + bytes).min(self.bytes.len());
        if self.written == self.bytes.len() {
            spares.give(core::mem::take(&mut self.bytes));
            self.written = 0;
        }
    }

    pub(crate) fn clear(&mut self, spares: &mut Spares) {
        spares.give(core::mem::take(&mut self.bytes));
        self.written = 0;
    }
}

/// Buffers that nobody uses now.
#[derive(Debug, Default)]
pub(crate) struct Spares(Vec<Vec<u8>>);

impl Spares {
    fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_else(|| Vec::with_capacity(FRESH_BYTES))
    }

    fn give(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() > 0 && buffer.capacity() <= SPARE_BYTES_MAX && self.0.len() < SPARES_MAX {
            buffer.clear();
            self.0.push(buffer);
        }
    }
}

const FRESH_BYTES: usize = 1024;
/// A larger buffer is given back to the allocator: it was for one burst.
const SPARE_BYTES_MAX: usize = 64 * 1024;
const SPARES_MAX: usize = 256;
/// Moving what is left to the front pays only when a lot has been written.
const COMPACT_BYTES: usize = 64 * 1024;
