//! `kill -9` of a broker whose smart space is being changed, again and again: what was confirmed is there, each change as
//! a whole, and versions never go back. `TIDEGATE_ROUNDS=100` kills more often.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tidegate_test_support::{Launch, path};

const ROUNDS: u64 = 6;
const WRITERS: u64 = 4;
/// Nothing takes that long, unless it never happens.
const PATIENCE: Duration = Duration::from_secs(60);

/// A broker and two of its doors.
struct Broker {
    process: tidegate_test_support::Broker,
    http: SocketAddr,
    ssap: SocketAddr,
}

impl Broker {
    fn start(folder: &Path) -> Self {
        Self::of(Launch::at(folder))
    }

    fn of(launch: Launch) -> Self {
        let process = launch.door("http").door("ssap").arguments(["--log-level", "warn"]).start();
        let [http, ssap] = ["sparql", "ssap"].map(|door| process.address(door).parse().unwrap());
        Self { process, http, ssap }
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

/// A subscription at each door, as its client remembers it: its name and the number of what was told last.
struct Subscribers {
    socket: (String, u64),
    ssap: (String, u64),
    check: (String, u64),
}

const STANDING: &str = "SELECT ?o { <urn:lamp> <urn:state> ?o }";

/// What a door says first: its name, the number, whether it goes on where it was, and what is in the result then.
type Said = (String, u64, Option<bool>, Vec<String>);

/// The lamps' states in a text of any of the doors.
fn states(text: &str) -> Vec<String> {
    let mut found: Vec<String> =
        (1..=9).map(|n| format!("state{n}")).filter(|state| text.contains(state.as_str())).collect();
    found.sort();
    found
}

fn said(text: &str) -> Said {
    let told: serde_json::Value = serde_json::from_str(text).unwrap();
    let told = &told["notification"];
    let number = told["sequence"].as_u64().unwrap_or_else(|| panic!("{text}"));
    assert_eq!(told["removedResults"]["results"]["bindings"].as_array().map(Vec::len), Some(0), "{text}");
    let spuid = told["spuid"].as_str().unwrap().to_owned();
    (spuid, number, told["resumed"].as_bool(), states(&told["addedResults"].to_string()))
}

fn socket(at: SocketAddr, seen: Option<&(String, u64)>) -> (tungstenite::WebSocket<TcpStream>, Said) {
    let (mut socket, _) = tungstenite::client(format!("ws://{at}/subscribe"), connect(at).unwrap()).unwrap();
    let mut subscribe = serde_json::json!({ "sparql": STANDING });
    if let Some((name, number)) = seen {
        subscribe["spuid"] = name.as_str().into();
        subscribe["sequence"] = (*number).into();
    }
    socket.send(tungstenite::Message::text(serde_json::json!({ "subscribe": subscribe }).to_string())).unwrap();
    let first = said(socket.read().unwrap().to_text().unwrap());
    (socket, first)
}

fn check(at: SocketAddr, seen: Option<&(String, u64)>) -> Said {
    let seen = seen.map(|(name, number)| format!("&spuid={name}&sequence={number}")).unwrap_or_default();
    let query = STANDING.replace(' ', "+").replace('?', "%3F");
    let mut stream = BufReader::new(connect(at).unwrap());
    let form = format!("query={query}{seen}");
    let (status, body) = ask(&mut stream, "/check", "application/x-www-form-urlencoded", &form).unwrap();
    assert_eq!(status, 200, "{body}");
    said(&body)
}

/// The next message of SSAP.
fn message(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"</SSAP_message>") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}

fn parameter<'a>(message: &'a str, name: &str) -> Option<&'a str> {
    let rest = message.split_once(&format!("<parameter name=\"{name}\">"))?.1;
    Some(rest.split_once("</parameter>")?.0)
}

fn ssap(at: SocketAddr, seen: Option<&(String, u64)>) -> (TcpStream, Said) {
    let mut stream = connect(at).unwrap();
    let seen = seen.map(|(name, number)| {
        let parameter = |name: &str, text: &str| format!("<parameter name=\"{name}\">{text}</parameter>");
        parameter("subscription_id", name) + &parameter("ind_sequence", &number.to_string())
    });
    let text = format!(
        "<SSAP_message><node_id>kp</node_id><space_id>X</space_id><transaction_type>SUBSCRIBE</transaction_type>\
         <message_type>REQUEST</message_type><transaction_id>1</transaction_id>\
         <parameter name=\"type\">sparql</parameter><parameter name=\"query\"><![CDATA[{STANDING}]]></parameter>{}\
         </SSAP_message>",
        seen.unwrap_or_default()
    );
    stream.write_all(text.as_bytes()).unwrap();
    let answer = message(&mut stream);
    let name = parameter(&answer, "subscription_id").unwrap_or_else(|| panic!("{answer}")).to_owned();
    let number = parameter(&answer, "ind_sequence").map_or(0, |number| number.parse().unwrap());
    let resumed = parameter(&answer, "resumed").map(|word| word == "TRUE");
    (stream, (name, number, resumed, states(&answer)))
}

/// What has happened while nobody listened, and the broker was killed in between, is seen by everybody who comes back, and
/// that it is a new beginning.
#[test]
fn who_was_cut_off_by_the_end_of_the_broker_is_given_a_new_beginning_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let insert = |broker: &Broker, n: u64| {
        let mut stream = BufReader::new(connect(broker.http).unwrap());
        let text = format!("INSERT DATA {{ <urn:lamp> <urn:state> 'state{n}' }}");
        assert_eq!(ask(&mut stream, "/update", "application/sparql-update", &text).unwrap().0, 200);
    };
    let mut known: Option<Subscribers> = None;
    for round in 0..3_u64 {
        let broker = Broker::start(folder.path());
        if round > 0 {
            insert(&broker, 3 * round);
        }
        let seen = known.as_ref();
        let (mut web, first_web) = socket(broker.http, seen.map(|seen| &seen.socket));
        let (mut m3, first_m3) = ssap(broker.ssap, seen.map(|seen| &seen.ssap));
        let first_check = check(broker.http, seen.map(|seen| &seen.check));
        let whole: Vec<String> = (1..=3 * round).map(|n| format!("state{n}")).collect();
        for (name, number, resumed, states) in [&first_web, &first_m3, &first_check] {
            assert_eq!((*number, *resumed, states), (0, seen.map(|_| false), &whole), "round {round}: {name}");
        }
        if let Some(seen) = seen {
            assert!(first_web.0 != seen.socket.0 && first_m3.0 != seen.ssap.0 && first_check.0 != seen.check.0);
        }
        // All are told of one change, and of none after it: nobody reads any more.
        insert(&broker, 3 * round + 1);
        let told = said(web.read().unwrap().to_text().unwrap());
        assert_eq!((told.1, told.3), (1, vec![format!("state{}", 3 * round + 1)]));
        let told = message(&mut m3);
        assert_eq!((parameter(&told, "ind_sequence"), states(&told).len()), (Some("1"), 1), "{told}");
        let checked = check(broker.http, Some(&(first_check.0, 0)));
        assert_eq!((checked.1, checked.2), (1, Some(true)));
        insert(&broker, 3 * round + 2);
        let (socket, ssap) = ((first_web.0, 1), (first_m3.0, 1));
        known = Some(Subscribers { socket, ssap, check: (checked.0, 1) });
    }
}

/// Runs a command; its exit code and all that it says.
fn tidegate(folder: &Path, args: &[&str]) -> (Option<i32>, String) {
    let output = std::process::Command::new(path("tidegate")).current_dir(folder).args(args).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn copies_have_the_smart_space_and_a_check_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let broker = Broker::of(Launch::at(folder).door("admin"));
    let mut stream = BufReader::new(connect(broker.http).unwrap());
    let insert = "INSERT DATA { <urn:kept> <urn:a> 7 }";
    assert_eq!(ask(&mut stream, "/update", "application/sparql-update", insert).unwrap().0, 200);
    let admin = broker.process.address("admin").to_owned();
    let (code, said) = tidegate(folder, &["backup", "running", "--admin", &admin]);
    assert!(code == Some(0) && said.contains("smart space: "), "{said}");
    let (code, said) = tidegate(folder, &["store", "check", "-c", "/dev/null", "--data", "data"]);
    assert!(code != Some(0) && said.contains("is in use by process"), "{said}");
    // What the space became after the copy, a client has seen by its version.
    let other = |number: u32| format!("INSERT DATA {{ <urn:other> <urn:a> {number} }}");
    let mut seen = vec![version(&ask(&mut stream, "/update", "application/sparql-update", &other(1)).unwrap().1)];
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
        let broker = Broker::of(Launch::at(folder).data(&data));
        let mut stream = BufReader::new(connect(broker.http).unwrap());
        let (_, body) =
            ask(&mut stream, "/query", "application/sparql-query", "SELECT ?o { <urn:kept> ?p ?o }").unwrap();
        assert!(body.lines().any(|line| line.trim() == "7"), "{body}");
        let next = version(&ask(&mut stream, "/update", "application/sparql-update", &other(2)).unwrap().1);
        assert!(!seen.contains(&next), "{copy}: version {next} has another meaning than before");
        seen.push(next);
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
