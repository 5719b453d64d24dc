//! Rare, usual and busy publishers, at half to ten times of what the subscriber can take.

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::{Latency, contest};
use crate::json;
use crate::measure::RunSettings;
use crate::outcome::Cores;
use crate::process::BrokerSource;
use crate::procfs::CpuMeter;
use crate::report::{core_words, grouped};

/// Publishers of each class. By default a third of all publishers each has the classes high, normal and low.
const EACH: u32 = 10;
/// What a rare publisher sends a second, whatever the others do.
const RARE_PER_S: f64 = 4.0;
/// The share of the busy ones in what the rare ones leave.
const BUSY_SHARE: f64 = 0.75;
/// Offered load as a multiple of what the subscriber can take. The first is unloaded.
const LOADS: [f64; 5] = [0.5, 1.0, 2.0, 5.0, 10.0];
/// How many times `--secs` each is measured.
const LENGTH: u32 = 2;

/// What became of one class under one load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ClassOutcome {
    pub(crate) latency: Latency,
    /// Its share of all that was delivered.
    pub(crate) share: f64,
    pub(crate) lost: u64,
}

/// One load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadOutcome {
    pub(crate) load: f64,
    /// Messages a second that were worked on.
    pub(crate) goodput: f64,
    /// High, normal, low.
    pub(crate) classes: [ClassOutcome; 3],
    pub(crate) late_ms: f64,
    pub(crate) cores: Cores,
}

/// All loads.
#[derive(Clone, Debug)]
pub(crate) struct ClassesOutcome {
    pub(crate) loads: Vec<LoadOutcome>,
}

impl ClassesOutcome {
    /// What was measured at this load.
    pub(crate) fn at(&self, load: f64) -> Option<&LoadOutcome> {
        self.loads.iter().find(|loaded| loaded.load == load)
    }

    /// The least goodput from full load on, as a share of the most.
    pub(crate) fn steadiness(&self) -> Option<f64> {
        let full = self.loads.iter().filter(|loaded| loaded.load >= 1.0).map(|loaded| loaded.goodput);
        let (least, most) = full.fold((f64::MAX, 0.0f64), |(least, most), rate| (least.min(rate), most.max(rate)));
        (most > 0.0).then_some(least / most)
    }

    /// How many times its unloaded p99 the highest class has at five times the load.
    pub(crate) fn highest(&self) -> Option<f64> {
        let p99 = |load| Some(self.at(load)?.classes[0].latency.p99_ms);
        Some(p99(5.0)? / p99(0.5)?)
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let line = |loaded: &LoadOutcome| {
            let [high, normal, low] = &loaded.classes;
            format!(
                "{:>4}× {:>4.0}/s, p99 ms {:.1}/{:.1}/{:.1}, share {:.0}/{:.0}/{:.0} %, lost {}/{}/{}, late {:.1} ms, cores {}",
                loaded.load,
                loaded.goodput,
                high.latency.p99_ms,
                normal.latency.p99_ms,
                low.latency.p99_ms,
                high.share * 100.0,
                normal.share * 100.0,
                low.share * 100.0,
                grouped(high.lost as f64),
                grouped(normal.lost as f64),
                grouped(low.lost as f64),
                loaded.late_ms,
                core_words(&loaded.cores)
            )
        };
        self.loads.iter().map(line).collect()
    }

    pub(super) fn rows(&self) -> Vec<Value> {
        let class =
            |class: &ClassOutcome| json!({ "latency": class.latency.json(), "share": class.share, "lost": class.lost });
        let row = |loaded: &LoadOutcome| {
            json!({
                "load": loaded.load,
                "goodput_per_s": loaded.goodput,
                "classes": loaded.classes.each_ref().map(class),
                "tool_late_p99_ms": loaded.late_ms,
                "cores": json::cores(&loaded.cores),
            })
        };
        self.loads.iter().map(row).collect()
    }
}

/// What a publisher of each class sends a second at this load.
fn rates(load: f64) -> [f64; 3] {
    let each = f64::from(EACH);
    let rest = load * contest::CAPACITY - RARE_PER_S * each;
    [RARE_PER_S, rest * (1.0 - BUSY_SHARE) / each, rest * BUSY_SHARE / each]
}

/// A fresh broker for each load: what it has learned of publishers under another one would mislead it.
pub(super) fn run(source: &BrokerSource, setting: &RunSettings, number: u32) -> Result<ClassesOutcome> {
    let loads = LOADS.iter().map(|&load| loaded(load, source, setting, number)).collect::<Result<_>>()?;
    Ok(ClassesOutcome { loads })
}

fn loaded(load: f64, source: &BrokerSource, setting: &RunSettings, number: u32) -> Result<LoadOutcome> {
    let broker = source.start(&contest::WISH, &setting.stop)?;
    let groups = rates(load).map(|per_s| contest::group(EACH, per_s));
    let mut engine = contest::begin(&groups, &broker, setting, number)?;
    let meter = CpuMeter::start(broker.pid);
    let seconds = engine.measure(setting.time * LENGTH)?.as_secs_f64();
    let (_, cores) = meter.stop(seconds);
    let measured = engine.harvest();
    engine.drain()?;
    let (end, _) = engine.finish();
    let ([high, normal, low], [high_end, normal_end, low_end]) = (measured.as_slice(), end.as_slice()) else {
        bail!("three flows");
    };
    let all = high.measured + normal.measured + low.measured;
    let classes = [(high, high_end), (normal, normal_end), (low, low_end)].map(|(tally, end)| ClassOutcome {
        latency: Latency::of(&tally.latency),
        share: tally.measured as f64 / all.max(1) as f64,
        lost: end.missing(),
    });
    let late_ms = high.late.quantile(0.99) as f64 / 1e6;
    Ok(LoadOutcome { load, goodput: all as f64 / seconds, classes, late_ms, cores })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_add_up_and_the_rare_stay_the_rarest() {
        for load in LOADS {
            let rates = rates(load);
            let sum: f64 = rates.iter().sum::<f64>() * f64::from(EACH);
            assert!((sum - load * contest::CAPACITY).abs() < 1e-6, "{sum} at {load}");
            assert!(rates.is_sorted(), "{rates:?}");
        }
    }

    #[test]
    fn figures_are_taken_from_the_right_loads() {
        let loaded = |load, goodput, p99_ms| LoadOutcome {
            load,
            goodput,
            classes: [ClassOutcome { latency: Latency { p99_ms, ..Latency::default() }, ..ClassOutcome::default() }; 3],
            late_ms: 0.0,
            cores: Cores::default(),
        };
        let classes =
            ClassesOutcome { loads: vec![loaded(0.5, 250.0, 4.0), loaded(1.0, 490.0, 5.0), loaded(5.0, 500.0, 6.0)] };
        assert_eq!(classes.highest(), Some(1.5));
        assert_eq!(classes.steadiness(), Some(0.98));
        assert_eq!(ClassesOutcome { loads: Vec::new() }.steadiness(), None);
    }
}
