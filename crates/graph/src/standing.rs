//! Standing queries: who is interested in a change, and what it does to their results.
//!
//! Equal queries are one entry, evaluated once. An entry is found by its patterns (`masks`), so a change costs nothing
//! for the entries it does not touch; it is then followed (`follow`) or evaluated again and compared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use foldhash::fast::FixedState;
use oxrdf::Variable;

use crate::beside::{EvaluatedResult, ReevaluatedQuery};
use crate::dataset::{QuadChange, Snapshot};
use crate::dictionary::{Dictionary, Id};
use crate::error::{GraphError, Limit, QueryRefusal};
use crate::follow::{BeforeAfter, Follower};
use crate::form::{ResultForm, peel, truth};
use crate::index::{IdPattern, Quad};
use crate::journal::{JournalLimits, ResultJournal};
use crate::limits::{EvaluationMeter, QueryLimits};
use crate::masks::{Interests, Mask};
use crate::prepare::{again, followed, held_interests, held_masks, pattern_ids, result_bag, solution_bag};
use crate::query::{Query, QueryAnswer, Row};
use crate::rows::{Bag, ResultDelta, RowCounts};

/// How an entry is kept up to date.
enum Method {
    /// Quads that match are the result.
    Mask,
    /// By the difference rule. The bag is kept only where the result is a set.
    Follow { followers: Vec<Follower>, solutions: Box<Query>, bag: Option<Bag> },
    /// By evaluating it again, in the commit or beside it.
    Again(ReevaluatedQuery),
}

/// A distinct standing query.
pub(crate) struct StandingQuery {
    key: String,
    form: ResultForm,
    columns: Vec<Variable>,
    method: Method,
    patterns: Vec<IdPattern>,
    pub(crate) journal: ResultJournal,
    pub(crate) subscribers: Vec<u64>,
    pub(crate) rules: Vec<u64>,
}

/// A result that changed, or a query that could not be kept.
pub(crate) struct Fired {
    pub(crate) entry: usize,
    pub(crate) outcome: Result<Arc<ResultDelta>, GraphError>,
}

/// All standing queries.
pub(crate) struct StandingQueries {
    entries: Vec<Option<StandingQuery>>,
    free: Vec<usize>,
    by_key: BTreeMap<String, usize>,
    interests: Interests,
    /// Those that are behind, by what they have used.
    behind: BTreeSet<(u64, usize)>,
    /// What the last one that was begun had used: who is new owes nothing and has nothing saved up.
    used: u64,
    /// The number of the last evaluation. The first is a matter of chance, so that what an earlier space began is not taken
    /// for one of this.
    evaluations: u64,
}

impl StandingQueries {
    pub(crate) fn new(seed: u64) -> Self {
        let (entries, free, by_key) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self {
            entries,
            free,
            by_key,
            interests: Interests::new(&FixedState::with_seed(seed)),
            behind: BTreeSet::new(),
            used: 0,
            evaluations: seed,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(crate) fn entry(&self, number: usize) -> Option<&StandingQuery> {
        self.entries.get(number)?.as_ref()
    }

    pub(crate) fn entry_mut(&mut self, number: usize) -> Option<&mut StandingQuery> {
        self.entries.get_mut(number)?.as_mut()
    }

    /// The entry of a query, made if it is the first of its kind.
    pub(crate) fn query(
        &mut self,
        query: &Query,
        snapshot: &Snapshot,
        dictionary: &mut Dictionary,
        limits: &StandingContext<'_>,
    ) -> Result<usize, GraphError> {
        let key = key_of(query);
        if let Some(known) = self.by_key.get(&key) {
            return Ok(*known);
        }
        limits.check(self.len())?;
        let peeled = peel(&query.algebra).ok_or(GraphError::Refused(QueryRefusal::StandingDescribe))?;
        let followed = followed(query, &peeled, dictionary, limits)?;
        let (columns, patterns, method) = if let Some((followers, solutions)) = followed {
            let bag = match peeled.form {
                ResultForm::Bag => Ok(None),
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
            let found = result_bag(&again, &peeled.form, snapshot, limits.query, limits.rows_max)?;
            let patterns = held_interests(query, dictionary)?;
            return Ok(self.file_again(key, peeled.form, Box::new(again), found, snapshot.version(), patterns));
        };
        Ok(self.file(StandingQuery::new(key, peeled.form, columns, method, patterns)))
    }

    /// The entry of a union of masks.
    pub(crate) fn masks(
        &mut self,
        masks: &[Mask],
        dictionary: &mut Dictionary,
        limits: &StandingContext<'_>,
    ) -> Result<usize, GraphError> {
        let key = format!("masks {masks:?}");
        if let Some(known) = self.by_key.get(&key) {
            return Ok(*known);
        }
        limits.check(self.len())?;
        let patterns = held_masks(masks, dictionary)?;
        let columns = ["subject", "predicate", "object", "graph"].map(Variable::new_unchecked).to_vec();
        Ok(self.file(StandingQuery::new(key, ResultForm::Set, columns, Method::Mask, patterns)))
    }

    /// The entry of a query that is evaluated again, with its first result.
    pub(crate) fn file_again(
        &mut self,
        key: String,
        form: ResultForm,
        query: Box<Query>,
        mut found: EvaluatedResult,
        version: u64,
        patterns: Vec<IdPattern>,
    ) -> usize {
        let columns = std::mem::take(&mut found.columns);
        let mut again = ReevaluatedQuery::new(query, found, version);
        again.used = self.used;
        self.file(StandingQuery::new(key, form, columns, Method::Again(again), patterns))
    }

    /// The entry of this key.
    pub(crate) fn find(&self, key: &str) -> Option<usize> {
        self.by_key.get(key).copied()
    }

    /// The data have changed, and the result of an entry is not what it would be.
    pub(crate) fn fall_behind(&mut self, number: usize) {
        if let Some(again) = self.entry_mut(number).and_then(StandingQuery::again_mut) {
            again.is_behind = true;
            let used = again.used;
            self.behind.insert((used, number));
        }
    }

    /// Somebody waits for an entry.
    pub(crate) fn want(&mut self, number: usize) {
        if let Some(again) = self.entry_mut(number).and_then(StandingQuery::again_mut) {
            again.is_wanted = true;
        }
    }

    /// Numbers from here on are given next.
    pub(crate) fn skip_numbers(&mut self, to: u64) {
        self.evaluations = self.evaluations.max(to);
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.evaluations = self.evaluations.wrapping_add(1);
        self.evaluations
    }

    /// An evaluation has ended; whether it is the one that an entry waits for.
    pub(crate) fn end(&mut self, number: usize, evaluation: u64) -> bool {
        let again = self.entry_mut(number).and_then(StandingQuery::again_mut);
        again.is_some_and(|again| again.running.take_if(|running| *running == evaluation).is_some())
    }

    /// The entry to evaluate next beside the commits, which is then under way.
    pub(crate) fn begin_next(
        &mut self,
        evaluation: u64,
        listens: impl Fn(u64) -> bool,
    ) -> Option<(String, Box<Query>, ResultForm)> {
        let is_next = |(_, number): &&(u64, usize)| {
            let Some(entry) = self.entry(*number) else { return false };
            let Method::Again(again) = &entry.method else { return false };
            again.running.is_none() && (again.is_wanted || entry.subscribers.iter().any(|id| listens(*id)))
        };
        let (used, number) = *self.behind.iter().find(is_next)?;
        self.behind.remove(&(used, number));
        self.used = self.used.max(used);
        let entry = self.entry_mut(number)?;
        let (key, form) = (entry.key.clone(), entry.form.clone());
        let again = entry.again_mut()?;
        (again.is_behind, again.running, again.is_wanted) = (false, Some(evaluation), false);
        Some((key, again.query.clone(), form))
    }

    /// An evaluation has ended; none if it changes nothing, or a newer one was faster.
    pub(crate) fn catch_up(
        &mut self,
        number: usize,
        found: EvaluatedResult,
        version: u64,
        limits: &JournalLimits,
    ) -> Option<Arc<ResultDelta>> {
        let floor = self.used;
        let entry = self.entry_mut(number)?;
        let again = entry.again_mut()?;
        if version <= again.version {
            return None;
        }
        let used = again.used;
        again.used = used.max(floor).saturating_add(found.steps.max(1));
        (again.version, again.steps) = (version, found.steps);
        let (is_behind, now_used) = (again.is_behind, again.used);
        let delta = Arc::new(again.bag.replace(found.bag));
        let delta = if delta.is_empty() {
            None
        } else {
            entry.journal.push(Arc::clone(&delta), limits);
            Some(delta)
        };
        if is_behind {
            self.behind.remove(&(used, number));
            self.behind.insert((now_used, number));
        }
        delta
    }

    fn file(&mut self, entry: StandingQuery) -> usize {
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
        if let Method::Again(again) = &entry.method {
            self.behind.remove(&(again.used, number));
        }
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
    pub(crate) fn touched(&self, change: &QuadChange) -> BTreeMap<usize, QuadChange> {
        let mut touched: BTreeMap<usize, QuadChange> = BTreeMap::new();
        let mut collect = |quads: &[Quad], side: fn(&mut QuadChange) -> &mut Vec<Quad>| {
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
        touched: BTreeMap<usize, QuadChange>,
        before: &Snapshot,
        after: &Snapshot,
        limits: &StandingContext<'_>,
    ) -> Vec<Fired> {
        let mut fired = Vec::new();
        for (number, change) in touched {
            let Some(entry) = self.entry_mut(number) else { continue };
            if entry.is_beside(limits) {
                self.mark_behind(number);
                continue;
            }
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

    /// As [`StandingQueries::fall_behind`], beside an evaluation that may be under way.
    fn mark_behind(&mut self, number: usize) {
        if let Some(again) = self.entry_mut(number).and_then(StandingQuery::again_mut) {
            again.is_behind = true;
            let used = again.used;
            self.behind.insert((used, number));
        }
    }
}

/// The name of a query among those that stand.
pub(crate) fn key_of(query: &Query) -> String {
    format!("query {}", query.canonical())
}

/// The limits that standing queries are held to.
pub(crate) struct StandingContext<'a> {
    pub(crate) query: &'a QueryLimits,
    pub(crate) journal: &'a JournalLimits,
    pub(crate) queries_max: usize,
    pub(crate) rows_max: usize,
    pub(crate) inline_steps_max: u64,
}

impl StandingContext<'_> {
    pub(crate) fn check(&self, known: usize) -> Result<(), GraphError> {
        if known >= self.queries_max { Err(Limit::StandingQueries.into()) } else { Ok(()) }
    }
}

impl StandingQuery {
    fn new(key: String, form: ResultForm, columns: Vec<Variable>, method: Method, patterns: Vec<IdPattern>) -> Self {
        let (subscribers, rules) = (Vec::new(), Vec::new());
        Self { key, form, columns, method, patterns, journal: ResultJournal::default(), subscribers, rules }
    }

    /// The names of the columns of its rows.
    pub(crate) fn names(&self) -> Vec<Variable> {
        self.form.names(&self.columns)
    }

    /// True if it is followed change by change.
    pub(crate) fn is_followed(&self) -> bool {
        !matches!(self.method, Method::Again(_))
    }

    fn again_mut(&mut self) -> Option<&mut ReevaluatedQuery> {
        if let Method::Again(again) = &mut self.method { Some(again) } else { None }
    }

    /// Whether commits leave it to be evaluated elsewhere.
    fn is_beside(&self, limits: &StandingContext<'_>) -> bool {
        matches!(&self.method, Method::Again(again) if self.rules.is_empty() && again.is_beside(limits))
    }

    pub(crate) fn is_behind(&self) -> bool {
        matches!(&self.method, Method::Again(again) if again.is_behind || again.running.is_some())
    }

    /// The version that its result is of, if that is not the latest.
    pub(crate) fn version(&self) -> Option<u64> {
        match &self.method {
            Method::Again(again) if again.is_behind || again.running.is_some() => Some(again.version),
            _ => None,
        }
    }

    fn on_change(
        &mut self,
        change: &QuadChange,
        before: &Snapshot,
        after: &Snapshot,
        limits: &StandingContext<'_>,
    ) -> Result<ResultDelta, GraphError> {
        match &mut self.method {
            Method::Mask => {
                let rows = |quads: &[Quad]| quads.iter().filter_map(|quad| quad_row(after, *quad)).collect();
                Ok(ResultDelta { added: rows(&change.added), removed: rows(&change.removed) })
            }
            Method::Follow { followers, bag, .. } => {
                let meter = EvaluationMeter::new(limits.query);
                let data = BeforeAfter { before, after, meter, limits: limits.query };
                let mut counts = RowCounts::default();
                for follower in followers {
                    follower.follow(change, &data, &mut counts)?;
                }
                let counts = self.form.through_template(counts);
                Ok(match bag {
                    None => counts.into_delta(),
                    Some(bag) => {
                        let delta = bag.apply_as_set(counts);
                        bounded(bag, limits.rows_max)?;
                        self.form.tell(delta)
                    }
                })
            }
            Method::Again(again) => {
                let found = result_bag(&again.query, &self.form, after, limits.query, limits.rows_max)?;
                (again.steps, again.version, again.is_behind) = (found.steps, after.version(), false);
                Ok(again.bag.replace(found.bag))
            }
        }
    }

    /// The whole result now.
    pub(crate) fn baseline(&self, snapshot: &Snapshot, limits: &StandingContext<'_>) -> Result<Vec<Row>, GraphError> {
        match &self.method {
            Method::Mask => {
                let mut seen = Bag::default();
                for pattern in &self.patterns {
                    for row in snapshot.scan(*pattern).filter_map(|quad| quad_row(snapshot, quad)) {
                        seen.add(row, 1);
                        bounded(&seen, limits.rows_max)?;
                    }
                }
                Ok(seen.distinct().collect())
            }
            Method::Follow { solutions, bag: None, .. } => {
                let QueryAnswer::Rows(rows) = solutions.run(snapshot, limits.query)? else { return Ok(Vec::new()) };
                rows.collect()
            }
            Method::Follow { bag: Some(bag), .. } => Ok(match self.form {
                ResultForm::Ask => vec![truth(bag.len() > 0)],
                _ => bag.distinct().collect(),
            }),
            Method::Again(again) => Ok(again.bag.rows().collect()),
        }
    }
}

pub(crate) fn bounded(bag: &Bag, rows_max: usize) -> Result<(), GraphError> {
    if bag.len() > rows_max { Err(Limit::StandingRows.into()) } else { Ok(()) }
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
