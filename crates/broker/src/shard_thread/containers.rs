//! AMQP: connections as those of MQTT are, read by `tidegate_face_amqp`.

use tidegate_control::Timestamp;
use tidegate_core::{ConnId, Portion, Progress, Shard};
use tidegate_face_amqp::{AmqpDoor, AmqpStats, Arrival};
use tidegate_wire_mqtt::{ReasonCode, Version};

use super::ShardThread;
use super::connection::Spoken;
use crate::thread_message::Handover;

/// The door of one shard.
#[derive(Debug, Default)]
pub(super) struct ContainerDoor {
    door: AmqpDoor,
    /// What was last shown of its counters.
    shown: Option<AmqpStats>,
}

impl ContainerDoor {
    /// When to go on without being told.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.door.poll_timeout()
    }

    pub(super) fn handle_portion(
        &mut self,
        shard: &mut Shard,
        id: ConnId,
        bytes: &[u8],
        portion: &Portion,
        now: Timestamp,
    ) -> Progress {
        self.door.handle_portion(shard, id, bytes, portion, now)
    }
}

impl ShardThread {
    /// From now on AMQP is spoken here.
    pub(crate) fn open_containers(&mut self) {
        self.amqp = Some(Box::default());
    }

    /// A container is ours.
    pub(super) fn adopt_container(&mut self, handover: Handover) {
        if handover.generation < self.rules.generation {
            // Which version, nobody asks of AMQP.
            return self.ask_again(handover, Version::V311);
        }
        let Some(hello) = &handover.amqp else { return };
        let arrival = Arrival { client_id: &handover.client_id, identity: handover.identity.clone(), hello };
        let amqp = self.amqp.get_or_insert_default();
        let Some(conn) = amqp.door.enter(&mut self.shard, arrival, self.now) else {
            return self.turn_away(handover, ReasonCode::QuotaExceeded);
        };
        let Handover { link, rest, valid_for, .. } = handover;
        if !self.seat(conn, link, rest, valid_for) {
            return self.forget_container(conn);
        }
        if let Some(connection) = self.connections.get(conn) {
            connection.spoken = Spoken::Amqp;
        }
    }

    /// The core has no such connection any more.
    pub(super) fn forget_container(&mut self, id: ConnId) {
        if let Some(amqp) = &mut self.amqp {
            amqp.door.forget(id);
        }
    }

    /// Signs of life, and credit by the second.
    pub(super) fn turn_containers(&mut self) {
        let Some(amqp) = &mut self.amqp else { return };
        amqp.door.turn(&mut self.shard, self.now);
        let stats = amqp.door.stats();
        if amqp.shown != Some(stats) {
            amqp.shown = Some(stats);
            self.shared.extra_metrics.show_amqp(self.index, stats);
        }
    }
}
