//! The bridges to other brokers, at work: one thread, a task for each of them. What a bridge does is decided in `tidegate_bridge`;
//! here are its sockets, its clock and its chance.

mod itself;
mod task;
mod to_other;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use tidegate_admin::BridgeReport;
use tidegate_bridge::{BridgeConfig, BridgePhase, BridgeStatus};
use tidegate_broker::Handle as Broker;
use tidegate_broker::config::Listener;
use tracing::error;

use crate::config::bridge::BridgeSettings;
use crate::own_clients::{OwnClient, OwnKind, OwnTasks};
use task::BridgeTask;
use to_other::OtherBroker;
pub use to_other::check_tls;
pub(crate) use to_other::client_config;

/// All bridges while they run. Dropping it ends them.
#[derive(Debug)]
pub struct Bridges(#[expect(dead_code, reason = "they run while it is there")] OwnTasks);

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
            overrun: counts.overrun,
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
        let tasks = parts.into_iter().map(|(config, other, board)| {
            let (name, broker) = (config.name.clone(), broker.clone());
            let begin = move |stopped| {
                let (other, board) = (Arc::clone(&other), Arc::clone(&board));
                Some(BridgeTask::new(config.clone(), other, board, broker.clone()).run(stopped))
            };
            (name, begin)
        });
        Ok(Some((Self(OwnTasks::start(KIND, tasks.collect())?), boards)))
    }
}

const KIND: OwnKind = OwnKind {
    thread: "bridges",
    tell_restart: |name| error!(event = "bridge_restarted", bridge = name, "a bridge has failed and begins anew"),
};

/// What this machine calls itself.
fn machine() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What an operator should know of bridges that lead back to this broker.
pub(crate) fn warnings(settings: &[BridgeSettings], listeners: &[Listener]) -> Vec<String> {
    let addresses: Vec<SocketAddr> = listeners.iter().map(|listener| listener.bind).collect();
    itself::warnings(settings, &addresses, &machine())
}

fn config_of(settings: &BridgeSettings) -> BridgeConfig {
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
