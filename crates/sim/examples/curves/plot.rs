//! One figure: the laboratory's chart, with ranges and ticks of our own choice.

use tidegate_sim::report::svg::{Chart, Scale};
pub(crate) use tidegate_sim::report::svg::{CurveShape, Series as Curve};

/// Everything that is drawn into one file.
pub(crate) struct Figure {
    pub(crate) title: &'static str,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) curves: Vec<Curve>,
}

/// A direction with its label.
pub(crate) struct Axis(&'static str, Scale);

impl Axis {
    /// Evenly divided; a tick every `step`.
    pub(crate) fn linear(label: &'static str, low: f64, high: f64, step: f64) -> Self {
        Self(label, Scale::linear(low, high, step))
    }

    /// Divided by ratio, with the ticks that are named.
    pub(crate) fn logarithmic(label: &'static str, low: f64, high: f64, ticks: &[(f64, &str)]) -> Self {
        Self(label, Scale::logarithmic(low, high, ticks))
    }

    /// Evenly divided, with the ticks that are named.
    pub(crate) fn named(label: &'static str, low: f64, high: f64, ticks: &[(f64, &str)]) -> Self {
        Self(label, Scale::named(low, high, ticks))
    }
}

impl Figure {
    /// The figure as a text.
    pub(crate) fn svg(self) -> String {
        let Self { title, x: Axis(x, across), y: Axis(y, up), curves } = self;
        let (x, y, scales) = (x.to_owned(), y.to_owned(), Some([across, up]));
        Chart { title: title.to_owned(), caption: String::new(), x, y, series: curves, scales, ..Chart::default() }
            .svg()
    }
}

/// Values of a function at places.
pub(crate) fn of(label: impl Into<String>, shape: CurveShape, places: &[f64], value: impl Fn(f64) -> f64) -> Curve {
    Curve::new(label, shape, places.iter().map(|x| (*x, value(*x))).collect())
}

/// `count` places from low to high, evenly.
pub(crate) fn evenly(low: f64, high: f64, count: u32) -> Vec<f64> {
    (0..count).map(|n| low + (high - low) * f64::from(n) / f64::from(count - 1)).collect()
}

/// `count` places from low to high, by ratio.
pub(crate) fn by_ratio(low: f64, high: f64, count: u32) -> Vec<f64> {
    evenly(libm::log(low), libm::log(high), count).into_iter().map(libm::exp).collect()
}

/// At most about so many of the points, evenly chosen.
pub(crate) fn thinned(points: &[(f64, f64)], most: usize) -> Vec<(f64, f64)> {
    points.iter().copied().step_by(points.len().div_ceil(most).max(1)).collect()
}
