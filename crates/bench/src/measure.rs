//! One case on one broker: drive the generator, look at the process before and after.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use tidegate_wire_mqtt::QoS;

use super::cases::{BenchCase, CaseKind, FlowSpec, UserCheck};
use super::clients::{self, ClientSpec, ReadSpeed};
use super::engine::{Engine, Greeting, LoadSwitch};
use super::gate::ask::LedgerReading;
use super::handshakes::Handshakes;
use super::outcome::{CaseOutcome, ChurnOutcome, Faults, IdleOutcome, Storm, TrafficOutcome};
use super::overload::overload;
use super::packets;
use super::plain::PlainClient;
use super::process::RunningBroker;
use super::procfs::{self, CpuMeter, ProcessUsage};
use super::tally::FlowTally;
use super::timer::CaseClock;
use tidegate_program::Stop;

/// Files that are open besides the connections of a case.
const FILES_RESERVED: u64 = 200;
/// After so long an idle broker has given back what connecting took.
const SETTLE: Duration = Duration::from_millis(1500);
/// The longest that clients may take to come back. Within it the kernel repeats a lost SYN after 1, 3, 7, 15 and 31 s.
const STORM_MAX: Duration = Duration::from_secs(45);
/// Handshakes at a time before a storm.
const HANDSHAKES: usize = 64;
/// Subscriptions that one client holds: half of what a broker with our defaults allows.
const FILTERS_PER_CLIENT: usize = 5_000;

/// What is the same for all cases of a run.
#[derive(Clone, Debug)]
pub(super) struct RunSettings {
    pub(super) time: Duration,
    pub(super) warm_up: Duration,
    /// Open files that this process may have.
    pub(super) files_max: u64,
    /// The share of the clients and subscriptions that a case asks for.
    pub(super) scale: f64,
    pub(super) stop: Stop,
}

impl RunSettings {
    /// How many of so many there are to be.
    pub(super) fn scaled(&self, count: usize) -> usize {
        ((count as f64 * self.scale).round() as usize).max(1)
    }

    /// How many connections there can be of so many.
    pub(super) fn affordable(&self, connections: usize) -> usize {
        connections.min(self.files_max.saturating_sub(FILES_RESERVED) as usize)
    }
}

/// Runs a case.
pub(super) fn run(
    case: &BenchCase,
    broker: &mut RunningBroker,
    setting: &RunSettings,
    number: u32,
) -> Result<CaseOutcome> {
    let outcome = match case.kind {
        CaseKind::Traffic(flow) | CaseKind::Relay(flow) | CaseKind::Shards(flow) => {
            traffic(&flow, ReadSpeed::Eager, broker, setting, number).map(CaseOutcome::Traffic)
        }
        CaseKind::Subscriptions { flow, counts } => {
            subscriptions(&flow, counts, broker, setting, number).map(CaseOutcome::Subscriptions)
        }
        CaseKind::Idle { connections } => idle(connections, broker, setting, number).map(CaseOutcome::Idle),
        CaseKind::Churn { clients } => churn(clients, broker, setting, number).map(CaseOutcome::Churn),
        CaseKind::Storm { clients, users } => storm(clients, users, broker, setting, number).map(CaseOutcome::Storm),
        CaseKind::Space(_) => bail!("a case of the smart space needs no broker"),
        CaseKind::Gate(_) | CaseKind::Durable(_) | CaseKind::Admin(_) => bail!("this case starts its own brokers"),
        CaseKind::Overload { flood, probes } => {
            overload(flood, probes, broker, setting, number).map(CaseOutcome::Overload)
        }
    };
    if broker.has_ended() && !setting.stop.is_wanted() {
        bail!("the broker ended during the case");
    }
    outcome
}

/// What the broker uses now.
fn usage(broker: &RunningBroker) -> Option<ProcessUsage> {
    broker.pid.and_then(procfs::usage)
}

/// A quantile of the latencies, in microseconds.
pub(super) fn micros(tally: &FlowTally, share: f64) -> f64 {
    tally.latency.quantile(share) as f64 / 1e3
}

/// What should be zero of a flow.
pub(super) fn faults(tally: &FlowTally, sent: u64, fan: u64, held: u64, closed: u64) -> Faults {
    let missing = (sent * fan).saturating_sub(tally.received);
    let held = (held * fan).min(missing);
    Faults {
        lost: missing - held,
        held,
        duplicated: tally.duplicated,
        reordered: tally.reordered,
        unsent: tally.unsent,
        stalls: tally.stalls,
        closed,
    }
}

/// Subscriber and publisher by turns: the order by which a relay knows which belong together.
fn everybody(flow: &FlowSpec, reader: ReadSpeed, number: u32) -> Vec<ClientSpec> {
    let mut subscribers = clients::subscribers(0, flow, 0, number, reader).into_iter();
    let mut publishers = clients::publishers(0, flow, 0, number).into_iter();
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

/// Messages of one flow, to subscribers that read like this.
pub(super) fn traffic(
    flow: &FlowSpec,
    reader: ReadSpeed,
    broker: &RunningBroker,
    setting: &RunSettings,
    number: u32,
) -> Result<TrafficOutcome> {
    let greeting = if broker.is_relay { Greeting::None } else { Greeting::Mqtt };
    let clients = everybody(flow, reader, number);
    let mut engine = Engine::new(&[*flow], clients, greeting, CaseClock::start(), setting.stop.clone())?;
    engine.connect(broker.address)?;
    let before = LedgerReading::of(broker).map_or(0, |account| account.received);
    engine.run(LoadSwitch::On, setting.warm_up)?;
    let meter = CpuMeter::start(broker.pid);
    let seconds = engine.measure(setting.time)?.as_secs_f64();
    let (cost, cores) = meter.stop(seconds);
    let rss_kib = usage(broker).map(|usage| usage.rss_kib);
    engine.drain()?;
    // Asked while everybody is still there: what is held would go to nobody afterwards.
    let account = if engine.is_complete() { None } else { LedgerReading::of(broker) };
    let (tallies, closed) = engine.finish();
    let tally = tallies.first().ok_or_else(|| anyhow!("no flow"))?;
    let held = account.as_ref().map_or(0, |account| account.waiting);
    let faults = faults(tally, tally.sent, flow.fan(), held, closed);
    let reasons = account.and_then(|account| account.reasons(before + tally.sent));
    Ok(TrafficOutcome {
        delivered_per_s: tally.measured as f64 / seconds,
        s_per_million: cost.filter(|_| tally.measured > 0).map(|cost| cost.per(tally.measured as f64 / 1e6)),
        cores,
        rss_kib,
        p50_us: micros(tally, 0.5),
        p99_us: micros(tally, 0.99),
        p999_us: micros(tally, 0.999),
        ack_us: (tally.acks.total() > 0)
            .then(|| [0.5, 0.99].map(|share| tally.acks.quantile(share) as f64 / 1e3).into()),
        faults,
        reasons,
    })
}

/// The same traffic again and again on one broker, each time beside more subscriptions of others.
fn subscriptions(
    flow: &FlowSpec,
    counts: &[usize],
    broker: &RunningBroker,
    setting: &RunSettings,
    number: u32,
) -> Result<Vec<(usize, TrafficOutcome)>> {
    let mut holders: Vec<PlainClient> = Vec::new();
    let (mut held, mut rows) = (0, Vec::new());
    for &count in counts {
        let wanted = setting.scaled(count);
        while held < wanted {
            let place = held % FILTERS_PER_CLIENT;
            if place == 0 {
                let id = format!("bench-{number}-h{}", holders.len());
                holders.push(PlainClient::connect(broker.address, &id)?);
            }
            let more = (FILTERS_PER_CLIENT - place).min(wanted - held);
            let filters: Vec<String> = (held..held + more).map(|filter| beside(filter, number)).collect();
            holders.last_mut().ok_or_else(|| anyhow!("nobody holds filters"))?.subscribe(&filters, QoS::AtMostOnce)?;
            held += more;
            if setting.stop.is_wanted() {
                bail!("interrupted");
            }
        }
        rows.push((held, traffic(flow, ReadSpeed::Eager, broker, setting, number)?));
    }
    Ok(rows)
}

/// A filter that matches nothing that is published, but stands beside it: a sibling of the topics, or one whose
/// wildcard leads the search astray and whose last level then fails.
fn beside(filter: usize, number: u32) -> String {
    if filter.is_multiple_of(2) {
        format!("bench/{number}/0/n{filter}")
    } else {
        format!("bench/{number}/+/{filter}/deeper")
    }
}

fn idle(wanted: usize, broker: &RunningBroker, setting: &RunSettings, number: u32) -> Result<IdleOutcome> {
    let wanted = setting.scaled(wanted);
    let connections = setting.affordable(wanted);
    let clients = clients::idlers(connections, number);
    let mut engine = Engine::new(&[], clients, Greeting::Mqtt, CaseClock::start(), setting.stop.clone())?;
    let (before, meter) = (usage(broker), CpuMeter::start(broker.pid));
    let seconds = engine.connect(broker.address)?.as_secs_f64();
    let (_, cores) = meter.stop(seconds);
    engine.run(LoadSwitch::Off, SETTLE)?;
    let after = usage(broker);
    let (_, closed) = engine.finish();
    if closed > 0 {
        bail!("{closed} of {connections} idle connections were closed");
    }
    let grown = |(before, after): (ProcessUsage, ProcessUsage)| after.rss_kib as f64 - before.rss_kib as f64;
    Ok(IdleOutcome {
        connections,
        wanted,
        connects_per_s: connections as f64 / seconds,
        kib_each: before.zip(after).map(grown).map(|kib| kib / connections as f64),
        cores,
    })
}

fn churn(clients: usize, broker: &RunningBroker, setting: &RunSettings, number: u32) -> Result<ChurnOutcome> {
    let mut handshakes = Handshakes::new(broker.address, setting.scaled(clients), number, setting.stop.clone())?;
    handshakes.churn(setting.warm_up)?;
    let meter = CpuMeter::start(broker.pid);
    let (done, time) = handshakes.churn(setting.time)?;
    let (cost, cores) = meter.stop(time.as_secs_f64());
    Ok(ChurnOutcome {
        connects_per_s: done as f64 / time.as_secs_f64(),
        us_each: cost.filter(|_| done > 0).map(|cost| cost.total() * 1e6 / done as f64),
        trouble: handshakes.trouble(),
        cores,
    })
}

fn storm(wanted: usize, users: UserCheck, broker: &RunningBroker, setting: &RunSettings, number: u32) -> Result<Storm> {
    let wanted = setting.scaled(wanted);
    let clients = setting.affordable(wanted);
    let mut handshakes = Handshakes::new(broker.address, clients, number, setting.stop.clone())?;
    if users == UserCheck::One {
        handshakes.introduce(packets::USER);
    }
    let before = handshakes.fill(HANDSHAKES, STORM_MAX)?;
    if before.inside < clients {
        bail!("{} of {clients} clients were connected before the storm", before.inside);
    }
    handshakes.leave_all();
    let meter = CpuMeter::start(broker.pid);
    let after = handshakes.fill(usize::MAX, STORM_MAX)?;
    let (_, cores) = meter.stop(after.time.as_secs_f64());
    Ok(Storm {
        clients,
        wanted,
        back: after.inside,
        most_s: after.most.map(|time| time.as_secs_f64()),
        all_s: (after.inside == clients).then_some(after.time.as_secs_f64()),
        rss_kib: usage(broker).map(|usage| usage.rss_kib),
        trouble: handshakes.trouble(),
        cores,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_scaled_and_limited_but_never_nothing() {
        let stop = Stop::on_signals().unwrap();
        let second = Duration::from_secs(1);
        let setting = RunSettings { time: second, warm_up: second, files_max: 1_000, scale: 0.25, stop };
        assert_eq!((setting.scaled(5_000), setting.scaled(1)), (1_250, 1));
        assert_eq!((setting.affordable(1_250), setting.affordable(10)), (800, 10));
    }

    #[test]
    fn filters_beside_the_topics_differ() {
        let filters: std::collections::BTreeSet<String> = (0..1_000).map(|filter| beside(filter, 7)).collect();
        assert_eq!(filters.len(), 1_000);
        assert!(!filters.contains("bench/7/0/1"));
    }
}
