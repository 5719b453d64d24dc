//! `tidegate lab compare`: two results of the same cases, metric by metric.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tidegate_sim::experiment::{figure, with_interval};
use tidegate_sim::statistics::Estimate;

/// Metrics of which more is better; of all others less is.
const MORE_IS_BETTER: &[&str] = &["goodput", "jain", "recovered", "after_attack_passed"];

pub(super) fn run(first: &Path, second: &Path) -> Result<u8> {
    let (before, after) = (read(first)?, read(second)?);
    let primary = before["primary"].as_str().unwrap_or_default().to_owned();
    let paired = before["seed"] == after["seed"];
    println!(
        "{} against {}, {}",
        first.display(),
        second.display(),
        if paired { "paired by seed" } else { "unpaired" }
    );
    let (mut worse, mut compared) = (0, 0);
    for case in list(&before, "cases") {
        let Some(other) = list(&after, "cases").iter().find(|other| other["labels"] == case["labels"]) else {
            continue;
        };
        compared += 1;
        let labels = case["labels"].as_object();
        let name: Vec<&str> = labels.into_iter().flat_map(|labels| labels.values()).filter_map(Value::as_str).collect();
        for (metric, value) in case["metrics"].as_object().into_iter().flatten() {
            let (old, new) = (runs(value), runs(&other["metrics"][metric]));
            let Some(change) = difference(&old, &new, paired) else { continue };
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
            println!(
                "{}: {metric} {} -> {}, by {}{mark}",
                name.join(", "),
                figure(Estimate::of(&old).mean),
                figure(Estimate::of(&new).mean),
                with_interval(change)
            );
        }
    }
    if compared == 0 {
        bail!("the two have no case in common");
    }
    println!("{compared} cases compared; {worse} worse in {primary}");
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

/// After less before, with its interval.
fn difference(old: &[f64], new: &[f64], paired: bool) -> Option<Estimate> {
    if old.len() < 2 || new.len() < 2 {
        return None;
    }
    if paired && old.len() == new.len() {
        return Some(Estimate::of_difference(new, old));
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
        assert!(difference(&old, &new, true).unwrap().is_significant());
        assert!(!difference(&old, &new, false).unwrap().is_significant());
        assert!(difference(&[1.0], &new, true).is_none());
    }
}
