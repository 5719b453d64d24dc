//! Means with confidence, and shares; quantiles are in `histogram`.

/// The mean of independent replications, with the half width of its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub mean: f64,
    /// Half of the width of the interval; infinite with fewer than two replications.
    pub half_width: f64,
    /// Replications.
    pub count: usize,
}

impl Estimate {
    /// Of these replications.
    pub fn of(values: &[f64]) -> Self {
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count.max(1) as f64;
        if count < 2 {
            return Self { mean, half_width: f64::INFINITY, count };
        }
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1) as f64;
        let half_width = student_95(count - 1) * (variance / count as f64).sqrt();
        Self { mean, half_width, count }
    }

    /// Of the differences between two series with common random numbers: a paired comparison.
    pub fn of_difference(first: &[f64], second: &[f64]) -> Self {
        let differences: Vec<f64> = first.iter().zip(second).map(|(first, second)| first - second).collect();
        Self::of(&differences)
    }

    /// Values that have this estimate: what a table says of replications that are not there any more, for drawing it again.
    pub fn sample(&self) -> Vec<f64> {
        let mut values = vec![self.mean; self.count];
        if let [first, second, ..] = values.as_mut_slice()
            && self.half_width.is_finite()
        {
            let count = self.count as f64;
            let spread = self.half_width / student_95(self.count - 1) * (count * (count - 1.0) / 2.0).sqrt();
            (*first, *second) = (self.mean + spread, self.mean - spread);
        }
        values
    }

    /// The ends of the interval.
    pub fn interval(&self) -> (f64, f64) {
        (self.mean - self.half_width, self.mean + self.half_width)
    }

    /// Whether zero is outside of the interval.
    pub fn is_significant(&self) -> bool {
        self.mean.abs() > self.half_width
    }
}

/// The 97.5 % point of Student's t.
fn student_95(freedom: usize) -> f64 {
    const POINTS: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    match POINTS.get(freedom.saturating_sub(1)) {
        Some(point) => *point,
        // Cornish and Fisher's first terms: better than 0.001 from here on.
        None => 1.959_964 + 2.372 / freedom as f64,
    }
}

/// Jain's index of fairness: 1 if all have the same, 1/n if one has everything.
pub fn jain(shares: impl IntoIterator<Item = f64>) -> f64 {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for share in shares {
        count += 1.0;
        sum += share;
        squares += share * share;
    }
    if squares == 0.0 { 1.0 } else { sum * sum / (count * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Stream;

    #[test]
    fn the_interval_covers_the_truth_as_often_as_it_says() {
        let mut stream = Stream::of(3, "coverage");
        let covered = (0..4000)
            .filter(|_| {
                let values: Vec<f64> = (0..10).map(|_| 5.0 + stream.normal()).collect();
                let (low, high) = Estimate::of(&values).interval();
                (low..=high).contains(&5.0)
            })
            .count();
        assert!((0.94..=0.96).contains(&(covered as f64 / 4000.0)), "{covered} of 4000");
        assert_eq!(Estimate::of(&[1.0]).half_width, f64::INFINITY);
        assert!((student_95(30) - student_95(31)).abs() < 0.01 && (student_95(1000) - 1.962).abs() < 0.001);
    }

    #[test]
    fn a_sample_has_the_estimate_that_it_was_made_of() {
        for values in [&[3.0][..], &[0.1, 0.3], &[5.0; 4], &[1.0, 2.0, 4.0, 8.0, 16.0, 0.5, 0.25]] {
            let wanted = Estimate::of(values);
            let found = Estimate::of(&wanted.sample());
            let is_near = |one: f64, other: f64| one == other || (one - other).abs() < 1e-9;
            assert!(is_near(found.mean, wanted.mean) && found.count == wanted.count, "{found:?} {wanted:?}");
            assert!(is_near(found.half_width, wanted.half_width), "{found:?} {wanted:?}");
        }
        assert!(Estimate { mean: 1.0, half_width: 0.0, count: 0 }.sample().is_empty());
    }

    #[test]
    fn fairness_is_between_one_and_one_of_n() {
        assert_eq!(jain([2.0; 10]), 1.0);
        assert!((jain([1.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        assert_eq!(jain([]), 1.0);
    }
}
