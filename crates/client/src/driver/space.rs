//! A smart space, by whichever door.

use std::sync::Arc;
use std::time::Duration;

use tidegate_control::hints::{Accept, Asks};
use tidegate_wire_ssap::{Graph, SsapQuery, SsapRequest, Triple};
use tokio::sync::mpsc;

use super::address::Address;
use super::events::Events;
use super::keeper::{Command, Keeper};
use super::patience::{Kind, Patience, SpaceStats};
use super::query::{Plans, QueryBuilder};
use super::tls::Road;
use super::{Checked, What, chance, http, ssap};
use crate::error::Error;
use crate::limits::ANSWER_TIMEOUT;
use crate::session::row::Row;
use crate::session::sparql::update_of;
use crate::session::ssap::Speaker;

/// How to speak to a space.
#[derive(Clone, Debug, Default)]
pub struct SpaceConfig {
    /// `node_id` of SSAP; a name of chance if nothing is said.
    pub node: Option<String>,
    /// `space_id` of SSAP; `X` if nothing is said, as everywhere.
    pub space: Option<String>,
    /// Where to subscribe, if it is not `/subscribe` beside the queries: an engine of SEPA has another port.
    pub subscribe: Option<String>,
    /// How long an answer is awaited.
    pub patience: Option<Duration>,
    /// Certificates to trust (PEM), instead of those of this machine: for `https`.
    pub ca: Option<Vec<u8>>,
}

/// The door that is used.
#[derive(Debug)]
pub(crate) enum Door {
    Ssap(ssap::Door),
    Http(HttpDoor),
}

/// HTTP has two: requests, and subscriptions over WebSocket.
#[derive(Debug)]
pub(crate) struct HttpDoor {
    pub(crate) requests: http::Door,
    pub(crate) subscribe: Road,
}

/// A connection to a smart space; clones share it.
#[derive(Clone, Debug)]
pub struct Space {
    door: Arc<Door>,
    commands: mpsc::Sender<Command>,
    /// How long one answer is awaited.
    answer_time: Duration,
    patience: Patience,
    plans: Arc<Plans>,
}

impl Space {
    /// Connects to `ssap://host[:10010]` or `http://[user:password@]host[:7878]`, or to `https://` if there is TLS before it.
    pub async fn connect(address: &str) -> Result<Self, Error> {
        Self::connect_with(address, SpaceConfig::default()).await
    }

    /// The same, with more to say.
    pub async fn connect_with(address: &str, config: SpaceConfig) -> Result<Self, Error> {
        let address = Address::read(address, &[("http", 7878), ("https", 443), ("ssap", 10010)])?;
        let answer_time = config.patience.unwrap_or(ANSWER_TIMEOUT);
        let door = if address.scheme == "ssap" {
            let node = config.node.unwrap_or_else(|| {
                use tidegate_control::rand_core::Rng;
                format!("tidegate-{:016x}", chance().next_u64())
            });
            let speaker = Speaker { node, space: config.space.unwrap_or_else(|| "X".to_owned()) };
            Door::Ssap(ssap::Door::new(address, speaker))
        } else {
            let road = Road::new(address, config.ca.as_deref())?;
            let subscribe = match config.subscribe {
                Some(text) => Road::new(Address::read(&text, &[("ws", 9000), ("wss", 9443)])?, config.ca.as_deref())?,
                None => road.to("ws", format!("{}/subscribe", road.address.path)),
            };
            Door::Http(HttpDoor { requests: http::Door::new(road), subscribe })
        };
        let door = Arc::new(door);
        let patience = Patience::default();
        let commands = Keeper::start(Arc::clone(&door), Arc::clone(&patience.notices));
        let space = Self { commands, door, answer_time, patience, plans: Arc::default() };
        space.join().await?;
        Ok(space)
    }

    /// The same space for requests that may wait: if the broker is too busy, they come back by themselves when it says,
    /// keep the place that it has promised, and fail only after this time. A change is sent again only if it is
    /// sure that it was not done; one that may have been is [`Error::Unconfirmed`], [`Error::Lost`] or
    /// [`Error::TimedOut`].
    #[must_use]
    pub fn waiting(&self, at_most: Duration) -> Self {
        Self { patience: Patience { wait: at_most, ..self.patience.clone() }, ..self.clone() }
    }

    /// What happens from now on: cuts, returns, refusals, checks, losses, advice; of all persistent queries, too.
    pub fn events(&self) -> Events {
        self.patience.notices.read()
    }

    /// What its requests went through.
    pub fn stats(&self) -> SpaceStats {
        self.patience.tally.stats()
    }

    /// Takes part. Over HTTP this only looks whether anybody is there.
    pub async fn join(&self) -> Result<(), Error> {
        match &*self.door {
            Door::Ssap(door) => door.join(&self.asks(), self.answer_time).await,
            Door::Http(door) => door.requests.knock().await,
        }
    }

    /// Takes part no longer. Persistent queries go on until they are dropped.
    pub async fn leave(&self) -> Result<(), Error> {
        match &*self.door {
            Door::Ssap(door) => door.ask(&SsapRequest::Leave, &self.asks(), self.answer_time).await.map(drop),
            Door::Http(_) => Ok(()),
        }
    }

    /// Adds triples.
    pub async fn insert(&self, triples: &[Triple<'_>]) -> Result<(), Error> {
        self.edit(triples, &[]).await
    }

    /// Removes whatever matches one of the patterns.
    pub async fn remove(&self, patterns: &[Triple<'_>]) -> Result<(), Error> {
        self.edit(&[], patterns).await
    }

    /// Removes what matches, then adds, as one change.
    pub async fn edit(&self, insert: &[Triple<'_>], remove: &[Triple<'_>]) -> Result<(), Error> {
        let door = match &*self.door {
            Door::Http(_) => return self.update(&update_of(insert, remove)?).await,
            Door::Ssap(door) => door,
        };
        let graph = |triples: &[Triple<'_>]| Graph::Triples(triples.iter().cloned().map(Triple::into_owned).collect());
        let request = match (insert.is_empty(), remove.is_empty()) {
            (true, true) => return Ok(()),
            (false, true) => SsapRequest::Insert { graph: graph(insert), confirm: true },
            (true, false) => SsapRequest::Remove { graph: graph(remove), confirm: true },
            (false, false) => SsapRequest::Update { insert: graph(insert), remove: Some(graph(remove)), confirm: true },
        };
        let mut effort = self.patience.begin(Kind::Change, self.asks());
        loop {
            let outcome = door.ask(&request, &effort.asks, self.answer_time).await;
            if let Some(done) = effort.settle(outcome).await {
                return done.map(drop);
            }
        }
    }

    /// Does a SPARQL update.
    pub async fn update(&self, sparql: &str) -> Result<(), Error> {
        let mut effort = self.patience.begin(Kind::Change, self.asks());
        loop {
            let outcome = match &*self.door {
                // In a query, which is how every broker of Smart-M3 takes it.
                Door::Ssap(door) => {
                    let request = SsapRequest::Query(SsapQuery::Sparql(sparql.into()));
                    door.ask(&request, &effort.asks, self.answer_time).await.map(drop)
                }
                Door::Http(door) => door.requests.update(sparql.to_owned(), &effort.asks, self.answer_time).await,
            };
            if let Some(done) = effort.settle(outcome).await {
                return done;
            }
        }
    }

    /// Asks a SPARQL query. The answer to `ASK` is one row with the name `boolean`.
    pub async fn query(&self, sparql: &str) -> Result<Vec<Row>, Error> {
        self.ask(&What::Sparql(sparql.into())).await
    }

    /// Everything that matches one of the patterns, as rows of `subject`, `predicate` and `object`.
    pub async fn matching(&self, patterns: &[Triple<'_>]) -> Result<Vec<Row>, Error> {
        self.ask(&patterns_of(patterns)).await
    }

    async fn ask(&self, what: &What) -> Result<Vec<Row>, Error> {
        let mut effort = self.patience.begin(Kind::Question, self.asks());
        loop {
            let outcome = match self.door.check(what, None, &effort.asks).await {
                Ok(Checked::Whole { rows, .. }) => Ok(rows),
                Ok(Checked::NotModified { .. }) => Err(Error::Nonsense("not modified since nothing".to_owned())),
                Err(error) => Err(error),
            };
            if let Some(done) = effort.settle(outcome).await {
                return done;
            }
        }
    }

    /// A SPARQL query whose result is followed.
    pub fn persistent_query(&self, sparql: &str) -> QueryBuilder {
        QueryBuilder::new(What::Sparql(sparql.into()), self.commands.clone(), &self.plans)
    }

    /// Patterns whose matches are followed.
    pub fn persistent_match(&self, patterns: &[Triple<'_>]) -> QueryBuilder {
        QueryBuilder::new(patterns_of(patterns), self.commands.clone(), &self.plans)
    }

    fn asks(&self) -> Asks {
        // Who fails at the first refusal has no use for a kept place.
        let accept = (!self.patience.wait.is_zero()).then_some(Accept::Ticket);
        Asks { deadline: Some(self.answer_time), accept, ..Asks::default() }
    }
}

fn patterns_of(patterns: &[Triple<'_>]) -> What {
    What::Patterns(patterns.iter().cloned().map(Triple::into_owned).collect())
}

impl Door {
    /// The whole result, or that nothing has changed.
    pub(crate) async fn check(&self, what: &What, version: Option<&str>, asks: &Asks) -> Result<Checked, Error> {
        let patience = asks.deadline.unwrap_or(ANSWER_TIMEOUT);
        match self {
            Self::Ssap(door) => door.check(what, asks, patience).await,
            Self::Http(door) => door.requests.check(what, version, asks, patience).await,
        }
    }
}
