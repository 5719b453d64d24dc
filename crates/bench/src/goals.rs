//! What a case should come to, and whether it did: one form for every goal, which the table of cases fills in (`cases.rs`).
//! Pure: figures in, verdict out. How the figure of a goal is found stands here, and beside the cases that have
//! outcomes of their own (`gate/goals.rs`, `durable/goals.rs`).

use super::outcome::{CaseOutcome, Overload, TrafficOutcome};
use super::report::{BrokerRole, ReportEntry, grouped};
use super::space::shown;

/// A figure to reach. Figures of the same run are compared, so that a noisy machine disturbs both sides alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Goal {
    /// What is to be reached; `{}` is the bound, `{%}` the same in percent, `{n}` with spaces between thousands.
    words: &'static str,
    bound: f64,
    figure: FigureSource,
    /// Those whom it compares with, one of whom must take part: without them it says nothing, not even that it was missed.
    rivals: &'static [BrokerRole],
}

/// Where the figure of a goal comes from.
#[derive(Clone, Copy, Debug)]
enum FigureSource {
    /// Found and compared with the bound.
    Judged(fn(&[ReportEntry], f64) -> Finding),
    /// A named figure of the smart space or of looking on, which should not be below the bound.
    AtLeast,
    /// The same, which should not be above it.
    AtMost,
}

/// A goal of our broker alone.
pub(super) const fn goal(words: &'static str, bound: f64, find: fn(&[ReportEntry], f64) -> Finding) -> Goal {
    Goal { words, bound, figure: FigureSource::Judged(find), rivals: &[] }
}

/// A goal beside those.
pub(super) const fn beside(rivals: &'static [BrokerRole], goal: Goal) -> Goal {
    Goal { rivals, ..goal }
}

/// The figure of this name is at least so much.
pub(super) const fn at_least(name: &'static str, bound: f64) -> Goal {
    Goal { words: name, bound, figure: FigureSource::AtLeast, rivals: &[] }
}

/// The figure of this name is at most so much.
pub(super) const fn at_most(name: &'static str, bound: f64) -> Goal {
    Goal { words: name, bound, figure: FigureSource::AtMost, rivals: &[] }
}

/// Whether a goal is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GoalState {
    Met,
    Missed,
    /// A figure is missing, or this machine cannot show it.
    Unknown,
}

/// A goal, the figure that was measured, and what follows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GoalVerdict {
    pub(super) goal: String,
    pub(super) figure: String,
    pub(super) state: GoalState,
}

/// A figure with the answer to whether it is good enough; `None` if it could not be measured.
pub(super) type Finding = Option<(String, GoalState)>;

/// Met or missed.
pub(super) fn state(is_met: bool) -> GoalState {
    if is_met { GoalState::Met } else { GoalState::Missed }
}

impl Goal {
    /// Whether one of those takes part whom it compares with.
    pub(super) fn can_be_judged(&self, entries: &[ReportEntry]) -> bool {
        self.rivals.is_empty() || entries.iter().any(|entry| self.rivals.contains(&entry.role))
    }

    /// Judges the entries of one case.
    pub(super) fn judge(&self, entries: &[ReportEntry]) -> GoalVerdict {
        let Self { words, bound, .. } = *self;
        let named = || {
            entries.iter().find_map(|entry| match entry.outcome.as_ref() {
                Ok(CaseOutcome::Space(figures)) => figures.find(words),
                _ => None,
            })
        };
        let (goal, finding) = match self.figure {
            FigureSource::Judged(find) => {
                let percent = format!("{}", (bound * 1e4).round() / 100.0);
                let words = words.replace("{}", &bound.to_string()).replace("{%}", &percent);
                (words.replace("{n}", &grouped(bound)), find(entries, bound))
            }
            FigureSource::AtLeast => {
                (format!("{words} ≥ {}", shown(bound)), named().map(|figure| (shown(figure), state(figure >= bound))))
            }
            FigureSource::AtMost => {
                (format!("{words} ≤ {}", shown(bound)), named().map(|figure| (shown(figure), state(figure <= bound))))
            }
        };
        let (figure, state) = finding.unwrap_or_else(|| ("not measured".to_owned(), GoalState::Unknown));
        GoalVerdict { goal, figure, state }
    }
}

/// The line of a goal that stands alone: messages a second at least.
pub(super) fn rate_line(what: &str, rate: f64, least: f64) -> String {
    let word = if rate >= least { "met" } else { "missed" };
    format!("goal: {what} ≥ {}/s: {}/s, {word}", grouped(least), grouped(rate))
}

/// The same of a ratio: so many times at most.
pub(super) fn ratio_line(what: &str, ratio: f64, most: f64) -> String {
    let word = if ratio <= most { "met" } else { "missed" };
    format!("goal: {what} ≤ {most} times: {ratio:.2} times, {word}")
}

/// A share of something, at least.
pub(super) fn share_line(what: &str, share: f64, least: f64) -> String {
    let word = if share >= least { "met" } else { "missed" };
    format!("goal: {what} ≥ {:.0} %: {:.0} %, {word}", least * 100.0, share * 100.0)
}

/// So many of a unit at most.
pub(super) fn most_line(what: &str, figure: f64, most: f64, unit: &str) -> String {
    let word = if figure <= most { "met" } else { "missed" };
    let figure = if figure.fract() == 0.0 { format!("{figure:.0}") } else { format!("{figure:.2}") };
    format!("goal: {what} ≤ {most} {unit}: {figure} {unit}, {word}")
}

fn of_role(entries: &[ReportEntry], role: BrokerRole) -> Option<&CaseOutcome> {
    entries.iter().find(|entry| entry.role == role)?.outcome.as_ref().ok()
}

fn traffic_of(entries: &[ReportEntry], role: BrokerRole) -> Option<&TrafficOutcome> {
    of_role(entries, role)?.traffic()
}

pub(super) fn cost_ratio(entries: &[ReportEntry], least: f64) -> Finding {
    let own = traffic_of(entries, BrokerRole::Own)?.s_per_million?.total();
    let peer = traffic_of(entries, BrokerRole::Mosquitto)?.s_per_million?.total();
    (own > 0.0).then_some(())?;
    Some((format!("{:.1}×", peer / own), state(peer / own >= least)))
}

pub(super) fn delivers_most(entries: &[ReportEntry], _: f64) -> Finding {
    let own = traffic_of(entries, BrokerRole::Own)?.delivered_per_s;
    let peers = entries.iter().filter(|entry| matches!(entry.role, BrokerRole::Mosquitto | BrokerRole::Peer));
    let rates =
        peers.filter_map(|entry| Some((entry.outcome.as_ref().ok()?.traffic()?.delivered_per_s, &entry.broker)));
    let (best, name) = rates.max_by(|one, other| one.0.total_cmp(&other.0))?;
    Some((format!("{:.1}× {name}'s", own / best), state(own > best)))
}

pub(super) fn latency(entries: &[ReportEntry], _: f64) -> Finding {
    let (own, peer) = (traffic_of(entries, BrokerRole::Own)?, traffic_of(entries, BrokerRole::Mosquitto)?);
    let figure = format!(
        "p50 {:.0} against {:.0} µs, p99 {:.0} against {:.0}",
        own.p50_us, peer.p50_us, own.p99_us, peer.p99_us
    );
    Some((figure, state(own.p50_us <= peer.p50_us && own.p99_us <= peer.p99_us)))
}

pub(super) fn memory_each(entries: &[ReportEntry], most: f64) -> Finding {
    let CaseOutcome::Idle(idle) = of_role(entries, BrokerRole::Own)? else { return None };
    let kib = idle.kib_each?;
    Some((format!("{kib:.2} KiB"), state(kib <= most)))
}

pub(super) fn connects_most(entries: &[ReportEntry], _: f64) -> Finding {
    let (CaseOutcome::Churn(own), CaseOutcome::Churn(peer)) =
        (of_role(entries, BrokerRole::Own)?, of_role(entries, BrokerRole::Mosquitto)?)
    else {
        return None;
    };
    let (own_us, peer_us) = (own.us_each?, peer.us_each?);
    let rates = format!("{} against {} a second", grouped(own.connects_per_s), grouped(peer.connects_per_s));
    let is_met = own.connects_per_s > peer.connects_per_s && own_us < peer_us && own.trouble.errors() == 0;
    Some((format!("{rates}, {own_us:.0} against {peer_us:.0} µs"), state(is_met)))
}

pub(super) fn all_back(entries: &[ReportEntry], _: f64) -> Finding {
    let CaseOutcome::Storm(storm) = of_role(entries, BrokerRole::Own)? else { return None };
    let errors = storm.trouble.errors();
    let figure = format!("{} of {} back, {errors} errors", grouped(storm.back as f64), grouped(storm.clients as f64));
    Some((figure, state(storm.back == storm.clients && errors == 0)))
}

fn overload(entries: &[ReportEntry]) -> Option<&Overload> {
    if let CaseOutcome::Overload(own) = of_role(entries, BrokerRole::Own)? { Some(own) } else { None }
}

pub(super) fn probes_below_ms(entries: &[ReportEntry], most: f64) -> Finding {
    let own = overload(entries)?;
    let ms = own.probe_p50_us / 1e3;
    Some((format!("{ms:.1} ms, {} lost", own.probes.lost), state(ms < most && own.probes.lost == 0)))
}

pub(super) fn memory_below_mib(entries: &[ReportEntry], most: f64) -> Finding {
    let mib = overload(entries)?.rss_max_kib? as f64 / 1024.0;
    Some((format!("{mib:.1} MiB"), state(mib < most)))
}

/// The broker says of each message that did not arrive that it dropped it.
pub(super) fn drops_counted(entries: &[ReportEntry], _: f64) -> Finding {
    let own = overload(entries)?;
    let (counted, missing) = (own.counted?, own.dropped());
    let figure = format!("{} counted, {} missing", grouped(counted as f64), grouped(missing as f64));
    Some((figure, state(counted == missing)))
}

pub(super) fn flat(entries: &[ReportEntry], most: f64) -> Finding {
    let CaseOutcome::Subscriptions(rows) = of_role(entries, BrokerRole::Own)? else { return None };
    let ((few, first), (many, last)) = (rows.first()?, rows.last()?);
    let growth = last.s_per_million?.total() / first.s_per_million?.total();
    let figure = format!("{growth:.2}× from {} to {}", grouped(*few as f64), grouped(*many as f64));
    Some((figure, state(growth <= most)))
}

/// One shard that had less of a core than this was not what held the messages up.
const FULL_CORE: f64 = 0.85;

/// Two shards need two cores of their own and one for the tool. Where they do not have them, neither a hit nor a miss
/// says anything about the broker: among many processes two threads get more of the processor than one.
pub(super) fn shard_gain(entries: &[ReportEntry], least: f64) -> Finding {
    let mut shards = entries.iter().map(|entry| entry.outcome.as_ref().ok().and_then(CaseOutcome::traffic));
    let (one, two) = (shards.next()??, shards.next()??);
    let gain = two.delivered_per_s / one.delivered_per_s;
    let by_cpu = 2.0 * one.s_per_million?.total() / two.s_per_million?.total();
    let figure = format!("{gain:.2}×; by CPU per delivery {by_cpu:.2}× on cores of their own");
    let used = one.cores.broker?;
    if used < FULL_CORE {
        let why = format!("the one shard had only {used:.2} cores, the tool and others took the rest");
        return Some((format!("{figure}; {why}"), GoalState::Unknown));
    }
    Some((figure, state(gain >= least)))
}

#[cfg(test)]
#[path = "goals_tests.rs"]
mod tests;
