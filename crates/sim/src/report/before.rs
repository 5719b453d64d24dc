//! What the edition before this one found, beside what is found now, for every case whose figures can have moved.
//!
//! `before.csv` has a line for each figure: experiment, labels of the case, metric, value as it was printed. Until that edition
//! the laboratory had a front desk of its own instead of the product's request queue, a pacer alone instead of the client
//! library's session, and a model of the broker's gate for publishers.

use std::fmt::Write;

use super::book::cases;
use crate::experiment::{Experiment, figure};

const BEFORE: &str = include_str!("before.csv");

/// A figure of the edition before.
#[derive(Clone, Debug, PartialEq)]
struct Earlier<'a> {
    name: &'a str,
    labels: Vec<&'a str>,
    metric: &'a str,
    value: &'a str,
}

fn figures() -> impl Iterator<Item = Earlier<'static>> {
    BEFORE.lines().filter_map(|line| {
        let mut parts = line.split(" | ").map(str::trim);
        let (name, labels) = (parts.next()?, parts.next()?);
        let labels = labels.split(" ; ").map(str::trim).filter(|label| !label.is_empty()).collect();
        Some(Earlier { name, labels, metric: parts.next()?, value: parts.next()? })
    })
}

/// The table, in Markdown: a line for each case.
pub(super) fn table(experiments: &[Experiment]) -> String {
    let mut text = "| experiment | case | before → now |\n| --- | --- | --- |".to_owned();
    let mut last = None;
    for Earlier { name, labels, metric, value } in figures() {
        let Some(experiment) = experiments.iter().find(|experiment| experiment.scenario.name == name) else { continue };
        let Some(case) = cases(experiment, &labels).first().copied() else { continue };
        let now = figure(experiment.estimate(case, metric).mean);
        let here = Some((name, labels));
        if last == here {
            text.push_str("; ");
        } else {
            let _ = write!(text, "\n| `{name}` | {} | ", case.name());
            last = here;
        }
        let _ = write!(text, "{} {value} → {now}", metric.replace('_', " "));
    }
    // A cell is ended where the next line begins.
    text.lines()
        .map(|line| if line.ends_with('|') { line.to_owned() } else { format!("{line} |") })
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::named;

    #[test]
    fn every_figure_of_before_is_of_a_case_that_there_is() {
        let mut found = 0;
        for Earlier { name, labels, metric, value } in figures() {
            let scenario = named(name).expect(name).unwrap();
            assert!(scenario.metrics().iter().any(|(known, _, _)| *known == metric), "{name}: {metric}");
            for label in labels {
                let mut points = scenario.axes.iter().flat_map(|axis| &axis.points);
                assert!(points.any(|(point, _)| point == label), "{name}: {label}");
            }
            assert!(value.parse::<f64>().is_ok(), "{name}: {value}");
            found += 1;
        }
        assert_eq!(found, BEFORE.lines().count(), "a line that is no figure");
    }

    #[test]
    fn without_experiments_the_table_is_empty() {
        assert_eq!(table(&[]), "| experiment | case | before → now |\n| --- | --- | --- |");
    }
}
