//! The demonstration as the dashboard shows it: one run, watched while it goes on.
//!
//! The same people in the same kind of broker as `tidegate demo flood`, on ports of their own: no client of the broker
//! that serves the dashboard is touched. It ends by itself, and there is one at a time.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_admin::Demo;

use super::fleet::{DemoShared, Trip};
use super::{CALM, DemoBroker, DemoControl, SENSORS, USUAL_RATE};
use crate::operate::why_text;
use tidegate_program::AdminClient;

/// What the flooder sends, in times of its usual rate.
const TIMES: u32 = 100;
/// How long it floods.
const FLOOD: Duration = Duration::from_secs(20);
/// Time between two points.
const STEP: Duration = Duration::from_millis(500);
/// Messages of the others that were sent in this time make a point's latency.
const LATELY: Duration = Duration::from_secs(2);

/// The stage; empty at first.
#[derive(Default)]
pub(crate) struct LiveDemo(Mutex<Option<Arc<DemoAct>>>);

/// A run, or the last one.
struct DemoAct {
    gate: bool,
    is_over: AtomicBool,
    is_to_end: AtomicBool,
    shown: Mutex<LiveView>,
}

#[derive(Default)]
struct LiveView {
    phase: &'static str,
    points: Vec<Value>,
    flooder: Value,
    why: String,
    problem: Option<String>,
}

impl fmt::Debug for LiveDemo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveDemo").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Demo for LiveDemo {
    fn start(&self, gate: bool) -> Result<bool, String> {
        let mut present = lock(&self.0);
        if present.as_ref().is_some_and(|act| !act.is_over.load(Ordering::Acquire)) {
            return Ok(false);
        }
        let shown = Mutex::new(LiveView { phase: "calm", ..LiveView::default() });
        let (is_over, is_to_end) = (AtomicBool::new(false), AtomicBool::new(false));
        let act = Arc::new(DemoAct { gate, is_over, is_to_end, shown });
        let playing = Arc::clone(&act);
        let play = move || {
            let problem = play(&playing).err().map(|error| format!("{error:#}"));
            let mut shown = lock(&playing.shown);
            (shown.phase, shown.problem) = ("over", problem);
            drop(shown);
            playing.is_over.store(true, Ordering::Release);
        };
        std::thread::Builder::new().name("demo".to_owned()).spawn(play).map_err(|error| error.to_string())?;
        *present = Some(act);
        Ok(true)
    }

    fn stop(&self) {
        if let Some(act) = &*lock(&self.0) {
            act.is_to_end.store(true, Ordering::Release);
        }
    }

    fn show(&self) -> Value {
        let about = json!({
            "sensors": SENSORS,
            "usual_rate": USUAL_RATE,
            "flood_rate": USUAL_RATE * TIMES,
            "seconds": (CALM + FLOOD).as_secs(),
        });
        let Some(act) = lock(&self.0).clone() else {
            return json!({ "is_running": false, "phase": "never", "points": [], "about": about });
        };
        let shown = lock(&act.shown);
        json!({
            "is_running": !act.is_over.load(Ordering::Acquire),
            "gate": act.gate,
            "phase": shown.phase,
            "points": shown.points,
            "flooder": shown.flooder,
            "why": shown.why,
            "problem": shown.problem,
            "about": about,
        })
    }
}

fn play(act: &DemoAct) -> anyhow::Result<()> {
    let mut theatre = DemoBroker::open(if act.gate { DemoControl::Default } else { DemoControl::Off })?;
    let (began, mut due, mut before) = (Instant::now(), Instant::now(), LastPoint::default());
    while began.elapsed() < CALM + FLOOD && !act.is_to_end.load(Ordering::Acquire) {
        if began.elapsed() >= CALM && lock(&act.shown).phase == "calm" {
            lock(&act.shown).phase = "flood";
            theatre.stage.flooder_rate.store(USUAL_RATE * TIMES, Ordering::Relaxed);
        }
        due += STEP;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        note(act, &theatre.door, &theatre.stage, began.elapsed(), &mut before)?;
    }
    theatre.stage.end();
    for actor in theatre.actors.drain(..) {
        // Whose connection was ended early has ended its thread; that is part of the show.
        let _ = actor.join();
    }
    Ok(())
}

/// The counters at the last point.
#[derive(Default)]
struct LastPoint {
    at: Duration,
    offered: u64,
    passed: u64,
    refused: u64,
}

fn note(
    act: &DemoAct,
    door: &AdminClient,
    stage: &DemoShared,
    at: Duration,
    before: &mut LastPoint,
) -> anyhow::Result<()> {
    let flooder = door.get("/api/v1/clients/flooder")?;
    let why = why_text(door, "flooder")?;
    let passed = flooder["passed"].as_u64().unwrap_or(0);
    let (offered, refused) = (stage.offered.load(Ordering::Relaxed), stage.refused.load(Ordering::Relaxed));
    let seconds = at.saturating_sub(before.at).as_secs_f64().max(1e-3);
    let rate = |now: u64, then: u64| (now.saturating_sub(then) as f64 / seconds).round();
    let point = json!({
        "at_s": (at.as_secs_f64() * 10.0).round() / 10.0,
        "offered": rate(offered, before.offered),
        "passed": rate(passed, before.passed),
        "refused": rate(refused, before.refused),
        "held": flooder["held"],
        "others_p99_ms": p99_ms(&stage.trips(), stage.elapsed()),
    });
    *before = LastPoint { at, offered, passed, refused };
    let mut shown = lock(&act.shown);
    shown.points.push(point);
    (shown.flooder, shown.why) = (flooder, why);
    Ok(())
}

/// How long the others' messages of late took, or have taken so far.
fn p99_ms(trips: &[Trip], now: Duration) -> f64 {
    let lately = trips.iter().filter(|trip| trip.sent + LATELY >= now);
    let mut took: Vec<Duration> =
        lately.map(|trip| trip.took.unwrap_or_else(|| now.saturating_sub(trip.sent))).collect();
    took.sort_unstable();
    let place = (took.len() * 99).div_ceil(100).saturating_sub(1);
    took.get(place).map_or(0.0, |took| (took.as_secs_f64() * 10_000.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_has_not_arrived_counts_with_its_age() {
        let trip =
            |sent, took: Option<u64>| Trip { sent: Duration::from_millis(sent), took: took.map(Duration::from_millis) };
        let now = Duration::from_secs(3);
        assert_eq!(p99_ms(&[trip(0, Some(900)), trip(1500, Some(4)), trip(2000, None)], now), 1000.0);
        assert_eq!(p99_ms(&[], now), 0.0);
    }
}
