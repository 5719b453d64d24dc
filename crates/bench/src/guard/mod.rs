//! `tidegate bench guard`: mosquitto alone, through a guard, and through HAProxy's TCP proxy, in one run.
//!
//! Three questions: what a flood towards a slow receiver costs the others there; what a pair of clients feels of what stands
//! between; and what that costs for each message.

mod flood;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tidegate_program::Stop;

use crate::arguments::BenchArgs;
use crate::bridge::line::{self, TimedSpan};
use crate::peers;
use crate::process::{BrokerNeeds, BrokerSource, RunningBroker, start_guard, start_haproxy};
use crate::procfs::CpuMeter;
use flood::FloodOutcome;

/// How long each part is measured, unless it is said.
const SECS: f64 = 5.0;
/// Messages that wait for a client of Debian's mosquitto, by default.
const QUEUE_MAX: u32 = 1000;

/// What stands between clients and mosquitto.
#[derive(Clone, Debug)]
enum Between {
    Nothing,
    Guard,
    HaProxy(PathBuf),
}

impl Between {
    fn name(&self) -> &'static str {
        match self {
            Self::Nothing => "mosquitto alone",
            Self::Guard => "through the guard",
            Self::HaProxy(_) => "through HAProxy",
        }
    }
}

#[derive(Debug)]
struct GuardRow {
    name: &'static str,
    flood: FloodOutcome,
    /// A pair of clients, p50 and p99 in ms.
    pair: (f64, f64),
    /// Microseconds of CPU for a message, of mosquitto and of what is between.
    cpu: (f64, Option<f64>),
}

impl GuardRow {
    fn line(&self) -> String {
        let FloodOutcome { sent, lost, p50_ms, p99_ms, flooder } = self.flood;
        let between = self.cpu.1.map_or_else(String::new, |cpu| format!(" + {cpu:.1}"));
        let share = lost as f64 / sent.max(1) as f64 * 100.0;
        format!(
            "{:<18} flood: others lose {lost} of {sent} ({share:.1} %), p50/p99 {p50_ms:.1}/{p99_ms:.1} ms, flooder {flooder} through; \
             a pair: p50/p99 {:.3}/{:.3} ms; CPU {:.1}{between} µs a message",
            self.name, self.pair.0, self.pair.1, self.cpu.0,
        )
    }

    fn json(&self) -> Value {
        let FloodOutcome { sent, lost, p50_ms, p99_ms, flooder } = self.flood;
        json!({
            "name": self.name, "others_sent": sent, "others_lost": lost, "others_p50_ms": p50_ms, "others_p99_ms": p99_ms,
            "flooder_passed": flooder, "pair_p50_ms": self.pair.0, "pair_p99_ms": self.pair.1,
            "cpu_us": self.cpu.0, "cpu_between_us": self.cpu.1,
        })
    }
}

/// Measures and reports; the exit code is 1 if a row could not be measured.
pub(super) fn run(args: &BenchArgs) -> Result<u8> {
    let stop = Stop::on_signals()?;
    let Some(mosquitto) = peers::find_mosquitto() else { bail!("{}", peers::GET_MOSQUITTO) };
    let mut ways = vec![Between::Nothing, Between::Guard];
    let haproxy =
        ["/usr/sbin/haproxy", "/usr/local/sbin/haproxy"].iter().map(PathBuf::from).find(|path| path.is_file());
    match haproxy {
        Some(path) => ways.push(Between::HaProxy(path)),
        None => say("no HAProxy to compare with: apt-get install haproxy\n"),
    }
    let time = Duration::from_secs_f64(args.secs.unwrap_or(SECS));
    let (mut rows, mut has_failed) = (Vec::new(), false);
    for way in &ways {
        if stop.is_wanted() {
            bail!("interrupted");
        }
        match measure(&mosquitto, way, time, args.scale, &stop) {
            Ok(row) => {
                say(&format!("{}\n", row.line()));
                rows.push(row);
            }
            Err(error) => {
                has_failed = true;
                say(&format!("{:<18} failed: {error:#}\n", way.name()));
            }
        }
    }
    if let [alone, guard, ..] = rows.as_slice() {
        let added = (guard.pair.0 - alone.pair.0) * 1000.0;
        let verdict = if added <= 100.0 { "met" } else { "missed" };
        say(&format!("goal: a pair's p50 is at most 100 µs longer through the guard: {added:.0} µs, {verdict}\n"));
    }
    if let Some(path) = &args.json {
        let text = format!("{}\n", json!({ "guard": rows.iter().map(GuardRow::json).collect::<Vec<_>>() }));
        if path.as_path() == Path::new("-") {
            say(&text);
        } else {
            std::fs::write(path, text).with_context(|| format!("--json {}", path.display()))?;
        }
    }
    Ok(u8::from(has_failed))
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Fresh processes for each part: what a flood leaves behind is no part of the next.
fn start(mosquitto: &Path, way: &Between, stop: &Stop) -> Result<(RunningBroker, Option<RunningBroker>)> {
    let needs = BrokerNeeds { queue_max: Some(QUEUE_MAX), ..BrokerNeeds::NONE };
    let behind = BrokerSource::Mosquitto(mosquitto.to_owned()).start(&needs, stop)?;
    let between = match way {
        Between::Nothing => None,
        Between::Guard => Some(start_guard(behind.address)?),
        Between::HaProxy(path) => Some(start_haproxy(path, behind.address, stop)?),
    };
    Ok((behind, between))
}

fn measure(mosquitto: &Path, way: &Between, time: Duration, scale: f64, stop: &Stop) -> Result<GuardRow> {
    let flood = {
        let (behind, between) = start(mosquitto, way, stop)?;
        let address = between.as_ref().map_or(behind.address, |between| between.address);
        flood::run(address, time, scale)?
    };
    let (behind, between) = start(mosquitto, way, stop)?;
    let address = between.as_ref().map_or(behind.address, |between| between.address);
    let pair = line::time_clients(address, &TimedSpan::begun(), Some(time))?;
    let meters = [behind.pid, between.as_ref().and_then(|between| between.pid)].map(CpuMeter::start);
    let (messages, seconds) = flood::steady(address, time, scale)?;
    let cost = |meter: &CpuMeter| meter.stop(seconds).0.map(|cost| cost.total() * 1e6 / messages.max(1) as f64);
    let cpu = (cost(&meters[0]).unwrap_or(f64::NAN), between.as_ref().and_then(|_| cost(&meters[1])));
    Ok(GuardRow { name: way.name(), flood, pair, cpu })
}
