//! What it costs to watch publishers that do nothing wrong (the paper's Figs. 5 and 6): CPU time per message and memory
//! per publisher, with the gate and without it. And, in the same way, what a store costs those who keep nothing in it.
//!
//! Both brokers run at the same time and are driven in turns, the order changing each time, so that the machine's other
//! work disturbs both alike. The figure is the median of the ratios of neighbours.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tidegate_wire_mqtt::QoS;

use super::{NO_STORE, OFF};
use crate::cases::{FlowSpec, PublishPace, Topology};
use crate::clients::{self, ReadSpeed};
use crate::engine::{Engine, Greeting, LoadSwitch};
use crate::json;
use crate::measure::RunSettings;
use crate::outcome::Cores;
use crate::process::{BrokerNeeds, BrokerSource, RunningBroker, Tune};
use crate::procfs::{self, CpuMeter};
use crate::report::{BrokerRole, core_words, grouped};
use crate::timer::CaseClock;

/// What each publisher sends a second.
const PER_S: f64 = 2.0;
/// How often both are measured.
const ROUNDS: u32 = 7;
/// Until every rhythm is known: sixteen intervals at two messages a second, and some more. At the least of `--secs` nothing
/// is known yet, and nothing is meant.
const LEARN_S: f64 = 10.0;
/// After so long what was under way has arrived.
const REST: Duration = Duration::from_millis(100);

/// For normal scatter: σ is 1.4826 median deviations, and a median errs by 1.2533·σ/√n.
const MEDIAN_ERROR: f64 = 1.4826 * 1.2533;

/// What messages cost.
#[derive(Clone, Debug)]
pub(crate) struct GateCost {
    pub(crate) publishers: usize,
    /// CPU microseconds per message, the median of all rounds: of this broker, and of ours without what is compared.
    pub(crate) us_each: Option<f64>,
    pub(crate) us_off: Option<f64>,
    /// Of each round: this broker's as a multiple of that without.
    pub(crate) ratios: Vec<f64>,
    /// Resident bytes of each publisher: of this broker, and of ours without.
    pub(crate) bytes_each: Option<f64>,
    pub(crate) bytes_off: Option<f64>,
    pub(crate) cores: Cores,
}

impl GateCost {
    /// The median of the ratios.
    pub(crate) fn ratio(&self) -> Option<f64> {
        median(&self.ratios)
    }

    /// The standard error of that median, as the scatter of the rounds has it.
    pub(crate) fn error(&self) -> Option<f64> {
        let middle = self.ratio()?;
        let deviations: Vec<f64> = self.ratios.iter().map(|ratio| (ratio - middle).abs()).collect();
        Some(MEDIAN_ERROR * median(&deviations)? / (self.ratios.len() as f64).sqrt())
    }

    /// Bytes that the gate needs for each publisher.
    pub(crate) fn bytes_more(&self) -> Option<f64> {
        Some(self.bytes_each? - self.bytes_off?)
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let number =
            |value: Option<f64>, digits| value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"));
        let mut line = format!(
            "{} publishers, {} µs CPU a message, {} B each",
            grouped(self.publishers as f64),
            number(self.us_each, 2),
            number(self.bytes_each, 0)
        );
        if let Some(ratio) = self.ratio() {
            let least = self.ratios.iter().copied().fold(f64::MAX, f64::min);
            let most = self.ratios.iter().copied().fold(0.0, f64::max);
            let _ = write!(
                line,
                "; off {} µs, {} B; ratio {ratio:.3} ({least:.3} to {most:.3} in {} rounds)",
                number(self.us_off, 2),
                number(self.bytes_off, 0),
                self.ratios.len()
            );
        }
        vec![format!("{line}, cores {}", core_words(&self.cores))]
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "publishers": self.publishers,
            "cpu_us_per_message": self.us_each,
            "cpu_us_per_message_off": self.us_off,
            "ratios": self.ratios,
            "bytes_per_publisher": self.bytes_each,
            "bytes_per_publisher_off": self.bytes_off,
            "cores": json::cores(&self.cores),
        })
    }
}

/// A broker, those who publish to it, and what was seen of it.
struct CostSide {
    broker: RunningBroker,
    engine: Engine,
    rss_kib: u64,
    us: Vec<f64>,
}

impl CostSide {
    fn new(source: &BrokerSource, flow: &FlowSpec, setting: &RunSettings, number: u32) -> Result<Self> {
        let broker = source.start(&BrokerNeeds::NONE, &setting.stop)?;
        let mut clients = clients::subscribers(0, flow, 0, number, ReadSpeed::Eager);
        clients.extend(clients::publishers(0, flow, 0, number));
        let rss_kib = broker.pid.and_then(procfs::usage).map_or(0, |usage| usage.rss_kib);
        let mut engine = Engine::new(&[*flow], clients, Greeting::Mqtt, CaseClock::start(), setting.stop.clone())?;
        engine.connect(broker.address)?;
        engine.run(LoadSwitch::On, Duration::from_secs_f64(LEARN_S).min(setting.time * 4))?;
        engine.rest(REST)?;
        Ok(Self { broker, engine, rss_kib, us: Vec::new() })
    }

    /// One round; CPU microseconds per message.
    fn round(&mut self, time: Duration) -> Result<()> {
        // Not measured: the first messages after a rest find cold caches.
        self.engine.run(LoadSwitch::On, time / 10)?;
        let before = self.broker.pid.and_then(procfs::cpu_ns);
        self.engine.measure(time)?;
        let after = self.broker.pid.and_then(procfs::cpu_ns);
        let messages = self.engine.harvest().first().map_or(0, |tally| tally.measured);
        self.engine.rest(REST)?;
        if let (Some(before), Some(after), true) = (before, after, messages > 0) {
            self.us.push((after - before) as f64 / 1e3 / messages as f64);
        }
        Ok(())
    }

    fn bytes_each(&self, publishers: usize) -> Option<f64> {
        let now = procfs::usage(self.broker.pid?)?.rss_kib as f64 - self.rss_kib as f64;
        Some(now * 1024.0 / publishers as f64)
    }
}

pub(super) fn run(wanted: usize, source: &BrokerSource, setting: &RunSettings, number: u32) -> Result<GateCost> {
    // Both brokers' clients are ours at the same time.
    let publishers = setting.affordable(2 * setting.scaled(wanted)) / 2;
    let flow = FlowSpec {
        shape: Topology::FanIn(u32::try_from(publishers)?),
        qos: QoS::AtMostOnce,
        payload_bytes: 64,
        pace: PublishPace::Rate(PER_S * publishers as f64),
    };
    compare(&flow, source, OFF, setting, number)
}

/// What a store costs those who do not need it: pairs at QoS 1 in sessions that end with their connections.
pub(super) fn run_clean(pairs: usize, source: &BrokerSource, setting: &RunSettings, number: u32) -> Result<GateCost> {
    let flow = FlowSpec {
        shape: Topology::Pairs(u32::try_from(setting.scaled(pairs))?),
        qos: QoS::AtLeastOnce,
        payload_bytes: 64,
        pace: PublishPace::Window,
    };
    compare(&flow, source, NO_STORE, setting, number)
}

fn compare(
    flow: &FlowSpec,
    source: &BrokerSource,
    without: Tune,
    setting: &RunSettings,
    number: u32,
) -> Result<GateCost> {
    let is_own = source.role() == BrokerRole::Own;
    let publishers = flow.publishers() as usize;
    let mut on = CostSide::new(source, flow, setting, number)?;
    let other = BrokerSource::Tidegate { shards: None, tune: without };
    let mut off = is_own.then(|| CostSide::new(&other, flow, setting, number)).transpose().context(without.name)?;
    let meter = CpuMeter::start(on.broker.pid);
    let begin = std::time::Instant::now();
    for round in 0..ROUNDS {
        match &mut off {
            Some(off) if round % 2 == 1 => {
                off.round(setting.time)?;
                on.round(setting.time)?;
            }
            off => {
                on.round(setting.time)?;
                off.as_mut().map_or(Ok(()), |off| off.round(setting.time))?;
            }
        }
    }
    let (_, cores) = meter.stop(begin.elapsed().as_secs_f64());
    let ratios =
        off.as_ref().map_or_else(Vec::new, |off| on.us.iter().zip(&off.us).map(|(on, off)| on / off).collect());
    Ok(GateCost {
        publishers,
        us_each: median(&on.us),
        us_off: off.as_ref().and_then(|off| median(&off.us)),
        ratios,
        bytes_each: on.bytes_each(publishers),
        bytes_off: off.as_ref().and_then(|off| off.bytes_each(publishers)),
        cores,
    })
}

/// The middle one, or the mean of the two.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len().is_multiple_of(2) { f64::midpoint(*sorted.get(middle - 1)?, upper) } else { upper })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
    }
}
