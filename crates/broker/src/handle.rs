//! What can be done with a broker that runs, from any thread: look, ask, reload. Stays valid after its end, when nobody
//! answers any more.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_control::Timestamp;
use tidegate_core::access::Policy;
use tidegate_core::event::Stats;
use tidegate_core::shard_of;

use crate::ask::{Answer, Asked, Busy, Question};
use crate::authenticate::{Authenticator, Credentials, Refusal};
use crate::common::Common;
use crate::config::{Config, ListenerKind};
use crate::door::{Door, load_tls};
use crate::letter::{Letter, Rules};
use crate::limits::QUESTIONS_MAX;
use crate::password::{Asker, Question as PasswordQuestion};

/// A running broker, for those who look after it.
#[derive(Clone, Debug)]
pub struct Handle {
    common: Arc<Common>,
    doors: Vec<Arc<Door>>,
}

impl Handle {
    pub(crate) fn new(common: Arc<Common>, doors: Vec<Arc<Door>>) -> Self {
        Self { common, doors }
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

    /// How many shards there are to ask.
    pub fn shards(&self) -> usize {
        self.common.inboxes.len()
    }

    /// The shard that knows this client.
    pub fn shard_of(&self, client_id: &str) -> usize {
        shard_of(client_id, self.shards())
    }

    /// Checks a user's password, on the threads that do it for clients.
    pub fn authenticate(
        &self,
        authenticator: Arc<dyn Authenticator>,
        credentials: Credentials,
        reply: impl FnOnce(Result<Option<Arc<str>>, Refusal>) + Send + 'static,
    ) -> Result<(), Busy> {
        let asker = Asker::Caller(Box::new(reply));
        self.common.questions.ask(PasswordQuestion { asker, credentials, authenticator })
    }

    /// The time by the broker's own clock, which all its answers use.
    pub fn now(&self) -> Timestamp {
        self.common.clock.now()
    }

    /// Counters, summed over shards, not older than a tenth of a second.
    pub fn stats(&self) -> Stats {
        self.common.stats()
    }

    /// Sockets that are open, in whatever state; and those of them in a handshake.
    pub fn sockets(&self) -> (usize, usize) {
        (self.common.connections.taken(), self.common.handshakes.taken())
    }

    /// Where it listens, with real ports.
    pub fn addresses(&self) -> Vec<(ListenerKind, SocketAddr)> {
        self.doors.iter().map(|door| (door.kind, door.address)).collect()
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
        let rules = Rules::new(config, authenticator, policy);
        for inbox in &*self.common.inboxes {
            // Never refused: it carries no socket.
            let _ = inbox.send(Letter::Reload(Box::new(rules.clone())));
        }
        Ok(())
    }
}
