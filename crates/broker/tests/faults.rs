//! FAULTS.md, sections A, B, D and E, over real sockets: the rows that need one.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::{Duration, Instant};

use support::ws::{REQUEST, Ws, read_head};
use support::{Client, PATIENCE, address, config, connect_packet, encode, listener, start, tcp};
use tidegate_broker::Broker;
use tidegate_broker::authenticate::Anonymous;
use tidegate_broker::config::{Config, ListenerKind};
use tidegate_core::access::Open;
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::{QoS, ReasonCode, Version};

const PINGREQ: &[u8] = b"\xc0\x00";

fn both_doors(handshake_timeout: Duration) -> Broker {
    start(Config {
        listeners: vec![listener(ListenerKind::Mqtt), listener(ListenerKind::Ws)],
        handshake_timeout,
        ..config()
    })
}

/// Everything until the broker closes.
fn rest(stream: &mut impl Read) -> Vec<u8> {
    let mut received = Vec::new();
    match stream.read_to_end(&mut received) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("not closed; {received:x?} so far"),
        _ => received,
    }
}

#[test]
fn f001_a_hostile_length_is_closed_at_once() {
    let broker = start(config());
    let address = address(&broker, ListenerKind::Mqtt);
    let begin = Instant::now();
    for bytes in [&b"\x10\xff\xff\xff\x7f"[..], b"\x10\xff\xff\xff\xff\x7f", b"\x10\x80\x80\x04"] {
        let mut stream = tcp(address);
        stream.write_all(bytes).unwrap();
        assert_eq!(rest(&mut stream), b"", "{bytes:x?}");
    }
    assert!(begin.elapsed() < Duration::from_secs(5), "not by the handshake's timeout of 10 s");
    broker.shutdown();
}

#[test]
fn f002_f012_f014_bad_packets_cost_their_sender_the_connection_and_nobody_else_anything() {
    let broker = start(config());
    let address = address(&broker, ListenerKind::Mqtt);
    let mut witness = Client::tcp(address, Version::V5, "witness");
    witness.subscribe("#", QoS::AtMostOnce);
    let cases: [(&[u8], ReasonCode); 5] = [
        (b"\x30\xff\xff\xff\xff\x7f", ReasonCode::MalformedPacket),
        (b"\x30\x06\x00\x03\xed\xa0\x80\x00", ReasonCode::MalformedPacket),
        (b"\x32\x03\x00\x01a", ReasonCode::MalformedPacket),
        (b"\x30\x06\x00\x03a/#\x00", ReasonCode::TopicNameInvalid),
        (b"\x82\x0f\x00\x01\x00\x00\x09$share//x\x00", ReasonCode::TopicFilterInvalid),
    ];
    for (bytes, reason) in cases {
        let mut client = Client::tcp(address, Version::V5, "bad");
        client.send_bytes(bytes);
        assert_eq!(client.disconnect_reason(), reason, "{bytes:x?}");
        assert_eq!(client.rest(), b"");
        let mut old = Client::tcp(address, Version::V311, "bad old");
        old.send_bytes(b"\xc1\x00");
        assert_eq!(old.rest(), b"", "3.1.1 has no words for it");
        witness.ping();
    }
    broker.shutdown();
}

#[test]
fn f005_a_packet_longer_than_its_frame_is_waited_for() {
    let broker = both_doors(Duration::from_secs(10));
    let mut ws = Ws::open(tcp(address(&broker, ListenerKind::Ws)), 60_000);
    ws.write_all(&encode(&connect_packet(Version::V311, "ws"), Version::V311)).unwrap();
    ws.read_exact(&mut [0; 4]).unwrap();
    // PUBLISH of 4096 bytes, three of them in this frame, and a PINGREQ after the rest of it.
    ws.write_all(b"\x30\x80\x20\x00\x01t").unwrap();
    ws.write_all(&[7; 4093]).unwrap();
    ws.write_all(PINGREQ).unwrap();
    let mut pong = [0; 2];
    ws.read_exact(&mut pong).unwrap();
    assert_eq!(pong, *b"\xd0\x00");
    broker.shutdown();
}

#[test]
fn f006_no_packet_but_connect_opens_a_connection() {
    let broker = start(config());
    let address = address(&broker, ListenerKind::Mqtt);
    let firsts: [&[u8]; 9] = [
        b"\x00\x00",
        b"\x20\x02\x00\x00",
        b"\x30\x03\x00\x01a",
        b"\x40\x02\x00\x01",
        b"\x82\x06\x00\x01\x00\x01a\x00",
        b"\xc0\x00",
        b"\xe0\x00",
        b"\xf0\x00",
        b"\xff\x00",
    ];
    for bytes in firsts {
        let mut stream = tcp(address);
        stream.write_all(bytes).unwrap();
        assert_eq!(rest(&mut stream), b"", "{bytes:x?}");
    }
    assert_eq!(broker.stats().connections, 0);
    broker.shutdown();
}

/// Sends one byte after the other until the broker has had enough.
fn trickle(mut stream: impl Write + Read, bytes: &[u8], pause: Duration) -> usize {
    for (sent, byte) in bytes.iter().enumerate() {
        if stream.write_all(&[*byte]).and_then(|()| stream.flush()).is_err() {
            return sent;
        }
        std::thread::sleep(pause); // the point of it
    }
    bytes.len()
}

#[test]
fn f049_handshakes_have_an_absolute_deadline() {
    let broker = both_doors(Duration::from_millis(300));
    let connect = encode(&connect_packet(Version::V5, &"slow".repeat(50)), Version::V5);
    let doors = [(ListenerKind::Mqtt, &connect[..]), (ListenerKind::Ws, REQUEST.as_bytes())];
    for (kind, bytes) in doors {
        let begin = Instant::now();
        let sent = trickle(tcp(address(&broker, kind)), bytes, Duration::from_millis(20));
        assert!(sent < bytes.len(), "{kind:?}: the whole handshake, in {:?}", begin.elapsed());
    }
    // A WebSocket that is open has not said CONNECT yet.
    let mut ws = Ws::open(tcp(address(&broker, ListenerKind::Ws)), 1);
    ws.write_all(&connect[..3]).unwrap();
    assert_eq!(rest(&mut ws), b"");
    broker.shutdown();
}

#[test]
fn f050_a_client_that_never_reads_is_read_no_further() {
    let settings = Settings { outbox_bytes_max: 256 * 1024, ..Settings::default() };
    let broker = start(Config { settings, ..config() });
    let address = address(&broker, ListenerKind::Mqtt);
    let mut stream = tcp(address);
    stream.write_all(&encode(&connect_packet(Version::V311, "mute"), Version::V311)).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let pings = PINGREQ.repeat(32 * 1024);
    let mut sent = 0;
    let stopped = loop {
        match stream.write(&pings) {
            Ok(count) => sent += count,
            Err(error) => break error.kind(),
        }
        assert!(sent < 256 << 20, "256 MiB of pings were taken");
    };
    assert_eq!(stopped, ErrorKind::WouldBlock);
    Client::tcp(address, Version::V5, "other").ping();
    // Who reads again is served again, to the last answer.
    stream.set_nonblocking(true).unwrap();
    let (mut answered, begin) = (0, Instant::now());
    let mut buffer = vec![0; 64 * 1024];
    while answered < sent / 2 * 2 {
        match stream.read(&mut buffer) {
            Ok(count) => answered += count - if answered == 0 { 4 } else { 0 },
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
        assert!(begin.elapsed() < PATIENCE, "{answered} of {sent} bytes");
    }
    broker.shutdown();
}

#[test]
fn f084_what_websockets_must_not_send() {
    let broker = both_doors(Duration::from_secs(10));
    // Unmasked; a reserved bit (compression that was not agreed on); a frame of 1 GiB; a reserved opcode.
    let frames: [(&[u8], u16); 4] = [
        (b"\x82\x02\xc0\x00", 1002),
        (b"\xc2\x82\0\0\0\0\xc0\x00", 1002),
        (b"\x82\xff\0\0\0\0\x40\0\0\0\0\0\0\0", 1009),
        (b"\x83\x80\0\0\0\0", 1002),
    ];
    for (bytes, code) in frames {
        let mut ws = Ws::open(tcp(address(&broker, ListenerKind::Ws)), 1000);
        ws.stream.write_all(bytes).unwrap();
        let close = rest(&mut ws.stream);
        assert_eq!(close[..4], [0x88, close[1], (code >> 8) as u8, code as u8], "{bytes:x?}: {close:x?}");
    }
    // Compression is not agreed to.
    let offer = "Sec-WebSocket-Extensions: permessage-deflate\r\nHost";
    let mut stream = tcp(address(&broker, ListenerKind::Ws));
    stream.write_all(REQUEST.replacen("Host", offer, 1).as_bytes()).unwrap();
    let head = read_head(&mut stream);
    assert!(head.starts_with("HTTP/1.1 101 ") && !head.contains("Extensions"), "{head}");
    broker.shutdown();
}

#[test]
fn f084_a_flood_of_pings_is_survived() {
    let broker = both_doors(Duration::from_secs(10));
    let mut ws = Ws::open(tcp(address(&broker, ListenerKind::Ws)), 1000);
    ws.write_all(&encode(&connect_packet(Version::V311, "pinger"), Version::V311)).unwrap();
    ws.read_exact(&mut [0; 4]).unwrap();
    for _ in 0..10_000 {
        ws.send_frame(0x89, b"0123456789").unwrap();
    }
    ws.write_all(PINGREQ).unwrap();
    ws.read_exact(&mut [0; 2]).unwrap();
    assert!(!ws.controls.is_empty() && ws.controls.len() <= 10_000);
    broker.shutdown();
}

#[test]
fn f085_an_origin_comes_once_and_within_bounds() {
    let broker = both_doors(Duration::from_secs(10));
    let long = format!("Origin: http://{}\r\nHost", "x".repeat(9000));
    let cases = [
        ("Origin: http://localhost:3000\r\nHost", "101"),
        ("Origin: http://a\r\nHost", "403"),
        ("Origin: http://a\r\nOrigin: http://b\r\nHost", "400"),
        ("Origin: http://a\r\norigin: http://a\r\nHost", "400"),
        (&long, "431"),
    ];
    for (with, status) in cases {
        let mut stream = tcp(address(&broker, ListenerKind::Ws));
        stream.write_all(REQUEST.replacen("Host", with, 1).as_bytes()).unwrap();
        assert_eq!(&read_head(&mut stream)[9..12], status, "{with:.40}");
    }
    broker.shutdown();
}

#[test]
fn f085_a_list_of_origins_holds_from_the_reload_on() {
    let before = Config { listeners: vec![listener(ListenerKind::Ws)], ..config() };
    let listed = Config { origins: Some(["https://app.example".to_owned()].into()), ..before.clone() };
    let broker = start(before);
    let status = |origin: &str| {
        let mut stream = tcp(address(&broker, ListenerKind::Ws));
        let head = format!("Origin: {origin}\r\nHost");
        stream.write_all(REQUEST.replacen("Host", &head, 1).as_bytes()).unwrap();
        read_head(&mut stream)[9..12].to_owned()
    };
    assert_eq!((status("https://app.example"), status("http://localhost")), ("403".to_owned(), "101".to_owned()));
    broker.reload(&listed, Arc::new(Anonymous), Arc::new(Open)).unwrap();
    assert_eq!((status("https://app.example"), status("http://localhost")), ("101".to_owned(), "403".to_owned()));
    // Who is no browser says nothing about pages.
    Ws::open(tcp(address(&broker, ListenerKind::Ws)), 1000);
    broker.shutdown();
}

#[test]
fn f087_http_that_is_not_for_us_is_answered_and_closed() {
    let broker = both_doors(Duration::from_millis(500));
    let address = address(&broker, ListenerKind::Ws);
    let headers = "X-Reason: %n%s%x\r\n".repeat(100);
    let cases = [
        ("GET /..%2f..%2fetc/passwd HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "404"),
        ("GET /mqtt%00 HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "404"),
        (format!("GET /mqtt HTTP/1.1\r\nHost: x\r\n{headers}\r\n"), "431"),
        ("GET /mqtt HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n".to_owned(), "400"),
        ("POST /mqtt HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(), "405"),
    ];
    for (request, status) in cases {
        let mut stream = tcp(address);
        stream.write_all(request.as_bytes()).unwrap();
        let answer = String::from_utf8(rest(&mut stream)).unwrap();
        assert_eq!(answer.get(9..12), Some(status), "{request:.60}: {answer}");
    }
    // Slowloris: headers without end, slowly.
    let mut stream = tcp(address);
    stream.write_all(b"GET /mqtt HTTP/1.1\r\nHost: x\r\n").unwrap();
    let sent = trickle(stream, "X: y\r\n".repeat(40).as_bytes(), Duration::from_millis(10));
    assert!(sent < 240);
    broker.shutdown();
}

#[test]
fn f088_proxy_headers_are_believed_from_nobody() {
    let broker = start(config());
    for bytes in [&b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff"] {
        let mut stream = tcp(address(&broker, ListenerKind::Mqtt));
        stream.write_all(bytes).unwrap();
        let _ = stream.write_all(&encode(&connect_packet(Version::V311, "c"), Version::V311));
        assert_eq!(rest(&mut stream), b"");
    }
    broker.shutdown();
}

#[test]
fn f090_resets_and_half_closed_sockets_leave_nothing() {
    let broker = start(config());
    let address = address(&broker, ListenerKind::Mqtt);
    for number in 0..500 {
        let stream = tcp(address);
        let mut client = Client::new(stream.try_clone().unwrap(), Version::V311).connected(&format!("c{number}"));
        match number % 3 {
            // Unread bytes in our buffer make the kernel send a reset when we close.
            0 => client.send_bytes(PINGREQ),
            1 => stream.shutdown(Shutdown::Write).unwrap(),
            _ => stream.shutdown(Shutdown::Read).unwrap(),
        }
    }
    let begin = Instant::now();
    while broker.sockets() > 0 || broker.stats().connections > 0 {
        assert!(begin.elapsed() < PATIENCE, "{} sockets left", broker.sockets());
        std::thread::yield_now();
    }
    broker.shutdown();
}
