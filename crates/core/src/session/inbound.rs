//! Numbers of QoS 2 messages that a client has sent and not released yet.

use alloc::boxed::Box;
use alloc::vec::Vec;

use tidegate_wire_mqtt::PacketId;

/// None, of nearly everybody.
#[derive(Debug, Default)]
pub(crate) struct InboundIds(Option<Box<Unreleased>>);

/// Sorted: a client before MQTT 5 may leave 65 535 of them.
#[derive(Debug, Default)]
struct Unreleased {
    ids: Vec<PacketId>,
    /// How many of them, at most, are left from earlier connections.
    before: usize,
}

impl InboundIds {
    /// Those that a session had in an earlier life.
    pub(crate) fn restored(mut ids: Vec<PacketId>) -> Self {
        if ids.is_empty() {
            return Self::default();
        }
        ids.sort_unstable();
        Self(Some(Box::new(Unreleased { before: ids.len(), ids })))
    }

    /// A new connection: all that are there are left from earlier ones.
    pub(crate) fn begin_connection(&mut self) {
        if let Some(known) = &mut self.0 {
            known.before = known.ids.len();
        }
    }

    /// How many came by this connection, at least. What is left from earlier ones does not count against its window (section
    /// 4.9).
    pub(crate) fn of_connection(&self) -> usize {
        self.0.as_ref().map_or(0, |known| known.ids.len() - known.before)
    }

    pub(crate) fn contains(&self, id: PacketId) -> bool {
        self.0.as_ref().is_some_and(|known| known.ids.binary_search(&id).is_ok())
    }

    pub(crate) fn insert(&mut self, id: PacketId) {
        let known = self.0.get_or_insert_default();
        if let Err(position) = known.ids.binary_search(&id) {
            known.ids.insert(position, id);
        }
    }

    /// Forgets one; false if it is not there.
    pub(crate) fn remove(&mut self, id: PacketId) -> bool {
        let Some(known) = &mut self.0 else { return false };
        let Ok(position) = known.ids.binary_search(&id) else { return false };
        known.ids.remove(position);
        // Which ones are left from before is not remembered: in doubt for the client. Their room stays until the session ends:
        // whoever uses it once does so again.
        known.before = known.before.min(known.ids.len());
        true
    }
}
