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

use crate::ask::{Answer, Asked, Busy, Question};
use crate::authenticate::{Authenticator, Credentials, Refusal};
use crate::bans::{Ban, Banned};
use crate::common::Common;
use crate::config::{Config, ListenerKind};
use crate::door::{Door, load_tls};
use crate::inbox::lock;
use crate::keep::{Kept, StoreReport, Ticket};
use crate::known::{Acquaintance, NO_RULES};
use crate::letter::{Letter, Rules};
use crate::limits::QUESTIONS_MAX;
use crate::operator::Setting;
use crate::password::{Asker, Question as PasswordQuestion};
use crate::pressure::PressureReport;

/// A running broker, for those who look after it.
#[derive(Clone, Debug)]
pub struct Handle {
    common: Arc<Common>,
    doors: Vec<Arc<Door>>,
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
    pub(crate) fn new(common: Arc<Common>, doors: Vec<Arc<Door>>) -> Self {
        Self { common, doors }
    }

    pub(crate) fn common(&self) -> &Common {
        &self.common
    }

    /// Asks a shard. The answer is told on the shard's thread, which must not be kept waiting; it is never told if the
    /// broker goes down.
    pub fn ask(
        &self,
        shard: usize,
        question: Question,
        reply: impl FnOnce(Answer) + Send + 'static,
    ) -> Result<(), Busy> {
        let inbox = self.common.inboxes.get(shard).ok_or(Busy)?;
        let seat = self.common.asking.take(QUESTIONS_MAX).ok_or(Busy)?;
        let asked = Asked { question, reply: Box::new(reply), seat };
        inbox.send(Letter::Ask(Box::new(asked))).map_err(|_| Busy)
    }

    /// How the store is; none without one, or after the end.
    pub fn store(&self) -> Option<StoreReport> {
        self.common.keeper.as_ref()?.report()
    }

    /// Copies the store as it is now into a directory that is not there yet; the broker goes on meanwhile.
    pub fn backup(&self, to: &Path) -> Result<RecoveryReport, StoreError> {
        self.common.keeper.as_ref().ok_or(StoreError::Failed)?.backup(to)
    }

    /// How many shards there are to ask.
    pub fn shards(&self) -> usize {
        self.common.inboxes.len()
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
        reply: impl FnOnce(Result<Option<Arc<str>>, Refusal>) + Send + 'static,
    ) -> Result<(), NotAsked> {
        let common = Arc::clone(&self.common);
        let user = credentials.user_name.clone().unwrap_or_default();
        let print = common.known.print(&credentials);
        // Behind a proxy everybody has one address: whoever guesses there must not lock out whoever knows.
        let is_stranger = print.is_none_or(|print| {
            common.known.find(&print, common.generation(), common.clock.now()) == Acquaintance::Stranger
        });
        let wait = is_stranger.then(|| lock(&common.attempts).wait(from, &user, common.clock.now())).flatten();
        if let Some(wait) = wait {
            return Err(NotAsked::Wait(wait));
        }
        let note = move |verdict: Result<Option<Arc<str>>, Refusal>| {
            let now = common.clock.now();
            match (&verdict, print) {
                (Err(Refusal::BadUserNameOrPassword), print) => {
                    lock(&common.attempts).failed(from, &user, now);
                    if let Some(print) = print {
                        common.known.forget(&print);
                    }
                }
                (Ok(name), print) => {
                    lock(&common.attempts).succeeded(from, &user);
                    if let Some((name, print)) = name.as_ref().zip(print).filter(|_| is_stranger) {
                        // By whose rules is for the caller to know: worth a hash, and never more.
                        common.known.note(print, Arc::clone(name), NO_RULES, now);
                    }
                }
                (Err(Refusal::NotAuthorized), _) => {}
            }
            reply(verdict);
        };
        let asker = Asker::Caller(Box::new(note));
        let question = PasswordQuestion { asker, credentials, authenticator, generation: 0, from, print: None };
        self.common.questions.ask(question).map_err(|Busy| NotAsked::Busy)
    }

    /// The time by the broker's own clock, which all its answers use.
    pub fn now(&self) -> Timestamp {
        self.common.clock.now()
    }

    /// Counters, summed over shards, not older than a tenth of a second.
    pub fn stats(&self) -> Stats {
        self.common.stats()
    }

    /// What was measured, summed over shards; as old as the counters.
    pub fn measures(&self) -> Measures {
        self.common.measures()
    }

    /// Sockets that are open, in whatever state; and those of them in a handshake.
    pub fn sockets(&self) -> (usize, usize) {
        (self.common.connections.taken(), self.common.handshakes.taken())
    }

    /// Where it listens, with real ports.
    pub fn addresses(&self) -> Vec<(ListenerKind, SocketAddr)> {
        self.doors.iter().map(|door| (door.kind, door.address)).collect()
    }

    /// How hard the broker is pressed, and how much of its memory is used.
    pub fn pressure(&self) -> PressureReport {
        self.common.pressure.report(self.common.clock.now())
    }

    /// Charges memory that is no shard's to the budget; false if there is no room.
    pub fn take_memory(&self, bytes: usize) -> bool {
        self.common.pressure.budget.take_beside(bytes as u64)
    }

    /// So much of it is not used any more.
    pub fn give_memory(&self, bytes: usize) {
        self.common.pressure.budget.give_beside(bytes as u64);
    }

    /// How often the level has become each of the five, from 0 to 4.
    pub fn transitions(&self) -> [u64; 5] {
        self.common.pressure.transitions()
    }

    /// The names of the classes; the counters of each are at the same place in [`Stats::by_class`].
    pub fn classes(&self) -> Vec<String> {
        lock(&self.common.classes).clone()
    }

    /// Keeps somebody out for a time: who is connected has to go (DISCONNECT 0x98), who comes is told 0x8A. None: there
    /// are too many bans already. It holds at once; this returns when it is kept, or after 2 s of a disk that does not
    /// take it.
    pub fn ban(&self, whom: &Banned, time: Duration, reason: &str) -> Option<Kept> {
        let ticket = self.common.ban(whom.clone(), time, reason, self.common.clock.now())?;
        self.common.tell_all(|| Letter::Expel(Box::new(whom.clone().normal())));
        Some(self.is_kept(ticket))
    }

    /// Ends a ban; none if there was none. Returns as [`Handle::ban`] does.
    pub fn unban(&self, whom: &Banned) -> Option<Kept> {
        let ticket = self.common.unban(whom.clone())?;
        Some(self.is_kept(ticket))
    }

    fn is_kept(&self, ticket: Ticket) -> Kept {
        self.common.keeper.as_ref().map_or(Kept::No, |keeper| keeper.is_kept(ticket))
    }

    /// All bans that have not ended.
    pub fn bans(&self) -> Vec<Ban> {
        lock(&self.common.bans).list(self.common.clock.now())
    }

    /// Limits the messages of a client or user, or entitles it to so many; or (`None`) stops doing so. None: there are too
    /// many already. Returns as [`Handle::ban`] does.
    pub fn set_rate(&self, setting: Setting, whom: &Whom, rate: Option<Rate>) -> Option<Kept> {
        let ticket = self.common.set_rate(setting, whom, rate)?;
        Some(self.is_kept(ticket))
    }

    /// The limits, or the grants, of single clients and users.
    pub fn rates(&self, setting: Setting) -> Vec<(Whom, Rate)> {
        lock(&self.common.limits).list(setting)
    }

    /// See [`crate::Broker::reload`].
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
        self.common.show_rules(&rules);
        self.common.tell_all(|| Letter::Reload(Box::new(rules.clone())));
        Ok(())
    }
}
