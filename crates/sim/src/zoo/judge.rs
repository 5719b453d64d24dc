//! Whether control does harm: the same scenario with it and without it, cohort by cohort.
//!
//! On is worse than off if innocents lose more, if the latency that 99 of 100 of their messages do not exceed (a lost
//! message exceeds all) is longer, or if they have less goodput, each beyond a tolerance; if all cohorts together have less
//! goodput; and if anybody is refused later than five seconds after the trouble. The goodput of an innocent cohort is what
//! was delivered of what was due, that of all together what arrived from the beginning of the trouble to the end, whenever it
//! was due. Who sends as fast as it is answered has nothing that is due: of it counts what arrived while the trouble lasted, or a
//! broker that takes in what it will deliver later would win.

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
}

/// In virtual time there is no noise: a few turns of the loop, and one message in two hundred, because whoever is served in
/// another order meets full queues at other moments.
pub const VIRTUAL: Tolerance = Tolerance { loss: 0.005, times: 1.1, more_ms: 5.0, goodput: 0.95 };
/// On sockets two runs of the same broker differ by so much on a machine of two cores.
pub const SOCKETS: Tolerance = Tolerance { loss: 0.01, times: 1.5, more_ms: 20.0, goodput: 0.95 };
/// After the trouble refusals end within this time.
pub const REFUSED_S: f64 = 5.0;

/// Which figure is worse.
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
}

/// Where on is worse than off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Harm {
    /// Whose; `all` is all together.
    pub cohort: &'static str,
    pub figure: HarmFigure,
    /// With control.
    pub on: f64,
    /// Without.
    pub off: f64,
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cohort, figure, on, off } = *self;
        match figure {
            HarmFigure::Loss => write!(f, "{cohort}: {:.1} % lost, off {:.1} %", on * 100.0, off * 100.0),
            HarmFigure::P99 if on.is_infinite() => write!(f, "{cohort}: p99 beyond the end, off {off:.1} ms"),
            HarmFigure::P99 => write!(f, "{cohort}: p99 {on:.1} ms, off {off:.1} ms"),
            HarmFigure::Goodput => write!(f, "{cohort}: {on:.1}/s, off {off:.1}/s"),
            HarmFigure::Refused => write!(f, "{cohort}: refused {on:.1} s after the trouble"),
        }
    }
}

/// What is worse with control than without, in one pair of runs.
pub fn harms(scenario: &ZooScenario, on: &[Figures], off: &[Figures], tolerance: &Tolerance) -> Vec<Harm> {
    let mut found = Vec::new();
    for ((cohort, on), off) in scenario.cohorts.iter().zip(on).zip(off) {
        if cohort.side == CohortSide::Innocent && scenario.copies(cohort) > 0 {
            found.extend(worse(cohort.name, on, off, tolerance));
        } else if on.refused_s > REFUSED_S {
            found.push(Harm { cohort: cohort.name, figure: HarmFigure::Refused, on: on.refused_s, off: off.refused_s });
        }
    }
    let (on, off) = (goodput(scenario, on), goodput(scenario, off));
    if on < off * tolerance.goodput {
        found.push(Harm { cohort: "all", figure: HarmFigure::Goodput, on, off });
    }
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

/// What is worse with control for one innocent cohort.
pub fn worse(cohort: &'static str, on: &Figures, off: &Figures, tolerance: &Tolerance) -> Vec<Harm> {
    let mut found = Vec::new();
    let mut add = |figure, on, off| found.push(Harm { cohort, figure, on, off });
    if on.loss > off.loss + tolerance.loss {
        add(HarmFigure::Loss, on.loss, off.loss);
    }
    if on.honest_p99_ms > (off.honest_p99_ms * tolerance.times).max(off.honest_p99_ms + tolerance.more_ms) {
        add(HarmFigure::P99, on.honest_p99_ms, off.honest_p99_ms);
    }
    if on.per_s < off.per_s * tolerance.goodput {
        add(HarmFigure::Goodput, on.per_s, off.per_s);
    }
    if on.refused_s > REFUSED_S {
        add(HarmFigure::Refused, on.refused_s, off.refused_s);
    }
    found
}

/// What several pairs of runs say together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HarmVerdict {
    /// How many pairs there were.
    pub pairs: usize,
    /// What is worse in more than half of them, and in two at least, and in how many: chance harms once.
    pub harms: Vec<(Harm, usize)>,
    /// What was worse in fewer.
    pub chance: Vec<(Harm, usize)>,
}

impl HarmVerdict {
    /// From what was worse in each pair.
    pub fn of(pairs: &[Vec<Harm>]) -> Self {
        let mut verdict = Self { pairs: pairs.len(), ..Self::default() };
        let is_same = |a: &Harm, b: &Harm| (a.cohort, a.figure) == (b.cohort, b.figure);
        let mut seen: Vec<Harm> = Vec::new();
        for harm in pairs.iter().flatten() {
            if seen.iter().any(|known| is_same(known, harm)) {
                continue;
            }
            seen.push(*harm);
            let times = pairs.iter().filter(|pair| pair.iter().any(|other| is_same(harm, other))).count();
            let stands = times >= 2 && 2 * times > pairs.len();
            let list = if stands { &mut verdict.harms } else { &mut verdict.chance };
            list.push((*harm, times));
        }
        verdict
    }
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
    fn what_happens_once_is_chance() {
        let harm = Harm { cohort: "device", figure: HarmFigure::Loss, on: 0.5, off: 0.0 };
        let other = Harm { figure: HarmFigure::P99, ..harm };
        let harms = |pairs: &[Vec<Harm>]| HarmVerdict::of(pairs).harms;
        assert_eq!(harms(&[vec![harm], vec![other]]), []);
        assert_eq!(harms(&[vec![harm]]), []);
        let verdict = HarmVerdict::of(&[vec![harm], vec![other], vec![harm]]);
        assert_eq!(verdict, HarmVerdict { pairs: 3, harms: vec![(harm, 2)], chance: vec![(other, 1)] });
    }
}
