//! Questions of operators to the shards of a running broker: answered from any thread, and never too many at once.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

mod support;

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use support::{Client, PATIENCE, address, config, publish, start};
use tidegate_broker::Handle;
use tidegate_broker::ask::{Answer, Busy, Question};
use tidegate_broker::config::{Config, ListenerKind};
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::{Publish, QoS, Version};

fn ask(handle: &Handle, shard: usize, question: Question) -> Answer {
    let (reply, answer) = sync_channel(1);
    handle.ask(shard, question, move |answer| drop(reply.try_send(answer))).unwrap();
    answer.recv_timeout(PATIENCE).unwrap()
}

#[test]
fn every_shard_answers_and_a_stranger_is_nobody() {
    let broker = start(config());
    let handle = broker.handle();
    assert_eq!(handle.shards(), 2);
    for shard in 0..2 {
        assert_eq!(ask(&handle, shard, Question::Clients { from: 0 }), Answer::Clients { clients: vec![], next: None });
        assert_eq!(
            ask(&handle, shard, Question::Closed { before: None }),
            Answer::Closed { closed: vec![], next: None }
        );
    }
    let client_id = "nobody".into();
    assert_eq!(ask(&handle, handle.shard_of("nobody"), Question::Kick { client_id }), Answer::Kicked(false));
    let client_id = "nobody".into();
    let nothing = ask(&handle, handle.shard_of("nobody"), Question::EndSession { client_id });
    assert_eq!(nothing, Answer::SessionEnded(None));
    assert_eq!(handle.ask(7, Question::Clients { from: 0 }, |_| ()), Err(Busy), "no such shard");
}

#[test]
fn f070_curiosity_is_bounded_and_a_broker_that_is_gone_answers_nobody() {
    let broker = start(config());
    let handle = broker.handle();
    let mut waiting: Vec<Receiver<Answer>> = Vec::new();
    let mut refused = 0;
    for _ in 0..10_000 {
        let (reply, answer) = sync_channel(1);
        match handle.ask(0, Question::Clients { from: 0 }, move |answer| drop(reply.try_send(answer))) {
            Ok(()) => waiting.push(answer),
            Err(Busy) => refused += 1,
        }
    }
    assert!(refused > 0, "ten thousand questions at once are too many");
    for answer in waiting {
        assert!(answer.recv_timeout(PATIENCE).is_ok(), "whoever was not refused is answered");
    }
    broker.shutdown();
    let (reply, answer) = sync_channel::<Answer>(1);
    let asked = handle.ask(0, Question::Clients { from: 0 }, move |answer| drop(reply.try_send(answer)));
    drop(handle);
    assert!(asked.is_err() || answer.recv_timeout(PATIENCE).is_err(), "nobody is there");
}

/// Why the connection of a client ended, once it has.
fn end_of(handle: &Handle, client_id: &str) -> Option<String> {
    let shard = handle.shard_of(client_id);
    let Answer::Closed { closed, .. } = ask(handle, shard, Question::Closed { before: None }) else { return None };
    closed.iter().find(|closed| &*closed.client_id == client_id).map(|closed| closed.why.to_string())
}

#[test]
fn f050_a_reader_that_never_reads_is_given_up_and_named() {
    let settings = Settings { write_timeout: Duration::from_millis(300), ..Settings::default() };
    let broker = start(Config { settings, ..config() });
    let (handle, address) = (broker.handle(), address(&broker, ListenerKind::Mqtt));
    let mut mute = Client::tcp(address, Version::V5, "mute");
    mute.subscribe("t", QoS::AtMostOnce);
    let mut sender = Client::tcp(address, Version::V5, "sender");
    let (payload, begin) = (vec![b'x'; 64 * 1024], Instant::now());
    let why = loop {
        sender.publish("t", &payload);
        if let Some(why) = end_of(&handle, "mute") {
            break why;
        }
        assert!(begin.elapsed() < PATIENCE, "it goes on for ever");
    };
    assert!(why.starts_with("does not read: ") && why.contains(" bytes and "), "{why}");
    sender.ping();
    assert_eq!(end_of(&handle, "sender"), None, "and nobody else");
    broker.shutdown();
}

#[test]
fn f045_a_burst_of_retained_messages_waits_for_its_reader_and_for_nobody_else() {
    const TOPICS: usize = 4000;
    let broker = start(config());
    let (handle, address) = (broker.handle(), address(&broker, ListenerKind::Mqtt));
    let mut sender = Client::tcp(address, Version::V5, "sender");
    let payload = vec![b'x'; 2048];
    for n in 0..TOPICS {
        let topic = format!("r/{n}");
        sender.send(&Publish { retain: true, ..publish(&topic, &payload) });
    }
    sender.ping();
    // Eight times what an outbox holds, for a reader that looks elsewhere.
    let mut late = Client::tcp(address, Version::V5, "late");
    late.subscribe("r/#", QoS::AtMostOnce);
    sender.subscribe("live", QoS::AtMostOnce);
    sender.publish("live", b"now");
    assert_eq!(sender.message().payload, b"now", "others do not wait");
    let mut topics = BTreeSet::new();
    while topics.len() < TOPICS {
        topics.insert(late.message().topic);
    }
    let stats = handle.stats();
    assert_eq!((stats.dropped_outbox_full, stats.dropped_queue_full, stats.dropped_memory_budget), (0, 0, 0));
    broker.shutdown();
}
