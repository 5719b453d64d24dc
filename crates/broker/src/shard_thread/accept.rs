//! The listeners: accepting, and when not to. Lives on the first shard's thread.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use mio::Registry;
use mio::net::TcpListener;
use tidegate_control::Timestamp;
use tidegate_core::settings::Rate;
use tracing::error;

use super::{ShardThread, token};
use crate::limits::{ACCEPT_PAUSE_BUSY, ACCEPT_PAUSE_EXHAUSTED, ACCEPT_RATES, ACCEPTS_PER_TURN_MAX};
use crate::link::SocketLink;
use crate::listener::{OpenListener, PeerStanding};
use crate::listener_counts::ListenerRefusal;
use crate::permit::SocketPlaces;
use crate::thread_message::AcceptedSocket;

/// A listener that is being accepted from.
#[derive(Debug)]
pub(crate) struct AcceptingListener {
    pub(crate) listener: Arc<OpenListener>,
    pub(crate) socket: TcpListener,
    /// When to try next without being told: after a pause, or because one turn was not enough.
    pub(crate) try_at: Option<Timestamp>,
}

impl AcceptingListener {
    fn register(&mut self, registry: &Registry, index: usize) -> io::Result<()> {
        registry.register(&mut self.socket, token::listener(index), mio::Interest::READABLE)
    }
}

/// Why accepting stops for now.
enum AcceptStop {
    /// Nobody is waiting.
    Empty,
    /// Try again then.
    Until(Timestamp),
}

impl ShardThread {
    /// Who waits there already is told of at once.
    pub(super) fn open_doors(&mut self, mut listeners: Vec<AcceptingListener>) {
        if self.draining.is_some() {
            return;
        }
        for (place, listener) in listeners.iter_mut().enumerate() {
            if let Err(error) = listener.register(self.poll.registry(), place) {
                let door = listener.listener.name();
                error!(event = "door_off", door, %error, "this listener cannot be waited for");
            }
        }
        self.listeners = listeners;
    }

    /// Doors that are to be tried again.
    pub(super) fn accept_again(&mut self) {
        for index in 0..self.listeners.len() {
            if self.listeners[index].try_at.is_some_and(|at| at <= self.now) {
                self.accept(index);
            }
        }
    }

    /// Lets people in, as many as one turn allows.
    pub(super) fn accept(&mut self, index: usize) {
        if index >= self.listeners.len() {
            return;
        }
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            if let Some(stop) = self.accept_one(index) {
                self.listeners[index].try_at = match stop {
                    AcceptStop::Empty => None,
                    AcceptStop::Until(at) => Some(at),
                };
                return;
            }
        }
        self.listeners[index].try_at = Some(self.now);
    }

    fn accept_one(&mut self, index: usize) -> Option<AcceptStop> {
        let listener = Arc::clone(&self.listeners[index].listener);
        if !self.may_accept() {
            return Some(AcceptStop::Until(self.now + ACCEPT_PAUSE_BUSY));
        }
        let Some(permit) = self.shared.handshakes.take(self.rules.handshakes_max) else {
            // They wait in the backlog: nobody is lost.
            return Some(AcceptStop::Until(self.now + ACCEPT_PAUSE_BUSY));
        };
        let (stream, peer) = match self.listeners[index].socket.accept() {
            Ok(accepted) => accepted,
            Err(error) => return self.accept_failed(&listener, &error),
        };
        let places = self.places(&listener, peer.ip())?;
        if !cfg!(target_os = "linux") {
            // There it is inherited from the listener.
            let _ = stream.set_nodelay(true);
        }
        match listener.tls_session() {
            Ok(session) => {
                self.arrive(AcceptedSocket { link: SocketLink::new(stream, session, places), peer, listener, permit });
            }
            Err(error) => self.event_log.accept_trouble(listener.name(), &error.to_string(), self.now),
        }
        None
    }

    /// The places of somebody who was accepted; none if it has to go at once.
    fn places(&mut self, listener: &OpenListener, peer: IpAddr) -> Option<SocketPlaces> {
        listener.counts.accept();
        let refused = |why, words: &'static str| {
            listener.counts.refuse(why);
            words
        };
        let found = if listener.standing(peer) == PeerStanding::Stranger {
            Err(refused(ListenerRefusal::NoProxy, "only its proxies may connect, by proxy_protocol"))
        } else {
            match (self.shared.connections.take(self.rules.connections_max), listener.take_place()) {
                (None, _) => Err(refused(ListenerRefusal::BrokerFull, "connections_max is reached")),
                (_, None) => Err(refused(ListenerRefusal::Full, "connections_max of this listener is reached")),
                (Some(of_all), Some(of_listener)) => Ok(SocketPlaces::new(of_all, of_listener)),
            }
        };
        found.map_err(|why| self.event_log.accept_trouble(listener.name(), why, self.now)).ok()
    }

    /// Under pressure those who are in come first.
    fn may_accept(&mut self) -> bool {
        let level = self.shard.level().number();
        let rate = level.checked_sub(2).and_then(|level| ACCEPT_RATES.get(usize::from(level)));
        rate.is_none_or(|(count, burst)| {
            Rate::new(*count, Duration::from_secs(1), *burst).conforms(&mut self.accept_paced, self.now)
        })
    }

    /// What went wrong is the handshake's affair, or the machine's. Accepting goes on in either case.
    fn accept_failed(&mut self, listener: &OpenListener, error: &io::Error) -> Option<AcceptStop> {
        match error.kind() {
            io::ErrorKind::WouldBlock => Some(AcceptStop::Empty),
            io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset => None,
            // No descriptors (EMFILE, ENFILE) or memory: those that are connected may end. An edge would not come again
            // for who waits already, so the clock has to do it.
            _ => {
                self.event_log.accept_trouble(listener.name(), &error.to_string(), self.now);
                Some(AcceptStop::Until(self.now + ACCEPT_PAUSE_EXHAUSTED))
            }
        }
    }

    /// When the next listener is to be tried.
    pub(super) fn next_accept(&self) -> Option<Timestamp> {
        self.listeners.iter().filter_map(|listener| listener.try_at).min()
    }

    /// No more.
    pub(super) fn close_doors(&mut self) {
        self.listeners = Vec::new();
    }
}
