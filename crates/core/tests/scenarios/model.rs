//! Random clients against a model that keeps a plain list per client: sessions, windows, queues and shared groups.
//!
//! The model knows what each client must have received: every QoS 1 message of a matching subscription, in the order of
//! publication, through any number of lost connections, exactly once unless marked as sent again; and of each shared
//! subscription every message at exactly one member.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidegate_wire_mqtt::{AckKind, Disconnect, Property, ReasonCode};

use crate::net::{Got, Net, Options, Wire};

const CLIENTS: usize = 4;
const TOPICS: [&str; 3] = ["a", "b", "a/b"];
const FILTERS: [&str; 5] = ["a", "b", "a/b", "+", "a/#"];

#[derive(Clone, Debug)]
enum Operation {
    /// Connects, or connects again over an open connection.
    Connect(usize),
    /// The socket breaks.
    Cut(usize),
    Goodbye(usize),
    Subscribe(usize, usize),
    Unsubscribe(usize, usize),
    /// A message from the publisher that is always there.
    Publish(usize),
    /// Acknowledges the first so many messages that the client has not acknowledged.
    Acknowledge(usize, usize),
}

fn operation() -> impl Strategy<Value = Operation> {
    let client = || 0..CLIENTS;
    prop_oneof![
        3 => client().prop_map(Operation::Connect),
        2 => client().prop_map(Operation::Cut),
        1 => client().prop_map(Operation::Goodbye),
        3 => (client(), 0..FILTERS.len()).prop_map(|(client, filter)| Operation::Subscribe(client, filter)),
        1 => (client(), 0..FILTERS.len()).prop_map(|(client, filter)| Operation::Unsubscribe(client, filter)),
        6 => (0..TOPICS.len()).prop_map(Operation::Publish),
        4 => (client(), 1..5_usize).prop_map(|(client, count)| Operation::Acknowledge(client, count)),
    ]
}

/// One client, as the model sees it.
#[derive(Default)]
struct Client {
    wire: Option<Wire>,
    filters: Vec<usize>,
    /// Everything that it must have received by the end, in order.
    expected: Vec<String>,
    /// Everything that it has received for the first time, in order.
    received: Vec<String>,
    /// Identifiers that it has to acknowledge.
    unacknowledged: Vec<u16>,
}

struct Model {
    net: Net,
    publisher: Wire,
    clients: Vec<Client>,
    published: u16,
}

impl Model {
    fn new(shards: usize) -> Self {
        let mut net = Net::new(shards);
        let publisher = net.v5("publisher");
        Self { net, publisher, clients: (0..CLIENTS).map(|_| Client::default()).collect(), published: 0 }
    }

    fn apply(&mut self, operation: &Operation) {
        match *operation {
            Operation::Connect(client) => self.connect(client),
            Operation::Cut(client) => {
                if let Some(wire) = self.clients[client].wire.take() {
                    self.net.cut(wire);
                }
            }
            Operation::Goodbye(client) => {
                if let Some(wire) = self.clients[client].wire.take() {
                    self.net.send(wire, &Disconnect::because(ReasonCode::Success));
                }
            }
            Operation::Subscribe(client, filter) => {
                if let Some(wire) = self.clients[client].wire {
                    self.collect(client);
                    self.net.subscribe(wire, FILTERS[filter], 1);
                    self.clients[client].filters.retain(|known| *known != filter);
                    self.clients[client].filters.push(filter);
                }
            }
            Operation::Unsubscribe(client, filter) => {
                if let Some(wire) = self.clients[client].wire {
                    self.collect(client);
                    self.net.unsubscribe(wire, FILTERS[filter]);
                    self.clients[client].filters.retain(|known| *known != filter);
                }
            }
            Operation::Publish(topic) => self.publish(TOPICS[topic]),
            Operation::Acknowledge(client, count) => self.acknowledge(client, count),
        }
    }

    fn connect(&mut self, client: usize) {
        self.collect(client);
        let properties = vec![
            Property::SessionExpiry(3600),
            // A small window, so that it fills and queues form.
            Property::ReceiveMaximum(std::num::NonZeroU16::new(3).unwrap()),
        ];
        let options = Options { clean: false, properties, ..Options::default() };
        let wire = self.net.connect_quietly(&format!("client-{client}"), &options);
        // What was under way comes again, with identifiers of before.
        self.clients[client].unacknowledged.clear();
        self.clients[client].wire = Some(wire);
    }

    fn publish(&mut self, topic: &str) {
        self.published += 1;
        let payload = self.published.to_string();
        for client in &mut self.clients {
            if client.filters.iter().any(|filter| matches(FILTERS[*filter], topic)) {
                client.expected.push(payload.clone());
            }
        }
        self.net.publish(self.publisher, topic, &payload, 1, false, self.published);
    }

    fn acknowledge(&mut self, client: usize, count: usize) {
        self.collect(client);
        let Some(wire) = self.clients[client].wire else { return };
        for _ in 0..count.min(self.clients[client].unacknowledged.len()) {
            let id = self.clients[client].unacknowledged.remove(0);
            self.net.ack(wire, AckKind::PubAck, id);
        }
        self.collect(client);
    }

    /// Takes in what has arrived.
    fn collect(&mut self, client: usize) {
        let Some(wire) = self.clients[client].wire else { return };
        for got in self.net.receive(wire) {
            let Got::Message { payload, dup, id: Some(id), .. } = got else { continue };
            let state = &mut self.clients[client];
            let is_known = state.received.contains(&payload);
            assert!(dup || !is_known, "client {client} got {payload} twice without a mark");
            if !is_known {
                state.received.push(payload);
            }
            state.unacknowledged.push(id);
        }
    }

    /// Everybody comes back, acknowledges everything, and must have all that was expected.
    fn finish(&mut self) {
        for client in 0..CLIENTS {
            self.connect(client);
            for _ in 0..self.published {
                self.acknowledge(client, CLIENTS);
            }
            let state = &self.clients[client];
            assert_eq!(state.received, state.expected, "client {client}");
        }
        let stats = self.net.stats();
        assert_eq!((stats.queued_messages, stats.queued_bytes), (0, 0), "nothing is left over");
    }
}

fn matches(filter: &str, topic: &str) -> bool {
    let filter = tidegate_wire_mqtt::TopicFilter::parse(filter, &tidegate_wire_mqtt::Limits::default());
    filter.is_ok_and(|filter| filter.matches(topic))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_doubled_or_reordered(
        shards in 1..4_usize,
        operations in prop::collection::vec(operation(), 1..120),
    ) {
        let mut model = Model::new(shards);
        for operation in &operations {
            model.apply(operation);
        }
        model.finish();
    }

    /// Members come and go; every message reaches exactly one of them, now or when it is back.
    #[test]
    fn a_shared_message_has_exactly_one_receiver(
        shards in 1..4_usize,
        operations in prop::collection::vec((0..4_usize, 0..3_u8), 1..80),
    ) {
        let mut net = Net::new(shards);
        let publisher = net.v5("publisher");
        let lasting =
            Options { clean: false, properties: vec![Property::SessionExpiry(3600)], ..Options::default() };
        let mut wires: Vec<Option<Wire>> = Vec::new();
        for member in 0..4 {
            let wire = net.connect(&format!("member-{member}"), &lasting);
            net.subscribe(wire, "$share/g/t", 1);
            wires.push(Some(wire));
        }
        let (mut published, mut receivers) = (0_u16, BTreeMap::<String, usize>::new());
        let mut collect = |net: &mut Net, wire: Wire| {
            for got in net.receive(wire) {
                if let Got::Message { payload, id: Some(id), .. } = got {
                    *receivers.entry(payload).or_default() += 1;
                    net.ack(wire, AckKind::PubAck, id);
                }
            }
        };
        for (member, action) in operations {
            match (action, wires[member]) {
                (0, Some(wire)) => {
                    collect(&mut net, wire);
                    net.cut(wire);
                    wires[member] = None;
                }
                (0, None) => wires[member] = Some(net.connect_quietly(&format!("member-{member}"), &lasting)),
                _ => {
                    published += 1;
                    net.publish(publisher, "t", &published.to_string(), 1, false, published);
                }
            }
        }
        for (member, wire) in wires.into_iter().enumerate() {
            let wire = wire.unwrap_or_else(|| net.connect_quietly(&format!("member-{member}"), &lasting));
            for _ in 0..published {
                collect(&mut net, wire);
            }
        }
        let expected: BTreeMap<String, usize> = (1..=published).map(|n| (n.to_string(), 1)).collect();
        prop_assert_eq!(receivers, expected);
    }
}
