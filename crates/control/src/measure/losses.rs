//! Online estimate of the flow of losses, by discounted sums over answered checks (CONTROL §3.3).
//!
//! ```text
//! Sx = g·Sx + x    Sk = g·Sk + k    Sp = g·Sp + [k>0]            g = 1 − 1/32
//! Λ̂ = (Sk + ½)/(Sx + x0)     K̂ = max(1, Sk/max(Sp, 1))     λ̂ = Λ̂/K̂
//! ```
//! `x` is the exposure of the check, x0 a prior exposure (10 initial intervals), Λ the rate of losses, λ the rate of loss
//! *events* and K the mean number of losses that a lossy check finds. T and N of Algorithm 2 are computed from λ̂ by the
//! closed forms of [`crate::analysis`]; measuring T as "the timeout before a decrease" and feeding it back is never done:
//! a cap at T makes every observed T smaller, and the estimate shrinks until the client asks 13 000 times as often.

/// Weight that a check keeps when the next one comes.
const DISCOUNT: f32 = 1.0 - 1.0 / 32.0;
/// Losses and exposure counted at most per check, so that the sums stay far from overflow.
const LOSSES_MAX: f32 = 1e9;
const EXPOSURE_SECS_MAX: f32 = 1e9;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LossEstimator {
    exposure: f32,
    losses: f32,
    lossy_checks: f32,
}

impl LossEstimator {
    /// `exposure` in seconds.
    pub(crate) fn on_check(&mut self, exposure: f64, losses: u32) {
        self.exposure = DISCOUNT * self.exposure + (exposure as f32).min(EXPOSURE_SECS_MAX);
        self.losses = DISCOUNT * self.losses + (losses as f32).min(LOSSES_MAX);
        self.lossy_checks = DISCOUNT * self.lossy_checks + f32::from(u8::from(losses > 0));
    }

    /// Λ̂: losses per second.
    pub(crate) fn loss_rate(&self, prior_exposure: f64) -> f64 {
        (f64::from(self.losses) + 0.5) / (f64::from(self.exposure) + prior_exposure)
    }

    /// K̂: mean losses of a check that finds any.
    pub(crate) fn burst(&self) -> f64 {
        f64::from(self.losses / self.lossy_checks.max(1.0)).max(1.0)
    }

    /// λ̂: loss events per second, with K where it is given.
    pub(crate) fn event_rate(&self, prior_exposure: f64, burst: Option<f64>) -> f64 {
        self.loss_rate(prior_exposure) / burst.unwrap_or_else(|| self.burst())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw;
    use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

    #[test]
    fn a_steady_flow_is_found_and_a_batch_counts_once() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        for batch in [1, 5] {
            let (mut estimator, mut events, mut bursts, checks) = (LossEstimator::default(), 0.0, 0.0, 20_000);
            for _ in 0..checks {
                // A tenth of an event per check on average.
                let lossy = draw::unit(&mut rng) < 0.1;
                estimator.on_check(2.0, if lossy { batch } else { 0 });
                events += estimator.event_rate(100.0, None) / f64::from(checks);
                bursts += estimator.burst() / f64::from(checks);
            }
            // The prior of half a loss in 100 s pulls the mean towards 0.005.
            assert!((0.02..0.06).contains(&events), "batch {batch}: {events}");
            assert!((bursts / f64::from(batch) - 1.0).abs() < 0.1, "batch {batch}: {bursts}");
        }
    }

    #[test]
    fn extremes_stay_finite() {
        let mut estimator = LossEstimator::default();
        for _ in 0..10_000 {
            estimator.on_check(f64::MAX, u32::MAX);
            estimator.on_check(0.0, u32::MAX);
        }
        assert!(estimator.event_rate(0.5, None).is_finite() && estimator.burst().is_finite());
    }
}
