//! One client: its algorithm and what is known about it, in as few bytes as possible.

use std::sync::Arc;
use std::time::Duration;

use tidegate_client::session::watch::{ChangeDelivery, Watch, WatchPlan};
use tidegate_control::appointments::Ticket;
use tidegate_control::pacer::{AstStep, HintUse, Outcome, Pacer, PacerConfig, PacerPlan, PacerSnapshot, Preset, Start};
use tidegate_control::{ConfigError, Timestamp};

use super::baseline::{BaselineState, Due, Ended};
use super::config::{Algorithm, Polling, StepChoice};
use super::own::{CheckEnd, Own, OwnAlgorithm};
use super::session::Session;
use crate::chance::Stream;

#[expect(clippy::struct_excessive_bools, reason = "as few bytes as possible, for a million of them")]
pub(super) struct Client {
    pub(super) control: Control,
    pub(super) chance: Stream,
    /// When its item changes, and whether the notification is lost: the same in every run of a seed.
    pub(super) updates: Stream,
    /// The place that was promised to a pacer; a session keeps its own.
    pub(super) ticket: Option<Ticket>,
    /// When the request under way was sent, nanoseconds; [`NEVER`] if there is none.
    pub(super) sent: u64,
    /// When the check under way was first tried.
    pub(super) tried: u64,
    pub(super) succeeded: u64,
    /// Since when the copy is out of date; [`NEVER`] if it is not.
    pub(super) stale_since: u64,
    /// Sum of the times at which notifications were lost that no check has shown yet, seconds.
    pub(super) lost_at_sum: f64,
    pub(super) lost: u32,
    pub(super) attempt: u32,
    /// Changes of its item so far, and the last one it knows.
    pub(super) version: u32,
    pub(super) known: u32,
    /// Updates per second.
    pub(super) rate: f32,
    pub(super) successes: u16,
    pub(super) group: u8,
    /// The radio is in a burst of losses.
    pub(super) fading: bool,
    /// A basic level of the papers: it knows nothing of urgency, so a failure waits for the next regular check.
    pub(super) basic: bool,
    /// It says how often it wants to ask, and keeps appointments.
    pub(super) speaks: bool,
    /// It has had its answer and asks no more.
    pub(super) done: bool,
}

pub(super) const NEVER: u64 = u64::MAX;
/// Seconds that an algorithm of the reader's own can choose.
const OWN_MIN: f64 = 0.001;
const OWN_MAX: f64 = 86_400.0;

pub(super) enum Control {
    Pacer(Pacer),
    Baseline(BaselineState),
    Own(Box<dyn OwnAlgorithm>),
    Session(Box<Session>),
}

impl Control {
    /// What its pacer is doing, if there is one.
    pub(super) fn snapshot(&self) -> Option<PacerSnapshot> {
        match self {
            Self::Pacer(pacer) => Some(pacer.snapshot()),
            Self::Session(session) => Some(session.watch.stats().pacer),
            Self::Baseline(_) | Self::Own(_) => None,
        }
    }
}

/// How clients of one group are made.
pub(super) enum Maker {
    Pacer(Arc<PacerPlan>, HintUse),
    Baseline(BaselineState),
    Own(Own, Box<Polling>),
    Session(Arc<WatchPlan>),
}

impl Maker {
    pub(super) fn new(config: &Polling, algorithm: Algorithm) -> Result<Self, ConfigError> {
        let clients = &config.clients;
        let preset = match algorithm {
            Algorithm::Baseline(rule) => return Ok(Self::Baseline(BaselineState::new(rule, config))),
            Algorithm::Own(own) => return Ok(Self::Own(own, Box::new(config.clone()))),
            Algorithm::Session | Algorithm::SessionOf(_) if config.updates.slides.is_some() => return Err(no_slides()),
            Algorithm::Pacer(preset) | Algorithm::SessionOf(preset) => preset,
            Algorithm::Session => Preset::default(),
        };
        let pacer = config.pacer(preset)?;
        let hints = pacer.hints;
        let pacer = pacer.build()?;
        if algorithm.is_session() {
            let delivery = if clients.once { ChangeDelivery::Poll } else { ChangeDelivery::Push };
            let check_timeout = Duration::from_secs_f64(clients.request_timeout);
            return Ok(Self::Session(Arc::new(WatchPlan { pacer, delivery, check_timeout })));
        }
        Ok(Self::Pacer(pacer, hints))
    }

    /// Whether an algorithm is one of the basic levels.
    pub(super) fn is_basic(algorithm: Algorithm) -> bool {
        let basic = [Preset::None, Preset::Fixed, Preset::Random, Preset::Exponential];
        matches!(algorithm, Algorithm::Pacer(preset) if basic.contains(&preset))
    }

    pub(super) fn make(&self, chance: &mut Stream) -> Control {
        match self {
            Self::Pacer(plan, _) => Control::Pacer(Pacer::new(plan)),
            Self::Baseline(state) => Control::Baseline(*state),
            Self::Own(own, config) => Control::Own((own.make)(config)),
            Self::Session(plan) => Control::Session(Box::new(Session::new(Watch::new(plan, Timestamp::ZERO, chance)))),
        }
    }

    /// Whether its clients say how often they want to ask, and keep appointments.
    pub(super) fn speaks(&self) -> bool {
        match self {
            Self::Pacer(_, hints) => *hints == HintUse::Obey,
            Self::Baseline(_) | Self::Own(..) => false,
            Self::Session(_) => true,
        }
    }
}

impl Polling {
    /// The pacer that clients of this world have, by a name of the papers or of ours: for whoever lets real clients do the same.
    pub fn pacer(&self, preset: Preset) -> Result<PacerConfig, ConfigError> {
        let clients = &self.clients;
        let mut pacer = PacerConfig::from(preset);
        let is_paper = pacer.hints == HintUse::Ignore;
        pacer.interval = Duration::from_secs_f64(clients.interval);
        pacer.request_timeout = Duration::from_secs_f64(clients.request_timeout);
        pacer.ast.alpha = clients.alpha;
        pacer.ast.gate = clients.gate;
        pacer.ast.thinning = clients.thinning;
        pacer.ast.smoothing = clients.smoothing;
        pacer.back_off.beta = clients.beta;
        pacer.back_off.recovery = clients.recovery;
        if !is_paper {
            pacer.jitter = clients.jitter;
        }
        match clients.step {
            StepChoice::Matched => {
                pacer.ast.step = AstStep::Fixed(Duration::from_secs_f64(self.step_matched()));
            }
            StepChoice::Fixed(step) => pacer.ast.step = AstStep::Fixed(Duration::from_secs_f64(step)),
            StepChoice::Shipped => {}
        }
        if let Some(rule) = clients.detector {
            pacer.detector.rule = rule;
        }
        if let Some(rule) = clients.initial {
            pacer.initial = rule;
        }
        if let Some(obey) = clients.hints {
            pacer.hints = if obey { HintUse::Obey } else { HintUse::Ignore };
        }
        pacer.detector.network = Duration::from_secs_f64(self.link.rtt);
        for (parameter, text) in &clients.parameters {
            pacer.set(*parameter, text)?;
        }
        pacer.start = if clients.together { Start::Immediately } else { Start::Spread };
        Ok(pacer)
    }
}

impl Client {
    /// The delay before the first check, if there is to be any.
    pub(super) fn first_delay(&mut self, together: bool, interval: f64) -> Option<Duration> {
        match &mut self.control {
            Control::Pacer(pacer) => {
                if together && !self.basic {
                    pacer.on_user_waiting();
                }
                pacer.first_delay(&mut self.chance)
            }
            Control::Baseline(_) | Control::Own(_) if together => Some(Duration::ZERO),
            Control::Baseline(_) | Control::Own(_) => Some(Duration::from_secs_f64(self.chance.unit() * interval)),
            Control::Session(_) => None,
        }
    }

    /// A check is due; the answer says how long to wait instead, if the client refuses itself.
    pub(super) fn on_due(&mut self, now: Timestamp) -> Option<Duration> {
        match &mut self.control {
            Control::Pacer(pacer) => {
                pacer.on_sent();
                None
            }
            Control::Baseline(state) => match state.on_due(now.as_secs_f64(), &mut self.chance) {
                Due::Ask => None,
                Due::Skip(seconds) => Some(Duration::from_secs_f64(seconds)),
            },
            Control::Session(_) | Control::Own(_) => None,
        }
    }

    pub(super) fn on_outcome(&mut self, now: Timestamp, outcome: &Outcome) -> Option<Duration> {
        match &mut self.control {
            Control::Pacer(pacer) => pacer.on_outcome(now, outcome, &mut self.chance),
            Control::Baseline(state) => {
                Some(Duration::from_secs_f64(state.on_outcome(Ended::of(outcome), &mut self.chance)))
            }
            Control::Own(own) => {
                let delay = own.next_check(CheckEnd::of(outcome), &mut self.chance);
                // Whatever it says, the world goes on.
                Some(Duration::from_secs_f64(if delay.is_finite() { delay.clamp(OWN_MIN, OWN_MAX) } else { OWN_MAX }))
            }
            Control::Session(_) => None,
        }
    }

    /// A notification says that there is something to fetch.
    pub(super) fn on_push_hint(&mut self, spread: Option<Duration>) -> Option<Duration> {
        match &mut self.control {
            Control::Pacer(pacer) if !self.basic => pacer.on_push_hint(spread, &mut self.chance),
            Control::Session(_) => None,
            Control::Pacer(_) | Control::Baseline(_) | Control::Own(_) => {
                Some(Duration::ZERO).filter(|_| self.sent == NEVER)
            }
        }
    }

    pub(super) fn on_late_answer(&mut self, now: Timestamp, losses: u32) {
        if let Control::Pacer(pacer) = &mut self.control {
            pacer.on_late_answer(now, losses);
        }
    }
}

/// The notification of a slide says only that there is one; those of a session say what has changed.
fn no_slides() -> ConfigError {
    ConfigError {
        field: "clients.algorithm",
        value: "session".to_owned(),
        allowed: "any other where slides are shown".to_owned(),
    }
}
