//! What became of every request, by class, and how long it took.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_control::Spread;
use tidegate_control::admission::Class;
use tidegate_wire_ssap::{SsapHeader, Transaction};

use crate::answer_stream::StreamEnd;
use crate::machine::request::{AnswerSource, Refused, SpaceResponse};
use crate::shared_state::lock;

/// Names of the outcomes, in the order of their counters.
pub const OUTCOMES: [&str; 17] = [
    "fresh",
    "shared",
    "remembered",
    "busy",
    "late",
    "failed",
    "too_long",
    "closing",
    "unwritable",
    "unconfirmed",
    "panicked",
    "unavailable",
    "partial",
    "dropped",
    "outdated",
    "streamed",
    "limited",
];

/// Why an evaluation was ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancelled {
    /// The time of the request was over.
    Time,
    /// Nobody waited for it any more.
    Abandoned,
    /// An operator did it.
    Operator,
    /// The service ended.
    Shutdown,
    /// It kept others waiting, and was begun anew later.
    Yielded,
}

const CANCELLED: [&str; 5] = ["time", "abandoned", "operator", "shutdown", "yielded"];

/// What became of an SSAP request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ssap {
    Done,
    /// There is something wrong with it.
    Refused,
    /// Later it may work.
    Busy,
    /// There is something wrong here, or it took too long.
    Failed,
}

/// Where a connection comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionKind {
    Http,
    Socket,
    Ssap,
}

impl ConnectionKind {
    pub(crate) const ALL: [Self; 3] = [Self::Http, Self::Socket, Self::Ssap];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Socket => "websocket",
            Self::Ssap => "ssap",
        }
    }
}

const SSAP: [&str; 4] = ["done", "refused", "busy", "failed"];

/// Beside the protocol's own: messages that cannot be read.
const SSAP_OPS: usize = Transaction::ALL.len() + 1;

#[derive(Debug, Default)]
pub(crate) struct Counts {
    requests: [[AtomicU64; OUTCOMES.len()]; Class::COUNT],
    times: Mutex<[Spread; Class::COUNT]>,
    cancelled: [AtomicU64; CANCELLED.len()],
    ssap: [[AtomicU64; SSAP.len()]; SSAP_OPS],
    turned_away: [AtomicU64; ConnectionKind::ALL.len()],
    streamed: [AtomicU64; StreamEnd::ALL.len()],
}

impl From<&Refused> for Ssap {
    fn from(refused: &Refused) -> Self {
        match refused {
            Refused::Busy(_)
            | Refused::Limited(_)
            | Refused::Dropped
            | Refused::Outdated
            | Refused::Closing
            | Refused::Unwritable
            | Refused::Unavailable(_) => Self::Busy,
            Refused::Failed(_) | Refused::TooLong | Refused::Declined(_) => Self::Refused,
            Refused::Late | Refused::Unconfirmed | Refused::Panicked => Self::Failed,
        }
    }
}

impl Counts {
    /// A request is answered, after this time.
    pub(crate) fn count(&self, class: Class, outcome: &Result<SpaceResponse, Refused>, time: Duration) {
        if matches!(outcome, Ok(_) | Err(Refused::Failed(_) | Refused::TooLong)) {
            lock(&self.times)[class.index()].note(time);
        }
        let place = match outcome {
            Ok(answered) => match answered.source {
                AnswerSource::Fresh => 0,
                AnswerSource::Shared => 1,
                AnswerSource::Remembered => 2,
                AnswerSource::Partial => 12,
                AnswerSource::Streamed => 15,
            },
            Err(Refused::Busy(_)) => 3,
            Err(Refused::Limited(_)) => 16,
            Err(Refused::Dropped) => 13,
            Err(Refused::Outdated) => 14,
            Err(Refused::Late) => 4,
            Err(Refused::Failed(_)) => 5,
            Err(Refused::TooLong) => 6,
            Err(Refused::Closing) => 7,
            Err(Refused::Unwritable) => 8,
            Err(Refused::Unconfirmed) => 9,
            Err(Refused::Panicked) => 10,
            Err(Refused::Unavailable(_)) => 11,
            // Nothing was asked.
            Err(Refused::Declined(_)) => return,
        };
        self.requests[class.index()][place].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn cancelled(&self, why: Cancelled) {
        self.cancelled[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A streamed answer has come to its end.
    pub(crate) fn streamed(&self, end: StreamEnd) {
        self.streamed[end as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How streamed answers ended, and how many.
    pub(crate) fn all_streamed(&self) -> [(&'static str, u64); StreamEnd::ALL.len()] {
        StreamEnd::ALL.map(|end| (end.name(), self.streamed[end as usize].load(Ordering::Relaxed)))
    }

    /// There was no place for a connection.
    pub(crate) fn turned_away(&self, entry: ConnectionKind) {
        self.turned_away[entry as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Connections that found no place, by door.
    pub(crate) fn all_turned_away(&self) -> [(&'static str, u64); ConnectionKind::ALL.len()] {
        ConnectionKind::ALL.map(|entry| (entry.name(), self.turned_away[entry as usize].load(Ordering::Relaxed)))
    }

    pub(crate) fn ssap(&self, header: &SsapHeader, outcome: Ssap) {
        let known = header.transaction().and_then(|it| Transaction::ALL.iter().position(|other| *other == it));
        let op = known.unwrap_or(Transaction::ALL.len());
        self.ssap[op][outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How long requests took from their coming to their answer, by class.
    pub(crate) fn times(&self) -> Vec<(&'static str, Spread)> {
        let times = *lock(&self.times);
        Class::ALL.iter().map(|class| (class.name(), times[class.index()])).collect()
    }

    /// Why evaluations were ended early, and how many.
    pub(crate) fn all_cancelled(&self) -> [(&'static str, u64); CANCELLED.len()] {
        let mut numbers = self.cancelled.iter().map(|number| number.load(Ordering::Relaxed));
        CANCELLED.map(|why| (why, numbers.next().unwrap_or(0)))
    }

    /// SSAP requests: what about, what became of them, and how many.
    pub(crate) fn all_ssap(&self) -> Vec<(String, &'static str, u64)> {
        let names = Transaction::ALL.iter().map(|it| it.as_str().to_lowercase()).chain(["unreadable".to_owned()]);
        let of_one = |(name, numbers): (String, &[AtomicU64; SSAP.len()])| {
            let numbers = SSAP.into_iter().zip(numbers);
            let row = move |(outcome, number): (_, &AtomicU64)| (name.clone(), outcome, number.load(Ordering::Relaxed));
            numbers.map(row).collect::<Vec<_>>()
        };
        names.zip(&self.ssap).flat_map(of_one).collect()
    }

    /// Class, outcome and number, without those that are zero.
    pub(crate) fn all(&self) -> Vec<(&'static str, &'static str, u64)> {
        let of = |class: &Class| {
            let numbers = self.requests[class.index()].iter().map(|number| number.load(Ordering::Relaxed));
            let name = class.name();
            OUTCOMES.into_iter().zip(numbers).map(move |(outcome, number)| (name, outcome, number)).collect::<Vec<_>>()
        };
        Class::ALL.iter().flat_map(of).filter(|(_, _, number)| *number > 0).collect()
    }
}
