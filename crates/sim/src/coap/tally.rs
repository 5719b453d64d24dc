//! What is counted about clients that watch a value by CoAP, and the metrics that come of it.

use crate::histogram::SecondsHistogram;
use crate::polling::Metric;

/// Every metric, with its unit and what it says; in the order of the reports.
pub const METRICS: &[(&str, &str, &str)] = &[
    ("stale", "share", "of the time that the value a client has is not the newest"),
    ("detection_mean", "s", "from a change until its client has it, or a newer one"),
    ("detection_p99", "s", "from a change until its client has it, or a newer one"),
    ("datagrams", "1/s", "of each client, in both directions, those that are lost included"),
    ("bytes", "1/s", "of each client, in both directions, without the headers of UDP and below"),
    ("repeated", "share", "of the broker's datagrams: sent again"),
    ("needless", "share", "of the broker's datagrams: had arrived before"),
    ("forgotten", "1/h", "of each client: the broker gave it up"),
    ("refused", "share", "of the changes: the broker did not take them"),
    ("events", "", "simulated"),
];

#[derive(Default)]
pub(super) struct Tally {
    pub(super) detection: SecondsHistogram,
    /// Seconds, of all clients.
    pub(super) stale: f64,
    pub(super) changes: u64,
    pub(super) refused: u64,
    pub(super) datagrams: u64,
    pub(super) bytes: u64,
    pub(super) of_broker: u64,
    pub(super) needless: u64,
    pub(super) repeated: u64,
    pub(super) forgotten: u64,
    pub(super) events: u64,
}

impl Tally {
    pub(super) fn metrics(&self, clients: u32, seconds: f64) -> Vec<Metric> {
        let client_seconds = f64::from(clients) * seconds;
        let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
        let values = [
            self.stale / client_seconds,
            self.detection.mean(),
            self.detection.quantile(0.99),
            self.datagrams as f64 / client_seconds,
            self.bytes as f64 / client_seconds,
            share(self.repeated, self.of_broker),
            share(self.needless, self.of_broker),
            self.forgotten as f64 / client_seconds * 3600.0,
            share(self.refused, self.changes),
            self.events as f64,
        ];
        METRICS.iter().zip(values).map(|((name, _, _), value)| (*name, value)).collect()
    }
}
