//! What is written to a connection: its outbox, and how fast the client takes it.

use alloc::vec::Vec;

use tidegate_control::Timestamp;

use super::Connection;
use crate::drain::Drain;
use crate::face::{ClientAnswer, Frames, OutgoingPublication};
use crate::gate::Memory;
use crate::message::Colour;
use crate::outbox::Spares;

/// The allowance for excess of a client to which none was sent yet...
pub(crate) const NO_EXCESS_YET: u32 = u32::MAX;
/// ...and of one of which nobody knows what it has not read.
const UNKNOWN: u32 = u32::MAX - 1;

impl Connection {
    /// Bytes that wait to be taken.
    #[inline]
    pub(crate) fn outbox_len(&self) -> usize {
        self.outbox.len()
    }

    /// What the driver may write now.
    pub(crate) fn outbox_slices(&self) -> [&[u8]; 2] {
        self.outbox.slices()
    }

    /// Nothing of it is written any more.
    pub(crate) fn clear_outbox(&mut self, spares: &mut Spares) {
        self.outbox.clear(spares);
    }

    /// Says something to the client, if its face has words for it; how many bytes that were.
    pub(crate) fn answer(&mut self, answer: &ClientAnswer<'_>, spares: &mut Spares) -> usize {
        let face = &mut self.face;
        self.outbox.answer(spares, |out| face.answer(answer, out))
    }

    /// The words for that, to be said later.
    pub(crate) fn words_for(&mut self, answer: &ClientAnswer<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.face.answer(answer, &mut bytes);
        bytes
    }

    /// Says something that is in the client's words already, before messages that wait.
    pub(crate) fn put_answer(&mut self, bytes: &[u8], spares: &mut Spares) -> usize {
        self.outbox.answer(spares, |out| out.extend_from_slice(bytes))
    }

    /// The same after everything that waits.
    pub(crate) fn put_last(&mut self, bytes: &[u8], spares: &mut Spares) {
        self.outbox.writer(spares).extend_from_slice(bytes);
    }

    /// Appends a message; none if the client does not accept it, else how many bytes that were.
    #[inline]
    pub(crate) fn put_publication(
        &mut self,
        copy: &OutgoingPublication<'_>,
        frames: &mut Frames,
        memory: &Memory,
        spares: &mut Spares,
    ) -> Option<usize> {
        let written = self.face.publication(copy, frames, memory, self.outbox.writer(spares))?;
        self.traffic.bytes_sent += written as u64;
        Some(written)
    }

    /// From now on the driver has to be told of it; false if it was told already.
    #[inline]
    pub(crate) fn list(&mut self) -> bool {
        !core::mem::replace(&mut self.is_listed, true)
    }

    /// The driver was told of it.
    pub(crate) fn unlist(&mut self) {
        self.is_listed = false;
    }

    /// Since when it takes nothing of what waits for it.
    #[inline]
    pub(crate) fn stalled_since(&self) -> Option<Timestamp> {
        self.stalled_since.get()
    }

    /// Bytes that may wait for it where nothing can be overtaken. Never less than [`Connection::reach`], up to `most`. The same for all
    /// messages of a turn, so it is worked out for the first of them. Unless it is known to take more in a moment, `most`.
    pub(crate) fn room(&mut self, most: usize, now: Timestamp) -> usize {
        if self.room.0 != now {
            let is_stalled = self.stalled_since.get().is_some();
            let hoped = if is_stalled { self.drain.reach() } else { self.drain.reach_for_burst(now) };
            self.room = (now, self.drain.ahead(now).max(hoped.min(most)));
        }
        self.room.1
    }

    /// The same, less exactly, without asking what time it is.
    #[inline]
    pub(crate) fn reach(&self) -> usize {
        self.drain.reach()
    }

    /// Whether its client takes no more messages for now, and has said so.
    #[inline]
    pub(crate) fn is_without_credit(&self) -> bool {
        self.is_credited && !self.face.has_room()
    }

    /// Whether its face waits for room to say what it has to.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        self.is_credited && self.face.is_behind()
    }

    /// Whether a message of this colour has to wait until the client has read more of what was sent to it.
    #[inline]
    pub(crate) fn holds(&self, colour: Colour) -> bool {
        self.excess_allowance == 0 && colour == Colour::Excess
    }

    /// Bytes that may still be sent to it of what is in excess.
    pub(crate) fn excess_allowance(&self) -> u32 {
        self.excess_allowance
    }

    pub(crate) fn set_excess_allowance(&mut self, bytes: u32) {
        self.excess_allowance = bytes;
    }

    /// So many bytes of what is in excess are in its outbox now.
    #[inline]
    pub(crate) fn note_excess(&mut self, bytes: usize) {
        self.excess_allowance = match self.excess_allowance {
            NO_EXCESS_YET | UNKNOWN => UNKNOWN,
            known => known.saturating_sub(u32::try_from(bytes).unwrap_or(u32::MAX)),
        };
    }

    pub(crate) fn drain(&self) -> &Drain {
        &self.drain
    }

    /// An answer to the client is in its outbox.
    pub(crate) fn note_answer(&mut self, bytes: usize) {
        self.answer_bytes += bytes;
        self.traffic.bytes_sent += bytes as u64;
    }

    /// Bytes in the outbox, at most, that answer what the client sent.
    #[inline]
    pub(crate) fn answer_bytes(&self) -> usize {
        self.answer_bytes
    }

    /// So many bytes of the outbox were taken, of those that were shown.
    pub(crate) fn on_written(&mut self, bytes: usize, shown: usize, spares: &mut Spares, now: Timestamp) {
        self.outbox.on_written(bytes, spares);
        self.drain.on_written(bytes, shown, now);
        self.room.0 = Timestamp::MAX;
        self.answer_bytes = self.answer_bytes.saturating_sub(bytes);
        let stalled_since = match self.stalled_since.get() {
            _ if self.outbox.len() == 0 || self.welcome_after.is_some() => None,
            Some(since) if bytes == 0 => Some(since),
            _ => Some(now),
        };
        self.stalled_since.set(stalled_since);
    }
}
