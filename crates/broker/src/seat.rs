//! Counted places: so many connections, so many handshakes. A seat is taken when a socket is accepted and given back
//! when its owner is dropped, on whatever thread and for whatever reason that happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many seats are taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seats(Arc<AtomicUsize>);

impl Seats {
    /// A seat, if fewer than `max` are taken.
    pub(crate) fn take(&self, max: usize) -> Option<Seat> {
        if self.0.fetch_add(1, Ordering::Relaxed) >= max {
            self.0.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Seat(Arc::clone(&self.0)))
    }

    /// Seats taken now.
    pub(crate) fn taken(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A place that is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_seat_is_free_again() {
        let seats = Seats::default();
        let first = seats.take(2).unwrap();
        let second = seats.take(2).unwrap();
        assert!(seats.take(2).is_none());
        drop(first);
        assert_eq!(seats.taken(), 1);
        assert!(seats.take(2).is_some());
        drop(second);
        assert_eq!(seats.taken(), 0);
    }
}
