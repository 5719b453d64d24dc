//! What can be done with a broker that runs, from any thread: look, ask, reload. Stays valid after its end, when nobody
//! answers any more.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_core::access::Policy;
use tidegate_core::event::Stats;
use tidegate_core::measures::Measures;
use tidegate_core::settings::Rate;
use tidegate_core::{Whom, shard_of};
use tidegate_store::{RecoveryReport, StoreError};

use crate::ask::{Answer, AskedQuestion, Busy, Question};
use crate::authenticate::{Authenticator, Credentials, LoginGrant, LoginRefusal};
use crate::bans::{Ban, Banned};
use crate::config::{Config, Listener, ListenerKind};
use crate::guard::GuardReport;
use crate::inbox::lock;
use crate::known::{Familiarity, NO_RULES};
use crate::limits::QUESTIONS_MAX;
use crate::listener::{ListenerReport, OpenListener, Secrets};
use crate::operator::OperatorSetting;
use crate::password::{CheckRequester, PasswordCheck as PasswordQuestion};
use crate::pressure::PressureReport;
use crate::shared_state::SharedState;
use crate::store_link::{BanKept, BanTicket, StoreReport};
use crate::thread_message::{Rules, ThreadMessage};

/// A running broker, for those who look after it.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<SharedState>,
    listeners: Vec<Arc<OpenListener>>,
}

/// Why a password was not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAsked {
    /// Too many are waiting.
    Busy,
    /// Too many were wrong: not for so long.
    Wait(Duration),
}

impl Handle {
    pub(crate) fn new(shared: Arc<SharedState>, listeners: Vec<Arc<OpenListener>>) -> Self {
        Self { shared, listeners }
    }

    pub(crate) fn shared(&self) -> &SharedState {
        &self.shared
    }

    /// Asks a shard. The answer is told on the shard's thread, which must not be kept waiting; it is never told if the
    /// broker goes down.
    pub fn ask(
        &self,
        shard: usize,
        question: Question,
        reply: impl FnOnce(Answer) + Send + 'static,
    ) -> Result<(), Busy> {
        let inbox = self.shared.inboxes.get(shard).ok_or(Busy)?;
        let permit = self.shared.asking.take(QUESTIONS_MAX).ok_or(Busy)?;
        let asked = AskedQuestion { question, reply: Box::new(reply), permit };
        inbox.send(ThreadMessage::Ask(Box::new(asked))).map_err(|_| Busy)
    }

    /// How the store is; none without one, or after the end.
    pub fn store(&self) -> Option<StoreReport> {
        self.shared.store.as_ref()?.report()
    }

    /// Copies the store as it is now into a directory that is not there yet; the broker goes on meanwhile.
    pub fn backup(&self, to: &Path) -> Result<RecoveryReport, StoreError> {
        self.shared.store.as_ref().ok_or(StoreError::Failed)?.backup(to)
    }

    /// The broker behind; none if this one is no guard.
    pub fn guard(&self) -> Option<GuardReport> {
        self.shared.guard.as_ref().map(|upstream| upstream.report())
    }

    /// How many shards there are to ask.
    pub fn shards(&self) -> usize {
        self.shared.inboxes.len()
    }

    /// The shard that knows this client.
    pub fn shard_of(&self, client_id: &str) -> usize {
        shard_of(client_id, self.shards())
    }

    /// Checks a user's password, on the threads that do it for clients, and with the same pauses for those who have given
    /// wrong ones: one that was right of late does not wait. The answer is told on such a thread, which must not be kept
    /// waiting.
    pub fn authenticate(
        &self,
        authenticator: Arc<dyn Authenticator>,
        credentials: Credentials,
        from: IpAddr,
        reply: impl FnOnce(Result<LoginGrant, LoginRefusal>) + Send + 'static,
    ) -> Result<(), NotAsked> {
        let shared = Arc::clone(&self.shared);
        let user = credentials.user_name.clone().unwrap_or_default();
        let print = shared.known.print(&credentials);
        // Behind a proxy everybody has one address: whoever guesses there must not lock out whoever knows.
        let is_stranger = print.is_none_or(|print| {
            shared.known.find(&print, shared.generation(), shared.clock.now()) == Familiarity::Stranger
        });
        let may_wait = is_stranger && authenticator.is_guessable(&credentials);
        let wait = may_wait.then(|| lock(&shared.attempts).wait(from, &user, shared.clock.now())).flatten();
        if let Some(wait) = wait {
            return Err(NotAsked::Wait(wait));
        }
        let note = move |verdict: Result<LoginGrant, LoginRefusal>| {
            let now = shared.clock.now();
            match (&verdict, print) {
                (Err(LoginRefusal::BadUserNameOrPassword), print) => {
                    lock(&shared.attempts).failed(from, &user, now);
                    if let Some(print) = print {
                        shared.known.forget(&print);
                    }
                }
                (Ok(grant), _) if !grant.is_lasting() => {}
                (Ok(grant), print) => {
                    lock(&shared.attempts).succeeded(from, &user);
                    if let Some((name, print)) = grant.user.as_ref().zip(print).filter(|_| is_stranger) {
                        // By whose rules is for the caller to know: worth a hash, and never more.
                        shared.known.note(print, Arc::clone(name), NO_RULES, now);
                    }
                }
                (Err(LoginRefusal::NotAuthorized | LoginRefusal::BadToken | LoginRefusal::Unavailable), _) => {}
            }
            reply(verdict);
        };
        let asker = CheckRequester::Caller(Box::new(note));
        let question = PasswordQuestion { asker, credentials, authenticator, generation: 0, from, print: None };
        self.shared.questions.ask(question).map_err(|Busy| NotAsked::Busy)
    }

    /// The time by the broker's own clock, which all its answers use.
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Counters, summed over shards, not older than a tenth of a second.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// What was measured, summed over shards; as old as the counters.
    pub fn measures(&self) -> Measures {
        self.shared.measures()
    }

    /// Sockets that are open, in whatever state; and those of them in a handshake.
    pub fn sockets(&self) -> (usize, usize) {
        (self.shared.connections.taken(), self.shared.handshakes.taken())
    }

    /// Where it listens, with real ports.
    pub fn addresses(&self) -> Vec<(ListenerKind, SocketAddr)> {
        self.listeners.iter().map(|listener| (listener.kind, listener.address)).collect()
    }

    /// Each listener, with who came and who was turned away.
    pub fn listeners(&self) -> Vec<ListenerReport> {
        self.listeners.iter().map(|listener| listener.report()).collect()
    }

    /// How hard the broker is pressed, and how much of its memory is used.
    pub fn pressure(&self) -> PressureReport {
        self.shared.pressure.report(self.shared.clock.now())
    }

    /// Charges memory that is no shard's to the budget; false if there is no room.
    pub fn take_memory(&self, bytes: usize) -> bool {
        self.shared.pressure.budget.take_beside(bytes as u64)
    }

    /// So much of it is not used any more.
    pub fn give_memory(&self, bytes: usize) {
        self.shared.pressure.budget.give_beside(bytes as u64);
    }

    /// Charges memory that is no shard's and is used already, whether there is room or not.
    pub fn charge_memory(&self, bytes: usize) {
        self.shared.pressure.budget.charge_beside(bytes as u64);
    }

    /// Charges data that are to stay to the budget; false if they have their part of it already, or there is no room.
    pub fn take_data_memory(&self, bytes: usize) -> bool {
        self.shared.pressure.budget.take_data(bytes as u64)
    }

    /// The same for data that are there already.
    pub fn charge_data_memory(&self, bytes: usize) {
        self.shared.pressure.budget.charge_data(bytes as u64);
    }

    /// So much of them is not there any more.
    pub fn give_data_memory(&self, bytes: usize) {
        self.shared.pressure.budget.give_data(bytes as u64);
    }

    /// How often the level has become each of the five, from 0 to 4.
    pub fn transitions(&self) -> [u64; 5] {
        self.shared.pressure.transitions()
    }

    /// The names of the classes; the counters of each are at the same place in [`Stats::by_class`].
    pub fn classes(&self) -> Vec<String> {
        lock(&self.shared.classes).clone()
    }

    /// Keeps somebody out for a time: who is connected has to go (DISCONNECT 0x98), who comes is told 0x8A. None: there
    /// are too many bans already. It holds at once; this returns when it is kept, or after 2 s of a disk that does not
    /// take it.
    pub fn ban(&self, whom: &Banned, time: Duration, reason: &str) -> Option<BanKept> {
        let ticket = self.shared.ban(whom.clone(), time, reason, self.shared.clock.now())?;
        self.expel(whom);
        Some(self.is_kept(ticket))
    }

    /// Ends the connections of somebody, who may come back.
    pub fn expel(&self, whom: &Banned) {
        self.shared.tell_all(|| ThreadMessage::Expel(Box::new(whom.clone().normal())));
    }

    /// Ends a ban; none if there was none. Returns as [`Handle::ban`] does.
    pub fn unban(&self, whom: &Banned) -> Option<BanKept> {
        let ticket = self.shared.unban(whom.clone())?;
        Some(self.is_kept(ticket))
    }

    fn is_kept(&self, ticket: BanTicket) -> BanKept {
        self.shared.store.as_ref().map_or(BanKept::No, |store| store.is_kept(ticket))
    }

    /// How long whoever calls itself so, of this user and from there, has to stay away; none if it is not banned.
    pub fn banned_for(&self, name: &str, user: Option<&str>, from: IpAddr) -> Option<Duration> {
        lock(&self.shared.bans).find(name, user, from, self.shared.clock.now())
    }

    /// All bans that have not ended.
    pub fn bans(&self) -> Vec<Ban> {
        lock(&self.shared.bans).list(self.shared.clock.now())
    }

    /// Limits the messages of a client or user, or entitles it to so many; or (`None`) stops doing so. None: there are too
    /// many already. Returns as [`Handle::ban`] does.
    pub fn set_rate(&self, setting: OperatorSetting, whom: &Whom, rate: Option<Rate>) -> Option<BanKept> {
        let ticket = self.shared.set_rate(setting, whom, rate)?;
        Some(self.is_kept(ticket))
    }

    /// The limits, or the grants, of single clients and users.
    pub fn rates(&self, setting: OperatorSetting) -> Vec<(Whom, Rate)> {
        lock(&self.shared.limits).list(setting)
    }

    /// What an operator has set for somebody.
    pub fn rate_of(&self, setting: OperatorSetting, whom: &Whom) -> Option<Rate> {
        lock(&self.shared.limits).get(setting, whom)
    }

    /// The limit of whoever calls itself so and is of this user: its own, else its user's; and whose it is.
    pub fn limit_for(&self, client: Option<&str>, user: Option<&str>) -> Option<(Whom, Rate)> {
        lock(&self.shared.limits).limit_for(client, user)
    }

    /// See [`crate::Broker::reload`].
    pub fn reload(
        &self,
        config: &Config,
        authenticator: Arc<dyn Authenticator>,
        policy: Arc<dyn Policy>,
    ) -> io::Result<()> {
        // Not by their places: one that nobody asked for may not have been opened.
        let is_it =
            |open: &OpenListener, listener: &Listener| (open.kind, open.name()) == (listener.kind, listener.name);
        let open = |listener| self.listeners.iter().find(|open| is_it(open, listener)).map(|open| (open, listener));
        let open: Vec<_> = config.listeners.iter().filter_map(open).collect();
        let secrets: io::Result<Vec<_>> = open.iter().map(|(_, listener)| Secrets::load(listener)).collect();
        for ((open, listener), secrets) in open.into_iter().zip(secrets?) {
            open.replace(listener, secrets);
        }
        let rules = Rules::new(config, authenticator, policy, self.shared.next_generation());
        self.shared.pressure.budget.set_max(rules.memory_max);
        self.shared.show_rules(&rules);
        self.shared.tell_all(|| ThreadMessage::Reload(Box::new(rules.clone())));
        Ok(())
    }
}
