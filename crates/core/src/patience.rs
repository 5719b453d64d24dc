//! What may take time, and how much: a packet to arrive, an outbox to be taken. Absolute times, not times per byte: one
//! byte now and then buys nothing.

use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::ReasonCode;

use crate::connection::Connection;
use crate::event::Why;
use crate::limits::{PACKET_BYTES_PER_SECOND_MIN, PACKET_PATIENCE};
use crate::shard::ConnId;
use crate::state::{ShardState, WillFate};
use crate::timers::DueTimer;

impl ShardState {
    /// A packet has begun to arrive; its rest must come in time.
    pub(crate) fn expect_rest(&mut self, conn: ConnId, at_least: usize, now: Timestamp) {
        let time = PACKET_PATIENCE + Duration::from_secs((at_least / PACKET_BYTES_PER_SECOND_MIN) as u64);
        let Some(connection) = self.connection_mut(conn) else { return };
        let since = connection.expect_rest(time, now);
        self.watch(conn, since + time, now);
    }

    pub(crate) fn handle_partial(&mut self, conn: ConnId, bytes: usize, now: Timestamp) {
        let Some(connection) = self.connection_mut(conn) else { return };
        let fair = PACKET_PATIENCE + Duration::from_secs((bytes / PACKET_BYTES_PER_SECOND_MIN) as u64);
        if connection.partial().is_some_and(|(since, _)| now <= since + fair) {
            connection.note_seen(now);
        }
    }

    pub(crate) fn set_unread(&mut self, conn: ConnId, is_unread: bool) {
        if let Some(connection) = self.connection_mut(conn) {
            connection.set_unread(is_unread);
        }
    }

    /// The packet is there, and waits because of us: what it takes from now on is not its sender's doing.
    #[cold]
    pub(crate) fn note_whole(&mut self, conn: ConnId) {
        if let Some(connection) = self.connection_mut(conn) {
            connection.end_partial();
        }
    }

    /// Looks at a connection later, once: there is one timer for each, however often this is asked for.
    pub(crate) fn watch(&mut self, conn: ConnId, at: Timestamp, now: Timestamp) {
        if self.connection_mut(conn).is_some_and(Connection::begin_watch) {
            self.timers.set(now, at, DueTimer::Progress { conn: conn.index, generation: conn.generation });
        }
    }

    pub(crate) fn check_progress(&mut self, conn: ConnId, now: Timestamp) {
        let Some(connection) = self.connection_mut(conn).filter(|connection| !connection.is_closing()) else { return };
        connection.end_watch();
        let (partial, stalled_since) = (connection.partial(), connection.stalled_since());
        let bytes = connection.outbox_len();
        let (is_unread, is_held) = (connection.is_unread(), connection.face().holds_outbox());
        // Whoever is not read cannot be blamed for what does not come.
        let packet = match partial {
            Some((_, time)) if is_unread || !self.may_read(conn) => Some(now + time),
            partial => partial.map(|(since, time)| since + time),
        };
        let taking = match stalled_since {
            // It sleeps, and was told that it may.
            Some(_) if is_held => Some(now + self.settings.write_timeout),
            since => since.map(|since| since + self.settings.write_timeout),
        };
        if packet.is_some_and(|deadline| deadline <= now) {
            let detail = "a packet took too long to arrive".into();
            let why = Why::Protocol { reason: ReasonCode::KeepAliveTimeout, detail };
            self.end_connection(conn, why, WillFate::Publish, now);
        } else if taking.is_some_and(|deadline| deadline <= now) {
            let messages = self.session_of(conn).map_or(0, |session| session.queue_len());
            self.end_connection(conn, Why::NotReading { bytes, messages }, WillFate::Publish, now);
        } else if let Some(deadline) = packet.into_iter().chain(taking).min() {
            self.watch(conn, deadline, now);
        }
    }
}
