//! What a door asks of the service, and what it gets.

use std::time::Duration;

use bytes::Bytes;
use oxrdf::{BlankNode, Quad, Variable};
use oxrdfio::RdfFormat;
use sparesults::QueryResultsFormat;
use tidegate_control::admission::Class;
use tidegate_control::hints::Hints;
use tidegate_graph::{GraphError, Mask, Query, ResultBaseline, ResultDelta, SubscriberId, Update};

use crate::answer_stream::AnswerStream;
use crate::limits::{TEXT_SHOWN_BYTES, TIME_MAX, TIME_MIN};
use crate::machine::condition::Condition;
use crate::machine::request_queue::Caller;

/// A request, parsed. `C` is a connection that hears of changes.
#[derive(Debug)]
pub enum SpaceRequest<C> {
    /// SPARQL, answered with bytes.
    Query {
        /// The query.
        query: Box<Query>,
        /// How the answer is written.
        form: Form,
    },
    /// What matches any of the masks, answered with bytes.
    Match {
        /// The masks.
        masks: Vec<Mask>,
        /// How the answer is written.
        form: Form,
    },
    /// SPARQL that changes something.
    Update(Box<Update>),
    /// Removes what matches, then inserts.
    Edit {
        /// The masks of the quads to remove.
        remove: Vec<Mask>,
        /// The quads to insert.
        insert: Vec<Quad>,
    },
    /// Puts quads into graphs as a whole.
    Put {
        /// What the graphs hold.
        target: Box<Mask>,
        /// Whether the quads come in place of what is there.
        replaces: bool,
        /// The quads to insert.
        insert: Vec<Quad>,
    },
    /// Stands from now on.
    Subscribe {
        /// The query or masks whose result is watched.
        what: Watched,
        /// What it is to be called, unless it is continued. Whoever knows the name can continue it.
        name: String,
        /// What the client has already: it is told what it missed since, exactly, if that is still known.
        seen: Option<ResumePoint>,
        /// Where its changes go; nowhere, if the client will ask again.
        outlet: Option<C>,
    },
    /// Adds a rule.
    AddRule {
        /// What it is to be called.
        name: String,
        /// The update that it is.
        text: String,
    },
    /// Removes the rule of this name.
    RemoveRule(String),
}

/// What a client has of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumePoint {
    /// The name of the subscription.
    pub name: String,
    /// The number of the last notification.
    pub sequence: u64,
    /// After which number the door begins again at 1.
    pub round: Option<u64>,
}

/// A subscription that stands.
#[derive(Clone, Debug)]
pub struct Subscribed {
    /// The number by which notifications come.
    pub id: SubscriberId,
    /// The name of the subscription.
    pub name: String,
    /// What the client is told first.
    pub begun: Begun,
}

impl Subscribed {
    /// The version of the whole result that it begins with.
    pub(crate) fn version(&self) -> Option<u64> {
        match &self.begun {
            Begun::Whole(baseline) => Some(baseline.version),
            Begun::Missed { .. } => None,
        }
    }
}

/// What a subscription begins with.
#[derive(Clone, Debug)]
pub enum Begun {
    /// The whole result, in place of everything before.
    Whole(ResultBaseline),
    /// What was missed, exactly, and nothing else.
    Missed {
        /// The number that it has.
        sequence: u64,
        /// The columns.
        variables: Vec<Variable>,
        /// What entered and left since.
        delta: ResultDelta,
    },
}

/// What a subscription watches.
#[derive(Debug)]
pub enum Watched {
    /// The result of a query.
    Query(Box<Query>),
    /// What matches any of the masks.
    Masks(Vec<Mask>),
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// Rows or a truth value.
    Results(QueryResultsFormat),
    /// Triples or quads.
    Graph(RdfFormat),
    /// As SSAP has it, without the message around it.
    Ssap,
}

/// Who asks, and how much time it gives.
#[derive(Clone, Copy, Debug)]
pub struct RequestOrigin {
    /// What it may see: only those with equal rights share an answer.
    pub scope: u64,
    /// How long the client waits for its answer.
    pub patience: Duration,
    /// Who it is, what it wants and what it was promised.
    pub caller: Caller,
    /// Whether it takes the rows of a `SELECT` that were found when its time was over, or a limit was reached.
    pub accepts_partial: bool,
    /// It says which version it has: a later one of the same KP about the same makes this one out of date.
    pub is_check: bool,
    /// Whether its client checks by itself while it is asked to, instead of being told of changes.
    pub accepts_delegation: bool,
    /// What becomes of an answer that is too long to be held.
    pub delivery: AnswerDelivery,
}

/// How an answer may come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerDelivery {
    /// Complete, or not at all.
    #[default]
    Whole,
    /// If it is too long to be held, while it is made.
    Streamed,
    /// The same, and all of it within the time of its request: its client has said how long it waits.
    StreamedInTime,
}

impl RequestOrigin {
    /// Somebody with these rights. Its time can only be less than the usual.
    pub fn new(scope: u64, patience: Option<Duration>) -> Self {
        let patience = patience.unwrap_or(TIME_MAX).clamp(TIME_MIN, TIME_MAX);
        let caller = Caller::default();
        let (accepts_partial, is_check, accepts_delegation) = (false, false, false);
        let delivery = AnswerDelivery::default();
        Self { scope, patience, caller, accepts_partial, is_check, accepts_delegation, delivery }
    }

    /// The same, by this caller.
    #[must_use]
    pub fn of(self, caller: Caller) -> Self {
        Self { caller, ..self }
    }

    /// The same, and this is whether its client checks by itself while it is asked to.
    #[must_use]
    pub fn with_delegation(self, accepts_delegation: bool) -> Self {
        Self { accepts_delegation, ..self }
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub enum ResponseBody {
    /// The answer to a query.
    Bytes(Bytes),
    /// The same, which is sent while it is made.
    Stream(AnswerStream),
    /// A change was done.
    Changed {
        /// Whether anything is different now.
        is_change: bool,
        /// Names that blank nodes were given.
        blanks: Vec<(BlankNode, BlankNode)>,
    },
    /// Graphs were put; whether there was nothing of them before, and is now.
    Put {
        /// They are new.
        is_new: bool,
    },
    /// A subscription stands.
    Subscribed(Box<Subscribed>),
    /// The rule of this name is in force, or is not any more.
    Rule(String),
}

/// An answer and how it came about.
#[derive(Clone, Debug)]
pub struct SpaceResponse {
    /// The answer.
    pub answer: ResponseBody,
    /// The version of the data it is about.
    pub version: u64,
    /// How long it waited, and what else its client is told about pace.
    pub hints: Hints,
    /// Whether the answer was evaluated for this request, shared or remembered.
    pub source: AnswerSource,
}

/// Where an answer is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerSource {
    /// It was worked out for this request.
    Fresh,
    /// It was worked out for an equal request that waited at the same time.
    Shared,
    /// It was worked out before, for this question or one that contains it, and nothing that it reads has changed since.
    Remembered,
    /// It is worked out for this request while it is sent.
    Streamed,
    /// It was worked out for this request, and is not all of it: rows that belong to the answer, and not all that do.
    Partial,
}

/// No answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Refused {
    /// Too much to do: `retry_after` says when to come back, and with a `ticket` the place is kept.
    Busy(Box<Hints>),
    /// Its KP, or the user of that, asks more than an operator allows; one more is within the limit after this time.
    Limited(Duration),
    /// Not done in time, and never begun.
    Late,
    /// There was no room for it, or it was let go for a later one; when there will be is not said.
    Dropped,
    /// Nobody wants to know any more: whoever asked has left, or has asked the same again since, knowing more.
    Outdated,
    /// Not done, because nothing can be stored at the moment.
    Unwritable,
    /// Done, but whether it is stored is not known: it holds if the disk comes back before the process ends.
    Unconfirmed,
    /// The request is at fault, or a limit.
    Failed(GraphError),
    /// The answer is longer than answers may be.
    TooLong,
    /// The service ends.
    Closing,
    /// A fault of ours met this request; nothing was changed.
    Panicked,
    /// The space begins anew, or was given up.
    Unavailable(Condition),
    /// Nothing was asked: its door has decided so when the text was read.
    Declined(DeclinedBy),
}

/// Why nothing was asked of the space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclinedBy {
    /// There is something wrong with the text, and the door says what.
    Mistake,
    /// Its asker has the answer already, or needs none of the space.
    NoNeed,
    /// Others have to be asked before.
    Others,
}

impl Refused {
    /// Too much to do, and nothing is known but a time to come back.
    pub(crate) fn busy(retry_after: Duration) -> Self {
        Self::Busy(Box::new(Hints { retry_after: Some(retry_after), ..Hints::default() }))
    }
}

impl Watched {
    /// Equal for equal ones.
    pub(crate) fn canonical(&self) -> String {
        match self {
            Self::Query(query) => query.canonical(),
            Self::Masks(masks) => format!("{masks:?}"),
        }
    }

    /// In words, for an operator.
    pub(crate) fn shown(&self) -> Box<str> {
        match self {
            Self::Query(query) => shown(&query.canonical()),
            Self::Masks(masks) => format!("{} patterns", masks.len()).into(),
        }
    }
}

impl<C> SpaceRequest<C> {
    /// What is asked, in words, for an operator.
    pub(crate) fn shown(&self) -> Box<str> {
        match self {
            Self::Query { query, .. } => shown(&query.canonical()),
            Self::Match { masks, .. } => format!("{} patterns", masks.len()).into(),
            Self::Subscribe { what, .. } => what.shown(),
            Self::Update(_) => "an update".into(),
            Self::Edit { .. } => "an edit".into(),
            Self::Put { .. } => "a graph".into(),
            Self::AddRule { text, .. } => shown(text),
            Self::RemoveRule(_) => "a rule less".into(),
        }
    }

    /// The class in whose queue the request waits.
    pub(crate) fn class(&self) -> Class {
        match self {
            Self::Query { query, .. } if !query.is_cheap() => Class::AdvancedQuery,
            Self::Query { .. } | Self::Match { .. } => Class::Query,
            Self::Update(_) | Self::Edit { .. } | Self::Put { .. } | Self::AddRule { .. } | Self::RemoveRule(_) => {
                Class::Update
            }
            Self::Subscribe { seen: Some(_), .. } => Class::Check,
            Self::Subscribe { .. } => Class::Subscribe,
        }
    }

    /// True if it may change something.
    pub(crate) fn is_change(&self) -> bool {
        self.class() == Class::Update
    }

    /// True if it needs only a snapshot.
    pub(crate) fn only_reads(&self) -> bool {
        matches!(self, Self::Query { .. } | Self::Match { .. })
    }
}

/// The beginning of a text, up to so many bytes, without half a letter.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

fn shown(text: &str) -> Box<str> {
    cut(text, TEXT_SHOWN_BYTES).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_can_only_be_shortened() {
        assert_eq!(RequestOrigin::new(0, None).patience, TIME_MAX);
        assert_eq!(RequestOrigin::new(0, Some(Duration::from_secs(3600))).patience, TIME_MAX);
        assert_eq!(RequestOrigin::new(0, Some(Duration::ZERO)).patience, TIME_MIN);
    }
}
