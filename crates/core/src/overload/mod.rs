//! The gate that publishers pass: the only place where control's decisions meet broker state (CONTROL §9.2).
//!
//! Every PUBLISH that is neither a repetition nor forbidden is told to the [`Rhythm`] of its principal (`publishers`),
//! which answers pass, hold, refuse or disconnect. What then happens:
//!
//! | | QoS 0 | QoS 1 and 2, MQTT 5 | QoS 1 and 2, before |
//! | --- | --- | --- | --- |
//! | hold | waits (`hold`) | waits, its acknowledgement with it | the same |
//! | hold, no room | not read for half a keep-alive, then dropped for as long | 0x97 with hints (`refuse`) | not read, nor what follows, until there is room |
//! | hold, longer than ¾ of a client's retry | waits | 0x97 with hints | not read until then |
//! | refuse | dropped | 0x97 with hints | not read until then |
//! | disconnect, or refused for 5·D_max | 0x96 with hints, or closed | the same | the same |
//!
//! TCP tells whoever is not read to wait; its keep-alive clock stands still meanwhile. But a PINGREQ may be behind what is
//! not read, and its client gives up if it is not answered: hence half a keep-alive, 30 s at most, and again when
//! something else than a PUBLISH was read (`Connection::may_leave_unread`).
//!
//! A message that was refused owes nothing (`Rhythm::give_back`): a sensor of 1 message/s at three times its rate gets 567
//! of 600 QoS 1 messages through, and 255 if it owed for those refused. A publisher that hears "later" from an ended
//! connection hears it again at once on the next, until it has been quiet for D_max: a ban that expires by itself.

mod arrivals;
pub(crate) mod hold;
mod limits;
mod memory;
mod notice;
pub(crate) mod publishers;
mod refuse;
mod share;
mod shed;

use alloc::sync::Arc;
use core::time::Duration;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_control::Timestamp;
use tidegate_control::pressure::Level;
use tidegate_control::rhythm::{ArrivalTime, Pressure, Rhythm, RhythmConfig, RhythmPlan, Verdict};
use tidegate_wire_mqtt::{Delivery, Version};

use crate::event::Event;
use crate::input::Ending;
use crate::limits::CALM;
use crate::message::{Message, Publication};
use crate::session::Session;
use crate::settings::BackOff;
use crate::shard::{ConnId, Shard};
pub(crate) use arrivals::{Arrivals, Turned};
use hold::{Answer, Held, HoldQueue};
pub use limits::{LimitsFull, Whom};
pub(crate) use memory::{Kind, Memory, Tally};
pub(crate) use notice::is_own_notice;
use publishers::{Publisher, Publishers, key_of};
use refuse::Cause;
pub(crate) use refuse::Pace;

/// State of the gate.
#[derive(Debug)]
pub(crate) struct Gate {
    /// None: publishers are never slowed.
    plan: Option<RhythmPlan>,
    pub(crate) level: Level,
    pub(crate) publishers: Publishers,
    shares: share::Shares,
    limits: limits::Limits,
    /// The limit for everybody has changed; applied in the next turn.
    pub(crate) has_new_limits: bool,
    /// When a connection was last cut for want of memory.
    shed_at: Timestamp,
    /// Sessions that ended and still hold messages, by client.
    ghosts: HashMap<Arc<str>, u32, FixedState>,
}

impl Gate {
    /// By which rule publishers are watched; none if they are not.
    pub(crate) fn plan(&self) -> Option<&RhythmPlan> {
        self.plan.as_ref()
    }
}

/// What is known of a publisher, for whoever asks why it is slowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublisherReport {
    /// Its usual interval between messages; none while it is being learned.
    pub learned_interval: Option<Duration>,
    /// Messages that it is known to send at once, at least 1.
    pub batch: u32,
    /// Messages per second of late, when the last one came.
    pub current_rate: f64,
    /// When that was.
    pub last_at: Timestamp,
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
}

/// One PUBLISH at the gate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) conn: ConnId,
    pub(crate) session: u32,
    pub(crate) delivery: Delivery,
    /// When it came, as far as is known.
    pub(crate) came: ArrivalTime,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Take it.
    Pass,
    /// It waits here, or was refused; it is counted and answered, or will be.
    Settled,
    /// It was not taken from the connection, which is paused: it will come again.
    Wait,
}

impl Gate {
    pub(crate) fn new(back_off: &BackOff, seed: u64) -> Self {
        let ghosts = HashMap::with_hasher(FixedState::with_seed(seed));
        Self {
            plan: plan_of(back_off),
            level: Level::Calm,
            publishers: Publishers::new(seed),
            shares: share::Shares::default(),
            limits: limits::Limits::new(seed),
            has_new_limits: false,
            shed_at: Timestamp::ZERO,
            ghosts,
        }
    }

    /// New settings. What was learned under another rule is forgotten.
    pub(crate) fn configure(&mut self, old: &BackOff, new: &BackOff) {
        self.plan = plan_of(new);
        let rule = |back_off: &BackOff| back_off.rhythm.map(|config| config.rule);
        if let Some(plan) = &self.plan
            && rule(old) != rule(new)
        {
            self.publishers.relearn(|| Rhythm::new(plan));
        }
    }

    pub(crate) fn ghosts(&self) -> usize {
        self.ghosts.len()
    }

    pub(crate) fn publishers_known(&self) -> usize {
        self.publishers.len()
    }
}

/// A configuration that makes no sense is replaced by the default one: never unlimited, never closed.
fn plan_of(back_off: &BackOff) -> Option<RhythmPlan> {
    let config = back_off.rhythm?;
    config.build().or_else(|_| RhythmConfig::default().build()).ok()
}

impl Shard {
    /// The driver has measured how hard the broker is pressed. Under `enforcement = pressure` nobody is slowed at level 0.
    pub fn set_level(&mut self, level: Level) {
        self.gate.level = level;
    }

    /// As it was last told.
    pub fn level(&self) -> Level {
        self.gate.level
    }

    /// What is known of a client as a publisher; none if it has no session here, or never published of late.
    pub fn publisher(&self, client_id: &str) -> Option<PublisherReport> {
        let session = self.by_client.get(client_id).and_then(|session| self.sessions.get(*session))?;
        self.publisher_report(session)
    }

    pub(crate) fn publisher_report(&self, session: &Session) -> Option<PublisherReport> {
        let publisher = match session.publisher {
            Some(slot) => self.gate.publishers.get(slot),
            None => self.gate.publishers.find(&key_of(&session.identity, &session.client_id)),
        }?;
        Some(PublisherReport {
            learned_interval: publisher.rhythm.interval(),
            batch: publisher.rhythm.batch(),
            current_rate: publisher.rhythm.current_rate(),
            last_at: publisher.rhythm.last_at(),
            held: session.held_len(),
            refused: publisher.refused,
            dropped: publisher.dropped,
            slowed_until: publisher.slowed.map(|(_, until)| until),
            slowed_since: publisher.slowed.map(|(since, _)| since),
            refused_at: publisher.refused_at(),
        })
    }

    /// Asks whether a message may come in, and sees to it if it may not.
    pub(crate) fn admit(
        &mut self,
        arrival: Arrival,
        publication: &Publication<'_>,
        now: Timestamp,
    ) -> Result<Admission, Ending> {
        let Some(session) = self.sessions.get(arrival.session) else { return Ok(Admission::Settled) };
        let (is_holding, slot) = (session.held.is_some(), session.publisher);
        if is_holding && self.pauses_first(arrival, publication, now) {
            return Ok(Admission::Wait);
        }
        let size = publication.payload.len();
        if arrival.delivery != Delivery::AtMostOnce && !self.memory.has_room(Kind::Incoming, size) {
            return Ok(self.refuse_for_memory(arrival, now));
        }
        let is_refresh = publication.retain && self.retained.says(publication.topic, publication.payload);
        let slot = slot.unwrap_or_else(|| self.enrol(arrival.session, now));
        let Gate { plan, level, publishers, shares, .. } = &mut self.gate;
        let connected = publishers.connected();
        let (mut verdict, mut drift) = (Verdict::Pass, None);
        let mut is_slowed = is_holding;
        if let Some(publisher) = publishers.get_mut(slot) {
            let is_told = !is_refresh || !publisher.may_refresh(now);
            let plan = publisher.pin.as_deref().map(|(_, plan)| plan).or(plan.as_ref());
            if let Some(plan) = plan.filter(|_| is_told) {
                shares.count(&mut publisher.share, now);
                let is_culprit = *level != Level::Calm && shares.is_exceeded(&publisher.share, connected, now);
                let pressure = if is_culprit { Pressure::Pressed } else { Pressure::Idle };
                verdict = publisher.rhythm.on_arrival(plan, arrival.came, pressure);
                drift = publisher.drift();
            }
            is_slowed |= publisher.slowed.is_some();
        }
        if let Some((from, to)) = drift {
            self.tell_drift(arrival.session, from, to);
        }
        if verdict == Verdict::Pass && !is_slowed {
            return Ok(Admission::Pass);
        }
        self.decide(arrival, publication, verdict, now)
    }

    /// The client has published before: it goes on where it was, also if it is silent for an hour from now.
    pub(crate) fn recognise(&mut self, index: u32, now: Timestamp) {
        let Some(session) = self.sessions.get(index) else { return };
        self.gate.publishers.expire(self.settings.back_off.memory, now);
        if self.gate.publishers.find(&key_of(&session.identity, &session.client_id)).is_some() {
            self.enrol(index, now);
        }
    }

    /// A connection has gone from its session.
    pub(crate) fn leave_gate(&mut self, index: u32, now: Timestamp) {
        let Some(session) = self.sessions.get_mut(index) else { return };
        if let Some(queue) = &mut session.held {
            queue.void_answers();
        }
        if let Some(slot) = session.publisher.take() {
            self.gate.publishers.leave(slot, now);
        }
    }

    #[cold]
    fn enrol(&mut self, index: u32, now: Timestamp) -> u32 {
        let Some(session) = self.sessions.get(index) else { return NOBODY };
        let plan = self.gate.plan.or_else(|| self.limit_of(session).and_then(|_| RhythmConfig::default().build().ok()));
        let (Some(plan), Some(session)) = (plan, self.sessions.get_mut(index)) else { return NOBODY };
        let key = key_of(&session.identity, &session.client_id);
        self.gate.publishers.expire(self.settings.back_off.memory, now);
        let slot = self.gate.publishers.join(&key, || Rhythm::new(&plan));
        session.publisher = Some(slot);
        self.apply_limit(index, now);
        slot
    }

    /// Without room a message is not even taken from the connection, unless there is a word to refuse it with: there is
    /// none at QoS 0, and none before MQTT 5. At QoS 0 that has an end: the client may wait for something else.
    #[cold]
    fn pauses_first(&mut self, arrival: Arrival, publication: &Publication<'_>, now: Timestamp) -> bool {
        let is_qos_0 = arrival.delivery == Delivery::AtMostOnce;
        if !is_qos_0 && self.version_of(arrival.conn) == Version::V5 {
            return false;
        }
        let queue = self.sessions.get(arrival.session).and_then(|session| session.held.as_ref());
        let Some(queue) = queue.filter(|queue| !queue.has_room(Message::size_of(publication), &self.settings.back_off))
        else {
            return false;
        };
        let mut until = queue.first_release().unwrap_or(now);
        if is_qos_0 {
            let Some(end) = self.connection_mut(arrival.conn).and_then(|it| it.may_leave_unread(now)) else {
                return false;
            };
            until = until.min(end);
        }
        self.pause(arrival.conn, until, now);
        true
    }

    #[cold]
    fn decide(
        &mut self,
        arrival: Arrival,
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
        if wait.is_zero() && session.held.is_none() {
            self.calm_down(arrival.session, now);
            return Ok(Admission::Pass);
        }
        let nothing = HoldQueue::default();
        let queue = session.held.as_deref().unwrap_or(&nothing);
        let release_at = queue.last_release().map_or(now + wait, |last| last.max(now + wait));
        let wait = release_at.since(now);
        let cause = if !queue.has_room(size, &bounds) || !self.memory.has_room(Kind::Passing, size) {
            Some(Cause::HoldFull)
        } else if arrival.delivery != Delivery::AtMostOnce && wait > bounds.hold_max() {
            Some(Cause::Rhythm)
        } else {
            None
        };
        if let Some(cause) = cause {
            let plan = self.gate.plan;
            if let Some(publisher) = self.publisher_of(arrival.session)
                && let Some(plan) = publisher.pin.as_deref().map(|(_, plan)| *plan).or(plan)
            {
                publisher.rhythm.give_back(&plan);
            }
            return self.refuse_publish(arrival, cause, wait, now);
        }
        self.hold(arrival, publication, release_at, now);
        Ok(Admission::Settled)
    }

    fn hold(&mut self, arrival: Arrival, publication: &Publication<'_>, release_at: Timestamp, now: Timestamp) {
        let Some(session) = self.sessions.get_mut(arrival.session) else { return };
        let message = Arc::new(Message::new(publication, &self.memory.tally));
        session.hold(Held { message, delivery: arrival.delivery, release_at, answer: Answer::Owed }, &mut self.stats);
        if let Delivery::ExactlyOnce { packet_id, .. } = arrival.delivery {
            session.note_inbound(packet_id);
        }
        if let Some(publisher) = self.publisher_of(arrival.session) {
            publisher.note_taken();
        }
        self.arm_release(arrival.session, now);
        self.note_slowed(arrival.session, release_at, now);
    }

    /// Tells once that a publisher is slowed.
    fn note_slowed(&mut self, index: u32, until: Timestamp, now: Timestamp) {
        let Some(publisher) = self.publisher_of(index) else { return };
        let before = publisher.slowed;
        publisher.slowed = Some((before.map_or(now, |(since, _)| since), until));
        let (interval, rate) = (publisher.rhythm.interval(), publisher.rhythm.current_rate());
        if let (None, Some(session)) = (before, self.sessions.get(index)) {
            let client_id = Arc::clone(&session.client_id);
            self.tell(Event::Slowed { client_id, interval, rate, until });
            self.send_notice(index, until.since(now), now);
        }
    }

    /// A publisher was led to think of itself as faster than it was: slowly, but far (F129).
    #[cold]
    fn tell_drift(&mut self, index: u32, from: Duration, to: Duration) {
        if let Some(session) = self.sessions.get(index) {
            self.tell(Event::Drifted { client_id: Arc::clone(&session.client_id), from, to });
        }
    }

    /// A message passed: the episode is over if nothing had to wait for some time.
    fn calm_down(&mut self, index: u32, now: Timestamp) {
        let Some(publisher) = self.publisher_of(index) else { return };
        publisher.note_taken();
        let is_over = publisher.slowed.take_if(|(_, until)| *until + CALM <= now).is_some();
        if let (true, Some(session)) = (is_over, self.sessions.get(index)) {
            self.tell(Event::Recovered { client_id: Arc::clone(&session.client_id) });
        }
    }

    fn publisher_of(&mut self, index: u32) -> Option<&mut Publisher> {
        let slot = self.sessions.get(index)?.publisher?;
        self.gate.publishers.get_mut(slot)
    }
}

/// No place in the table of publishers.
const NOBODY: u32 = u32::MAX;
