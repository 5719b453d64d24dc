//! What the user sees: a table that grows case by case, the goals below each case, what was wrong below it all.

use std::fmt::Write;

use super::durable::DurableOutcome;
use super::goals::{GoalState, GoalVerdict};
use super::outcome::{
    CaseOutcome, ChurnOutcome, ConnectFailures, Cores, Faults, IdleOutcome, Overload, Storm, TrafficOutcome,
};

/// What one broker did in one case.
#[derive(Clone, Debug)]
pub(super) struct ReportEntry {
    pub(super) case: &'static str,
    pub(super) broker: String,
    pub(super) role: BrokerRole,
    /// The reason, if the case could not be measured.
    pub(super) outcome: Result<CaseOutcome, String>,
}

/// What a broker is to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BrokerRole {
    /// The one that is measured.
    Own,
    /// The one that most goals speak of.
    Mosquitto,
    /// Any other.
    Peer,
    /// No broker: copies bytes.
    Relay,
    /// Ours with another setting.
    Variant,
    /// Ours without the gate.
    Off,
}

/// Where words begin that belong to a case and have no broker.
const INDENT: &str = "                 ";

/// The line above the table.
pub(super) fn header() -> String {
    let (cost, split, cores) = ("CPU s/M", "user+sys", "cores b/t/o");
    format!(
        "{:<17}{:<11}{cost:>8}{split:>13}{:>13}{:>24}{cores:>17}{:>8}",
        "case", "broker", "delivered/s", "p50/99/99.9 µs", "ratio"
    )
}

/// The lines of one case: ours first, then the others, each with how many times our CPU time it needs.
pub(super) fn lines(entries: &[ReportEntry]) -> String {
    let own = entries.first().and_then(ReportEntry::cost);
    let mut text = String::new();
    for (number, entry) in entries.iter().enumerate() {
        let case = if number == 0 { entry.case } else { "" };
        // Long names push their own line only.
        let begin = format!("{case:<16} {:<11}", entry.broker);
        match &entry.outcome {
            Ok(CaseOutcome::Traffic(traffic)) => {
                let ratio = if number == 0 { None } else { ratio(entry.cost(), own) };
                let _ = writeln!(text, "{begin}{}{}", columns(traffic), ratio.unwrap_or_default());
            }
            Ok(CaseOutcome::Subscriptions(rows)) => {
                let first = rows.first().and_then(|(_, traffic)| traffic.s_per_million).map(|cost| cost.total());
                for (index, (count, traffic)) in rows.iter().enumerate() {
                    let begin = if index == 0 { begin.clone() } else { " ".repeat(28) };
                    let growth = ratio(traffic.s_per_million.map(|cost| cost.total()), first).unwrap_or_default();
                    let _ = writeln!(text, "{begin}{}{growth}  beside {}", columns(traffic), grouped(*count as f64));
                }
            }
            Ok(CaseOutcome::Idle(idle)) => drop(writeln!(text, "{begin}{}", idle_words(idle))),
            Ok(CaseOutcome::Churn(churn)) => drop(writeln!(text, "{begin}{}", churn_words(churn))),
            Ok(CaseOutcome::Storm(storm)) => drop(writeln!(text, "{begin}{}", storm_words(storm))),
            Ok(CaseOutcome::Gate(gate)) => worded(&mut text, &begin, &gate.lines()),
            Ok(CaseOutcome::Durable(durable)) => worded(&mut text, &begin, &durable.lines()),
            Ok(CaseOutcome::Space(figures)) => drop(writeln!(text, "{begin}{}", figures.words())),
            Ok(CaseOutcome::Overload(overload)) => drop(writeln!(text, "{begin}{}", overload_words(overload))),
            Err(reason) => drop(writeln!(text, "{begin}failed: {reason}")),
        }
    }
    text
}

/// Lines below each other, the first behind the names of case and broker.
fn worded(text: &mut String, begin: &str, lines: &[String]) {
    for (index, words) in lines.iter().enumerate() {
        let begin = if index == 0 { begin.to_owned() } else { " ".repeat(28) };
        let _ = writeln!(text, "{begin}{words}");
    }
}

/// The lines of what the case should come to.
pub(super) fn goal_lines(verdicts: &[GoalVerdict]) -> String {
    let mut text = String::new();
    for verdict in verdicts {
        let _ = writeln!(text, "{INDENT}goal {}: {} ({})", state_word(verdict.state), verdict.goal, verdict.figure);
    }
    text
}

/// What the state is called.
pub(super) fn state_word(state: GoalState) -> &'static str {
    match state {
        GoalState::Met => "met",
        GoalState::Missed => "MISSED",
        GoalState::Unknown => "not shown",
    }
}

impl ReportEntry {
    fn cost(&self) -> Option<f64> {
        Some(self.outcome.as_ref().ok()?.traffic()?.s_per_million?.total())
    }
}

impl CaseOutcome {
    /// The figures, if this is a case of messages.
    pub(super) fn traffic(&self) -> Option<&TrafficOutcome> {
        if let Self::Traffic(traffic) = self { Some(traffic) } else { None }
    }

    /// Who used the processor meanwhile; one figure for each time that was measured.
    pub(super) fn cores(&self) -> Vec<Cores> {
        match self {
            Self::Traffic(traffic) => vec![traffic.cores],
            Self::Subscriptions(rows) => rows.iter().map(|(_, traffic)| traffic.cores).collect(),
            Self::Idle(idle) => vec![idle.cores],
            Self::Churn(churn) => vec![churn.cores],
            Self::Storm(storm) => vec![storm.cores],
            Self::Overload(overload) => vec![overload.cores],
            Self::Gate(gate) => gate.cores(),
            Self::Durable(durable) => durable.cores(),
            Self::Space(_) => Vec::new(),
        }
    }
}

fn ratio(cost: Option<f64>, of: Option<f64>) -> Option<String> {
    let (cost, of) = (cost?, of.filter(|of| *of > 0.0)?);
    let digits = if cost / of < 10.0 { 2 } else { 1 };
    Some(format!("{:>7.digits$}×", cost / of))
}

fn columns(traffic: &TrafficOutcome) -> String {
    let cost = traffic.s_per_million;
    let total = cost.map_or_else(|| "–".to_owned(), |cost| format!("{:.2}", cost.total()));
    let split = cost.map_or_else(|| "–".to_owned(), |cost| format!("{:.2}+{:.2}", cost.user, cost.system));
    let latency = format!("{:.0}/{:.0}/{:.0}", traffic.p50_us, traffic.p99_us, traffic.p999_us);
    let cores = core_words(&traffic.cores);
    format!("{total:>8}{split:>13}{:>13}{latency:>24}{cores:>17}", grouped(traffic.delivered_per_s))
}

/// Cores of the broker, the load tool and all others.
pub(super) fn core_words(cores: &Cores) -> String {
    let known = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"));
    format!("{}/{:.2}/{}", known(cores.broker), cores.tool, known(cores.others))
}

fn mib(kib: Option<u64>) -> String {
    kib.map_or_else(|| "– MiB".to_owned(), |kib| format!("{:.1} MiB", kib as f64 / 1024.0))
}

/// Said when the system did not let as many connect as should.
fn shortage(there: usize, wanted: usize) -> String {
    if there == wanted {
        return String::new();
    }
    format!(" (of {}: raise the limit of open files, ulimit -Hn)", grouped(wanted as f64))
}

fn idle_words(idle: &IdleOutcome) -> String {
    let memory = idle.kib_each.map_or_else(|| "– KiB".to_owned(), |kib| format!("{kib:.2} KiB"));
    let (connects, count) = (grouped(idle.connects_per_s), grouped(idle.connections as f64));
    let short = shortage(idle.connections, idle.wanted);
    format!("{memory} each, {connects} connects/s, {count} connections{short}, cores {}", core_words(&idle.cores))
}

fn churn_words(churn: &ChurnOutcome) -> String {
    let each = churn.us_each.map_or_else(|| "–".to_owned(), |us| format!("{us:.1}"));
    let connects = grouped(churn.connects_per_s);
    let trouble = trouble_words(&churn.trouble);
    format!("{connects} connects/s, {each} µs CPU each, {trouble}, cores {}", core_words(&churn.cores))
}

fn storm_words(storm: &Storm) -> String {
    let seconds = |time: Option<f64>| time.map_or_else(|| "never".to_owned(), |time| format!("after {time:.2} s"));
    format!(
        "{} of {} back{}, 99 % {}, all {}, {}, {}, cores {}",
        grouped(storm.back as f64),
        grouped(storm.clients as f64),
        shortage(storm.clients, storm.wanted),
        seconds(storm.most_s),
        seconds(storm.all_s),
        trouble_words(&storm.trouble),
        mib(storm.rss_kib),
        core_words(&storm.cores)
    )
}

fn trouble_words(trouble: &ConnectFailures) -> String {
    let counts = [
        (trouble.later, "told to come back later"),
        (trouble.refused, "refused otherwise"),
        (trouble.reset, "reset or nobody there"),
        (trouble.closed, "closed without a word"),
        (trouble.silent, "without an answer"),
        (trouble.local, "without a socket here"),
    ];
    listed(&counts).unwrap_or_else(|| "no errors".to_owned())
}

fn overload_words(overload: &Overload) -> String {
    let counted =
        overload.counted.map_or_else(|| "counts none".to_owned(), |count| format!("counts {}", grouped(count as f64)));
    format!(
        "probes p50/p99 {:.0}/{:.0} µs, at most {}, dropped {} of {}, held {}, {counted}, cores {}",
        overload.probe_p50_us,
        overload.probe_p99_us,
        mib(overload.rss_max_kib),
        grouped(overload.dropped() as f64),
        grouped(overload.sent as f64),
        grouped(overload.held as f64),
        core_words(&overload.cores)
    )
}

/// What stands below the table: shares of the processor, everything that should be zero and is not, and the goals.
pub(super) fn notes(entries: &[ReportEntry], verdicts: &[(&'static str, GoalVerdict)]) -> String {
    let mut text = String::new();
    let all: Vec<Cores> =
        entries.iter().filter_map(|entry| entry.outcome.as_ref().ok()).flat_map(CaseOutcome::cores).collect();
    if let Some(range) = range(all.iter().map(|cores| cores.tool)) {
        let _ = writeln!(text, "load generator: {range} cores, one thread (two in overload-probes)");
    }
    if let Some(range) = range(all.iter().filter_map(|cores| cores.others)) {
        let _ = writeln!(text, "other processes meanwhile: {range} cores");
    }
    // `None` while there was nothing to lose.
    let mut is_clean = None;
    for entry in entries {
        for (what, faults, reasons) in faults_of(entry) {
            let words = fault_words(&faults);
            is_clean = Some(is_clean != Some(false) && words.is_none());
            if let Some(words) = words {
                let why = reasons.map(|reasons| format!("; the broker says: {reasons}")).unwrap_or_default();
                let _ = writeln!(text, "{}, {}{what}: {words}{why}", entry.case, entry.broker);
            }
        }
    }
    if is_clean == Some(true) {
        text.push_str("no message lost, duplicated or reordered (the flood aside)\n");
    }
    if entries.iter().any(is_unmeasured) {
        text.push_str("–: CPU time and memory are measured on Linux only, and need --pid with --url\n");
    }
    text.push_str(&summary(verdicts));
    text
}

fn summary(verdicts: &[(&'static str, GoalVerdict)]) -> String {
    let count = |state| verdicts.iter().filter(|(_, verdict)| verdict.state == state).count();
    let (met, missed, unknown) = (count(GoalState::Met), count(GoalState::Missed), count(GoalState::Unknown));
    let mut text = String::new();
    if !verdicts.is_empty() {
        let _ = writeln!(text, "goals: {met} met, {missed} missed, {unknown} not shown");
    }
    for (case, verdict) in verdicts.iter().filter(|(_, verdict)| verdict.state != GoalState::Met) {
        let _ = writeln!(text, "  {case}, {}: {} ({})", state_word(verdict.state), verdict.goal, verdict.figure);
    }
    text
}

/// Whose, what should be zero, and why it is not.
fn faults_of(entry: &ReportEntry) -> Vec<(&'static str, Faults, Option<&str>)> {
    fn of(traffic: &TrafficOutcome) -> (&'static str, Faults, Option<&str>) {
        ("", traffic.faults, traffic.reasons.as_deref())
    }
    match &entry.outcome {
        Ok(CaseOutcome::Traffic(traffic)) => vec![of(traffic)],
        Ok(CaseOutcome::Subscriptions(rows)) => rows.iter().map(|(_, traffic)| of(traffic)).collect(),
        Ok(CaseOutcome::Overload(overload)) => {
            vec![(" probes", Faults { closed: overload.closed, ..overload.probes }, None)]
        }
        Ok(CaseOutcome::Durable(DurableOutcome::Rate(rate))) => vec![of(&rate.traffic)],
        _ => Vec::new(),
    }
}

fn range(values: impl Iterator<Item = f64>) -> Option<String> {
    let (least, most) = values.fold((f64::MAX, 0.0f64), |(least, most), value| (least.min(value), most.max(value)));
    (least <= most).then(|| format!("{least:.2} to {most:.2}"))
}

fn is_unmeasured(entry: &ReportEntry) -> bool {
    entry.outcome.as_ref().is_ok_and(|outcome| outcome.cores().iter().any(|cores| cores.broker.is_none()))
}

fn fault_words(faults: &Faults) -> Option<String> {
    listed(&[
        (faults.lost, "lost"),
        (faults.held, "held back by the broker"),
        (faults.duplicated, "duplicated"),
        (faults.reordered, "reordered"),
        (faults.unsent, "not sent in time"),
        (faults.stalls, "windows given up"),
        (faults.closed, "connections closed by the broker"),
    ])
}

/// Those that are not zero, with a comma between them; `None` if all are.
pub(super) fn listed(counts: &[(u64, &str)]) -> Option<String> {
    let said = counts.iter().filter(|(count, _)| *count > 0);
    let words: Vec<String> = said.map(|(count, what)| format!("{} {what}", grouped(*count as f64))).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// A count with a space between thousands.
pub(super) fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
