//! The dataset: a writer that works in transactions, and snapshots for readers.
//!
//! A transaction is a list of steps that took effect. Its net change is the delta; taking the steps back is the
//! rollback. Terms that nothing refers to any more are forgotten by [`Dataset::sweep`], which comes after the standing
//! queries have looked at the change, so that the numbers of removed terms are still valid for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use oxrdf::{BlankNode, GraphName, GraphNameRef, Quad as RdfQuad, QuadRef, Term, TermRef};

use crate::data_charge::{DataBudget, DataCharge, data_bytes};
use crate::delta::{QuadDelta, quad_of};
use crate::dictionary::{Dictionary, Id, TermTable};
use crate::draft::DraftSteps;
use crate::error::Limit;
use crate::index::{IdPattern, InGraph, Index, IndexScan, Quad};

/// How much a dataset may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetLimits {
    /// Bytes of one term. A literal is not a place for files.
    pub term_bytes_max: usize,
    /// Quads in all graphs together.
    pub quads_max: usize,
    /// Quads that one update may add and remove, each step counted.
    pub change_quads_max: usize,
    /// Bytes of those quads as text, each term counted wherever it stands: what a log has to take in one piece.
    pub change_bytes_max: usize,
}

impl Default for DatasetLimits {
    fn default() -> Self {
        // 1 MiB is more than any reading; 20 million quads are about 3 GB here; a million in one update is a bulk load,
        // with two hundred bytes each.
        Self {
            term_bytes_max: 1 << 20,
            quads_max: 20_000_000,
            change_quads_max: 1_000_000,
            change_bytes_max: 200 << 20,
        }
    }
}

/// The data at one version, for ever. Cloned in O(1); any thread may read it.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) terms: TermTable,
    pub(crate) index: Index,
    version: u64,
}

impl Snapshot {
    /// The number of the commit that made it.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Quads in all graphs.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// True if no graph has a quad.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if the quad is in it.
    pub fn contains(&self, quad: QuadRef<'_>) -> bool {
        let ids = ids_of(quad, |term| self.terms.find(term));
        ids.is_some_and(|quad| self.index.contains(quad))
    }

    /// Every quad, graph by graph: what a store writes to restore the dataset later.
    pub fn quads(&self) -> impl Iterator<Item = RdfQuad> + '_ {
        let all = IdPattern { graph: InGraph::Any, subject: None, predicate: None, object: None };
        self.scan(all).filter_map(|quad| self.quad(quad))
    }

    /// The data before the change that made it.
    pub(crate) fn before(&self, change: &QuadChange) -> Self {
        let mut index = self.index.clone();
        for quad in &change.added {
            index.remove(*quad);
        }
        for quad in &change.removed {
            index.insert(*quad);
        }
        Self { terms: self.terms.clone(), index, version: self.version.saturating_sub(1) }
    }

    pub(crate) fn scan(&self, pattern: IdPattern) -> IndexScan<'_> {
        self.index.scan(pattern)
    }

    pub(crate) fn quad(&self, quad: Quad) -> Option<RdfQuad> {
        quad_by(&self.terms, quad)
    }
}

pub(crate) fn quad_by(terms: &TermTable, quad: Quad) -> Option<RdfQuad> {
    let term = |id: Id| terms.term(id);
    let graph = if quad.graph == 0 { None } else { Some(term(quad.graph)?) };
    quad_of(term(quad.subject)?, term(quad.predicate)?, term(quad.object)?, graph)
}

fn ids_of(quad: QuadRef<'_>, mut id: impl FnMut(TermRef<'_>) -> Option<Id>) -> Option<Quad> {
    let graph = match quad.graph_name {
        GraphNameRef::DefaultGraph => 0,
        GraphNameRef::NamedNode(node) => id(node.into())?,
        GraphNameRef::BlankNode(node) => id(node.into())?,
    };
    let (subject, predicate) = (id(quad.subject.into())?, id(quad.predicate.into())?);
    Some(Quad { graph, subject, predicate, object: id(quad.object)? })
}

/// The net change of a transaction, in numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct QuadChange {
    pub(crate) added: Vec<Quad>,
    pub(crate) removed: Vec<Quad>,
}

/// What the data take.
#[derive(Clone, Copy, Debug)]
struct DataExtent {
    quads: usize,
    /// Bytes with terms that nothing holds any more, and without them.
    charged: usize,
    held: usize,
}

/// The writer's side.
pub(crate) struct Dataset {
    pub(crate) dictionary: Dictionary,
    index: Index,
    version: u64,
    limits: DatasetLimits,
    /// Steps of the open transaction that took effect: true for an insertion.
    steps: Vec<(bool, Quad)>,
    /// Bytes of their terms.
    step_bytes: usize,
    /// What the data took when the first of them was about to take effect.
    before: Option<DataExtent>,
    charge: DataCharge,
    /// Blank nodes made in the open transaction.
    blanks: u64,
    /// Of a copy: what is attempted on it.
    draft: Option<DraftSteps>,
}

impl Dataset {
    pub(crate) fn new(seed: u64, limits: DatasetLimits) -> Self {
        let dictionary = Dictionary::new(seed);
        let (index, steps) = (Index::default(), Vec::new());
        let (before, charge) = (None, DataCharge::default());
        Self { dictionary, index, version: 0, limits, steps, step_bytes: 0, before, charge, blanks: 0, draft: None }
    }

    /// A copy of the data that somebody else changes, to find out what a change would do.
    pub(crate) fn draft(snapshot: &Snapshot, limits: DatasetLimits, steps: DraftSteps) -> Self {
        let dictionary = Dictionary::of_copy(snapshot.terms.clone());
        let (index, version) = (snapshot.index.clone(), snapshot.version);
        // What it comes to is charged when it is done.
        let (before, charge, draft) = (None, DataCharge::default(), Some(steps));
        Self { dictionary, index, version, limits, steps: Vec::new(), step_bytes: 0, before, charge, blanks: 0, draft }
    }

    /// From now on the data are charged to this budget.
    pub(crate) fn charge_to(&mut self, budget: Arc<dyn DataBudget>) {
        self.charge = DataCharge::new(budget, self.bytes(0));
    }

    /// Bytes that the data take, about, and so many quads beside them.
    pub(crate) fn bytes(&self, more_quads: usize) -> usize {
        data_bytes(self.index.len() + more_quads, self.dictionary.len(), self.dictionary.text_bytes())
    }

    /// Whether there is memory for the data as they are with all terms that are known, and so many quads beside them: what is
    /// there, and beside it what is made to take its place.
    pub(crate) fn cover_beside(&mut self, more_quads: usize) -> Result<(), Limit> {
        let bytes = self.bytes(more_quads);
        if more_quads > 0 { self.charge.cover(bytes) } else { self.charge.cover_replaced(bytes) }
    }

    /// Quads, and bytes with what is to be swept and without it.
    fn extent(&self) -> DataExtent {
        let (terms, text_bytes) = self.dictionary.held();
        let quads = self.index.len();
        DataExtent { quads, charged: self.bytes(0), held: data_bytes(quads, terms, text_bytes) }
    }

    /// Whether there is memory for what the open transaction has made of the data: who puts one value in the place of another
    /// makes them grow by what the new one is longer.
    fn cover_growth(&mut self) -> Result<(), Limit> {
        let Some(before) = &self.before else { return Ok(()) };
        let now = self.extent();
        let bytes = before.charged.saturating_add(now.held.saturating_sub(before.held));
        match () {
            () if now.held <= before.held => Ok(()),
            () if now.quads > before.quads => self.charge.cover(bytes),
            () => self.charge.cover_replaced(bytes),
        }
    }

    fn note_before(&mut self) {
        if self.before.is_none() {
            self.before = Some(self.extent());
        }
    }

    /// What was attempted on a copy, and the names of terms.
    pub(crate) fn into_draft(self) -> Option<(DraftSteps, TermTable)> {
        let terms = self.dictionary.terms().clone();
        self.draft.map(|draft| (draft, terms))
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot { terms: self.dictionary.terms().clone(), index: self.index.clone(), version: self.version }
    }

    /// A blank node that is nowhere else: no commit before had this version.
    pub(crate) fn fresh_blank(&mut self) -> BlankNode {
        self.blanks += 1;
        let apart = self.draft.as_ref().map(DraftSteps::name).unwrap_or_default();
        BlankNode::new_unchecked(format!("v{}{apart}n{}", self.version + 1, self.blanks))
    }

    pub(crate) fn limits(&self) -> &DatasetLimits {
        &self.limits
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    pub(crate) fn contains_ids(&self, quad: Quad) -> bool {
        self.index.contains(quad)
    }

    pub(crate) fn quad(&self, quad: Quad) -> Option<RdfQuad> {
        quad_by(self.dictionary.terms(), quad)
    }

    /// Bytes of the terms of a quad.
    pub(crate) fn text_bytes(&self, quad: Quad) -> usize {
        let terms = self.dictionary.terms();
        quad.ids().map(|id| terms.text(id).map_or(0, str::len)).into_iter().sum()
    }

    /// Other quads are the data from now on, with a new version. Whoever made them has held and released their terms.
    pub(crate) fn adopt(&mut self, index: Index) {
        self.index = index;
        self.version += 1;
    }

    /// The numbers of a quad's terms, which are forgotten at the next sweep unless something holds them.
    pub(crate) fn intern_quad(&mut self, quad: QuadRef<'_>) -> Result<Quad, Limit> {
        for term in terms_of(quad) {
            let long = match term {
                TermRef::NamedNode(node) => node.as_str().len(),
                TermRef::BlankNode(node) => node.as_str().len(),
                TermRef::Literal(literal) => literal.value().len() + literal.datatype().as_str().len(),
            };
            if long > self.limits.term_bytes_max {
                return Err(Limit::TermBytes);
            }
        }
        ids_of(quad, |term| self.dictionary.intern(term)).ok_or(Limit::Terms)
    }

    pub(crate) fn insert(&mut self, quad: QuadRef<'_>) -> Result<bool, Limit> {
        let quad = self.intern_quad(quad)?;
        if let Some(draft) = &mut self.draft {
            draft.note(quad, true, self.limits.change_quads_max)?;
        }
        self.insert_ids(quad)
    }

    fn insert_ids(&mut self, quad: Quad) -> Result<bool, Limit> {
        if self.index.len() >= self.limits.quads_max && !self.index.contains(quad) {
            return Err(Limit::Quads);
        }
        self.note_before();
        let new = self.index.insert(quad);
        if new {
            for id in quad.ids() {
                self.dictionary.hold(id);
            }
            self.note(true, quad)?;
            self.cover_growth()?;
        }
        Ok(new)
    }

    pub(crate) fn remove(&mut self, quad: QuadRef<'_>) -> Result<bool, Limit> {
        if self.draft.is_some() {
            // What is not here may come before the change takes place.
            let quad = self.intern_quad(quad)?;
            return self.remove_ids(quad);
        }
        match ids_of(quad, |term| self.dictionary.terms().find(term)) {
            Some(quad) => self.remove_ids(quad),
            None => Ok(false),
        }
    }

    pub(crate) fn remove_ids(&mut self, quad: Quad) -> Result<bool, Limit> {
        if let Some(draft) = &mut self.draft {
            draft.note(quad, false, self.limits.change_quads_max)?;
        }
        self.note_before();
        let there = self.index.remove(quad);
        if there {
            for id in quad.ids() {
                self.dictionary.release(id);
            }
            self.note(false, quad)?;
        }
        Ok(there)
    }

    fn note(&mut self, inserted: bool, quad: Quad) -> Result<(), Limit> {
        self.steps.push((inserted, quad));
        self.step_bytes += self.text_bytes(quad);
        match () {
            () if self.steps.len() > self.limits.change_quads_max => Err(Limit::ChangeQuads),
            () if self.step_bytes > self.limits.change_bytes_max => Err(Limit::ChangeBytes),
            () => Ok(()),
        }
    }

    /// Takes the open transaction back.
    pub(crate) fn rollback(&mut self) {
        while let Some((inserted, quad)) = self.steps.pop() {
            if inserted {
                self.index.remove(quad);
                for id in quad.ids() {
                    self.dictionary.release(id);
                }
            } else {
                self.index.insert(quad);
                for id in quad.ids() {
                    self.dictionary.hold(id);
                }
            }
        }
        (self.blanks, self.step_bytes, self.before) = (0, 0, None);
        self.sweep();
    }

    /// Ends the transaction: its net change and the delta, with a new version if anything changed. [`Dataset::sweep`]
    /// must follow.
    pub(crate) fn commit(&mut self) -> (QuadChange, QuadDelta) {
        let change = net(&mut self.steps);
        (self.blanks, self.step_bytes, self.before) = (0, 0, None);
        if !change.added.is_empty() || !change.removed.is_empty() {
            self.version += 1;
        }
        let terms = self.dictionary.terms();
        let quads = |list: &[Quad]| list.iter().filter_map(|quad| quad_by(terms, *quad)).collect();
        let delta = QuadDelta { version: self.version, added: quads(&change.added), removed: quads(&change.removed) };
        (change, delta)
    }

    /// After a restart: the version that the restored data has.
    pub(crate) fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    pub(crate) fn set_limits(&mut self, limits: DatasetLimits) {
        self.limits = limits;
    }

    pub(crate) fn sweep(&mut self) {
        self.dictionary.sweep();
        let bytes = self.bytes(0);
        self.charge.settle(bytes);
    }
}

fn terms_of(quad: QuadRef<'_>) -> impl Iterator<Item = TermRef<'_>> {
    let graph = match quad.graph_name {
        GraphNameRef::NamedNode(node) => Some(node.into()),
        GraphNameRef::BlankNode(node) => Some(node.into()),
        GraphNameRef::DefaultGraph => None,
    };
    [quad.subject.into(), quad.predicate.into(), quad.object].into_iter().chain(graph)
}

/// A step is noted only when it took effect, so the steps of one quad alternate and sum up to −1, 0 or 1.
fn net(steps: &mut Vec<(bool, Quad)>) -> QuadChange {
    let mut change = QuadChange::default();
    if let [(inserted, quad)] = steps[..] {
        let list = if inserted { &mut change.added } else { &mut change.removed };
        list.push(quad);
        steps.clear();
        return change;
    }
    let mut sums = BTreeMap::new();
    for (inserted, quad) in steps.iter() {
        *sums.entry(*quad).or_insert(0i8) += if *inserted { 1 } else { -1 };
    }
    for (_, quad) in steps.drain(..) {
        match sums.remove(&quad) {
            Some(1) => change.added.push(quad),
            Some(-1) => change.removed.push(quad),
            _ => {}
        }
    }
    steps.shrink_to(STEPS_KEPT);
    change
}

/// Room for steps that is kept between transactions.
const STEPS_KEPT: usize = 1024;

/// The graph name of a term that names a graph.
pub(crate) fn graph_name(term: Term) -> Option<GraphName> {
    match term {
        Term::NamedNode(node) => Some(node.into()),
        Term::BlankNode(node) => Some(node.into()),
        Term::Literal(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use oxrdf::{Literal, NamedNode};

    use super::*;

    fn quad(n: u32) -> RdfQuad {
        let iri = |name: &str| NamedNode::new_unchecked(format!("http://e/{name}"));
        RdfQuad::new(iri(&format!("s{n}")), iri("p"), Literal::from(n), GraphName::DefaultGraph)
    }

    fn dataset() -> Dataset {
        Dataset::new(
            1,
            DatasetLimits { quads_max: 10, change_quads_max: 8, change_bytes_max: 300, term_bytes_max: 100 },
        )
    }

    #[test]
    fn the_delta_is_the_net_effect() {
        let mut dataset = dataset();
        dataset.insert(quad(1).as_ref()).unwrap();
        dataset.commit();
        dataset.insert(quad(2).as_ref()).unwrap();
        dataset.insert(quad(2).as_ref()).unwrap();
        dataset.remove(quad(1).as_ref()).unwrap();
        dataset.insert(quad(1).as_ref()).unwrap();
        dataset.insert(quad(3).as_ref()).unwrap();
        dataset.remove(quad(3).as_ref()).unwrap();
        let (_, delta) = dataset.commit();
        assert_eq!(delta, QuadDelta { version: 2, added: vec![quad(2)], removed: vec![] });
        assert_eq!(dataset.commit().1, QuadDelta { version: 2, ..QuadDelta::default() });
    }

    #[test]
    fn a_rollback_leaves_nothing() {
        let mut dataset = dataset();
        dataset.insert(quad(1).as_ref()).unwrap();
        dataset.commit();
        dataset.sweep();
        let terms = dataset.dictionary.len();
        dataset.remove(quad(1).as_ref()).unwrap();
        dataset.insert(quad(2).as_ref()).unwrap();
        dataset.rollback();
        assert_eq!(dataset.snapshot().quads().collect::<Vec<_>>(), [quad(1)]);
        assert_eq!((dataset.dictionary.len(), dataset.version()), (terms, 1));
    }

    #[test]
    fn f099_sizes_are_capped_exactly() {
        let mut dataset = dataset();
        let long = RdfQuad { object: Literal::new_simple_literal("x".repeat(101)).into(), ..quad(1) };
        assert_eq!(dataset.insert(long.as_ref()), Err(Limit::TermBytes));
        for n in 0..8 {
            assert_eq!(dataset.insert(quad(n).as_ref()), Ok(true));
        }
        assert_eq!(dataset.insert(quad(8).as_ref()), Err(Limit::ChangeQuads));
        dataset.rollback();
        for n in 0..10 {
            dataset.insert(quad(n).as_ref()).unwrap();
            dataset.commit();
        }
        assert_eq!(dataset.insert(quad(10).as_ref()), Err(Limit::Quads));
        assert_eq!(dataset.insert(quad(9).as_ref()), Ok(false));
        for n in 0..4 {
            dataset.remove(quad(n).as_ref()).unwrap();
        }
        dataset.commit();
        let long = |n: u32| RdfQuad { object: Literal::new_simple_literal(format!("{n:060}")).into(), ..quad(n) };
        for n in 0..3 {
            assert_eq!(dataset.insert(long(n).as_ref()), Ok(true));
        }
        assert_eq!(dataset.insert(long(3).as_ref()), Err(Limit::ChangeBytes));
    }

    #[test]
    fn a_snapshot_stays_as_it_was() {
        let mut dataset = dataset();
        dataset.insert(quad(1).as_ref()).unwrap();
        dataset.commit();
        let snapshot = dataset.snapshot();
        dataset.remove(quad(1).as_ref()).unwrap();
        dataset.insert(quad(2).as_ref()).unwrap();
        dataset.commit();
        dataset.sweep();
        assert_eq!(snapshot.quads().collect::<Vec<_>>(), [quad(1)]);
        assert!(snapshot.contains(quad(1).as_ref()) && !snapshot.contains(quad(2).as_ref()));
        assert_eq!(dataset.snapshot().quads().collect::<Vec<_>>(), [quad(2)]);
    }
}
