//! A sink against models of its two sides: a broker that keeps what is not acknowledged, and a receiver that fails by chance.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use proptest::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use tidegate_control::Timestamp;
use tidegate_sink::{BatchConfig, SinkAction, SinkConfig, SinkMachine, SinkPhase, SinkVerdict};
use tidegate_wire_mqtt::{
    AckKind, ConnAck, Decoded, Delivery, Encode, Limits, Packet, PacketId, Peer, Properties, Publish, QoS, ReasonCode,
    Sender, SubAck, Version, decode,
};

const PEER: Version = Version::V5;

/// A session that lasts: what is published waits, what is sent has a number, what is not acknowledged is sent again.
#[derive(Default)]
struct ModelBroker {
    waiting: VecDeque<u32>,
    under_way: BTreeMap<u16, u32>,
    order: Vec<u16>,
    next_id: u16,
    is_connected: bool,
    window: usize,
    filters: usize,
    to_sink: Vec<u8>,
    from_sink: Vec<u8>,
}

impl ModelBroker {
    fn send(&mut self, packet: &Packet<'_>) {
        let _ = packet.encode(Peer::new(PEER), &mut self.to_sink);
    }

    fn cut(&mut self) {
        self.is_connected = false;
        self.to_sink.clear();
        self.from_sink.clear();
    }

    fn hear(&mut self, bytes: &[u8]) {
        self.from_sink.extend_from_slice(bytes);
        let inbox = std::mem::take(&mut self.from_sink);
        let (limits, mut read) = (Limits::default().with_sender(Sender::Client), 0);
        while let Ok(Decoded::Packet { packet, consumed }) = decode(&inbox[read..], PEER, &limits) {
            read += consumed;
            match packet {
                Packet::Connect(connect) => {
                    self.is_connected = true;
                    self.window = connect.properties.receive_maximum().unwrap().get().into();
                    assert_eq!((connect.client_id, connect.clean_start), ("$sink/s", false));
                    let (reason, properties) = (ReasonCode::Success, Properties::EMPTY);
                    self.send(&Packet::ConnAck(ConnAck { session_present: true, reason, properties }));
                    for id in self.order.clone() {
                        self.publish(id, self.under_way[&id], true);
                    }
                }
                Packet::Subscribe(subscribe) => {
                    self.filters += subscribe.subscriptions.iter().count();
                    let granted = [ReasonCode::GrantedQos1];
                    let reasons = tidegate_wire_mqtt::ReasonCodes::new(&granted);
                    let (packet_id, properties) = (subscribe.packet_id, Properties::EMPTY);
                    self.send(&Packet::SubAck(SubAck { packet_id, properties, reasons }));
                }
                Packet::Ack(ack) => {
                    assert_eq!(ack.kind, AckKind::PubAck);
                    assert!(self.under_way.remove(&ack.packet_id.get()).is_some(), "an answer to nothing");
                    self.order.retain(|id| *id != ack.packet_id.get());
                }
                other => panic!("{:?}", other.kind()),
            }
        }
        self.from_sink = inbox[read..].to_vec();
    }

    fn publish(&mut self, id: u16, number: u32, dup: bool) {
        let payload = number.to_string();
        let delivery = Delivery::AtLeastOnce { packet_id: PacketId::new(id).unwrap(), dup };
        let (properties, payload) = (Properties::EMPTY, payload.as_bytes());
        self.send(&Packet::Publish(Publish { delivery, retain: false, topic: "t", properties, payload }));
    }

    fn pump(&mut self) {
        while self.is_connected && self.under_way.len() < self.window {
            let Some(number) = self.waiting.pop_front() else { return };
            self.next_id = self.next_id % 60_000 + 1;
            let id = self.next_id;
            self.under_way.insert(id, number);
            self.order.push(id);
            self.publish(id, number, false);
        }
    }
}

struct World {
    machine: SinkMachine,
    broker: ModelBroker,
    rng: Xoshiro256PlusPlus,
    now: Timestamp,
    /// What the receiver has, in its order.
    arrived: Vec<u32>,
    /// Numbers that the receiver never takes.
    poison: BTreeSet<u32>,
    delivers: bool,
}

impl World {
    fn new(seed: u64, messages: usize, poison: BTreeSet<u32>) -> Self {
        let batch = BatchConfig { messages, wait: Duration::from_millis(10), ..BatchConfig::default() };
        let filters = vec![("t".to_owned(), QoS::AtLeastOnce)];
        let config = SinkConfig { local_id: "$sink/s".to_owned(), filters, keeps_latest: false, batch };
        Self {
            machine: SinkMachine::new(config, Timestamp::ZERO),
            broker: ModelBroker::default(),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            now: Timestamp::ZERO,
            arrived: Vec::new(),
            poison,
            delivers: false,
        }
    }

    /// One step of the driver.
    fn step(&mut self) {
        self.machine.turn(self.now, &mut self.rng);
        while let Some(action) = self.machine.poll_action() {
            match action {
                SinkAction::Attach => self.machine.handle_attached(self.now),
                SinkAction::Close => self.broker.cut(),
                SinkAction::Deliver => self.delivers = true,
            }
        }
        let out = self.machine.take_output();
        self.broker.hear(&out);
        self.broker.pump();
        if self.machine.wants_read() {
            let bytes = std::mem::take(&mut self.broker.to_sink);
            self.machine.handle_bytes(&bytes, self.now, 7, &mut self.rng);
        }
    }

    /// The receiver answers. Some of the time it fails; sometimes it has taken the batch all the same.
    fn answer(&mut self, fails: u64) {
        if !std::mem::take(&mut self.delivers) {
            return;
        }
        let numbers: Vec<u32> = {
            let batch = self.machine.batch().expect("there is one");
            let number = |payload: &Vec<u8>| std::str::from_utf8(payload).unwrap().parse().unwrap();
            batch.messages.iter().map(|message| number(&message.payload)).collect()
        };
        let dice = self.rng.next_u64() % 100;
        let later = || SinkVerdict::Later { after: None, why: "busy".to_owned() };
        let verdict = if dice < fails / 2 {
            later()
        } else if numbers.iter().any(|number| self.poison.contains(number)) {
            SinkVerdict::Refused { why: "poison".to_owned() }
        } else {
            self.arrived.extend(&numbers);
            if dice < fails { later() } else { SinkVerdict::Taken { unmapped: 0 } }
        };
        self.machine.handle_answer(verdict, self.now, &mut self.rng);
    }

    fn advance(&mut self) {
        let due = self.machine.poll_timeout(self.now).unwrap_or(self.now + Duration::from_millis(1));
        self.now = due.max(self.now + Duration::from_millis(1));
    }

    fn is_done(&self) -> bool {
        self.broker.waiting.is_empty() && self.broker.under_way.is_empty()
    }
}

/// First arrivals, in order.
fn firsts(arrived: &[u32]) -> Vec<u32> {
    let mut seen = BTreeSet::new();
    arrived.iter().copied().filter(|number| seen.insert(*number)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_that_waits_is_lost_whatever_fails_and_what_is_never_wanted_is_counted(
        seed: u64, count in 1..400_u32, messages in 1..60_usize, fails in 0..60_u64, cuts in 0..4_u64,
        poison in prop::collection::btree_set(0..400_u32, 0..4),
    ) {
        let mut world = World::new(seed, messages, poison.clone());
        world.broker.waiting.extend(0..count);
        let mut rounds = 0;
        while !world.is_done() {
            world.step();
            if cuts > 0 && world.rng.next_u64() % 100 < cuts && world.broker.is_connected {
                world.broker.cut();
                let (now, mut rng) = (world.now, world.rng.clone());
                world.machine.handle_lost("cut", now, &mut rng);
                world.rng.next_u64();
            }
            world.answer(fails);
            world.step();
            world.advance();
            rounds += 1;
            prop_assert!(rounds < 200_000, "it does not end");
        }
        let wanted: Vec<u32> = (0..count).filter(|number| !poison.contains(number)).collect();
        let mut got = firsts(&world.arrived);
        if cuts > 0 {
            // What the broker sends again after a cut comes before what it has not sent.
            got.sort_unstable();
        }
        prop_assert_eq!(got, wanted);
        let refused = poison.iter().filter(|number| **number < count).count() as u64;
        let counts = world.machine.status(world.now).counts;
        prop_assert_eq!(counts.refused, refused);
        prop_assert_eq!(counts.lost, 0);
    }
}

#[test]
fn who_refuses_everything_loses_a_message_now_and_then_and_not_all_at_once() {
    let mut world = World::new(1, 100, (0..1000).collect());
    world.broker.waiting.extend(0..1000);
    while world.now < Timestamp::ZERO + Duration::from_secs(600) {
        world.step();
        world.answer(0);
        world.advance();
    }
    let status = world.machine.status(world.now);
    assert!((5..60).contains(&status.counts.refused), "{} in ten minutes", status.counts.refused);
    assert_eq!((status.phase, status.trouble.as_deref()), (SinkPhase::Down, Some("poison")));
}

#[test]
fn batches_are_full_while_much_waits_and_one_is_under_way_at_a_time() {
    let mut world = World::new(1, 100, BTreeSet::new());
    world.broker.waiting.extend(0..5000);
    let mut sizes = Vec::new();
    while !world.is_done() {
        world.step();
        world.step();
        if world.delivers {
            sizes.push(world.machine.batch().unwrap().messages.len());
        }
        world.answer(0);
        world.step();
        world.now = world.now + Duration::from_millis(1);
    }
    assert_eq!(sizes[..4], [16, 32, 64, 100]);
    assert!(sizes.len() < 60, "{sizes:?}");
    let status = world.machine.status(world.now);
    assert_eq!((status.counts.sent, status.phase), (5000, SinkPhase::Up));
}
