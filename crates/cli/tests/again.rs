//! `tidegate pub` against a broker that leaves: played by this test, byte by byte.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A publisher of these lines at QoS 1, and the socket that it connects to.
fn publisher(lines: &str) -> (Child, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("bound").port().to_string();
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["pub", "-h", "127.0.0.1", "-p", &port, "-t", "t", "-q", "1", "-l"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("pub runs");
    child.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("pub reads");
    (child, listener)
}

fn packet(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = [0; 2];
    stream.read_exact(&mut head).expect("a packet");
    assert!(head[1] < 128, "the packets of this test are small");
    let mut body = vec![0; head[1].into()];
    stream.read_exact(&mut body).expect("the whole packet");
    [&head[..], &body].concat()
}

/// Accepts a client that says hello.
fn welcome(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().expect("a client");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    assert_eq!(packet(&mut stream)[0], 0x10, "CONNECT");
    stream.write_all(b"\x20\x02\x00\x00").expect("CONNACK");
    stream
}

/// Identifier and payload of the next message.
fn message(stream: &mut TcpStream) -> ([u8; 2], String) {
    let packet = packet(stream);
    assert_eq!(packet[0] >> 4, 3, "PUBLISH: {packet:?}");
    ([packet[5], packet[6]], String::from_utf8_lossy(&packet[7..]).into_owned())
}

fn acknowledge(stream: &mut TcpStream, id: [u8; 2]) {
    stream.write_all(&[0x40, 2, id[0], id[1]]).expect("PUBACK");
}

#[test]
fn what_was_not_acknowledged_is_sent_again_in_order() {
    let (child, listener) = publisher("a\nb\nc\n");
    let mut first = welcome(&listener);
    let messages: Vec<_> = (0..3).map(|_| message(&mut first)).collect();
    acknowledge(&mut first, messages[0].0);
    drop(first);
    let mut second = welcome(&listener);
    for expected in ["b", "c"] {
        let (id, payload) = message(&mut second);
        assert_eq!(payload, expected);
        acknowledge(&mut second, id);
    }
    assert_eq!(packet(&mut second)[0], 0xe0, "DISCONNECT");
    let output = child.wait_with_output().expect("pub ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("trying again in 1 s"), "{said}");
}

#[test]
fn a_message_that_costs_the_connection_is_not_sent_for_ever() {
    let (child, listener) = publisher("a\n");
    let mut first = welcome(&listener);
    message(&mut first);
    drop(first);
    let output = child.wait_with_output().expect("pub ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("-V 5 would say why"), "{said}");
}

/// A publisher of one message at QoS 1 in MQTT 5, welcomed.
fn publisher_v5() -> (Child, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("bound").port().to_string();
    let child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["pub", "-h", "127.0.0.1", "-p", &port, "-t", "t", "-q", "1", "-V", "5", "-m", "a"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("pub runs");
    let (mut stream, _) = listener.accept().expect("a client");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    assert_eq!(packet(&mut stream)[0], 0x10, "CONNECT");
    stream.write_all(b"\x20\x03\x00\x00\x00").expect("CONNACK");
    (child, stream)
}

/// Takes the message, and refuses it with a time to come back.
fn refuse(stream: &mut TcpStream) {
    refuse_for(stream, "20");
}

/// The same, for so many milliseconds.
fn refuse_for(stream: &mut TcpStream, millis: &str) {
    let packet = packet(stream);
    assert_eq!((packet[0] >> 4, packet.last()), (3, Some(&b'a')), "PUBLISH: {packet:?}");
    let hint = [&b"\x26\x00\x13pace-retry-after-ms\x00"[..], &[millis.len() as u8][..], millis.as_bytes()].concat();
    let mut answer = vec![0x40, 4 + hint.len() as u8, packet[5], packet[6], 0x97, hint.len() as u8];
    answer.extend(hint);
    stream.write_all(&answer).expect("PUBACK");
}

#[test]
fn what_is_refused_with_a_time_to_come_back_comes_again() {
    let (child, mut stream) = publisher_v5();
    refuse(&mut stream);
    refuse(&mut stream);
    let packet_again = packet(&mut stream);
    stream.write_all(&[0x40, 2, packet_again[5], packet_again[6]]).expect("PUBACK");
    assert_eq!(packet(&mut stream)[0], 0xe0, "DISCONNECT");
    let output = child.wait_with_output().expect("pub ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("try 2 of 5") && said.contains("try 3 of 5"), "{said}");
}

#[test]
fn who_is_refused_five_times_gives_up_and_says_so() {
    let (child, mut stream) = publisher_v5();
    for _ in 0..5 {
        refuse(&mut stream);
    }
    assert_eq!(packet(&mut stream)[0], 0xe0, "DISCONNECT");
    let output = child.wait_with_output().expect("pub ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("1 message was refused 5 times"), "{said}");
}

#[test]
fn who_is_ended_while_a_message_waits_says_so() {
    let (mut child, mut stream) = publisher_v5();
    refuse_for(&mut stream, "30000");
    let mut said = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("a line");
    assert!(line.contains("try 2 of 5"), "{line}");
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill runs");
    assert!(killed.success());
    assert_eq!(packet(&mut stream)[0], 0xe0, "DISCONNECT");
    said.read_to_string(&mut line).expect("the rest");
    assert_eq!(child.wait().expect("pub ends").code(), Some(1), "{line}");
    assert!(line.contains("1 message was not sent, or not acknowledged"), "{line}");
}
