//! The commands that ask a running broker, from outside and over real sockets: every one of them, with its exit code.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::process::{Output, Stdio};

use serde_json::Value;
use tidegate_test_support::{Broker, Client, Launch, code, exchange, text, tidegate};

fn launch() -> Launch {
    Launch::new().door("admin").config("").arguments(["--shards", "2"])
}

/// What an operator does.
trait Operate {
    fn ask(&self, arguments: &[&str]) -> Output;
    fn raw(&self, request: &str) -> String;
    fn subscriber_named(&self, name: &str) -> Client;
    fn publish_as(&self, name: &str);

    /// What a command prints, if it succeeds.
    fn told(&self, arguments: &[&str]) -> String {
        let output = self.ask(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.told(&[arguments, &["--json"]].concat())).expect("JSON")
    }
}

impl Operate for Broker {
    fn ask(&self, arguments: &[&str]) -> Output {
        tidegate(arguments).args(["--admin", &self.admin()]).output().expect("the command runs")
    }

    /// A request to the operator's door as it is, and the answer as it comes.
    fn raw(&self, request: &str) -> String {
        let host = self.address("admin");
        exchange(host, &request.replace("HOST", host))
    }

    fn subscriber_named(&self, name: &str) -> Client {
        self.subscriber(&["-i", name, "-t", "t/#", "-V", "5"])
    }

    fn publish_as(&self, name: &str) {
        self.send(&["-i", name, "-t", "t/a", "-m", "x", "-q", "1"]);
    }
}

#[test]
fn clients_are_listed_explained_and_ended() {
    let broker = launch().start();
    let mut reader = broker.subscriber_named("reader");
    broker.publish_as("writer-1");
    let list = broker.json(&["clients", "--sort", "delivered"]);
    assert_eq!((&list["clients"][0]["client_id"], &list["clients"][0]["state"]), (&"reader".into(), &"ok".into()));
    assert_eq!(list["clients"][0]["delivered"], 1, "{list}");
    assert!(broker.told(&["clients"]).contains("reader"));
    assert!(broker.told(&["top", "--once"]).contains("reader"));
    assert!(broker.told(&["drops"]).contains("nothing was lost"));

    let why = broker.told(&["why", "reader"]);
    assert!(why.starts_with("client \"reader\" (127.0.0.1:") && why.contains("0 messages lost"), "{why}");
    let gone = broker.told(&["why", "writer-1"]);
    assert!(gone.contains("is gone: its connection ended") && gone.contains("said goodbye"), "{gone}");
    let closed = broker.told(&["clients", "--closed"]);
    assert!(closed.contains("writer-1") && closed.contains("said goodbye"), "{closed}");
    let nobody = broker.ask(&["why", "nobody"]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(text(&nobody.stderr).contains("tidegate clients"), "{}", text(&nobody.stderr));

    assert!(broker.told(&["kick", "reader"]).contains("0x98"));
    assert!(!reader.child.wait().expect("it ends").success());
    assert_eq!(broker.ask(&["kick", "reader"]).status.code(), Some(1));
}

#[test]
fn limits_and_bans_are_set_listed_and_removed() {
    let broker = launch().start();
    assert!(broker.told(&["limits"]).contains("no limits"));
    broker.told(&["limits", "set", "meter-17", "rate=500/s"]);
    let listed = broker.json(&["limits"]);
    assert_eq!((&listed["limits"][0]["name"], &listed["limits"][0]["rate"]), (&"meter-17".into(), &500.0.into()));
    let told = broker.told(&["limits", "set", "meter-17", "entitled=20/s"]);
    assert!(told.contains("is entitled to 20/s"), "{told}");
    let listed = broker.json(&["limits"]);
    assert_eq!((&listed["limits"][0]["rate"], &listed["limits"][0]["entitled"]), (&500.0.into(), &20.0.into()));
    broker.told(&["limits", "unset", "meter-17"]);
    assert_eq!(broker.ask(&["limits", "unset", "meter-17"]).status.code(), Some(1));
    assert_eq!(broker.ask(&["limits", "set", "meter-17", "rate=fast"]).status.code(), Some(2));

    let added = broker.told(&["ban", "add", "meter-17", "--for", "10m", "--reason", "too loud"]);
    assert_eq!(
        added,
        "kept out for 10 min: client \"meter-17\"; nobody of that name is connected now: it holds for who comes\n\
         bans hold for MQTT and at the doors of the smart space\n"
    );
    assert_eq!(broker.ask(&["ban", "add", "*"]).status.code(), Some(2), "no pattern");
    assert!(broker.told(&["ban"]).contains("too loud"));
    let why = broker.told(&["why", "meter-17"]);
    assert!(why.starts_with("client \"meter-17\" is banned for") && why.contains("too loud"), "{why}");
    let output = broker.publish(&["-i", "meter-17", "-t", "t", "-m", "x", "-V", "5"]);
    assert_eq!(output.status.code(), Some(0x8A), "{}", text(&output.stderr));
    let listed = broker.json(&["ban"]);
    assert_eq!(listed["bans"][0]["tries"], 1, "{listed}");
    assert!(listed["bans"][0]["last_try_s"].is_u64(), "{listed}");
    let why = broker.told(&["why", "meter-17"]);
    assert!(why.contains("has tried to come in 1 time since, the last time"), "{why}");
    assert!(broker.told(&["status"]).contains("is banned (1 try to come in since)"), "{}", broker.told(&["status"]));
    broker.told(&["ban", "remove", "meter-17"]);
    assert!(broker.told(&["ban", "list"]).contains("nobody is kept out"));
    broker.publish_as("meter-17");
}

#[test]
fn a_limit_holds_for_a_kp_of_the_smart_space_and_why_says_so() {
    let broker = launch().door("http").door("ssap").start();
    let ask = || {
        let host = broker.address("sparql");
        let head = "GET /query?query=ASK%7B%7D HTTP/1.1\r\nConnection: close\r\npace-client: lamp-7\r\n";
        exchange(host, &format!("{head}Host: {host}\r\n\r\n"))
    };
    assert_eq!(code(&ask()), 200);
    let told = broker.told(&["limits", "set", "lamp-7", "rate=2/h"]);
    assert_eq!(told, "client \"lamp-7\" may publish 2/h, and ask the smart space as often, until that is unset\n");
    assert_eq!([ask(), ask()].map(|answer| code(&answer)), [200, 200]);
    let refused = ask();
    assert!(code(&refused) == 429 && refused.contains("\"limited\""), "{refused}");
    assert!(refused.to_ascii_lowercase().contains("retry-after: 1800"), "{refused}");
    let why = broker.told(&["why", "lamp-7"]);
    assert!(why.contains("limit of 2/h requests holds for this client, of which 2 at once; 1 were refused"), "{why}");
    let kps = broker.json(&["kps"]);
    assert_eq!((&kps["kps"][0]["limited"], &kps["kps"][0]["limit_of"]), (&1.into(), &"client".into()));
    // Whoever asks by the command is told the reason, and not that the broker is busy.
    for door in ["http", "ssap"] {
        let space = match door {
            "http" => format!("http://{}", broker.address("sparql")),
            _ => format!("ssap://{}", broker.address("ssap")),
        };
        let query = ["kp", "--node", "lamp-7", "--space", &space, "query", "SELECT ?o { ?s ?p ?o }"];
        let output = tidegate(&query).output().expect("the command runs");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{said}");
        assert!(said.contains("an operator's limit allows") && !said.contains("busy"), "{door}: {said}");
        assert!(said.contains("come back in 1") && said.contains(" s\n"), "{door}: {said}");
    }
    broker.told(&["limits", "unset", "lamp-7"]);
    let why = broker.told(&["why", "lamp-7"]);
    assert!(why.contains("KP \"lamp-7\"") && !why.contains("holds for"), "it has not asked since: {why}");
    assert_eq!(broker.json(&["kps"])["kps"][0]["limit_of"], Value::Null);
    assert_eq!(code(&ask()), 200);
}

#[test]
fn a_kp_that_subscribes_is_ended_by_kick_and_kept_out_by_a_ban() {
    let broker = launch().door("http").door("ssap").start();
    let spaces = [format!("http://{}", broker.address("sparql")), format!("ssap://{}", broker.address("ssap"))];
    let until_it_hears = |child: &mut std::process::Child| {
        let mut told = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        told.read_line(&mut line).expect("it speaks");
        assert_eq!(line, "+ ?o = \"on\"\n");
        told
    };
    let insert = ["kp", "--space", &spaces[0], "insert", "urn:lamp", "urn:state", "on"];
    assert!(tidegate(&insert).output().expect("the command runs").status.success());
    for (space, node) in spaces.iter().zip(["stove", "sink"]) {
        let follow = ["kp", "--node", node, "--space", space, "subscribe", "SELECT ?o { ?s <urn:state> ?o }"];
        let mut child = tidegate(&follow).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let _told = until_it_hears(&mut child);
        let told = broker.told(&["kick", node]);
        // Over SSAP what it asks goes over a connection of its own.
        let expected = match node {
            "sink" => "2 connections at the smart space were ended; nothing keeps it from coming back\n",
            _ => "1 connection at the smart space was ended; nothing keeps it from coming back\n",
        };
        assert_eq!(told, format!("{node:?}: {expected}"), "{space}");
        let _ = (child.kill(), child.wait());
    }
    // By the protocol itself: the socket is closed, and whoever comes back is told why not.
    let mut child =
        tidegate(&["kp", "--node", "kitchen", "--space", &spaces[0], "subscribe", "SELECT ?o { ?s <urn:state> ?o }"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
    let _told = until_it_hears(&mut child);
    let added = broker.told(&["ban", "add", "kitchen", "--for", "10m"]);
    assert!(added.contains("client \"kitchen\"; 1 connection at the smart space was ended\nbans hold for"), "{added}");
    let query = tidegate(&["kp", "--node", "kitchen", "--space", &spaces[0], "query", "ASK {}"]).output();
    let said = text(&query.expect("the command runs").stderr);
    assert!(said.contains("banned by an operator"), "{said}");
    // It may be coming back at this moment, to be told the same.
    let _ = (child.kill(), child.wait());
    assert!(broker.ask(&["kick", "kitchen"]).status.code() == Some(1), "it is kept out");
}

#[test]
fn a_broker_is_asked_for_its_health_reloaded_and_drained() {
    let mut broker = launch().start();
    assert!(broker.told(&["health"]).contains("healthy"));
    let status = broker.told(&["status"]);
    for line in [
        "mqtt          127.0.0.1:",
        "mqtts         -",
        "coap          -",
        "coaps         -",
        "sn            -",
        "ssap          -",
        "sepa_ws       -",
        "admin         127.0.0.1:",
    ] {
        assert!(status.contains(&format!("\n{line}")), "{line} is not in {status}");
    }
    let states: Vec<Value> = broker.json(&["status"])["listeners"].as_array().expect("listeners").clone();
    assert_eq!(states.len(), 19, "{states:?}");
    let file = broker.folder().join("tidegate.toml");
    std::fs::write(&file, "[limits]\nreceive_max = 77\n[listeners]\nws = \"127.0.0.1:1\"\n").expect("written");
    let reloaded = broker.json(&["reload"]);
    assert_eq!(reloaded["changed"][0], "limits.receive_max", "{reloaded}");
    assert_eq!(reloaded["needs_restart"], serde_json::json!([]), "a flag of the start wins over the file: {reloaded}");
    std::fs::write(&file, "[[security.rule]]\nallow = \"readwrite\"\ntopic = \"#\"\n").expect("written");
    assert!(broker.told(&["reload"]).contains("security.rules 0 → 1"));
    std::fs::write(&file, "[limits]\nreceive_max = 0\n").expect("written");
    let refused = broker.ask(&["reload"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("stays in force"), "{}", text(&refused.stderr));
    broker.told(&["drain"]);
    assert!(broker.child.wait().expect("it ends").success());
    let output = broker.ask(&["health"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("is the broker running?"), "{}", text(&output.stderr));
}

#[test]
fn f086_the_door_answers_to_this_machine_and_to_no_other_site() {
    let broker = launch().start();
    let strange = broker.raw("GET /api/v1/status HTTP/1.0\r\nHost: evil.example\r\n\r\n");
    assert!(strange.starts_with("HTTP/1.0 403") && strange.contains("host-not-allowed"), "{strange}");
    let other = "POST /api/v1/drain HTTP/1.0\r\nHost: HOST\r\nOrigin: https://evil.example\r\n\r\n";
    let other = broker.raw(other);
    assert!(other.starts_with("HTTP/1.0 403") && other.contains("origin-not-allowed"), "{other}");
    let nowhere = broker.raw("GET /nowhere HTTP/1.0\r\nHost: HOST\r\n\r\n");
    assert!(nowhere.contains("application/problem+json") && nowhere.contains("no-such-place"), "{nowhere}");
    let large =
        format!("PUT /api/v1/limits HTTP/1.0\r\nHost: HOST\r\nContent-Length: 99999\r\n\r\n{}", "x".repeat(99999));
    assert!(broker.raw(&large).starts_with("HTTP/1.0 413"));
    let metrics = broker.raw("GET /metrics HTTP/1.0\r\nHost: HOST\r\n\r\n");
    assert!(metrics.contains("\ntidegate_connections 0\n") && metrics.ends_with("# EOF\n"), "{metrics}");
    let page = broker.raw("GET /api/v1/clients?limit=100000 HTTP/1.0\r\nHost: HOST\r\n\r\n");
    assert!(page.starts_with("HTTP/1.0 400"), "{page}");
    assert!(broker.told(&["health"]).contains("healthy"));
}

#[test]
fn f070_who_fills_the_door_keeps_only_operators_waiting() {
    let broker = launch().start();
    let idle: Vec<TcpStream> =
        (0..80).map(|_| TcpStream::connect(broker.address("admin")).expect("accepted")).collect();
    // More than there are places: the last ones are closed at once, and nobody waits for the others.
    let mut last = idle.last().expect("eighty");
    assert_eq!(last.read(&mut [0; 16]).expect("closed"), 0);
    broker.publish_as("client");
    drop(idle);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !broker.ask(&["health"]).status.success() {
        assert!(std::time::Instant::now() < end, "the places are free again");
    }
}

#[test]
fn with_users_a_password_and_a_role_are_needed() {
    let broker = launch().user("ann", "admin").user("vera", "viewer").user("sam", "sensor").start();
    let code = |arguments: &[&str]| broker.ask(arguments).status.code();
    assert_eq!(code(&["clients"]), Some(4), "nobody");
    assert_eq!(code(&["clients", "-u", "ann", "-P", "wrong"]), Some(4));
    assert_eq!(code(&["clients", "-u", "sam", "-P", "secret"]), Some(4), "no role");
    assert_eq!(code(&["clients", "-u", "vera", "-P", "secret"]), Some(0));
    assert_eq!(code(&["reload", "-u", "vera", "-P", "secret"]), Some(4), "may only look");
    assert_eq!(code(&["reload", "-u", "ann", "-P", "secret"]), Some(0));
    assert_eq!(code(&["health"]), Some(0), "supervisors have no password");
}

#[test]
fn a_hostile_client_identifier_stays_text() {
    let broker = launch().start();
    let name = "x/\u{1b}[31m<script>?&%2F";
    let _reader = broker.subscriber_named(name);
    let list = broker.told(&["clients"]);
    assert!(!list.contains('\u{1b}') && list.contains("<script>"), "{list}");
    let why = broker.told(&["why", name]);
    assert!(!why.contains('\u{1b}') && why.contains("0 messages lost"), "{why}");
    broker.told(&["kick", name]);
}

#[test]
fn one_client_or_one_topic_is_followed_line_by_line() {
    let broker = launch().start();
    let admin = broker.admin();
    let follow = |arguments: &[&str]| {
        let mut command = tidegate(&[&["log"], arguments].concat());
        command.args(["--admin", &admin, "--for", "60s"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        // What is written down from here on is known to the shards.
        let mut said = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("a line");
        assert!(line.starts_with("following "), "{line}");
        child
    };
    let client = follow(&["meter-17", "--lines", "4"]);
    let topic = follow(&["--topic", "t/#", "--lines", "2", "--json"]);
    broker.publish_as("other");
    broker.publish_as("meter-17");
    let told = text(&client.wait_with_output().expect("it ends").stdout);
    for words in [
        "meter-17 connected from 127.0.0.1:",
        "meter-17 published t/a, QoS 1, 1 byte: taken, and nobody wants it",
        "meter-17 is disconnected: said goodbye",
        "meter-17 its session has ended",
    ] {
        assert!(told.contains(words), "{words:?} in {told}");
    }
    assert!(!told.contains("other"), "{told}");
    let told = text(&topic.wait_with_output().expect("it ends").stdout);
    let lines: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |place: usize| (lines[place]["client"].as_str(), lines[place]["what"].as_str());
    assert_eq!([of(0), of(1)], [(Some("other"), Some("published")), (Some("meter-17"), Some("published"))], "{told}");
    let wrong = broker.ask(&["log", "--topic", "a/#/b"]);
    assert!(text(&wrong.stderr).contains("must be a topic filter"), "{}", text(&wrong.stderr));
    assert_eq!(broker.ask(&["log"]).status.code(), Some(2));
}
