//! What became of each message of a run, and limits that a run is put under.

use tidegate_control::Timestamp;
use tidegate_core::settings::Rate;

use super::Sent;

/// Limits beside the settings of a scenario.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imposed {
    /// Of every publisher.
    pub rate: Option<Rate>,
    /// Of each publisher of a group of the trace.
    pub by_group: Vec<(u8, Rate)>,
}

/// What became of a message; times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fate {
    /// When its publisher wanted to send it.
    pub at: f64,
    pub publisher: u32,
    /// How long it waited at the gate: for its rhythm or a limit.
    pub gate: f64,
    /// How long it waited in the queue of the reader, if it was read.
    pub queue: f64,
    /// How it ended.
    pub end: MessageEnd,
}

/// How a message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageEnd {
    /// It was read.
    Read,
    /// It was taken, and waited for the reader when the run ended.
    Queued,
    /// It waited at the gate when the run ended.
    Held,
    /// Refused at the gate, and its publisher was told.
    Refused,
    /// Dropped at the gate: it would have waited there for too long, and its publisher cannot be told.
    Shed,
    /// Taken, and dropped because the queue of the reader was full.
    Dropped,
    /// Not sent: the publisher's socket was full, or its connection had been ended.
    Unsent,
}

impl Sent {
    pub(super) fn new(at: Timestamp, publisher: u32, bytes: u32) -> Self {
        Self {
            at,
            taken_at: None,
            publisher,
            bytes,
            read_at: None,
            is_left: false,
            is_refused: false,
            is_unsent: false,
        }
    }

    /// `is_passed`: a later message of the same publisher was taken, and those are taken in order.
    fn fate(&self, is_passed: bool) -> Fate {
        let end = match (self.taken_at, self.read_at) {
            _ if self.is_unsent => MessageEnd::Unsent,
            _ if self.is_refused => MessageEnd::Refused,
            (None, _) if is_passed => MessageEnd::Shed,
            (None, _) => MessageEnd::Held,
            (Some(_), Some(_)) => MessageEnd::Read,
            (Some(_), None) if self.is_left => MessageEnd::Queued,
            (Some(_), None) => MessageEnd::Dropped,
        };
        let taken = self.taken_at.unwrap_or(self.at);
        let queue = self.read_at.map_or(0.0, |read| read.since(taken).as_secs_f64());
        let (at, gate) = (self.at.as_secs_f64(), taken.since(self.at).as_secs_f64());
        Fate { at, publisher: self.publisher, gate, queue, end }
    }
}

/// What became of all of them, in the order in which they came.
pub(super) fn fates(sent: &[Sent], publishers: usize) -> Vec<Fate> {
    let mut is_passed = vec![false; publishers];
    let mut fates = Vec::with_capacity(sent.len());
    for message in sent.iter().rev() {
        let is_passed = &mut is_passed[message.publisher as usize];
        fates.push(message.fate(*is_passed));
        *is_passed |= message.taken_at.is_some();
    }
    fates.reverse();
    fates
}
