//! Standing queries: who is interested in a change, and what it does to their results.
//!
//! Equal queries are one entry, evaluated once. An entry is found by its patterns (`masks`), so a change costs nothing
//! for the entries it does not touch; it is then followed (`follow`) or evaluated again and compared.

use std::collections::BTreeMap;
use std::sync::Arc;

use oxrdf::Variable;

use crate::dataset::{Change, Snapshot};
use crate::dictionary::{Dictionary, Id};
use crate::error::{Error, Limit, Refusal};
use crate::follow::{BeforeAfter, Follower};
use crate::form::{Form, peel, truth};
use crate::index::{Pattern, Quad};
use crate::journal::{Journal, JournalLimits};
use crate::limits::{Meter, QueryLimits};
use crate::masks::{Interests, Mask};
use crate::prepare::{again, followed, held_interests, held_mask, pattern_ids, result_bag, solution_bag};
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
        let followed = followed(query, &peeled, dictionary, limits)?;
        let (columns, patterns, method) = if let Some((followers, solutions)) = followed {
            let bag = match peeled.form {
                Form::Bag => Ok(None),
                _ => solution_bag(&solutions, &peeled.form, snapshot, limits).map(Some),
            };
            if bag.is_err() {
                for follower in &followers {
                    follower.release(dictionary);
                }
            }
            let patterns = followers.iter().flat_map(Follower::patterns).collect();
            (peeled.columns, patterns, Method::Follow { followers, solutions: Box::new(solutions), bag: bag? })
        } else {
            let again = again(query, &peeled, limits.query)?;
            let (bag, columns) = result_bag(&again, &peeled.form, snapshot, limits)?;
            let patterns = held_interests(query, dictionary)?;
            (columns, patterns, Method::Again { query: Box::new(again), bag })
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
        for pattern in &entry.patterns {
            self.interests.add(pattern, number);
        }
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
        for pattern in &entry.patterns {
            self.interests.remove(pattern, number);
        }
        self.by_key.remove(&entry.key);
        self.free.push(number);
        if let Method::Follow { followers, .. } = &entry.method {
            for follower in followers {
                follower.release(dictionary);
            }
        } else {
            for id in entry.patterns.iter().flat_map(pattern_ids) {
                dictionary.release(id);
            }
        }
    }

    /// Whom a change touches, each with its part of it.
    pub(crate) fn touched(&self, change: &Change) -> BTreeMap<usize, Change> {
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
        touched
    }

    /// What a change does to every result it touches, in the order of the entries.
    pub(crate) fn on_change(
        &mut self,
        touched: BTreeMap<usize, Change>,
        before: &Snapshot,
        after: &Snapshot,
        limits: &StandingContext<'_>,
    ) -> Vec<Fired> {
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

pub(crate) fn bounded(bag: &Bag, limits: &StandingContext<'_>) -> Result<(), Error> {
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
