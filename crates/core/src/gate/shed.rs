//! The last resort: memory is all but used up (level 4), and somebody takes nothing of what waits for it.
//!
//! Once a second the connection with the most bytes in its outbox is cut, if they are many. Its session stays; QoS 1 and
//! 2 are sent again when it is back. What was in the outbox may end in the middle of a packet, so no goodbye can follow.

use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::pressure::Level;
use tidegate_wire_mqtt::ReasonCode;

use crate::event::Why;
use crate::limits::SHED_BYTES_MIN;
use crate::state::ShardState;

const EVERY: Duration = Duration::from_secs(1);

impl ShardState {
    #[inline]
    pub(crate) fn shed(&mut self, now: Timestamp) {
        if self.gate.level == Level::Emergency && now.since(self.gate.shed_at) >= EVERY {
            self.gate.shed_at = now;
            self.cut_the_worst(now);
        }
    }

    #[cold]
    fn cut_the_worst(&mut self, now: Timestamp) {
        let open = self.connections.iter().filter(|(_, connection)| !connection.is_closing());
        let worst = open.map(|(index, connection)| (connection.outbox_len(), index)).max();
        let Some((_, index)) = worst.filter(|(bytes, _)| *bytes >= SHED_BYTES_MIN) else { return };
        let conn = self.conn_id(index);
        if let Some(connection) = self.connections.get_mut(index) {
            self.memory.release_outbox(connection.outbox_len());
            connection.clear_outbox(&mut self.spares);
        }
        self.cut(conn, Why::Ended(ReasonCode::QuotaExceeded), now);
    }
}
