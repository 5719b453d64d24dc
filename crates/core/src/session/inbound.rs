//! Numbers of QoS 2 messages that a client has sent and not released yet.

use alloc::vec::Vec;

use tidegate_wire_mqtt::PacketId;

/// Sorted: a client before MQTT 5 may leave 65 535 of them.
#[derive(Debug, Default)]
pub(crate) struct InboundIds {
    ids: Vec<PacketId>,
    /// How many of them, at most, are left from earlier connections.
    before: usize,
}

impl InboundIds {
    /// Those that a session had in an earlier life.
    pub(crate) fn restored(mut ids: Vec<PacketId>) -> Self {
        ids.sort_unstable();
        Self { before: ids.len(), ids }
    }

    /// A new connection: all that are there are left from earlier ones.
    pub(crate) fn begin_connection(&mut self) {
        self.before = self.ids.len();
    }

    /// How many came by this connection, at least. What is left from earlier ones does not count against its window (section
    /// 4.9).
    pub(crate) fn of_connection(&self) -> usize {
        self.ids.len() - self.before
    }

    pub(crate) fn contains(&self, id: PacketId) -> bool {
        self.ids.binary_search(&id).is_ok()
    }

    pub(crate) fn insert(&mut self, id: PacketId) {
        if let Err(position) = self.ids.binary_search(&id) {
            self.ids.insert(position, id);
        }
    }

    /// Forgets one; false if it is not there.
    pub(crate) fn remove(&mut self, id: PacketId) -> bool {
        let Ok(position) = self.ids.binary_search(&id) else { return false };
        self.ids.remove(position);
        // Which ones are left from before is not remembered: in doubt for the client.
        self.before = self.before.min(self.ids.len());
        true
    }
}
