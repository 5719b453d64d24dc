//! A direction of a figure: values to shares of its length, and ticks, chosen here or named by the caller.

use super::tick_text;

/// From where to where, divided evenly or by ratio.
#[derive(Clone, Debug)]
pub struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
    /// Ticks with their texts; none: round numbers.
    named: Option<Vec<(f64, String)>>,
}

impl Scale {
    /// Evenly divided; a tick every `step`.
    pub fn linear(low: f64, high: f64, step: f64) -> Self {
        let ticks = every(step, low, high).into_iter().map(|at| (at, at.to_string()));
        Self { low, high, logarithmic: false, named: Some(ticks.collect()) }
    }

    /// Divided by ratio, with the ticks that are named.
    pub fn logarithmic(low: f64, high: f64, ticks: &[(f64, &str)]) -> Self {
        Self { logarithmic: true, ..Self::named(low, high, ticks) }
    }

    /// Evenly divided, with the ticks that are named.
    pub fn named(low: f64, high: f64, ticks: &[(f64, &str)]) -> Self {
        let ticks = ticks.iter().map(|(at, text)| (*at, (*text).to_owned()));
        Self { low, high, logarithmic: false, named: Some(ticks.collect()) }
    }

    /// Evenly divided, whatever the values are: time is never shown by ratio.
    pub fn even(values: impl Iterator<Item = f64> + Clone) -> Self {
        let finite = values.filter(|value| value.is_finite());
        let (low, high) = (finite.clone().fold(0.0, f64::min), finite.fold(0.0, f64::max));
        Self { low, high: if high > low { high } else { low + 1.0 }, logarithmic: false, named: None }
    }

    /// Evenly divided, and no wider than the values with their intervals: for marks, whose length means nothing.
    pub fn close(values: impl Iterator<Item = f64> + Clone) -> Self {
        let finite = values.filter(|value| value.is_finite());
        let (low, high) = (finite.clone().fold(f64::INFINITY, f64::min), finite.fold(f64::NEG_INFINITY, f64::max));
        if low > high {
            return Self { low: 0.0, high: 1.0, logarithmic: false, named: None };
        }
        let margin = (high - low).max(1e-9) * 0.06;
        Self { low: (low - margin).max(0.0), high: high + margin, logarithmic: false, named: None }
    }

    /// Divided by ratio, and no wider than the values.
    pub fn by_ratio(values: impl Iterator<Item = f64> + Clone) -> Self {
        let positive = values.filter(|value| value.is_finite() && *value > 0.0);
        let (low, high) = (positive.clone().fold(f64::INFINITY, f64::min), positive.fold(0.0, f64::max));
        if low > high {
            return Self { low: 1.0, high: 10.0, logarithmic: true, named: None };
        }
        Self { low: low / 1.1, high: (high * 1.15).max(low * 1.5), logarithmic: true, named: None }
    }

    /// As wide as the values need it.
    pub fn of(values: impl Iterator<Item = f64> + Clone, from_zero: bool) -> Self {
        let finite = values.filter(|value| value.is_finite());
        let low = finite.clone().fold(f64::INFINITY, f64::min);
        let high = finite.fold(f64::NEG_INFINITY, f64::max);
        let scale = |low, high, logarithmic| Self { low, high, logarithmic, named: None };
        if !(low.is_finite() && high.is_finite()) {
            return scale(0.0, 1.0, false);
        }
        if low > 0.0 && high / low >= 20.0 {
            return scale(low, high, true);
        }
        let low = if from_zero { low.min(0.0) } else { low };
        let high = if high > low { high } else { low + 1.0 };
        scale(low, if from_zero { low + (high - low) * 1.05 } else { high }, false)
    }

    /// The share of the length at which a value stands.
    pub(super) fn place(&self, value: f64) -> f64 {
        if self.logarithmic {
            (value.max(self.low * 1e-3).ln() - self.low.ln()) / (self.high.ln() - self.low.ln())
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    /// Whether a point is shown. Where ticks are named the range was chosen, and what is beyond it is left out.
    pub(super) fn shows(&self, value: f64) -> bool {
        self.named.is_none() || (-1e-9..=1.0 + 1e-9).contains(&self.place(value))
    }

    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        self.named.clone().unwrap_or_else(|| self.round().into_iter().map(|at| (at, tick_text(at))).collect())
    }

    fn round(&self) -> Vec<f64> {
        if self.logarithmic {
            let exponents = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
            let wide = self.high / self.low > 3000.0;
            let digits: &[f64] = if wide { &[1.0] } else { &[1.0, 2.0, 5.0] };
            let all = exponents.flat_map(|exponent| digits.iter().map(move |digit| digit * 10_f64.powi(exponent)));
            let ticks: Vec<f64> = all.filter(|tick| (self.low * 0.999..=self.high * 1.001).contains(tick)).collect();
            if ticks.len() >= 2 {
                return ticks;
            }
            // Less than a factor of two or so: the same ticks as if it were divided evenly.
        }
        let rough = (self.high - self.low) / 6.0;
        let unit = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].iter().map(|digit| digit * unit).find(|step| *step >= rough).unwrap_or(unit);
        every(step, self.low, self.high)
    }
}

/// The multiples of a step, rounded, or 0.6 would be written 0.6000000000000001.
fn every(step: f64, low: f64, high: f64) -> Vec<f64> {
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|n| (n as f64 * step * 1e9).round() / 1e9).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        let linear = Scale::of([0.0, 0.97].into_iter(), true).round();
        assert!(linear.len() >= 4 && linear.contains(&0.4));
        let logarithmic = Scale::of([0.5, 100.0].into_iter(), true);
        assert!(logarithmic.logarithmic && logarithmic.round().contains(&10.0));
        let narrow = Scale::by_ratio([1.23, 1.39].into_iter()).round();
        assert!(narrow.len() >= 3 && narrow.contains(&1.4), "{narrow:?}");
    }

    #[test]
    fn a_chosen_range_has_its_ticks_and_nothing_beyond() {
        let scale = Scale::linear(0.0, 1.0, 0.2);
        assert_eq!(
            scale.ticks().iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(" "),
            "0 0.2 0.4 0.6 0.8 1"
        );
        assert!(scale.shows(1.0) && !scale.shows(1.1) && !scale.shows(f64::NAN));
        let ratio = Scale::logarithmic(1e-4, 1.0, &[(1e-2, "1 %")]);
        assert_eq!((ratio.place(1e-2), ratio.ticks()), (0.5, vec![(1e-2, "1 %".to_owned())]));
    }
}
