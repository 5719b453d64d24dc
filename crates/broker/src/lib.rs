//! The process around the core: listeners, shard threads, TLS, WebSocket, handshakes.
//!
//! Here live sockets, clocks, threads and chance; nothing here decides what a client may do or who gets which message.
//! One thread per shard drives one [`tidegate_core::Shard`] by a readiness loop (`shard_thread`). A new socket is a
//! *visitor* until its CONNECT has been read and its sender is known (`visitor`), then it is handed to the thread that
//! owns its session, and becomes a *connection* (`shard_thread::connection`).
//!
//! Invariants worth naming:
//! - every queue, table and buffer is bounded, by `limits` or by the configuration;
//! - a thread waits in one place only, for sockets, its inbox and its next deadline;
//! - a peer can end its own connection, never a thread.

mod attempts;
pub mod authenticate;
mod bans;
mod chance;
mod clock;
mod common;
pub mod config;
mod door;
mod first_packet;
mod inbox;
mod journal;
mod letter;
mod limits;
mod link;
mod machine;
mod password;
mod pressure;
mod pulse;
mod seat;
mod shard_thread;
mod system;
mod tls;
mod visitor;
mod visitors;
mod websocket;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mio::{Poll, Waker};
use tidegate_core::Whom;
use tidegate_core::access::Policy;
use tidegate_core::event::Stats;
use tidegate_core::settings::Rate;

use authenticate::Authenticator;
pub use bans::{Ban, Banned};
use clock::Clock;
use common::Common;
use config::{Config, ListenerKind};
use door::{Door, load_tls};
use inbox::{Inbox, lock};
use letter::{Letter, Rules};
use limits::{OPERATOR_LIMITS_MAX, SHARDS_MAX};
use password::Questions;
pub use pressure::PressureReport;
pub use pulse::Pulse;
use shard_thread::{INBOX, OpenDoor, ShardThread};

/// A running broker. Dropping it is a shutdown, too.
#[derive(Debug)]
pub struct Broker {
    common: Arc<Common>,
    doors: Vec<Arc<Door>>,
    threads: Vec<JoinHandle<()>>,
    passwords: Vec<JoinHandle<()>>,
}

impl Broker {
    /// Binds every listener (an error names address and listener) and starts the threads.
    pub fn start(config: Config, authenticator: Arc<dyn Authenticator>, policy: Arc<dyn Policy>) -> io::Result<Self> {
        Self::start_at(Clock::start(), config, authenticator, policy)
    }

    /// The same with a clock that stands still unless [`advance`](Self::advance) is called: hours pass in no time. A
    /// drain waits until its clients are gone, because its time does not come.
    pub fn start_by_hand(
        config: Config,
        authenticator: Arc<dyn Authenticator>,
        policy: Arc<dyn Policy>,
    ) -> io::Result<Self> {
        Self::start_at(Clock::by_hand(), config, authenticator, policy)
    }

    #[expect(clippy::needless_pass_by_value, reason = "the broker is made of it, as of the other two")]
    fn start_at(
        clock: Clock,
        config: Config,
        authenticator: Arc<dyn Authenticator>,
        policy: Arc<dyn Policy>,
    ) -> io::Result<Self> {
        let open: io::Result<Vec<_>> = config.listeners.iter().map(Door::open).collect();
        let mut open: Vec<OpenDoor> =
            open?.into_iter().map(|(door, socket)| OpenDoor { door, socket, try_at: None }).collect();
        let doors = open.iter().map(|open| Arc::clone(&open.door)).collect();

        let polls: io::Result<Vec<Poll>> = (0..shards(config.shards)).map(|_| Poll::new()).collect();
        let polls = polls?;
        let inboxes: io::Result<Arc<[Inbox]>> =
            polls.iter().map(|poll| Waker::new(poll.registry(), INBOX).map(Inbox::new)).collect();
        let questions = Arc::new(Questions::new(config.password_threads));
        let rules = Rules::new(&config, authenticator, policy, 0);
        let common = Arc::new(Common::new(clock, inboxes?, questions, rules.memory_max));

        let passwords = password::start(config.password_threads, &common.questions, &common.inboxes)?;
        let mut broker = Self { common, doors, threads: Vec::new(), passwords };
        for (index, poll) in polls.into_iter().enumerate() {
            let (common, rules) = (Arc::clone(&broker.common), rules.clone());
            // The first thread has all the doors.
            let shard = ShardThread::new(index, common, rules, poll, core::mem::take(&mut open))?;
            let builder = thread::Builder::new().name(format!("shard-{index}"));
            broker.threads.push(builder.spawn(move || shard.run())?);
        }
        Ok(broker)
    }

    /// Where it listens, with real ports.
    pub fn addresses(&self) -> Vec<(ListenerKind, SocketAddr)> {
        self.doors.iter().map(|door| (door.kind, door.address)).collect()
    }

    /// New users, rules, settings and certificates; no valid client is dropped. Listeners stay as they are.
    ///
    /// All or nothing: when a certificate cannot be read, everything stays as it was.
    pub fn reload(
        &self,
        config: &Config,
        authenticator: Arc<dyn Authenticator>,
        policy: Arc<dyn Policy>,
    ) -> io::Result<()> {
        let certificates: io::Result<Vec<_>> = config.listeners.iter().map(load_tls).collect();
        for ((door, listener), certificate) in self.doors.iter().zip(&config.listeners).zip(certificates?) {
            if let Some(certificate) = certificate.filter(|_| listener.kind == door.kind) {
                door.replace_tls(certificate);
            }
        }
        let rules = Rules::new(config, authenticator, policy, self.common.next_generation());
        self.common.pressure.budget.set_max(rules.memory_max);
        for inbox in &*self.common.inboxes {
            // Never refused: it carries no socket.
            let _ = inbox.send(Letter::Reload(Box::new(rules.clone())));
        }
        Ok(())
    }

    /// Counters, summed over shards.
    pub fn stats(&self) -> Stats {
        self.common.stats()
    }

    /// How hard the broker is pressed, and how much of its memory is used.
    pub fn pressure(&self) -> PressureReport {
        self.common.pressure.report(self.common.clock.now())
    }

    /// Keeps somebody out for a time: who is connected has to go (DISCONNECT 0x98), who comes is told 0x8A. False: there
    /// are too many bans already.
    pub fn ban(&self, whom: &Banned, time: Duration, reason: &str) -> bool {
        if !lock(&self.common.bans).add(whom.clone(), time, reason, self.common.clock.now()) {
            return false;
        }
        self.tell_all(|| Letter::Expel(Box::new(whom.clone().normal())));
        true
    }

    /// Ends a ban; false if there was none.
    pub fn unban(&self, whom: &Banned) -> bool {
        lock(&self.common.bans).remove(whom.clone())
    }

    /// All bans that have not ended.
    pub fn bans(&self) -> Vec<Ban> {
        lock(&self.common.bans).list(self.common.clock.now())
    }

    /// Limits the messages of a client or user, or (`None`) stops doing so. False: there are too many limits already.
    pub fn set_limit(&self, whom: &Whom, rate: Option<Rate>) -> bool {
        let mut limits = lock(&self.common.limits);
        match rate {
            Some(_) if limits.len() >= OPERATOR_LIMITS_MAX && !limits.contains_key(whom) => return false,
            Some(rate) => drop(limits.insert(whom.clone(), rate)),
            None => drop(limits.remove(whom)),
        }
        drop(limits);
        self.tell_all(|| Letter::Limit(whom.clone(), rate));
        true
    }

    /// The limits of single clients and users.
    pub fn limits(&self) -> Vec<(Whom, Rate)> {
        lock(&self.common.limits).iter().map(|(whom, rate)| (whom.clone(), *rate)).collect()
    }

    /// Sets the clock forward, of a broker that was started by hand.
    pub fn advance(&self, time: Duration) {
        self.common.clock.advance(time);
        self.tell_all(|| Letter::Tick);
    }

    fn tell_all(&self, letter: impl Fn() -> Letter) {
        for inbox in &*self.common.inboxes {
            // Never refused: it carries no socket.
            let _ = inbox.send(letter());
        }
    }

    /// Sockets that are open, in whatever state.
    pub fn sockets(&self) -> usize {
        self.common.connections.taken()
    }

    /// A hand on the pulse of all threads, for a watchdog.
    pub fn pulse(&self) -> Pulse {
        Pulse::new(Arc::clone(&self.common))
    }

    /// Drains: no new connections, DISCONNECT 0x8B to all, outboxes flushed (bounded by the configured time), threads ended.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        for inbox in &*self.common.inboxes {
            let _ = inbox.send(Letter::Shutdown);
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!(event = "panic", "a shard thread has panicked");
            }
        }
        self.common.questions.close();
        for thread in self.passwords.drain(..) {
            let _ = thread.join();
        }
    }
}

fn shards(configured: usize) -> usize {
    // The kernel's half of the work wants cores, too: on two of them one shard is as fast as two, and spends less on
    // waking each other (18 CPU seconds per million paced messages instead of 33).
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let wanted = if configured == 0 { cores().div_ceil(2) } else { configured };
    wanted.min(SHARDS_MAX)
}
