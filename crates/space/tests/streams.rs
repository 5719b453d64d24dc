//! Answers that are too long to be held, over real sockets: all of it comes, little of it is anywhere at once, a slow reader
//! keeps nobody, and what is broken off is not taken for the whole.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a step that cannot be done has failed the test")]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::Broker;
use tidegate_space::limits::{ANSWER_BYTES_MAX, READERS, STREAM_PIECE_BYTES, STREAM_PIECES_MAX, STREAMERS};
use tidegate_space::{Everybody, LongAnswerConfig, ServiceOptions};

/// Values of so many bytes, together more than an answer that is held.
const VALUE_BYTES: usize = 64 << 10;
const VALUES: usize = ANSWER_BYTES_MAX / VALUE_BYTES + 100;

fn broker(long_answers: LongAnswerConfig) -> Broker {
    let options = ServiceOptions { long_answers, ..ServiceOptions::default() };
    let broker = common::start_by(&options, Arc::new(Everybody));
    for part in (0..VALUES).collect::<Vec<_>>().chunks(150) {
        let line = |number: &usize| format!("<urn:s{number}> <urn:p> \"{number}-{}\" .\n", "x".repeat(VALUE_BYTES));
        let text: String = part.iter().map(line).collect();
        let put = broker.request("POST", "/store?default", &[("Content-Type", "text/turtle")], text.as_bytes());
        assert_eq!(put.status, 204, "{}", put.body);
    }
    broker
}

/// A client that takes what it wants of an answer in chunks.
struct Client {
    stream: TcpStream,
    bytes: Vec<u8>,
    head: String,
}

impl Client {
    fn ask(broker: &Broker, path: &str, accept: &str) -> Self {
        let mut stream = common::connect(broker.http());
        common::send(&mut stream, broker.http(), "GET", path, &[("Accept", accept)], b"");
        Self { stream, bytes: Vec::new(), head: String::new() }
    }

    fn select(broker: &Broker, accept: &str) -> Self {
        Self::ask(broker, "/query?query=SELECT%20%2A%20%7B%3Fs%20%3Fp%20%3Fo%7D", accept)
    }

    fn more(&mut self) -> usize {
        let mut piece = [0; 8 << 10];
        let length = self.stream.read(&mut piece).unwrap_or(0);
        self.bytes.extend_from_slice(&piece[..length]);
        length
    }

    /// Reads the head; the answer comes in chunks.
    fn read_head(&mut self) {
        let end = loop {
            if let Some(end) = self.bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            assert!(self.more() > 0, "{}", String::from_utf8_lossy(&self.bytes));
        };
        self.head = String::from_utf8_lossy(&self.bytes[..end]).to_ascii_lowercase();
        self.bytes.drain(..end + 4);
        // A refusal has no chunks, and would look like an answer that was broken off.
        assert!(self.head.starts_with("http/1.1 200"), "{} {}", self.head, String::from_utf8_lossy(&self.bytes));
    }

    /// The whole body; none if it does not come to its end.
    fn read_body(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line_end = loop {
                match self.bytes.windows(2).position(|window| window == b"\r\n") {
                    Some(end) => break end,
                    None if self.more() == 0 => return None,
                    None => {}
                }
            };
            let size = usize::from_str_radix(std::str::from_utf8(&self.bytes[..line_end]).unwrap(), 16).unwrap();
            while self.bytes.len() < line_end + 4 + size {
                if self.more() == 0 {
                    return None;
                }
            }
            if size == 0 {
                return Some(body);
            }
            body.extend_from_slice(&self.bytes[line_end + 2..line_end + 2 + size]);
            self.bytes.drain(..line_end + 4 + size);
        }
    }
}

/// The values in an answer.
fn values(body: &[u8]) -> usize {
    std::str::from_utf8(body).unwrap().matches("-xxxx").count()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + common::PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}: never");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn streamed(broker: &Broker, end: &str) -> u64 {
    broker.handle().streamed().into_iter().find(|(name, _)| *name == end).unwrap().1
}

#[test]
fn the_whole_of_a_long_answer_comes_in_chunks_in_every_form() {
    let broker = broker(LongAnswerConfig::default());
    let construct = "/query?query=CONSTRUCT%20%7B%3Fs%20%3Fp%20%3Fo%7D%20WHERE%20%7B%3Fs%20%3Fp%20%3Fo%7D";
    let select = "/query?query=SELECT%20%2A%20%7B%3Fs%20%3Fp%20%3Fo%7D";
    let forms = [
        (select, "application/sparql-results+json", "]}}"),
        (select, "application/sparql-results+xml", "</sparql>"),
        (select, "text/csv", ""),
        (select, "text/tab-separated-values", ""),
        (construct, "application/n-triples", ""),
        (construct, "text/turtle", ""),
        ("/store?default", "application/n-triples", ""),
        ("/store?default", "text/turtle", ""),
        ("/store", "application/n-quads", ""),
    ];
    for (path, accept, end) in forms {
        let mut client = Client::ask(&broker, path, accept);
        client.read_head();
        let head = &client.head;
        assert!(
            head.starts_with("http/1.1 200") && head.contains("transfer-encoding: chunked"),
            "{path} {accept} {head}"
        );
        assert!(head.contains(accept) && head.contains("etag: ") && !head.contains("content-length"), "{head}");
        assert!(head.contains("streamed"), "{head}");
        let body = client.read_body().unwrap();
        assert_eq!(values(&body), VALUES, "{path} {accept}");
        assert!(body.ends_with(end.as_bytes()), "{path} {accept}");
    }
    until("all are counted", || streamed(&broker, "whole") == forms.len() as u64);
    // What is short goes on as ever.
    let short = broker.get("/query?query=ASK%20%7B%7D", "application/sparql-results+json");
    assert!(short.header("content-length").is_some() && short.header("etag").is_some(), "{}", short.head);
    until("nothing is held any more", || broker.handle().load().1 < 1 << 20);
}

#[test]
fn slow_readers_hold_little_and_keep_nobody_from_being_answered() {
    let broker = broker(LongAnswerConfig { stall: Duration::from_secs(60), ..LongAnswerConfig::default() });
    // One after the other, until each place has its answer: of those that ask at once any may be the first, and who finds no
    // place waits for as long as its time allows, and is refused then.
    let mut slow: Vec<Client> = Vec::new();
    for _ in 0..STREAMERS {
        let mut client = Client::select(&broker, "text/csv");
        client.read_head();
        slow.push(client);
    }
    // More of them than there are places, and than there are readers.
    slow.extend((0..=READERS).map(|_| Client::select(&broker, "text/csv")));
    // Whatever was found before that it is long is given back, and what is on its way is bounded.
    let room = STREAMERS * (STREAM_PIECES_MAX + 4) * (STREAM_PIECE_BYTES + VALUE_BYTES + 64);
    for _ in 0..50 {
        slow[0].more();
        assert!(broker.handle().load().1 <= room, "{:?} of {room}", broker.handle().load());
    }
    // Of each kind that nobody has asked before.
    for number in 0..10 {
        let text = format!("SELECT ?o {{ <urn:none{number}> <urn:q{number}> ?o }}");
        let answer = broker.query(&text, "text/csv");
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    assert_eq!(broker.update("INSERT DATA { <urn:a> <urn:b> 1 }").status, 200);
    let whole = slow[0].read_body().unwrap();
    assert_eq!(values(&whole), VALUES, "as the data were when it was asked");
}

#[test]
fn what_is_broken_off_does_not_look_like_the_whole_and_is_counted() {
    let broker = broker(LongAnswerConfig { stall: Duration::from_millis(50), ..LongAnswerConfig::default() });
    // Nothing is read of it.
    let mut stalled = Client::select(&broker, "text/csv");
    until("it is ended", || streamed(&broker, "stalled") == 1);
    stalled.read_head();
    assert!(stalled.read_body().is_none(), "what is there of it does not end like the whole");
    let mut left = Client::select(&broker, "text/csv");
    left.read_head();
    drop(left);
    until("it is ended, too", || streamed(&broker, "left") + streamed(&broker, "stalled") == 2);
    until("nothing is held any more", || broker.handle().load().1 < 1 << 20);
}

#[test]
fn a_graph_that_is_constructed_has_an_end_and_rows_and_stored_graphs_have_none() {
    let graph_bytes_max = ANSWER_BYTES_MAX + 50 * VALUE_BYTES;
    let broker = broker(LongAnswerConfig { places: 1, graph_bytes_max, ..LongAnswerConfig::default() });
    // Whichever of its terms is the long one.
    for text in [
        "CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }",
        "CONSTRUCT { ?x ?p 1 } WHERE { ?s ?p ?o BIND(IRI(CONCAT('urn:', ?o)) AS ?x) }",
        "CONSTRUCT { ?s ?x 1 } WHERE { ?s ?p ?o BIND(IRI(CONCAT('urn:', ?o)) AS ?x) }",
        "CONSTRUCT { ?s ?p ?x } WHERE { ?s ?p ?o BIND(STRDT('', IRI(CONCAT('urn:', ?o))) AS ?x) }",
        "DESCRIBE ?s WHERE { ?s ?p ?o }",
    ] {
        let before = streamed(&broker, "too-long");
        let mut client = Client::ask(&broker, &format!("/query?query={}", escaped(text)), "application/n-triples");
        client.read_head();
        assert!(client.head.starts_with("http/1.1 200"), "{text}: {}", client.head);
        assert!(client.read_body().is_none(), "{text}: the whole came");
        until("it is counted", || streamed(&broker, "too-long") == before + 1);
    }
    let select = "/query?query=SELECT%20%2A%20%7B%3Fs%20%3Fp%20%3Fo%7D";
    for (path, accept) in [(select, "text/csv"), ("/store?default", "application/n-triples")] {
        let mut client = Client::ask(&broker, path, accept);
        client.read_head();
        assert_eq!(values(&client.read_body().unwrap()), VALUES, "{path}");
    }
}

#[test]
fn who_says_how_long_it_waits_is_sent_nothing_after_that() {
    let broker = broker(LongAnswerConfig { stall: Duration::from_secs(120), ..LongAnswerConfig::default() });
    let mut client = Client::ask(&broker, "/store?default&timeout=6s", "application/n-triples");
    client.read_head();
    until("its time is over", || streamed(&broker, "cancelled") == 1);
    assert!(client.read_body().is_none(), "what is there of it does not end like the whole");
    until("nothing is held any more", || broker.handle().load().1 < 1 << 20);
}

#[test]
fn an_answer_to_a_query_has_a_length_and_a_graph_that_is_kept_has_its_own() {
    let bytes_max = (ANSWER_BYTES_MAX + 20 * VALUE_BYTES) as u64;
    let broker = broker(LongAnswerConfig { bytes_max, ..LongAnswerConfig::default() });
    for accept in ["text/csv", "application/sparql-results+json"] {
        let before = streamed(&broker, "too-long");
        let mut client = Client::select(&broker, accept);
        client.read_head();
        assert!(client.read_body().is_none(), "{accept}: the whole came");
        until("it is counted", || streamed(&broker, "too-long") == before + 1);
    }
    let mut client = Client::ask(&broker, "/store?default", "application/n-triples");
    client.read_head();
    assert_eq!(values(&client.read_body().unwrap()), VALUES);
}

/// A text in an address.
fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat()
}

#[test]
fn an_operator_who_ends_an_evaluation_breaks_its_answer_off() {
    let broker = broker(LongAnswerConfig { stall: Duration::from_secs(60), ..LongAnswerConfig::default() });
    let mut client = Client::select(&broker, "text/csv");
    client.read_head();
    let running = broker.handle().watch().running();
    assert_eq!(running.len(), 1, "{running:?}");
    assert!(broker.handle().cancel(running[0].number));
    assert!(client.read_body().is_none());
    until("it is counted", || streamed(&broker, "cancelled") == 1);
}

#[test]
fn a_client_of_before_http_1_1_could_not_tell_a_part_from_the_whole_and_is_refused() {
    let broker = broker(LongAnswerConfig::default());
    let mut stream = common::connect(broker.http());
    stream.write_all(format!("GET /store?default HTTP/1.0\r\nHost: {}\r\n\r\n", broker.http()).as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains(" 413 ") && answer.contains("answer-too-long"), "{answer}");
}

#[test]
fn where_no_long_answers_are_sent_one_is_refused_with_the_way_out() {
    let broker = broker(LongAnswerConfig { places: 0, ..LongAnswerConfig::default() });
    let refused = broker.get("/store?default", "application/n-triples");
    assert_eq!(refused.status, 413, "{}", refused.body);
    assert!(refused.body.contains("answer-too-long") && refused.body.contains("LIMIT"), "{}", refused.body);
}
