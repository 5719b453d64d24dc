//! What the data take of memory, and the budget that this is charged to.
//!
//! ```text
//! bytes = quads · QUAD_BYTES + terms · TERM_BYTES + bytes of the texts      an estimate that costs nothing to keep
//! granted ≥ bytes                                                         asked for in steps, given back in steps
//! ```
//! Only who makes the data grow is refused, before anything has changed: what removes, and what puts one value in the place of
//! another, is always done. What is not in the estimate: snapshots that readers still have, standing queries and what waits
//! for subscribers, which have bounds of their own.

use std::fmt;
use std::sync::Arc;

use crate::error::Limit;

/// Whoever has memory for the data.
pub trait DataBudget: fmt::Debug + Send + Sync {
    /// Charges so many bytes; false if there is no room, and then nothing was charged.
    fn take(&self, bytes: usize) -> bool;

    /// Charges so many bytes that are there already, whether there is room or not.
    fn charge(&self, bytes: usize);

    /// So many are not used any more.
    fn give(&self, bytes: usize);
}

/// Bytes of one quad in three orders. A million triples of the default graph take 186 resident bytes each, texts and terms
/// included (docs/internals/bench-figures.md), and this estimate 182; a quad of a named graph takes up to a fifth more.
const QUAD_BYTES: usize = 112;
/// Bytes of one term beside its text: its place, its hash and its count.
const TERM_BYTES: usize = 48;
/// Bytes that are asked for at once: few enough that nobody misses them, and enough that few changes ask.
const GRANT_BYTES: usize = 256 << 10;

/// What so many quads and terms with texts of so many bytes take, about.
pub(crate) fn data_bytes(quads: usize, terms: usize, text_bytes: usize) -> usize {
    quads.saturating_mul(QUAD_BYTES).saturating_add(terms.saturating_mul(TERM_BYTES)).saturating_add(text_bytes)
}

/// What is charged for one dataset; given back when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct DataCharge {
    budget: Option<Arc<dyn DataBudget>>,
    granted: usize,
}

impl DataCharge {
    /// Data that are there already, and so many bytes.
    pub(crate) fn new(budget: Arc<dyn DataBudget>, bytes: usize) -> Self {
        budget.charge(bytes);
        Self { budget: Some(budget), granted: bytes }
    }

    /// The data are about to take so many bytes, which is more than before.
    pub(crate) fn cover(&mut self, bytes: usize) -> Result<(), Limit> {
        let Some(budget) = &self.budget else { return Ok(()) };
        if bytes <= self.granted {
            return Ok(());
        }
        let missing = bytes - self.granted;
        // The last step before the end of the budget is as small as need be.
        let mut steps = [missing.next_multiple_of(GRANT_BYTES), missing].into_iter();
        let taken = steps.find(|bytes| budget.take(*bytes)).ok_or(Limit::DataBytes)?;
        self.granted += taken;
        Ok(())
    }

    /// The data take so many bytes.
    pub(crate) fn settle(&mut self, bytes: usize) {
        let Some(budget) = &self.budget else { return };
        if bytes > self.granted {
            budget.charge(bytes - self.granted);
            self.granted = bytes;
        } else if self.granted - bytes > 2 * GRANT_BYTES {
            let kept = bytes + GRANT_BYTES;
            budget.give(self.granted - kept);
            self.granted = kept;
        }
    }
}

impl Drop for DataCharge {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.give(self.granted);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use oxrdf::{GraphName, NamedNode, Quad};
    use proptest::prelude::*;

    use super::*;
    use crate::{GraphError, GraphSpace, LargeChange, QueryLimits, SpaceLimits, Update};

    #[derive(Debug)]
    struct Small {
        used: AtomicUsize,
        max: usize,
    }

    impl Small {
        fn new(max: usize) -> Arc<Self> {
            Arc::new(Self { used: AtomicUsize::new(0), max })
        }

        fn used(&self) -> usize {
            self.used.load(Ordering::Relaxed)
        }
    }

    impl DataBudget for Small {
        fn take(&self, bytes: usize) -> bool {
            let more = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.max);
            self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
        }

        fn charge(&self, bytes: usize) {
            self.used.fetch_add(bytes, Ordering::Relaxed);
        }

        fn give(&self, bytes: usize) {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    fn space(budget: &Arc<Small>) -> GraphSpace {
        let mut space = GraphSpace::new(1, SpaceLimits::default());
        space.charge_data_to(Arc::clone(budget) as Arc<dyn DataBudget>);
        space
    }

    fn quad(number: usize) -> Quad {
        let node = |name: &str| NamedNode::new_unchecked(format!("urn:{name}"));
        Quad::new(node(&format!("s{number}")), node("p"), node(&format!("o{number}")), GraphName::DefaultGraph)
    }

    fn update(space: &mut GraphSpace, text: &str) -> Result<(), GraphError> {
        let limits = QueryLimits::default();
        space.update(&Update::parse(text, &limits).unwrap(), &limits).map(|_| ())
    }

    #[test]
    fn f066_growth_is_refused_at_the_limit_and_not_below_and_the_rest_goes_on() {
        let budget = Small::new(1 << 20);
        let mut space = space(&budget);
        let first = (0..100_000).find(|number| space.edit(&[], &[quad(*number)]).is_err()).unwrap();
        assert!(space.data_bytes() > (1 << 20) - 512, "{} bytes: refused below the limit", space.data_bytes());
        let before = space.version();
        assert_eq!(space.edit(&[], &[quad(first)]), Err(GraphError::Limit(Limit::DataBytes)));
        let load: Vec<Quad> = (first..first + 100).map(quad).collect();
        space.begin_large(LargeChange::edit(Vec::new(), load), false).unwrap();
        assert_eq!(space.stage(1000), Err(GraphError::Limit(Limit::DataBytes)));
        assert_eq!(space.version(), before, "nothing has changed");
        let tidy = |space: &mut GraphSpace| {
            while space.is_untidy() {
                space.tidy(10_000);
            }
        };
        tidy(&mut space);
        let changed =
            "DELETE { <urn:s1> <urn:p> ?o } INSERT { <urn:s1> <urn:p> <urn:other> } WHERE { <urn:s1> <urn:p> ?o }";
        assert_eq!(update(&mut space, changed), Ok(()), "another value takes no room");
        assert_eq!(update(&mut space, "DELETE WHERE { <urn:s2> ?p ?o }"), Ok(()));
        assert_eq!(update(&mut space, "DELETE WHERE { <urn:s3> ?p ?o }"), Ok(()));
        assert_eq!(space.edit(&[], &[quad(first)]).map(|_| ()), Ok(()), "there is room again");
        assert_eq!(update(&mut space, "DELETE WHERE { ?s ?p ?o }"), Ok(()));
        tidy(&mut space);
        assert!(budget.used() <= 3 * GRANT_BYTES, "{}", budget.used());
        drop(space);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn f066_data_that_were_there_before_are_charged_and_stay() {
        let mut space = GraphSpace::new(1, SpaceLimits::default());
        space.replay_quads((0..1000).map(quad)).unwrap();
        let budget = Small::new(1000);
        space.charge_data_to(Arc::clone(&budget) as Arc<dyn DataBudget>);
        assert_eq!((budget.used(), space.snapshot().len()), (space.data_bytes(), 1000));
        assert_eq!(space.edit(&[], &[quad(1000)]), Err(GraphError::Limit(Limit::DataBytes)));
        assert_eq!(update(&mut space, "DELETE WHERE { <urn:s7> ?p ?o }"), Ok(()));
        assert_eq!(space.snapshot().len(), 999);
    }

    proptest! {
        /// Whatever is done, and whatever fails: no less is charged than is used, and little more.
        #[test]
        fn what_is_charged_is_what_is_used(steps in prop::collection::vec((any::<bool>(), 0..40usize, 1..400usize), 1..60)) {
            let budget = Small::new(300 << 10);
            let mut space = space(&budget);
            for (is_insert, first, count) in steps {
                let quads: Vec<Quad> = (first * 100..first * 100 + count).map(quad).collect();
                if is_insert {
                    let _ = space.edit(&[], &quads);
                } else {
                    let masks: Vec<_> = quads.iter().map(|quad| crate::Mask {
                        subject: Some(quad.subject.clone()),
                        ..crate::Mask::default()
                    }).collect();
                    prop_assert!(space.edit(&masks, &[]).is_ok(), "to remove is always possible");
                }
                prop_assert!(budget.used() >= space.data_bytes());
                prop_assert!(budget.used() <= space.data_bytes() + 3 * GRANT_BYTES);
                prop_assert!(budget.used() <= 300 << 10);
            }
        }
    }
}
