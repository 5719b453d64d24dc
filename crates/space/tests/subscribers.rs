//! Many who are told, some who do not listen, and what the WebSocket says.

#![allow(clippy::unwrap_used, reason = "a step that cannot be done has failed the test")]

mod common;

use std::collections::BTreeSet;
use std::net::TcpStream;

use common::{
    Broker, CONFIRM, PATIENCE, Peer, connect, graph, message_of, parameter, pattern, question, send, start, triple,
};
use tidegate_graph::{QueueLimits, SpaceLimits};
use tungstenite::{Message, WebSocket};

type Socket = WebSocket<TcpStream>;

fn socket(broker: &Broker) -> Socket {
    let url = format!("ws://{}/subscribe", broker.http());
    tungstenite::client(url, connect(broker.http())).unwrap().0
}

fn say(socket: &mut Socket, text: &str) {
    socket.send(Message::text(text)).unwrap();
}

fn hear(socket: &mut Socket) -> serde_json::Value {
    loop {
        if let Message::Text(text) = socket.read().unwrap() {
            return serde_json::from_str(&text).unwrap();
        }
    }
}

const LAMP: &str = r#"{"subscribe":{"sparql":"SELECT ?o { <urn:lamp> <urn:state> ?o }","alias":"lamp"}}"#;

#[test]
fn a_websocket_is_told_in_sepas_words() {
    let broker = start();
    broker.update("INSERT DATA { <urn:lamp> <urn:state> 'off' }");
    let mut socket = socket(&broker);
    say(&mut socket, LAMP);
    let first = hear(&mut socket);
    let told = &first["notification"];
    assert_eq!((told["sequence"].as_u64(), told["alias"].as_str()), (Some(0), Some("lamp")));
    assert_eq!(told["addedResults"]["results"]["bindings"][0]["o"]["value"], "off");
    broker.update("DELETE WHERE { <urn:lamp> <urn:state> ?o }; INSERT DATA { <urn:lamp> <urn:state> 'on' }");
    let next = hear(&mut socket);
    let told = &next["notification"];
    assert_eq!(told["sequence"], 1);
    assert_eq!(told["addedResults"]["results"]["bindings"][0]["o"]["value"], "on");
    assert_eq!(told["removedResults"]["results"]["bindings"][0]["o"]["value"], "off");
    // Several on one socket, and errors with the alias of their request.
    say(&mut socket, r#"{"subscribe":{"sparql":"SELECT","alias":"bad"}}"#);
    let error = hear(&mut socket);
    assert_eq!((error["status_code"].as_u64(), error["alias"].as_str()), (Some(400), Some("bad")));
    say(&mut socket, &LAMP.replace("\"lamp\"", "\"again\""));
    assert_eq!(hear(&mut socket)["notification"]["alias"], "again");
    let spuid = told["spuid"].as_str().unwrap();
    say(&mut socket, &format!(r#"{{"unsubscribe":{{"spuid":"{spuid}"}}}}"#));
    assert_eq!(hear(&mut socket)["unsubscribed"]["spuid"], spuid);
    say(&mut socket, &format!(r#"{{"unsubscribe":{{"spuid":"{spuid}"}}}}"#));
    assert_eq!(hear(&mut socket)["error"], "sid_not_found");
}

#[test]
fn a_page_of_another_site_opens_no_websocket() {
    let broker = start();
    let headers = [
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
        ("Origin", "https://evil.example"),
    ];
    assert_eq!(broker.request("GET", "/subscribe", &headers, b"").status, 403);
    assert_eq!(broker.get("/subscribe", "*/*").status, 400, "no upgrade, no socket");
}

#[test]
fn four_writers_and_a_hundred_subscribers_lose_nothing() {
    const WRITERS: usize = 4;
    const SUBSCRIBERS: usize = 100;
    const ROUNDS: usize = 25;
    let broker = start();
    let subject = "urn:all";
    let subscribe = |number: usize| {
        let mut peer = Peer::new(broker.ssap());
        peer.send(&message_of(&format!("kp{number}"), "SUBSCRIBE", 1, &question(&pattern(subject))));
        peer.next();
        peer
    };
    let peers: Vec<Peer> = (0..SUBSCRIBERS).map(subscribe).collect();
    let at = broker.ssap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let mut peer = Peer::new(at);
                for round in 0..ROUNDS {
                    let insert = graph("insert_graph", &triple(subject, "urn:p", &format!("{writer}-{round}")));
                    let text = message_of("writer", "INSERT", round as u32, &(insert + CONFIRM));
                    // Refused for want of room is not lost: the writer knows, and comes back.
                    loop {
                        peer.send(&text);
                        if parameter(&peer.next(), "status") == "m3:Success" {
                            break;
                        }
                    }
                }
            });
        }
        for mut peer in peers {
            scope.spawn(move || {
                let (mut seen, mut sequence) = (BTreeSet::new(), 0);
                while seen.len() < WRITERS * ROUNDS {
                    let told = peer.next();
                    sequence += 1;
                    assert_eq!(parameter(&told, "ind_sequence"), sequence.to_string());
                    assert_eq!(parameter(&told, "obsolete_results").matches("<triple>").count(), 0);
                    for part in parameter(&told, "new_results").split("<![CDATA[").skip(1) {
                        let value = part.split_once("]]>").unwrap().0;
                        assert!(seen.insert(value.to_owned()), "{value} twice");
                    }
                }
            });
        }
    });
}

#[test]
fn f103_one_that_does_not_read_delays_nobody_and_ends_in_the_right_state() {
    // Little room, so that changes merge soon.
    let queue = QueueLimits { pending_max: 4, ..QueueLimits::default() };
    let broker = common::start_with(
        SpaceLimits { queue, ..SpaceLimits::default() },
        std::sync::Arc::new(tidegate_space::Everybody),
    );
    let mut slow = socket(&broker);
    let mut good = socket(&broker);
    let big = r#"{"subscribe":{"sparql":"SELECT ?o { <urn:big> <urn:state> ?o }"}}"#;
    for socket in [&mut slow, &mut good] {
        say(socket, big);
        hear(socket);
    }
    // More than all buffers between them hold; the good one reads every change.
    let padding = "x".repeat(100_000);
    let rounds = 200;
    for round in 0..rounds {
        let update = format!(
            "DELETE WHERE {{ <urn:big> <urn:state> ?o }}; INSERT DATA {{ <urn:big> <urn:state> '{round} {padding}' }}"
        );
        assert_eq!(broker.update(&update).status, 200);
        loop {
            let told = hear(&mut good);
            let value = &told["notification"]["addedResults"]["results"]["bindings"][0]["o"]["value"];
            if value.as_str().is_some_and(|value| value.starts_with(&format!("{round} "))) {
                break;
            }
        }
    }
    let (mut sequence, mut messages) = (0, 0);
    loop {
        let told = hear(&mut slow);
        let told = &told["notification"];
        messages += 1;
        assert_eq!(told["sequence"], sequence + 1, "numbers stay consecutive when changes merge");
        sequence += 1;
        let value = told["addedResults"]["results"]["bindings"][0]["o"]["value"].as_str().unwrap_or_default();
        if value.starts_with(&format!("{} ", rounds - 1)) {
            break;
        }
    }
    assert!(messages < rounds, "{messages} messages for {rounds} changes: nothing was merged");
}

/// A query that takes long, and reads all the time.
fn long_query(broker: &Broker) -> &'static str {
    let triples: Vec<String> = (0..2000).map(|number| format!("<urn:n{number}> <urn:v> {number} .")).collect();
    let numbers = triples.join(" ");
    assert_eq!(broker.update(&format!("INSERT DATA {{ {numbers} }}")).status, 200);
    "SELECT (COUNT(*) AS ?n) { ?a <urn:v> ?x . ?b <urn:v> ?y . ?c <urn:v> ?z FILTER(?x + ?y + ?z = -1) }"
}

fn wait_until(broker: &Broker, what: &str, is_so: impl Fn(usize) -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !is_so(broker.handle().load().0) {
        assert!(std::time::Instant::now() < end, "never: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn f108_an_evaluation_ends_when_its_client_goes() {
    let broker = start();
    let query = long_query(&broker);
    let headers = [("Content-Type", "application/sparql-query")];
    for _ in 0..3 {
        let mut stream = connect(broker.http());
        send(&mut stream, broker.http(), "POST", "/query", &headers, query.as_bytes());
        wait_until(&broker, "it runs", |running| running > 0);
        drop(stream);
        wait_until(&broker, "it has ended", |running| running == 0);
    }
    // Nothing is left behind that would keep others from being served.
    assert_eq!(broker.query("ASK {}", "text/csv").status, 200);
}

#[test]
fn f091_a_query_that_takes_too_long_is_refused_and_never_half_answered() {
    let broker = start();
    let query = long_query(&broker);
    let headers = [("Content-Type", "application/sparql-query")];
    let late = broker.request("POST", "/query?timeout=100ms", &headers, query.as_bytes());
    assert_eq!((late.status, late.header("retry-after")), (503, Some("1")), "{}", late.body);
    assert!(late.body.contains("urn:tidegate:problem:late"), "{}", late.body);
    wait_until(&broker, "it has ended", |running| running == 0);
}

#[test]
fn whoever_asks_for_it_gets_the_rows_that_were_found_in_time_and_nobody_else() {
    let broker = start();
    let count = long_query(&broker);
    let rows =
        "SELECT ?x ?y { ?a <urn:v> ?x . ?b <urn:v> ?y . ?c <urn:v> ?z FILTER(?x + ?y + ?z = 7 || ?x + ?y + ?z = -1) }";
    let headers = [("Content-Type", "application/sparql-query"), ("Accept", "text/csv")];
    let ask = |path: &str, text: &str| broker.request("POST", path, &headers, text.as_bytes());
    let part = ask("/query?timeout=300ms&partial=true", rows);
    assert_eq!(
        (part.status, part.header("pace-partial"), part.header("etag")),
        (200, Some("true"), None),
        "{}",
        part.body
    );
    assert!(
        part.body.lines().skip(1).all(|row| row.split(',').all(|value| value.parse::<u32>().is_ok_and(|it| it <= 7)))
    );
    assert_eq!(ask("/query?timeout=300ms", rows).status, 503, "never by default");
    assert_eq!(ask("/query?timeout=300ms&partial=false", rows).status, 503);
    let none = ask("/query?timeout=300ms&partial=true", count);
    assert_eq!(
        (none.header("pace-partial"), none.body.lines().count()),
        (Some("true"), 1),
        "half a sum is none: {}",
        none.body
    );
    let whole = ask("/query?partial=true", "SELECT ?x { <urn:n1> <urn:v> ?x }");
    assert_eq!((whole.status, whole.header("pace-partial"), &*whole.body), (200, None, "x\r\n1\r\n"));
    let wrong = ask("/query?partial=some", rows);
    assert!(wrong.status == 400 && wrong.body.contains("true or false"), "{}", wrong.body);
}

#[test]
fn f104_f105_equal_questions_are_worked_out_once_and_a_leader_that_leaves_harms_nobody() {
    let broker = start();
    let query = long_query(&broker);
    let headers = [("Content-Type", "application/sparql-query")];
    let ask = |path: &str, text: &str| {
        let mut stream = connect(broker.http());
        send(&mut stream, broker.http(), "POST", path, &headers, text.as_bytes());
        stream
    };
    // Both readers are busy, each with a question of its own, so that equal ones wait together.
    let busy: Vec<_> = ["-1", "-2"].map(|sum| ask("/query?timeout=3s", &query.replace("-1", sum))).into();
    wait_until(&broker, "both are busy", |running| running == 2);
    let equal = "SELECT (COUNT(*) AS ?c) { ?s <urn:v> ?o }";
    let leader = ask("/query", equal);
    let followers: Vec<_> = (0..20).map(|_| ask("/query", &equal.replace(' ', "\n"))).collect();
    drop(leader);
    drop(busy);
    for mut follower in followers {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut follower, &mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200") && text.contains("2000"), "{text}");
    }
    let counts = broker.handle().counts();
    let worked = |outcome: &str| {
        let of = counts.iter().filter(|(class, name, _)| *class == "advanced-query" && *name == outcome);
        of.map(|(_, _, number)| number).sum::<u64>()
    };
    assert!(worked("fresh") <= 2 && worked("shared") + worked("remembered") >= 18, "{counts:?}");
}
