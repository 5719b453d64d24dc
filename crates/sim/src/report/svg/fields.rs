//! Figures without curves: bars by case, and fields of numbers.

use std::fmt::Write;

use super::{COLOURS, Emphasis, GREY, INK, SOFT, TOP, WIDTH, emphasis_of, escaped, opened};
use crate::experiment::figure;

/// What is ours, or the papers', is seen among others.
fn colour_of_case(name: &str) -> &'static str {
    match emphasis_of(name) {
        Emphasis::Bold => COLOURS[0],
        Emphasis::Plain => COLOURS[1],
        Emphasis::Grey => GREY,
    }
}

/// A bar.
#[derive(Clone, Debug, Default)]
pub struct Bar {
    pub name: String,
    pub mean: f64,
    /// Half of the width of the interval.
    pub half: f64,
    /// The value is at least this: it was not known yet when the run ended.
    pub is_censored: bool,
}

impl Bar {
    fn text(&self) -> String {
        censored(self.mean, self.is_censored)
    }
}

fn censored(value: f64, is_censored: bool) -> String {
    if is_censored { format!("> {}", figure(value)) } else { figure(value) }
}

/// A largest value that is so many times the smallest one is shown by ratio.
const RATIO_MIN: f64 = 20.0;

/// Bars, one for each case, with the interval drawn in: from zero, or by ratio where some could not be seen otherwise.
pub fn bars(title: &str, unit: &str, caption: &str, cases: &[Bar]) -> String {
    const ROW: f64 = 20.0;
    const NAMES: f64 = 330.0;
    let width = WIDTH - NAMES - 110.0;
    let means = || cases.iter().map(|bar| bar.mean).filter(|mean| mean.is_finite());
    let (least, most) = (means().fold(f64::INFINITY, f64::min), means().fold(1e-12, f64::max));
    let is_ratio = least > 0.0 && most / least >= RATIO_MIN;
    let origin = least / 2.0;
    let place = |value: f64| {
        let share = if is_ratio { (value.max(origin) / origin).ln() / (most / origin).ln() } else { value / most };
        share.clamp(0.0, 1.05)
    };
    let unit = if is_ratio { format!("{unit} (logarithmic)") } else { unit.to_owned() };
    let mut svg = opened(TOP + ROW * cases.len() as f64 + 34.0, title, caption);
    let _ =
        write!(svg, "<text x=\"{NAMES}\" y=\"{}\" class=\"s\" fill=\"{SOFT}\">{}</text>", TOP - 8.0, escaped(&unit));
    for (number, bar) in cases.iter().enumerate() {
        let Bar { name, mean, half, .. } = bar;
        let top = TOP + ROW * number as f64;
        let length = width * place(*mean).min(1.0);
        let middle = top + ROW / 2.0;
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect fill=\"{}\" x=\"{NAMES}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"{}\" opacity=\".75\"/>",
            NAMES - 8.0,
            middle + 4.0,
            escaped(name),
            colour_of_case(name),
            top + 3.0,
            ROW - 6.0
        );
        let mut end = NAMES + length;
        if half.is_finite() && *half > 0.0 {
            let (low, high) = (NAMES + width * place(mean - half), NAMES + width * place(mean + half));
            end = high;
            let _ = write!(
                svg,
                "<line class=\"i\" stroke=\"{INK}\" x1=\"{low:.1}\" y1=\"{middle:.1}\" x2=\"{high:.1}\" y2=\"{middle:.1}\"/>"
            );
        }
        let _ = write!(svg, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", end + 6.0, middle + 4.0, escaped(&bar.text()));
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
    rows: &[(String, Vec<Bar>)],
) -> String {
    const NAMES: f64 = 230.0;
    const ROW: f64 = 26.0;
    let cell = ((WIDTH - NAMES - 20.0) / columns.len().max(1) as f64).min(104.0);
    let all = || rows.iter().flat_map(|(_, cells)| cells.iter().map(|cell| cell.mean)).filter(|mean| mean.is_finite());
    let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
    let is_ratio = low > 0.0 && high / low >= RATIO_MIN;
    let place =
        |value: f64| if is_ratio { (value / low).ln() / (high / low).ln() } else { (value - low) / (high - low) };
    let mut svg = opened(TOP + ROW * (rows.len() + 1) as f64 + 44.0, title, caption);
    let _ = write!(
        svg,
        "<text x=\"16\" y=\"{}\" class=\"s\" fill=\"{SOFT}\">{} ↓, {} →</text>",
        TOP + 10.0,
        escaped(y),
        escaped(x)
    );
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
        for (column, bar) in values.iter().enumerate() {
            let left = NAMES + cell * column as f64;
            let shade = if high > low { place(bar.mean) } else { 0.0 };
            let _ = write!(
                svg,
                "<rect fill=\"{}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{}\" opacity=\"{:.2}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                COLOURS[1],
                cell - 2.0,
                ROW - 2.0,
                0.08 + 0.72 * shade,
                left + cell / 2.0,
                top + 17.0,
                escaped(&bar.text())
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}
