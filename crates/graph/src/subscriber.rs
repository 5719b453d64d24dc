//! What one subscriber has yet to be told. Its queue is bounded: under pressure deltas merge, so that it ends in the
//! right state with fewer messages and consecutive numbers; when even the merged delta is too large, a number is left
//! out, which it can see, and a check tells it the rest.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::GraphError;
use crate::rows::ResultDelta;

/// How much may wait for one subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Notifications; more are merged.
    pub pending_max: usize,
    /// Rows in them; more become a gap.
    pub rows_max: usize,
    /// Numbers of notifications whose place in the journal is remembered for a check.
    pub remembered_max: usize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self { pending_max: 32, rows_max: 100_000, remembered_max: 256 }
    }
}

/// What a subscriber is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscriberEvent {
    /// The result changed.
    Changed(Notification),
    /// The notification of this number was dropped: what it would have said is told by a check.
    Gap {
        /// The number that is left out.
        sequence: u64,
    },
    /// The standing query could not be kept up to date and is gone.
    Ended(GraphError),
}

/// A numbered change of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// 1, 2, 3, … for each subscriber; the baseline is 0.
    pub sequence: u64,
    /// The version of the dataset that it leads to.
    pub version: u64,
    /// The rows that entered and left the result.
    pub delta: Arc<ResultDelta>,
}

struct PendingDelta {
    delta: Arc<ResultDelta>,
    change: u64,
    version: u64,
}

/// The number of no query.
const NO_QUERY: usize = usize::MAX;

/// One subscriber.
pub(crate) struct Subscriber {
    pub(crate) query: usize,
    pending: VecDeque<PendingDelta>,
    rows: usize,
    /// Something was dropped since the last poll.
    gap: bool,
    ended: Option<GraphError>,
    sequence: u64,
    /// Which change of the query each notification led to.
    told: VecDeque<(u64, u64)>,
}

impl Subscriber {
    /// Notification 0 was the result after this change.
    pub(crate) fn new(query: usize, change: u64) -> Self {
        let told = VecDeque::from([(0, change)]);
        Self { query, pending: VecDeque::new(), rows: 0, gap: false, ended: None, sequence: 0, told }
    }

    pub(crate) fn push(&mut self, delta: &Arc<ResultDelta>, change: u64, version: u64, limits: &QueueLimits) {
        if self.gap {
            return;
        }
        self.rows += delta.len();
        self.pending.push_back(PendingDelta { delta: Arc::clone(delta), change, version });
        if self.pending.len() <= limits.pending_max && self.rows <= limits.rows_max {
            return;
        }
        self.merge();
        if self.rows > limits.rows_max {
            self.pending.clear();
            (self.rows, self.gap) = (0, true);
        }
    }

    /// All that waits becomes one, or nothing if it cancels itself out.
    fn merge(&mut self) {
        let Some((change, version)) = self.pending.back().map(|last| (last.change, last.version)) else { return };
        let merged = ResultDelta::merged(
            self.pending.drain(..).map(|pending| pending.delta).collect::<Vec<_>>().iter().map(Arc::as_ref),
        );
        self.rows = merged.len();
        if !merged.is_empty() {
            self.pending.push_back(PendingDelta { delta: Arc::new(merged), change, version });
        }
    }

    /// Its query is gone. The number of the query may be given to another one, whose changes are not for this subscriber.
    pub(crate) fn end(&mut self, reason: GraphError) {
        self.ended = Some(reason);
        self.query = NO_QUERY;
    }

    /// Why its query is gone, as long as it was not told.
    pub(crate) fn ended(&self) -> Option<&GraphError> {
        self.ended.as_ref()
    }

    pub(crate) fn poll(&mut self, limits: &QueueLimits) -> Option<SubscriberEvent> {
        if self.gap {
            self.gap = false;
            self.sequence += 1;
            return Some(SubscriberEvent::Gap { sequence: self.sequence });
        }
        let Some(next) = self.pending.pop_front() else { return self.ended.take().map(SubscriberEvent::Ended) };
        self.rows -= next.delta.len();
        self.sequence += 1;
        self.remember(next.change, limits);
        Some(SubscriberEvent::Changed(Notification {
            sequence: self.sequence,
            version: next.version,
            delta: next.delta,
        }))
    }

    /// The same, with everything that waits as one notification.
    pub(crate) fn poll_all(&mut self, limits: &QueueLimits) -> Option<SubscriberEvent> {
        if !self.gap && self.pending.len() > 1 {
            self.merge();
        }
        self.poll(limits)
    }

    /// The change that the last notification led to.
    pub(crate) fn last_change(&self) -> Option<u64> {
        self.told.back().map(|(_, change)| *change)
    }

    fn remember(&mut self, change: u64, limits: &QueueLimits) {
        self.told.push_back((self.sequence, change));
        while self.told.len() > limits.remembered_max {
            self.told.pop_front();
        }
    }

    /// The change that a notification led to, if that is still known.
    pub(crate) fn change_of(&self, sequence: u64) -> Option<u64> {
        self.told.iter().find(|(told, _)| *told == sequence).map(|(_, change)| *change)
    }

    /// The answer of a check covers everything up to this change: it is the next notification.
    pub(crate) fn caught_up(&mut self, change: u64, limits: &QueueLimits) -> u64 {
        self.pending.clear();
        (self.rows, self.gap) = (0, false);
        self.sequence += 1;
        self.remember(change, limits);
        self.sequence
    }

    pub(crate) fn has_events(&self) -> bool {
        self.gap || !self.pending.is_empty() || self.ended.is_some()
    }
}

#[cfg(test)]
mod tests {
    use oxrdf::Literal;

    use super::*;

    fn moved(from: u64, to: u64) -> Arc<ResultDelta> {
        let row = |n: u64| vec![Arc::from([Some(Literal::from(n).into())])];
        Arc::new(ResultDelta { added: row(to), removed: row(from) })
    }

    #[test]
    fn f102_f103_a_slow_subscriber_gets_fewer_messages_and_the_last_state() {
        let limits = QueueLimits { pending_max: 2, ..QueueLimits::default() };
        let mut subscriber = Subscriber::new(0, 0);
        for n in 1..=100 {
            subscriber.push(&moved(n - 1, n), n, n, &limits);
            assert!(subscriber.pending.len() <= 2);
        }
        let mut state = Vec::from([moved(0, 0).added[0].clone()]);
        let mut numbers = Vec::new();
        while let Some(event) = subscriber.poll(&limits) {
            let SubscriberEvent::Changed(notification) = event else { panic!("{event:?}") };
            numbers.push(notification.sequence);
            state.retain(|row| !notification.delta.removed.contains(row));
            state.extend(notification.delta.added.iter().cloned());
        }
        assert_eq!(state, moved(0, 100).added);
        assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "{numbers:?}");
    }

    #[test]
    fn who_asks_for_all_of_it_gets_one_notification() {
        let limits = QueueLimits::default();
        let mut subscriber = Subscriber::new(0, 0);
        assert_eq!(subscriber.poll_all(&limits), None);
        for n in 1..=5 {
            subscriber.push(&moved(n - 1, n), n, n, &limits);
        }
        let Some(SubscriberEvent::Changed(all)) = subscriber.poll_all(&limits) else { panic!("nothing") };
        assert_eq!((all.sequence, all.version, &*all.delta), (1, 5, &*moved(0, 5)));
        assert_eq!((subscriber.last_change(), subscriber.rows, subscriber.poll_all(&limits)), (Some(5), 0, None));
        subscriber.push(&moved(5, 6), 6, 6, &limits);
        subscriber.push(&moved(6, 5), 7, 7, &limits);
        assert_eq!(subscriber.poll_all(&limits), None, "it is as it was");
    }

    #[test]
    fn changes_that_cancel_each_other_are_not_told() {
        let limits = QueueLimits { pending_max: 1, ..QueueLimits::default() };
        let mut subscriber = Subscriber::new(0, 0);
        subscriber.push(&moved(1, 2), 1, 1, &limits);
        subscriber.push(&moved(2, 1), 2, 2, &limits);
        assert_eq!(subscriber.poll(&limits), None);
    }

    #[test]
    fn what_cannot_be_kept_is_a_number_left_out() {
        let limits = QueueLimits { rows_max: 3, pending_max: 9, ..QueueLimits::default() };
        let mut subscriber = Subscriber::new(0, 0);
        subscriber.push(&moved(1, 2), 1, 1, &limits);
        subscriber.push(&moved(3, 4), 2, 2, &limits);
        subscriber.push(&moved(5, 6), 3, 3, &limits);
        assert_eq!(subscriber.poll(&limits), Some(SubscriberEvent::Gap { sequence: 1 }));
        subscriber.push(&moved(7, 8), 4, 4, &limits);
        let Some(SubscriberEvent::Changed(next)) = subscriber.poll(&limits) else { panic!("nothing") };
        assert_eq!((next.sequence, subscriber.change_of(2), subscriber.change_of(1)), (2, Some(4), None));
    }
}
