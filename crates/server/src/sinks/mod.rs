//! The sinks at work: one thread, a task for each of them. What a sink does is decided in `tidegate_sink`; here are its sockets, its
//! clock and its chance.

#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "postgres")]
mod postgres;
mod receiver;
mod signature;
mod task;
mod web;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use tidegate_admin::SinkReport;
use tidegate_broker::Handle as Broker;
use tidegate_sink::{SinkConfig, SinkPhase, SinkStatus};
use tracing::error;

use crate::config::sink::SinkSettings;
use crate::own_clients::{OwnClient, OwnKind, OwnTasks};
use receiver::Receiver;
use task::SinkTask;

/// All sinks while they run. Dropping it ends them.
#[derive(Debug)]
pub struct Sinks(#[expect(dead_code, reason = "they run while it is there")] OwnTasks);

/// What everybody may see of one sink.
#[derive(Debug)]
pub struct SinkBoard {
    name: String,
    kind: &'static str,
    address: String,
    spool_max: u64,
    seen: Mutex<SeenSink>,
}

#[derive(Debug, Default)]
struct SeenSink {
    status: SinkStatus,
    /// Messages and bytes that wait in the spool.
    spool: (u64, u64),
    /// Let go of when its session has its subscriptions.
    waits: Option<OwnClient>,
}

impl SinkBoard {
    fn new(settings: &SinkSettings, address: String, waits: OwnClient) -> Self {
        let (name, kind) = (settings.name.clone(), settings.target.kind());
        let seen = Mutex::new(SeenSink { waits: Some(waits), ..SeenSink::default() });
        Self { name, kind, address, spool_max: settings.spool_bytes, seen }
    }

    fn seen(&self) -> MutexGuard<'_, SeenSink> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the operator.
    pub fn report(&self) -> SinkReport {
        let seen = self.seen();
        let (status, counts) = (&seen.status, seen.status.counts);
        SinkReport {
            name: self.name.clone(),
            kind: self.kind,
            address: self.address.clone(),
            state: status.phase.word(),
            is_down: status.phase == SinkPhase::Down,
            age: status.age,
            next_try: status.next_try,
            queued_messages: seen.spool.0,
            queued_bytes: seen.spool.1,
            spool_bytes_max: self.spool_max,
            sent: counts.sent,
            batches: counts.batches,
            failures: counts.failures,
            refused: counts.refused,
            unmapped: counts.unmapped,
            lost: counts.lost,
            batch_size: status.batch_size as u64,
            under_way: status.under_way as u64,
            latency: status.latency,
            trouble: status.trouble.clone(),
            refusal: status.refusal.clone(),
        }
    }
}

impl Sinks {
    /// Begins; none if there is none. The boards are in the order of the configuration; each lets go of `waits` when its session
    /// has its subscriptions.
    pub fn start(
        settings: &[SinkSettings],
        broker: &Broker,
        waits: &OwnClient,
    ) -> Result<Option<(Self, Vec<Arc<SinkBoard>>)>> {
        if settings.is_empty() {
            return Ok(None);
        }
        let mut parts = Vec::new();
        for settings in settings {
            let receiver = Receiver::new(settings).with_context(|| format!("sink {:?}", settings.name))?;
            let board = Arc::new(SinkBoard::new(settings, receiver.address(), waits.clone()));
            parts.push((settings.clone(), board));
        }
        let boards = parts.iter().map(|(_, board)| Arc::clone(board)).collect();
        let tasks = parts.into_iter().map(|(settings, board)| {
            let (name, broker) = (settings.name.clone(), broker.clone());
            let begin = move |stopped| {
                // It was sound when the process began, and its files are read.
                let receiver = Receiver::new(&settings).ok()?;
                let (config, board) = (config_of(&settings), Arc::clone(&board));
                Some(SinkTask::new(&settings.name, config, receiver, board, broker.clone()).run(stopped))
            };
            (name, begin)
        });
        Ok(Some((Self(OwnTasks::start(KIND, tasks.collect())?), boards)))
    }
}

const KIND: OwnKind = OwnKind {
    thread: "sinks",
    tell_restart: |name| error!(event = "sink_restarted", sink = name, "a sink has failed and begins anew"),
};

fn config_of(settings: &SinkSettings) -> SinkConfig {
    SinkConfig {
        local_id: Broker::sink_id(&settings.name),
        filters: settings.filters.clone(),
        keeps_latest: settings.keeps_latest,
        batch: settings.batch,
    }
}
