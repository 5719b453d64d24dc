//! What an operator may see of the smart space: evaluations under way (and an end to them), slow ones of late, and the
//! queries that stand. Texts are cut; every list is bounded.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tidegate_graph::CancelToken;

use crate::limits::{SLOW, SLOW_SHOWN_MAX, STANDING_SHOWN_MAX};
use crate::machine::delegation::DelegationCounts;
use crate::notifications::SpaceRequest;

/// The evaluations and standing queries of a space, for an operator.
#[derive(Debug, Default)]
pub struct SpaceWatch {
    lists: Mutex<Lists>,
    notifications: AtomicU64,
    delegation: Mutex<DelegationCounts>,
}

#[derive(Debug, Default)]
struct Lists {
    begun: u64,
    running: BTreeMap<u64, EvaluationEntry>,
    slow: VecDeque<Slow>,
    standing: BTreeMap<u64, StandingEntry>,
    /// Those for which there was no place in the list.
    standing_more: usize,
}

#[derive(Debug)]
struct EvaluationEntry {
    text: Box<str>,
    began: Instant,
    waiting: usize,
    token: CancelToken,
    is_cancelled: bool,
}

#[derive(Debug)]
struct StandingEntry {
    text: Box<str>,
    since: Instant,
    notifications: u64,
}

/// An evaluation under way.
#[derive(Clone, Debug)]
pub struct EvaluationInfo {
    /// By which it can be cancelled.
    pub number: u64,
    /// The text of the query.
    pub text: Box<str>,
    /// How long the evaluation has taken so far.
    pub time: Duration,
    /// How many wait for it.
    pub waiting: usize,
}

/// An evaluation that took long.
#[derive(Clone, Debug)]
pub struct Slow {
    /// The text of the query.
    pub text: Box<str>,
    /// How long the evaluation took.
    pub time: Duration,
    /// When the evaluation ended.
    pub at: SystemTime,
    /// Whether an operator ended it.
    pub is_cancelled: bool,
}

/// A query that stands.
#[derive(Clone, Debug)]
pub struct StandingQueryInfo {
    /// The subscription's number.
    pub number: u64,
    /// The text of the query.
    pub text: Box<str>,
    /// How long the query stands already.
    pub age: Duration,
    /// How often its subscriber was told something.
    pub notifications: u64,
}

/// Takes an evaluation off the list, however it ends.
struct EvaluationGuard<'a> {
    watch: &'a SpaceWatch,
    number: u64,
}

impl Drop for EvaluationGuard<'_> {
    fn drop(&mut self) {
        self.watch.end(self.number);
    }
}

impl SpaceWatch {
    fn lists(&self) -> std::sync::MutexGuard<'_, Lists> {
        // Nothing is done meanwhile that could leave it half changed.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Evaluations under way, the oldest first.
    pub fn running(&self) -> Vec<EvaluationInfo> {
        let show = |(number, it): (&u64, &EvaluationEntry)| {
            let (text, time) = (it.text.clone(), it.began.elapsed());
            EvaluationInfo { number: *number, text, time, waiting: it.waiting }
        };
        self.lists().running.iter().map(show).collect()
    }

    /// Ends an evaluation, and says whether that was new; none if there is none of this number.
    pub(crate) fn cancel(&self, number: u64) -> Option<bool> {
        let mut lists = self.lists();
        let entry = lists.running.get_mut(&number)?;
        entry.token.cancel();
        Some(!std::mem::replace(&mut entry.is_cancelled, true))
    }

    /// Slow ones of late, the latest first.
    pub fn slow(&self) -> Vec<Slow> {
        self.lists().slow.iter().rev().cloned().collect()
    }

    /// How many queries stand, and how often subscribers were told something.
    pub fn standing(&self) -> (usize, u64) {
        let lists = self.lists();
        (lists.standing.len() + lists.standing_more, self.notifications.load(Ordering::Relaxed))
    }

    /// Subscriptions that are handed over to their clients, and how often that was done.
    pub fn delegated(&self) -> DelegationCounts {
        *self.delegation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn delegation(&self, counts: DelegationCounts) {
        *self.delegation.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }

    /// The first of those that stand.
    pub fn standing_list(&self) -> Vec<StandingQueryInfo> {
        let show = |(number, it): (&u64, &StandingEntry)| {
            let (text, age) = (it.text.clone(), it.since.elapsed());
            StandingQueryInfo { number: *number, text, age, notifications: it.notifications }
        };
        self.lists().standing.iter().map(show).collect()
    }

    /// Runs an evaluation under the operator's eyes.
    pub(crate) fn over<T>(
        &self,
        ask: &SpaceRequest,
        waiting: usize,
        token: &CancelToken,
        work: impl FnOnce() -> T,
    ) -> T {
        let entry = EvaluationEntry {
            text: ask.shown(),
            began: Instant::now(),
            waiting,
            token: token.clone(),
            is_cancelled: false,
        };
        let number = {
            let mut lists = self.lists();
            lists.begun += 1;
            let number = lists.begun;
            lists.running.insert(number, entry);
            number
        };
        let _ends = EvaluationGuard { watch: self, number };
        work()
    }

    fn end(&self, number: u64) {
        let mut lists = self.lists();
        if let Some(EvaluationEntry { text, began, is_cancelled, .. }) = lists.running.remove(&number) {
            let time = began.elapsed();
            if time >= SLOW || is_cancelled {
                if lists.slow.len() >= SLOW_SHOWN_MAX {
                    lists.slow.pop_front();
                }
                lists.slow.push_back(Slow { text, time, at: SystemTime::now(), is_cancelled });
            }
        }
    }

    /// The space begins anew: nothing stands.
    pub(crate) fn forget_standing(&self) {
        let mut lists = self.lists();
        lists.standing.clear();
        lists.standing_more = 0;
        drop(lists);
        let before = self.delegated();
        self.delegation(DelegationCounts { delegated: 0, accepting: 0, ..before });
    }

    pub(crate) fn subscribed(&self, number: u64, text: Box<str>) {
        let mut lists = self.lists();
        if lists.standing.len() < STANDING_SHOWN_MAX {
            lists.standing.insert(number, StandingEntry { text, since: Instant::now(), notifications: 0 });
        } else {
            lists.standing_more += 1;
        }
    }

    pub(crate) fn told(&self, number: u64) {
        self.notifications.fetch_add(1, Ordering::Relaxed);
        if let Some(stands) = self.lists().standing.get_mut(&number) {
            stands.notifications += 1;
        }
    }

    pub(crate) fn left(&self, number: u64) {
        let mut lists = self.lists();
        if lists.standing.remove(&number).is_none() {
            lists.standing_more = lists.standing_more.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::TEXT_SHOWN_BYTES;

    #[test]
    fn what_runs_is_seen_and_can_be_cancelled() {
        let (watch, token) = (SpaceWatch::default(), CancelToken::default());
        let ask = SpaceRequest::AddRule { name: String::new(), text: "x".repeat(2 * TEXT_SHOWN_BYTES) };
        watch.over(&ask, 3, &token, || {
            let running = watch.running();
            assert_eq!((running.len(), running[0].waiting, running[0].text.len()), (1, 3, TEXT_SHOWN_BYTES));
            assert!(watch.cancel(running[0].number + 1).is_none() && !token.is_cancelled());
            assert_eq!((watch.cancel(running[0].number), token.is_cancelled()), (Some(true), true));
            assert_eq!(watch.cancel(running[0].number), Some(false), "it was ended already");
        });
        assert!(watch.running().is_empty());
        assert!(watch.slow()[0].is_cancelled);
    }

    #[test]
    fn those_that_stand_are_counted_beyond_the_list() {
        let watch = SpaceWatch::default();
        for number in 0..STANDING_SHOWN_MAX as u64 + 5 {
            watch.subscribed(number, "q".into());
            watch.told(number);
        }
        assert_eq!(watch.standing(), (STANDING_SHOWN_MAX + 5, STANDING_SHOWN_MAX as u64 + 5));
        assert_eq!(watch.standing_list().len(), STANDING_SHOWN_MAX);
        for number in 0..STANDING_SHOWN_MAX as u64 + 5 {
            watch.left(number);
        }
        assert_eq!(watch.standing().0, 0);
    }
}
