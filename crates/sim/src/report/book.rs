//! The book: `docs/evaluation.md` with ten answers, all answers behind it, and a page for each experiment; made of templates
//! without numbers and of the results of every experiment.
//!
//! The templates (`front.md`, `answers.md`) say in prose what was looked for; whatever was found is asked for between double braces:
//! ```text
//! {{value NAME|METRIC|LABEL|…}}          the mean of the cases with these labels; the least to the most, if there are several
//! {{percent NAME|METRIC|LABEL|…}}        the same in percent
//! {{runs NAME|METRIC|LABEL|…}}           in how many of the runs of these cases the metric is 1: "3 of 10"
//! {{change NAME|METRIC|LABEL|A -> B}}    by how many percent B differs from A
//! {{holds NAME|WORDS}}                   Yes or No: whether the expectation that begins with these words held
//! {{figure FILE|TITLE}}                  a figure, if its experiment was run
//! {{seconds NAME}}                       how long it took, and with how many threads
//! {{goals}} {{before}} {{cost}} {{extent}} {{contents}}
//! ```
//! What was not run is said to be so; a template that asks for what no experiment has is a mistake that a test finds.

use std::fmt::Write;

use super::figures::figures;
use super::page::markdown;
use super::summary::csv;
use super::{before, goals};
use crate::experiment::{CaseResult, Experiment, figure};

/// What the experiments cost on some machine: the only part of the book that another run does not repeat to the byte.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// The experiment.
    pub name: String,
    /// Runs that were finished.
    pub runs: usize,
    /// Events in all of them.
    pub events: f64,
    /// By the clock on the wall.
    pub seconds: f64,
    /// Runs at a time.
    pub threads: usize,
    /// The most memory that the process had until the end of it, in bytes; zero if that is not known.
    pub memory: u64,
}

const FRONT: &str = include_str!("front.md");
const ANSWERS: &str = include_str!("answers.md");
const NOT_RUN: &str = "(not run)";

/// The whole book: names of files with their texts. The first lies beside `folder`, in which all others are.
pub fn book(experiments: &[Experiment], costs: &[Cost], folder: &str) -> Vec<(String, String)> {
    let filled_in = |template| filled(template, |directive| answer(directive, experiments, costs, folder));
    let mut book =
        vec![(format!("{folder}.md"), filled_in(FRONT)), (format!("{folder}/answers.md"), filled_in(ANSWERS))];
    book.extend(pages(experiments, folder));
    book
}

/// The pages of the experiments alone, with their tables and figures.
pub fn pages(experiments: &[Experiment], folder: &str) -> Vec<(String, String)> {
    let mut pages = Vec::new();
    for experiment in experiments {
        let name = &experiment.scenario.name;
        pages.push((format!("{folder}/{name}.md"), markdown(experiment)));
        pages.push((format!("{folder}/{name}.csv"), csv(experiment)));
        pages.extend(figures(experiment).into_iter().map(|figure| (format!("{folder}/{}", figure.file), figure.svg)));
    }
    pages
}

/// A template with every directive replaced.
fn filled(template: &str, mut answer: impl FnMut(&str) -> String) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (directive, after) = after.split_once("}}").unwrap_or((after, ""));
        text.push_str(before);
        // A directive may be broken into lines.
        text.push_str(&answer(&directive.split_whitespace().collect::<Vec<_>>().join(" ")));
        rest = after;
    }
    text.push_str(rest);
    text
}

/// What is between two braces: a word, and parts separated by bars.
struct Directive<'a> {
    word: &'a str,
    name: &'a str,
    parts: Vec<&'a str>,
}

impl<'a> Directive<'a> {
    fn of(text: &'a str) -> Self {
        let (word, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        let mut parts = rest.split('|').map(str::trim);
        Self { word, name: parts.next().unwrap_or(""), parts: parts.collect() }
    }
}

fn answer(text: &str, experiments: &[Experiment], costs: &[Cost], folder: &str) -> String {
    let directive = Directive::of(text);
    match directive.word {
        "goals" => return goals::table(experiments, costs),
        "before" => return before::table(experiments),
        "cost" => return cost_table(costs),
        "extent" => return extent(experiments),
        "contents" => return contents(experiments, folder),
        "figure" => {
            let file = format!("{}.svg", directive.name);
            let is_there = |experiment: &Experiment| figures(experiment).iter().any(|figure| figure.file == file);
            let title = directive.parts.first().copied().unwrap_or_default();
            let figure = format!("![{title}]({folder}/{file})");
            return if experiments.iter().any(is_there) { figure } else { NOT_RUN.to_owned() };
        }
        "seconds" => {
            return costs.iter().find(|cost| cost.name == directive.name).map_or(NOT_RUN.to_owned(), Cost::words);
        }
        _ => {}
    }
    let found = experiments.iter().find(|experiment| experiment.scenario.name == directive.name);
    let Some(experiment) = found.filter(|experiment| experiment.replications() > 0) else { return NOT_RUN.to_owned() };
    about(experiment, &directive).unwrap_or_else(|| NOT_RUN.to_owned())
}

fn about(experiment: &Experiment, directive: &Directive<'_>) -> Option<String> {
    let (first, labels) = directive.parts.split_first()?;
    match directive.word {
        "value" => range(experiment, first, labels, figure),
        "percent" => range(experiment, first, labels, |mean| format!("{} %", figure(100.0 * mean))),
        "runs" => {
            let values: Vec<f64> =
                cases(experiment, labels).iter().flat_map(|case| experiment.values(case, first)).collect();
            let ones = values.iter().filter(|value| **value >= 1.0).count();
            (!values.is_empty()).then(|| format!("{ones} of {}", values.len()))
        }
        "change" => {
            let (last, common) = labels.split_last()?;
            let (from, to) = last.split_once("->")?;
            let mean = |label: &str| {
                let labels: Vec<&str> = common.iter().copied().chain([label.trim()]).collect();
                cases(experiment, &labels).first().map(|case| experiment.estimate(case, first).mean)
            };
            Some(format!("{:+.1} %", 100.0 * (mean(to)? / mean(from)? - 1.0)).replace('-', "−"))
        }
        "holds" => {
            let verdicts = experiment.verdicts();
            let verdict = verdicts.iter().find(|verdict| verdict.says.starts_with(first))?;
            Some(if verdict.holds { "Yes" } else { "No" }.to_owned())
        }
        _ => None,
    }
}

/// The cases that have all these labels, whatever the axes are called.
pub(super) fn cases<'a>(experiment: &'a Experiment, labels: &[&str]) -> Vec<&'a CaseResult> {
    let has = |case: &CaseResult, wanted: &str| case.labels.iter().any(|(_, label)| label == wanted);
    experiment.results.iter().filter(|case| labels.iter().all(|wanted| has(case, wanted))).collect()
}

fn range(experiment: &Experiment, metric: &str, labels: &[&str], text: impl Fn(f64) -> String) -> Option<String> {
    let mean = |case: &CaseResult| (experiment.estimate(case, metric).mean, experiment.is_censored(case, metric));
    let mut means: Vec<(f64, bool)> = cases(experiment, labels).into_iter().map(mean).collect();
    means.retain(|(mean, _)| mean.is_finite());
    means.sort_by(|one, other| one.0.total_cmp(&other.0));
    let text =
        |(mean, is_censored): (f64, bool)| format!("{}{}", if is_censored { "more than " } else { "" }, text(mean));
    let (low, high) = (text(*means.first()?), text(*means.last()?));
    Some(if low == high { low } else { format!("{low} to {high}") })
}

/// How much of the book was run.
fn extent(experiments: &[Experiment]) -> String {
    let runs: usize =
        experiments.iter().flat_map(|experiment| &experiment.results).map(|result| result.runs.len()).sum();
    let cases: usize = experiments.iter().map(|experiment| experiment.results.len()).sum();
    let quick = experiments.iter().any(|experiment| experiment.scenario.quick);
    let few = |is_enough: bool| -> Vec<String> {
        let few = experiments.iter().filter(|experiment| experiment.replications() < REPLICATIONS_WANTED);
        few.filter(|experiment| (experiment.complete && experiment.scenario.precision.is_some()) == is_enough)
            .map(|experiment| {
                let (least, most) = (experiment.replications(), experiment.replications_most());
                let count = if least == most { least.to_string() } else { format!("{least} to {most}") };
                format!("{} ({count})", experiment.scenario.name)
            })
            .collect()
    };
    let mut text = format!("{} experiments, {cases} cases, {runs} runs.", experiments.len());
    let (enough, few) = (few(true), few(false));
    if !enough.is_empty() {
        let _ = write!(
            text,
            " {REPLICATIONS_WANTED} replications each, or fewer of a case where these were enough to bring the interval of its \
             primary metric within the share of its mean that the scenario asks for, and to decide every expectation about it: {}. \
             An interval that was stopped so is right nine times of ten at least, instead of nineteen of twenty.",
            enough.join(", ")
        );
    }
    if !few.is_empty() {
        let _ = write!(
            text,
            " Fewer than {REPLICATIONS_WANTED} replications, because the time for them was cut: {}.",
            few.join(", ")
        );
    }
    if quick {
        text.push_str(" **This is a quick look: few replications, a third of the measured time.**");
    }
    text
}

/// Replications of an experiment whose intervals are to be believed.
const REPLICATIONS_WANTED: usize = 10;

fn contents(experiments: &[Experiment], folder: &str) -> String {
    let line = |experiment: &Experiment| {
        let verdicts = experiment.verdicts();
        let held = verdicts.iter().filter(|verdict| verdict.holds).count();
        let held = match verdicts.len() {
            0 => String::new(),
            all => format!(": {held} of {all} expectations hold"),
        };
        format!("- [{}]({folder}/{}.md){held}\n", experiment.scenario.title, experiment.scenario.name)
    };
    experiments.iter().map(line).collect::<String>().trim_end().to_owned()
}

fn cost_table(costs: &[Cost]) -> String {
    let mut text = "| experiment | runs | events | time | events per second and thread | memory |\n\
                    | --- | ---: | ---: | ---: | ---: | ---: |\n"
        .to_owned();
    for cost in costs {
        let _ = writeln!(
            text,
            "| {} | {} | {:.1} M | {:.0} s | {:.2} M | {} |",
            cost.name,
            cost.runs,
            cost.events / 1e6,
            cost.seconds,
            cost.rate() / 1e6,
            if cost.memory == 0 { "–".to_owned() } else { format!("{} MB", cost.memory / 1_000_000) }
        );
    }
    let seconds: f64 = costs.iter().map(|cost| cost.seconds).sum();
    let events: f64 = costs.iter().map(|cost| cost.events).sum();
    let _ = write!(text, "| all | | {:.0} M | {:.0} min | | |", events / 1e6, seconds / 60.0);
    text
}

impl Cost {
    /// How long somebody waits for it.
    fn words(&self) -> String {
        let threads = self.threads.clamp(1, self.runs.max(1));
        let word = if threads == 1 { "thread" } else { "threads" };
        format!("{:.0} s on {threads} {word}", self.seconds.max(1.0))
    }

    /// Events per second of each thread.
    pub fn rate(&self) -> f64 {
        self.events / (self.seconds * self.threads.clamp(1, self.runs.max(1)) as f64).max(1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{BOOK, Scenario};

    /// What every directive of the template asks for exists in the book.
    #[test]
    fn the_template_asks_for_what_there_is() {
        let scenarios: Vec<Scenario> = BOOK.iter().map(|(name, text)| Scenario::read(name, text).unwrap()).collect();
        let mut asked = 0;
        let files: Vec<String> = BOOK.iter().map(|(name, _)| (*name).to_owned()).collect();
        filled(&format!("{FRONT}{ANSWERS}"), |text| {
            let Directive { word, name, parts } = Directive::of(text);
            asked += 1;
            if ["goals", "before", "cost", "extent", "contents"].contains(&word) {
                return String::new();
            }
            if word == "figure" {
                assert!(files.iter().any(|file| name.starts_with(file.as_str())) && parts.len() == 1, "{text}");
                return String::new();
            }
            let scenario = scenarios.iter().find(|scenario| scenario.name == name).expect(text);
            if word == "seconds" {
                return String::new();
            }
            if word == "holds" {
                assert!(scenario.asserts.iter().any(|assert| assert.says.starts_with(parts[0])), "{text}");
                return String::new();
            }
            assert!(["value", "percent", "runs", "change"].contains(&word), "{text}");
            assert!(scenario.metrics().iter().any(|(metric, _, _)| *metric == parts[0]), "{text}");
            let labels = parts[1..].iter().flat_map(|part| part.split("->")).map(str::trim);
            for label in labels {
                let known = scenario.axes.iter().flat_map(|axis| &axis.points).any(|(point, _)| point == label);
                assert!(known, "{text}: {label}");
            }
            String::new()
        });
        assert!(asked > 20);
    }

    /// Numbers are the generator's; the template has names only.
    #[test]
    fn the_template_has_no_numbers() {
        let prose = filled(&format!("{FRONT}{ANSWERS}"), |_| String::new());
        let mut prose = prose.split_whitespace().collect::<Vec<_>>().join(" ");
        for name in ["AST+RBT of 2018", "AST+RBT of 2019", "paper 003", "Paper 003", "papers 000 and 002", "95 %"] {
            prose = prose.replace(name, "");
        }
        let goals: Vec<&str> = prose.split(|c: char| !c.is_alphanumeric()).collect();
        for word in goals.into_iter().filter(|word| word.contains(|c: char| c.is_ascii_digit())) {
            // Names of experiments: e1-overload.
            if word.starts_with(['e', 'p']) && word[1..].chars().all(|c| c.is_ascii_digit()) {
                continue;
            }
            let is_name = word.starts_with(['G', 'E', 'P']) && word[1..].chars().all(|c| c.is_ascii_digit());
            assert!(is_name, "{word}");
        }
    }

    #[test]
    fn directives_are_replaced_wherever_they_stand() {
        assert_eq!(filled("a {{x}} b {{y\n  z}}", |text| format!("<{text}>")), "a <x> b <y z>");
        assert_eq!(filled("{{open", str::to_owned), "open");
        assert_eq!(answer("value e1-overload|stale|0.5", &[], &[], "f"), NOT_RUN);
    }
}
