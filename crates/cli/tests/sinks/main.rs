//! Sinks to real receivers: a web server of this test, which refuses and goes away as it is told; with the features `postgres` and
//! `kafka` Debian's PostgreSQL and the cluster inside of librdkafka.

#![cfg(unix)]
#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

#[cfg(feature = "kafka")]
#[path = "../clients/install.rs"]
#[expect(dead_code, reason = "tests with other people's clients run programs, too")]
mod install;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "postgres")]
mod postgres;
mod seen;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tidegate_test_support::{Launch, PATIENCE, text, tidegate};

use seen::{assert_in_order, await_seen, publish_lines, publish_numbers};

/// What came in one request.
#[derive(Clone, Debug)]
struct Request {
    head: String,
    body: String,
    status: u16,
}

impl Request {
    fn field(&self, name: &str) -> Option<&str> {
        let is_it = |line: &&str| line.split_once(':').is_some_and(|(known, _)| known.eq_ignore_ascii_case(name));
        self.head.lines().find(is_it).and_then(|line| Some(line.split_once(':')?.1.trim()))
    }

    fn payloads(&self) -> Vec<String> {
        let body: Value = serde_json::from_str(&self.body).expect("JSON");
        let list = body["messages"].as_array().expect("a list");
        list.iter().map(|message| message["payload"].as_str().expect("a text").to_owned()).collect()
    }
}

/// A web server that answers as it is told.
struct WebServer {
    port: u16,
    status: Arc<AtomicU16>,
    requests: Receiver<Request>,
}

impl WebServer {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let (status, (sender, requests)) = (Arc::new(AtomicU16::new(204)), mpsc::channel());
        let (own, sender) = (Arc::clone(&status), Arc::new(Mutex::new(sender)));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (own, sender) = (Arc::clone(&own), sender.lock().expect("nobody panics here").clone());
                std::thread::spawn(move || drop(serve(stream, &own, &sender)));
            }
        });
        Self { port, status, requests }
    }

    fn say(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    fn request(&self) -> Request {
        self.requests.recv_timeout(PATIENCE).expect("a request in time")
    }

    /// The next one that was taken.
    fn taken(&self) -> Request {
        loop {
            let request = self.request();
            if request.status < 300 {
                return request;
            }
        }
    }
}

fn serve(stream: TcpStream, status: &AtomicU16, sender: &Sender<Request>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            head.push_str(&line);
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let body = String::from_utf8_lossy(&body).into_owned();
        // A message with this word in it is never wanted.
        let status = if body.contains("poison") { 422 } else { status.load(Ordering::SeqCst) };
        let _ = sender.send(Request { head, body, status });
        writer.write_all(format!("HTTP/1.1 {status} X\r\nContent-Length: 4\r\n\r\nwhy?").as_bytes())?;
    }
}

fn webhook(port: u16, more: &str) -> String {
    format!(
        "[[sink]]\nname = \"log\"\ntype = \"webhook\"\nurl = \"http://127.0.0.1:{port}/in\"\n{more}\
         [[sink.topic]]\nfilter = \"sensors/#\"\n[sink.batch]\nwait = \"20ms\"\n"
    )
}

#[test]
fn a_webhook_is_signed_and_what_it_refuses_for_now_comes_again_under_the_same_number() {
    let server = WebServer::new();
    let launch = Launch::new().door("admin").file("secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n");
    let here = launch
        .file("token", "t0ken\n")
        .config(&webhook(server.port, "secret_file = \"secret\"\ntoken_file = \"token\"\n"));
    let here = here.start();
    server.say(503);
    here.send(&["-t", "sensors/hall", "-m", "21", "-q", "1"]);
    let first = server.request();
    assert_eq!(first.payloads(), ["21"]);
    assert!(first.head.starts_with("POST /in HTTP/1.1\r\n"), "{}", first.head);
    assert_eq!(
        (first.field("authorization"), first.field("content-type")),
        (Some("Bearer t0ken"), Some("application/json"))
    );
    assert!(first.field("webhook-signature").is_some_and(|value| value.starts_with("v1,") && value.len() == 47));
    assert!(first.field("webhook-timestamp").is_some());
    let down = await_seen(&here, "down", |sink| sink["state"] == "down");
    assert_eq!((&down["trouble"], &down["queued"]), (&"it answered 503: why?".into(), &1.into()));
    let status = tidegate(&["status", "--admin", &here.admin()]).output().expect("status runs");
    assert!(text(&status.stdout).contains("\nsink     log gets nothing through for "), "{}", text(&status.stdout));
    server.say(204);
    let again = server.taken();
    assert_eq!((again.field("webhook-id"), again.payloads()), (first.field("webhook-id"), first.payloads()));
    let up = await_seen(&here, "up", |sink| sink["state"] == "up" && sink["queued"] == 0);
    assert_eq!((&up["sent"], &up["type"], &up["refused"]), (&1.into(), &"webhook".into(), &0.into()));
    assert!((here.metric("tidegate_sink_messages_total{sink=\"log\",outcome=\"sent\"}") - 1.0).abs() < 0.1);
    let why = tidegate(&["why", "sink", "log", "--admin", &here.admin()]).output().expect("why runs");
    assert!(text(&why.stdout).starts_with("sink \"log\" works, to http://127.0.0.1:"), "{}", text(&why.stdout));
}

#[test]
fn what_is_acknowledged_at_a_first_start_misses_no_sink() {
    let server = WebServer::new();
    let here = Launch::new().door("admin").config(&webhook(server.port, "")).start();
    // Nobody waits for the sink: the listener opened after it had subscribed.
    here.send(&["-t", "sensors/first", "-m", "1", "-q", "1"]);
    assert_eq!(server.taken().payloads(), ["1"]);
}

#[test]
fn what_waits_for_a_receiver_outlives_the_process_and_arrives_in_order() {
    let server = WebServer::new();
    server.say(500);
    let folder = tempfile::tempdir().expect("a folder");
    let config = webhook(server.port, "");
    let launch = || Launch::at(folder.path()).door("admin").config(&config).start();
    let here = launch();
    publish_numbers(&here, 0..100);
    await_seen(&here, "spooled", |sink| sink["queued"] == 100);
    here.kill();
    let here = launch();
    publish_numbers(&here, 100..200);
    await_seen(&here, "spooled", |sink| sink["queued"] == 200);
    server.say(200);
    let mut arrived: Vec<u32> = Vec::new();
    while !arrived.contains(&199) {
        arrived.extend(server.taken().payloads().iter().map(|payload| payload.parse::<u32>().expect("a number")));
    }
    assert_in_order(arrived, 0..200);
    await_seen(&here, "drained", |sink| sink["queued"] == 0 && sink["state"] == "up");
}

#[test]
fn one_message_that_is_never_wanted_does_not_hold_up_the_others() {
    let server = WebServer::new();
    let here = Launch::new().door("admin").config(&webhook(server.port, "")).start();
    publish_lines(&here, &["1", "2", "poison", "4", "5"].map(str::to_owned));
    let mut got = Vec::new();
    while got.len() < 4 {
        got.extend(server.taken().payloads());
    }
    assert_eq!(got, ["1", "2", "4", "5"]);
    let sink = await_seen(&here, "counted", |sink| sink["refused"] == 1 && sink["sent"] == 4);
    assert_eq!(sink["queued"], 0);
}

#[test]
fn influxdb_gets_lines() {
    let server = WebServer::new();
    let config = format!(
        "[[sink]]\nname = \"log\"\ntype = \"influxdb\"\nurl = \"http://127.0.0.1:{}/api/v2/write?org=o&bucket=b\"\n\
         token_file = \"token\"\n[[sink.topic]]\nfilter = \"sensors/+/+\"\ntemplate = \"_/room/measurement\"\n\
         [sink.batch]\nwait = \"20ms\"\n",
        server.port
    );
    let here = Launch::new().door("admin").file("token", "t0ken").config(&config).start();
    here.send(&["-t", "sensors/hall/temperature", "-m", "21.5", "-q", "1"]);
    let request = server.taken();
    assert!(
        request.head.starts_with("POST /api/v2/write?org=o&bucket=b&precision=ms HTTP/1.1\r\n"),
        "{}",
        request.head
    );
    assert_eq!(request.field("authorization"), Some("Token t0ken"));
    let line = "temperature,room=hall,topic=sensors/hall/temperature value=21.5 ";
    assert!(request.body.starts_with(line) && request.body.ends_with('\n'), "{}", request.body);
}

#[test]
fn nobody_else_can_be_a_sink() {
    let server = WebServer::new();
    let here = Launch::new().door("admin").config(&webhook(server.port, "")).start();
    let output = here.tool("sub", &["-i", "$sink/log", "-t", "x", "-V", "5", "-W", "5"]).output().expect("sub runs");
    assert!(text(&output.stderr).contains("Client Identifier not valid (0x85)"), "{}", text(&output.stderr));
}
