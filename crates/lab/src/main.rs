//! `tidegate-lab`, which `tidegate lab` runs: experiments in virtual time. What they mean is in the `sim` crate; here are
//! files, threads and clocks.
#![deny(clippy::print_stdout, reason = "println! panics when its reader leaves; say! does not")]

mod all;
mod arguments;
mod compare;
mod draw;
mod overload;
mod real;
mod tune;
mod what_if;

use std::fs;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tidegate_settings::suggest::did_you_mean;
use tidegate_sim::experiment::{self, CaseResult, Experiment, Options};
use tidegate_sim::report;
use tidegate_sim::scenario::{self, Axis, BOOK, ConfigEntry, ConfigProblem, Scenario};

use clap::Parser;
use tidegate_program::{MISUSE, Stop, Usage, say};

use arguments::{HowArgs, LabArgs, LabCommand, WantedPrecision};

/// An expectation was missed.
const MISSED: u8 = 99;

fn main() -> ExitCode {
    match run(&LabArgs::parse()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(if error.is::<Usage>() { MISUSE } else { 1 })
        }
    }
}

fn run(args: &LabArgs) -> Result<u8> {
    match &args.command {
        LabCommand::List { json } => {
            list(*json);
            Ok(0)
        }
        LabCommand::Run { scenario, how } => run_one(load(scenario)?, how),
        LabCommand::Sweep { scenario, vary, metric, how } => {
            let mut scenario = load(scenario)?;
            sweep(&mut scenario, vary, metric.as_deref()).context(Usage)?;
            run_one(scenario, how)
        }
        LabCommand::Compare { first, second } => compare::run(first, second),
        LabCommand::WhatIf(args) => what_if::run(args),
        LabCommand::Tune { how } => tune::run(how),
        LabCommand::Overload(args) => {
            overload::run(args);
            Ok(0)
        }
        LabCommand::Real(args) => real::run(args),
        LabCommand::All(args) => all::run(args),
        LabCommand::Draw { manual, only } => draw::run(manual, only.as_deref()),
    }
}

fn list(is_json: bool) {
    let known = BOOK.iter().filter_map(|(name, text)| Some((*name, Scenario::read(name, text).ok()?)));
    if is_json {
        let row = |(name, scenario): (&str, Scenario)| {
            let cases = scenario.cases().map_or(0, |cases| cases.len());
            json!({ "name": name, "title": scenario.title, "cases": cases, "replications": scenario.replications })
        };
        return say!("{:#}", json!({ "experiments": known.map(row).collect::<Vec<Value>>() }));
    }
    for (name, scenario) in known {
        say!("{name:<24}{}", scenario.title);
    }
}

/// A scenario by name, or from a file.
fn load(what: &str) -> Result<Scenario> {
    if let Some(scenario) = scenario::named(what) {
        return scenario.map_err(|problems| refused(what, &problems));
    }
    let path = Path::new(what);
    if !path.exists() {
        let names: Vec<&str> = BOOK.iter().map(|(name, _)| *name).collect();
        let hint = did_you_mean(what, names.iter().copied()).map(|hint| format!("; {hint}")).unwrap_or_default();
        return Err(anyhow::anyhow!("{what} is neither a file nor one of {}{hint}", names.join(", "))).context(Usage);
    }
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {what}"))?;
    let name = path.file_stem().map_or_else(|| what.to_owned(), |stem| stem.to_string_lossy().into_owned());
    Scenario::read(&name, &text).map_err(|problems| refused(what, &problems))
}

fn refused(what: &str, problems: &[ConfigProblem]) -> anyhow::Error {
    let lines: Vec<String> = problems.iter().map(|problem| format!("{what}: {problem}")).collect();
    anyhow::anyhow!("{}", lines.join("\n       ")).context(Usage)
}

/// Settings of the command line.
fn configure(scenario: &mut Scenario, how: &HowArgs) -> Result<()> {
    if let Some(seed) = how.seed {
        scenario.seed = seed.into();
    }
    if let Some(replications) = how.replications {
        scenario.replications = replications;
    }
    if let Some(WantedPrecision(precision)) = how.precision {
        scenario.precision = precision;
    }
    for text in &how.set {
        let Some((key, value)) = text.split_once('=') else { bail!("--set {text}: expected KEY=VALUE") };
        scenario.set(key.trim(), value.trim());
    }
    // A scenario of the book is sound; what is wrong now was set. Expectations about cases that are gone are gone, too.
    scenario.forget_lost_expectations();
    match scenario.check().first() {
        Some(problem) => bail!("--set {problem}"),
        None => Ok(()),
    }
}

fn sweep(scenario: &mut Scenario, vary: &[String], metric: Option<&str>) -> Result<()> {
    scenario.asserts.clear();
    if let Some(metric) = metric {
        metric.clone_into(&mut scenario.primary);
    }
    scenario.axes.clear();
    for text in vary {
        let Some((key, values)) = text.split_once('=') else { bail!("--vary {text}: expected KEY=A,B,…") };
        let point = |value: &str| (value.trim().to_owned(), vec![ConfigEntry::flag("--vary", key, value.trim())]);
        scenario.axes.push(Axis { name: key.to_owned(), points: values.split(',').map(point).collect() });
    }
    scenario.name = format!("{}-sweep", scenario.name);
    let known = scenario.metrics().iter().any(|(name, _, _)| *name == scenario.primary);
    if !known {
        bail!("--metric {}: there is no such metric", scenario.primary);
    }
    scenario.cases().map_err(|problem| anyhow::anyhow!("--vary {problem}"))?;
    Ok(())
}

fn run_one(mut scenario: Scenario, how: &HowArgs) -> Result<u8> {
    configure(&mut scenario, how).context(Usage)?;
    let stop = Stop::on_signals()?;
    let experiment = perform(&scenario, Vec::new(), how, &stop, None)?;
    write_experiment(&experiment, &how.out)?;
    write(&how.out.join("report.html"), &report::html(std::slice::from_ref(&experiment)))?;
    say!("{}\n{}", report::table(&experiment), experiment.verdict());
    say!("see {}", how.out.join("report.html").display());
    Ok(code_of(&[experiment]))
}

fn code_of(experiments: &[Experiment]) -> u8 {
    let missed = experiments.iter().flat_map(Experiment::verdicts).any(|verdict| !verdict.holds);
    if missed { MISSED } else { 0 }
}

/// Runs at a time.
fn threads(how: &HowArgs) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    how.threads.unwrap_or(cores).max(1)
}

/// Runs a scenario after runs of it that were made before, saying how far it is; replications that would begin after `until` are
/// left out.
fn perform(
    scenario: &Scenario,
    before: Vec<CaseResult>,
    how: &HowArgs,
    stop: &Stop,
    until: Option<Instant>,
) -> Result<Experiment> {
    let threads = threads(how);
    check_memory(scenario, threads)?;
    let start = Instant::now();
    let name = &scenario.name;
    let made: usize = before.iter().map(|result| result.runs.len()).sum();
    // Whoever reads it later wants to know what to expect, and the end.
    let cases = scenario.cases().map_or(0, |cases| cases.len());
    let is_watched = std::io::stderr().is_terminal();
    let at_most = if scenario.precision.is_some() { "at most " } else { "" };
    let progress = |done: usize, total: usize| {
        let left = start.elapsed().mul_f64((total - done) as f64 / done.max(1) as f64);
        if is_watched {
            eprint!("\r{name}: {done} of {at_most}{total} runs, {at_most}{} left      ", readable(left));
        } else if done == cases && done < total && made == 0 {
            eprintln!("{name}: 1 of {at_most}{} replications, {at_most}{} left", scenario.replications, readable(left));
        }
    };
    let flag: &AtomicBool = stop.flag();
    let is_over = || until.is_some_and(|until| Instant::now() >= until);
    let options = Options { threads, stop: flag, is_over: &is_over, progress: &progress };
    let experiment =
        experiment::run_on(scenario, before, &options).map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
    if experiment.complete {
        let runs = experiment.results.iter().map(|result| result.runs.len()).sum::<usize>().saturating_sub(made);
        let (begin, end) = if is_watched { ("\r", "                                ") } else { ("", "") };
        eprintln!("{begin}{name}: {runs} runs in {}{end}", readable(start.elapsed()));
    }
    Ok(experiment)
}

fn readable(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds >= 60 { format!("{} min {} s", seconds / 60, seconds % 60) } else { format!("{seconds} s") }
}

/// Refuses before it starts what would not fit.
fn check_memory(scenario: &Scenario, threads: usize) -> Result<()> {
    let cases = scenario.cases().map_err(|problem| anyhow::anyhow!("{problem}")).context(Usage)?;
    let largest = cases.iter().map(|case| case.world.memory_estimate()).max().unwrap_or(0);
    let runs = cases.len() * scenario.replications as usize;
    let needed = largest.saturating_mul(threads.min(runs) as u64);
    let Some(available) = memory_available() else { return Ok(()) };
    if needed > available {
        let mib = |bytes: u64| bytes >> 20;
        bail!(
            "{} needs about {} MiB for {threads} runs at a time and {} MiB are free: use --threads 1, or fewer clients",
            scenario.name,
            mib(needed),
            mib(available)
        );
    }
    Ok(())
}

fn memory_available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib << 10)
}

fn write_experiment(experiment: &Experiment, folder: &Path) -> Result<()> {
    write(&folder.join("summary.json"), &report::json(experiment))?;
    write(&folder.join("cases.csv"), &report::csv(experiment))?;
    write(&folder.join("timeline.csv"), &report::timeline_csv(experiment))?;
    for figure in report::figures(experiment) {
        write(&folder.join(&figure.file), &figure.svg)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
