//! The figures as data.

use std::fmt::Write;

use serde_json::{Map, Value, json as object};

use super::VERSION;
use crate::experiment::Experiment;

/// `summary.json`.
pub fn json(experiment: &Experiment) -> String {
    let scenario = &experiment.scenario;
    let cases: Vec<Value> = experiment
        .results
        .iter()
        .map(|result| {
            let labels: Map<String, Value> =
                result.labels.iter().map(|(axis, label)| (axis.clone(), Value::from(label.clone()))).collect();
            let mut metrics = Map::new();
            for (name, unit, _) in scenario.metrics() {
                let estimate = experiment.estimate(result, name);
                let half = estimate.half_width.is_finite().then_some(estimate.half_width);
                let values = experiment.values(result, name);
                let mut metric =
                    object!({ "mean": estimate.mean, "half_width_95": half, "unit": unit, "runs": values });
                if experiment.is_censored(result, name) {
                    metric["is_lower_bound"] = true.into();
                }
                metrics.insert((*name).to_owned(), metric);
            }
            object!({ "labels": labels, "metrics": metrics })
        })
        .collect();
    let verdicts: Vec<Value> = experiment
        .verdicts()
        .iter()
        .map(|verdict| object!({ "says": verdict.says, "found": verdict.found, "holds": verdict.holds, "is": verdict.word() }))
        .collect();
    let document = object!({
        "scenario": scenario.name,
        "title": scenario.title,
        "version": VERSION,
        "seed": scenario.seed,
        "replications": experiment.replications(),
        "complete": experiment.complete,
        "stopped": experiment.stopped(),
        "primary": scenario.primary,
        "verdict": experiment.verdict(),
        "expectations": verdicts,
        "cases": cases,
    });
    format!("{document:#}\n")
}

/// One line for each case, a mean and a half width for each metric; in the last column the metrics of which some runs ended before
/// the value was known, so that the mean is a lower bound.
pub fn csv(experiment: &Experiment) -> String {
    let scenario = &experiment.scenario;
    let mut text = String::new();
    let axes: Vec<String> = scenario.axes.iter().map(|axis| quoted(&axis.name)).collect();
    let columns: Vec<String> = scenario
        .metrics()
        .iter()
        .flat_map(|(name, _, _)| [(*name).to_owned(), format!("{name}_half_width_95")])
        .collect();
    let _ = writeln!(
        text,
        "{}",
        axes.iter()
            .cloned()
            .chain(["replications".to_owned()])
            .chain(columns)
            .chain(["lower_bounds".to_owned()])
            .collect::<Vec<_>>()
            .join(",")
    );
    for result in &experiment.results {
        let mut cells: Vec<String> = result.labels.iter().map(|(_, label)| quoted(label)).collect();
        cells.push(result.runs.len().to_string());
        for (name, _, _) in scenario.metrics() {
            let estimate = experiment.estimate(result, name);
            cells.push(estimate.mean.to_string());
            cells.push(if estimate.half_width.is_finite() { estimate.half_width.to_string() } else { String::new() });
        }
        let names = scenario.metrics().iter().map(|(name, _, _)| *name);
        cells.push(names.filter(|name| experiment.is_censored(result, name)).collect::<Vec<_>>().join(" "));
        let _ = writeln!(text, "{}", cells.join(","));
    }
    text
}

/// The first replication of every case, second by second.
pub fn timeline_csv(experiment: &Experiment) -> String {
    let mut text = String::from("case,second,offered,useful,updates,shed,stale,backlog_s\n");
    for result in &experiment.results {
        let name = quoted(&result.name());
        for (number, second) in result.timeline.iter().enumerate() {
            let crate::polling::Second { offered, useful, shed, updates, stale, backlog } = second;
            let _ = writeln!(text, "{name},{number},{offered},{useful},{updates},{shed},{stale},{backlog}");
        }
    }
    text
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
