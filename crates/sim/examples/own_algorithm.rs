//! An algorithm of your own against those that are there.

use std::sync::atomic::AtomicBool;

use tidegate_sim::chance::Stream;
use tidegate_sim::experiment::{self, Experiment, Options};
use tidegate_sim::polling::{CheckEnd, Own, OwnAlgorithm};
use tidegate_sim::report;
use tidegate_sim::scenario::Scenario;

/// The algorithm: the interval doubles when a check fails, and goes back by a tenth with each answer.
struct Doubling {
    regular: f64,
    interval: f64,
}

impl OwnAlgorithm for Doubling {
    fn next_check(&mut self, ended: CheckEnd, chance: &mut Stream) -> f64 {
        self.interval = match ended {
            CheckEnd::Answered { .. } => (0.9 * self.interval).max(self.regular),
            CheckEnd::Refused { .. } | CheckEnd::TimedOut => (2.0 * self.interval).min(20.0 * self.regular),
        };
        self.interval * (0.8 + 0.4 * chance.unit())
    }
}

/// The scenario: three times as many clients as the host can answer. `[[assert]]` is what you expect.
const SCENARIO: &str = r#"
run = { duration = "300s", warm_up = "150s" }
clients = { load = 3 }
broker = { preset = "deny-100ms" }
variant = [
    { name = "fixed", "clients.algorithm" = "fixed" },
    { name = "doubling", "clients.algorithm" = "doubling" },
    { name = "as shipped", "clients.algorithm" = "session", "broker.preset" = "product" },
]
[[assert]]
says = "doubling asks less for each answer than a fixed interval"
metric = "requests_per_answer"
where = { variant = "doubling" }
less_than = { variant = "fixed" }
"#;

/// The comparison: the same seeds for all, so that differences are paired.
pub(crate) fn compare(replications: u32) -> Result<Experiment, String> {
    let own = Own {
        name: "doubling",
        make: |world| Box::new(Doubling { regular: world.clients.interval, interval: world.clients.interval }),
    };
    let scenario = Scenario::read_with("own", SCENARIO, own).map_err(|problems| format!("{problems:?}"))?;
    let stop = AtomicBool::new(false);
    let options = Options { threads: 2, stop: &stop, is_over: &|| false, progress: &|_, _| {} };
    experiment::run(&Scenario { replications, ..scenario }, &options)
}

fn main() -> Result<(), String> {
    let experiment = compare(10)?;
    println!("{}\n{}", report::table(&experiment), experiment.verdict());
    Ok(())
}
