//! `tidegate lab tune`: searches the pacer's parameters for a deployment that `--set` describes.
//!
//! Coordinate by coordinate: for each parameter the candidates are run with common seeds, and the best one is kept if it
//! is better than what ships by more than the noise. Two rounds are enough; the surface is flat around the defaults.

use std::fmt::Write;

use anyhow::{Context, Result};
use tidegate_sim::experiment::{Experiment, with_interval};
use tidegate_sim::scenario::{Axis, ConfigEntry, Scenario};
use tidegate_sim::statistics::Estimate;

use crate::arguments::HowArgs;
use tidegate_program::{Stop, Usage, out};

/// A key of the scenario, its candidates with what ships first, and where it is pasted: a field of `PacerConfig` with `{}` for the value,
/// or nothing for what is set at the broker.
const PARAMETERS: &[(&str, &[&str], &str)] = &[
    (
        "clients.step",
        &["shipped", "100ms", "500ms", "1s", "2s", "5s"],
        "ast.step = Step::Fixed(Duration::from_millis({}))",
    ),
    ("clients.alpha", &["2", "1.25", "1.5", "3"], "ast.alpha = {}"),
    ("clients.beta", &["2", "1.5", "3", "4"], "back_off.beta = {}"),
    ("clients.recovery", &["0.02", "0.005", "0.01", "0.05", "0.1"], "back_off.recovery = {}"),
    ("clients.jitter", &["20%", "5%", "10%", "40%"], "jitter = {}"),
    ("broker.queue_delay", &["100ms", "50ms", "200ms", "500ms", "1s"], ""),
];
const ROUNDS: usize = 2;
const DEPLOYMENT: &str = "question = \"Which parameters fit this deployment?\"\nreplications = 5\n\
    [clients]\nstep = \"shipped\"\n[broker]\npreset = \"product\"\n";

pub(super) fn run(how: &HowArgs) -> Result<u8> {
    let mut base = Scenario::read("tune", DEPLOYMENT).map_err(|problems| anyhow::anyhow!("{problems:?}"))?;
    super::configure(&mut base, how).context(Usage)?;
    let stop = Stop::on_signals()?;
    let mut chosen: Vec<usize> = vec![0; PARAMETERS.len()];
    let mut found = [None, None];
    for _ in 0..ROUNDS {
        let before = chosen.clone();
        for (number, (key, candidates, _)) in PARAMETERS.iter().enumerate() {
            // What the deployment fixes is not searched.
            if base.settings.iter().any(|setting| setting.origin.position() == (0, 0) && setting.path == *key) {
                continue;
            }
            let mut scenario = base.clone();
            for (other, (path, values, _)) in PARAMETERS.iter().enumerate() {
                if other != number && chosen[other] != 0 {
                    scenario.settings.push(setting(path, values[chosen[other]]));
                }
            }
            let points = candidates.iter().map(|value| ((*value).to_owned(), vec![setting(key, value)]));
            scenario.axes = vec![Axis { name: (*key).to_owned(), points: points.collect() }];
            (*key).clone_into(&mut scenario.name);
            let experiment = super::perform(&scenario, Vec::new(), how, &stop, None)?;
            if stop.is_wanted() {
                anyhow::bail!("stopped");
            }
            chosen[number] = better(&experiment, chosen[number]);
            let stale = |at: usize| experiment.estimate(&experiment.results[at], "stale");
            found = [found[0].or(Some(stale(0))), Some(stale(chosen[number]))];
        }
        if chosen == before {
            break;
        }
    }
    out(&paste(&chosen, found));
    Ok(0)
}

/// What to paste, and what it is worth.
fn paste(chosen: &[usize], found: [Option<Estimate>; 2]) -> String {
    let mut text = String::new();
    if let [Some(ships), Some(best)] = found {
        let _ = writeln!(
            text,
            "// stale copies: {} with this, {} with what ships",
            with_interval(best),
            with_interval(ships)
        );
    }
    text.push_str("let mut pacer = PacerConfig::default();\n");
    let mut again = String::new();
    for ((key, values, field), choice) in PARAMETERS.iter().zip(chosen).filter(|(_, choice)| **choice != 0) {
        let value = values[*choice];
        let _ = write!(again, " --set {key}={value}");
        if field.is_empty() {
            let _ = writeln!(text, "// at the broker: {key} = {value}");
        } else {
            let _ = writeln!(text, "pacer.{};", field.replace("{}", &literal(value)));
        }
    }
    let is_default = chosen.iter().all(|choice| *choice == 0);
    let _ = writeln!(
        text,
        "{}",
        if is_default { "// nothing is better than what ships".to_owned() } else { format!("// to see it:{again}") }
    );
    text
}

/// A value as Rust has it: milliseconds of a time, a share of a percentage.
fn literal(value: &str) -> String {
    let number = |text: &str, factor: f64| text.parse::<f64>().map(|number| number * factor).unwrap_or_default();
    if let Some(text) = value.strip_suffix("ms") {
        return number(text, 1.0).to_string();
    }
    if let Some(text) = value.strip_suffix('s') {
        return number(text, 1000.0).to_string();
    }
    format!("{:?}", value.strip_suffix('%').map_or_else(|| number(value, 1.0), |text| number(text, 0.01)))
}

fn setting(path: &str, value: &str) -> ConfigEntry {
    ConfigEntry::flag("--set", path, value)
}

/// The best candidate, if it is really better than the present one.
fn better(experiment: &Experiment, present: usize) -> usize {
    let stale = |at: usize| experiment.values(&experiment.results[at], "stale");
    let mut best = present;
    for candidate in 0..experiment.results.len() {
        let change = Estimate::of_difference(&stale(candidate), &stale(best));
        if change.mean < 0.0 && change.is_significant() {
            best = candidate;
        }
    }
    let found = experiment.estimate(&experiment.results[best], "stale");
    eprintln!("  {}: stale {}", experiment.results[best].name(), with_interval(found));
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pasted_is_rust() {
        let text = paste(&[3, 1, 0, 4, 2, 1], [None, None]);
        assert_eq!(
            text,
            "let mut pacer = PacerConfig::default();\n\
             pacer.ast.step = Step::Fixed(Duration::from_millis(1000));\n\
             pacer.ast.alpha = 1.25;\n\
             pacer.back_off.recovery = 0.1;\n\
             pacer.jitter = 0.1;\n\
             // at the broker: broker.queue_delay = 50ms\n\
             // to see it: --set clients.step=1s --set clients.alpha=1.25 --set clients.recovery=0.1 \
             --set clients.jitter=10% --set broker.queue_delay=50ms\n"
        );
        assert!(paste(&[0; 6], [None, None]).ends_with("nothing is better than what ships\n"));
    }
}
