//! A knowledge processor: the client library as it is, with a persistent query of its own, behind a link of its own. What it
//! learns and what it went through is noted, and nothing else is done here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_client::{
    ChangeSource, ClientEvent, Error, EventKind, Events, PacerConfig, PersistentQuery, ResultChange, Space,
    SpaceConfig, WatchCounts,
};
use tidegate_sim::histogram::SecondsHistogram;
use tokio::sync::watch;

use super::air::{Door, Link};
use super::copies::{Copies, Told};

/// How soon, and how late, a KP that asks on comes back when it was sent away.
const RETURN_MIN: Duration = Duration::from_millis(5);
const RETURN_MAX: Duration = Duration::from_millis(500);

/// When counts are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Before,
    Measured,
    Over,
}

/// What all KPs note, together.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Of checks that were answered.
    pub(super) latency: SecondsHistogram,
    /// Counts of all KPs at the beginning of what is measured, and at its end.
    pub(super) begin: WatchCounts,
    pub(super) end: WatchCounts,
    /// KPs that have said how it ended.
    pub(super) told: usize,
    is_measured: bool,
}

/// What KPs need to note.
#[derive(Clone, Debug)]
pub(super) struct Book {
    pub(super) copies: Arc<Mutex<Copies>>,
    pub(super) notes: Arc<Mutex<Notes>>,
}

impl Book {
    pub(super) fn new(kps: usize) -> Self {
        Self { copies: Arc::new(Mutex::new(Copies::new(kps))), notes: Arc::default() }
    }

    pub(super) fn copies(&self) -> MutexGuard<'_, Copies> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on it counts, or no more.
    pub(super) fn measure(&self, is_measured: bool) {
        self.notes().is_measured = is_measured;
        let mut copies = self.copies();
        if is_measured { copies.start(Instant::now()) } else { copies.stop(Instant::now()) }
    }
}

/// One KP.
#[derive(Debug)]
pub(super) struct Kp {
    number: usize,
    query: PersistentQuery,
    events: Events,
    /// It ends the connection when it is dropped.
    _space: Space,
    asked: Option<Instant>,
}

/// What a KP watches.
pub(super) fn query_of(kp: usize) -> String {
    format!("SELECT ?v {{ <urn:testbed:{kp}> <urn:testbed:value> ?v }}")
}

impl Kp {
    /// Joins and subscribes.
    pub(super) async fn open(number: usize, door: Door, link: &Link, pacer: PacerConfig) -> Result<Self, Error> {
        let scheme = match door {
            Door::Ssap => "ssap",
            Door::Http => "http",
        };
        let config = SpaceConfig { node: Some(format!("kp{number}")), ..SpaceConfig::default() };
        let space = Space::connect_with(&format!("{scheme}://{}", link.address()), config).await?;
        let events = space.events();
        let query = space.persistent_query(&query_of(number)).pacer(pacer).open().await?;
        Ok(Self { number, query, events, _space: space, asked: None })
    }

    /// Lives until the run is over.
    pub(super) async fn live(mut self, book: Book, mut phases: watch::Receiver<Phase>) {
        loop {
            tokio::select! {
                change = self.query.next() => match change {
                    Some(change) => self.learn(&change, &book),
                    None => return,
                },
                Some(event) = self.events.next() => self.note(&event, &book),
                changed = phases.changed() => {
                    let phase = *phases.borrow_and_update();
                    let Ok(stats) = self.query.stats().await else { return };
                    let mut notes = book.notes();
                    match phase {
                        Phase::Before => {}
                        Phase::Measured => add(&mut notes.begin, &stats.counts),
                        Phase::Over => {
                            add(&mut notes.end, &stats.counts);
                            notes.told += 1;
                        }
                    }
                    if changed.is_err() || phase == Phase::Over {
                        return;
                    }
                }
            }
        }
    }

    fn learn(&self, change: &ResultChange, book: &Book) {
        let version = change.added.iter().filter_map(|row| row.text("v")?.parse().ok()).max();
        let told = if change.source == ChangeSource::Notification { Told::Notified } else { Told::Asked };
        if let Some(version) = version {
            book.copies().on_known(self.number, version, told, Instant::now());
        }
    }

    fn note(&mut self, event: &ClientEvent, book: &Book) {
        match event.kind {
            EventKind::CheckSent => self.asked = Some(Instant::now()),
            EventKind::CheckAnswered { .. } => {
                let mut notes = book.notes();
                if let Some(asked) = self.asked.take().filter(|_| notes.is_measured) {
                    notes.latency.add(asked.elapsed().as_secs_f64());
                }
            }
            EventKind::Refused { .. } | EventKind::Failed => self.asked = None,
            _ => {}
        }
    }

    /// Asks as fast as it is answered, until then; how often it was.
    pub(super) async fn ask_on(mut self, until: Instant) -> u64 {
        let mut answered = 0;
        while Instant::now() < until {
            if self.query.check().await.is_err() {
                break;
            }
            loop {
                let event = tokio::time::timeout_at(until.into(), self.events.next()).await;
                match event.ok().flatten().map(|event| event.kind) {
                    Some(EventKind::CheckAnswered { .. }) => {
                        answered += 1;
                        break;
                    }
                    Some(EventKind::Refused { retry_after, .. }) => {
                        // Who comes before its time is sent away again.
                        let wait = retry_after.unwrap_or_default().clamp(RETURN_MIN, RETURN_MAX);
                        tokio::time::sleep_until((Instant::now() + wait).min(until).into()).await;
                        break;
                    }
                    Some(EventKind::Failed) | None => break,
                    Some(_) => {}
                }
            }
        }
        answered
    }
}

fn add(sum: &mut WatchCounts, counts: &WatchCounts) {
    sum.answered += counts.answered;
    sum.denied += counts.denied;
    sum.failed += counts.failed;
    sum.delegations += counts.delegations;
}
