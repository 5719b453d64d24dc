//! Runs the cases of a scenario, each with several seeds, on several threads; and what came of it.
//!
//! The result does not depend on the number of threads or on their order. Cases share their seeds, so that differences
//! between them are paired. Where the scenario asks for a precision, a case that has it is not run again. A run that is stopped
//! gives what was finished.

mod judge;
mod run;
mod stop;
#[cfg(test)]
mod tests;

pub use judge::ExperimentVerdict;
pub use run::{Options, REPLICATIONS_MIN, run, run_on};

use crate::polling::Second;
use crate::scenario::Scenario;
use crate::statistics::Estimate;

/// What came of a scenario.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// What was run.
    pub scenario: Scenario,
    /// By case.
    pub results: Vec<CaseResult>,
    /// Whether every case has all its replications, or as many as are enough.
    pub complete: bool,
}

/// What came of one case.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// Axis and label.
    pub labels: Vec<(String, String)>,
    /// By replication, the metrics in the order of the world's list.
    pub runs: Vec<Vec<f64>>,
    /// The first replication second by second.
    pub timeline: Vec<Second>,
    /// AST and RBT of one client in the first replication.
    pub trace: Vec<(f64, f64, f64)>,
}

impl CaseResult {
    /// Its labels in one line.
    pub fn name(&self) -> String {
        if self.labels.is_empty() {
            return "the scenario".to_owned();
        }
        let part = |(axis, label): &(String, String)| {
            if axis == "variant" { label.clone() } else { format!("{} {label}", short(axis)) }
        };
        self.labels.iter().map(part).collect::<Vec<_>>().join(", ")
    }

    fn is_at(&self, place: &[(String, String)]) -> bool {
        place.iter().all(|wanted| self.labels.contains(wanted))
    }
}

/// A key without its section.
pub fn short(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

impl Experiment {
    /// The values of a metric, by replication.
    pub fn values(&self, result: &CaseResult, metric: &str) -> Vec<f64> {
        let index = self.scenario.metrics().iter().position(|(name, _, _)| *name == metric);
        index.map_or_else(Vec::new, |index| result.runs.iter().map(|run| run[index]).collect())
    }

    /// A metric with its confidence interval.
    pub fn estimate(&self, result: &CaseResult, metric: &str) -> Estimate {
        Estimate::of(&self.values(result, metric))
    }

    /// Events of all runs.
    pub fn events(&self) -> f64 {
        self.results.iter().flat_map(|result| self.values(result, "events")).sum()
    }

    /// Replications that every case has.
    pub fn replications(&self) -> usize {
        self.results.iter().map(|result| result.runs.len()).min().unwrap_or(0)
    }

    /// Replications of the case that has the most.
    pub fn replications_most(&self) -> usize {
        self.results.iter().map(|result| result.runs.len()).max().unwrap_or(0)
    }

    /// One sentence about the whole.
    pub fn verdict(&self) -> String {
        if self.replications() == 0 {
            return "Nothing was finished.".to_owned();
        }
        let verdicts = self.verdicts();
        let listed = |word: &str| {
            let found = verdicts.iter().filter(|verdict| verdict.word() == word).map(|verdict| verdict.says.clone());
            let found = found.collect::<Vec<_>>().join("; ");
            if found.is_empty() { found } else { format!("; {word}: {found}") }
        };
        let held = verdicts.iter().filter(|verdict| verdict.holds).count();
        let expected = match (verdicts.len(), verdicts.len() - held) {
            (0, _) => String::new(),
            (1, 0) => "The expectation holds. ".to_owned(),
            (all, 0) => format!("All {all} expectations hold. "),
            (all, _) => format!("{held} of {all} expectations hold{}{}. ", listed("missed"), listed("open")),
        };
        let metric = &self.scenario.primary;
        let bound = |result: &CaseResult| if self.is_censored(result, metric) { "> " } else { "" };
        let mean = |result: &CaseResult| (self.estimate(result, metric).mean, bound(result), result.name());
        let mut means: Vec<(f64, &str, String)> = self.results.iter().map(mean).collect();
        means.sort_by(|a, b| a.0.total_cmp(&b.0));
        let metric = metric.replace('_', " ");
        let number = |mean: f64, bound: &str| format!("{bound}{}", figure(mean));
        let range = match (means.first(), means.last()) {
            (Some((low, at_low, best)), Some((high, at_high, worst))) if means.len() > 1 => {
                let (low, high) = (number(*low, at_low), number(*high, at_high));
                format!("The {metric} goes from {low} ({best}) to {high} ({worst}).")
            }
            (Some((only, bound, _)), _) => format!("The {metric} is {}.", number(*only, bound)),
            _ => String::new(),
        };
        let partial = if self.complete { "" } else { " Ended early: fewer replications than planned." };
        let stopped = self.stopped().map_or_else(String::new, |words| format!(" {words}."));
        format!("{expected}{range}{stopped}{partial}")
    }

    /// A metric of a case as it is printed: with its interval, and with `>` where the run ended before the value was known.
    pub fn shown(&self, result: &CaseResult, metric: &str) -> String {
        let text = with_interval(self.estimate(result, metric));
        if self.is_censored(result, metric) { format!("> {text}") } else { text }
    }

    /// Whether some runs ended before the value was known, so that the mean is a lower bound.
    pub fn is_censored(&self, result: &CaseResult, metric: &str) -> bool {
        match metric {
            "drain_t99" => self.values(result, "unserved").iter().any(|share| *share > 0.01),
            "drain_t100" => self.values(result, "unserved").iter().any(|share| *share > 0.0),
            "drain_t50" => self.values(result, "unserved").iter().any(|share| *share > 0.5),
            "recovery" => self.values(result, "recovered").iter().any(|share| *share < 1.0),
            _ => false,
        }
    }
}

/// A number with as many digits as it deserves.
pub fn figure(value: f64) -> String {
    let size = value.abs();
    if value == value.trunc() && size < 1e7 {
        format!("{value}")
    } else if size >= 1000.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 1.0 {
        format!("{value:.2}")
    } else if size >= 0.001 {
        format!("{value:.3}")
    } else {
        format!("{value:.1e}")
    }
}

/// A mean with the half width of its interval.
pub fn with_interval(estimate: Estimate) -> String {
    if estimate.half_width.is_finite() && estimate.half_width > 0.0 {
        format!("{} ± {}", figure(estimate.mean), figure(estimate.half_width))
    } else {
        figure(estimate.mean)
    }
}
