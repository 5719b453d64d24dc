use std::sync::atomic::AtomicBool;

use super::*;

const TEXT: &str = "question = \"?\"\nreplications = 3\n[run]\nduration = \"40s\"\nwarm_up = \"20s\"\n\
    [[vary]]\nkey = \"clients.load\"\nvalues = [0.5, 2]\n\
    [[assert]]\nsays = \"more load, more stale\"\nmetric = \"stale\"\nwhere = { \"clients.load\" = 2 }\n\
    more_than = { \"clients.load\" = 0.5 }\n\
    [[assert]]\nmetric = \"offered\"\nmax = 0.1\n";

fn quiet(threads: usize, stop: &AtomicBool) -> Experiment {
    let scenario = Scenario::read("t", TEXT).unwrap();
    run(&scenario, &Options { threads, stop, is_over: &|| false, progress: &|_, _| {} }).unwrap()
}

#[test]
fn threads_do_not_change_the_result_and_expectations_are_judged() {
    let stop = AtomicBool::new(false);
    let (one, three) = (quiet(1, &stop), quiet(3, &stop));
    for (one, three) in one.results.iter().zip(&three.results) {
        assert_eq!(one.runs, three.runs);
    }
    assert!(one.complete && one.replications() == 3);
    let verdicts = one.verdicts();
    assert!(verdicts[0].holds, "{verdicts:?}");
    assert!(!verdicts[1].holds, "{verdicts:?}");
    assert!(one.verdict().starts_with("1 of 2 expectations hold; missed: offered."), "{}", one.verdict());
}

#[test]
fn a_stopped_experiment_is_valid_and_says_so() {
    let experiment = quiet(1, &AtomicBool::new(true));
    assert!(!experiment.complete);
    assert_eq!(experiment.verdict(), "Nothing was finished.");
}

#[test]
fn an_experiment_whose_time_is_over_has_the_least_replications() {
    let scenario = Scenario::read("t", TEXT).unwrap();
    let stop = AtomicBool::new(false);
    let options = Options { threads: 2, stop: &stop, is_over: &|| true, progress: &|_, _| {} };
    let experiment = run(&scenario, &options).unwrap();
    assert!(!experiment.complete && experiment.replications() == REPLICATIONS_MIN);
    assert!(experiment.verdict().ends_with("fewer replications than planned."), "{}", experiment.verdict());
}

#[test]
fn figures_are_short() {
    for (value, text) in [(0.0, "0"), (12.0, "12"), (0.10849, "0.108"), (29400.4, "29400"), (0.000123, "1.2e-4")] {
        assert_eq!(figure(value), text);
    }
}

/// Two loads, and a precision that one of them has after the least number of runs.
fn sequential(threads: usize, before: Vec<CaseResult>, replications: u32) -> Experiment {
    let text = TEXT.replace("replications = 3", &format!("replications = {replications}\nprecision = \"10%\""));
    let scenario = Scenario::read("t", &text).unwrap();
    let stop = AtomicBool::new(false);
    run_on(&scenario, before, &Options { threads, stop: &stop, is_over: &|| false, progress: &|_, _| {} }).unwrap()
}

#[test]
fn the_rule_that_stops_does_not_depend_on_threads_and_keeps_the_seeds() {
    let all = quiet(1, &AtomicBool::new(false));
    let (one, three) = (sequential(1, Vec::new(), 8), sequential(3, Vec::new(), 8));
    assert!(one.complete && one.replications_most() > one.replications(), "{:?}", counts(&one));
    for ((one, three), all) in one.results.iter().zip(&three.results).zip(&all.results) {
        assert_eq!(one.runs, three.runs);
        assert_eq!(one.runs[..3], all.runs, "what is run first is what is run without the rule");
    }
    assert!(one.verdict().contains("Stopped after"), "{}", one.verdict());
}

#[test]
fn what_was_run_before_is_not_run_again() {
    let whole = sequential(2, Vec::new(), 8);
    let mut part = whole.results.clone();
    for result in &mut part {
        result.runs.truncate(2);
    }
    let continued = sequential(2, part, 8);
    assert_eq!(counts(&continued), counts(&whole));
    for (one, other) in continued.results.iter().zip(&whole.results) {
        assert_eq!(one.runs, other.runs);
        assert_eq!(one.timeline.len(), other.timeline.len());
    }
    // A mark in what was there shows that it was kept; what is of other cases is not.
    let mut marked = whole.results.clone();
    marked[0].runs[0][0] = -1.0;
    assert_eq!(sequential(1, marked.clone(), 8).results[0].runs[0][0].to_bits(), (-1.0_f64).to_bits());
    marked[0].labels.clear();
    assert_eq!(sequential(1, marked, 8).results[0].runs, whole.results[0].runs);
}

fn counts(experiment: &Experiment) -> Vec<usize> {
    experiment.results.iter().map(|result| result.runs.len()).collect()
}

/// A mean of what is so or not has no interval where it was always so: the count says what is known.
#[test]
fn what_has_to_be_so_in_each_run_is_counted() {
    let text = TEXT.replace("\"offered\"\nmax = 0.1", "\"recovered\"\nmin = 1");
    let scenario = Scenario::read("t", &text).unwrap();
    let at = scenario.metrics().iter().position(|(name, _, _)| *name == "recovered").unwrap();
    let with = |values: &[f64]| {
        let run = |value: &f64| {
            let mut run = vec![0.0; scenario.metrics().len()];
            run[at] = *value;
            run
        };
        let mut experiment = quiet(1, &AtomicBool::new(true));
        experiment.scenario = scenario.clone();
        for result in &mut experiment.results {
            result.runs = values.iter().map(run).collect();
        }
        experiment.verdicts()[1].clone()
    };
    let all = with(&[1.0; 3]);
    assert!(all.holds && all.found == "6 of 6 runs, so with 95 % confidence at least 60.7 % of all", "{all:?}");
    let part = with(&[1.0; 2]);
    assert!(part.is_open && part.found.ends_with("; 6 were planned"), "{part:?}");
    let one = with(&[1.0, 1.0, 0.0]);
    assert!(one.word() == "missed" && one.found.starts_with("4 of 6 runs; not in each of: load 0.5"), "{one:?}");
}
