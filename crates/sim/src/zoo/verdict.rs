//! What several pairs of runs say together: on sockets the same broker differs from itself by more than the limits of the
//! judge, so that one pair cannot tell.
//!
//! The margins of a figure in all pairs have a *middle*, the median of the means of every two of them (Hodges and Lehmann),
//! and an *interval* around it, by the signed ranks of Wilcoxon: each end is missed in at most one of twenty. Both ask nothing
//! of how runs are scattered but that they are so evenly around the middle, and one run beside a compiler moves them little.
//!
//! One pair is enough where nothing is beyond its limit or near it. Else there are three; if nothing is worse in two of them,
//! nor beyond its limit in the middle of them, that was chance. Else there are as many as it takes until the interval is on one side of the limit, five to nine: HARM is
//! what is beyond its limit in the middle. That the interval is looked at after each pair makes it somewhat surer of
//! itself than one of twenty says.

use super::judge::{Comparison, HarmFigure, Tolerance};

/// Pairs of runs of a row, at most.
pub const PAIRS_MAX: usize = 9;
/// Pairs after which what was worse once is chance.
const PAIRS_CHANCE: usize = 3;
/// Pairs that an interval needs...
const PAIRS_SURE: usize = 5;
/// ...and how many of the means of two are left out at each end of it, for so many pairs and each one more.
const LEFT_OUT: [usize; PAIRS_MAX - PAIRS_SURE + 1] = [0, 2, 3, 5, 8];
/// Goodput within this of its limit (98 % of off's) is looked at more than once.
const NEAR: f64 = 0.03;

/// One figure in all pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// The pair in the middle by its margin.
    pub typical: Comparison,
    /// Pairs in which it is beyond its limit.
    pub worse: usize,
    /// The middle of its margins.
    pub middle: f64,
    /// Where the middle is likely to be if there were many more; none if there are too few.
    pub interval: Option<(f64, f64)>,
}

impl Finding {
    fn of(pairs: &[Vec<Comparison>], place: usize, tolerance: &Tolerance) -> Option<Self> {
        let mut seen: Vec<(f64, Comparison)> = Vec::with_capacity(pairs.len());
        for pair in pairs {
            let comparison = *pair.get(place)?;
            seen.push((comparison.margin(tolerance), comparison));
        }
        seen.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (_, typical) = *seen.get(seen.len() / 2)?;
        let worse = seen.iter().filter(|(margin, _)| *margin > 0.0).count();
        let mut means: Vec<f64> = Vec::with_capacity(seen.len() * (seen.len() + 1) / 2);
        for (index, (one, _)) in seen.iter().enumerate() {
            means.extend(seen[index..].iter().map(|(other, _)| (one + other) / 2.0));
        }
        means.sort_by(f64::total_cmp);
        let last = means.len() - 1;
        let middle = f64::midpoint(means[last / 2], means[last - last / 2]);
        let left_out = seen.len().checked_sub(PAIRS_SURE).and_then(|more| LEFT_OUT.get(more));
        let interval = left_out.map(|left_out| (means[*left_out], means[last - left_out]));
        Some(Self { typical, worse, middle, interval })
    }

    /// Beyond its limit once, or near it.
    fn is_suspect(&self) -> bool {
        self.worse > 0 || (self.typical.figure == HarmFigure::Goodput && self.middle > -NEAR)
    }

    /// Worse more than once, or in the middle, and it is not said yet on which side of the limit it is.
    fn is_undecided(&self) -> bool {
        (self.worse > 1 || self.middle > 0.0) && self.interval.is_none_or(|(low, high)| low <= 0.0 && high >= 0.0)
    }

    /// What is left of off's goodput, or comes to its cost: the middle and both ends, smallest first. None of other figures.
    pub fn ratios(&self, tolerance: &Tolerance) -> Option<[f64; 3]> {
        let (low, high) = self.interval.unwrap_or((self.middle, self.middle));
        match self.typical.figure {
            HarmFigure::Goodput => Some([high, self.middle, low].map(|margin| tolerance.goodput * (-margin).exp())),
            HarmFigure::Cpu => Some([low, self.middle, high].map(|margin| tolerance.cpu * margin.exp())),
            _ => None,
        }
    }
}

/// Every figure that all pairs have.
pub fn findings(pairs: &[Vec<Comparison>], tolerance: &Tolerance) -> Vec<Finding> {
    let figures = pairs.first().map_or(0, Vec::len);
    (0..figures).filter_map(|place| Finding::of(pairs, place, tolerance)).collect()
}

/// Whether another pair is to be run.
pub fn is_open(pairs: &[Vec<Comparison>], tolerance: &Tolerance) -> bool {
    let is_any = |what: fn(&Finding) -> bool| findings(pairs, tolerance).iter().any(what);
    match pairs.len() {
        0 => true,
        1 => is_any(Finding::is_suspect),
        few if few < PAIRS_CHANCE => true,
        many => many < PAIRS_MAX && is_any(Finding::is_undecided),
    }
}

/// What all pairs say of a scenario.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HarmVerdict {
    /// How many pairs there were.
    pub pairs: usize,
    /// What is beyond its limit.
    pub harms: Vec<Finding>,
    /// What was in some pair, and is not.
    pub chance: Vec<Finding>,
}

impl HarmVerdict {
    /// From all that was compared in each pair.
    pub fn of(pairs: &[Vec<Comparison>], tolerance: &Tolerance) -> Self {
        let bad = findings(pairs, tolerance).into_iter().filter(|finding| finding.worse > 0);
        let (harms, chance) = bad.partition(|finding| finding.middle > 0.0);
        Self { pairs: pairs.len(), harms, chance }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::judge::SOCKETS;
    use super::*;

    /// Pairs in which control has this part of off's goodput.
    fn pairs(ratios: &[f64]) -> Vec<Vec<Comparison>> {
        let pair = |on: &f64| vec![Comparison { cohort: "all", figure: HarmFigure::Goodput, on: *on, off: 1.0 }];
        ratios.iter().map(pair).collect()
    }

    /// How many pairs are run of those that there would be, and whether that is HARM.
    fn judged(ratios: &[f64]) -> (usize, bool) {
        let all = pairs(ratios);
        let mut run = 0;
        while is_open(&all[..run], &SOCKETS) {
            run += 1;
        }
        (run, !HarmVerdict::of(&all[..run], &SOCKETS).harms.is_empty())
    }

    #[test]
    fn one_pair_is_enough_where_nothing_is_near_a_limit() {
        assert_eq!(judged(&[1.0; PAIRS_MAX]), (1, false));
        assert_eq!(judged(&[0.99; PAIRS_MAX]), (1, false));
    }

    #[test]
    fn what_happens_once_in_three_pairs_is_chance() {
        assert_eq!(judged(&[0.9, 1.0, 1.0, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8]), (3, false));
        assert_eq!(judged(&[0.96, 1.0, 1.0, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8]), (3, false), "near it, and not worse again");
        let verdict = HarmVerdict::of(&pairs(&[0.9, 1.0, 1.0]), &SOCKETS);
        assert_eq!((verdict.harms.len(), verdict.chance.len(), verdict.chance[0].worse), (0, 1, 1));
    }

    #[test]
    fn what_is_worse_once_but_beyond_the_limit_in_the_middle_is_run_on() {
        assert!(HarmVerdict::of(&pairs(&[0.5, 1.0, 1.0]), &SOCKETS).chance.is_empty(), "the middle decides");
        let (run, is_harm) = judged(&[0.5, 1.0, 1.0, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8]);
        assert!(run > PAIRS_CHANCE && is_harm, "{run}");
        let (run, is_harm) = judged(&[0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
        assert!(run > PAIRS_CHANCE && !is_harm, "{run}");
    }

    #[test]
    fn what_is_worse_each_time_is_harm_after_five() {
        assert_eq!(judged(&[0.94; PAIRS_MAX]), (5, true));
        let verdict = HarmVerdict::of(&pairs(&[0.80, 0.90, 0.85, 0.88, 0.82]), &SOCKETS);
        let [low, middle, high] = verdict.harms[0].ratios(&SOCKETS).unwrap();
        assert!((low - 0.80).abs() < 1e-9 && (high - 0.90).abs() < 1e-9 && (0.84..0.86).contains(&middle));
        assert!((verdict.harms[0].typical.on - 0.85).abs() < 1e-9, "the pair in the middle is the one that is told of");
    }

    #[test]
    fn near_the_limit_there_are_more_pairs_and_the_middle_decides() {
        let scattered = [0.80, 1.10, 0.90, 1.05, 1.10, 0.92, 1.08, 1.02, 1.06];
        assert_eq!(judged(&scattered), (9, false));
        let below = [0.80, 1.00, 0.90, 0.98, 0.92, 0.97, 0.91, 0.96, 0.90];
        assert_eq!(judged(&below), (9, true));
    }

    /// The middle and the interval as they are defined, with nothing sorted twice: θ is inside if a test by signed ranks does
    /// not reject it.
    fn rejected_below(margins: &[f64], theta: f64) -> bool {
        let means_below = margins.iter().enumerate().flat_map(|(i, a)| margins[i..].iter().map(move |b| (a + b) / 2.0));
        means_below.filter(|mean| *mean <= theta).count() <= LEFT_OUT[margins.len() - PAIRS_SURE]
    }

    proptest! {
        #[test]
        fn the_interval_is_what_a_test_by_signed_ranks_does_not_reject(
            ratios in prop::collection::vec(0.5_f64..1.5, PAIRS_SURE..=PAIRS_MAX),
            shift in -0.5_f64..0.5,
        ) {
            let all = pairs(&ratios);
            let finding = Finding::of(&all, 0, &SOCKETS).unwrap();
            let margins: Vec<f64> = all.iter().map(|pair| pair[0].margin(&SOCKETS)).collect();
            let (low, high) = finding.interval.unwrap();
            prop_assert!(low <= finding.middle && finding.middle <= high);
            let theta = finding.middle + shift;
            prop_assert_eq!(rejected_below(&margins, theta), theta < low);
            let mirrored: Vec<f64> = margins.iter().map(|margin| -margin).collect();
            prop_assert_eq!(rejected_below(&mirrored, -theta), theta > high);
        }

        #[test]
        fn one_wild_pair_of_seven_decides_nothing(wild in 0.01_f64..100.0) {
            let with = |calm: f64| HarmVerdict::of(&pairs(&[calm, calm, calm, wild, calm, calm, calm]), &SOCKETS);
            prop_assert!(with(1.0).harms.is_empty());
            prop_assert_eq!(with(0.9).harms.len(), 1);
        }
    }
}
