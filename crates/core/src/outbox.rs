//! Bytes on their way to a client, and the spare buffers that outboxes are made of.
//!
//! A silent connection holds no buffer at all; an outbox borrows one when something is to be sent and gives it back when
//! the last byte is written. One buffer and one write per connection and turn is worth ten to twenty times a write per
//! message; sharing large payloads instead of copying them would pay from about 1 KiB on, and can be added behind this
//! type.
//!
//! *Answers* (acknowledgements, SUBACK, PINGRESP) do not wait behind a heap of messages. When more than a few KiB lie
//! before them they go into a lane of their own, which is written at the next border between two packets and behind all
//! earlier answers: so answers keep their order, messages keep theirs, and a SUBACK is before the messages that follow
//! it. Borders are found by the lengths in the packets themselves, which the face knows to read, and only when a lane is opened: who takes what it is
//! given pays one comparison.

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::face::PacketLength;

#[derive(Debug)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    written: usize,
    /// A place in `bytes` where a packet begins or the last one ends; may be left behind by `written`.
    border: usize,
    /// Where the last answer in `bytes` ends. No other may go before that.
    answered: usize,
    /// Answers that go first; none while there are none.
    lane: Option<Box<OutboxLane>>,
    /// How long a packet is; none if everything keeps its order.
    length: Option<PacketLength>,
}

#[derive(Debug)]
struct OutboxLane {
    bytes: Vec<u8>,
    written: usize,
    /// The border in the outbox at which these are written.
    at: usize,
}

impl OutboxLane {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.written..]
    }
}

impl Outbox {
    pub(crate) fn new(length: Option<PacketLength>) -> Self {
        Self { bytes: Vec::new(), written: 0, border: 0, answered: 0, lane: None, length }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.written + self.lane.as_ref().map_or(0, |lane| lane.rest().len())
    }

    /// What is next, in order. When it is written there may be more.
    pub(crate) fn slices(&self) -> [&[u8]; 2] {
        match &self.lane {
            None => [&self.bytes[self.written..], &[]],
            Some(lane) if self.written < lane.at => [&self.bytes[self.written..lane.at], lane.rest()],
            Some(lane) => [lane.rest(), &self.bytes[self.written..]],
        }
    }

    /// Where whole packets are appended.
    #[inline]
    pub(crate) fn writer<'a>(&'a mut self, spares: &mut Spares) -> &'a mut Vec<u8> {
        if self.bytes.capacity() == 0 || self.written > COMPACT_BYTES {
            self.make_room(spares);
        }
        &mut self.bytes
    }

    #[inline(never)]
    fn make_room(&mut self, spares: &mut Spares) {
        if self.bytes.capacity() == 0 {
            self.bytes = spares.take();
        } else if self.written * 2 > self.bytes.len() {
            self.compact();
        }
    }

    /// Appends an answer, which whole packets are; how many bytes that was.
    #[inline]
    pub(crate) fn answer(&mut self, spares: &mut Spares, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        let is_behind = self.bytes.len() - self.written > LANE_WORTH_BYTES;
        let lane = if is_behind { self.open_lane(spares) } else { None };
        if let Some(out) = lane {
            let before = out.len();
            write(out);
            return out.len() - before;
        }
        let out = self.writer(spares);
        let before = out.len();
        write(out);
        self.answered = self.bytes.len();
        self.bytes.len() - before
    }

    /// The lane, unless an answer in it would come too early, or it is full.
    #[cold]
    fn open_lane(&mut self, spares: &mut Spares) -> Option<&mut Vec<u8>> {
        self.length?;
        if self.lane.is_none() {
            let at = self.next_border().max(self.answered);
            if self.bytes.len() - at <= LANE_WORTH_BYTES {
                return None;
            }
            self.lane = Some(Box::new(OutboxLane { bytes: spares.take(), written: 0, at }));
        }
        let lane = self.lane.as_mut()?;
        (self.answered <= lane.at && lane.bytes.len() < LANE_BYTES_MAX).then_some(&mut lane.bytes)
    }

    /// The first border that is not written past.
    fn next_border(&mut self) -> usize {
        while self.border < self.written {
            let length = self.length.and_then(|length| length(&self.bytes[self.border..]));
            self.border = length.map_or(self.bytes.len(), |length| self.border + length);
        }
        self.border
    }

    fn compact(&mut self) {
        self.border = self.next_border() - self.written;
        self.answered = self.answered.saturating_sub(self.written);
        if let Some(lane) = &mut self.lane {
            lane.at = lane.at.saturating_sub(self.written);
        }
        self.bytes.drain(..self.written);
        self.written = 0;
    }

    pub(crate) fn on_written(&mut self, bytes: usize, spares: &mut Spares) {
        let mut left = bytes;
        if let Some(lane) = &mut self.lane {
            let before = left.min(lane.at.saturating_sub(self.written));
            self.written += before;
            let answers = if self.written >= lane.at { (left - before).min(lane.rest().len()) } else { 0 };
            lane.written += answers;
            left -= before + answers;
            if lane.rest().is_empty() {
                spares.give(core::mem::take(&mut lane.bytes));
                self.lane = None;
            }
        }
        self.written = (self.written + left).min(self.bytes.len());
        if self.written == self.bytes.len() && self.lane.is_none() {
            self.clear(spares);
        }
    }

    pub(crate) fn clear(&mut self, spares: &mut Spares) {
        spares.give(core::mem::take(&mut self.bytes));
        if let Some(lane) = self.lane.take() {
            spares.give(lane.bytes);
        }
        (self.written, self.border, self.answered) = (0, 0, 0);
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
/// Messages that an answer may wait behind: 33 ms at 1 Mbit/s, and no turn of a prompt reader has more.
const LANE_WORTH_BYTES: usize = 4 * 1024;
/// Answers in a lane before the next ones wait behind the messages: some 16 000 PUBACKs.
const LANE_BYTES_MAX: usize = 64 * 1024;
