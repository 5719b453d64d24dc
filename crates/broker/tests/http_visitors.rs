//! Clients of HTTP over several connections: bans and limits, a stream that moves, a login that is renewed, and who says all that it has to
//! say and waits.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use support::{PATIENCE, address, config, listener, start, start_with};
use tidegate_broker::authenticate::{Authenticator, Credentials, LoginGrant, LoginRefusal};
use tidegate_broker::config::{Config, ListenerKind};
use tidegate_broker::{Banned, Broker, OperatorSetting};
use tidegate_core::Whom;
use tidegate_core::access::{Identity, Open};
use tidegate_core::settings::Rate;

const HOME: Ipv4Addr = Ipv4Addr::LOCALHOST;
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn web(shards: usize) -> Config {
    Config { listeners: vec![listener(ListenerKind::HttpTopics)], shards, ..config() }
}

/// A connection from this address of this machine that has sent this.
fn said(broker: &Broker, from: Ipv4Addr, text: &str) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&address(broker, ListenerKind::HttpTopics).into()).unwrap();
    let mut socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(text.as_bytes()).unwrap();
    socket
}

fn request(line: &str, fields: &str, body: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n{fields}\r\n{body}", body.len())
}

/// The first line of an answer.
fn first_line(socket: &TcpStream) -> String {
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

fn status(broker: &Broker, from: Ipv4Addr, text: &str) -> u16 {
    first_line(&said(broker, from, text)).get(9..12).map_or(0, |code| code.parse().unwrap())
}

/// A stream, and its id.
fn stream(broker: &Broker, from: Ipv4Addr, fields: &str) -> (BufReader<TcpStream>, String) {
    let text = format!("GET /topics/%23 HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{fields}\r\n");
    let mut reader = BufReader::new(said(broker, from, &text));
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0, "no stream");
        if let Some(id) = line.trim_end().strip_prefix("id: ") {
            return (reader, id.to_owned());
        }
    }
}

fn is_over(reader: &mut BufReader<TcpStream>) -> bool {
    let mut rest = Vec::new();
    // It may end by a reset.
    let _ = reader.read_to_end(&mut rest);
    true
}

#[test]
fn who_says_all_and_waits_gets_every_answer() {
    for shards in [1, 2] {
        let broker = start_with(web(shards), Arc::new(SlowUser));
        let login = "Authorization: Basic YW5uOnNlY3JldA==\r\n";
        let text = [
            request("PUT /topics/a", login, "1"),
            request("GET /topics/a", login, ""),
            request("GET /topics/no", login, ""),
        ];
        for _ in 0..20 {
            let mut socket = said(&broker, HOME, &text.concat());
            socket.shutdown(Shutdown::Write).unwrap();
            let mut heard = String::new();
            socket.read_to_string(&mut heard).unwrap();
            let codes: Vec<&str> = heard.split("HTTP/1.1 ").filter_map(|answer| answer.get(..3)).collect();
            assert!(matches!(codes[..], ["201" | "204", "200", "404"]), "{heard}");
        }
        broker.shutdown();
    }
}

/// Ann, whose password takes its time.
#[derive(Debug)]
struct SlowUser;

impl Authenticator for SlowUser {
    fn is_slow(&self, _: &Credentials) -> bool {
        true
    }

    fn authenticate(&self, credentials: &Credentials) -> Result<Option<Arc<str>>, LoginRefusal> {
        match credentials.password.as_deref() {
            Some(b"secret") => Ok(Some("ann".into())),
            _ => Err(LoginRefusal::BadUserNameOrPassword),
        }
    }
}

#[test]
fn a_ban_of_a_client_holds_over_its_connections() {
    let broker = start(web(2));
    let post = request("POST /topics/a", "", "x");
    let first = said(&broker, ELSEWHERE, &post);
    assert!(first_line(&first).contains("204"));
    let called = format!("$http/{}", first.local_addr().unwrap());
    assert!(broker.handle().ban(&Banned::Client(called.clone()), Duration::from_secs(60), "a test").is_some());
    assert!(is_over(&mut BufReader::new(first)));
    for _ in 0..5 {
        assert_eq!(status(&broker, ELSEWHERE, &post), 403, "another port is no other client");
    }
    let asked = "GET /topics/%23 HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
    assert_eq!(status(&broker, ELSEWHERE, asked), 403, "nor is a stream");
    assert_eq!(status(&broker, HOME, &post), 204, "who comes from elsewhere is");
    assert!(broker.handle().unban(&Banned::Client(called)).is_some());
    assert_eq!(status(&broker, ELSEWHERE, &post), 204);
    broker.shutdown();
}

#[test]
fn a_limit_of_a_client_holds_over_its_connections() {
    let broker = start(web(1));
    let post = request("POST /topics/a", "", "x");
    let called = Whom::Client(format!("$http/{ELSEWHERE}:1").into());
    let rate = Rate::new(3, Duration::from_secs(3600), 3);
    assert!(broker.handle().set_rate(OperatorSetting::Limit, &called, Some(rate)).is_some());
    let codes: Vec<u16> = (0..6).map(|_| status(&broker, ELSEWHERE, &post)).collect();
    assert_eq!(codes, [204, 204, 204, 429, 429, 429], "each connection is another one");
    assert_eq!(status(&broker, HOME, &post), 204);
    broker.shutdown();
}

#[test]
fn a_stream_that_goes_on_elsewhere_is_banned_there() {
    let broker = start(web(2));
    let (reader, id) = stream(&broker, HOME, "");
    drop(reader);
    let (mut reader, _) = stream(&broker, ELSEWHERE, &format!("Last-Event-ID: {id}\r\n"));
    let network = |ip: Ipv4Addr| Banned::Network(ip.into(), 32);
    assert!(broker.handle().ban(&network(HOME), Duration::from_secs(60), "a test").is_some());
    // It is still there: what is published now comes.
    assert_eq!(status(&broker, Ipv4Addr::new(127, 0, 0, 3), &request("POST /topics/a", "", "x")), 204);
    let mut line = String::new();
    while !line.contains("\"payload\":\"x\"") {
        assert!(reader.read_line(&mut line).unwrap() > 0, "it ended: {line}");
    }
    assert!(broker.handle().ban(&network(ELSEWHERE), Duration::from_secs(60), "a test").is_some());
    assert!(is_over(&mut reader));
    broker.shutdown();
}

/// Tokens are seconds.
#[derive(Debug)]
struct Seconds;

impl Authenticator for Seconds {
    fn is_slow(&self, _: &Credentials) -> bool {
        false
    }

    fn authenticate(&self, credentials: &Credentials) -> Result<Option<Arc<str>>, LoginRefusal> {
        self.login(credentials).map(|grant| grant.user)
    }

    fn login(&self, credentials: &Credentials) -> Result<LoginGrant, LoginRefusal> {
        let text = String::from_utf8(credentials.password.clone().unwrap_or_default()).unwrap();
        let seconds: u64 = text.parse().map_err(|_| LoginRefusal::BadToken)?;
        let valid_for = Some(Duration::from_secs(seconds));
        Ok(LoginGrant { user: Some("ann".into()), roles: Some(Arc::default()), claims: None, valid_for })
    }

    fn admits_identity(&self, identity: &Identity, _: &str) -> bool {
        identity.roles.is_some()
    }
}

#[test]
fn a_stream_that_goes_on_with_a_new_login_ends_with_that_one() {
    let broker = Broker::start_by_hand(web(1), Arc::new(Seconds), Arc::new(Open)).unwrap();
    let bearer = |seconds: u64| format!("Authorization: Bearer {seconds}\r\n");
    let (reader, id) = stream(&broker, HOME, &bearer(10));
    broker.advance(Duration::from_secs(5));
    drop(reader);
    let (mut reader, _) = stream(&broker, HOME, &format!("{}Last-Event-ID: {id}\r\n", bearer(50)));
    for _ in 0..10 {
        broker.advance(Duration::from_secs(1));
    }
    assert_eq!(status(&broker, HOME, &request("POST /topics/a", &bearer(100), "x")), 204);
    let mut line = String::new();
    while !line.contains("\"payload\":\"x\"") {
        assert!(reader.read_line(&mut line).unwrap() > 0, "it ended with the old one: {line}");
    }
    for _ in 0..45 {
        broker.advance(Duration::from_secs(1));
    }
    assert!(is_over(&mut reader), "and it does end");
    broker.shutdown();
}
