//! Who comes in through a guard: authentication in several steps, wrong passwords.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use tidegate_test_support::skip::{Remedy, skip};
use tidegate_test_support::{Mosquitto, PATIENCE, raw_connection as raw};

use crate::other::guard;

/// A CONNECT of MQTT 5 that wants to be authenticated by this method.
fn connect_by(method: &str) -> Vec<u8> {
    let properties = [&[0x15, 0, method.len() as u8], method.as_bytes()].concat();
    let body = [&b"\x00\x04MQTT\x05\x02\x00\x3c"[..], &[properties.len() as u8], &properties, b"\x00\x01a"].concat();
    [&[0x10, body.len() as u8], &body[..]].concat()
}

/// A CONNECT with this user and password.
fn connect_as(level: u8, id: &str, user: &str, password: &str) -> Vec<u8> {
    let text = |text: &str| [&[0, text.len() as u8], text.as_bytes()].concat();
    let properties: &[u8] = if level == 5 { &[0] } else { &[] };
    let body =
        [b"\x00\x04MQTT", &[level, 0xc2, 0, 60][..], properties, &text(id), &text(user), &text(password)].concat();
    [&[0x10, body.len() as u8], &body[..]].concat()
}

/// The next bytes, which must be these.
fn hear(socket: &mut TcpStream, expected: &[u8], what: &str) {
    let mut heard = vec![0; expected.len()];
    socket.read_exact(&mut heard).unwrap();
    assert_eq!(heard, expected, "{what}");
}

/// A client that has said hello, and the broker behind that has heard it.
fn greeted(behind: &TcpListener, port: u16, hello: &[u8]) -> (TcpStream, TcpStream) {
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(hello).unwrap();
    let mut asked = crate::accept_client(behind);
    hear(&mut asked, hello, "the hello");
    (client, asked)
}

/// AUTH with the reason 0x18 (continue) and this as its data.
fn auth(data: u8) -> Vec<u8> {
    vec![0xf0, 0x06, 0x18, 0x04, 0x16, 0x00, 0x01, data]
}

#[test]
fn authentication_in_several_steps_passes_and_again_later() {
    let behind = TcpListener::bind("127.0.0.1:0").unwrap();
    let (guard, port) = guard(behind.local_addr().unwrap().port());
    let (mut client, mut asked) = greeted(&behind, port, &connect_by("SCRAM-SHA-256"));
    for step in 0..3 {
        asked.write_all(&auth(step)).unwrap();
        hear(&mut client, &auth(step), "asked");
        // In two pieces, as networks have it.
        let (first, second) = (&auth(100 + step)[..3], &auth(100 + step)[3..]);
        client.write_all(first).unwrap();
        client.flush().unwrap();
        client.write_all(second).unwrap();
        hear(&mut asked, &auth(100 + step), "answered");
    }
    asked.write_all(b"\x20\x03\x00\x00\x00").unwrap();
    hear(&mut client, b"\x20\x03\x00\x00\x00", "let in");
    // Later it may be asked again, in the middle of everything else.
    client.write_all(&[&b"\x30\x04\x00\x01n\x00"[..], &auth(7)].concat()).unwrap();
    hear(&mut asked, &[&b"\x30\x04\x00\x01n\x00"[..], &auth(7)].concat(), "both");
    asked.write_all(&auth(8)).unwrap();
    hear(&mut client, &auth(8), "asked once more");
    assert_eq!(guard.handle().guard().unwrap().connections, 1);
}

#[test]
fn who_says_something_else_than_it_was_asked_for_is_refused_and_passes_nothing() {
    let behind = TcpListener::bind("127.0.0.1:0").unwrap();
    let (guard, port) = guard(behind.local_addr().unwrap().port());
    // A message before anybody was let in; an AUTH without end; a first word without having been asked.
    let cases: [&[u8]; 2] = [b"\x30\x04\x00\x01n\x00", b"\xf0\xff\xff\xff\x7f"];
    for wrong in cases {
        let (mut client, mut asked) = greeted(&behind, port, &connect_by("X"));
        asked.write_all(&auth(1)).unwrap();
        hear(&mut client, &auth(1), "asked");
        client.write_all(wrong).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!((answer[0], answer[3]), (0x20, 0x82), "a protocol error: {answer:x?}");
        let mut passed = Vec::new();
        asked.read_to_end(&mut passed).unwrap();
        assert_eq!(passed, b"", "{wrong:x?}");
    }
    // One that gives up says so to the broker behind.
    let (mut client, mut asked) = greeted(&behind, port, &connect_by("X"));
    asked.write_all(&auth(1)).unwrap();
    hear(&mut client, &auth(1), "asked");
    client.write_all(b"\xe0\x00").unwrap();
    let mut passed = Vec::new();
    asked.read_to_end(&mut passed).unwrap();
    assert_eq!(passed, b"\xe0\x00");
    assert_eq!(guard.handle().guard().unwrap().is_reached, Some(true), "that is nobody's fault behind");
}

#[test]
fn an_auth_for_a_client_that_cannot_know_it_is_garbage() {
    let behind = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_guard, port) = guard(behind.local_addr().unwrap().port());
    let (mut client, mut asked) = greeted(&behind, port, &tidegate_test_support::connect_packet(4, 60, "old"));
    asked.write_all(&auth(1)).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"\x20\x02\x00\x03");
}

/// mosquitto that knows ann by the password "right" and bob by "also".
fn with_users(folder: &tempfile::TempDir) -> Option<Mosquitto> {
    let file = folder.path().join("users");
    std::fs::write(&file, "").unwrap();
    for (name, password) in [("ann", "right"), ("bob", "also")] {
        let made = Command::new("mosquitto_passwd").arg("-b").arg(&file).args([name, password]).status();
        if !made.is_ok_and(|status| status.success()) {
            skip("mosquitto_passwd", "no such program", Remedy::Owner("apt-get install mosquitto"));
            return None;
        }
    }
    for path in [folder.path(), &file] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    // The last word on anonymous clients counts.
    Mosquitto::start(&format!("allow_anonymous false\npassword_file {}", file.display()))
}

#[test]
fn wrong_passwords_through_a_guard_are_slowed_by_user_and_address_and_right_ones_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let Some(other) = with_users(&folder) else { return };
    let (_guard, port) = guard(other.port);
    let reason = |level, user: &str, password: &str| {
        let answer = raw(port, &connect_as(level, &format!("{user}-{password}"), user, password)).1;
        answer[3]
    };
    assert_eq!(reason(5, "ann", "right"), 0, "she was here before");
    let refusals: Vec<u8> = (0..8).map(|n| reason(5, "ann", &format!("guess{n}"))).collect();
    assert!(refusals[..5].iter().all(|reason| [0x86, 0x87].contains(reason)), "asked behind: {refusals:x?}");
    assert_eq!(refusals[7], 0x9f, "and now not: {refusals:x?}");
    assert_eq!(reason(4, "ann", "guess9"), 3, "3.1.1 has no other word");
    assert_eq!(reason(5, "ann", "right"), 0, "whoever guesses locks nobody out");
    assert_eq!(reason(4, "bob", "also"), 0, "nor others at the same address");
    // What was right is known, and its failures are forgiven.
    assert!([0x86, 0x87].contains(&reason(5, "ann", "guess")), "asked behind again");
}
