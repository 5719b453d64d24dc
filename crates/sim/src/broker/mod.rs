//! Publishers with a rhythm (paper 003) before the broker itself in virtual time: a real shard of `tidegate-core`, with its
//! gate, its classes and its queues, fed by publishers that are drawn, or by arrivals that were recorded. One reader subscribes to everything and takes as many
//! messages per second as the scenario's capacity says.
//!
//! Real is everything between the bytes of a publisher and those of the reader. Not here are sockets, threads and the time
//! that the broker itself takes: its loop is never pressed, only receivers are. A publisher that is cut off comes back with
//! its next message after five seconds; what it would have sent meanwhile is not sent.

mod config;
mod device;
mod fate;
mod stage;
mod tally;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::rhythm::{Enforcement, RhythmConfig, RhythmRule};
use tidegate_core::classes::{Class, Classes, Priority, PriorityMode};
use tidegate_core::glob::Glob;
use tidegate_core::settings::{BackOff, Settings};
use tidegate_core::trace::{Arrival, Trace};

pub use config::{Interval, Order, Publishers};
pub use fate::{Fate, Imposed, MessageEnd};
pub use tally::METRICS;

use crate::polling::Outcome;
use crate::wheel::Wheel;
use device::{Device, GROUPS, devices};
use stage::{Done, Stage};
use tally::Tally;

/// The weight of a class that is there for its limit.
const GROUP_WEIGHT: u32 = 2;
/// After this time a publisher that was cut off comes back.
const AWAY: Duration = Duration::from_secs(5);
/// What is queued at the end is read in so many steps at most: none of it is lost.
const LAST_READS_MAX: u32 = 1_000_000;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A publisher thinks of a message; of a trace, the next one comes.
    Publish(u32),
    /// The shard has something to do by itself.
    Wake,
    /// The reader takes a message.
    Read,
}

/// What became of a message.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Timestamp,
    taken_at: Option<Timestamp>,
    publisher: u32,
    bytes: u32,
    read_at: Option<Timestamp>,
    /// It waited for its reader at the end of the run, and is not lost.
    is_left: bool,
    is_refused: bool,
    /// Its publisher could not send it.
    is_unsent: bool,
}

/// Where messages come from.
enum Source<'a> {
    Devices { devices: Vec<Device>, mean_interval: f64 },
    Trace(&'a Trace),
}

struct World<'a> {
    config: &'a Publishers,
    source: Source<'a>,
    stage: Stage,
    now: Timestamp,
    wheel: Wheel<Event>,
    /// The time of the next `Wake`.
    wakes_at: Option<u64>,
    is_reading: bool,
    sent: Vec<Sent>,
    /// Of each publisher: which third, and until when it stays away.
    publishers: Vec<(usize, Timestamp)>,
    tally: Tally,
}

/// Runs it to its end. The trace takes the place of the publishers that the configuration describes.
pub fn run(config: &Publishers, trace: Option<&Arc<Trace>>, seed: u64) -> Result<Outcome, String> {
    let world = World::new(config, &Imposed::default(), trace.map(|trace| &**trace), seed)?;
    Ok(world.live()?.0)
}

/// Runs a trace under limits, and says what became of each message.
pub fn fates(config: &Publishers, imposed: &Imposed, trace: &Trace) -> Result<Vec<Fate>, String> {
    let world = World::new(config, imposed, Some(trace), 0)?;
    Ok(world.live()?.1)
}

impl World<'_> {
    fn live(mut self) -> Result<(Outcome, Vec<Fate>), String> {
        let end = (self.config.duration * 1e9) as u64;
        while let Some((at, event)) = self.wheel.pop() {
            if at > end {
                break;
            }
            self.now = Timestamp::from_nanos(at);
            self.tally.events += 1;
            match event {
                Event::Publish(publisher) => self.publish(publisher),
                Event::Wake => {
                    // An earlier one may have taken its place.
                    self.wakes_at.take_if(|known| *known <= at);
                    self.stage.settle(self.now);
                }
                Event::Read => {
                    self.is_reading = false;
                    self.stage.read_one(self.now);
                }
            }
            self.follow_up();
        }
        self.finish()
    }
}

/// The broker's settings that the scenario speaks of; all others are the shipped ones.
fn settings_of(config: &Publishers, imposed: &Imposed, publishers: u32) -> Result<Settings, String> {
    let enforcement = if config.enforce_always { Enforcement::Always } else { Enforcement::Pressure };
    let shipped = BackOff::default();
    let rhythm = config.rule.and_then(|rule| Some(RhythmConfig { rule, enforcement, ..shipped.rhythm? }));
    let priority = match config.order {
        Order::Fifo => Priority::off(),
        Order::Strict => Priority { mode: PriorityMode::Paper, ..Priority::default() },
        Order::Drr => Priority::default(),
    };
    let classes = imposed.by_group.iter().map(|(group, rate)| Class {
        clients: vec![Glob::new(&format!("{}*", stage::prefix_of(*group)))],
        rate: Some(*rate),
        // As those of whom nothing is known.
        ..Class::new(&format!("group-{group}"), GROUP_WEIGHT)
    });
    let priority = Priority { classes: Classes::new(classes.collect())?, ..priority };
    // The paper's publishers wait for as long as it takes; shipped, who would have to wait for longer than 7.5 s is refused.
    let is_faithful = config.rule == Some(RhythmRule::Paper);
    let client_retry = if is_faithful { Duration::from_secs(86_400) } else { shipped.client_retry };
    Ok(Settings {
        back_off: BackOff { rhythm, client_retry, rate: imposed.rate, ..shipped },
        priority,
        queue_messages_max: config.queue_items as usize,
        sessions_max: publishers as usize + 1,
        ..Settings::default()
    })
}

impl<'a> World<'a> {
    fn new(config: &'a Publishers, imposed: &Imposed, trace: Option<&'a Trace>, seed: u64) -> Result<Self, String> {
        let mut wheel = Wheel::default();
        let (source, groups) = if let Some(trace) = trace {
            if let Some(first) = trace.arrivals().first() {
                wheel.push(first.micros * 1000, Event::Publish(0));
            }
            (Source::Trace(trace), thirds(trace))
        } else {
            let (mut devices, mean_interval) = devices(config, seed);
            for (number, device) in devices.iter_mut().enumerate() {
                let first = device.first(config, mean_interval);
                wheel.push((first * 1e9) as u64, Event::Publish(number as u32));
            }
            let groups = devices.iter().map(|device| device.group).collect();
            (Source::Devices { devices, mean_interval }, groups)
        };
        let count = groups.len() as u32;
        let settings = settings_of(config, imposed, count)?;
        settings.back_off.check().map_err(|error| error.to_string())?;
        let named = trace.filter(|trace| !trace.groups().is_empty()).map(Trace::group_of_publishers);
        let named = named.unwrap_or_else(|| vec![0; count as usize]);
        let stage = Stage::new(settings, config.capacity.is_some(), &named, Timestamp::ZERO);
        Ok(Self {
            config,
            source,
            stage: stage.ok_or("the broker does not let the reader in")?,
            now: Timestamp::ZERO,
            wheel,
            wakes_at: None,
            is_reading: false,
            sent: Vec::new(),
            publishers: groups.into_iter().map(|group| (group, Timestamp::ZERO)).collect(),
            tally: Tally::default(),
        })
    }

    fn publish(&mut self, event: u32) {
        let arrival = match &mut self.source {
            Source::Trace(trace) => {
                if let Some(next) = trace.arrivals().get(event as usize + 1) {
                    self.wheel.push(next.micros * 1000, Event::Publish(event + 1));
                }
                trace.arrivals()[event as usize]
            }
            Source::Devices { devices, .. } => {
                let (device, now) = (&mut devices[event as usize], self.now.as_secs_f64());
                device.note_sent();
                self.tally.after_sent += u64::from(device.attacks && self.config.is_after_attack(now));
                if device.attacks && self.config.is_attack(now) && !device.has_attacked {
                    device.has_attacked = true;
                    self.tally.attack_learned += self.stage.learned_rate(event, self.now) * self.config.attack_length;
                }
                Arrival {
                    micros: 0,
                    publisher: event,
                    topic: event,
                    topic_bytes: 0,
                    payload_bytes: self.config.message_bytes,
                    qos: u8::from(self.config.closed_loop),
                    retain: false,
                    group: 0,
                }
            }
        };
        self.tally.sent += 1;
        let number = self.sent.len() as u32;
        let is_away = self.publishers[arrival.publisher as usize].1 > self.now;
        if is_away || !self.stage.publish(number, &arrival, self.now) {
            let publisher = arrival.publisher;
            self.sent.push(Sent { is_unsent: true, ..Sent::new(self.now, publisher, 0) });
            return self.think(publisher);
        }
        let bytes = match self.source {
            Source::Trace(_) => u32::from(arrival.topic_bytes) + arrival.payload_bytes,
            Source::Devices { .. } => self.config.message_bytes,
        };
        let publisher = arrival.publisher;
        self.sent.push(Sent::new(self.now, publisher, bytes));
        self.stage.settle(self.now);
        if !self.config.closed_loop {
            self.think(publisher);
        }
    }

    /// A publisher that is drawn thinks of its next message.
    fn think(&mut self, publisher: u32) {
        let Source::Devices { devices, mean_interval } = &mut self.source else { return };
        let now = self.now.as_secs_f64();
        let wait = devices[publisher as usize].interval(self.config, *mean_interval, now);
        self.wheel.push(self.now.as_nanos() + (wait * 1e9) as u64, Event::Publish(publisher));
    }

    /// What the shard did, and when it and the reader come next.
    fn follow_up(&mut self) {
        let mut done = std::mem::take(&mut self.stage.done);
        for done in done.drain(..) {
            match done {
                Done::Taken(number) => self.note_taken(number),
                Done::Read(number) => self.note_read(number),
                Done::Refused(number) => {
                    self.tally.refused += 1;
                    self.sent[number as usize].is_refused = true;
                    if self.config.closed_loop {
                        self.think(self.sent[number as usize].publisher);
                    }
                }
                Done::Cut(publisher) => {
                    self.publishers[publisher as usize].1 = self.now + AWAY;
                    if self.config.closed_loop {
                        self.think(publisher);
                    }
                }
            }
        }
        self.stage.done = done;
        if let Some(next) = self.stage.next() {
            let at = next.as_nanos().max(self.now.as_nanos() + 1000);
            if self.wakes_at.is_none_or(|known| at < known) {
                self.wakes_at = Some(at);
                self.wheel.push(at, Event::Wake);
            }
        }
        if let Some(capacity) = self.config.capacity.filter(|_| self.stage.has_to_read && !self.is_reading) {
            self.is_reading = true;
            self.wheel.push(self.now.as_nanos() + (1e9 / capacity) as u64, Event::Read);
        }
    }

    fn note_taken(&mut self, number: u32) {
        let Some(sent) = self.sent.get_mut(number as usize) else { return };
        sent.taken_at = Some(self.now);
        let waited = self.now.since(sent.at).as_secs_f64();
        let (publisher, bytes, sent_at) = (sent.publisher, sent.bytes, sent.at);
        self.tally.taken += 1;
        self.tally.taken_bytes += u64::from(bytes);
        self.tally.held += u64::from(waited > 0.0);
        self.tally.hold_sum += waited;
        if let Source::Devices { devices, .. } = &self.source
            && devices[publisher as usize].attacks
        {
            self.tally.attack_passed += u64::from(self.config.is_attack(self.now.as_secs_f64()));
            // By when it came: what was held before is no sign that it is heard again.
            self.tally.after_taken += u64::from(self.config.is_after_attack(sent_at.as_secs_f64()));
        } else if self.is_measured(self.now) {
            self.tally.groups[self.publishers[publisher as usize].0].offered += 1;
        }
        if self.config.closed_loop {
            self.think(publisher);
        }
    }

    fn note_read(&mut self, number: u32) {
        let Some(sent) = self.sent.get_mut(number as usize) else { return };
        sent.read_at = Some(self.now);
        let (Some(taken_at), publisher) = (sent.taken_at, sent.publisher) else { return };
        if self.is_measured(taken_at) && !self.attacks(publisher) {
            let latency = self.now.since(taken_at).as_secs_f64();
            self.tally.groups[self.publishers[publisher as usize].0].latency.add(latency);
        }
    }

    fn attacks(&self, publisher: u32) -> bool {
        matches!(&self.source, Source::Devices { devices, .. } if devices[publisher as usize].attacks)
    }

    fn is_measured(&self, at: Timestamp) -> bool {
        at.as_secs_f64() >= self.config.warm_up
    }

    fn finish(mut self) -> Result<(Outcome, Vec<Fate>), String> {
        self.tally.blocked = self.stage.blocked();
        self.stage
            .stats()
            .check()
            .map_err(|wrong| format!("a message is missing in the broker's ledger: {wrong:?}"))?;
        // What waits for the reader is not lost.
        for _ in 0..LAST_READS_MAX {
            self.stage.hurry(self.now);
            let done = std::mem::take(&mut self.stage.done);
            if !done.iter().any(|done| matches!(done, Done::Read(_))) {
                break;
            }
            for done in done {
                if let Done::Read(number) = done
                    && let Some(sent) = self.sent.get_mut(number as usize)
                {
                    sent.is_left = true;
                }
            }
        }
        for sent in self.sent.iter().filter(|sent| sent.read_at.is_none() && !sent.is_left) {
            let is_measured = sent.taken_at.is_some_and(|at| self.is_measured(at));
            if is_measured && !self.attacks(sent.publisher) {
                self.tally.groups[self.publishers[sent.publisher as usize].0].lost += 1;
            }
        }
        if let Source::Devices { devices, mean_interval } = &self.source {
            let slowest = devices.first().map_or(1.0, |device| device.slowness);
            let attacks = f64::from(self.config.attackers) * self.config.attack_length;
            self.tally.attack_nominal = attacks / (mean_interval * slowest);
        }
        let metrics = self.tally.metrics(self.publishers.len() as u32);
        let fates = fate::fates(&self.sent, self.publishers.len());
        Ok((Outcome { metrics, timeline: Vec::new(), trace: Vec::new() }, fates))
    }
}

/// Which third each publisher of a trace belongs to by its messages; 0 is the rarest.
fn thirds(trace: &Trace) -> Vec<usize> {
    let mut counts = vec![0_u64; trace.publishers() as usize];
    trace.arrivals().iter().for_each(|arrival| counts[arrival.publisher as usize] += 1);
    let mut order: Vec<usize> = (0..counts.len()).collect();
    order.sort_by_key(|publisher| counts[*publisher]);
    let mut groups = vec![0; counts.len()];
    for (place, publisher) in order.iter().enumerate() {
        groups[*publisher] = place * GROUPS / counts.len().max(1);
    }
    groups
}
