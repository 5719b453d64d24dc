//! What is counted about publishers, and the metrics that come of it.

use super::device::GROUPS;
use crate::histogram::SecondsHistogram;
use crate::polling::Metric;

/// Every metric, with its unit and what it says; in the order of the reports.
pub const METRICS: &[(&str, &str, &str)] = &[
    ("messages", "", "that the publishers sent"),
    ("uplink_bytes", "bytes", "of messages that the broker took from the publishers"),
    ("held", "share", "messages that were delayed for their rhythm"),
    ("hold_mean", "s", "delay by the rhythm control, over all messages"),
    ("refused", "share", "messages refused for their rhythm"),
    ("blocked", "share", "publishers still held at the end"),
    ("latency_rare_mean", "s", "queueing and service, rarest third"),
    ("latency_rare_p99", "s", "queueing and service, rarest third"),
    ("latency_middle_mean", "s", "queueing and service, middle third"),
    ("latency_middle_p99", "s", "queueing and service, middle third"),
    ("latency_busy_mean", "s", "queueing and service, busiest third"),
    ("latency_busy_p99", "s", "queueing and service, busiest third"),
    ("lost_rare", "share", "lost to a full queue, rarest third"),
    ("lost_middle", "share", "lost to a full queue, middle third"),
    ("lost_busy", "share", "lost to a full queue, busiest third"),
    ("attack_passed", "of nominal", "messages of an attacker that passed during the attack"),
    ("attack_over_learned", "of learned", "the same, of the rate that the broker had learned when the attack began"),
    ("after_attack_passed", "share", "messages of an attacker taken in the two minutes after, of those it sent"),
    ("events", "", "simulated"),
];

#[derive(Default)]
pub(super) struct Tally {
    pub(super) sent: u64,
    pub(super) taken: u64,
    pub(super) taken_bytes: u64,
    pub(super) held: u64,
    pub(super) hold_sum: f64,
    pub(super) refused: u64,
    pub(super) blocked: u64,
    pub(super) events: u64,
    pub(super) groups: [Group; GROUPS],
    pub(super) attack_passed: u64,
    pub(super) attack_nominal: f64,
    /// Messages that attackers would have sent at the rates learned before.
    pub(super) attack_learned: f64,
    pub(super) after_sent: u64,
    pub(super) after_taken: u64,
}

#[derive(Default)]
pub(super) struct Group {
    pub(super) offered: u64,
    pub(super) lost: u64,
    pub(super) latency: SecondsHistogram,
}

impl Tally {
    pub(super) fn metrics(&self, publishers: u32) -> Vec<Metric> {
        let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
        let [rare, middle, busy] = &self.groups;
        let values = [
            self.sent as f64,
            self.taken_bytes as f64,
            share(self.held, self.sent),
            self.hold_sum / self.sent.max(1) as f64,
            share(self.refused, self.sent),
            share(self.blocked, publishers.into()),
            rare.latency.mean(),
            rare.latency.quantile(0.99),
            middle.latency.mean(),
            middle.latency.quantile(0.99),
            busy.latency.mean(),
            busy.latency.quantile(0.99),
            share(rare.lost, rare.offered),
            share(middle.lost, middle.offered),
            share(busy.lost, busy.offered),
            if self.attack_nominal > 0.0 { self.attack_passed as f64 / self.attack_nominal } else { 0.0 },
            if self.attack_learned > 0.0 { self.attack_passed as f64 / self.attack_learned } else { 0.0 },
            share(self.after_taken, self.after_sent),
            self.events as f64,
        ];
        METRICS.iter().zip(values).map(|((name, _, _), value)| (*name, value)).collect()
    }
}
