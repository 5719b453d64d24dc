//! A request that may wait: a broker that is too busy says when to come back, and the request does, with the ticket of the
//! place that is kept for it. Whoever has no word comes back with full jitter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;
use tidegate_control::hints::{Asks, Hints};
use tokio::time::{Instant, sleep};

use super::events::Notices;
use super::{DriverClock, chance};
use crate::error::Error;
use crate::session::event::EventKind;
use crate::session::reconnect::Reconnect;

/// What the requests of a space went through, without those of its persistent queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceStats {
    /// Requests that were sent, each return counted.
    pub requests: u64,
    /// Those that the broker was too busy for.
    pub refused: u64,
    /// Those that broke, found nobody or had no answer in time.
    pub failed: u64,
}

/// The same, as it is counted.
#[derive(Debug, Default)]
pub(crate) struct RequestTally {
    requests: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

impl RequestTally {
    pub(crate) fn stats(&self) -> SpaceStats {
        let [requests, refused, failed] =
            [&self.requests, &self.refused, &self.failed].map(|number| number.load(Ordering::Relaxed));
        SpaceStats { requests, refused, failed }
    }
}

/// What may be done twice, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// Asking again does no harm.
    Question,
    /// Done again only if it is sure that it was not done.
    Change,
}

/// How long requests wait, and who is told.
#[derive(Clone, Debug, Default)]
pub(crate) struct RetryPolicy {
    /// Nothing: every refusal is told at once.
    pub(crate) wait: Duration,
    pub(crate) tally: Arc<RequestTally>,
    pub(crate) notices: Arc<Notices>,
}

impl RetryPolicy {
    /// A request that is about to be sent for the first time.
    pub(crate) fn begin(&self, kind: RequestKind, asks: Asks) -> RetriedRequest<'_> {
        RetriedRequest { retry: self, kind, asks, began: Instant::now(), state: None }
    }

    fn note<'e>(&self, error: &'e Error) -> Option<&'e Hints> {
        match error {
            Error::Busy { hints, .. } => {
                self.tally.refused.fetch_add(1, Ordering::Relaxed);
                self.notices.tell(None, EventKind::refused(hints));
                Some(hints)
            }
            error if error.is_passing() => {
                self.tally.failed.fetch_add(1, Ordering::Relaxed);
                self.notices.tell(None, EventKind::Failed);
                None
            }
            _ => None,
        }
    }
}

/// A request and its returns.
#[derive(Debug)]
pub(crate) struct RetriedRequest<'p> {
    retry: &'p RetryPolicy,
    kind: RequestKind,
    /// What to tell the broker about pace, the ticket of a kept place among it.
    pub(crate) asks: Asks,
    began: Instant,
    /// Only those who come back need it.
    state: Option<Box<(DriverClock, Reconnect, Xoshiro256PlusPlus)>>,
}

impl RetriedRequest<'_> {
    /// What came of sending it: the answer if it is done, failed for good or has no time left. If there is none, the time
    /// has come to send it again.
    pub(crate) async fn settle<T>(&mut self, outcome: Result<T, Error>) -> Option<Result<T, Error>> {
        let RetryPolicy { wait, tally, notices } = self.retry;
        tally.requests.fetch_add(1, Ordering::Relaxed);
        let Err(error) = outcome else { return Some(outcome) };
        let hints = self.retry.note(&error);
        if !may_repeat(self.kind, &error) || wait.is_zero() {
            return Some(Err(error));
        }
        let state = self.state.get_or_insert_with(|| Box::new((DriverClock::new(), Reconnect::default(), chance())));
        let (clock, reconnect, rng) = &mut **state;
        let delay = reconnect.on_failure(clock.now(), hints, rng);
        if self.began.elapsed() + delay > *wait {
            return Some(Err(error));
        }
        self.asks.ticket = hints.and_then(|hints| hints.ticket);
        notices.tell(None, EventKind::Returning { after: delay });
        sleep(delay).await;
        None
    }
}

fn may_repeat(kind: RequestKind, error: &Error) -> bool {
    match kind {
        // What a broker fails at once it fails at again: the same question to the same data.
        RequestKind::Question => error.is_passing() && !matches!(error, Error::Failed(_)),
        // It was surely refused, or nobody was there to take it.
        RequestKind::Change => matches!(error, Error::Busy { .. } | Error::Unreachable { .. }),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_control::Timestamp;
    use tidegate_control::appointments::Ticket;

    use super::*;

    fn busy(retry_after: Duration, ticket: Option<Ticket>) -> Error {
        let hints = Hints { retry_after: Some(retry_after), ticket, ..Hints::default() };
        Error::Busy { retry_after: hints.retry_after, why: None, hints: Box::new(hints) }
    }

    #[tokio::test]
    async fn an_appointment_is_kept_with_its_ticket_and_not_before_its_time() {
        let retry = RetryPolicy { wait: Duration::from_secs(60), ..RetryPolicy::default() };
        let mut events = retry.notices.read();
        let ticket = Ticket { slot: Timestamp::from_nanos(3), mac: 9 };
        let (began, after) = (Instant::now(), Duration::from_millis(120));
        let mut effort = retry.begin(RequestKind::Change, Asks::default());
        assert!(effort.settle(Err::<(), _>(busy(after, Some(ticket)))).await.is_none());
        assert!(began.elapsed() >= after && effort.asks.ticket == Some(ticket));
        assert!(matches!(effort.settle(Ok(7)).await, Some(Ok(7))));
        assert_eq!(retry.tally.stats(), SpaceStats { requests: 2, refused: 1, failed: 0 });
        let kinds: Vec<_> = std::iter::from_fn(|| events.try_next()).map(|event| event.kind).collect();
        let refused = EventKind::Refused { retry_after: Some(after), is_promised: true };
        assert_eq!(kinds, [refused, EventKind::Returning { after }]);
    }

    #[tokio::test]
    async fn a_change_that_may_have_been_done_is_not_done_again() {
        let retry = RetryPolicy { wait: Duration::from_secs(60), ..RetryPolicy::default() };
        let mut change = retry.begin(RequestKind::Change, Asks::default());
        assert!(matches!(change.settle(Err::<(), _>(Error::TimedOut)).await, Some(Err(Error::TimedOut))));
        let mut question = retry.begin(RequestKind::Question, Asks::default());
        assert!(question.settle(Err::<(), _>(Error::TimedOut)).await.is_none());
    }

    #[tokio::test]
    async fn whatever_a_broker_says_the_wait_is_bounded_and_never_busy() {
        let retry = RetryPolicy { wait: Duration::from_millis(700), ..RetryPolicy::default() };
        for told in [Duration::ZERO, Duration::from_millis(u64::MAX)] {
            let before = retry.tally.stats().requests;
            let mut effort = retry.begin(RequestKind::Question, Asks::default());
            let last = loop {
                if let Some(last) = effort.settle(Err::<(), _>(busy(told, None))).await {
                    break last;
                }
            };
            assert!(matches!(last, Err(Error::Busy { .. })));
            assert!(retry.tally.stats().requests - before <= 8, "at least 100 ms between two");
        }
    }
}
