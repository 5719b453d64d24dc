//! What is written about an experiment: `summary.json`, CSV, figures, one page of HTML, and the chapter of the manual.
//!
//! Everything is a text made of an [`Experiment`]; files are the caller's business. The texts depend on the results
//! only, not on the clock or the machine, so the same seed and version give the same bytes.

mod before;
mod book;
mod figures;
mod goals;
mod kept;
mod page;
mod redrawn;
mod summary;
pub mod svg;

pub use book::{Cost, book, pages};
pub use figures::{Figure, figures};
pub use kept::{kept, read_kept};
pub use page::{html, table};
pub use redrawn::redrawn;
pub use summary::{csv, json, timeline_csv};

use crate::experiment::Experiment;

/// The version that is written into everything.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Where the numbers come from, in one line.
pub fn caption(experiment: &Experiment) -> String {
    let Experiment { scenario, .. } = experiment;
    let (replications, most) = (experiment.replications(), experiment.replications_most());
    let seeds = match most {
        0 | 1 => format!("seed {}", scenario.seed),
        count => format!("seeds {}–{}", scenario.seed, scenario.seed + count as u64 - 1),
    };
    let interval = if replications > 1 { ", bars are 95 % intervals" } else { "" };
    let quick = if scenario.quick { ", QUICK LOOK: few replications, a third of the measured time" } else { "" };
    let partial = if experiment.complete { "" } else { ", fewer than planned" };
    // After how many, and why, is in the verdict: below a figure there is no room for it.
    let enough = if experiment.stopped().is_some() { " (enough)" } else { "" };
    let count = if most > replications { format!("{replications} to {most}") } else { replications.to_string() };
    let word = if most == 1 { "replication" } else { "replications" };
    format!("{}, tidegate {VERSION}, {seeds}, {count} {word}{enough}{interval}{quick}{partial}", scenario.name)
}
