//! Counted places: so many connections, so many handshakes. A permit is taken when a socket is accepted and given back
//! when its owner is dropped, on whatever thread and for whatever reason that happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many permits are taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Permits(Arc<AtomicUsize>);

impl Permits {
    /// A permit, if fewer than `max` are taken.
    pub(crate) fn take(&self, max: usize) -> Option<Permit> {
        if self.0.fetch_add(1, Ordering::Relaxed) >= max {
            self.0.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Permit(Arc::clone(&self.0)))
    }

    /// Seats taken now.
    pub(crate) fn taken(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A place that is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Permit(Arc<AtomicUsize>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The places of one socket: among all connections, and among those of its listener.
#[derive(Debug)]
pub(crate) struct SocketPlaces {
    _of_all: Permit,
    _of_listener: Permit,
}

impl SocketPlaces {
    pub(crate) fn new(of_all: Permit, of_listener: Permit) -> Self {
        Self { _of_all: of_all, _of_listener: of_listener }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_seat_is_free_again() {
        let permits = Permits::default();
        let first = permits.take(2).unwrap();
        let second = permits.take(2).unwrap();
        assert!(permits.take(2).is_none());
        drop(first);
        assert_eq!(permits.taken(), 1);
        assert!(permits.take(2).is_some());
        drop(second);
        assert_eq!(permits.taken(), 0);
    }
}
