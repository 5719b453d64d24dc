//! Questions of operators to the shards of a running broker: answered from any thread, and never too many at once.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

mod support;

use std::sync::mpsc::{Receiver, sync_channel};

use support::{PATIENCE, config, start};
use tidegate_broker::Handle;
use tidegate_broker::ask::{Answer, Busy, Question};

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
