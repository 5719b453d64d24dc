//! What a session's client has published and what has to wait before it is taken. `gate::hold` decides about it.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{Delivery, PacketId, QoS};

use super::Session;
use crate::classes::ClassId;
use crate::event::Stats;
use crate::message::Message;
use crate::settings::Settings;

#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) message: Arc<Message>,
    pub(crate) delivery: Delivery,
    pub(crate) release_at: Timestamp,
    pub(crate) came: Timestamp,
    pub(crate) answer: HeldAnswer,
}

/// Whether the acknowledgement of a held message is still wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldAnswer {
    Owed,
    /// The connection that it came by is gone.
    Void,
}

#[derive(Debug, Default)]
pub(crate) struct HoldQueue {
    messages: VecDeque<Held>,
    bytes: usize,
}

impl HoldQueue {
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether a message of this class and size may wait, too.
    pub(crate) fn has_room(&self, class: ClassId, size: usize, settings: &Settings) -> bool {
        let (bounds, class_max) = (&settings.back_off, settings.priority.bytes_max(class));
        let is_of_class = |held: &&Held| held.message.class() == class;
        let of_class = || self.messages.iter().filter(is_of_class).map(|held| held.message.size()).sum::<usize>();
        self.messages.len() < bounds.hold_messages_max
            && self.bytes + size <= bounds.hold_bytes_max
            && (class_max == usize::MAX || of_class() + size <= class_max)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn into_messages(self) -> impl Iterator<Item = Held> {
        self.messages.into_iter()
    }

    pub(crate) fn first_release(&self) -> Option<Timestamp> {
        self.messages.front().map(|held| held.release_at)
    }

    pub(crate) fn last_release(&self) -> Option<Timestamp> {
        self.messages.back().map(|held| held.release_at)
    }

    /// The held message with this identifier and quality of service.
    fn find_mut(&mut self, delivery: Delivery) -> Option<&mut Held> {
        let same = |held: &&mut Held| id_of(held.delivery) == id_of(delivery) && held.delivery.qos() == delivery.qos();
        self.messages.iter_mut().find(same)
    }

    /// QoS 1 messages that the client waits for. (Those of QoS 2 are in `Session::inbound`.)
    pub(crate) fn unacknowledged(&self) -> usize {
        let is_owed = |held: &&Held| held.delivery.qos() == QoS::AtLeastOnce && held.answer == HeldAnswer::Owed;
        self.messages.iter().filter(is_owed).count()
    }

    /// The connection is gone.
    fn void_answers(&mut self) {
        self.messages.iter_mut().for_each(|held| held.answer = HeldAnswer::Void);
    }
}

fn id_of(delivery: Delivery) -> Option<PacketId> {
    delivery.packet_id()
}

impl Session {
    /// What waits before it is taken; none if nothing does.
    #[inline]
    pub(crate) fn held(&self) -> Option<&HoldQueue> {
        self.held.as_deref()
    }

    #[inline]
    pub(crate) fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    pub(crate) fn held_len(&self) -> usize {
        self.held.as_ref().map_or(0, |queue| queue.len())
    }

    pub(crate) fn held_mut(&mut self) -> impl Iterator<Item = &mut Held> {
        self.held.iter_mut().flat_map(|queue| &mut queue.messages)
    }

    pub(crate) fn hold(&mut self, held: Held, stats: &mut Stats) {
        let size = held.message.size();
        stats.clients_held += u64::from(self.held.is_none());
        let queue = self.held.get_or_insert_default();
        queue.bytes += size;
        stats.held_messages += 1;
        stats.held_bytes += size as u64;
        queue.messages.push_back(held);
    }

    /// The first, if its time has come.
    pub(crate) fn take_due(&mut self, now: Timestamp, stats: &mut Stats) -> Option<Held> {
        let queue = self.held.as_mut()?;
        if queue.first_release()? > now {
            return None;
        }
        let held = queue.messages.pop_front()?;
        let size = held.message.size();
        queue.bytes -= size;
        stats.held_messages -= 1;
        stats.held_bytes -= size as u64;
        if queue.messages.is_empty() {
            self.held = None;
            stats.clients_held -= 1;
        }
        Some(held)
    }

    /// All of them; whoever takes them takes them out of the gauges.
    pub(crate) fn take_held(&mut self) -> Option<Box<HoldQueue>> {
        self.held.take()
    }

    /// It goes on with what its client's last session left.
    pub(crate) fn take_over(&mut self, ghost: Self) {
        self.held = ghost.held;
        self.ledger = ghost.ledger;
    }

    /// The connection is gone: what is held is not to be answered.
    pub(crate) fn void_held_answers(&mut self) {
        if let Some(queue) = &mut self.held {
            queue.void_answers();
        }
    }

    /// A message came again: if it is held, it is to be answered. False if it is not.
    pub(crate) fn is_answer_owed(&mut self, delivery: Delivery) -> bool {
        let held = self.held.as_mut().and_then(|queue| queue.find_mut(delivery));
        held.map(|held| held.answer = HeldAnswer::Owed).is_some()
    }

    /// Whether a timer is set that comes before this.
    pub(crate) fn wakes_before(&self, at: Timestamp) -> bool {
        self.wake_at.get().is_some_and(|set| set <= at)
    }

    pub(crate) fn set_wake(&mut self, at: Timestamp) {
        self.wake_at.set(Some(at));
    }

    /// A timer has come; false if it is not the one that counts.
    pub(crate) fn take_wake(&mut self, at: Timestamp) -> bool {
        let is_it = self.wake_at.get() == Some(at);
        if is_it {
            self.wake_at.set(None);
        }
        is_it
    }
}
