//! A thread of the broker on the same processors: messages come at a rate and wait for it, and it measures how long, as
//! `broker::pressure` does. What it finds is the product's own gauge.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::pressure::{Gauge, PressureConfig, PressurePlan, Signal};

use super::askers::BEGIN;
use crate::machine::yielding::SpacePressure;

const SAMPLE: Duration = Duration::from_millis(100);
/// What somebody waits is what everybody waited for a second.
const SAMPLES: usize = 10;

/// Messages for a shard.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShardLoad {
    pub(super) per_s: f64,
    /// What one takes of a processor.
    pub(super) work: Duration,
    /// Whether the space hears how hard the shard is pressed.
    pub(super) is_heard: bool,
}

#[derive(Debug)]
pub(super) struct BusyShard {
    pub(super) load: ShardLoad,
    plan: PressurePlan,
    gauge: Gauge,
    waiting: VecDeque<Timestamp>,
    pub(super) next: Timestamp,
    sample: Timestamp,
    longest: Duration,
    before: [Duration; SAMPLES],
    samples: usize,
    dry: Timestamp,
    /// How long each message took.
    pub(super) took: Vec<Duration>,
    /// The highest level that there was, and tenths of a second at level 2 or more.
    pub(super) highest: u8,
    pub(super) strained: u32,
}

impl BusyShard {
    pub(super) fn new(load: ShardLoad) -> Self {
        Self {
            load,
            plan: PressureConfig::default().build().unwrap(),
            gauge: Gauge::default(),
            waiting: VecDeque::new(),
            next: BEGIN,
            sample: BEGIN + SAMPLE,
            longest: Duration::ZERO,
            before: [Duration::ZERO; SAMPLES],
            samples: 0,
            dry: BEGIN,
            took: Vec::new(),
            highest: 0,
            strained: 0,
        }
    }

    /// When something happens of its own accord.
    pub(super) fn next_time(&self) -> Timestamp {
        self.next.min(self.sample)
    }

    /// Messages come, and it is measured; what the space is told, if it is time.
    pub(super) fn happen(&mut self, now: Timestamp) -> Option<SpacePressure> {
        while self.next <= now {
            self.waiting.push_back(self.next);
            self.next = self.next + Duration::from_secs_f64(1.0 / self.load.per_s);
        }
        if now < self.sample {
            return None;
        }
        self.sample = now + SAMPLE;
        let oldest = self.waiting.front().map_or(Duration::ZERO, |came| now.since(*came));
        self.before[self.samples % SAMPLES] = self.longest.max(oldest);
        self.samples += 1;
        self.longest = Duration::ZERO;
        let entitled = self.before.into_iter().min().unwrap_or_default();
        let unread = if self.waiting.len() > 1 { now.since(self.dry) } else { Duration::ZERO };
        let signal = Signal { entitled, unread, ..Signal::default() };
        let level = self.gauge.on_sample(&self.plan, &signal, now);
        self.highest = self.highest.max(level.number());
        self.strained += u32::from(level.number() >= 2);
        let pressure = SpacePressure { level, cause: self.gauge.cause(), spare_processors: 1 };
        self.load.is_heard.then_some(pressure)
    }

    /// What it does next, if there is anything.
    pub(super) fn poll_work(&mut self, now: Timestamp) -> Option<Duration> {
        let came = self.waiting.front()?;
        self.longest = self.longest.max(now.since(*came));
        Some(self.load.work)
    }

    pub(super) fn on_done(&mut self, now: Timestamp) {
        if let Some(came) = self.waiting.pop_front() {
            self.took.push(now.since(came));
        }
        if self.waiting.is_empty() {
            self.dry = now;
        }
    }

    /// The time that so many of a hundred did not exceed, in milliseconds.
    pub(super) fn percentile_ms(&self, percent: usize) -> f64 {
        let mut took = self.took.clone();
        took.sort_unstable();
        took.get((took.len() * percent / 100).min(took.len() - 1)).map_or(0.0, |it| it.as_secs_f64() * 1e3)
    }
}
