//! The entrance of the admin API: accepting, a place for each connection, and a few descriptors kept for the day
//! when the process has no others. Decides nothing: `seats` says who has to go.
//!
//! While the process has no descriptors left (its clients have taken them), a connection is accepted with one of the
//! reserve, which is filled again when the connection ends. So a health check gets its answer and the operator comes in
//! exactly when it matters.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::task::AbortHandle;
use tracing::{info, warn};

use crate::connection_table::{ConnectionTable, Phase};
use crate::limits::{CROWDED_FOR, RESERVE};
use crate::state::lock;

/// Shared by all connections.
#[derive(Debug, Default)]
pub(crate) struct Entrance {
    seats: Mutex<ConnectionTable<AbortHandle>>,
    reserve: Mutex<Vec<File>>,
    /// Connections that had to make room.
    evicted: AtomicU64,
    /// When the last one had to.
    crowded: Mutex<Option<Instant>>,
    /// Times that a connection could not be accepted at once.
    failed: AtomicU64,
    is_exhausted: AtomicBool,
}

/// What is to be known about the entrance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntranceCounts {
    pub(crate) connections: usize,
    pub(crate) evicted: u64,
    pub(crate) failed: u64,
}

impl Entrance {
    pub(crate) fn new() -> Self {
        let entrance = Self::default();
        entrance.refill();
        entrance
    }

    /// Gives a connection its place; `serve` starts serving it.
    pub(crate) fn admit(self: &Arc<Self>, from: IpAddr, serve: impl FnOnce(EntrancePlace) -> AbortHandle) {
        let place = |number| EntrancePlace { entrance: Arc::clone(self), number };
        let evicted = lock(&self.seats).enter(from, |number| serve(place(number)));
        if let Some(evicted) = evicted {
            evicted.abort();
            self.note_crowded();
        }
    }

    fn note_crowded(&self) {
        self.evicted.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let before = lock(&self.crowded).replace(now);
        if before.is_none_or(|before| now.duration_since(before) >= CROWDED_FOR) {
            warn!(
                event = "admin_crowded",
                "more connections at the admin API than places: those without a request are closed, oldest first"
            );
        }
    }

    /// There are no descriptors. True: one is free now, for whoever is quick.
    pub(crate) fn make_room(&self, error: &io::Error) -> bool {
        self.failed.fetch_add(1, Ordering::Relaxed);
        if !self.is_exhausted.swap(true, Ordering::Relaxed) {
            warn!(event = "accept_failed", listener = "admin", %error, "the admin API lives on its reserve");
        }
        if lock(&self.reserve).pop().is_some() {
            return true;
        }
        // Its descriptor is closed with its task, a moment later.
        if let Some(silent) = lock(&self.seats).evict_silent() {
            silent.abort();
        }
        false
    }

    /// Takes back what was lent, as far as the process has it. True: all of it.
    pub(crate) fn refill(&self) -> bool {
        let mut reserve = lock(&self.reserve);
        while reserve.len() < RESERVE {
            match File::open("/dev/null") {
                Ok(file) => reserve.push(file),
                Err(_) => return false,
            }
        }
        true
    }

    /// A connection was accepted in the ordinary way.
    pub(crate) fn note_accepted(&self) {
        if self.is_exhausted.load(Ordering::Relaxed) && self.refill() {
            self.is_exhausted.store(false, Ordering::Relaxed);
            info!(event = "accept_recovered", listener = "admin", "there are descriptors again");
        }
    }

    pub(crate) fn counts(&self) -> EntranceCounts {
        let connections = lock(&self.seats).len();
        let (evicted, failed) = (self.evicted.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed));
        EntranceCounts { connections, evicted, failed }
    }
}

/// A connection's place. Whoever listens gives it back for one among the listeners.
#[derive(Clone, Debug)]
pub(crate) struct EntrancePlace {
    entrance: Arc<Entrance>,
    number: u64,
}

impl EntrancePlace {
    /// What the connection does now. False: there are too many who do.
    pub(crate) fn turn(&self, phase: Phase) -> bool {
        lock(&self.entrance.seats).turn(self.number, phase)
    }

    pub(crate) fn give_back(&self) {
        lock(&self.entrance.seats).leave(self.number);
    }
}

/// Ends a place with its connection, however that ends. Dropped after the socket.
#[derive(Debug)]
pub(crate) struct PlaceGuard(pub(crate) EntrancePlace);

impl Drop for PlaceGuard {
    fn drop(&mut self) {
        self.0.give_back();
        // The socket's descriptor was the reserve's, perhaps: nobody else should be quicker.
        self.0.entrance.refill();
    }
}

/// Whether the system has no descriptors or memory for another socket; everything else is the peer's affair.
pub(crate) fn is_exhaustion(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    !matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}
