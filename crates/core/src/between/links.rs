//! What waits for each other shard, by lane, until the driver takes it: one buffer per shard and turn instead of one
//! allocation per message.
//!
//! Bounded by who writes: messages that may get lost are not put in beyond `BATCH_BYTES_MAX`, and no client is read while
//! one lane has `BATCH_BYTES_PAUSE`.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Address, Batch, BatchLane, Envelope, ShardSet, VERSION, Wall};
use crate::limits::{BATCH_BYTES_PAUSE, SHARDS_MAX};

/// What waits for one other shard.
#[derive(Debug, Default)]
struct Outgoing {
    interest: Vec<u8>,
    messages: Vec<u8>,
}

/// The ways from one shard to all others of its node.
#[derive(Debug)]
pub(crate) struct ShardLinks {
    own: Address,
    /// By position; the own place stays empty.
    outgoing: Vec<Outgoing>,
    /// Shards that refused a change of interest and have not taken it yet.
    refused: ShardSet,
    wall: Wall,
}

impl ShardLinks {
    pub(crate) fn new(index: usize, shards: usize) -> Self {
        let outgoing: Vec<_> = (0..shards.clamp(1, SHARDS_MAX)).map(|_| Outgoing::default()).collect();
        let own = Address { node: 0, shard: index.min(SHARDS_MAX - 1) as u16 };
        Self { own, outgoing, refused: ShardSet::default(), wall: Wall::default() }
    }

    /// The time of day when the clock of the process showed zero.
    pub(crate) fn set_wall_clock(&mut self, zero: Duration) {
        self.wall = Wall::new(zero);
    }

    pub(crate) fn wall(&self) -> Wall {
        self.wall
    }

    pub(crate) fn own(&self) -> Address {
        self.own
    }

    /// The own position.
    #[inline]
    pub(crate) fn index(&self) -> usize {
        usize::from(self.own.shard)
    }

    /// Shards of this node, this one included.
    #[inline]
    pub(crate) fn shards(&self) -> usize {
        self.outgoing.len()
    }

    #[inline]
    pub(crate) fn has_others(&self) -> bool {
        self.outgoing.len() > 1
    }

    /// Positions of the other shards.
    pub(crate) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.index();
        (0..self.outgoing.len()).filter(move |shard| *shard != own)
    }

    /// The address of the shard with this position.
    pub(crate) fn address_of(&self, shard: usize) -> Address {
        Address { shard: shard as u16, ..self.own }
    }

    /// The position of the shard with this address, if it is one of the others here.
    pub(crate) fn position_of(&self, address: Address) -> Option<usize> {
        let position = usize::from(address.shard);
        (address.node == self.own.node && address != self.own && position < self.outgoing.len()).then_some(position)
    }

    /// To one shard, among the messages.
    pub(crate) fn send(&mut self, to: usize, envelope: &Envelope<'_>) {
        if let Some(outgoing) = self.outgoing.get_mut(to) {
            envelope.write(self.wall, &mut outgoing.messages);
        }
    }

    /// A change of interest, to all others.
    pub(crate) fn tell_all(&mut self, envelope: &Envelope<'_>) {
        for shard in self.others() {
            envelope.write(self.wall, &mut self.outgoing[shard].interest);
        }
    }

    /// Bytes of messages that wait for this shard; none if there is no such shard.
    #[inline]
    pub(crate) fn waiting(&self, to: usize) -> Option<usize> {
        self.outgoing.get(to).map(|outgoing| outgoing.messages.len())
    }

    /// Everything that waits.
    pub(crate) fn bytes(&self) -> usize {
        self.outgoing.iter().map(|outgoing| outgoing.interest.len() + outgoing.messages.len()).sum()
    }

    /// So much waits for another shard that clients should wait, too.
    #[inline]
    pub(crate) fn is_clogged(&self) -> bool {
        let most = |outgoing: &Outgoing| outgoing.messages.len().max(outgoing.interest.len());
        self.outgoing.iter().any(|outgoing| most(outgoing) >= BATCH_BYTES_PAUSE)
    }

    /// Whether all others have been told what was promised.
    #[inline]
    pub(crate) fn are_told(&self) -> bool {
        self.refused.is_empty()
    }

    /// What waits for a shard, changes of interest first.
    pub(crate) fn poll(&mut self, to: usize) -> Option<Batch> {
        let Outgoing { interest, messages } = self.outgoing.get_mut(to)?;
        let (lane, bytes) =
            if interest.is_empty() { (BatchLane::Messages, messages) } else { (BatchLane::Interest, interest) };
        self.refused.remove(to);
        let from = self.own;
        (!bytes.is_empty()).then(|| Batch { version: VERSION, from, lane, bytes: core::mem::take(bytes) })
    }

    /// The inbox of that shard had no room: what has come to wait for it since then is behind this.
    pub(crate) fn take_back(&mut self, to: usize, batch: Batch) {
        let Some(outgoing) = self.outgoing.get_mut(to) else { return };
        let bytes = match batch.lane {
            BatchLane::Interest => {
                self.refused.insert(to);
                &mut outgoing.interest
            }
            BatchLane::Messages => &mut outgoing.messages,
        };
        let mut first = batch.bytes;
        first.append(bytes);
        *bytes = first;
    }
}
