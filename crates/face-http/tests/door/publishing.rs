//! Messages in, states out, and what is not taken.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::access::{Action, Identity, Policy};
use tidegate_core::event::LedgerSide;
use tidegate_core::settings::Settings;

use crate::world::{World, ask, data, statuses};

fn post(method: &str, target: &str, fields: &str, body: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: x\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn the_status_says_what_was_promised() {
    let mut world = World::new();
    let socket = world.dial();
    for (method, target, status) in [
        ("POST", "/topics/a", "204"),
        ("POST", "/topics/a?qos=0", "202"),
        ("POST", "/topics/a?qos=1", "204"),
        ("PUT", "/topics/a", "201"),
        ("PUT", "/topics/a", "204"),
        ("PUT", "/topics/a?qos=0", "202"),
        ("POST", "/topics/b?retain=1", "204"),
        ("POST", "/topics/c?expiry=60", "204"),
        ("PUT", "/topics/d?retain=0", "204"),
        ("DELETE", "/topics/a", "204"),
        ("POST", "/topics/a?qos=2", "400"),
    ] {
        assert_eq!(statuses(&world.say(socket, post(method, target, "", "21"))), [status], "{method} {target}");
    }
    let other = world.dial();
    let emptied = world.say(other, post("PUT", "/topics/e", "", ""));
    assert_eq!(statuses(&emptied), ["204"], "what is empty is no state");
    let found = ["a", "b", "c", "d"].map(|topic| {
        let said = world.say(other, ask(&format!("GET /topics/{topic}"), ""));
        said[9..12].to_owned()
    });
    assert_eq!(found, ["404", "200", "404", "404"], "only b was kept, and not taken away again");
    let stats = world.shard.stats();
    assert_eq!((stats.publish_received, stats.publish_passed), (11, 11));
}

#[test]
fn a_state_has_a_type_a_tag_and_a_head() {
    let mut world = World::new();
    let socket = world.dial();
    world.say(socket, post("PUT", "/topics/a%20b/%C3%A4", "Content-Type: application/json\r\n", "{}"));
    let said = world.say(socket, ask("GET /topics/a%20b/%C3%A4", ""));
    assert!(said.contains("content-type: application/json\r\n") && said.ends_with("\r\n\r\n{}"), "{said}");
    let tag = said.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_owned();
    let same = world.say(socket, ask("GET /topics/a%20b/%C3%A4", &format!("If-None-Match: {tag}\r\n")));
    assert_eq!(statuses(&same), ["304"]);
    let head = world.say(socket, ask("HEAD /topics/a%20b/%C3%A4", ""));
    assert!(head.contains("content-length: 2\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    // What curl says of everything is nothing that anybody means.
    world.say(socket, post("PUT", "/topics/c", "Content-Type: application/x-www-form-urlencoded\r\n", "1"));
    assert!(world.say(socket, ask("GET /topics/c", "")).contains("content-type: application/octet-stream"));
}

#[test]
fn a_body_that_is_too_large_is_not_read() {
    let mut world =
        World::with(Settings { packet_bytes_max: 100, ..Settings::default() }, Arc::new(tidegate_core::access::Open));
    let socket = world.dial();
    assert_eq!(statuses(&world.say(socket, post("POST", "/topics/a", "", &"x".repeat(100)))), ["204"]);
    assert_eq!(statuses(&world.say(socket, post("POST", "/topics/a", "", &"x".repeat(101)))), ["413"]);
    assert!(world.is_closed(socket));
}

/// Nobody writes to `locked`, nobody reads `secret`.
#[derive(Debug)]
struct Strict;

impl Policy for Strict {
    fn allows(&self, _: &Identity, _: &str, action: Action, topic: &str) -> bool {
        match action {
            Action::Publish => topic != "locked",
            _ => topic != "secret",
        }
    }
}

#[test]
fn rules_of_access_are_403_in_both_directions() {
    let mut world = World::with(Settings::default(), Arc::new(Strict));
    let socket = world.dial();
    for target in ["/topics/locked", "/topics/locked?qos=0"] {
        assert_eq!(statuses(&world.say(socket, post("POST", target, "", "x"))), ["403"], "{target}");
    }
    assert_eq!(
        statuses(&world.say(socket, post("PUT", "/topics/secret", "", "x"))),
        ["204"],
        "whether it is new is secret"
    );
    assert_eq!(statuses(&world.say(socket, ask("GET /topics/secret", ""))), ["403"]);
    let said = world.say(socket, ask("GET /topics/secret", "Accept: text/event-stream\r\n"));
    assert_eq!(statuses(&said), ["403"]);
    assert!(world.is_closed(socket));
}

#[test]
fn who_is_too_fast_hears_429_and_when_to_come_back_and_loses_nothing_by_waiting() {
    let mut world = World::new();
    let limit = tidegate_core::settings::Rate::new(1, Duration::from_secs(1), 1);
    let (publisher, reader) = (world.dial(), world.dial());
    world.send(reader, ask("GET /topics/a", "Accept: text/event-stream\r\n"));
    world.say(publisher, post("POST", "/topics/a", "", "0"));
    let name = tidegate_core::Whom::Client("$http/127.0.0.1:1000".into());
    world.shard.set_limit(&name, Some(limit), world.now).unwrap();
    let (mut refused, mut heard) = (0, String::new());
    for number in 1..=5 {
        loop {
            let mut said = world.say(publisher, post("POST", "/topics/a", "", &number.to_string()));
            // One that is held is answered when its time has come.
            for _ in 0..100 {
                if !said.is_empty() {
                    break;
                }
                world.wait(Duration::from_millis(100));
                said = world.hear(publisher);
            }
            match statuses(&said)[..] {
                ["204"] => break,
                ["429"] => {
                    refused += 1;
                    let after = said.lines().find_map(|line| line.strip_prefix("retry-after: ")).unwrap();
                    assert!(said.contains("pace-retry-after-ms: "), "{said}");
                    world.wait(Duration::from_secs(after.parse().unwrap()));
                }
                _ => panic!("{said}"),
            }
        }
    }
    heard.push_str(&world.hear(reader));
    assert_eq!(data(&heard).len(), 6, "each once: {heard}");
    let ledger = world.shard.client("$http/127.0.0.1:1000", world.now).unwrap().client.ledger;
    assert_eq!((ledger.passed, ledger.lost_on(LedgerSide::In)), (6, refused));
}

#[test]
fn too_many_requests_at_once_are_told_so() {
    let mut world = World::new();
    let socket = world.dial();
    let limit = tidegate_core::settings::Rate::new(1, Duration::from_secs(100), 1);
    let name = tidegate_core::Whom::Client("$http/127.0.0.1:1000".into());
    world.say(socket, ask("GET /", ""));
    world.shard.set_limit(&name, Some(limit), world.now).unwrap();
    let many = post("POST", "/topics/a", "", "x").repeat(200);
    world.send(socket, many);
    world.wait(Duration::from_secs(100));
    let said = world.hear(socket);
    let found = statuses(&said);
    assert!(found.len() <= 200 && found.iter().all(|status| matches!(*status, "204" | "429" | "503")), "{found:?}");
}
