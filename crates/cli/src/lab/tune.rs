//! `tidegate lab tune`: searches the pacer's parameters for a deployment that `--set` describes.
//!
//! Coordinate by coordinate: for each parameter the candidates are run with common seeds, and the best one is kept if it
//! is better than what ships by more than the noise. Two rounds are enough; the surface is flat around the defaults.

use anyhow::{Context, Result};
use tidegate_sim::experiment::{Experiment, with_interval};
use tidegate_sim::scenario::{Axis, Scenario, Setting, Value};
use tidegate_sim::statistics::Estimate;

use crate::arguments::HowArgs;
use crate::stop::Stop;
use crate::target::Usage;

/// Keys, the candidates, and the name in the client's configuration.
const PARAMETERS: &[(&str, &[&str], &str)] = &[
    ("clients.step", &["shipped", "100ms", "500ms", "1s", "2s", "5s"], "ast.step"),
    ("clients.alpha", &["2", "1.25", "1.5", "3"], "ast.alpha"),
    ("clients.beta", &["2", "1.5", "3", "4"], "back_off.beta"),
    ("clients.recovery", &["0.02", "0.005", "0.01", "0.05", "0.1"], "back_off.recovery"),
    ("clients.jitter", &["20%", "5%", "10%", "40%"], "jitter"),
    ("broker.queue_delay", &["500ms", "100ms", "200ms", "1s"], "delay_max"),
];
const ROUNDS: usize = 2;
const DEPLOYMENT: &str = "question = \"Which parameters fit this deployment?\"\nreplications = 5\n\
    [clients]\nstep = \"shipped\"\n[broker]\npreset = \"advised\"\n";

pub(super) fn run(how: &HowArgs) -> Result<u8> {
    let mut base = Scenario::read("tune", DEPLOYMENT).map_err(|problems| anyhow::anyhow!("{problems:?}"))?;
    super::configure(&mut base, how).context(Usage)?;
    let stop = Stop::on_signals()?;
    let mut chosen: Vec<usize> = vec![0; PARAMETERS.len()];
    for _ in 0..ROUNDS {
        let before = chosen.clone();
        for (number, (key, candidates, _)) in PARAMETERS.iter().enumerate() {
            let mut scenario = base.clone();
            for (other, (path, values, _)) in PARAMETERS.iter().enumerate().filter(|(other, _)| *other != number) {
                scenario.settings.push(setting(path, values[chosen[other]]));
            }
            let points = candidates.iter().map(|value| ((*value).to_owned(), vec![setting(key, value)]));
            scenario.axes = vec![Axis { name: (*key).to_owned(), points: points.collect() }];
            (*key).clone_into(&mut scenario.name);
            let experiment = super::perform(&scenario, how, &stop)?;
            if stop.is_wanted() {
                anyhow::bail!("stopped");
            }
            chosen[number] = better(&experiment, chosen[number]);
        }
        if chosen == before {
            break;
        }
    }
    println!("# for this deployment (mean share of stale copies; what is marked ships)");
    for ((_, values, name), choice) in PARAMETERS.iter().zip(&chosen) {
        let mark = if *choice == 0 { "  # ships" } else { "" };
        println!("{name} = \"{}\"{mark}", values[*choice]);
    }
    Ok(0)
}

fn setting(path: &str, value: &str) -> Setting {
    Setting { path: path.to_owned(), value: Value::from_argument(value), line: 0 }
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
