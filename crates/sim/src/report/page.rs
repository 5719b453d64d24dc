//! An experiment as a section of a page, in HTML and in Markdown.

use std::fmt::Write;

use super::figures::figures;
use super::svg::escaped;
use super::{VERSION, caption};
use crate::experiment::{CaseResult, Experiment, with_interval};
use crate::scenario::WorldKind;
use crate::statistics::Estimate;

/// Columns of the tables: what a reader wants to see side by side.
fn columns(experiment: &Experiment) -> Vec<&'static str> {
    let wanted: &[&str] = match experiment.scenario.world {
        WorldKind::Polling if experiment.scenario.primary.starts_with("drain") => {
            &["drain_t50", "drain_t99", "drain_t100", "requests_per_client", "unserved", "latency_p99"]
        }
        WorldKind::Polling if experiment.scenario.primary == "recovered" => {
            &["recovered", "recovery", "stale", "offered", "goodput", "shed"]
        }
        WorldKind::Polling if experiment.scenario.primary.starts_with("outdated") => {
            &["outdated_mean", "outdated_p99", "goodput", "offered", "requests_per_answer", "latency_p99"]
        }
        WorldKind::Polling if experiment.scenario.primary.ends_with("over_model") => &[
            "timeout_over_model",
            "growths_over_model",
            "detection_over_model",
            "burst_over_model",
            "lossy_checks",
            "losses_per_lossy_check",
        ],
        WorldKind::Polling if experiment.scenario.primary == "overloaded" => {
            &["overloaded", "overloaded_model", "overloaded_over_model", "goodput", "latency_mean", "latency_p99"]
        }
        WorldKind::Polling if experiment.scenario.axes.iter().any(|axis| axis.name == "clients.others") => &[
            "stale",
            "stale_others",
            "answers_of_others",
            "stale_over_bound",
            "goodput",
            "offered",
            "requests_per_answer",
            "latency_p99",
        ],
        WorldKind::Polling => &[
            "stale",
            "stale_over_bound",
            "goodput",
            "offered",
            "requests_per_answer",
            "latency_p99",
            "detection_mean",
            "shed",
            "jain",
        ],
        WorldKind::Broker if experiment.scenario.primary.starts_with("latency") => &[
            "latency_rare_mean",
            "latency_rare_p99",
            "lost_rare",
            "latency_busy_mean",
            "latency_busy_p99",
            "lost_busy",
        ],
        WorldKind::Broker => &[
            "uplink_bytes",
            "messages",
            "held",
            "hold_mean",
            "refused",
            "blocked",
            "attack_passed",
            "attack_over_learned",
            "after_attack_passed",
        ],
        WorldKind::Coap => {
            &["stale", "detection_mean", "detection_p99", "datagrams", "bytes", "repeated", "needless", "forgotten"]
        }
    };
    let all = experiment.scenario.metrics().iter().map(|(name, _, _)| *name);
    let mut columns: Vec<&str> = all.filter(|name| wanted.contains(name)).collect();
    let primary = experiment
        .scenario
        .metrics()
        .iter()
        .map(|(name, _, _)| *name)
        .find(|name| *name == experiment.scenario.primary);
    if let Some(primary) = primary {
        columns.retain(|name| *name != primary);
        columns.insert(0, primary);
    }
    columns
}

/// What the others are compared with: the product, or what there is of it.
fn reference(experiment: &Experiment) -> Option<&str> {
    let axis = experiment.scenario.axes.iter().find(|axis| axis.name == "variant")?;
    let names = || axis.points.iter().map(|(name, _)| name.as_str());
    let found = ["as shipped", "ours"].iter().find_map(|wanted| names().rfind(|name| name.starts_with(wanted)));
    found.filter(|_| axis.points.len() > 1)
}

/// By how much the primary metric of a case differs from that of the reference beside it, seed by seed.
fn difference(experiment: &Experiment, result: &CaseResult, reference: &str) -> String {
    let mut labels = result.labels.clone();
    labels.iter_mut().filter(|(axis, _)| axis == "variant").for_each(|(_, label)| reference.clone_into(label));
    let other = experiment.results.iter().find(|other| other.labels == labels);
    let Some(other) = other.filter(|_| labels != result.labels) else { return String::new() };
    let metric = &experiment.scenario.primary;
    let difference = Estimate::of_difference(&experiment.values(result, metric), &experiment.values(other, metric));
    let sign = if difference.mean > 0.0 { "+" } else { "" };
    // Where a run ended before the value was known the difference is larger, or smaller, or nobody knows.
    let bound = match (experiment.is_censored(result, metric), experiment.is_censored(other, metric)) {
        (false, false) => "",
        (true, false) => "> ",
        (false, true) => "< ",
        (true, true) => return "not known".to_owned(),
    };
    format!("{bound}{sign}{}", with_interval(difference).replace('-', "−"))
}

/// Whether some cases were run more often than others, so that each has to say how often.
fn has_counts(experiment: &Experiment) -> bool {
    experiment.replications() != experiment.replications_most()
}

/// A page of its own: nothing is fetched from anywhere.
pub fn html(experiments: &[Experiment]) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>Tidegate laboratory</title><style>\
         :root{{color-scheme:light dark}}body{{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}}\
         table{{border-collapse:collapse;font-size:14px;display:block;overflow-x:auto}}td,th{{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #8884}}\
         td:first-child,th:first-child{{text-align:left}}svg{{max-width:100%;height:auto}}.no{{color:#c9424a}}.yes{{color:#3aa655}}</style>\
         <h1>Tidegate laboratory</h1><p>Version {VERSION}. {} experiments.</p>\
         <p><label>Show rows with <input type=\"search\" id=\"find\"></label></p><ul>",
        experiments.len()
    );
    for experiment in experiments {
        let name = escaped(&experiment.scenario.name);
        let _ = write!(
            page,
            "<li><a href=\"#{name}\">{}</a>: {}",
            escaped(&experiment.scenario.title),
            escaped(&experiment.verdict())
        );
    }
    page.push_str("</ul>");
    for experiment in experiments {
        section(&mut page, experiment);
    }
    page.push_str(FIND);
    page.push_str("</html>\n");
    page
}

/// Rows of tables that do not have all the words are hidden.
const FIND: &str = "<script>document.getElementById('find').addEventListener('input',e=>{\
const words=e.target.value.toLowerCase().split(/\\s+/);\
for(const row of document.querySelectorAll('tr:not(:first-child)')){\
const text=row.textContent.toLowerCase();row.hidden=!words.every(word=>text.includes(word))}})</script>";

fn section(page: &mut String, experiment: &Experiment) {
    let scenario = &experiment.scenario;
    let _ = write!(
        page,
        "<h2 id=\"{}\">{}</h2><p><em>{}</em></p><p><strong>{}</strong></p>",
        escaped(&scenario.name),
        escaped(&scenario.title),
        escaped(&scenario.question),
        escaped(&experiment.verdict())
    );
    for figure in figures(experiment) {
        let _ = write!(page, "<figure>{}</figure>", figure.svg);
    }
    let verdicts = experiment.verdicts();
    if !verdicts.is_empty() {
        page.push_str("<ul>");
        for verdict in verdicts {
            let (class, word) = (if verdict.holds { "yes" } else { "no" }, verdict.word());
            let _ = write!(
                page,
                "<li><span class=\"{class}\">{word}</span>: {} ({})",
                escaped(&verdict.says),
                escaped(&verdict.found)
            );
        }
        page.push_str("</ul>");
    }
    let columns = columns(experiment);
    page.push_str("<table><tr><th>case");
    let reference = reference(experiment);
    if let Some(reference) = reference {
        let _ = write!(page, "<th>difference from {}", escaped(reference));
    }
    for name in &columns {
        let _ = write!(page, "<th>{}", escaped(&name.replace('_', " ")));
    }
    let has_counts = has_counts(experiment);
    if has_counts {
        page.push_str("<th>runs");
    }
    for result in experiment.results.iter().filter(|result| !result.runs.is_empty()) {
        let _ = write!(page, "<tr><td>{}", escaped(&result.name()));
        if let Some(reference) = reference {
            let _ = write!(page, "<td>{}", escaped(&difference(experiment, result, reference)));
        }
        for name in &columns {
            let _ = write!(page, "<td>{}", escaped(&experiment.shown(result, name)));
        }
        if has_counts {
            let _ = write!(page, "<td>{}", result.runs.len());
        }
    }
    let _ = write!(page, "</table><p><small>{}</small></p>", escaped(&caption(experiment)));
}

/// The same table for a terminal: the primary metric and a few beside it.
pub fn table(experiment: &Experiment) -> String {
    let mut columns = columns(experiment);
    columns.truncate(TERMINAL_COLUMNS);
    let head = std::iter::once("case".to_owned()).chain(columns.iter().map(|name| name.replace('_', " ")));
    let mut rows = vec![head.collect::<Vec<_>>()];
    for result in experiment.results.iter().filter(|result| !result.runs.is_empty()) {
        let cells = columns.iter().map(|name| experiment.shown(result, name));
        rows.push(std::iter::once(result.name()).chain(cells).collect());
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..=columns.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let _ = write!(text, "{:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.push('\n');
    }
    text
}

/// Metrics that fit beside the names of cases.
const TERMINAL_COLUMNS: usize = 4;

/// A page of the manual; figures and numbers lie beside it.
pub(super) fn markdown(experiment: &Experiment) -> String {
    let scenario = &experiment.scenario;
    let mut text = format!(
        "# {}\n\n<!-- Written by `tidegate lab all`. -->\n\n*{}* {}\n\n",
        scenario.title,
        scenario.question,
        experiment.verdict()
    );
    if !scenario.notes.is_empty() {
        let _ = write!(text, "{}\n\n", scenario.notes.trim());
    }
    for figure in figures(experiment) {
        let _ = write!(text, "![{}]({})\n\n", scenario.title, figure.file);
    }
    for verdict in experiment.verdicts() {
        let word = if verdict.holds { "holds".to_owned() } else { format!("**{}**", verdict.word()) };
        let _ = writeln!(text, "- {word}: {} ({})", verdict.says, verdict.found);
    }
    let columns = columns(experiment);
    let mut names: Vec<String> = columns.iter().map(|name| name.replace('_', " ")).collect();
    let reference = reference(experiment);
    if let Some(reference) = reference {
        let _ = writeln!(
            text,
            "\n*Difference*: of {}, from {reference} with the same seeds, with its 95 % interval.",
            names.first().map_or("the metric", String::as_str)
        );
        names.insert(1, "difference".to_owned());
    }
    let has_counts = has_counts(experiment);
    if has_counts {
        names.push("runs".to_owned());
    }
    let _ = write!(text, "\n| case | {} |\n| --- |{}\n", names.join(" | "), " ---: |".repeat(names.len()));
    for result in experiment.results.iter().filter(|result| !result.runs.is_empty()) {
        let mut cells: Vec<String> = columns.iter().map(|name| experiment.shown(result, name)).collect();
        if let Some(reference) = reference {
            cells.insert(1, difference(experiment, result, reference));
        }
        if has_counts {
            cells.push(result.runs.len().to_string());
        }
        let _ = writeln!(text, "| {} | {} |", result.name(), cells.join(" | "));
    }
    let name = &scenario.name;
    let _ = write!(
        text,
        "\n{}. All metrics: [{name}.csv]({name}.csv). Repeat it with `tidegate lab run {name}`; \
         [all experiments](../evaluation.md#contents).\n",
        caption(experiment)
    );
    text
}
