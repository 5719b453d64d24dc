//! Questions of an operator to the shards, and their answers.
//!
//! A question is a message like all others; a shard answers it at the end of a turn, within a bounded piece of work, by
//! calling what came with it. Whoever asks for a list gets a page of it and asks for the next. No more than
//! `QUESTIONS_MAX` are under way at the same time, so that curiosity cannot hold up those who are connected.

use std::fmt;
use std::sync::Arc;

use tidegate_control::Timestamp;
use tidegate_core::activity::{ActivityFilter, LogsFull, RecordedActivities};
use tidegate_core::report::{ClientDetail, ClientReport, Parting};
use tidegate_core::retained::RetainedReport;
use tidegate_core::sample::TopicsReport;
use tidegate_core::{RecordedArrivals, RecordedGroups, Shard};
use tidegate_wire_mqtt::ReasonCode;

use crate::departed::Departed;
use crate::permit::Permit;

/// What an operator may ask one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Some of its clients: those from this place on, 0 for the first. Answered by [`Answer::Clients`].
    Clients {
        /// Where to start.
        from: u32,
    },
    /// All about one client. Answered by [`Answer::Client`].
    Client { client_id: Arc<str> },
    /// Connections that have ended, the latest first. Answered by [`Answer::Closed`].
    Closed {
        /// Only those that ended before the one with this number.
        before: Option<u64>,
    },
    /// What was published to of late, by a sample. Answered by [`Answer::Topics`].
    Topics,
    /// When messages came, since the last such question; it goes on being written down for some seconds. Answered by
    /// [`Answer::Arrivals`].
    Arrivals {
        /// Changes the numbers of publishers and topics; see [`Shard::take_arrivals`].
        seed: u64,
        /// Groups of clients to tell apart.
        groups: RecordedGroups,
    },
    /// What somebody follows, since the last such question; it goes on being written down for some seconds. Answered by
    /// [`Answer::Activities`].
    Activities {
        /// The number of this log.
        key: u64,
        /// Whom or what it is about.
        filter: ActivityFilter,
    },
    /// Some of the retained messages. All shards keep all of them. Answered by [`Answer::Retained`].
    Retained {
        /// Those that match this.
        filter: Box<str>,
        /// Where to start; none for the first.
        from: Option<Vec<u8>>,
    },
    /// End a client's connection with 0x98 (administrative action). Answered by [`Answer::Kicked`].
    Kick { client_id: Arc<str> },
    /// End a client's session, with its connection if it has one. Answered by [`Answer::SessionEnded`].
    EndSession { client_id: Arc<str> },
}

/// What a shard answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// A page of clients.
    Clients {
        /// In no particular order.
        clients: Vec<ClientReport>,
        /// Where to go on; none if these were the last.
        next: Option<u32>,
    },
    /// A client; none if there is no session of that name.
    Client(Option<Box<ClientDetail>>),
    /// A page of connections that have ended.
    Closed {
        /// The latest first.
        closed: Vec<Closed>,
        /// Where to go on; none if these were the last.
        next: Option<u64>,
    },
    /// Topics of late.
    Topics(Box<TopicsReport>),
    /// When messages came.
    Arrivals(RecordedArrivals),
    /// What was done; there may be too many logs already.
    Activities(Result<RecordedActivities, LogsFull>),
    /// A page of retained messages.
    Retained {
        /// In the order of their topics.
        messages: Vec<RetainedReport>,
        /// Where to go on; none if these were the last.
        next: Option<Vec<u8>>,
    },
    /// Whether the client was connected.
    Kicked(bool),
    /// The session as it was; none if there was none of that name.
    SessionEnded(Option<Box<ClientDetail>>),
}

/// A connection that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Closed {
    /// Counts the ended connections of this shard.
    pub number: u64,
    pub client_id: Arc<str>,
    /// Why it ended, in words.
    pub why: Box<str>,
    /// Everything else.
    pub parting: Box<Parting>,
}

/// Too many questions are under way, or the broker goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// Who waits for an answer. Called on the shard's thread: it must not wait for anything.
pub type Reply = Box<dyn FnOnce(Answer) + Send>;

/// A question on its way.
pub(crate) struct AskedQuestion {
    pub(crate) question: Question,
    pub(crate) reply: Reply,
    /// Its place among the questions under way.
    pub(crate) permit: Permit,
}

impl fmt::Debug for AskedQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.question.fmt(f)
    }
}

/// What a shard has to say.
pub(crate) fn answer(question: &Question, shard: &mut Shard, departed: &Departed, now: Timestamp) -> Answer {
    match question {
        Question::Clients { from } => {
            let (clients, next) = shard.clients(*from, now);
            Answer::Clients { clients, next }
        }
        Question::Client { client_id } => Answer::Client(shard.client(client_id, now).map(Box::new)),
        Question::Closed { before } => departed.page(*before),
        Question::Topics => Answer::Topics(Box::new(shard.topics(now))),
        Question::Arrivals { seed, groups } => Answer::Arrivals(shard.take_arrivals(*seed, groups, now)),
        Question::Activities { key, filter } => Answer::Activities(shard.take_activities(*key, filter, now)),
        Question::Retained { filter, from } => {
            let (messages, next) = shard.retained(filter, from.clone(), now);
            Answer::Retained { messages, next }
        }
        Question::Kick { client_id } => {
            let is_here = shard.client(client_id, now).is_some_and(|detail| detail.client.link.is_some());
            shard.handle_kick(client_id, ReasonCode::AdministrativeAction, now);
            Answer::Kicked(is_here)
        }
        Question::EndSession { client_id } => {
            let before = shard.client(client_id, now).map(Box::new);
            shard.handle_session_end(client_id, ReasonCode::AdministrativeAction, now);
            Answer::SessionEnded(before)
        }
    }
}
