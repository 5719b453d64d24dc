//! Metrics for a collector that does not scrape: OTLP over HTTP, in its JSON encoding, on a thread of its own.
//!
//! The same families as `/metrics`, with the same names and labels, cumulative from the start of the process. One request
//! at a time, bounded in size and time; what cannot be delivered is not kept, because the next one says more. Plain HTTP:
//! TLS and credentials are what the collector on this machine or in this network is for.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};
use tidegate_broker::Handle;
use tidegate_control::Timestamp;
use tracing::{info, warn};

use crate::exposition::{Buckets, Family, MetricKind, MetricValue, MetricsPage, Sample};
use crate::limits::{OTLP_ANSWER_BYTES, OTLP_TIMEOUT};
use crate::metrics;
use crate::process_control::ProcessControl;
use crate::state::wall;
use crate::status::VERSION;

/// Where a collector is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpCollector {
    /// Name and port.
    host: String,
    path: String,
}

impl OtlpCollector {
    /// `http://HOST[:PORT][/PATH]`; port 4318 and the path `/v1/metrics` need not be said. None if it is anything else.
    pub fn parse(url: &str) -> Option<Self> {
        let rest = url.strip_prefix("http://")?;
        let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && !b"@?#".contains(&byte));
        // Behind the brackets of an address of IPv6, if it is one.
        let name_end = host.rfind(']').map_or(0, |at| at + 1);
        let has_port = match host[name_end..].split_once(':') {
            Some((_, port)) => port.parse::<u16>().ok().map(|_| true)?,
            None => false,
        };
        if host.is_empty() || host.starts_with(':') || !is_plain(host) || !is_plain(path) {
            return None;
        }
        let host = if has_port { host.to_owned() } else { format!("{host}:4318") };
        let path = if matches!(path, "" | "/") { "/v1/metrics" } else { path };
        Some(Self { host, path: path.to_owned() })
    }

    /// One request; an answer other than success is an error. All of it ends in time, but for the search for the address.
    fn send(&self, body: &[u8], timeout: Duration) -> io::Result<()> {
        let addresses = self.host.to_socket_addrs()?;
        let deadline = Instant::now() + timeout;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "no such address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, left(deadline)?) {
                Ok(stream) => return self.talk(stream, body, deadline),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn talk(&self, mut stream: TcpStream, body: &[u8], deadline: Instant) -> io::Result<()> {
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: tidegate/{VERSION}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            self.path,
            self.host,
            body.len()
        );
        let request = [head.as_bytes(), body].concat();
        let mut rest = &*request;
        while !rest.is_empty() {
            stream.set_write_timeout(Some(left(deadline)?))?;
            match in_time(stream.write(rest))? {
                Some(0) => return Err(io::ErrorKind::WriteZero.into()),
                written => rest = rest.get(written.unwrap_or(0)..).unwrap_or_default(),
            }
        }
        let line = first_line(&mut stream, deadline)?;
        let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)?.parse::<u16>().ok());
        match status {
            Some(200..=299) => Ok(()),
            Some(status) => Err(io::Error::other(format!("the collector answers {status}"))),
            None => Err(io::Error::other("this is no HTTP")),
        }
    }
}

/// The first line is enough; who keeps the connection open after it is not waited for.
fn first_line(stream: &mut TcpStream, deadline: Instant) -> io::Result<String> {
    let (mut answer, mut buffer) = (Vec::new(), [0; 512]);
    while !answer.contains(&b'\n') && answer.len() < OTLP_ANSWER_BYTES {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match in_time(stream.read(&mut buffer))? {
            Some(0) => break,
            len => answer.extend_from_slice(buffer.get(..len.unwrap_or(0)).unwrap_or_default()),
        }
    }
    Ok(String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned())
}

/// What is left of the time; an error if nothing is.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    let is_over = || io::Error::new(io::ErrorKind::TimedOut, "the collector takes too long");
    (!left.is_zero()).then_some(left).ok_or_else(is_over)
}

/// None if it was interrupted, or the time is over, which the next look at the clock tells.
fn in_time(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        result => result.map(Some),
    }
}

/// Sends metrics until it is dropped.
#[derive(Debug)]
pub struct Otlp {
    sender: Option<OtlpSender>,
}

/// A thread that ends when it is told to, or is left behind.
#[derive(Debug)]
struct OtlpSender {
    stop: mpsc::SyncSender<()>,
    ended: mpsc::Receiver<()>,
    thread: JoinHandle<()>,
}

impl OtlpSender {
    fn start(run: impl FnOnce(&mpsc::Receiver<()>) + Send + 'static) -> io::Result<Self> {
        let ((stop, stopped), (end, ended)) = (mpsc::sync_channel(0), mpsc::sync_channel(0));
        let run = move || {
            let _end = end;
            run(&stopped);
        };
        let thread = thread::Builder::new().name("otlp".to_owned()).spawn(run)?;
        Ok(Self { stop, ended, thread })
    }

    /// True if it has ended in time.
    fn end(self, timeout: Duration) -> bool {
        drop(self.stop);
        let has_ended = self.ended.recv_timeout(timeout) == Err(RecvTimeoutError::Disconnected);
        has_ended && self.thread.join().is_ok()
    }
}

impl Otlp {
    /// Begins to send, once in each interval.
    pub fn start(
        collector: OtlpCollector,
        interval: Duration,
        handle: Handle,
        process: Arc<dyn ProcessControl>,
    ) -> io::Result<Self> {
        // Once: a start that moves, be it by nanoseconds, says that counters began anew.
        let started = wall(&handle, Timestamp::ZERO);
        let run = move |stopped: &mpsc::Receiver<()>| {
            let mut is_well = None;
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                let page = metrics::page(&handle, &*process, &process.certificates());
                let body = body(&page, started, SystemTime::now()).to_string();
                let sent = collector.send(body.as_bytes(), OTLP_TIMEOUT);
                let host = &*collector.host;
                match &sent {
                    Ok(()) if is_well != Some(true) => info!(event = "otlp", host, "metrics reach the collector"),
                    Err(error) if is_well != Some(false) => {
                        warn!(event = "otlp_failed", host, %error, "metrics do not reach the collector");
                    }
                    _ => {}
                }
                is_well = Some(sent.is_ok());
            }
        };
        Ok(Self { sender: Some(OtlpSender::start(run)?) })
    }
}

impl Drop for Otlp {
    fn drop(&mut self) {
        // A collector that hangs does not keep the process for longer than one request, nor does a name that is not found.
        self.sender.take().map(|sender| sender.end(OTLP_TIMEOUT));
    }
}

/// An `ExportMetricsServiceRequest`. Numbers of 64 bits are strings in this encoding, and enumerations are numbers.
fn body(page: &MetricsPage, started: SystemTime, now: SystemTime) -> Json {
    let nanos = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string();
    let times = (nanos(started), nanos(now));
    let metrics: Vec<Json> = page.families().iter().filter_map(|family| metric(family, &times)).collect();
    let attributes = [("service.name", "tidegate"), ("service.version", VERSION)].map(|(key, value)| text(key, value));
    json!({ "resourceMetrics": [{
        "resource": { "attributes": attributes },
        "scopeMetrics": [{ "scope": { "name": "tidegate", "version": VERSION }, "metrics": metrics }],
    }] })
}

/// What never goes down, since the start.
const CUMULATIVE: u8 = 2;

/// None for what is an attribute of the resource, and for what has no numbers yet.
fn metric(family: &Family, times: &(String, String)) -> Option<Json> {
    let points: Vec<Json> = family.samples.iter().map(|sample| point(sample, times)).collect();
    if points.is_empty() {
        return None;
    }
    let unit = match family.unit() {
        Some("seconds") => "s",
        Some("bytes") => "By",
        _ => "1",
    };
    let mut metric = json!({ "name": family.name, "description": family.help, "unit": unit });
    let (kind, data) = match family.kind {
        MetricKind::Info => return None,
        MetricKind::Gauge => ("gauge", json!({ "dataPoints": points })),
        MetricKind::Counter => {
            ("sum", json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": true }))
        }
        MetricKind::Histogram => ("histogram", json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE })),
    };
    metric[kind] = data;
    Some(metric)
}

fn point(Sample { labels, value }: &Sample, (started, now): &(String, String)) -> Json {
    let attributes: Vec<Json> = labels.iter().map(|(key, value)| text(key, value)).collect();
    let mut point = json!({ "attributes": attributes, "startTimeUnixNano": started, "timeUnixNano": now });
    match value {
        MetricValue::Whole(number) => point["asInt"] = json!(i64::try_from(*number).unwrap_or(i64::MAX).to_string()),
        MetricValue::Real(number) => point["asDouble"] = json!(number),
        MetricValue::Buckets(buckets) => {
            let Buckets { limits, counts, sum } = buckets;
            point["count"] = json!(buckets.count().to_string());
            point["sum"] = json!(sum);
            point["bucketCounts"] = counts.iter().map(ToString::to_string).collect();
            point["explicitBounds"] = json!(limits);
        }
    }
    point
}

fn text(key: &str, value: &str) -> Json {
    json!({ "key": key, "value": { "stringValue": value } })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A collector that does this with a connection.
    fn collector(talk: impl FnOnce(TcpStream) + Send + 'static) -> (OtlpCollector, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let collector = OtlpCollector::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        (collector, thread::spawn(move || talk(listener.accept().unwrap().0)))
    }

    #[test]
    fn a_collector_that_keeps_the_connection_open_has_answered() {
        let (collector, thread) = collector(|mut stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n").unwrap();
            // Until the other side is gone.
            let mut sink = Vec::new();
            let _ = stream.read_to_end(&mut sink);
        });
        collector.send(b"{}", Duration::from_secs(60)).unwrap();
        thread.join().unwrap();
    }

    #[test]
    fn a_collector_that_drips_or_is_silent_comes_to_an_end() {
        let timeout = Duration::from_millis(50);
        let (silent, thread) = collector(|mut stream| {
            let _ = stream.read_to_end(&mut Vec::new());
        });
        assert_eq!(silent.send(b"{}", timeout).unwrap_err().kind(), io::ErrorKind::TimedOut);
        thread.join().unwrap();
        let (dripping, thread) = collector(|mut stream| {
            while stream.write_all(b"H").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        assert_eq!(dripping.send(b"{}", timeout).unwrap_err().kind(), io::ErrorKind::TimedOut);
        thread.join().unwrap();
        // It does not take what it is sent, either.
        let (release, hold) = mpsc::channel::<()>();
        let (full, thread) = collector(move |_stream| {
            let _ = hold.recv();
        });
        assert_eq!(full.send(&vec![b' '; 64 << 20], timeout).unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(release);
        thread.join().unwrap();
    }

    #[test]
    fn a_thread_that_does_not_end_is_left_behind() {
        let ends = OtlpSender::start(|stopped| assert!(stopped.recv().is_err())).unwrap();
        assert!(ends.end(Duration::from_secs(60)));
        let (release, hang) = mpsc::channel::<()>();
        let hangs = OtlpSender::start(move |_| assert!(hang.recv().is_err())).unwrap();
        assert!(!hangs.end(Duration::from_millis(10)));
        drop(release);
    }

    #[test]
    fn collectors_are_urls_of_plain_http() {
        let parsed = |url: &str| OtlpCollector::parse(url).map(|it| format!("{} {}", it.host, it.path));
        assert_eq!(parsed("http://127.0.0.1:4318").unwrap(), "127.0.0.1:4318 /v1/metrics");
        assert_eq!(parsed("http://collector/").unwrap(), "collector:4318 /v1/metrics");
        assert_eq!(parsed("http://[::1]/otlp/v1/metrics").unwrap(), "[::1]:4318 /otlp/v1/metrics");
        for bad in [
            "https://x",
            "x:4318",
            "http://",
            "http://x:",
            "http://x:99999",
            "http://a b",
            "http://u@x",
            "http://x/a?b",
        ] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }

    #[test]
    fn every_family_is_a_metric_with_whole_points() {
        let page = metrics::example();
        let (started, now) = (UNIX_EPOCH + Duration::from_secs(1), UNIX_EPOCH + Duration::from_secs(3));
        let body = body(&page, started, now);
        let metrics = body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap();
        let is_shown = |family: &&Family| family.kind != MetricKind::Info && !family.samples.is_empty();
        assert_eq!(metrics.len(), page.families().iter().filter(is_shown).count());
        let find = |name: &str| metrics.iter().find(|metric| metric["name"] == name).unwrap();
        let received = find("tidegate_messages_received");
        assert_eq!(received["sum"]["isMonotonic"], json!(true));
        assert_eq!(received["sum"]["dataPoints"][0]["asInt"], "7");
        assert_eq!(received["sum"]["dataPoints"][0]["startTimeUnixNano"], "1000000000");
        assert_eq!(received["sum"]["dataPoints"][0]["timeUnixNano"], "3000000000");
        let delay = &find("tidegate_publish_delay_seconds");
        assert_eq!(delay["unit"], "s");
        let point = &delay["histogram"]["dataPoints"][0];
        assert_eq!((&point["count"], &point["sum"]), (&json!("1"), &json!(0.04)));
        for metric in metrics.iter().filter_map(|metric| metric.get("histogram")) {
            assert_eq!(metric["aggregationTemporality"], json!(2));
            for point in metric["dataPoints"].as_array().unwrap() {
                let len = |name: &str| point[name].as_array().unwrap().len();
                assert_eq!(len("bucketCounts"), len("explicitBounds") + 1, "{point}");
                let sum: u64 = point["bucketCounts"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|count| count.as_str().unwrap().parse::<u64>().unwrap())
                    .sum();
                assert_eq!(point["count"], json!(sum.to_string()));
            }
        }
    }
}
