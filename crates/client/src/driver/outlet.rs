//! Where the changes of a query wait for their reader: one sum, however many there were.

use std::sync::Mutex;

use tokio::sync::Notify;

use crate::session::row::{Delta, NetChange};
use crate::session::watch::{ChangeSource, ResultChange};

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Outlet {
    pending: Mutex<Option<PendingChange>>,
    pub(crate) wake: Notify,
}

/// Most changes are taken before the next one comes; only those that are not need a sum.
#[derive(Debug)]
enum PendingChange {
    One(ResultChange),
    Sum { net: NetChange, lost: u32, source: ChangeSource },
}

impl Outlet {
    pub(crate) fn take(&self) -> Option<ResultChange> {
        self.pending.lock().ok()?.take().map(PendingChange::into_change)
    }

    pub(crate) fn put(&self, change: ResultChange) {
        if let Ok(mut pending) = self.pending.lock() {
            *pending = Some(match pending.take() {
                Some(before) => before.then(change),
                None => PendingChange::One(change),
            });
        }
        self.wake.notify_one();
    }
}

impl PendingChange {
    /// Costs what the next one has, whatever waits already.
    fn then(self, next: ResultChange) -> Self {
        let (mut net, lost, source) = match self {
            Self::Sum { net, lost, source } => (net, lost, source),
            Self::One(ResultChange { added, removed, lost, source }) => {
                (NetChange::of(Delta { added, removed }), lost, source)
            }
        };
        net.add(Delta { added: next.added, removed: next.removed });
        let source = if source == ChangeSource::Baseline { source } else { next.source };
        Self::Sum { net, lost: lost.saturating_add(next.lost), source }
    }

    fn into_change(self) -> ResultChange {
        match self {
            Self::One(change) => change,
            Self::Sum { net, lost, source } => {
                let Delta { added, removed } = net.into_delta();
                ResultChange { added, removed, lost, source }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::session::row::{Row, literal_row};

    fn rows() -> impl Strategy<Value = Vec<Row>> {
        prop::collection::vec(0u8..6, 0..6)
            .prop_map(|texts| texts.iter().map(|text| literal_row("o", &text.to_string())).collect())
    }

    fn change() -> impl Strategy<Value = ResultChange> {
        let source =
            prop_oneof![Just(ChangeSource::Baseline), Just(ChangeSource::Notification), Just(ChangeSource::Check)];
        (rows(), rows(), 0u32..3, source).prop_map(|(added, removed, lost, source)| ResultChange {
            added,
            removed,
            lost,
            source,
        })
    }

    proptest! {
        /// What is taken is the sum of what was put, one after the other.
        #[test]
        fn a_slow_reader_gets_the_sum(changes in prop::collection::vec(change(), 1..6)) {
            let outlet = Outlet::default();
            for change in &changes {
                outlet.put(change.clone());
            }
            let sum = changes.into_iter().reduce(ResultChange::then);
            prop_assert_eq!(outlet.take(), sum);
            prop_assert_eq!(outlet.take(), None);
        }
    }
}
