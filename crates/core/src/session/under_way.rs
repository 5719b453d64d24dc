//! Messages of a session that are under way: sent, or about to be, and not acknowledged yet, in the order of their numbers'
//! giving.
//!
//! Two counts go with them, how many are to be sent again and how many wait for the disk, so that nobody has to look through
//! all to know that there is none. Nothing but this file changes either.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use tidegate_wire_mqtt::PacketId;

use super::Queued;

/// What is under way to one client.
#[derive(Debug)]
pub(crate) struct UnderWay {
    messages: VecDeque<Inflight>,
    /// How many the client wants at the same time.
    window: u16,
    /// How many wait to be sent again on a connection whose window is smaller than the last one's.
    unsent: u32,
    /// How many have an identifier and may not be sent before that is kept.
    unsynced: u32,
    next_packet_id: PacketId,
}

/// A message under way.
#[derive(Debug)]
struct Inflight {
    packet_id: PacketId,
    stage: InflightStage,
    /// It was sent on an earlier connection, and not yet on this one; or its client has given it back.
    is_unsent: bool,
    /// It is sent when this turn is synced; 0 once it was.
    after: u64,
}

#[derive(Debug)]
pub(crate) enum InflightStage {
    /// QoS 1 or 2: sent, waiting for PUBACK or PUBREC.
    Sent(Queued),
    /// QoS 2: PUBREC came, PUBREL is sent, waiting for PUBCOMP. The message itself is no longer needed.
    Released {
        /// As it was; see `Queued`.
        place: u64,
    },
}

/// One that is to be sent now, and where it stands.
#[derive(Debug)]
pub(crate) struct DueMessage {
    pub(crate) position: usize,
    pub(crate) packet_id: PacketId,
    pub(crate) queued: Queued,
}

impl Default for UnderWay {
    fn default() -> Self {
        let (messages, next_packet_id) = (VecDeque::new(), PacketId::MIN);
        Self { messages, window: u16::MAX, unsent: 0, unsynced: 0, next_packet_id }
    }
}

impl UnderWay {
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(crate) fn set_window(&mut self, window: u16) {
        self.window = window;
    }

    #[inline]
    pub(crate) fn has_window(&self) -> bool {
        self.messages.len() < usize::from(self.window)
    }

    /// Whether some are to be sent again.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent > 0
    }

    /// Whether some wait for the disk.
    pub(crate) fn has_unsynced(&self) -> bool {
        self.unsynced > 0
    }

    /// An identifier that is not in use. There is one, because a window is smaller than the number of identifiers.
    pub(crate) fn take_packet_id(&mut self) -> PacketId {
        loop {
            let id = self.next_packet_id;
            self.next_packet_id = id.checked_add(1).unwrap_or(PacketId::MIN);
            if self.position(id).is_none() {
                return id;
            }
        }
    }

    /// One more is under way; `after`: the turn that has to be synced before it is sent, or 0.
    pub(crate) fn push(&mut self, packet_id: PacketId, stage: InflightStage, after: u64) {
        self.unsynced += u32::from(after != 0);
        self.messages.push_back(Inflight { packet_id, stage, is_unsent: false, after });
    }

    pub(crate) fn position(&self, id: PacketId) -> Option<usize> {
        self.messages.iter().position(|inflight| inflight.packet_id == id)
    }

    pub(crate) fn stage(&self, position: usize) -> Option<&InflightStage> {
        self.messages.get(position).map(|inflight| &inflight.stage)
    }

    /// Those that the client has not confirmed, and whether each was sent already.
    pub(crate) fn unconfirmed(&self) -> impl Iterator<Item = (&Queued, bool)> {
        self.messages.iter().filter_map(|inflight| match &inflight.stage {
            InflightStage::Sent(queued) => Some((queued, inflight.after == 0)),
            InflightStage::Released { .. } => None,
        })
    }

    /// Takes one that is done, or refused.
    pub(crate) fn finish(&mut self, position: usize) -> Option<InflightStage> {
        let finished = self.messages.remove(position)?;
        self.unsent -= u32::from(finished.is_unsent);
        self.unsynced -= u32::from(finished.after != 0);
        Some(finished.stage)
    }

    /// Takes back the one that was just put here, if it is this one.
    pub(crate) fn take_back(&mut self, packet_id: PacketId) -> Option<InflightStage> {
        let last = self.messages.back().filter(|last| last.packet_id == packet_id)?;
        debug_assert!(!last.is_unsent, "sent on an earlier connection");
        self.finish(self.messages.len() - 1)
    }

    /// The client has a QoS 2 message; the answer is how far that one was before.
    pub(crate) fn release(&mut self, position: usize) -> Option<InflightStage> {
        let inflight = self.messages.get_mut(position)?;
        self.unsent -= u32::from(core::mem::take(&mut inflight.is_unsent));
        self.unsynced -= u32::from(core::mem::take(&mut inflight.after) != 0);
        let place = match &inflight.stage {
            InflightStage::Sent(queued) => queued.place,
            InflightStage::Released { place } => *place,
        };
        Some(core::mem::replace(&mut inflight.stage, InflightStage::Released { place }))
    }

    /// The first whose turn is synced: it is to be sent now.
    pub(crate) fn take_synced(&mut self, is_synced: impl Fn(u64) -> bool) -> Option<DueMessage> {
        let is_due = |inflight: &Inflight| inflight.after != 0 && is_synced(inflight.after);
        while self.unsynced > 0 {
            let position = self.messages.iter().position(is_due)?;
            let inflight = self.messages.get_mut(position)?;
            inflight.after = 0;
            self.unsynced -= 1;
            if let InflightStage::Sent(queued) = &inflight.stage {
                return Some(DueMessage { position, packet_id: inflight.packet_id, queued: queued.clone() });
            }
        }
        None
    }

    /// The client has a new connection: all that were sent are to be sent again. The answer is each number in order, and
    /// whether its message is to be sent; if not, that it is released is to be said.
    pub(crate) fn begin_again(&mut self) -> Vec<(PacketId, bool)> {
        let mut steps = Vec::with_capacity(self.messages.len());
        self.unsent = 0;
        // What has never been sent because its identifier is not kept goes on waiting for that.
        for inflight in self.messages.iter_mut().filter(|inflight| inflight.after == 0) {
            inflight.is_unsent = matches!(inflight.stage, InflightStage::Sent(_));
            self.unsent += u32::from(inflight.is_unsent);
            steps.push((inflight.packet_id, inflight.is_unsent));
        }
        steps
    }

    /// These are to be sent again on the same connection, as far as they were sent.
    pub(crate) fn offer_again(&mut self, numbers: &BTreeSet<PacketId>) {
        let is_sent = |inflight: &Inflight| {
            !inflight.is_unsent && inflight.after == 0 && matches!(inflight.stage, InflightStage::Sent(_))
        };
        for inflight in self.messages.iter_mut().filter(|inflight| numbers.contains(&inflight.packet_id)) {
            if is_sent(inflight) {
                inflight.is_unsent = true;
                self.unsent += 1;
            }
        }
    }

    /// The first that is to be sent again, if there is one and the window has room for it: from now on it is sent.
    pub(crate) fn take_unsent(&mut self) -> Option<DueMessage> {
        if self.unsent == 0 || self.messages.len() - self.unsent as usize >= usize::from(self.window) {
            return None;
        }
        let position = self.messages.iter().position(|inflight| inflight.is_unsent)?;
        let again = self.messages.get_mut(position)?;
        let InflightStage::Sent(queued) = &again.stage else { return None };
        let due = DueMessage { position, packet_id: again.packet_id, queued: queued.clone() };
        again.is_unsent = false;
        self.unsent -= 1;
        Some(due)
    }
}
