//! The same dialogues with mosquitto alone and through a guard: the same bytes are answered. Good packets, and bad ones: who
//! judges is the broker behind.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use tidegate_test_support::{Mosquitto, PATIENCE, connect_packet as connect};

use crate::other::guard;

/// What a client sends after its CONNECT, and what this is about.
const DIALOGUES: &[(&str, u8, &[u8])] = &[
    ("nothing", 4, b""),
    ("nothing", 5, b""),
    ("subscribe and publish to oneself at QoS 0", 4, b"\x82\x06\x00\x01\x00\x01a\x00\x30\x04\x00\x01ax"),
    (
        "subscribe and publish to oneself at QoS 1",
        4,
        b"\x82\x06\x00\x01\x00\x01a\x01\x32\x06\x00\x01a\x00\x02x\x40\x02\x00\x01",
    ),
    ("QoS 2 and its release", 4, b"\x34\x06\x00\x01a\x00\x05x\x62\x02\x00\x05"),
    ("QoS 2 and its release", 5, b"\x34\x07\x00\x01a\x00\x05\x00x\x62\x02\x00\x05"),
    ("release of what is not known", 5, b"\x62\x02\x00\x09"),
    ("unsubscribe from nothing", 4, b"\xa2\x05\x00\x03\x00\x01q"),
    ("unsubscribe from nothing", 5, b"\xa2\x06\x00\x03\x00\x00\x01q"),
    ("subscribe to what is denied", 4, b"\x82\x0b\x00\x01\x00\x06secret\x00"),
    ("subscribe to what is denied", 5, b"\x82\x0e\x00\x01\x00\x00\x08secret/#\x00"),
    ("publish to what is denied at QoS 1", 5, b"\x32\x0d\x00\x08secret/x\x00\x07\x00"),
    ("a bad filter", 4, b"\x82\x07\x00\x01\x00\x02#a\x00"),
    ("a bad filter", 5, b"\x82\x08\x00\x01\x00\x00\x02#a\x00"),
    ("a wildcard in a topic", 4, b"\x30\x03\x00\x01#"),
    ("a wildcard in a topic", 5, b"\x30\x04\x00\x01#\x00"),
    ("QoS 3", 4, b"\x36\x06\x00\x01a\x00\x02x"),
    ("QoS 3", 5, b"\x36\x07\x00\x01a\x00\x02\x00x"),
    ("packet identifier 0", 4, b"\x32\x06\x00\x01a\x00\x00x"),
    ("a topic that is longer than its packet", 4, b"\x30\x04\x00\x09ab"),
    ("a topic that is no UTF-8", 4, b"\x30\x05\x00\x02\xff\xfex"),
    ("a subscription with wrong flags", 4, b"\x80\x06\x00\x01\x00\x01a\x00"),
    ("a subscription to nothing", 4, b"\x82\x02\x00\x01"),
    ("a second CONNECT", 4, b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01z"),
    ("a packet that only servers send", 4, b"\xd0\x00"),
    ("a kind that does not exist", 4, b"\x00\x00"),
    ("a length without end", 4, b"\x30\xff\xff\xff\xff\xff"),
    ("an unknown alias", 5, b"\x30\x06\x00\x00\x03\x23\x00\x63"),
    ("alias 0", 5, b"\x30\x07\x00\x01a\x03\x23\x00\x00"),
    (
        "an alias that is used",
        5,
        b"\x82\x07\x00\x01\x00\x00\x01a\x00\x30\x08\x00\x01a\x03\x23\x00\x01x\x30\x07\x00\x00\x03\x23\x00\x01y",
    ),
    ("a property that does not belong there", 5, b"\x30\x09\x00\x01a\x05\x11\x00\x00\x00\x01"),
    ("goodbye", 4, b"\xe0\x00"),
    ("goodbye", 5, b"\xe0\x00"),
    ("AUTH out of nothing", 5, b"\xf0\x02\x18\x00"),
    ("a ping with a body", 4, b"\xc0\x01\x00"),
];

/// All that is answered until a ping after it is, or until the end.
fn hear(port: u16, level: u8, id: &str, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    socket.write_all(&connect(level, 60, id)).expect("it takes it");
    // The welcome first: who is refused for what follows may be refused before or after it is said.
    let mut heard = vec![0; 5];
    socket.read_exact(&mut heard[..2]).expect("a welcome");
    let rest = usize::from(heard[1]);
    heard.resize(2 + rest, 0);
    socket.read_exact(&mut heard[2..]).expect("the rest of it");
    let _ = socket.write_all(&[bytes, b"\xc0\x00"].concat());
    let mut buffer = [0; 512];
    while !heard.ends_with(b"\xd0\x00") {
        match socket.read(&mut buffer) {
            Ok(0) | Err(_) => {
                heard.extend_from_slice(b"<end>");
                break;
            }
            Ok(size) => heard.extend_from_slice(&buffer[..size]),
        }
    }
    let _ = socket.shutdown(Shutdown::Both);
    heard
}

#[test]
fn the_broker_behind_answers_through_a_guard_what_it_answers_without() {
    let rules = tempfile::NamedTempFile::new().unwrap();
    // Everybody may do everything, but for one topic.
    std::fs::write(rules.path(), "topic readwrite #\ntopic deny secret/#\n").unwrap();
    #[cfg(unix)]
    std::fs::set_permissions(rules.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let Some(other) = Mosquitto::start(&format!("acl_file {}", rules.path().display())) else { return };
    let (_guard, port) = guard(other.port);
    let mut differing = Vec::new();
    for (number, (what, level, bytes)) in DIALOGUES.iter().enumerate() {
        let direct = hear(other.port, *level, &format!("c{number}"), bytes);
        let through = hear(port, *level, &format!("c{number}"), bytes);
        if direct != through {
            differing.push(format!("{what} (level {level}): {direct:x?} without, {through:x?} through"));
        }
    }
    assert!(differing.is_empty(), "{} of {}:\n{}", differing.len(), DIALOGUES.len(), differing.join("\n"));
}
