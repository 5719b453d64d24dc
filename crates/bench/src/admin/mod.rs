//! What looking costs: a scrape beside many clients, and open dashboards beside traffic.
//!
//! Costs are CPU time of the threads concerned, from `/proc`, and rounds with dashboards and without take turns: the
//! machine is not the same all the time, and neighbours in time are compared.

mod pages;
mod traffic;

use std::io::Read;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::measure::RunSettings;
use super::process::{BrokerNeeds, BrokerSource, RunningBroker, Tune};
use super::report::BrokerRole;
use super::space::{NamedFigure, SpaceFigures};

/// A case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdminCase {
    /// `/metrics` beside so many silent clients.
    Scrape { clients: usize },
    /// Traffic beside so many pages that listen, and without them.
    Dashboards { pages: usize },
}

/// Scrapes of a case.
const SCRAPES: usize = 200;

/// Pairs of rounds, of which the median counts.
const ROUNDS: usize = 7;

/// The publisher is a flooder if there ever was one: with the gate, the gate would be measured.
const TUNE: Tune =
    Tune { name: "tidegate", role: BrokerRole::Own, settings: &["backoff.mode=off", "store.keep=false"] };

/// Runs a case.
pub(super) fn run(scenario: AdminCase, setting: &RunSettings) -> Result<SpaceFigures> {
    let source = BrokerSource::Tidegate { shards: Some(1), tune: TUNE };
    let broker = source.start(&BrokerNeeds::NONE, &setting.stop)?;
    let figures = match scenario {
        AdminCase::Scrape { clients } => scrape(&broker, setting.affordable(setting.scaled(clients)))?,
        AdminCase::Dashboards { pages } => dashboards(&broker, setting.scaled(pages), setting)?,
    };
    Ok(SpaceFigures(figures.into_iter().map(|(name, value)| NamedFigure { name, value }).collect()))
}

fn scrape(broker: &RunningBroker, clients: usize) -> Result<Vec<(&'static str, f64)>> {
    let door = door(broker)?;
    let names = (0..clients).map(|number| format!("idle-{number}"));
    let idle: Vec<_> = names.map(|name| traffic::connect(broker.address, &name)).collect::<Result<_>>()?;
    let (mut times, mut bytes) = (Vec::new(), 0);
    let before = cpu(broker, "admin")?;
    for _ in 0..SCRAPES {
        let (began, mut text) = (Instant::now(), String::new());
        pages::request(door, "/metrics")?.read_to_string(&mut text)?;
        times.push(began.elapsed());
        bytes = text.len();
        if !text.ends_with("# EOF\n") {
            bail!("no metrics: {}", text.lines().next().unwrap_or_default());
        }
    }
    let each = (cpu(broker, "admin")? - before) / SCRAPES as f64;
    drop(idle);
    times.sort();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(vec![
        ("p50 ms", ms(times[SCRAPES / 2])),
        ("p99 ms", ms(times[SCRAPES * 99 / 100])),
        ("ms of CPU", each * 1e3),
        ("bytes", bytes as f64),
        ("clients", clients as f64),
    ])
}

fn dashboards(broker: &RunningBroker, count: usize, setting: &RunSettings) -> Result<Vec<(&'static str, f64)>> {
    let door = door(broker)?;
    let time = setting.time / 2;
    let (mut ratios, mut shares) = (Vec::new(), Vec::new());
    // Once for nothing: buffers and caches.
    traffic::run(broker, setting.warm_up)?;
    for round in 0..ROUNDS {
        // Who comes second gains or loses by it: they take turns at that, too.
        let (with, without) = if round % 2 == 0 {
            let without = traffic::run(broker, time)?;
            (watched(broker, door, count, time)?, without)
        } else {
            let with = watched(broker, door, count, time)?;
            (with, traffic::run(broker, time)?)
        };
        ratios.push(with.shard_us / without.shard_us);
        shares.push(with.door_share * 100.0);
        if setting.stop.is_wanted() {
            bail!("interrupted");
        }
    }
    ratios.sort_by(f64::total_cmp);
    shares.sort_by(f64::total_cmp);
    Ok(vec![
        ("times the CPU for a message", ratios[ROUNDS / 2]),
        ("at least", ratios[0]),
        ("at most", ratios[ROUNDS - 1]),
        ("% of a core for the door", shares[ROUNDS / 2]),
        ("dashboards", count as f64),
    ])
}

/// Traffic while pages listen; they are gone when it returns.
fn watched(broker: &RunningBroker, door: SocketAddr, count: usize, time: Duration) -> Result<traffic::AdminRun> {
    let pages = pages::open(door, count)?;
    let run = traffic::run(broker, time)?;
    drop(pages);
    pages::await_none(door)?;
    Ok(run)
}

fn door(broker: &RunningBroker) -> Result<SocketAddr> {
    broker.admin.context("the broker has no door for operators")
}

/// CPU seconds of the broker's threads whose names begin so.
fn cpu(broker: &RunningBroker, name: &str) -> Result<f64> {
    let pid = broker.pid.context("the broker has no process")?;
    let nanos = super::procfs::thread_cpu_ns(pid, name).context("CPU time is measured on Linux only")?;
    Ok(nanos as f64 / 1e9)
}
