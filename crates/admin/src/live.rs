//! The look at the counters, once a second: into the history, and to the pages that listen.
//!
//! What is told is written once for all listeners. Nobody is waited for: whoever has not taken the last few messages
//! misses this one. Top lists come from the looks of `watch`.

use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use serde_json::Value;
use tidegate_core::event::{LedgerSide, Stats};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use crate::history::{History, Point};
use crate::limits::{FEED_MESSAGES_MAX, FEED_TIME, TICK};
use crate::state::{AdminState, lock};
use crate::watch::WatchPace;
use crate::{status, trace, watch};

/// What is kept for pages, and who listens.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) history: Mutex<History>,
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
    let (mut before, mut pace) = ((Instant::now(), state.handle.stats()), WatchPace::default());
    loop {
        ticks.tick().await;
        let now = (Instant::now(), state.handle.stats());
        let seconds = now.0.duration_since(before.0).as_secs_f64();
        if seconds > 0.0 {
            lock(&state.live.history).push(point(&state, &now.1, &before.1, seconds));
        }
        let is_urgent = watch::is_urgent(&state, &now.1, &before.1);
        before = now;
        // Whoever asks for rates later gets those of the last second or two, not since somebody asked before.
        state.stats();
        trace::forget(&state);
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

fn point(state: &AdminState, stats: &Stats, before: &Stats, seconds: f64) -> Point {
    let rate = |of: fn(&Stats) -> u64| of(stats).saturating_sub(of(before)) as f64 / seconds;
    let pressure = state.handle.pressure();
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
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
    ];
    Point { at, values }
}
