//! What it costs to keep messages on disk, and how near that comes to what the disk allows.
//!
//! Publishers of QoS 1 send one message each, wait until it is acknowledged, and send the next; one subscriber with a
//! session that lasts gets them all. So a sync can be shared by as many messages as there are publishers, and by no more:
//! the limit is the disk's own rate of syncs times the publishers. That rate is measured in the same folder, before and
//! after. Ours with the store switched off shows what keeping costs; mosquitto with persistence acknowledges at once and
//! saves every half hour, so that it shows another promise, not another way to keep the same.

mod disk;
pub(super) mod goals;
mod restart;

use anyhow::Result;
use serde_json::{Value, json};
use tidegate_wire_mqtt::QoS;

use super::cases::{FlowSpec, PublishPace, Topology};
use super::clients::ReadSpeed;
use super::gate::NO_STORE;
use super::json;
use super::measure::{self, RunSettings};
use super::outcome::{Cores, TrafficOutcome};
use super::process::{BrokerNeeds, BrokerSource, Tune};
use super::report::{BrokerRole, core_words, grouped};
pub(super) use restart::Restart;

/// What is promised and measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DurableCase {
    /// Acknowledged means kept: so many publishers at a time.
    Rate { publishers: usize },
    /// A broker that was killed is back: with so many messages that wait.
    Restart { messages: usize },
}

/// What a case with a store brought.
#[derive(Clone, Debug)]
pub(super) enum DurableOutcome {
    Rate(DurableRate),
    Restart(Restart),
}

/// Messages that were kept before they were acknowledged.
#[derive(Clone, Debug)]
pub(super) struct DurableRate {
    pub(super) publishers: usize,
    pub(super) traffic: TrafficOutcome,
    /// What this broker promises with an acknowledgement.
    promise: &'static str,
    /// Syncs a second of the folder, one after the other: the better of before and after. Known for ours.
    pub(super) syncs_per_s: Option<f64>,
}

/// Enough for whatever waits for a moment: what is measured is no full queue.
const QUEUE_MAX: u32 = 100_000;
const PAYLOAD_BYTES: usize = 64;

impl DurableCase {
    /// In which ways our broker is set.
    pub(super) fn tunes(self) -> &'static [Tune] {
        match self {
            Self::Rate { .. } => &[Tune::USUAL, NO_STORE],
            Self::Restart { .. } => &[Tune::USUAL],
        }
    }

    /// Whether it can be asked of others.
    pub(super) fn has_peers(self) -> bool {
        matches!(self, Self::Rate { .. })
    }
}

/// Runs a case on brokers from this source.
pub(super) fn run(
    promise: DurableCase,
    source: &BrokerSource,
    setting: &RunSettings,
    number: u32,
) -> Result<DurableOutcome> {
    match promise {
        DurableCase::Rate { publishers } => rate(publishers, source, setting, number).map(DurableOutcome::Rate),
        DurableCase::Restart { messages } => {
            restart::run(messages, source, setting, number).map(DurableOutcome::Restart)
        }
    }
}

fn rate(publishers: usize, source: &BrokerSource, setting: &RunSettings, number: u32) -> Result<DurableRate> {
    let publishers = setting.affordable(setting.scaled(publishers));
    let flow = FlowSpec {
        shape: Topology::FanIn(u32::try_from(publishers)?),
        qos: QoS::AtLeastOnce,
        payload_bytes: PAYLOAD_BYTES,
        pace: PublishPace::OneByOne,
    };
    let broker =
        source.start(&BrokerNeeds { queue_max: Some(QUEUE_MAX), is_kept: true, ..BrokerNeeds::NONE }, &setting.stop)?;
    let folder = broker.folder().filter(|_| source.role() == BrokerRole::Own);
    let look = || folder.map(|folder| disk::syncs_per_s(folder, setting.time / 2)).transpose();
    let before = look()?;
    let traffic = measure::traffic(&flow, ReadSpeed::Lasting, &broker, setting, number)?;
    let after = look()?;
    let syncs_per_s = before.zip(after).map(|(before, after)| before.max(after));
    Ok(DurableRate { publishers, traffic, promise: promised(source.role()), syncs_per_s })
}

fn promised(role: BrokerRole) -> &'static str {
    match role {
        BrokerRole::Own => "acknowledged when synced",
        BrokerRole::Off => "nothing kept",
        _ => "acknowledged at once, saved every 30 minutes",
    }
}

impl DurableRate {
    /// What the disk allows: every sync shared by all publishers.
    pub(super) fn limit_per_s(&self) -> Option<f64> {
        Some(self.syncs_per_s? * self.publishers as f64)
    }

    /// CPU microseconds for each message.
    pub(super) fn us_each(&self) -> Option<f64> {
        self.traffic.s_per_million.map(|cost| cost.total()).filter(|us| *us > 0.0)
    }

    fn lines(&self) -> Vec<String> {
        let us = self.us_each().map_or_else(|| "–".to_owned(), |us| format!("{us:.1}"));
        let (p50, p99) = (self.traffic.p50_us / 1e3, self.traffic.p99_us / 1e3);
        let mut lines = vec![format!(
            "{} messages/s, {us} µs CPU each, p50/p99 {p50:.1}/{p99:.1} ms, {}, cores {}",
            grouped(self.traffic.delivered_per_s),
            self.promise,
            core_words(&self.traffic.cores)
        )];
        if let (Some(syncs), Some(limit)) = (self.syncs_per_s, self.limit_per_s()) {
            lines.push(format!(
                "the disk: {} syncs/s of 4 KiB each, which allows {} messages/s",
                grouped(syncs),
                grouped(limit)
            ));
        }
        lines
    }

    fn json(&self) -> Value {
        let mut row = json::traffic(&self.traffic);
        row["publishers"] = self.publishers.into();
        row["promise"] = self.promise.into();
        row["disk_syncs_per_s"] = json!(self.syncs_per_s);
        row["disk_limit_per_s"] = json!(self.limit_per_s());
        row
    }
}

impl DurableOutcome {
    /// The words of the table, one line or more.
    pub(super) fn lines(&self) -> Vec<String> {
        match self {
            Self::Rate(rate) => rate.lines(),
            Self::Restart(restart) => restart.lines(),
        }
    }

    /// The outcome as JSON.
    pub(super) fn json(&self) -> Value {
        match self {
            Self::Rate(rate) => rate.json(),
            Self::Restart(restart) => restart.json(),
        }
    }

    /// Who used the processor.
    pub(super) fn cores(&self) -> Vec<Cores> {
        match self {
            Self::Rate(rate) => vec![rate.traffic.cores],
            Self::Restart(restart) => vec![restart.cores],
        }
    }
}
