//! One rare publisher among busy ones (the paper's Fig. 7): how long do its messages take?

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{Latency, contest};
use crate::json;
use crate::measure::RunSettings;
use crate::outcome::Cores;
use crate::process::BrokerSource;
use crate::procfs::CpuMeter;
use crate::report::{core_words, grouped};
use crate::tally::FlowTally;

/// What the rare one sends a second.
const RARE_PER_S: f64 = 10.0;
/// Busy publishers, and the load of all of them together as a multiple of what the subscriber can take.
const BUSY: u32 = 10;
const LOAD: f64 = 2.0;
/// How many times `--secs` it is measured.
const LENGTH: u32 = 3;

/// What the rare publisher's messages met.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contended {
    pub(crate) rare: Latency,
    pub(crate) busy: Latency,
    pub(crate) lost: u64,
    pub(crate) late_ms: f64,
    pub(crate) cores: Cores,
}

impl Contended {
    pub(super) fn lines(&self) -> Vec<String> {
        let Latency { count, min_ms, p50_ms, p99_ms, max_ms } = self.rare;
        vec![format!(
            "rare min/p50/p99/max {min_ms:.1}/{p50_ms:.1}/{p99_ms:.1}/{max_ms:.1} ms of {count}, {} lost, busy p50 {:.0} ms, tool late p99 \
             {:.1} ms, cores {}",
            grouped(self.lost as f64),
            self.busy.p50_ms,
            self.late_ms,
            core_words(&self.cores)
        )]
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "rare": self.rare.json(),
            "busy": self.busy.json(),
            "rare_lost": self.lost,
            "tool_late_p99_ms": self.late_ms,
            "cores": json::cores(&self.cores),
        })
    }
}

pub(super) fn run(source: &BrokerSource, setting: &RunSettings, number: u32) -> Result<Contended> {
    let broker = source.start(&contest::WISH, &setting.stop)?;
    let busy = LOAD * contest::CAPACITY / f64::from(BUSY);
    let groups = [contest::group(1, RARE_PER_S), contest::group(BUSY, busy)];
    let mut engine = contest::begin(&groups, &broker, setting, number)?;
    let meter = CpuMeter::start(broker.pid);
    let seconds = engine.measure(setting.time * LENGTH)?.as_secs_f64();
    let (_, cores) = meter.stop(seconds);
    let measured = engine.harvest();
    engine.drain()?;
    let (end, _) = engine.finish();
    let (rare, busy) = (measured.first().context("no flow")?, measured.get(1).context("no flow")?);
    Ok(Contended {
        rare: Latency::of(&rare.latency),
        busy: Latency::of(&busy.latency),
        lost: end.first().map_or(0, FlowTally::missing),
        late_ms: rare.late.quantile(0.99) as f64 / 1e6,
        cores,
    })
}
