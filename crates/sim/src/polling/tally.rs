//! What is counted while a world runs, and the metrics that come of it (EVAL §1).

use tidegate_control::analysis::Aimd;
use tidegate_control::analysis::aimd::burst;
use tidegate_control::analysis::poisson::tail;

use super::config::{Polling, StepChoice};
use crate::histogram::SecondsHistogram;
use crate::statistics::jain;

/// Two groups: most clients, and the others.
pub(super) const GROUPS: usize = 2;

#[derive(Default)]
pub(super) struct Tally {
    pub(super) offered: u64,
    pub(super) useful: u64,
    pub(super) wasted: u64,
    pub(super) denied: u64,
    pub(super) timed_out: u64,
    pub(super) updates: u64,
    pub(super) shed: u64,
    pub(super) lost: u64,
    pub(super) latency: SecondsHistogram,
    pub(super) time_to_success: SecondsHistogram,
    pub(super) gap: SecondsHistogram,
    pub(super) outdated: SecondsHistogram,
    pub(super) detected: u64,
    /// Answered checks that showed losses, and how many those were.
    pub(super) lossy: u64,
    pub(super) losses: u64,
    pub(super) detection_sum: f64,
    /// When the first request of all was sent, and how long after it each client had its first answer.
    pub(super) first_sent: Option<f64>,
    pub(super) first_answer: SecondsHistogram,
    pub(super) stale: [Stale; GROUPS],
    pub(super) useful_of: [u64; GROUPS],
    /// Second by second, from the beginning.
    pub(super) timeline: Vec<Second>,
}

/// The clients of a group whose copy is out of date, and the integral of their number since the warm-up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stale {
    pub(super) clients: u32,
    pub(super) of: u32,
    seconds: f64,
    since: f64,
}

impl Stale {
    /// Counts until now; `now` is not before the warm-up.
    pub(super) fn count(&mut self, now: f64) {
        self.seconds += f64::from(self.clients) * (now - self.since).max(0.0);
        self.since = self.since.max(now);
    }

    pub(super) fn start(&mut self, warm_up: f64) {
        self.since = warm_up;
    }

    fn share(&self, seconds: f64) -> f64 {
        if self.of == 0 { 0.0 } else { self.seconds / (seconds * f64::from(self.of)) }
    }
}

/// One second of the timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    /// Requests that arrived.
    pub offered: u32,
    /// Answers that reached a client still waiting.
    pub useful: u32,
    /// Notifications shed because of the backlog.
    pub shed: u32,
    /// Updates.
    pub updates: u32,
    /// Share of the clients whose copy is out of date, at the end of the second.
    pub stale: f32,
    /// Work that waits, at the end of the second, in seconds.
    pub backlog: f32,
}

/// A named figure.
pub type Metric = (&'static str, f64);

/// Every metric, with its unit and what it says; in the order of the reports.
pub const METRICS: &[(&str, &str, &str)] = &[
    ("goodput", "of capacity", "answers that reached a client still waiting"),
    ("offered", "of capacity", "requests"),
    ("requests_per_answer", "", "requests per useful answer"),
    ("wasted", "of capacity", "answers to clients that had given up"),
    ("latency_mean", "s", "of successful checks"),
    ("latency_p50", "s", "of successful checks"),
    ("latency_p99", "s", "of successful checks"),
    ("latency_p999", "s", "of successful checks"),
    ("time_to_success_p99", "s", "from the first attempt of a check to its success"),
    ("stale", "share", "mean share of clients whose copy is out of date"),
    ("stale_over_bound", "", "stale, as a multiple of the least that the capacity allows"),
    ("stale_others", "share", "stale among the clients with the other algorithm"),
    ("answers_of_others", "", "answers per client with the other algorithm, as a multiple of those of most"),
    ("detection_mean", "s", "from the loss of a notification to the check that shows it"),
    ("lossy_checks", "share", "answered checks that showed a loss"),
    ("losses_per_lossy_check", "", "K of the papers"),
    ("outdated_mean", "s", "how long a copy stays out of date"),
    ("outdated_p99", "s", "how long a copy stays out of date"),
    ("shed", "share", "notifications lost to overload"),
    ("radio_lost", "share", "notifications lost by the radio"),
    ("jain", "", "fairness of successes among equal clients"),
    ("gap_p99", "s", "between two successes of a client"),
    ("drain_t50", "of ideal", "half of a burst served"),
    ("drain_t99", "of ideal", "99 % of a burst served"),
    ("drain_t100", "of ideal", "all of a burst served"),
    ("requests_per_client", "", "requests sent, by client"),
    ("unserved", "share", "clients without any answer at the end"),
    ("recovered", "share", "backlog below 150 ms and shed below 5 % for 60 s after the trouble"),
    ("recovery", "s", "until then"),
    ("ast_mean", "s", "adaptive timeout at the end"),
    ("stretch_mean", "", "stretch at the end"),
    ("congested", "share", "clients in a back-off at the end"),
    ("timeout_over_model", "", "mean time between checks, as a multiple of the closed form"),
    ("growths_over_model", "", "checks without a loss between two with one, as a multiple of the closed form"),
    ("detection_over_model", "", "detection delay, as a multiple of the closed form"),
    ("burst_over_model", "", "losses per lossy check, as a multiple of the closed form"),
    ("overloaded", "share", "seconds in which more was asked than the host can answer"),
    ("overloaded_model", "share", "the same by the tail of a Poisson law of this mean"),
    ("overloaded_over_model", "", "the one as a multiple of the other"),
    ("events", "", "simulated"),
];

/// A backlog and a share of shed notifications below which a broker is well again, and for how long it must be.
const WELL_BACKLOG: f32 = 0.15;
const WELL_SHED: f64 = 0.05;
const WELL_SECONDS: usize = 60;

impl Tally {
    /// The second that now belongs to.
    pub(super) fn second(&mut self, now: f64) -> &mut Second {
        let index = now as usize;
        if index >= self.timeline.len() {
            self.timeline.resize(index + 1, Second::default());
        }
        &mut self.timeline[index]
    }

    /// Seconds from the end of the trouble until the broker is well, if it ever is.
    fn recovery(&self, trouble_ends: f64) -> Option<f64> {
        let after = self.timeline.get(trouble_ends.ceil() as usize..)?;
        let mut well = 0;
        for (second, at) in after.iter().zip(0_usize..) {
            let is_well =
                second.backlog < WELL_BACKLOG && f64::from(second.shed) <= WELL_SHED * f64::from(second.updates);
            well = if is_well { well + 1 } else { 0 };
            if well == WELL_SECONDS {
                return Some((at + 1 - WELL_SECONDS) as f64);
            }
        }
        None
    }

    fn answers_of_others(&self) -> f64 {
        let each = |group: usize| self.useful_of[group] as f64 / f64::from(self.stale[group].of.max(1));
        if each(0) > 0.0 { each(1) / each(0) } else { 0.0 }
    }

    /// τ, N, D and K as multiples of F1–F6 (CONTROL §3.2); zeros where those do not apply.
    fn over_model(&self, config: &Polling) -> [f64; 4] {
        let step = match config.clients.step {
            StepChoice::Matched => config.step_matched(),
            StepChoice::Fixed(step) => step,
            StepChoice::Shipped => return [0.0; 4],
        };
        let rate = config.updates.rate * config.link.loss;
        let Ok(model) = Aimd::new(rate, step, config.clients.alpha).map(|map| map.estimate()) else { return [0.0; 4] };
        if self.useful == 0 || self.lossy == 0 || self.detected == 0 {
            return [0.0; 4];
        }
        let checks = self.useful as f64 / (config.duration - config.warm_up);
        // The interval begins when the answer is there.
        let timeout = f64::from(config.clients_count()) / checks - self.latency.mean();
        let growths = self.useful as f64 / self.lossy as f64 - 1.0;
        let losses = self.losses as f64 / self.lossy as f64;
        [
            timeout / model.timeout,
            growths / model.growths,
            self.detection_sum / self.detected as f64 / model.detection_delay,
            losses / burst(rate, model.timeout, model.hit_probability),
        ]
    }

    /// Share of the measured seconds in which more than μ requests came, and Pr{N > μ} for Poisson arrivals.
    fn overloaded(&self, config: &Polling) -> (f64, f64) {
        let from = (config.warm_up.ceil() as usize).min(self.timeline.len());
        let until = (config.duration as usize).min(self.timeline.len()).max(from);
        let seconds = &self.timeline[from..until];
        let count = seconds.len().max(1) as f64;
        let limit = config.host.capacity as u64 + 1;
        let over = seconds.iter().filter(|second| u64::from(second.offered) >= limit).count() as f64;
        let mean = seconds.iter().map(|second| f64::from(second.offered)).sum::<f64>() / count;
        (over / count, tail(limit, mean))
    }

    /// All metrics, in the order of [`METRICS`].
    pub(super) fn metrics(&self, config: &Polling, ended: &Ended) -> Vec<Metric> {
        let seconds = config.duration - config.warm_up;
        let work = config.host.capacity * seconds;
        let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
        let stale = self.stale[0].share(seconds);
        let bound = config.stale_bound();
        let ideal = f64::from(config.clients_count()) / config.host.capacity;
        let recovery = self.recovery(config.host.change_ends());
        let [timeout, growths, detection, burst] = self.over_model(config);
        let (overloaded, overloaded_model) = self.overloaded(config);
        let values = [
            self.useful as f64 / work,
            self.offered as f64 / work,
            share(self.offered, self.useful),
            self.wasted as f64 / work,
            self.latency.mean(),
            self.latency.quantile(0.5),
            self.latency.quantile(0.99),
            self.latency.quantile(0.999),
            self.time_to_success.quantile(0.99),
            stale,
            if bound > 0.0 { stale / bound } else { 0.0 },
            self.stale[1].share(seconds),
            self.answers_of_others(),
            self.detection_sum / self.detected.max(1) as f64,
            share(self.lossy, self.useful),
            share(self.losses, self.lossy),
            self.outdated.mean(),
            self.outdated.quantile(0.99),
            share(self.shed, self.updates),
            share(self.lost, self.updates),
            ended.jain,
            self.gap.quantile(0.99),
            self.first_answer.quantile(0.5) / ideal,
            self.first_answer.quantile(0.99) / ideal,
            if ended.unserved > 0.0 { config.duration / ideal } else { self.first_answer.max() / ideal },
            ended.requests_per_client,
            ended.unserved,
            f64::from(u8::from(recovery.is_some())),
            recovery.unwrap_or(config.duration - config.host.change_ends()),
            ended.ast_mean,
            ended.stretch_mean,
            ended.congested,
            timeout,
            growths,
            detection,
            burst,
            overloaded,
            overloaded_model,
            if overloaded_model > 0.0 { overloaded / overloaded_model } else { 0.0 },
            ended.events as f64,
        ];
        METRICS.iter().zip(values).map(|((name, _, _), value)| (*name, value)).collect()
    }
}

/// What is known only at the end.
pub(super) struct Ended {
    pub(super) jain: f64,
    pub(super) requests_per_client: f64,
    pub(super) unserved: f64,
    pub(super) ast_mean: f64,
    pub(super) stretch_mean: f64,
    pub(super) congested: f64,
    pub(super) events: u64,
}

/// Fairness of the successes of equal clients.
pub(super) fn fairness(successes: impl IntoIterator<Item = u16>) -> f64 {
    jain(successes.into_iter().map(f64::from))
}
