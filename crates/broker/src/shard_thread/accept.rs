//! The doors: accepting, and when not to. Lives on the first shard's thread.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use mio::Registry;
use mio::net::TcpListener;
use tidegate_control::Timestamp;
use tidegate_core::settings::Rate;

use super::{ShardThread, token};
use crate::door::Door;
use crate::letter::Arrival;
use crate::limits::{ACCEPT_PAUSE_BUSY, ACCEPT_PAUSE_EXHAUSTED, ACCEPT_RATES, ACCEPTS_PER_TURN_MAX};
use crate::link::Link;

/// A listener that is being accepted from.
#[derive(Debug)]
pub(crate) struct OpenDoor {
    pub(crate) door: Arc<Door>,
    pub(crate) socket: TcpListener,
    /// When to try next without being told: after a pause, or because one turn was not enough.
    pub(crate) try_at: Option<Timestamp>,
}

impl OpenDoor {
    pub(super) fn register(&mut self, registry: &Registry, index: usize) -> io::Result<()> {
        registry.register(&mut self.socket, token::door(index), mio::Interest::READABLE)
    }
}

/// Why accepting stops for now.
enum Stop {
    /// Nobody is waiting.
    Empty,
    /// Try again then.
    Until(Timestamp),
}

impl ShardThread {
    /// Doors that are to be tried again.
    pub(super) fn accept_again(&mut self) {
        for index in 0..self.doors.len() {
            if self.doors[index].try_at.is_some_and(|at| at <= self.now) {
                self.accept(index);
            }
        }
    }

    /// Lets people in, as many as one turn allows.
    pub(super) fn accept(&mut self, index: usize) {
        if index >= self.doors.len() {
            return;
        }
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            if let Some(stop) = self.accept_one(index) {
                self.doors[index].try_at = match stop {
                    Stop::Empty => None,
                    Stop::Until(at) => Some(at),
                };
                return;
            }
        }
        self.doors[index].try_at = Some(self.now);
    }

    fn accept_one(&mut self, index: usize) -> Option<Stop> {
        let door = Arc::clone(&self.doors[index].door);
        if !self.may_accept() {
            return Some(Stop::Until(self.now + ACCEPT_PAUSE_BUSY));
        }
        let Some(handshake) = self.common.handshakes.take(self.rules.handshakes_max) else {
            // They wait in the backlog: nobody is lost.
            return Some(Stop::Until(self.now + ACCEPT_PAUSE_BUSY));
        };
        let (stream, peer) = match self.doors[index].socket.accept() {
            Ok(accepted) => accepted,
            Err(error) => return self.accept_failed(&door, &error),
        };
        let Some(seat) = self.common.connections.take(self.rules.connections_max) else {
            self.journal.accept_trouble(door.name(), "connections_max is reached", self.now);
            return None;
        };
        if !cfg!(target_os = "linux") {
            // There it is inherited from the listener.
            let _ = stream.set_nodelay(true);
        }
        match door.tls_session() {
            Ok(session) => self.arrive(Arrival { link: Link::new(stream, session, seat), peer, door, handshake }),
            Err(error) => self.journal.accept_trouble(door.name(), &error.to_string(), self.now),
        }
        None
    }

    /// Under pressure those who are in come first.
    fn may_accept(&mut self) -> bool {
        let level = self.shard.level().number();
        let rate = level.checked_sub(2).and_then(|level| ACCEPT_RATES.get(usize::from(level)));
        rate.is_none_or(|(count, burst)| {
            Rate::new(*count, Duration::from_secs(1), *burst).conforms(&mut self.accept_paced, self.now)
        })
    }

    /// What went wrong is the visitor's affair, or the machine's. Accepting goes on in either case.
    fn accept_failed(&mut self, door: &Door, error: &io::Error) -> Option<Stop> {
        match error.kind() {
            io::ErrorKind::WouldBlock => Some(Stop::Empty),
            io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset => None,
            // No descriptors (EMFILE, ENFILE) or memory: those that are connected may end. An edge would not come again
            // for who waits already, so the clock has to do it.
            _ => {
                self.journal.accept_trouble(door.name(), &error.to_string(), self.now);
                Some(Stop::Until(self.now + ACCEPT_PAUSE_EXHAUSTED))
            }
        }
    }

    /// When the next door is to be tried.
    pub(super) fn next_accept(&self) -> Option<Timestamp> {
        self.doors.iter().filter_map(|door| door.try_at).min()
    }

    /// No more.
    pub(super) fn close_doors(&mut self) {
        self.doors = Vec::new();
    }
}
