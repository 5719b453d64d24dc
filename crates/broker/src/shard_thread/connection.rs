//! What the rim keeps for a connection that the core knows: the socket, and bytes of a packet that is not whole yet.
//!
//! Small on purpose: a silent client costs this and its descriptor, and no buffer.

use tidegate_control::Timestamp;
use tidegate_control::order::ReadPlace;
use tidegate_core::{ConnId, Progress};

use super::windows::ClientWindow;
use crate::limits::{READ_BYTES_MAX, SCRATCH_BYTES};
use crate::link::{Received, SocketLink, SourceState};

/// One client's socket.
#[derive(Debug)]
pub(super) struct SocketConnection {
    pub(super) id: ConnId,
    pub(super) link: SocketLink,
    /// Bytes that the core did not use yet, from `start` on. Has no memory when there are none.
    kept: Vec<u8>,
    start: usize,
    /// How much of it is counted in `Connections::kept_bytes`.
    counted: usize,
    /// Bytes that must be there before the core wants to look again.
    at_least: usize,
    pub(super) reading: ReadState,
    /// What is not read yet came after this: it was read then, or known to be silent.
    pub(super) silent_at: Timestamp,
    /// When it was last known to have nothing unread.
    pub(super) dry_at: Timestamp,
    /// Its place among those that wait to be read.
    pub(super) place: Option<ReadPlace>,
    pub(super) end: StreamEnd,
    /// The socket takes no more; its being writable will be told.
    pub(super) blocked: bool,
    /// What is known of what it has not read yet.
    pub(super) window: ClientWindow,
    /// To be closed when all is written.
    pub(super) closing: bool,
    /// The turn in which it was written last.
    pub(super) written_in: u32,
    /// Its connection to the broker behind, of a guard.
    pub(super) upstream: Option<usize>,
    pub(super) spoken: Spoken,
}

/// What is spoken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spoken {
    Mqtt,
    Http,
    Amqp,
}

/// Whether and when a connection is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadState {
    /// When its socket is readable.
    Idle,
    /// It is in the list of those that are read next.
    Queued,
    /// When the core says so.
    Paused,
    /// Never again.
    Stopped,
}

/// How near the end of the peer's stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StreamEnd {
    /// Not in sight.
    Open,
    /// The socket has told of it: a short read does not mean that there is nothing.
    Announced,
    /// Nothing more will come.
    Reached,
}

/// Where the bytes for the core are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Filled {
    /// At the start of the scratch buffer, so many.
    Scratch(usize),
    /// In `kept`.
    Kept,
}

impl SocketConnection {
    pub(super) fn new(id: ConnId, link: SocketLink, rest: Vec<u8>, now: Timestamp) -> Self {
        Self {
            id,
            link,
            kept: rest,
            start: 0,
            counted: 0,
            at_least: 1,
            reading: ReadState::Idle,
            silent_at: now,
            dry_at: now,
            place: None,
            end: StreamEnd::Open,
            blocked: false,
            window: ClientWindow::Unknown(0),
            closing: false,
            written_in: 0,
            upstream: None,
            spoken: Spoken::Mqtt,
        }
    }

    /// Whether the core would look at what is kept already.
    pub(super) fn has_work(&self) -> bool {
        self.kept() > 0 && self.kept() >= self.at_least
    }

    /// Reads `most` bytes at most, unless there is enough to do already. The bytes for the core are then where `Filled`
    /// says.
    pub(super) fn fill(&mut self, scratch: &mut [u8], most: usize) -> std::io::Result<(Filled, Received)> {
        if self.has_work() || self.end == StreamEnd::Reached {
            return Ok((Filled::Kept, Received { bytes: 0, source: SourceState::More }));
        }
        let kept = self.kept();
        if kept > SCRATCH_BYTES - READ_BYTES_MAX || self.at_least > SCRATCH_BYTES {
            // A large packet is collected here. Memory follows what has come, not what was announced.
            let received = self.link.receive(&mut scratch[..most])?;
            self.kept.extend_from_slice(&scratch[..received.bytes]);
            return Ok((Filled::Kept, received));
        }
        let received = self.link.receive(&mut scratch[kept..kept + most])?;
        scratch[..kept].copy_from_slice(&self.kept[self.start..]);
        Ok((Filled::Scratch(kept + received.bytes), received))
    }

    /// The bytes for the core; empty when there are not enough of them to look at.
    pub(super) fn bytes<'a>(&'a self, filled: Filled, scratch: &'a [u8]) -> &'a [u8] {
        let bytes = match filled {
            Filled::Scratch(len) => &scratch[..len],
            Filled::Kept => &self.kept[self.start..],
        };
        if bytes.len() < self.at_least { &[] } else { bytes }
    }

    /// Keeps what the core did not use.
    pub(super) fn keep(&mut self, filled: Filled, scratch: &[u8], progress: Progress) {
        self.at_least = progress.at_least.max(1);
        match filled {
            Filled::Scratch(len) => {
                let rest = &scratch[progress.consumed.min(len)..len];
                self.kept.clear();
                self.start = 0;
                self.kept.extend_from_slice(rest);
            }
            Filled::Kept => {
                self.start += progress.consumed.min(self.kept());
                // What is read in small portions is not moved for each of them.
                if self.start > self.kept.len() / 2 {
                    self.kept.drain(..core::mem::take(&mut self.start));
                }
            }
        }
        self.release();
    }

    /// Keeps what was read, all of it.
    pub(super) fn keep_all(&mut self, filled: Filled, scratch: &[u8]) {
        if let Filled::Scratch(len) = filled {
            self.kept.clear();
            self.start = 0;
            self.kept.extend_from_slice(&scratch[..len]);
        }
        self.release();
    }

    /// Bytes that were read and not used: of a packet that is not whole yet, or of more than there was time for.
    pub(super) fn kept(&self) -> usize {
        self.kept.len() - self.start
    }

    /// Takes what was read and not used.
    pub(super) fn take_input(&mut self) -> Vec<u8> {
        let rest = self.kept.split_off(self.start);
        self.forget_input();
        rest
    }

    /// Forgets what was read: nobody will look at it.
    pub(super) fn forget_input(&mut self) {
        (self.kept, self.start) = (Vec::new(), 0);
    }

    fn release(&mut self) {
        if self.kept() == 0 {
            self.forget_input();
        }
    }
}

/// The connections of a thread, at the places that the core gave them.
#[derive(Debug, Default)]
pub(super) struct Connections {
    slots: Vec<Option<SocketConnection>>,
    len: usize,
    /// Bytes that are kept for all of them.
    kept_bytes: usize,
}

impl Connections {
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Counts what is kept for a connection, after that has changed.
    pub(super) fn count(&mut self, id: ConnId) {
        let Some(connection) = self.get(id) else { return };
        let before = std::mem::replace(&mut connection.counted, connection.kept.capacity());
        let after = connection.counted;
        self.kept_bytes = self.kept_bytes - before + after;
    }

    pub(super) fn insert(&mut self, connection: SocketConnection) {
        let index = connection.id.index as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        if self.slots[index].replace(connection).is_none() {
            self.len += 1;
        }
    }

    /// The same, to look at.
    pub(super) fn peek(&self, index: usize) -> Option<&SocketConnection> {
        self.slots.get(index)?.as_ref()
    }

    /// Whoever is at this place.
    pub(super) fn at(&mut self, index: usize) -> Option<&mut SocketConnection> {
        self.slots.get_mut(index)?.as_mut()
    }

    pub(super) fn get(&mut self, id: ConnId) -> Option<&mut SocketConnection> {
        self.at(id.index as usize).filter(|connection| connection.id == id)
    }

    pub(super) fn remove(&mut self, id: ConnId) -> Option<SocketConnection> {
        self.get(id)?;
        self.len -= 1;
        let removed = self.slots[id.index as usize].take();
        self.kept_bytes -= removed.as_ref().map_or(0, |connection| connection.counted);
        removed
    }

    /// All of them.
    pub(super) fn ids(&self) -> Vec<ConnId> {
        self.slots.iter().flatten().map(|connection| connection.id).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }
}
