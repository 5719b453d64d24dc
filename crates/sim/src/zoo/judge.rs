//! Whether control does harm: the same scenario with it and without it, cohort by cohort.
//!
//! On is worse than off if innocents lose more than one in a hundred more, if the latency that 99 of 100 of their messages
//! do not exceed (a lost message exceeds all) is more than twice off's and 20 ms above it, or if fewer than 95 of 100 are
//! delivered; and if all cohorts together get less than 95 % of what they get with control off while the trouble lasts.

use std::fmt;

use super::model::{Scenario, Side};
use super::tally::Figures;

/// Loss that may be more.
pub const LOSS: f64 = 0.01;
/// Latency may be so many times that of off.
pub const TIMES: f64 = 2.0;
/// And so much more.
pub const MORE_MS: f64 = 20.0;
/// Goodput must be this share of off's.
pub const GOODPUT: f64 = 0.95;

/// Which figure is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// Messages that were not delivered, as a share.
    Loss,
    /// Latency, in milliseconds.
    P99,
    /// Messages a second.
    Goodput,
}

/// Where on is worse than off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Harm {
    /// Whose; `all` is all together.
    pub cohort: &'static str,
    /// Which figure.
    pub figure: Figure,
    /// With control.
    pub on: f64,
    /// Without.
    pub off: f64,
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cohort, figure, on, off } = *self;
        match figure {
            Figure::Loss => write!(f, "{cohort}: {:.1} % lost, off {:.1} %", on * 100.0, off * 100.0),
            Figure::P99 if on.is_infinite() => write!(f, "{cohort}: p99 beyond the end, off {off:.1} ms"),
            Figure::P99 => write!(f, "{cohort}: p99 {on:.1} ms, off {off:.1} ms"),
            Figure::Goodput => write!(f, "{cohort}: {on:.1}/s, off {off:.1}/s"),
        }
    }
}

/// What is worse with control than without, in one pair of runs.
pub fn harms(scenario: &Scenario, on: &[Figures], off: &[Figures]) -> Vec<Harm> {
    let mut found = Vec::new();
    for ((cohort, on), off) in scenario.cohorts.iter().zip(on).zip(off) {
        if cohort.side != Side::Innocent || scenario.copies(cohort) == 0 {
            continue;
        }
        found.extend(worse(cohort.name, on, off));
    }
    let (all_on, all_off) = (Figures::together(on), Figures::together(off));
    // What arrives while the trouble lasts: a flood that waits in queues until it is over is no goodput.
    let (on, off) = (all_on.arrived_per_s, all_off.arrived_per_s);
    if on < off * GOODPUT {
        found.push(Harm { cohort: "all", figure: Figure::Goodput, on, off });
    }
    found
}

/// What is worse with control for one innocent cohort.
pub fn worse(cohort: &'static str, on: &Figures, off: &Figures) -> Vec<Harm> {
    let mut found = Vec::new();
    let mut add = |figure, on, off| found.push(Harm { cohort, figure, on, off });
    if on.loss > off.loss + LOSS {
        add(Figure::Loss, on.loss, off.loss);
    }
    if on.honest_p99_ms > (off.honest_p99_ms * TIMES).max(off.honest_p99_ms + MORE_MS) {
        add(Figure::P99, on.honest_p99_ms, off.honest_p99_ms);
    }
    if on.per_s < off.per_s * GOODPUT {
        add(Figure::Goodput, on.per_s, off.per_s);
    }
    found
}

/// What is worse in more than half of the pairs, and in two at least: chance harms once.
pub fn standing(pairs: &[Vec<Harm>]) -> Vec<Harm> {
    let mut standing: Vec<Harm> = Vec::new();
    let is_same = |a: &Harm, b: &Harm| (a.cohort, a.figure) == (b.cohort, b.figure);
    for harm in pairs.iter().flatten() {
        let count = pairs.iter().filter(|pair| pair.iter().any(|other| is_same(harm, other))).count();
        if count >= 2 && 2 * count > pairs.len() && !standing.iter().any(|known| is_same(harm, known)) {
            standing.push(*harm);
        }
    }
    standing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zoo::model::{CALM, DEVICE, FLOODER};

    const SCENARIO: Scenario = Scenario { cohorts: &[DEVICE, FLOODER], ..CALM };

    fn figures(loss: f64, p99_ms: f64, per_s: f64) -> Figures {
        Figures { loss, p99_ms, honest_p99_ms: p99_ms, per_s, arrived_per_s: per_s, ..Figures::default() }
    }

    #[test]
    fn only_innocents_count_and_only_beyond_the_margin() {
        let off = [figures(0.0, 5.0, 100.0), figures(0.0, 5.0, 0.0)];
        let harmed = |on: Figures| harms(&SCENARIO, &[on, figures(0.9, 9e9, 0.0)], &off);
        assert_eq!(harmed(figures(0.01, 25.0, 95.0)), []);
        assert_eq!(harmed(figures(0.02, 5.0, 100.0))[0].figure, Figure::Loss);
        assert_eq!(harmed(figures(0.0, 26.0, 100.0))[0].figure, Figure::P99);
        let fewer = harmed(figures(0.0, 5.0, 94.0));
        assert_eq!(fewer.iter().map(|harm| harm.cohort).collect::<Vec<_>>(), ["device", "all"]);
        assert_eq!(harmed(figures(0.0, f64::INFINITY, 100.0))[0].to_string(), "device: p99 beyond the end, off 5.0 ms");
    }

    #[test]
    fn what_happens_once_is_chance() {
        let harm = Harm { cohort: "device", figure: Figure::Loss, on: 0.5, off: 0.0 };
        let other = Harm { figure: Figure::P99, ..harm };
        assert_eq!(standing(&[vec![harm], vec![other]]), []);
        assert_eq!(standing(&[vec![harm], vec![other], vec![harm]]), [harm]);
        assert_eq!(standing(&[vec![harm]]), []);
    }
}
