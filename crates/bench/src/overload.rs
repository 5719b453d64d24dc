//! The case in which a broker gets more than it can pass on: what that does to its memory, to others, and to the truth.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use tidegate_wire_mqtt::QoS;

use super::cases::FlowSpec;
use super::clients::{self, ReadSpeed};
use super::engine::{Engine, Greeting, LoadSwitch};
use super::gate::ask::LedgerReading;
use super::measure::{RunSettings, faults, micros};
use super::outcome::Overload;
use super::plain::PlainClient;
use super::process::RunningBroker;
use super::procfs::{self, CpuMeter};
use super::tally::FlowTally;
use super::timer::CaseClock;

/// The longest that the sockets may take to empty what the flood left in the generator's own buffers.
const EMPTY_MAX: Duration = Duration::from_secs(10);
/// Brokers tell their counters once a second in this case (`process.rs`); after so long a new value is there.
const TOLD_AFTER: Duration = Duration::from_millis(2500);
/// mosquitto's name of the counter, and ours.
const DROPPED: &str = "$SYS/broker/publish/messages/dropped";

/// The flood has a thread of its own, so that the probes measure the broker's delay and not the generator's.
pub(super) fn overload(
    flood: FlowSpec,
    probes: FlowSpec,
    broker: &RunningBroker,
    setting: &RunSettings,
    number: u32,
) -> Result<Overload> {
    let (clock, flows) = (CaseClock::start(), [flood, probes]);
    let engine = |clients| Engine::new(&flows, clients, Greeting::Mqtt, clock, setting.stop.clone());
    let first_probe = flood.publishers();
    let mut witnesses = clients::subscribers(0, &flood, 0, number, ReadSpeed::Slow);
    witnesses.extend(clients::subscribers(1, &probes, first_probe, number, ReadSpeed::Eager));
    witnesses.extend(clients::publishers(1, &probes, first_probe, number));
    let mut witness = engine(witnesses)?;
    let mut flooder = engine(clients::publishers(0, &flood, 0, number))?;
    witness.connect(broker.address)?;
    flooder.connect(broker.address)?;

    let is_over = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_over);
    let thread = std::thread::spawn(move || flood_until(&flag, flooder));
    let warmed = witness.run(LoadSwitch::On, setting.warm_up);
    let meter = CpuMeter::start(broker.pid);
    let measured = warmed.and_then(|()| witness.measure(setting.time));
    let ended = meter.stop(setting.time.as_secs_f64());
    is_over.store(true, Ordering::Relaxed);
    // While the flood empties its buffers somebody has to read, else nothing moves.
    let mut drained = Ok(());
    while drained.is_ok() && !thread.is_finished() {
        drained = witness.hurry(Duration::from_millis(20));
    }
    let drained = drained.and_then(|()| witness.drain());
    // Asked while everybody is still there: what is held would go to nobody afterwards.
    let held = LedgerReading::of(broker).map_or(0, |account| account.waiting);
    let flooded = thread.join().map_err(|_| anyhow!("the flooding thread panicked"))?;
    let seconds = measured?.as_secs_f64();
    drained?;
    let (flooded, cut) = flooded?;
    let (tallies, closed) = witness.finish();
    let ([sent, _], [received, probe]) = (flooded.as_slice(), tallies.as_slice()) else { bail!("two flows") };
    Ok(Overload {
        probe_p50_us: micros(probe, 0.5),
        probe_p99_us: micros(probe, 0.99),
        probes: faults(probe, probe.sent, probes.fan(), 0, 0),
        rss_max_kib: broker.pid.and_then(procfs::rss_max_kib),
        sent: sent.sent,
        delivered: received.received,
        held,
        delivered_per_s: received.measured as f64 / seconds,
        counted: told(broker, number),
        closed: closed + cut,
        cores: ended.1,
    })
}

/// Floods until told to stop, then only empties its buffers: what is counted as sent has really left.
fn flood_until(is_over: &AtomicBool, mut flooder: Engine) -> Result<(Vec<FlowTally>, u64)> {
    while !is_over.load(Ordering::Relaxed) {
        flooder.run(LoadSwitch::On, Duration::from_millis(10))?;
    }
    flooder.empty(EMPTY_MAX)?;
    Ok(flooder.finish())
}

/// How many messages the broker says that it dropped; `None` if it does not say, or refuses to be asked.
fn told(broker: &RunningBroker, number: u32) -> Option<u64> {
    let mut client = PlainClient::connect(broker.address, &format!("bench-{number}-ledger")).ok()?;
    client.subscribe(&[DROPPED.to_owned()], QoS::AtMostOnce).ok()?;
    String::from_utf8(client.last_payload(TOLD_AFTER).ok()??).ok()?.trim().parse().ok()
}
