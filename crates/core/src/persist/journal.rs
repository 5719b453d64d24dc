//! What was changed and not yet kept: the changes of this turn, and the turns before it that are not settled.

mod turns;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{StoreChange, StoredMessage, Trouble};
use crate::between::ShardSet;
use crate::message::Message;
use crate::shard::ConnId;

/// What has to be true before something may be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    Now,
    /// The batch of this turn is kept.
    Synced(u64),
    /// And so are those of other shards that its messages went to.
    Kept(u64),
}

/// What a change costs while it is not synced, without a message's bytes.
const CHANGE_BYTES: usize = 64;

#[derive(Debug)]
pub(crate) struct Journal {
    is_on: bool,
    /// Why nothing can be kept at the moment.
    trouble: Option<Trouble>,
    /// The disk is slow beyond measure.
    is_stalled: bool,
    changes: Vec<StoreChange>,
    /// Length of `changes` at the last `Whole`.
    whole: usize,
    /// Payload bytes of this turn, and of it and all turns that are not synced.
    turn_bytes: usize,
    unsynced_bytes: usize,
    turn: u64,
    /// Shards that got messages of this turn, and how often one was sent.
    asked: ShardSet,
    asks: u64,
    /// QoS 2 messages of this turn that are on their way to other shards.
    routing: Vec<Arc<Message>>,
    /// Turns that are not kept, in order.
    pending: VecDeque<Pending>,
    /// Every turn up to this one is synced, or kept.
    synced: u64,
    kept: u64,
    /// The last turn that somebody waits for.
    awaited: u64,
    /// What other shards have asked, and the turn of ours that answers it.
    receipts: VecDeque<Receipt>,
    /// Those whose turn is synced, and that wait for other shards to which something was passed on; nearly always none.
    passing: Vec<Receipt>,
    /// What was passed on since the shard that it came from has asked the last time.
    passed: Vec<(usize, Pass)>,
    /// Connections to which something is owed; each once.
    waiting: Vec<ConnId>,
    /// Sessions with messages that may be sent once a turn is synced, in order of turns.
    sessions: VecDeque<(u64, u32, u32)>,
    /// Sessions with messages that may leave memory once a turn is synced, in order of turns.
    paging: VecDeque<(u64, u32, u32)>,
    next_number: u64,
    step: u64,
}

#[derive(Debug)]
struct Pending {
    number: u64,
    is_synced: bool,
    bytes: usize,
    /// Shards that have not answered.
    asked: ShardSet,
    routing: Vec<Arc<Message>>,
}

#[derive(Debug)]
struct Receipt {
    turn: u64,
    from: usize,
    theirs: u64,
    passed: Vec<Pass>,
}

/// Something that another shard has sent us was passed on to this one, in this turn of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pass {
    turn: u64,
    to: usize,
}

impl Default for Journal {
    fn default() -> Self {
        Self {
            is_on: false,
            trouble: None,
            is_stalled: false,
            changes: Vec::new(),
            whole: 0,
            turn_bytes: 0,
            unsynced_bytes: 0,
            turn: 1,
            asked: ShardSet::default(),
            asks: 0,
            routing: Vec::new(),
            pending: VecDeque::new(),
            synced: 0,
            kept: 0,
            awaited: 0,
            receipts: VecDeque::new(),
            passing: Vec::new(),
            passed: Vec::new(),
            waiting: Vec::new(),
            sessions: VecDeque::new(),
            paging: VecDeque::new(),
            next_number: 1,
            step: 1,
        }
    }
}

impl Journal {
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Bytes that wait for the disk.
    #[inline]
    pub(crate) fn unsynced_bytes(&self) -> usize {
        self.unsynced_bytes
    }

    /// The disk is slow beyond measure.
    #[inline]
    pub(crate) fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// Why nothing can be kept.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        self.trouble
    }

    /// What the driver says about that; false if it is no news.
    pub(super) fn set_trouble(&mut self, trouble: Option<Trouble>) -> bool {
        core::mem::replace(&mut self.trouble, trouble) != trouble
    }

    pub(super) fn set_stalled(&mut self, is_stalled: bool) {
        self.is_stalled = is_stalled;
    }

    /// Something is owed to this connection.
    pub(super) fn list_owed(&mut self, conn: ConnId) {
        self.waiting.push(conn);
    }

    pub(super) fn take_owed(&mut self) -> Vec<ConnId> {
        core::mem::take(&mut self.waiting)
    }

    /// Something is still owed to these, before others that were added meanwhile.
    pub(super) fn put_owed_back(&mut self, mut waiting: Vec<ConnId>) {
        waiting.append(&mut self.waiting);
        self.waiting = waiting;
    }

    pub(super) fn turn_on(&mut self, index: usize, shards: usize, number_max: u64) {
        self.is_on = true;
        self.next_number = number_max + 1 + index as u64;
        self.step = shards as u64;
    }

    pub(super) fn number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += self.step;
        number
    }

    /// The number of this turn.
    pub(crate) fn turn(&self) -> u64 {
        self.turn
    }

    /// To find out later whether anything has changed since.
    #[inline]
    pub(crate) fn mark(&self) -> (usize, u64) {
        (self.changes.len(), self.asks)
    }

    /// What an answer has to wait for, to what was done since.
    #[inline]
    pub(crate) fn until(&self, mark: (usize, u64)) -> Until {
        if self.asks != mark.1 {
            Until::Kept(self.turn)
        } else if self.changes.len() != mark.0 {
            Until::Synced(self.turn)
        } else {
            Until::Now
        }
    }

    /// Everything that was done so far, on this shard or on all.
    pub(crate) fn until_synced(&self) -> Until {
        if self.changes.is_empty() { Until::Synced(self.turn - 1) } else { Until::Synced(self.turn) }
    }

    /// The same for one session, which nothing of that concerns if it does not last.
    pub(crate) fn until_synced_for(&self, session: u64) -> Until {
        if session == 0 { Until::Now } else { self.until_synced() }
    }

    pub(crate) fn until_kept(&self) -> Until {
        if self.changes.is_empty() && self.asked.is_empty() {
            Until::Kept(self.turn - 1)
        } else {
            Until::Kept(self.turn)
        }
    }

    pub(crate) fn is_met(&self, until: Until) -> bool {
        match until {
            Until::Now => true,
            Until::Synced(turn) => turn <= self.synced,
            Until::Kept(turn) => turn <= self.kept,
        }
    }

    /// Somebody waits for this.
    pub(super) fn await_until(&mut self, until: Until) {
        if let Until::Synced(turn) | Until::Kept(turn) = until {
            self.awaited = self.awaited.max(turn);
        }
    }

    #[inline]
    pub(super) fn push(&mut self, change: StoreChange) {
        self.charge(CHANGE_BYTES);
        self.changes.push(change);
    }

    fn charge(&mut self, bytes: usize) {
        self.turn_bytes += bytes;
        self.unsynced_bytes += bytes;
    }

    pub(super) fn push_message(&mut self, message: &Arc<Message>) {
        self.charge(message.size());
        self.push(StoreChange::Message(StoredMessage(Arc::clone(message))));
    }

    /// What was pushed until now belongs together.
    #[inline]
    pub(crate) fn end_whole(&mut self) {
        if self.changes.len() != self.whole {
            self.changes.push(StoreChange::Whole);
            self.whole = self.changes.len();
        }
    }

    /// A message that somebody waits for goes to this shard.
    pub(crate) fn ask(&mut self, shard: usize) {
        if self.is_on {
            self.asked.insert(shard);
            self.asks += 1;
        }
    }

    /// A message that came from one shard went on to another in this turn: the first is told that it is kept when the
    /// second has said so.
    pub(crate) fn pass(&mut self, from: usize, to: usize) {
        let pass = (from, Pass { turn: self.turn, to });
        if self.is_on && !self.passed.contains(&pass) {
            self.passed.push(pass);
        }
    }

    /// A session has something to send when this turn is synced; which one this is.
    pub(crate) fn wait_for_turn(&mut self, session: u32, generation: u32) -> u64 {
        if self.sessions.back() != Some(&(self.turn, session, generation)) {
            self.sessions.push_back((self.turn, session, generation));
        }
        self.awaited = self.turn;
        self.turn
    }

    /// A session has messages that need not stay in memory when this turn is synced; to be said once for each turn.
    pub(crate) fn page_after_turn(&mut self, session: u32, generation: u32) {
        self.paging.push_back((self.turn, session, generation));
    }

    pub(super) fn route(&mut self, message: Arc<Message>) {
        self.routing.push(message);
    }
}
