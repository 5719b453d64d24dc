//! What the operator has said about single clients and users: limits, and grants.
//!
//! A *limit* (`rate`) is hard: it holds at any level of pressure and in any mode, `off` included. "N per time" lets N
//! messages through at once and then one every time/N; what is beyond waits its time, and no longer. The limit of a
//! client goes before that of its user, both before that of its class (`classes.NAME.rate`), and all before the one for
//! everybody (`limits.rate`); the last two each client has for itself. That of a user is for all its clients on the same shard together; a user whose clients live on several shards
//! has its rate on each of them. That of a client that is called by its address holds in the same way for all connections from there.
//!
//! A *grant* (`entitled`) is a claim that need not be learned: so much comes first where something is scarce. It limits
//! nobody. That of a client goes before that of its user, which each of its clients has for itself.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_control::Timestamp;
use tidegate_control::rhythm::{Enforcement, Rhythm, RhythmConfig, RhythmPlan, RhythmRule};

use super::Gate;
use super::publisher::{Pin, PublisherTrouble};
use crate::access::lasting_name;
use crate::limits::LIMITS_MAX;
use crate::session::Session;
use crate::settings::Rate;
use crate::state::ShardState;

/// Whom a limit is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Whom {
    /// The client with this identifier.
    Client(Arc<str>),
    /// The clients of this user.
    User(Arc<str>),
}

impl Whom {
    /// Whom it is about over all connections.
    #[must_use]
    pub fn lasting(&self) -> Self {
        match self {
            Self::Client(name) => Self::Client(lasting_name(name).into()),
            Self::User(_) => self.clone(),
        }
    }

    /// By what a rhythm is found that several clients share; none if it is the client's own.
    fn shared(&self, session: &Session) -> Option<Arc<str>> {
        match self {
            Self::User(user) => Some(Arc::clone(user)),
            Self::Client(name) if **name == **session.client_id() => None,
            // No user has a NUL.
            Self::Client(name) => Some(format!("\0{name}").into()),
        }
    }
}

/// What was said of single clients and users.
#[derive(Debug)]
pub(crate) struct ClientLimits {
    rates: Table,
    grants: Table,
    /// How users stand with the limits that their clients have together.
    users: HashMap<Arc<str>, Rhythm, FixedState>,
}

type Table = HashMap<Whom, Rate, FixedState>;

impl ClientLimits {
    pub(crate) fn new(seed: u64) -> Self {
        let state = FixedState::with_seed(seed);
        Self {
            rates: HashMap::with_hasher(state.clone()),
            grants: HashMap::with_hasher(state.clone()),
            users: HashMap::with_hasher(state),
        }
    }

    /// The rhythm that a limit is measured by, if several clients share it.
    pub(super) fn rhythm_of(&mut self, pin: &Pin) -> Option<&mut Rhythm> {
        self.users.get_mut(pin.user.as_ref()?)
    }
}

/// With the name of what several clients share, if it is not the client's own.
fn find(table: &Table, session: &Session) -> Option<(Rate, Option<Arc<str>>)> {
    if table.is_empty() {
        return None;
    }
    let of = |whom: Whom| Some((*table.get(&whom)?, whom.shared(session)));
    let client = Whom::Client(Arc::clone(session.client_id())).lasting();
    of(client).or_else(|| of(Whom::User(Arc::clone(session.identity().user.as_ref()?))))
}

fn put(table: &mut Table, whom: &Whom, rate: Option<Rate>) -> Result<(), LimitsFull> {
    match rate {
        Some(_) if table.len() >= LIMITS_MAX && !table.contains_key(whom) => return Err(LimitsFull),
        Some(rate) => drop(table.insert(whom.clone(), rate)),
        None => drop(table.remove(whom)),
    }
    Ok(())
}

fn listed(table: &Table) -> Vec<(Whom, Rate)> {
    let mut list: Vec<_> = table.iter().map(|(whom, rate)| (whom.clone(), *rate)).collect();
    list.sort_by(|left, right| left.0.cmp(&right.0));
    list
}

/// Where the table of limits is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsFull;

impl ShardState {
    pub(crate) fn set_limit(&mut self, whom: &Whom, rate: Option<Rate>, now: Timestamp) -> Result<(), LimitsFull> {
        let whom = whom.lasting();
        put(&mut self.gate.limits.rates, &whom, rate)?;
        match whom {
            Whom::User(user) => drop(self.gate.limits.users.remove(&user)),
            Whom::Client(name) => drop(self.gate.limits.users.remove(&*format!("\0{name}"))),
        }
        self.apply_limits(now);
        Ok(())
    }

    pub(crate) fn set_grant(&mut self, whom: &Whom, rate: Option<Rate>, now: Timestamp) -> Result<(), LimitsFull> {
        put(&mut self.gate.limits.grants, &whom.lasting(), rate)?;
        self.apply_limits(now);
        Ok(())
    }

    pub(crate) fn limits(&self) -> Vec<(Whom, Rate)> {
        listed(&self.gate.limits.rates)
    }

    pub(crate) fn grants(&self) -> Vec<(Whom, Rate)> {
        listed(&self.gate.limits.grants)
    }

    /// The limit that holds for this session's publisher, and the user who has it.
    fn limit_of(&self, session: &Session) -> Option<(Rate, Option<Arc<str>>)> {
        let of_class = || self.settings.priority.classes.rate_of(session.identity(), session.client_id());
        let of_settings = || of_class().or(self.settings.back_off.rate).map(|rate| (rate, None));
        find(&self.gate.limits.rates, session).or_else(of_settings)
    }

    /// Messages a second that this session's publisher is entitled to by the operator.
    pub(super) fn grant_of(&self, session: &Session) -> Option<f64> {
        find(&self.gate.limits.grants, session).map(|(rate, _)| 1.0 / rate.interval().as_secs_f64().max(1e-9))
    }

    /// Whether there is anything to watch this client for, though nobody is watched.
    pub(super) fn is_limited(&self, session: &Session) -> bool {
        self.limit_of(session).is_some()
    }

    /// Limits have changed: whoever publishes now is measured by the new ones. (Others are when they come back.)
    pub(crate) fn apply_limits(&mut self, now: Timestamp) {
        if self.connections.len() == 0 {
            return;
        }
        let publishes = |session: &Session| session.conn().is_some() && session.publisher().is_some();
        let all: Vec<u32> = self.sessions.iter().filter(|(_, it)| publishes(it)).map(|(index, _)| index).collect();
        for index in all {
            self.apply_limit(index, now);
        }
    }

    /// What holds for a session that publishes, or begins to.
    pub(super) fn apply_limit(&mut self, index: u32, now: Timestamp) {
        let Some(session) = self.sessions.get(index) else { return };
        let (limit, grant) = (self.limit_of(session), find(&self.gate.limits.grants, session));
        let Some(slot) = session.publisher() else { return };
        if self.pin(slot, limit, now) {
            self.retime_held(index, now);
        }
        let plan = self.gate.claim_plan();
        self.gate.publishers.grant(slot, &plan, grant.map(|(rate, _)| per_second(rate)));
    }

    /// True if another limit holds from now on.
    fn pin(&mut self, slot: u32, limit: Option<(Rate, Option<Arc<str>>)>, now: Timestamp) -> bool {
        let Gate { plan, publishers, limits, .. } = &mut self.gate;
        let pin = limit.and_then(|(rate, user)| Some(Pin { rate, plan: plan_of(rate)?, user }));
        if let Some(Pin { rate, plan, user: Some(user) }) = &pin
            && !limits.users.contains_key(user)
        {
            limits.users.insert(Arc::clone(user), Rhythm::pin(plan, rate.interval(), now));
        }
        let same = |old: &Pin, new: &Pin| old.rate == new.rate && old.user == new.user;
        let before = publishers.trouble(slot).and_then(PublisherTrouble::pin);
        if match (before, &pin) {
            (None, None) => true,
            (Some(old), Some(new)) => same(old, new),
            _ => false,
        } {
            return false;
        }
        let rhythm = match &pin {
            Some(Pin { rate, plan, user: None }) => Some(Rhythm::pin(plan, rate.interval(), now)),
            _ => plan.as_ref().map(Rhythm::new),
        };
        if let Some(trouble) = publishers.trouble_mut(slot) {
            trouble.set_pin(pin);
        }
        if let (Some(publisher), Some(rhythm)) = (publishers.get_mut(slot), rhythm) {
            publisher.rhythm = rhythm;
        }
        true
    }
}

fn per_second(rate: Rate) -> f32 {
    (1.0 / rate.interval().as_secs_f64().max(1e-9)) as f32
}

/// No headroom, no batches and no punishment: the operator has said what is right, and what is beyond waits its time.
fn plan_of(rate: Rate) -> Option<RhythmPlan> {
    let config = RhythmConfig {
        rule: RhythmRule::Practical,
        enforcement: Enforcement::Always,
        headroom: 1.0,
        delay_unit: core::time::Duration::ZERO,
        // The first one needs no burst.
        burst: (rate.burst() - 1).min(10_000),
        interval_min: core::time::Duration::from_micros(1),
        interval_max: core::time::Duration::from_secs(30 * 86_400),
        ..RhythmConfig::default()
    };
    config.build().ok()
}
