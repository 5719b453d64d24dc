//! What was read of a message that is not whole yet. A little is every connection's own; more comes out of a room that
//! all connections share, so that many half messages cannot take all memory. While somebody waits for room, whoever has
//! some must go on reading at a pace, or loses it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// Bytes that are asked of the socket at once, and the measure of the room.
pub(super) const READ_BYTES: usize = 16 << 10;
/// Bytes that need no room.
const OWN_BYTES: usize = 2 * READ_BYTES;

/// The room of all connections of a door.
#[derive(Debug)]
pub(crate) struct BufferRoom {
    pieces: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// Counts one who waits for room, as long as it lives.
struct WaitGuard<'a>(&'a AtomicUsize);

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl BufferRoom {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { pieces: Arc::new(Semaphore::new(bytes / READ_BYTES)), waiting: AtomicUsize::new(0) }
    }

    /// Waits for so many pieces.
    pub(super) async fn take(&self, pieces: u32) -> Result<OwnedSemaphorePermit, AcquireError> {
        if let Ok(taken) = Arc::clone(&self.pieces).try_acquire_many_owned(pieces) {
            return Ok(taken);
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waits = WaitGuard(&self.waiting);
        Arc::clone(&self.pieces).acquire_many_owned(pieces).await
    }

    #[cfg(test)]
    pub(super) fn has(&self, pieces: usize) -> bool {
        self.pieces.available_permits() >= pieces
    }

    /// Whether somebody waits for what others have.
    pub(super) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

#[derive(Debug, Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    room: Option<OwnedSemaphorePermit>,
    /// Bytes that came since [`Buffer::pace`] was last asked.
    came: usize,
}

impl Buffer {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Nothing but white space, if anything.
    pub(super) fn is_blank(&self) -> bool {
        self.bytes.iter().all(u8::is_ascii_whitespace)
    }

    /// How much of the room the next reading needs.
    pub(super) fn wanted(&self) -> u32 {
        if self.bytes.len() + READ_BYTES <= self.bytes.capacity().max(OWN_BYTES) {
            return 0;
        }
        let held = self.room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        ((self.next_capacity() - OWN_BYTES) / READ_BYTES - held) as u32
    }

    fn next_capacity(&self) -> usize {
        let pieces = self.bytes.capacity().max(OWN_BYTES) / READ_BYTES;
        2 * pieces * READ_BYTES
    }

    /// The room that was wanted.
    pub(super) fn grant(&mut self, room: OwnedSemaphorePermit) {
        let capacity = self.next_capacity();
        self.bytes.reserve_exact(capacity - self.bytes.len());
        match &mut self.room {
            Some(held) => held.merge(room),
            None => self.room = Some(room),
        }
    }

    /// Takes what was read; at most [`READ_BYTES`], when nothing is wanted.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.came += bytes.len();
    }

    /// It has something of what all share.
    pub(super) fn has_room(&self) -> bool {
        self.room.is_some()
    }

    /// Bytes that came since this was last asked.
    pub(super) fn pace(&mut self) -> usize {
        std::mem::take(&mut self.came)
    }

    /// Forgets the beginning.
    pub(super) fn drain(&mut self, end: usize) {
        self.bytes.drain(..end.min(self.bytes.len()));
        if self.bytes.is_empty() && self.room.is_some() {
            self.clear();
        }
    }

    /// Forgets everything, and gives the room back.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(pieces: usize) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(pieces))
    }

    fn fill(buffer: &mut Buffer, room: &Arc<Semaphore>) -> bool {
        let wanted = buffer.wanted();
        if wanted > 0 {
            let Ok(granted) = Arc::clone(room).try_acquire_many_owned(wanted) else { return false };
            buffer.grant(granted);
            assert_eq!(buffer.wanted(), 0, "what was wanted was enough");
        }
        let before = buffer.bytes.capacity();
        buffer.push(&[b'x'; READ_BYTES]);
        assert!(before < OWN_BYTES || buffer.bytes.capacity() == before, "it never takes more than it was granted");
        true
    }

    #[test]
    fn half_messages_share_a_room_and_short_ones_need_none() {
        let room = room(6);
        let mut buffers: Vec<Buffer> = (0..4).map(|_| Buffer::default()).collect();
        for buffer in &mut buffers {
            assert!(fill(buffer, &room) && fill(buffer, &room), "the first of each is its own");
        }
        assert_eq!(room.available_permits(), 6);
        let grown = buffers.iter_mut().filter_map(|buffer| fill(buffer, &room).then_some(())).count();
        assert_eq!((grown, room.available_permits()), (3, 0), "two pieces each");
        buffers[0].drain(3 * READ_BYTES);
        assert_eq!(room.available_permits(), 2, "a whole message gives it back");
        assert!(fill(&mut buffers[3], &room));
        buffers[1].clear();
        buffers.pop();
        assert_eq!(room.available_permits(), 4, "and so does the end of a connection");
    }

    #[test]
    fn what_is_held_is_what_is_counted() {
        let room = room(1000);
        let mut buffer = Buffer::default();
        for _ in 0..100 {
            assert!(fill(&mut buffer, &room));
            let counted = OWN_BYTES + (1000 - room.available_permits()) * READ_BYTES;
            assert!(buffer.bytes.capacity() <= counted, "{} of {counted}", buffer.bytes.capacity());
        }
        assert_eq!(buffer.bytes().len(), 100 * READ_BYTES);
    }
}
