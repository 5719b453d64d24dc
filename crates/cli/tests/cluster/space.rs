//! The smart space of a cluster: it is at the node that serves and nowhere else, and what was confirmed there is at the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

use super::nodes::{Nodes, PATIENCE, run, status};

const WRITERS: u64 = 3;
const STANDING: &str = "SELECT ?o { <urn:lamp> <urn:state> ?o }";
const NUMBERS: &str = "SELECT ?a ?b { ?s <urn:a> ?a OPTIONAL { ?s <urn:b> ?b } }";
const MAPS: &str = r#"
[[map.ingest]]
topic = "sensors/+room"
triples = ["<urn:room:{room}> <urn:value> {$.value}"]

[[map.emit]]
query = "SELECT ?room { ?room <urn:alarm> true }"
topic = "alarms"
"#;

fn connect(port: u16) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// One request on a connection that stays: status and body.
fn ask(stream: &mut BufReader<TcpStream>, path: &str, body: &str) -> std::io::Result<(u16, String)> {
    let kind = if path == "/update" { "application/sparql-update" } else { "application/sparql-query" };
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/csv\r\nContent-Type: {kind}\r\n");
    stream.get_mut().write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes())?;
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

fn version(body: &str) -> u64 {
    serde_json::from_str::<Value>(body).unwrap()["version"].as_u64().unwrap()
}

/// Asks a node that serves, or is about to, until it answers by 200.
fn insist(nodes: &Nodes, node: usize, path: &str, body: &str) -> String {
    let begun = Instant::now();
    loop {
        let answer = connect(nodes.list[node].http).and_then(|stream| ask(&mut BufReader::new(stream), path, body));
        match answer {
            Ok((200, body)) => return body,
            other => assert!(begun.elapsed() < PATIENCE, "{other:?}\n{}", nodes.logs()),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Inserts numbers, two triples each, until the node is gone; each that was confirmed is told, with its version.
fn write(port: u16, writer: u64, confirmed: &Sender<(u64, u64)>) -> std::io::Result<()> {
    let mut stream = BufReader::new(connect(port)?);
    for n in 0.. {
        let number = writer * 1_000_000 + n;
        let text = format!("INSERT DATA {{ <urn:n:{number}> <urn:a> {number} ; <urn:b> {number} }}");
        if let (200, body) = ask(&mut stream, "/update", &text)? {
            let _ = confirmed.send((number, version(&body)));
        }
    }
    Ok(())
}

struct Subscription {
    socket: WebSocket<TcpStream>,
    spuid: String,
    sequence: u64,
    is_resumed: Option<bool>,
    values: Vec<String>,
}

fn subscribe(port: u16, seen: Option<(&str, u64)>) -> Subscription {
    let stream = connect(port).unwrap();
    let (mut socket, _) = tungstenite::client(format!("ws://127.0.0.1:{port}/subscribe"), stream).unwrap();
    let mut subscribe = json!({ "sparql": STANDING });
    if let Some((spuid, sequence)) = seen {
        (subscribe["spuid"], subscribe["sequence"]) = (spuid.into(), sequence.into());
    }
    socket.send(Message::text(json!({ "subscribe": subscribe }).to_string())).unwrap();
    let said = hear(&mut socket);
    let (spuid, sequence) = (said["spuid"].as_str().unwrap().to_owned(), said["sequence"].as_u64().unwrap());
    Subscription { socket, spuid, sequence, is_resumed: said["resumed"].as_bool(), values: added(&said) }
}

fn hear(socket: &mut WebSocket<TcpStream>) -> Value {
    loop {
        if let Message::Text(text) = socket.read().unwrap() {
            return serde_json::from_str::<Value>(&text).unwrap()["notification"].take();
        }
    }
}

fn added(said: &Value) -> Vec<String> {
    let rows = said["addedResults"]["results"]["bindings"].as_array();
    let mut values: Vec<String> =
        rows.into_iter().flatten().map(|row| row["o"]["value"].as_str().unwrap().to_owned()).collect();
    values.sort_unstable();
    values
}

#[test]
fn what_the_smart_space_has_confirmed_survives_the_death_of_its_node() {
    let Some(mut nodes) = Nodes::start_with(MAPS) else { return };
    let owner = nodes.owner_but(None);
    insist(&nodes, owner, "/update", "INSERT DATA { <urn:lamp> <urn:state> \"on\" }");
    for (index, node) in nodes.list.iter().enumerate() {
        assert_eq!(connect(node.http).is_ok(), index == owner, "{} is open", node.name);
    }
    let mut subscription = subscribe(nodes.list[owner].http, None);
    assert_eq!(subscription.values, ["on"]);
    insist(&nodes, owner, "/update", "INSERT DATA { <urn:lamp> <urn:state> \"warm\" }");
    let told = hear(&mut subscription.socket);
    assert_eq!(added(&told), ["warm"]);
    let known = (subscription.spuid, told["sequence"].as_u64().unwrap());

    // Writers without a pause, and the end in the middle of it.
    let (sender, receiver) = channel();
    let port = nodes.list[owner].http;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let sender = sender.clone();
            std::thread::spawn(move || drop(write(port, writer, &sender)))
        })
        .collect();
    drop(sender);
    let (mut confirmed, begun): (BTreeMap<u64, u64>, _) = (BTreeMap::new(), Instant::now());
    while confirmed.len() < 200 {
        confirmed.extend([receiver.recv_timeout(PATIENCE).unwrap()]);
    }
    println!("200 changes of {WRITERS} writers confirmed in {:.2} s", begun.elapsed().as_secs_f64());
    // The last thing before the end is for somebody who is not there.
    drop(subscription.socket);
    insist(&nodes, owner, "/update", "INSERT DATA { <urn:lamp> <urn:state> \"bright\" }");
    nodes.list[owner].kill();
    let dead = Instant::now();
    for writer in writers {
        writer.join().unwrap();
    }
    confirmed.extend(receiver.try_iter());
    let next = nodes.owner_but(Some(owner));
    let rows = insist(&nodes, next, "/query", NUMBERS);
    println!("{} confirmed; at the next node after {:.1} s", confirmed.len(), dead.elapsed().as_secs_f64());
    let rows: BTreeSet<&str> = rows.lines().skip(1).map(str::trim).collect();
    for number in confirmed.keys() {
        assert!(rows.contains(format!("{number},{number}").as_str()), "{number} is gone or half: {}", nodes.logs());
    }
    assert!(rows.iter().all(|row| row.split_once(',').is_some_and(|(a, b)| a == b)), "half a change");

    // Whoever comes back is told all of it, as after a restart of a broker that is alone.
    let again = subscribe(nodes.list[next].http, Some((&known.0, known.1)));
    assert_eq!((again.is_resumed, again.sequence), (Some(false), 0));
    assert_eq!(again.values, ["bright", "on", "warm"]);
    // Versions go on.
    let newest = version(&insist(&nodes, next, "/update", "INSERT DATA { <urn:room:k> <urn:alarm> false }"));
    assert!(confirmed.values().all(|version| *version < newest), "{newest} was given before");

    maps_work(&nodes, next);
    let (view, _) = status(&nodes.list[next].config());
    assert!(view["space_messages"].as_u64().is_some_and(|count| count > 0), "{view:#}");
}

/// Both ways, at the node that has taken over.
fn maps_work(nodes: &Nodes, node: usize) {
    let mqtt = nodes.list[node].mqtt.to_string();
    run(&["pub", "-p", &mqtt, "-q", "1", "-t", "sensors/kitchen", "-m", "{\"value\": 21.5}"]);
    let begun = Instant::now();
    while !insist(nodes, node, "/query", "SELECT ?v { <urn:room:kitchen> <urn:value> ?v }").contains("21.5") {
        assert!(begun.elapsed() < PATIENCE, "{}", nodes.logs());
        std::thread::sleep(Duration::from_millis(50));
    }
    let listener = std::thread::spawn(move || run(&["sub", "-p", &mqtt, "-t", "alarms", "-C", "1"]));
    // Off and on until it listens: a map tells what comes.
    while !listener.is_finished() {
        insist(nodes, node, "/update", "DELETE DATA { <urn:room:kitchen> <urn:alarm> true }");
        insist(nodes, node, "/update", "INSERT DATA { <urn:room:kitchen> <urn:alarm> true }");
        assert!(begun.elapsed() < PATIENCE, "{}", nodes.logs());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(listener.join().unwrap().contains("urn:room:kitchen"));
}

#[test]
fn a_node_that_was_asleep_confirms_no_change_and_answers_no_question() {
    let Some(nodes) = Nodes::start() else { return };
    let sleeper = nodes.owner_but(None);
    insist(&nodes, sleeper, "/update", "INSERT DATA { <urn:lamp> <urn:state> \"before\" }");
    let ports = nodes.list[sleeper].http;
    let mut streams = [(); 2].map(|()| BufReader::new(connect(ports).unwrap()));
    nodes.list[sleeper].put_to_sleep();
    // In the kernel when it wakes.
    let text = "INSERT DATA { <urn:lamp> <urn:state> \"asleep\" }";
    let head = "HTTP/1.1\r\nHost: localhost\r\nAccept: text/csv\r\n";
    let [change, question] = &mut streams;
    let kind = "Content-Type: application/sparql-update";
    let update = format!("POST /update {head}{kind}\r\nContent-Length: {}\r\n\r\n{text}", text.len());
    change.get_mut().write_all(update.as_bytes()).unwrap();
    let query = "SELECT%20%3Fo%20%7B%20%3Curn%3Alamp%3E%20%3Curn%3Astate%3E%20%3Fo%20%7D";
    question.get_mut().write_all(format!("GET /query?query={query} {head}\r\n").as_bytes()).unwrap();
    let next = nodes.owner_but(Some(sleeper));
    insist(&nodes, next, "/update", "INSERT DATA { <urn:lamp> <urn:state> \"after\" }");
    nodes.list[sleeper].signal(Signal::CONT);
    for (stream, what) in streams.iter_mut().zip(["change", "question"]) {
        let mut line = String::new();
        // It ends, or says that it cannot.
        let _ = stream.read_line(&mut line);
        assert!(line.is_empty() || line.contains(" 503 "), "a {what} at a node that was overtaken: {line}");
    }
    let begun = Instant::now();
    while connect(nodes.list[sleeper].http).is_ok() {
        assert!(begun.elapsed() < PATIENCE, "its doors stay open:\n{}", nodes.logs());
        std::thread::sleep(Duration::from_millis(50));
    }
    let rows = insist(&nodes, next, "/query", STANDING);
    let rows: BTreeSet<&str> = rows.lines().skip(1).map(str::trim).collect();
    assert_eq!(rows, BTreeSet::from(["after", "before"]));
}
