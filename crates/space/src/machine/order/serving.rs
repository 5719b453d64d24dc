//! Who is next, and what is learned when somebody has been served.

use super::glut::Met;
use super::lane::{Entry, LineId, Waiter};
use super::passage::{EndedBy, EndedEntry, ShedEntry};
use super::passage::{Job, Taken};
use super::service::Begun;
use super::tier::Tier;
use super::{BULK, Order, PARTS, PROMISED, SWEEP_INTERVAL, SWEEP_LOOKS, is_long_lane, part};
use crate::machine::standing::KpRole;
use std::time::Duration;
use tidegate_control::Timestamp;

/// Who took a part of so many of what it was taken for has paid too much. Less is chance: who is served by what each of its
/// requests took, and not in turn, waits for twice as long now and then.
const REFUND_TIMES: u64 = 4;

impl<T> Order<T> {
    /// The next request for a free server, of other flows than these; none if nothing waits that this server may do.
    pub(crate) fn take(&mut self, now: Timestamp, held: &[u64]) -> Option<Taken<T>> {
        let free = self.servers.threads.saturating_sub(self.service.len());
        if free == 0 {
            return None;
        }
        let may_be_long = self.is_paper() || self.may_be_long(now);
        let is_last = !self.is_paper() && free == 1 && self.servers.threads > 1;
        let may_be_apart = self.apart.len() < self.servers.apart_max;
        loop {
            let Self { tiers, tags, estimates, servers, .. } = self;
            let is_wanted = |entry: &Entry<T>| {
                if may_be_long && !is_last {
                    return true;
                }
                // As far as is known now: more than when it came.
                let estimate = estimates.of(entry.class, entry.shape);
                (may_be_long || !estimate.is_long()) && (!is_last || estimate.is_safe)
            };
            let is_apart = |lane: usize| lane == BULK && servers.apart_max > 0;
            let may = |lane: usize| (may_be_long || !is_long_lane(lane)) && (may_be_apart || !is_apart(lane));
            let waiting = (0..tiers.len()).filter_map(|role| Some((role, tiers[role].next(may, held, is_wanted)?)));
            // Of equal ones the service.
            let (role, lane) = waiting.min_by_key(|(role, _)| (tags[*role], std::cmp::Reverse(*role)))?;
            let (line, entry) = tiers[role].lanes[lane].pop(held, is_wanted)?;
            if let Some(taken) = self.start(now, lane, line, entry) {
                return Some(taken);
            }
        }
    }

    /// Makes a job of an entry, for those who still wait; none if nobody does.
    fn start(&mut self, now: Timestamp, lane: usize, line: LineId, entry: Entry<T>) -> Option<Taken<T>> {
        let (class, shape, work, standing) = (entry.class, entry.shape, entry.work, entry.standing);
        let (arrived, keeps_appointments) = (entry.first.arrived, entry.keeps_appointments);
        let (key, asker) = (entry.key, entry.asker);
        let (is_gone, ignores) = (self.is_gone, self.is_paper());
        let mut alive = Vec::with_capacity(1 + entry.joined.len());
        for waiter in entry.waiters() {
            let why = match &waiter {
                _ if ignores => None,
                waiter if is_gone(&waiter.value) => Some(EndedBy::Outdated),
                waiter => (waiter.deadline < now).then_some(EndedBy::Time),
            };
            match why {
                None => alive.push(waiter.value),
                Some(why) => {
                    if why == EndedBy::Time {
                        self.note_met(now, keeps_appointments, Met::Late);
                    }
                    self.ended.push_back(EndedEntry { value: waiter.value, class, why });
                }
            }
        }
        let mut alive = alive.into_iter();
        let value = alive.next()?;
        let joined: Vec<T> = alive.collect();
        let role = standing.role.index();
        self.virtual_time = self.virtual_time.max(self.tags[role]);
        self.tags[role] = self.tags[role].saturating_add(work.max(1).saturating_mul(PARTS) / part(standing.role));
        let weight = self.weight(lane);
        self.tiers[role].on_started(lane, work, weight);
        // What it is taken for now, which may be more than when it came; its client has paid for that.
        let estimate = self.estimates.of(class, shape);
        let is_long = is_long_lane(lane) || estimate.is_long();
        let expected = if ignores {
            work
        } else if is_long_lane(lane) {
            work.max(estimate.nanos)
        } else {
            estimate.nanos
        };
        let number = self.under_way(lane).on_started(now, Begun { work: expected, most: estimate.most, is_long });
        let job = Job {
            number,
            class,
            lane,
            line,
            standing,
            shape,
            key,
            asker,
            work,
            joined: joined.len() as u32,
            #[cfg(test)]
            is_promised: lane == PROMISED,
            keeps_appointments,
        };
        Some(Taken { job, value, joined, queued: now.since(arrived) })
    }

    /// A job was done in this time. To be called before its client is answered, or the client's next request finds it
    /// still under way.
    #[expect(clippy::needless_pass_by_value, reason = "a job ends once, so it is given back for good")]
    pub(crate) fn on_served(&mut self, job: Job, elapsed: Duration) {
        // Answers to those that joined are not what the next execution costs; at least one share of it is.
        let answers = self.config.classes[job.class.index()].answer_cost.saturating_mul(job.joined);
        let sample = elapsed.saturating_sub(answers).max(elapsed / job.joined.saturating_add(1));
        self.estimates.on_served(job.class, job.shape, sample);
        self.leave(&job, sample);
    }

    /// A job ended without a result after this time.
    #[expect(clippy::needless_pass_by_value, reason = "a job ends once, so it is given back for good")]
    pub(crate) fn on_cancelled(&mut self, job: Job, elapsed: Duration) {
        self.estimates.on_cancelled(job.shape, elapsed);
        self.leave(&job, elapsed);
    }

    /// Estimates anew what was not known when it came: while little was served, what waits may be taken for a fraction of
    /// what it is.
    pub(crate) fn reassess(&mut self) {
        let Self { tiers, estimates, .. } = self;
        for lane in tiers.iter_mut().flat_map(|tier| &mut tier.lanes) {
            lane.reassess(|class, shape| estimates.of(class, shape));
        }
    }

    /// Takes out the requests of those who have left: what waits for nobody keeps nobody out.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        if now.since(self.swept) < SWEEP_INTERVAL && self.swept != Timestamp::ZERO {
            return;
        }
        self.swept = now;
        let is_gone = self.is_gone;
        let Self { tiers, ended, .. } = self;
        let all_gone =
            |entry: &Entry<T>| is_gone(&entry.first.value) && entry.joined.iter().all(|waiter| is_gone(&waiter.value));
        for lane in tiers.iter_mut().flat_map(|tier| &mut tier.lanes) {
            for entry in lane.sweep(SWEEP_LOOKS, all_gone) {
                let class = entry.class;
                let outdated = |waiter: Waiter<T>| EndedEntry { value: waiter.value, class, why: EndedBy::Outdated };
                ended.extend(entry.waiters().map(outdated));
            }
        }
    }

    /// Sends away who keeps appointments and would wait for longer than this, the last to be served first of all; with what a
    /// place is worth for each.
    pub(crate) fn shed(&mut self, wait: Duration) -> Vec<ShedEntry<T>> {
        let mut keep = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX).saturating_mul(self.servers.worth.into());
        let Self { tiers, estimates, .. } = self;
        let mut shed = Vec::new();
        // Services stay before customers do.
        for lane in tiers.iter_mut().rev().flat_map(|tier| &mut tier.lanes[..PROMISED]) {
            let may_go = |entry: &Entry<T>| entry.keeps_appointments && entry.key.is_none();
            let (left, gone) = lane.shed(keep, may_go);
            keep = left;
            shed.extend(gone.into_iter().map(|entry| {
                let place = Duration::from_nanos(estimates.of(entry.class, entry.shape).place);
                ShedEntry { client: entry.asker, place, value: entry.first.value }
            }));
        }
        shed
    }

    pub(super) fn leave(&mut self, job: &Job, elapsed: Duration) {
        self.under_way(job.lane).on_ended(job.number);
        let took = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let lane = &mut self.tiers[job.standing.role.index()].lanes[job.lane];
        if took > job.work {
            lane.charge(job.line, job.standing.charge(took - job.work));
        } else if took.saturating_mul(REFUND_TIMES) <= job.work {
            lane.refund(job.line, job.standing.charge(job.work - took));
        }
        if self.service.len() == 0 && self.is_empty() {
            self.tiers.iter_mut().for_each(Tier::forgive);
            self.tags = [self.virtual_time; KpRole::ALL.len()];
        }
    }
}
