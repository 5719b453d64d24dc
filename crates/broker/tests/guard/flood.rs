//! What mosquitto alone fails: a receiver that does not keep up, one publisher that floods it, and twenty that send now and then.
//! mosquitto's queue knows no order, so that the twenty lose most of theirs; behind a guard they lose next to nothing.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tidegate_test_support::{PATIENCE, connect_packet as connect, raw_connection as raw};

use crate::other::{guard, mosquitto};

/// Publishers beside the flooder, and messages of each.
const OTHERS: (u8, u8) = (20, 50);
/// Messages of the flooder: ten times what waits for a client at a guard, a hundred times what does at mosquitto.
const FLOOD: usize = 100_000;
/// Nothing came for so long: nothing will.
const SILENCE: Duration = Duration::from_secs(3);

/// A PUBLISH of QoS 0 with a payload of 64 bytes.
fn message(topic: &str) -> Vec<u8> {
    let length = (2 + topic.len() + 64) as u8;
    [&[0x30, length, 0, topic.len() as u8], topic.as_bytes(), &[b'x'; 64]].concat()
}

/// The broker has had everything that this connection has sent.
fn settle(socket: &mut TcpStream) {
    socket.write_all(b"\xc0\x00").unwrap();
    let mut answer = [0; 2];
    socket.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"\xd0\x00");
}

/// A client that listens to everything, with little room for what it has not read.
fn receiver(port: u16) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(8 * 1024).unwrap();
    socket.connect(&SocketAddr::from(([127, 0, 0, 1], port)).into()).unwrap();
    let mut socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(&connect(4, 60, "receiver")).unwrap();
    let mut answers = [0; 4 + 5];
    socket.read_exact(&mut answers[..4]).unwrap();
    socket.write_all(b"\x82\x08\x00\x01\x00\x03f/#\x00").unwrap();
    socket.read_exact(&mut answers[4..]).unwrap();
    socket
}

/// How many messages of each topic there are to read.
fn arrived(socket: &mut TcpStream) -> BTreeMap<String, usize> {
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    let (mut counts, mut inbox, mut buffer) = (BTreeMap::new(), Vec::new(), vec![0; 64 * 1024]);
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => panic!("the receiver's connection has ended"),
            Ok(size) => inbox.extend_from_slice(&buffer[..size]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return counts,
            Err(error) => panic!("{error}"),
        }
        let mut read = 0;
        while let Some(packet) = inbox[read..].get(..2).and_then(|head| inbox[read..].get(..2 + usize::from(head[1]))) {
            let topic = String::from_utf8(packet[4..packet.len() - 64].to_vec()).unwrap();
            *counts.entry(topic).or_default() += 1;
            read += packet.len();
        }
        inbox.drain(..read);
    }
}

/// The flood at a port; how many messages of the twenty arrived, and of the flooder.
fn flood(port: u16) -> (usize, usize) {
    let mut receiver = receiver(port);
    let mut others: Vec<TcpStream> = (0..OTHERS.0).map(|n| raw(port, &connect(4, 60, &format!("o{n}"))).0).collect();
    let (mut flooder, _) = raw(port, &connect(4, 60, "flooder"));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let many = message("f/flood").repeat(100);
            for _ in 0..FLOOD / 100 {
                flooder.write_all(&many).unwrap();
            }
            settle(&mut flooder);
        });
        for _ in 0..OTHERS.1 {
            for (n, other) in others.iter_mut().enumerate() {
                other.write_all(&message(&format!("f/o{n}"))).unwrap();
                settle(other);
            }
        }
    });
    let mut counts = arrived(&mut receiver);
    let flooded = counts.remove("f/flood").unwrap_or(0);
    (counts.values().sum(), flooded)
}

#[test]
fn a_flooder_does_not_take_the_messages_of_the_others_as_it_does_at_mosquitto_alone() {
    let all = usize::from(OTHERS.0) * usize::from(OTHERS.1);
    let Some(alone) = mosquitto() else { return };
    let (of_others_alone, of_flooder_alone) = flood(alone.port);
    let Some(behind) = mosquitto() else { return };
    let (_guard, port) = guard(behind.port);
    let (of_others, of_flooder) = flood(port);
    println!(
        "of {all} messages of the others {of_others_alone} arrive at mosquitto alone (of the flooder {of_flooder_alone} of {FLOOD}), \
         {of_others} behind a guard ({of_flooder})"
    );
    assert!(of_others >= all * 95 / 100, "{of_others} of {all} behind a guard");
}
