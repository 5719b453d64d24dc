//! Receivers whose kernel is asked what they have read; see `unread`. The driver reads the figures, where it can.

use tidegate_control::Timestamp;

use crate::classes::PriorityMode;
use crate::limits::PORTIONED_MAX;
use crate::session::Session;
use crate::shard::{ConnId, Shard};
use crate::unread::{Change, TcpState};

impl Shard {
    /// When a connection that was written or looked at should be looked at next with [`Shard::handle_look`]; none if there is
    /// no need. Never without priorities: nothing overtakes anything then.
    #[inline]
    pub fn next_look(&self, conn: ConnId, now: Timestamp) -> Option<Timestamp> {
        let at = self.connection(conn)?.unread.next_look(now)?;
        (self.settings.priority.mode != PriorityMode::Off).then_some(at)
    }

    /// What the kernel knows of a connection now; none if it does not tell. Messages that waited for this may be in its
    /// outbox then.
    pub fn handle_look(&mut self, conn: ConnId, tcp: Option<&TcpState>, now: Timestamp) {
        let Some(session) = self.connection(conn).map(|connection| connection.session) else { return };
        let is_waiting = self.sessions.get(session).is_some_and(Session::has_more);
        let may_portion = self.stats.receivers_portioned < PORTIONED_MAX;
        let Some(connection) = self.connection_mut(conn) else { return };
        let is_closing = connection.is_closing;
        let change = match tcp {
            Some(tcp) => connection.unread.on_look(tcp, is_waiting, may_portion, now),
            None => connection.unread.on_unseen(now),
        };
        match change {
            Change::None => {}
            Change::Began => self.stats.receivers_portioned += 1,
            Change::Ended => self.stats.receivers_portioned -= 1,
        }
        if is_waiting && !is_closing {
            self.pump(session, now);
        }
    }
}
