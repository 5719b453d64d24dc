//! How a client does as a receiver: what its full queue lost of late, how full it is, and whose messages those are.
//!
//! Publishers are numbers here: one may be at another shard. Whoever asks all shards finds the names by
//! [`ClientReport::origin`](super::ClientReport::origin).

use alloc::vec::Vec;
use core::time::Duration;

use tidegate_control::Timestamp;

use crate::connection::Connection;
use crate::crowding::Tallied;
use crate::limits::CALM;
use crate::session::Session;
use crate::settings::Settings;

/// Publishers that are named to an operator for one receiver.
const CROWDING_SHOWN_MAX: usize = 5;
/// Who has taken nothing for so long is slow: a full second is more than a busy network needs.
const STALLED_FOR: Duration = Duration::from_secs(1);
/// So is who has acknowledged nothing for so long while messages wait for it: longer than who acknowledges in batches takes.
const SILENT_FOR: Duration = Duration::from_secs(5);
/// So is who has so much of its queue used.
const FULL_PART: f64 = 0.5;

/// How a client does as a receiver.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReceiverReport {
    /// Messages for it that found no room in its queue or outbox in the last ten to twenty seconds.
    pub lost_of_late: u64,
    /// The same, a second.
    pub loss_rate: f64,
    /// Messages a second that it takes, by the bytes of the last second and its mean message; 0 unless it loses or is slow.
    pub takes: f64,
    /// The part of its queue that is used, by messages or bytes.
    pub fill: f64,
    /// Whether it loses messages now, connected or away: the last one within ten seconds.
    pub is_losing: bool,
    /// Whether it takes too little: nothing for a second, no acknowledgement for five while messages wait, or half of its
    /// queue is used.
    pub is_slow: bool,
    /// Whose messages were lost of late, or wait, the most first. What waits is told of a single client only.
    pub crowding: Vec<CrowdingFlow>,
}

/// What one publisher has of a receiver's trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrowdingFlow {
    /// The publisher's number: [`ClientReport::origin`](super::ClientReport::origin).
    pub origin: u64,
    /// Its messages among those that were lost of late, at least.
    pub lost: u64,
    /// Its messages that wait.
    pub waiting: u64,
    /// It has been too much for this receiver since it came, when nothing was usual for it: what is usual for it now does not
    /// count here.
    pub is_newcomer: bool,
}

impl ReceiverReport {
    pub(super) fn of(session: &Session, connection: Option<&Connection>, settings: &Settings, now: Timestamp) -> Self {
        let part = |used: usize, most: usize| used as f64 / most.max(1) as f64;
        let by_messages = part(session.queue_len(), settings.queue_messages_max);
        let by_bytes = part(session.queue_bytes(), session.spool().unwrap_or(settings.queue_bytes_max));
        // A bridge has bytes alone.
        let fill = if session.spool().is_some() { by_bytes } else { by_messages.max(by_bytes) };
        let stalled = connection.and_then(Connection::stalled_since);
        let is_stalled = stalled.is_some_and(|since| now.since(since) >= STALLED_FOR);
        // Whoever reads acknowledges: one that has said nothing while messages wait and are under way does not.
        let has_waiting = session.queue_len() > 0 && session.unconfirmed_len() > 0;
        let is_silent = has_waiting && connection.is_some_and(|it| now.since(it.seen_at()) >= SILENT_FOR);
        let is_slow = connection.is_some() && (is_stalled || is_silent || fill >= FULL_PART);
        let takes = |is_asked: bool| connection.filter(|_| is_asked).map_or(0.0, |it| taken_by(it, now));
        let Some(crowding) = session.crowding() else {
            return Self { fill, is_slow, takes: takes(is_slow), ..Self::default() };
        };
        let (lost_of_late, loss_rate, by) = crowding.of_late(now);
        let is_losing = crowding.last() + CALM > now;
        let flow = |one: Tallied| {
            let Tallied { origin, lost, is_newcomer } = one;
            CrowdingFlow { origin, lost, waiting: 0, is_newcomer }
        };
        let crowding = by.into_iter().take(CROWDING_SHOWN_MAX).map(flow).collect();
        let takes = takes(true);
        Self { lost_of_late, loss_rate, takes, fill, is_losing, is_slow, crowding }
    }

    /// Adds whose messages wait.
    pub(super) fn look_into_queue(&mut self, session: &Session) {
        let waiting = session.queue().map(|queue| queue.waiting_by_origin(CROWDING_SHOWN_MAX));
        for (origin, waiting) in waiting.into_iter().flatten() {
            match self.crowding.iter_mut().find(|flow| flow.origin == origin) {
                Some(flow) => flow.waiting = waiting,
                None => self.crowding.push(CrowdingFlow { origin, lost: 0, waiting, is_newcomer: false }),
            }
        }
        self.crowding.sort_by_key(|flow| core::cmp::Reverse((flow.lost, flow.waiting)));
        self.crowding.truncate(CROWDING_SHOWN_MAX);
    }
}

/// Messages a second that a connection takes.
fn taken_by(connection: &Connection, now: Timestamp) -> f64 {
    let traffic = connection.traffic();
    let bytes_each = traffic.bytes_sent as f64 / traffic.delivered.max(1) as f64;
    f64::from(connection.drain().sustained(now)) / bytes_each.max(1.0)
}
