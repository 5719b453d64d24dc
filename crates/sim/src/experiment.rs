//! Runs the cases of a scenario, each with several seeds, on several threads; and what came of it.
//!
//! The result does not depend on the number of threads or on their order. Cases share their seeds, so that differences
//! between them are paired. A run that is stopped gives what was finished.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::polling::Second;
use crate::scenario::{Assert, Case, Relation, Scenario};
use crate::statistics::Estimate;

/// What came of a scenario.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// What was run.
    pub scenario: Scenario,
    /// By case.
    pub results: Vec<CaseResult>,
    /// Whether every case has all its replications.
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

/// How to run.
pub struct Options<'a> {
    /// Runs at the same time.
    pub threads: usize,
    /// Set it to end early.
    pub stop: &'a AtomicBool,
    /// Whether the time for it is over: then it ends too, but not before it has [`REPLICATIONS_MIN`] replications.
    pub is_over: &'a (dyn Fn() -> bool + Sync),
    /// Called after every run with the number of finished runs and of all.
    pub progress: &'a (dyn Fn(usize, usize) + Sync),
}

/// Replications that an experiment gets even if there is no time for them.
pub const REPLICATIONS_MIN: usize = 2;
/// Replications without which no interval is believed to be narrow.
const PRECISE_MIN: usize = 4;

type Run = (Vec<f64>, Vec<Second>, Vec<(f64, f64, f64)>);

/// Runs a scenario.
pub fn run(scenario: &Scenario, options: &Options<'_>) -> Result<Experiment, String> {
    let cases = scenario.cases().map_err(|problem| problem.to_string())?;
    let replications = scenario.replications as usize;
    let total = cases.len() * replications;
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let finished: Mutex<Vec<Option<Run>>> = Mutex::new((0..total).map(|_| None).collect());
    let failed: Mutex<Option<String>> = Mutex::new(None);
    let work = || {
        while !options.stop.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            // Replication by replication: what is finished early is a smaller experiment, not a part of the cases.
            let Some(case) = cases.get(index % cases.len().max(1)).filter(|_| index < total) else { break };
            let replication = index / cases.len();
            if replication >= REPLICATIONS_MIN && (options.is_over)() {
                break;
            }
            if finished.lock().is_ok_and(|finished| enough(scenario, &cases, &finished).is_some()) {
                break;
            }
            match case.world.run(scenario.seed + replication as u64) {
                Ok(outcome) => {
                    let metrics = outcome.metrics.iter().map(|(_, value)| *value).collect();
                    let first = replication == 0;
                    let run = (
                        metrics,
                        if first { outcome.timeline } else { Vec::new() },
                        if first { outcome.trace } else { Vec::new() },
                    );
                    if let Ok(mut finished) = finished.lock() {
                        finished[index] = Some(run);
                    }
                }
                Err(error) => {
                    if let Ok(mut failed) = failed.lock() {
                        failed.get_or_insert(error);
                    }
                    break;
                }
            }
            (options.progress)(done.fetch_add(1, Ordering::Relaxed) + 1, total);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..options.threads.clamp(1, total.max(1)) {
            scope.spawn(work);
        }
    });
    if let Some(error) = failed.into_inner().unwrap_or_default() {
        return Err(error);
    }
    let finished = finished.into_inner().unwrap_or_default();
    Ok(gather(scenario, &cases, finished))
}

/// After how many replications nothing more has to be learned; the least such number, whatever ran besides.
fn enough(scenario: &Scenario, cases: &[Case], finished: &[Option<Run>]) -> Option<usize> {
    let precision = scenario.precision?;
    let chunks = finished.chunks(cases.len().max(1));
    let whole = chunks.take_while(|chunk| chunk.iter().all(Option::is_some)).count();
    (PRECISE_MIN..=whole).find(|count| {
        let metrics = |at: usize| finished.iter().flatten().skip(at).step_by(cases.len()).take(*count);
        let result = |(at, case): (usize, &Case)| CaseResult {
            labels: case.labels.clone(),
            runs: metrics(at).map(|run| run.0.clone()).collect(),
            timeline: Vec::new(),
            trace: Vec::new(),
        };
        let results = cases.iter().enumerate().map(result).collect();
        Experiment { scenario: scenario.clone(), results, complete: true }.is_precise(precision)
    })
}

fn gather(scenario: &Scenario, cases: &[Case], mut finished: Vec<Option<Run>>) -> Experiment {
    if let Some(count) = enough(scenario, cases, &finished) {
        finished.truncate(count * cases.len());
    }
    let complete = finished.iter().all(Option::is_some);
    let mut results: Vec<CaseResult> = cases
        .iter()
        .map(|case| CaseResult {
            labels: case.labels.clone(),
            runs: Vec::new(),
            timeline: Vec::new(),
            trace: Vec::new(),
        })
        .collect();
    // Only whole replications, so that comparisons stay paired.
    let whole = finished.chunks(cases.len().max(1)).take_while(|chunk| chunk.iter().all(Option::is_some)).count();
    for (index, run) in finished.into_iter().enumerate().take(whole * cases.len()) {
        let Some((metrics, timeline, trace)) = run else { continue };
        let result = &mut results[index % cases.len()];
        result.runs.push(metrics);
        if index < cases.len() {
            result.timeline = timeline;
            result.trace = trace;
        }
    }
    Experiment { scenario: scenario.clone(), results, complete }
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

    /// Whether it has as many replications as were planned, or as many as its scenario needs.
    pub(crate) fn is_enough(&self) -> bool {
        let count = self.replications();
        count >= self.scenario.replications as usize
            || (count >= PRECISE_MIN && self.scenario.precision.is_some_and(|precision| self.is_precise(precision)))
    }

    /// Whether every interval is narrow and every expectation decided.
    fn is_precise(&self, precision: f64) -> bool {
        let is_narrow = |result: &CaseResult| {
            let estimate = self.estimate(result, &self.scenario.primary);
            estimate.half_width <= precision * estimate.mean.abs()
        };
        self.results.iter().all(is_narrow) && self.verdicts().iter().all(|verdict| !verdict.is_open)
    }

    /// Every expectation, and whether it held.
    pub fn verdicts(&self) -> Vec<ExperimentVerdict> {
        let asserts = self.scenario.asserts.iter();
        // A quick look leaves cases out, and what is expected of them.
        let is_run =
            |assert: &&Assert| !self.scenario.quick || self.results.iter().any(|result| result.is_at(&assert.place));
        asserts.filter(is_run).map(|assert| self.judge(assert)).collect()
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
        let means =
            self.results.iter().map(|result| (self.estimate(result, &self.scenario.primary).mean, result.name()));
        let mut means: Vec<(f64, String)> = means.collect();
        means.sort_by(|a, b| a.0.total_cmp(&b.0));
        let metric = self.scenario.primary.replace('_', " ");
        let range = match (means.first(), means.last()) {
            (Some((low, best)), Some((high, worst))) if means.len() > 1 => {
                format!("The {metric} goes from {} ({best}) to {} ({worst}).", figure(*low), figure(*high))
            }
            (Some((only, _)), _) => format!("The {metric} is {}.", figure(*only)),
            _ => String::new(),
        };
        let partial = if self.complete { "" } else { " Ended early: fewer replications than planned." };
        format!("{expected}{range}{partial}")
    }

    fn judge(&self, assert: &Assert) -> ExperimentVerdict {
        let mut worst: Option<(Margin, String)> = None;
        for result in self.results.iter().filter(|result| result.is_at(&assert.place) && !result.runs.is_empty()) {
            let (margin, text) = self.margin(assert, result);
            if worst.as_ref().is_none_or(|(least, _)| margin.least() < least.least()) {
                worst = Some((margin, text));
            }
        }
        let holds = worst.as_ref().is_some_and(|(margin, _)| margin.least() >= 0.0);
        let is_open = worst.as_ref().is_some_and(|(margin, _)| !holds && margin.mean + margin.half_width >= 0.0);
        let found = worst.map_or_else(|| "no such case was run".to_owned(), |(_, text)| text);
        let says = if assert.says.is_empty() { assert.metric.clone() } else { assert.says.clone() };
        ExperimentVerdict { says, found, holds, is_open }
    }

    /// How far a case is on the right side, and what was found.
    fn margin(&self, assert: &Assert, result: &CaseResult) -> (Margin, String) {
        let here = self.estimate(result, &assert.metric);
        let found = format!("{} {}", result.name(), self.shown(result, &assert.metric));
        let margin = |mean: f64, half_width: f64| Margin { mean, half_width };
        match &assert.relation {
            None => (margin(0.0, 0.0), found),
            Some(Relation::AtLeast(least)) => {
                (margin(here.mean - least, here.half_width), format!("{found}, at least {} wanted", figure(*least)))
            }
            Some(Relation::AtMost(most)) => {
                (margin(most - here.mean, here.half_width), format!("{found}, at most {} wanted", figure(*most)))
            }
            Some(Relation::LessThan(place) | Relation::MoreThan(place)) => {
                // The other case differs in the named labels only.
                let mut labels = result.labels.clone();
                for (axis, label) in place {
                    labels.iter_mut().filter(|(name, _)| name == axis).for_each(|(_, old)| old.clone_from(label));
                }
                let Some(other) = self.results.iter().find(|other| other.labels == labels) else {
                    return (margin(-1.0, 0.0), "there is no such case to compare with".to_owned());
                };
                let (first, second) = (self.values(result, &assert.metric), self.values(other, &assert.metric));
                let difference = Estimate::of_difference(&first, &second);
                let side = if matches!(assert.relation, Some(Relation::LessThan(_))) { -1.0 } else { 1.0 };
                let text = format!(
                    "{found} against {} {}, difference {}",
                    other.name(),
                    self.shown(other, &assert.metric),
                    with_interval(difference)
                );
                (margin(side * difference.mean, difference.half_width), text)
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "question = \"?\"\nreplications = 3\n[run]\nduration = \"40s\"\nwarm_up = \"20s\"\n\
        [[vary]]\nkey = \"clients.load\"\nvalues = [0.5, 2]\n\
        [[assert]]\nsays = \"more load, more stale\"\nmetric = \"stale\"\nwhere = { \"clients.load\" = 2 }\n\
        more_than = { \"clients.load\" = 0.5 }\n\
        [[assert]]\nmetric = \"offered\"\nmax = 0.1\n";

    fn quiet(threads: usize, stop: &AtomicBool) -> Experiment {
        let scenario = Scenario::read("t", TEXT).unwrap();
        run(&scenario, &Options { threads, stop, is_over: &|| false, progress: &|_, _| {} }).unwrap()
    }

    #[test]
    fn threads_do_not_change_the_result_and_expectations_are_judged() {
        let stop = AtomicBool::new(false);
        let (one, three) = (quiet(1, &stop), quiet(3, &stop));
        for (one, three) in one.results.iter().zip(&three.results) {
            assert_eq!(one.runs, three.runs);
        }
        assert!(one.complete && one.replications() == 3);
        let verdicts = one.verdicts();
        assert!(verdicts[0].holds, "{verdicts:?}");
        assert!(!verdicts[1].holds, "{verdicts:?}");
        assert!(one.verdict().starts_with("1 of 2 expectations hold; missed: offered."), "{}", one.verdict());
    }

    #[test]
    fn a_stopped_experiment_is_valid_and_says_so() {
        let experiment = quiet(1, &AtomicBool::new(true));
        assert!(!experiment.complete);
        assert_eq!(experiment.verdict(), "Nothing was finished.");
    }

    #[test]
    fn an_experiment_whose_time_is_over_has_the_least_replications() {
        let scenario = Scenario::read("t", TEXT).unwrap();
        let stop = AtomicBool::new(false);
        let options = Options { threads: 2, stop: &stop, is_over: &|| true, progress: &|_, _| {} };
        let experiment = run(&scenario, &options).unwrap();
        assert!(!experiment.complete && experiment.replications() == REPLICATIONS_MIN);
        assert!(experiment.verdict().ends_with("fewer replications than planned."), "{}", experiment.verdict());
    }

    #[test]
    fn figures_are_short() {
        for (value, text) in [(0.0, "0"), (12.0, "12"), (0.10849, "0.108"), (29400.4, "29400"), (0.000123, "1.2e-4")] {
            assert_eq!(figure(value), text);
        }
    }
}
