//! A receiver that does not keep up, at a broker that does: who floods it takes what is left, and nobody is slowed.

use std::num::NonZeroU16;
use std::time::Duration;

use tidegate_core::report::{ClientReport, ClientState};
use tidegate_wire_mqtt::{AckKind, Property, ReasonCode};

use crate::net::{Got, Net, Options, Wire};

const SENSORS: u64 = 20;
/// Milliseconds between the messages of a sensor, and that the worker needs for one.
const SENSOR_EVERY: u64 = 200;
const SERVICE: u64 = 2;

/// Sensors, somebody who may flood, and a worker who takes two messages at a time and works on 500 a second.
struct World {
    net: Net,
    sensors: Vec<Wire>,
    flooder: Option<Wire>,
    worker: Wire,
    /// Messages that the worker has, by identifier.
    at_work: Vec<u16>,
    millis: u64,
    sent: u64,
    /// How long the sensors' messages took, in milliseconds, and the messages of the flooder that arrived.
    trips: Vec<u64>,
    floods: usize,
    /// Messages that were refused, and whether the worker works.
    refused: usize,
    is_working: bool,
}

impl World {
    fn new(shards: usize) -> Self {
        let mut net = Net::new(shards);
        let two = Property::ReceiveMaximum(NonZeroU16::new(2).unwrap());
        let worker = net.connect("worker", &Options { properties: vec![two], ..Options::default() });
        net.subscribe(worker, "#", 1);
        let sensors = (0..SENSORS).map(|number| net.v5(&format!("sensor-{number}"))).collect();
        Self {
            net,
            sensors,
            flooder: None,
            worker,
            at_work: Vec::new(),
            millis: 0,
            sent: 0,
            trips: Vec::new(),
            floods: 0,
            refused: 0,
            is_working: true,
        }
    }

    /// So many seconds, with so many messages of the flooder in each; how long the sensors' messages took, p99.
    fn run(&mut self, seconds: u64, flooder_per_second: u64) -> u64 {
        self.trips.clear();
        self.floods = 0;
        self.refused = 0;
        for _ in 0..seconds * 1000 {
            self.millis += 1;
            for number in 0..self.sensors.len() {
                if (self.millis + number as u64 * 7).is_multiple_of(SENSOR_EVERY) {
                    self.publish(self.sensors[number], "sensor");
                }
            }
            if let Some(flooder) = self.flooder
                && self.millis * flooder_per_second / 1000 != (self.millis - 1) * flooder_per_second / 1000
            {
                self.publish(flooder, "flood");
            }
            self.work();
            self.net.live(Duration::from_millis(1));
        }
        self.trips.sort_unstable();
        self.trips.get(self.trips.len() * 99 / 100).copied().unwrap_or(0)
    }

    fn publish(&mut self, wire: Wire, topic: &str) {
        self.sent += 1;
        let id = (self.sent % 60_000) as u16 + 1;
        self.net.publish(wire, topic, &self.millis.to_string(), 1, false, id);
        let is_refusal = |got: &Got| matches!(got, Got::Ack { reason: ReasonCode::QuotaExceeded, .. });
        self.refused += self.net.receive(wire).iter().filter(|got| is_refusal(got)).count();
    }

    fn work(&mut self) {
        for got in self.net.receive(self.worker) {
            let Got::Message { topic, payload, id: Some(id), .. } = got else { continue };
            self.at_work.push(id);
            match topic.as_str() {
                "flood" => self.floods += 1,
                _ => self.trips.push(self.millis - payload.parse::<u64>().unwrap()),
            }
        }
        if self.is_working && self.millis.is_multiple_of(SERVICE) && !self.at_work.is_empty() {
            let id = self.at_work.remove(0);
            self.net.ack(self.worker, AckKind::PubAck, id);
        }
    }

    fn assert_nobody_is_slowed(&self) {
        for shard in &self.net.shards {
            let (clients, _) = shard.clients(0, self.net.now);
            let is_fine = |client: &ClientReport| !client.state.is_held_back() || &*client.client_id == "flooder";
            assert!(clients.iter().all(is_fine), "{clients:?}");
        }
    }
}

/// 100 a second of the sensors', 500 in all.
#[test]
fn a_flooder_whom_only_a_receiver_feels_gets_what_the_others_leave() {
    for (shards, is_known) in [(1, true), (3, true), (1, false)] {
        let mut world = World::new(shards);
        if is_known {
            world.flooder = Some(world.net.v5("flooder"));
        }
        world.run(5, 10);
        world.run(5, 10);
        world.flooder.get_or_insert_with(|| world.net.v5("flooder"));
        world.run(2, 1000);
        let flood = world.run(8, 1000);
        let sensors = world.trips.len();
        assert!(flood <= 100, "{shards} shards: p99 {flood} ms");
        assert!(sensors >= 8 * 98, "{shards} shards: {sensors} of the sensors'");
        assert!((8 * 380..=8 * 410).contains(&world.floods), "{shards} shards: {} of the flood", world.floods);
        world.assert_nobody_is_slowed();
    }
}

#[test]
fn whoever_is_fast_and_presses_nobody_is_left_alone() {
    let mut world = World::new(1);
    world.flooder = Some(world.net.v5("flooder"));
    world.run(5, 10);
    world.run(5, 300);
    assert_eq!(world.floods, 5 * 300, "there is room for 400");
    world.assert_nobody_is_slowed();
}

/// Whatever it sends for longer than it takes to be known, nobody has more of it than the receiver takes.
#[test]
fn a_flood_that_its_receiver_has_no_room_for_trains_no_claim() {
    for shards in [1, 3] {
        let mut world = World::new(shards);
        world.flooder = Some(world.net.v5("flooder"));
        world.run(70, 1000);
        let publisher = world.net.shards.iter().find_map(|shard| shard.publisher("flooder", world.net.now)).unwrap();
        assert_eq!(publisher.learned_interval, None, "{shards} shards");
        let of_sensor = world.net.shards.iter().find_map(|shard| shard.publisher("sensor-3", world.net.now)).unwrap();
        assert!(of_sensor.learned_interval.is_some(), "{shards} shards: who is served learns");
    }
}

#[test]
fn refusal_goes_on_while_a_queue_is_full_and_ends_with_a_receiver_that_stops() {
    let mut world = World::new(1);
    world.flooder = Some(world.net.v5("flooder"));
    world.run(25, 1000);
    for second in 0..5 {
        world.run(1, 1000);
        assert!((400..=750).contains(&world.refused), "second {second}: {} of 1000", world.refused);
        let state = world.net.shards[0].client("flooder", world.net.now).unwrap().client;
        assert!(state.publisher.unwrap().are_receivers_full && state.state == ClientState::BackedOff, "{state:?}");
    }
    world.is_working = false;
    world.run(3, 1000);
    world.run(3, 1000);
    assert_eq!(world.refused, 0, "when there will be room cannot be said");
}
