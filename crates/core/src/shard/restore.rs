//! A shard as it was, put back before anybody connects.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;

use tidegate_control::Timestamp;

use super::Shard;
use crate::persist::{SavedDelivery, SavedMessage, SavedRhythm, SavedSession, StoredMessage};

impl Shard {
    /// From now on, everything that should outlive the process is told; see [`Shard::poll_journal`]. Numbers up to this
    /// one are in use.
    pub fn keep_journal(&mut self, number_max: u64) {
        self.state.keep_journal(number_max);
    }

    /// A message that was kept under this number.
    pub fn restore_message(&mut self, number: u64, saved: &SavedMessage<'_>) -> StoredMessage {
        self.state.restore_message(number, saved)
    }

    /// Whether messages that wait may be restored as [`SavedStage::OnDisk`](crate::persist::SavedStage::OnDisk), as far as their class decides: not if only the
    /// newest of each topic is wanted, because their topics have to be known, nor if it is bounded. What subscriptions
    /// say: [`wants_latest`](crate::persist::wants_latest). `class`: as in `OnDisk`.
    pub fn may_restore_on_disk(&self, class: u8) -> bool {
        self.state.may_restore_on_disk(class)
    }

    /// A retained message. Every shard has all of them.
    pub fn restore_retained(&mut self, message: &StoredMessage, now: Timestamp) {
        self.state.restore_retained(message, now);
    }

    /// A QoS 2 message that was on its way to other shards when the process ended: whoever should have it and has not
    /// got it gets it. To be asked of every shard when all sessions are back; then of one of them `end_restored_routing`.
    /// `groups` are those that have got it, as `$share/group/filter`; first as they were noted.
    pub fn restore_routing(
        &mut self,
        message: &StoredMessage,
        reached: &BTreeSet<u64>,
        groups: &mut BTreeSet<Box<str>>,
        now: Timestamp,
    ) {
        self.state.restore_routing(message, reached, groups, now);
    }

    /// All shards have been asked.
    pub fn end_restored_routing(&mut self, message: u64) {
        self.state.end_restored_routing(message);
    }

    /// A rhythm from before a restart. Nothing happens if it is no publisher of this shard's, or if none are watched.
    pub fn restore_rhythm(&mut self, saved: &SavedRhythm, now: Timestamp) {
        self.state.restore_rhythm(saved, now);
    }

    /// A session, which belongs to this shard, and the messages that wait for it or are under way, by place: `next` is
    /// asked for them one after the other, because there may be millions. What is due by now is done: it ends, or in the
    /// first turn its will is published.
    pub fn restore_session(
        &mut self,
        mut saved: SavedSession<'_>,
        mut next: impl FnMut(&mut Self) -> Option<SavedDelivery>,
        now: Timestamp,
    ) {
        let mut session = self.state.session_of_saved(&mut saved, now);
        while let Some(delivery) = next(self) {
            self.state.restore_delivery(&mut session, &saved.subscriptions, delivery, now);
        }
        self.state.restore_session(session, saved, now);
    }
}
