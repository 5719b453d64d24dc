//! What pages get from a broker without a browser: the editor of the smart space, MQTT over a WebSocket, updates, users.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;
use tidegate_test_support::{Broker, Launch, body, code, exchange};

/// The head of the answer, and what is left of the connection.
fn upgrade(broker: &Broker, words: &str) -> (String, TcpStream) {
    let host = broker.address("admin");
    let mut stream = TcpStream::connect(host).expect("accepted");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
    let request = format!(
        "GET /api/v1/mqtt HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n{words}\r\n"
    );
    stream.write_all(request.as_bytes()).expect("a request");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("an answer");
        head.extend(byte);
    }
    (String::from_utf8(head).expect("text"), stream)
}

#[test]
fn mqtt_comes_to_the_broker_over_the_admin_api_and_not_from_pages_of_others() {
    let broker = Launch::new().door("admin").config("").start();
    let (head, mut stream) = upgrade(&broker, &format!("Origin: http://{}\r\n", broker.address("admin")));
    assert!(
        head.starts_with("HTTP/1.1 101") && head.to_ascii_lowercase().contains("sec-websocket-protocol: mqtt"),
        "{head}"
    );
    // CONNECT of 3.1.1 in a binary frame whose mask is zero.
    let connect = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x00\x00\x04page";
    let mut frame = vec![0x82, 0x80 | connect.len() as u8, 0, 0, 0, 0];
    frame.extend(connect);
    stream.write_all(&frame).expect("a frame");
    let mut answer = [0; 6];
    stream.read_exact(&mut answer).expect("a frame");
    assert_eq!(answer, [0x82, 4, 0x20, 2, 0, 0], "CONNACK, accepted");
    let known = exchange(broker.address("admin"), &get(&broker, "/api/v1/clients/page", ""));
    assert_eq!(code(&known), 200, "{known}");
    let (head, _) = upgrade(&broker, "Origin: http://evil.example\r\n");
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
}

#[test]
fn pages_that_speak_mqtt_have_so_many_places() {
    let broker = Launch::new().door("admin").config("").start();
    let places: Vec<_> = (0..8).map(|_| upgrade(&broker, "")).collect();
    assert!(places.iter().all(|(head, _)| head.starts_with("HTTP/1.1 101")));
    assert!(upgrade(&broker, "").0.starts_with("HTTP/1.1 503"));
}

fn get(broker: &Broker, path: &str, words: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{words}\r\n", broker.address("admin"))
}

/// "ann:secret" and "olga:secret".
const ANN: &str = "Authorization: Basic YW5uOnNlY3JldA==\r\n";
const OLGA: &str = "Authorization: Basic b2xnYTpzZWNyZXQ=\r\n";

fn send(broker: &Broker, method: &str, path: &str, who: &str, content: &str) -> (u16, String) {
    let host = broker.address("admin");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{who}Content-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{content}",
        content.len()
    );
    let answer = exchange(host, &request);
    (code(&answer), body(&answer).to_owned())
}

#[test]
fn admins_see_and_change_users_in_their_file_and_others_do_not() {
    let rule = "[[security.rule]]\nuser = \"ann\"\nallow = \"readwrite\"\ntopic = \"own/#\"\n";
    let broker = Launch::new().door("admin").config(rule).user("ann", "admin").user("olga", "operator").start();
    assert_eq!(send(&broker, "GET", "/api/v1/users", OLGA, "").0, 403);
    let listed = || -> Value {
        let (status, text) = send(&broker, "GET", "/api/v1/users", ANN, "");
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).expect("JSON")
    };
    let names = |value: &Value| -> Vec<String> {
        let users = value["users"].as_array().expect("a list").iter();
        users.filter_map(|user| user["name"].as_str().map(str::to_owned)).collect()
    };
    let before = listed();
    assert_eq!(names(&before), ["ann", "olga"]);
    assert!(before["rules"][0].as_str().is_some_and(|rule| rule.starts_with("user ann may readwrite topic own/#")));
    let new = r#"{"name": "bob", "password": "secret2", "roles": ["viewer"]}"#;
    assert_eq!(send(&broker, "PUT", "/api/v1/users", OLGA, new).0, 403, "an operator may not");
    assert_eq!(send(&broker, "PUT", "/api/v1/users", ANN, new).0, 200);
    // "bob:secret2" comes in at once.
    let bob = "Authorization: Basic Ym9iOnNlY3JldDI=\r\n";
    assert_eq!(send(&broker, "GET", "/api/v1/status", bob, "").0, 200);
    assert_eq!(names(&listed()), ["ann", "bob", "olga"]);
    let roles = r#"{"name": "bob", "roles": ["operator"]}"#;
    assert_eq!(send(&broker, "PUT", "/api/v1/users", ANN, roles).0, 200, "the password stays");
    assert_eq!(send(&broker, "GET", "/api/v1/status", bob, "").0, 200);
    // Nobody locks itself out.
    let own = r#"{"name": "ann", "roles": ["viewer"]}"#;
    assert_eq!(send(&broker, "PUT", "/api/v1/users", ANN, own).0, 409);
    assert_eq!(send(&broker, "DELETE", "/api/v1/users?name=ann", ANN, "").0, 409);
    assert_eq!(send(&broker, "DELETE", "/api/v1/users?name=bob", ANN, "").0, 200);
    assert_eq!(send(&broker, "GET", "/api/v1/status", bob, "").0, 401);
    let (status, why) = send(&broker, "PUT", "/api/v1/users", ANN, r#"{"name": "a:b", "password": "x", "roles": []}"#);
    assert_eq!(status, 422, "{why}");
    assert_eq!(names(&listed()), ["ann", "olga"]);
}

#[test]
fn a_browser_finds_an_editor_at_the_space_and_admins_update_by_the_admin_api() {
    let broker = Launch::new().door("http").door("admin").config("").start();
    let host = broker.address("sparql");
    let ask = |path: &str, words: &str| {
        exchange(host, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{words}\r\n"))
    };
    let page = ask("/", "Accept: text/html,*/*;q=0.8\r\n");
    assert!(code(&page) == 200 && body(&page).contains("ui/sparql.js"), "{page}");
    assert!(page.to_ascii_lowercase().contains("content-security-policy: default-src 'self'"), "{page}");
    assert!(body(&ask("/", "")).contains("/query      SPARQL 1.1 queries"), "a list for everybody else");
    assert_eq!((code(&ask("/ui/sparql.js", "")), code(&ask("/ui/editor.js", ""))), (200, 200));
    assert_eq!(code(&ask("/ui/app.js", "")), 404, "the dashboard is elsewhere");
    let (status, text) =
        send(&broker, "POST", "/api/v1/updates", "", r#"{"update": "INSERT DATA { <urn:a> <urn:b> 1 }"}"#);
    assert!(status == 200 && text.contains("\"changed\":true"), "{text}");
    let (status, text) = send(&broker, "POST", "/api/v1/updates", "", r#"{"update": "SELECT"}"#);
    assert_eq!(status, 400, "{text}");
    let (_, text) = send(&broker, "POST", "/api/v1/queries", "", r#"{"query": "ASK { <urn:a> <urn:b> 1 }"}"#);
    assert!(text.contains("true"), "{text}");
}

#[test]
fn admins_change_the_rules_in_their_file_and_what_does_not_hold_is_not_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("acl");
    std::fs::write(&file, "user ann\ntopic read a\n").expect("written");
    let config = format!("[security]\nacl_file = {:?}\n", file.display().to_string());
    let broker = Launch::new().door("admin").config(&config).user("ann", "admin").user("olga", "operator").start();
    let change = |who: &str, before: &str, text: &str| {
        let body = serde_json::json!({ "before": before, "text": text }).to_string();
        send(&broker, "PUT", "/api/v1/rules", who, &body)
    };
    let read = || std::fs::read_to_string(&file).expect("the file");
    let (old, new) = (read(), "user ann\ntopic readwrite b\n");
    assert_eq!(change(OLGA, &old, new).0, 403, "an operator may not");
    let (status, why) = change(ANN, &old, "user ann\ntopic sideways b\n");
    assert_eq!((status, read()), (422, old.clone()), "{why}");
    let (status, why) = change(ANN, &old, new);
    assert_eq!((status, read().as_str()), (200, new), "{why}");
    let listed: Value = serde_json::from_str(&send(&broker, "GET", "/api/v1/users", ANN, "").1).expect("JSON");
    assert_eq!((&listed["rules_text"], &listed["rules"][1]), (&new.into(), &"topic readwrite b".into()));
    assert_eq!(change(ANN, &old, new).0, 422, "it has changed meanwhile");
}
