//! Publishers with a rhythm, and a broker that serves them by rank (paper 003).
//!
//! Real are the rhythm control of each publisher, the ranks and the scheduler; modelled are the publishers and the time
//! that a message takes to be served. A message that is held is taken later, and later messages of its publisher stay
//! behind it; a publisher in a closed loop thinks of its next message only then. Arrival times are those of the socket.

mod config;
pub(crate) mod device;
pub(crate) mod tally;
#[cfg(test)]
mod tests;

use std::time::Duration;

use tidegate_control::rank::Ranks;
use tidegate_control::rhythm::{Enforcement, Pressure, Rhythm, RhythmConfig, RhythmPlan, Verdict};
use tidegate_control::schedule::{FlowId, Pushed, Scheduler, SchedulerConfig, SchedulerRule};
use tidegate_control::{ConfigError, Timestamp};

pub use config::{Interval, Order, Publishers};
pub use tally::METRICS;

use crate::chance::Stream;
use crate::polling::{Metric, Outcome};
use crate::wheel::Wheel;
use device::Device;
use tally::Tally;

struct Publisher {
    rhythm: Rhythm,
    device: Device,
    /// Until when its messages are held.
    blocked_until: Timestamp,
    is_attacking: bool,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Publish { publisher: u32 },
    Take { publisher: u32, arrived: u64 },
    Served,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    publisher: u32,
    taken_at: u64,
}

struct World<'a> {
    config: &'a Publishers,
    plan: RhythmPlan,
    now: Timestamp,
    wheel: Wheel<Event>,
    publishers: Vec<Publisher>,
    ranks: Ranks,
    scheduler: Scheduler<Message>,
    serving: Option<Message>,
    service: Stream,
    /// Seconds between messages, on average over the publishers' own factors.
    mean_interval: f64,
    tally: Tally,
}

/// A backlog of so many services is pressure: half of the 100 ms target at 200 messages/s.
const PRESSED_ITEMS: u32 = 10;

/// Runs a world to its end.
pub fn run(config: &Publishers, seed: u64) -> Result<Outcome, ConfigError> {
    let mut world = World::new(config, seed)?;
    for publisher in 0..config.count {
        let first = world.publishers[publisher as usize].device.first(config, world.mean_interval);
        world.after(first, Event::Publish { publisher });
    }
    let end = (config.duration * 1e9) as u64;
    while let Some((at, event)) = world.wheel.pop() {
        if at > end {
            break;
        }
        world.now = Timestamp::from_nanos(at);
        world.tally.events += 1;
        match event {
            Event::Publish { publisher } => world.publish(publisher),
            Event::Take { publisher, arrived } => world.take(publisher, arrived),
            Event::Served => world.served(),
        }
    }
    Ok(Outcome { metrics: world.finish(), timeline: Vec::new(), trace: Vec::new() })
}

impl<'a> World<'a> {
    fn new(config: &'a Publishers, seed: u64) -> Result<Self, ConfigError> {
        // Without control the rhythm is still learned, for the ranks; it never has consequences.
        let rule = config.rule.unwrap_or_default();
        let always = config.rule.is_some() && config.enforce_always;
        let enforcement = if always { Enforcement::Always } else { Enforcement::Pressure };
        let plan = RhythmConfig { rule, enforcement, ..RhythmConfig::default() }.build()?;
        let (devices, mean_interval) = device::devices(config, seed);
        let publisher = |device| Publisher {
            rhythm: Rhythm::new(&plan),
            device,
            blocked_until: Timestamp::ZERO,
            is_attacking: false,
        };
        let publishers = devices.into_iter().map(publisher).collect();
        let rule = if config.order == Order::Drr { SchedulerRule::Drr } else { SchedulerRule::Strict };
        let bytes = config.message_bytes.max(1);
        let scheduler = SchedulerConfig {
            rule,
            quantum: bytes,
            cost_max: bytes,
            items_max: config.queue_items,
            flows_max: config.count.max(1),
            ..SchedulerConfig::default()
        };
        Ok(Self {
            config,
            plan,
            now: Timestamp::ZERO,
            wheel: Wheel::default(),
            publishers,
            ranks: Ranks::new(config.count.max(1)),
            scheduler: Scheduler::new(&scheduler)?,
            serving: None,
            service: Stream::of(seed, "service"),
            mean_interval,
            tally: Tally::default(),
        })
    }

    fn publish(&mut self, publisher: u32) {
        let now = self.now;
        let pressed = self.scheduler.len() > PRESSED_ITEMS;
        let pressure = if pressed { Pressure::Pressed } else { Pressure::Idle };
        let controlled = self.config.rule.is_some();
        let state = &mut self.publishers[publisher as usize];
        state.device.note_sent();
        self.tally.sent += 1;
        let pressure = if controlled { pressure } else { Pressure::Idle };
        if state.device.attacks && !state.is_attacking && self.config.is_attack(now.as_secs_f64()) {
            state.is_attacking = true;
            self.tally.attack_learned += state.rhythm.rate().unwrap_or(0.0) * self.config.attack_length;
        }
        let verdict = state.rhythm.on_publish(&self.plan, now, pressure);
        let rate = state.rhythm.rate();
        // A message waits for itself, or behind another of its publisher.
        let take_at = match verdict {
            Verdict::Pass => Some(state.blocked_until.max(now)),
            Verdict::Hold(delay) => Some(state.blocked_until.max(now + delay)),
            Verdict::Refuse(_) | Verdict::Disconnect(_) => None,
        };
        if let Some(at) = take_at {
            state.blocked_until = at;
            let waited = at.since(now).as_secs_f64();
            self.tally.held += u64::from(waited > 0.0);
            // e^100 s says only "for ever"; for a mean the end of the run is long enough.
            self.tally.hold_sum += waited.min(self.config.duration);
            self.wheel.push(at.as_nanos(), Event::Take { publisher, arrived: now.as_nanos() });
        } else {
            self.tally.refused += 1;
        }
        let attacks = state.device.attacks;
        if attacks && self.is_after_attack(now) {
            self.tally.after_sent += 1;
        }
        self.set_rank(publisher, rate);
        let device = &mut self.publishers[publisher as usize].device;
        let wait = device.interval(self.config, self.mean_interval, now.as_secs_f64());
        let next = if self.config.closed_loop { take_at.unwrap_or(now) } else { now };
        self.wheel.push((next + Duration::from_secs_f64(wait)).as_nanos(), Event::Publish { publisher });
    }

    fn set_rank(&mut self, publisher: u32, rate: Option<f64>) {
        let flow = FlowId(publisher);
        // Identifiers are below the maximum by construction, so nothing is refused here.
        let _ = self.ranks.set(flow, rate);
        match self.config.order {
            Order::Fifo => {}
            Order::Strict => {
                let _ = self.scheduler.set_order(flow, self.ranks.order_key(flow));
            }
            Order::Drr => {
                let _ = self.scheduler.set_weight(flow, self.ranks.tercile(flow).weight());
            }
        }
    }

    /// The broker takes a message from the socket.
    fn take(&mut self, publisher: u32, arrived: u64) {
        self.tally.taken += 1;
        self.tally.taken_bytes += u64::from(self.config.message_bytes);
        let state = &self.publishers[publisher as usize];
        if state.device.attacks {
            self.tally.attack_passed += u64::from(self.config.is_attack(self.now.as_secs_f64()));
            self.tally.after_taken += u64::from(self.is_after_attack(Timestamp::from_nanos(arrived)));
        } else if self.is_measured(self.now.as_nanos()) {
            self.tally.groups[state.device.group].offered += 1;
        }
        if self.config.capacity.is_none() {
            return;
        }
        // One flow for all is first come, first served.
        let flow = if self.config.order == Order::Fifo { FlowId(0) } else { FlowId(publisher) };
        let mut message = Message { publisher, taken_at: self.now.as_nanos() };
        loop {
            match self.scheduler.push(flow, message, self.config.message_bytes) {
                Pushed::Queued => break,
                Pushed::Refused(lost, _) => return self.lose(lost),
                Pushed::Full(again) => {
                    message = again;
                    let Some(evicted) = self.scheduler.evict_longest() else { return self.lose(message) };
                    self.lose(evicted.item);
                }
            }
        }
        self.serve();
    }

    fn lose(&mut self, message: Message) {
        let state = &self.publishers[message.publisher as usize];
        if !state.device.attacks && self.is_measured(message.taken_at) {
            self.tally.groups[state.device.group].lost += 1;
        }
    }

    fn serve(&mut self) {
        let Some(capacity) = self.config.capacity.filter(|_| self.serving.is_none()) else { return };
        if let Some(next) = self.scheduler.pop() {
            self.serving = Some(next.item);
            let service = self.service.exponential(1.0 / capacity);
            self.after(service, Event::Served);
        }
    }

    fn served(&mut self) {
        if let Some(message) = self.serving.take() {
            let state = &self.publishers[message.publisher as usize];
            if !state.device.attacks && self.is_measured(message.taken_at) {
                let latency = (self.now.as_nanos() - message.taken_at) as f64 * 1e-9;
                self.tally.groups[state.device.group].latency.add(latency);
            }
        }
        self.serve();
    }

    /// Whether a message taken then counts.
    fn is_measured(&self, taken_at: u64) -> bool {
        taken_at as f64 * 1e-9 >= self.config.warm_up
    }

    fn is_after_attack(&self, at: Timestamp) -> bool {
        self.config.is_after_attack(at.as_secs_f64())
    }

    fn after(&mut self, seconds: f64, event: Event) {
        self.wheel.push(self.now.as_nanos() + (seconds * 1e9) as u64, event);
    }

    fn finish(mut self) -> Vec<Metric> {
        let end = Timestamp::from_secs_f64(self.config.duration);
        self.tally.blocked = self.publishers.iter().filter(|publisher| publisher.blocked_until > end).count() as u64;
        let attacks = f64::from(self.config.attackers) * self.config.attack_length;
        let slowest = self.publishers.first().map_or(1.0, |publisher| publisher.device.slowness);
        self.tally.attack_nominal = attacks / (self.mean_interval * slowest);
        let served: u64 = self.tally.groups.iter().map(|group| group.latency.count() + group.lost).sum();
        let offered: u64 = self.tally.groups.iter().map(|group| group.offered).sum();
        if self.config.capacity.is_some() {
            let waiting = u64::from(self.scheduler.len()) + u64::from(self.serving.is_some());
            assert!((served..=served + waiting).contains(&offered), "a message is missing: {offered} and {served}");
        }
        assert!(self.tally.taken + self.tally.refused <= self.tally.sent, "a message was taken that nobody sent");
        self.tally.metrics(self.config.count)
    }
}
