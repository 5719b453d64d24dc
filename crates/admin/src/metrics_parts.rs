//! Metrics of what may be absent: the store, the smart space, certificates.

use std::fmt::Write;
use std::time::UNIX_EPOCH;

use tidegate_store::{Health, SyncTimes, WriterMetrics};

use crate::metrics::{Page, escaped};
use crate::steward::Certificate;

pub(crate) fn store(page: &mut Page, metrics: &WriterMetrics, health: &Health) {
    page.gauge("store_bytes", "Bytes of the store's files.", metrics.disk_bytes);
    page.gauge("store_queue_bytes", "Bytes that wait to be written.", metrics.queue_bytes as u64);
    page.gauge("store_queue_batches", "Batches that wait to be written.", metrics.queue_batches as u64);
    page.counter("store_errors", "Times the disk refused a write or a sync.", metrics.log.failures);
    page.counter("store_compactions", "Times the log became a snapshot.", metrics.log.compactions);
    page.gauge("store_healthy", "1 while the disk takes what it is given.", u64::from(*health == Health::Fine));
    page.head("store_busy_seconds", "gauge", "How long the disk has been with what it does now.");
    page.sample("store_busy_seconds", "", format_args!("{:.6}", metrics.busy_for.as_secs_f64()));
    syncs(page, &metrics.log.syncs);
}

/// A histogram; its limits are those of the store's own buckets.
fn syncs(page: &mut Page, times: &SyncTimes) {
    page.head("store_fsync_seconds", "histogram", "How long the disk took for a sync.");
    let mut sum = 0;
    for (place, count) in times.buckets.iter().enumerate() {
        sum += count;
        let is_last = place + 1 == SyncTimes::BUCKETS;
        let limit = if is_last { "+Inf".to_owned() } else { format!("{}", (1_u64 << place) as f64 / 1e6) };
        page.sample("store_fsync_seconds_bucket", &format!("{{le=\"{limit}\"}}"), sum);
    }
    page.sample("store_fsync_seconds_sum", "", times.total.as_secs_f64());
    page.sample("store_fsync_seconds_count", "", sum);
}

/// `counts`: class, outcome and number of requests; `standing`: queries that stand, and notifications.
pub(crate) fn space(page: &mut Page, counts: &[(&'static str, &'static str, u64)], standing: (usize, u64)) {
    page.head("sparql_requests", "counter", "Requests to the smart space, at whichever door, by kind and outcome.");
    for (class, outcome, number) in counts {
        page.sample("sparql_requests_total", &format!("{{op=\"{class}\",outcome=\"{outcome}\"}}"), number);
    }
    let shared = counts.iter().filter(|(_, outcome, _)| matches!(*outcome, "shared" | "remembered"));
    let shared = shared.map(|(.., number)| number).sum();
    page.counter("sparql_coalesced", "Answers that were worked out for somebody else.", shared);
    page.gauge("standing_queries", "Queries that stand.", standing.0 as u64);
    page.counter("notifications", "Changes that subscribers of standing queries were told.", standing.1);
}

pub(crate) fn certificates(page: &mut Page, certificates: &[Certificate]) {
    let known: Vec<(&Certificate, u64)> = certificates
        .iter()
        .filter_map(|it| Some((it, it.expires?.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())))
        .collect();
    if known.is_empty() {
        return;
    }
    page.head("tls_cert_expiry_timestamp_seconds", "gauge", "When the certificate of a listener ends.");
    let mut said = Vec::new();
    for (certificate, at) in known {
        // Two doors of a kind share their certificate.
        if !said.contains(&certificate.listener) {
            let mut labels = String::new();
            let _ = write!(labels, "{{listener=\"{}\"}}", escaped(&certificate.listener));
            page.sample("tls_cert_expiry_timestamp_seconds", &labels, at);
            said.push(certificate.listener.clone());
        }
    }
}

/// Everything that may be there.
#[cfg(test)]
pub(crate) fn example(page: &mut Page) {
    let mut metrics = WriterMetrics::default();
    (metrics.log.syncs.buckets[3], metrics.log.syncs.buckets[23]) = (5, 2);
    store(page, &metrics, &Health::Fine);
    space(page, &[("query", "fresh", 3), ("query", "shared", 4), ("update", "busy", 1)], (2, 9));
    let expires = Some(UNIX_EPOCH + std::time::Duration::from_secs(4_000_000_000));
    let certificate = Certificate { listener: "mqtts".to_owned(), subject: "CN=x".to_owned(), expires };
    certificates(page, &[certificate.clone(), certificate]);
}
