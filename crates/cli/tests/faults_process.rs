//! What happens to the process as a whole: it is stopped and goes on, its control group is small, its network is bad.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_test_support::Launch;
use tidegate_test_support::skip::{Remedy, skip};

/// Nothing here takes that long, unless it never happens.
const PATIENCE: Duration = Duration::from_secs(60);

fn launch() -> Launch {
    Launch::new().door("admin").arguments(["--log-level", "warn"])
}

/// A client of 3.1.1 by hand, with a will and a keep-alive in seconds.
fn connected(address: &str, name: &str, keep_alive: u8) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let field = |text: &str| [&[0, text.len() as u8], text.as_bytes()].concat();
    let body = [&field("MQTT")[..], &[4, 0x06, 0, keep_alive], &field(name), &field("wills"), &field(name)].concat();
    stream.write_all(&[&[0x10, body.len() as u8], &body[..]].concat()).unwrap();
    assert_eq!(read(&mut stream, 4), b"\x20\x02\0\0");
    stream
}

fn read(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn f122_a_stopped_process_expels_nobody_who_pinged_and_publishes_no_will_of_theirs() {
    let broker = launch().start();
    let address = broker.address("mqtt").to_owned();
    let mut witness = connected(&address, "witness", 0);
    witness.write_all(b"\x82\x0a\x00\x01\x00\x05wills\x00").unwrap();
    assert_eq!(read(&mut witness, 5), b"\x90\x03\0\x01\0");
    // One second of keep-alive: after one and a half of silence a client is taken for dead.
    let mut clients: Vec<TcpStream> = (0..40).map(|number| connected(&address, &format!("c{number}"), 1)).collect();
    let silent = connected(&address, "silent", 1);
    broker.signal("-STOP");
    for _ in 0..4 {
        std::thread::sleep(Duration::from_secs(1));
        for client in &mut clients {
            client.write_all(b"\xc0\0").unwrap();
        }
    }
    broker.signal("-CONT");
    for client in &mut clients {
        assert_eq!(read(client, 8), b"\xd0\0".repeat(4));
    }
    // The one that said nothing is gone, and its will is the only one. (The others are pinging on meanwhile.)
    let mut will = vec![0; 2];
    while witness.peek(&mut will).unwrap() < 2 {}
    let will = read(&mut witness, 2 + 7 + "silent".len());
    assert_eq!(&will[2..], b"\0\x05willssilent");
    for client in &mut clients {
        client.write_all(b"\xc0\0").unwrap();
        assert_eq!(read(client, 2), b"\xd0\0");
    }
    witness.write_all(b"\xc0\0").unwrap();
    assert_eq!(read(&mut witness, 2), b"\xd0\0", "no other will came before this answer");
    drop(silent);
}

/// A control group inside of our own, with so many bytes; none if this machine does not let us.
struct ControlGroup(PathBuf);

impl ControlGroup {
    fn make(bytes: u64) -> Option<Self> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = |line: &str| match line.splitn(3, ':').collect::<Vec<_>>()[..] {
            [_, "memory", path] => Some((format!("/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes")),
            ["0", "", path] => Some((format!("/sys/fs/cgroup{path}"), "memory.max")),
            _ => None,
        };
        groups.lines().filter_map(own).find_map(|(folder, file)| {
            let group = Self(Path::new(&folder).join(format!("tidegate-test-{}", std::process::id())));
            std::fs::create_dir(&group.0).ok()?;
            std::fs::write(group.0.join(file), bytes.to_string()).ok()?;
            Some(group)
        })
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn the_budget_is_half_of_what_the_control_group_allows() {
    let Some(group) = ControlGroup::make(160 << 20) else {
        let why = "this user can make no control group with a limit of memory";
        return skip("a control group", why, Remedy::Owner("run the tests as a user who can"));
    };
    let broker = launch().after(&format!("echo $$ > '{}'/cgroup.procs", group.0.display())).start();
    let budget = broker.metric("tidegate_memory_budget_bytes");
    drop(broker);
    assert!((budget - f64::from(80 << 20)).abs() < 1.0, "{budget}");
}

/// Carries bytes both ways in pieces of `piece` bytes with a pause between, until `cut_after` bytes went one way.
fn carry(mut from: TcpStream, mut to: TcpStream, piece: usize, pause: Duration, cut_after: usize) {
    let (mut buffer, mut carried) = (vec![0; piece], 0);
    while let Ok(count) = from.read(&mut buffer) {
        if count == 0 || carried + count > cut_after || to.write_all(&buffer[..count]).is_err() {
            break;
        }
        carried += count;
        std::thread::sleep(pause);
    }
    let _ = from.shutdown(std::net::Shutdown::Both);
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// An address that leads to the broker through a bad network: slow, in small pieces, and cut again and again.
fn bad_network(to: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate() {
            let (Ok(client), Ok(broker)) = (client, TcpStream::connect(&to)) else { return };
            let _ = (client.set_nodelay(true), broker.set_nodelay(true));
            // Cut at another place each time: inside of packets, and between the steps of a handshake.
            let (piece, cut_after) = (1 + number % 7, 60 + number * 13);
            let (Ok(back), Ok(forth)) = (broker.try_clone(), client.try_clone()) else { return };
            std::thread::spawn(move || carry(client, broker, piece, Duration::from_millis(1), cut_after));
            std::thread::spawn(move || carry(back, forth, 64, Duration::from_millis(1), usize::MAX));
        }
    });
    address
}

/// One packet: its first byte and its body.
fn packet(stream: &mut TcpStream) -> std::io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 2];
    stream.read_exact(&mut head)?;
    assert!(head[1] < 0x80, "no packet of these tests is longer");
    let mut body = vec![0; usize::from(head[1])];
    stream.read_exact(&mut body)?;
    Ok((head[0], body))
}

/// Sends what is left of numbered messages at QoS 2 over one connection, until it breaks; `next` is the first that is not
/// done, `is_received` whether its PUBREC has come.
fn send_exactly_once(address: &str, next: &mut u16, is_received: &mut bool, count: u16) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    stream.write_all(b"\x10\x0d\0\x04MQTT\x04\0\0\0\0\x01p")?;
    assert_eq!(packet(&mut stream)?.0, 0x20);
    while *next < count {
        let id = (*next + 1).to_be_bytes();
        if !*is_received {
            // Marked as sent before: nobody knows whether the one before arrived.
            stream.write_all(&[&[0x3c, 7, 0, 1, b't'][..], &id, &next.to_be_bytes()].concat())?;
            let (first, body) = packet(&mut stream)?;
            assert_eq!((first, &body[..]), (0x50, &id[..]));
            *is_received = true;
        }
        stream.write_all(&[&[0x62, 2][..], &id].concat())?;
        let (first, body) = packet(&mut stream)?;
        assert_eq!((first, &body[..]), (0x70, &id[..]));
        (*next, *is_received) = (*next + 1, false);
    }
    Ok(())
}

#[test]
fn f124_over_a_network_that_is_slow_split_and_cut_exactly_once_is_once() {
    const COUNT: u16 = 60;
    let broker = launch().start();
    let address = broker.address("mqtt").to_owned();
    let mut witness = TcpStream::connect(&address).unwrap();
    witness.set_read_timeout(Some(PATIENCE)).unwrap();
    witness.write_all(b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01w\x82\x06\0\x01\0\x01t\0").unwrap();
    assert_eq!((packet(&mut witness).unwrap().0, packet(&mut witness).unwrap().0), (0x20, 0x90));
    let network = bad_network(address);
    let (mut next, mut is_received, mut connections) = (0, false, 0);
    while send_exactly_once(&network, &mut next, &mut is_received, COUNT).is_err() {
        connections += 1;
        assert!(connections < 1000, "no progress: {next} of {COUNT}");
    }
    assert!(connections > 3, "the network was not bad enough to prove anything");
    for number in 0..COUNT {
        let (first, body) = packet(&mut witness).unwrap();
        assert_eq!((first & 0xf0, &body[3..]), (0x30, &number.to_be_bytes()[..]), "in order, and each once");
    }
    witness.write_all(b"\xc0\0").unwrap();
    assert_eq!(packet(&mut witness).unwrap().0, 0xd0, "nothing came twice");
    println!("{connections} connections were cut");
}
