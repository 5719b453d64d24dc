//! `/metrics`: what there is to be known, as numbers. Every label has a closed set of values, so the size of a scrape does
//! not depend on who connects: a thousand numbers however many clients there are. What may be absent is in
//! `metrics_parts`.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::extract::State;
use axum::http::StatusCode;
use tidegate_broker::{ExtraMetric, Handle, PressureReport, WatchReport};
use tidegate_core::event::{ClassStats, Stats};
use tidegate_core::ledger::Loss;
use tidegate_core::measures::{CLOSED, Measures};

use crate::alarms::AlarmKind;
use crate::exposition::{Buckets, Family, MetricKind, MetricsPage};
use crate::limits::LISTENERS_MAX;
use crate::metrics_parts as parts;
use crate::problem::{Answered, text};
use crate::process_control::{Certificate, ProcessControl};
use crate::state::{AdminState, wall};
use crate::status::VERSION;

const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(crate) async fn show(State(state): State<Arc<AdminState>>) -> Answered {
    let mut page = page(&state.handle, &*state.process, &state.certificates());
    let listeners = LISTENERS_MAX - state.listeners.available_permits();
    page.gauge("dashboards", "Pages that listen to the admin API.", listeners as u64);
    parts::entrance(&mut page, state.entrance.counts());
    Ok(text(StatusCode::OK, KIND, page.text()))
}

/// Everything, as it is now.
pub(crate) fn page(handle: &Handle, process: &dyn ProcessControl, certificates: &[Certificate]) -> MetricsPage {
    let mut page = MetricsPage::default();
    let (_, handshakes) = handle.sockets();
    let (classes, transitions) = (handle.classes(), handle.transitions());
    let (stats, pressure) = (handle.stats(), handle.pressure());
    clients(&mut page, &stats, handshakes);
    parts::listeners(&mut page, &handle.listeners());
    trouble(&mut page, &stats, &handle.watch());
    messages(&mut page, &stats, &classes);
    load(&mut page, &stats, &pressure, &transitions);
    measures(&mut page, &handle.measures(), &classes);
    extra_metrics(&mut page, &handle.extra_metrics());
    extra_metrics(&mut page, &process.entry_metrics());
    if let Some(report) = handle.store() {
        parts::store(&mut page, &report.metrics, &report.health);
    }
    if let Some(space) = process.space() {
        parts::space(&mut page, &space.counts(), space.watch().standing());
        parts::delegation(&mut page, space.watch().delegated());
        parts::space_work(&mut page, &space.times(), &space.cancelled(), &space.ssap());
        parts::space_beyond(&mut page, &space.streamed(), &space.service_calls());
    }
    if let Some(report) = process.cluster() {
        crate::cluster::metrics(&mut page, &report);
    }
    crate::bridges::metrics(&mut page, &process.bridges());
    crate::sinks::metrics(&mut page, &process.sinks());
    parts::certificates(&mut page, certificates);
    if let Some(at) = process.configured_at() {
        let at = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        page.gauge("config_reload_timestamp_seconds", "When the configuration was last read and taken.", at);
    }
    process_figures(
        &mut page,
        wall(handle, tidegate_control::Timestamp::ZERO).duration_since(UNIX_EPOCH).unwrap_or_default(),
    );
    page
}

fn clients(page: &mut MetricsPage, stats: &Stats, handshakes: usize) {
    page.gauge("connections", "Clients that are connected.", stats.connections);
    page.counter("connections_opened", "Connections that a session accepted.", stats.connects);
    let refused = page.family("connects_refused", MetricKind::Counter, "Clients that were not let in, by reason.");
    refused.put([("reason", "busy")], stats.connects_refused_busy);
    refused.put([("reason", "rate")], stats.connects_refused_rate);
    page.gauge("handshakes_in_progress", "Sockets that have not said who they are.", handshakes as u64);
    let sessions = page.family("sessions", MetricKind::Gauge, "Sessions by whether their client is connected.");
    sessions.put([("state", "connected")], stats.connections.min(stats.sessions));
    sessions.put([("state", "away")], stats.sessions.saturating_sub(stats.connections));
    page.counter("sessions_expired", "Sessions that ended by expiry.", stats.sessions_expired);
    page.gauge("subscriptions", "Subscriptions.", stats.subscriptions);
    page.gauge("retained_messages", "Retained messages.", stats.retained_messages);
    page.gauge("retained_bytes", "Bytes of retained messages.", stats.retained_bytes);
}

/// Who is in trouble, as of the last look at all clients: about ten seconds old at most, two while counters speak of trouble;
/// older where a walk over all clients is long (fifty times its time passes before the next), or others are walking. Nobody
/// looks where there is no admin endpoint: what is not known is left out then.
fn trouble(page: &mut MetricsPage, stats: &Stats, watch: &WatchReport) {
    let throttled = watch.publishers_throttled.max(stats.clients_held);
    let help = "Publishers that are refused, not read, or have to wait.";
    page.gauge("publishers_throttled", help, throttled);
    // A look names every kind of alarm, also those without any.
    if watch.alarms.is_empty() {
        return;
    }
    page.gauge(
        "clients_slow",
        "Receivers that take less than comes for them, and do not lose yet.",
        watch.clients_slow,
    );
    page.gauge("clients_losing", "Receivers whose messages are lost for want of room.", watch.clients_losing);
    let family = page.family("alarms", MetricKind::Gauge, "Alarms that are raised, by kind.");
    for kind in AlarmKind::ALL {
        let count = watch.alarms.iter().find(|(name, _)| *name == kind.name()).map_or(0, |(_, count)| *count);
        family.put([("kind", kind.name())], count);
    }
}

fn messages(page: &mut MetricsPage, stats: &Stats, classes: &[String]) {
    page.counter("messages_received", "PUBLISH packets received.", stats.publish_received);
    by_class(page, stats, classes);
    let help = "Messages and deliveries that were lost, and nobody was told, by reason.";
    let family = page.family("messages_dropped", MetricKind::Counter, help);
    for loss in dropped() {
        family.put([("reason", reason(loss))], loss.count(stats));
    }
    family.put([("reason", "shard_full")], stats.dropped_shard_full);
    let help = "Messages that were refused, and their sender told so where the protocol has a word for it, by limit.";
    let family = page.family("publish_rejected", MetricKind::Counter, help);
    for (limit, loss) in [
        ("acl", Loss::Denied),
        ("protocol", Loss::Rejected),
        ("backoff", Loss::Refused),
        ("memory", Loss::MemoryIn),
        ("class", Loss::ClassRefused),
        ("store_error", Loss::StoreError),
    ] {
        family.put([("limit", limit)], loss.count(stats));
    }
    page.counter("publish_repeated", "PUBLISH packets sent again, and taken once.", stats.publish_repeated);
    page.gauge("held_messages", "Messages of publishers that are too fast, waiting to be taken.", stats.held_messages);
    page.gauge("held_bytes", "Bytes of them.", stats.held_bytes);
    page.gauge("queue_messages", "Messages waiting for their receivers.", stats.queued_messages);
    page.gauge("queue_on_disk", "Of those: on disk, and not in memory.", stats.queued_on_disk);
    page.gauge("queue_bytes", "Bytes of them.", stats.queued_bytes);
    let inflight = page.family("inflight", MetricKind::Gauge, "Messages sent and not yet acknowledged.");
    inflight.put([("direction", "out")], stats.inflight_messages);
    page.gauge("ledger_balances", "1 while every message is accounted for.", u64::from(stats.check().is_ok()));
    page.counter("map_queue_full", "Messages that a map wanted and had no room for.", stats.map_queue_full);
    page.counter("map_published", "Messages that maps have published.", stats.map_published);
    page.counter("map_publish_denied", "Messages of maps that rules forbid.", stats.map_publish_denied);
}

fn load(page: &mut MetricsPage, stats: &Stats, pressure: &PressureReport, transitions: &[u64; 5]) {
    let level = u64::from(pressure.level.number());
    page.gauge("overload_level", "How hard the broker is pressed, 0 to 4.", level);
    let family = page.family("overload_transitions", MetricKind::Counter, "How often the level has become this.");
    for (level, count) in transitions.iter().enumerate() {
        family.put([("to", &level.to_string())], *count);
    }
    page.gauge("memory_budget_bytes", "Bytes that messages and clients may take.", pressure.memory_max);
    page.gauge("memory_used_bytes", "Bytes that they take.", pressure.memory_used);
    page.counter("packets_received", "Packets received.", stats.packets_received);
    page.counter("packets_sent", "Packets sent.", stats.packets_sent);
    page.counter("bytes_received", "Bytes received.", stats.bytes_received);
    page.counter("bytes_sent", "Bytes put into outboxes.", stats.bytes_sent);
}

/// How long things took. What is done in one turn counts as the length of the turn, see `tidegate_core::measures`.
fn measures(page: &mut MetricsPage, measures: &Measures, classes: &[String]) {
    let closed = page.family("connections_closed", MetricKind::Counter, "Connections that ended, by reason.");
    for (reason, count) in CLOSED.into_iter().zip(measures.closed) {
        closed.put([("reason", reason)], count);
    }
    let help = "PUBLISH packets that had to wait because their publisher was too fast.";
    let delayed = page.family("publish_delayed", MetricKind::Counter, help);
    for (class, count) in classes.iter().zip(measures.delayed) {
        delayed.put([("class", class)], count);
    }
    let help = "How long those were made to wait.";
    page.histogram("publish_delay_seconds", help, Buckets::seconds(&measures.publish_delay));
    let help = "The same wait, in usual intervals of the publisher where that is known.";
    page.histogram("backoff_factor", help, Buckets::ratio(&measures.backoff_factor));
    let help = "From a PUBLISH of QoS 1 or 2 that was taken to its acknowledgement; \
                within one turn of the loop, the length of the turn.";
    let family = page.family("ack_latency_seconds", MetricKind::Histogram, help);
    for (qos, spreads) in ["1", "2"].into_iter().zip(&measures.ack_latency) {
        for (class, spread) in classes.iter().zip(spreads) {
            family.put([("qos", qos), ("class", class)], Buckets::seconds(spread));
        }
    }
    let help = "From a message's coming to its receiver's thread until it was written (QoS 0) or acknowledged; \
                within one turn of the loop, the length of the turn.";
    spreads(page.family("e2e_latency_seconds", MetricKind::Histogram, help), &measures.e2e_latency, classes);
    let help = "How long messages waited in a receiver's queue for their turn, of those that had to.";
    spreads(page.family("scheduler_wait_seconds", MetricKind::Histogram, help), &measures.scheduler_wait, classes);
    let help = "How long turns of the loops took: whoever became ready meanwhile has waited for it.";
    page.histogram("loop_lag_seconds", help, Buckets::seconds(&measures.loop_lag));
}

fn spreads(family: &mut Family, spreads: &[tidegate_control::Spread], classes: &[String]) {
    for (class, spread) in classes.iter().zip(spreads) {
        family.put([("class", class)], Buckets::seconds(spread));
    }
}

/// Numbers of what runs in the same process.
fn extra_metrics(page: &mut MetricsPage, all: &[ExtraMetric]) {
    for family in all.chunk_by(|one, other| one.family == other.family) {
        let Some(ExtraMetric { family: name, help, is_counter, .. }) = family.first() else { continue };
        // Requests of the smart space are there under the names of SPARQL.
        if *name == "space_requests" {
            continue;
        }
        let shown = page.family(name, if *is_counter { MetricKind::Counter } else { MetricKind::Gauge }, help);
        for ExtraMetric { labels, value, .. } in family {
            shown.put_all(labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(), *value);
        }
    }
}

fn process_figures(page: &mut MetricsPage, started: std::time::Duration) {
    page.family("build", MetricKind::Info, "What runs.").put([("version", VERSION)], 1);
    let mut gauge = |name: &str, help, value: crate::exposition::MetricValue| {
        page.plain_family(name.to_owned(), MetricKind::Gauge, help).put([], value);
    };
    gauge("process_resident_memory_bytes", "Bytes of memory that the process has.", resident_bytes().into());
    gauge("process_start_time_seconds", "When the process started.", started.as_secs_f64().into());
}

type Part = fn(&ClassStats) -> u64;

/// What becomes of messages, by class: the operator's names, of which there are few.
fn by_class(page: &mut MetricsPage, stats: &Stats, classes: &[String]) {
    let families: [(&str, MetricKind, &str, Part); 5] = [
        ("messages_passed", MetricKind::Counter, "PUBLISH packets taken, that is retained and routed.", |class| {
            class.received
        }),
        ("deliveries", MetricKind::Counter, "Messages times receivers.", |class| class.deliveries),
        ("messages_delivered", MetricKind::Counter, "Deliveries written at QoS 0, or acknowledged.", |class| {
            class.delivered
        }),
        ("deliveries_dropped", MetricKind::Counter, "Deliveries that were lost.", |class| class.dropped),
        (
            "deliveries_waiting",
            MetricKind::Gauge,
            "Deliveries that wait, or are not acknowledged yet.",
            ClassStats::waiting,
        ),
    ];
    for (name, kind, help, value) in families {
        let family = page.family(name, kind, help);
        for (class, stats) in classes.iter().zip(&stats.by_class) {
            family.put([("class", class)], value(stats));
        }
    }
}

/// Losses that are drops: those that nobody is told about, or that were for a receiver.
fn dropped() -> impl Iterator<Item = Loss> {
    Loss::ALL.into_iter().filter(|loss| *loss != Loss::Repeated && !loss.is_refusal())
}

fn reason(loss: Loss) -> &'static str {
    loss.name().trim_start_matches("dropped_")
}

/// As Linux tells it, in pages; 0 elsewhere.
pub(crate) fn resident_bytes() -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * PAGE_BYTES
}

/// Everything that there may be.
#[cfg(test)]
pub(crate) fn example() -> MetricsPage {
    use tidegate_control::pressure::Level;
    let stats = Stats { publish_received: 7, publish_passed: 7, connections: u64::MAX, ..Stats::default() };
    let (level, age) = (Level::default(), std::time::Duration::ZERO);
    let pressure = PressureReport { level, cause: None, age, memory_used: 1, memory_max: 2 };
    let classes: Vec<String> = ["high", "normal", "low", "sys", "odd \"name\""].map(String::from).to_vec();
    let mut measured = Measures::default();
    (measured.closed[2], measured.delayed[0]) = (5, 6);
    measured.publish_delay.note(std::time::Duration::from_millis(40));
    measured.backoff_factor.note_ratio(3.0);
    measured.e2e_latency[1].note_many(std::time::Duration::from_micros(90), 1000);
    measured.ack_latency[0][4].note(std::time::Duration::from_secs(500));
    let mut page = MetricsPage::default();
    clients(&mut page, &stats, 3);
    let alarms = AlarmKind::ALL.map(|kind| (kind.name(), 0)).to_vec();
    trouble(&mut page, &stats, &WatchReport { alarms, ..WatchReport::default() });
    messages(&mut page, &stats, &classes);
    load(&mut page, &stats, &pressure, &[0, 1, 2, 3, 4]);
    measures(&mut page, &measured, &classes);
    parts::example(&mut page);
    let bridge = crate::process_control::BridgeReport { name: "hub".to_owned(), ..Default::default() };
    crate::bridges::metrics(&mut page, &[bridge]);
    let sink = crate::process_control::SinkReport { name: "log".to_owned(), ..Default::default() };
    crate::sinks::metrics(&mut page, &[sink]);
    process_figures(&mut page, age);
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_has_looked_at_is_left_out() {
        let mut page = MetricsPage::default();
        trouble(&mut page, &Stats::default(), &WatchReport::default());
        let text = page.text();
        assert!(text.contains("tidegate_publishers_throttled 0\n"), "{text}");
        assert!(["clients_slow", "clients_losing", "alarms"].iter().all(|name| !text.contains(name)), "{text}");
    }

    #[test]
    fn f069_the_page_is_openmetrics_with_closed_labels() {
        let text = example().text();
        for line in [
            "tidegate_deliveries_waiting{class=\"odd \\\"name\\\"\"} 0",
            "tidegate_overload_transitions_total{to=\"2\"} 2",
            "tidegate_messages_received_total 7",
            "tidegate_connections_closed_total{reason=\"keep_alive\"} 5",
            "tidegate_publish_delayed_total{class=\"high\"} 6",
            "tidegate_publish_delay_seconds_bucket{le=\"0.067108864\"} 1",
            "tidegate_backoff_factor_bucket{le=\"2\"} 0",
            "tidegate_backoff_factor_bucket{le=\"4\"} 1",
            "tidegate_e2e_latency_seconds_bucket{class=\"normal\",le=\"0.000065536\"} 0",
            "tidegate_e2e_latency_seconds_count{class=\"normal\"} 1000",
            "tidegate_ack_latency_seconds_bucket{qos=\"1\",class=\"odd \\\"name\\\"\",le=\"+Inf\"} 1",
            "# UNIT tidegate_loop_lag_seconds seconds",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{line} is not in {text}");
        }
        assert_eq!(crate::metrics_check::check(&text), Ok(()));
        assert!(text.len() < 128 * 1024, "{}", text.len());
    }
}
