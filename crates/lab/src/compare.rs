//! `tidegate lab compare`: two results of the same cases, metric by metric.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tidegate_program::say;
use tidegate_sim::experiment::{figure, with_interval};
use tidegate_sim::statistics::Estimate;

/// Metrics of which more is better; of all others less is.
const MORE_IS_BETTER: &[&str] = &["goodput", "jain", "recovered", "after_attack_passed"];

pub(super) fn run(first: &Path, second: &Path) -> Result<u8> {
    let (before, after) = (read(first)?, read(second)?);
    let primary = before["primary"].as_str().unwrap_or_default().to_owned();
    let seed = |value: &Value| value["seed"].as_u64().unwrap_or(0);
    let (from, to) = (seed(&before), seed(&after));
    let (mut worse, mut compared, mut unknown, mut unknown_bounds) = (0, 0, 0, 0);
    let common = |old: &[f64], new: &[f64]| Common::of((from, old.len()), (to, new.len()));
    let replications =
        |value: &Value| value["replications"].as_u64().and_then(|it| usize::try_from(it).ok()).unwrap_or(0);
    let paired = Common::of((from, replications(&before)), (to, replications(&after))).count;
    let how = match paired {
        0 => "unpaired: they have no seed in common".to_owned(),
        1 => "paired by 1 common seed: too few to tell a difference from chance".to_owned(),
        count => format!("paired by seed, at least {count} common ones"),
    };
    say!("{} against {}, {how}", first.display(), second.display());
    for case in list(&before, "cases") {
        let Some(other) = list(&after, "cases").iter().find(|other| other["labels"] == case["labels"]) else {
            continue;
        };
        compared += 1;
        let labels = case["labels"].as_object();
        let name: Vec<&str> = labels.into_iter().flat_map(|labels| labels.values()).filter_map(Value::as_str).collect();
        for (metric, value) in case["metrics"].as_object().into_iter().flatten() {
            let (old, new) = (runs(value), runs(&other["metrics"][metric]));
            let bounds = [is_bound(value), is_bound(&other["metrics"][metric])];
            if bounds == [true, true] {
                unknown_bounds += u32::from(metric == &primary);
                continue;
            }
            let Some(change) = difference(&old, &new, common(&old, &new)) else {
                let (old, new) = (Estimate::of(&old).mean, Estimate::of(&new).mean);
                if metric == &primary && old != new {
                    unknown += 1;
                    say!("{}: {metric} {} -> {}, not judged", name.join(", "), figure(old), figure(new));
                }
                continue;
            };
            if !change.is_significant() {
                continue;
            }
            let is_better = (change.mean > 0.0) == MORE_IS_BETTER.contains(&metric.as_str());
            let mark = if metric != &primary {
                ""
            } else if is_better {
                "  better"
            } else {
                "  WORSE"
            };
            worse += u32::from(metric == &primary && !is_better);
            say!(
                "{}: {metric} {} -> {}, by {}{mark}",
                name.join(", "),
                bounded(Estimate::of(&old).mean, bounds[0]),
                bounded(Estimate::of(&new).mean, bounds[1]),
                with_interval(change)
            );
        }
    }
    if compared == 0 {
        bail!("the two have no case in common");
    }
    let not_judged = match unknown {
        0 => String::new(),
        count => format!("; {count} differ and were not judged: at least two replications are needed"),
    };
    let not_known = match unknown_bounds {
        0 => String::new(),
        count => format!("; {count} not judged, because the runs of both ended before the value was known"),
    };
    say!("{compared} cases compared; {worse} worse in {primary}{not_judged}{not_known}");
    Ok(if worse > 0 { super::MISSED } else { 0 })
}

fn read(path: &Path) -> Result<Value> {
    let file = if path.is_dir() { path.join("summary.json") } else { path.to_owned() };
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no summary of an experiment", file.display()))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn runs(metric: &Value) -> Vec<f64> {
    list(metric, "runs").iter().filter_map(Value::as_f64).collect()
}

/// Whether runs ended before the value was known, so that the mean is a lower bound.
fn is_bound(metric: &Value) -> bool {
    metric["is_lower_bound"] == true
}

fn bounded(mean: f64, is_bound: bool) -> String {
    if is_bound { format!("> {}", figure(mean)) } else { figure(mean) }
}

/// The replications that two results share, which begin with these seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Common {
    /// Where they begin in either.
    old: usize,
    new: usize,
    count: usize,
}

impl Common {
    fn of((from, old): (u64, usize), (to, new): (u64, usize)) -> Self {
        let first = from.max(to);
        let skipped = |seed: u64, count: usize| usize::try_from(first - seed).unwrap_or(usize::MAX).min(count);
        let (skip_old, skip_new) = (skipped(from, old), skipped(to, new));
        Self { old: skip_old, new: skip_new, count: (old - skip_old).min(new - skip_new) }
    }
}

/// After less before, with its interval: by what they share, if that is enough.
fn difference(old: &[f64], new: &[f64], common: Common) -> Option<Estimate> {
    if old.len() < 2 || new.len() < 2 {
        return None;
    }
    let Common { old: skip_old, new: skip_new, count } = common;
    if count >= 2 {
        return Some(Estimate::of_difference(&new[skip_new..skip_new + count], &old[skip_old..skip_old + count]));
    }
    let (before, after) = (Estimate::of(old), Estimate::of(new));
    let half_width = before.half_width.hypot(after.half_width);
    Some(Estimate { mean: after.mean - before.mean, half_width, count: old.len().min(new.len()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_see_what_means_alone_do_not() {
        let old: Vec<f64> = (0..10).map(f64::from).collect();
        let new: Vec<f64> = old.iter().enumerate().map(|(n, value)| value + 0.5 + 0.01 * n as f64).collect();
        let (all, none) = (Common { old: 0, new: 0, count: 10 }, Common { old: 10, new: 10, count: 0 });
        assert!(difference(&old, &new, all).unwrap().is_significant());
        assert!(!difference(&old, &new, none).unwrap().is_significant());
        assert!(difference(&[1.0], &new, all).is_none());
    }

    #[test]
    fn seeds_that_both_have_are_compared() {
        assert_eq!(Common::of((1, 10), (1, 4)), Common { old: 0, new: 0, count: 4 });
        assert_eq!(Common::of((1, 10), (8, 10)), Common { old: 7, new: 0, count: 3 });
        assert_eq!(Common::of((30, 2), (1, 10)), Common { old: 0, new: 10, count: 0 });
    }
}
