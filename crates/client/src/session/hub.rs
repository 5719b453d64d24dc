//! Many persistent queries on one agenda.
//!
//! The agenda is a heap of deadlines. A deadline that has moved is not searched for: its old entry is passed over when it
//! comes up, because the watch then has another one. The contract is that of [`Watch`], for all of them at once.

use alloc::collections::{BTreeMap, BinaryHeap, VecDeque};
use core::cmp::Reverse;

use tidegate_control::Timestamp;
use tidegate_control::rand_core::Rng;

use super::watch::{Input, ResultChange, Watch, WatchAction, WatchPlan};
use crate::limits::WATCHES_MAX;
use crate::prelude::*;

/// The name of a watch in its hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub u64);

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Hub {
    /// Boxed: names grow, and a tree that is filled in order leaves almost half of its places empty.
    watches: BTreeMap<WatchId, Box<ScheduledWatch>>,
    made: u64,
    agenda: BinaryHeap<Reverse<(Timestamp, WatchId)>>,
    actions: VecDeque<(WatchId, WatchAction)>,
    changed: VecDeque<WatchId>,
}

#[derive(Debug)]
struct ScheduledWatch {
    watch: Watch,
    /// Its place on the agenda.
    due: Option<Timestamp>,
    is_changed: bool,
}

impl Hub {
    /// A new watch; none if there are too many.
    pub fn open<R: Rng + ?Sized>(&mut self, plan: &Arc<WatchPlan>, now: Timestamp, rng: &mut R) -> Option<WatchId> {
        if self.watches.len() >= WATCHES_MAX {
            return None;
        }
        self.made += 1;
        let id = WatchId(self.made);
        let watch = Watch::new(plan, now, rng);
        self.watches.insert(id, Box::new(ScheduledWatch { watch, due: None, is_changed: false }));
        self.serve(id, now, rng);
        Some(id)
    }

    /// Ends a watch.
    pub fn close(&mut self, id: WatchId) {
        self.watches.remove(&id);
    }

    /// Watches that there are.
    pub fn len(&self) -> usize {
        self.watches.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.watches.is_empty()
    }

    /// One of them.
    pub fn watch(&self, id: WatchId) -> Option<&Watch> {
        self.watches.get(&id).map(|entry| &entry.watch)
    }

    /// Something arrived for one of them.
    pub fn handle<R: Rng + ?Sized>(&mut self, id: WatchId, input: Input, now: Timestamp, rng: &mut R) {
        if let Some(entry) = self.watches.get_mut(&id) {
            entry.watch.handle(input, now, rng);
            self.serve(id, now, rng);
        }
    }

    /// Tells one of them something that is no message.
    pub fn tell<R: Rng + ?Sized>(&mut self, id: WatchId, now: Timestamp, rng: &mut R, what: impl FnOnce(&mut Watch)) {
        if let Some(entry) = self.watches.get_mut(&id) {
            what(&mut entry.watch);
            self.serve(id, now, rng);
        }
    }

    /// Serves everybody whose time has come.
    pub fn turn<R: Rng + ?Sized>(&mut self, now: Timestamp, rng: &mut R) {
        while let Some(Reverse((due, id))) = self.agenda.peek().copied().filter(|Reverse((due, _))| *due <= now) {
            self.agenda.pop();
            if let Some(entry) = self.watches.get_mut(&id)
                && entry.due == Some(due)
            {
                entry.due = None;
                self.serve(id, now, rng);
            }
        }
    }

    /// The next thing to send, and for which watch.
    pub fn poll_action(&mut self) -> Option<(WatchId, WatchAction)> {
        self.actions.pop_front()
    }

    /// The next change of a result, and of which watch.
    pub fn poll_change(&mut self) -> Option<(WatchId, ResultChange)> {
        while let Some(id) = self.changed.pop_front() {
            let Some(entry) = self.watches.get_mut(&id) else { continue };
            entry.is_changed = false;
            if let Some(change) = entry.watch.poll_change() {
                return Some((id, change));
            }
        }
        None
    }

    /// When to turn again, if nothing arrives.
    pub fn poll_timeout(&mut self) -> Option<Timestamp> {
        while let Some(Reverse((due, id))) = self.agenda.peek() {
            if self.watches.get(id).is_some_and(|entry| entry.due == Some(*due)) {
                return Some(*due);
            }
            self.agenda.pop();
        }
        None
    }

    fn serve<R: Rng + ?Sized>(&mut self, id: WatchId, now: Timestamp, rng: &mut R) {
        let Some(entry) = self.watches.get_mut(&id) else { return };
        while let Some(action) = entry.watch.turn(now, rng) {
            self.actions.push_back((id, action));
        }
        if !entry.is_changed && entry.watch.has_change() {
            entry.is_changed = true;
            self.changed.push_back(id);
        }
        let due = entry.watch.poll_timeout();
        if due != entry.due {
            entry.due = due;
            self.agenda.extend(due.map(|due| Reverse((due, id))));
        }
        if self.agenda.len() > AGENDA_TIMES * self.watches.len() + AGENDA_SPARE {
            // Who tries again before an old deadline leaves that behind.
            let watches = &self.watches;
            self.agenda.retain(|Reverse((due, id))| watches.get(id).is_some_and(|entry| entry.due == Some(*due)));
        }
    }
}

/// Old deadlines are cleared away when there are so many entries for each watch, and some for a hub of few.
const AGENDA_TIMES: usize = 3;
const AGENDA_SPARE: usize = 16;

#[cfg(test)]
mod tests {
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::SeedableRng;
    use tidegate_control::pacer::PacerConfig;

    use super::*;
    use crate::session::watch::{Attempt, ChangeDelivery, ExchangeFailure};

    #[test]
    fn each_is_served_at_its_time_and_old_deadlines_are_passed_over() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let pacer = PacerConfig::default().build().unwrap();
        let check_timeout = std::time::Duration::from_secs(2);
        let plan = Arc::new(WatchPlan { pacer, delivery: ChangeDelivery::Poll, check_timeout });
        let mut hub = Hub::default();
        let mut now = Timestamp::ZERO;
        let ids: Vec<WatchId> = (0..50).map(|_| hub.open(&plan, now, &mut rng).unwrap()).collect();
        hub.close(ids[7]);
        let mut sent = 0;
        while sent < 2000 {
            while let Some((id, action)) = hub.poll_action() {
                let WatchAction::Check { attempt, .. } = action else { panic!("{action:?}") };
                sent += 1;
                let failure = if sent % 3 == 0 { ExchangeFailure::TimedOut } else { ExchangeFailure::Failed(None) };
                hub.handle(id, Input::Refused { attempt, failure }, now, &mut rng);
                hub.handle(
                    id,
                    Input::Refused { attempt: Attempt(0), failure: ExchangeFailure::TimedOut },
                    now,
                    &mut rng,
                );
            }
            let next = hub.poll_timeout().unwrap();
            assert!(next >= now, "time does not stand still");
            now = next;
            hub.turn(now, &mut rng);
            assert!(hub.agenda.len() <= 50 * 4, "old deadlines do not pile up: {}", hub.agenda.len());
        }
        assert_eq!(hub.len(), 49);
    }
}
