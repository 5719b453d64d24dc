//! What decides about a class, what a full queue does, and that no order is broken by any of it.

use std::time::Duration;

use tidegate_core::access::{Action, Identity, Open, Policy};
use tidegate_core::classes::{Class, ClassBy, ClassId, Classes, OnFull, Priority};
use tidegate_core::glob::Glob;
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::Property;

use crate::net::{Net, Options, lasting};
use crate::priority::SlowReader;

pub(crate) fn settings(own: Vec<Class>, by: ClassBy) -> Settings {
    let priority = Priority { classes: Classes::new(own).unwrap(), by, ..Priority::default() };
    Settings { priority, queue_messages_max: 10, ..Settings::default() }
}

pub(crate) fn on(name: &str, weight: u32, filter: &str, on_full: OnFull) -> Class {
    Class { topics: vec![filter.into()], on_full, ..Class::new(name, weight) }
}

/// A session that is away, on everything; what waits for it is in its queue.
pub(crate) fn away(net: &mut Net) {
    let reader = net.connect("reader", &lasting());
    net.subscribe(reader, "#", 1);
    net.cut(reader);
}

pub(crate) fn back(net: &mut Net) -> Vec<String> {
    let reader = net.dial("reader", &lasting());
    net.payloads(reader)
}

#[test]
fn the_longest_pays_with_its_oldest_and_the_short_lose_nothing() {
    let mut net = Net::with(1, settings(vec![], ClassBy::Both), Open);
    let (flooder, rare) = (net.v5("flooder"), net.v5("rare"));
    away(&mut net);
    net.publish(rare, "r", "rare-1", 1, false, 1);
    for n in 0..50 {
        net.publish(flooder, "f", &n.to_string(), 1, false, n + 1);
    }
    net.publish(rare, "r", "rare-2", 1, false, 2);
    assert_eq!((net.stats().dropped_queue_full, net.stats().dropped_queue_oldest), (42, 42));
    let mut got = back(&mut net);
    got.retain(|payload| !payload.starts_with("rare"));
    assert_eq!(got, ["42", "43", "44", "45", "46", "47", "48", "49"], "its newest, in order");
}

#[test]
fn each_policy_names_who_goes() {
    let cases = [
        (OnFull::DropLongest, ["8", "9", "10", "11"], "f"),
        (OnFull::DropNewest, ["0", "1", "2", "3"], "f"),
        (OnFull::DropOldest, ["8", "9", "10", "11"], "f"),
    ];
    for (on_full, expected, topic) in cases {
        let settings = Settings { queue_messages_max: 4, ..settings(vec![on("f", 1, "f", on_full)], ClassBy::Both) };
        let mut net = Net::with(1, settings, Open);
        let sender = net.v5("sender");
        away(&mut net);
        for n in 0..12 {
            net.publish(sender, topic, &n.to_string(), 1, false, n + 1);
        }
        assert_eq!(back(&mut net), expected, "{on_full:?}");
        let oldest = if on_full == OnFull::DropNewest { 0 } else { 8 };
        assert_eq!((net.stats().dropped_queue_full, net.stats().dropped_queue_oldest), (8, oldest), "{on_full:?}");
    }
}

#[test]
fn who_drops_its_own_oldest_takes_nothing_from_others() {
    let own = vec![on("own", 1, "own/#", OnFull::DropOldest)];
    let mut net = Net::with(1, settings(own, ClassBy::Both), Open);
    let (modest, other) = (net.v5("modest"), net.v5("other"));
    away(&mut net);
    net.publish(modest, "own/1", "old", 1, false, 1);
    for n in 0..9 {
        net.publish(other, "x", "x", 1, false, n + 1);
    }
    net.publish(modest, "own/1", "new", 1, false, 2);
    let got = back(&mut net);
    assert_eq!(got.iter().filter(|payload| *payload == "x").count(), 9);
    assert!(got.contains(&"new".to_owned()) && !got.contains(&"old".to_owned()));
}

#[test]
fn of_a_class_that_wants_the_latest_only_the_newest_of_each_topic_waits() {
    let own = vec![on("state", 1, "state/#", OnFull::Latest)];
    let mut net = Net::with(1, settings(own, ClassBy::Both), Open);
    let sender = net.v5("sender");
    away(&mut net);
    for n in 0..100 {
        net.publish(sender, "state/a", &format!("a{n}"), 1, false, 1);
        net.publish(sender, "state/b", &format!("b{n}"), 1, false, 2);
    }
    let stats = net.stats();
    assert_eq!((stats.queued_messages, stats.dropped_conflated, stats.dropped_queue_full), (2, 198, 0));
    assert_eq!(back(&mut net), ["a99", "b99"]);
    assert_eq!(net.stats().queued_bytes, 0);
}

#[test]
fn a_slow_reader_gets_the_newest_state_and_not_the_oldest() {
    let own = vec![on("state", 1, "state/#", OnFull::Latest)];
    let mut net = Net::with(1, settings(own, ClassBy::Both), Open);
    let sender = net.v5("sender");
    let mut reader = SlowReader::new(&mut net, "#", 0);
    for n in 0..1000 {
        net.publish(sender, "state/a", &format!("{n:100}"), 0, false, 0);
    }
    let got = reader.all(&mut net);
    assert_eq!(got.last().unwrap().1, "999");
    assert!(got.len() < 300, "{}", got.len());
    assert_eq!(net.stats().delivered + net.stats().dropped_conflated, 1000);
}

#[test]
fn classes_come_from_users_clients_and_topics() {
    let own = vec![
        on("alarm", 8, "alarm/#", OnFull::DropLongest),
        Class { users: vec!["boss".into()], ..Class::new("staff", 6) },
        Class { clients: vec![Glob::new("pump-*")], ..Class::new("pumps", 5) },
    ];
    let mut net = Net::with(1, settings(own, ClassBy::Rules), Open);
    let boss = net.connect("boss-1", &Options { user: Some("boss"), ..Options::default() });
    let (pump, other) = (net.v5("pump-1"), net.v5("other"));
    for (wire, client, topic, name) in [
        (boss, "boss-1", "x", "staff"),
        (pump, "pump-1", "x", "pumps"),
        (other, "other", "x", "normal"),
        (other, "other", "alarm/fire", "alarm"),
    ] {
        net.publish(wire, topic, "x", 0, false, 0);
        assert_eq!(&*net.shards[0].class_of(client).unwrap().name, name);
    }
    let received: Vec<u64> = net.stats().by_class.iter().map(|class| class.received).collect();
    assert_eq!(received, [0, 1, 0, 0, 1, 1, 1, 0]);
}

#[test]
fn publishers_are_classed_by_their_rate_and_a_flooder_is_not_rare() {
    let mut net = Net::new(1);
    let wires: Vec<_> = (0..3).map(|n| net.v5(&format!("p{n}"))).collect();
    for second in 0..400_u32 {
        for (n, wire) in wires.iter().enumerate() {
            if second.is_multiple_of([20, 5, 1][n]) {
                net.publish(*wire, "t", "x", 0, false, 0);
            }
        }
        net.pass(Duration::from_secs(1));
    }
    let classes = |net: &Net| {
        let class = |n| net.shards[0].class_of(&format!("p{n}")).unwrap();
        [class(0), class(1), class(2)].map(|report| (report.class, report.rank))
    };
    let expected = [(ClassId::HIGH, 0), (ClassId::NORMAL, 1), (ClassId::LOW, 2)].map(|(c, rank)| (c, Some((rank, 3))));
    assert_eq!(classes(&net), expected);
    // The rarest begins to flood: it is not rare any more, whatever its habit was.
    for _ in 0..300 {
        net.pass(Duration::from_millis(10));
        net.publish(wires[0], "t", "x", 0, false, 0);
    }
    assert_eq!(classes(&net)[0].0, ClassId::LOW);
}

/// May choose its class if its name is `trusted`.
#[derive(Debug)]
struct Trusting;

impl Policy for Trusting {
    fn allows(&self, _: &Identity, client_id: &str, action: Action, _: &str) -> bool {
        action != Action::Prioritize || client_id == "trusted"
    }
}

#[test]
fn f133_a_claim_to_a_better_class_counts_only_with_the_right_to_it() {
    let settings = settings(vec![on("fixed", 1, "fixed/#", OnFull::DropLongest)], ClassBy::Both);
    let fixed = settings.priority.classes.find("fixed").unwrap();
    let mut net = Net::with(1, settings, Trusting);
    let claim = |class| [Property::UserProperty("pace-class", class)];
    let cases = [
        ("stranger", "t", "high", ClassId::NORMAL, 1),
        ("stranger", "t", "low", ClassId::LOW, 0),
        ("stranger", "t", "nonsense", ClassId::NORMAL, 1),
        ("trusted", "t", "high", ClassId::HIGH, 0),
        ("trusted", "fixed/t", "high", fixed, 1),
    ];
    for (client, topic, class, expected, ignored) in cases {
        let wire = net.v5(client);
        let before = net.stats().class_claims_ignored;
        net.publish_with(wire, topic, "x", 0, false, 0, &claim(class));
        assert_eq!(net.shards[0].class_of(client).unwrap().class, expected, "{client} claims {class} for {topic}");
        assert_eq!(net.stats().class_claims_ignored - before, ignored, "{client} claims {class} for {topic}");
    }
}

#[test]
fn a_class_travels_from_shard_to_shard() {
    let own = vec![on("alarm", 8, "alarm/#", OnFull::DropLongest)];
    let settings = Settings { queue_messages_max: 100, ..settings(own, ClassBy::Both) };
    let mut net = Net::with(4, settings, Open);
    let mut reader = SlowReader::new(&mut net, "#", 0);
    let senders: Vec<_> = (0..8).map(|n| net.v5(&format!("s{n}"))).collect();
    net.publish(senders[0], "bulk", &"x".repeat(20_000), 0, false, 0);
    for sender in &senders {
        for n in 0..10 {
            net.publish(*sender, "bulk", &format!("{n:500}"), 0, false, 0);
        }
    }
    net.publish(senders[3], "alarm/fire", "!", 0, false, 0);
    let got = reader.all(&mut net);
    let place = got.iter().position(|(topic, _)| topic == "alarm/fire").unwrap();
    // One of each of the eight, all of them strangers as its own sender is, and two that were on their way.
    assert!(place <= 10, "behind {place} others, of 81");
    let alarm = net.stats().by_class[4];
    assert_eq!((alarm.received, alarm.delivered), (1, 1));
}

#[test]
fn messages_of_one_publisher_to_one_topic_keep_their_order_whatever_they_claim() {
    let mut net = Net::with(1, Settings { inflight_max: 1000, ..Settings::default() }, Trusting);
    let (trusted, other) = (net.v5("trusted"), net.v5("other"));
    away(&mut net);
    for n in 0..60_u16 {
        let class = ["low", "high", "normal"][usize::from(n) % 3];
        let claim = [Property::UserProperty("pace-class", class)];
        net.publish_with(trusted, "t", &format!("t{n:02}"), 1, false, n + 1, &claim);
        net.publish(other, "t", &format!("o{n:02}"), 1, false, n + 1);
    }
    let got = back(&mut net);
    for first in ["t", "o"] {
        let own: Vec<&String> = got.iter().filter(|payload| payload.starts_with(first)).collect();
        assert!(own.len() == 60 && own.is_sorted(), "{own:?}");
    }
}
