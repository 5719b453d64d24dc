//! Results as a file that a later run of the book goes on from: `lab all --resume`.
//!
//! A line for each thing, fields between tabs. What was run is told by a hash of all settings of all cases, of seeds and
//! replications: another scenario, or another version, is run anew; fewer replications of the same are a part of it. Numbers are
//! written so that reading gives the same bits, so a book of kept results has the same bytes.

use std::fmt::{self, Write};
use std::str::FromStr;

use super::VERSION;
use super::book::Cost;
use crate::experiment::{CaseResult, Experiment};
use crate::polling::Second;
use crate::scenario::Scenario;

const HEAD: &str = "tidegate-lab results";
/// Of this layout.
const LAYOUT: u32 = 1;

/// The text of the file; none for an experiment of which no replication was finished.
pub fn kept(experiment: &Experiment, cost: &Cost) -> Option<String> {
    let key = key(&experiment.scenario, experiment.scenario.replications)?;
    if experiment.replications() == 0 {
        return None;
    }
    let mut text = format!("{HEAD}\t{LAYOUT}\t{VERSION}\t{key:016x}\n");
    let Cost { runs, events, seconds, threads, memory, .. } = cost;
    let _ = writeln!(text, "cost\t{runs}\t{events}\t{seconds}\t{threads}\t{memory}");
    for CaseResult { labels, runs, timeline, trace } in &experiment.results {
        text.push_str("case\n");
        for (axis, label) in labels {
            let _ = writeln!(text, "label\t{axis}\t{label}");
        }
        for run in runs {
            let _ = writeln!(text, "run\t{}", fields(run));
        }
        for Second { offered, useful, shed, updates, stale, backlog } in timeline {
            let _ = writeln!(text, "second\t{offered}\t{useful}\t{shed}\t{updates}\t{stale}\t{backlog}");
        }
        for (at, timeout, back_off) in trace {
            let _ = writeln!(text, "trace\t{at}\t{timeout}\t{back_off}");
        }
    }
    text.push_str("end\n");
    Some(text)
}

/// What such a file says of this scenario; none if it is of another one, of another version, or not whole.
pub fn read_kept(text: &str, scenario: &Scenario) -> Option<(Experiment, Cost)> {
    let mut lines = text.lines();
    let head = lines.next()?.strip_prefix(&format!("{HEAD}\t{LAYOUT}\t{VERSION}\t"))?;
    let hash = u64::from_str_radix(head, 16).ok()?;
    (1..=scenario.replications).rev().find(|planned| key(scenario, *planned) == Some(hash))?;
    let mut cost = lines.next()?.strip_prefix("cost\t")?.split('\t');
    let cost = Cost {
        name: scenario.name.clone(),
        runs: next(&mut cost)?,
        events: next(&mut cost)?,
        seconds: next(&mut cost)?,
        threads: next(&mut cost)?,
        memory: next(&mut cost)?,
    };
    let (mut results, mut is_whole) = (Vec::<CaseResult>::new(), false);
    for line in lines {
        let (word, rest) = line.split_once('\t').unwrap_or((line, ""));
        let mut parts = rest.split('\t');
        match (word, results.last_mut()) {
            ("case", _) => {
                let (labels, runs) = (Vec::new(), Vec::new());
                results.push(CaseResult { labels, runs, timeline: Vec::new(), trace: Vec::new() });
            }
            ("end", _) => is_whole = true,
            ("label", Some(case)) => case.labels.push((parts.next()?.to_owned(), parts.next()?.to_owned())),
            ("run", Some(case)) => case.runs.push(parts.map(str::parse).collect::<Result<_, _>>().ok()?),
            ("second", Some(case)) => case.timeline.push(Second {
                offered: next(&mut parts)?,
                useful: next(&mut parts)?,
                shed: next(&mut parts)?,
                updates: next(&mut parts)?,
                stale: next(&mut parts)?,
                backlog: next(&mut parts)?,
            }),
            ("trace", Some(case)) => {
                case.trace.push((next(&mut parts)?, next(&mut parts)?, next(&mut parts)?));
            }
            _ => return None,
        }
    }
    let metrics = scenario.metrics().len();
    let has_metrics = results.iter().flat_map(|case| &case.runs).all(|run| run.len() == metrics);
    let mut experiment = Experiment { scenario: scenario.clone(), results, complete: false };
    experiment.complete = experiment.is_enough();
    (is_whole && has_metrics).then_some((experiment, cost))
}

fn fields<T: fmt::Display>(values: &[T]) -> String {
    values.iter().map(T::to_string).collect::<Vec<_>>().join("\t")
}

fn next<'a, T: FromStr>(parts: &mut impl Iterator<Item = &'a str>) -> Option<T> {
    parts.next()?.parse().ok()
}

/// What tells two scenarios apart whose results differ. FNV-1a: it has to be the same in every build.
fn key(scenario: &Scenario, replications: u32) -> Option<u64> {
    let cases = scenario.cases().ok()?;
    let seed = scenario.seed;
    let text = format!("{seed} {replications} {cases:?}");
    Some(text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::experiment::{Options, run};

    const TEXT: &str = "question = \"?\"\nreplications = 2\n[run]\nduration = \"40s\"\nwarm_up = \"20s\"\n\
        [[vary]]\nkey = \"clients.load\"\nvalues = [0.5, 2]\n";

    fn done(text: &str) -> (Experiment, Cost) {
        let scenario = Scenario::read("t", text).unwrap();
        let stop = AtomicBool::new(false);
        let options = Options { threads: 1, stop: &stop, is_over: &|| false, progress: &|_, _| {} };
        let cost = Cost { name: "t".to_owned(), runs: 4, events: 5.5, seconds: 0.1, threads: 2, memory: 7 };
        (run(&scenario, &options).unwrap(), cost)
    }

    #[test]
    fn what_is_read_is_what_was_kept() {
        let (experiment, cost) = done(TEXT);
        let text = kept(&experiment, &cost).unwrap();
        let (again, cost_again) = read_kept(&text, &experiment.scenario).unwrap();
        assert_eq!(cost_again, cost);
        assert_eq!(crate::report::json(&again), crate::report::json(&experiment));
        assert_eq!(crate::report::timeline_csv(&again), crate::report::timeline_csv(&experiment));
        assert_eq!(kept(&again, &cost).unwrap(), text);
    }

    #[test]
    fn another_scenario_and_half_a_file_are_run_again() {
        let (experiment, cost) = done(TEXT);
        let text = kept(&experiment, &cost).unwrap();
        let mut other = experiment.scenario.clone();
        other.seed += 1;
        assert!(read_kept(&text, &other).is_none());
        let other = Scenario::read("t", &TEXT.replace("0.5", "0.6")).unwrap();
        assert!(read_kept(&text, &other).is_none());
        for cut in [0, text.len() / 3, text.len() / 2, text.len() - 5] {
            assert!(read_kept(&text[..cut], &experiment.scenario).is_none(), "{cut}");
        }
        // A part of what is planned is told from the whole.
        let planned = Scenario { replications: 9, ..experiment.scenario.clone() };
        let (part, _) = read_kept(&text, &planned).unwrap();
        assert!(!part.complete && part.replications() == 2);
        assert!(read_kept(&text, &experiment.scenario).unwrap().0.complete);
        let none = experiment.results.into_iter().map(|case| CaseResult { runs: Vec::new(), ..case }).collect();
        assert!(kept(&Experiment { results: none, ..done(TEXT).0 }, &cost).is_none(), "nothing was finished");
    }
}
