//! Saying no to a publisher; never by a success that is none.
//!
//! A [`Refusal`] says why, when to come back and which interval would do; the face of the client has words for it, or not
//! (before MQTT 5). To a client that cannot be told the only honest word is silence: the message is left on the
//! connection, which is not read until its time has come. QoS 0 waits for no answer and is dropped by a named reason, but for the
//! doors that have a word for it, too (CoAP, HTTP, MQTT-SN): there it is refused.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::Delivery;

use super::publisher::Patience;
use super::{Admission, Gate, GateArrival};
use crate::connection::Connection;
use crate::event::{Event, Why};
use crate::input::Ending;
use crate::ledger::Loss;
use crate::limits::PAUSE_MAX;
use crate::session::Session;
use crate::shard::ConnId;
use crate::state::{ShardState, WillFate};

/// Why a message of a publisher that is too fast cannot wait here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// There is no room left.
    HoldFull,
    /// It would have to wait too long.
    Rhythm,
}

impl ShardState {
    pub(super) fn refuse_publish(
        &mut self,
        arrival: GateArrival,
        cause: Cause,
        retry_after: Duration,
        now: Timestamp,
    ) -> Result<Admission, Ending> {
        self.note_slowed(arrival.session, now + retry_after, now);
        if arrival.delivery != Delivery::AtMostOnce && !self.hears_refusals(arrival.conn) {
            self.pause(arrival.conn, now + retry_after.min(PAUSE_MAX), now);
            return Ok(Admission::Wait);
        }
        let delay_max = self.settings.back_off.rhythm.unwrap_or_default().delay_max;
        let trouble = self.trouble_of(arrival.session);
        if trouble.is_some_and(|trouble| trouble.note_refused(delay_max, now) == Patience::Over) {
            return Err(self.give_up(arrival, cause, retry_after, now));
        }
        self.count_refused(arrival, cause);
        if arrival.delivery == Delivery::AtMostOnce && !self.hears_every_refusal(arrival.conn) {
            return Ok(Admission::Settled);
        }
        let interval = self.learned_interval(arrival.session);
        Ok(Admission::Refused(Box::new(Refusal { why: "publishing too fast", retry_after, interval })))
    }

    /// The connection should end.
    pub(super) fn give_up(
        &mut self,
        arrival: GateArrival,
        cause: Cause,
        retry_after: Duration,
        now: Timestamp,
    ) -> Ending {
        self.count_refused(arrival, cause);
        let ban = self.trouble_of(arrival.session).and_then(|trouble| trouble.strike(now));
        if let (Some(time), Some(session)) = (ban, self.sessions.get(arrival.session)) {
            let (client_id, identity) = (Arc::clone(session.client_id()), session.identity().clone());
            self.tell(Event::Outlawed { client_id, identity, time });
        }
        let interval = self.learned_interval(arrival.session);
        Ending::new(Why::TooFast { interval, retry_after }, WillFate::Publish)
    }

    /// A message that nobody waits for an answer to is dropped, unless its client hears of it all the same.
    fn count_refused(&mut self, arrival: GateArrival, cause: Cause) {
        let is_told = arrival.delivery != Delivery::AtMostOnce || self.hears_every_refusal(arrival.conn);
        let loss = match cause {
            _ if is_told => Loss::Refused,
            Cause::HoldFull => Loss::HeldFull,
            Cause::Rhythm => Loss::Rhythm,
        };
        self.lose(arrival.session, loss);
        if let Some(trouble) = self.trouble_of(arrival.session) {
            if is_told { trouble.count_refused() } else { trouble.count_dropped() }
        }
    }

    /// What a message was counted for by a rhythm or a limit, and it was not taken.
    pub(crate) fn give_back(&mut self, index: u32) {
        let slot = self.sessions.get(index).and_then(Session::publisher);
        let Gate { plan, publishers, limits, .. } = &mut self.gate;
        let Some((publisher, trouble, _)) = slot.and_then(|slot| publishers.get_all(slot)) else { return };
        match (trouble.as_ref().and_then(|trouble| trouble.pin()), plan) {
            (Some(pin), _) => limits.rhythm_of(pin).unwrap_or(&mut publisher.rhythm).give_back(&pin.plan),
            (None, Some(plan)) if plan.is_enforced() => publisher.rhythm.give_back(plan),
            (None, _) => {}
        }
    }

    pub(super) fn learned_interval(&self, session: u32) -> Option<Duration> {
        let slot = self.sessions.get(session)?.publisher()?;
        self.gate.publishers.get(slot)?.usual_interval()
    }

    /// Whether there is a word to refuse a message of this client with.
    pub(crate) fn hears_refusals(&self, conn: ConnId) -> bool {
        self.connection(conn).is_none_or(Connection::hears_refusals)
    }

    /// Whether there is one also for a message that nobody waits for an answer to.
    pub(crate) fn hears_every_refusal(&self, conn: ConnId) -> bool {
        self.connection(conn).is_some_and(Connection::hears_every_refusal)
    }
}

/// A message that is not taken, and what its client is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why, in words.
    pub why: &'static str,
    /// When it may come again.
    pub retry_after: Duration,
    /// The usual interval of its publisher, if the message came for too soon.
    pub interval: Option<Duration>,
}

impl Refusal {
    /// It is not the pace of its publisher that is wrong: later there may be room.
    pub(super) fn later(retry_after: Duration, why: &'static str) -> Admission {
        Admission::Refused(Box::new(Self { why, retry_after, interval: None }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Identity, Open};
    use crate::limits::EVENTS_MAX;
    use crate::settings::Settings;

    #[test]
    fn a_ban_is_not_lost_among_news_that_nobody_drains() {
        let mut shard = ShardState::new(0, 1, Arc::new(Settings::default()), Arc::new(Open), 1);
        let (client_id, identity): (Arc<str>, _) = ("loud".into(), Identity::default());
        let ban = Event::Outlawed { client_id: Arc::clone(&client_id), identity, time: Duration::from_secs(60) };
        shard.tell(ban.clone());
        for _ in 0..2 * EVENTS_MAX {
            shard.tell(Event::Recovered { client_id: Arc::clone(&client_id) });
        }
        assert_eq!(shard.poll_event(), Some(ban));
        assert_eq!(core::iter::from_fn(|| shard.poll_event()).count(), EVENTS_MAX);
    }
}
