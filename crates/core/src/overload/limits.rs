//! Limits that the operator has set: for a client, for a user, or for everybody (`limits.rate`).
//!
//! A limit pins a publisher: nothing is learned, the rate is the operator's, and it holds at any level of pressure and in
//! any mode, `off` included. "N per time" lets N messages through at once and then one every time/N. The limit of a client
//! goes before that of its user, and both before the one for everybody. Like all that is known of publishers it belongs
//! to the principal: a limit for one client of a user holds for all clients of that user on the same shard, together, and of
//! several the strictest does, until none of them is connected. A user whose clients live on several shards has its rate on each of them.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_control::Timestamp;
use tidegate_control::rhythm::{Enforcement, Rhythm, RhythmConfig, RhythmPlan, RhythmRule};

use super::Gate;
use super::publisher::Trouble;
use crate::limits::LIMITS_MAX;
use crate::session::Session;
use crate::settings::Rate;
use crate::shard::Shard;

/// Whom a limit is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Whom {
    /// The client with this identifier.
    Client(Arc<str>),
    /// The clients of this user.
    User(Arc<str>),
}

/// The limits of single clients and users.
#[derive(Debug)]
pub(crate) struct Limits {
    by_whom: HashMap<Whom, Rate, FixedState>,
}

impl Limits {
    pub(crate) fn new(seed: u64) -> Self {
        Self { by_whom: HashMap::with_hasher(FixedState::with_seed(seed)) }
    }

    fn find(&self, session: &Session) -> Option<Rate> {
        if self.by_whom.is_empty() {
            return None;
        }
        let client = self.by_whom.get(&Whom::Client(Arc::clone(&session.client_id)));
        let user = || self.by_whom.get(&Whom::User(Arc::clone(session.identity.user.as_ref()?)));
        client.or_else(user).copied()
    }
}

/// Where the table of limits is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsFull;

impl Shard {
    /// Limits the messages of a client or user, or stops doing so. Holds for what comes next; what is held stays held.
    pub fn set_limit(&mut self, whom: &Whom, rate: Option<Rate>, now: Timestamp) -> Result<(), LimitsFull> {
        let limits = &mut self.gate.limits.by_whom;
        match rate {
            Some(_) if limits.len() >= LIMITS_MAX && !limits.contains_key(whom) => return Err(LimitsFull),
            Some(rate) => drop(limits.insert(whom.clone(), rate)),
            None => drop(limits.remove(whom)),
        }
        self.apply_limits(now);
        Ok(())
    }

    /// All limits, in order.
    pub fn limits(&self) -> Vec<(Whom, Rate)> {
        let mut limits: Vec<_> = self.gate.limits.by_whom.iter().map(|(whom, rate)| (whom.clone(), *rate)).collect();
        limits.sort_by(|left, right| left.0.cmp(&right.0));
        limits
    }

    /// The limit that holds for this session's publisher.
    pub(super) fn limit_of(&self, session: &Session) -> Option<Rate> {
        self.gate.limits.find(session).or(self.settings.back_off.rate)
    }

    /// Limits have changed: whoever publishes now is measured by the new ones. (Others are when they come back.)
    pub(crate) fn apply_limits(&mut self, now: Timestamp) {
        let mut by_publisher: BTreeMap<u32, (u32, Option<Rate>)> = BTreeMap::new();
        for (index, session) in self.sessions.iter().filter(|(_, session)| session.conn.is_some()) {
            let (Some(slot), limit) = (session.publisher, self.limit_of(session)) else { continue };
            let (_, strictest) = by_publisher.entry(slot).or_insert((index, None));
            *strictest = stricter(*strictest, limit);
        }
        for (index, limit) in by_publisher.into_values() {
            self.pin(index, limit, now);
        }
    }

    /// A session begins to publish. Beside others of its principal it can make the limit stricter, never looser.
    pub(super) fn apply_limit(&mut self, index: u32, now: Timestamp) {
        let Some(session) = self.sessions.get(index) else { return };
        let own = self.limit_of(session);
        let (Some(slot), publishers) = (session.publisher, &self.gate.publishers) else { return };
        let others = publishers.trouble(slot).and_then(Trouble::limit).filter(|_| publishers.is_shared(slot));
        let limit = stricter(others, own);
        self.pin(index, limit, now);
    }

    fn pin(&mut self, index: u32, limit: Option<Rate>, now: Timestamp) {
        let Some(slot) = self.sessions.get(index).and_then(|session| session.publisher) else { return };
        let Gate { plan, publishers, .. } = &mut self.gate;
        if publishers.trouble(slot).and_then(Trouble::limit) == limit {
            return;
        }
        let pin = limit.and_then(|rate| Some((rate, plan_of(rate)?)));
        let rhythm = match &pin {
            Some((rate, plan)) => Some(Rhythm::pin(plan, rate.interval(), now)),
            None => plan.as_ref().map(Rhythm::new),
        };
        if let Some(trouble) = publishers.trouble_mut(slot) {
            trouble.pin = pin.map(Box::new);
        }
        if let (Some(publisher), Some(rhythm)) = (publishers.get_mut(slot), rhythm) {
            publisher.rhythm = rhythm;
        }
    }
}

/// The one that lets less through; any is less than none.
fn stricter(one: Option<Rate>, other: Option<Rate>) -> Option<Rate> {
    let slowness = |rate: &Rate| (rate.interval(), Reverse(rate.burst()));
    one.into_iter().chain(other).max_by_key(slowness)
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
