//! `SERVICE`, with a second space as the endpoint: what it gives, whom it asks, and what becomes of a query whose endpoint does not
//! answer as it should.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a step that cannot be done has failed the test")]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use common::{Broker, Response};
use tidegate_space::limits::{SERVICE_BYTES_MAX, SERVICE_CALLS_MAX, SERVICE_ROWS_MAX};
use tidegate_space::{Everybody, ServiceEndpoint, ServiceOptions};

const CSV: &str = "text/csv";

fn iri(at: SocketAddr) -> String {
    format!("http://{at}/sparql")
}

/// A space whose queries may ask these.
fn asking(endpoints: &[String]) -> Broker {
    let services = endpoints.iter().map(|it| ServiceEndpoint::parse(it).unwrap()).collect();
    let broker = common::start_by(&ServiceOptions { services, ..ServiceOptions::default() }, Arc::new(Everybody));
    let data = "INSERT DATA { <urn:lamp1> <urn:in> <urn:kitchen> . <urn:lamp2> <urn:in> <urn:hall> }";
    assert_eq!(broker.update(data).status, 200);
    broker
}

fn floors(endpoint: &str) -> String {
    format!("SELECT ?lamp ?floor {{ ?lamp <urn:in> ?room SERVICE <{endpoint}> {{ ?room <urn:floor> ?floor }} }}")
}

/// An endpoint that answers every request so, as soon as it has its head.
fn endpoint(answer: impl Into<Vec<u8>>) -> String {
    let (listener, answer) = (TcpListener::bind("127.0.0.1:0").unwrap(), answer.into());
    let name = iri(listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut piece = [0; 4096];
            let _ = stream.read(&mut piece);
            let _ = stream.write_all(&answer);
        }
    });
    name
}

fn calls(broker: &Broker, outcome: &str) -> u64 {
    broker.handle().service_calls().into_iter().find(|(name, _)| *name == outcome).unwrap().1
}

fn refused(answer: &Response, status: u16, words: &[&str]) {
    assert_eq!(answer.status, status, "{}", answer.body);
    for words in words {
        assert!(answer.body.contains(words), "{words:?} is not in {}", answer.body);
    }
}

#[test]
fn a_query_asks_another_space_and_joins_what_it_says() {
    let other = common::start();
    let there = iri(other.http());
    assert_eq!(other.update("INSERT DATA { <urn:kitchen> <urn:floor> 1 . <urn:cellar> <urn:floor> -1 }").status, 200);
    let broker = asking(std::slice::from_ref(&there));
    let answer = broker.query(&floors(&there), CSV);
    assert_eq!((answer.status, answer.body.trim()), (200, "lamp,floor\r\nurn:lamp1,1"), "{}", answer.head);
    assert!(answer.header("etag").is_none() && answer.header("pace-version").is_none(), "{}", answer.head);
    // Nothing of it is remembered: the other space changes without a word.
    assert_eq!(other.update("INSERT DATA { <urn:hall> <urn:floor> 0 }").status, 200);
    let again = broker.query(&floors(&there), CSV);
    assert_eq!(again.body.lines().count(), 3, "{}", again.body);
    assert_eq!(calls(&broker, "answered"), 2);
    let graph = format!("CONSTRUCT {{ ?r <urn:f> ?f }} WHERE {{ SERVICE <{there}> {{ ?r <urn:floor> ?f }} }}");
    assert_eq!(broker.query(&graph, "application/n-triples").body.lines().count(), 3);
}

#[test]
fn whoever_is_not_in_the_list_is_not_asked_and_the_setting_is_named() {
    let other = common::start();
    let (there, nobody) = (iri(other.http()), "http://169.254.169.254/latest".to_owned());
    let closed = asking(&[]);
    refused(&closed.query(&floors(&there), CSV), 400, &["SERVICE is not allowed", "space.services"]);
    let broker = asking(std::slice::from_ref(&there));
    refused(&broker.query(&floors(&nobody), CSV), 400, &[&nobody, "the setting space.services does not name it"]);
    let silent = floors(&nobody).replace("SERVICE", "SERVICE SILENT");
    refused(&broker.query(&silent, CSV), 400, &["space.services"]);
    refused(&broker.query("SELECT * { ?s ?p ?x SERVICE ?x { ?s ?p ?o } }", CSV), 400, &["has to be named"]);
    let nested = format!("SELECT * {{ SERVICE <{there}> {{ SERVICE <{there}> {{ ?s ?p ?o }} }} }}");
    refused(&broker.query(&nested, CSV), 400, &["SERVICE within SERVICE"]);
    let many = format!("SELECT * {{ {} }}", format!("SERVICE <{there}> {{ ?s ?p 1 }} ").repeat(SERVICE_CALLS_MAX + 1));
    refused(&broker.query(&many, CSV), 413, &["at most 4"]);
    // An update, a rule and a standing query are evaluated again and again, with everybody waiting.
    let update = format!("INSERT {{ ?r <urn:f> ?f }} WHERE {{ SERVICE <{there}> {{ ?r <urn:floor> ?f }} }}");
    refused(&broker.update(&update), 400, &["SERVICE is not allowed", "standing queries"]);
    let standing: String = form_urlencoded::byte_serialize(floors(&there).as_bytes()).collect();
    let check = broker.get(&format!("/check?query={standing}"), "application/json");
    refused(&check, 400, &["SERVICE is not allowed", "standing queries"]);
    assert_eq!((calls(&broker, "answered"), calls(&broker, "failed")), (0, 0));
}

#[test]
fn an_endpoint_that_fails_is_said_by_name_and_a_silent_clause_says_nothing() {
    let gone = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        iri(listener.local_addr().unwrap())
    };
    let other = common::start();
    let elsewhere = format!("HTTP/1.1 302 Found\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n", iri(other.http()));
    let leads_on = endpoint(elsewhere);
    let ok = |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let no_json = endpoint(ok("<html>"));
    let truth = endpoint(ok("{\"head\":{},\"boolean\":true}"));
    let long = endpoint(ok(&" ".repeat(SERVICE_BYTES_MAX + 1)));
    let row = "{\"room\":{\"type\":\"uri\",\"value\":\"urn:x\"}},".repeat(SERVICE_ROWS_MAX) + "{}";
    let many = endpoint(ok(&format!("{{\"head\":{{\"vars\":[\"room\"]}},\"results\":{{\"bindings\":[{row}]}}}}")));
    let cases = [
        (&gone, "refused"),
        (&leads_on, "nobody is followed elsewhere"),
        (&no_json, "no result in JSON"),
        (&truth, "a truth value"),
        (&long, "more than 4 MiB"),
        (&many, "more than 10000 rows"),
    ];
    let broker = asking(&cases.map(|(name, _)| name.clone()));
    for (name, words) in cases {
        let answer = broker.query(&floors(name), CSV);
        refused(&answer, 502, &["service-failed", name, words]);
        let silent = broker.query(&floors(name).replace("SERVICE", "SERVICE SILENT"), CSV);
        assert_eq!((silent.status, silent.body.lines().count()), (200, 3), "{name} {}", silent.body);
    }
}

#[test]
fn an_endpoint_that_hangs_keeps_nobody_else_waiting() {
    // It takes connections and says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let hangs = iri(listener.local_addr().unwrap());
    let broker = asking(std::slice::from_ref(&hangs));
    let text = floors(&hangs);
    let kind = [("Content-Type", "application/sparql-query"), ("Accept", CSV)];
    let ask = || broker.request("POST", "/query?timeout=1s", &kind, text.as_bytes());
    thread::scope(|scope| {
        // More than there are threads that evaluate or read texts.
        let waiting: Vec<_> = (0..10).map(|_| scope.spawn(ask)).collect();
        let mut held = Vec::new();
        while held.len() < 10 {
            held.push(listener.accept().unwrap());
        }
        for number in 0..10 {
            let other = broker.query(&format!("ASK {{ <urn:{number}> <urn:p> 1 }}"), "application/sparql-results+json");
            assert_eq!(other.status, 200, "{}", other.body);
        }
        for answer in waiting.into_iter().map(|it| it.join().unwrap()) {
            refused(&answer, 502, &["takes too long"]);
        }
    });
}
