//! Everything, for programs: one object with a row for each case and broker, and one for each goal.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::goals::{GoalState, GoalVerdict};
use super::outcome::{
    CaseOutcome, ChurnOutcome, ConnectFailures, Cores, Faults, IdleOutcome, Overload, Storm, TrafficOutcome,
};
use super::report::ReportEntry;

/// The whole report.
pub(super) fn report(
    entries: &[ReportEntry],
    verdicts: &[(&'static str, GoalVerdict)],
    versions: &[String],
    secs: f64,
    scale: f64,
) -> Value {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let goals: Vec<Value> = verdicts.iter().map(|(case, verdict)| goal(case, verdict)).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "brokers": versions,
        "secs": secs,
        "scale": scale,
        "cores": cores,
        "rows": entries.iter().flat_map(rows).collect::<Vec<Value>>(),
        "goals": goals,
    })
}

fn goal(case: &str, verdict: &GoalVerdict) -> Value {
    let state = match verdict.state {
        GoalState::Met => "met",
        GoalState::Missed => "missed",
        GoalState::Unknown => "not shown",
    };
    json!({ "case": case, "goal": verdict.goal, "figure": verdict.figure, "state": state })
}

/// One row, or one for each number of subscriptions.
fn rows(entry: &ReportEntry) -> Vec<Value> {
    let mut rows = match &entry.outcome {
        Ok(CaseOutcome::Traffic(figures)) => vec![traffic(figures)],
        Ok(CaseOutcome::Subscriptions(all)) => all.iter().map(|(count, figures)| beside(*count, figures)).collect(),
        Ok(CaseOutcome::Idle(figures)) => vec![idle(figures)],
        Ok(CaseOutcome::Churn(figures)) => vec![churn(figures)],
        Ok(CaseOutcome::Storm(figures)) => vec![storm(figures)],
        Ok(CaseOutcome::Overload(figures)) => vec![overload(figures)],
        Ok(CaseOutcome::Gate(figures)) => figures.rows(),
        Ok(CaseOutcome::Durable(figures)) => vec![figures.json()],
        Ok(CaseOutcome::Space(figures)) => vec![figures.json()],
        Err(reason) => vec![json!({ "error": reason })],
    };
    for row in &mut rows {
        row["case"] = entry.case.into();
        row["broker"] = entry.broker.clone().into();
    }
    rows
}

fn beside(count: usize, figures: &TrafficOutcome) -> Value {
    let mut row = traffic(figures);
    row["subscriptions"] = count.into();
    row
}

/// Figures under the names of their fields, and others under names of their own.
macro_rules! row {
    ($figures:expr; $($field:ident),+ $(; $($name:literal: $value:expr),+)?) => {
        json!({ $((stringify!($field)): $figures.$field,)+ $($($name: $value,)+)? })
    };
}

pub(super) fn traffic(figures: &TrafficOutcome) -> Value {
    row!(figures; delivered_per_s, rss_kib, p50_us, p99_us, p999_us, reasons;
        "cpu_s_per_million": figures.s_per_million.map(|cost| cost.total()),
        "user_s_per_million": figures.s_per_million.map(|cost| cost.user),
        "system_s_per_million": figures.s_per_million.map(|cost| cost.system),
        "cores": cores(&figures.cores),
        "faults": faults(&figures.faults))
}

fn idle(figures: &IdleOutcome) -> Value {
    row!(figures; connections, wanted, connects_per_s, kib_each; "cores": cores(&figures.cores))
}

fn churn(figures: &ChurnOutcome) -> Value {
    row!(figures; connects_per_s;
        "cpu_us_each": figures.us_each,
        "trouble": trouble(&figures.trouble),
        "cores": cores(&figures.cores))
}

fn storm(figures: &Storm) -> Value {
    row!(figures; clients, wanted, back, most_s, all_s, rss_kib;
        "trouble": trouble(&figures.trouble),
        "cores": cores(&figures.cores))
}

fn overload(figures: &Overload) -> Value {
    row!(figures;
        probe_p50_us, probe_p99_us, rss_max_kib, sent, delivered, delivered_per_s, held, counted, closed;
        "probe_faults": faults(&figures.probes),
        "dropped": figures.dropped(),
        "cores": cores(&figures.cores))
}

pub(super) fn cores(cores: &Cores) -> Value {
    row!(cores; broker, tool, others)
}

fn trouble(trouble: &ConnectFailures) -> Value {
    row!(trouble; later, refused, reset, closed, silent, local)
}

fn faults(faults: &Faults) -> Value {
    row!(faults; lost, held, duplicated, reordered, unsent, stalls, closed)
}

/// The table, or for programs: into a file beside it, or in its place.
pub(super) fn print_or_write(text: &str, figures: &Value, path: Option<&Path>) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let figures = format!("{figures}\n");
    match path {
        Some(path) if path == Path::new("-") => out.write_all(figures.as_bytes())?,
        Some(path) => {
            out.write_all(text.as_bytes())?;
            std::fs::write(path, figures).with_context(|| format!("--json {}", path.display()))?;
        }
        None => out.write_all(text.as_bytes())?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::BrokerRole;

    #[test]
    fn rows_name_case_and_broker_and_failures() {
        let figures =
            IdleOutcome { connections: 5, wanted: 5, connects_per_s: 2.0, kib_each: None, cores: Cores::default() };
        let entry = |outcome| ReportEntry { case: "idle", broker: "a".to_owned(), role: BrokerRole::Own, outcome };
        let entries = [entry(Ok(CaseOutcome::Idle(figures))), entry(Err("ended".to_owned()))];
        let verdict = GoalVerdict { goal: "g".to_owned(), figure: "f".to_owned(), state: GoalState::Missed };
        let value = report(&entries, &[("idle", verdict)], &["a 1".to_owned()], 3.0, 1.0);
        assert_eq!(value["rows"][0]["case"], "idle");
        assert_eq!(value["rows"][0]["kib_each"], Value::Null);
        assert_eq!(value["rows"][1]["error"], "ended");
        assert_eq!(value["goals"][0]["state"], "missed");
        let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
        assert_eq!(names(&value["rows"][0]), "broker case connections connects_per_s cores kib_each wanted");
        assert_eq!(names(&value["rows"][0]["cores"]), "broker others tool");
    }
}
