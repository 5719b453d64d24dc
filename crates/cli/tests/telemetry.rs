//! Metrics that are pushed: a small collector hears what happened, and one that fails does no harm.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};

use serde_json::Value;
use tidegate_test_support::{Launch, PATIENCE};

/// A collector's address, and who comes to it: a listener alone would wait for ever.
fn collector() -> (String, Receiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let (guests, door) = mpsc::sync_channel(0);
    std::thread::spawn(move || listener.incoming().flatten().try_for_each(|stream| guests.send(stream)));
    (address, door)
}

/// One request: its first line and its body. The answer is this.
fn hear(collector: &Receiver<TcpStream>, answer: &str) -> (String, Value) {
    let mut stream = collector.recv_timeout(PATIENCE).expect("the broker comes");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut reader = BufReader::new(stream.try_clone().expect("a second hand"));
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).expect("a request");
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a header");
        let line = line.trim().to_ascii_lowercase();
        if let Some(bytes) = line.strip_prefix("content-length: ") {
            length = bytes.parse().expect("a number");
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    write!(stream, "HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").expect("it listens");
    (first.trim().to_owned(), serde_json::from_slice(&body).expect("JSON"))
}

/// All points of a metric.
fn points(body: &Value, name: &str, kind: &str) -> Vec<Value> {
    let metrics = body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().expect("metrics");
    let metric = metrics.iter().find(|metric| metric["name"] == name).expect(name);
    metric[kind]["dataPoints"].as_array().expect("points").clone()
}

#[test]
fn a_collector_hears_what_happened_although_it_failed_at_first() {
    let (address, collector) = collector();
    let url = format!("telemetry.otlp=http://{address}");
    // Without the operator's door: the two have nothing to do with each other.
    let broker = Launch::new().arguments(["--set", &url, "--set", "telemetry.otlp_interval=1s"]).start();

    let (first, body) = hear(&collector, "503 Service Unavailable");
    assert_eq!(first, "POST /v1/metrics HTTP/1.1");
    let resource = &body["resourceMetrics"][0]["resource"]["attributes"][0];
    assert_eq!((&resource["key"], &resource["value"]["stringValue"]), (&"service.name".into(), &"tidegate".into()));
    let received = points(&body, "tidegate_messages_received", "sum");
    assert_eq!(received[0]["asInt"], "0");
    let started = received[0]["startTimeUnixNano"].clone();

    broker.send(&["-q", "1", "-t", "a", "-m", "hello"]);
    // Counters are shown a tenth of a second later: the collector may come before.
    let told = (0..20).map(|_| hear(&collector, "200 OK").1);
    let mut told = told.skip_while(|body| points(body, "tidegate_messages_received", "sum")[0]["asInt"] == "0");
    let body = told.next().expect("it is told in the end");
    let received = points(&body, "tidegate_messages_received", "sum");
    assert_eq!(received[0]["startTimeUnixNano"], started, "else a collector takes it for a restart");
    let acknowledged = points(&body, "tidegate_ack_latency_seconds", "histogram");
    let counts = acknowledged.iter().map(|point| point["count"].as_str().expect("a string").parse::<u64>());
    assert_eq!(counts.sum::<Result<u64, _>>().expect("numbers"), 1, "{acknowledged:?}");
}
