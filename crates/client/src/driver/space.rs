//! A smart space, over SSAP or HTTP.

use std::sync::Arc;
use std::time::Duration;

use tidegate_control::hints::{Accept, Asks};
use tidegate_wire_ssap::{Graph, SsapQuery, SsapRequest, Triple};
use tokio::sync::mpsc;

use super::address::BrokerUrl;
use super::events::Events;
use super::query::{Plans, QueryBuilder};
use super::query_task::{QueryTask, SpaceCommand};
use super::retry::{RequestKind, RetryPolicy, SpaceStats};
use super::tls::BrokerRoute;
use super::{CheckAnswer, SpaceQuery, chance, http, ssap};
use crate::error::Error;
use crate::limits::{ANSWER_TIMEOUT, DEADLINE_SHARE};
use crate::session::row::Row;
use crate::session::sparql::update_of;
use crate::session::ssap::SsapIdentity;

/// How to speak to a space.
#[derive(Clone, Debug, Default)]
pub struct SpaceConfig {
    /// What this client calls itself, `node_id` of SSAP and `pace-client` of HTTP; a name of chance if nothing is said. Visible
    /// ASCII, up to 128 bytes.
    pub node: Option<String>,
    /// The class as which it would like to be served (`pace-class`): a better one than its own needs a right.
    pub class: Option<String>,
    /// `space_id` of SSAP; `X` if nothing is said, as everywhere.
    pub space: Option<String>,
    /// Where to subscribe, if it is not `/subscribe` beside the queries: an engine of SEPA has another port.
    pub subscribe: Option<String>,
    /// How long an answer is awaited.
    pub patience: Option<Duration>,
    /// Certificates to trust (PEM), instead of those of this machine: for `https` and `ssaps`.
    pub ca: Option<Vec<u8>>,
}

/// Schemes, and the ports where they are if nothing is said.
const PORTS: &[(&str, u16)] = &[("http", 7878), ("https", 443), ("ssap", 10010), ("ssaps", 10011)];

/// The way in that is used: SSAP, or SPARQL over HTTP.
#[derive(Debug)]
pub(crate) enum Endpoint {
    Ssap(ssap::SsapEndpoint),
    Http(SparqlEndpoint),
}

/// HTTP has two: requests, and subscriptions over WebSocket.
#[derive(Debug)]
pub(crate) struct SparqlEndpoint {
    pub(crate) requests: http::HttpEndpoint,
    pub(crate) subscribe: BrokerRoute,
}

/// A connection to a smart space; clones share it.
#[derive(Clone, Debug)]
pub struct Space {
    endpoint: Arc<Endpoint>,
    commands: mpsc::Sender<SpaceCommand>,
    /// How long one answer is awaited.
    answer_time: Duration,
    retry: RetryPolicy,
    plans: Arc<Plans>,
}

impl Space {
    /// Connects to `ssap://host[:10010]` or `http://[user:password@]host[:7878]`, or over TLS to `ssaps://host[:10011]` or
    /// `https://[user:password@]host[:443]`.
    pub async fn connect(address: &str) -> Result<Self, Error> {
        Self::connect_with(address, SpaceConfig::default()).await
    }

    /// The same, with more to say.
    pub async fn connect_with(address: &str, config: SpaceConfig) -> Result<Self, Error> {
        let address = BrokerUrl::read(address, PORTS)?;
        let answer_time = config.patience.unwrap_or(ANSWER_TIMEOUT);
        let (is_ssap, road) = (address.scheme.starts_with("ssap"), BrokerRoute::new(address, config.ca.as_deref())?);
        let node = config.node.unwrap_or_else(|| {
            use tidegate_control::rand_core::Rng;
            format!("tidegate-{:016x}", chance().next_u64())
        });
        let endpoint = if is_ssap {
            let speaker = SsapIdentity { node, space: config.space.unwrap_or_else(|| "X".to_owned()) };
            Endpoint::Ssap(ssap::SsapEndpoint::new(road, speaker, config.class))
        } else {
            let kp = http::KpHeaders { name: node, class: config.class };
            let subscribe = match config.subscribe {
                Some(text) => {
                    BrokerRoute::new(BrokerUrl::read(&text, &[("ws", 9000), ("wss", 9443)])?, config.ca.as_deref())?
                }
                None => road.to("ws", format!("{}/subscribe", road.address.path)),
            };
            Endpoint::Http(SparqlEndpoint { requests: http::HttpEndpoint::new(road, kp), subscribe })
        };
        let endpoint = Arc::new(endpoint);
        let retry = RetryPolicy::default();
        let commands = QueryTask::start(Arc::clone(&endpoint), Arc::clone(&retry.notices));
        let space = Self { commands, endpoint, answer_time, retry, plans: Arc::default() };
        space.join().await?;
        Ok(space)
    }

    /// The same space for requests that may wait: if the broker is too busy, they come back by themselves when it says,
    /// keep the place that it has promised, and fail only after this time. A change is sent again only if it is
    /// sure that it was not done; one that may have been is [`Error::Unconfirmed`], [`Error::Lost`] or
    /// [`Error::TimedOut`].
    #[must_use]
    pub fn waiting(&self, at_most: Duration) -> Self {
        Self { retry: RetryPolicy { wait: at_most, ..self.retry.clone() }, ..self.clone() }
    }

    /// What happens from now on: cuts, returns, refusals, checks, losses, advice; of all persistent queries, too.
    pub fn events(&self) -> Events {
        self.retry.notices.read()
    }

    /// What its requests went through.
    pub fn stats(&self) -> SpaceStats {
        self.retry.tally.stats()
    }

    /// Takes part. Over HTTP this only looks whether anybody is there.
    pub async fn join(&self) -> Result<(), Error> {
        match &*self.endpoint {
            Endpoint::Ssap(endpoint) => endpoint.join(&self.asks(), self.answer_time).await,
            Endpoint::Http(endpoint) => endpoint.requests.knock().await,
        }
    }

    /// Takes part no longer. Persistent queries go on until they are dropped.
    pub async fn leave(&self) -> Result<(), Error> {
        match &*self.endpoint {
            Endpoint::Ssap(endpoint) => {
                endpoint.ask(&SsapRequest::Leave, &self.asks(), self.answer_time).await.map(drop)
            }
            Endpoint::Http(_) => Ok(()),
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
        let endpoint = match &*self.endpoint {
            Endpoint::Http(_) => return self.update(&update_of(insert, remove)?).await,
            Endpoint::Ssap(endpoint) => endpoint,
        };
        let graph = |triples: &[Triple<'_>]| Graph::Triples(triples.iter().cloned().map(Triple::into_owned).collect());
        let request = match (insert.is_empty(), remove.is_empty()) {
            (true, true) => return Ok(()),
            (false, true) => SsapRequest::Insert { graph: graph(insert), confirm: true },
            (true, false) => SsapRequest::Remove { graph: graph(remove), confirm: true },
            (false, false) => SsapRequest::Update { insert: graph(insert), remove: Some(graph(remove)), confirm: true },
        };
        let mut effort = self.retry.begin(RequestKind::Change, self.asks());
        loop {
            let outcome = endpoint.ask(&request, &effort.asks, self.answer_time).await;
            if let Some(done) = effort.settle(outcome).await {
                return done.map(drop);
            }
        }
    }

    /// Does a SPARQL update.
    pub async fn update(&self, sparql: &str) -> Result<(), Error> {
        let mut effort = self.retry.begin(RequestKind::Change, self.asks());
        loop {
            let outcome = match &*self.endpoint {
                // In a query, which is how every broker of Smart-M3 takes it.
                Endpoint::Ssap(endpoint) => {
                    let request = SsapRequest::Query(SsapQuery::Sparql(sparql.into()));
                    endpoint.ask(&request, &effort.asks, self.answer_time).await.map(drop)
                }
                Endpoint::Http(endpoint) => {
                    endpoint.requests.update(sparql.to_owned(), &effort.asks, self.answer_time).await
                }
            };
            if let Some(done) = effort.settle(outcome).await {
                return done;
            }
        }
    }

    /// Asks a SPARQL query. The answer to `ASK` is one row with the name `boolean`.
    pub async fn query(&self, sparql: &str) -> Result<Vec<Row>, Error> {
        self.ask(&SpaceQuery::Sparql(sparql.into())).await
    }

    /// Everything that matches one of the patterns, as rows of `subject`, `predicate` and `object`.
    pub async fn matching(&self, patterns: &[Triple<'_>]) -> Result<Vec<Row>, Error> {
        self.ask(&patterns_of(patterns)).await
    }

    async fn ask(&self, what: &SpaceQuery) -> Result<Vec<Row>, Error> {
        let mut effort = self.retry.begin(RequestKind::Question, self.asks());
        loop {
            let outcome = match self.endpoint.check(what, None, &effort.asks).await {
                Ok(CheckAnswer::Whole { rows, .. }) => Ok(rows),
                Ok(CheckAnswer::NotModified { .. }) => Err(Error::Nonsense("not modified since nothing".to_owned())),
                Err(error) => Err(error),
            };
            if let Some(done) = effort.settle(outcome).await {
                return done;
            }
        }
    }

    /// A SPARQL query whose result is followed.
    pub fn persistent_query(&self, sparql: &str) -> QueryBuilder {
        QueryBuilder::new(SpaceQuery::Sparql(sparql.into()), self.commands.clone(), &self.plans)
    }

    /// Patterns whose matches are followed.
    pub fn persistent_match(&self, patterns: &[Triple<'_>]) -> QueryBuilder {
        QueryBuilder::new(patterns_of(patterns), self.commands.clone(), &self.plans)
    }

    fn asks(&self) -> Asks {
        // Who fails at the first refusal has no use for a kept place.
        let accept = (!self.retry.wait.is_zero()).then_some(Accept::Ticket);
        Asks { deadline: Some(self.answer_time.mul_f64(DEADLINE_SHARE)), accept, ..Asks::default() }
    }
}

fn patterns_of(patterns: &[Triple<'_>]) -> SpaceQuery {
    SpaceQuery::Patterns(patterns.iter().cloned().map(Triple::into_owned).collect())
}

impl Endpoint {
    /// The whole result, or that nothing has changed.
    pub(crate) async fn check(
        &self,
        what: &SpaceQuery,
        version: Option<&str>,
        asks: &Asks,
    ) -> Result<CheckAnswer, Error> {
        let patience = asks.deadline.map_or(ANSWER_TIMEOUT, |deadline| deadline.div_f64(DEADLINE_SHARE));
        match self {
            Self::Ssap(endpoint) => endpoint.check(what, asks, patience).await,
            Self::Http(endpoint) => endpoint.requests.check(what, version, asks, patience).await,
        }
    }
}
