//! What a query may use, and the meter that holds it to that.
//!
//! The evaluator is not ours, so the meter sits where it must come past: every quad that it reads is a step, and every
//! value that it holds is a reference to the meter. The number of references is the number of values in memory, which
//! bounds `ORDER BY`, `DISTINCT`, `GROUP BY` and products without knowing how they are done. Time is not read here: the
//! owner of a clock cancels the token.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::error::{GraphError, Limit};

/// Stack that a thread needs that parses, plans, evaluates or drops queries, updates or documents. The deepest that are
/// accepted need between 512 KiB and 1 MiB in a test build; the test
/// `the_deepest_accepted_texts_need_a_quarter_of_the_stack` holds them to a quarter of this.
pub const PARSE_STACK_BYTES: usize = 16 << 20;

/// Ends an evaluation from outside, from any thread, at its next step.
#[derive(Clone, Debug, Default)]
pub struct CancelToken {
    cancelled: Arc<AtomicBool>,
}

impl CancelToken {
    /// From now on, whatever uses this token ends with [`GraphError::Cancelled`].
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// True after [`CancelToken::cancel`].
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// Where memory is asked for while a text is read that says more than it is long. It is for whoever made the source to
/// give back what was taken.
#[derive(Clone, Default)]
pub struct MemorySource(Option<Arc<dyn Fn(usize) -> bool + Send + Sync>>);

impl MemorySource {
    /// Asks this for so many bytes each time; false if there are none.
    pub fn new(take: impl Fn(usize) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(take)))
    }

    /// Takes so many bytes; false if there are none.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        self.0.as_ref().is_none_or(|take| take(bytes))
    }
}

impl fmt::Debug for MemorySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemorySource").field(&self.0.is_some()).finish()
    }
}

/// What a text may say beyond its bytes before memory is asked for it: terms that are a few times as long.
pub(crate) const fn memory_free(text_bytes: usize) -> usize {
    text_bytes.saturating_mul(4).saturating_add(4096)
}

/// How much one query may use.
#[derive(Clone, Debug)]
pub struct QueryLimits {
    /// Bytes of the text.
    pub text_bytes_max: usize,
    /// Brackets within brackets; the parser and the evaluator recurse once or more for each.
    pub depth_max: usize,
    /// Operators that the algebra nests although the text does not: `UNION`, `OPTIONAL`, `||`, `/` and the like.
    pub chain_max: usize,
    /// Distinct variables; the parser compares each that it meets with all before.
    pub variables_max: usize,
    /// Quads read.
    pub steps_max: u64,
    /// Rows (or triples) returned.
    pub rows_max: usize,
    /// Bytes of their terms.
    pub result_bytes_max: usize,
    /// Values held at once, about 32 bytes each.
    pub live_terms_max: usize,
    /// Bytes of one computed value, and sixty-four times as many of all that are held.
    pub value_bytes_max: usize,
    /// Asked for what prefixes make of the text.
    pub memory: MemorySource,
    /// Cancelled by whoever watches the clock or the connection.
    pub cancel: CancelToken,
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self {
            text_bytes_max: 1 << 20,
            // The catalogue of faults asks for about 128. With it and the chain below, a stack of 2 MiB suffices; see
            // the test `f092_the_deepest_accepted_queries_fit_a_small_stack`.
            depth_max: 128,
            chain_max: 128,
            // More than anybody writes, and few enough that comparing each with all costs a moment.
            variables_max: 1000,
            steps_max: 50_000_000,
            rows_max: 1_000_000,
            result_bytes_max: 256 << 20,
            live_terms_max: 4_000_000,
            value_bytes_max: 1 << 20,
            memory: MemorySource::default(),
            cancel: CancelToken::default(),
        }
    }
}

/// The first limit that was reached, seen by functions that must be `Send`.
#[derive(Debug, Default)]
pub(crate) struct LimitTrip {
    code: AtomicU8,
}

impl LimitTrip {
    pub(crate) fn set(&self, limit: Limit) {
        let _ = self.code.compare_exchange(0, limit as u8, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn limit(&self) -> Option<Limit> {
        Limit::of_code(self.code.load(Ordering::Relaxed))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.code.load(Ordering::Relaxed) != 0
    }
}

/// The use of one evaluation.
pub(crate) struct EvaluationMeter {
    steps: Cell<u64>,
    steps_max: u64,
    live_terms_max: usize,
    value_bytes_max: usize,
    computed_bytes: Cell<usize>,
    pub(crate) cancel: CancelToken,
    pub(crate) trip: Arc<LimitTrip>,
}

impl EvaluationMeter {
    pub(crate) fn new(limits: &QueryLimits) -> Rc<Self> {
        Rc::new(Self {
            steps: Cell::new(0),
            steps_max: limits.steps_max,
            live_terms_max: limits.live_terms_max,
            value_bytes_max: limits.value_bytes_max,
            computed_bytes: Cell::new(0),
            cancel: limits.cancel.clone(),
            trip: Arc::default(),
        })
    }

    /// One quad was read.
    pub(crate) fn step(self: &Rc<Self>) -> Result<(), GraphError> {
        let steps = self.steps.get() + 1;
        self.steps.set(steps);
        if steps > self.steps_max {
            self.trip.set(Limit::Steps);
        }
        if Rc::strong_count(self) > self.live_terms_max {
            self.trip.set(Limit::Memory);
        }
        self.verdict()
    }

    /// Quads read so far.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// Why the evaluation must end, if it must.
    pub(crate) fn verdict(&self) -> Result<(), GraphError> {
        match self.trip.limit() {
            Some(limit) => Err(limit.into()),
            None if self.cancel.is_cancelled() => Err(GraphError::Cancelled),
            None => Ok(()),
        }
    }

    /// A value was computed.
    pub(crate) fn hold_bytes(&self, bytes: usize) -> Result<(), GraphError> {
        let all = self.computed_bytes.get().saturating_add(bytes);
        self.computed_bytes.set(all);
        if bytes > self.value_bytes_max {
            self.trip.set(Limit::ValueBytes);
        } else if all > self.value_bytes_max.saturating_mul(VALUES_OF_MAXIMAL_SIZE) {
            self.trip.set(Limit::Memory);
        }
        self.verdict()
    }

    pub(crate) fn free_bytes(&self, bytes: usize) {
        self.computed_bytes.set(self.computed_bytes.get().saturating_sub(bytes));
    }
}

/// All computed values together may be as large as this many of the largest.
const VALUES_OF_MAXIMAL_SIZE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_allowed_step_is_allowed_and_the_first_reason_stays() {
        let meter = EvaluationMeter::new(&QueryLimits { steps_max: 2, ..QueryLimits::default() });
        assert_eq!((meter.step(), meter.step()), (Ok(()), Ok(())));
        assert_eq!(meter.step(), Err(GraphError::Limit(Limit::Steps)));
        meter.cancel.cancel();
        assert_eq!(meter.verdict(), Err(GraphError::Limit(Limit::Steps)));
    }

    #[test]
    fn what_is_held_counts_and_what_is_dropped_does_not() {
        let meter = EvaluationMeter::new(&QueryLimits { live_terms_max: 3, ..QueryLimits::default() });
        let held = [Rc::clone(&meter), Rc::clone(&meter)];
        assert_eq!(meter.step(), Ok(()));
        drop(held);
        let _held = [Rc::clone(&meter), Rc::clone(&meter), Rc::clone(&meter)];
        assert_eq!(meter.step(), Err(GraphError::Limit(Limit::Memory)));
    }
}
