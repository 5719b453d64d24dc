//! `kill -9` of a broker whose smart space is being changed, again and again: what was confirmed is there, each change as
//! a whole, and versions never go back. `TIDEGATE_ROUNDS=100` kills more often.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

const ROUNDS: u64 = 6;
const WRITERS: u64 = 4;
/// Nothing takes that long, unless it never happens.
const PATIENCE: Duration = Duration::from_secs(60);

/// A broker of its own process; it ends with this.
struct Broker {
    child: Child,
    http: SocketAddr,
    admin: Option<SocketAddr>,
}

impl Broker {
    fn start(folder: &Path) -> Self {
        Self::start_on(folder, "data", "off")
    }

    fn start_on(folder: &Path, data: &str, admin: &str) -> Self {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("log")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["serve", "-c", "/dev/null", "--mqtt", "127.0.0.1:0", "--ws", "off", "--admin", admin])
            .args(["--http", "127.0.0.1:0", "--ssap", "off", "--log-level", "warn", "--data"])
            .arg(folder.join(data))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut banner = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut banner).unwrap();
        let after = |word: &str| {
            let rest = banner.split_once(&format!("  {word} http://"))?.1;
            rest.split_whitespace().next()?.parse().ok()
        };
        let http = after("sparql").unwrap_or_else(|| panic!("{banner:?}"));
        Self { child, http, admin: after("admin") }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connect(at: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(at)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// One request on a connection that stays: status and body.
fn ask(stream: &mut BufReader<TcpStream>, path: &str, kind: &str, body: &str) -> std::io::Result<(u16, String)> {
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/csv\r\nContent-Type: {kind}\r\n");
    let message = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    stream.get_mut().write_all(message.as_bytes())?;
    let gone = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
    let (mut line, mut length) = (String::new(), 0);
    stream.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(gone)?;
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().map_err(|_| gone())?;
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

/// Inserts numbers, two triples each, until the broker is gone; each that was confirmed is told.
fn write(at: SocketAddr, round: u64, writer: u64, confirmed: &SyncSender<u64>) -> std::io::Result<()> {
    let mut stream = BufReader::new(connect(at)?);
    for n in 0.. {
        let number = (round * WRITERS + writer) * 1_000_000 + n;
        let text = format!("INSERT DATA {{ <urn:n:{number}> <urn:a> {number} ; <urn:b> {number} }}");
        let (status, body) = ask(&mut stream, "/update", "application/sparql-update", &text)?;
        assert_eq!(status, 200, "{body}");
        let _ = confirmed.send(number);
    }
    Ok(())
}

fn version(body: &str) -> u64 {
    body.split("\"version\":").nth(1).and_then(|rest| rest.trim_end_matches('}').parse().ok()).unwrap()
}

#[test]
fn what_was_confirmed_is_there_and_whole() {
    let rounds = std::env::var("TIDEGATE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let folder = tempfile::tempdir().unwrap();
    let mut confirmed: Vec<u64> = Vec::new();
    let mut version_before = 0;
    for round in 0..=rounds {
        let broker = Broker::start(folder.path());
        let mut stream = BufReader::new(connect(broker.http).unwrap());
        let query = "SELECT ?a ?b { ?s <urn:a> ?a OPTIONAL { ?s <urn:b> ?b } }";
        let (status, body) = ask(&mut stream, "/query", "application/sparql-query", query).unwrap();
        assert_eq!(status, 200, "{body}");
        let rows: std::collections::BTreeSet<&str> = body.lines().skip(1).map(str::trim).collect();
        for number in &confirmed {
            assert!(rows.contains(format!("{number},{number}").as_str()), "round {round}: {number} is gone or half");
        }
        let text = format!("INSERT DATA {{ <urn:round> <urn:r> {round} }}");
        let (status, body) = ask(&mut stream, "/update", "application/sparql-update", &text).unwrap();
        assert!(status == 200 && version(&body) > version_before, "round {round}: {body}");
        version_before = version(&body);

        // As many confirmations as this round waits for, then the end, whatever is under way.
        let (sender, receiver): (SyncSender<u64>, Receiver<u64>) = sync_channel(100_000);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (sender, at) = (sender.clone(), broker.http);
                std::thread::spawn(move || drop(write(at, round, writer, &sender)))
            })
            .collect();
        drop(sender);
        for _ in 0..(round * 37) % 150 + 5 {
            confirmed.push(receiver.recv_timeout(PATIENCE).unwrap());
        }
        drop(broker);
        for writer in writers {
            writer.join().unwrap();
        }
        confirmed.extend(receiver.try_iter());
        version_before = version_before.max(confirmed.len() as u64);
    }
}

/// Runs a command; its exit code and all that it says.
fn tidegate(folder: &Path, args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).current_dir(folder).args(args).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn copies_have_the_smart_space_and_a_check_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let broker = Broker::start_on(folder, "data", "127.0.0.1:0");
    let mut stream = BufReader::new(connect(broker.http).unwrap());
    let insert = "INSERT DATA { <urn:kept> <urn:a> 7 }";
    assert_eq!(ask(&mut stream, "/update", "application/sparql-update", insert).unwrap().0, 200);
    let admin = broker.admin.unwrap().to_string();
    let (code, said) = tidegate(folder, &["backup", "running", "--admin", &admin]);
    assert!(code == Some(0) && said.contains("smart space: "), "{said}");
    let (code, said) = tidegate(folder, &["store", "check", "-c", "/dev/null", "--data", "data"]);
    assert!(code != Some(0) && said.contains("is in use by process"), "{said}");
    drop(broker);
    let (code, said) = tidegate(folder, &["backup", "still", "--from", "data"]);
    assert!(code == Some(0) && said.contains("smart space: "), "{said}");
    for copy in ["running", "still"] {
        let (code, said) = tidegate(folder, &["store", "check", copy]);
        assert!(code == Some(0) && said.contains("smart space: "), "{said}");
        let data = format!("data-of-{copy}");
        let restore = ["restore", copy, "-c", "/dev/null", "--data", &data];
        let (code, said) = tidegate(folder, &restore);
        assert!(code == Some(0) && said.contains("smart space: "), "{said}");
        let (code, said) = tidegate(folder, &restore);
        assert!(code != Some(0) && said.contains("nothing was restored"), "{said}");
        let broker = Broker::start_on(folder, &data, "off");
        let mut stream = BufReader::new(connect(broker.http).unwrap());
        let (_, body) =
            ask(&mut stream, "/query", "application/sparql-query", "SELECT ?o { <urn:kept> ?p ?o }").unwrap();
        assert!(body.lines().any(|line| line.trim() == "7"), "{body}");
    }
    // A byte that is not what it was is found.
    let dir = folder.join("data/space");
    let name = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
    let segment = name.filter(|path| path.extension().is_some_and(|end| end == "tide")).min().unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    let place = bytes.windows(8).position(|window| window == b"urn:kept").unwrap();
    bytes[place] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let (_, said) = tidegate(folder, &["store", "check", "data"]);
    assert!(said.contains("smart space: ") && said.contains(".tide: bytes"), "{said}");
}
