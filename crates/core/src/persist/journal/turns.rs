//! The end of a turn, and what follows when turns are kept: here, or at another shard that was asked.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_control::Timestamp;

use super::{Journal, Pass, Pending, Receipt, Until};
use crate::between::{Envelope, ShardSet};
use crate::message::Message;
use crate::persist::Turn;
use crate::state::ShardState;

impl Journal {
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

    /// The last turn that somebody waits for.
    fn awaited(&self) -> u64 {
        self.awaited
    }

    /// Every turn up to this one is on disk.
    fn note_synced(&mut self, position: u64) {
        for turn in self.pending.iter_mut().take_while(|turn| turn.number <= position) {
            if !turn.is_synced {
                turn.is_synced = true;
                self.unsynced_bytes -= core::mem::take(&mut turn.bytes);
            }
        }
    }

    /// Another shard asks to be told when what came from it is kept; false if there is nothing to wait for.
    fn note_asked(&mut self, from: usize, theirs: u64) -> bool {
        let Until::Synced(turn) = self.until_synced() else { return false };
        self.await_until(Until::Synced(turn));
        let theirs_passed = self.passed.extract_if(.., |(sender, _)| *sender == from);
        let passed = theirs_passed.map(|(_, pass)| pass).collect();
        self.receipts.push_back(Receipt { turn, from, theirs, passed });
        true
    }

    /// Another shard has kept what it got from us in that turn.
    fn note_kept(&mut self, from: usize, turn: u64) {
        if let Ok(at) = self.pending.binary_search_by_key(&turn, |pending| pending.number)
            && let Some(pending) = self.pending.get_mut(at)
        {
            pending.asked.remove(from);
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

    /// The next shard that is to be told that a turn of its is kept, and which.
    fn next_kept(&mut self) -> Option<(usize, u64)> {
        self.next_receipt().map(|receipt| (receipt.from, receipt.theirs))
    }

    /// The next session, and its generation, with messages that may be sent now that turns are synced.
    fn next_to_send(&mut self) -> Option<(u32, u32)> {
        next_synced(&mut self.sessions, self.synced)
    }

    /// The same for messages that may leave memory.
    fn next_to_page(&mut self) -> Option<(u32, u32)> {
        next_synced(&mut self.paging, self.synced)
    }
}

fn next_synced(sessions: &mut VecDeque<(u64, u32, u32)>, synced: u64) -> Option<(u32, u32)> {
    sessions.front().filter(|(turn, ..)| *turn <= synced)?;
    sessions.pop_front().map(|(_, session, generation)| (session, generation))
}

impl ShardState {
    pub(crate) fn poll_journal(&mut self) -> Option<Turn> {
        if !self.journal.is_on() {
            return None;
        }
        let (turn, number, asked) = self.journal.end_turn();
        for shard in asked.iter() {
            self.links.send(shard, &Envelope::Ask { turn: number });
        }
        turn
    }

    pub(crate) fn awaited_turn(&self) -> u64 {
        self.journal.awaited()
    }

    pub(crate) fn handle_synced(&mut self, position: u64, now: Timestamp) {
        self.journal.note_synced(position);
        self.settle_turns(now);
    }

    /// Another shard asks to be told when what came from it is kept.
    pub(crate) fn handle_ask(&mut self, from: usize, theirs: u64, now: Timestamp) {
        if self.journal.note_asked(from, theirs) {
            self.settle_turns(now);
        }
    }

    /// Another shard has kept what it got from us in that turn.
    pub(crate) fn handle_kept(&mut self, from: usize, turn: u64, now: Timestamp) {
        self.journal.note_kept(from, turn);
        self.settle_turns(now);
    }

    fn settle_turns(&mut self, now: Timestamp) {
        let routed = self.journal.advance();
        while let Some((shard, turn)) = self.journal.next_kept() {
            self.links.send(shard, &Envelope::Kept { turn });
        }
        for message in routed {
            self.end_routing(&message);
        }
        self.pay_owed(now);
        while let Some((index, generation)) = self.journal.next_to_send() {
            if self.sessions.generation(index) == Some(generation) {
                self.send_synced(index, now);
            }
        }
        while let Some((index, generation)) = self.journal.next_to_page() {
            if self.sessions.generation(index) == Some(generation) {
                self.page_out(index);
            }
        }
    }
}
