//! The gate that publishers pass: the only place where control's decisions meet broker state (CONTROL §9.2).
//!
//! Every PUBLISH that is neither a repetition nor forbidden is told to the *claim* of its client, which colours it:
//! entitled, or excess. Nobody is held or refused for that. The colour goes with the message, and where something is
//! scarce the entitled come first: at the loop (`claims`, and the driver's read order), and in the queues of receivers.
//!
//! Only where the operator wants it (`enforce = always`, the papers' rules, or a limit of its own) a [`Rhythm`] is told as
//! well, which answers pass, hold, refuse or disconnect. What then happens:
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

mod absent;
mod arrivals;
mod claims;
pub(crate) mod hold;
mod limits;
mod memory;
mod notice;
mod parents;
pub(crate) mod publisher;
pub(crate) mod publishers;
mod refuse;
mod shed;
mod silent;

use alloc::sync::Arc;
use core::time::Duration;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_control::Timestamp;
use tidegate_control::claim::{ClaimPlan, Colour};
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
pub use claims::Reading;
use hold::{Answer, Held, HoldQueue};
pub use limits::{LimitsFull, Whom};
pub(crate) use memory::{Charge, Kind, Memory, Tally};
pub(crate) use notice::is_own_notice;
use publisher::{Publisher, Trouble};
use publishers::{Publishers, key_of};
use refuse::Cause;
pub(crate) use refuse::Pace;
pub(crate) use silent::Silent;

/// State of the gate.
#[derive(Debug)]
pub(crate) struct Gate {
    /// None: publishers are never slowed.
    plan: Option<RhythmPlan>,
    pub(crate) level: Level,
    pub(crate) publishers: Publishers,
    /// The connection that is read now had not been read dry for a second.
    pub(crate) is_unread: bool,
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

    /// The numbers of claims. (Who has a limit is counted also where nobody is watched.)
    pub(crate) fn claim_plan(&self) -> ClaimPlan {
        self.plan.as_ref().map_or_else(ClaimPlan::default, RhythmPlan::claim)
    }

    /// A turn took so long.
    #[inline]
    pub(crate) fn on_turn(&mut self, messages: u64, took: Duration) {
        self.publishers.on_turn(messages, took);
    }
}

/// Over how long a rate is averaged.
pub const RATE_WINDOW: Duration = Duration::from_secs(10);

/// What is known of a publisher, for whoever asks why it is slowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublisherReport {
    /// Its usual interval between messages; none while it is being learned.
    pub learned_interval: Option<Duration>,
    /// Messages that it is known to send at once, at least 1.
    pub batch: u32,
    /// Messages per second over the last ten seconds ([`RATE_WINDOW`]): what was taken from it.
    pub rate: f64,
    /// Messages per second over its last eight or so where rhythms are enforced, else over the last ten seconds.
    pub current_rate: f64,
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

/// One PUBLISH at the gate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) conn: ConnId,
    pub(crate) session: u32,
    pub(crate) delivery: Delivery,
    /// When it came, as far as is known.
    pub(crate) came: ArrivalTime,
    /// When its connection was last known to be read dry.
    pub(crate) dry_at: Timestamp,
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
            is_unread: false,
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
    /// The driver has measured how hard the broker is pressed. No publisher is slowed for that.
    pub fn set_level(&mut self, level: Level) {
        self.gate.level = level;
    }

    /// As it was last told.
    pub fn level(&self) -> Level {
        self.gate.level
    }

    /// What is known of a client as a publisher; none if it has no session here, or never published of late.
    pub fn publisher(&self, client_id: &str, now: Timestamp) -> Option<PublisherReport> {
        let session = self.by_client.get(client_id).and_then(|session| self.sessions.get(*session))?;
        self.publisher_report(session, now)
    }

    pub(crate) fn publisher_report(&self, session: &Session, now: Timestamp) -> Option<PublisherReport> {
        let publishers = &self.gate.publishers;
        let find = || publishers.find(&key_of(&session.identity, &session.client_id));
        let slot = session.publisher.or_else(find)?;
        let publisher = publishers.get(slot)?;
        let trouble = publishers.trouble(slot);
        let slowed = trouble.and_then(|trouble| trouble.slowed);
        let claim = &publisher.claim;
        let connection = session.conn.and_then(|conn| self.connections.get(conn));
        Some(PublisherReport {
            learned_interval: publisher.usual_interval(),
            batch: publisher.batch(),
            rate: claim.recent_rate(now),
            current_rate: publisher.current_rate(now),
            served: claim.served().into(),
            usual: claim.learned_rate().map(f64::from),
            unread_since: connection.and_then(|connection| connection.unread_at(now)),
            is_entitled: publisher.is_entitled(),
            granted: self.grant_of(session),
            parent: session.parent,
            held: session.held_len(),
            refused: trouble.map_or(0, |trouble| trouble.refused),
            dropped: trouble.map_or(0, |trouble| trouble.dropped),
            slowed_until: slowed.map(|(_, until)| until),
            slowed_since: slowed.map(|(since, _)| since),
            refused_at: trouble.and_then(Trouble::refused_at),
            are_receivers_full: trouble.is_some_and(|trouble| trouble.are_receivers_full(now)),
        })
    }

    /// Asks whether a message may come in, and sees to it if it may not. Colours it.
    pub(crate) fn admit(
        &mut self,
        arrival: Arrival,
        publication: &mut Publication<'_>,
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
        let Gate { plan, publishers, limits, .. } = &mut self.gate;
        let claim_plan = plan.as_ref().map_or_else(ClaimPlan::default, RhythmPlan::claim);
        let (mut verdict, mut drift) = (Verdict::Pass, None);
        let mut is_slowed = is_holding;
        if let Some((publisher, trouble, parents)) = publishers.get_all(slot) {
            if publisher.end_second(&claim_plan, now, arrival.dry_at, parents) {
                drift = publisher.begin_second();
            }
            if !is_refresh || !publisher.may_refresh() {
                let colour = publisher.claim.on_message(&claim_plan, now, arrival.dry_at);
                publisher.set_entitled(colour);
                // Where nobody is watched, nobody comes first.
                publication.standing.colour = if plan.is_some() { colour } else { Colour::Entitled };
                match trouble.as_ref().and_then(|trouble| trouble.pin.as_deref()) {
                    Some(pin) => {
                        let rhythm = limits.rhythm_of(pin).unwrap_or(&mut publisher.rhythm);
                        verdict = rhythm.on_arrival(&pin.plan, arrival.came, Pressure::Pressed);
                    }
                    None => {
                        if let Some(plan) = plan.as_ref().filter(|plan| plan.is_enforced()) {
                            verdict = publisher.rhythm.on_arrival(plan, arrival.came, Pressure::Idle);
                        }
                    }
                }
            }
            is_slowed |= trouble.is_some_and(|trouble| trouble.slowed.is_some());
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
        self.note_left(index, now);
        let Some(session) = self.sessions.get_mut(index) else { return };
        if let Some(queue) = &mut session.held {
            queue.void_answers();
        }
        if let Some(slot) = session.publisher.take() {
            self.gate.publishers.leave(slot, now);
        }
    }

    #[cold]
    pub(crate) fn enrol(&mut self, index: u32, now: Timestamp) -> u32 {
        let Some(session) = self.sessions.get(index) else { return NOBODY };
        let plan =
            self.gate.plan.or_else(|| self.is_limited(session).then(|| RhythmConfig::default().build().ok()).flatten());
        let (Some(plan), Some(session)) = (plan, self.sessions.get_mut(index)) else { return NOBODY };
        let key = key_of(&session.identity, &session.client_id);
        self.gate.publishers.expire(self.settings.back_off.memory, now);
        let slot = self.gate.publishers.join(&key, session.parent, || Rhythm::new(&plan));
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
        let (class, size) = (publication.standing.class, Message::size_of(publication));
        let Some(queue) = queue.filter(|queue| !queue.has_room(class, size, &self.settings)) else {
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

    fn hold(&mut self, arrival: Arrival, publication: &Publication<'_>, release_at: Timestamp, now: Timestamp) {
        let Some(session) = self.sessions.get_mut(arrival.session) else { return };
        let message = Arc::new(Message::new(publication, &self.memory.tally));
        let (delivery, answer) = (arrival.delivery, Answer::Owed);
        session.hold(Held { message, delivery, release_at, came: now, answer }, &mut self.stats);
        self.stats.publish_held += 1;
        let publisher = session.publisher.and_then(|slot| self.gate.publishers.get(slot));
        let interval = publisher.and_then(Publisher::usual_interval);
        self.meters.note_delay(publication.standing.class, release_at.since(now), interval);
        if let Delivery::ExactlyOnce { packet_id, .. } = arrival.delivery {
            session.note_inbound(packet_id);
        }
        if let Some(trouble) = self.trouble_of(arrival.session) {
            trouble.note_taken();
        }
        self.arm_release(arrival.session, now);
        self.note_slowed(arrival.session, release_at, now);
    }

    /// Tells once that a publisher is slowed.
    fn note_slowed(&mut self, index: u32, until: Timestamp, now: Timestamp) {
        let Some(trouble) = self.trouble_of(index) else { return };
        let before = trouble.slowed;
        trouble.slowed = Some((before.map_or(now, |(since, _)| since), until));
        if let (None, Some(session)) = (before, self.sessions.get(index)) {
            let publisher = session.publisher.and_then(|slot| self.gate.publishers.get(slot));
            let interval = publisher.and_then(Publisher::usual_interval);
            let rate = publisher.map_or(0.0, |publisher| publisher.current_rate(now));
            let client_id = Arc::clone(&session.client_id);
            self.tell(Event::Slowed { client_id, interval, rate, until });
            if until > now {
                self.send_notice(index, until.since(now), now);
            }
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
        let Some(trouble) = self.trouble_of(index) else { return };
        trouble.note_taken();
        let is_over = trouble.slowed.take_if(|(_, until)| *until + CALM <= now).is_some();
        if let (true, Some(session)) = (is_over, self.sessions.get(index)) {
            self.tell(Event::Recovered { client_id: Arc::clone(&session.client_id) });
        }
    }

    /// What is remembered against the publisher of a session: from now on something is.
    fn trouble_of(&mut self, index: u32) -> Option<&mut Trouble> {
        let slot = self.sessions.get(index)?.publisher?;
        self.gate.publishers.trouble_mut(slot)
    }
}

/// No place in the table of publishers.
const NOBODY: u32 = u32::MAX;
