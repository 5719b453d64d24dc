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
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use tidegate_admin::SinkReport;
use tidegate_broker::Handle as Broker;
use tidegate_sink::{SinkConfig, SinkPhase, SinkStatus};
use tokio::sync::watch;
use tracing::error;

use crate::config::sink::SinkSettings;
use crate::own_clients::OwnClient;
use receiver::Receiver;
use task::SinkTask;

/// Between a fault of a sink and its new beginning.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// All sinks while they run. Dropping it ends them.
#[derive(Debug)]
pub struct Sinks {
    stop: Option<watch::Sender<bool>>,
    thread: Option<JoinHandle<()>>,
}

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
        let (stop, stopped) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let broker = broker.clone();
        let life = move || {
            runtime.block_on(async {
                let watched = parts.into_iter().map(|(settings, board)| {
                    tokio::spawn(watch_over(settings, board, broker.clone(), stopped.clone()))
                });
                for task in watched.collect::<Vec<_>>() {
                    let _ = task.await;
                }
            });
            // A look-up of a name cannot be given up, and may take as long as its servers like: nobody waits for it.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("sinks".to_owned()).spawn(life)?;
        Ok(Some((Self { stop: Some(stop), thread: Some(thread) }, boards)))
    }
}

/// One sink, for as long as the process lives: a fault of it costs a connection, and nothing that is kept.
async fn watch_over(settings: SinkSettings, board: Arc<SinkBoard>, broker: Broker, stopped: watch::Receiver<bool>) {
    loop {
        // It was sound when the process began, and its files are read.
        let Ok(receiver) = Receiver::new(&settings) else { return };
        let task = SinkTask::new(&settings.name, config_of(&settings), receiver, Arc::clone(&board), broker.clone());
        if tokio::spawn(task.run(stopped.clone())).await.is_ok() {
            return;
        }
        error!(event = "sink_restarted", sink = settings.name, "a sink has failed and begins anew");
        tokio::time::sleep(RESTART_PAUSE).await;
    }
}

impl Drop for Sinks {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(true);
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            error!(event = "panic", "the thread of the sinks has panicked");
        }
    }
}

fn config_of(settings: &SinkSettings) -> SinkConfig {
    SinkConfig {
        local_id: Broker::sink_id(&settings.name),
        filters: settings.filters.clone(),
        keeps_latest: settings.keeps_latest,
        batch: settings.batch,
    }
}
