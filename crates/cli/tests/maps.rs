//! Both worlds, with the example that is in the tree: a reading of an MQTT sensor answers a SPARQL query and wakes a
//! subscriber over WebSocket; a standing query publishes an alarm over MQTT. Nothing sleeps: a step waits for what it
//! needs.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Output;

use tidegate_test_support::{Broker, Client, Launch, PATIENCE, text, tidegate};
use tungstenite::{Message, WebSocket};

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sosa.toml")
}

fn start(config: &Path) -> Broker {
    let launch = Launch::new().door("http").door("ssap").door("admin").door("sepa-http").door("sepa-ws");
    launch.config_file(config).arguments(["--shards", "2", "--set", "sys.interval=1s"]).start()
}

fn publish(broker: &Broker, topic: &str, payload: &str) {
    broker.send(&["-q", "1", "-t", topic, "-m", payload]);
}

fn rdf(broker: &Broker, door: &str, arguments: &[&str]) -> Output {
    let url = format!("http://{}", broker.address(door));
    tidegate(&["rdf", "--url", &url]).args(arguments).output().expect("rdf runs")
}

fn query(broker: &Broker, sparql: &str) -> String {
    let output = rdf(broker, "sparql", &["query", sparql]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).replace('\r', "")
}

fn listen(broker: &Broker, topic: &str) -> Client {
    broker.subscriber(&["-q", "1", "-t", topic, "-v"])
}

fn subscribe(broker: &Broker, door: &str, sparql: &str) -> WebSocket<TcpStream> {
    let address = broker.address(door);
    let stream = TcpStream::connect(address).expect("the door is open");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    let (mut socket, _) = tungstenite::client(format!("ws://{address}/subscribe"), stream).expect("a WebSocket");
    let ask = serde_json::json!({"subscribe": {"sparql": sparql, "alias": "a"}}).to_string();
    socket.send(Message::text(ask)).expect("sent");
    socket
}

fn told(socket: &mut WebSocket<TcpStream>) -> serde_json::Value {
    loop {
        if let Message::Text(text) = socket.read().expect("a message") {
            return serde_json::from_str(&text).expect("JSON");
        }
    }
}

const READINGS: &str = "SELECT ?sensor ?value { ?o <http://www.w3.org/ns/sosa/madeBySensor> ?sensor ; \
                        <http://www.w3.org/ns/sosa/hasSimpleResult> ?value }";

#[test]
fn a_reading_answers_a_query_wakes_a_subscriber_and_raises_an_alarm() {
    let broker = start(&example());
    // Clients of SEPA look for the two kinds of requests at two ports.
    let mut socket = subscribe(&broker, "sepa-ws", READINGS);
    assert_eq!(told(&mut socket)["notification"]["sequence"], 0);
    let mut alarms = listen(&broker, "alarm/#");

    publish(&broker, "sensors/kitchen/t1/temperature", r#"{"value": 21.5}"#);
    let woken = told(&mut socket);
    let added = &woken["notification"]["addedResults"]["results"]["bindings"];
    assert_eq!(
        (&added[0]["sensor"]["value"], &added[0]["value"]["value"]),
        (&"http://example.org/sensor/t1".into(), &"21.5".into())
    );
    assert_eq!(query(&broker, READINGS), "sensor,value\nhttp://example.org/sensor/t1,21.5\n");

    // Too hot, hotter, and fine again: one alarm that begins and ends.
    for value in ["31", "32", "19.5"] {
        publish(&broker, "sensors/kitchen/t1/temperature", &format!(r#"{{"value": {value}}}"#));
        assert_eq!(
            told(&mut socket)["notification"]["removedResults"]["results"]["bindings"].as_array().map(Vec::len),
            Some(1)
        );
    }
    let alarm = |change: &str| {
        format!(
            r#"alarm/kitchen/temperature {{"change":"{change}","room":"kitchen","sensor":"http://example.org/sensor/t1"}}"#
        )
    };
    assert_eq!(alarms.line(), alarm("added"));
    assert_eq!(alarms.line(), alarm("removed"));

    // The other port of SEPA is the same space, and so is a file.
    let update = "INSERT DATA { <urn:a> <urn:b> 'c' }";
    assert!(rdf(&broker, "sepa-http", &["update", update]).status.success());
    assert_eq!(query(&broker, "SELECT ?o { <urn:a> <urn:b> ?o }"), "o\nc\n");
    let dump = rdf(&broker, "sparql", &["dump", "--graph", "default", "--format", "nt"]);
    assert!(String::from_utf8_lossy(&dump.stdout).contains("<urn:a> <urn:b> \"c\" ."));
}

#[test]
fn what_is_lost_has_a_name_and_a_message_of_a_map_does_not_come_round() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("t.toml");
    // What goes out comes in again, if it is allowed to: each round is one more, and the chain ends.
    let text = r#"
[[map.ingest]]
topic = "in"
triples = ["<urn:n> <urn:is> {$.n}"]
[[map.ingest]]
topic = "out"
chain = 3
triples = ["<urn:n> <urn:is> {$.next}"]
[[map.ingest]]
topic = "out"
triples = ["<urn:shut> <urn:saw> {$.next}"]
[[map.emit]]
query = "SELECT ?next { <urn:n> <urn:is> ?n BIND(?n + 1 AS ?next) }"
topic = "out"
"#;
    std::fs::write(&config, text).expect("written");
    let broker = start(&config);
    let mut out = listen(&broker, "out");
    let mut counts = listen(&broker, "$SYS/broker/map/#");
    publish(&broker, "in", "not json");
    publish(&broker, "in", "{}");
    publish(&broker, "in", r#"{"n": 1}"#);
    for next in 2..=5 {
        assert_eq!(out.line(), format!(r#"out {{"change":"added","next":{next}}}"#));
    }
    // The map that allows nothing has refused four, the other one the last.
    let mut wanted = vec![
        "$SYS/broker/map/chain_too_long 5",
        "$SYS/broker/map/payload_not_json 1",
        "$SYS/broker/map/path_missing 1",
        "$SYS/broker/map/published 4",
        "$SYS/broker/map/ingested 4",
    ];
    while !wanted.is_empty() {
        let line = counts.line();
        assert!(!line.is_empty(), "not told: {wanted:?}");
        wanted.retain(|wanted| *wanted != line);
    }
    assert_eq!(query(&broker, "SELECT ?n { <urn:n> <urn:is> ?n }"), "n\n4\n");
    assert_eq!(query(&broker, "SELECT ?n { <urn:shut> <urn:saw> ?n }"), "n\n");
}

#[test]
fn a_map_can_be_tried_without_a_broker_and_a_bad_one_is_refused() {
    let example = example().display().to_string();
    let test = |topic: &str, payload: &str| {
        tidegate(&["map", "test", "-c", &example, "--topic", topic, "--payload", payload]).output().expect("map runs")
    };
    let output = test("sensors/a b/t1/temperature", r#"{"value": 21.5}"#);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(
        text.contains("- <http://example.org/sensor/t1/temperature> <http://www.w3.org/ns/sosa/hasSimpleResult> *\n"),
        "{text}"
    );
    assert!(text.contains("<http://example.org/room/a%20b>"), "{text}");
    let output = test("sensors/a/t1/temperature", r#"{"value": "warm"}"#);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("nothing, map_value_invalid"));
    assert_eq!(test("other", "").status.code(), Some(1));

    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("t.toml");
    std::fs::write(&config, "[[map.ingest]]\ntopic = \"a/+room\"\ntriples = [\"<urn:{rom}> a 5\"]\n").expect("written");
    let output = tidegate(&["serve", "-c"]).arg(&config).output().expect("serve ends");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text.contains("t.toml:3:1: map.ingest.triples: there is no placeholder \"rom\"; did you mean \"room\"?"),
        "{text}"
    );
}

/// What is longer than a request is sent in pieces, and what is longer than an answer that is held comes while it is made.
#[test]
fn a_long_document_goes_in_and_comes_out_whole() {
    let broker = start(Path::new("/dev/null"));
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let mut lines: Vec<String> =
        (0..560).map(|number| format!("<urn:s{number}> <urn:p> \"{number}-{}\" .", "x".repeat(64 << 10))).collect();
    lines.push("_:b <urn:p> \"first\" .".to_owned());
    lines.insert(0, "_:b <urn:p> \"last\" .".to_owned());
    std::fs::write(file("long.nt"), lines.join("\n")).expect("written");
    std::fs::write(file("long.ttl"), lines.join("\n")).expect("written");
    let refused = rdf(&broker, "sparql", &["load", &file("long.ttl")]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stderr).contains("only N-Triples and N-Quads are sent in pieces"),
        "{}",
        text(&refused.stderr)
    );
    for _ in 0..2 {
        let loaded = rdf(&broker, "sparql", &["load", "--replace", "--graph", "default", &file("long.nt")]);
        assert!(loaded.status.success(), "{}", text(&loaded.stderr));
    }
    let dumped = rdf(&broker, "sparql", &["dump", "--graph", "default", "--format", "nt"]);
    assert!(dumped.status.success(), "{}", text(&dumped.stderr));
    let dumped = text(&dumped.stdout);
    let mut there: Vec<&str> = dumped.lines().filter(|line| !line.starts_with("_:")).collect();
    let mut sent: Vec<&str> = lines.iter().map(String::as_str).filter(|line| !line.starts_with("_:")).collect();
    there.sort_unstable();
    sent.sort_unstable();
    assert!(there == sent, "{} lines of {}", there.len(), sent.len());
    let count = "SELECT (COUNT(DISTINCT ?b) AS ?n) { ?b <urn:p> 'first', 'last' }";
    assert_eq!(query(&broker, count), "n\n1\n", "one blank node, as in the document");
}
