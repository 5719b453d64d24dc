//! Which figures an experiment gets: lines if a number varies, bars if names do, and what the scenario asks for besides.

use super::caption;
use super::svg::{Bar, Chart, CurveShape, Emphasis, Scale, Series, bars, emphasis_of, heat};
use crate::experiment::{CaseResult, Experiment, short};
use crate::scenario::{Relation, WorldKind};

/// A figure and its file.
#[derive(Clone, Debug)]
pub struct Figure {
    /// `e1-overload-stale.svg`
    pub file: String,
    /// The file's text.
    pub svg: String,
}

/// All figures of an experiment.
pub fn figures(experiment: &Experiment) -> Vec<Figure> {
    if experiment.replications() == 0 {
        return Vec::new();
    }
    let scenario = &experiment.scenario;
    let mut list = vec![Figure {
        file: format!("{}-{}.svg", scenario.name, scenario.primary.replace('_', "-")),
        svg: main_figure(experiment),
    }];
    if let Some(levels) = scenario.plot_levels.as_deref() {
        let svg = lines(experiment, |name| levels.split(", ").any(|level| level == name));
        list.extend(svg.map(|svg| Figure { file: format!("{}-levels.svg", scenario.name), svg }));
    }
    let Some(kind) = scenario.plot.as_deref() else { return list };
    let file = |part: &str| format!("{}-{kind}{part}.svg", scenario.name);
    // What came of a table has neither seconds nor single clients.
    let has = |part: fn(&CaseResult) -> bool| experiment.results.iter().any(part);
    match kind {
        "timeline" if !has(|result| !result.timeline.is_empty()) => {}
        "trace" if !has(|result| !result.trace.is_empty()) => {}
        "timeline" => list.push(Figure { file: file(""), svg: timeline(experiment) }),
        "trace" => list.push(Figure { file: file(""), svg: trace(experiment) }),
        "bars" => list.push(Figure { file: file(""), svg: plotted_bars(experiment) }),
        "price" => {
            for place in scenario.plot_only.iter().flat_map(|labels| labels.split(", ")) {
                list.push(Figure { file: file(&format!("-{place}")), svg: price(experiment, place) });
            }
        }
        _ => {}
    }
    list
}

/// What freshness costs: requests for each useful answer against the share of stale copies, a mark for each client.
fn price(experiment: &Experiment, place: &str) -> String {
    let is_here = |result: &&CaseResult| result.labels.iter().any(|(_, label)| label == place);
    let marks = experiment.results.iter().filter(is_here).map(|result| {
        let name = result.labels.iter().filter(|(_, label)| label != place).map(|(_, label)| label.as_str());
        let (asked, stale) = (experiment.estimate(result, "requests_per_answer"), experiment.estimate(result, "stale"));
        let name = name.collect::<Vec<_>>().join(", ");
        let (emphasis, shape) = (emphasis_of(&name), CurveShape::Named);
        let half_across = asked.half_width;
        Series { name, points: vec![(asked.mean, stale.mean, stale.half_width)], shape, emphasis, half_across }
    });
    // Who never asks has no answers, and stands nowhere.
    let series: Vec<Series> =
        marks.filter(|mark| mark.points.iter().all(|(x, y, _)| *x > 0.0 && y.is_finite())).collect();
    let axis = experiment.scenario.axes.iter().find(|axis| axis.points.iter().any(|(label, _)| label == place));
    let axis = axis.map_or("", |axis| short(&axis.name));
    let of_bound = |result: &CaseResult| {
        let ratio = experiment.estimate(result, "stale_over_bound").mean;
        (ratio > 0.0).then(|| experiment.estimate(result, "stale").mean / ratio)
    };
    let least = experiment.results.iter().filter(is_here).find_map(of_bound);
    let goals: Vec<(f64, String)> = least
        .iter()
        .flat_map(|least| {
            [(*least, "least possible".to_owned()), (1.1 * least, "goal: 1.10 × least possible".to_owned())]
        })
        .collect();
    let ends = |(_, y, half): &(f64, f64, f64)| [*y, y - half.min(*y), y + half];
    let heights: Vec<f64> = series.iter().flat_map(|it| it.points.iter().flat_map(ends)).collect();
    let heights = heights.into_iter().chain(goals.iter().map(|(goal, _)| *goal));
    // Where some are many times as stale as others, those that are fresh would lie upon each other.
    let finite = heights.clone().filter(|height| *height > 0.0);
    let (low, high) = (finite.clone().fold(f64::INFINITY, f64::min), finite.fold(0.0, f64::max));
    let is_wide = high >= STALE_WIDE * low;
    let up = if is_wide { Scale::by_ratio(heights) } else { Scale::close(heights) };
    let how = if is_wide { ", logarithmic" } else { "" };
    Chart {
        title: format!("What freshness costs: {axis} {place}"),
        caption: caption(experiment),
        x: "requests for each useful answer (less is better)".to_owned(),
        y: format!("stale, share (less is better{how})"),
        // A factor is a distance: 1.06 and 1.5 are as far apart as 100 and 140.
        scales: Some([
            Scale::by_ratio(series.iter().flat_map(|mark| mark.points.iter().map(|point| point.0)).chain([1.0])),
            up,
        ]),
        series,
        goals,
    }
    .svg()
}

/// How many times the freshest the stalest is where staleness is shown by ratio.
const STALE_WIDE: f64 = 2.5;

/// Name and unit of a metric.
fn unit(experiment: &Experiment, metric: &str) -> String {
    let found = experiment.scenario.metrics().iter().find(|(name, _, _)| *name == metric);
    match found {
        Some((name, "", _)) => name.replace('_', " "),
        Some((name, unit, _)) => format!("{}, {unit}", name.replace('_', " ")),
        None => metric.to_owned(),
    }
}

/// Whether numbers vary along an axis: another one at each point, and all of them of the same unit.
fn is_numeric<T>(points: &[(String, T)]) -> bool {
    let numbers: Vec<Option<(f64, &str)>> = points.iter().map(|(label, _)| with_unit(label)).collect();
    let Some(Some((_, unit))) = numbers.first() else { return false };
    let is_alike = numbers.iter().all(|number| number.is_some_and(|(_, other)| other == *unit));
    let is_new = |at: usize| numbers[..at].iter().all(|before| before.map(|it| it.0) != numbers[at].map(|it| it.0));
    numbers.len() > 1 && is_alike && (0..numbers.len()).all(is_new)
}

/// The number of a label such as `10`, `5%` or `200/s`, and its unit.
fn with_unit(label: &str) -> Option<(f64, &str)> {
    let end = label.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(label.len());
    Some((label[..end].parse().ok()?, &label[end..]))
}

fn number(label: &str) -> Option<f64> {
    with_unit(label).map(|(number, _)| number)
}

fn bar(experiment: &Experiment, result: &CaseResult, name: String) -> Bar {
    let metric = &experiment.scenario.primary;
    let estimate = experiment.estimate(result, metric);
    let is_censored = experiment.is_censored(result, metric);
    Bar { name, mean: estimate.mean, half: estimate.half_width, is_censored }
}

/// What tells a case from the others of an extra figure.
fn name_in_plot(experiment: &Experiment, result: &CaseResult) -> String {
    let only = experiment.scenario.plot_only.as_deref();
    let labels = result.labels.iter().map(|(_, label)| label.as_str()).filter(|label| Some(*label) != only);
    labels.collect::<Vec<_>>().join(", ")
}

/// The cases that the scenario names, the best first.
fn plotted_bars(experiment: &Experiment) -> String {
    let scenario = &experiment.scenario;
    let only = scenario.plot_only.as_deref().unwrap_or_default();
    let named = |result: &CaseResult| bar(experiment, result, name_in_plot(experiment, result));
    let mut bars_of: Vec<Bar> = plotted(experiment).map(named).collect();
    bars_of.sort_by(|one, other| one.mean.total_cmp(&other.mean));
    let title = if only.is_empty() { scenario.title.clone() } else { format!("{}: {only}", scenario.title) };
    bars(&title, &unit(experiment, &scenario.primary), &caption(experiment), &bars_of)
}

fn main_figure(experiment: &Experiment) -> String {
    let scenario = &experiment.scenario;
    let y = unit(experiment, &scenario.primary);
    let estimate_of = |result: &CaseResult| bar(experiment, result, result.name());
    let is_grid = scenario.axes.len() == 2 && scenario.axes.iter().all(|axis| axis.points.len() > 1);
    let numeric = scenario.axes.iter().filter(|axis| is_numeric(&axis.points)).count();
    if is_grid && numeric != 1 {
        return heat_map(experiment);
    }
    lines(experiment, |_| true).unwrap_or_else(|| {
        let cases: Vec<Bar> = experiment.results.iter().map(estimate_of).collect();
        bars(&scenario.title, &y, &caption(experiment), &cases)
    })
}

/// A line for each of the wanted variants along the axis of numbers, if there is one.
fn lines(experiment: &Experiment, is_wanted: impl Fn(&str) -> bool) -> Option<String> {
    let scenario = &experiment.scenario;
    // A line between two points says nothing.
    let axis = scenario.axes.iter().position(|axis| axis.points.len() > 2 && is_numeric(&axis.points))?;
    let mut series: Vec<Series> = Vec::new();
    for result in &experiment.results {
        let others: Vec<String> = result
            .labels
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != axis)
            .map(|(_, (_, label))| label.clone())
            .collect();
        let name = if others.is_empty() { scenario.primary.replace('_', " ") } else { others.join(", ") };
        if !is_wanted(&name) {
            continue;
        }
        let here = experiment.estimate(result, &scenario.primary);
        let point = (number(&result.labels[axis].1).unwrap_or(0.0), here.mean, here.half_width);
        if let Some(series) = series.iter_mut().find(|series| series.name == name) {
            series.points.push(point);
        } else {
            let emphasis = if others.is_empty() { Emphasis::Bold } else { emphasis_of(&name) };
            let shape = CurveShape::Marked;
            series.push(Series { name, points: vec![point], shape, emphasis, ..Series::default() });
        }
    }
    // A few lines can be told apart without that.
    if series.len() <= LINES_MAX {
        let grey = series.iter_mut().filter(|series| series.emphasis == Emphasis::Grey);
        grey.for_each(|series| series.emphasis = Emphasis::Plain);
    }
    let goals = goals_of(experiment);
    let points = || series.iter().flat_map(|series| series.points.iter());
    let unit_of_axis = with_unit(&scenario.axes[axis].points[0].0).map_or("", |(_, unit)| unit);
    // Time is never shown by ratio.
    let is_time = ["us", "ms", "s", "m", "h", "d"].contains(&unit_of_axis);
    let across = points().map(|point| point.0);
    let across = if is_time { Scale::even(across) } else { Scale::of(across, false) };
    let up = points().map(|point| point.1).chain(goals.iter().map(|(goal, _)| *goal));
    // What is compared with one: the difference counts, and not the distance from zero.
    let is_ratio = scenario.primary.contains("_over_");
    let up = if is_ratio && points().all(|point| point.1 < 3.0) { Scale::close(up) } else { Scale::of(up, true) };
    if let Some(bound) = bound(experiment, axis) {
        series.push(bound);
    }
    let name = short(&scenario.axes[axis].name).replace('_', " ");
    let x = if unit_of_axis.is_empty() { name } else { format!("{name}, {unit_of_axis}") };
    let (title, y) = (scenario.title.clone(), unit(experiment, &scenario.primary));
    Some(Chart { title, caption: caption(experiment), x, y, series, scales: Some([across, up]), goals }.svg())
}

/// The numbers that the primary metric is expected to reach, each once.
fn goals_of(experiment: &Experiment) -> Vec<(f64, String)> {
    let mut goals: Vec<(f64, String)> = Vec::new();
    for assert in experiment.scenario.asserts.iter().filter(|it| it.metric == experiment.scenario.primary) {
        let (goal, word) = match assert.relation {
            Some(Relation::AtLeast(goal)) => (goal, "at least"),
            Some(Relation::AtMost(goal)) => (goal, "at most"),
            _ => continue,
        };
        let number =
            assert.says.split([' ', ':']).next().filter(|it| it.starts_with('G') && it[1..].parse::<u32>().is_ok());
        let name = format!("{}: {word} {}", number.unwrap_or("expected"), crate::experiment::figure(goal));
        if !goals.iter().any(|(known, _)| *known == goal) {
            goals.push((goal, name));
        }
    }
    goals
}

/// Lines that have a colour each, beside a bound.
const LINES_MAX: usize = 5;

/// The least that the capacity allows, beside measured staleness.
fn bound(experiment: &Experiment, axis: usize) -> Option<Series> {
    if experiment.scenario.primary != "stale" || experiment.scenario.world != WorldKind::Polling {
        return None;
    }
    let mut points = Vec::new();
    for result in &experiment.results {
        let ratio = experiment.estimate(result, "stale_over_bound").mean;
        let x = number(&result.labels[axis].1)?;
        if ratio > 0.0 && !points.iter().any(|(known, _, _)| *known == x) {
            points.push((x, experiment.estimate(result, "stale").mean / ratio, 0.0));
        }
    }
    let (name, shape) = ("least possible".to_owned(), CurveShape::Dashed);
    Some(Series { name, points, shape, ..Series::default() })
}

fn heat_map(experiment: &Experiment) -> String {
    let scenario = &experiment.scenario;
    let [rows, columns] = scenario.axes.as_slice() else { return String::new() };
    let names: Vec<String> = columns.points.iter().map(|(label, _)| label.clone()).collect();
    let lines: Vec<(String, Vec<Bar>)> = experiment
        .results
        .chunks(names.len())
        .zip(&rows.points)
        .map(|(results, (label, _))| {
            (label.clone(), results.iter().map(|result| bar(experiment, result, result.name())).collect())
        })
        .collect();
    let title = format!("{}: {}", scenario.title, unit(experiment, &scenario.primary));
    let (mut axes, mut names, mut lines) = ((short(&columns.name), short(&rows.name)), names, lines);
    let room = |names: &[String]| names.iter().map(|name| name.chars().count()).max().unwrap_or(0) * names.len();
    if room(&names) > HEADS_MAX {
        // Names that do not fit above their columns stand before rows.
        let heads: Vec<String> = lines.iter().map(|(name, _)| name.clone()).collect();
        let column = |at: usize| lines.iter().filter_map(|(_, cells)| cells.get(at).cloned()).collect();
        lines = names.iter().enumerate().map(|(at, name)| (name.clone(), column(at))).collect();
        (axes, names) = ((axes.1, axes.0), heads);
    }
    heat(&title, &caption(experiment), axes, &names, &lines)
}

/// Letters that fit above the columns of a field.
const HEADS_MAX: usize = 80;

/// Curves have about this many points: a pixel or two each.
const POINTS: usize = 150;

/// The cases that the extra figure is to show.
fn plotted(experiment: &Experiment) -> impl Iterator<Item = &CaseResult> {
    let only = experiment.scenario.plot_only.as_deref();
    experiment
        .results
        .iter()
        .filter(move |result| only.is_none_or(|wanted| result.labels.iter().any(|(_, label)| label == wanted)))
}

/// Both axes of what goes on over time.
fn over_time(series: &[Series]) -> [Scale; 2] {
    let points = || series.iter().flat_map(|series| series.points.iter());
    [Scale::even(points().map(|point| point.0)), Scale::even(points().map(|point| point.1))]
}

fn timeline(experiment: &Experiment) -> String {
    let series: Vec<Series> = plotted(experiment)
        .map(|result| {
            let bin = result.timeline.len().div_ceil(POINTS).max(1);
            let mean = |chunk: &[crate::polling::Second]| {
                chunk.iter().map(|second| f64::from(second.stale)).sum::<f64>() / chunk.len() as f64
            };
            let points = result.timeline.chunks(bin).enumerate().map(|(n, chunk)| ((n * bin) as f64, mean(chunk)));
            let name = name_in_plot(experiment, result);
            Series { emphasis: emphasis_of(&name), ..Series::new(name, CurveShape::Line, points.collect()) }
        })
        .collect();
    let title = format!("{}: over time, first seed", experiment.scenario.title);
    Chart {
        title,
        caption: caption(experiment),
        x: "time, s".to_owned(),
        y: "stale, share".to_owned(),
        scales: Some(over_time(&series)),
        series,
        ..Chart::default()
    }
    .svg()
}

fn trace(experiment: &Experiment) -> String {
    let mut series = Vec::new();
    for result in plotted(experiment) {
        let step = result.trace.len().div_ceil(POINTS).max(1);
        let pick = |value: fn(&(f64, f64, f64)) -> f64| -> Vec<(f64, f64)> {
            result.trace.iter().step_by(step).map(|point| (point.0, value(point))).collect()
        };
        let name = result.name();
        series.push(Series::new(format!("{name}: AST"), CurveShape::Line, pick(|point| point.1)));
        series.push(Series::new(format!("{name}: AST + RBT"), CurveShape::Line, pick(|point| point.1 + point.2)));
    }
    let title = format!("{}: one client, first seed", experiment.scenario.title);
    Chart {
        title,
        caption: caption(experiment),
        x: "time, s".to_owned(),
        y: "timeout, s".to_owned(),
        scales: Some(over_time(&series)),
        series,
        ..Chart::default()
    }
    .svg()
}
