//! What was changed and not yet kept: the changes of this turn, and the turns before it that are not settled.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_control::Timestamp;

use super::{StoreChange, StoredMessage, Trouble, Turn};
use crate::between::{Envelope, ShardSet};
use crate::message::Message;
use crate::shard::ConnId;
use crate::state::ShardState;

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
    pub(super) is_on: bool,
    /// Why nothing can be kept at the moment.
    pub(super) trouble: Option<Trouble>,
    /// The disk is slow beyond measure.
    pub(super) is_stalled: bool,
    pub(super) changes: Vec<StoreChange>,
    /// Length of `changes` at the last `Whole`.
    whole: usize,
    /// Payload bytes of this turn, and of it and all turns that are not synced.
    turn_bytes: usize,
    pub(super) unsynced_bytes: usize,
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
    pub(super) waiting: Vec<ConnId>,
    /// Sessions with messages that may be sent once a turn is synced, in order of turns.
    pub(super) sessions: VecDeque<(u64, u32, u32)>,
    /// Sessions with messages that may leave memory once a turn is synced, in order of turns.
    pub(super) paging: VecDeque<(u64, u32, u32)>,
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

    /// Whether what was passed on is kept where it went.
    fn has_arrived(&self, Pass { turn, to }: Pass) -> bool {
        let pending = self.pending.binary_search_by_key(&turn, |pending| pending.number).ok();
        let is_open = pending.and_then(|at| self.pending.get(at)).is_some_and(|pending| pending.asked.contains(to));
        turn < self.turn && !is_open
    }

    /// The next receipt that may be given. They need not be in order: one that waits for a third shard holds up nobody, or
    /// two shards could wait for each other behind such.
    fn next_receipt(&mut self) -> Option<Receipt> {
        let is_due = |receipt: &Receipt| receipt.passed.iter().all(|pass| self.has_arrived(*pass));
        if let Some(at) = self.passing.iter().position(is_due) {
            return Some(self.passing.swap_remove(at));
        }
        while self.receipts.front().is_some_and(|receipt| receipt.turn <= self.synced) {
            let receipt = self.receipts.pop_front()?;
            if receipt.passed.iter().all(|pass| self.has_arrived(*pass)) {
                return Some(receipt);
            }
            self.passing.push(receipt);
        }
        None
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

    /// Ends the turn; its changes, and the shards to ask.
    fn end_turn(&mut self) -> (Option<Turn>, u64, ShardSet) {
        self.whole = 0;
        let (number, asked) = (self.turn, core::mem::take(&mut self.asked));
        let changes = core::mem::take(&mut self.changes);
        if changes.is_empty() && asked.is_empty() {
            return (None, number, asked);
        }
        self.turn += 1;
        self.pending.push_back(Pending {
            number,
            is_synced: changes.is_empty(),
            bytes: core::mem::take(&mut self.turn_bytes),
            asked: asked.clone(),
            routing: core::mem::take(&mut self.routing),
        });
        ((!changes.is_empty()).then_some(Turn { position: number, changes }), number, asked)
    }

    /// Brings the two marks up to date; the messages that have reached everybody.
    fn advance(&mut self) -> Vec<Arc<Message>> {
        let first = self.pending.iter().find(|turn| !turn.is_synced);
        self.synced = first.map_or(self.turn, |turn| turn.number) - 1;
        let mut routed = Vec::new();
        while self.pending.front().is_some_and(|turn| turn.is_synced && turn.asked.is_empty()) {
            routed.extend(self.pending.pop_front().into_iter().flat_map(|turn| turn.routing));
        }
        self.kept = self.pending.front().map_or(self.turn, |turn| turn.number) - 1;
        routed
    }
}

impl ShardState {
    pub(crate) fn poll_journal(&mut self) -> Option<Turn> {
        if !self.journal.is_on {
            return None;
        }
        let (turn, number, asked) = self.journal.end_turn();
        for shard in asked.iter() {
            self.links.send(shard, &Envelope::Ask { turn: number });
        }
        turn
    }

    pub(crate) fn awaited_turn(&self) -> u64 {
        self.journal.awaited
    }

    pub(crate) fn handle_synced(&mut self, position: u64, now: Timestamp) {
        for turn in self.journal.pending.iter_mut().take_while(|turn| turn.number <= position) {
            if !turn.is_synced {
                turn.is_synced = true;
                self.journal.unsynced_bytes -= core::mem::take(&mut turn.bytes);
            }
        }
        self.settle_turns(now);
    }

    /// Another shard asks to be told when what came from it is kept.
    pub(crate) fn handle_ask(&mut self, from: usize, theirs: u64, now: Timestamp) {
        let Until::Synced(turn) = self.journal.until_synced() else { return };
        self.journal.await_until(Until::Synced(turn));
        let theirs_passed = self.journal.passed.extract_if(.., |(sender, _)| *sender == from);
        let passed = theirs_passed.map(|(_, pass)| pass).collect();
        self.journal.receipts.push_back(Receipt { turn, from, theirs, passed });
        self.settle_turns(now);
    }

    /// Another shard has kept what it got from us in that turn.
    pub(crate) fn handle_kept(&mut self, from: usize, turn: u64, now: Timestamp) {
        let pending = &mut self.journal.pending;
        if let Ok(at) = pending.binary_search_by_key(&turn, |pending| pending.number)
            && let Some(pending) = pending.get_mut(at)
        {
            pending.asked.remove(from);
        }
        self.settle_turns(now);
    }

    fn settle_turns(&mut self, now: Timestamp) {
        let routed = self.journal.advance();
        let synced = self.journal.synced;
        while let Some(receipt) = self.journal.next_receipt() {
            self.links.send(receipt.from, &Envelope::Kept { turn: receipt.theirs });
        }
        for message in routed {
            self.end_routing(&message);
        }
        self.pay_owed(now);
        while self.journal.sessions.front().is_some_and(|(turn, ..)| *turn <= synced) {
            let Some((_, index, generation)) = self.journal.sessions.pop_front() else { break };
            if self.sessions.generation(index) == Some(generation) {
                self.send_synced(index, now);
            }
        }
        while self.journal.paging.front().is_some_and(|(turn, ..)| *turn <= synced) {
            let Some((_, index, generation)) = self.journal.paging.pop_front() else { break };
            if self.sessions.generation(index) == Some(generation) {
                self.page_out(index);
            }
        }
    }
}
