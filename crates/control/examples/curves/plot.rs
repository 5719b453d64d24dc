//! One figure: labelled axes with ticks of our own choice, a legend on top, a light ground that also reads on dark.
//!
//! Drawn at twice its size and shown at half of it, because the backend rounds to whole pixels.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::Drawn;

/// Everything that is drawn into one file.
pub(crate) struct Figure {
    pub(crate) title: &'static str,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) curves: Vec<Curve>,
}

/// A direction, with its range and its ticks in the units of the data.
pub(crate) struct Axis {
    label: &'static str,
    range: (f64, f64),
    ticks: Vec<(f64, String)>,
    logarithmic: bool,
}

/// A set of points and how they are shown.
pub(crate) struct Curve {
    pub(crate) label: String,
    pub(crate) shape: Shape,
    pub(crate) points: Vec<(f64, f64)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Straight from point to point.
    Line,
    /// The value holds until the next point.
    Steps,
    /// A theory, a threshold, a bound.
    Dashed,
    /// Single events.
    Dots,
}

impl Axis {
    /// Evenly divided; a tick every `step`.
    pub(crate) fn linear(label: &'static str, low: f64, high: f64, step: f64) -> Self {
        let first = libm::ceil(low / step - 1e-9) as i64;
        let last = libm::floor(high / step + 1e-9) as i64;
        // Rounded, or 0.6 would be written 0.6000000000000001.
        let ticks = (first..=last).map(|n| libm::round(n as f64 * step * 1e6) / 1e6);
        Self { label, range: (low, high), ticks: ticks.map(|at| (at, at.to_string())).collect(), logarithmic: false }
    }

    /// Divided by ratio, with the ticks that are named.
    pub(crate) fn logarithmic(label: &'static str, low: f64, high: f64, ticks: &[(f64, &str)]) -> Self {
        let ticks = ticks.iter().map(|(at, text)| (*at, (*text).to_owned())).collect();
        Self { label, range: (low, high), ticks, logarithmic: true }
    }

    /// Evenly divided, with the ticks that are named.
    pub(crate) fn named(label: &'static str, low: f64, high: f64, ticks: &[(f64, &str)]) -> Self {
        Self { logarithmic: false, ..Self::logarithmic(label, low, high, ticks) }
    }

    fn place(&self, value: f64) -> f64 {
        if self.logarithmic { libm::log10(value) } else { value }
    }

    fn contains(&self, value: f64) -> bool {
        let (low, high) = (self.place(self.range.0), self.place(self.range.1));
        let slack = 1e-9 * (high - low);
        (low - slack..=high + slack).contains(&self.place(value))
    }

    /// Room for the widest tick and the turned label beside it.
    fn label_width(&self) -> i32 {
        let widest = self.ticks.iter().map(|(_, text)| width_of(text)).max();
        70 + widest.unwrap_or(0)
    }

    fn coord(&self) -> Ticked {
        Ticked {
            inner: (self.place(self.range.0)..self.place(self.range.1)).into(),
            ticks: self.ticks.iter().map(|(at, text)| (self.place(*at), text.clone())).collect(),
        }
    }
}

impl Curve {
    pub(crate) fn new(label: impl Into<String>, shape: Shape, points: Vec<(f64, f64)>) -> Self {
        Self { label: label.into(), shape, points }
    }

    /// Values of a function at evenly spaced places.
    pub(crate) fn of(label: impl Into<String>, shape: Shape, places: &[f64], value: impl Fn(f64) -> f64) -> Self {
        Self::new(label, shape, places.iter().map(|x| (*x, value(*x))).collect())
    }
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

/// A linear coordinate that has the ticks it is given, and writes them as it is told.
struct Ticked {
    inner: RangedCoordf64,
    ticks: Vec<(f64, String)>,
}

impl Ranged for Ticked {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.inner.map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let ticks = self.ticks.iter().map(|(at, _)| *at);
        if hint.weight().allow_light_points() { Vec::new() } else { ticks.collect() }
    }

    fn range(&self) -> core::ops::Range<f64> {
        self.inner.range()
    }
}

impl ValueFormatter<f64> for Ticked {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|(at, _)| at == value);
        tick.map(|(_, text)| text.clone()).unwrap_or_default()
    }
}

impl Figure {
    /// The figure as a text, 640 × 360.
    pub(crate) fn svg(&self) -> Drawn<String> {
        let mut svg = String::new();
        self.draw(&mut svg)?;
        let (drawn, shown) = (r#"width="1280" height="720""#, r#"width="640" height="360""#);
        if !svg.contains(drawn) {
            return Err("the backend writes its size in another way".into());
        }
        // What is left out is the default of the format anyway.
        let short = svg.replacen(drawn, shown, 1).replace(r#" opacity="1""#, "");
        Ok(short.replace(r#" stroke="none" stroke-width="1""#, ""))
    }

    fn draw(&self, svg: &mut String) -> Drawn<()> {
        let root = SVGBackend::with_string(svg, (1280, 720)).into_drawing_area();
        root.fill(&GROUND)?;
        let title = TextStyle::from(("sans-serif", 32).into_font()).color(&INK);
        root.draw(&Text::new(self.title, (30, 22), title))?;
        let below_legend = self.legend(&root)?;
        let mut chart = ChartBuilder::on(&root)
            .margin_top(below_legend)
            .margin_right(40)
            .margin_bottom(12)
            .margin_left(16)
            .x_label_area_size(88)
            .y_label_area_size(self.y.label_width())
            .build_cartesian_2d(self.x.coord(), self.y.coord())?;
        let text = TextStyle::from(("sans-serif", 26).into_font()).color(&INK);
        chart
            .configure_mesh()
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(text.clone())
            .axis_desc_style(text)
            .x_desc(self.x.label)
            .y_desc(self.y.label)
            .draw()?;
        for (curve, colour) in self.curves.iter().zip(COLOURS.iter().cycle()) {
            let points = self.placed(curve);
            match curve.shape {
                Shape::Line | Shape::Steps => {
                    chart.draw_series(LineSeries::new(points, colour.stroke_width(4)))?;
                }
                Shape::Dashed => {
                    chart.draw_series(DashedLineSeries::new(points, 14, 10, colour.stroke_width(3)))?;
                }
                Shape::Dots => {
                    chart.draw_series(points.into_iter().map(|at| Circle::new(at, 5, colour.filled())))?;
                }
            }
        }
        root.present()?;
        Ok(())
    }

    /// Points in the coordinates of the chart; what lies outside is left out.
    fn placed(&self, curve: &Curve) -> Vec<(f64, f64)> {
        let inside = curve.points.iter().filter(|(x, y)| self.x.contains(*x) && self.y.contains(*y));
        let mut placed: Vec<(f64, f64)> = Vec::new();
        for (x, y) in inside.map(|(x, y)| (self.x.place(*x), self.y.place(*y))) {
            match placed.last() {
                Some((_, before)) if curve.shape == Shape::Steps && *before != y => placed.push((x, *before)),
                _ => {}
            }
            placed.push((x, y));
        }
        placed
    }

    /// Draws the legend in rows under the title, and says where they end.
    fn legend(&self, root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) -> Drawn<i32> {
        let text = TextStyle::from(("sans-serif", 26).into_font()).color(&INK);
        let text = text.pos(Pos::new(HPos::Left, VPos::Center));
        let (mut x, mut y) = (30, 84);
        for (curve, colour) in self.curves.iter().zip(COLOURS.iter().cycle()) {
            let width = 74 + width_of(&curve.label);
            if x + width > 1270 {
                (x, y) = (30, y + 36);
            }
            match curve.shape {
                Shape::Line | Shape::Steps => {
                    root.draw(&PathElement::new([(x, y), (x + 36, y)], colour.stroke_width(4)))?;
                }
                Shape::Dashed => {
                    for start in [x, x + 22] {
                        root.draw(&PathElement::new([(start, y), (start + 14, y)], colour.stroke_width(3)))?;
                    }
                }
                Shape::Dots => {
                    root.draw(&Circle::new((x + 18, y), 6, colour.filled()))?;
                }
            }
            root.draw(&Text::new(curve.label.clone(), (x + 46, y), text.clone()))?;
            x += width;
        }
        Ok(y + 30)
    }
}

/// About; there is no font here to measure.
fn width_of(text: &str) -> i32 {
    text.chars().map(|_| 12).sum()
}

const GROUND: RGBColor = RGBColor(252, 252, 249);
const INK: RGBColor = RGBColor(45, 50, 56);
const GRID: RGBColor = RGBColor(222, 224, 224);
/// Told apart also without seeing red and green (Okabe and Ito).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 92, 150),
    RGBColor(213, 94, 0),
    RGBColor(0, 135, 100),
    RGBColor(178, 86, 140),
    RGBColor(120, 110, 20),
    RGBColor(90, 96, 104),
];
