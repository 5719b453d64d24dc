//! Figures as SVG: lines with confidence bars, bars by case, and heat maps.
//!
//! Written by hand and not by a plotting crate, because colours have to follow the reader's light or dark scheme, which
//! takes a style sheet inside the file. Every figure is some 5 KiB.

mod scale;

use std::fmt::Write;

pub use scale::Scale;

use crate::experiment::figure;

/// A figure of lines.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// Above.
    pub title: String,
    /// Below: seeds, replications, version.
    pub caption: String,
    /// Horizontal axis, with its unit.
    pub x: String,
    /// Vertical axis, with its unit.
    pub y: String,
    /// The lines.
    pub series: Vec<Series>,
    /// Both axes; none: as wide as the points need them.
    pub scales: Option<[Scale; 2]>,
}

/// One line.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// x, y and the half width of the interval.
    pub points: Vec<(f64, f64, f64)>,
    /// How the points are shown.
    pub shape: CurveShape,
}

/// How points are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CurveShape {
    /// A mark with its interval for each, and a line between them.
    #[default]
    Marked,
    /// Straight from point to point, close together: a curve.
    Line,
    /// The value holds until the next point.
    Steps,
    /// A bound or a theory, not a measurement.
    Dashed,
    /// Single events.
    Dots,
}

impl Series {
    /// Points without an interval.
    pub fn new(name: impl Into<String>, shape: CurveShape, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points: points.into_iter().map(|(x, y)| (x, y, 0.0)).collect(), shape }
    }
}

const WIDTH: f64 = 760.0;
const LEFT: f64 = 70.0;
const PLOT_WIDTH: f64 = 420.0;
const TOP: f64 = 46.0;
const PLOT_HEIGHT: f64 = 300.0;
const COLOURS: usize = 10;
const STYLE: &str = "<style>\
svg{--ink:#1b1f24;--soft:#6b7280;--grid:#d9dde3;--ground:#fff;font:12px system-ui,sans-serif}\
@media(prefers-color-scheme:dark){svg{--ink:#e6e8eb;--soft:#9aa3ad;--grid:#3a414a;--ground:#15181c}}\
.g{fill:var(--ground)}text{fill:var(--ink)}.s{fill:var(--soft)}.a{stroke:var(--grid);stroke-width:1}\
.l{fill:none;stroke-width:1.8}.b{stroke-dasharray:5 4}.c0{--c:#2f7ed8}.c1{--c:#e07b39}.c2{--c:#3aa655}.c3{--c:#c9424a}.c4{--c:#9168c8}\
.c5{--c:#a0785a}.c6{--c:#d670b0}.c7{--c:#8a939c}.c8{--c:#b5a72c}.c9{--c:#2fb3b3}\
.l,.e{stroke:var(--c)}.d{fill:var(--c)}</style>";

/// Room for text in XML.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Chart {
    /// The file.
    pub fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| series.points.iter());
        let [x, y] = self.scales.clone().unwrap_or_else(|| {
            [Scale::of(points().map(|point| point.0), false), Scale::of(points().map(|point| point.1), true)]
        });
        let height = (TOP + PLOT_HEIGHT + 78.0).max(TOP + 18.0 * self.series.len() as f64 + 60.0);
        let mut svg = opened(height, &self.title, &self.caption);
        let across = |value: f64| LEFT + PLOT_WIDTH * x.place(value);
        let down = |value: f64| TOP + PLOT_HEIGHT * (1.0 - y.place(value).clamp(-0.02, 1.02));
        for (tick, text) in x.ticks() {
            let at = across(tick);
            let bottom = TOP + PLOT_HEIGHT;
            let _ = write!(
                svg,
                "<line class=\"a\" x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 16.0,
                escaped(&text)
            );
        }
        for (tick, text) in y.ticks() {
            let at = down(tick);
            let right = LEFT + PLOT_WIDTH;
            let _ = write!(
                svg,
                "<line class=\"a\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                escaped(&text)
            );
        }
        let (middle, bottom) = (LEFT + PLOT_WIDTH / 2.0, TOP + PLOT_HEIGHT + 36.0);
        let _ = write!(svg, "<text x=\"{middle}\" y=\"{bottom}\" text-anchor=\"middle\">{}</text>", escaped(&self.x));
        let _ = write!(svg, "<text x=\"{LEFT}\" y=\"{}\" class=\"s\">{}</text>", TOP - 8.0, escaped(&self.y));
        for (number, series) in self.series.iter().enumerate() {
            let shown = series.points.iter().filter(|point| x.shows(point.0) && y.shows(point.1));
            let placed: Vec<_> =
                shown.map(|(x, y, half)| (across(*x), down(*y), [down(y + half), down(y - half)], *half)).collect();
            series.draw(&mut svg, number, &placed);
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// A point in pixels, with the ends of its interval, and half of its width.
type Placed = (f64, f64, [f64; 2], f64);

impl Series {
    fn draw(&self, svg: &mut String, number: usize, points: &[Placed]) {
        let colour = number % COLOURS;
        let bound = if self.shape == CurveShape::Dashed || number >= COLOURS { " b" } else { "" };
        let _ = write!(svg, "<g class=\"c{colour}\">");
        if self.shape != CurveShape::Dots {
            let _ = write!(svg, "<polyline class=\"l{bound}\" points=\"{}\"/>", self.path(points));
        }
        for (at, middle, [high, low], half) in points {
            if self.shape == CurveShape::Marked && half.is_finite() && *half > 0.0 {
                let _ =
                    write!(svg, "<line class=\"e\" x1=\"{at:.1}\" y1=\"{high:.1}\" x2=\"{at:.1}\" y2=\"{low:.1}\"/>");
            }
            if matches!(self.shape, CurveShape::Marked | CurveShape::Dots) {
                let _ = write!(svg, "<circle class=\"d\" cx=\"{at:.1}\" cy=\"{middle:.1}\" r=\"3\"/>");
            }
        }
        let (left, top) = (LEFT + PLOT_WIDTH + 16.0, TOP + 12.0 + 18.0 * number as f64);
        let (middle, right, text) = (top - 4.0, left + 22.0, left + 28.0);
        let _ = if self.shape == CurveShape::Dots {
            write!(svg, "<circle class=\"d\" cx=\"{}\" cy=\"{middle:.1}\" r=\"3\"/>", left + 11.0)
        } else {
            write!(svg, "<line class=\"l{bound}\" x1=\"{left}\" y1=\"{middle:.1}\" x2=\"{right}\" y2=\"{middle:.1}\"/>")
        };
        let _ = write!(svg, "<text x=\"{text}\" y=\"{top}\">{}</text></g>", escaped(&self.name));
    }

    /// The points of the line; where the value holds, a corner before each change.
    fn path(&self, points: &[Placed]) -> String {
        let mut path: Vec<String> = Vec::with_capacity(points.len());
        let mut before = None;
        for (x, y, ..) in points {
            if let Some(before) = before.filter(|before| self.shape == CurveShape::Steps && before != y) {
                path.push(format!("{x:.1},{before:.1}"));
            }
            path.push(format!("{x:.1},{y:.1}"));
            before = Some(*y);
        }
        path.join(" ")
    }
}

/// A round number without the zeros that a measured one keeps.
fn tick_text(tick: f64) -> String {
    let text = figure(tick);
    if text.contains('.') && !text.contains('e') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

fn opened(height: f64, title: &str, caption: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" role=\"img\">{STYLE}\
         <title>{0}</title><rect class=\"g\" width=\"{WIDTH}\" height=\"{height}\"/>\
         <text x=\"16\" y=\"20\" font-size=\"15\" font-weight=\"600\">{0}</text>\
         <text x=\"16\" y=\"{1}\" class=\"s\" font-size=\"11\">{2}</text>",
        escaped(title),
        height - 8.0,
        escaped(caption)
    )
}

/// Bars from zero, one for each case, with the interval drawn in.
pub fn bars(title: &str, unit: &str, caption: &str, cases: &[(String, f64, f64)]) -> String {
    const ROW: f64 = 20.0;
    const NAMES: f64 = 330.0;
    let width = WIDTH - NAMES - 90.0;
    let most = cases.iter().map(|(_, mean, _)| *mean).filter(|mean| mean.is_finite()).fold(1e-12, f64::max);
    let mut svg = opened(TOP + ROW * cases.len() as f64 + 34.0, title, caption);
    let _ = write!(svg, "<text x=\"{NAMES}\" y=\"{}\" class=\"s\">{}</text>", TOP - 8.0, escaped(unit));
    for (number, (name, mean, half)) in cases.iter().enumerate() {
        let top = TOP + ROW * number as f64;
        let length = width * (mean / most).clamp(0.0, 1.0);
        let middle = top + ROW / 2.0;
        let _ = write!(
            svg,
            "<g class=\"c0\"><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect class=\"d\" x=\"{NAMES}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"{}\" opacity=\".75\"/>",
            NAMES - 8.0,
            middle + 4.0,
            escaped(name),
            top + 3.0,
            ROW - 6.0
        );
        let mut end = NAMES + length;
        if half.is_finite() && *half > 0.0 {
            let (low, high) =
                (NAMES + width * ((mean - half) / most).max(0.0), NAMES + width * ((mean + half) / most).min(1.05));
            end = high;
            let _ = write!(
                svg,
                "<line class=\"a\" style=\"stroke:var(--ink)\" x1=\"{low:.1}\" y1=\"{middle:.1}\" x2=\"{high:.1}\" y2=\"{middle:.1}\"/>"
            );
        }
        let _ = write!(svg, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>", end + 6.0, middle + 4.0, figure(*mean));
    }
    svg.push_str("</svg>\n");
    svg
}

/// A field of numbers, darker where they are larger.
pub fn heat(
    title: &str,
    caption: &str,
    (x, y): (&str, &str),
    columns: &[String],
    rows: &[(String, Vec<f64>)],
) -> String {
    const NAMES: f64 = 230.0;
    const ROW: f64 = 26.0;
    let cell = ((WIDTH - NAMES - 20.0) / columns.len().max(1) as f64).min(90.0);
    let all = || rows.iter().flat_map(|(_, values)| values.iter().copied()).filter(|value| value.is_finite());
    let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
    let mut svg = opened(TOP + ROW * (rows.len() + 1) as f64 + 44.0, title, caption);
    let _ = write!(svg, "<text x=\"16\" y=\"{}\" class=\"s\">{} ↓, {} →</text>", TOP + 10.0, escaped(y), escaped(x));
    for (number, column) in columns.iter().enumerate() {
        let at = NAMES + cell * (number as f64 + 0.5);
        let _ =
            write!(svg, "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>", TOP + 10.0, escaped(column));
    }
    for (number, (name, values)) in rows.iter().enumerate() {
        let top = TOP + ROW * (number as f64 + 0.7);
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            NAMES - 8.0,
            top + 17.0,
            escaped(name)
        );
        for (column, value) in values.iter().enumerate() {
            let left = NAMES + cell * column as f64;
            let shade = if high > low { (value - low) / (high - low) } else { 0.0 };
            let _ = write!(
                svg,
                "<g class=\"c1\"><rect class=\"d\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{}\" opacity=\"{:.2}\"/></g>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                cell - 2.0,
                ROW - 2.0,
                0.08 + 0.72 * shade,
                left + cell / 2.0,
                top + 17.0,
                figure(*value)
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_axes_units_and_captions_and_survive_odd_numbers() {
        let odd = vec![(0.0, f64::NAN, 0.0), (1.0, 2.0, f64::INFINITY), (2.0, -1.0, 0.5)];
        let series = vec![Series { name: "a < b".to_owned(), points: odd, shape: CurveShape::Marked }];
        let chart = Chart {
            x: "load".to_owned(),
            y: "stale, share".to_owned(),
            caption: "seed 1".to_owned(),
            series,
            ..Chart::default()
        };
        let svg = chart.svg();
        for wanted in ["load", "stale, share", "seed 1", "a &lt; b", "prefers-color-scheme:dark", "</svg>"] {
            assert!(svg.contains(wanted), "{wanted}");
        }
        assert!(Chart::default().svg().ends_with("</svg>\n"));
        assert!(bars("t", "s", "c", &[("x".to_owned(), 0.0, f64::INFINITY)]).ends_with("</svg>\n"));
        assert!(heat("t", "c", ("x", "y"), &[], &[]).ends_with("</svg>\n"));
    }

    #[test]
    fn steps_hold_their_value_and_dots_have_no_line() {
        let chart = |shape| {
            let scales = Some([Scale::linear(0.0, 10.0, 5.0), Scale::linear(0.0, 10.0, 5.0)]);
            let series = vec![Series::new("s", shape, vec![(0.0, 0.0), (5.0, 10.0), (20.0, 5.0)])];
            Chart { series, scales, ..Chart::default() }.svg()
        };
        assert!(
            chart(CurveShape::Steps).contains("points=\"70.0,346.0 280.0,346.0 280.0,46.0\""),
            "{}",
            chart(CurveShape::Steps)
        );
        assert!(chart(CurveShape::Dots).contains("cx=\"280.0\"") && !chart(CurveShape::Dots).contains("<polyline"));
    }
}
