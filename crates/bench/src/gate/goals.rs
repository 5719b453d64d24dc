//! How figures of the gate are found and compared; the bounds are in the table of cases. Pure: figures in, verdict out.

use super::{ClassesOutcome, Contended, FleetOutcome, FlooderOutcome, GateCost, GateOutcome};
use crate::goals::{Finding, GoalState, state};
use crate::outcome::CaseOutcome;
use crate::report::{BrokerRole, ReportEntry};

/// The highest class's p99 at five times the load, at most so many times that at half of it.
pub(crate) fn highest(entries: &[ReportEntry], most: f64) -> Finding {
    classes(entries, |own| own.highest().map(|ratio| (format!("{ratio:.2}×"), state(ratio <= most))))
}

/// The lowest class's share at five times the load, at least.
pub(crate) fn lowest_share(entries: &[ReportEntry], least: f64) -> Finding {
    classes(entries, |own| {
        let share = own.at(5.0)?.classes[2].share;
        Some((format!("{:.1} %", share * 100.0), state(share >= least)))
    })
}

/// The least goodput from one to ten times the load, as a share of the most, at least.
pub(crate) fn goodput(entries: &[ReportEntry], least: f64) -> Finding {
    classes(entries, |own| own.steadiness().map(|share| (format!("{:.1} %", share * 100.0), state(share >= least))))
}

/// Rare publishers lose nothing at any load.
pub(crate) fn rare_lose_nothing(entries: &[ReportEntry], _: f64) -> Finding {
    classes(entries, |own| {
        let lost: u64 = own.loads.iter().map(|load| load.classes[0].lost).sum();
        Some((format!("{lost} lost"), state(lost == 0)))
    })
}

/// CPU time per message, as a multiple of that without. A difference that is smaller than the error of the median is none.
pub(crate) fn cpu(entries: &[ReportEntry], most: f64) -> Finding {
    let figures = cost(entries)?;
    let (ratio, error) = (figures.ratio()?, figures.error()?);
    if (ratio - most).abs() <= error {
        return Some((format!("{ratio:.3}×, and an error of ±{error:.3}: too noisy to tell"), GoalState::Unknown));
    }
    Some((format!("{ratio:.3}× ± {error:.3}"), state(ratio <= most)))
}

/// Memory of the gate per publisher, at most.
pub(crate) fn bytes(entries: &[ReportEntry], most: f64) -> Finding {
    cost(entries).and_then(GateCost::bytes_more).map(|bytes| (format!("{bytes:.0} B"), state(bytes <= most)))
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

/// The others' p99 beside a flooder, at most so many times that without, if back-off is enforced always: the flood is too
/// much for the subscriber, and not for the broker, so that by default priorities alone are at work.
pub(crate) fn flooder(entries: &[ReportEntry], most: f64) -> Finding {
    let always = flooded(entries, BrokerRole::Variant)?;
    let others = [(BrokerRole::Own, "by default"), (BrokerRole::Off, "off"), (BrokerRole::Mosquitto, "mosquitto")];
    let beside =
        others.iter().filter_map(|(role, name)| Some(format!("{name} {:.2}×", flooded(entries, *role)?.ratio())));
    let words: Vec<String> = std::iter::once(format!("{:.2}×", always.ratio())).chain(beside).collect();
    Some((words.join(", "), state(always.ratio() <= most && always.lost == 0)))
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

/// A rare publisher's longest latency with priorities is not above its shortest without.
pub(crate) fn max_below_min(entries: &[ReportEntry], _: f64) -> Finding {
    let (with, without) = (contended(entries, BrokerRole::Own)?, contended(entries, BrokerRole::Off)?);
    // Nobody who loses messages is fast.
    let is_met =
        with.rare.count > 0 && without.rare.count > 0 && with.rare.max_ms <= without.rare.min_ms && with.lost == 0;
    Some((format!("{:.1} ms with, {:.1} ms without", with.rare.max_ms, without.rare.min_ms), state(is_met)))
}

fn cost(entries: &[ReportEntry]) -> Option<&GateCost> {
    if let GateOutcome::Cost(figures) = gates(entries, BrokerRole::Own)? { Some(figures) } else { None }
}

/// The share of a well-behaved fleet's messages that is slowed, at most: by default, and if enforced always.
pub(crate) fn delayed(entries: &[ReportEntry], most: f64) -> Finding {
    let of = |role| {
        if let GateOutcome::Fleet(figures) = gates(entries, role)? { FleetOutcome::delayed(figures) } else { None }
    };
    let (usual, always) = (of(BrokerRole::Own)?, of(BrokerRole::Variant)?);
    let figure = format!("{:.3} %, always {:.3} %", usual * 100.0, always * 100.0);
    Some((figure, state(usual <= most && always <= most)))
}

#[cfg(test)]
#[path = "goals_tests.rs"]
mod tests;
