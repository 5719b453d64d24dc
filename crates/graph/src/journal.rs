//! What a standing query's result went through lately: enough to tell someone who was away exactly what was missed, or
//! that it cannot be told any more.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::rows::ResultDelta;

/// How far a journal reaches back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalLimits {
    /// Changes of one standing query.
    pub changes_max: usize,
    /// Bytes of their rows.
    pub bytes_max: usize,
}

impl Default for JournalLimits {
    fn default() -> Self {
        Self { changes_max: 1024, bytes_max: 1 << 20 }
    }
}

/// The latest changes of one result, numbered from 1.
#[derive(Default)]
pub(crate) struct ResultJournal {
    entries: VecDeque<Arc<ResultDelta>>,
    /// The number of the last change.
    last: u64,
    bytes: usize,
}

impl ResultJournal {
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    pub(crate) fn push(&mut self, delta: Arc<ResultDelta>, limits: &JournalLimits) {
        self.last += 1;
        self.bytes += delta.bytes();
        self.entries.push_back(delta);
        while self.entries.len() > limits.changes_max || self.bytes > limits.bytes_max {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.bytes();
        }
    }

    /// Everything after a change, as one delta. `None` if the journal does not reach back so far.
    pub(crate) fn since(&self, change: u64) -> Option<ResultDelta> {
        let missed = usize::try_from(self.last.checked_sub(change)?).ok()?;
        let first = self.entries.len().checked_sub(missed)?;
        Some(ResultDelta::merged(self.entries.range(first..).map(Arc::as_ref)))
    }
}

#[cfg(test)]
mod tests {
    use oxrdf::Literal;

    use super::*;

    fn delta(n: u64) -> Arc<ResultDelta> {
        let row = |n: u64| Arc::from([Some(Literal::from(n).into())]);
        let removed = if n > 0 { vec![row(n - 1)] } else { Vec::new() };
        Arc::new(ResultDelta { added: vec![row(n)], removed })
    }

    #[test]
    fn it_tells_exactly_what_was_missed_while_it_reaches_back() {
        let limits = JournalLimits { changes_max: 3, ..JournalLimits::default() };
        let mut journal = ResultJournal::default();
        assert_eq!(journal.since(0), Some(ResultDelta::default()));
        for n in 0..5 {
            journal.push(delta(n), &limits);
        }
        assert_eq!(journal.since(5), Some(ResultDelta::default()));
        let missed = journal.since(2).unwrap();
        assert_eq!((missed.added, missed.removed), (delta(4).added.clone(), delta(2).removed.clone()));
        assert_eq!((journal.since(1), journal.since(6)), (None, None));
    }

    #[test]
    fn bytes_bound_it_too() {
        let mut journal = ResultJournal::default();
        journal.push(delta(1), &JournalLimits { changes_max: 9, bytes_max: 1 });
        assert_eq!((journal.last(), journal.since(0), journal.bytes), (1, None, 0));
    }
}
