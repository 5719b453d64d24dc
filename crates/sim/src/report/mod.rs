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
mod summary;
pub mod svg;

pub use book::{Cost, book, pages};
pub use figures::{Figure, figures};
pub use kept::{kept, read_kept};
pub use page::{html, table};
pub use summary::{csv, json, timeline_csv};

use crate::experiment::{Experiment, figure};

/// The version that is written into everything.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Where the numbers come from, in one line.
pub fn caption(experiment: &Experiment) -> String {
    let Experiment { scenario, .. } = experiment;
    let replications = experiment.replications();
    let seeds = match replications {
        0 | 1 => format!("seed {}", scenario.seed),
        count => format!("seeds {}–{}", scenario.seed, scenario.seed + count as u64 - 1),
    };
    let interval = if replications > 1 { ", bars are 95 % intervals" } else { "" };
    let quick = if scenario.quick { ", QUICK LOOK: few replications, a third of the measured time" } else { "" };
    let partial = match (experiment.complete, scenario.precision) {
        (false, _) => ", fewer than planned".to_owned(),
        (true, Some(precision)) if replications < scenario.replications as usize => {
            format!(" (enough: intervals within {} % of the mean, expectations decided)", figure(100.0 * precision))
        }
        _ => String::new(),
    };
    let word = if replications == 1 { "replication" } else { "replications" };
    format!("{}, tidegate {VERSION}, {seeds}, {replications} {word}{interval}{quick}{partial}", scenario.name)
}
