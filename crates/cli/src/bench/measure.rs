//! One case on one broker: drive the generator, look at the process before and after.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};

use super::cases::{self, Case, Client, Flow, Kind, Reader};
use super::engine::{Engine, Greeting, Load, Tally};
use super::process::Broker;
use super::procfs::{self, Usage};
use super::timer::Clock;
use crate::stop::Stop;

/// Files that are open besides the connections of a case.
const FILES_RESERVED: u64 = 200;
/// After so long an idle broker has given back what connecting took.
const SETTLE: Duration = Duration::from_millis(1500);

/// What is the same for all cases of a run.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) time: Duration,
    pub(super) warm_up: Duration,
    /// Open files that this process may have.
    pub(super) files_max: u64,
    pub(super) stop: Stop,
}

/// What a case brought.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Traffic(Traffic),
    Idle(Idle),
    Overload(Overload),
}

/// Messages through a broker.
#[derive(Clone, Debug)]
pub(super) struct Traffic {
    pub(super) delivered_per_s: f64,
    /// The broker's CPU seconds per million deliveries.
    pub(super) cpu_s_per_million: Option<f64>,
    pub(super) broker_cores: Option<f64>,
    pub(super) generator_cores: f64,
    /// What other processes took meanwhile: the reason to believe a figure or not.
    pub(super) other_cores: Option<f64>,
    pub(super) rss_kib: Option<u64>,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
    pub(super) faults: Faults,
}

/// What should be zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Faults {
    pub(super) lost: u64,
    pub(super) duplicated: u64,
    pub(super) reordered: u64,
    pub(super) unsent: u64,
    pub(super) stalls: u64,
    pub(super) closed: u64,
}

/// Connections that say nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Idle {
    pub(super) connections: usize,
    pub(super) connects_per_s: f64,
    pub(super) kib_each: Option<f64>,
}

/// A flood and what it does to others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overload {
    pub(super) probe_p50_us: f64,
    pub(super) probe_p99_us: f64,
    pub(super) probes: Faults,
    pub(super) rss_kib: Option<u64>,
    pub(super) sent: u64,
    /// During the flood and after it.
    pub(super) delivered: u64,
    /// During the flood: what the slow subscriber let through.
    pub(super) delivered_per_s: f64,
    pub(super) closed: u64,
}

/// Runs a case.
pub(super) fn run(case: &Case, broker: &mut Broker, setting: &Setting, number: u32) -> Result<Outcome> {
    let outcome = match case.kind {
        Kind::Traffic(flow) => traffic(&flow, broker, Greeting::Mqtt, setting, number).map(Outcome::Traffic),
        Kind::Relay(flow) => traffic(&flow, broker, Greeting::None, setting, number).map(Outcome::Traffic),
        Kind::Idle { connections } => idle(connections, broker, setting, number).map(Outcome::Idle),
        Kind::Overload { flood, probes } => overload(flood, probes, broker, setting, number).map(Outcome::Overload),
    };
    if broker.has_ended() && !setting.stop.is_wanted() {
        bail!("the broker ended during the case");
    }
    outcome
}

fn usage(broker: &Broker) -> Option<Usage> {
    broker.pid.and_then(procfs::usage)
}

fn micros(tally: &Tally, share: f64) -> f64 {
    tally.latency.quantile(share) as f64 / 1e3
}

fn faults(tally: &Tally, sent: u64, fan: u64, closed: u64) -> Faults {
    Faults {
        lost: (sent * fan).saturating_sub(tally.received),
        duplicated: tally.duplicated,
        reordered: tally.reordered,
        unsent: tally.unsent,
        stalls: tally.stalls,
        closed,
    }
}

/// Subscriber and publisher by turns: the order by which a relay knows which belong together.
fn everybody(flow: &Flow, number: u32) -> Vec<Client> {
    let mut subscribers = cases::subscribers(0, flow, 0, number, Reader::Eager).into_iter();
    let mut publishers = cases::publishers(0, flow, 0, number).into_iter();
    let mut all = Vec::new();
    loop {
        let before = all.len();
        all.extend(subscribers.next());
        all.extend(publishers.next());
        if all.len() == before {
            return all;
        }
    }
}

fn traffic(flow: &Flow, broker: &Broker, greeting: Greeting, setting: &Setting, number: u32) -> Result<Traffic> {
    let clients = everybody(flow, number);
    let mut engine = Engine::new(&[*flow], clients, greeting, Clock::start(), setting.stop.clone())?;
    engine.connect(broker.address)?;
    engine.run(Load::On, setting.warm_up)?;
    let (before, own_before, machine_before) = (usage(broker), procfs::own_cpu(), procfs::machine_cpu_s());
    let seconds = engine.measure(setting.time)?.as_secs_f64();
    let (after, own_after, machine_after) = (usage(broker), procfs::own_cpu(), procfs::machine_cpu_s());
    engine.drain()?;
    let (tallies, closed) = engine.finish();
    let tally = tallies.first().ok_or_else(|| anyhow!("no flow"))?;
    let cpu_s = before.zip(after).map(|(before, after)| after.cpu_s - before.cpu_s);
    let own_s = own_after.saturating_sub(own_before).as_secs_f64();
    let machine_s = machine_before.zip(machine_after).map(|(before, after)| after - before);
    let other_s = machine_s.zip(cpu_s).map(|(all, broker)| (all - broker - own_s).max(0.0));
    Ok(Traffic {
        delivered_per_s: tally.measured as f64 / seconds,
        cpu_s_per_million: cpu_s.filter(|_| tally.measured > 0).map(|cpu| cpu * 1e6 / tally.measured as f64),
        broker_cores: cpu_s.map(|cpu| cpu / seconds),
        generator_cores: own_s / seconds,
        other_cores: other_s.map(|other| other / seconds),
        rss_kib: after.map(|usage| usage.rss_kib),
        p50_us: micros(tally, 0.5),
        p99_us: micros(tally, 0.99),
        p999_us: micros(tally, 0.999),
        faults: faults(tally, tally.sent, flow.fan(), closed),
    })
}

fn idle(wanted: usize, broker: &Broker, setting: &Setting, number: u32) -> Result<Idle> {
    let connections = wanted.min(setting.files_max.saturating_sub(FILES_RESERVED) as usize);
    let clients = cases::idlers(connections, number);
    let mut engine = Engine::new(&[], clients, Greeting::Mqtt, Clock::start(), setting.stop.clone())?;
    let before = usage(broker);
    let time = engine.connect(broker.address)?;
    engine.run(Load::Off, SETTLE)?;
    let after = usage(broker);
    let (_, closed) = engine.finish();
    if closed > 0 {
        bail!("{closed} of {connections} idle connections were closed");
    }
    let grown = |(before, after): (Usage, Usage)| after.rss_kib as f64 - before.rss_kib as f64;
    Ok(Idle {
        connections,
        connects_per_s: connections as f64 / time.as_secs_f64(),
        kib_each: before.zip(after).map(grown).map(|kib| kib / connections as f64),
    })
}

/// The flood has a thread of its own, so that the probes measure the broker's delay and not the generator's.
fn overload(flood: Flow, probes: Flow, broker: &Broker, setting: &Setting, number: u32) -> Result<Overload> {
    let (clock, flows) = (Clock::start(), [flood, probes]);
    let engine = |clients| Engine::new(&flows, clients, Greeting::Mqtt, clock, setting.stop.clone());
    let first_probe = flood.publishers();
    let mut witnesses = cases::subscribers(0, &flood, 0, number, Reader::Slow);
    witnesses.extend(cases::subscribers(1, &probes, first_probe, number, Reader::Eager));
    witnesses.extend(cases::publishers(1, &probes, first_probe, number));
    let mut witness = engine(witnesses)?;
    let mut flooder = engine(cases::publishers(0, &flood, 0, number))?;
    witness.connect(broker.address)?;
    flooder.connect(broker.address)?;

    let is_over = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_over);
    let thread = std::thread::spawn(move || -> Result<(Vec<Tally>, u64)> {
        while !flag.load(Ordering::Relaxed) {
            flooder.run(Load::On, Duration::from_millis(10))?;
        }
        // What the socket has not taken yet was not sent; it goes out now or is counted as lost.
        flooder.run(Load::Off, Duration::from_millis(500))?;
        Ok(flooder.finish())
    });
    let measured = witness.run(Load::On, setting.warm_up).and_then(|()| witness.measure(setting.time));
    let after = usage(broker);
    is_over.store(true, Ordering::Relaxed);
    let drained = witness.drain();
    let flooded = thread.join().map_err(|_| anyhow!("the flooding thread panicked"))?;
    let seconds = measured?.as_secs_f64();
    drained?;
    let (flooded, cut) = flooded?;
    let (tallies, closed) = witness.finish();
    let ([sent, _], [received, probe]) = (flooded.as_slice(), tallies.as_slice()) else { bail!("two flows") };
    Ok(Overload {
        probe_p50_us: micros(probe, 0.5),
        probe_p99_us: micros(probe, 0.99),
        probes: faults(probe, probe.sent, probes.fan(), 0),
        rss_kib: after.map(|usage| usage.rss_kib),
        sent: sent.sent,
        delivered: received.received,
        delivered_per_s: received.measured as f64 / seconds,
        closed: closed + cut,
    })
}
