//! Publishers that keep a rhythm, of three kinds: how many of their messages are taken for a flood?

use anyhow::Result;
use serde_json::{Value, json};

use super::Latency;
use super::ask::LedgerReading;
use super::contest;
use crate::beats::Beat;
use crate::cases::{FlowSpec, PublishPace, Topology};
use crate::clients::{self, ReadSpeed};
use crate::engine::{Engine, Greeting, LoadSwitch};
use crate::histogram::Histogram;
use crate::json;
use crate::measure::RunSettings;
use crate::outcome::Cores;
use crate::process::{BrokerNeeds, BrokerSource};
use crate::procfs::CpuMeter;
use crate::report::{core_words, grouped};
use crate::tally::FlowTally;
use crate::timer::CaseClock;
use tidegate_wire_mqtt::QoS;

/// Publishers of each kind; all send five messages a second.
const EACH: usize = 100;
const BEATS: [Beat; 3] =
    [Beat::periodic(5.0), Beat { per_s: 5.0, jitter: 0.3, batch: 1 }, Beat { per_s: 5.0, jitter: 0.1, batch: 10 }];
/// How many times `--secs` it is measured.
const LENGTH: u32 = 5;

/// What became of the fleet.
#[derive(Clone, Debug)]
pub(crate) struct FleetOutcome {
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    pub(crate) latency: Latency,
    /// How late the generator was at most: later messages come in a burst that is its own.
    pub(crate) late_max_ms: f64,
    pub(crate) account: Option<LedgerReading>,
    pub(crate) cores: Cores,
}

impl FleetOutcome {
    /// Which share of the messages was taken for a flood; `None` if the broker does not say.
    pub(crate) fn delayed(&self) -> Option<f64> {
        let account = self.account.as_ref()?;
        Some(account.slowed() as f64 / account.received.max(1) as f64)
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let said = self.account.as_ref().map(|account| {
            let share = account.slowed() as f64 * 100.0 / account.received.max(1) as f64;
            format!("{} slowed ({share:.3} %), level {}", grouped(account.slowed() as f64), account.level)
        });
        vec![format!(
            "{}, {} sent, {} lost, p50/p99/max {:.1}/{:.1}/{:.1} ms, tool late at most {:.0} ms, cores {}",
            said.unwrap_or_else(|| "slows nobody".to_owned()),
            grouped(self.sent as f64),
            grouped(self.lost as f64),
            self.latency.p50_ms,
            self.latency.p99_ms,
            self.latency.max_ms,
            self.late_max_ms,
            core_words(&self.cores)
        )]
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "sent": self.sent,
            "lost": self.lost,
            "slowed": self.account.as_ref().map(LedgerReading::slowed),
            "slowed_share": self.delayed(),
            "level": self.account.as_ref().map(|account| account.level),
            "latency": self.latency.json(),
            "tool_late_max_ms": self.late_max_ms,
            "cores": json::cores(&self.cores),
        })
    }
}

pub(super) fn run(source: &BrokerSource, setting: &RunSettings, number: u32) -> Result<FleetOutcome> {
    let broker = source.start(&BrokerNeeds::NONE, &setting.stop)?;
    let each = setting.scaled(EACH) as u32;
    let groups = BEATS.map(|beat| FlowSpec {
        shape: Topology::FanIn(each),
        qos: QoS::AtLeastOnce,
        payload_bytes: 64,
        pace: PublishPace::Each(beat),
    });
    let mut clients = contest::publishers(&groups, number);
    clients.push(clients::worker(groups.iter().map(FlowSpec::publishers).sum(), number, ReadSpeed::Eager));
    let mut engine = Engine::new(&groups, clients, Greeting::Mqtt, CaseClock::start(), setting.stop.clone())?;
    engine.connect(broker.address)?;
    // Not measured, but what the broker counts then counts: a fleet that is still unknown must not be slowed either.
    engine.run(LoadSwitch::On, contest::warm_up(setting))?;
    let meter = CpuMeter::start(broker.pid);
    let seconds = engine.measure(setting.time * LENGTH)?.as_secs_f64();
    let (_, cores) = meter.stop(seconds);
    engine.drain()?;
    let account = LedgerReading::of(&broker);
    let (tallies, _) = engine.finish();
    let (mut latency, mut late) = (Histogram::new(), Histogram::new());
    for tally in &tallies {
        latency.add(&tally.latency);
        late.add(&tally.late);
    }
    Ok(FleetOutcome {
        sent: tallies.iter().map(|tally| tally.sent).sum(),
        lost: tallies.iter().map(FlowTally::missing).sum(),
        latency: Latency::of(&latency),
        late_max_ms: late.range().map_or(0.0, |(_, most)| most as f64 / 1e6),
        account,
        cores,
    })
}
