//! Rights to graphs, over sockets: what somebody may read is all there is for it, what it may not write is refused whole, and
//! nothing that was remembered or stands for others reaches it.

#![allow(clippy::unwrap_used, reason = "a step that cannot be done has failed the test")]

mod common;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{Broker, Peer, Response, graph, message, parameter, pattern, question, triple};
use tidegate_graph::{GraphList, GraphNames, GraphRights, SpaceLimits};
use tidegate_space::{AccessMode, AccessPolicy, Checked, TokenHolder, TokenVerdict};

/// Ann may do everything, Bob reads the default graph and has graphs of his own, everybody else reads the default graph.
/// After a reload Bob has nothing but the default graph.
#[derive(Debug, Default)]
struct Rights(AtomicU64);

fn list(names: &[&str]) -> GraphList {
    let name = |name: &&str| match *name {
        "default" => GraphNames::Default,
        "*" => GraphNames::Every,
        other => GraphNames::Matching(other.into()),
    };
    GraphList { allow: names.iter().map(name).collect(), deny: Vec::new() }
}

impl AccessPolicy for Rights {
    fn rule(&self) -> AccessMode {
        AccessMode::Users
    }

    fn generation(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn rights(&self, user: Option<&str>) -> Option<Arc<GraphRights>> {
        let (read, write) = match (user, self.generation()) {
            (Some("ann"), _) => (list(&["*"]), list(&["*"])),
            (Some("bob"), 0) => (list(&["default", "urn:bob/*"]), list(&["urn:bob/*"])),
            _ => (list(&["default"]), list(&[])),
        };
        Some(Arc::new(GraphRights { read, write }))
    }

    /// Bob's, valid for a moment or for long.
    fn check_token(&self, token: Vec<u8>, _: IpAddr, verdict: TokenVerdict) -> Checked {
        let valid_for = Duration::from_millis(if token == b"short" { 300 } else { 3_600_000 });
        let holder = TokenHolder { user: "bob".into(), valid_for: Some(valid_for) };
        verdict(matches!(&*token, b"short" | b"long").then_some(holder));
        Checked::Asked
    }

    /// Those of bob, with the second reload.
    fn is_taken_back(&self, user: &str, shown_s: u64) -> bool {
        user == "bob" && shown_s > 0 && self.generation() > 1
    }

    fn check(&self, _: String, password: Vec<u8>, _: IpAddr, verdict: Box<dyn FnOnce(bool) + Send>) -> Checked {
        verdict(password == b"secret");
        Checked::Asked
    }
}

const ANN: (&str, &str) = ("Authorization", "Basic YW5uOnNlY3JldA==");
const BOB: (&str, &str) = ("Authorization", "Basic Ym9iOnNlY3JldA==");
const TURTLE: (&str, &str) = ("Content-Type", "text/turtle");

fn start() -> (Broker, Arc<Rights>) {
    let policy = Arc::new(Rights::default());
    let broker = common::start_with(SpaceLimits::default(), Arc::clone(&policy) as Arc<dyn AccessPolicy>);
    let data = "INSERT DATA { <urn:x> <urn:p> 0 GRAPH <urn:bob/1> { <urn:x> <urn:p> 1 } GRAPH <urn:ann> { <urn:x> <urn:p> 2 } }";
    assert_eq!(update(&broker, ANN, data).status, 200);
    (broker, policy)
}

fn update(broker: &Broker, who: (&str, &str), text: &str) -> Response {
    broker.request("POST", "/update", &[who, ("Content-Type", "application/sparql-update")], text.as_bytes())
}

fn query(broker: &Broker, who: (&str, &str), text: &str) -> Response {
    let headers = [who, ("Content-Type", "application/sparql-query"), ("Accept", "text/csv")];
    broker.request("POST", "/query", &headers, text.as_bytes())
}

fn lines(answer: &Response) -> Vec<String> {
    assert_eq!(answer.status, 200, "{}", answer.body);
    let mut lines: Vec<String> = answer.body.lines().skip(1).map(|line| line.trim().to_owned()).collect();
    lines.sort();
    lines
}

#[test]
fn each_asker_gets_its_own_answer_however_often_and_whoever_asked_before() {
    let (broker, _) = start();
    let all = "SELECT ?g ?o { GRAPH ?g { ?s ?p ?o } }";
    let counted = "SELECT (COUNT(*) AS ?n) { GRAPH ?g { ?s ?p ?o } }";
    for _ in 0..3 {
        assert_eq!(lines(&query(&broker, ANN, all)), ["urn:ann,2", "urn:bob/1,1"]);
        assert_eq!(lines(&query(&broker, BOB, all)), ["urn:bob/1,1"]);
        assert_eq!(lines(&query(&broker, ANN, counted)), ["2"]);
        assert_eq!(lines(&query(&broker, BOB, counted)), ["1"]);
        assert_eq!(lines(&query(&broker, BOB, "SELECT ?o { GRAPH <urn:ann> { ?s ?p ?o } }")), [""; 0]);
        assert_eq!(lines(&query(&broker, BOB, "SELECT ?o FROM <urn:ann> { ?s ?p ?o }")), [""; 0]);
        assert_eq!(lines(&query(&broker, BOB, "SELECT ?g { GRAPH ?g {} }")), ["urn:bob/1"]);
    }
    // What Ann has seen is no answer for Bob, and the other way round.
    let of = |who| broker.request("GET", "/query?query=SELECT+%3Fo+%7BGRAPH+%3Fg+%7B%3Fs+%3Fp+%3Fo%7D%7D", &[who], b"");
    let (ann, bob) = (of(ANN), of(BOB));
    let again = |who, tag: &str| {
        let path = "/query?query=SELECT+%3Fo+%7BGRAPH+%3Fg+%7B%3Fs+%3Fp+%3Fo%7D%7D";
        broker.request("GET", path, &[who, ("If-None-Match", tag)], b"").status
    };
    let (ann_tag, bob_tag) = (ann.header("etag").unwrap().to_owned(), bob.header("etag").unwrap().to_owned());
    assert_eq!((again(ANN, &ann_tag), again(BOB, &bob_tag)), (304, 304));
    assert_eq!((again(ANN, &bob_tag), again(BOB, &ann_tag)), (200, 200));
    assert!(bob.header("pace-version").is_none(), "a number says nothing of rights");
}

#[test]
fn what_touches_a_graph_without_the_right_is_refused_whole() {
    let (broker, _) = start();
    for text in [
        "INSERT DATA { <urn:x> <urn:p> 3 }",
        "INSERT DATA { GRAPH <urn:bob/2> { <urn:x> <urn:p> 3 } GRAPH <urn:ann> { <urn:x> <urn:p> 3 } }",
        "CLEAR ALL",
        "DROP NAMED",
        "COPY <urn:ann> TO <urn:bob/1>",
        "MOVE DEFAULT TO <urn:bob/1>",
        "DELETE WHERE { GRAPH <urn:ann> { ?s ?p ?o } }",
    ] {
        let answer = update(&broker, BOB, text);
        assert_eq!(answer.status, 403, "{text}: {}", answer.body);
        assert!(answer.body.contains("graph-forbidden") && answer.body.contains("no right to"), "{}", answer.body);
    }
    let store =
        |method: &str, path: &str, body: &str| broker.request(method, path, &[BOB, TURTLE], body.as_bytes()).status;
    let triple = "<urn:y> <urn:p> 4 .";
    assert_eq!(store("PUT", "/store?graph=urn:ann", triple), 403);
    assert_eq!(store("POST", "/store?default", triple), 403);
    assert_eq!(store("DELETE", "/store?graph=urn:ann", ""), 403);
    assert_eq!(store("DELETE", "/store", ""), 403);
    assert_eq!(store("GET", "/store?graph=urn:ann", ""), 403);
    assert_eq!(store("GET", "/store?graph=urn:none", ""), 403, "whether there is one is not told");
    let trig = [BOB, ("Content-Type", "application/trig")];
    let mixed = b"GRAPH <urn:bob/3> { <urn:y> <urn:p> 5 } GRAPH <urn:ann> { <urn:y> <urn:p> 5 }";
    assert_eq!(broker.request("POST", "/store", &trig, mixed).status, 403);
    assert_eq!(broker.request("PUT", "/store", &trig, b"GRAPH <urn:bob/3> { <urn:y> <urn:p> 5 }").status, 403);
    assert_eq!(
        lines(&query(&broker, ANN, "SELECT ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }")),
        ["0", "1", "2"]
    );
    // And what is his is his.
    assert_eq!(store("PUT", "/store?graph=urn:bob/2", triple), 201);
    assert_eq!(broker.request("POST", "/store", &trig, b"GRAPH <urn:bob/3> { <urn:y> <urn:p> 5 }").status, 204);
    let seen = broker.request("GET", "/store", &[BOB, ("Accept", "application/n-quads")], b"").body;
    assert!(seen.contains("<urn:bob/3>") && seen.contains("<urn:bob/2>") && !seen.contains("urn:ann"), "{seen}");
    assert_eq!(update(&broker, BOB, "DELETE WHERE { GRAPH <urn:bob/3> { ?s ?p ?o } }").status, 200);
    assert_eq!(store("DELETE", "/store?graph=urn:bob/2", ""), 204);
}

type Socket = tungstenite::WebSocket<tungstenite::stream::MaybeTlsStream<std::net::TcpStream>>;

fn socket(broker: &Broker, who: (&str, &str)) -> Socket {
    let request = tungstenite::ClientRequestBuilder::new(format!("ws://{}/subscribe", broker.http()).parse().unwrap());
    tungstenite::connect(request.with_header(who.0, who.1)).unwrap().0
}

/// The next message that is no sign of life.
fn hear(socket: &mut Socket) -> String {
    loop {
        if let tungstenite::Message::Text(text) = socket.read().unwrap() {
            return text.to_string();
        }
    }
}

#[test]
fn a_socket_ends_with_the_token_that_it_was_opened_with() {
    let (broker, _) = start();
    let mut bob = socket(&broker, ("Authorization", "Bearer short"));
    bob.send(r#"{"subscribe":{"sparql":"SELECT ?o { <urn:x> ?p ?o }","alias":"a"}}"#.into()).unwrap();
    assert!(hear(&mut bob).contains("spuid"));
    let closed = loop {
        if let tungstenite::Message::Close(Some(frame)) = bob.read().unwrap() {
            break frame;
        }
    };
    assert_eq!(u16::from(closed.code), 1008);
    assert!(closed.reason.contains("the token has expired"), "{}", closed.reason);
}

#[test]
fn a_socket_ends_when_its_token_is_taken_back_and_not_with_every_reload() {
    let (broker, policy) = start();
    let mut bob = socket(&broker, ("Authorization", "Bearer long"));
    let mut by_password = socket(&broker, BOB);
    let subscribe = r#"{"subscribe":{"sparql":"SELECT ?o { <urn:x> ?p ?o }","alias":"a"}}"#;
    policy.0.fetch_add(1, Ordering::SeqCst);
    bob.send(subscribe.into()).unwrap();
    assert!(hear(&mut bob).contains("spuid"), "a reload keeps it");
    policy.0.fetch_add(1, Ordering::SeqCst);
    // Nobody has to say anything for that.
    let closed = loop {
        if let tungstenite::Message::Close(Some(frame)) = bob.read().unwrap() {
            break frame;
        }
    };
    assert_eq!(u16::from(closed.code), 1008);
    assert!(closed.reason.contains("taken back"), "{}", closed.reason);
    by_password.send(subscribe.into()).unwrap();
    assert!(hear(&mut by_password).contains("spuid"), "who came with a password stays");
}

#[test]
fn a_subscription_tells_of_readable_graphs_only_and_ends_with_the_rights() {
    let (broker, policy) = start();
    let mut bob = socket(&broker, BOB);
    bob.send(r#"{"subscribe":{"sparql":"SELECT ?g ?o { GRAPH ?g { ?s ?p ?o } }","alias":"a"}}"#.into()).unwrap();
    let first = hear(&mut bob);
    assert!(first.contains("urn:bob/1") && !first.contains("urn:ann"), "{first}");
    update(&broker, ANN, "INSERT DATA { GRAPH <urn:ann> { <urn:x> <urn:p> 8 } }");
    update(&broker, ANN, "INSERT DATA { GRAPH <urn:bob/9> { <urn:x> <urn:p> 9 } }");
    let told = hear(&mut bob);
    assert!(told.contains("urn:bob/9") && !told.contains("urn:ann"), "{told}");
    // The same number and name, with other rights: what was missed is not told.
    policy.0.fetch_add(1, Ordering::SeqCst);
    update(&broker, ANN, "INSERT DATA { GRAPH <urn:bob/9> { <urn:x> <urn:p> 10 } }");
    let ended = hear(&mut bob);
    assert!(ended.contains("subscription_ended") && ended.contains("rights") && !ended.contains("urn:bob"), "{ended}");
    assert!(hear(&mut bob).contains("unsubscribed"));
    bob.send(r#"{"subscribe":{"sparql":"SELECT ?g { GRAPH ?g { ?s ?p ?o } }"}}"#.into()).unwrap();
    let anew = hear(&mut bob);
    assert!(anew.contains(r#""bindings":[]"#), "the same socket, with the rights of now: {anew}");
    assert_eq!(lines(&query(&broker, BOB, "SELECT ?g { GRAPH ?g { ?s ?p ?o } }")), [""; 0]);
}

#[test]
fn over_ssap_somebody_without_a_name_has_the_rights_of_nobody_in_particular() {
    let (broker, _) = start();
    let mut peer = Peer::new(broker.ssap());
    peer.send(&message("INSERT", 1, &graph("insert_graph", &triple("urn:y", "urn:p", "z"))));
    let refused = peer.next();
    assert_eq!(parameter(&refused, "status"), "m3:KP.Error.Request", "{refused}");
    assert!(refused.contains("no right to write the default graph"), "{refused}");
    peer.send(&message("QUERY", 2, &question(&pattern("urn:x"))));
    assert!(peer.next().contains("m3:Success"));
    let sparql = "<parameter name=\"type\">sparql</parameter><parameter name=\"query\">SELECT ?g { GRAPH ?g { ?s ?p ?o } }</parameter>";
    peer.send(&message("QUERY", 3, sparql));
    let seen = peer.next();
    assert!(seen.contains("m3:Success") && !seen.contains("urn:ann") && !seen.contains("urn:bob"), "{seen}");
}
