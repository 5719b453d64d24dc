//! Rules: updates that are done again whenever their `WHERE` gains solutions (SSAP's persistent updates).
//!
//! A rule is woken by its standing queries, runs as a commit of its own after the request that woke it, and may wake
//! others or itself. A request may cause only so many runs; rules that are still awake then do not come to rest and are
//! removed, which the outcome says.

use std::collections::BTreeMap;

use crate::error::{GraphError, Limit, QueryRefusal};
use crate::limits::QueryLimits;
use crate::space::{GraphSpace, UpdateOutcome, context};
use crate::update::Update;

/// The name of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub u64);

struct UpdateRule {
    text: String,
    update: Update,
    watched: Vec<usize>,
}

/// All rules.
#[derive(Default)]
pub(crate) struct UpdateRules {
    rules: BTreeMap<u64, UpdateRule>,
    pub(crate) made: u64,
}

impl GraphSpace {
    /// Adds a rule and runs it, if its `WHERE` has solutions already.
    pub fn add_rule(&mut self, text: &str, limits: &QueryLimits) -> Result<(RuleId, UpdateOutcome), GraphError> {
        let id = self.restore_rule(RuleId(self.rules.made + 1), text, limits)?;
        self.woken.insert(id.0);
        let mut outcome = UpdateOutcome::default();
        self.run_rules(&mut outcome);
        Ok((id, outcome))
    }

    /// Adds a rule under the name it had, without running it: after a restart its effects are in the data.
    pub fn restore_rule(&mut self, id: RuleId, text: &str, limits: &QueryLimits) -> Result<RuleId, GraphError> {
        if self.rules.rules.len() >= self.limits.rules_max {
            return Err(Limit::Rules.into());
        }
        let update = Update::parse(text, limits)?;
        let mut watched = Vec::new();
        for query in update.wheres() {
            let snapshot = self.dataset.snapshot();
            let dictionary = &mut self.dataset.dictionary;
            match self.standing.query(query, &snapshot, dictionary, &context(&self.limits)) {
                Ok(entry) => watched.push(entry),
                Err(error) => {
                    for entry in watched {
                        self.standing.drop_unused(entry, &mut self.dataset.dictionary);
                    }
                    return Err(error);
                }
            }
        }
        if watched.is_empty() {
            return Err(GraphError::Refused(QueryRefusal::RuleWithoutWhere));
        }
        for entry in &watched {
            if let Some(entry) = self.standing.entry_mut(*entry) {
                entry.rules.push(id.0);
            }
        }
        self.rules.made = self.rules.made.max(id.0);
        self.rules.rules.insert(id.0, UpdateRule { text: text.to_owned(), update, watched });
        Ok(id)
    }

    /// Removes a rule; what it did stays.
    pub fn remove_rule(&mut self, id: RuleId) -> Result<(), GraphError> {
        let rule = self.rules.rules.remove(&id.0).ok_or(GraphError::Unknown)?;
        for number in rule.watched {
            if let Some(entry) = self.standing.entry_mut(number) {
                entry.rules.retain(|known| *known != id.0);
                self.standing.drop_unused(number, &mut self.dataset.dictionary);
            }
        }
        self.dataset.sweep();
        Ok(())
    }

    /// Names and texts of all rules: what a store keeps of them.
    pub fn rules(&self) -> impl Iterator<Item = (RuleId, &str)> {
        self.rules.rules.iter().map(|(id, rule)| (RuleId(*id), rule.text.as_str()))
    }

    /// Runs what is awake, the lowest name first, until all is quiet.
    pub(crate) fn run_rules(&mut self, outcome: &mut UpdateOutcome) {
        for _ in 0..self.limits.rule_runs_max {
            let Some(id) = self.woken.pop_first() else { return };
            let Some(rule) = self.rules.rules.get(&id) else { continue };
            if !rule
                .watched
                .iter()
                .all(|entry| self.standing.entry(*entry).is_some_and(|entry| entry.rules.contains(&id)))
            {
                self.stop(id, GraphError::Unknown, outcome);
                continue;
            }
            let (update, limits) = (rule.update.clone(), self.limits.standing.clone());
            match self.commit(|dataset| update.apply(dataset, &limits)) {
                Ok(delta) => outcome.deltas.extend(delta),
                Err(error) => self.stop(id, error, outcome),
            }
        }
        while let Some(id) = self.woken.pop_first() {
            self.stop(id, Limit::RuleRuns.into(), outcome);
        }
    }

    fn stop(&mut self, id: u64, reason: GraphError, outcome: &mut UpdateOutcome) {
        if self.remove_rule(RuleId(id)).is_ok() {
            outcome.stopped.push((RuleId(id), reason));
        }
    }
}
