//! Who is served first when a reader cannot take everything: shares, waits and losses, in virtual time.
//!
//! The reader looks every ten milliseconds, as one on a radio link does, and takes a bounded number of bytes. A message
//! that comes alone waits for its next look: ten milliseconds at most.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_control::rhythm::{RhythmConfig, RhythmRule};
use tidegate_core::access::Open;
use tidegate_core::classes::{Class, ClassBy, ClassId, Classes, Priority, PriorityMode};
use tidegate_core::settings::{BackOff, Settings};
use tidegate_wire_mqtt::{AckKind, Decoded, Limits, Packet, PacketId, Sender, Version, decode};

use crate::net::{Net, Wire};

const LOOK: Duration = Duration::from_millis(10);
/// Bytes of a payload, and of the packet that it comes in, about.
const PAYLOAD: usize = 200;
const PACKET: usize = PAYLOAD + 15;

/// A client that reads slowly, and what it has read.
pub(crate) struct SlowReader {
    wire: Wire,
    bytes: Vec<u8>,
    pub(crate) pongs: usize,
    /// Messages that it has not acknowledged.
    unacknowledged: Vec<u16>,
}

impl SlowReader {
    pub(crate) fn new(net: &mut Net, filter: &str, qos: u8) -> Self {
        let wire = net.v5("reader");
        net.subscribe(wire, filter, qos);
        net.stall(wire, true);
        Self { wire, bytes: Vec::new(), pongs: 0, unacknowledged: Vec::new() }
    }

    pub(crate) fn ping(&self, net: &mut Net) {
        net.send(self.wire, &Packet::PingReq);
    }

    /// Topics and payloads of the messages that are whole by now.
    pub(crate) fn look(&mut self, net: &mut Net, bytes: usize) -> Vec<(String, String)> {
        self.bytes.extend(net.take(self.wire, bytes));
        let limits = Limits::default().with_sender(Sender::Server);
        let mut messages = Vec::new();
        while let Ok(Decoded::Packet { packet, consumed }) = decode(&self.bytes, Version::V5, &limits) {
            match packet {
                Packet::Publish(publish) => {
                    let payload = String::from_utf8_lossy(publish.payload).trim().to_owned();
                    messages.push((publish.topic.to_owned(), payload));
                    self.unacknowledged.extend(publish.delivery.packet_id().map(PacketId::get));
                }
                Packet::PingResp => self.pongs += 1,
                _ => {}
            }
            self.bytes.drain(..consumed);
        }
        messages
    }

    /// The same, and each is acknowledged.
    pub(crate) fn look_and_ack(&mut self, net: &mut Net, bytes: usize) -> Vec<(String, String)> {
        let messages = self.look(net, bytes);
        for id in self.unacknowledged.drain(..) {
            net.ack(self.wire, AckKind::PubAck, id);
        }
        messages
    }

    pub(crate) fn all(&mut self, net: &mut Net) -> Vec<(String, String)> {
        self.look(net, usize::MAX)
    }
}

/// A publisher in a scenario: its topic, and how many messages it sends in every so many looks.
struct Load {
    topic: String,
    every: u32,
    burst: u32,
}

fn load(topic: &str, every: u32, burst: u32) -> Load {
    Load { topic: topic.to_owned(), every, burst }
}

/// What became of the messages of one topic.
#[derive(Default)]
struct Outcome {
    sent: u64,
    /// How long each that arrived took, in looks.
    waits: Vec<u32>,
}

impl Outcome {
    fn p99(&mut self) -> u32 {
        self.waits.sort_unstable();
        self.waits[(self.waits.len() * 99).div_ceil(100) - 1]
    }
}

/// Lets everybody publish for so many looks, in turns that begin with another one every time.
fn run(priority: Priority, loads: &[Load], bytes_per_look: usize, looks: u32) -> (Net, BTreeMap<String, Outcome>) {
    run_with(priority, None, loads, bytes_per_look, looks)
}

/// The same, where rhythms are learned by a rule.
fn run_with(
    priority: Priority,
    rhythm: Option<RhythmConfig>,
    loads: &[Load],
    bytes_per_look: usize,
    looks: u32,
) -> (Net, BTreeMap<String, Outcome>) {
    let back_off = BackOff { rhythm, ..BackOff::default() };
    let settings = Settings { priority, back_off, queue_messages_max: 2000, ..Settings::default() };
    let mut net = Net::with(1, settings, Open);
    let wires: Vec<Wire> = (0..loads.len()).map(|n| net.v5(&format!("publisher-{n}"))).collect();
    let mut reader = SlowReader::new(&mut net, "#", 0);
    let mut outcomes: BTreeMap<String, Outcome> = BTreeMap::new();
    for look in 0..looks {
        for n in 0..loads.len() {
            let who = (n + look as usize) % loads.len();
            let Load { topic, every, burst } = &loads[who];
            // Not all in the same look.
            if (look + who as u32).is_multiple_of(*every) {
                for _ in 0..*burst {
                    net.publish(wires[who], topic, &format!("{look:PAYLOAD$}"), 0, false, 0);
                    outcomes.entry(topic.clone()).or_default().sent += 1;
                }
            }
        }
        net.pass(LOOK);
        for (topic, sent_in) in reader.look(&mut net, bytes_per_look) {
            let sent_in: u32 = sent_in.parse().unwrap();
            outcomes.entry(topic).or_default().waits.push(look + 1 - sent_in);
        }
    }
    (net, outcomes)
}

fn by_topic() -> Priority {
    let class = |name, weight, filter: &str| Class { topics: vec![filter.into()], ..Class::new(name, weight) };
    let own = vec![class("high", 4, "high/#"), class("normal", 2, "normal/#"), class("low", 1, "low/#")];
    Priority { by: ClassBy::Rules, classes: Classes::new(own).unwrap(), ..Priority::default() }
}

/// Jain's index of fairness: 1 is equal, 1/n is all for one.
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (shares.len() as f64 * squares)
}

fn delivered(outcomes: &BTreeMap<String, Outcome>, prefix: &str) -> Vec<f64> {
    outcomes.iter().filter(|(topic, _)| topic.starts_with(prefix)).map(|(_, it)| it.waits.len() as f64).collect()
}

#[test]
fn at_five_times_overload_the_best_class_waits_little_and_the_least_gets_its_share() {
    // A hundred messages per look fit; five hundred come.
    let capacity = 100 * PACKET;
    let mut loads: Vec<Load> = (0..10).map(|n| load(&format!("high/{n}"), 10, 1)).collect();
    loads.extend((0..20).map(|n| load(&format!("normal/{n}"), 1, 5)));
    loads.extend((0..40).map(|n| load(&format!("low/{n}"), 1, 10)));
    let alone = run(by_topic(), &loads[..10], capacity, 300).1;
    let (net, together) = run(by_topic(), &loads, capacity, 300);
    for (topic, mut outcome) in together.into_iter().filter(|(topic, _)| topic.starts_with("high/")) {
        let mut before = Outcome { sent: 0, waits: alone[&topic].waits.clone() };
        assert!(outcome.p99() <= 2 * before.p99(), "{topic}: {} after {} looks alone", outcome.p99(), before.p99());
        assert_eq!(outcome.waits.len() as u64, outcome.sent, "{topic}: the rare lose nothing");
    }
    let classes = net.stats().by_class;
    let total: u64 = classes.iter().map(|class| class.delivered).sum();
    let low = classes[2].delivered;
    assert!(low * 20 >= total, "{low} of {total} for the least");
    // Twenty with weight 2 and forty with weight 1 have the same share.
    let normal = classes[1].delivered;
    assert!(normal.abs_diff(low) * 10 <= normal, "{normal} and {low}");
    assert_eq!((classes[0].dropped, classes[0].waiting()), (0, 0));
    assert!(total * 100 >= 95 * 300 * 100, "{total}: the link is never idle");
}

#[test]
fn without_priorities_the_rare_wait_and_lose_like_everybody_else() {
    let mut loads: Vec<Load> = (0..10).map(|n| load(&format!("high/{n}"), 10, 1)).collect();
    loads.extend((0..50).map(|n| load(&format!("low/{n}"), 1, 10)));
    let outcomes = run(Priority::off(), &loads, 100 * PACKET, 600).1;
    let (mut sent, mut got) = (0, 0);
    for outcome in outcomes.iter().filter(|(topic, _)| topic.starts_with("high/")).map(|(_, outcome)| outcome) {
        sent += outcome.sent;
        got += outcome.waits.len() as u64;
    }
    assert!(got * 2 < sent, "{got} of {sent}");
}

#[test]
fn f056_a_thousand_at_twice_the_rate_share_alike_inside_their_class() {
    let mut loads: Vec<Load> = (0..500).map(|n| load(&format!("normal/{n}"), 10, 1)).collect();
    loads.extend((0..500).map(|n| load(&format!("low/{n}"), 10, 1)));
    // A hundred come in every look, and fifty fit.
    let (net, outcomes) = run(by_topic(), &loads, 50 * PACKET, 600);
    for class in ["normal/", "low/"] {
        let index = jain(&delivered(&outcomes, class));
        assert!(index >= 0.95, "{class} {index}");
    }
    let classes = net.stats().by_class;
    assert!(classes[1].delivered > classes[2].delivered, "classes are honoured: {classes:?}");
    assert!(classes[2].delivered * 4 > classes[1].delivered, "{classes:?}");
}

#[test]
fn f134_when_everybody_is_important_everybody_has_a_fair_share() {
    // One of them sends ten times as much as the others.
    let mut loads: Vec<Load> = (0..20).map(|n| load(&format!("high/{n}"), 1, 5)).collect();
    loads.push(load("high/greedy", 1, 50));
    let (net, outcomes) = run(by_topic(), &loads, 50 * PACKET, 300);
    let index = jain(&delivered(&outcomes, "high/"));
    assert!(index >= 0.95, "{index}");
    assert_eq!(net.stats().by_class[0].deliveries, net.stats().deliveries);
}

#[test]
fn f134_a_pong_waits_for_no_more_than_a_small_outbox() {
    let mut net = Net::with(1, Settings { priority: by_topic(), ..Settings::default() }, Open);
    let sender = net.v5("sender");
    let mut reader = SlowReader::new(&mut net, "#", 0);
    for _ in 0..5000 {
        net.publish(sender, "high/x", &"x".repeat(PAYLOAD), 0, false, 0);
    }
    reader.ping(&mut net);
    reader.look(&mut net, 17 * 1024);
    assert_eq!(reader.pongs, 1, "a megabyte waits, and not in front of it");
    assert!(net.stats().queued_messages > 4000);
}

#[test]
fn f135_an_endless_stream_of_better_messages_does_not_starve_the_least() {
    let own = vec![
        Class { topics: vec!["alarm/#".into()], ..Class::new("alarm", 16) },
        Class { topics: vec!["low/#".into()], ..Class::new("low", 1) },
    ];
    let priority = Priority { classes: Classes::new(own).unwrap(), by: ClassBy::Rules, ..Priority::default() };
    let loads = [load("alarm/endless", 1, 200), load("low/one", 1, 20)];
    let (net, outcomes) = run(priority, &loads, 100 * PACKET, 300);
    let low = outcomes["low/one"].waits.len() as u64;
    let total = net.stats().delivered;
    assert!(low * 20 >= total, "{low} of {total}: less than a twentieth");
    assert!(low * 10 <= total, "{low} of {total}: more than its weight");
}

#[test]
fn the_papers_order_is_that_of_the_rates_and_whoever_fills_the_queue_pays() {
    let priority = Priority { mode: PriorityMode::Paper, ..Priority::default() };
    let settings = Settings { priority, queue_messages_max: 40, ..Settings::default() };
    let mut net = Net::with(1, settings, Open);
    let wires: Vec<Wire> = (0..4).map(|n| net.v5(&format!("p{n}"))).collect();
    let watcher = net.v5("watcher");
    net.subscribe(watcher, "#", 0);
    // Intervals of 8, 4, 2 and 1 seconds, until they are learned.
    for second in 0..240 {
        for (n, wire) in wires.iter().enumerate() {
            if second % (8 >> n) == 0 {
                net.publish(*wire, &format!("from/{n}"), "x", 0, false, 0);
            }
        }
        net.pass(Duration::from_secs(1));
    }
    let mut reader = SlowReader::new(&mut net, "from/#", 0);
    // Algorithm 2: those that wait are served in ascending order of their rate, whenever they came.
    net.publish(wires[3], "from/3", &"x".repeat(20_000), 0, false, 0);
    for round in 0..3 {
        for n in [3, 1, 2, 0] {
            net.publish(wires[n], &format!("from/{n}"), &round.to_string(), 0, false, 0);
        }
    }
    // Who has the most waiting loses it, whatever its rank.
    for _ in 0..100 {
        net.publish(wires[0], "from/0", "late", 0, false, 0);
    }
    assert_eq!((net.stats().dropped_queue_full, net.stats().dropped_queue_oldest), (72, 72));
    let order: Vec<String> = reader.all(&mut net).into_iter().map(|(topic, _)| topic).collect();
    let served: Vec<&str> = order[1..].iter().map(|topic| &topic[5..]).collect();
    assert_eq!(served.len(), 40);
    assert!(served.is_sorted(), "{served:?}");
    assert_eq!(served.iter().filter(|n| **n == "3").count(), 3);
}

/// Five that send 400 messages a second each, and one that sends a message in seven seconds; the reader takes half of it all.
fn five_busy_and_a_rare_one() -> Vec<Load> {
    let busy = (0..5).map(|n| load(&format!("busy/{n}"), 1, 4));
    busy.chain([load("rare", 700, 1)]).collect()
}

#[test]
fn by_the_papers_order_the_rarest_comes_first_from_its_first_message_on() {
    let rule = |rule| Some(RhythmConfig { rule, ..RhythmConfig::default() });
    // Whether rhythms are learned or not. (By the paper's own back-off the busy ones would not be busy for long.)
    for rhythm in [None, rule(RhythmRule::Practical)] {
        let priority = Priority { mode: PriorityMode::Paper, ..Priority::default() };
        let (_, outcomes) = run_with(priority, rhythm, &five_busy_and_a_rare_one(), 10 * PACKET, 4200);
        let rare = &outcomes["rare"];
        let slowest = rare.waits.iter().max().copied();
        assert_eq!((rare.sent, rare.waits.len()), (6, 6), "{rhythm:?}");
        assert!(slowest < Some(50), "half a second at most: {slowest:?} looks, {rhythm:?}");
    }
}

#[test]
fn by_default_a_rare_sensor_is_high_and_the_busiest_of_a_fleet_is_not() {
    let rhythm = BackOff::default().rhythm;
    let (mut net, outcomes) = run_with(Priority::default(), rhythm, &five_busy_and_a_rare_one(), 10 * PACKET, 1500);
    assert_eq!((outcomes["rare"].sent, outcomes["rare"].waits.len()), (2, 2));
    let class = |net: &Net, client: &str| net.shards[0].class_of(client).unwrap().class;
    assert_eq!(class(&net, "publisher-5"), ClassId::HIGH, "by its second message");
    for n in 0..5 {
        assert_ne!(class(&net, &format!("publisher-{n}")), ClassId::HIGH, "as busy as the others");
    }
    // A sensor that was connected for a day, with its first message.
    let daily = net.v5("daily");
    net.live(Duration::from_secs(86_400));
    net.publish(daily, "daily", "21.5", 0, false, 0);
    assert_eq!(class(&net, "daily"), ClassId::HIGH);
    // And who has just come is neither.
    let stranger = net.v5("stranger");
    (0..3).for_each(|_| net.publish(stranger, "stranger", "x", 0, false, 0));
    assert_eq!(class(&net, "stranger"), ClassId::NORMAL);
}
