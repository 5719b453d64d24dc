//! Who may come in, and where, by the whole program: listeners of their own, a smart space alone, tokens at every door.

#![allow(clippy::unwrap_used, reason = "a step that cannot be done has failed the test")]

use tidegate_test_support::{Broker, Launch, code, exchange, text, tidegate};

const SECRET: &str = "0123456789abcdef0123456789abcdef\n";
/// Signed with it: ann, viewer and sensor, until 2100; and ann, admin, until 2001.
const ANN: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDAsInJvbGVzIjpbInZpZXdlciIsInNlbnNvciJdfQ.SypjgK18x9cOw1y2ngeLwEdpfue403O30sJjcscTzqc";
const EXPIRED: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4iLCJleHAiOjEwMDAwMDAwMDAsInJvbGVzIjpbImFkbWluIl19.G5BW27m2Uo9aNvtHP33VOisRb4Ak2LvJM4sTKMjLc7Q";

/// A request to a door with this in its head; the code of the answer.
fn asked(broker: &Broker, door: &str, request: &str, shown: &str) -> u16 {
    let host = broker.address(door).trim_start_matches("http://").to_owned();
    code(&exchange(&host, &format!("{request} HTTP/1.1\r\nHost: {host}\r\n{shown}Connection: close\r\n\r\n")))
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[test]
fn a_token_opens_every_door_and_an_expired_one_none() {
    let config = "[jwt]\nsecret_file = \"secret\"\nroles_claim = \"roles\"\n\
                  [[security.rule]]\nrole = \"sensor\"\nallow = \"readwrite\"\ntopic = \"in/%u/#\"\n";
    let launch = Launch::new().door("http").door("admin").file("secret", SECRET).config(config);
    let broker = launch.start();
    let published = |user: &str, token: &str, topic: &str| {
        broker.publish(&["-V", "5", "-q", "1", "-t", topic, "-m", "x", "-u", user, "-P", token]).status.success()
    };
    assert!(published("ann", ANN, "in/ann/x"));
    assert!(!published("ann", ANN, "in/bob/x"), "its role may not");
    assert!(!published("bob", ANN, "in/bob/x") && !published("ann", EXPIRED, "in/ann/x"));
    assert!(!published("ann", "password", "in/ann/x"));
    for (door, request) in [("admin", "GET /api/v1/status"), ("sparql", "GET /query?query=ASK%20%7B%7D")] {
        assert_eq!(asked(&broker, door, request, &bearer(ANN)), 200, "{door}");
        assert_eq!(asked(&broker, door, request, &bearer(EXPIRED)), 401, "{door}");
        assert_eq!(asked(&broker, door, request, ""), 401, "{door}");
    }
    let operate = "DELETE /api/v1/clients/nobody";
    assert_eq!(asked(&broker, "admin", operate, &bearer(ANN)), 403, "a viewer looks");
    let metrics = exchange(
        broker.address("admin").trim_start_matches("http://"),
        &format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{}Connection: close\r\n\r\n", bearer(ANN)),
    );
    assert!(metrics.contains("tidegate_tokens_refused_total{reason=\"expired\"} 3\n"), "{metrics}");
    assert!(metrics.contains("tidegate_tokens_refused_total{reason=\"user\"} 1\n"), "{metrics}");
}

#[test]
fn a_listener_of_its_own_is_named_and_judged_by_its_own_rules() {
    let config = "[[listener]]\nname = \"factory\"\nkind = \"mqtt\"\naddress = \"127.0.0.1:0\"\nanonymous = true\nrules = \"f\"\n\
                  [[security.rule]]\nset = \"f\"\nallow = \"readwrite\"\ntopic = \"machines/#\"\n";
    let launch = Launch::new().user("ann", "viewer").door("admin").config(config);
    let broker = launch.start();
    let host = broker.address("admin").trim_start_matches("http://").to_owned();
    // ann:secret
    let head = "GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YW5uOnNlY3JldA==\r\nConnection: close\r\n\r\n";
    let status = exchange(&host, head);
    let at = factory_address(&status);
    let published = |port: &str, topic: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let arguments = ["pub", "-p", port, "-V", "5", "-q", "1", "-t", topic, "-m", "x"];
        command.args(arguments).output().unwrap().status.success()
    };
    assert!(published(&at, "machines/1") && !published(&at, "home/1"), "without a name, by the rules of the set");
    assert!(!published(&broker.port("mqtt").to_string(), "machines/1"), "elsewhere a name is needed");
}

#[test]
fn a_smart_space_is_served_without_mqtt_and_says_so() {
    let broker = Launch::new().door("http").door("admin").arguments(["--set", "listeners.mqtt=off"]).start();
    broker.update("INSERT DATA { <urn:a> <urn:b> 1 }");
    assert_eq!(asked(&broker, "sparql", "GET /query?query=ASK%20%7B%3Curn%3Aa%3E%20%3Fp%20%3Fo%7D", ""), 200);
    assert_eq!(asked(&broker, "admin", "GET /api/v1/status", ""), 200);
    let off = ["--mqtt", "off", "--ws", "off", "--http", "off", "--ssap", "off"];
    let nobody = tidegate_test_support::tidegate(&["check"]).args(off).output().unwrap();
    let words = String::from_utf8_lossy(&nobody.stderr).into_owned() + &String::from_utf8_lossy(&nobody.stdout);
    assert!(!nobody.status.success() && words.contains("every listener is off"), "{words}");
}

/// The port of the listener, in the answer of the status.
fn factory_address(status: &str) -> String {
    let body: serde_json::Value = serde_json::from_str(tidegate_test_support::body(status).trim()).unwrap();
    let listeners = body["listeners"].as_array().unwrap();
    let factory = listeners.iter().find(|listener| listener["name"] == "factory").unwrap();
    assert_eq!((factory["kind"].as_str(), factory["state"].as_str()), (Some("mqtt"), Some("open")));
    factory["address"].as_str().unwrap().rsplit(':').next().unwrap().to_owned()
}

#[test]
fn a_token_is_made_used_and_taken_back_by_an_admin() {
    let config = "[jwt]\nsecret_file = \"secret\"\nroles_claim = \"roles\"\n\
                  [[security.rule]]\nrole = \"sensor\"\nallow = \"readwrite\"\ntopic = \"in/#\"\n";
    let launch = Launch::new().door("admin").file("secret", SECRET).config(config);
    let broker = launch.user("root", "admin").user("op", "operator").start();
    let admin = broker.admin();
    let token = |user: &str, arguments: &[&str]| {
        let mut command = tidegate(&[&["token"], arguments].concat());
        let output = command.args(["--admin", &admin, "-u", user, "-P", "secret"]).output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, made, said) = token("root", &["make", "lamp", "--roles", "sensor", "--for", "1h"]);
    assert_eq!(code, Some(0), "{said}");
    let published = |made: &str| {
        broker.publish(&["-q", "1", "-t", "in/lamp", "-m", "x", "-u", "lamp", "-P", made.trim()]).status.success()
    };
    assert!(published(&made));
    assert_eq!(token("op", &["make", "lamp"]).0, Some(4), "this is an admin's");
    let reader = broker.subscriber(&["-i", "lamp-1", "-t", "in/#", "-u", "lamp", "-P", made.trim()]);
    assert_eq!(token("root", &["revoke", "lamp"]).0, Some(0));
    assert!(!published(&made), "it was taken back");
    assert_ne!(reader.finish().0, Some(0), "its connection ended");
    let (_, again, _) = token("root", &["make", "lamp", "--roles", "sensor"]);
    assert!(published(&again), "a new one is another one");
    let (_, list, _) = token("root", &[]);
    assert!(list.contains("tokens are taken") && list.contains("revoked") && list.contains("lamp"), "{list}");
    let (code, _, said) = token("root", &["make", "lamp", "--for", "400d"]);
    assert!(code == Some(2) && said.contains("from 1s to 366d"), "{said}");
}
