//! The figure of freshness and its price: requests for each useful answer against copies out of date, real and in the model.

use tidegate_sim::report::svg::{Chart, CurveShape, Emphasis, Scale, Series};
use tidegate_sim::statistics::Estimate;

/// A control in the figure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FreshnessMark {
    pub(super) name: String,
    /// Requests for each useful answer; none of who never asks.
    pub(super) price: Option<Estimate>,
    /// Copies out of date, in percent.
    pub(super) stale: Estimate,
    /// Both as the model has them.
    pub(super) model: Option<(f64, f64)>,
}

/// The file.
pub(super) fn svg(marks: &[FreshnessMark], caption: &str) -> String {
    let mut series = Vec::new();
    for FreshnessMark { name, price, stale, .. } in marks {
        let Some(price) = price else { continue };
        series.push(Series {
            name: name.clone(),
            points: vec![(price.mean, stale.mean, stale.half_width)],
            shape: CurveShape::Named,
            emphasis: if name == "ours" { Emphasis::Bold } else { Emphasis::Plain },
            half_across: price.half_width,
        });
    }
    // Whoever never asks has no price, and stands nowhere: how stale that leaves a copy is a line.
    let never = marks.iter().filter(|mark| mark.price.is_none());
    let goals: Vec<(f64, String)> =
        never.map(|mark| (mark.stale.mean, format!("{}, who never ask", mark.name))).collect();
    let model: Vec<(f64, f64)> =
        marks.iter().filter(|mark| mark.price.is_some()).filter_map(|mark| mark.model).collect();
    // Without a name it has no line in the legend: the caption says what is grey.
    series.push(Series { emphasis: Emphasis::Grey, ..Series::new("", CurveShape::Dots, model) });
    let points = || series.iter().flat_map(|series| series.points.iter());
    let ends = |(_, y, half): &(f64, f64, f64)| if half.is_finite() { [y - half.min(*y), y + half] } else { [*y, *y] };
    let heights: Vec<f64> = points().flat_map(ends).chain(goals.iter().map(|(goal, _)| *goal)).collect();
    let scales = [Scale::by_ratio(points().map(|point| point.0)), Scale::close(heights.into_iter())];
    Chart {
        title: "Freshness and its price, on sockets".to_owned(),
        caption: format!("{caption}; grey: what the model says"),
        x: "requests for each useful answer (less is better)".to_owned(),
        y: "copies out of date, % (less is better)".to_owned(),
        series,
        scales: Some(scales),
        goals,
    }
    .svg()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// `4.04 ± 1.63 \| 2.64`: what was found, and what the model says.
    fn pair(cell: &str) -> (Option<Estimate>, Option<f64>) {
        let (real, model) = cell.split_once("\\|").expect("real and model");
        let mut parts = real.split('±').map(|part| part.trim().parse::<f64>().ok());
        let (mean, half_width) = (parts.next().flatten(), parts.next().flatten().unwrap_or(0.0));
        (mean.map(|mean| Estimate { mean, half_width, count: 3 }), model.trim().parse().ok())
    }

    /// The first table of the page about the testbed.
    fn marks(page: &str) -> Vec<FreshnessMark> {
        let table = page.split("| real \\| model | stale, %").nth(1).expect("a table");
        let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
        rows.map(|row| {
            let row = row.replace("\\|", "\u{1}");
            let cells: Vec<String> = row.split('|').map(|cell| cell.trim().replace('\u{1}', "\\|")).collect();
            let ((stale, model_stale), (price, model_price)) = (pair(&cells[2]), pair(&cells[4]));
            let stale = stale.expect("a share");
            FreshnessMark { name: cells[1].clone(), price, stale, model: model_price.zip(model_stale) }
        })
        .collect()
    }

    /// The figure of the page is that of its table: `TIDEGATE_BLESS=1` draws it again.
    #[test]
    fn the_figure_in_the_manual_is_of_the_table_beside_it() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let page = fs::read_to_string(docs.join("testbed.md")).expect("the page");
        let marks = marks(&page);
        assert!(marks.len() == 5 && marks[0].price.is_none(), "{marks:?}");
        let (file, drawn) = (docs.join("img/testbed-freshness.svg"), svg(&marks, "300 KPs, 3 seeds of 3.5 s"));
        if std::env::var_os("TIDEGATE_BLESS").is_some() {
            fs::write(&file, &drawn).expect("a figure");
        }
        let kept = fs::read_to_string(&file).expect("a figure");
        assert!(kept == drawn, "draw it again: TIDEGATE_BLESS=1 cargo test -p tidegate-lab");
    }
}
