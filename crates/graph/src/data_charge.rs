//! What the data take of memory, and the budget that this is charged to.
//!
//! ```text
//! bytes = quads · QUAD_BYTES + terms · TERM_BYTES + bytes of the texts      an estimate that costs nothing to keep
//! granted ≥ bytes                                                         asked for in steps, given back in steps
//! ```
//! Only who makes the data grow is refused, before anything has changed: what removes, and what puts as many bytes in the place
//! of others, is always done. Values that take the place of others may be a little longer without asking, up to a bound, so
//! that readings go on at the end of the budget. What is not in the estimate: snapshots that readers still have, standing
//! queries and what waits for subscribers, which have bounds of their own.

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
/// Bytes by which values that take the place of others may be longer before anybody is asked.
const REPLACED_BYTES: usize = 256 << 10;

/// What so many quads and terms with texts of so many bytes take, about.
pub(crate) fn data_bytes(quads: usize, terms: usize, text_bytes: usize) -> usize {
    quads.saturating_mul(QUAD_BYTES).saturating_add(terms.saturating_mul(TERM_BYTES)).saturating_add(text_bytes)
}

/// What is charged for one dataset; given back when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct DataCharge {
    budget: Option<Arc<dyn DataBudget>>,
    granted: usize,
    /// Of these, bytes that were charged without asking.
    unasked: usize,
}

impl DataCharge {
    /// Data that are there already, and so many bytes.
    pub(crate) fn new(budget: Arc<dyn DataBudget>, bytes: usize) -> Self {
        budget.charge(bytes);
        Self { budget: Some(budget), granted: bytes, unasked: 0 }
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
        // There is room for what was charged before, too.
        self.unasked = 0;
        self.granted += taken;
        Ok(())
    }

    /// The same, where the growth is that of values which take the place of others.
    pub(crate) fn cover_replaced(&mut self, bytes: usize) -> Result<(), Limit> {
        let missing = bytes.saturating_sub(self.granted);
        let Some(budget) = self.budget.as_ref().filter(|_| self.unasked.saturating_add(missing) <= REPLACED_BYTES)
        else {
            return self.cover(bytes);
        };
        budget.charge(missing);
        (self.granted, self.unasked) = (self.granted + missing, self.unasked + missing);
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
            self.unasked = self.unasked.saturating_sub(self.granted - kept);
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

    fn value(number: usize, bytes: usize) -> Quad {
        Quad { object: oxrdf::Literal::new_simple_literal("x".repeat(bytes)).into(), ..quad(number) }
    }

    /// Removes what is said of these and says something else: as an update, or in pieces if the values are many.
    fn replace(space: &mut GraphSpace, numbers: std::ops::Range<usize>, bytes: usize) -> Result<(), GraphError> {
        let masks = |number| crate::Mask { subject: Some(quad(number).subject), ..crate::Mask::default() };
        let (remove, insert): (Vec<_>, Vec<_>) =
            numbers.map(|number| (masks(number), value(number, bytes + number))).unzip();
        space.edit(&remove, &insert).map(|_| ())
    }

    /// What takes the place of something was taken to be as long as that.
    #[test]
    fn f066_longer_values_in_the_place_of_shorter_ones_are_growth() {
        let budget = Small::new(1 << 20);
        let mut space = space(&budget);
        for number in 0..100 {
            space.edit(&[], &[value(number, number)]).unwrap();
        }
        let refused = (0..100).find(|number| replace(&mut space, *number..number + 1, 100_000).is_err()).unwrap();
        assert!((9..=13).contains(&refused), "{refused} values of 100 000 bytes in a megabyte");
        assert_eq!(replace(&mut space, 50..90, 100_000), Err(GraphError::Limit(Limit::DataBytes)), "nor many at once");
        assert!(budget.used() <= (1 << 20) + REPLACED_BYTES, "{} bytes", budget.used());
        let before = space.version();
        assert_eq!(replace(&mut space, 60..61, 500_000), Err(GraphError::Limit(Limit::DataBytes)));
        assert_eq!(space.version(), before, "nothing has changed");
        // As long as before, or shorter, is always possible; and then there is room for others.
        for round in 0..100 {
            assert_eq!(replace(&mut space, 0..5, 100_000 + round % 2), Ok(()), "{round}");
        }
        assert_eq!(replace(&mut space, 0..2, 10), Ok(()));
        assert_eq!(replace(&mut space, refused..refused + 1, 100_000), Ok(()));
        drop(space);
        assert_eq!(budget.used(), 0);
    }

    /// Readings are now longer, now shorter: none of them is refused because others have used up the budget.
    #[test]
    fn f066_readings_go_on_at_the_end_of_the_budget() {
        let budget = Small::new(1 << 20);
        let mut space = space(&budget);
        for number in 0..100 {
            space.edit(&[], &[value(number, 1)]).unwrap();
        }
        (1000..100_000).find(|number| space.edit(&[], &[quad(*number)]).is_err()).unwrap();
        for round in 0..1000 {
            assert_eq!(replace(&mut space, round % 100..round % 100 + 1, 1 + round % 17), Ok(()), "{round}");
        }
        assert_eq!(space.edit(&[], &[quad(200_000)]), Err(GraphError::Limit(Limit::DataBytes)), "but nothing is added");
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
        fn what_is_charged_is_what_is_used(
            steps in prop::collection::vec((any::<bool>(), 0..40usize, 1..400usize, 0..800usize), 1..60),
        ) {
            let budget = Small::new(300 << 10);
            let mut space = space(&budget);
            for (is_insert, first, count, bytes) in steps {
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
                let _ = replace(&mut space, first * 100..first * 100 + count, bytes);
                prop_assert!(budget.used() >= space.data_bytes());
                prop_assert!(budget.used() <= space.data_bytes() + 3 * GRANT_BYTES);
                prop_assert!(budget.used() <= (300 << 10) + REPLACED_BYTES);
            }
        }
    }
}
