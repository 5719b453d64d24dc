//! Metrics of what may be absent: the store, the smart space, certificates, and the admin API.

use std::time::UNIX_EPOCH;

use tidegate_broker::ListenerReport;
use tidegate_control::Spread;
use tidegate_space::DelegationCounts;
use tidegate_store::{Health, SyncTimes, WriterMetrics};

use crate::entrance::EntranceCounts;
use crate::exposition::{Buckets, MetricKind, MetricsPage};
use crate::process_control::Certificate;

pub(crate) fn store(page: &mut MetricsPage, metrics: &WriterMetrics, health: &Health) {
    page.gauge("store_bytes", "Bytes of the store's files.", metrics.disk_bytes);
    page.gauge("store_queue_bytes", "Bytes that wait to be written.", metrics.queue_bytes as u64);
    page.gauge("store_queue_batches", "Batches that wait to be written.", metrics.queue_batches as u64);
    page.counter("store_errors", "Times the disk refused a write or a sync.", metrics.log.failures);
    page.counter("store_compactions", "Times the log became a snapshot.", metrics.log.compactions);
    page.gauge("store_healthy", "1 while the disk takes what it is given.", u64::from(*health == Health::Fine));
    let is_full = u64::from(health.word() == "full");
    page.gauge("store_full", "1 while there is room only for what makes the store smaller.", is_full);
    if let Some(free) = metrics.free_bytes {
        page.gauge("store_free_bytes", "Bytes that are free where the store is.", free);
    }
    let help = "How long the disk has been with what it does now.";
    page.gauge("store_busy_seconds", help, metrics.busy_for.as_secs_f64());
    page.histogram("store_fsync_seconds", "How long the disk took for a sync.", syncs(&metrics.log.syncs));
}

/// Limits are those of the store's own buckets, powers of two of a microsecond.
fn syncs(times: &SyncTimes) -> Buckets {
    let limits = (1..SyncTimes::BUCKETS).map(|place| (1_u64 << (place - 1)) as f64 / 1e6).collect();
    Buckets { limits, counts: times.buckets.to_vec(), sum: times.total.as_secs_f64() }
}

/// `counts`: class, outcome and number of requests; `standing`: queries that stand, and notifications.
pub(crate) fn space(page: &mut MetricsPage, counts: &[(&'static str, &'static str, u64)], standing: (usize, u64)) {
    let help = "Requests to the smart space, at whichever listener, by kind and outcome.";
    let requests = page.family("sparql_requests", MetricKind::Counter, help);
    for (class, outcome, number) in counts {
        requests.put([("op", class), ("outcome", outcome)], *number);
    }
    let shared = counts.iter().filter(|(_, outcome, _)| matches!(*outcome, "shared" | "remembered"));
    let shared = shared.map(|(.., number)| number).sum();
    page.counter("sparql_coalesced", "Answers that were worked out for somebody else.", shared);
    page.gauge("standing_queries", "Queries that stand.", standing.0 as u64);
    page.counter("notifications", "Changes that subscribers of standing queries were told.", standing.1);
}

/// Who brings changes of standing queries to their subscribers.
pub(crate) fn delegation(page: &mut MetricsPage, counts: DelegationCounts) {
    let help = "Subscriptions whose clients check by themselves, because the smart space has too much to do.";
    page.gauge("delegated_subscriptions", help, counts.delegated as u64);
    let help = "Subscriptions whose clients accept to check by themselves.";
    page.gauge("delegable_subscriptions", help, counts.accepting as u64);
    let help = "How often a subscription was handed over to its client, and taken back.";
    let moves = page.family("delegations", MetricKind::Counter, help);
    moves.put([("move", "handed-over")], counts.handed_over);
    moves.put([("move", "taken-back")], counts.taken_back);
}

/// How answers ended that were too long to be held, and what became of calls to other endpoints.
pub(crate) fn space_beyond(page: &mut MetricsPage, streamed: &[(&'static str, u64)], called: &[(&'static str, u64)]) {
    let help = "Answers that were sent while they were made, because they were too long to be held, by how they ended.";
    let family = page.family("sparql_streamed", MetricKind::Counter, help);
    for (end, number) in streamed {
        family.put([("end", end)], *number);
    }
    let help = "Calls to other endpoints for SERVICE, by outcome.";
    let family = page.family("sparql_service_calls", MetricKind::Counter, help);
    for (outcome, number) in called {
        family.put([("outcome", outcome)], *number);
    }
}

/// How long requests took, by kind; why evaluations were ended; what became of SSAP requests.
pub(crate) fn space_work(
    page: &mut MetricsPage,
    times: &[(&'static str, Spread)],
    cancelled: &[(&'static str, u64)],
    ssap: &[(String, &'static str, u64)],
) {
    let help = "From a request to the smart space to its answer, of those that were answered.";
    let family = page.family("sparql_request_seconds", MetricKind::Histogram, help);
    for (op, spread) in times {
        family.put([("op", op)], Buckets::seconds(spread));
    }
    let family = page.family("sparql_cancelled", MetricKind::Counter, "Evaluations that were ended early, by reason.");
    for (reason, number) in cancelled {
        family.put([("reason", reason)], *number);
    }
    let family = page.family("ssap_requests", MetricKind::Counter, "SSAP requests, by kind and outcome.");
    for (op, outcome, number) in ssap {
        family.put([("op", op), ("outcome", outcome)], *number);
    }
}

pub(crate) fn certificates(page: &mut MetricsPage, certificates: &[Certificate]) {
    let known: Vec<(&Certificate, u64)> = certificates
        .iter()
        .filter_map(|it| Some((it, it.expires?.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())))
        .collect();
    if known.is_empty() {
        return;
    }
    let help = "When the certificate of a listener ends.";
    let family = page.family("tls_cert_expiry_timestamp_seconds", MetricKind::Gauge, help);
    let mut said = Vec::new();
    for (certificate, at) in known {
        // Two doors of a kind share their certificate.
        if !said.contains(&&certificate.listener) {
            family.put([("listener", &certificate.listener)], at);
            said.push(&certificate.listener);
        }
    }
}

/// Each listener of the broker: the operator names them, so their number is the configuration's.
pub(crate) fn listeners(page: &mut MetricsPage, listeners: &[ListenerReport]) {
    if listeners.is_empty() {
        return;
    }
    let help = "Sockets that are open, by the listener where they came in.";
    let family = page.family("listener_connections", MetricKind::Gauge, help);
    for listener in listeners {
        family.put([("listener", listener.name)], listener.connections as u64);
    }
    let help = "Sockets that were accepted, by listener.";
    let family = page.family("listener_accepted", MetricKind::Counter, help);
    for listener in listeners {
        family.put([("listener", listener.name)], listener.accepted);
    }
    let help = "Sockets and clients that were turned away before a session, by listener and reason.";
    let family = page.family("listener_refused", MetricKind::Counter, help);
    for listener in listeners {
        for (reason, count) in &listener.refused {
            family.put([("listener", listener.name), ("reason", reason)], *count);
        }
    }
}

/// The admin API itself.
pub(crate) fn entrance(page: &mut MetricsPage, counts: EntranceCounts) {
    page.gauge("admin_connections", "Connections at the admin API.", counts.connections as u64);
    let help = "Connections at the admin API that had to make room before they had sent a request.";
    page.counter("admin_evicted", help, counts.evicted);
    let help = "Times that the admin API had to use its reserve of descriptors.";
    page.counter("admin_accept_failed", help, counts.failed);
}

/// Everything that may be there.
#[cfg(test)]
pub(crate) fn example(page: &mut MetricsPage) {
    use tidegate_broker::config::ListenerKind;

    let mut metrics = WriterMetrics { free_bytes: Some(1), ..WriterMetrics::default() };
    (metrics.log.syncs.buckets[3], metrics.log.syncs.buckets[23]) = (5, 2);
    store(page, &metrics, &Health::Fine);
    space(page, &[("query", "fresh", 3), ("query", "shared", 4), ("update", "busy", 1)], (2, 9));
    let mut spread = Spread::default();
    spread.note(std::time::Duration::from_millis(2));
    space_work(page, &[("query", spread)], &[("time", 1)], &[("insert".to_owned(), "done", 2)]);
    space_beyond(page, &[("whole", 1)], &[("answered", 1)]);
    let expires = Some(UNIX_EPOCH + std::time::Duration::from_secs(4_000_000_000));
    let certificate = Certificate { listener: "mqtts".to_owned(), subject: "CN=x".to_owned(), expires };
    certificates(page, &[certificate.clone(), certificate]);
    entrance(page, EntranceCounts { connections: 3, evicted: 2, failed: 1 });
    listeners(
        page,
        &[ListenerReport {
            name: "factory",
            kind: ListenerKind::Mqtts,
            address: ([127, 0, 0, 1], 8884).into(),
            connections: 2,
            accepted: 9,
            refused: vec![("full", 1)],
        }],
    );
}
