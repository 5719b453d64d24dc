//! What maps see, and what they publish.

use std::sync::Arc;

use tidegate_core::access::Action;
use tidegate_core::{Mapped, Tapped, shard_of};
use tidegate_wire_mqtt::QoS;

use crate::net::{Forbid, Net};

fn tap(net: &mut Net, filter: &str, user: Option<&str>) {
    let filters: Arc<[Box<str>]> = Arc::from([filter.into()]);
    for shard in &mut net.shards {
        shard.set_taps(Arc::clone(&filters), user.map(Into::into));
    }
}

fn seen(net: &mut Net) -> Vec<(String, u8)> {
    let shards = net.shards.iter_mut();
    let all = shards.flat_map(|shard| std::iter::from_fn(|| shard.poll_tapped()).collect::<Vec<Tapped>>());
    all.map(|tapped| (String::from_utf8_lossy(&tapped.payload).into_owned(), tapped.chain)).collect()
}

fn mapped(topic: &str, payload: &str, chain: u8) -> Mapped {
    let (topic, payload) = (topic.into(), payload.as_bytes().into());
    Mapped { topic, payload, qos: QoS::AtLeastOnce, retain: false, chain }
}

#[test]
fn a_message_is_seen_once_whoever_else_gets_it_on_whatever_shard() {
    let mut net = Net::new(2);
    let (sender, receiver) = (net.v5("sender"), net.v5("receiver"));
    net.subscribe(receiver, "t/#", 0);
    net.publish(sender, "t/before", "0", 0, false, 0);
    tap(&mut net, "t/+", None);
    net.publish(sender, "t/before", "1", 0, false, 0);
    net.publish(sender, "t/x", "2", 1, false, 7);
    net.publish(sender, "other", "3", 0, false, 0);
    assert_eq!(seen(&mut net), [("1".to_owned(), 0), ("2".to_owned(), 0)]);
    assert_eq!(net.payloads(receiver), ["0", "1", "2"]);
    assert_eq!(seen(&mut net), [], "each once");
}

#[test]
fn what_a_map_publishes_reaches_everybody_and_carries_the_length_of_its_chain() {
    let mut net = Net::new(2);
    let receiver = net.v5("receiver");
    net.subscribe(receiver, "out", 0);
    tap(&mut net, "out", None);
    let (shard, now) = (shard_of("out", 2), net.now);
    net.shards[shard].handle_mapped(&mapped("out", "a", 3), now);
    net.shards[shard].handle_mapped(&mapped("$SYS/x", "b", 1), now);
    net.settle();
    assert_eq!(net.payloads(receiver), ["a"]);
    assert_eq!(seen(&mut net), [("a".to_owned(), 3)]);
    let stats = net.shards[shard].stats();
    assert_eq!((stats.map_published, stats.map_publish_denied), (1, 1), "not even a map writes below $");
}

#[test]
fn what_nobody_fetches_is_bounded_and_counted() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    tap(&mut net, "#", None);
    let long = "x".repeat(60_000);
    for _ in 0..100 {
        net.publish(sender, "t", &long, 0, false, 0);
    }
    let kept = seen(&mut net).len() as u64;
    assert_eq!(kept + net.shards[0].stats().map_queue_full, 100);
    assert!((60..=70).contains(&kept), "{kept}");
}

#[test]
fn a_map_with_a_user_obeys_the_rules_of_access() {
    let mut net = Net::with(1, tidegate_core::settings::Settings::default(), Forbid(Action::Publish, "secret"));
    let sender = net.v5("sender");
    tap(&mut net, "#", Some("maps"));
    net.publish(sender, "open", "1", 0, false, 0);
    let now = net.now;
    net.shards[0].handle_mapped(&mapped("secret", "2", 1), now);
    assert_eq!(seen(&mut net), [("1".to_owned(), 0)]);
    assert_eq!(net.shards[0].stats().map_publish_denied, 1);
}
