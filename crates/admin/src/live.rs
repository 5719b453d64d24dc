//! The look at the counters, once a second: into the history, and to the pages that listen.
//!
//! What is told is written once for all listeners. Nobody is waited for: whoever has not taken the last few messages
//! misses this one. Top lists need a walk over all clients, so they are gathered only while somebody listens.

use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use serde_json::{Value, json};
use tidegate_core::event::{LedgerSide, Stats};
use tidegate_core::report::{ClientReport, ClientState};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use crate::ask::walk;
use crate::history::{History, Point};
use crate::limits::{FEED_MESSAGES_MAX, FEED_TIME, TICK, TOP_ROWS, TOP_SHARE, TOP_TICKS};
use crate::state::{AdminState, lock};
use crate::{status, trace, view};

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
    let (mut before, mut until_top) = ((Instant::now(), state.handle.stats()), 0);
    loop {
        ticks.tick().await;
        let now = (Instant::now(), state.handle.stats());
        let seconds = now.0.duration_since(before.0).as_secs_f64();
        if seconds > 0.0 {
            lock(&state.live.history).push(point(&state, &now.1, &before.1, seconds));
        }
        before = now;
        // Whoever asks for rates later gets those of the last second or two, not since somebody asked before.
        state.stats();
        trace::forget(&state);
        if !state.live.has_listeners() {
            until_top = 0;
            continue;
        }
        state.live.tell("tick", &status::summary(&state));
        if until_top > 0 {
            until_top -= 1;
            continue;
        }
        let began = Instant::now();
        if let Some(top) = top(&state).await {
            state.live.tell("top", &top);
        }
        let rest = began.elapsed() * TOP_SHARE;
        until_top = (TOP_TICKS - 1).max(u32::try_from(rest.as_secs()).unwrap_or(u32::MAX));
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
        rate(|stats| stats.publish_refused),
        rate(|stats| stats.bytes_received),
        rate(|stats| stats.bytes_sent),
        stats.connections as f64,
        stats.clients_held as f64,
        stats.held_messages as f64,
        stats.queued_messages as f64,
        pressure.memory_used as f64,
    ];
    Point { at, values }
}

/// Who talks the most, for whom the most waits, and who is slowed.
async fn top(state: &AdminState) -> Option<Value> {
    let (mut talkers, mut queues, mut slowed) = (Vec::new(), Vec::new(), 0_usize);
    let seen = walk(state, |client| {
        slowed += usize::from(!matches!(client.state, ClientState::Ok | ClientState::Away));
        let (rate, queue) = (client.rate.unwrap_or(0.0), client.queued.0);
        if rate > 0.0 {
            insert(&mut talkers, rate, &client);
        }
        if queue > 0 {
            insert(&mut queues, queue as f64, &client);
        }
    })
    .await;
    // Others are walking: next time.
    seen.ok()?;
    let rows = |list: Vec<(f64, ClientReport)>| -> Vec<Value> {
        list.iter().map(|(_, client)| view::client(state, client)).collect()
    };
    Some(json!({ "talkers": rows(talkers), "queues": rows(queues), "slowed": slowed }))
}

/// Into its place in a short list, the largest first.
fn insert(list: &mut Vec<(f64, ClientReport)>, value: f64, client: &ClientReport) {
    let place = list.partition_point(|(other, _)| *other >= value);
    if place < TOP_ROWS {
        list.insert(place, (value, client.clone()));
        list.truncate(TOP_ROWS);
    }
}
