//! What all threads share: inboxes, counts of permits, and the counters of each shard as last shown.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_core::event::Stats;
use tidegate_core::measures::Measures;
use tidegate_core::settings::Rate;
use tidegate_core::{Shard, Whom};
use tracing::warn;

use crate::attempts::Attempts;
use crate::bans::{Banned, Bans};
use crate::clock::Clock;
use crate::extra_metrics::ExtraMetrics;
use crate::guard::Upstream;
use crate::inbox::{Inbox, lock};
use crate::known::KnownPasswords;
use crate::limits::ELSEWHERE_THREADS;
use crate::operator::{self, OperatorSetting};
use crate::password::{self, Questions};
use crate::permit::Permits;
use crate::pressure::PressureBoard;
use crate::store_link::{BanTicket, StoreHandle};
use crate::thread_message::{Rules, ThreadMessage};
use crate::watch::LastWatch;

/// Shared by all threads of a broker.
#[derive(Debug)]
pub(crate) struct SharedState {
    pub(crate) clock: Clock,
    pub(crate) inboxes: Arc<[Inbox]>,
    pub(crate) questions: Arc<Questions>,
    /// Those that somebody elsewhere has to answer; none before the first.
    elsewhere: OnceLock<Arc<Questions>>,
    /// Sockets, whatever they are doing.
    pub(crate) connections: Permits,
    /// Those in a handshake.
    pub(crate) handshakes: Permits,
    /// Connections of the broker's own bridges, and those of them in a handshake.
    pub(crate) bridges: Permits,
    pub(crate) bridge_handshakes: Permits,
    /// Questions of operators under way.
    pub(crate) asking: Permits,
    /// Messages of maps on their way to shards.
    pub(crate) mapped: Permits,
    /// Datagrams on their way to shards.
    pub(crate) datagrams: Permits,
    /// Which shard has the client of an address, where that does not follow from the address; bounded by the clients.
    pub(crate) datagram_routes: Mutex<BTreeMap<SocketAddr, usize>>,
    /// The broker behind, of a guard.
    pub(crate) guard: Option<Arc<Upstream>>,
    /// Numbers of what runs in the same process.
    pub(crate) extra_metrics: ExtraMetrics,
    pub(crate) watch: LastWatch,
    pub(crate) pressure: PressureBoard,
    /// The store, if there is one.
    pub(crate) store: Option<Arc<StoreHandle>>,
    pub(crate) bans: Mutex<Bans>,
    /// Wrong passwords.
    pub(crate) attempts: Mutex<Attempts>,
    /// Right ones.
    pub(crate) known: KnownPasswords,
    /// Limits of single clients and users, as all shards have them.
    pub(crate) limits: Mutex<operator::OperatorSettings>,
    /// Names of the classes, by the latest rules.
    pub(crate) classes: Mutex<Vec<String>>,
    /// By shard.
    shown: Vec<Mutex<(Stats, Measures)>>,
    /// Turns of each shard's loop.
    turns: Vec<AtomicU64>,
    /// Reloads so far.
    generation: AtomicU64,
}

impl SharedState {
    /// Whether anybody may be told anything; always, but for a node of a cluster that may have been overtaken.
    pub(crate) fn may_speak(&self) -> bool {
        self.store.as_ref().is_none_or(|store| store.may_speak())
    }

    pub(crate) fn new(
        clock: Clock,
        inboxes: Arc<[Inbox]>,
        questions: Arc<Questions>,
        memory_max: u64,
        store: Option<Arc<StoreHandle>>,
        guard: Option<Arc<Upstream>>,
    ) -> Self {
        let shown = inboxes.iter().map(|_| Mutex::default()).collect();
        let (connections, handshakes, asking) = (Permits::default(), Permits::default(), Permits::default());
        let turns = inboxes.iter().map(|_| AtomicU64::new(0)).collect();
        let generation = AtomicU64::new(0);
        let pressure = PressureBoard::new(inboxes.len(), memory_max);
        Self {
            clock,
            inboxes,
            questions,
            elsewhere: OnceLock::new(),
            connections,
            handshakes,
            asking,
            mapped: Permits::default(),
            datagrams: Permits::default(),
            datagram_routes: Mutex::default(),
            guard,
            bridges: Permits::default(),
            bridge_handshakes: Permits::default(),
            extra_metrics: ExtraMetrics::default(),
            watch: LastWatch::default(),
            pressure,
            store,
            bans: Mutex::default(),
            attempts: Mutex::default(),
            known: KnownPasswords::new(),
            limits: Mutex::default(),
            classes: Mutex::default(),
            shown,
            turns,
            generation,
        }
    }

    /// The room of questions that somebody elsewhere has to answer, and the threads that ask there.
    pub(crate) fn elsewhere(&self) -> &Questions {
        self.elsewhere.get_or_init(|| {
            let questions = Arc::new(Questions::new(ELSEWHERE_THREADS));
            // Without threads nobody is answered, and a full room says so.
            if let Err(error) = password::start("elsewhere", ELSEWHERE_THREADS, &questions, &self.inboxes) {
                warn!(event = "no_threads", %error, "nobody elsewhere can be asked who may come in");
                questions.close();
            }
            questions
        })
    }

    /// No more questions about who somebody is.
    pub(crate) fn close_questions(&self) {
        self.questions.close();
        if let Some(elsewhere) = self.elsewhere.get() {
            elsewhere.close();
        }
    }

    /// Keeps somebody out, and writes it down: the ticket to wait for, if there is a store that takes it. None: there are
    /// too many bans already.
    pub(crate) fn ban(&self, whom: Banned, time: Duration, reason: &str, now: Timestamp) -> Option<BanTicket> {
        let whom = whom.normal();
        // Both under the lock: the log has bans and their ends in the order in which they were made.
        let mut bans = lock(&self.bans);
        if !bans.add(whom.clone(), time, reason, now) {
            return None;
        }
        let (until, why) = bans.get(&whom)?;
        Some(self.store.as_ref().map_or(BanTicket::NONE, |store| store.ban(&whom, until, why)))
    }

    /// Ends a ban, and writes it down; none if there was none.
    pub(crate) fn unban(&self, whom: Banned) -> Option<BanTicket> {
        let whom = whom.normal();
        let mut bans = lock(&self.bans);
        bans.remove(whom.clone()).then(|| self.store.as_ref().map_or(BanTicket::NONE, |store| store.unban(&whom)))
    }

    /// Sets the rate of somebody, tells all shards, and writes it down: the ticket to wait for, if there is a store that
    /// takes it. None: there are too many already.
    pub(crate) fn set_rate(&self, setting: OperatorSetting, whom: &Whom, rate: Option<Rate>) -> Option<BanTicket> {
        let whom = &whom.lasting();
        // All under the lock: the log and the shards hear of it in the order in which it was set.
        let mut limits = lock(&self.limits);
        if !limits.put(setting, whom, rate) {
            return None;
        }
        self.tell_all(|| ThreadMessage::Limit(setting, whom.clone(), rate));
        Some(self.store.as_ref().map_or(BanTicket::NONE, |store| store.set_rate(setting, whom, rate)))
    }

    /// New rules have come.
    pub(crate) fn show_rules(&self, rules: &Rules) {
        *lock(&self.classes) = rules.settings.priority.classes.names().map(str::to_owned).collect();
    }

    /// The number of the next rules.
    pub(crate) fn next_generation(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The number of the newest rules; a shard may have their message still before it.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// A shard's loop has turned.
    #[inline]
    pub(crate) fn has_turned(&self, shard: usize) {
        if let Some(turns) = self.turns.get(shard) {
            // Nobody else writes it: a plain store is enough, and the cheapest there is.
            turns.store(turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// How often each shard's loop has turned.
    pub(crate) fn turns(&self) -> Vec<u64> {
        self.turns.iter().map(|turns| turns.load(Ordering::Relaxed)).collect()
    }

    /// A message for every shard.
    pub(crate) fn tell_all(&self, message: impl Fn() -> ThreadMessage) {
        for inbox in &*self.inboxes {
            // Never refused: it carries no socket.
            let _ = inbox.send(message());
        }
    }

    /// A shard shows its counters, and what it has measured.
    pub(crate) fn show(&self, index: usize, shard: &Shard) {
        if let Some(shown) = self.shown.get(index) {
            *lock(shown) = (shard.stats(), *shard.measures());
        }
    }

    /// All shards' counters together.
    pub(crate) fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        for shown in &self.shown {
            sum.add(&lock(shown).0);
        }
        sum
    }

    /// What all shards have measured.
    pub(crate) fn measures(&self) -> Measures {
        let mut sum = Measures::default();
        for shown in &self.shown {
            sum.add(&lock(shown).1);
        }
        sum
    }
}
