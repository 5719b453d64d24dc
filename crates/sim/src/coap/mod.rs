//! Clients that watch a value each by CoAP, behind lossy links, before the broker itself in virtual time: a real shard of `tidegate-core`
//! behind the endpoint of `tidegate-face-coap`, which decides what is sent, when it is sent again and when it is given up. Those that
//! ask have the pacer that ships.
//!
//! Modelled are the links (each datagram is lost by itself, and takes half a round trip on average, spread exponentially from half of that
//! on), the devices whose values change, which are in the same room as the broker, and the clients' own repetitions of requests.

mod tally;
#[cfg(test)]
mod tests;
mod watcher;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::pacer::{Pacer, PacerConfig, Preset};
use tidegate_core::Shard;
use tidegate_core::access::{Identity, Open};
use tidegate_core::datagrams::{Admission, DatagramEndpoint, NotAdmitted};
use tidegate_core::settings::Settings;
use tidegate_face_coap::{CoapEndpoint, RtoRule};

pub use tally::METRICS;

use crate::chance::Stream;
use crate::polling::Outcome;
use crate::wheel::Wheel;
use tally::Tally;
use watcher::{Watcher, publication};

/// How a client learns of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It observes.
    Observe,
    /// It asks.
    Poll,
}

/// Clients before a broker. Times are in seconds, rates per second, shares in 0 ..= 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Watchers {
    /// Everything is counted from here on.
    pub warm_up: f64,
    /// The end.
    pub duration: f64,
    pub clients: u32,
    pub way: Way,
    /// The pacer of those that ask, and its interval.
    pub preset: Preset,
    pub interval: f64,
    /// By which times the broker repeats what is not acknowledged.
    pub repetitions: RtoRule,
    pub rtt: f64,
    /// Of each datagram, in either direction.
    pub loss: f64,
    /// Changes of each value.
    pub updates: f64,
}

impl Default for Watchers {
    fn default() -> Self {
        Self {
            warm_up: 120.0,
            duration: 1800.0,
            clients: 50,
            way: Way::Observe,
            preset: Preset::Active,
            interval: 10.0,
            repetitions: RtoRule::Cocoa,
            rtt: 0.2,
            loss: 0.0,
            updates: 1.0 / 30.0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The value of a client changes.
    Change(u32),
    /// A client has something to do by itself.
    Due(u32),
    /// The broker has.
    Wake,
    ToBroker(u32),
    ToClient(u32),
}

struct World<'a> {
    config: &'a Watchers,
    shard: Shard,
    endpoint: CoapEndpoint,
    watchers: Vec<Watcher>,
    versions: Vec<u32>,
    now: Timestamp,
    wheel: Wheel<Event>,
    wakes_at: Option<u64>,
    /// Datagrams on their way: whose, and what they say.
    under_way: Vec<(u32, Vec<u8>)>,
    free: Vec<u32>,
    radio: Stream,
    life: Stream,
    tally: Tally,
    /// What the endpoint had counted when the measured time began: repetitions, addresses that were given up.
    before: (u64, u64),
}

/// Everybody is let in.
struct Everybody;

impl Admission for Everybody {
    fn admit(&mut self, from: SocketAddr, _: &str) -> Result<Identity, NotAdmitted> {
        Ok(Identity { peer: from.to_string().into(), listener: "coap", ..Identity::default() })
    }
}

/// Clients of one address: fewer than the door has room for.
const ADDRESS_CLIENTS: u32 = 500;

/// A client's address, and that of the device that it watches.
fn address(number: u32, of_device: bool) -> SocketAddr {
    let host = (number / ADDRESS_CLIENTS) as u8;
    SocketAddr::from(([127, 1 + u8::from(of_device), 0, host], 10_000 + (number % ADDRESS_CLIENTS) as u16))
}

/// Runs it to its end.
pub fn run(config: &Watchers, seed: u64) -> Result<Outcome, String> {
    let mut world = World::new(config, seed)?;
    world.begin();
    let (warm_up, end) = ((config.warm_up * 1e9) as u64, (config.duration * 1e9) as u64);
    while let Some((at, event)) = world.wheel.pop() {
        if at > end {
            break;
        }
        if world.now.as_nanos() < warm_up && at >= warm_up {
            world.begin_measuring(Timestamp::from_nanos(warm_up));
        }
        world.now = Timestamp::from_nanos(at);
        world.tally.events += 1;
        world.handle(event);
    }
    Ok(world.finish())
}

impl<'a> World<'a> {
    fn new(config: &'a Watchers, seed: u64) -> Result<Self, String> {
        let mut pacer = PacerConfig::from(config.preset);
        pacer.interval = Duration::from_secs_f64(config.interval);
        let plan = pacer.build().map_err(|error| error.to_string())?;
        let chance = Stream::of(seed, "clients");
        let watcher = |number: u32| {
            let pacer = (config.way == Way::Poll).then(|| Pacer::new(&plan));
            Watcher::new(address(number, false), pacer, chance.member(number.into()))
        };
        let mut dice = Stream::of(seed, "endpoint");
        let seeds = std::array::from_fn(|_| dice.bits());
        Ok(Self {
            config,
            shard: Shard::new(0, 1, Arc::new(Settings::default()), Arc::new(Open), seed),
            endpoint: CoapEndpoint::new(seeds).with_repetitions(config.repetitions),
            watchers: (0..config.clients).map(watcher).collect(),
            versions: vec![0; config.clients as usize],
            now: Timestamp::ZERO,
            wheel: Wheel::default(),
            wakes_at: None,
            under_way: Vec::new(),
            free: Vec::new(),
            radio: Stream::of(seed, "radio"),
            life: Stream::of(seed, "changes"),
            tally: Tally::default(),
            before: (0, 0),
        })
    }

    fn begin(&mut self) {
        for client in 0..self.config.clients {
            self.plan_change(client);
            if let Some(bytes) = self.watchers[client as usize].begin(self.now) {
                self.send(client, &bytes, true);
            }
            self.plan_due(client);
        }
    }

    fn is_measured(&self) -> bool {
        self.now.as_secs_f64() >= self.config.warm_up
    }

    /// What was unseen before does not count.
    fn begin_measuring(&mut self, now: Timestamp) {
        let stats = self.endpoint.stats();
        self.before = (stats.retransmitted, stats.given_up);
        for watcher in &mut self.watchers {
            watcher.unseen.iter_mut().for_each(|(_, at)| *at = (*at).max(now));
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Change(client) => self.change(client),
            Event::Due(client) => {
                let watcher = &mut self.watchers[client as usize];
                // Else another time has taken the place of this one.
                if watcher.planned.take_if(|planned| *planned == self.now).is_some() {
                    if let Some(bytes) = watcher.on_due(self.now) {
                        self.send(client, &bytes, true);
                    }
                    self.plan_due(client);
                }
            }
            Event::Wake => {
                if self.wakes_at.take_if(|at| *at == self.now.as_nanos()).is_some() {
                    self.turn();
                }
            }
            Event::ToBroker(slot) => {
                let (client, bytes) = self.take(slot);
                self.tell_broker(self.watchers[client as usize].address, &bytes);
            }
            Event::ToClient(slot) => {
                let (client, bytes) = self.take(slot);
                self.tell_client(client, &bytes);
            }
        }
    }

    fn change(&mut self, client: u32) {
        let version = &mut self.versions[client as usize];
        *version += 1;
        let (version, device) = (*version, address(client, true));
        let watched = self.watchers[client as usize].address;
        self.watchers[client as usize].unseen.push_back((version, self.now));
        self.tally.changes += u64::from(self.is_measured());
        self.tell_broker(device, &publication(watched, version));
        self.plan_change(client);
    }

    fn plan_change(&mut self, client: u32) {
        if self.config.updates > 0.0 {
            let delay = self.life.exponential(1.0 / self.config.updates);
            self.wheel.push(self.now.as_nanos() + (delay * 1e9) as u64, Event::Change(client));
        }
    }

    fn plan_due(&mut self, client: u32) {
        let watcher = &mut self.watchers[client as usize];
        let due = watcher.due.max(self.now + Duration::from_nanos(1));
        if watcher.planned != Some(due) {
            watcher.planned = Some(due);
            self.wheel.push(due.as_nanos(), Event::Due(client));
        }
    }

    fn tell_broker(&mut self, from: SocketAddr, bytes: &[u8]) {
        self.endpoint.handle_datagram(&mut self.shard, (from, bytes), &mut Everybody, self.now, self.now);
        self.turn();
    }

    /// A turn of the broker's driver.
    fn turn(&mut self) {
        let (shard, endpoint, now) = (&mut self.shard, &mut self.endpoint, self.now);
        let mut said = Vec::new();
        shard.turn(now);
        endpoint.turn(shard, now);
        while let Some(conn) = shard.poll_write() {
            endpoint.write(shard, conn, now, &mut |to, bytes| said.push((to, bytes.to_vec())));
        }
        while let Some(conn) = shard.poll_close() {
            endpoint.write(shard, conn, now, &mut |to, bytes| said.push((to, bytes.to_vec())));
            endpoint.close(shard, conn, now);
        }
        while let Some(reply) = endpoint.poll_reply() {
            said.push(reply);
        }
        while endpoint.poll_left().is_some() {}
        while shard.poll_event().is_some() {}
        for (to, bytes) in said {
            if let Some(client) = self.client_of(to) {
                self.send(client, &bytes, false);
                continue;
            }
            // A device hears whether its value was taken: class 2 of the code.
            let is_refused = bytes.get(1).is_none_or(|code| code >> 5 != 2);
            self.tally.refused += u64::from(self.is_measured() && is_refused);
        }
        let due = [self.endpoint.poll_timeout(), self.shard.poll_timeout()].into_iter().flatten().min();
        if let Some(due) = due.map(|due| due.as_nanos().max(self.now.as_nanos() + WAKE_MIN))
            && self.wakes_at.is_none_or(|known| due < known)
        {
            self.wakes_at = Some(due);
            self.wheel.push(due, Event::Wake);
        }
    }

    fn client_of(&self, address: SocketAddr) -> Option<u32> {
        let SocketAddr::V4(four) = address else { return None };
        let [_, kind, _, host] = four.ip().octets();
        let number = u32::from(host) * ADDRESS_CLIENTS + u32::from(four.port().checked_sub(10_000)?);
        (kind == 1 && number < self.config.clients).then_some(number)
    }

    /// A datagram on its way, or lost.
    fn send(&mut self, client: u32, bytes: &[u8], is_to_broker: bool) {
        if self.is_measured() {
            self.tally.datagrams += 1;
            self.tally.bytes += bytes.len() as u64;
            self.tally.of_broker += u64::from(!is_to_broker);
        }
        if self.config.loss > 0.0 && self.radio.happens(self.config.loss) {
            return;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.under_way.push((0, Vec::new()));
            self.under_way.len() as u32 - 1
        });
        self.under_way[slot as usize] = (client, bytes.to_vec());
        let delay = self.config.rtt / 2.0 * (0.5 + self.radio.exponential(0.5));
        let event = if is_to_broker { Event::ToBroker(slot) } else { Event::ToClient(slot) };
        self.wheel.push(self.now.as_nanos() + (delay * 1e9) as u64, event);
    }

    fn take(&mut self, slot: u32) -> (u32, Vec<u8>) {
        self.free.push(slot);
        std::mem::take(&mut self.under_way[slot as usize])
    }

    fn tell_client(&mut self, client: u32, bytes: &[u8]) {
        let (now, is_measured) = (self.now, self.is_measured());
        let watcher = &mut self.watchers[client as usize];
        let learned = watcher.on_datagram(bytes, now);
        self.tally.needless += u64::from(is_measured && learned.is_needless);
        if let Some(version) = learned.version.filter(|version| *version > watcher.known) {
            watcher.known = version;
            let since = watcher.unseen.front().map_or(now, |(_, at)| *at);
            if is_measured {
                self.tally.stale += now.since(since).as_secs_f64();
            }
            while let Some((_, at)) = watcher.unseen.front().copied().filter(|(unseen, _)| *unseen <= version) {
                watcher.unseen.pop_front();
                if is_measured {
                    self.tally.detection.add(now.since(at).as_secs_f64());
                }
            }
            if let Some((_, at)) = watcher.unseen.front().filter(|_| is_measured) {
                // It is stale still, by a change that is not seen yet: that time is counted when it is.
                self.tally.stale -= now.since(*at).as_secs_f64();
            }
        }
        if let Some(answer) = learned.answer {
            self.send(client, &answer, true);
        }
        self.plan_due(client);
    }

    fn finish(mut self) -> Outcome {
        let end = Timestamp::from_secs_f64(self.config.duration);
        for watcher in &self.watchers {
            if let Some((_, at)) = watcher.unseen.front() {
                self.tally.stale += end.since(*at).as_secs_f64();
            }
        }
        let stats = self.endpoint.stats();
        self.tally.repeated = stats.retransmitted - self.before.0;
        self.tally.forgotten = stats.given_up - self.before.1;
        let metrics = self.tally.metrics(self.config.clients, self.config.duration - self.config.warm_up);
        Outcome { metrics, timeline: Vec::new(), trace: Vec::new() }
    }
}

/// Least time until the broker is turned again, nanoseconds: what is due has been done.
const WAKE_MIN: u64 = 1_000_000;
