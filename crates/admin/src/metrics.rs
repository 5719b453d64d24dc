//! `/metrics`: OpenMetrics text. Every label has a closed set of values, so its size does not depend on who connects,
//! and a scrape is a few hundred numbers however many clients there are.

use std::fmt::Write;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::extract::State as Shared;
use axum::http::StatusCode;
use tidegate_broker::{Beside, PressureReport};
use tidegate_control::Timestamp;
use tidegate_core::event::{ClassStats, Side, Stats};
use tidegate_core::ledger::Loss;

use crate::limits::LISTENERS_MAX;
use crate::metrics_parts as parts;
use crate::problem::{Answered, text};
use crate::state::State;
use crate::status::VERSION;

const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(crate) async fn show(Shared(state): Shared<Arc<State>>) -> Answered {
    let (_, handshakes) = state.handle.sockets();
    let started = state.wall(Timestamp::ZERO).duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let (classes, transitions) = (state.handle.classes(), state.handle.transitions());
    let process = Process { handshakes, started, resident_bytes: resident_bytes(), classes, transitions };
    let mut page = page(&state.handle.stats(), &state.handle.pressure(), &process, &state.handle.beside());
    if let Some(report) = state.handle.store() {
        parts::store(&mut page, &report.metrics, &report.health);
    }
    if let Some(space) = state.steward.space() {
        parts::space(&mut page, &space.counts(), space.watch().standing());
    }
    parts::certificates(&mut page, &state.certificates());
    let listeners = LISTENERS_MAX - state.listeners.available_permits();
    page.gauge("dashboards", "Pages that listen to the operator's door.", listeners as u64);
    Ok(text(StatusCode::OK, KIND, page.end(&process)))
}

struct Process {
    handshakes: usize,
    started: f64,
    resident_bytes: u64,
    /// Names, at most as many as there can be classes.
    classes: Vec<String>,
    transitions: [u64; 5],
}

fn page(stats: &Stats, pressure: &PressureReport, process: &Process, beside: &[Beside]) -> Page {
    let mut page = Page(String::with_capacity(8 * 1024));
    page.gauge("connections", "Clients that are connected.", stats.connections);
    page.counter("connections_opened", "Connections that a session accepted.", stats.connects);
    page.head("connects_refused", "counter", "Clients that were not let in, by reason.");
    page.sample("connects_refused_total", "{reason=\"busy\"}", stats.connects_refused_busy);
    page.sample("connects_refused_total", "{reason=\"rate\"}", stats.connects_refused_rate);
    page.gauge("handshakes_in_progress", "Sockets that have not said who they are.", process.handshakes as u64);
    page.head("sessions", "gauge", "Sessions by whether their client is connected.");
    page.sample("sessions", "{state=\"connected\"}", stats.connections.min(stats.sessions));
    page.sample("sessions", "{state=\"away\"}", stats.sessions.saturating_sub(stats.connections));
    page.counter("sessions_expired", "Sessions that ended by expiry.", stats.sessions_expired);
    page.gauge("subscriptions", "Subscriptions.", stats.subscriptions);
    page.gauge("retained_messages", "Retained messages.", stats.retained_messages);
    page.gauge("retained_bytes", "Bytes of retained messages.", stats.retained_bytes);
    page.counter("messages_received", "PUBLISH packets received.", stats.publish_received);
    by_class(&mut page, stats, &process.classes);
    page.head("messages_dropped", "counter", "Messages and deliveries that went nowhere, by reason.");
    for loss in dropped() {
        page.sample("messages_dropped_total", &format!("{{reason=\"{}\"}}", reason(loss)), loss.count(stats));
    }
    page.sample("messages_dropped_total", "{reason=\"shard_full\"}", stats.dropped_shard_full);
    page.head("publish_rejected", "counter", "Messages that were refused, and the publisher told, by limit.");
    for (limit, loss) in [
        ("acl", Loss::Denied),
        ("protocol", Loss::Rejected),
        ("backoff", Loss::Refused),
        ("memory", Loss::MemoryIn),
        ("store_error", Loss::StoreError),
    ] {
        page.sample("publish_rejected_total", &format!("{{limit=\"{limit}\"}}"), loss.count(stats));
    }
    page.counter("publish_repeated", "PUBLISH packets sent again, and taken once.", stats.publish_repeated);
    page.counter(
        "messages_held",
        "PUBLISH packets that had to wait, of publishers that are too fast.",
        stats.publish_held,
    );
    page.gauge("held_messages", "Messages of publishers that are too fast, waiting to be taken.", stats.held_messages);
    page.gauge("held_bytes", "Bytes of them.", stats.held_bytes);
    page.gauge("queue_messages", "Messages waiting for their receivers.", stats.queued_messages);
    page.gauge("queue_on_disk", "Of those: on disk, and not in memory.", stats.queued_on_disk);
    page.gauge("queue_bytes", "Bytes of them.", stats.queued_bytes);
    page.head("inflight", "gauge", "Messages sent and not yet acknowledged.");
    page.sample("inflight", "{direction=\"out\"}", stats.inflight_messages);
    page.gauge("overload_level", "How hard the broker is pressed, 0 to 4.", pressure.level.number().into());
    page.head("overload_transitions", "counter", "How often the level has become this.");
    for (level, count) in process.transitions.iter().enumerate() {
        page.sample("overload_transitions_total", &format!("{{to=\"{level}\"}}"), *count);
    }
    page.gauge("publishers_throttled", "Clients of whom messages are held.", stats.clients_held);
    page.gauge("clients_slow", "Clients that do not take what waits for them.", stats.clients_slow);
    page.gauge("memory_budget_bytes", "Bytes that messages and clients may take.", pressure.memory_max);
    page.gauge("memory_used_bytes", "Bytes that they take.", pressure.memory_used);
    page.counter("packets_received", "Packets received.", stats.packets_received);
    page.counter("packets_sent", "Packets sent.", stats.packets_sent);
    page.counter("bytes_received", "Bytes received.", stats.bytes_received);
    page.counter("bytes_sent", "Bytes put into outboxes.", stats.bytes_sent);
    page.gauge("ledger_balances", "1 while every message is accounted for.", u64::from(stats.check().is_ok()));
    page.counter("map_queue_full", "Messages that a map wanted and had no room for.", stats.map_queue_full);
    page.counter("map_published", "Messages that maps have published.", stats.map_published);
    page.counter("map_publish_denied", "Messages of maps that rules forbid.", stats.map_publish_denied);
    // Requests of the smart space come below, under the names of SPARQL.
    let families = beside.chunk_by(|one, other| one.family == other.family);
    for family in families.filter(|family| family.first().is_some_and(|one| one.family != "space_requests")) {
        besides(&mut page, family);
    }
    page.head("build", "info", "What runs.");
    page.sample("build_info", &format!("{{version=\"{VERSION}\"}}"), 1);
    page
}

/// A family of numbers of what runs in the same process.
fn besides(page: &mut Page, family: &[Beside]) {
    let Some(Beside { family: name, help, is_counter, .. }) = family.first() else { return };
    page.head(name, if *is_counter { "counter" } else { "gauge" }, help);
    let sample = format!("{name}{}", if *is_counter { "_total" } else { "" });
    for Beside { labels, value, .. } in family {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        page.sample(&sample, &labels, *value);
    }
}

type Part = fn(&ClassStats) -> u64;

/// What becomes of messages, by class: the operator's names, of which there are few.
fn by_class(page: &mut Page, stats: &Stats, classes: &[String]) {
    let families: [(&str, &str, &str, Part); 5] = [
        ("messages_passed", "counter", "PUBLISH packets taken, that is retained and routed.", |class| class.received),
        ("deliveries", "counter", "Messages times receivers.", |class| class.deliveries),
        ("messages_delivered", "counter", "Deliveries written at QoS 0, or acknowledged.", |class| class.delivered),
        ("deliveries_dropped", "counter", "Deliveries that went nowhere.", |class| class.dropped),
        ("deliveries_waiting", "gauge", "Deliveries that wait, or are not acknowledged yet.", ClassStats::waiting),
    ];
    for (name, kind, help, value) in families {
        page.head(name, kind, help);
        let suffix = if kind == "counter" { "_total" } else { "" };
        for (class, stats) in classes.iter().zip(&stats.by_class) {
            let class = escaped(class);
            page.sample(&format!("{name}{suffix}"), &format!("{{class=\"{class}\"}}"), value(stats));
        }
    }
}

/// A label value has three characters that mean something.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Losses that are drops: those that nobody is told about, or that were for a receiver.
fn dropped() -> impl Iterator<Item = Loss> {
    let is_told = |loss: &Loss| {
        matches!(
            loss,
            Loss::Repeated | Loss::Denied | Loss::Rejected | Loss::Refused | Loss::MemoryIn | Loss::StoreError
        )
    };
    Loss::ALL.into_iter().filter(move |loss| loss.side() == Side::Out || !is_told(loss))
}

fn reason(loss: Loss) -> &'static str {
    loss.name().trim_start_matches("dropped_")
}

pub(crate) struct Page(String);

impl Page {
    /// The whole text.
    fn end(self, process: &Process) -> String {
        let Self(mut text) = self;
        // Names that all exporters share have no prefix.
        let _ = write!(
            text,
            "# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes {}\n\
             # TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {:.3}\n# EOF\n",
            process.resident_bytes, process.started
        );
        text
    }

    pub(crate) fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# TYPE tidegate_{name} {kind}\n# HELP tidegate_{name} {help}");
    }

    pub(crate) fn sample(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "tidegate_{name}{labels} {value}");
    }

    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "gauge", help);
        self.sample(name, "", value);
    }

    pub(crate) fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.sample(&format!("{name}_total"), "", value);
    }
}

/// As Linux tells it, in pages; 0 elsewhere.
pub(crate) fn resident_bytes() -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tidegate_control::pressure::Level;

    #[test]
    fn f069_the_page_is_openmetrics_with_closed_labels() {
        let stats = Stats { publish_received: 7, publish_passed: 7, connections: u64::MAX, ..Stats::default() };
        let pressure =
            PressureReport { level: Level::default(), cause: None, age: Duration::ZERO, memory_used: 1, memory_max: 2 };
        let classes = ["high", "normal", "low", "sys", "odd \"name\""].map(String::from).to_vec();
        let (handshakes, started, resident_bytes, transitions) = (3, 1.5, 4096, [0, 1, 2, 3, 4]);
        let process = Process { handshakes, started, resident_bytes, classes, transitions };
        let mut page = page(&stats, &pressure, &process, &[]);
        parts::example(&mut page);
        let text = page.end(&process);
        assert!(text.contains("\ntidegate_deliveries_waiting{class=\"odd \\\"name\\\"\"} 0\n"), "{text}");
        assert!(text.contains("\ntidegate_overload_transitions_total{to=\"2\"} 2\n"), "{text}");
        assert!(text.ends_with("# EOF\n") && text.contains("\ntidegate_messages_received_total 7\n"), "{text}");
        assert_eq!(crate::metrics_check::check(&text), Ok(()));
        assert!(text.len() < 16 * 1024, "{}", text.len());
    }
}
