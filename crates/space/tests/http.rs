//! The HTTP door by its bytes: SPARQL 1.1 Protocol, Graph Store Protocol, refusals.

#![allow(clippy::unwrap_used, reason = "a step that cannot be done has failed the test")]

mod common;

use std::io::{Read, Write};

use common::start;

const JSON: &str = "application/sparql-results+json";

#[test]
fn a_query_comes_in_three_ways_and_an_update_in_two() {
    let broker = start();
    let version = broker.handle().version() + 1;
    let done = broker.update("INSERT DATA { <urn:lamp> <urn:state> 'on' }");
    assert_eq!((done.status, done.body), (200, format!("{{\"changed\":true,\"version\":{version}}}")));
    let expected = r#"{"head":{"vars":["o"]},"results":{"bindings":[{"o":{"type":"literal","value":"on"}}]}}"#;
    let text = "SELECT ?o { <urn:lamp> <urn:state> ?o }";
    let encoded = "SELECT%20%3Fo%20%7B%20%3Curn%3Alamp%3E%20%3Curn%3Astate%3E%20%3Fo%20%7D";
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    for path in ["/query", "/sparql"] {
        let got = broker.get(&format!("{path}?query={encoded}"), JSON);
        assert_eq!((got.status, got.body.as_str()), (200, expected));
        let posted = broker.request("POST", path, &form, format!("query={encoded}").as_bytes());
        assert_eq!((posted.status, posted.body.as_str()), (200, expected));
    }
    assert_eq!(broker.query(text, JSON).body, expected);
    let posted = broker.request("POST", "/sparql", &form, b"update=DELETE+WHERE+%7B%3Fs+%3Fp+%3Fo%7D");
    assert_eq!(posted.status, 200);
    assert_eq!(broker.query("ASK { ?s ?p ?o }", JSON).body, r#"{"head":{},"boolean":false}"#);
}

#[test]
fn answers_come_in_the_format_that_is_asked_for() {
    let broker = start();
    broker.update("INSERT DATA { <urn:a> <urn:b> 'x' }");
    let select = "SELECT ?o { <urn:a> <urn:b> ?o }";
    assert_eq!(broker.query(select, "text/csv").body, "o\r\nx\r\n");
    assert_eq!(broker.query(select, "text/tab-separated-values").body, "?o\n\"x\"\n");
    assert!(broker.query(select, "application/sparql-results+xml").body.contains("<literal>x</literal>"));
    let construct = "CONSTRUCT WHERE { ?s ?p ?o }";
    let triples = broker.query(construct, "application/n-triples");
    assert_eq!((triples.status, triples.body.as_str()), (200, "<urn:a> <urn:b> \"x\" .\n"));
    for format in ["text/turtle", "application/rdf+xml", "application/ld+json", "application/trig"] {
        let answer = broker.query(construct, format);
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(format)), "{}", answer.body);
    }
    let refused = broker.query(select, "image/png");
    assert_eq!((refused.status, refused.header("content-type")), (406, Some("application/problem+json")));
}

#[test]
fn what_makes_no_sense_is_refused_by_its_name() {
    let broker = start();
    let direct = [("Content-Type", "application/sparql-query")];
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    for (method, path, headers, body, status) in [
        ("POST", "/query", &direct[..], "SELEC", 400),
        ("POST", "/query", &direct[..], "SELECT * { SERVICE <urn:x> { ?s ?p ?o } }", 400),
        ("POST", "/update", &[("Content-Type", "application/sparql-update")][..], "LOAD <http://192.0.2.1/>", 400),
        ("POST", "/query", &[("Content-Type", "text/plain")][..], "ASK {}", 415),
        ("POST", "/update", &direct[..], "ASK {}", 415),
        ("GET", "/query", &[][..], "", 400),
        ("GET", "/update?update=x", &[][..], "", 405),
        ("DELETE", "/query", &[][..], "", 405),
        ("GET", "/query?query=ASK%7B%7D&query=ASK%7B%7D", &[][..], "", 400),
        ("GET", "/query?query=ASK%7B%7D&default-graph-uri=relative", &[][..], "", 400),
        ("GET", "/query?query=ASK%7B%7D&timeout=soon", &[][..], "", 400),
        ("POST", "/query?timeout=soon", &form[..], "query=ASK%7B%7D", 400),
        ("GET", "/nothing", &[][..], "", 404),
        ("GET", "/", &[("Host", "evil.example")][..], "", 403),
        ("POST", "/update", &[("Origin", "https://evil.example")][..], "", 403),
        ("PUT", "/store?default", &[("Content-Type", "text/plain;x")][..], "", 204),
        ("PUT", "/store?default", &[("Content-Type", "image/png")][..], "", 415),
        ("PUT", "/store?default", &[("Content-Type", "text/turtle")][..], "<a", 400),
        ("GET", "/store?graph=urn:none", &[][..], "", 404),
    ] {
        let answer = broker.request(method, path, headers, body.as_bytes());
        assert_eq!(answer.status, status, "{method} {path} {body}: {}", answer.body);
        if status >= 400 {
            assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{method} {path}");
        }
    }
    let told = |text: &[u8]| broker.request("POST", "/query", &direct, text).body;
    let update = told(b"INSERT DATA { <urn:a> <urn:b> 1 }");
    assert!(update.contains("this is an update: send it to /update"), "{update}");
    let limit = told(b"SELECT * { ?s ?p ?o } LIMIT x");
    assert!(limit.contains("LIMIT needs a number"), "{limit}");
}

#[test]
fn graphs_are_put_posted_got_and_deleted() {
    let broker = start();
    let turtle = [("Content-Type", "text/turtle")];
    let graph = "/store?graph=urn:g";
    assert_eq!(broker.request("PUT", graph, &turtle, b"").status, 204, "a graph without triples is none");
    assert_eq!(broker.request("PUT", graph, &turtle, b"<urn:a> <urn:b> 1 .").status, 201);
    assert_eq!(broker.request("POST", graph, &turtle, b"<urn:a> <urn:b> 2 .").status, 204);
    let both = broker.get(graph, "application/n-triples").body;
    assert_eq!(both.lines().count(), 2, "{both}");
    assert_eq!(broker.request("PUT", graph, &turtle, b"<urn:a> <urn:b> 3 .").status, 204);
    assert_eq!(broker.get(graph, "application/n-triples").body.lines().count(), 1);
    let all = broker.get("/store", "application/n-quads").body;
    assert_eq!(all, "<urn:a> <urn:b> \"3\"^^<http://www.w3.org/2001/XMLSchema#integer> <urn:g> .\n");
    assert_eq!(broker.request("DELETE", graph, &[], b"").status, 204);
    assert_eq!(broker.request("DELETE", graph, &[], b"").status, 404);
    let scoped = "/query?query=ASK%20%7B%3Fs%20%3Fp%20%3Fo%7D&default-graph-uri=urn:h";
    assert_eq!(broker.request("POST", "/store?graph=urn:h", &turtle, b"<urn:a> <urn:b> 3 .").status, 201);
    assert!(broker.get(scoped, JSON).body.contains("true"));
    assert_eq!(
        broker.request("POST", "/store?default", &turtle, b"<urn:a> <urn:b> 3 .").status,
        204,
        "it is always there"
    );
    let named = "/store?graph=http://e.test/dir/graph";
    assert_eq!(broker.request("PUT", named, &turtle, b"<> <urn:b> <other> .").status, 201);
    let relative = broker.get(named, "application/n-triples").body;
    assert_eq!(relative, "<http://e.test/dir/graph> <urn:b> <http://e.test/dir/other> .\n");
}

#[test]
fn graphs_of_an_update_are_said_once() {
    let broker = start();
    let headers = [("Content-Type", "application/sparql-update")];
    let path = "/update?using-graph-uri=urn:g";
    for update in [
        "WITH <urn:h> DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }",
        "INSERT { <urn:a> <urn:b> ?o } USING <urn:h> WHERE { ?s ?p ?o }",
        "INSERT { <urn:a> <urn:b> ?o } USING NAMED <urn:h> WHERE { GRAPH ?g { ?s ?p ?o } }",
    ] {
        let refused = broker.request("POST", path, &headers, update.as_bytes());
        assert!(
            refused.status == 400 && refused.body.contains("using-graph-uri"),
            "{} {}",
            refused.status,
            refused.body
        );
        let taken = broker.request("POST", "/update", &headers, update.as_bytes());
        assert_eq!(taken.status, 200, "{}", taken.body);
    }
    let taken = broker.request("POST", path, &headers, b"INSERT { <urn:a> <urn:b> ?o } WHERE { ?s ?p ?o }");
    assert_eq!(taken.status, 200, "{}", taken.body);
}

#[test]
fn f106_what_was_confirmed_is_seen_by_every_query_after_it() {
    let broker = start();
    for round in 0..50 {
        let update = format!("DELETE WHERE {{ <urn:n> <urn:v> ?o }}; INSERT DATA {{ <urn:n> <urn:v> {round} }}");
        assert_eq!(broker.update(&update).status, 200);
        for _ in 0..2 {
            let answer = broker.query("SELECT ?o { <urn:n> <urn:v> ?o }", "text/csv");
            assert_eq!(answer.body, format!("o\r\n{round}\r\n"), "{}", answer.head);
        }
    }
    let counts = broker.handle().counts();
    assert!(counts.contains(&("query", "remembered", 50)), "{counts:?}");
}

#[test]
fn an_answer_that_is_known_already_is_not_sent_again() {
    let broker = start();
    broker.update("INSERT DATA { <urn:a> <urn:b> 1 }");
    let path = "/query?query=SELECT%20*%20%7B%3Fs%20%3Fp%20%3Fo%7D";
    let tag = broker.get(path, JSON).header("etag").unwrap().to_owned();
    let again = || broker.request("GET", path, &[("If-None-Match", &tag)], b"");
    assert_eq!((again().status, again().body.as_str()), (304, ""));
    broker.update("INSERT DATA { <urn:a> <urn:b> 2 }");
    assert_eq!(again().status, 200);
    let now = "/query?query=SELECT%20(NOW()%20AS%20%3Ft)%20%7B%7D";
    assert_eq!(broker.get(now, JSON).header("etag"), None, "what depends on time has no version");
}

#[test]
fn a_tag_is_of_one_form_and_is_compared_as_the_standard_says() {
    let broker = start();
    broker.update("INSERT DATA { <urn:a> <urn:b> 1 }");
    let path = "/query?query=SELECT%20*%20%7B%3Fs%20%3Fp%20%3Fo%7D";
    let tag = |accept| broker.get(path, accept).header("etag").unwrap().to_owned();
    let (json, csv) = (tag(JSON), tag("text/csv"));
    assert_ne!(json, csv, "who has the one does not have the other");
    let status = |accept, seen: &str| {
        let answer = broker.request("GET", path, &[("Accept", accept), ("If-None-Match", seen)], b"");
        assert!(answer.status == 200 || answer.header("vary").is_some(), "{}", answer.head);
        answer.status
    };
    assert_eq!((status(JSON, &json), status("text/csv", &csv)), (304, 304));
    assert_eq!((status(JSON, &csv), status("text/csv", &json)), (200, 200));
    let strong = json.trim_start_matches("W/");
    for seen in [strong, &format!("W/{strong}"), &format!("\"other\", {json}"), &format!("{csv},{json}"), "*"] {
        assert_eq!(status(JSON, seen), 304, "{seen}");
    }
    for seen in ["", "\"", "W/", "\"*\"", &json[..json.len() - 1], strong.trim_matches('"')] {
        assert_eq!(status(JSON, seen), 200, "{seen}");
    }
}

/// One user, ann, whose password is x.
#[derive(Debug)]
struct OneUser(tidegate_space::AccessMode);

impl tidegate_space::AccessPolicy for OneUser {
    fn rule(&self) -> tidegate_space::AccessMode {
        self.0
    }

    fn generation(&self) -> u64 {
        0
    }

    fn check(
        &self,
        user: String,
        password: Vec<u8>,
        from: std::net::IpAddr,
        verdict: Box<dyn FnOnce(bool) + Send>,
    ) -> tidegate_space::Checked {
        assert!(from.is_loopback(), "the door says where it comes from");
        if user == "bob" {
            return tidegate_space::Checked::Wait(std::time::Duration::from_millis(2500));
        }
        verdict(user == "ann" && password == b"x");
        tidegate_space::Checked::Asked
    }
}

#[test]
fn with_users_writing_needs_one_and_reading_as_the_rule_says() {
    use tidegate_space::AccessMode;
    let (right, wrong) = ("Basic YW5uOng=", "Basic YW5uOnk=");
    for (rule, read) in [(AccessMode::Users, 401), (AccessMode::ReadersOpen, 200)] {
        let broker = common::start_with(tidegate_graph::SpaceLimits::default(), std::sync::Arc::new(OneUser(rule)));
        let ask = |method: &str, path: &str, who: Option<&str>| {
            let mut headers = vec![("Content-Type", "application/sparql-update"), ("Host", "any.example")];
            headers.extend(who.map(|who| ("Authorization", who)));
            broker.request(method, path, &headers, b"INSERT DATA { <urn:a> <urn:b> 1 }")
        };
        let refused = ask("POST", "/update", None);
        assert_eq!((refused.status, refused.header("www-authenticate").is_some()), (401, true));
        assert_eq!(ask("POST", "/update", Some(wrong)).status, 401);
        let waits = ask("POST", "/update", Some("Basic Ym9iOng="));
        assert_eq!((waits.status, waits.header("retry-after")), (429, Some("3")), "he has guessed before");
        assert_eq!(ask("POST", "/sparql", None).status, 401, "it may be an update");
        assert_eq!(ask("POST", "/update", Some(right)).status, 200);
        assert_eq!(ask("POST", "/update", Some(right)).status, 200, "and again, remembered");
        assert_eq!(ask("GET", "/query?query=ASK%7B%7D", None).status, 401, "by a name of anybody's");
        assert_eq!(broker.get("/query?query=ASK%7B%7D", "*/*").status, read);
        assert_eq!(ask("GET", "/query?query=ASK%7B%7D", Some(right)).status, 200);
    }
}

/// What is too long by its own word is refused by its head: nobody waits for it, and nothing is set aside.
#[test]
fn a_body_that_announces_too_much_is_refused_at_once() {
    let broker = start();
    let mut stream = common::connect(broker.http());
    let head = "POST /update HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/sparql-update\r\nContent-Length: \
                4000000000\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut line = [0; 12];
    stream.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"HTTP/1.1 413");
}
