//! Expectations, and whether they held.

use std::fmt::Write;

use super::{CaseResult, Experiment, figure, with_interval};
use crate::scenario::{Assert, Relation};
use crate::statistics::Estimate;

/// One expectation, and whether it held.
#[derive(Clone, Debug)]
pub struct ExperimentVerdict {
    /// In words.
    pub says: String,
    pub found: String,
    /// Whether it held with 95 % confidence: the whole interval is on the right side.
    pub holds: bool,
    /// Whether nothing can be said with that confidence: the limit is within the interval.
    pub is_open: bool,
}

impl ExperimentVerdict {
    /// In a word.
    pub fn word(&self) -> &'static str {
        match (self.holds, self.is_open) {
            (true, _) => "holds",
            (false, true) => "open",
            (false, false) => "missed",
        }
    }
}

/// By how much a case is on the right side of a limit, with the half width of that.
#[derive(Clone, Copy, Debug)]
struct Margin {
    mean: f64,
    half_width: f64,
}

impl Margin {
    /// The end of the interval that is furthest on the wrong side; one run has no interval.
    fn least(self) -> f64 {
        if self.half_width.is_finite() { self.mean - self.half_width } else { self.mean }
    }

    /// Whether the limit is within the interval.
    fn is_open(self) -> bool {
        self.least() < 0.0 && self.mean + self.half_width >= 0.0
    }
}

/// How a case stands to an expectation.
struct Standing {
    margin: Margin,
    found: String,
    /// The case that it is compared with.
    other: Option<usize>,
}

impl Experiment {
    /// The expectations about cases that were to be run: a quick look leaves cases out, and what is expected of them.
    fn expectations(&self) -> impl Iterator<Item = &Assert> {
        let is_run =
            |assert: &&Assert| !self.scenario.quick || self.results.iter().any(|result| result.is_at(&assert.place));
        self.scenario.asserts.iter().filter(is_run)
    }

    /// Every expectation, and whether it held.
    pub fn verdicts(&self) -> Vec<ExperimentVerdict> {
        self.expectations().map(|assert| self.judge_runs(assert).unwrap_or_else(|| self.judge(assert))).collect()
    }

    /// The cases of which one more run may decide an expectation. Of two that are compared by their common seeds it is the one
    /// that has fewer.
    pub(super) fn undecided(&self) -> Vec<usize> {
        let mut undecided = Vec::new();
        for assert in self.expectations().filter(|assert| self.judge(assert).is_open) {
            for (case, standing) in self.standings(assert).filter(|(_, standing)| standing.margin.is_open()) {
                let count = |case: usize| self.results[case].runs.len();
                let pair = [Some(case), standing.other];
                let fewest = pair.iter().flatten().map(|case| count(*case)).min();
                undecided.extend(pair.into_iter().flatten().filter(|case| Some(count(*case)) == fewest));
            }
        }
        undecided
    }

    /// How each case that an expectation is about stands to it.
    fn standings<'a>(&'a self, assert: &'a Assert) -> impl Iterator<Item = (usize, Standing)> + 'a {
        let is_meant = |(_, result): &(usize, &CaseResult)| result.is_at(&assert.place) && !result.runs.is_empty();
        let meant = self.results.iter().enumerate().filter(is_meant);
        meant.map(|(case, result)| (case, self.standing(assert, result)))
    }

    fn judge(&self, assert: &Assert) -> ExperimentVerdict {
        let mut worst: Option<Standing> = None;
        for (_, standing) in self.standings(assert) {
            if worst.as_ref().is_none_or(|worst| standing.margin.least() < worst.margin.least()) {
                worst = Some(standing);
            }
        }
        let holds = worst.as_ref().is_some_and(|worst| worst.margin.least() >= 0.0);
        let is_open = worst.as_ref().is_some_and(|worst| worst.margin.is_open());
        let found = worst.map_or_else(|| "no such case was run".to_owned(), |worst| worst.found);
        ExperimentVerdict { says: says(assert), found, holds, is_open }
    }

    /// What is so in a run or not, and has to be so in each: it is counted, and the count says how much is known of runs that were
    /// not made. Means of such values have no interval that could be believed.
    fn judge_runs(&self, assert: &Assert) -> Option<ExperimentVerdict> {
        if !matches!(assert.relation, Some(Relation::AtLeast(1.0))) {
            return None;
        }
        let meant: Vec<&CaseResult> = self.results.iter().filter(|result| result.is_at(&assert.place)).collect();
        let values: Vec<f64> = meant.iter().flat_map(|result| self.values(result, &assert.metric)).collect();
        if values.is_empty() || !values.iter().all(|value| [0.0, 1.0].contains(value)) {
            return None;
        }
        let (made, planned) = (values.len(), meant.len() * self.scenario.replications as usize);
        let held = values.iter().filter(|value| **value == 1.0).count();
        let is_all = held == made;
        let mut found = format!("{held} of {made} runs");
        if is_all {
            // Were the share lower, so many in a row would be seen in one of twenty cases at most.
            let share = 100.0 * 0.05_f64.powf(1.0 / made as f64);
            let _ = write!(found, ", so with 95 % confidence at least {} % of all", figure(share));
        } else {
            let fails = |result: &&&CaseResult| self.values(result, &assert.metric).contains(&0.0);
            let names: Vec<String> = meant.iter().filter(fails).map(|result| result.name()).collect();
            let _ = write!(found, "; not in each of: {}", names.join("; "));
        }
        if made < planned {
            let _ = write!(found, "; {planned} were planned");
        }
        let (holds, is_open) = (is_all && made >= planned, is_all && made < planned);
        Some(ExperimentVerdict { says: says(assert), found, holds, is_open })
    }

    /// How far a case is on the right side, and what was found.
    fn standing(&self, assert: &Assert, result: &CaseResult) -> Standing {
        let here = self.estimate(result, &assert.metric);
        let found = format!("{} {}", result.name(), self.shown(result, &assert.metric));
        let alone = |mean: f64, half_width: f64, found: String| Standing {
            margin: Margin { mean, half_width },
            found,
            other: None,
        };
        match &assert.relation {
            None => alone(0.0, 0.0, found),
            Some(Relation::AtLeast(least)) => {
                alone(here.mean - least, here.half_width, format!("{found}, at least {} wanted", figure(*least)))
            }
            Some(Relation::AtMost(most)) => {
                alone(most - here.mean, here.half_width, format!("{found}, at most {} wanted", figure(*most)))
            }
            Some(Relation::LessThan(place) | Relation::MoreThan(place)) => {
                // The other case differs in the named labels only.
                let mut labels = result.labels.clone();
                for (axis, label) in place {
                    labels.iter_mut().filter(|(name, _)| name == axis).for_each(|(_, old)| old.clone_from(label));
                }
                let Some(at) = self.results.iter().position(|other| other.labels == labels) else {
                    return alone(-1.0, 0.0, "there is no such case to compare with".to_owned());
                };
                let other = &self.results[at];
                let (first, second) = (self.values(result, &assert.metric), self.values(other, &assert.metric));
                let difference = Estimate::of_difference(&first, &second);
                let side = if matches!(assert.relation, Some(Relation::LessThan(_))) { -1.0 } else { 1.0 };
                let found = format!(
                    "{found} against {} {}, difference {}",
                    other.name(),
                    self.shown(other, &assert.metric),
                    with_interval(difference)
                );
                let margin = Margin { mean: side * difference.mean, half_width: difference.half_width };
                Standing { margin, found, other: Some(at) }
            }
        }
    }
}

fn says(assert: &Assert) -> String {
    if assert.says.is_empty() { assert.metric.clone() } else { assert.says.clone() }
}
