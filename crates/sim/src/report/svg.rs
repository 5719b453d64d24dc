//! Figures as SVG: lines with confidence bars, bars by case, and heat maps.
//!
//! Written by hand and not by a plotting crate, because colours have to follow the reader's light or dark scheme, and paper.
//! A figure with many lines shows a few of them in colour ([`Emphasis`]), and the others in grey, named in one line. Every figure
//! is some 5 KiB.

mod fields;
mod labels;
mod scale;

use std::fmt::Write;

pub use fields::{Bar, bars, heat};
use labels::Labels;
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
    /// Heights that are wanted or cannot be passed, with their names.
    pub goals: Vec<(f64, String)>,
}

/// One line.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// In the legend; what has none is not in it.
    pub name: String,
    /// x, y and the half width of the interval.
    pub points: Vec<(f64, f64, f64)>,
    /// How the points are shown.
    pub shape: CurveShape,
    /// How much it is to be seen.
    pub emphasis: Emphasis,
    /// Half of the width of the interval across, of marks with a name.
    pub half_across: f64,
}

/// How much a line is to be seen beside others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Emphasis {
    /// It is what the figure is about: bold.
    Bold,
    /// In colour.
    #[default]
    Plain,
    /// One of those that the others stand before: grey, without a line in the legend.
    Grey,
}

/// Where values stand in a figure, in pixels.
struct Plane {
    x: Scale,
    y: Scale,
    /// Of the part in which curves are.
    width: f64,
}

impl Plane {
    fn across(&self, value: f64) -> f64 {
        LEFT + self.width * self.x.place(value)
    }

    fn down(&self, value: f64) -> f64 {
        TOP + PLOT_HEIGHT * (1.0 - self.y.place(value).clamp(-0.02, 1.02))
    }

    fn right(&self) -> f64 {
        LEFT + self.width
    }
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
    /// A mark with its interval and its name beside it, for each: nothing is in between.
    Named,
}

/// How much a case is to be seen, by its name: ours, then what it is measured by, then the rest of the literature.
pub fn emphasis_of(name: &str) -> Emphasis {
    if name.contains("ours") || name.contains("as shipped") {
        Emphasis::Bold
    } else if ["AST (eq. 3)", "AST+RBT", "paper", "fixed", "least possible"].iter().any(|part| name.contains(part)) {
        Emphasis::Plain
    } else {
        Emphasis::Grey
    }
}

impl Series {
    /// Whether the legend names it: not what has its name beside it, or none.
    fn is_in_legend(&self) -> bool {
        self.shape != CurveShape::Named && !self.name.is_empty()
    }

    /// Points without an interval.
    pub fn new(name: impl Into<String>, shape: CurveShape, points: Vec<(f64, f64)>) -> Self {
        Self {
            name: name.into(),
            points: points.into_iter().map(|(x, y)| (x, y, 0.0)).collect(),
            shape,
            ..Self::default()
        }
    }
}

const WIDTH: f64 = 760.0;
const LEFT: f64 = 70.0;
const PLOT_WIDTH: f64 = 420.0;
const TOP: f64 = 46.0;
const PLOT_HEIGHT: f64 = 300.0;
/// A name that stands further above or below its mark has a line to it.
const LED_MIN: f64 = 8.0;
/// The height of a line of the legend.
const LEGEND: f64 = 18.0;
/// Lines beyond these have no colour of their own.
const COLOURS: [&str; 6] = ["#2f7ed8", "#e07b39", "#3aa655", "#c9424a", "#9168c8", "#a0785a"];
const GREY: &str = "#8a939c";
const INK: &str = "#1b1f24";
const SOFT: &str = "#6b7280";
const GRID: &str = "#d9dde3";
/// Colours are attributes, which every program understands that prints or converts a figure. Only where the reader's scheme is
/// dark a style sheet takes the place of those that would not be seen.
const STYLE: &str = "<style>@media(prefers-color-scheme:dark){.g{fill:#15181c}svg{fill:#e6e8eb}.s{fill:#9aa3ad}\
.a{stroke:#3a414a}.i{stroke:#e6e8eb}.h{stroke:#15181c}}</style>";

/// Room for text in XML.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Chart {
    /// The file.
    pub fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| series.points.iter());
        let [x, y] = self.scales.clone().unwrap_or_else(|| {
            [Scale::of(points().map(|point| point.0), false), Scale::of(points().map(|point| point.1), true)]
        });
        let height = (TOP + PLOT_HEIGHT + 78.0).max(TOP + LEGEND * self.series.len() as f64 + 60.0);
        let has_legend = self.series.iter().any(Series::is_in_legend);
        let height = if has_legend { height } else { TOP + PLOT_HEIGHT + 78.0 };
        let width = if has_legend { PLOT_WIDTH } else { WIDTH - LEFT - 24.0 };
        let plane = Plane { x, y, width };
        let mut svg = opened(height, &self.title, &self.caption);
        self.draw_axes(&mut svg, &plane);
        self.draw_goals(&mut svg, &plane);
        let names = self.names(&plane);
        self.draw_series(&mut svg, &plane, &names);
        svg.push_str("</svg>\n");
        svg
    }

    /// Grid, ticks, and what the axes are.
    fn draw_axes(&self, svg: &mut String, plane: &Plane) {
        let (right, bottom) = (plane.right(), TOP + PLOT_HEIGHT);
        for (tick, text) in plane.x.ticks() {
            let at = plane.across(tick);
            let _ = write!(
                svg,
                "<line class=\"a\" stroke=\"{GRID}\" x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 16.0,
                escaped(&text)
            );
        }
        for (tick, text) in plane.y.ticks() {
            let at = plane.down(tick);
            let _ = write!(
                svg,
                "<line class=\"a\" stroke=\"{GRID}\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                escaped(&text)
            );
        }
        let (middle, bottom) = (LEFT + plane.width / 2.0, bottom + 36.0);
        let _ = write!(svg, "<text x=\"{middle}\" y=\"{bottom}\" text-anchor=\"middle\">{}</text>", escaped(&self.x));
        let _ = write!(
            svg,
            "<text x=\"{LEFT}\" y=\"{}\" class=\"s\" fill=\"{SOFT}\">{}</text>",
            TOP - 8.0,
            escaped(&self.y)
        );
    }

    /// Where the names of marks stand: not above each other, and not above marks and lines if there is another place.
    fn names(&self, plane: &Plane) -> Vec<(String, (f64, f64))> {
        let right = plane.right();
        let mut labels = Labels::within(LEFT, right + 8.0, [TOP + 10.0, TOP + PLOT_HEIGHT - 3.0]);
        for (at, foot, name) in self.goal_texts(plane) {
            labels.avoid_text(right - 4.0, foot, name);
            labels.avoid_line([LEFT, right], [at, at]);
        }
        let marks = || self.series.iter().filter(|series| series.shape == CurveShape::Named);
        let ends = |value: f64, half: f64| if half.is_finite() { [value - half, value + half] } else { [value; 2] };
        for series in marks() {
            for (at, middle, half) in &series.points {
                let (column, line) = (plane.across(*at), plane.down(*middle));
                labels.avoid_mark(column, line);
                let [low, high] = ends(*middle, *half).map(|end| plane.down(end));
                labels.avoid_line([column; 2], [high, low]);
                let across = ends(*at, series.half_across).map(|end| plane.across(end).clamp(LEFT, right));
                labels.avoid_line(across, [line; 2]);
            }
        }
        // What the figure is about has its name nearest to its mark.
        let mut by_weight: Vec<&Series> = marks().collect();
        by_weight.sort_by_key(|series| series.emphasis as u8);
        let place = |series: &Series| {
            let (at, middle, _) = series.points.first()?;
            let place = labels.place(plane.across(*at), plane.down(*middle) + 4.0, &series.name);
            Some((series.name.clone(), place))
        };
        by_weight.into_iter().filter_map(place).collect()
    }

    /// Every line and mark, and the legend.
    fn draw_series(&self, svg: &mut String, plane: &Plane, names: &[(String, (f64, f64))]) {
        // Grey first: what the figure is about lies above it.
        let mut order: Vec<&Series> = self.series.iter().collect();
        order.sort_by_key(|series| series.emphasis != Emphasis::Grey);
        let named = self.series.iter().filter(|it| it.emphasis != Emphasis::Grey && it.is_in_legend());
        // What the figure is about has a colour for certain.
        let is_bold = |series: &&Series| series.emphasis == Emphasis::Bold;
        let coloured = named.clone().filter(is_bold).chain(named.clone().filter(|series| !is_bold(series)));
        let colours: Vec<(&str, &str)> = coloured.map(|it| it.name.as_str()).zip(COLOURS).collect();
        for series in order {
            let colour = match (series.shape, series.emphasis) {
                (CurveShape::Named, Emphasis::Bold) => COLOURS[0],
                (CurveShape::Named, Emphasis::Plain) => COLOURS[1],
                _ => colours.iter().find(|(name, _)| *name == series.name).map_or(GREY, |(_, colour)| colour),
            };
            let shown = series.points.iter().filter(|point| plane.x.shows(point.0) && plane.y.shows(point.1));
            let (across, down) = (|value| plane.across(value), |value| plane.down(value));
            let placed: Vec<_> =
                shown.map(|(x, y, half)| (across(*x), down(*y), [down(y + half), down(y - half)], *half)).collect();
            if let (Some((middle, ..)), Some((_, height, ..))) = (series.points.first(), placed.first())
                && series.half_across.is_finite()
                && series.half_across > 0.0
            {
                let ends = [middle - series.half_across, middle + series.half_across].map(|end| across(end).max(LEFT));
                let _ = write!(
                    svg,
                    "<line stroke=\"{colour}\" x1=\"{:.1}\" y1=\"{height:.1}\" x2=\"{:.1}\" y2=\"{height:.1}\"/>",
                    ends[0],
                    ends[1].min(plane.right())
                );
            }
            let name_at = names.iter().find(|(name, _)| *name == series.name).map(|(_, place)| *place);
            series.draw(svg, colour, &placed, name_at);
        }
        let lines = named.clone().count();
        for (number, series) in named.enumerate() {
            let colour = colours.iter().find(|(name, _)| *name == series.name).map_or(GREY, |(_, colour)| colour);
            series.draw_legend(svg, colour, TOP + 12.0 + LEGEND * number as f64);
        }
        let grey = self.series.iter().filter(|it| it.emphasis == Emphasis::Grey && it.is_in_legend());
        let grey: Vec<&str> = grey.map(|series| series.name.as_str()).collect();
        if !grey.is_empty() {
            let left = LEFT + PLOT_WIDTH + 16.0;
            for (number, line) in wrapped(&format!("grey: {}", grey.join(", "))).iter().enumerate() {
                let top = TOP + 20.0 + LEGEND * lines as f64 + 14.0 * number as f64;
                let text = escaped(line);
                let _ = write!(
                    svg,
                    "<text x=\"{left}\" y=\"{top}\" class=\"s\" fill=\"{SOFT}\" font-size=\"11\">{text}</text>"
                );
            }
        }
    }

    /// Heights that are wanted, as dotted lines with their names.
    fn draw_goals(&self, svg: &mut String, plane: &Plane) {
        let right = plane.right();
        for (at, foot, name) in self.goal_texts(plane) {
            let _ = write!(
                svg,
                "<line class=\"i\" stroke=\"{INK}\" stroke-dasharray=\"2 3\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{foot:.1}\" text-anchor=\"end\" font-size=\"11\">{}</text>",
                right - 4.0,
                escaped(name)
            );
        }
    }

    /// Where a line of a goal is, and where its name stands: above it, but for one that has another close above.
    fn goal_texts(&self, plane: &Plane) -> Vec<(f64, f64, &str)> {
        let at: Vec<f64> = self.goals.iter().map(|(goal, _)| plane.down(*goal)).collect();
        let has_one_above = |line: f64| at.iter().any(|other| *other < line && line - other < GOALS_APART);
        let foot = |line: f64| if has_one_above(line) { line + 11.0 } else { line - 4.0 };
        self.goals.iter().zip(&at).map(|((_, name), line)| (*line, foot(*line), name.as_str())).collect()
    }
}

/// Lines that are nearer to each other have no room for a name between them.
const GOALS_APART: f64 = 16.0;

/// Lines of a legend, as wide as there is room.
fn wrapped(text: &str) -> Vec<String> {
    const CHARACTERS: usize = 40;
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if line > 0 && line + 1 + word.chars().count() > CHARACTERS {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

/// A point in pixels, with the ends of its interval, and half of its width.
type Placed = (f64, f64, [f64; 2], f64);

impl Series {
    fn draw(&self, svg: &mut String, colour: &str, points: &[Placed], name_at: Option<(f64, f64)>) {
        let (width, dashes, radius) = self.pen();
        let _ = write!(svg, "<g stroke=\"{colour}\" fill=\"{colour}\" stroke-width=\"{width}\">");
        if !matches!(self.shape, CurveShape::Dots | CurveShape::Named) {
            let _ = write!(svg, "<polyline fill=\"none\"{dashes} points=\"{}\"/>", self.path(points));
        }
        for (at, middle, [high, low], half) in points {
            if matches!(self.shape, CurveShape::Marked | CurveShape::Named) && half.is_finite() && *half > 0.0 {
                let _ = write!(
                    svg,
                    "<line stroke-width=\"1\" x1=\"{at:.1}\" y1=\"{high:.1}\" x2=\"{at:.1}\" y2=\"{low:.1}\"/>"
                );
            }
            if matches!(self.shape, CurveShape::Marked | CurveShape::Dots | CurveShape::Named) {
                let _ = write!(svg, "<circle stroke=\"none\" cx=\"{at:.1}\" cy=\"{middle:.1}\" r=\"{radius}\"/>");
            }
        }
        self.draw_name(svg, points, name_at);
        svg.push_str("</g>");
    }

    /// Its name beside its mark.
    fn draw_name(&self, svg: &mut String, points: &[Placed], name_at: Option<(f64, f64)>) {
        let (Some((at, middle, ..)), Some((left, top))) = (points.first(), name_at) else { return };
        // A name that found no room beside its mark is led to it.
        if (top - middle - 4.0).abs() > LED_MIN {
            let near = if left > *at { left - 1.0 } else { at - 6.0 };
            let _ = write!(
                svg,
                "<line stroke-width=\"0.6\" x1=\"{at:.1}\" y1=\"{middle:.1}\" x2=\"{near:.1}\" y2=\"{:.1}\"/>",
                top - 4.0
            );
        }
        let weight = if self.emphasis == Emphasis::Bold { " font-weight=\"600\"" } else { "" };
        let name = escaped(&self.name);
        let _ = write!(
            svg,
            "<text class=\"h\" stroke=\"#ffffff\" stroke-width=\"3\" stroke-linejoin=\"round\" paint-order=\"stroke\" \
             x=\"{left:.1}\" y=\"{top:.1}\" font-size=\"11\"{weight}>{name}</text>"
        );
    }

    /// Its line in the legend.
    fn draw_legend(&self, svg: &mut String, colour: &str, top: f64) {
        let (width, dashes, radius) = self.pen();
        let left = LEFT + PLOT_WIDTH + 16.0;
        let (middle, right, text) = (top - 4.0, left + 22.0, left + 28.0);
        let _ = if self.shape == CurveShape::Dots {
            write!(svg, "<circle fill=\"{colour}\" cx=\"{}\" cy=\"{middle:.1}\" r=\"{radius}\"/>", left + 11.0)
        } else {
            write!(
                svg,
                "<line stroke=\"{colour}\" stroke-width=\"{width}\"{dashes} x1=\"{left}\" y1=\"{middle:.1}\" \
                 x2=\"{right}\" y2=\"{middle:.1}\"/>"
            )
        };
        let weight = if self.emphasis == Emphasis::Bold { " font-weight=\"600\"" } else { "" };
        let _ = write!(svg, "<text x=\"{text}\" y=\"{top}\"{weight}>{}</text>", escaped(&self.name));
    }

    /// Width of the line, its dashes, and the radius of marks.
    fn pen(&self) -> (f64, &'static str, f64) {
        let dashes = if self.shape == CurveShape::Dashed { " stroke-dasharray=\"5 4\"" } else { "" };
        match self.emphasis {
            Emphasis::Bold => (3.0, dashes, 4.0),
            Emphasis::Plain => (1.8, dashes, 3.0),
            Emphasis::Grey => (1.0, dashes, 2.0),
        }
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
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" role=\"img\" \
         font-family=\"system-ui,sans-serif\" font-size=\"12\" fill=\"{INK}\">{STYLE}\
         <title>{0}</title><rect class=\"g\" fill=\"#ffffff\" width=\"{WIDTH}\" height=\"{height}\"/>\
         <text x=\"16\" y=\"20\" font-size=\"15\" font-weight=\"600\">{0}</text>\
         <text x=\"16\" y=\"{1}\" class=\"s\" fill=\"{SOFT}\" font-size=\"11\">{2}</text>",
        escaped(title),
        height - 8.0,
        escaped(caption)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_axes_units_and_captions_and_survive_odd_numbers() {
        let odd = vec![(0.0, f64::NAN, 0.0), (1.0, 2.0, f64::INFINITY), (2.0, -1.0, 0.5)];
        let series =
            vec![Series { name: "a < b".to_owned(), points: odd, shape: CurveShape::Marked, ..Series::default() }];
        let chart = Chart {
            x: "load".to_owned(),
            y: "stale, share".to_owned(),
            caption: "seed 1".to_owned(),
            series,
            ..Chart::default()
        };
        let svg = chart.svg();
        for wanted in
            ["load", "stale, share", "seed 1", "a &lt; b", "prefers-color-scheme:dark", "fill=\"#1b1f24\"", "</svg>"]
        {
            assert!(svg.contains(wanted), "{wanted}");
        }
        assert!(Chart::default().svg().ends_with("</svg>\n"));
        assert!(bars("t", "s", "c", &[Bar { half: f64::INFINITY, ..Bar::default() }]).ends_with("</svg>\n"));
        assert!(heat("t", "c", ("x", "y"), &[], &[]).ends_with("</svg>\n"));
    }

    #[test]
    fn lines_in_grey_share_one_line_of_the_legend_and_lie_below() {
        let line = |name: &str, emphasis| Series {
            emphasis,
            ..Series::new(name, CurveShape::Line, vec![(0.0, 1.0), (1.0, 2.0)])
        };
        let series = vec![line("ours", Emphasis::Bold), line("x", Emphasis::Grey), line("y", Emphasis::Grey)];
        let svg = Chart { series, ..Chart::default() }.svg();
        assert!(svg.contains("grey: x, y") && svg.contains("font-weight=\"600\">ours"), "{svg}");
        assert!(svg.find(GREY) < svg.find(COLOURS[0]), "{svg}");
        // Every colour is an attribute: other programs know no variables.
        assert!(!svg.contains("var("), "{svg}");
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
