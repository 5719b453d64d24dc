//! What is known of a publisher, for whoever asks why it is slowed. Read only; asked between two turns.

use core::time::Duration;

use tidegate_control::Timestamp;

use super::publisher::{Publisher, PublisherTrouble};
use super::publishers::key_of;
use crate::connection::Connection;
use crate::session::Session;
use crate::state::ShardState;

/// Over how long a rate is averaged.
pub const RATE_WINDOW: Duration = Duration::from_secs(10);

/// What is known of a publisher, for whoever asks why it is slowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublisherReport {
    /// Its usual interval between messages; none while it is being learned.
    pub learned_interval: Option<Duration>,
    /// Messages that it is known to send at once, at least 1.
    pub batch: u32,
    /// Messages per second over the last ten seconds ([`RATE_WINDOW`]): what was taken from it. Silence counts at once.
    pub rate: f64,
    /// Messages per second over its last eight or so where rhythms are enforced, else over the last ten seconds.
    pub current_rate: f64,
    /// The most that `rate` was since it is being slowed: what it wanted to send, whatever was taken of it since. 0 if it is not
    /// slowed.
    pub asked: f64,
    /// Messages a second that were taken from it before the second of its last.
    pub served: f64,
    /// Messages a second that it is used to by its claim, whatever an operator has set or granted; none while that is not
    /// known.
    pub usual: Option<f64>,
    /// Since when it has not been read dry, if that is longer than a second: it sends more than is taken.
    pub unread_since: Option<Timestamp>,
    /// Whether its latest message was within what is usual for it.
    pub is_entitled: bool,
    /// Messages a second that the operator has entitled it to.
    pub granted: Option<f64>,
    /// Who it belongs to: a number that the clients of one user, or of one network without users, have in common.
    pub parent: u64,
    /// Messages of this client that are held now.
    pub held: usize,
    /// Messages of this principal that were refused, and it was told so.
    pub refused: u64,
    /// QoS 0 messages of this principal that were dropped for its rate.
    pub dropped: u64,
    /// Until when the latest of its messages has to wait, or had to; none if it was not slowed of late.
    pub slowed_until: Option<Timestamp>,
    /// Since when it is being slowed, without a pause.
    pub slowed_since: Option<Timestamp>,
    /// When one of its messages was refused or dropped last.
    pub refused_at: Option<Timestamp>,
    /// Whether messages of it were refused of late because all their receivers were full.
    pub are_receivers_full: bool,
}

/// A rate by what has come since the last message, too: who has been silent for ten seconds does not send one a second, however
/// much it sent before.
fn bounded_by_silence(rate: f64, batch: u32, silence: Duration) -> f64 {
    let silence = silence.as_secs_f64();
    if silence < 1.0 { rate } else { rate.min(f64::from(batch) / silence) }
}

impl ShardState {
    pub(crate) fn publisher(&self, client_id: &str, now: Timestamp) -> Option<PublisherReport> {
        let session = self.session_named(client_id)?;
        self.publisher_report(session, now)
    }

    pub(crate) fn publisher_report(&self, session: &Session, now: Timestamp) -> Option<PublisherReport> {
        let publishers = &self.gate.publishers;
        let find = || publishers.find(&key_of(session.identity(), session.client_id()));
        let slot = session.publisher().or_else(find);
        let publisher = slot.and_then(|slot| publishers.get(slot));
        let connection = session.conn().and_then(|conn| self.connections.get(conn));
        // What it sends now while the gate is off; what is usual for it may be known from before.
        let observed = connection.and_then(Connection::observed);
        let claim = observed.or(publisher.map(|publisher| &publisher.claim))?;
        let usual_rate = publisher.and_then(Publisher::usual_rate).or(claim.learned_rate().map(f64::from));
        let watched = publisher.filter(|_| observed.is_none());
        let batch = watched.map_or_else(|| claim.batch().max(1), Publisher::batch);
        let trouble = slot.and_then(|slot| publishers.trouble(slot));
        let slowed = trouble.and_then(PublisherTrouble::slowed);
        let (refused, dropped) = trouble.map_or((0, 0), PublisherTrouble::lost);
        let recent = claim.recent_rate(now);
        Some(PublisherReport {
            learned_interval: usual_rate.map(|rate| Duration::from_secs_f64(1.0 / rate.max(1e-9))),
            batch,
            rate: if connection.is_some_and(Connection::is_paused) {
                // Its silence is the broker's.
                recent
            } else {
                bounded_by_silence(recent, batch, now.since(claim.last_at(now)))
            },
            current_rate: watched.map_or(recent, |publisher| publisher.current_rate(now)),
            asked: trouble.map_or(0.0, |trouble| f64::from(trouble.asked())),
            served: claim.served().into(),
            usual: publisher.and_then(|it| it.claim.learned_rate()).or(claim.learned_rate()).map(f64::from),
            unread_since: connection.and_then(|connection| connection.unread_at(now)),
            is_entitled: publisher.is_none_or(Publisher::is_entitled),
            granted: self.grant_of(session),
            parent: session.parent(),
            held: session.held_len(),
            refused,
            dropped,
            slowed_until: slowed.map(|(_, until)| until),
            slowed_since: slowed.map(|(since, _)| since),
            refused_at: trouble.and_then(PublisherTrouble::refused_at),
            are_receivers_full: trouble.is_some_and(|trouble| trouble.are_receivers_full(now)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_that_ended_is_not_told_as_a_rate() {
        let after = |secs| bounded_by_silence(2000.0, 1, Duration::from_secs_f64(secs));
        assert_eq!(after(0.5), 2000.0);
        assert_eq!(after(10.0), 0.1);
        assert_eq!(
            bounded_by_silence(2.0, 60, Duration::from_secs(15)),
            2.0,
            "who sends 60 at once every half a minute"
        );
    }
}
