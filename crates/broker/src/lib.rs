//! The process around the core: listeners, shard threads, TLS, WebSocket, handshakes.
//!
//! Here live sockets, clocks, threads and chance; nothing here decides what a client may do or who gets which message.
//! One thread per shard drives one [`tidegate_core::Shard`] by a readiness loop (`shard_thread`). A new socket is a
//! *handshake* until its CONNECT has been read and its sender is known (`handshake`), then it is handed to the thread that
//! owns its session, and becomes a *connection* (`shard_thread::connection`).
//!
//! Invariants worth naming:
//! - every queue, table and buffer is bounded, by `limits` or by the configuration;
//! - a thread waits in one place only, for sockets, its inbox and its next deadline;
//! - a peer can end its own connection, never a thread.
#![allow(missing_docs, reason = "a field whose name says it has no other text")]

pub mod ask;
mod attach;
mod attempts;
pub mod authenticate;
mod bans;
mod chance;
mod clock;
pub mod config;
mod control_group;
mod departed;
mod dtls;
mod event_log;
mod extra_metrics;
mod first_packet;
mod guard;
mod handle;
mod handshake;
mod handshakes;
mod inbox;
mod known;
mod limits;
mod link;
mod listener;
mod listener_counts;
mod listener_names;
mod login_ends;
mod machine;
mod operator;
mod password;
mod permit;
mod pinned;
mod pressure;
mod proxy_header;
mod shard_thread;
mod shared_state;
pub mod store_link;
mod system;
mod tap;
mod thread_message;
mod tls;
mod watch;
mod watchdog;
mod websocket;
mod window;

/// How a listener reads what comes before the core: for whoever drives it without sockets (`fuzz/`).
#[doc(hidden)]
pub mod doorway {
    pub use crate::first_packet::{First, connect_limits, first_packet};
    pub use crate::websocket::{AllowedPages, CloseCode, ControlFrame, Decoder, Upgrade, upgrade};
}

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mio::{Poll, Waker};
use tidegate_core::access::Policy;
use tidegate_core::event::Stats;
use tidegate_core::settings::Rate;
use tidegate_core::{Shard, Whom};
use tidegate_store::VitalThread;

use authenticate::Authenticator;
pub use bans::{Ban, Banned};
use chance::Chance;
use clock::Clock;
use config::{Config, ListenerKind, SnConfig};
pub use event_log::in_words as why_in_words;
pub use extra_metrics::{ExtraMetric, Source};
pub use guard::{AskedBehind, GuardConfig, GuardReport, UpstreamTls};
pub use handle::{Handle, NotAsked};
use inbox::Inbox;
use limits::{SHARDS_AUTO_MAX, SHARDS_MAX};
use listener::{BoundListener, OpenListener};
pub use listener::{LeftOut, ListenerReport};
pub use listener_names::listener_name;
pub use operator::OperatorSetting;
use password::Questions;
pub use pinned::Fingerprint;
pub use pressure::PressureReport;
use shard_thread::{AcceptingListener, BeaconDoor, INBOX, ShardThread};
use shared_state::SharedState;
pub use store_link::BanKept;
use store_link::{Opening, ShardWriter, StoreHandle};
pub use tap::{Mapped, Tap, Tapped};
use thread_message::{Rules, ThreadMessage};
pub use tls::{certificate_name, load as load_certificates};
pub use watch::WatchReport;
pub use watchdog::Watchdog;

/// A running broker. Dropping it is a shutdown, too.
#[derive(Debug)]
pub struct Broker {
    shared: Arc<SharedState>,
    listeners: Vec<Arc<OpenListener>>,
    left_out: Vec<LeftOut>,
    threads: Vec<JoinHandle<()>>,
    passwords: Vec<JoinHandle<()>>,
    opening: Option<Opening>,
    /// Where nobody is accepted from yet.
    closed: Option<ClosedDoors>,
}

/// Listeners that are bound: who connects waits in the backlog of the kernel.
#[derive(Debug)]
struct ClosedDoors {
    streams: Vec<AcceptingListener>,
    datagrams: Vec<(Arc<OpenListener>, Arc<UdpSocket>)>,
    sn: SnConfig,
    beacon: Option<Box<BeaconDoor>>,
}

impl Broker {
    /// Binds every listener (an error names address and listener) and starts the threads.
    pub fn start(config: Config, authenticator: Arc<dyn Authenticator>, policy: Arc<dyn Policy>) -> io::Result<Self> {
        let mut broker = Self::start_closed(config, authenticator, policy)?;
        broker.open_doors();
        Ok(broker)
    }

    /// The same, but nobody is accepted before [`open_doors`](Self::open_doors): who is to have each message, such as the broker's
    /// own bridges and sinks, can subscribe before the first one comes. Whoever connects meanwhile waits.
    pub fn start_closed(
        config: Config,
        authenticator: Arc<dyn Authenticator>,
        policy: Arc<dyn Policy>,
    ) -> io::Result<Self> {
        Self::start_at(Clock::start(), config, authenticator, policy)
    }

    /// From now on clients are accepted; nothing if they are already.
    pub fn open_doors(&mut self) {
        let Some(ClosedDoors { streams, datagrams, sn, beacon }) = self.closed.take() else { return };
        for (listener, socket) in datagrams {
            // The others first: what the first one reads may be theirs.
            for inbox in self.shared.inboxes.iter().rev() {
                let (listener, socket, sn) = (Arc::clone(&listener), Arc::clone(&socket), sn.clone());
                let _ = inbox.send(ThreadMessage::Datagrams(listener, socket, sn));
            }
        }
        // The first thread has all the listeners. A message that carries no client finds room.
        let Some(first) = self.shared.inboxes.first() else { return };
        let _ = first.send(ThreadMessage::Doors(streams));
        if let Some(beacon) = beacon {
            let _ = first.send(ThreadMessage::Beacon(beacon));
        }
    }

    /// The same with a clock that stands still unless [`advance`](Self::advance) is called: hours pass in no time. A
    /// drain waits until its clients are gone, because its time does not come.
    pub fn start_by_hand(
        config: Config,
        authenticator: Arc<dyn Authenticator>,
        policy: Arc<dyn Policy>,
    ) -> io::Result<Self> {
        let mut broker = Self::start_at(Clock::by_hand(), config, authenticator, policy)?;
        broker.open_doors();
        Ok(broker)
    }

    fn start_at(
        clock: Clock,
        config: Config,
        authenticator: Arc<dyn Authenticator>,
        policy: Arc<dyn Policy>,
    ) -> io::Result<Self> {
        let (bound, left_out) = OpenListener::open_all(&config.listeners)?;
        let (mut listeners, mut streams, mut datagrams) = (Vec::new(), Vec::new(), Vec::new());
        for (listener, socket) in bound {
            listeners.push(Arc::clone(&listener));
            match socket {
                BoundListener::Streams(socket) => streams.push(AcceptingListener { listener, socket, try_at: None }),
                BoundListener::Datagrams(socket) => datagrams.push((listener, Arc::new(socket))),
            }
        }

        let sn_door = datagrams.iter().find(|(listener, _)| listener.kind == ListenerKind::Sn);
        let beacon = sn_door.map(|(_, socket)| BeaconDoor::open(socket, &config.sn)).transpose();
        let beacon = beacon.map_err(|error| {
            let to = config.sn.advertising.map_or_else(String::new, |advertising| advertising.address.to_string());
            io::Error::new(error.kind(), format!("telling where MQTT-SN is, at {to}: {error}"))
        })?;

        let polls: io::Result<Vec<Poll>> = (0..shards(config.shards)).map(|_| Poll::new()).collect();
        let polls = polls?;
        let inboxes: io::Result<Arc<[Inbox]>> =
            polls.iter().map(|poll| Waker::new(poll.registry(), INBOX).map(Inbox::new)).collect();
        let questions = Arc::new(Questions::new(config.password_threads));
        let rules = Rules::new(&config, authenticator, policy, 0);
        let mut made = make_shards(polls.len(), &rules, clock.zero());
        let (mut store, mut first, mut opening) = (None, vec![Vec::new(); polls.len()], None);
        let (mut bans, mut rates) = (Vec::new(), Vec::new());
        if let Some(settings) = &config.store {
            let opened = StoreHandle::open(settings, config.mirror.clone(), &mut made, clock.now())?;
            store = Some(Arc::new(opened.store));
            (opening, first) = (Some(opened.opening), opened.first);
            (bans, rates) = (opened.bans, opened.rates);
        }
        let guard = config.guard.clone().map(|config| guard::Upstream::open(config, Chance::new().seed()));
        let shared = Arc::new(SharedState::new(clock, inboxes?, questions, rules.memory_max, store, guard));
        if let Some(upstream) = shared.guard.clone() {
            shared.extra_metrics.set(Box::new(move || upstream.metrics()));
        }
        shared.show_rules(&rules);
        for Ban { whom, left, reason, .. } in bans {
            inbox::lock(&shared.bans).add(whom, left, &reason, shared.clock.now());
        }
        for (setting, whom, rate) in rates {
            // The shards have no thread yet.
            for shard in &mut made {
                let _ = match setting {
                    OperatorSetting::Limit => shard.set_limit(&whom, Some(rate), shared.clock.now()),
                    OperatorSetting::Grant => shard.set_grant(&whom, Some(rate), shared.clock.now()),
                };
            }
            inbox::lock(&shared.limits).put(setting, &whom, Some(rate));
        }

        let passwords = password::start("password", config.password_threads, &shared.questions, &shared.inboxes)?;
        let mut broker = Self {
            shared,
            listeners,
            left_out,
            threads: Vec::new(),
            passwords,
            opening,
            closed: Some(ClosedDoors { streams, datagrams, sn: config.sn, beacon: beacon.flatten() }),
        };
        for (index, ((poll, shard), first)) in polls.into_iter().zip(made).zip(first).enumerate() {
            let (shared, rules) = (Arc::clone(&broker.shared), rules.clone());
            let shard = (shard, broker.shard_writer(index, first));
            let mut shard = ShardThread::new(index, shared, rules, poll, shard);
            if broker.listeners.iter().any(|listener| listener.is_http()) {
                shard.open_requests();
            }
            if broker.listeners.iter().any(|listener| listener.is_amqp()) {
                shard.open_containers();
            }
            let builder = thread::Builder::new().name(format!("shard-{index}"));
            broker.threads.push(builder.spawn(move || {
                let _vital = VitalThread::guard();
                shard.run();
            })?);
        }
        Ok(broker)
    }

    fn shard_writer(&self, index: usize, first: Vec<tidegate_store::RecordBatch>) -> Option<ShardWriter> {
        let store = self.shared.store.as_ref()?;
        let inboxes = Arc::clone(&self.shared.inboxes);
        // A message, not only a call: the thread may be about to fall asleep.
        let wake = move || drop(inboxes.get(index).map(|inbox| inbox.send(ThreadMessage::Kept)));
        let ways = (store.producer(wake.clone())?, store.page_reader(wake)?);
        Some(ShardWriter::new(Arc::clone(store), ways, first, index == 0, self.shared.clock.now()))
    }

    /// What the store had to say when it was opened; none without a store.
    pub fn opening(&self) -> Option<&Opening> {
        self.opening.as_ref()
    }

    /// Listeners that nobody asked for, and that could not be opened.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Where it listens, with real ports.
    pub fn addresses(&self) -> Vec<(ListenerKind, SocketAddr)> {
        self.listeners.iter().map(|listener| (listener.kind, listener.address)).collect()
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
        self.handle().reload(config, authenticator, policy)
    }

    /// For those who look after the broker while it runs.
    pub fn handle(&self) -> Handle {
        Handle::new(Arc::clone(&self.shared), self.listeners.clone())
    }

    /// Counters, summed over shards.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// How hard the broker is pressed, and how much of its memory is used.
    pub fn pressure(&self) -> PressureReport {
        self.handle().pressure()
    }

    /// See [`Handle::ban`].
    pub fn ban(&self, whom: &Banned, time: Duration, reason: &str) -> bool {
        self.handle().ban(whom, time, reason).is_some()
    }

    /// See [`Handle::unban`].
    pub fn unban(&self, whom: &Banned) -> bool {
        self.handle().unban(whom).is_some()
    }

    /// See [`Handle::bans`].
    pub fn bans(&self) -> Vec<Ban> {
        self.handle().bans()
    }

    /// See [`Handle::set_rate`].
    pub fn set_limit(&self, whom: &Whom, rate: Option<Rate>) -> bool {
        self.handle().set_rate(OperatorSetting::Limit, whom, rate).is_some()
    }

    /// See [`Handle::set_rate`].
    pub fn set_grant(&self, whom: &Whom, rate: Option<Rate>) -> bool {
        self.handle().set_rate(OperatorSetting::Grant, whom, rate).is_some()
    }

    /// See [`Handle::rates`].
    pub fn limits(&self) -> Vec<(Whom, Rate)> {
        self.handle().rates(OperatorSetting::Limit)
    }

    /// Sets the clock forward, of a broker that was started by hand. When this returns every shard has done a turn at the
    /// new time: no turn that began before is still under way, in which a socket would come in an hour ago.
    pub fn advance(&self, time: Duration) {
        self.shared.clock.advance(time);
        let (hand, let_go) = std::sync::mpsc::sync_channel(1);
        self.shared.tell_all(|| ThreadMessage::Tick(hand.clone()));
        drop(hand);
        // Nothing is ever sent: the answer is that nobody can any more.
        let _ = let_go.recv();
    }

    /// Sockets that are open, in whatever state.
    pub fn sockets(&self) -> usize {
        self.shared.connections.taken()
    }

    /// Tells a watchdog whether all threads still turn.
    pub fn watchdog(&self) -> Watchdog {
        Watchdog::new(Arc::clone(&self.shared))
    }

    /// Drains: no new connections, DISCONNECT 0x8B to all, outboxes flushed (bounded by the configured time), threads ended.
    pub fn shutdown(self) {
        drop(self);
    }

    /// The same within this time: for one whose store cannot keep anything any more, so that nothing is worth waiting for.
    pub fn shutdown_within(self, time: Duration) {
        self.shared.tell_all(|| ThreadMessage::ShutdownWithin(time));
        drop(self);
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        for inbox in &*self.shared.inboxes {
            let _ = inbox.send(ThreadMessage::Shutdown);
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!(event = "panic", "a shard thread has panicked");
            }
        }
        if let Some(store) = &self.shared.store {
            store.close();
        }
        self.shared.close_questions();
        for thread in self.passwords.drain(..) {
            let _ = thread.join();
        }
    }
}

fn make_shards(count: usize, rules: &Rules, zero: Duration) -> Vec<Shard> {
    // One for all: who belongs together has the same number on each of them.
    let seed = Chance::new().seed();
    let make = |index| {
        let (settings, policy) = (Arc::clone(&rules.settings), Arc::clone(&rules.policy));
        let mut shard = Shard::new(index, count, settings, policy, seed);
        shard.set_wall_clock(zero);
        shard
    };
    (0..count).map(make).collect()
}

fn shards(configured: usize) -> usize {
    // The kernel's half of the work wants cores, too: on two of them one shard is as fast as two, and spends less on
    // waking each other (18 CPU seconds per million paced messages instead of 33).
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let wanted = if configured == 0 { cores().div_ceil(2).min(SHARDS_AUTO_MAX) } else { configured };
    wanted.min(SHARDS_MAX)
}
