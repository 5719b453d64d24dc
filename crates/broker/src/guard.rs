//! The broker behind a guard, as all threads see it: where it is, whether it answers, and what was counted.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use tidegate_guard::Origins;
use tracing::{info, warn};

use crate::authenticate::{Authenticator, Credentials, LoginRefusal};
use crate::extra_metrics::ExtraMetric;
use crate::inbox::lock;

/// What a guard needs to know.
#[derive(Clone, Debug)]
pub struct GuardConfig {
    /// Host and port of the broker behind.
    pub upstream: String,
    /// TLS to it, if it wants that.
    pub tls: Option<UpstreamTls>,
    /// How long it may take to accept a connection and to answer a CONNECT.
    pub timeout: Duration,
}

/// TLS to the broker behind.
#[derive(Clone, Debug)]
pub struct UpstreamTls {
    /// Whom to trust, and what to show.
    pub config: Arc<ClientConfig>,
    /// The name that its certificate must have.
    pub name: ServerName<'static>,
}

/// How the broker behind is, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardReport {
    /// As the operator wrote it.
    pub upstream: String,
    /// Whether the last attempt to reach it succeeded; none before the first.
    pub is_reached: Option<bool>,
    /// Connections to it now.
    pub connections: u64,
    /// What was wrong the last time, in words.
    pub trouble: Option<String>,
    /// For how long it cannot be used; none while it can.
    pub lost_for: Option<Duration>,
}

/// What all threads know of the broker behind.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) config: GuardConfig,
    pub(crate) origins: Origins,
    pub(crate) counts: GuardCounts,
    addresses: Mutex<Arc<[SocketAddr]>>,
    /// Which of them is tried next.
    turn: AtomicUsize,
    was_tried: AtomicBool,
    is_reached: AtomicBool,
    trouble: Mutex<Option<String>>,
    lost_at: Mutex<Option<Instant>>,
    /// Nobody accepts connections there: that is all that a probe can find out, and all that it can take back.
    is_shut: AtomicBool,
    /// When it answered a client last.
    heard_at: Mutex<Option<Instant>>,
    /// Threads that have something unread from behind, a bit for each.
    behind: AtomicU64,
}

/// Counters; all grow, but the number of connections.
#[derive(Debug, Default)]
pub(crate) struct GuardCounts {
    pub(crate) connections: AtomicU64,
    pub(crate) connects: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) unreachable: AtomicU64,
    pub(crate) silent: AtomicU64,
    pub(crate) garbage: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) tls: AtomicU64,
    pub(crate) pings: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// How often the broker behind is looked for while no client of it comes, and its name is looked up: it may have moved.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

impl Upstream {
    /// Looks the address up, and the broker behind from time to time. A name that is not known yet is no error: its clients are
    /// refused until it is.
    pub(crate) fn open(config: GuardConfig, seed: u64) -> Arc<Self> {
        let upstream = Arc::new(Self {
            origins: Origins::new(seed),
            counts: GuardCounts::default(),
            addresses: Mutex::new(Arc::from([])),
            turn: AtomicUsize::new(0),
            was_tried: AtomicBool::new(false),
            is_reached: AtomicBool::new(false),
            trouble: Mutex::default(),
            lost_at: Mutex::default(),
            is_shut: AtomicBool::new(false),
            heard_at: Mutex::default(),
            behind: AtomicU64::new(0),
            config,
        });
        upstream.look_up();
        let is_name = upstream.config.upstream.parse::<SocketAddr>().is_err();
        let weak = Arc::downgrade(&upstream);
        let life = move || {
            loop {
                let Some(upstream) = weak.upgrade() else { return };
                upstream.probe();
                drop(upstream);
                thread::sleep(LOOK_EVERY);
                let Some(upstream) = weak.upgrade().filter(|_| is_name) else { continue };
                upstream.look_up();
            }
        };
        if let Err(error) = thread::Builder::new().name("guard-probe".to_owned()).spawn(life) {
            warn!(event = "guard_probe", %error, "the broker behind is looked for only when a client comes");
        }
        upstream
    }

    fn look_up(&self) {
        match self.config.upstream.to_socket_addrs() {
            Ok(found) => {
                let found: Vec<SocketAddr> = found.take(ADDRESSES_MAX).collect();
                *lock(&self.addresses) = found.into();
            }
            Err(error) if lock(&self.addresses).is_empty() => {
                self.fail_to_connect(&format!("{} cannot be looked up: {error}", self.config.upstream));
            }
            // What was known before may still be true, and is tried.
            Err(_) => {}
        }
    }

    /// Looks whether anybody accepts a connection there, unless a client has just been answered. Nothing is said to it: a CONNECT of
    /// nobody would be a failed login in its log every few seconds, and a reason to shut the guard out.
    fn probe(&self) {
        if lock(&self.heard_at).is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return;
        }
        let addresses = Arc::clone(&lock(&self.addresses));
        let turn = self.turn.load(Ordering::Relaxed);
        let mut why = None;
        for index in (0..addresses.len()).map(|step| turn.wrapping_add(step)) {
            let to = addresses[index % addresses.len()];
            match TcpStream::connect_timeout(&to, self.config.timeout) {
                Ok(_) => {
                    self.turn.store(index, Ordering::Relaxed);
                    if !self.was_tried.load(Ordering::Relaxed) || self.is_shut.load(Ordering::Relaxed) {
                        self.reach();
                    }
                    return;
                }
                Err(error) => why = Some(format!("{to}: {error}")),
            }
        }
        if let Some(why) = why {
            self.fail_to_connect(&why);
        }
    }

    /// Where to try next.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        let addresses = Arc::clone(&lock(&self.addresses));
        let turn = self.turn.load(Ordering::Relaxed);
        addresses.get(turn.checked_rem(addresses.len())?).copied()
    }

    /// TLS for one connection to it; none if it wants none.
    pub(crate) fn tls_session(&self) -> io::Result<Option<ClientConnection>> {
        let session = |tls: &UpstreamTls| ClientConnection::new(Arc::clone(&tls.config), tls.name.clone());
        self.config.tls.as_ref().map(session).transpose().map_err(io::Error::other)
    }

    /// Nobody is there, for this reason.
    pub(crate) fn fail_to_connect(&self, why: &str) {
        self.fail(why);
        self.is_shut.store(true, Ordering::Relaxed);
    }

    /// It cannot be used, for this reason; said once in the log until it can again.
    pub(crate) fn fail(&self, why: &str) {
        self.is_shut.store(false, Ordering::Relaxed);
        self.turn.fetch_add(1, Ordering::Relaxed);
        *lock(&self.trouble) = Some(why.to_owned());
        let was_reached = self.is_reached.swap(false, Ordering::Relaxed);
        if !self.was_tried.swap(true, Ordering::Relaxed) || was_reached {
            *lock(&self.lost_at) = Some(Instant::now());
            let upstream = &*self.config.upstream;
            warn!(event = "upstream_lost", upstream, why, "the broker behind cannot be reached: clients are told so");
        }
    }

    /// It answers a client.
    pub(crate) fn succeed(&self) {
        *lock(&self.heard_at) = Some(Instant::now());
        self.reach();
    }

    fn reach(&self) {
        self.was_tried.store(true, Ordering::Relaxed);
        if !self.is_reached.swap(true, Ordering::Relaxed) {
            (*lock(&self.trouble), *lock(&self.lost_at)) = (None, None);
            info!(event = "upstream_reached", upstream = &*self.config.upstream, "the broker behind answers");
        }
    }

    /// A thread has read dry what comes from behind, or not.
    pub(crate) fn set_behind(&self, thread: usize, is_behind: bool) {
        let bit = 1 << (thread % 64);
        if (self.behind.load(Ordering::Relaxed) & bit != 0) != is_behind {
            self.behind.fetch_xor(bit, Ordering::Relaxed);
        }
    }

    /// Whether any thread has not.
    pub(crate) fn is_behind(&self) -> bool {
        self.behind.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn report(&self) -> GuardReport {
        let was_tried = self.was_tried.load(Ordering::Relaxed);
        GuardReport {
            upstream: self.config.upstream.clone(),
            is_reached: was_tried.then(|| self.is_reached.load(Ordering::Relaxed)),
            connections: self.counts.connections.load(Ordering::Relaxed),
            trouble: lock(&self.trouble).clone(),
            lost_for: lock(&self.lost_at).map(|at| at.elapsed()),
        }
    }

    /// The numbers of a guard.
    pub(crate) fn metrics(&self) -> Vec<ExtraMetric> {
        let counts = &self.counts;
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let number = |family, help, is_counter, labels, value| ExtraMetric { family, help, is_counter, labels, value };
        let failed = |reason, counter| {
            let help = "Connections to the broker behind that came to nothing.";
            number("guard_failures", help, true, vec![("reason", reason)], value(counter))
        };
        vec![
            number(
                "guard_up",
                "Whether the broker behind answers.",
                false,
                vec![],
                self.is_reached.load(Ordering::Relaxed).into(),
            ),
            number("guard_connections", "Connections to the broker behind.", false, vec![], value(&counts.connections)),
            number(
                "guard_connects",
                "Clients that the broker behind has let in.",
                true,
                vec![],
                value(&counts.connects),
            ),
            number(
                "guard_refused",
                "Clients that the broker behind has refused.",
                true,
                vec![],
                value(&counts.refused),
            ),
            failed("unreachable", &counts.unreachable),
            failed("silent", &counts.silent),
            failed("garbage", &counts.garbage),
            failed("lost", &counts.lost),
            failed("tls", &counts.tls),
            number(
                "guard_pings",
                "Signs of life sent in the place of clients that were not read.",
                true,
                vec![],
                value(&counts.pings),
            ),
        ]
    }
}

/// Lets everybody on to the broker behind, under the name that it gives: that broker knows its users.
#[derive(Clone, Copy, Debug)]
pub struct AskedBehind;

impl Authenticator for AskedBehind {
    fn is_slow(&self, _: &Credentials) -> bool {
        false
    }

    fn authenticate(&self, credentials: &Credentials) -> Result<Option<Arc<str>>, LoginRefusal> {
        Ok(credentials.user_name.as_deref().or(credentials.certificate_name.as_deref()).map(Arc::from))
    }
}
