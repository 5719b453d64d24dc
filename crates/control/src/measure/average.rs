//! Mean response time, as the papers use it.
//!
//! `cumulative` is the plain mean over all samples (Algorithm 3, "average query duration"); `ewma` is equation (7),
//! T̃ₙ = γ·T̃ₙ₋₁ + (1 − γ)·Tₙ, which starts from its first sample. Both include the sample just taken; for the test
//! "duration ≤ average" this makes no difference, d > T̃ₙ is the same as d > T̃ₙ₋₁.

use crate::config::named;

named! {
    "average";
    /// How a mean response time is kept.
    pub enum AverageRule {
        /// The mean of all samples.
        #[default]
        Cumulative = "cumulative",
        /// Equation (7): a geometric moving average.
        Ewma = "ewma",
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Average {
    /// Seconds.
    value: f64,
    /// Samples so far, saturating.
    count: u32,
}

impl Average {
    pub(crate) const ZERO: Self = Self { value: 0.0, count: 0 };

    pub(crate) fn on_sample(&mut self, rule: AverageRule, gamma: f64, sample: f64) {
        self.count = self.count.saturating_add(1);
        let share = match rule {
            _ if self.count == 1 => 1.0,
            AverageRule::Cumulative => 1.0 / f64::from(self.count),
            AverageRule::Ewma => 1.0 - gamma,
        };
        self.value += (sample - self.value) * share;
    }

    /// Zero before the first sample, which is what makes the paper's t_max vanish for a client that never succeeded.
    pub(crate) fn value(&self) -> f64 {
        self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cumulative_is_the_mean_and_ewma_follows_equation_7() {
        let mut mean = Average::default();
        let mut moving = Average::default();
        for sample in [1.0, 2.0, 6.0] {
            mean.on_sample(AverageRule::Cumulative, 0.875, sample);
            moving.on_sample(AverageRule::Ewma, 0.875, sample);
        }
        assert!((mean.value() - 3.0).abs() < 1e-12);
        assert!((moving.value() - ((1.0 * 0.875 + 2.0 * 0.125) * 0.875 + 6.0 * 0.125)).abs() < 1e-12);
    }
}
