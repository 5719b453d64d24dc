//! Topics over HTTP, on sockets: messages cross between doors, streams go on after their socket, and who asks is asked.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use support::tls::Authority;
use support::{Client, Stream, address, config, listener, start, start_with, tcp};
use tidegate_broker::Broker;
use tidegate_broker::authenticate::{Authenticator, Credentials, LoginRefusal};
use tidegate_broker::config::{Config, ListenerKind};
use tidegate_broker::store_link::StoreConfig;
use tidegate_store::Durability;
use tidegate_wire_mqtt::{QoS, Version};

const EVENTS: &str = "Accept: text/event-stream\r\n";

fn both(shards: usize) -> Config {
    let listeners = vec![listener(ListenerKind::Mqtt), listener(ListenerKind::HttpTopics)];
    Config { listeners, shards, ..config() }
}

/// A connection that speaks HTTP.
struct Web<S = TcpStream>(BufReader<S>);

/// A response: its status, its head and its body.
#[derive(Debug)]
struct Heard {
    status: u16,
    head: String,
    body: String,
}

impl Web {
    fn open(broker: &Broker) -> Self {
        Self(BufReader::new(tcp(address(broker, ListenerKind::HttpTopics))))
    }
}

impl<S: Stream> Web<S> {
    fn send(&mut self, line: &str, fields: &str, body: &str) {
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let text = format!("{line} HTTP/1.1\r\nHost: localhost\r\n{length}{fields}\r\n{body}");
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
        self.0.get_mut().flush().unwrap();
    }

    fn head(&mut self) -> (u16, String) {
        let mut head = String::new();
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "closed: {head}");
            if line == "\r\n" {
                break;
            }
            head.push_str(&line);
        }
        (head[9..12].parse().unwrap(), head)
    }

    fn hear(&mut self) -> Heard {
        let (status, head) = self.head();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        Heard { status, head, body: String::from_utf8(body).unwrap() }
    }

    fn ask(&mut self, line: &str, fields: &str, body: &str) -> Heard {
        self.send(line, fields, body);
        self.hear()
    }

    /// The next event: its id and its data, whichever there are.
    fn event(&mut self) -> (String, String) {
        let (mut id, mut data) = (String::new(), String::new());
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ended");
            match line.trim_end().split_once(": ") {
                Some(("id", text)) => text.clone_into(&mut id),
                Some(("data", text)) => text.clone_into(&mut data),
                None if line == "\n" && !(id.is_empty() && data.is_empty()) => return (id, data),
                _ => {}
            }
        }
    }

    fn is_closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0; 1]), Ok(0) | Err(_))
    }
}

/// A stream, and the id that it begins with.
fn stream(broker: &Broker, target: &str, fields: &str) -> (Web, String) {
    let mut web = Web::open(broker);
    web.send(&format!("GET {target}"), &format!("{EVENTS}{fields}"), "");
    let (status, head) = web.head();
    assert!(status == 200 && head.contains("text/event-stream"), "{head}");
    let (id, _) = web.event();
    (web, id)
}

/// Answers wait for the disk there.
#[test]
fn with_a_store_every_answer_comes_in_its_turn_and_before_the_connection_ends() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_owned();
    let store = StoreConfig { dir, durability: Durability::Always, strict: false, size_max: None };
    let broker = start(Config { store: Some(store), ..both(1) });
    for number in 0..20 {
        let last = Web::open(&broker).ask(&format!("PUT /topics/last/{number}"), "Connection: close\r\n", "1");
        assert_eq!(last.status, 201, "{}", last.head);
    }
    let mut web = Web::open(&broker);
    let put = |number: u32| format!("PUT /topics/a/{number} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n1");
    let rest = "GET /topics/none HTTP/1.1\r\nHost: localhost\r\n\r\nPOST /topics/b?qos=0 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n1";
    for number in 0..20 {
        web.0.get_mut().write_all(format!("{}{rest}", put(number)).as_bytes()).unwrap();
        assert_eq!([web.hear(), web.hear(), web.hear()].map(|heard| heard.status), [201, 404, 202]);
    }
    broker.shutdown();
}

#[test]
fn messages_cross_between_mqtt_and_http_once_each() {
    for shards in [1, 2] {
        let broker = start(both(shards));
        let mut mqtt = Client::tcp(address(&broker, ListenerKind::Mqtt), Version::V5, "m");
        mqtt.subscribe("home/#", QoS::AtLeastOnce);
        let (mut reader, _) = stream(&broker, "/topics/home/%23", "");
        let mut web = Web::open(&broker);
        assert_eq!(web.ask("PUT /topics/home/t", "", "21.5").status, 201);
        assert_eq!(web.ask("POST /topics/home/event?qos=0", "", "door").status, 202);
        let found = [mqtt.message(), mqtt.message()].map(|message| (message.topic, message.payload));
        let expected = [("home/t".to_owned(), b"21.5".to_vec()), ("home/event".to_owned(), b"door".to_vec())];
        assert_eq!(found, expected, "{shards} shards");
        mqtt.publish("home/x", b"from MQTT");
        let heard = [reader.event(), reader.event(), reader.event()].map(|(_, data)| data);
        let from = |topic: &str, payload: &str| format!("{{\"topic\":\"{topic}\",\"payload\":\"{payload}\"}}");
        assert_eq!(heard, [from("home/t", "21.5"), from("home/event", "door"), from("home/x", "from MQTT")]);
        let state = web.ask("GET /topics/home/t", "", "");
        assert_eq!((state.status, state.body.as_str()), (200, "21.5"));
        assert_eq!(web.ask("DELETE /topics/home/t", "", "").status, 204);
        assert_eq!(web.ask("GET /topics/home/t", "", "").status, 404);
        broker.shutdown();
    }
}

#[test]
fn a_stream_goes_on_after_its_socket_and_tells_what_is_not_there_any_more() {
    for shards in [1, 2] {
        let broker = start(both(shards));
        let mut web = Web::open(&broker);
        let (mut reader, _) = stream(&broker, "/topics/%23", "");
        web.ask("POST /topics/a", "", "1");
        let (id, _) = reader.event();
        drop(reader);
        for number in 2..5 {
            assert_eq!(web.ask("POST /topics/a", "", &number.to_string()).status, 204);
        }
        let mut back = Web::open(&broker);
        back.send("GET /topics/%23", &format!("{EVENTS}Last-Event-ID: {id}\r\n"), "");
        assert_eq!(back.head().0, 200);
        let payloads: Vec<String> = (0..3).map(|_| back.event().1).collect();
        assert!(payloads.iter().zip(2..).all(|(data, number)| data.contains(&format!("\"{number}\""))), "{payloads:?}");
        let (_lost, _) = stream(&broker, "/topics/%23", "Last-Event-ID: nobody-7\r\n");
        broker.shutdown();
    }
}

#[test]
fn a_stream_that_nobody_comes_back_to_ends_with_its_session() {
    let broker = Broker::start_by_hand(
        both(2),
        Arc::new(tidegate_broker::authenticate::Anonymous),
        Arc::new(tidegate_core::access::Open),
    )
    .unwrap();
    let (reader, id) = stream(&broker, "/topics/%23", "");
    drop(reader);
    let patience = std::time::Instant::now();
    while broker.sockets() > 0 {
        assert!(patience.elapsed() < support::PATIENCE);
        broker.advance(Duration::from_millis(1));
    }
    // Counters are shown now and then, by the clock that is set by hand.
    broker.advance(Duration::from_secs(1));
    broker.advance(Duration::from_secs(1));
    assert_eq!(broker.stats().sessions, 1, "it waits");
    broker.advance(Duration::from_secs(61));
    broker.advance(Duration::from_secs(1));
    broker.advance(Duration::from_secs(1));
    assert_eq!(broker.stats().sessions, 0);
    let mut back = Web::open(&broker);
    back.send("GET /topics/%23", &format!("{EVENTS}Last-Event-ID: {id}\r\n"), "");
    assert_eq!(back.head().0, 200);
    assert_eq!((back.event().1.as_str(), back.event().1.as_str()), ("", "{\"count\":null}"));
    // A drain by this clock waits for everybody.
    drop(back);
    broker.shutdown();
}

#[test]
fn one_connection_answers_requests_becomes_a_stream_and_ends_as_one() {
    let broker = start(both(2));
    let mut web = Web::open(&broker);
    for _ in 0..3 {
        assert_eq!(web.ask("POST /topics/a", "", "x").status, 204);
    }
    web.send("GET /topics/a", EVENTS, "");
    assert_eq!(web.head().0, 200);
    web.event();
    let mut other = Web::open(&broker);
    other.ask("POST /topics/a", "", "y");
    assert!(web.event().1.contains("\"y\""));
    drop(broker);
    while web.0.read_line(&mut String::new()).unwrap_or(0) > 0 {}
}

/// Ann, whose password is "secret", and whoever has the token "good", who is bob. It takes its time.
#[derive(Debug)]
struct Users;

impl Authenticator for Users {
    fn is_slow(&self, credentials: &Credentials) -> bool {
        credentials.password.is_some()
    }

    fn authenticate(&self, credentials: &Credentials) -> Result<Option<Arc<str>>, LoginRefusal> {
        match (credentials.user_name.as_deref(), credentials.password.as_deref()) {
            (Some("ann"), Some(b"secret")) => Ok(Some("ann".into())),
            (None, Some(b"good")) => Ok(Some("bob".into())),
            (None, None) => Err(LoginRefusal::NotAuthorized),
            _ => Err(LoginRefusal::BadUserNameOrPassword),
        }
    }

    fn admits(&self, user: Option<&str>, _: &str) -> bool {
        user.is_some()
    }
}

#[test]
fn where_there_are_users_who_asks_has_to_show_who_it_is() {
    let broker = start_with(both(2), Arc::new(Users));
    let ann = "Authorization: Basic YW5uOnNlY3JldA==\r\n";
    let mut web = Web::open(&broker);
    let nobody = web.ask("GET /topics/a", "", "");
    assert_eq!(nobody.status, 401);
    assert!(nobody.head.contains("www-authenticate: Basic") && nobody.body.contains("who-are-you"), "{nobody:?}");
    assert!(web.is_closed());
    let mut web = Web::open(&broker);
    assert_eq!(web.ask("POST /topics/a", "Authorization: Basic YW5uOndyb25n\r\n", "x").status, 401);
    let mut web = Web::open(&broker);
    assert_eq!(web.ask("PUT /topics/a", ann, "x").status, 201);
    assert_eq!(web.ask("GET /topics/a", ann, "").status, 200);
    assert_eq!(web.ask("GET /topics/a", "Authorization: Bearer good\r\n", "").status, 200, "bob on ann's connection");
    assert_eq!(web.ask("GET /topics/a", "", "").status, 401, "and nobody on bob's");
    // A page asks without a name whether it may ask with one.
    let mut page = Web::open(&broker);
    let asked = "Origin: http://localhost:3000\r\nAccess-Control-Request-Method: PUT\r\n";
    assert_eq!(page.ask("OPTIONS /topics/a", asked, "").status, 204);
    let heard = page.ask("PUT /topics/a", &format!("{ann}Origin: http://localhost:3000\r\n"), "y");
    assert_eq!(heard.status, 204);
    assert!(heard.head.contains("access-control-allow-origin: http://localhost:3000"), "{heard:?}");
    let (mut reader, _) = stream(&broker, "/topics/b?access_token=good", "");
    page.ask("POST /topics/b", ann, "z");
    assert!(reader.event().1.contains("\"z\""));
    let refused: u64 = broker.handle().listeners()[1].refused.iter().map(|(_, count)| count).sum();
    assert_eq!(refused, 3);
    broker.shutdown();
}

#[test]
fn who_asks_as_two_users_and_says_no_more_gets_both_answers() {
    let broker = start_with(both(2), Arc::new(Users));
    let mut web = Web::open(&broker);
    web.send("PUT /topics/a", "Authorization: Basic YW5uOnNlY3JldA==\r\n", "x");
    web.send("GET /topics/a", "Authorization: Bearer good\r\n", "");
    web.0.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(web.hear().status, 201);
    let heard = web.hear();
    assert_eq!((heard.status, heard.body.as_str()), (200, "x"));
    assert!(web.is_closed());
    broker.shutdown();
}

#[test]
fn pages_from_elsewhere_are_kept_out_of_a_broker_without_users() {
    let broker = start(both(1));
    for fields in ["Origin: https://evil.example\r\n", "Origin: null\r\n"] {
        let mut web = Web::open(&broker);
        let heard = web.ask("POST /topics/a", fields, "x");
        assert!(heard.status == 403 && !heard.head.contains("access-control"), "{heard:?}");
        // And behind a request that was let in.
        let mut web = Web::open(&broker);
        assert_eq!(web.ask("GET /", "", "").status, 200);
        assert_eq!(web.ask("POST /topics/a", fields, "x").status, 403);
    }
    assert_eq!(broker.stats().publish_received, 0);
    let listed = Config { origins: Some(Arc::from(["https://app.example".to_owned()])), ..both(1) };
    let listed = start(listed);
    let mut web = Web::open(&listed);
    assert_eq!(web.ask("POST /topics/a", "Origin: https://app.example\r\n", "x").status, 204);
    assert_eq!(web.ask("POST /topics/a", "Origin: http://localhost\r\n", "x").status, 403);
}

#[test]
fn over_tls_it_is_the_same() {
    let authority = Authority::new();
    let listeners = vec![authority.listener(ListenerKind::HttpsTopics, false)];
    let broker = start(Config { listeners, ..config() });
    let mut web =
        Web(BufReader::new(authority.connect(address(&broker, ListenerKind::HttpsTopics), None, rustls::ALL_VERSIONS)));
    assert_eq!(web.ask("PUT /topics/a", "", "21").status, 201);
    assert_eq!(web.ask("GET /topics/a", "", "").body, "21");
    web.send("GET /topics/a", EVENTS, "");
    assert_eq!(web.head().0, 200);
    web.event();
    assert!(web.event().1.contains("\"retain\":true"));
    broker.shutdown();
}

#[test]
fn malformed_requests_and_those_that_break_off_leave_nothing_behind() {
    let broker = start(both(2));
    for text in [
        "\x16\x03\x01\x02",
        "GET",
        "POST /topics/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nab",
        "\r\n\r\n",
    ] {
        let mut socket = tcp(address(&broker, ListenerKind::HttpTopics));
        socket.write_all(text.as_bytes()).unwrap();
        drop(socket);
    }
    let mut web = Web::open(&broker);
    assert_eq!(web.ask("GET /nothing", "", "").status, 404);
    assert_eq!(web.ask("GET /topics/a?colour=red", "", "").status, 400);
    assert!(web.is_closed());
    drop(web);
    let patience = std::time::Instant::now();
    while broker.sockets() > 0 || broker.stats().sessions > 0 {
        assert!(patience.elapsed() < support::PATIENCE, "{} sockets", broker.sockets());
        std::thread::yield_now();
    }
    assert_eq!(broker.stats().publish_received, 0);
}
