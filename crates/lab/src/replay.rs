//! `tidegate lab replay`: what other settings would have done with the messages of a trace.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use tidegate_core::trace::{MESSAGES_MAX, Trace};
use tidegate_sim::experiment::Experiment;
use tidegate_sim::report;
use tidegate_sim::scenario::{Axis, ConfigEntry, Scenario};

use crate::arguments::HowArgs;
use tidegate_program::{Stop, Usage};

/// Bytes of a trace: as many messages as there may be, at the length of a long line.
const TRACE_BYTES_MAX: u64 = MESSAGES_MAX as u64 * 64;
/// What was held at the end gets this long to pass.
const AFTERWARDS: f64 = 30.0;
/// The shipped broker. A trace is not drawn, so one run is all there is.
const SHIPPED: &str = "version = 1\nworld = \"broker\"\nprimary = \"held\"\nreplications = 1\n\
    question = \"What would other settings have done with these messages?\"\n\
    [broker]\nrule = \"practical\"\nenforce_always = false\norder = \"drr\"\nqueue_items = 10000\n\
    [publishers]\nclosed_loop = false\n";
/// What is about the world and not about the broker.
const WORLD: [&str; 2] = ["broker.capacity", "run.warm_up"];
/// What can be set; the rest is in the trace.
const KEYS: &str = "broker.rule, broker.enforce_always, broker.order, broker.capacity (what the reader takes), \
    broker.queue_items, run.warm_up";

pub(super) fn run(path: &Path, how: &HowArgs) -> Result<u8> {
    let trace = load(path)?;
    let seconds = trace.seconds() + AFTERWARDS;
    println!(
        "{} messages of {} publishers in {:.0} s",
        trace.arrivals().len(),
        trace.publishers(),
        trace.seconds().max(1.0)
    );
    let mut scenario = Scenario::read("replay", SHIPPED).map_err(|problems| anyhow::anyhow!("{problems:?}"))?;
    scenario.title = format!("Replay of {}", path.file_name().unwrap_or_default().to_string_lossy());
    scenario.set("run.duration", &format!("{seconds:.3}s"));
    scenario.trace = Some(Arc::new(trace));
    let (world, settings): (Vec<ConfigEntry>, Vec<ConfigEntry>) =
        settings(&how.set).context(Usage)?.into_iter().partition(|setting| WORLD.contains(&&*setting.path));
    // The reader is as fast in both columns: else they would not tell what the settings do.
    scenario.settings.extend(world);
    if !settings.is_empty() {
        let points = vec![("as shipped".to_owned(), Vec::new()), ("as set".to_owned(), settings)];
        scenario.axes = vec![Axis { name: "variant".to_owned(), points }];
    }
    if let Some(problem) = scenario.check().first() {
        return Err(anyhow::anyhow!("--set {problem}")).context(Usage);
    }
    let stop = Stop::on_signals()?;
    let experiment = super::perform(&scenario, how, &stop, None)?;
    super::write_experiment(&experiment, &how.out)?;
    super::write(&how.out.join("report.html"), &report::html(std::slice::from_ref(&experiment)))?;
    print(&experiment);
    println!("see {}", how.out.join("report.html").display());
    Ok(0)
}

fn load(path: &Path) -> Result<Trace> {
    let shown = path.display();
    let size = fs::metadata(path).with_context(|| format!("cannot read {shown}"))?.len();
    if size > TRACE_BYTES_MAX {
        return Err(anyhow::anyhow!("{shown} has more than {TRACE_BYTES_MAX} bytes")).context(Usage);
    }
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    Trace::read(&text).map_err(|problem| anyhow::anyhow!("{shown}: {problem}")).context(Usage)
}

fn settings(set: &[String]) -> Result<Vec<ConfigEntry>> {
    let mut settings = Vec::new();
    for text in set {
        let Some((key, value)) = text.split_once('=') else { bail!("--set {text}: expected KEY=VALUE") };
        let key = key.trim();
        if !KEYS.split([',', ' ']).any(|known| known == key) {
            bail!("--set {key}: a replay knows {KEYS}");
        }
        settings.push(ConfigEntry::flag("--set", key, value.trim()));
    }
    Ok(settings)
}

/// A line for each metric that is not the same nothing everywhere.
fn print(experiment: &Experiment) {
    let columns = &experiment.results;
    let line = |first: &str, cells: &[String], last: &str| {
        let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:>14}")).collect();
        let cells = cells.concat();
        println!("{first:<24}{cells}   {last}");
    };
    let names: Vec<String> = columns.iter().map(|column| column.name().replace("the scenario", "as shipped")).collect();
    line("", &names, "");
    for (number, (name, unit, meaning)) in experiment.scenario.metrics().iter().enumerate() {
        let values: Vec<f64> = columns.iter().filter_map(|column| Some(*column.runs.first()?.get(number)?)).collect();
        if *name != "events" && values.iter().any(|value| *value != 0.0 && !value.is_nan()) {
            line(name, &values.iter().map(|value| shown(*value, unit)).collect::<Vec<_>>(), meaning);
        }
    }
}

fn shown(value: f64, unit: &str) -> String {
    match unit {
        _ if value.is_nan() => "-".to_owned(),
        "share" => format!("{:.2} %", value * 100.0),
        "s" if value < 1.0 => format!("{:.2} ms", value * 1e3),
        "s" => format!("{value:.2} s"),
        _ => format!("{value:.0}"),
    }
}
