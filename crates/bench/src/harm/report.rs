//! What `bench harm` says: a line for each cohort and broker, the spread of its runs, and the word HARM.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_sim::zoo::judge::{REFUSED_S, SOCKETS, Tolerance};
use tidegate_sim::zoo::model::CohortSide;
use tidegate_sim::zoo::tally::Figures;
use tidegate_sim::zoo::verdict::{Finding, HarmVerdict, PAIRS_MAX};

use super::plan::HarmPlan;
use super::{COSTS, HarmRow, HarmRun, space};
use crate::peers;
use crate::process::BrokerSource;

/// What is compared, by which rule, and how long it will take.
pub(super) fn head(plan: &HarmPlan, peer: Option<&BrokerSource>) -> String {
    let beside = match peer {
        Some(peer) => format!("beside {}", peers::version(peer)),
        None => "beside nobody (mosquitto is missing or not wanted: --peer)".to_owned(),
    };
    let Tolerance { loss, times, more_ms, goodput, cpu } = SOCKETS;
    format!(
        "control on (default settings) and off, each on a fresh broker; {beside}\n\
         {}\n\
         {:.1} s of trouble, half of it where there is nothing to recover from; figures from the trouble on. Clients that have \
         been there for long are known to the broker from its store, strangers are not\n\
         HARM: an innocent cohort loses {:.0} % more, its p99 is more than {times} times off's and {more_ms} ms above it (what \
         is lost is later than anything), it, or all together, have less than {:.0} % of off's goodput, anybody is \
         refused {REFUSED_S} s after the trouble, or a delivery costs more than {cpu} times off's CPU ({}). Noise: what is \
         worse once is run twice more, in turns; what is then worse twice until it is sure on which side of its limit the \
         middle of all pairs is, in {PAIRS_MAX} pairs at most; lowest–highest of the runs are shown\n\n\
         {:<22}{:<11}{:>15}{:>13}{:>15}{:>13}{:>12}{:>12}{:>12}\n",
        plan.words(usize::from(peer.is_some())),
        plan.secs,
        loss * 100.0,
        goodput * 100.0,
        COSTS.join(", "),
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

/// What is HARM, and what was worse by chance.
pub(super) fn verdict(verdict: &HarmVerdict) -> String {
    let mut text = String::new();
    for finding in &verdict.harms {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "  HARM {}", words(finding, verdict.pairs));
    }
    for finding in &verdict.chance {
        let _ = writeln!(text, "  by chance: {}", words(finding, verdict.pairs));
    }
    text
}

/// A figure, how often it was worse, and where its middle is.
fn words(finding: &Finding, pairs: usize) -> String {
    let mut text = format!("{} (worse in {} of {pairs} pairs", finding.typical, finding.worse);
    if let Some([low, middle, high]) = finding.ratios(&SOCKETS) {
        let _ = write!(text, "; {middle:.3} of off's in the middle");
        if finding.interval.is_some() {
            let _ = write!(text, ", {low:.3} to {high:.3}");
        }
    }
    text.push(')');
    text
}

/// Findings as JSON.
pub(super) fn findings(list: &[Finding]) -> Vec<Value> {
    let one = |finding: &Finding| {
        json!({
            "what": finding.typical.to_string(),
            "pairs": finding.worse,
            "of_off": finding.ratios(&SOCKETS).map(|[_, middle, _]| middle),
            "interval": finding.interval.and(finding.ratios(&SOCKETS)).map(|[low, _, high]| [low, high]),
        })
    };
    list.iter().map(one).collect()
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
        "  {name:<20}{broker:<11}{:>15}{:>13}{:>15}{:>13}{:>12}{reacted:>12}{:>12}\n",
        of(|figures| figures.per_s),
        of(|figures| figures.p50_ms),
        of(|figures| figures.p99_ms),
        of(|figures| figures.loss * 100.0),
        of(|figures| figures.refused as f64),
        of(|figures| figures.recovered_s),
    )
}

/// One scenario.
pub(super) fn lines(row: &HarmRow) -> String {
    let known = if row.known > 0 { format!(" [{} known]", row.known) } else { String::new() };
    let mut text = format!("{}: {}{known}\n", row.scenario.name, row.scenario.about);
    for (place, cohort) in row.scenario.cohorts.iter().enumerate() {
        if row.scenario.copies(cohort) == 0 {
            continue;
        }
        let side = match cohort.side {
            CohortSide::Innocent => "",
            CohortSide::Guilty => " (guilty)",
            CohortSide::Heavy => " (heavy)",
        };
        let of = |runs: &[HarmRun]| -> Vec<Figures> {
            runs.iter().filter_map(|run| run.figures.get(place)).copied().collect()
        };
        text.push_str(&line(&format!("{}{side}", cohort.name), "on", &of(&row.on)));
        text.push_str(&line("", "off", &of(&row.off)));
        if let Some(Ok(peer)) = &row.peer {
            text.push_str(&line("", "mosquitto", &of(std::slice::from_ref(peer))));
        }
    }
    let cores = |runs: &[HarmRun], of: fn(&HarmRun) -> f64| spread(&runs.iter().map(of).collect::<Vec<_>>());
    let broker = |run: &HarmRun| run.cores.broker.unwrap_or(f64::NAN);
    let _ = writeln!(
        text,
        "  cores: broker on {}, off {}; load tool {}; others {}",
        cores(&row.on, broker),
        cores(&row.off, broker),
        cores(&row.on, |run| run.cores.tool),
        cores(&row.on, |run| run.cores.others.unwrap_or(f64::NAN)),
    );
    if COSTS.contains(&row.scenario.name) {
        let (on, off) = (cores(&row.on, |run| run.cpu_us), cores(&row.off, |run| run.cpu_us));
        let _ = writeln!(text, "  CPU for a delivery: {on} µs on, {off} µs off");
    }
    if let Some(Err(why)) = &row.peer {
        let _ = writeln!(text, "  SKIPPED mosquitto: {why}");
    }
    text.push_str(&verdict(&row.verdict));
    text
}

/// The last lines of the report: how many scenarios were harmed, and which.
pub(super) fn summary(
    rows: &[HarmRow],
    desks: &[space::SpaceRow],
    failures: &[(&str, String)],
    time: Duration,
) -> String {
    let mut text = format!("\n{} scenarios in {:.0} s", rows.len() + desks.len(), time.as_secs_f64());
    let verdicts = rows.iter().map(|row| (row.scenario.name, &row.verdict));
    let more = desks.iter().map(|row| (row.scenario.name, &row.verdict));
    let all: Vec<_> = verdicts.chain(more).collect();
    let harmed: Vec<_> = all.iter().filter(|(_, verdict)| !verdict.harms.is_empty()).collect();
    let again = all.iter().filter(|(_, verdict)| verdict.pairs > 1).count();
    if harmed.is_empty() {
        text.push_str(": no HARM\n");
    } else {
        let _ = writeln!(text, ": HARM in {}", harmed.len());
    }
    for (name, verdict) in &harmed {
        let all: Vec<String> = verdict.harms.iter().map(|finding| words(finding, verdict.pairs)).collect();
        let _ = writeln!(text, "  HARM {name}: {}", all.join("; "));
    }
    if again > 0 {
        let _ = writeln!(text, "{again} looked bad in the first pair of runs, and were run again");
    }
    let skipped = rows.iter().filter(|row| matches!(row.peer, Some(Err(_)))).count();
    if skipped > 0 {
        let _ = writeln!(text, "SKIPPED beside mosquitto in {skipped} scenarios");
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

/// The report as JSON.
pub(super) fn json(rows: &[HarmRow], desks: &[space::SpaceRow], failures: &[(&str, String)], trouble: f64) -> Value {
    let row = |row: &HarmRow| {
        let runs = |runs: &[HarmRun]| -> Vec<Value> { runs.iter().map(|run| run_json(row, run)).collect() };
        json!({
            "scenario": row.scenario.name,
            "about": row.scenario.about,
            "on": runs(&row.on),
            "off": runs(&row.off),
            "known": row.known,
            "mosquitto": row.peer.as_ref().and_then(|run| Some(run_json(row, run.as_ref().ok()?))),
            "skipped": row.peer.as_ref().and_then(|run| run.as_ref().err()),
            "pairs": row.verdict.pairs,
            "harm": findings(&row.verdict.harms),
            "by_chance": findings(&row.verdict.chance),
        })
    };
    json!({
        "trouble_s": trouble,
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
        "space": desks.iter().map(space::json).collect::<Vec<_>>(),
        "failed": failures.iter().map(|(name, error)| json!({ "scenario": name, "error": error })).collect::<Vec<_>>(),
    })
}

fn run_json(row: &HarmRow, run: &HarmRun) -> Value {
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
            "refused_s": figures.refused_s,
        })
    };
    json!({
        "cohorts": row.scenario.cohorts.iter().zip(&run.figures).map(cohort).collect::<Vec<_>>(),
        "cores": { "broker": run.cores.broker, "tool": run.cores.tool, "others": run.cores.others },
        "cpu_us": run.cpu_us,
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
