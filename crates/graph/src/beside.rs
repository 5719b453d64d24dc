//! Standing queries that are evaluated beside the commits.
//!
//! A standing query that cannot be followed is evaluated again after every change that may concern it. As long as that is
//! cheap the commit does it. A dear one would make every change by anybody as slow as itself (3 s were measured), so it is
//! only marked as *behind*; whoever owns a thread takes an [`Evaluation`] of a snapshot, runs it there and gives the
//! [`Evaluated`] result back. Changes that come meanwhile are one: their subscribers are told less often, with consecutive
//! numbers, and each notification says of which version it is. Among several that are behind, the one that has used the
//! least goes first. A query with rules is always evaluated by the commit: rules must see what woke them.

use oxrdf::Variable;

use crate::dataset::Snapshot;
use crate::error::{GraphError, Limit, QueryRefusal};
use crate::form::{ResultForm, peel};
use crate::limits::{CancelToken, QueryLimits};
use crate::plan::branches;
use crate::prepare::{again, held_interests, result_bag};
use crate::query::Query;
use crate::rows::Bag;
use crate::space::{GraphSpace, context};
use crate::standing::{Fired, StandingContext, StandingQuery, key_of};
use crate::subscribe::{NewSubscriber, SubscriberId};

/// A query and the data to evaluate it on: work for a thread.
pub struct Evaluation {
    number: u64,
    pub(crate) key: String,
    pub(crate) query: Box<Query>,
    pub(crate) form: ResultForm,
    pub(crate) snapshot: Snapshot,
    limits: QueryLimits,
    rows_max: usize,
}

/// What an [`Evaluation`] found.
pub struct Evaluated {
    number: u64,
    pub(crate) key: String,
    pub(crate) version: u64,
    pub(crate) outcome: Result<EvaluatedResult, GraphError>,
}

/// A result, and what it cost.
pub(crate) struct EvaluatedResult {
    pub(crate) bag: Bag,
    pub(crate) columns: Vec<Variable>,
    pub(crate) steps: u64,
}

impl Evaluation {
    /// What to say if the evaluation never ends, or panics: its query cannot be kept.
    pub fn lost(&self) -> Evaluated {
        let outcome = Err(GraphError::Evaluation("the evaluation was lost".to_owned()));
        Evaluated { number: self.number, key: self.key.clone(), version: self.snapshot.version(), outcome }
    }

    /// No two evaluations of a space have the same.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Evaluates the query. What is cancelled took too long, and its query cannot be kept.
    pub fn run(self, cancel: CancelToken) -> Evaluated {
        let Self { number, key, query, form, snapshot, limits, rows_max } = self;
        let limits = QueryLimits { cancel, ..limits };
        let outcome = result_bag(&query, &form, &snapshot, &limits, rows_max).map_err(|error| match error {
            GraphError::Cancelled => Limit::Steps.into(),
            other => other,
        });
        Evaluated { number, key, version: snapshot.version(), outcome }
    }
}

impl Evaluated {
    /// The number of the evaluation.
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl GraphSpace {
    /// Whether this query has to be evaluated before it can stand: it is not known, and cannot be followed.
    pub fn needs_evaluation(&self, query: &Query) -> bool {
        if self.limits.inline_steps_max == u64::MAX || self.standing.find(&key_of(query)).is_some() {
            return false;
        }
        let Some(peeled) = peel(&query.algebra) else { return false };
        let is_whole = peeled.whole && query.is_of_all_graphs();
        !(is_whole && branches(&peeled.pattern, self.limits.standing.value_bytes_max).is_some())
    }

    /// What has to be evaluated before this query can stand; none if nothing has to.
    pub fn first_evaluation(&mut self, query: &Query) -> Result<Option<Evaluation>, GraphError> {
        if !self.needs_evaluation(query) {
            return Ok(None);
        }
        let peeled = peel(&query.algebra).ok_or(GraphError::Refused(QueryRefusal::StandingDescribe))?;
        let again = Box::new(again(query, &peeled, &self.limits.standing)?);
        let number = self.standing.next_number();
        Ok(Some(self.evaluation(number, key_of(query), again, peeled.form)))
    }

    /// Subscribes to a query whose first result was found beside the commits.
    pub fn subscribe_evaluated(&mut self, query: &Query, evaluated: Evaluated) -> Result<NewSubscriber, GraphError> {
        let Evaluated { key, version, outcome, .. } = evaluated;
        // Somebody else may have asked for the same meanwhile.
        if let Some(number) = self.standing.find(&key) {
            return self.subscribe_to(number);
        }
        let found = outcome?;
        let limits = context(&self.limits);
        limits.check(self.standing.len())?;
        let peeled = peel(&query.algebra).ok_or(GraphError::Refused(QueryRefusal::StandingDescribe))?;
        let again = Box::new(again(query, &peeled, limits.query)?);
        let patterns = held_interests(query, &mut self.dataset.dictionary)?;
        let number = self.standing.file_again(key, peeled.form, again, found, version, patterns);
        if version != self.dataset.version() {
            self.standing.fall_behind(number);
        }
        self.subscribe_to(number)
    }

    /// Whether the result of a standing query is older than the data.
    pub fn is_behind(&self, query: &Query) -> bool {
        let entry = self.standing.find(&key_of(query)).and_then(|number| self.standing.entry(number));
        entry.is_some_and(StandingQuery::is_behind)
    }

    /// The version that the result of a standing query is of, if that is not the latest.
    pub fn result_version(&self, query: &Query) -> Option<u64> {
        self.standing.find(&key_of(query)).and_then(|number| self.standing.entry(number))?.version()
    }

    /// Somebody waits for the result of this query: it is evaluated, whether anybody listens or not.
    pub fn want(&mut self, query: &Query) {
        if let Some(number) = self.standing.find(&key_of(query)) {
            self.standing.want(number);
        }
    }

    /// The next standing query to evaluate beside the commits: of those that are behind, and that somebody listens to.
    pub fn poll_evaluation(&mut self, listens: impl Fn(SubscriberId) -> bool) -> Option<Evaluation> {
        let number = self.standing.next_number();
        let (key, query, form) = self.standing.begin_next(number, |id| listens(SubscriberId(id)))?;
        Some(self.evaluation(number, key, query, form))
    }

    /// Takes the result of an evaluation, and tells subscribers what changed by it.
    pub fn finish_evaluation(&mut self, evaluated: Evaluated) {
        let Evaluated { number: evaluation, key, version, outcome } = evaluated;
        let Some(number) = self.standing.find(&key) else { return };
        let is_current = self.standing.end(number, evaluation);
        let outcome = match outcome {
            // What another evaluation found, or will find, counts.
            Err(_) if !is_current => return,
            Err(error) => Err(error),
            Ok(found) => match self.standing.catch_up(number, found, version, &self.limits.journal) {
                Some(delta) => Ok(delta),
                None => return,
            },
        };
        self.tell(vec![Fired { entry: number, outcome }], version);
    }

    fn evaluation(&self, number: u64, key: String, query: Box<Query>, form: ResultForm) -> Evaluation {
        let (limits, rows_max) = (self.limits.standing.clone(), self.limits.standing_rows_max);
        Evaluation { number, key, query, form, snapshot: self.dataset.snapshot(), limits, rows_max }
    }
}

/// The state of a query that is evaluated again.
pub(crate) struct ReevaluatedQuery {
    pub(crate) query: Box<Query>,
    pub(crate) bag: Bag,
    /// Steps of its last evaluation.
    pub(crate) steps: u64,
    /// The version of the data that the bag is the result of.
    pub(crate) version: u64,
    /// The data have changed since.
    pub(crate) is_behind: bool,
    /// The evaluation that is under way.
    pub(crate) running: Option<u64>,
    /// Somebody waits for it.
    pub(crate) is_wanted: bool,
    /// What it has used beside the commits, in steps: the lowest is next.
    pub(crate) used: u64,
}

impl ReevaluatedQuery {
    pub(crate) fn new(query: Box<Query>, found: EvaluatedResult, version: u64) -> Self {
        let EvaluatedResult { bag, steps, .. } = found;
        let (is_behind, is_wanted) = (false, false);
        Self { query, bag, steps, version, is_behind, running: None, is_wanted, used: 0 }
    }

    /// Whether commits leave it to others.
    pub(crate) fn is_beside(&self, limits: &StandingContext<'_>) -> bool {
        self.steps > limits.inline_steps_max || self.is_behind || self.running.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::SpaceLimits;
    use crate::subscribe::CatchUp;
    use crate::subscriber::SubscriberEvent;
    use crate::update::Update;

    fn query(text: &str) -> Query {
        Query::parse(text, &QueryLimits::default()).unwrap()
    }

    fn change(space: &mut GraphSpace, text: &str) {
        let update = Update::parse(text, &QueryLimits::default()).unwrap();
        space.update(&update, &QueryLimits::default()).unwrap();
    }

    fn subscribe(space: &mut GraphSpace, query: &Query) -> NewSubscriber {
        let evaluation = space.first_evaluation(query).unwrap().unwrap();
        space.subscribe_evaluated(query, evaluation.run(CancelToken::default())).unwrap()
    }

    #[test]
    fn whose_query_has_failed_is_never_told_of_another_one() {
        let mut space = GraphSpace::new(1, SpaceLimits { inline_steps_max: 0, ..SpaceLimits::default() });
        let (first, second) =
            ("SELECT (COUNT(?o) AS ?n) { ?s <urn:p> ?o }", "SELECT (MAX(?o) AS ?n) { ?s <urn:q> ?o }");
        change(&mut space, "INSERT DATA { <urn:s> <urn:p> 0 ; <urn:q> 0 }");
        let old = subscribe(&mut space, &query(first)).subscriber;
        change(&mut space, "INSERT DATA { <urn:s> <urn:p> 1 }");
        let evaluation = space.poll_evaluation(|_| true).unwrap();
        space.finish_evaluation(evaluation.lost());
        // The second query is filed where the first one was.
        let new = subscribe(&mut space, &query(second)).subscriber;
        change(&mut space, "INSERT DATA { <urn:s> <urn:q> 7 }");
        let evaluation = space.poll_evaluation(|_| true).unwrap();
        space.finish_evaluation(evaluation.run(CancelToken::default()));
        assert!(matches!(space.check(old, 0), Err(GraphError::Evaluation(_))), "it hears why its query is gone");
        assert!(space.variables(old).is_none());
        assert!(matches!(space.poll(old), Ok(Some(SubscriberEvent::Ended(GraphError::Evaluation(_))))));
        assert!(space.check(old, 0).is_err());
        space.unsubscribe(old).unwrap();
        assert!(matches!(space.check(new, 0), Ok(CatchUp::Missed { delta, .. }) if delta.added.len() == 1));
    }
}
