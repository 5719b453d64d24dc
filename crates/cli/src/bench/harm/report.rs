//! What `bench harm` says: a line for each cohort and broker, the spread of its runs, and the word HARM.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_sim::zoo::judge::{GOODPUT, LOSS, MORE_MS, TIMES};
use tidegate_sim::zoo::model::{Phases, Side};
use tidegate_sim::zoo::tally::Figures;

use super::{Row, Run, space};
use crate::bench::peers;
use crate::bench::process::Source;

/// What is compared, and by which rule.
pub(super) fn head(phases: &Phases, peer: Option<&Source>, is_quick: bool) -> String {
    let beside = peer.map_or_else(|| "no peer".to_owned(), |peer| format!("beside {}", peers::version(peer)));
    let pairs = if is_quick { "one pair of runs" } else { "two pairs of runs" };
    format!(
        "control on (default settings) and off, {pairs} each, in turns, a third if they do not agree that all is well; {beside}\n\
         {:.1} s as usual, {:.1} s of trouble, {:.1} s after it; figures from the trouble on, lowest–highest of the runs\n\
         HARM is what is worse with control in two pairs of three: an innocent cohort loses {:.0} % more, its p99 is more \
         than {TIMES} times off's and {MORE_MS} ms above it (what is lost is later than anything), or it, or all together, \
         have less than {:.0} % of off's goodput\n\n{:<22}{:<11}{:>15}{:>13}{:>15}{:>13}{:>9}{:>8}{:>8}\n",
        phases.lead,
        phases.trouble,
        phases.after,
        LOSS * 100.0,
        GOODPUT * 100.0,
        "who",
        "control",
        "delivered/s",
        "p50 ms",
        "p99 ms",
        "lost %",
        "refused",
        "react s",
        "well s",
    )
}

/// Lowest and highest, or one figure if they are as good as equal.
pub(super) fn spread(values: &[f64]) -> String {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let word = |value: f64| match value {
        value if !value.is_finite() => "–".to_owned(),
        value if value >= 100.0 || value == 0.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    };
    let (low, high) = (word(low), word(high));
    if low == high { low } else { format!("{low}–{high}") }
}

pub(super) fn line(name: &str, broker: &str, figures: &[Figures]) -> String {
    let of = |figure: fn(&Figures) -> f64| spread(&figures.iter().map(figure).collect::<Vec<_>>());
    let reacted: Vec<f64> = figures.iter().filter_map(|figures| figures.reacted_s).collect();
    let reacted = if reacted.is_empty() { "–".to_owned() } else { spread(&reacted) };
    format!(
        "  {name:<20}{broker:<11}{:>15}{:>13}{:>15}{:>13}{:>9}{reacted:>8}{:>8}\n",
        of(|figures| figures.per_s),
        of(|figures| figures.p50_ms),
        of(|figures| figures.p99_ms),
        of(|figures| figures.loss * 100.0),
        of(|figures| figures.refused as f64),
        of(|figures| figures.recovered_s),
    )
}

/// One scenario.
pub(super) fn lines(row: &Row) -> String {
    let mut text = format!("{}: {}\n", row.scenario.name, row.scenario.about);
    for (place, cohort) in row.scenario.cohorts.iter().enumerate() {
        if row.scenario.copies(cohort) == 0 {
            continue;
        }
        let side = match cohort.side {
            Side::Innocent => "",
            Side::Guilty => " (guilty)",
            Side::Heavy => " (heavy)",
        };
        let of =
            |runs: &[Run]| -> Vec<Figures> { runs.iter().filter_map(|run| run.figures.get(place)).copied().collect() };
        text.push_str(&line(&format!("{}{side}", cohort.name), "on", &of(&row.on)));
        text.push_str(&line("", "off", &of(&row.off)));
        if let Some(peer) = &row.peer {
            text.push_str(&line("", "mosquitto", &of(std::slice::from_ref(peer))));
        }
    }
    let cores = |runs: &[Run], of: fn(&Run) -> f64| spread(&runs.iter().map(of).collect::<Vec<_>>());
    let broker = |run: &Run| run.cores.broker.unwrap_or(f64::NAN);
    let _ = writeln!(
        text,
        "  cores: broker on {}, off {}; load tool {}; others {}",
        cores(&row.on, broker),
        cores(&row.off, broker),
        cores(&row.on, |run| run.cores.tool),
        cores(&row.on, |run| run.cores.others.unwrap_or(f64::NAN)),
    );
    for harm in &row.harms {
        let _ = writeln!(text, "  HARM {harm}");
    }
    text
}

/// What it comes to.
pub(super) fn summary(rows: &[Row], desks: &[space::Row], failures: &[(&str, String)], time: Duration) -> String {
    let mut text = format!("\n{} scenarios in {:.0} s", rows.len() + desks.len(), time.as_secs_f64());
    let harms = rows.iter().map(|row| (row.scenario.name, &row.harms));
    let more = desks.iter().map(|row| (row.scenario.name, &row.harms));
    let harmed: Vec<_> = harms.chain(more).filter(|(_, harms)| !harms.is_empty()).collect();
    if harmed.is_empty() {
        text.push_str(": no HARM\n");
    } else {
        let _ = writeln!(text, ": HARM in {}", harmed.len());
    }
    for (name, harms) in &harmed {
        let words: Vec<String> = harms.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "  HARM {name}: {}", words.join("; "));
    }
    for (name, error) in failures {
        let _ = writeln!(text, "  FAILED {name}: {error}");
    }
    let others: Vec<f64> = rows.iter().flat_map(|row| &row.on).filter_map(|run| run.cores.others).collect();
    if !others.is_empty() {
        let _ = writeln!(text, "other processes used {} cores meanwhile", spread(&others));
    }
    text
}

/// The same for programs.
pub(super) fn json(rows: &[Row], desks: &[space::Row], failures: &[(&str, String)], trouble: f64) -> Value {
    let row = |row: &Row| {
        let runs = |runs: &[Run]| -> Vec<Value> { runs.iter().map(|run| run_json(row, run)).collect() };
        json!({
            "scenario": row.scenario.name,
            "about": row.scenario.about,
            "on": runs(&row.on),
            "off": runs(&row.off),
            "mosquitto": row.peer.as_ref().map(|run| run_json(row, run)),
            "harm": row.harms.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    };
    json!({
        "trouble_s": trouble,
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
        "space": desks.iter().map(space::json).collect::<Vec<_>>(),
        "failed": failures.iter().map(|(name, error)| json!({ "scenario": name, "error": error })).collect::<Vec<_>>(),
    })
}

fn run_json(row: &Row, run: &Run) -> Value {
    let cohort = |(cohort, figures): (&tidegate_sim::zoo::model::Cohort, &Figures)| {
        json!({
            "cohort": cohort.name,
            "side": format!("{:?}", cohort.side).to_lowercase(),
            "offered": figures.offered,
            "delivered": figures.delivered,
            "refused": figures.refused,
            "hints": figures.hints,
            "reordered": figures.reordered,
            "per_s": figures.per_s,
            "p50_ms": figures.p50_ms,
            "p99_ms": figures.p99_ms,
            "loss": figures.loss,
            "reacted_s": figures.reacted_s,
            "recovered_s": figures.recovered_s,
        })
    };
    json!({
        "cohorts": row.scenario.cohorts.iter().zip(&run.figures).map(cohort).collect::<Vec<_>>(),
        "cores": { "broker": run.cores.broker, "tool": run.cores.tool, "others": run.cores.others },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_told_only_where_there_is_one() {
        assert_eq!(spread(&[499.6, 499.9]), "500");
        assert_eq!(spread(&[0.21, 30.04]), "0.21–30.0");
        assert_eq!(spread(&[0.0]), "0");
    }
}
