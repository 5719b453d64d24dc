//! The order of service at the front desk: who is next, and who is told to come back. Pure: time is an argument.
//!
//! ```text
//! equal question waiting                         join it: one execution, many answers, at the turn of who is next of them
//! now + wait + work > deadline, others ahead     denied: nobody would read the answer
//! many are late, and this one would wait long    denied: see `glut`
//! 64 of this client wait, and delay_max of work  the policy of the class, for this client alone
//! a later check of the same by the same client   takes the place of the one that waits, which is out of date
//! else                                           it waits: services before customers, who have a sixteenth; lanes by kind, in
//!                                                a lane fair by household, then by client, by work and weight
//! at dequeue: now > deadline, or its asker left  ended, not executed
//! taken for short, and takes long                yields, and begins anew as a long one: see `yields`
//! ```
//! Nothing is refused because others were promised a place, because the mean of a class is high, or because something dear
//! is under way; a client that asks one thing after the other is never refused for delay, unless many are late already. A
//! lane that holds what takes long may occupy only some of the servers, and the last free one is kept for what is known to
//! be short: two slow queries used to shut everybody out for ten seconds.
//!
//! The contract: *offer what arrives, take when a worker is free, give the job back with what it cost, drain
//! [`Order::poll_ended`]*. Every request ends once.

mod estimate;
mod fair;
#[cfg(test)]
mod flows;
mod glut;
mod lane;
mod outlook;
mod paper;
mod passage;
mod service;
mod serving;
#[cfg(test)]
mod tests;
mod tier;
mod yields;

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::admission::{Class, Policy, PoolConfig, QueryKey};

pub use estimate::Shape;
pub(crate) use estimate::USUAL_SAMPLES;
use estimate::{Estimate, Estimates};
use glut::{Glut, Met};
use lane::{Entry, LineId, Waiter};
pub use passage::{Arrival, Job, KpPlace, Servers, Taken, WaitTerms};
pub(crate) use passage::{EndedBy, EndedEntry, Offered, Returned, ShedEntry};
use service::Service;
use tier::{LANES, Tier};

use crate::limits::LARGE_QUADS;
use crate::machine::standing::{KpRole, KpStanding};

#[derive(Debug)]
pub(crate) struct Order<T> {
    config: PoolConfig,
    servers: Servers,
    estimates: Estimates,
    /// By [`KpRole::index`].
    tiers: [Tier<T>; KpRole::ALL.len()],
    /// What each role has used, by its part; the lowest is next.
    tags: [u64; KpRole::ALL.len()],
    virtual_time: u64,
    service: Service,
    /// Large changes under way: they are done between others, and nobody but the next of them waits for one.
    apart: Service,
    glut: Glut,
    ended: VecDeque<EndedEntry<T>>,
    /// Whether whoever made a request has left.
    is_gone: fn(&T) -> bool,
    /// When requests of those who left were last looked for.
    swept: Timestamp,
}

impl<T> Order<T> {
    /// None for a configuration that makes no sense.
    pub(crate) fn new(config: &PoolConfig, servers: Servers, is_gone: fn(&T) -> bool) -> Option<Self> {
        // The bounds of the papers' pool are checked where it is built.
        tidegate_control::admission::RequestPool::<()>::new(config).ok()?;
        Some(Self {
            config: *config,
            servers,
            estimates: Estimates::new(config),
            tiers: std::array::from_fn(|_| Tier::new()),
            tags: [0; KpRole::ALL.len()],
            virtual_time: 0,
            service: if servers.ends_together() { Service::together() } else { Service::new(servers.worth.max(1)) },
            apart: Service::new(1),
            glut: Glut::default(),
            ended: VecDeque::new(),
            is_gone,
            swept: Timestamp::ZERO,
        })
    }

    /// So many servers may do at once what takes long, from now on. What is under way goes on.
    pub(crate) fn set_long_max(&mut self, long_max: usize) {
        self.servers.long_max = long_max;
    }

    /// A request arrives.
    pub(crate) fn offer(&mut self, now: Timestamp, request: Arrival<T>) -> Offered<T> {
        if self.is_paper() {
            return self.offer_in_turn(now, request);
        }
        let Arrival { class, key, kp, check, shape, patience, terms, value } = request;
        let WaitTerms { is_promised, keeps_appointments, is_provisional, is_popular, asker, flow } = terms;
        let estimate = self.estimates.of(class, shape);
        let lane = if is_promised { PROMISED } else { lane_of(class, shape, estimate) };
        let (kp, lane) = self.behind_its_flow(flow, kp, lane);
        let waiter = Waiter { value, arrived: now, deadline: now + patience, check };
        let waiter = match self.join((kp.standing.role, lane, kp.line()), class, key, waiter) {
            Ok(()) => return Offered::Joined,
            Err(waiter) => waiter,
        };
        // Whoever finds nobody ahead is served, however long it may take: else one stall would be for ever.
        let is_late = |order: &Self| {
            let wait = order.wait(now, lane, kp, estimate);
            let is_hopeless = wait + Duration::from_nanos(estimate.nanos) > patience;
            (!wait.is_zero() && !is_provisional && is_hopeless).then_some(wait)
        };
        if is_late(self).is_some() {
            // Before anybody is refused it is seen who has left.
            self.sweep(now);
            if let Some(wait) = is_late(self) {
                // Who is late because it is impatient, or asks for much, says nothing of the queue.
                if wait > Glut::short_wait(self.config.classes[class.index()].delay_max, patience) {
                    self.note_met(now, keeps_appointments, Met::Late);
                }
                let work = Duration::from_nanos(estimate.nanos);
                return Offered::Denied(waiter.value, lead(wait, patience.saturating_sub(work)));
            }
        }
        let limits = self.config.classes[class.index()];
        // What is asked again anyway; a change would be lost.
        let only_asks = matches!(class, Class::Query | Class::AdvancedQuery | Class::Check);
        // One for all who ask the same.
        if only_asks
            && !is_popular
            && limits.policy == Policy::Deny
            && !is_promised
            && !is_provisional
            && !keeps_appointments
        {
            let wait_max = self.glut.wait_max(now, limits.delay_max, patience);
            let is_too_long = |order: &Self| wait_max.is_some_and(|max| order.wait(now, lane, kp, estimate) > max);
            if is_too_long(self) {
                self.sweep(now);
                if is_too_long(self) {
                    self.note_met(now, keeps_appointments, Met::Room);
                    return Offered::Denied(waiter.value, self.glut.retry_after(patience));
                }
            }
        }
        self.note_met(now, keeps_appointments, Met::Room);
        if self.tier(kp).lanes[lane].items() >= limits.items_max as usize {
            self.sweep(now);
            if self.tier(kp).lanes[lane].items() >= limits.items_max as usize {
                return Offered::Denied(waiter.value, lead(self.wait(now, lane, kp, estimate), Duration::ZERO));
            }
        }
        let mut is_postponed = false;
        let (items, work) = self.tier(kp).lanes[lane].of(kp.line());
        let own = Duration::from_nanos(work.saturating_add(estimate.nanos) / u64::from(self.servers.worth.max(1)));
        if !is_promised && items >= CLIENT_FREE && own > limits.delay_max {
            match limits.policy {
                Policy::HeadDrop => {
                    if let Some(oldest) = self.tiers[kp.standing.role.index()].lanes[lane].displace(kp.line()) {
                        self.end(oldest, EndedBy::Displaced);
                    }
                }
                Policy::Postpone if items < CLIENT_FREE + limits.parked_max as usize => is_postponed = true,
                Policy::TailDrop => return Offered::Dropped(waiter.value),
                // When what this client has waiting will be done.
                Policy::Deny | Policy::Postpone => return Offered::Denied(waiter.value, own),
            }
        }
        let (standing, work, is_known) = (kp.standing, estimate.nanos, estimate.is_known);
        let joined = Vec::new();
        let first = waiter;
        let entry =
            Entry { first, joined, key, class, shape, standing, work, is_known, keeps_appointments, asker, flow };
        self.enqueue(lane, kp.line(), entry);
        if is_postponed { Offered::Postponed } else { Offered::Queued }
    }

    /// Those who keep appointments are slowed otherwise.
    fn note_met(&mut self, now: Timestamp, keeps_appointments: bool, met: Met) {
        if !keeps_appointments {
            self.glut.on_arrival(now, met);
        }
    }

    /// Lets a request join an equal one of the same role, or take the place of an earlier check of the same.
    fn join(
        &mut self,
        (role, lane, line): (KpRole, usize, LineId),
        class: Class,
        key: Option<QueryKey>,
        waiter: Waiter<T>,
    ) -> Result<(), Waiter<T>> {
        let shared_max = self.config.shared_max as usize;
        let Self { tiers, ended, .. } = self;
        let lane = &mut tiers[role.index()].lanes[lane];
        let mut outdated = |value| ended.push_back(EndedEntry { value, class, why: EndedBy::Outdated });
        let waiter = match waiter.check.and_then(|check| lane.checking(check)) {
            Some(entry) => match entry.supersede(waiter) {
                Ok(earlier) => {
                    outdated(earlier);
                    return Ok(());
                }
                Err(waiter) => waiter,
            },
            None => waiter,
        };
        let Some(key) = key.filter(|key| lane.advance(*key, line)) else { return Err(waiter) };
        let Some(entry) = lane.equal(key, shared_max) else { return Err(waiter) };
        match entry.supersede(waiter) {
            Ok(earlier) => outdated(earlier),
            Err(waiter) => entry.joined.push(waiter),
        }
        Ok(())
    }

    /// In whose line of its household an asker has something waiting, of whatever kind.
    pub(crate) fn stands_with(&self, household: u64, asker: u64) -> Option<u64> {
        self.tiers.iter().flat_map(|tier| &tier.lanes).find_map(|lane| lane.stands_with(household, asker))
    }

    /// Where a request stands that would stand there: behind what waits of its flow. (Whatever was promised to it, or is
    /// estimated of it, it must not be taken before that.)
    fn behind_its_flow(&self, flow: u64, kp: KpPlace, lane: usize) -> (KpPlace, usize) {
        if flow == 0 {
            return (kp, lane);
        }
        let places = KpRole::ALL.into_iter().flat_map(|role| (0..LANES).map(move |lane| (role, lane)));
        let mut found = places.filter_map(|(role, lane)| {
            let LineId { household, client } = self.tiers[role.index()].lanes[lane].flow(flow)?;
            Some((KpPlace { household, client, standing: KpStanding { role, ..kp.standing } }, lane))
        });
        found.next().unwrap_or((kp, lane))
    }

    fn tier(&self, kp: KpPlace) -> &Tier<T> {
        &self.tiers[kp.standing.role.index()]
    }

    fn enqueue(&mut self, lane: usize, line: LineId, entry: Entry<T>) {
        let role = entry.standing.role.index();
        if self.tiers[role].items() == 0 {
            // A role that had nothing to do has saved nothing up.
            self.tags[role] = self.tags[role].max(self.virtual_time);
        }
        self.tiers[role].push(lane, line, entry);
    }

    fn is_apart(&self, lane: usize) -> bool {
        lane == BULK && self.servers.apart_max > 0
    }

    fn under_way(&mut self, lane: usize) -> &mut Service {
        if self.is_apart(lane) { &mut self.apart } else { &mut self.service }
    }

    /// A request that ended while it waited.
    pub(crate) fn poll_ended(&mut self) -> Option<EndedEntry<T>> {
        self.ended.pop_front()
    }

    /// Everything that waits, whoever may serve it; and nothing is under way any more.
    pub(crate) fn clear(&mut self) -> Vec<T> {
        for place in 0..self.tiers.len() * LANES {
            while let Some((_, entry)) = self.tiers[place / LANES].lanes[place % LANES].pop(&[], |_| true) {
                self.end(entry, EndedBy::Time);
            }
        }
        self.service.clear();
        self.apart.clear();
        std::mem::take(&mut self.ended).into_iter().map(|ended| ended.value).collect()
    }

    fn end(&mut self, entry: Entry<T>, why: EndedBy) {
        let class = entry.class;
        self.ended.extend(entry.waiters().map(|waiter| EndedEntry { value: waiter.value, class, why }));
    }

    fn weight(&self, lane: usize) -> u32 {
        let weight = |class: Class| self.config.classes[class.index()].weight.max(1);
        match lane {
            PROMISED => Class::ALL.iter().map(|class| weight(*class)).sum(),
            LONG | BULK => weight(Class::AdvancedQuery),
            lane => Class::ALL.get(lane).map_or(1, |class| weight(*class)),
        }
    }
}

/// Of the [`LANES`] of a tier, those beside one for each class.
const LONG: usize = Class::COUNT;
const BULK: usize = Class::COUNT + 1;
const PROMISED: usize = Class::COUNT + 2;

fn lane_of(class: Class, shape: Shape, estimate: Estimate) -> usize {
    let is_long = estimate.is_long();
    match class {
        Class::Query | Class::AdvancedQuery | Class::Publish if is_long => LONG,
        // What only looks dear by its text waits with the others once it is known.
        Class::AdvancedQuery if estimate.is_known => Class::Query.index(),
        Class::Update if is_long || shape.size as usize >= LARGE_QUADS => BULK,
        class => class.index(),
    }
}

/// When whoever was denied finds room: when the wait is half of what its patience bears beside its own work.
fn lead(wait: Duration, bears: Duration) -> Duration {
    wait.saturating_sub(bears / 2).max(RETRY_MIN)
}

fn is_long_lane(lane: usize) -> bool {
    lane == LONG
}

/// Requests of one client that may wait without any bound of delay: as many as an SSAP connection may have under way.
pub(crate) const CLIENT_FREE: usize = 64;
/// Nobody is told to come back sooner.
const RETRY_MIN: Duration = Duration::from_millis(1);
/// Of so many parts of the time, while both wait, services get all but one: customers are never locked out.
const PARTS: u64 = 16;
/// How often it is looked who has left, and at how many clients of each lane.
const SWEEP_INTERVAL: Duration = Duration::from_millis(50);
const SWEEP_LOOKS: usize = 1024;

fn part(role: KpRole) -> u64 {
    match role {
        KpRole::Service => PARTS - 1,
        KpRole::Customer => 1,
    }
}
