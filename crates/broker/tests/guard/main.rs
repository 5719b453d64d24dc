//! A guard in front of Debian's mosquitto: what passes, and what is said when the broker behind is gone, or is none.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a step that cannot be done has failed the test")]

mod arrival;
mod dialogue;
mod flood;
mod other;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use tidegate_broker::{Banned, Broker};
use tidegate_core::Whom;
use tidegate_core::settings::Rate;
use tidegate_test_support::{PATIENCE, connect_packet as connect, free_port, raw_connection as raw, stranger};

use other::{guard, guard_within, mosquitto};

fn metric(guard: &Broker, family: &str, reason: Option<&str>) -> u64 {
    let all = guard.handle().extra_metrics();
    let is_it = |metric: &&tidegate_broker::ExtraMetric| {
        metric.family == family && reason.is_none_or(|reason| metric.labels.iter().any(|(_, is)| *is == reason))
    };
    all.iter().find(is_it).map_or(0, |metric| metric.value)
}

fn await_so(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "never {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_will_is_published_behind_and_a_session_is_taken_over_there() {
    let Some(other) = mosquitto() else { return };
    let (_guard, port) = guard(other.port);
    let (mut watcher, _) = raw(port, &connect(4, 60, "watcher"));
    watcher.write_all(b"\x82\x0b\x00\x01\x00\x06will/#\x00").unwrap();
    let mut granted = [0; 5];
    watcher.read_exact(&mut granted).unwrap();
    // A will at will/x with the payload "gone".
    let body = b"\x00\x04MQTT\x04\x06\x00\x3c\x00\x01w\x00\x06will/x\x00\x04gone";
    let (dying, _) = raw(port, &[&[0x10, body.len() as u8], &body[..]].concat());
    drop(dying);
    let mut message = [0; 14];
    watcher.read_exact(&mut message).unwrap();
    assert_eq!(message, *b"\x30\x0c\x00\x06will/xgone");

    let (mut old, _) = raw(port, &connect(5, 60, "twin"));
    let (_new, welcome) = raw(port, &connect(5, 60, "twin"));
    assert_eq!((welcome[0], welcome[3]), (0x20, 0));
    let mut said = Vec::new();
    old.read_to_end(&mut said).unwrap();
    assert_eq!((said[0], said[2]), (0xe0, 0x8e), "taken over: {said:x?}");
}

#[test]
fn clients_are_told_that_the_broker_behind_is_gone_and_come_back_with_it() {
    let Some(mut other) = mosquitto() else { return };
    let (guard, port) = guard(other.port);
    let (mut new, _) = raw(port, &connect(5, 60, "new"));
    let (mut old, _) = raw(port, &connect(4, 60, "old"));
    other.stop();
    let mut said = Vec::new();
    new.read_to_end(&mut said).unwrap();
    assert_eq!((said[0], said[2]), (0xe0, 0x8b), "server shutting down: {said:x?}");
    said.clear();
    old.read_to_end(&mut said).unwrap();
    assert_eq!(said, [], "3.1.1 has no word for it");
    assert_eq!(raw(port, &connect(4, 60, "x")).1, b"\x20\x02\x00\x03");
    assert_eq!(raw(port, &connect(5, 60, "x")).1[..4], *b"\x20\x03\x00\x88");
    assert_eq!(guard.handle().guard().unwrap().is_reached, Some(false));
    other.start_again();
    assert_eq!(raw(port, &connect(4, 60, "x")).1, b"\x20\x02\x00\x00");
    assert_eq!(guard.handle().guard().unwrap().is_reached, Some(true));
}

#[test]
fn what_is_no_broker_is_named_and_nobody_waits_for_ever() {
    for (answer, reason) in
        [(&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "garbage"), (b"\x30\x02\x00\x00", "garbage"), (b"", "silent")]
    {
        let (guard, port) = guard_within(stranger(answer), Duration::from_millis(500));
        assert_eq!(raw(port, &connect(4, 60, "x")).1, b"\x20\x02\x00\x03", "{reason}");
        assert_eq!(metric(&guard, "guard_failures", Some(reason)), 1, "{reason}");
    }
    let (guard, port) = guard(free_port());
    assert_eq!(raw(port, &connect(5, 60, "x")).1[..4], *b"\x20\x03\x00\x88");
    assert_eq!(metric(&guard, "guard_failures", Some("unreachable")), 1);
}

#[test]
fn a_broker_behind_that_lies_after_its_welcome_ends_one_connection() {
    // A welcome, and then a packet whose length has no end.
    let (guard, port) = guard(stranger(b"\x20\x02\x00\x00\x30\xff\xff\xff\xff\xff"));
    let (mut socket, welcome) = raw(port, &connect(4, 60, "x"));
    assert_eq!(welcome[..4], *b"\x20\x02\x00\x00");
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, []);
    assert_eq!(metric(&guard, "guard_failures", Some("garbage")), 1);
}

#[test]
fn a_client_that_is_slowed_is_kept_alive_behind_and_loses_nothing() {
    let Some(other) = mosquitto() else { return };
    let (guard, port) = guard(other.port);
    let whom = Whom::Client("slow".into());
    assert!(guard.set_limit(&whom, Some(Rate::new(1, Duration::from_secs(4), 1))));
    let (mut watcher, welcome) = raw(port, &connect(4, 60, "watcher"));
    assert_eq!(welcome, b"\x20\x02\x00\x00");
    watcher.write_all(b"\x82\x06\x00\x01\x00\x01n\x00").unwrap();
    let mut granted = [0; 5];
    watcher.read_exact(&mut granted).unwrap();
    // Two messages, of which the second waits; the broker behind gives up after 1.5 s of silence.
    let (mut slow, _) = raw(port, &connect(4, 1, "slow"));
    slow.write_all(b"0\x04\x00\x01n10\x04\x00\x01n2").unwrap();
    let mut messages = [0; 12];
    watcher.read_exact(&mut messages).unwrap();
    assert_eq!(messages, *b"0\x04\x00\x01n10\x04\x00\x01n2");
    assert!(metric(&guard, "guard_pings", None) > 0);
    await_so("counted", || guard.stats().publish_passed == 2);
}

/// The next connection of a client: the guard itself looks whether somebody is there, and says nothing.
fn accept_client(behind: &TcpListener) -> TcpStream {
    loop {
        let (stream, _) = behind.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        if stream.peek(&mut [0]).unwrap() > 0 {
            return stream;
        }
    }
}

#[test]
fn who_is_banned_while_the_broker_behind_thinks_about_it_does_not_come_in_and_leaves_no_will() {
    let behind = TcpListener::bind("127.0.0.1:0").unwrap();
    let (guard, port) = guard(behind.local_addr().unwrap().port());
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(&connect(4, 60, "late")).unwrap();
    let mut asked = accept_client(&behind);
    let mut first = vec![0; connect(4, 60, "late").len()];
    asked.read_exact(&mut first).unwrap();
    assert!(guard.handle().ban(&Banned::Client("late".into()), Duration::from_secs(60), "a test").is_some());
    asked.write_all(b"\x20\x02\x00\x00").unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"\x20\x02\x00\x05");
    let mut goodbye = Vec::new();
    asked.read_to_end(&mut goodbye).unwrap();
    assert_eq!(goodbye, b"\xe0\x00", "the broker behind does not take it for lost");
}
