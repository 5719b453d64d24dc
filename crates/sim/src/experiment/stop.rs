//! How many replications are enough: a sequential rule.
//!
//! A scenario that asks for a precision has each of its cases run [`PRECISE_MIN`] times, and again, one by one, as long as the 95 %
//! interval of its primary metric is wider than that share of the mean, or an expectation about it is undecided; at most as often as
//! was planned. Which runs come next depends on the runs before and on nothing else, so it is the same with any number of threads.
//! Cases keep their seeds, so two that are compared are compared by those that both have.
//!
//! Whoever stops when an interval happens to be narrow is right less often than the interval says: nine times of ten in the worst
//! case instead of nineteen of twenty (a test counts it).

use super::{CaseResult, Experiment, figure};
use crate::statistics::Estimate;

/// Replications without which no interval is believed to be narrow.
pub(crate) const PRECISE_MIN: usize = 3;

/// A run that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextRun {
    pub(super) case: usize,
    pub(super) replication: usize,
}

/// Whether the interval is within this share of the mean.
fn is_narrow(estimate: Estimate, precision: f64) -> bool {
    estimate.half_width <= precision * estimate.mean.abs()
}

impl Experiment {
    /// What to run next; nothing, if there is enough.
    pub(super) fn next_runs(&self) -> Vec<NextRun> {
        let most = self.scenario.replications as usize;
        let least = if self.scenario.precision.is_some() { PRECISE_MIN.min(most) } else { most };
        let count = |case: usize| self.results[case].runs.len();
        let cases = 0..self.results.len();
        if self.replications() < least {
            // Replication by replication: what is finished early is a smaller experiment, not a part of the cases.
            let of = |replication| cases.clone().map(move |case| NextRun { case, replication });
            return (0..least).flat_map(of).filter(|next| next.replication >= count(next.case)).collect();
        }
        let Some(precision) = self.scenario.precision else { return Vec::new() };
        let undecided = self.undecided();
        let is_wanted = |case: &usize| {
            let is_wide = !is_narrow(self.estimate(&self.results[*case], &self.scenario.primary), precision);
            count(*case) < most && (is_wide || undecided.contains(case))
        };
        cases.filter(is_wanted).map(|case| NextRun { case, replication: count(case) }).collect()
    }

    /// Whether nothing more is to be run.
    pub(crate) fn is_enough(&self) -> bool {
        self.next_runs().is_empty()
    }

    /// After how many replications the rule has stopped and why; none, if all that were planned were made.
    pub fn stopped(&self) -> Option<String> {
        let precision = self.scenario.precision.filter(|_| self.complete)?;
        let most = self.scenario.replications as usize;
        let share = |result: &CaseResult| {
            let estimate = self.estimate(result, &self.scenario.primary);
            if estimate.half_width == 0.0 { 0.0 } else { estimate.half_width / estimate.mean.abs() }
        };
        let widest = |results: &[&CaseResult]| {
            let widest = results.iter().map(|result| share(result)).fold(0.0, f64::max);
            if widest.is_finite() { format!("{} %", figure(100.0 * widest)) } else { "any share".to_owned() }
        };
        let (all, stopped): (Vec<_>, Vec<_>) = self.results.iter().partition(|result| result.runs.len() >= most);
        let counts = || stopped.iter().map(|result| result.runs.len());
        let (fewest, most_of_stopped) = (counts().min()?, counts().max()?);
        let after =
            if fewest == most_of_stopped { fewest.to_string() } else { format!("{fewest} to {most_of_stopped}") };
        let wide: Vec<&CaseResult> = all.into_iter().filter(|result| share(result) > precision).collect();
        let rest = match wide.len() {
            0 => String::new(),
            1 => format!("; 1 case has all {most} and {}", widest(&wide)),
            count => format!("; {count} cases have all {most} and up to {}", widest(&wide)),
        };
        Some(format!(
            "Stopped after {after}: half-width at most {} of the mean, {} % wanted{rest}",
            widest(&stopped),
            figure(100.0 * precision)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Stream;
    use crate::scenario::Scenario;

    /// An experiment of two cases with these values of the primary metric.
    fn with(text: &str, cases: [&[f64]; 2]) -> Experiment {
        let scenario = Scenario::read("t", text).unwrap();
        let metrics = scenario.metrics();
        let run = |value: &f64| {
            metrics.iter().map(|(name, _, _)| if *name == scenario.primary { *value } else { 0.0 }).collect()
        };
        let planned = scenario.cases().unwrap();
        let result = |(case, values): (&_, &&[f64])| CaseResult {
            runs: values.iter().map(run).collect(),
            ..CaseResult::empty(case)
        };
        let results = planned.iter().zip(&cases).map(result).collect();
        Experiment { scenario, results, complete: true }
    }

    const TEXT: &str = "question = \"?\"\nreplications = 10\nprecision = \"2%\"\n\
        [[vary]]\nkey = \"clients.load\"\nvalues = [0.5, 2]\n";
    const NARROW: &[f64] = &[0.100, 0.1005, 0.0995];
    const WIDE: &[f64] = &[0.100, 0.120, 0.080];

    fn next(experiment: &Experiment) -> Vec<(usize, usize)> {
        experiment.next_runs().iter().map(|next| (next.case, next.replication)).collect()
    }

    #[test]
    fn first_every_case_has_the_least_then_only_what_is_wide_goes_on() {
        let all = [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)];
        assert_eq!(next(&with(TEXT, [&[], &[]])), all);
        assert_eq!(next(&with(TEXT, [&NARROW[..2], NARROW])), [(0, 2)], "two are too few");
        assert_eq!(next(&with(TEXT, [NARROW, WIDE])), [(1, 3)]);
        assert_eq!(next(&with(TEXT, [WIDE, NARROW])), [(0, 3)]);
        assert!(with(TEXT, [NARROW, NARROW]).is_enough());
        assert!(with(TEXT, [NARROW, &[0.1, 0.2].repeat(5)]).is_enough(), "ten were planned");
    }

    #[test]
    fn without_a_precision_all_are_run() {
        let text = TEXT.replace("precision = \"2%\"\n", "");
        assert_eq!(next(&with(&text, [NARROW, NARROW])).len(), 14);
        assert_eq!(with(&text, [&[0.1; 10], &[0.1; 10]]).stopped(), None);
    }

    #[test]
    fn an_expectation_that_is_undecided_has_its_cases_run_again() {
        let near = format!("{TEXT}[[assert]]\nmetric = \"stale\"\nwhere = {{ \"clients.load\" = 2 }}\nmax = 0.1001\n");
        assert_eq!(next(&with(&near, [NARROW, NARROW])), [(1, 3)]);
        let far = near.replace("0.1001", "0.2");
        assert!(with(&far, [NARROW, NARROW]).is_enough());
        // Of a pair the one that has fewer seeds, so that there is one more that both have.
        let pair = format!(
            "{TEXT}[[assert]]\nmetric = \"stale\"\nwhere = {{ \"clients.load\" = 2 }}\nless_than = {{ \"clients.load\" = 0.5 }}\n"
        );
        let other: &[f64] = &[0.1003, 0.0998, 0.1001];
        assert_eq!(next(&with(&pair, [other, NARROW])), [(0, 3), (1, 3)]);
        let longer = [other, &[0.1]].concat();
        assert_eq!(next(&with(&pair, [&longer, NARROW])), [(1, 3)]);
    }

    #[test]
    fn the_page_says_after_how_many_it_was_stopped_and_why() {
        let words = with(TEXT, [NARROW, NARROW]).stopped().unwrap();
        assert_eq!(words, "Stopped after 3: half-width at most 1.24 % of the mean, 2 % wanted");
        let words = with(TEXT, [NARROW, &[0.1, 0.2].repeat(5)]).stopped().unwrap();
        assert!(words.ends_with("2 % wanted; 1 case has all 10 and 25.1 %"), "{words}");
        assert_eq!(with(TEXT, [&[0.1; 10], &[0.1; 10]]).stopped(), None, "all that were planned");
    }

    /// What stopping early costs: how often the interval covers the truth.
    #[test]
    fn an_interval_that_was_stopped_covers_the_truth_nine_times_of_ten() {
        let mut stream = Stream::of(7, "stopped");
        for (spread, least) in [(0.005, 0.94), (0.01, 0.93), (0.02, 0.90), (0.028, 0.89), (0.05, 0.89)] {
            let covers = |_: &u32| {
                let mut values = Vec::new();
                loop {
                    values.push(1.0 + spread * stream.normal());
                    let estimate = Estimate::of(&values);
                    if values.len() >= 10 || (values.len() >= PRECISE_MIN && is_narrow(estimate, 0.02)) {
                        return (estimate.mean - 1.0).abs() <= estimate.half_width;
                    }
                }
            };
            let covered = (0..4000).filter(covers).count() as f64 / 4000.0;
            assert!(covered >= least, "{spread}: {covered}");
        }
    }
}
