//! Answers that may not be given yet, in the order in which they will be.
//!
//! Answers that need nothing go out at once, unless an earlier one of their connection is owed. PINGRESP, messages of
//! QoS 0 and 1 and DISCONNECT never wait here. A connection to which too much is owed is not read on, and its keep-alive
//! clock stands still. A welcome that has to wait holds the whole outbox instead: nothing may come before it.

use tidegate_control::Timestamp;

use super::Until;
use crate::connection::Connection;
use crate::face::ClientAnswer;
use crate::measures::AwaitedAck;
use crate::session::Session;
use crate::shard::ConnId;
use crate::state::ShardState;

impl ShardState {
    /// Answers a client as soon as what the answer promises is kept.
    pub(crate) fn reply(&mut self, conn: ConnId, answer: &ClientAnswer<'_>, until: Until) {
        if self.may_reply(conn, until) {
            return self.send(conn, answer);
        }
        self.owe(conn, answer, until, None);
    }

    /// The same for a message that was taken; how long its client waits for it is measured.
    pub(crate) fn acknowledge(
        &mut self,
        conn: ConnId,
        answer: &ClientAnswer<'_>,
        until: Until,
        asked: AwaitedAck,
        now: Timestamp,
    ) {
        if self.may_reply(conn, until) {
            self.meters.note_answer(asked, now);
            return self.send(conn, answer);
        }
        self.owe(conn, answer, until, Some(asked));
    }

    /// Whether an answer to this connection waits.
    pub(crate) fn owes(&self, conn: ConnId) -> bool {
        self.connection(conn).is_some_and(Connection::is_waiting)
    }

    fn may_reply(&self, conn: ConnId, until: Until) -> bool {
        self.journal.is_met(until) && self.connection(conn).is_none_or(|connection| !connection.is_owed())
    }

    fn owe(&mut self, conn: ConnId, answer: &ClientAnswer<'_>, until: Until, asked: Option<AwaitedAck>) {
        if self.connection(conn).is_none() {
            return;
        }
        let Some(connection) = self.connections.get_mut(conn.index).filter(|connection| !connection.is_closing())
        else {
            return;
        };
        let bytes = connection.words_for(answer);
        if bytes.is_empty() {
            return;
        }
        if !connection.is_waiting() {
            self.journal.list_owed(conn);
        }
        self.journal.await_until(until);
        self.memory.charge_outbox(bytes.len());
        connection.owe(bytes, until, asked);
    }

    /// Nothing is written to this connection before everything is kept that was done until now. While the disk fails, a
    /// session that was kept before need not wait for that.
    pub(crate) fn hold_welcome(&mut self, conn: ConnId, session: u32) {
        let Some(session) = self.sessions.get(session).filter(|session| session.is_kept()) else { return };
        let until = match self.journal.trouble() {
            Some(_) => Until::Synced(session.kept_turn()),
            None => self.journal.until_synced(),
        };
        if self.journal.is_met(until) {
            return;
        }
        self.journal.await_until(until);
        let Some(connection) = self.connections.get_mut(conn.index) else { return };
        if !connection.is_waiting() {
            self.journal.list_owed(conn);
        }
        connection.hold_welcome(until);
    }

    /// Something was kept: whatever waited for it is said.
    pub(super) fn pay_owed(&mut self, now: Timestamp) {
        let mut waiting = self.journal.take_owed();
        waiting.retain(|&conn| self.pay(conn, now));
        self.journal.put_owed_back(waiting);
    }

    /// True if there is more to wait for.
    fn pay(&mut self, conn: ConnId, now: Timestamp) -> bool {
        if self.connection(conn).is_none_or(Connection::is_closing) {
            return false;
        }
        let Some(connection) = self.connections.get_mut(conn.index) else { return false };
        if connection.welcome_after().is_some_and(|until| !self.journal.is_met(until)) {
            return true;
        }
        connection.release_welcome();
        let (due, answers) = connection.take_due(&self.journal, &mut self.meters, now);
        if !due.is_empty() {
            // They were charged when they were owed.
            connection.put_answer(&due, &mut self.spares);
            connection.note_answer(due.len());
            connection.face_mut().note_said(answers);
            self.stats.bytes_sent += due.len() as u64;
            self.stats.packets_sent += answers as u64;
        }
        let is_waiting = connection.is_waiting();
        if connection.outbox_len() > 0 && connection.list() {
            self.to_write.push_back(conn);
        }
        // Retained messages wait for the SUBACK.
        let session = connection.session();
        if !is_waiting && self.sessions.get(session).is_some_and(Session::has_bursts) {
            self.pump(session, now);
        }
        is_waiting
    }
}
