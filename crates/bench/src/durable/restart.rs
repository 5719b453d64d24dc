//! How long a broker that was killed takes until it serves again, with messages that wait on its disk.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::{Value, json};
use tidegate_wire_mqtt::QoS;

use super::PAYLOAD_BYTES;
use crate::cases::{FlowSpec, PublishPace, Topology};
use crate::clients;
use crate::engine::{Engine, Greeting, LoadSwitch};
use crate::gate::ask;
use crate::json;
use crate::measure::RunSettings;
use crate::outcome::Cores;
use crate::packets::SessionLifetime;
use crate::plain::PlainClient;
use crate::process::{BrokerNeeds, BrokerSource};
use crate::procfs::{self, CpuMeter};
use crate::report::{core_words, grouped};
use crate::timer::CaseClock;

/// Publishers that fill the queue: so many share a sync.
const PUBLISHERS: u32 = 256;
/// How often it is looked whether there are enough messages.
const LOOK: Duration = Duration::from_millis(20);
/// More messages than any disk keeps in that time.
const BETWEEN_LOOKS_MAX: u32 = 20_000;
/// The longest that filling may take: a slow disk does a few syncs a second.
const FILL_MAX: Duration = Duration::from_secs(60);

/// A broker that came back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restart {
    /// Acknowledged before, and waiting afterwards.
    pub(crate) messages: u64,
    pub(crate) waiting: Option<u64>,
    /// From the start of the process to the first CONNACK.
    pub(crate) seconds: f64,
    /// CPU time of the broker until then: what it would take on a machine of its own.
    pub(crate) cpu_s: Option<f64>,
    pub(crate) rss_kib: Option<u64>,
    pub(crate) cores: Cores,
}

impl Restart {
    /// As if it took as long for each message.
    pub(crate) fn s_per_million(&self) -> f64 {
        self.seconds * 1e6 / self.messages.max(1) as f64
    }

    /// The same by CPU time.
    pub(crate) fn cpu_s_per_million(&self) -> Option<f64> {
        Some(self.cpu_s? * 1e6 / self.messages.max(1) as f64)
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let waiting = self.waiting.map_or_else(|| "–".to_owned(), |count| grouped(count as f64));
        let mib = self.rss_kib.map_or_else(|| "–".to_owned(), |kib| format!("{:.0}", kib as f64 / 1024.0));
        vec![format!(
            "{:.2} s from the start to the first CONNACK ({} s of CPU), {} messages acknowledged before kill -9, {waiting} \
             there, {mib} MiB, cores {}",
            self.seconds,
            self.cpu_s.map_or_else(|| "–".to_owned(), |seconds| format!("{seconds:.2}")),
            grouped(self.messages as f64),
            core_words(&self.cores)
        )]
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "messages": self.messages,
            "waiting": self.waiting,
            "restart_s": self.seconds,
            "restart_s_per_million": self.s_per_million(),
            "restart_cpu_s": self.cpu_s,
            "rss_kib": self.rss_kib,
            "cores": json::cores(&self.cores),
        })
    }
}

pub(super) fn run(wanted: usize, source: &BrokerSource, setting: &RunSettings, number: u32) -> Result<Restart> {
    let wanted = setting.scaled(wanted) as u64;
    let flow = FlowSpec {
        shape: Topology::FanIn(PUBLISHERS),
        qos: QoS::AtLeastOnce,
        payload_bytes: PAYLOAD_BYTES,
        pace: PublishPace::OneByOne,
    };
    // More may come than are asked for: whoever is acknowledged sends the next one, until it is looked again.
    let queue_max = u32::try_from(wanted)?.saturating_mul(2).saturating_add(PUBLISHERS + BETWEEN_LOOKS_MAX);
    let broker =
        source.start(&BrokerNeeds { queue_max: Some(queue_max), is_kept: true, ..BrokerNeeds::NONE }, &setting.stop)?;
    let sleeper = format!("bench-{number}-sleeper");
    PlainClient::connect_as(broker.address, &sleeper, SessionLifetime::Lasting)?
        .subscribe(&[format!("bench/{number}/#")], QoS::AtLeastOnce)?;
    let publishers = clients::publishers(0, &flow, 0, number);
    let mut engine = Engine::new(&[flow], publishers, Greeting::Mqtt, CaseClock::start(), setting.stop.clone())?;
    engine.connect(broker.address)?;
    let begin = Instant::now();
    while engine.acknowledged() < wanted {
        if begin.elapsed() > FILL_MAX {
            bail!("only {} of {wanted} messages were kept in {} s", engine.acknowledged(), FILL_MAX.as_secs());
        }
        engine.run(LoadSwitch::On, LOOK)?;
    }
    let messages = engine.acknowledged();
    drop(engine);
    let remains = broker.kill()?;
    let (meter, begin) = (CpuMeter::start(None), Instant::now());
    let broker = remains.start()?;
    let first = PlainClient::connect(broker.address, &format!("bench-{number}-first"))?;
    let seconds = begin.elapsed().as_secs_f64();
    let cpu_s = broker.pid.and_then(procfs::cpu_ns).map(|ns| ns as f64 / 1e9);
    let (_, cores) = meter.stop(seconds);
    let rss_kib = broker.pid.and_then(procfs::usage).map(|usage| usage.rss_kib);
    let waiting = ask::queued(&broker);
    drop(first);
    Ok(Restart { messages, waiting, seconds, cpu_s, rss_kib, cores })
}
