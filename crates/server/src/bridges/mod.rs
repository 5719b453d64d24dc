//! The bridges to other brokers, at work: one thread, a task for each of them. What a bridge does is decided in `tidegate_bridge`;
//! here are its sockets, its clock and its chance.

mod task;
mod to_other;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use tidegate_admin::BridgeReport;
use tidegate_bridge::{BridgeConfig, BridgePhase, BridgeStatus};
use tidegate_broker::Handle as Broker;
use tokio::sync::watch;
use tracing::error;

use crate::config::bridge::BridgeSettings;
use crate::own_clients::OwnClient;
use task::BridgeTask;
use to_other::OtherBroker;
pub use to_other::check_tls;
pub(crate) use to_other::client_config;

/// Between a fault of a bridge and its new beginning.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// All bridges while they run. Dropping it ends them.
#[derive(Debug)]
pub struct Bridges {
    stop: Option<watch::Sender<bool>>,
    thread: Option<JoinHandle<()>>,
}

/// What everybody may see of one bridge.
#[derive(Debug)]
pub struct BridgeBoard {
    name: String,
    addresses: Vec<String>,
    seen: Mutex<SeenBridge>,
}

#[derive(Debug, Default)]
struct SeenBridge {
    status: BridgeStatus,
    /// Messages and bytes that wait in the spool.
    spool: (u64, u64),
    spool_max: u64,
    /// Let go of when its session has its subscriptions.
    waits: Option<OwnClient>,
}

impl BridgeBoard {
    fn new(settings: &BridgeSettings, addresses: Vec<String>, waits: OwnClient) -> Self {
        let seen = SeenBridge { spool_max: settings.spool_bytes, waits: Some(waits), ..SeenBridge::default() };
        Self { name: settings.name.clone(), addresses, seen: Mutex::new(seen) }
    }

    fn seen(&self) -> MutexGuard<'_, SeenBridge> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the operator.
    pub fn report(&self) -> BridgeReport {
        let seen = self.seen();
        let (status, counts) = (&seen.status, seen.status.counts);
        BridgeReport {
            name: self.name.clone(),
            address: self.addresses.get(status.address).cloned().unwrap_or_default(),
            state: status.phase.word(),
            is_up: status.phase == BridgePhase::Up,
            age: status.age,
            next_try: status.next_try,
            queued_messages: seen.spool.0,
            queued_bytes: seen.spool.1,
            spool_bytes_max: seen.spool_max,
            sent: counts.sent,
            received: counts.received,
            deferred: counts.deferred,
            refused: counts.refused,
            refused_here: counts.refused_here,
            looped: counts.looped,
            unmapped: counts.unmapped,
            too_large: counts.too_large,
            lost: counts.lost,
            connects: counts.connects,
            failures: counts.failures,
            window: status.window,
            under_way: status.under_way as u64,
            latency: status.latency,
            base_latency: status.base,
            pause: status.pause,
            trouble: status.trouble.clone(),
        }
    }
}

impl Bridges {
    /// Begins; none if there is none. The boards are in the order of the configuration; each lets go of `waits` when its session
    /// has its subscriptions.
    pub fn start(
        settings: &[BridgeSettings],
        broker: &Broker,
        waits: &OwnClient,
    ) -> Result<Option<(Self, Vec<Arc<BridgeBoard>>)>> {
        if settings.is_empty() {
            return Ok(None);
        }
        let mut parts = Vec::new();
        for settings in settings {
            let other = OtherBroker::new(settings).with_context(|| format!("bridge {:?}", settings.name))?;
            let board = Arc::new(BridgeBoard::new(settings, other.addresses(), waits.clone()));
            parts.push((config_of(settings), Arc::new(other), board));
        }
        let boards = parts.iter().map(|(_, _, board)| Arc::clone(board)).collect();
        let (stop, stopped) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let broker = broker.clone();
        let life = move || {
            runtime.block_on(async {
                let tasks: Vec<_> = parts
                    .into_iter()
                    .map(|(config, other, board)| {
                        tokio::spawn(watch_over(config, other, board, broker.clone(), stopped.clone()))
                    })
                    .collect();
                for task in tasks {
                    let _ = task.await;
                }
            });
            // A look-up of a name cannot be given up, and may take as long as its servers like: nobody waits for it.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("bridges".to_owned()).spawn(life)?;
        Ok(Some((Self { stop: Some(stop), thread: Some(thread) }, boards)))
    }
}

/// One bridge, for as long as the process lives: a fault of it costs a connection, and nothing that is kept.
async fn watch_over(
    config: BridgeConfig,
    other: Arc<OtherBroker>,
    board: Arc<BridgeBoard>,
    broker: Broker,
    stopped: watch::Receiver<bool>,
) {
    loop {
        let task = BridgeTask::new(config.clone(), Arc::clone(&other), Arc::clone(&board), broker.clone());
        if tokio::spawn(task.run(stopped.clone())).await.is_ok() {
            return;
        }
        error!(event = "bridge_restarted", bridge = config.name, "a bridge has failed and begins anew");
        tokio::time::sleep(RESTART_PAUSE).await;
    }
}

impl Drop for Bridges {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(true);
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            error!(event = "panic", "the thread of the bridges has panicked");
        }
    }
}

fn config_of(settings: &BridgeSettings) -> BridgeConfig {
    let machine = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let usual = || format!("{}.{}", machine(), settings.name).replace(['/', '+', '#'], "-");
    let password = settings.password.as_ref().map(|password| password.0.clone());
    BridgeConfig {
        name: settings.name.clone(),
        addresses: settings.addresses.len(),
        local_id: Broker::bridge_id(&settings.name),
        remote_id: settings.client_id.clone().unwrap_or_else(usual),
        user: settings.user.clone().map(|user| (user, password)),
        version: settings.version,
        is_clean: settings.is_clean,
        keep_alive: settings.keep_alive,
        notifies: settings.notifies,
        topics: settings.topics.clone(),
        keep: settings.keep,
        pace: settings.pace,
    }
}
