//! The `$SYS` tree, with mosquitto's names: counters of all shards, published by the first one.
//!
//! A value is published when it changed. Averages over 1, 5 and 15 minutes are exponential, as load averages are:
//! `average ← rate + (average − rate)·e^(−elapsed/window)`, in events per minute.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::pressure::Cause;
use tidegate_core::event::Stats;

use crate::extra_metrics::ExtraMetric;
use crate::pressure::PressureReport;
use crate::store_link::StoreReport;

/// The publisher of `$SYS`.
#[derive(Debug)]
pub(crate) struct System {
    due: Timestamp,
    published_at: Timestamp,
    published: BTreeMap<String, String>,
    before: Stats,
    /// Averages of each rate over each window.
    loads: [[f64; WINDOWS.len()]; RATES.len()],
    connected_max: u64,
    memory_max: u64,
}

/// What there is to tell.
pub(crate) struct News<'a> {
    pub(crate) stats: &'a Stats,
    pub(crate) report: &'a PressureReport,
    pub(crate) store: Option<&'a StoreReport>,
    pub(crate) extra: &'a [ExtraMetric],
    /// Alarms that are raised, as JSON; empty if nobody looks.
    pub(crate) alarms: &'a str,
}

const WINDOWS: [(&str, f64); 3] = [("1min", 60.0), ("5min", 300.0), ("15min", 900.0)];

/// Rates by mosquitto's names.
type Rate = (&'static str, fn(&Stats) -> u64);
const RATES: [Rate; 8] = [
    ("messages/received", |stats| stats.packets_received),
    ("messages/sent", |stats| stats.packets_sent),
    ("publish/received", |stats| stats.publish_received),
    ("publish/sent", |stats| stats.publish_sent),
    ("publish/dropped", dropped),
    ("bytes/received", |stats| stats.bytes_received),
    ("bytes/sent", |stats| stats.bytes_sent),
    ("connections", |stats| stats.connects),
];

impl System {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            due: now,
            published_at: now,
            published: BTreeMap::new(),
            before: Stats::default(),
            loads: Default::default(),
            connected_max: 0,
            memory_max: 0,
        }
    }

    /// When it is to be published next.
    pub(crate) fn due(&self) -> Timestamp {
        self.due
    }

    /// The topics whose values changed.
    pub(crate) fn publish(
        &mut self,
        news: &News<'_>,
        interval: Duration,
        now: Timestamp,
        mut publish: impl FnMut(&str, &str),
    ) {
        self.update(news.stats, now);
        self.due = now + interval;
        let extra = news.extra.iter().map(|metric| (metric.topic(), metric.value.to_string()));
        let alarms = Some(("alarms".to_owned(), news.alarms.to_owned())).filter(|(_, text)| !text.is_empty());
        let values = self.values(news.stats, news.report, now).into_iter().chain(extra).chain(alarms);
        for (topic, value) in values.chain(news.store.into_iter().flat_map(stored)) {
            let topic = format!("$SYS/broker/{topic}");
            if self.published.get(&topic) != Some(&value) {
                publish(&topic, &value);
                self.published.insert(topic, value);
            }
        }
    }

    fn update(&mut self, stats: &Stats, now: Timestamp) {
        let elapsed = now.since(self.published_at).as_secs_f64();
        if elapsed > 0.0 {
            for (averages, (_, count)) in self.loads.iter_mut().zip(RATES) {
                let per_minute = count(stats).saturating_sub(count(&self.before)) as f64 * 60.0 / elapsed;
                for (average, (_, window)) in averages.iter_mut().zip(WINDOWS) {
                    *average = per_minute + (*average - per_minute) * (-elapsed / window).exp();
                }
            }
        }
        self.published_at = now;
        self.before = *stats;
        self.connected_max = self.connected_max.max(stats.connections);
        self.memory_max = self.memory_max.max(resident_bytes());
    }

    fn values(&self, stats: &Stats, report: &PressureReport, now: Timestamp) -> Vec<(String, String)> {
        let disconnected = stats.sessions.saturating_sub(stats.connections);
        let numbers: [(&str, u64); 17] = [
            ("clients/connected", stats.connections),
            ("clients/disconnected", disconnected),
            ("clients/total", stats.sessions.max(stats.connections)),
            ("clients/maximum", self.connected_max),
            ("clients/expired", stats.sessions_expired),
            ("messages/received", stats.packets_received),
            ("messages/sent", stats.packets_sent),
            ("messages/stored", stats.queued_messages + stats.retained_messages),
            ("publish/messages/received", stats.publish_received),
            ("publish/messages/sent", stats.publish_sent),
            ("publish/messages/dropped", dropped(stats)),
            ("bytes/received", stats.bytes_received),
            ("bytes/sent", stats.bytes_sent),
            ("subscriptions/count", stats.subscriptions),
            ("retained messages/count", stats.retained_messages),
            ("heap/current", resident_bytes()),
            ("heap/maximum", self.memory_max),
        ];
        let mut values: Vec<(String, String)> = vec![
            ("version".into(), concat!("tidegate version ", env!("CARGO_PKG_VERSION")).into()),
            ("uptime".into(), format!("{} seconds", now.as_nanos() / 1_000_000_000)),
        ];
        values.extend(numbers.map(|(topic, number)| (topic.to_owned(), number.to_string())));
        let of_maps = stats.iter().filter_map(|(name, count)| Some((name.strip_prefix("map_")?, count)));
        values.extend(of_maps.map(|(name, count)| (format!("map/{name}"), count.to_string())));
        values.extend(drops(stats).map(|(reason, count)| (format!("drops/{reason}"), count.to_string())));
        values.extend(overload(report));
        for ((name, _), averages) in RATES.iter().zip(self.loads) {
            for ((window, _), average) in WINDOWS.iter().zip(averages) {
                values.push((format!("load/{name}/{window}"), format!("{average:.2}")));
            }
        }
        values
    }
}

/// Every reason for which a message was lost, with its count.
fn drops(stats: &Stats) -> impl Iterator<Item = (String, u64)> {
    let also_denied = stats.publish_denied + stats.wills_denied;
    stats.iter().filter_map(move |(name, count)| {
        let reason = name.strip_prefix("dropped_")?;
        Some((reason.replace('_', "-"), if reason == "denied" { count + also_denied } else { count }))
    })
}

fn dropped(stats: &Stats) -> u64 {
    // Those that made room for others are among those that found their queue full.
    drops(stats).map(|(_, count)| count).sum::<u64>() - stats.dropped_queue_oldest
}

/// How hard the broker is pressed.
fn overload(report: &PressureReport) -> [(String, String); 5] {
    [
        ("overload/level", u64::from(report.level.number()).to_string()),
        ("overload/reason", report.cause.map_or("none", Cause::name).to_owned()),
        ("overload/since", format!("{} seconds", report.age.as_secs())),
        ("overload/memory/used", report.memory_used.to_string()),
        ("overload/memory/maximum", report.memory_max.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
}

/// How the store is: times in milliseconds.
fn stored(report: &StoreReport) -> [(String, String); 8] {
    let (metrics, syncs) = (&report.metrics, &report.metrics.log.syncs);
    let ms = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
    [
        ("health", report.health.word().to_owned()),
        ("sync/count", syncs.count.to_string()),
        ("sync/last", ms(syncs.last)),
        ("sync/p99", ms(syncs.quantile(0.99))),
        ("sync/maximum", ms(syncs.max)),
        ("busy", ms(metrics.busy_for)),
        ("queue/batches", metrics.queue_batches.to_string()),
        ("queue/bytes", metrics.queue_bytes.to_string()),
    ]
    .map(|(name, value)| (format!("store/{name}"), value))
}

/// Memory of the process that is really there, from the kernel; 0 where it does not say. (mosquitto counts its own heap;
/// what an operator wants to know is this.)
fn resident_bytes() -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).map_or(0, |pages| pages * PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pressure::PressureBoard;

    fn publish(system: &mut System, stats: &Stats, secs: f64) -> BTreeMap<String, String> {
        let mut out = BTreeMap::new();
        let report = PressureBoard::new(1, 1000).report(Timestamp::ZERO);
        let news = News { stats, report: &report, store: None, extra: &[], alarms: "[]" };
        system.publish(&news, Duration::from_secs(10), Timestamp::from_secs_f64(secs), |topic, value| {
            out.insert(topic.to_owned(), value.to_owned());
        });
        out
    }

    #[test]
    fn mosquittos_names_are_there_and_only_changes_are_told() {
        let mut system = System::new(Timestamp::ZERO);
        let stats = Stats { connections: 3, sessions: 5, publish_received: 7, ..Stats::default() };
        let first = publish(&mut system, &stats, 0.0);
        assert_eq!(first["$SYS/broker/clients/connected"], "3");
        assert_eq!(first["$SYS/broker/clients/disconnected"], "2");
        assert_eq!(first["$SYS/broker/clients/total"], "5");
        assert_eq!(first["$SYS/broker/publish/messages/received"], "7");
        assert_eq!(first["$SYS/broker/overload/level"], "0");
        assert_eq!(first["$SYS/broker/overload/reason"], "none");
        assert_eq!(first["$SYS/broker/drops/memory-budget"], "0");
        assert_eq!(first["$SYS/broker/alarms"], "[]");
        for name in ["version", "uptime", "retained messages/count", "heap/current", "load/connections/15min"] {
            assert!(first.contains_key(&format!("$SYS/broker/{name}")), "{name}");
        }
        let second = publish(&mut system, &stats, 10.0);
        assert_eq!(second["$SYS/broker/uptime"], "10 seconds");
        assert!(!second.contains_key("$SYS/broker/clients/connected"));
    }

    #[test]
    fn a_steady_rate_becomes_its_average() {
        let mut system = System::new(Timestamp::ZERO);
        let mut values = BTreeMap::new();
        for tick in 0..=60_u32 {
            let stats = Stats { publish_received: u64::from(tick) * 100, ..Stats::default() };
            values.extend(publish(&mut system, &stats, f64::from(tick) * 10.0));
        }
        // 100 in ten seconds are 600 a minute; after ten minutes the average over one minute is all but there.
        let load: f64 = values["$SYS/broker/load/publish/received/1min"].parse().unwrap();
        assert!((599.0..=600.0).contains(&load), "{load}");
    }
}
