//! The gate of claims and rhythms: what is usual for a publisher, and what happens beyond (CONTROL §9.2).
//!
//! Every message that came so far is told to the *claim* of its client, which colours it: entitled, or excess. Nobody is
//! held or refused for that. The colour goes with the message, and where something is scarce the entitled come first: at
//! the loop (`claims`, and the driver's read order), and in the queues of receivers.
//!
//! Only where the operator wants it (`enforce = always`, the papers' rules, or a limit of its own) a [`Rhythm`] is told as
//! well, which answers pass, hold, refuse or disconnect. What then happens:
//!
//! | | QoS 0 | QoS 1 and 2, a client that can be told | one that cannot |
//! | --- | --- | --- | --- |
//! | hold | waits (`hold`) | waits, its acknowledgement with it | the same |
//! | hold, no room | not read for half a keep-alive, then dropped for as long | refused with hints (`refuse`) | not read, nor what follows, until there is room |
//! | hold, longer than ¾ of a client's retry (not by the papers' rules) | waits | refused with hints | not read until then |
//! | refuse | dropped | refused with hints | not read until then |
//! | disconnect, or refused for 5·D_max | disconnected with hints, or closed | the same | the same |
//!
//! TCP tells whoever is not read to wait; its keep-alive clock stands still meanwhile. But a PINGREQ may be behind what is
//! not read, and its client gives up if it is not answered: hence half a keep-alive, 30 s at most, and again when
//! something else than a PUBLISH was read (`Connection::may_leave_unread`).
//!
//! A message that was refused owes nothing (`Rhythm::give_back`): a sensor of 1 message/s at three times its rate gets 567
//! of 600 QoS 1 messages through, and 255 if it owed for those refused. A publisher that hears "later" from an ended
//! connection hears it again at once on the next, until it has been quiet for D_max: a ban that expires by itself.

use alloc::sync::Arc;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::claim::{ClaimPlan, Colour};
use tidegate_control::rhythm::{Pressure, Rhythm, RhythmPlan, Verdict};
use tidegate_wire_mqtt::Delivery;

use super::publisher::{Publisher, PublisherTrouble};
use super::publishers::key_of;
use super::refuse::Cause;
use super::{Admission, Gate, GateArrival, Kind};
use crate::classes::PriorityMode;
use crate::event::Event;
use crate::input::Ending;
use crate::limits::CALM;
use crate::message::{Message, Publication};
use crate::session::{Held, HeldAnswer, HoldQueue, Session};
use crate::state::ShardState;

impl ShardState {
    /// Tells the claim of its publisher of a message, which colours it, and its rhythm or limit if there is one: that one
    /// may want it to wait here, or refused. `slot`: the publisher's place in the table, if it has one.
    pub(super) fn admit_to_rhythm(
        &mut self,
        arrival: GateArrival,
        publication: &mut Publication<'_>,
        (is_holding, slot): (bool, Option<u32>),
        now: Timestamp,
    ) -> Result<Admission, Ending> {
        let (verdict, is_slowed) = self.tell_rhythm(arrival, publication, slot, now);
        if verdict == Verdict::Pass && !is_slowed && !is_holding {
            return Ok(Admission::Pass);
        }
        self.decide(arrival, publication, verdict, now)
    }

    /// Tells claim, rhythm and limit, and says what they want, and whether the publisher is one that was slowed of late.
    #[inline]
    pub(super) fn tell_rhythm(
        &mut self,
        arrival: GateArrival,
        publication: &mut Publication<'_>,
        slot: Option<u32>,
        now: Timestamp,
    ) -> (Verdict, bool) {
        let is_refresh = publication.retain && self.retained.says(publication.topic, publication.payload);
        let slot = slot.unwrap_or_else(|| self.enrol(arrival.session, now));
        let Gate { plan, publishers, limits, .. } = &mut self.gate;
        let claim_plan = plan.as_ref().map_or_else(ClaimPlan::default, RhythmPlan::claim);
        let (mut verdict, mut drift) = (Verdict::Pass, None);
        let mut is_slowed = false;
        if let Some((publisher, trouble, parents)) = publishers.get_all(slot) {
            if publisher.end_second(&claim_plan, now, arrival.dry_at, parents) {
                drift = publisher.begin_second();
            }
            if !is_refresh || !publisher.may_refresh() {
                let colour = publisher.claim.on_message(&claim_plan, now, arrival.dry_at);
                publisher.set_entitled(colour);
                // Where nobody is watched, nobody comes first.
                publication.standing.colour = if plan.is_some() { colour } else { Colour::Entitled };
                publication.standing.is_newcomer = plan.is_some() && publisher.claim.rate().is_none();
                match trouble.as_ref().and_then(|trouble| trouble.pin()) {
                    Some(pin) => {
                        let rhythm = limits.rhythm_of(pin).unwrap_or(&mut publisher.rhythm);
                        verdict = rhythm.on_arrival(&pin.plan, arrival.came, Pressure::Pressed);
                        if verdict != Verdict::Pass {
                            // What a limit lets through is not what it would send.
                            publisher.claim.on_refused();
                        }
                    }
                    None => {
                        if let Some(plan) = plan.as_ref().filter(|plan| plan.is_enforced()) {
                            verdict = publisher.rhythm.on_arrival(plan, arrival.came, Pressure::Idle);
                        }
                    }
                }
            }
            is_slowed |= trouble.is_some_and(|trouble| trouble.slowed().is_some());
        }
        if let Some((from, to)) = drift {
            self.tell_drift(arrival.session, from, to);
        }
        (verdict, is_slowed)
    }

    /// The client has published before: it goes on where it was, also if it is silent for an hour from now.
    pub(crate) fn recognise(&mut self, index: u32, now: Timestamp) {
        let Some(session) = self.sessions.get(index) else { return };
        self.gate.publishers.expire(self.settings.back_off.memory, now);
        if self.gate.publishers.find(&key_of(session.identity(), session.client_id())).is_some() {
            self.enrol(index, now);
        }
    }

    /// A connection has gone from its session.
    pub(crate) fn leave_gate(&mut self, index: u32, now: Timestamp) {
        self.note_left(index, now);
        let Some(session) = self.sessions.get_mut(index) else { return };
        session.void_held_answers();
        if let Some(slot) = session.take_publisher() {
            self.gate.publishers.leave(slot, now);
        }
    }

    #[cold]
    pub(crate) fn enrol(&mut self, index: u32, now: Timestamp) -> u32 {
        let Some(session) = self.sessions.get(index) else { return NOBODY };
        // Where nobody is slowed there may be a limit, or an order by rates: both need to be told of messages.
        let is_told = || self.settings.priority.mode == PriorityMode::Paper || self.is_limited(session);
        let plan = self.gate.plan.or_else(|| is_told().then(|| self.gate.learning_plan()).flatten());
        let (Some(plan), Some(session)) = (plan, self.sessions.get_mut(index)) else { return NOBODY };
        let key = key_of(session.identity(), session.client_id());
        self.gate.publishers.expire(self.settings.back_off.memory, now);
        let slot = self.gate.publishers.join(&key, session.parent(), || Rhythm::new(&plan));
        session.set_publisher(slot);
        self.adopt_observed(index, slot);
        self.apply_limit(index, now);
        slot
    }

    #[cold]
    fn decide(
        &mut self,
        arrival: GateArrival,
        publication: &Publication<'_>,
        verdict: Verdict,
        now: Timestamp,
    ) -> Result<Admission, Ending> {
        let wait = match verdict {
            Verdict::Pass => Duration::ZERO,
            Verdict::Hold(wait) => wait,
            Verdict::Refuse(wait) => return self.refuse_publish(arrival, Cause::Rhythm, wait, now),
            Verdict::Disconnect(wait) => return Err(self.give_up(arrival, Cause::Rhythm, wait, now)),
        };
        let bounds = self.settings.back_off;
        let size = Message::size_of(publication);
        let Some(session) = self.sessions.get(arrival.session) else { return Ok(Admission::Settled) };
        if wait.is_zero() && !session.is_holding() {
            self.calm_down(arrival.session, now);
            return Ok(Admission::Pass);
        }
        let nothing = HoldQueue::default();
        let queue = session.held().unwrap_or(&nothing);
        let release_at = queue.last_release().map_or(now + wait, |last| last.max(now + wait));
        let wait = release_at.since(now);
        let class = publication.standing.class;
        let cause = if !queue.has_room(class, size, &self.settings) || !self.memory.has_room(Kind::Passing, size) {
            Some(Cause::HoldFull)
        } else if arrival.delivery != Delivery::AtMostOnce && wait > bounds.hold_max() {
            Some(Cause::Rhythm)
        } else {
            None
        };
        if let Some(cause) = cause {
            self.give_back(arrival.session);
            return self.refuse_publish(arrival, cause, wait, now);
        }
        self.hold(arrival, publication, release_at, now);
        Ok(Admission::Settled)
    }

    fn hold(&mut self, arrival: GateArrival, publication: &Publication<'_>, release_at: Timestamp, now: Timestamp) {
        let Some(session) = self.sessions.get_mut(arrival.session) else { return };
        let message = Arc::new(Message::new(publication, self.memory.tally()));
        let (delivery, answer) = (arrival.delivery, HeldAnswer::Owed);
        session.hold(Held { message, delivery, release_at, came: now, answer }, &mut self.stats);
        self.stats.publish_held += 1;
        let publisher = session.publisher().and_then(|slot| self.gate.publishers.get(slot));
        let interval = publisher.and_then(Publisher::usual_interval);
        self.meters.note_delay(publication.standing.class, release_at.since(now), interval);
        if let Delivery::ExactlyOnce { packet_id, .. } = arrival.delivery {
            session.inbound.insert(packet_id);
        }
        if let Some(trouble) = self.trouble_of(arrival.session) {
            trouble.note_taken(1);
        }
        self.arm_release(arrival.session, now);
        self.note_slowed(arrival.session, release_at, now);
    }

    /// Tells once that a publisher is slowed.
    pub(super) fn note_slowed(&mut self, index: u32, until: Timestamp, now: Timestamp) {
        let Some(trouble) = self.trouble_of(index) else { return };
        let takes_rate = trouble.takes_rate(now);
        let is_new = trouble.note_slowed(until, now);
        if takes_rate {
            self.note_asked(index, is_new, now);
        }
        if let (true, Some(session)) = (is_new, self.sessions.get(index)) {
            let publisher = session.publisher().and_then(|slot| self.gate.publishers.get(slot));
            let interval = publisher.and_then(Publisher::usual_interval);
            let rate = publisher.map_or(0.0, |publisher| publisher.current_rate(now));
            let client_id = Arc::clone(session.client_id());
            self.tell(Event::Slowed { client_id, interval, rate, until });
            if until > now {
                self.send_notice(index, until.since(now), now);
            }
        }
    }

    /// What somebody who is slowed sends: later it sends less, because it is slowed, and nobody is to take that for what it wants.
    fn note_asked(&mut self, index: u32, is_new: bool, now: Timestamp) {
        let slot = self.sessions.get(index).and_then(Session::publisher);
        let all = slot.and_then(|slot| self.gate.publishers.get_all(slot));
        if let Some((publisher, Some(trouble), _)) = all {
            trouble.note_asked(publisher.claim.recent_rate(now), is_new, now);
        }
    }

    /// A publisher was led to think of itself as faster than it was: slowly, but far (F129).
    #[cold]
    fn tell_drift(&mut self, index: u32, from: Duration, to: Duration) {
        if let Some(session) = self.sessions.get(index) {
            self.tell(Event::Drifted { client_id: Arc::clone(session.client_id()), from, to });
        }
    }

    /// A message passed: the episode is over if nothing had to wait for some time.
    pub(super) fn calm_down(&mut self, index: u32, now: Timestamp) {
        let Some(trouble) = self.trouble_of(index) else { return };
        trouble.note_taken(1);
        let is_over = trouble.calm_down(CALM, now);
        if let (true, Some(session)) = (is_over, self.sessions.get(index)) {
            self.tell(Event::Recovered { client_id: Arc::clone(session.client_id()) });
        }
    }

    /// What is remembered against the publisher of a session: from now on something is.
    pub(super) fn trouble_of(&mut self, index: u32) -> Option<&mut PublisherTrouble> {
        let slot = self.sessions.get(index)?.publisher()?;
        self.gate.publishers.trouble_mut(slot)
    }
}

/// No place in the table of publishers.
const NOBODY: u32 = u32::MAX;
