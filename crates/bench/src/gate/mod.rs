//! What the gate is for, and what it costs: each case with it, without it, and with mosquitto.
//!
//! In the cases of contention one subscriber works on 500 messages a second and takes two at a time (MQTT 5's Receive
//! Maximum), so that whoever is early waits in the broker and not in a socket. Latency is from the time at which a message
//! should have been sent to the end of the work on it.

pub(super) mod ask;
mod classes;
mod contest;
mod cost;
mod fleet;
mod flooder;
pub(super) mod goals;
mod priority;

use anyhow::Result;
use serde_json::Value;

use super::histogram::Histogram;
use super::measure::RunSettings;
use super::outcome::Cores;
use super::process::{BrokerSource, Tune};
use super::report::BrokerRole;
pub(super) use classes::ClassesOutcome;
pub(super) use cost::GateCost;
pub(super) use fleet::FleetOutcome;
pub(super) use flooder::FlooderOutcome;
pub(super) use priority::Contended;

/// A case of the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GateCase {
    /// One publisher at a hundred times its rhythm.
    Flooder,
    /// Three classes at half to ten times of what the subscriber can take.
    Classes,
    /// One rare publisher among busy ones, at twice of what the subscriber can take.
    Priority,
    /// So many publishers that keep their rhythm: CPU time and memory.
    Cost { publishers: usize },
    /// Publishers that keep a rhythm of whatever kind.
    Fleet,
    /// So many pairs whose sessions do not last, beside a store that does not concern them: CPU time.
    Clean { pairs: usize },
}

/// What a case of the gate brought.
#[derive(Clone, Debug)]
pub(super) enum GateOutcome {
    Flooder(FlooderOutcome),
    Classes(ClassesOutcome),
    Priority(Contended),
    Cost(GateCost),
    Fleet(FleetOutcome),
}

/// Publishers that break their rhythm are slowed whether the broker is pressed or not.
const ALWAYS: Tune = Tune { name: "always", role: BrokerRole::Variant, settings: &["backoff.enforce=always"] };
const OFF: Tune = Tune { name: "off", role: BrokerRole::Off, settings: &["backoff.mode=off", "priority.mode=off"] };

/// Ours without a store.
pub(super) const NO_STORE: Tune = Tune { name: "store off", role: BrokerRole::Off, settings: &["store.keep=false"] };

/// Ranks are known per shard, so that these compare all publishers only if there is one.
const ONE: Tune = Tune { settings: &["server.shards=1"], ..Tune::USUAL };
const ONE_PAPER: Tune =
    Tune { name: "paper", role: BrokerRole::Variant, settings: &["server.shards=1", "priority.mode=paper"] };
const ONE_OFF: Tune = Tune { settings: &["server.shards=1", "backoff.mode=off", "priority.mode=off"], ..OFF };

impl GateCase {
    /// In which ways our broker is set.
    pub(super) fn tunes(self) -> &'static [Tune] {
        match self {
            Self::Flooder | Self::Fleet => &[Tune::USUAL, ALWAYS, OFF],
            Self::Classes => &[ONE, ONE_OFF],
            Self::Priority => &[ONE, ONE_PAPER, ONE_OFF],
            // It starts the other one itself.
            Self::Cost { .. } | Self::Clean { .. } => &[Tune::USUAL],
        }
    }

    /// Whether it can be asked of others.
    pub(super) fn has_peers(self) -> bool {
        !matches!(self, Self::Clean { .. })
    }
}

/// Runs a case on brokers from this source.
pub(super) fn run(
    scenario: GateCase,
    source: &BrokerSource,
    setting: &RunSettings,
    number: u32,
) -> Result<GateOutcome> {
    match scenario {
        GateCase::Flooder => flooder::run(source, setting, number).map(GateOutcome::Flooder),
        GateCase::Classes => classes::run(source, setting, number).map(GateOutcome::Classes),
        GateCase::Priority => priority::run(source, setting, number).map(GateOutcome::Priority),
        GateCase::Cost { publishers } => cost::run(publishers, source, setting, number).map(GateOutcome::Cost),
        GateCase::Clean { pairs } => cost::run_clean(pairs, source, setting, number).map(GateOutcome::Cost),
        GateCase::Fleet => fleet::run(source, setting, number).map(GateOutcome::Fleet),
    }
}

impl GateOutcome {
    /// The words of the table, one line or more.
    pub(super) fn lines(&self) -> Vec<String> {
        match self {
            Self::Flooder(figures) => figures.lines(),
            Self::Classes(figures) => figures.lines(),
            Self::Priority(figures) => figures.lines(),
            Self::Cost(figures) => figures.lines(),
            Self::Fleet(figures) => figures.lines(),
        }
    }

    /// The outcome as JSON, a row for each load.
    pub(super) fn rows(&self) -> Vec<Value> {
        match self {
            Self::Flooder(figures) => vec![figures.json()],
            Self::Classes(figures) => figures.rows(),
            Self::Priority(figures) => vec![figures.json()],
            Self::Cost(figures) => vec![figures.json()],
            Self::Fleet(figures) => vec![figures.json()],
        }
    }

    /// Who used the processor.
    pub(super) fn cores(&self) -> Vec<Cores> {
        match self {
            Self::Flooder(figures) => vec![figures.cores],
            Self::Classes(figures) => figures.loads.iter().map(|load| load.cores).collect(),
            Self::Priority(figures) => vec![figures.cores],
            Self::Cost(figures) => vec![figures.cores],
            Self::Fleet(figures) => vec![figures.cores],
        }
    }
}

/// Latencies of some messages, in milliseconds, and how many there were.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Latency {
    pub(super) count: u64,
    pub(super) min_ms: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) max_ms: f64,
}

impl Latency {
    fn of(histogram: &Histogram) -> Self {
        let ms = |ns: u64| ns as f64 / 1e6;
        let (min, max) = histogram.range().unwrap_or_default();
        Self {
            count: histogram.total(),
            min_ms: ms(min),
            p50_ms: ms(histogram.quantile(0.5)),
            p99_ms: ms(histogram.quantile(0.99)),
            max_ms: ms(max),
        }
    }

    fn json(&self) -> Value {
        serde_json::json!({
            "count": self.count, "min_ms": self.min_ms, "p50_ms": self.p50_ms, "p99_ms": self.p99_ms, "max_ms": self.max_ms,
        })
    }
}
