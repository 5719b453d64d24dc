//! The figures of a page drawn again from its table, when the drawing has changed and the experiment has not.
//!
//! A table has means and intervals, and not the runs behind them: what is drawn of seconds or of single runs stays as it is.

use super::caption;
use super::figures::{Figure, figures};
use super::svg::escaped;
use crate::experiment::{CaseResult, Experiment};
use crate::scenario::Scenario;
use crate::statistics::Estimate;

/// The figures that the table of a page tells all about, with the words of the page about where its numbers come from; why not,
/// if the table is of other cases than the scenario has.
pub fn redrawn(scenario: &Scenario, page: &str, table: &str) -> Result<Vec<Figure>, String> {
    let experiment = experiment_of(scenario, table)?;
    let begin =
        page.rfind(&format!("\n{}, tidegate ", scenario.name)).ok_or("its page does not say where it comes from")?;
    let said = page[begin + 1..].split(". All metrics:").next().unwrap_or_default();
    let (now, then) = (escaped(&caption(&experiment)), escaped(said));
    let again = |figure: Figure| Figure { svg: figure.svg.replace(&now, &then), ..figure };
    Ok(figures(&experiment).into_iter().map(again).collect())
}

/// An experiment with the means and intervals of a table.
fn experiment_of(scenario: &Scenario, table: &str) -> Result<Experiment, String> {
    let mut lines = table.lines().map(cells);
    let head = lines.next().ok_or("its table is empty")?;
    let at = |name: &str| head.iter().position(|column| column == name);
    let count_at = at("replications").ok_or("its table has no replications")?;
    let rows: Vec<Vec<String>> = lines.collect();
    // What the scenario has come to vary since then was not run, and what it has left out since then is not drawn.
    let mut scenario = scenario.clone();
    for (column, axis) in scenario.axes.iter_mut().enumerate() {
        axis.points.retain(|(label, _)| rows.iter().any(|row| row.get(column) == Some(label)));
    }
    let cases = scenario.cases().map_err(|problem| problem.to_string())?;
    let mut results = Vec::with_capacity(cases.len());
    for case in &cases {
        let is_meant = |row: &&Vec<String>| {
            case.labels.len() == count_at && case.labels.iter().zip(*row).all(|(it, cell)| it.1 == *cell)
        };
        let mut result = CaseResult::empty(case);
        let row = rows.iter().find(is_meant).ok_or_else(|| format!("its table has no case {}", result.name()))?;
        let number = |column: Option<usize>| column.and_then(|at| row.get(at)?.parse::<f64>().ok());
        let count = number(Some(count_at)).filter(|count| (1.0..=1e5).contains(count)).unwrap_or(1.0) as usize;
        let sample = |(name, _, _): &(&str, &str, &str)| {
            let mean = number(at(name)).unwrap_or(f64::NAN);
            let half_width = number(at(&format!("{name}_half_width_95"))).unwrap_or(0.0);
            Estimate { mean, half_width, count }.sample()
        };
        let samples: Vec<Vec<f64>> = scenario.metrics().iter().map(sample).collect();
        result.runs = (0..count).map(|run| samples.iter().map(|sample| sample[run]).collect()).collect();
        results.push(result);
    }
    if results.is_empty() {
        return Err("its table has none of the scenario's cases".to_owned());
    }
    Ok(Experiment { scenario, results, complete: true })
}

/// The cells of a line; those between quotes may have commas.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let (mut is_quoted, mut characters) = (false, line.chars().peekable());
    while let Some(character) = characters.next() {
        match (character, cells.last_mut()) {
            ('"', Some(cell)) if is_quoted && characters.peek() == Some(&'"') => {
                cell.push('"');
                characters.next();
            }
            ('"', _) => is_quoted = !is_quoted,
            (',', _) if !is_quoted => cells.push(String::new()),
            (_, Some(cell)) => cell.push(character),
            (_, None) => {}
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::experiment::{Options, run};
    use crate::report::{csv, pages};

    const TEXT: &str = "title = \"T\"\nquestion = \"?\"\nreplications = 3\n[run]\nduration = \"40s\"\nwarm_up = \"20s\"\n\
        plot = \"timeline\"\n[[variant]]\nname = \"fixed, slow\"\n\"clients.interval\" = \"9s\"\n\
        [[variant]]\nname = \"a \\\"quick\\\" one\"\n\"clients.interval\" = \"5s\"\n";

    #[test]
    fn a_figure_of_a_table_is_the_figure_of_the_experiment() {
        let scenario = Scenario::read("t", &TEXT.replace("plot = \"timeline\"\n", "")).unwrap();
        let stop = AtomicBool::new(false);
        let options = Options { threads: 1, stop: &stop, is_over: &|| false, progress: &|_, _| {} };
        let mut experiment = run(&scenario, &options).unwrap();
        experiment.complete = false;
        let page = &pages(std::slice::from_ref(&experiment), "f")[0].1;
        let again = redrawn(&scenario, page, &csv(&experiment)).unwrap();
        let first = figures(&experiment);
        assert_eq!(again.len(), first.len());
        for (one, other) in first.iter().zip(&again) {
            assert_eq!((&one.file, &one.svg), (&other.file, &other.svg), "caption and all");
        }
        let other =
            Scenario::read("t", &TEXT.replace("name = \"", "name = \"not ").replace("plot = \"timeline\"\n", ""))
                .unwrap();
        assert!(redrawn(&other, page, &csv(&experiment)).unwrap_err().contains("none of"));
        assert!(redrawn(&scenario, "", &csv(&experiment)).is_err() && redrawn(&scenario, page, "").is_err());
    }

    #[test]
    fn cells_may_have_commas_and_quotes() {
        assert_eq!(cells("a,\"b, \"\"c\"\"\",,1.5"), ["a", "b, \"c\"", "", "1.5"]);
    }
}
