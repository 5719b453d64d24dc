//! Standing queries: who is interested in a change, and what it does to their results.
//!
//! Equal queries are one entry, evaluated once. An entry is found by its patterns (`masks`), so a change costs nothing
//! for the entries it does not touch; it is then followed (`follow`) or evaluated again and compared.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use oxrdf::{NamedOrBlankNode, Term, Variable};
use spargebra::Query as Algebra;
use spargebra::algebra::GraphPattern;

use crate::dataset::{Change, Snapshot};
use crate::dictionary::{Dictionary, Id};
use crate::error::{Error, Limit, Refusal};
use crate::follow::{BeforeAfter, Follower};
use crate::form::{Form, Peeled, peel, truth};
use crate::index::{InGraph, Pattern, Quad};
use crate::journal::{Journal, JournalLimits};
use crate::limits::{Meter, QueryLimits};
use crate::masks::{Interests, Mask, MaskGraph};
use crate::plan::{Slot, branches, interests};
use crate::query::{Query, Results, Row};
use crate::rows::{Bag, Counts, ResultDelta};

/// How an entry is kept up to date.
enum Method {
    /// Quads that match are the result.
    Mask,
    /// By the difference rule. The bag is kept only where the result is a set.
    Follow { followers: Vec<Follower>, solutions: Box<Query>, bag: Option<Bag> },
    /// By evaluating it again.
    Again { query: Box<Query>, bag: Bag },
}

/// A distinct standing query.
pub(crate) struct Entry {
    key: String,
    form: Form,
    columns: Vec<Variable>,
    method: Method,
    patterns: Vec<Pattern>,
    pub(crate) journal: Journal,
    pub(crate) subscribers: Vec<u64>,
    pub(crate) rules: Vec<u64>,
}

/// A result that changed, or a query that could not be kept.
pub(crate) struct Fired {
    pub(crate) entry: usize,
    pub(crate) outcome: Result<Arc<ResultDelta>, Error>,
}

/// All standing queries.
pub(crate) struct Standing {
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    by_key: BTreeMap<String, usize>,
    interests: Interests,
}

impl Standing {
    pub(crate) fn new(seed: u64) -> Self {
        Self { entries: Vec::new(), free: Vec::new(), by_key: BTreeMap::new(), interests: Interests::new(seed) }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(crate) fn entry(&self, number: usize) -> Option<&Entry> {
        self.entries.get(number)?.as_ref()
    }

    pub(crate) fn entry_mut(&mut self, number: usize) -> Option<&mut Entry> {
        self.entries.get_mut(number)?.as_mut()
    }

    /// The entry of a query, made if it is the first of its kind.
    pub(crate) fn query(
        &mut self,
        query: &Query,
        snapshot: &Snapshot,
        dictionary: &mut Dictionary,
        limits: &StandingContext<'_>,
    ) -> Result<usize, Error> {
        let key = format!("query {}", query.canonical());
        if let Some(known) = self.by_key.get(&key) {
            return Ok(*known);
        }
        limits.check(self.len())?;
        let peeled = peel(&query.algebra).ok_or(Error::Refused(Refusal::StandingDescribe))?;
        let (columns, patterns, method) = match followed(query, &peeled, dictionary, limits)? {
            Some((followers, solutions)) => {
                let bag = match peeled.form {
                    Form::Bag => None,
                    _ => Some(solution_bag(&solutions, &peeled.form, snapshot, limits)?),
                };
                let patterns = followers.iter().flat_map(Follower::patterns).collect();
                let solutions = Box::new(solutions);
                (peeled.columns, patterns, Method::Follow { followers, solutions, bag })
            }
            None => {
                let again = again(query, &peeled, limits.query)?;
                let (bag, columns) = result_bag(&again, &peeled.form, snapshot, limits)?;
                let patterns = held_interests(query, dictionary)?;
                (columns, patterns, Method::Again { query: Box::new(again), bag })
            }
        };
        Ok(self.file(Entry::new(key, peeled.form, columns, method, patterns)))
    }

    /// The entry of a union of masks.
    pub(crate) fn masks(
        &mut self,
        masks: &[Mask],
        dictionary: &mut Dictionary,
        limits: &StandingContext<'_>,
    ) -> Result<usize, Error> {
        let key = format!("masks {masks:?}");
        if let Some(known) = self.by_key.get(&key) {
            return Ok(*known);
        }
        limits.check(self.len())?;
        let patterns = masks.iter().map(|mask| held_mask(mask, dictionary)).collect::<Result<_, _>>()?;
        let columns = ["subject", "predicate", "object", "graph"].map(Variable::new_unchecked).to_vec();
        Ok(self.file(Entry::new(key, Form::Set, columns, Method::Mask, patterns)))
    }

    fn file(&mut self, entry: Entry) -> usize {
        let number = self.free.pop().unwrap_or(self.entries.len());
        if number == self.entries.len() {
            self.entries.push(None);
        }
        entry.patterns.iter().for_each(|pattern| self.interests.add(pattern, number));
        self.by_key.insert(entry.key.clone(), number);
        if let Some(place) = self.entries.get_mut(number) {
            *place = Some(entry);
        }
        number
    }

    /// Forgets an entry that nobody uses.
    pub(crate) fn drop_unused(&mut self, number: usize, dictionary: &mut Dictionary) {
        if self.entry(number).is_some_and(|entry| entry.subscribers.is_empty() && entry.rules.is_empty()) {
            self.remove(number, dictionary);
        }
    }

    pub(crate) fn remove(&mut self, number: usize, dictionary: &mut Dictionary) {
        let Some(entry) = self.entries.get_mut(number).and_then(Option::take) else { return };
        entry.patterns.iter().for_each(|pattern| self.interests.remove(pattern, number));
        self.by_key.remove(&entry.key);
        self.free.push(number);
        if let Method::Follow { followers, .. } = &entry.method {
            followers.iter().for_each(|follower| follower.release(dictionary));
        } else {
            entry.patterns.iter().flat_map(pattern_ids).for_each(|id| dictionary.release(id));
        }
    }

    /// What a change does to every result it touches, in the order of the entries.
    pub(crate) fn on_change(
        &mut self,
        change: &Change,
        before: &Snapshot,
        after: &Snapshot,
        limits: &StandingContext<'_>,
    ) -> Vec<Fired> {
        let mut touched: BTreeMap<usize, Change> = BTreeMap::new();
        let mut collect = |quads: &[Quad], side: fn(&mut Change) -> &mut Vec<Quad>| {
            for quad in quads {
                self.interests.of(*quad, |number| {
                    let list = side(touched.entry(number).or_default());
                    // Two patterns of one entry may match the same quad.
                    if list.last() != Some(quad) {
                        list.push(*quad);
                    }
                });
            }
        };
        collect(&change.added, |change| &mut change.added);
        collect(&change.removed, |change| &mut change.removed);
        let mut fired = Vec::new();
        for (number, change) in touched {
            let Some(entry) = self.entry_mut(number) else { continue };
            match entry.on_change(&change, before, after, limits) {
                Ok(delta) if delta.is_empty() => {}
                Ok(delta) => {
                    let delta = Arc::new(delta);
                    entry.journal.push(Arc::clone(&delta), limits.journal);
                    fired.push(Fired { entry: number, outcome: Ok(delta) });
                }
                Err(error) => fired.push(Fired { entry: number, outcome: Err(error) }),
            }
        }
        fired
    }
}

/// The limits that standing queries are held to.
pub(crate) struct StandingContext<'a> {
    pub(crate) query: &'a QueryLimits,
    pub(crate) journal: &'a JournalLimits,
    pub(crate) queries_max: usize,
    pub(crate) rows_max: usize,
}

impl StandingContext<'_> {
    fn check(&self, known: usize) -> Result<(), Error> {
        if known >= self.queries_max { Err(Limit::StandingQueries.into()) } else { Ok(()) }
    }
}

impl Entry {
    fn new(key: String, form: Form, columns: Vec<Variable>, method: Method, patterns: Vec<Pattern>) -> Self {
        let (subscribers, rules) = (Vec::new(), Vec::new());
        Self { key, form, columns, method, patterns, journal: Journal::default(), subscribers, rules }
    }

    /// The names of the columns of its rows.
    pub(crate) fn names(&self) -> Vec<Variable> {
        self.form.names(&self.columns)
    }

    /// True if it is followed change by change.
    pub(crate) fn is_followed(&self) -> bool {
        !matches!(self.method, Method::Again { .. })
    }

    fn on_change(
        &mut self,
        change: &Change,
        before: &Snapshot,
        after: &Snapshot,
        limits: &StandingContext<'_>,
    ) -> Result<ResultDelta, Error> {
        match &mut self.method {
            Method::Mask => {
                let rows = |quads: &[Quad]| quads.iter().filter_map(|quad| quad_row(after, *quad)).collect();
                Ok(ResultDelta { added: rows(&change.added), removed: rows(&change.removed) })
            }
            Method::Follow { followers, bag, .. } => {
                let meter = Meter::new(limits.query);
                let data = BeforeAfter { before, after, meter, limits: limits.query };
                let mut counts = Counts::default();
                for follower in followers {
                    follower.follow(change, &data, &mut counts)?;
                }
                let counts = self.form.through_template(counts);
                Ok(match bag {
                    None => counts.into_delta(),
                    Some(bag) => {
                        let delta = bag.apply_as_set(counts);
                        bounded(bag, limits)?;
                        self.form.tell(delta)
                    }
                })
            }
            Method::Again { query, bag } => {
                let (new, _) = result_bag(query, &self.form, after, limits)?;
                Ok(bag.replace(new))
            }
        }
    }

    /// The whole result now.
    pub(crate) fn baseline(&self, snapshot: &Snapshot, limits: &StandingContext<'_>) -> Result<Vec<Row>, Error> {
        match &self.method {
            Method::Mask => {
                let mut seen = Bag::default();
                for pattern in &self.patterns {
                    for row in snapshot.scan(*pattern).filter_map(|quad| quad_row(snapshot, quad)) {
                        seen.add(row, 1);
                        bounded(&seen, limits)?;
                    }
                }
                Ok(seen.distinct().collect())
            }
            Method::Follow { solutions, bag: None, .. } => {
                let Results::Rows(rows) = solutions.run(snapshot, limits.query)? else { return Ok(Vec::new()) };
                rows.collect()
            }
            Method::Follow { bag: Some(bag), .. } => Ok(match self.form {
                Form::Ask => vec![truth(bag.len() > 0)],
                _ => bag.distinct().collect(),
            }),
            Method::Again { bag, .. } => Ok(bag.rows().collect()),
        }
    }
}

fn bounded(bag: &Bag, limits: &StandingContext<'_>) -> Result<(), Error> {
    if bag.len() > limits.rows_max { Err(Limit::StandingRows.into()) } else { Ok(()) }
}

/// Subject, predicate, object, graph.
fn quad_row(snapshot: &Snapshot, quad: Quad) -> Option<Row> {
    let term = |id: Id| snapshot.terms.term(id);
    Some(Arc::from([
        Some(term(quad.subject)?),
        Some(term(quad.predicate)?),
        Some(term(quad.object)?),
        term(quad.graph),
    ]))
}

/// The followers of a query and the query for its solutions, if it can be followed.
fn followed(
    query: &Query,
    peeled: &Peeled,
    dictionary: &mut Dictionary,
    limits: &StandingContext<'_>,
) -> Result<Option<(Vec<Follower>, Query)>, Error> {
    if !peeled.whole || query.dataset().is_some() {
        return Ok(None);
    }
    let Some(branches) = branches(&peeled.pattern, limits.query.value_bytes_max) else { return Ok(None) };
    let solutions = projection(query, peeled, limits.query)?;
    let followers = branches.iter().map(|branch| Follower::new(branch, &peeled.columns, dictionary));
    Ok(Some((followers.collect::<Result<_, _>>()?, solutions)))
}

/// All solutions of a pattern, with the columns that the form needs.
fn projection(query: &Query, peeled: &Peeled, limits: &QueryLimits) -> Result<Query, Error> {
    let inner = Box::new(peeled.pattern.clone());
    let pattern = GraphPattern::Project { inner, variables: peeled.columns.clone() };
    let (dataset, base_iri) = (query.dataset().cloned(), query.algebra.base_iri().cloned());
    Query::new(Algebra::Select { dataset, pattern, base_iri }, limits)
}

/// The query to evaluate again: a `CONSTRUCT` as the select of its template's variables.
fn again(query: &Query, peeled: &Peeled, limits: &QueryLimits) -> Result<Query, Error> {
    match peeled.form {
        Form::Construct { .. } => projection(query, peeled, limits),
        _ => Ok(query.clone()),
    }
}

fn solution_bag(query: &Query, form: &Form, snapshot: &Snapshot, limits: &StandingContext<'_>) -> Result<Bag, Error> {
    let mut bag = Bag::default();
    let Results::Rows(rows) = query.run(snapshot, limits.query)? else { return Ok(bag) };
    for row in rows {
        form.triples(&row?).into_iter().for_each(|row| bag.add(row, 1));
        bounded(&bag, limits)?;
    }
    Ok(bag)
}

/// The result of a query that is evaluated again, and its columns.
fn result_bag(
    query: &Query,
    form: &Form,
    snapshot: &Snapshot,
    limits: &StandingContext<'_>,
) -> Result<(Bag, Vec<Variable>), Error> {
    let mut bag = Bag::default();
    let meter = Meter::new(limits.query);
    match query.run_metered(snapshot, limits.query, &Rc::clone(&meter))? {
        Results::Boolean(holds) => bag.add(truth(holds), 1),
        Results::Triples(_) => return Err(Error::Refused(Refusal::StandingDescribe)),
        Results::Rows(rows) => {
            let columns = rows.variables().to_vec();
            for row in rows {
                form.triples(&row?).into_iter().for_each(|row| bag.add(row, 1));
                bounded(&bag, limits)?;
            }
            if !matches!(form, Form::Bag) {
                bag.flatten();
            }
            return Ok((bag, columns));
        }
    }
    Ok((bag, Vec::new()))
}

/// The patterns that may change a query's answer, their terms held.
fn held_interests(query: &Query, dictionary: &mut Dictionary) -> Result<Vec<Pattern>, Error> {
    let mut algebra = query.algebra.clone();
    let everything = Pattern { graph: InGraph::Any, subject: None, predicate: None, object: None };
    let Some((leaves, with_graphs)) = interests(crate::query::pattern_mut(&mut algebra)) else {
        return Ok(vec![everything]);
    };
    let graph = if with_graphs || query.dataset().is_some() { InGraph::Any } else { InGraph::One(0) };
    let mut patterns = Vec::with_capacity(leaves.len());
    for leaf in &leaves {
        let mut id = |slot: &Slot<Term>| match slot {
            Slot::Known(term) => held(Some(term), dictionary),
            Slot::Variable(_) => Ok(None),
        };
        let (subject, predicate, object) = (id(&leaf.subject)?, id(&leaf.predicate)?, id(&leaf.object)?);
        patterns.push(Pattern { graph, subject, predicate, object });
    }
    Ok(patterns)
}

fn held(term: Option<&Term>, dictionary: &mut Dictionary) -> Result<Option<Id>, Error> {
    let Some(term) = term else { return Ok(None) };
    let id = dictionary.intern(term.as_ref()).ok_or(Limit::Terms)?;
    dictionary.hold(id);
    Ok(Some(id))
}

fn held_mask(mask: &Mask, dictionary: &mut Dictionary) -> Result<Pattern, Error> {
    let node = |node: &NamedOrBlankNode| Term::from(node.clone());
    let subject = held(mask.subject.as_ref().map(node).as_ref(), dictionary)?;
    let predicate = held(mask.predicate.clone().map(Term::from).as_ref(), dictionary)?;
    let object = held(mask.object.as_ref(), dictionary)?;
    let graph = match &mask.graph {
        MaskGraph::Default => InGraph::One(0),
        MaskGraph::Named(name) => InGraph::One(held(Some(&node(name)), dictionary)?.unwrap_or(0)),
        MaskGraph::AnyNamed => InGraph::AnyNamed,
        MaskGraph::Any => InGraph::Any,
    };
    Ok(Pattern { graph, subject, predicate, object })
}

fn pattern_ids(pattern: &Pattern) -> impl Iterator<Item = Id> + use<> {
    let graph = match pattern.graph {
        InGraph::One(graph) if graph != 0 => Some(graph),
        _ => None,
    };
    [pattern.subject, pattern.predicate, pattern.object, graph].into_iter().flatten()
}
