//! Whoever was cut off learns exactly what it missed, at every door, or is given the whole result and told so; and what
//! clients and broker tell each other about pace.

#![allow(clippy::unwrap_used, reason = "a step that cannot be done has failed the test")]

mod common;

use std::net::TcpStream;
use std::sync::Arc;

use common::{
    Broker, CONFIRM, HeldWriter, Peer, connect, graph, message_of, parameter, pattern, question, start, start_by,
    triple,
};
use serde_json::Value;
use tidegate_graph::{JournalLimits, QueryLimits, SpaceLimits, Update};
use tidegate_space::{Caller, Everybody, Probe, RequestOrigin, ServiceOptions, SpaceRequest};
use tungstenite::{Message, WebSocket};

const QUERY: &str = "SELECT ?o { <urn:s> <urn:p> ?o }";

fn socket(broker: &Broker) -> WebSocket<TcpStream> {
    let url = format!("ws://{}/subscribe", broker.http());
    tungstenite::client(url, connect(broker.http())).unwrap().0
}

/// Subscribes, with what it has.
fn subscribe(socket: &mut WebSocket<TcpStream>, query: &str, seen: Option<(&str, u64)>) -> Value {
    let mut subscribe = serde_json::json!({ "sparql": query });
    if let Some((spuid, sequence)) = seen {
        subscribe["spuid"] = spuid.into();
        subscribe["sequence"] = sequence.into();
    }
    socket.send(Message::text(serde_json::json!({ "subscribe": subscribe }).to_string())).unwrap();
    hear(socket)
}

fn hear_any(socket: &mut WebSocket<TcpStream>) -> Value {
    loop {
        if let Message::Text(text) = socket.read().unwrap() {
            return serde_json::from_str(&text).unwrap();
        }
    }
}

fn hear(socket: &mut WebSocket<TcpStream>) -> Value {
    hear_any(socket)["notification"].clone()
}

fn values(told: &Value, side: &str) -> Vec<String> {
    let rows = told[side]["results"]["bindings"].as_array().unwrap();
    let mut values: Vec<String> = rows.iter().map(|row| row["o"]["value"].as_str().unwrap().to_owned()).collect();
    values.sort_unstable();
    values
}

fn insert(broker: &Broker, value: &str) {
    assert_eq!(broker.update(&format!("INSERT DATA {{ <urn:s> <urn:p> '{value}' }}")).status, 200);
}

fn form(broker: &Broker, path: &str, pairs: &[(&str, &str)], headers: &[(&str, &str)]) -> common::Response {
    let mut body = form_urlencoded::Serializer::new(String::new());
    let mut headers = headers.to_vec();
    headers.push(("Content-Type", "application/x-www-form-urlencoded"));
    broker.request("POST", path, &headers, body.extend_pairs(pairs).finish().as_bytes())
}

#[test]
fn a_websocket_that_was_cut_off_is_told_exactly_what_it_missed() {
    let broker = start();
    insert(&broker, "a");
    let mut first = socket(&broker);
    let told = subscribe(&mut first, QUERY, None);
    let spuid = told["spuid"].as_str().unwrap().to_owned();
    assert_eq!(told.get("resumed"), None, "nobody asked");
    insert(&broker, "b");
    assert_eq!(hear(&mut first)["sequence"], 1);
    drop(first);
    insert(&broker, "c");
    broker.update("DELETE DATA { <urn:s> <urn:p> 'a' }");

    let mut second = socket(&broker);
    let told = subscribe(&mut second, QUERY, Some((&spuid, 1)));
    assert_eq!((told["resumed"].as_bool(), told["spuid"].as_str()), (Some(true), Some(&*spuid)));
    assert_eq!((values(&told, "addedResults"), values(&told, "removedResults")), (vec!["c".into()], vec!["a".into()]));
    let number = told["sequence"].as_u64().unwrap();
    insert(&broker, "d");
    let next = hear(&mut second);
    assert_eq!((next["sequence"].as_u64(), values(&next, "addedResults")), (Some(number + 1), vec!["d".into()]));

    // A third one takes it over while the second is still there; the end of the second harms nobody.
    let mut third = socket(&broker);
    let told = subscribe(&mut third, QUERY, Some((&spuid, number)));
    assert_eq!((told["resumed"].as_bool(), values(&told, "addedResults")), (Some(true), vec!["d".into()]));
    let end = hear_any(&mut second).to_string();
    assert!(end.contains("another connection"), "{end}");
    drop(second);
    let number = told["sequence"].as_u64().unwrap();
    for n in 1..20 {
        insert(&broker, &format!("e{n}"));
        assert_eq!(hear(&mut third)["sequence"], number + n);
    }
}

#[test]
fn what_is_not_known_any_more_begins_again_and_says_so() {
    let journal = JournalLimits { changes_max: 3, ..JournalLimits::default() };
    let limits = SpaceLimits { journal, ..SpaceLimits::default() };
    let broker = common::start_with(limits, std::sync::Arc::new(tidegate_space::Everybody));
    let mut first = socket(&broker);
    let spuid = subscribe(&mut first, QUERY, None)["spuid"].as_str().unwrap().to_owned();
    drop(first);
    for n in 0..5 {
        insert(&broker, &n.to_string());
    }
    for (name, query, sequence) in [
        (spuid.as_str(), "SELECT ?o { <urn:other> <urn:p> ?o }", 0),
        (&spuid, QUERY, 99),
        (&spuid, QUERY, 0),
        ("sepa://subscription/guessed", QUERY, 0),
    ] {
        let mut socket = socket(&broker);
        let told = subscribe(&mut socket, query, Some((name, sequence)));
        assert_eq!((told["resumed"].as_bool(), told["sequence"].as_u64()), (Some(false), Some(0)), "{name} {sequence}");
        assert_ne!(told["spuid"], name);
        let whole = if query == QUERY { 5 } else { 0 };
        assert_eq!(values(&told, "addedResults").len(), whole);
    }
}

#[test]
fn a_smart_m3_client_comes_back_with_the_parameters_of_an_indication() {
    let broker = start();
    let mut writer = Peer::new(broker.ssap());
    let mut add = |id: u32, value: &str| {
        let insert = graph("insert_graph", &triple("urn:s", "urn:p", value));
        writer.send(&message_of("w", "INSERT", id, &(insert + CONFIRM)));
        assert_eq!(parameter(&writer.next(), "status"), "m3:Success");
    };
    let mut first = Peer::new(broker.ssap());
    first.send(&message_of("kp", "SUBSCRIBE", 1, &question(&pattern("urn:s"))));
    let name = parameter(&first.next(), "subscription_id").to_owned();
    add(1, "a");
    assert_eq!(parameter(&first.next(), "ind_sequence"), "1");
    drop(first);
    add(2, "b");
    add(3, "c");
    let back = |name: &str, number: &str| {
        let seen = format!(
            "<parameter name=\"subscription_id\">{name}</parameter><parameter \
             name=\"ind_sequence\">{number}</parameter>"
        );
        message_of("kp", "SUBSCRIBE", 2, &(question(&pattern("urn:s")) + &seen))
    };
    let mut second = Peer::new(broker.ssap());
    second.send(&back(&name, "1"));
    let told = second.next();
    assert_eq!((parameter(&told, "status"), parameter(&told, "resumed")), ("m3:Success", "TRUE"));
    assert_eq!(parameter(&told, "subscription_id"), name);
    let missed = parameter(&told, "new_results");
    assert!(missed.contains("[b]") && missed.contains("[c]") && !missed.contains("[a]"), "{missed}");
    let number: u32 = parameter(&told, "ind_sequence").parse().unwrap();
    add(4, "d");
    assert_eq!(parameter(&second.next(), "ind_sequence"), (number + 1).to_string());
    let mut stranger = Peer::new(broker.ssap());
    stranger.send(&back("http://subscribe_graph#guessed", "1"));
    let told = stranger.next();
    assert_eq!((parameter(&told, "resumed"), parameter(&told, "results").matches("<triple>").count()), ("FALSE", 4));
}

#[test]
fn http_checks_without_a_socket_and_without_work_if_nothing_changed() {
    let broker = start();
    let [one, two] = [1, 2].map(|changes| (broker.handle().version() + changes).to_string());
    insert(&broker, "a");
    let check = |pairs: &[(&str, &str)]| {
        let answer = form(&broker, "/check", pairs, &[]);
        assert_eq!(answer.status, 200, "{}", answer.body);
        serde_json::from_str::<Value>(&answer.body).unwrap()["notification"].clone()
    };
    let told = check(&[("query", QUERY)]);
    let spuid = told["spuid"].as_str().unwrap().to_owned();
    assert_eq!((told["sequence"].as_u64(), values(&told, "addedResults")), (Some(0), vec!["a".into()]));
    insert(&broker, "b");
    // The answer may be lost on its way: whoever asks again from the same number is told the same.
    for _ in 0..2 {
        let told = check(&[("query", QUERY), ("spuid", &spuid), ("sequence", "0")]);
        assert_eq!((told["resumed"].as_bool(), values(&told, "addedResults")), (Some(true), vec!["b".into()]));
    }
    let told = check(&[("query", QUERY), ("spuid", "x"), ("sequence", "0")]);
    assert_eq!((told["resumed"].as_bool(), values(&told, "addedResults").len()), (Some(false), 2));

    let now = broker.get("/check", "*/*");
    assert_eq!(
        (now.status, now.body.clone(), now.header("pace-version")),
        (200, format!("{{\"version\":{two}}}"), Some(&*two))
    );
    assert_eq!(broker.get(&format!("/check?version={two}"), "*/*").status, 304);
    assert_eq!(broker.get(&format!("/check?version={one}"), "*/*").status, 200);
    assert_eq!(broker.get("/check?version=x", "*/*").status, 400);
    let counts = broker.handle().counts();
    assert_eq!(form(&broker, "/query", &[("query", QUERY)], &[("pace-version", &two)]).status, 304);
    assert_eq!(broker.handle().counts(), counts, "nobody had to work for it");
    let answer = form(&broker, "/query", &[("query", QUERY)], &[("pace-version", &one), ("pace-want-ms", "1000")]);
    assert_eq!((answer.status, answer.header("pace-version")), (200, Some(&*two)));
    for hint in ["pace-queued-ms", "pace-dbr-ms", "pace-stretch", "pace-interval-ms"] {
        assert!(answer.header(hint).is_some(), "{hint}");
    }
    let mut peer = Peer::new(broker.ssap());
    let pace = |version: &str| format!("<parameter name=\"pace-version\">{version}</parameter>");
    peer.send(&message_of("kp", "QUERY", 1, &(question(&pattern("urn:s")) + &pace(&two))));
    assert_eq!(parameter(&peer.next(), "pace-not-modified"), "TRUE");
    peer.send(&message_of("kp", "QUERY", 2, &(question(&pattern("urn:s")) + &pace(&one))));
    let told = peer.next();
    assert_eq!((parameter(&told, "pace-version"), parameter(&told, "results").matches("<triple>").count()), (&*two, 2));
    assert!(told.contains("pace-dbr-ms"), "{told}");
    peer.send(&message_of("kp", "QUERY", 3, &question(&pattern("urn:s"))));
    assert!(!peer.next().contains("pace-"), "who says nothing about pace is told nothing");
}

#[test]
fn whoever_keeps_appointments_is_sent_away_with_a_place_that_is_kept_and_others_wait() {
    let held = Arc::new(HeldWriter::default());
    let probe: Arc<dyn Probe> = Arc::<HeldWriter>::clone(&held);
    let options = ServiceOptions { probe: Some(probe), ..ServiceOptions::default() };
    let broker = start_by(&options, Arc::new(Everybody));
    let handle = broker.handle();
    let parse = |text: &str| SpaceRequest::Update(Box::new(Update::parse(text, &QueryLimits::default()).unwrap()));
    let few = "INSERT DATA { <urn:a> <urn:b> 1 }";
    let post = |headers: &[(&str, &str)]| form(&broker, "/update", &[("update", few)], headers);
    let from = |client| RequestOrigin::new(0, None).of(Caller { client, ..Caller::default() });
    // The writer is slow, and many clients wait.
    held.slow_down();
    let waiting: Vec<_> = (0..20_000).map(|client| handle.start(parse(few), from(client))).collect();
    let refused = post(&[("pace-accept", "ticket")]);
    assert_eq!(refused.status, 503, "{}", refused.body);
    let ticket = refused.header("pace-ticket").unwrap().to_owned();
    assert!(refused.header("retry-after").is_some() && refused.header("pace-retry-after-ms").is_some());
    let mut peer = Peer::new(broker.ssap());
    let insert = graph("insert_graph", &triple("urn:s", "urn:p", "x"));
    let accept = "<parameter name=\"pace-accept\">ticket</parameter>";
    peer.send(&message_of("kp", "INSERT", 1, &(insert.clone() + CONFIRM + accept)));
    let told = peer.next();
    assert_eq!(parameter(&told, "status"), "m3:SIB.Failure.OutOfResources");
    assert!(told.contains("pace-ticket") && told.contains("pace-retry-after-ms"), "{told}");
    held.let_go();
    // Who says nothing about tickets waits with the others, and is served.
    assert_eq!(post(&[]).status, 200);
    // When there is room again both are served, with their tickets or without.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        for one in waiting {
            let _ = one.answer().await;
        }
    });
    assert_eq!(post(&[("pace-ticket", &ticket)]).status, 200);
    peer.send(&message_of("kp", "INSERT", 2, &(insert + CONFIRM)));
    assert_eq!(parameter(&peer.next(), "status"), "m3:Success");
}

#[test]
fn a_version_of_an_earlier_run_is_not_one_of_this() {
    let first = start();
    insert(&first, "a");
    let seen = first.handle().version();
    drop(first);
    let second = start();
    assert!(second.handle().version() > seen, "{seen}");
    assert_eq!(second.get(&format!("/check?version={seen}"), "*/*").status, 200);
}

/// Whoever says which version it has is told "the same" exactly as long as it is, whatever else others change meanwhile.
#[test]
fn beside_changes_304_means_that_the_answer_is_the_same() {
    let broker = start();
    insert(&broker, "0");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let load = || is_over.load(std::sync::atomic::Ordering::SeqCst);
    std::thread::scope(|scope| {
        // What is asked for grows by one at a time, so that an older answer is shorter.
        scope.spawn(|| {
            for n in 1.. {
                insert(&broker, &n.to_string());
                if load() {
                    break;
                }
            }
        });
        scope.spawn(|| {
            for n in 0.. {
                broker.update(&format!("INSERT DATA {{ <urn:other> <urn:q> {n} }}"));
                if load() {
                    break;
                }
            }
        });
        let path = "/query?query=SELECT%20%3Fo%20%7B%20%3Curn%3As%3E%20%3Curn%3Ap%3E%20%3Fo%20%7D";
        let (mut etag, mut rows, mut same) = (String::new(), 0, 0);
        for round in 0..300 {
            // What was confirmed by now is in the answer, or the answer is not "the same".
            let before = broker.query("SELECT (COUNT(*) AS ?n) { <urn:s> <urn:p> ?o }", "text/csv").body;
            let confirmed: usize = before.lines().nth(1).and_then(|n| n.trim().parse().ok()).unwrap();
            let answer = broker.request("GET", path, &[("Accept", "text/csv"), ("If-None-Match", &etag)], b"");
            match answer.status {
                304 => same += 1,
                200 => {
                    rows = answer.body.lines().count() - 1;
                    etag = answer.header("etag").unwrap().to_owned();
                }
                other => panic!("{other}: {}", answer.body),
            }
            assert!(rows >= confirmed, "round {round}: {rows} rows, {confirmed} were confirmed; {}", answer.status);
        }
        is_over.store(true, std::sync::atomic::Ordering::SeqCst);
        assert!(same < 300);
    });
    let path = "/query?query=ASK%20%7B%20%3Curn%3Anever%3E%20%3Curn%3Ap%3E%20%3Fo%20%7D";
    let etag = broker.get(path, "application/sparql-results+json").header("etag").unwrap().to_owned();
    for n in 0..20 {
        insert(&broker, &format!("more {n}"));
        let answer = broker.request("GET", path, &[("If-None-Match", &etag)], b"");
        assert_eq!(answer.status, 304, "it reads nothing of that");
    }
}

/// While there is nothing to hand over, who accepts delegation hears to the letter what others hear, at both doors.
#[test]
fn while_it_is_calm_delegation_changes_no_byte() {
    let broker = start();
    insert(&broker, "a");
    let mut sockets = [None, Some("accept")].map(|accepts| {
        let mut socket = socket(&broker);
        let mut subscribe = serde_json::json!({ "sparql": QUERY, "alias": "a" });
        if let Some(accepts) = accepts {
            subscribe["pace-delegate"] = accepts.into();
        }
        socket.send(Message::text(serde_json::json!({ "subscribe": subscribe }).to_string())).unwrap();
        socket
    });
    let parameter_of = |accepts: bool| {
        if accepts { "<parameter name=\"pace-delegate\">accept</parameter>" } else { "" }
    };
    let mut peers = [false, true].map(|accepts| {
        let mut peer = Peer::new(broker.ssap());
        let asked = format!("{}{}", question(&pattern("urn:s")), parameter_of(accepts));
        peer.send(&message_of("kp1", "SUBSCRIBE", 1, &asked));
        peer
    });
    let of_socket = |socket: &mut WebSocket<TcpStream>| {
        let mut told = hear_any(socket);
        told["notification"]["spuid"] = Value::Null;
        told.to_string()
    };
    let of_peer = |peer: &mut Peer| {
        let told = peer.next();
        let name = told.split_once("subscription_id\">").and_then(|(_, rest)| rest.split_once('<'));
        let name = name.map(|(name, _)| name.to_owned()).unwrap_or_default();
        if name.is_empty() { told } else { told.replace(&name, "NAME") }
    };
    for round in 0..30 {
        let [one, other] = &mut sockets;
        assert_eq!(of_socket(one), of_socket(other), "round {round}");
        let [one, other] = &mut peers;
        let (one, other) = (of_peer(one), of_peer(other));
        // The first answer tells about pace whoever has said anything about it.
        if round > 0 {
            assert_eq!(one, other, "round {round}");
        } else {
            assert!(!other.contains("pace-delegate"), "{other}");
        }
        insert(&broker, &format!("b{round}"));
    }
    assert_eq!(broker.handle().watch().delegated().handed_over, 0);
}
