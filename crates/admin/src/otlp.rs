//! Metrics for a collector that does not scrape: OTLP over HTTP, in its JSON encoding, on a thread of its own.
//!
//! The same families as `/metrics`, with the same names and labels, cumulative from the start of the process. One request
//! at a time, bounded in size and time; what cannot be delivered is not kept, because the next one says more. Plain HTTP:
//! TLS and credentials are what the collector on this machine or in this network is for.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};
use tidegate_broker::Handle;
use tidegate_control::Timestamp;
use tracing::{info, warn};

use crate::exposition::{Buckets, Family, MetricKind, MetricValue, MetricsPage, Sample};
use crate::limits::POST_TIMEOUT;
use crate::metrics;
use crate::post::{HttpTarget, PostThread};
use crate::process_control::ProcessControl;
use crate::state::wall;
use crate::status::VERSION;

/// Where a collector is: `http://HOST[:PORT][/PATH]`; port 4318 and the path `/v1/metrics` need not be said.
pub fn collector(url: &str) -> Option<HttpTarget> {
    HttpTarget::parse(url, 4318, "/v1/metrics")
}

/// Sends metrics until it is dropped.
#[derive(Debug)]
pub struct Otlp {
    sender: Option<PostThread>,
}

impl Otlp {
    /// Begins to send, once in each interval.
    pub fn start(
        collector: HttpTarget,
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
                let sent = collector.send(body.as_bytes(), POST_TIMEOUT);
                let host = collector.host();
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
        Ok(Self { sender: Some(PostThread::start("otlp", run)?) })
    }
}

impl Drop for Otlp {
    fn drop(&mut self) {
        // A collector that hangs does not keep the process for longer than one request, nor does a name that is not found.
        self.sender.take().map(|sender| sender.end(POST_TIMEOUT));
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
    use super::*;

    #[test]
    fn collectors_are_urls_of_plain_http() {
        let parsed = |url: &str| collector(url).map(|it| it.to_string());
        assert_eq!(parsed("http://127.0.0.1:4318").unwrap(), "http://127.0.0.1:4318/v1/metrics");
        assert_eq!(parsed("http://collector/").unwrap(), "http://collector:4318/v1/metrics");
        assert_eq!(parsed("http://[::1]/otlp/v1/metrics").unwrap(), "http://[::1]:4318/otlp/v1/metrics");
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
