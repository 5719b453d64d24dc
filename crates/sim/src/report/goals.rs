//! The table of goals: every expectation whose words begin with the number of a goal, and what was found.

use std::fmt::Write;

use super::book::Cost;
use crate::experiment::Experiment;
use crate::polling::{BYTES_PER_CLIENT, BYTES_PER_SESSION};

/// One line of the table.
struct Row {
    goal: u32,
    wanted: String,
    found: String,
    /// How it stands; none where it is not judged here.
    word: Option<&'static str>,
}

/// The table, in Markdown.
pub(super) fn table(experiments: &[Experiment], costs: &[Cost]) -> String {
    let mut rows: Vec<Row> = experiments.iter().flat_map(of_experiment).collect();
    rows.push(Row {
        goal: 9,
        wanted: "cost of the control in the broker".to_owned(),
        found: "needs the real broker: see [benchmarks.md](benchmarks.md)".to_owned(),
        word: None,
    });
    rows.push(Row {
        goal: 10,
        wanted: format!("at most {CLIENT_BYTES_WANTED} bytes per client (one million in 400 MB: {MILLION_BYTES_MAX})"),
        found: format!(
            "{BYTES_PER_CLIENT} bytes of state and events with a pacer alone, {BYTES_PER_SESSION} with a session"
        ),
        word: Some(if BYTES_PER_SESSION <= CLIENT_BYTES_WANTED { "holds" } else { "missed" }),
    });
    rows.extend(costs.iter().filter(|cost| cost.name == MILLION).flat_map(of_million));
    rows.sort_by_key(|row| row.goal);
    let mut text = "| goal | wanted | found, worst case | |\n| --- | --- | --- | --- |\n".to_owned();
    for Row { goal, wanted, found, word } in rows {
        let word = match word {
            Some("holds") => "met",
            Some("open") => "*open*",
            Some(_) => "**missed**",
            None => "",
        };
        let _ = writeln!(text, "| G{goal} | {wanted} | {found} | {word} |");
    }
    text.trim_end().to_owned()
}

/// The experiment that is about time and memory.
const MILLION: &str = "e9-million";
const CLIENT_BYTES_WANTED: u64 = 200;
const MILLION_BYTES_MAX: u64 = 400;
const MILLION_SECONDS_MAX: f64 = 600.0;
const MILLION_MEMORY_MAX: u64 = 2_000_000_000;

fn of_million(cost: &Cost) -> [Row; 2] {
    let runs = cost.runs.max(1) as f64;
    let seconds = cost.seconds * cost.threads.min(cost.runs).max(1) as f64 / runs;
    let memory = Row {
        goal: 10,
        wanted: "restated, because what ships is a session and not a pacer alone: a million clients in 2 GB".to_owned(),
        found: format!("{} MB", cost.memory / 1_000_000),
        word: Some(if cost.memory <= MILLION_MEMORY_MAX { "holds" } else { "missed" }),
    };
    let time = Row {
        goal: 10,
        wanted: "a million clients for 600 s in at most 10 min on one core".to_owned(),
        found: format!("{:.0} s a run, {:.2} M events/s, {} MB", seconds, cost.rate() / 1e6, cost.memory / 1_000_000),
        word: Some(if seconds <= MILLION_SECONDS_MAX { "holds" } else { "missed" }),
    };
    [time, memory]
}

fn of_experiment(experiment: &Experiment) -> Vec<Row> {
    if experiment.replications() == 0 {
        return Vec::new();
    }
    let rows = experiment.verdicts().into_iter().filter_map(|verdict| {
        let goal = number(&verdict.says)?;
        let wanted = verdict.says.trim_start_matches('G').trim_start_matches(|c: char| c.is_ascii_digit());
        let wanted = format!("{} (`{}`)", wanted.trim_start_matches([':', ' ']), experiment.scenario.name);
        let word = Some(verdict.word());
        Some(Row { goal, wanted, found: verdict.found, word })
    });
    rows.collect()
}

/// 4 of "G4: …".
fn number(says: &str) -> Option<u32> {
    let digits = says.strip_prefix('G')?;
    let end = digits.find(|c: char| !c.is_ascii_digit())?;
    digits[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_has_a_number() {
        assert_eq!(number("G10: fast"), Some(10));
        assert_eq!(number("G2 advised: stale"), Some(2));
        assert_eq!(number("Good"), None);
        assert_eq!(number("and so on"), None);
    }

    #[test]
    fn goals_that_need_no_experiment_are_in_the_table_and_in_order() {
        let cost =
            Cost { name: MILLION.to_owned(), runs: 1, events: 6e8, seconds: 300.0, threads: 2, memory: 350_000_000 };
        let table = table(&[], &[cost]);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[2].starts_with("| G9 |"), "{table}");
        assert!(table.contains("300 s a run, 2.00 M events/s, 350 MB | met"), "{table}");
    }
}
