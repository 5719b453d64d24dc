//! All admission of messages, in the order in which a message meets it: the only place where control's decisions meet
//! broker state.
//!
//! | gate | asks | file |
//! | --- | --- | --- |
//! | store | can what has to be kept be kept? | `store.rs` |
//! | class | which class is it of (`classify.rs`), and may that class have more waiting? | `class.rs` |
//! | hold | is there room behind those of the same publisher that wait here already? | `hold.rs` |
//! | memory | is there memory to keep it in? | `memory.rs` |
//! | rhythm | is it usual for its publisher, and within its limit? | `rhythm.rs` |
//! | share | would a receiver get it, or does its publisher have its share of all queues? | `share/mod.rs` |
//!
//! [`ShardState::pass_gates`] is that table in code. A gate decides and counts; it says nothing to the client. What it decided
//! is an [`Admission`]; who called says it in the words of the client's protocol. The rules of access come before all
//! gates (`ShardState::check_rules`): what is forbidden costs nobody a place.
//!
//! Beside the gates stand what they know of publishers (`publishers.rs`, `publisher.rs`, `parents.rs`, `limits.rs`) and of
//! those who do not publish (`silent.rs`, `absent.rs`); who is let in at all (`arrivals.rs`); who is read first and which
//! pace it hears (`claims.rs`, `notice.rs`); what is known while the gate is off (`observe.rs`); what is asked once of many messages (`streak.rs`); and who goes when memory is
//! used up (`shed.rs`).

mod absent;
mod arrivals;
mod claims;
mod class;
mod classify;
mod hold;
mod limits;
mod memory;
mod notice;
mod observe;
mod parents;
mod passage;
mod publisher;
mod publishers;
mod refuse;
mod report;
mod rhythm;
mod saved;
pub(crate) mod share;
mod shed;
mod silent;
mod store;
mod streak;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::time::Duration;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_control::Timestamp;
use tidegate_control::claim::{BOUND_SECONDS, CALM_WINDOW, ClaimPlan};
use tidegate_control::pressure::Level;
use tidegate_control::rhythm::{ArrivalTime, Rhythm, RhythmConfig, RhythmPlan};
use tidegate_wire_mqtt::Delivery;

use crate::input::Ending;
use crate::message::{Precedence, Publication};
use crate::settings::BackOff;
use crate::shard::ConnId;
use crate::state::ShardState;
pub(crate) use arrivals::{Arrivals, NameProof};
pub use claims::Reading;
pub use classify::ClassReport;
pub use limits::{LimitsFull, Whom};
pub(crate) use memory::MessageBytes;
pub use memory::{Charge, Kind, Memory};
pub(crate) use notice::is_own_notice;
use publishers::Publishers;
pub use refuse::Refusal;
pub use report::{PublisherReport, RATE_WINDOW};
pub(crate) use saved::Left;
pub use saved::SavedRhythm;
pub(crate) use silent::Silent;

/// One message at the gates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GateArrival {
    pub(crate) conn: ConnId,
    pub(crate) session: u32,
    pub(crate) delivery: Delivery,
    /// When it came, as far as is known.
    pub(crate) came: ArrivalTime,
    /// When its connection was last known to be read dry.
    pub(crate) dry_at: Timestamp,
}

/// What the gates say of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Take it.
    Pass,
    /// It waits here and is answered later, or nobody waits for an answer: it is counted.
    Settled,
    /// It is not taken from the connection, which is paused: it will come again.
    Wait,
    /// It is counted, and its client is to be told. In a box: it is rare, and every message has room for it.
    Refused(Box<Refusal>),
}

impl ShardState {
    /// Asks all gates whether a message may come in. Classifies and colours it.
    pub(crate) fn pass_gates(
        &mut self,
        arrival: GateArrival,
        publication: &mut Publication<'_>,
        now: Timestamp,
    ) -> Result<Admission, Ending> {
        if may_be_one_of_many(arrival, publication) {
            if let Some(standing) = self.gate.publishers.go_on(arrival.session, now) {
                publication.standing = standing;
                return Ok(Admission::Pass);
            }
        } else {
            self.gate.publishers.end_streak();
        }
        if let Some(admission) = self.admit_to_store(arrival, publication, now) {
            return Ok(admission);
        }
        publication.standing = self.classify(arrival.session, publication, now);
        let admission = self.pass_gates_of_class(arrival, publication, now);
        // One that waits comes again, and is written down then.
        if self.recording.is_on() && !matches!(admission, Ok(Admission::Wait)) {
            self.record(arrival.session, publication, arrival.came.likely(), now);
        }
        if matches!(admission, Ok(Admission::Pass)) && may_be_one_of_many(arrival, publication) {
            self.begin_streak(arrival.session, publication.standing, now);
        }
        admission
    }

    /// What was asked of a message holds for those that come with it, unless there is more to ask of each.
    fn begin_streak(&mut self, index: u32, standing: Precedence, now: Timestamp) {
        let plan = self.gate.plan.as_ref();
        let asks_each = self.recording.is_on()
            || self.settings.priority.has_more_to_ask()
            || plan.is_some_and(RhythmPlan::is_enforced);
        let Some(session) = self.sessions.get(index).filter(|session| !session.is_holding()) else { return };
        // Who is counted where nobody is watched has a limit or a grant.
        if !asks_each && plan.is_some() == session.publisher().is_some() {
            self.gate.publishers.begin_streak(index, session.publisher(), standing, now);
        }
    }

    /// The gates that ask for the class of a message.
    fn pass_gates_of_class(
        &mut self,
        arrival: GateArrival,
        publication: &mut Publication<'_>,
        now: Timestamp,
    ) -> Result<Admission, Ending> {
        if let Some(admission) = self.admit_to_class(arrival, publication, now) {
            return Ok(admission);
        }
        let Some(session) = self.sessions.get(arrival.session) else { return Ok(Admission::Settled) };
        let (is_holding, slot) = (session.is_holding(), session.publisher());
        if is_holding && self.pauses_first(arrival, publication, now) {
            return Ok(Admission::Wait);
        }
        if let Some(admission) = self.admit_to_memory(arrival, publication, now) {
            return Ok(admission);
        }
        let admission = self.admit_to_rhythm(arrival, publication, (is_holding, slot), now)?;
        if admission != Admission::Pass {
            return Ok(admission);
        }
        Ok(self.admit_to_receivers(arrival, publication, now).unwrap_or(Admission::Pass))
    }
}

/// Whether no gate but that of claims asks for more of a message than who sent it.
#[inline]
fn may_be_one_of_many(arrival: GateArrival, publication: &Publication<'_>) -> bool {
    arrival.delivery == Delivery::AtMostOnce && !publication.retain && publication.properties.is_empty()
}

/// State of the gate.
#[derive(Debug)]
pub(crate) struct Gate {
    /// None: publishers are never slowed.
    plan: Option<RhythmPlan>,
    /// By which rule they are watched, or were before the gate was switched off: what was learned lasts until another comes.
    learned_by: RhythmConfig,
    level: Level,
    publishers: Publishers,
    /// The connection that is read now had not been read dry for a second.
    is_unread: bool,
    limits: limits::ClientLimits,
    /// The limit for everybody has changed; applied in the next turn.
    has_new_limits: bool,
    /// When a connection was last cut for want of memory.
    shed_at: Timestamp,
    /// When a message in excess was last let in beyond what everybody may have waiting for the disk.
    excess_stored_at: Timestamp,
    /// Sessions that ended and still hold messages, by client.
    ghosts: HashMap<Arc<str>, u32, FixedState>,
}

impl Gate {
    /// By which rule publishers are watched; none if they are not.
    pub(crate) fn plan(&self) -> Option<&RhythmPlan> {
        self.plan.as_ref()
    }

    /// The same; while nobody is watched, the rule by which they were, or will be.
    pub(crate) fn learning_plan(&self) -> Option<RhythmPlan> {
        self.plan.or_else(|| built(self.learned_by))
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

impl Gate {
    pub(crate) fn new(back_off: &BackOff, seed: u64) -> Self {
        let ghosts = HashMap::with_hasher(FixedState::with_seed(seed));
        Self {
            plan: plan_of(back_off),
            learned_by: back_off.rhythm.unwrap_or_default(),
            level: Level::Calm,
            publishers: Publishers::new(seed),
            is_unread: false,
            limits: limits::ClientLimits::new(seed),
            has_new_limits: false,
            shed_at: Timestamp::ZERO,
            excess_stored_at: Timestamp::ZERO,
            ghosts,
        }
    }

    /// How the first message of a client stands that is connected since then. Its rate is not higher than one message in
    /// that time; the paper's mean of no interval at all is none.
    #[cold]
    pub(crate) fn standing_of_first(
        &mut self,
        since: Option<Timestamp>,
        wants_rate: bool,
        now: Timestamp,
    ) -> Precedence {
        if self.plan.is_none() && !wants_rate {
            return Precedence::UNKNOWN;
        }
        let watched = since.map_or(0.0, |since| now.since(since).as_secs_f64());
        let most = (watched >= f64::from(BOUND_SECONDS)).then(|| 1.0 / watched);
        let standing = Precedence::of(self.publishers.class_at_most(most));
        if wants_rate { Precedence { rate: 0.0_f32.to_bits(), ..standing } } else { standing }
    }

    /// A connection is read that was last known to be read dry then.
    #[inline]
    pub(crate) fn begin_reading(&mut self, dry_at: Timestamp, now: Timestamp) {
        self.publishers.end_streak();
        self.is_unread = now.since(dry_at) > CALM_WINDOW;
    }

    /// All that is read of a connection for now is dealt with.
    #[inline]
    pub(crate) fn end_reading(&mut self) {
        self.publishers.end_streak();
    }

    /// The connection that is read now had not been read dry for a second.
    #[inline]
    pub(crate) fn is_unread(&self) -> bool {
        self.is_unread
    }

    /// Limits that are settings have changed.
    pub(crate) fn note_new_limits(&mut self) {
        self.has_new_limits = true;
    }

    /// Whether limits that are settings have changed since this was last asked.
    #[inline]
    pub(crate) fn take_new_limits(&mut self) -> bool {
        core::mem::take(&mut self.has_new_limits)
    }

    /// New settings. What was learned under another rule is forgotten; to switch the gate off and on again is none.
    pub(crate) fn configure(&mut self, old: &BackOff, new: &BackOff) {
        self.has_new_limits |= old.rate != new.rate;
        self.plan = plan_of(new);
        if let (Some(plan), Some(config)) = (&self.plan, new.rhythm) {
            if config.rule != self.learned_by.rule {
                self.publishers.relearn(|| Rhythm::new(plan));
            }
            self.learned_by = config;
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
    built(back_off.rhythm?)
}

fn built(config: RhythmConfig) -> Option<RhythmPlan> {
    config.build().or_else(|_| RhythmConfig::default().build()).ok()
}

impl ShardState {
    pub(crate) fn set_level(&mut self, level: Level) {
        self.gate.level = level;
    }

    pub(crate) fn level(&self) -> Level {
        self.gate.level
    }
}
