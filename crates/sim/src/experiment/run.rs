//! Runs what is to be run next, on several threads, until nothing more has to be learned.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::stop::NextRun;
use super::{CaseResult, Experiment};
use crate::polling::Second;
use crate::scenario::{Case, Scenario};

/// How to run.
pub struct Options<'a> {
    /// Runs at the same time.
    pub threads: usize,
    /// Set it to end early.
    pub stop: &'a AtomicBool,
    /// Whether the time for it is over: then it ends too, but not before it has [`REPLICATIONS_MIN`] replications.
    pub is_over: &'a (dyn Fn() -> bool + Sync),
    /// Called after every run with the number of finished runs and of all that there may be.
    pub progress: &'a (dyn Fn(usize, usize) + Sync),
}

/// Replications that an experiment gets even if there is no time for them.
pub const REPLICATIONS_MIN: usize = 2;

/// What came of a run: metrics, and of the first of a case its seconds and one client.
type Run = (Vec<f64>, Vec<Second>, Vec<(f64, f64, f64)>);

/// Runs a scenario.
pub fn run(scenario: &Scenario, options: &Options<'_>) -> Result<Experiment, String> {
    run_on(scenario, Vec::new(), options)
}

/// The same, after runs of this scenario that were made before; results of other cases are forgotten.
pub fn run_on(scenario: &Scenario, before: Vec<CaseResult>, options: &Options<'_>) -> Result<Experiment, String> {
    let cases = scenario.cases().map_err(|problem| problem.to_string())?;
    let is_same = before.len() == cases.len() && before.iter().zip(&cases).all(|(one, case)| one.labels == case.labels);
    let results = if is_same { before } else { cases.iter().map(CaseResult::empty).collect() };
    let mut experiment = Experiment { scenario: scenario.clone(), results, complete: false };
    let made: usize = experiment.results.iter().map(|result| result.runs.len()).sum();
    let total = (cases.len() * scenario.replications as usize).saturating_sub(made);
    let done = AtomicUsize::new(0);
    loop {
        let batch = experiment.next_runs();
        if batch.is_empty() {
            experiment.complete = true;
            return Ok(experiment);
        }
        let finished = perform(scenario, &cases, &batch, options, &|| {
            (options.progress)(done.fetch_add(1, Ordering::Relaxed) + 1, total);
        })?;
        if !experiment.take(&batch, finished) {
            return Ok(experiment);
        }
    }
}

/// Runs a batch; what was not finished is none.
fn perform(
    scenario: &Scenario,
    cases: &[Case],
    batch: &[NextRun],
    options: &Options<'_>,
    progress: &(dyn Fn() + Sync),
) -> Result<Vec<Option<Run>>, String> {
    let next = AtomicUsize::new(0);
    let finished: Mutex<Vec<Option<Run>>> = Mutex::new(batch.iter().map(|_| None).collect());
    let failed: Mutex<Option<String>> = Mutex::new(None);
    let work = || {
        while !options.stop.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(NextRun { case, replication }) = batch.get(index).copied() else { break };
            if replication >= REPLICATIONS_MIN && (options.is_over)() {
                break;
            }
            match cases[case].world.run(scenario.seed + replication as u64) {
                Ok(outcome) => {
                    let metrics = outcome.metrics.iter().map(|(_, value)| *value).collect();
                    let is_first = replication == 0;
                    let (timeline, trace) =
                        if is_first { (outcome.timeline, outcome.trace) } else { (Vec::new(), Vec::new()) };
                    if let Ok(mut finished) = finished.lock() {
                        finished[index] = Some((metrics, timeline, trace));
                    }
                }
                Err(error) => {
                    if let Ok(mut failed) = failed.lock() {
                        failed.get_or_insert(error);
                    }
                    break;
                }
            }
            progress();
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..options.threads.clamp(1, batch.len().max(1)) {
            scope.spawn(work);
        }
    });
    match failed.into_inner().unwrap_or_default() {
        Some(error) => Err(error),
        None => Ok(finished.into_inner().unwrap_or_default()),
    }
}

impl CaseResult {
    /// Nothing yet.
    pub(crate) fn empty(case: &Case) -> Self {
        Self { labels: case.labels.clone(), runs: Vec::new(), timeline: Vec::new(), trace: Vec::new() }
    }
}

impl Experiment {
    /// Adds what was finished of a batch; whether that was all of it. Of a part only whole replications are taken, so that
    /// comparisons stay paired.
    fn take(&mut self, batch: &[NextRun], finished: Vec<Option<Run>>) -> bool {
        let before: Vec<usize> = self.results.iter().map(|result| result.runs.len()).collect();
        let mut taken = 0;
        for (NextRun { case, replication }, run) in batch.iter().zip(finished) {
            let Some((metrics, timeline, trace)) = run else { break };
            let result = &mut self.results[*case];
            result.runs.push(metrics);
            if *replication == 0 {
                (result.timeline, result.trace) = (timeline, trace);
            }
            taken += 1;
        }
        let is_whole = taken == batch.len();
        if !is_whole {
            let whole = self.replications();
            for (result, before) in self.results.iter_mut().zip(before) {
                result.runs.truncate(before.max(whole));
            }
        }
        is_whole
    }
}
