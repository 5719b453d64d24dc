//! One publisher sends a hundred times as much as it used to: what do the others notice?

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::ask::LedgerReading;
use super::{Latency, contest};
use crate::json;
use crate::measure::RunSettings;
use crate::outcome::Cores;
use crate::process::BrokerSource;
use crate::procfs::CpuMeter;
use crate::report::{core_words, grouped};

/// Well-behaved publishers and what each sends a second.
const OTHERS: (u32, f64) = (20, 5.0);
/// What the flooder sends a second while it behaves, and how many times as much afterwards.
const USUAL_PER_S: f64 = 10.0;
const TIMES: f64 = 100.0;
/// How many times `--secs` each half is measured: two times 900 messages of the others by default.
const LENGTH: u32 = 3;

/// What the others noticed.
#[derive(Clone, Debug)]
pub(crate) struct FlooderOutcome {
    /// While everybody keeps its rhythm, and while one does not.
    pub(crate) calm: Latency,
    pub(crate) flood: Latency,
    /// Messages of the others that never arrived.
    pub(crate) lost: u64,
    /// Messages of the flooder: wanted to be sent, and worked on meanwhile.
    pub(crate) offered: u64,
    pub(crate) passed: u64,
    /// How late the generator was, p99.
    pub(crate) late_ms: f64,
    pub(crate) account: Option<LedgerReading>,
    pub(crate) cores: Cores,
}

impl FlooderOutcome {
    /// The others' p99 during the flood as a multiple of that before it.
    pub(crate) fn ratio(&self) -> f64 {
        self.flood.p99_ms / self.calm.p99_ms
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let level = self.account.as_ref().map_or_else(String::new, |account| format!(", level {}", account.level));
        vec![format!(
            "others p99 {:.1} → {:.1} ms ({:.2}×), {} lost, flooder {} of {} through{level}, tool late p99 {:.1} ms, cores {}",
            self.calm.p99_ms,
            self.flood.p99_ms,
            self.ratio(),
            grouped(self.lost as f64),
            grouped(self.passed as f64),
            grouped(self.offered as f64),
            self.late_ms,
            core_words(&self.cores)
        )]
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "others_calm": self.calm.json(),
            "others_flood": self.flood.json(),
            "others_lost": self.lost,
            "flooder_offered": self.offered,
            "flooder_passed": self.passed,
            "tool_late_p99_ms": self.late_ms,
            "level": self.account.as_ref().map(|account| account.level),
            "held": self.account.as_ref().map(|account| account.held),
            "cores": json::cores(&self.cores),
        })
    }
}

pub(super) fn run(source: &BrokerSource, setting: &RunSettings, number: u32) -> Result<FlooderOutcome> {
    let broker = source.start(&contest::WISH, &setting.stop)?;
    let (count, per_s) = OTHERS;
    let groups = [contest::group(count, per_s), contest::group(1, USUAL_PER_S)];
    let mut engine = contest::begin(&groups, &broker, setting, number)?;
    let time = setting.time * LENGTH;
    engine.measure(time)?;
    let calm = engine.harvest();
    engine.change(1, contest::rhythm(USUAL_PER_S * TIMES));
    let meter = CpuMeter::start(broker.pid);
    let seconds = engine.measure(time)?.as_secs_f64();
    let (_, cores) = meter.stop(seconds);
    let account = LedgerReading::of(&broker);
    let flood = engine.harvest();
    engine.drain()?;
    let (end, _) = engine.finish();
    let ([calm, _], [others, flooder], [last, _]) = (calm.as_slice(), flood.as_slice(), end.as_slice()) else {
        bail!("two flows");
    };
    Ok(FlooderOutcome {
        calm: Latency::of(&calm.latency),
        flood: Latency::of(&others.latency),
        lost: last.missing(),
        offered: (USUAL_PER_S * TIMES * seconds) as u64,
        passed: flooder.measured,
        late_ms: others.late.quantile(0.99) as f64 / 1e6,
        account,
        cores,
    })
}
