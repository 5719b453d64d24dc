//! `tidegate bench doors`: what MQTT pays for the other doors. The same traffic through our broker with MQTT alone, and with CoAP,
//! MQTT-SN, topics over HTTP and AMQP listening beside it, which nobody uses; in turns, so that a noisy machine disturbs both alike.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tidegate_program::Stop;
use tidegate_wire_mqtt::QoS;

use crate::arguments::BenchArgs;
use crate::cases::{BenchCase, CaseKind, FlowSpec, Topology};
use crate::json::print_or_write;
use crate::measure::{self, RunSettings};
use crate::outcome::CaseOutcome;
use crate::process::start_doors;
use crate::procfs;

/// Pairs of runs, at scale 1.
const TURNS: f64 = 7.0;
/// Seconds of each run if nothing is said.
const SECS: f64 = 2.0;
/// How many times the CPU time of MQTT alone is the goal.
const GOAL: f64 = 1.01;
/// Every door beside MQTT that needs no certificate.
const OPEN: [&str; 4] = ["--coap", "--sn", "--http-topics", "--amqp"];

/// CPU microseconds of each run, with MQTT alone and with all doors.
#[derive(Debug, Default)]
struct DoorRuns {
    alone: Vec<f64>,
    open: Vec<f64>,
}

impl DoorRuns {
    /// The ratio of each turn, least first.
    fn ratios(&self) -> Vec<f64> {
        let mut ratios: Vec<f64> = self.alone.iter().zip(&self.open).map(|(alone, open)| open / alone).collect();
        ratios.sort_by(f64::total_cmp);
        ratios
    }
}

/// Measures and reports.
pub(super) fn run(args: &BenchArgs) -> Result<u8> {
    let stop = Stop::on_signals()?;
    let time = Duration::from_secs_f64(args.secs.unwrap_or(SECS));
    let warm_up = time / 5;
    let setting = RunSettings { time, warm_up, files_max: procfs::raise_file_limit(), scale: 1.0, stop };
    let turns = ((TURNS * args.scale).round() as usize).max(1);
    let (mut text, mut rows) = (String::new(), Vec::new());
    for (name, qos) in [("pairs q0", QoS::AtMostOnce), ("pairs q1", QoS::AtLeastOnce)] {
        let kind = CaseKind::Traffic(FlowSpec::windowed(Topology::Pairs(50), qos, 64));
        let case = BenchCase { group: "doors", name, kind, goals: &[] };
        rows.push(measure_case(&case, turns, &setting, &mut text)?);
    }
    print_or_write(&text, &json!({ "doors": rows }), args.json.as_deref())?;
    Ok(0)
}

fn measure_case(case: &BenchCase, turns: usize, setting: &RunSettings, text: &mut String) -> Result<Value> {
    let mut runs = DoorRuns::default();
    for turn in 0..turns {
        // Each begins as often as the other.
        let order = if turn % 2 == 0 { [false, true] } else { [true, false] };
        for is_open in order {
            if setting.stop.is_wanted() {
                bail!("interrupted");
            }
            let mut broker = start_doors(if is_open { &OPEN } else { &[] }, &[])?;
            let number = std::process::id().wrapping_add(turn as u32 * 2 + u32::from(is_open));
            let CaseOutcome::Traffic(outcome) = measure::run(case, &mut broker, setting, number)? else {
                bail!("no traffic");
            };
            let cost = outcome.s_per_million.context("CPU time cannot be read here")?.total();
            (if is_open { &mut runs.open } else { &mut runs.alone }).push(cost);
        }
    }
    let ratios = runs.ratios();
    let (least, middle, most) = (ratios[0], ratios[ratios.len() / 2], ratios[ratios.len() - 1]);
    let verdict = if middle <= GOAL { "met" } else { "missed" };
    let mean = |costs: &[f64]| costs.iter().sum::<f64>() / costs.len() as f64;
    let _ = writeln!(
        text,
        "{}: {:.2} µs of CPU a delivery with MQTT alone, {:.2} with all doors listening: {middle:.3} times ({least:.3} to {most:.3} in \
         {turns} turns); goal {GOAL}, {verdict}",
        case.name,
        mean(&runs.alone),
        mean(&runs.open),
    );
    Ok(json!({
        "case": case.name, "alone_us": runs.alone, "open_us": runs.open, "ratio": middle, "ratio_min": least,
        "ratio_max": most,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_is_compared_with_itself() {
        let runs = DoorRuns { alone: vec![1.0, 2.0, 4.0], open: vec![1.5, 2.0, 3.0] };
        assert_eq!(runs.ratios(), [0.75, 1.0, 1.5]);
    }
}
