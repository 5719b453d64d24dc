//! A guard in front of Debian's mosquitto: what passes, what is said when the broker behind is gone, and what an operator sees.

#![cfg(unix)]
#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

mod other;
mod tls;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_test_support::{
    Broker, PATIENCE, connect_packet as connect, free_port, raw_connection as raw, stranger, text, tidegate,
};

use other::{guard, guard_within, mosquitto};

/// What a command says that succeeds.
fn asked(guard: &Broker, arguments: &[&str]) -> String {
    let output = tidegate(arguments).args(["--admin", &guard.admin()]).output().expect("it runs");
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn await_so(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "never {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn messages_of_every_quality_pass_in_both_versions() {
    let Some(other) = mosquitto() else { return };
    let guard = guard(other.port);
    for version in ["311", "5"] {
        let mut all = guard.subscriber(&["-V", version, "-t", "a/#", "-q", "2", "-F", "%t %q %p"]);
        for qos in ["0", "1", "2"] {
            guard.send(&["-V", version, "-t", "a/b", "-q", qos, "-m", "hello"]);
            assert_eq!(all.line(), format!("a/b {qos} hello"), "version {version}");
        }
        // What is retained is retained behind: it is there for who comes later, and for who comes by another way.
        guard.send(&["-V", version, "-t", &format!("kept/{version}"), "-q", "1", "-r", "-m", "stays"]);
        let mut late = guard.subscriber(&["-V", version, "-t", &format!("kept/{version}"), "-C", "1"]);
        assert_eq!(late.line(), "stays");
    }
    let clients: Value = serde_json::from_str(&asked(&guard, &["status", "--json"])).expect("JSON");
    assert_eq!(clients["clients"]["subscriptions"], 0, "subscriptions are the other broker's");
    assert!(guard.metric("tidegate_guard_connects_total") >= 8.0);
    assert!((guard.metric("tidegate_guard_up") - 1.0).abs() < 0.1);
}

#[test]
fn a_will_is_published_by_the_broker_behind_and_a_session_is_taken_over_there() {
    let Some(other) = mosquitto() else { return };
    let guard = guard(other.port);
    let mut watcher = guard.subscriber(&["-t", "will/#", "-v"]);
    let mut first =
        guard.tool("sub", &["-i", "twin", "-t", "x", "--will-topic", "will/twin", "--will-payload", "gone"]);
    let mut first = first.stdout(std::process::Stdio::null()).spawn().expect("sub runs");
    await_so("connected", || asked(&guard, &["clients", "--json"]).contains("\"twin\""));
    first.kill().expect("it runs");
    first.wait().expect("it ends");
    assert_eq!(watcher.line(), "will/twin gone");

    let (mut old, _) = raw(guard.port("mqtt"), &connect(5, 60, "twin"));
    let (_new, welcome) = raw(guard.port("mqtt"), &connect(5, 60, "twin"));
    assert_eq!(welcome[..4], [0x20, welcome[1], 0, 0]);
    let mut said = Vec::new();
    old.read_to_end(&mut said).expect("it is closed");
    assert_eq!((said[0], said[2]), (0xe0, 0x8e), "taken over: {said:x?}");
}

#[test]
fn websockets_pass_as_well() {
    let Some(other) = mosquitto() else { return };
    let guard = guard(other.port);
    let address = format!("ws://{}/mqtt", guard.address("ws"));
    let mut request = tungstenite::client::IntoClientRequest::into_client_request(address).expect("a request");
    request.headers_mut().insert("Sec-WebSocket-Protocol", "mqtt".parse().expect("a word"));
    let (mut socket, _) = tungstenite::connect(request).expect("it upgrades");
    socket.send(tungstenite::Message::binary(connect(4, 60, "page"))).expect("it takes it");
    assert_eq!(socket.read().expect("it answers").into_data().to_vec(), b"\x20\x02\x00\x00");
    socket.send(tungstenite::Message::binary(b"\xc0\x00".to_vec())).expect("it takes it");
    assert_eq!(socket.read().expect("it answers").into_data().to_vec(), b"\xd0\x00");
}

#[test]
fn clients_are_told_that_the_broker_behind_is_gone_and_come_back_with_it() {
    let Some(mut other) = mosquitto() else { return };
    let guard = guard(other.port);
    let (mut new, _) = raw(guard.port("mqtt"), &connect(5, 60, "new"));
    let (mut old, _) = raw(guard.port("mqtt"), &connect(4, 60, "old"));
    other.stop();
    let mut said = Vec::new();
    new.read_to_end(&mut said).expect("it is closed");
    assert_eq!((said[0], said[2]), (0xe0, 0x8b), "server shutting down: {said:x?}");
    said.clear();
    old.read_to_end(&mut said).expect("it is closed");
    assert_eq!(said, b"", "3.1.1 has no word for it");
    assert_eq!(raw(guard.port("mqtt"), &connect(4, 60, "x")).1, b"\x20\x02\x00\x03");
    assert_eq!(raw(guard.port("mqtt"), &connect(5, 60, "x")).1[..4], *b"\x20\x03\x00\x88");
    assert!(guard.metric("tidegate_guard_up") < 0.1);
    await_so("alarmed", || guard.metric("tidegate_alarms{kind=\"upstream\"}") > 0.5);
    assert!(asked(&guard, &["status"]).contains("cannot be reached"), "{}", asked(&guard, &["status"]));
    other.start_again();
    assert_eq!(raw(guard.port("mqtt"), &connect(4, 60, "x")).1, b"\x20\x02\x00\x00");
    assert!(asked(&guard, &["status"]).contains("guard    of 127.0.0.1:"), "{}", asked(&guard, &["status"]));
}

#[test]
fn a_broker_behind_that_goes_and_comes_is_noticed_though_no_client_comes() {
    let Some(mut other) = mosquitto() else { return };
    let guard = guard(other.port);
    await_so("reached", || asked(&guard, &["status"]).contains(", which answers; 0 connections"));
    other.stop();
    await_so("alarmed", || guard.metric("tidegate_alarms{kind=\"upstream\"}") > 0.5);
    let status = asked(&guard, &["status"]);
    assert!(status.contains(", which cannot be reached for ") && status.contains("Connection refused"), "{status}");
    other.start_again();
    await_so("reached again", || guard.metric("tidegate_guard_up") > 0.5);
    assert!(guard.metric("tidegate_guard_failures_total{reason=\"unreachable\"}") < 0.1, "no client has failed");
}

#[test]
fn what_is_no_broker_is_named_and_nobody_waits_for_ever() {
    for (answer, reason) in
        [(&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "garbage"), (b"\x30\x02\x00\x00", "garbage"), (b"", "silent")]
    {
        let guard = guard_within(stranger(answer), "500ms");
        assert_eq!(raw(guard.port("mqtt"), &connect(4, 60, "x")).1, b"\x20\x02\x00\x03", "{reason}");
        assert!((guard.metric(&format!("tidegate_guard_failures_total{{reason=\"{reason}\"}}")) - 1.0).abs() < 0.1);
    }
    let guard = guard(free_port());
    assert_eq!(raw(guard.port("mqtt"), &connect(5, 60, "x")).1[..4], *b"\x20\x03\x00\x88");
    guard.await_log("the broker behind cannot be reached");
}

#[test]
fn a_broker_behind_that_lies_after_its_welcome_ends_one_connection() {
    // A welcome, and then a packet whose length has no end.
    let guard = guard(stranger(b"\x20\x02\x00\x00\x30\xff\xff\xff\xff\xff"));
    let (mut socket, welcome) = raw(guard.port("mqtt"), &connect(4, 60, "x"));
    assert_eq!(welcome[..4], *b"\x20\x02\x00\x00");
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).expect("it is closed");
    assert_eq!(rest, b"");
    assert!(guard.metric("tidegate_guard_failures_total{reason=\"garbage\"}") > 0.5);
}

#[test]
fn an_operator_sees_limits_and_bans_clients_of_the_broker_behind() {
    let Some(other) = mosquitto() else { return };
    let guard = guard(other.port);
    assert!(asked(&guard, &["limits", "set", "loud", "5/s"]).contains("loud"));
    let (mut loud, _) = raw(guard.port("mqtt"), &connect(4, 60, "loud"));
    let mut watcher = guard.subscriber(&["-t", "n", "-q", "0"]);
    let flood: Vec<u8> = (0..50).flat_map(|n| format!("0\x06\x00\x01n{n:03}").into_bytes()).collect();
    loud.write_all(&flood).expect("it takes it");
    for n in 0..20 {
        assert_eq!(watcher.line(), format!("{n:03}"), "slowed, and nothing lost");
    }
    let why = asked(&guard, &["why", "loud"]);
    assert!(why.contains("loud") && why.contains('5'), "{why}");
    // A client that is banned has to go, and does not come back; the broker behind is not asked.
    let let_in = guard.metric("tidegate_guard_connects_total");
    assert!(asked(&guard, &["ban", "add", "loud", "--for", "60s"]).contains("loud"));
    let mut said = Vec::new();
    let _ = loud.read_to_end(&mut said);
    assert_eq!(raw(guard.port("mqtt"), &connect(4, 60, "loud")).1, b"\x20\x02\x00\x05", "banned here, not asked there");
    assert!((guard.metric("tidegate_guard_connects_total") - let_in).abs() < 0.1);
    asked(&guard, &["ban", "remove", "loud"]);
    assert_eq!(raw(guard.port("mqtt"), &connect(4, 60, "loud")).1, b"\x20\x02\x00\x00");
}

/// The answer to a CONNECT with this identifier and user.
fn answer_to(guard: &Broker, id: &str, user: &str) -> Vec<u8> {
    let text = |text: &str| [&[0, text.len() as u8], text.as_bytes()].concat();
    let body = [&b"\x00\x04MQTT\x05\x82\x00\x3c\x00"[..], &text(id), &text(user)].concat();
    raw(guard.port("mqtt"), &[&[0x10, body.len() as u8], &body[..]].concat()).1
}

#[test]
fn bans_hold_by_user_and_by_address() {
    let Some(other) = mosquitto() else { return };
    let guard = guard(other.port);
    let reason_to = |id: &str, user: &str| answer_to(&guard, id, user)[3];
    assert_eq!((reason_to("a", "eve"), reason_to("b", "bob")), (0, 0));
    let (mut there, _) = raw(guard.port("mqtt"), &connect(5, 60, "there"));
    asked(&guard, &["ban", "add", "--user", "eve", "--for", "60s"]);
    assert_eq!(
        (reason_to("a", "eve"), reason_to("a", "bob")),
        (0x8a, 0),
        "banned; and not whoever has the same identifier"
    );
    asked(&guard, &["ban", "add", "--network", "127.0.0.0/8", "--for", "60s"]);
    let mut said = Vec::new();
    there.read_to_end(&mut said).expect("it is closed");
    assert_eq!((said[0], said[2]), (0xe0, 0x98), "administrative action: {said:x?}");
    assert_eq!(reason_to("c", "bob"), 0x8a);
}

#[test]
fn a_client_that_is_not_read_is_kept_alive_behind_for_as_long_as_it_is_there() {
    let Some(other) = mosquitto() else { return };
    let guard = guard(other.port);
    asked(&guard, &["limits", "set", "slow", "rate=1/m"]);
    // Two messages, of which the second waits for a minute; the broker behind gives up after 1.5 s of silence.
    let (mut slow, _) = raw(guard.port("mqtt"), &connect(4, 1, "slow"));
    slow.write_all(b"0\x03\x00\x01n0\x03\x00\x01n").expect("it takes it");
    await_so("pinged", || {
        // Its own signs of life, which nobody reads.
        (&slow).write_all(b"\xc0\x00").expect("it takes it");
        guard.metric("tidegate_guard_pings_total") > 6.5
    });
    assert!(asked(&guard, &["clients"]).contains("slow"));
    // Now it is silent itself: the broker behind ends it, as it would without a guard.
    let mut said = Vec::new();
    slow.read_to_end(&mut said).expect("it is closed");
    assert_eq!(said, b"");
}
