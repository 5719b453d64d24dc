//! The verbs of a guard: what only passes through, between a client and the broker that has its session.

use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::ReasonCode;

use super::{ConnId, Shard};
use crate::access::Identity;
use crate::connect::{Hello, Unwelcome};
use crate::event::Why;
use crate::passage::{PassOutcome, Passing, Provenance, Through};

/// Why somebody has to come back later, and after which time.
type Later = Option<(&'static str, Duration)>;

impl Shard {
    /// Whether a client may go on to the other broker; if not, with which word, why, and when it may come back.
    pub fn judge_arrival(
        &mut self,
        client_id: &str,
        identity: &Identity,
        now: Timestamp,
    ) -> Result<(), (ReasonCode, Later)> {
        self.state.judge_arrival(client_id, identity, now).map_err(|Unwelcome { reason, later }| (reason, later))
    }

    /// The other broker has not let in somebody that claimed to be this.
    pub fn handle_declined(&mut self, client_id: &str, identity: &Identity, now: Timestamp) {
        self.state.settle_arrival(client_id, identity, false, now);
    }

    /// A client was let in by the other broker. Nothing is said to it. `None`: a table is full.
    pub fn connect_admitted(&mut self, hello: Hello<'_>, now: Timestamp) -> Option<ConnId> {
        self.state.connect_admitted(hello, now)
    }

    /// A client's message is to go on to the other broker.
    pub fn pass_behind(&mut self, conn: ConnId, passing: &Passing<'_>, now: Timestamp) -> PassOutcome {
        self.state.pass_behind(conn, passing, now)
    }

    /// A message of QoS 0 came for a client: the packet as it is to be sent, and what is known of it.
    pub fn hand_down(&mut self, conn: ConnId, packet: &[u8], topic: &str, provenance: Provenance, now: Timestamp) {
        self.state.hand_down(conn, packet, topic, provenance, now);
    }

    /// A packet came for a client that goes straight into its outbox.
    pub fn put_through(&mut self, conn: ConnId, packet: &[u8], what: Through, now: Timestamp) {
        self.state.put_through(conn, packet, what, now);
    }

    /// Whether messages wait for a client beyond its outbox.
    pub fn is_behind(&self, conn: ConnId) -> bool {
        self.state.is_behind(conn)
    }

    /// Whether no more is to be fetched for a client, because it takes too little.
    pub fn is_outbox_full(&self, conn: ConnId) -> bool {
        self.state.is_outbox_full(conn)
    }

    /// What a client is called.
    pub fn client_id(&self, conn: ConnId) -> Option<&str> {
        let session = self.state.connection(conn)?.session();
        self.state.sessions.get(session).map(|session| &**session.client_id())
    }

    /// The other broker has ended a client's connection, or is gone: [`Why`] says which.
    pub fn handle_upstream_end(&mut self, conn: ConnId, why: Why, now: Timestamp) {
        self.state.handle_upstream_end(conn, why, now);
    }
}
