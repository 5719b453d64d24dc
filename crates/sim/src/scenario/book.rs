//! The named scenarios that come with the program.

use super::{ConfigProblem, Scenario};

macro_rules! book {
    ($($name:literal),+ $(,)?) => {
        /// Name and text, in the order of the report.
        pub const BOOK: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../scenarios/", $name, ".toml")))),+];
    };
}

book![
    "goals-200",
    "goals-1000",
    "e1-overload",
    "e1-brokers",
    "e1-tenfold",
    "e2-burst",
    "e2-scale",
    "e3-dip",
    "e3-gate",
    "e3-triggers",
    "e4-slides",
    "e5-flapping",
    "e6-heterogeneity",
    "e7-loss",
    "e8-detectors",
    "e8-false-alarms",
    "e9-scale",
    "e9-million",
    "e10-cooperation",
    "shedding",
    "denial-cost",
    "baselines",
    "baselines-dip",
    "ablation",
    "smoothing",
    "sensitivity",
    "sensitivity-client",
    "theory",
    "theory-overload",
    "trace",
    "p1-uplink",
    "p1-workloads",
    "p3-priority",
    "p4-attack",
    "p5-jitter",
    "coap-loss",
];

/// A scenario of the book by its name.
pub fn named(name: &str) -> Option<Result<Scenario, Vec<ConfigProblem>>> {
    let (name, text) = BOOK.iter().find(|(known, _)| *known == name)?;
    Some(Scenario::read(name, text))
}
