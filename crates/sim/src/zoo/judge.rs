//! Whether control does harm: the same scenario with it and without it, cohort by cohort.
//!
//! On is worse than off if innocents lose more, if the latency that 99 of 100 of their messages do not exceed (a lost
//! message exceeds all) is longer, or if they have less goodput, each beyond a tolerance; if all cohorts together have less
//! goodput; and if anybody is refused later than five seconds after the trouble. The goodput of an innocent cohort is what
//! was delivered of what was due, that of all together what arrived from the beginning of the trouble to the end, whenever it
//! was due. Who sends as fast as it is answered has nothing that is due: of it counts what arrived while the trouble lasted, or a
//! broker that takes in what it will deliver later would win.
//!
//! Every figure has a *margin*: how far beyond its limit it is, in its own measure. One pair of runs says little on sockets; what
//! several say together is in `verdict`.

use std::fmt;

use super::model::{CohortSide, During, ZooScenario};
use super::tally::Figures;

/// How much worse is no harm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Loss that may be more.
    pub loss: f64,
    /// Latency may be so many times that of off...
    pub times: f64,
    /// ...or so much more, whichever is later.
    pub more_ms: f64,
    /// Goodput must be this share of off's.
    pub goodput: f64,
    /// A delivery may cost so many times the processor time.
    pub cpu: f64,
}

/// In virtual time there is no noise: a few turns of the loop, and one message in two hundred, because whoever is served in
/// another order meets full queues at other moments.
pub const VIRTUAL: Tolerance = Tolerance { loss: 0.005, times: 1.1, more_ms: 5.0, goodput: 0.95, cpu: 1.05 };
/// On sockets two runs of the same broker differ by so much on a machine of two cores.
pub const SOCKETS: Tolerance = Tolerance { loss: 0.01, times: 1.5, more_ms: 20.0, goodput: 0.95, cpu: 1.05 };
/// After the trouble refusals end within this time.
pub const REFUSED_S: f64 = 5.0;
/// A ratio counts as this much at most: e to the power of it.
const MARGIN_MAX: f64 = 5.0;

/// Which figure is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HarmFigure {
    /// Messages that were not delivered, as a share.
    Loss,
    /// Latency, in milliseconds.
    P99,
    /// Messages a second.
    Goodput,
    /// Seconds from the end of the trouble to the last refusal.
    Refused,
    /// The broker's processor time for a delivery, in microseconds.
    Cpu,
}

/// One figure of one pair of runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Whose; `all` is all together.
    pub cohort: &'static str,
    pub figure: HarmFigure,
    /// With control.
    pub on: f64,
    /// Without.
    pub off: f64,
}

impl Comparison {
    /// How far beyond its limit the figure is with control, and below zero how far from it: for ratios the logarithm.
    pub fn margin(&self, tolerance: &Tolerance) -> f64 {
        let Self { figure, on, off, .. } = *self;
        match figure {
            HarmFigure::Loss => on - (off + tolerance.loss),
            HarmFigure::P99 => beyond(on, (off * tolerance.times).max(off + tolerance.more_ms)),
            HarmFigure::Goodput => beyond(off * tolerance.goodput, on),
            HarmFigure::Refused => on - REFUSED_S,
            HarmFigure::Cpu => beyond(on, off * tolerance.cpu),
        }
    }
}

/// By what power of e a value is beyond its limit.
fn beyond(value: f64, limit: f64) -> f64 {
    // Also where both are nothing, or later than anything.
    if value == limit { 0.0 } else { (value / limit).ln().clamp(-MARGIN_MAX, MARGIN_MAX) }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cohort, figure, on, off } = *self;
        match figure {
            HarmFigure::Loss => write!(f, "{cohort}: {:.1} % lost, off {:.1} %", on * 100.0, off * 100.0),
            HarmFigure::P99 if on.is_infinite() => write!(f, "{cohort}: p99 beyond the end, off {off:.1} ms"),
            HarmFigure::P99 => write!(f, "{cohort}: p99 {on:.1} ms, off {off:.1} ms"),
            HarmFigure::Goodput => write!(f, "{cohort}: {on:.1}/s, off {off:.1}/s"),
            HarmFigure::Refused => write!(f, "{cohort}: refused {on:.1} s after the trouble"),
            HarmFigure::Cpu => write!(f, "{cohort}: {on:.3} µs of CPU for a delivery, off {off:.3} µs"),
        }
    }
}

/// What is worse with control than without, in one pair of runs.
pub fn harms(scenario: &ZooScenario, on: &[Figures], off: &[Figures], tolerance: &Tolerance) -> Vec<Comparison> {
    let mut found = compare(scenario, on, off);
    found.retain(|comparison| comparison.margin(tolerance) > 0.0);
    found
}

/// Everything that is compared in one pair of runs.
pub fn compare(scenario: &ZooScenario, on: &[Figures], off: &[Figures]) -> Vec<Comparison> {
    let mut found = Vec::new();
    for ((cohort, on), off) in scenario.cohorts.iter().zip(on).zip(off) {
        if cohort.side == CohortSide::Innocent && scenario.copies(cohort) > 0 {
            found.extend(compare_cohort(cohort.name, on, off));
        } else {
            found.push(refused(cohort.name, on, off));
        }
    }
    let (on, off) = (goodput(scenario, on), goodput(scenario, off));
    found.push(Comparison { cohort: "all", figure: HarmFigure::Goodput, on, off });
    found
}

/// All cohorts together.
fn goodput(scenario: &ZooScenario, figures: &[Figures]) -> f64 {
    let of = |(cohort, figures): (&super::model::Cohort, &Figures)| match cohort.during {
        During::Full => figures.arrived_per_s,
        _ => figures.goodput_per_s,
    };
    scenario.cohorts.iter().zip(figures).map(of).sum()
}

/// What is compared of one innocent cohort.
pub fn compare_cohort(cohort: &'static str, on: &Figures, off: &Figures) -> [Comparison; 4] {
    let of = |figure, on, off| Comparison { cohort, figure, on, off };
    [
        of(HarmFigure::Loss, on.loss, off.loss),
        of(HarmFigure::P99, on.honest_p99_ms, off.honest_p99_ms),
        of(HarmFigure::Goodput, on.per_s, off.per_s),
        refused(cohort, on, off),
    ]
}

fn refused(cohort: &'static str, on: &Figures, off: &Figures) -> Comparison {
    Comparison { cohort, figure: HarmFigure::Refused, on: on.refused_s, off: off.refused_s }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zoo::model::{CALM, DEVICE, FLOODER};

    const SCENARIO: ZooScenario = ZooScenario { cohorts: &[DEVICE, FLOODER], ..CALM };

    fn figures(loss: f64, p99_ms: f64, per_s: f64) -> Figures {
        Figures { loss, p99_ms, honest_p99_ms: p99_ms, per_s, goodput_per_s: per_s, ..Figures::default() }
    }

    #[test]
    fn only_innocents_count_and_only_beyond_the_margin() {
        let off = [figures(0.0, 5.0, 100.0), figures(0.0, 5.0, 0.0)];
        let harmed = |on: Figures| harms(&SCENARIO, &[on, figures(0.9, 9e9, 0.0)], &off, &SOCKETS);
        assert_eq!(harmed(figures(0.01, 25.0, 95.0)), []);
        assert_eq!(harmed(figures(0.02, 5.0, 100.0))[0].figure, HarmFigure::Loss);
        assert_eq!(harmed(figures(0.0, 26.0, 100.0))[0].figure, HarmFigure::P99);
        let fewer = harmed(figures(0.0, 5.0, 94.0));
        assert_eq!(fewer.iter().map(|harm| harm.cohort).collect::<Vec<_>>(), ["device", "all"]);
        assert_eq!(harmed(figures(0.0, f64::INFINITY, 100.0))[0].to_string(), "device: p99 beyond the end, off 5.0 ms");
    }

    #[test]
    fn nobody_is_refused_for_long_the_guilty_included() {
        let off = [figures(0.0, 5.0, 100.0); 2];
        let late = Figures { refused_s: 5.1, ..figures(0.0, 5.0, 100.0) };
        for (on, whose) in [([late, off[1]], "device"), ([off[0], late], "flooder")] {
            let found = harms(&SCENARIO, &on, &off, &SOCKETS);
            assert_eq!(found.len(), 1);
            assert_eq!((found[0].cohort, found[0].figure), (whose, HarmFigure::Refused));
        }
    }

    #[test]
    fn what_is_nothing_or_endless_with_and_without_is_the_same() {
        for (figure, value) in [(HarmFigure::P99, f64::INFINITY), (HarmFigure::Goodput, 0.0)] {
            let same = Comparison { cohort: "device", figure, on: value, off: value };
            assert_eq!(same.margin(&SOCKETS), 0.0);
        }
        let cost = |on| Comparison { cohort: "all", figure: HarmFigure::Cpu, on, off: 1.0 }.margin(&SOCKETS);
        assert!(cost(1.06) > 0.0 && cost(1.04) < 0.0);
    }
}
