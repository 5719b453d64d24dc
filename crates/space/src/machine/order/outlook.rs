//! What can be said about waiting and cost: how long a request would wait, what waits in all, how long a place is.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::admission::Class;

use super::estimate::{Estimate, LONG_NANOS, Shape};
use super::tier::Tier;
use super::{KpPlace, KpRole, Order, PARTS, lane_of};

impl<T> Order<T> {
    /// Requests that wait; equal ones count as one.
    pub(crate) fn items(&self) -> usize {
        self.tiers.iter().map(Tier::items).sum()
    }

    /// Something is under way.
    pub(crate) fn is_working(&self) -> bool {
        self.service.len() + self.apart.len() > 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items() == 0
    }

    /// How long a request of this client would wait, if it were offered now.
    pub(crate) fn wait_of(&self, now: Timestamp, class: Class, kp: KpPlace, shape: Shape) -> Duration {
        let estimate = self.estimates.of(class, shape);
        self.wait(now, lane_of(class, shape, estimate), kp, estimate)
    }

    /// What is under way matters only if no server is free for this request; large changes wait for each other.
    pub(super) fn wait(&self, now: Timestamp, lane: usize, kp: KpPlace, estimate: Estimate) -> Duration {
        let ahead = self.ahead(lane, kp, estimate);
        if self.is_apart(lane) {
            let alike = self.tiers.iter().map(|tier| tier.lanes[lane].work()).fold(0, u64::saturating_add);
            return Duration::from_nanos(self.apart.wait(now, ahead.min(alike)));
        }
        let free = self.servers.threads.saturating_sub(self.service.len());
        let may_run = !estimate.is_long() || self.may_be_long(now);
        let is_last = free == 1 && self.servers.threads > 1;
        if free > 0 && may_run && (!is_last || estimate.is_safe) {
            return Duration::from_nanos(ahead / u64::from(self.servers.worth.max(1)).min(free as u64));
        }
        Duration::from_nanos(self.service.wait(now, ahead))
    }

    /// Whether one more that takes long may be under way.
    pub(super) fn may_be_long(&self, now: Timestamp) -> bool {
        self.servers.long_max == usize::MAX || self.service.long(now, LONG_NANOS) < self.servers.long_max
    }

    /// Ahead of a request is what its client has waiting, once for each share of the others, and never more than all of its
    /// role; beside that what the other role gets meanwhile.
    fn ahead(&self, lane: usize, kp: KpPlace, estimate: Estimate) -> u64 {
        let tier = self.tier(kp);
        let own = tier.lanes[lane].of(kp.line()).1;
        let (households, clients) = tier.waiting(kp.household);
        let shares = (households as u64).saturating_mul(clients as u64);
        let fair = kp.standing.charge(own.saturating_add(estimate.nanos)).saturating_mul(shares);
        let ahead = tier.work().min(fair);
        match kp.standing.role {
            KpRole::Service => {
                let customers = self.tiers[KpRole::Customer.index()].work();
                ahead.saturating_add(customers.min(ahead / (PARTS - 1)))
            }
            KpRole::Customer => {
                let services = self.tiers[KpRole::Service.index()].work();
                let most = ahead.saturating_add(estimate.nanos).saturating_mul(PARTS - 1);
                ahead.saturating_add(services.min(most))
            }
        }
    }

    /// Estimated time until all that waits is under way.
    pub(crate) fn backlog(&self, now: Timestamp) -> Duration {
        let all = self.tiers.iter().map(Tier::work).fold(0, u64::saturating_add);
        if all == 0 && self.service.len() < self.servers.threads {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.service.wait(now, all))
    }

    /// What a request of this class may have to wait and last: the `D_br` of the papers. Their pool has no bound of time, so
    /// there it is what waits.
    pub(crate) fn permitted(&self, now: Timestamp, class: Class) -> Duration {
        let queue = if self.is_paper() { self.backlog(now) } else { self.delay_max(class) };
        self.cost(class).saturating_add(queue)
    }

    /// What a stranger of this class is taken to cost.
    pub(crate) fn cost(&self, class: Class) -> Duration {
        self.estimates.class(class)
    }

    /// What such requests take on a usual day, and whether this is one.
    pub(crate) fn usual_of(&self, class: Class, shape: Shape) -> (Duration, bool) {
        let estimate = self.estimates.of(class, shape);
        (Duration::from_nanos(estimate.usual), estimate.nanos <= estimate.usual.saturating_mul(2))
    }

    /// How long a place for such a request is.
    pub(crate) fn place_of(&self, class: Class, shape: Shape) -> Duration {
        Duration::from_nanos(self.estimates.of(class, shape).place)
    }

    /// For how long the oldest job has been under way.
    pub(crate) fn longest(&self, now: Timestamp) -> Duration {
        Duration::from_nanos(self.service.longest(now))
    }

    /// The shortest that any class may wait.
    pub(crate) fn delay_max_shared(&self) -> Duration {
        self.config.classes.iter().map(|class| class.delay_max).min().unwrap_or_default()
    }

    pub(crate) fn delay_max(&self, class: Class) -> Duration {
        self.config.classes[class.index()].delay_max
    }
}
