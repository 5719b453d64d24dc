//! What the cases of the gate should come to, and whether they did. Pure: figures in, verdict out.

use super::{ClassesOutcome, Contended, FleetOutcome, FlooderOutcome, GateCost, GateOutcome};
use crate::goals::{GoalState, GoalVerdict};
use crate::outcome::CaseOutcome;
use crate::report::{BrokerRole, ReportEntry};

/// A figure to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum GateGoal {
    /// The others' p99 beside a flooder, at most so many times that without, if back-off is enforced always: the flood is
    /// too much for the subscriber, and not for the broker, so that by default priorities alone are at work.
    Flooder(f64),
    /// The highest class's p99 at five times the load, at most so many times that at half of it.
    Highest(f64),
    /// The lowest class's share at five times the load, at least.
    LowestShare(f64),
    /// The least goodput from one to ten times the load, as a share of the most, at least.
    Goodput(f64),
    /// Rare publishers lose nothing at any load.
    RareLoseNothing,
    /// A rare publisher's longest latency with priorities is not above its shortest without.
    MaxBelowMin,
    /// CPU time per message with the gate, at most so many times that without.
    Cpu(f64),
    /// CPU time per message that needs no store with one, at most so many times that without.
    Clean(f64),
    /// Memory of the gate per publisher, at most.
    Bytes(f64),
    /// The share of a well-behaved fleet's messages that is slowed, at most: by default, and if enforced always.
    Delayed(f64),
}

/// Figures in words and whether they are good enough.
type Finding = Option<(String, bool)>;

impl GateGoal {
    /// Judges the entries of one case.
    pub(crate) fn judge(self, entries: &[ReportEntry]) -> GoalVerdict {
        let finding = match self {
            Self::Flooder(most) => flooder(entries, most),
            Self::Highest(most) => {
                classes(entries, |own| own.highest().map(|ratio| (format!("{ratio:.2}×"), ratio <= most)))
            }
            Self::LowestShare(least) => classes(entries, |own| {
                own.at(5.0)
                    .map(|load| (format!("{:.1} %", load.classes[2].share * 100.0), load.classes[2].share >= least))
            }),
            Self::Goodput(least) => classes(entries, |own| {
                own.steadiness().map(|share| (format!("{:.1} %", share * 100.0), share >= least))
            }),
            Self::RareLoseNothing => classes(entries, |own| {
                let lost: u64 = own.loads.iter().map(|load| load.classes[0].lost).sum();
                Some((format!("{lost} lost"), lost == 0))
            }),
            Self::MaxBelowMin => max_below_min(entries),
            Self::Cpu(most) | Self::Clean(most) => return self.cpu(entries, most),
            Self::Bytes(most) => {
                cost(entries).and_then(GateCost::bytes_more).map(|bytes| (format!("{bytes:.0} B"), bytes <= most))
            }
            Self::Delayed(most) => delayed(entries, most),
        };
        let (figure, state) = match finding {
            Some((figure, true)) => (figure, GoalState::Met),
            Some((figure, false)) => (figure, GoalState::Missed),
            None => ("not measured".to_owned(), GoalState::Unknown),
        };
        GoalVerdict { goal: self.words(), figure, state }
    }

    /// A difference that is smaller than the error of the median is none.
    fn cpu(self, entries: &[ReportEntry], most: f64) -> GoalVerdict {
        let found = cost(entries).and_then(|figures| Some((figures.ratio()?, figures.error()?)));
        let (figure, state) = match found {
            Some((ratio, error)) if (ratio - most).abs() <= error => {
                (format!("{ratio:.3}×, and an error of ±{error:.3}: too noisy to tell"), GoalState::Unknown)
            }
            Some((ratio, error)) => {
                (format!("{ratio:.3}× ± {error:.3}"), if ratio <= most { GoalState::Met } else { GoalState::Missed })
            }
            None => ("not measured".to_owned(), GoalState::Unknown),
        };
        GoalVerdict { goal: self.words(), figure, state }
    }

    fn words(self) -> String {
        match self {
            Self::Flooder(most) => format!("others' p99 ≤ {most}× beside a flooder, with backoff.enforce=always"),
            Self::Highest(most) => format!("highest class p99 at 5× ≤ {most}× unloaded"),
            Self::LowestShare(least) => format!("lowest class ≥ {:.0} % at 5×", least * 100.0),
            Self::Goodput(least) => format!("goodput ≥ {:.0} % of the peak from 1× to 10×", least * 100.0),
            Self::RareLoseNothing => "rare publishers lose nothing".to_owned(),
            Self::MaxBelowMin => "a rare publisher's maximum ≤ its minimum without priorities".to_owned(),
            Self::Cpu(most) => format!("CPU per message ≤ {most:.2}× that without the gate"),
            Self::Clean(most) => {
                format!("CPU per message of sessions that do not last ≤ {most:.2}× that without a store")
            }
            Self::Bytes(most) => format!("≤ {most:.0} B per publisher more than without the gate"),
            Self::Delayed(most) => {
                format!("≤ {:.1} % of a good fleet's messages slowed, by default and always", most * 100.0)
            }
        }
    }
}

fn gates(entries: &[ReportEntry], role: BrokerRole) -> Option<&GateOutcome> {
    match entries.iter().find(|entry| entry.role == role)?.outcome.as_ref() {
        Ok(CaseOutcome::Gate(gate)) => Some(gate),
        _ => None,
    }
}

fn flooded(entries: &[ReportEntry], role: BrokerRole) -> Option<&FlooderOutcome> {
    if let GateOutcome::Flooder(figures) = gates(entries, role)? { Some(figures) } else { None }
}

fn flooder(entries: &[ReportEntry], most: f64) -> Finding {
    let always = flooded(entries, BrokerRole::Variant)?;
    let others = [(BrokerRole::Own, "by default"), (BrokerRole::Off, "off"), (BrokerRole::Mosquitto, "mosquitto")];
    let beside =
        others.iter().filter_map(|(role, name)| Some(format!("{name} {:.2}×", flooded(entries, *role)?.ratio())));
    let words: Vec<String> = std::iter::once(format!("{:.2}×", always.ratio())).chain(beside).collect();
    Some((words.join(", "), always.ratio() <= most && always.lost == 0))
}

/// Our figure, with those of the others beside it.
fn classes(entries: &[ReportEntry], figure: impl Fn(&ClassesOutcome) -> Finding) -> Finding {
    let of = |role| if let GateOutcome::Classes(figures) = gates(entries, role)? { figure(figures) } else { None };
    let (words, is_met) = of(BrokerRole::Own)?;
    let mut all = vec![words];
    for (role, name) in [(BrokerRole::Off, "off"), (BrokerRole::Mosquitto, "mosquitto")] {
        all.extend(of(role).map(|(words, _)| format!("{name} {words}")));
    }
    Some((all.join(", "), is_met))
}

fn contended(entries: &[ReportEntry], role: BrokerRole) -> Option<&Contended> {
    if let GateOutcome::Priority(figures) = gates(entries, role)? { Some(figures) } else { None }
}

fn max_below_min(entries: &[ReportEntry]) -> Finding {
    let (with, without) = (contended(entries, BrokerRole::Own)?, contended(entries, BrokerRole::Off)?);
    // Nobody who loses messages is fast.
    let is_met =
        with.rare.count > 0 && without.rare.count > 0 && with.rare.max_ms <= without.rare.min_ms && with.lost == 0;
    Some((format!("{:.1} ms with, {:.1} ms without", with.rare.max_ms, without.rare.min_ms), is_met))
}

fn cost(entries: &[ReportEntry]) -> Option<&GateCost> {
    if let GateOutcome::Cost(figures) = gates(entries, BrokerRole::Own)? { Some(figures) } else { None }
}

fn delayed(entries: &[ReportEntry], most: f64) -> Finding {
    let of = |role| {
        if let GateOutcome::Fleet(figures) = gates(entries, role)? { FleetOutcome::delayed(figures) } else { None }
    };
    let (usual, always) = (of(BrokerRole::Own)?, of(BrokerRole::Variant)?);
    let figure = format!("{:.3} %, always {:.3} %", usual * 100.0, always * 100.0);
    Some((figure, usual <= most && always <= most))
}

#[cfg(test)]
#[path = "goals_tests.rs"]
mod tests;
