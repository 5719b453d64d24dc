//! `tidegate lab all`: every experiment, and the book that is made of them.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tidegate_sim::experiment::Experiment;
use tidegate_sim::report::{self, Cost};
use tidegate_sim::scenario::{BOOK, Scenario};

use super::{check_memory, code_of, configure, load, perform, threads, write, write_experiment};
use crate::arguments::{AllArgs, HowArgs};
use tidegate_program::{Stop, Usage, say};

/// The first page of the book, and the folder of all others.
pub(super) const PAGES: &str = "evaluation";
/// The results of an experiment, for `--resume`.
const KEPT: &str = "results.tsv";

pub(super) fn run(args: &AllArgs) -> Result<u8> {
    let how = &args.how;
    let scenarios = chosen(args)?;
    let stop = Stop::on_signals()?;
    let mut time = Time::new(args.minutes, &scenarios);
    let (mut done, mut costs) = (Vec::new(), Vec::new());
    for scenario in &scenarios {
        let folder = how.out.join(&scenario.name);
        let until = time.next();
        let kept = if args.resume { read_kept(&folder, scenario) } else { None };
        // What was cut short goes on, unless there is little time again.
        let is_enough = kept.as_ref().is_some_and(|(experiment, _)| experiment.complete || args.minutes.is_some());
        let (experiment, cost) = if let (true, Some(kept)) = (is_enough, kept.clone()) {
            kept
        } else {
            let (experiment, cost) = perform_with_cost(scenario, kept, how, &stop, until)?;
            write_experiment(&experiment, &folder)?;
            if let Some(text) = report::kept(&experiment, &cost) {
                write(&folder.join(KEPT), &text)?;
            }
            (experiment, cost)
        };
        say!("{}: {}", scenario.name, experiment.verdict());
        if experiment.replications() > 0 {
            done.push(experiment);
            costs.push(cost);
            // After each, so that whatever ends this leaves a valid report.
            write_book(&done, &costs, &how.out)?;
        }
        if stop.is_wanted() {
            break;
        }
    }
    let is_whole = done.len() == scenarios.len() && done.iter().all(|experiment| experiment.replications() > 0);
    if let Some(manual) = args.manual.as_deref().filter(|_| is_whole && !stop.is_wanted()) {
        write_manual(&done, &costs, manual)?;
    }
    if let Some(manual) = &args.pages {
        report::pages(&done, PAGES).iter().try_for_each(|(name, text)| write(&manual.join(name), text))?;
    }
    say!("see {}", how.out.join("report.html").display());
    Ok(code_of(&done))
}

/// What an earlier run has left of this scenario.
fn read_kept(folder: &Path, scenario: &Scenario) -> Option<(Experiment, Cost)> {
    report::read_kept(&fs::read_to_string(folder.join(KEPT)).ok()?, scenario)
}

/// Every experiment that is to be run, checked before the first one is.
fn chosen(args: &AllArgs) -> Result<Vec<Scenario>> {
    let mut scenarios = Vec::new();
    let is_wanted = |name: &str| {
        args.only.as_deref().is_none_or(|part| name.contains(part)) && !args.skip.iter().any(|part| name.contains(part))
    };
    for (name, _) in BOOK.iter().filter(|(name, _)| is_wanted(name)) {
        let mut scenario = load(name)?;
        if args.quick {
            scenario.make_quick();
        }
        configure(&mut scenario, &args.how).context(Usage)?;
        check_memory(&scenario, threads(&args.how))?;
        // A quick look has no room for some.
        if !scenario.cases().map_err(|problem| anyhow::anyhow!("{problem}"))?.is_empty() {
            scenarios.push(scenario);
        }
    }
    if scenarios.is_empty() {
        let part = args.only.as_deref().unwrap_or_default();
        return Err(anyhow::anyhow!("--only {part}: no experiment has such a name; see `tidegate lab list`"))
            .context(Usage);
    }
    Ok(scenarios)
}

/// The time that is left, shared among the experiments by the work that they will be.
struct Time {
    end: Option<Instant>,
    work: Vec<f64>,
}

impl Time {
    fn new(minutes: Option<u32>, scenarios: &[Scenario]) -> Self {
        let work = |scenario: &Scenario| {
            let cases = scenario.cases().unwrap_or_default();
            let of_cases: f64 = cases.iter().map(|case| case.world.work_estimate()).sum();
            of_cases * f64::from(scenario.replications)
        };
        // From the back, so that the next one is the last.
        let work = scenarios.iter().rev().map(work).collect();
        Self { end: minutes.map(|minutes| Instant::now() + Duration::from_secs(60 * u64::from(minutes))), work }
    }

    /// Until when the next experiment may begin new replications.
    fn next(&mut self) -> Option<Instant> {
        let all: f64 = self.work.iter().sum();
        let share = self.work.pop().unwrap_or(0.0) / all.max(1.0);
        let now = Instant::now();
        self.end.map(|end| now + end.saturating_duration_since(now).mul_f64(share.clamp(0.0, 1.0)))
    }
}

fn perform_with_cost(
    scenario: &Scenario,
    kept: Option<(Experiment, Cost)>,
    how: &HowArgs,
    stop: &Stop,
    until: Option<Instant>,
) -> Result<(Experiment, Cost)> {
    forget_peak();
    let start = Instant::now();
    let (before, spent) = kept.map_or_else(Default::default, |(before, cost)| (before.results, cost.seconds));
    let experiment = perform(scenario, before, how, stop, until)?;
    let cost = Cost {
        name: scenario.name.clone(),
        runs: experiment.results.iter().map(|result| result.runs.len()).sum(),
        events: experiment.events(),
        seconds: spent + start.elapsed().as_secs_f64(),
        threads: threads(how),
        memory: peak_memory().unwrap_or(0),
    };
    Ok((experiment, cost))
}

fn write_book(done: &[Experiment], costs: &[Cost], folder: &Path) -> Result<()> {
    write(&folder.join("report.html"), &report::html(done))?;
    report::book(done, costs, PAGES).iter().try_for_each(|(name, text)| write(&folder.join(name), text))
}

/// The chapter of the manual, with the pages of this run and no others.
fn write_manual(done: &[Experiment], costs: &[Cost], folder: &Path) -> Result<()> {
    let is_ours = |path: &Path| path.extension().is_some_and(|it| it == "svg" || it == "md" || it == "csv");
    if let Ok(entries) = fs::read_dir(folder.join(PAGES)) {
        for path in entries.flatten().map(|entry| entry.path()).filter(|path| is_ours(path)) {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    report::book(done, costs, PAGES).iter().try_for_each(|(name, text)| write(&folder.join(name), text))
}

/// From here on the peak is that of the next experiment, where the system can do that.
fn forget_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

fn peak_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib << 10)
}
