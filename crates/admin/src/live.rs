//! The look at the counters, once a second: into the history, and to the pages that listen.
//!
//! What is told is written once for all listeners. Nobody is waited for: whoever has not taken the last few messages
//! misses this one. Top lists come from the looks of `watch`.

use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use serde_json::Value;
use tidegate_control::Spread;
use tidegate_core::event::{LedgerSide, Stats};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use crate::client_history::ClientHistories;
use crate::history::{History, Point};
use crate::limits::{FEED_MESSAGES_MAX, FEED_TIME, TICK};
use crate::state::{AdminState, lock};
use crate::watch::WatchPace;
use crate::{activity, status, trace, watch};

/// What is kept for pages, and who listens.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) history: Mutex<History>,
    pub(crate) clients: Mutex<ClientHistories>,
    listeners: Mutex<Vec<LiveListener>>,
}

#[derive(Debug)]
struct LiveListener {
    outbox: mpsc::Sender<Bytes>,
    until: Instant,
}

impl Live {
    /// Somebody listens from now on. How many may is decided before.
    pub(crate) fn listen(&self) -> mpsc::Receiver<Bytes> {
        let (outbox, inbox) = mpsc::channel(FEED_MESSAGES_MAX);
        lock(&self.listeners).push(LiveListener { outbox, until: Instant::now() + FEED_TIME });
        inbox
    }

    /// Those who have left or have listened long enough are forgotten.
    fn has_listeners(&self) -> bool {
        let now = Instant::now();
        let mut listeners = lock(&self.listeners);
        listeners.retain(|listener| !listener.outbox.is_closed() && listener.until > now);
        !listeners.is_empty()
    }

    fn tell(&self, event: &str, value: &Value) {
        // JSON has no line breaks outside of strings, and in strings they are escaped: one line of data.
        let message = Bytes::from(format!("event: {event}\ndata: {value}\n\n"));
        for listener in lock(&self.listeners).iter() {
            let _ = listener.outbox.try_send(message.clone());
        }
    }
}

/// For as long as the door is open.
pub(crate) async fn run(state: Arc<AdminState>) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut before, mut pace) = (CounterLook::now(&state), WatchPace::default());
    loop {
        ticks.tick().await;
        let now = CounterLook::now(&state);
        let seconds = now.at.duration_since(before.at).as_secs_f64();
        if seconds > 0.0 {
            lock(&state.live.history).push(point(&state, &now, &before, seconds));
        }
        let is_urgent = watch::is_urgent(&state, &now.stats, &before.stats);
        before = now;
        // Whoever asks for rates later gets those of the last second or two, not since somebody asked before.
        state.stats();
        trace::forget(&state);
        activity::forget(&state);
        let has_listeners = state.live.has_listeners();
        if has_listeners {
            state.live.tell("tick", &status::summary(&state));
        }
        if pace.is_due(has_listeners || is_urgent) {
            let began = Instant::now();
            if let Some(top) = watch::look(&state).await {
                state.live.tell("top", &top);
            }
            pace.note(began);
        }
    }
}

/// What is counted and measured at one moment.
struct CounterLook {
    at: Instant,
    stats: Stats,
    /// From a message's coming to its delivery, all classes together.
    latency: Spread,
    /// Processor time of the process, in seconds.
    cpu: f64,
}

impl CounterLook {
    fn now(state: &AdminState) -> Self {
        let mut latency = Spread::default();
        state.handle.measures().e2e_latency.iter().for_each(|class| latency.add(class));
        Self { at: Instant::now(), stats: state.handle.stats(), latency, cpu: cpu_seconds() }
    }
}

fn point(state: &AdminState, now: &CounterLook, before: &CounterLook, seconds: f64) -> Point {
    let stats = &now.stats;
    let rate = |of: fn(&Stats) -> u64| of(stats).saturating_sub(of(&before.stats)) as f64 / seconds;
    let latency = |part| quantile_ms(&before.latency, &now.latency, part);
    let pressure = state.handle.pressure();
    let at = unix_seconds();
    let values = [
        f64::from(pressure.level.number()),
        rate(|stats| stats.publish_received),
        rate(|stats| stats.publish_passed),
        rate(|stats| stats.delivered),
        rate(|stats| status::lost(stats, LedgerSide::In) + status::lost(stats, LedgerSide::Out)),
        rate(status::refused),
        rate(|stats| stats.bytes_received),
        rate(|stats| stats.bytes_sent),
        stats.connections as f64,
        state.handle.watch().publishers_throttled.max(stats.clients_held) as f64,
        stats.held_messages as f64,
        stats.queued_messages as f64,
        pressure.memory_used as f64,
        latency(0.5),
        latency(0.99),
        (now.cpu - before.cpu).max(0.0) / seconds,
    ];
    Point { at, values }
}

/// Between two looks: so long took this part of the deliveries at most, in milliseconds, by the buckets that there are; 0 if
/// there were none.
fn quantile_ms(before: &Spread, now: &Spread, part: f64) -> f64 {
    let new = |place: usize| now.buckets[place].saturating_sub(before.buckets[place]) as f64;
    let wanted = part * (0..Spread::BUCKETS).map(new).sum::<f64>();
    let (mut below, mut least) = (0.0, 0.0);
    for place in 0..Spread::BUCKETS {
        // The last has no limit: twice the one before is as good as any.
        let most = Spread::limit_seconds(place).unwrap_or(2.0 * least);
        let count = new(place);
        if count > 0.0 && below + count >= wanted {
            return (least + (most - least) * (wanted - below) / count) * 1000.0;
        }
        (below, least) = (below + count, most);
    }
    0.0
}

/// The time as the world has it.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// As Linux tells it, in hundredths of a second; 0 elsewhere.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the process is in brackets, and may have anything in it.
    let after = text.rsplit_once(')').map_or("", |(_, after)| after);
    let ticks = after.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_quantile_is_of_what_came_since_the_last_look() {
        let mut before = Spread::default();
        before.note_many(Duration::from_secs(100), 1000);
        let mut now = before;
        assert!(quantile_ms(&before, &now, 0.99).abs() < 1e-9, "nothing came");
        now.note_many(Duration::from_millis(3), 90);
        now.note_many(Duration::from_millis(200), 10);
        let (median, high) = (quantile_ms(&before, &now, 0.5), quantile_ms(&before, &now, 0.99));
        assert!((2.0..=4.2).contains(&median) && (130.0..=270.0).contains(&high), "{median} {high}");
    }

    #[test]
    fn a_process_that_works_has_used_processor_time() {
        let before = cpu_seconds();
        let mut sum = 0_u64;
        while cpu_seconds() <= before && cfg!(target_os = "linux") {
            sum = (0..1_000_000).fold(sum, u64::wrapping_add);
        }
        assert!(cpu_seconds() >= before, "{sum}");
    }
}
