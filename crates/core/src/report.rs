//! What an operator may ask a shard about its clients. Read only; the driver asks between two turns.

mod receiver;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::QoS;

use crate::access::Identity;
use crate::gate::PublisherReport;
use crate::ledger::Ledger;
use crate::limits::{CALM, FILTERS_SHOWN_MAX, SLOTS_PER_PAGE};
use crate::session::Session;
use crate::state::ShardState;
pub use receiver::{CrowdingFlow, ReceiverReport};

/// A client: connected, or away with a session that is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientReport {
    pub client_id: Arc<str>,
    /// Its number among the publishers of all shards.
    pub origin: u64,
    /// Who it is, and where it came in last.
    pub identity: Identity,
    /// Its connection; none while it is away.
    pub link: Option<LinkReport>,
    /// How it stands with the gate of publishers; if well, how it does as a receiver.
    pub state: ClientState,
    /// Messages per second over the last ten seconds ([`RATE_WINDOW`](crate::RATE_WINDOW)), whatever the gate does. None if it
    /// has not published.
    pub rate: Option<f64>,
    /// How long the latest of its messages has to wait from now on.
    pub delay: Duration,
    /// What is known of it as a publisher; none if it has not published of late.
    pub publisher: Option<PublisherReport>,
    /// How it does as a receiver.
    pub receiver: ReceiverReport,
    /// How often its connection was taken over in the last minute or two, if that is more than an accident: two clients
    /// have its name. Else 0.
    pub takeovers: u32,
    /// The class of its latest message, by name; none if it has not published.
    pub class: Option<Box<str>>,
    /// Messages that wait for it, and their bytes.
    pub queued: (usize, usize),
    /// Messages sent to it and not yet acknowledged.
    pub inflight: usize,
    pub subscriptions: usize,
    /// What became of its messages.
    pub ledger: Ledger,
}

/// An open connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkReport {
    /// The protocol that is spoken, and its version.
    pub protocol: &'static str,
    /// Since when it is open.
    pub since: Timestamp,
    /// When something was heard last.
    pub seen_at: Timestamp,
    pub outbox_bytes: usize,
    /// Since when it takes nothing of that.
    pub stalled_since: Option<Timestamp>,
}

/// How a client does, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientState {
    /// Its messages pass.
    Ok,
    /// It has no connection.
    Away,
    /// It takes less than comes for it: what is for it waits.
    Slow,
    /// Its messages have to wait.
    Slowed,
    /// Some of its messages are refused or dropped.
    BackedOff,
    /// Its connection is not read.
    Paused,
    /// It has no connection, and messages for it are lost, because what is kept for it is all that may be.
    AwayLosing,
    /// Messages for it are lost, because it takes less than comes for it.
    Losing,
}

impl ClientState {
    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Away => "away",
            Self::Slow => "slow",
            Self::Slowed => "slowed",
            Self::BackedOff => "backed-off",
            Self::Paused => "paused",
            Self::AwayLosing => "away-losing",
            Self::Losing => "losing",
        }
    }

    /// Whether its own messages wait, are refused, or are not read.
    pub fn is_held_back(self) -> bool {
        matches!(self, Self::Slowed | Self::BackedOff | Self::Paused)
    }
}

/// More about one client.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientDetail {
    /// What all clients have.
    pub client: ClientReport,
    /// The first of its filters in the order of their names, with what was granted.
    pub filters: Vec<(Box<str>, QoS)>,
    /// How long its session is kept without a connection; `Duration::MAX` is for ever.
    pub session_expiry: Duration,
    /// When it ends, while there is no connection.
    pub expires_at: Option<Timestamp>,
}

/// A connection that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Parting {
    pub identity: Identity,
    /// The protocol that was spoken, and its version.
    pub protocol: &'static str,
    /// Since when it was open.
    pub since: Timestamp,
    /// When it ended.
    pub at: Timestamp,
    /// What had become of the messages of its session by then, with what was lost if the session ended with it.
    pub ledger: Ledger,
}

impl ShardState {
    pub(crate) fn clients(&self, from: u32, now: Timestamp) -> (Vec<ClientReport>, Option<u32>) {
        let (sessions, next) = self.sessions.page(from, SLOTS_PER_PAGE);
        let place = |session: &Session| self.by_client.find(session.client_id(), &self.sessions);
        let is_ghost = |session: &Session, index: u32| place(session) != Some(index);
        let named = sessions.filter(|(index, session)| !is_ghost(session, *index));
        (named.map(|(_, session)| self.describe(session, now)).collect(), next)
    }

    pub(crate) fn client(&self, client_id: &str, now: Timestamp) -> Option<ClientDetail> {
        let session = self.session_named(client_id)?;
        let filters = session.subscriptions().take(FILTERS_SHOWN_MAX);
        let mut client = self.describe(session, now);
        client.receiver.look_into_queue(session);
        Some(ClientDetail {
            client,
            filters: filters.map(|(filter, wish)| (filter.into(), wish.qos)).collect(),
            session_expiry: session.expiry(),
            expires_at: session.expires_at(),
        })
    }

    fn describe(&self, session: &Session, now: Timestamp) -> ClientReport {
        let connection = session.conn().and_then(|conn| self.connections.get(conn));
        let publisher = self.publisher_report(session, now);
        let until = publisher.and_then(|publisher| publisher.slowed_until);
        let receiver = ReceiverReport::of(session, connection, &self.settings, now);
        let as_publisher = match (connection, &publisher) {
            (None, _) => ClientState::Away,
            (Some(connection), _) if connection.is_paused_for_long() => ClientState::Paused,
            (_, Some(publisher)) => state_of(publisher, now),
            _ => ClientState::Ok,
        };
        let state = match as_publisher {
            ClientState::Away if receiver.is_losing => ClientState::AwayLosing,
            ClientState::Ok if receiver.is_losing => ClientState::Losing,
            ClientState::Ok if receiver.is_slow => ClientState::Slow,
            state => state,
        };
        ClientReport {
            client_id: Arc::clone(session.client_id()),
            origin: session.origin(),
            identity: session.identity().clone(),
            link: connection.map(|connection| LinkReport {
                protocol: connection.face().protocol(),
                since: connection.since(),
                seen_at: connection.seen_at(),
                outbox_bytes: connection.outbox_len(),
                stalled_since: connection.stalled_since(),
            }),
            state,
            rate: publisher.as_ref().map(|publisher| publisher.rate),
            delay: until.map_or(Duration::ZERO, |until| until.since(now)),
            publisher,
            receiver,
            takeovers: self.name_conflicts.takeovers(session.client_id(), now),
            class: session
                .class()
                .and_then(|class| self.settings.priority.classes.get(class))
                .map(|it| it.name.clone()),
            queued: (session.queue_len(), session.queue_bytes()),
            inflight: session.unconfirmed_len(),
            subscriptions: session.subscriptions().len(),
            ledger: self.ledger_of(session),
        }
    }
}

fn state_of(publisher: &PublisherReport, now: Timestamp) -> ClientState {
    // An episode ends with the first message that passes; one that never comes does not make it last.
    let is_on = publisher.slowed_until.is_some_and(|until| until + CALM > now);
    let is_refused = publisher.refused_at >= publisher.slowed_since;
    if publisher.are_receivers_full {
        return ClientState::BackedOff;
    }
    match (is_on, is_refused) {
        (false, _) => ClientState::Ok,
        (true, false) => ClientState::Slowed,
        (true, true) => ClientState::BackedOff,
    }
}
