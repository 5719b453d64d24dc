//! A change of a result on its way to those who are told of it. Subscribers of equal queries are told the same, so what a
//! door writes of it is written once and shared.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use tidegate_graph::ResultDelta;

/// What entered and left a result, and how doors write it.
#[derive(Debug)]
pub struct WrittenChange {
    delta: Arc<ResultDelta>,
    written: [OnceLock<Box<str>>; MANNERS],
}

/// The ways to write a change, or a side of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Manner {
    /// Both sides, as members of a SEPA notification.
    Sepa,
    /// What entered, as triples of SSAP.
    TriplesAdded,
    /// What left, as triples of SSAP.
    TriplesRemoved,
    /// What entered, as results of SPARQL in SSAP.
    RowsAdded,
    /// What left, as results of SPARQL in SSAP.
    RowsRemoved,
}

const MANNERS: usize = 5;

impl WrittenChange {
    /// The text of it in this manner; `write` makes it for the first who asks.
    pub(crate) fn written(&self, manner: Manner, write: impl FnOnce() -> String) -> &str {
        self.written[manner as usize].get_or_init(|| write().into_boxed_str())
    }

    /// The same change that `last` is, if it is the same.
    pub(crate) fn shared(last: &mut Option<Arc<Self>>, delta: Arc<ResultDelta>) -> Arc<Self> {
        match last {
            Some(known) if Arc::ptr_eq(&known.delta, &delta) => Arc::clone(known),
            _ => Arc::clone(last.insert(Arc::new(Self::from(delta)))),
        }
    }
}

impl From<Arc<ResultDelta>> for WrittenChange {
    fn from(delta: Arc<ResultDelta>) -> Self {
        Self { delta, written: Default::default() }
    }
}

impl Deref for WrittenChange {
    type Target = ResultDelta;

    fn deref(&self) -> &ResultDelta {
        &self.delta
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_change_is_written_once_for_all_who_are_told_of_it() {
        let (first, second) = (Arc::new(ResultDelta::default()), Arc::new(ResultDelta::default()));
        let mut last = None;
        let told: Vec<_> = (0..100).map(|_| WrittenChange::shared(&mut last, Arc::clone(&first))).collect();
        let mut times = 0;
        for change in &told {
            let text = change.written(Manner::Sepa, || {
                times += 1;
                "text".to_owned()
            });
            assert_eq!(text, "text");
        }
        assert_eq!(times, 1);
        assert_eq!(told[0].written(Manner::RowsAdded, || "other".to_owned()), "other");
        let other = WrittenChange::shared(&mut last, second);
        assert_eq!(other.written(Manner::Sepa, || "new".to_owned()), "new", "an equal one is not the same one");
    }
}
