//! What is written down of one client, or of a topic, while somebody follows it.

use std::time::Duration;

use tidegate_core::access::{Action, Open};
use tidegate_core::activity::{Activity, ActivityFilter, Deed, LogsFull, PublishOutcome};
use tidegate_core::ledger::Loss;
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::AckKind;

use crate::net::{Forbid, Net, lasting};

fn filter(client: Option<&str>, topic: Option<&str>) -> ActivityFilter {
    ActivityFilter::new(client, topic).unwrap()
}

/// What all shards have written down, in short.
fn followed(net: &mut Net, key: u64, filter: &ActivityFilter) -> Vec<String> {
    let now = net.now;
    let taken = net.shards.iter_mut().map(|shard| shard.take_activities(key, filter, now).unwrap());
    let mut all: Vec<Activity> = taken.flat_map(|taken| taken.activities).collect();
    all.sort_by_key(|activity| activity.at);
    all.iter().map(|Activity { client_id, deed, .. }| format!("{client_id} {}", short(deed))).collect()
}

fn short(deed: &Deed) -> String {
    match deed {
        Deed::Happened(event) => format!("{event:?}").split([' ', '{']).next().unwrap_or_default().to_lowercase(),
        Deed::Published { message, outcome } => format!("published {} {outcome:?}", message.topic),
        Deed::Subscribed { filter, granted } => format!("subscribed {filter} {}", granted.is_ok()),
        Deed::Unsubscribed { filter, existed } => format!("unsubscribed {filter} {existed}"),
        Deed::Sent { message, number, .. } => format!("sent {} {number:?}", message.topic),
        Deed::Queued { message } => format!("queued {}", message.topic),
        Deed::Lost { message, reason } => format!("lost {} {reason:?}", message.topic),
        Deed::Confirmed { number, confirmation } => format!("confirmed {number} {confirmation:?}"),
    }
}

#[test]
fn a_client_is_followed_through_all_that_it_does_and_nobody_else_is() {
    let mut net = Net::new(2);
    let follow = filter(Some("b"), None);
    assert!(followed(&mut net, 1, &follow).is_empty());
    let (a, b) = (net.v5("a"), net.v5("b"));
    net.subscribe(b, "t/#", 1);
    net.publish(a, "t/1", "x", 1, false, 1);
    net.ack(b, AckKind::PubAck, 1);
    net.publish(b, "t/2", "xyz", 0, false, 0);
    net.publish(b, "elsewhere", "", 1, false, 2);
    net.unsubscribe_quietly(b, "t/#");
    net.cut(b);
    let lines = followed(&mut net, 1, &follow);
    assert_eq!(
        lines,
        [
            "b connected",
            "b subscribed t/# true",
            "b sent t/1 Some(1)",
            "b confirmed 1 Received",
            "b sent t/2 None",
            "b published t/2 Passed { places: 1 }",
            "b published elsewhere Passed { places: 0 }",
            "b unsubscribed t/# true",
            "b disconnected",
            "b sessionended",
        ]
    );
    assert!(followed(&mut net, 1, &follow).is_empty(), "each line once");
}

#[test]
fn a_topic_is_followed_from_its_publisher_to_its_receivers_whoever_they_are() {
    let mut net = Net::new(2);
    let follow = filter(None, Some("t/+"));
    followed(&mut net, 7, &follow);
    let (a, b, c) = (net.v5("a"), net.v5("b"), net.v5("c"));
    net.subscribe(b, "t/1", 0);
    net.subscribe(c, "#", 0);
    net.publish(a, "t/1", "x", 0, false, 0);
    net.publish(a, "u/1", "x", 0, false, 0);
    let mut lines = followed(&mut net, 7, &follow);
    lines.sort();
    assert_eq!(lines[0].split(" Passed").next(), Some("a published t/1"));
    assert_eq!(lines[1..], ["b sent t/1 None", "b subscribed t/1 true", "c sent t/1 None"]);
}

#[test]
fn what_is_refused_forbidden_or_lost_is_written_down_with_its_reason() {
    let settings = Settings { queue_messages_max: 1, ..Settings::default() };
    let mut net = Net::with(1, settings, Open);
    let (a, away) = (net.v5("a"), net.connect("away", &lasting()));
    net.subscribe(away, "t", 1);
    net.cut(away);
    let follow = filter(None, Some("t"));
    followed(&mut net, 1, &follow);
    for id in 1..=3 {
        net.publish(a, "t", "x", 1, false, id);
    }
    let lines = followed(&mut net, 1, &follow);
    let of_receiver: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("away ")).collect();
    assert_eq!(of_receiver, ["queued t", "lost t QueueFull", "lost t QueueFull"], "{lines:?}");

    let mut net = Net::with(1, Settings::default(), Forbid(Action::Publish, "secret"));
    let a = net.v5("a");
    let follow = filter(Some("a"), None);
    followed(&mut net, 1, &follow);
    net.publish(a, "secret", "x", 1, false, 1);
    let gone = format!("a published secret {:?}", PublishOutcome::Gone(Loss::Denied));
    assert_eq!(followed(&mut net, 1, &follow), ["a denied".to_owned(), gone]);
}

#[test]
fn a_log_that_nobody_fetches_ends_and_there_are_few_at_a_time() {
    let mut net = Net::new(1);
    let (a, follow) = (net.v5("a"), filter(Some("a"), None));
    for key in 1..=4 {
        followed(&mut net, key, &follow);
    }
    let now = net.now;
    assert_eq!(net.shards[0].take_activities(5, &follow, now), Err(LogsFull));
    net.pass(Duration::from_secs(6));
    net.publish(a, "t", "x", 0, false, 0);
    assert!(followed(&mut net, 5, &follow).is_empty(), "there is room again");
    assert!(followed(&mut net, 1, &follow).is_empty(), "it had ended, and begins anew");
}
