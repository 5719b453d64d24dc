//! Random publishers at the gate. Whatever they do: every message is accounted for (`Net::settle` asks after each step),
//! nothing is acknowledged that is not delivered, QoS 2 arrives once, and nobody's messages are reordered.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use tidegate_control::pressure::Level;
use tidegate_control::rhythm::{Enforcement, RhythmConfig, RhythmRule};
use tidegate_core::access::Open;
use tidegate_core::settings::{BackOff, Settings};
use tidegate_wire_mqtt::{AckKind, Delivery, Packet, PacketId, Properties, Property, Publish, Version};

use crate::net::{Got, Net, Options, Wire};

const PUBLISHERS: usize = 3;
const LASTING: usize = 1;

#[derive(Clone, Debug)]
enum Operation {
    /// So many messages of this quality at once.
    Publish(usize, u8, u16),
    /// With a lifetime of a second.
    PublishShortLived(usize),
    Ping(usize),
    Cut(usize),
    Connect(usize),
    Pass(u64),
    Press(bool),
}

fn operation() -> impl Strategy<Value = Operation> {
    let publisher = || 0..PUBLISHERS;
    prop_oneof![
        8 => (publisher(), 0..3_u8, 1..30_u16).prop_map(|(who, qos, count)| Operation::Publish(who, qos, count)),
        1 => publisher().prop_map(Operation::PublishShortLived),
        1 => publisher().prop_map(Operation::Ping),
        1 => publisher().prop_map(Operation::Cut),
        2 => publisher().prop_map(Operation::Connect),
        6 => (1..20_000_u64).prop_map(Operation::Pass),
        1 => any::<bool>().prop_map(Operation::Press),
    ]
}

struct Model {
    net: Net,
    reader: Wire,
    wires: Vec<Option<Wire>>,
    next: Vec<u16>,
    /// Quality of each message by its number, from 1; and of those that were not answered.
    qualities: Vec<Vec<u8>>,
    under_way: Vec<BTreeMap<u16, u8>>,
    acknowledged: Vec<BTreeSet<u16>>,
    /// Numbers as they came to the reader.
    arrived: Vec<Vec<u16>>,
}

impl Model {
    fn new(rule: RhythmRule) -> Self {
        let rhythm =
            RhythmConfig { rule, learn_intervals: 2, enforcement: Enforcement::Pressure, ..RhythmConfig::default() };
        let back_off = BackOff { rhythm: Some(rhythm), hold_messages_max: 8, ..BackOff::default() };
        // A window that the test does not have to watch.
        let settings =
            Settings { back_off, receive_max: u16::MAX, outbox_bytes_max: usize::MAX, ..Settings::default() };
        let mut net = Net::with(1, settings, Open);
        let reader = net.v5("reader");
        net.subscribe(reader, "#", 0);
        net.shards[0].set_level(Level::Busy);
        Self {
            net,
            reader,
            wires: vec![None; PUBLISHERS],
            next: vec![0; PUBLISHERS],
            qualities: vec![Vec::new(); PUBLISHERS],
            under_way: vec![BTreeMap::new(); PUBLISHERS],
            acknowledged: vec![BTreeSet::new(); PUBLISHERS],
            arrived: vec![Vec::new(); PUBLISHERS],
        }
    }

    fn apply(&mut self, operation: &Operation) {
        match *operation {
            Operation::Publish(who, qos, count) => (0..count).for_each(|_| self.publish(who, qos, &[])),
            Operation::PublishShortLived(who) => self.publish(who, 1, &[Property::MessageExpiry(1)]),
            Operation::Ping(who) => {
                if let Some(wire) = self.open(who) {
                    self.net.send(wire, &Packet::PingReq);
                }
            }
            Operation::Cut(who) => {
                if let Some(wire) = self.open(who) {
                    self.net.cut(wire);
                }
            }
            Operation::Connect(who) => self.connect(who),
            Operation::Pass(millis) => self.net.live(Duration::from_millis(millis)),
            Operation::Press(true) => self.net.shards[0].set_level(Level::Busy),
            Operation::Press(false) => self.net.shards[0].set_level(Level::Calm),
        }
        self.collect();
    }

    fn open(&self, who: usize) -> Option<Wire> {
        self.wires[who].filter(|wire| !self.net.is_closed(*wire))
    }

    /// One before MQTT 5, one with a session that lasts, one without.
    fn connect(&mut self, who: usize) {
        self.collect();
        let options = match who {
            0 => Options { version: Version::V311, ..Options::default() },
            LASTING => Options { clean: false, properties: vec![Property::SessionExpiry(3600)], ..Options::default() },
            _ => Options::default(),
        };
        let wire = self.net.connect(&format!("publisher-{who}"), &options);
        self.wires[who] = Some(wire);
        let unanswered = std::mem::take(&mut self.under_way[who]);
        if who == LASTING {
            // [MQTT-4.4.0-1] Everything that was not answered is sent again, in order.
            for (number, qos) in unanswered {
                self.under_way[who].insert(number, qos);
                self.send_again(wire, number, qos);
            }
        }
    }

    fn send_again(&mut self, wire: Wire, number: u16, qos: u8) {
        let packet_id = PacketId::new(number).unwrap();
        let delivery = match qos {
            1 => Delivery::AtLeastOnce { packet_id, dup: true },
            _ => Delivery::ExactlyOnce { packet_id, dup: true },
        };
        let (topic, payload) = (format!("from/{LASTING}"), number.to_string());
        let (properties, payload) = (Properties::EMPTY, payload.as_bytes());
        self.net.send(wire, &Publish { delivery, retain: false, topic: &topic, properties, payload });
    }

    fn publish(&mut self, who: usize, qos: u8, properties: &[Property<'_>]) {
        let Some(wire) = self.open(who) else { return };
        self.next[who] += 1;
        let (number, properties) = (self.next[who], if who == 0 { &[] } else { properties });
        if qos > 0 {
            self.under_way[who].insert(number, qos);
        }
        self.qualities[who].push(qos);
        self.net.publish_with(wire, &format!("from/{who}"), &number.to_string(), qos, false, number, properties);
    }

    fn collect(&mut self) {
        for got in self.net.receive(self.reader) {
            let Got::Message { topic, payload, .. } = got else { continue };
            let who: usize = topic["from/".len()..].parse().unwrap();
            self.arrived[who].push(payload.parse().unwrap());
        }
        for who in 0..PUBLISHERS {
            let Some(wire) = self.wires[who] else { continue };
            for got in self.net.receive(wire) {
                let Got::Ack { kind, id, reason } = got else { continue };
                self.under_way[who].remove(&id);
                if !reason.is_failure() && kind != AckKind::PubComp {
                    self.acknowledged[who].insert(id);
                }
                if kind == AckKind::PubRec && !reason.is_failure() && self.open(who).is_some() {
                    self.net.ack(wire, AckKind::PubRel, id);
                }
            }
        }
    }

    fn finish(&mut self) {
        self.net.live(Duration::from_secs(120));
        self.collect();
        let stats = self.net.stats();
        assert_eq!((stats.held_messages, stats.held_bytes), (0, 0), "what waits is released");
        let expired = stats.dropped_held_expired;
        for who in 0..PUBLISHERS {
            let arrived = &self.arrived[who];
            let mut first = Vec::new();
            for number in arrived {
                let is_known = first.contains(number);
                assert!(
                    !is_known || self.qualities[who][usize::from(*number) - 1] == 1,
                    "publisher {who}: {number} twice"
                );
                if !is_known {
                    first.push(*number);
                }
            }
            assert!(first.is_sorted(), "publisher {who}, in order: {arrived:?}");
            let missing = self.acknowledged[who].iter().filter(|id| !arrived.contains(id)).count() as u64;
            assert!(missing <= expired, "publisher {who}: {missing} acknowledged and not delivered, {expired} expired");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn the_ledger_balances_whatever_publishers_do(
        rule in prop_oneof![Just(RhythmRule::Practical), Just(RhythmRule::PaperTable)],
        operations in prop::collection::vec(operation(), 1..80),
    ) {
        let mut model = Model::new(rule);
        (0..PUBLISHERS).for_each(|who| model.connect(who));
        // A rhythm that can be broken.
        for _ in 0..5 {
            (0..PUBLISHERS).for_each(|who| model.publish(who, 0, &[]));
            model.apply(&Operation::Pass(2000));
        }
        for operation in &operations {
            model.apply(operation);
        }
        if rule == RhythmRule::Practical {
            model.finish();
        }
    }
}
