//! The broker's own clients, its bridges and sinks, subscribe before anybody else comes in: what is acknowledged at a first start
//! waits for them, too.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::{Context, Result};
use tracing::warn;

use crate::bridges::Bridges;
use crate::config::Loaded;
use crate::running::RunningProcess;
use crate::sinks::Sinks;

/// How long the doors stay closed for them. Nothing but this process takes part, so it is a matter of milliseconds.
const SUBSCRIBED_MAX: Duration = Duration::from_secs(10);

/// Held by each of them until its session has its subscriptions. Nothing is ever sent.
pub type OwnClient = SyncSender<()>;

/// Bridges and sinks while they run. Dropping it ends them.
#[derive(Debug)]
pub struct OwnClients {
    _bridges: Option<Bridges>,
    _sinks: Option<Sinks>,
}

impl OwnClients {
    /// Starts all of them, and waits until they have subscribed.
    pub fn start(loaded: &Loaded, running: &RunningProcess) -> Result<Self> {
        let (waits, let_go) = sync_channel(1);
        let bridges = Bridges::start(&loaded.bridges, &running.handle, &waits).context("the bridges did not start")?;
        let bridges = bridges.map(|(bridges, boards)| {
            running.note_bridges(boards);
            bridges
        });
        let sinks = Sinks::start(&loaded.sinks, &running.handle, &waits).context("the sinks did not start")?;
        let sinks = sinks.map(|(sinks, boards)| {
            running.note_sinks(boards);
            sinks
        });
        drop(waits);
        if !have_subscribed(&let_go, SUBSCRIBED_MAX) {
            warn!(
                event = "own_client_late",
                "a bridge or a sink has not subscribed in {} s: what is published before it does misses it",
                SUBSCRIBED_MAX.as_secs()
            );
        }
        Ok(Self { _bridges: bridges, _sinks: sinks })
    }
}

/// Whether all have let go in time.
fn have_subscribed(let_go: &Receiver<()>, most: Duration) -> bool {
    let_go.recv_timeout(most) == Err(RecvTimeoutError::Disconnected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_waited_for_and_none_for_ever() {
        let (waits, let_go) = sync_channel(1);
        let other: OwnClient = waits.clone();
        drop(waits);
        assert!(!have_subscribed(&let_go, Duration::ZERO), "one has not subscribed");
        drop(other);
        assert!(have_subscribed(&let_go, SUBSCRIBED_MAX));
    }
}
