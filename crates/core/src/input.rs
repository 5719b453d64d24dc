//! Bytes of a connected client, a portion at a time: when each packet came, what it cost, and when to stop.
//!
//! The face of the connection says what the packets are and calls the verbs for them; nothing here looks at a byte.

use alloc::boxed::Box;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::rhythm::ArrivalTime;
use tidegate_wire_mqtt::ReasonCode;

use crate::connection::Connection;
use crate::event::Why;
use crate::face::ClientAnswer;
use crate::ledger::Loss;
use crate::persist::Until;
use crate::shard::{ConnId, Progress, Then};
use crate::state::{ShardState, WillFate};

/// How much of a connection is handled at once, and what is known of how it came.
#[derive(Clone, Copy, Debug)]
pub struct Portion {
    /// The bytes may have come at any time since then.
    pub since: Timestamp,
    /// When the connection was last known to be read dry.
    pub dry_at: Timestamp,
    /// Units of work after which the rest is left: one for each packet, one for each KiB of it, and one for eight copies.
    /// One packet at least is handled.
    pub units: u32,
}

/// Eighths of a unit, rounded up.
pub(crate) fn whole(eighths: u64) -> u32 {
    u32::try_from(eighths.div_ceil(8)).unwrap_or(u32::MAX)
}

/// Bytes of a packet that cost an eighth of a unit.
pub(crate) const COST_BYTES: usize = 128;

/// Whether a packet ended its connection.
pub(crate) type Handled = Result<(), Ending>;

/// What became of a packet that did not end its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It was dealt with.
    On,
    /// It was not, and is to be handed in again when the connection, paused now, is read again.
    Wait,
}

/// How a packet ended its connection. In a box: it is rare, and the answer to every packet has room for it.
#[derive(Debug)]
pub struct Ending(Box<(Why, WillFate)>);

impl Ending {
    /// For this reason, and with this end of its will.
    pub fn new(why: Why, will: WillFate) -> Self {
        Self(Box::new((why, will)))
    }

    /// The client broke a rule.
    pub fn protocol(reason: ReasonCode, detail: &str) -> Self {
        Self::new(Why::Protocol { reason, detail: detail.into() }, WillFate::Publish)
    }

    pub(crate) fn into_parts(self) -> (Why, WillFate) {
        *self.0
    }
}

/// What a face has made of the front of a connection's bytes.
#[derive(Debug)]
pub enum ReadStep {
    /// A whole packet, and what became of it.
    Packet {
        /// Its bytes.
        size: usize,
        is_publication: bool,
        /// What became of it.
        handled: Result<Flow, Ending>,
    },
    /// No whole packet yet.
    Incomplete {
        /// Bytes that it takes at least.
        at_least: usize,
    },
    /// No packet at all: the connection ends.
    Broken(Ending),
}

/// When the bytes of a portion came, as far as is known: evenly since the connection was last looked at.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    since: Timestamp,
    now: Timestamp,
    lag_per_byte: f64,
    /// Bytes from here on.
    bytes: usize,
}

impl Moment {
    pub(crate) fn new(since: Timestamp, now: Timestamp, lag_per_byte: f64, bytes: usize) -> Self {
        Self { since, now, lag_per_byte, bytes }
    }

    /// When a packet of so many bytes came that begins here.
    #[inline]
    pub fn came(&self, size: usize) -> ArrivalTime {
        let behind = self.bytes.saturating_sub(size) as f64 * self.lag_per_byte;
        let likely = Timestamp::from_nanos(self.now.as_nanos().saturating_sub(behind as u64));
        ArrivalTime::new(self.since, likely, self.now)
    }

    /// The time.
    #[inline]
    pub fn now(&self) -> Timestamp {
        self.now
    }
}

impl ShardState {
    pub(crate) fn begin_portion(&mut self, conn: ConnId, dry_at: Timestamp, now: Timestamp) {
        self.settle_memory();
        self.gate.begin_reading(dry_at, now);
        self.saturation.begin_reading();
        if let Some(connection) = self.connection_mut(conn) {
            connection.note_dry(dry_at);
        }
    }

    /// Whether a packet may be read. `is_next`: there was one before it, so that what was being received is here.
    #[inline]
    pub(crate) fn begin_packet(&mut self, conn: ConnId, is_next: bool, now: Timestamp) -> Then {
        let Some(connection) = self.connection_mut(conn).filter(|connection| !connection.is_closing()) else {
            return Then::Close;
        };
        if connection.is_paused() {
            return Then::Pause;
        }
        connection.note_seen(now);
        if is_next {
            connection.end_partial();
        }
        Then::Continue
    }

    /// A packet was handed in: of so many bytes, if it was dealt with. One that waits will come again.
    #[inline]
    pub(crate) fn end_packet(&mut self, conn: ConnId, size: Option<usize>, is_publication: bool, now: Timestamp) {
        self.journal.end_whole();
        if self.saturation.is_too_much_turned_away() {
            self.pause_turned_away(conn, now);
        }
        match size {
            Some(size) => self.count_received(conn, size, is_publication, now),
            None => self.note_whole(conn),
        }
    }

    /// What was being received is here, and what follows it may be whole: nobody waits for its rest.
    #[inline]
    pub(crate) fn end_portion(&mut self, conn: ConnId) {
        if let Some(connection) = self.connection_mut(conn) {
            connection.end_partial();
        }
    }

    #[inline]
    fn count_received(&mut self, conn: ConnId, size: usize, is_publication: bool, now: Timestamp) {
        self.stats.packets_received += 1;
        self.stats.bytes_received += size as u64;
        self.stats.publish_received += u64::from(is_publication);
        if let Some(connection) = self.connections.get_mut(conn.index) {
            connection.note_received(size, is_publication, now);
        }
    }

    /// Whoever does not take its answers is not asked for more: TCP tells it to wait.
    pub(crate) fn progress(&self, conn: ConnId, consumed: usize, at_least: usize, used: u64) -> Progress {
        let is_full = |connection: &Connection| {
            connection.answer_bytes() > self.settings.outbox_bytes_max || connection.is_owed_much()
        };
        let is_clogged = self.links.is_clogged() || self.connection(conn).is_some_and(is_full);
        let then = if is_clogged { Then::Pause } else { Then::Continue };
        Progress { consumed, at_least, then, units: whole(used) }
    }

    /// The client says how long its session is to outlive the connection. One that was to end with it cannot be made to
    /// last now.
    pub(crate) fn set_session_expiry(&mut self, conn: ConnId, wanted: Duration) -> Result<(), NotLasting> {
        let expiry_max = self.settings.session_expiry_max;
        let Some(session) = self.session_of(conn) else { return Ok(()) };
        if !session.is_lasting() && !wanted.is_zero() {
            return Err(NotLasting);
        }
        // The store is told when the connection ends, which is next.
        session.set_expiry(wanted.min(expiry_max));
        Ok(())
    }

    pub(crate) fn note_lost_input(&mut self, conn: ConnId, loss: Loss) {
        if let Some(session) = self.session_at(conn) {
            self.lose(session, loss);
        }
    }

    /// A message of a connection that is not read now, and that cannot wait: it came, and is refused.
    pub(crate) fn refuse_unread(&mut self, conn: ConnId, size: usize, now: Timestamp) {
        self.count_received(conn, size, true, now);
        self.note_lost_input(conn, Loss::Refused);
    }

    pub(crate) fn say_due(&mut self, conn: ConnId) {
        self.send(conn, &ClientAnswer::Due);
    }

    pub(crate) fn say_in_turn(&mut self, conn: ConnId) {
        self.reply(conn, &ClientAnswer::Due, Until::Now);
    }

    pub(crate) fn say_alive(&mut self, conn: ConnId) {
        self.send(conn, &ClientAnswer::Alive);
    }
}

/// A session that ends with its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotLasting;
