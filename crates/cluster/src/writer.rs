//! The one who writes a lineage's stream: operations in their order, one under way, and none that counts before the engine has
//! said so.
//!
//! Fencing. Operation n of an epoch stands at the sequence of its opening + n, always: nobody else writes between. So each
//! message names the sequence it expects to be the last, and the engine takes it there or not at all. Whoever adopts the
//! lineage writes an opening of its own, and from there on nothing of the epoch before can be taken any more: an operation is
//! sent only when the one before it is known to be kept, so the sequence that it expects is never an opening's.
//!
//! *Maybe*. A message without an answer may be in the stream, may be on its way, or may be lost. The writer asks what the last
//! message is, and goes on behind it. What was on its way is taken in its place or nowhere, and is the same bytes.
//!
//! It refuses to know sockets and clocks: the rim and the simulation drive it.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use crate::entry::{DiskOp, Entry, FileKey};
use crate::limits::{QUEUE_BYTES_MAX, QUEUE_OPS_MAX, RETRY_MAX, RETRY_MIN, UNDER_WAY_MAX};
use crate::names::Subject;

/// What the rim has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriterAct {
    /// Send a message, and tell [`StreamWriter::on_answer`] what came of it.
    Publish {
        /// Where to.
        subject: Subject,
        /// The message.
        message: Bytes,
        /// What has to be the last sequence of the stream.
        expected_last: u64,
        /// Which operation it is.
        number: u64,
        /// Which attempt: answers to earlier ones say nothing about this one.
        attempt: u64,
    },
    /// Ask what the last message is, and tell [`StreamWriter::on_probe`].
    Probe {
        /// Which attempt.
        attempt: u64,
    },
    /// Throw messages away that nobody needs, and tell [`StreamWriter::on_purged`].
    Purge {
        /// Of this subject.
        subject: Subject,
        /// Only those below this sequence.
        below: Option<u64>,
        /// Which attempt.
        attempt: u64,
    },
    /// Nothing before this moment.
    Wait(Duration),
    /// Nothing before something happens.
    Idle,
}

/// What the engine said to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is in the stream, at this sequence.
    Kept(u64),
    /// Another sequence is the last.
    WrongLast,
    /// Nothing, or something that leaves it open.
    Maybe,
}

/// The last message of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeAnswer {
    /// Its sequence.
    pub sequence: u64,
    /// Its epoch.
    pub epoch: u64,
    /// Which operation of it.
    pub number: u64,
}

/// Why a writer writes no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Another epoch has begun.
    Fenced {
        /// That one.
        by: u64,
    },
    /// The engine has lost what it had said to be kept. Own files have it: a restart compares both.
    TailLost,
}

/// Why an operation is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Too much waits for the engine.
    Full,
    /// Nothing will be written any more.
    Ended(Ending),
}

#[derive(Clone, Debug)]
struct Pending {
    subject: Subject,
    message: Bytes,
    effect: Effect,
}

/// What an operation allows once it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    None,
    /// The bytes of this file are not needed any more.
    Drop(FileKey),
    /// What was said about names and owners before it is not needed any more.
    Checkpoint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Sending,
    /// What became of the messages under way is not known.
    Unsure {
        probe_at: Duration,
        is_asked: bool,
    },
    Ended(Ending),
}

/// Writes one epoch of one lineage.
#[derive(Clone, Debug)]
pub struct StreamWriter {
    epoch: u64,
    opened_at: u64,
    /// Operations up to this one are in the stream.
    kept: u64,
    /// Those behind it; the first `under_way` were sent.
    queue: VecDeque<Pending>,
    under_way: usize,
    bytes: usize,
    attempt: u64,
    /// What was kept when the last message was asked for: an answer that was late may have told more since.
    kept_when_asked: u64,
    state: State,
    retry: Duration,
    purges: VecDeque<(Subject, Option<u64>)>,
    purge_attempt: u64,
    is_purging: bool,
}

impl StreamWriter {
    /// Goes on behind an opening that the stream has taken at this sequence.
    pub fn new(epoch: u64, opened_at: u64) -> Self {
        Self {
            epoch,
            opened_at,
            kept: 0,
            queue: VecDeque::new(),
            under_way: 0,
            bytes: 0,
            attempt: 0,
            kept_when_asked: 0,
            state: State::Sending,
            retry: RETRY_MIN,
            purges: VecDeque::new(),
            purge_attempt: 0,
            is_purging: false,
        }
    }

    /// Its epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Operations up to this one are kept elsewhere.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// The last operation that was taken.
    pub fn last(&self) -> u64 {
        self.kept + self.queue.len() as u64
    }

    /// Bytes that wait for the engine.
    pub fn waiting_bytes(&self) -> usize {
        self.bytes
    }

    /// Why it writes no more, if so.
    pub fn ending(&self) -> Option<Ending> {
        if let State::Ended(ending) = self.state { Some(ending) } else { None }
    }

    /// Somebody has seen another epoch begin.
    pub fn fence(&mut self, by: u64) {
        if by > self.epoch {
            self.end(Ending::Fenced { by });
        }
    }

    /// Whether so many more bytes, in so many operations, can be taken.
    pub fn has_room(&self, bytes: usize, ops: usize) -> Result<(), Refusal> {
        if let State::Ended(ending) = self.state {
            return Err(Refusal::Ended(ending));
        }
        let is_full = self.bytes + bytes > QUEUE_BYTES_MAX || self.queue.len() + ops > QUEUE_OPS_MAX;
        if is_full { Err(Refusal::Full) } else { Ok(()) }
    }

    /// Takes an operation; its number is what to wait for. It is for the caller to ask [`Self::has_room`] before.
    pub fn push(&mut self, op: DiskOp) -> u64 {
        let effect = match &op {
            DiskOp::Remove { file } => Effect::Drop(*file),
            DiskOp::Table { .. } => Effect::Checkpoint,
            _ => Effect::None,
        };
        self.push_with(op, effect)
    }

    /// The same for a new name that another file has had: one operation, so that there is always one of the two.
    pub(crate) fn push_rename(&mut self, op: DiskOp, displaced: Option<FileKey>) -> u64 {
        self.push_with(op, displaced.map_or(Effect::None, Effect::Drop))
    }

    fn push_with(&mut self, op: DiskOp, effect: Effect) -> u64 {
        let (subject, number) = (op.subject(), self.last() + 1);
        let message = Entry { epoch: self.epoch, number, op }.encode();
        self.bytes += message.len();
        self.queue.push_back(Pending { subject, message, effect });
        number
    }

    /// Somebody before has left bytes behind that belong to no file any more.
    pub fn drop_file(&mut self, file: FileKey) {
        self.purges.push_back((Subject::File(file), None));
    }

    /// What to do next; to be asked until there is nothing.
    pub fn poll(&mut self, now: Duration) -> WriterAct {
        match self.state {
            State::Ended(_) | State::Unsure { is_asked: true, .. } => WriterAct::Idle,
            State::Unsure { probe_at, .. } if now < probe_at => WriterAct::Wait(probe_at),
            State::Unsure { probe_at, .. } => {
                self.kept_when_asked = self.kept;
                self.state = State::Unsure { probe_at, is_asked: true };
                WriterAct::Probe { attempt: self.attempt }
            }
            State::Sending => self.next_message(),
        }
    }

    fn next_message(&mut self) -> WriterAct {
        if self.under_way < UNDER_WAY_MAX
            && let Some(pending) = self.queue.get(self.under_way)
        {
            self.under_way += 1;
            let number = self.kept + self.under_way as u64;
            return WriterAct::Publish {
                subject: pending.subject,
                message: pending.message.clone(),
                expected_last: self.opened_at + number - 1,
                number,
                attempt: self.attempt,
            };
        }
        // When nobody waits: it only makes room.
        match self.purges.front() {
            Some(&(subject, below)) if !self.is_purging && self.queue.is_empty() => {
                self.is_purging = true;
                self.purge_attempt += 1;
                WriterAct::Purge { subject, below, attempt: self.purge_attempt }
            }
            _ => WriterAct::Idle,
        }
    }

    /// The engine has answered a message, or has not.
    pub fn on_answer(&mut self, number: u64, attempt: u64, answer: Answer, now: Duration) {
        match answer {
            _ if self.ending().is_some() => {}
            // True whichever attempt it was: an operation's bytes never change, nor does its place.
            Answer::Kept(sequence) if sequence == self.opened_at + number => self.keep_to(number),
            Answer::WrongLast | Answer::Maybe | Answer::Kept(_) => {
                if attempt == self.attempt && self.state == State::Sending && number > self.kept {
                    self.doubt(now);
                }
            }
        }
    }

    /// What the last message is; None if nobody answered.
    pub fn on_probe(&mut self, attempt: u64, last: Option<ProbeAnswer>, now: Duration) {
        if attempt != self.attempt || !matches!(self.state, State::Unsure { .. }) {
            return;
        }
        let Some(ProbeAnswer { sequence, epoch, number }) = last else { return self.doubt(now) };
        if epoch > self.epoch {
            return self.end(Ending::Fenced { by: epoch });
        }
        let is_ours = epoch == self.epoch && sequence == self.opened_at.saturating_add(number);
        if !is_ours || number < self.kept_when_asked || number > self.last() {
            return self.end(Ending::TailLost);
        }
        self.keep_to(number);
        self.under_way = 0;
        self.state = State::Sending;
    }

    /// What came of throwing away; what did not work is tried again later.
    pub fn on_purged(&mut self, attempt: u64, is_done: bool) {
        if attempt != self.purge_attempt || !self.is_purging {
            return;
        }
        self.is_purging = false;
        if let Some(purge) = self.purges.pop_front()
            && !is_done
        {
            self.purges.push_back(purge);
        }
    }

    fn keep_to(&mut self, number: u64) {
        while self.kept < number {
            let Some(Pending { message, effect, .. }) = self.queue.pop_front() else { break };
            self.kept += 1;
            self.bytes -= message.len();
            self.under_way = self.under_way.saturating_sub(1);
            self.retry = RETRY_MIN;
            match effect {
                Effect::None => {}
                Effect::Drop(file) => self.purges.push_back((Subject::File(file), None)),
                Effect::Checkpoint => {
                    self.purges.push_back((Subject::Names, Some(self.opened_at + self.kept)));
                    self.purges.push_back((Subject::Owner, Some(self.opened_at)));
                }
            }
        }
    }

    fn doubt(&mut self, now: Duration) {
        self.attempt += 1;
        self.under_way = 0;
        self.state = State::Unsure { probe_at: now + self.retry, is_asked: false };
        self.retry = (self.retry * 2).min(RETRY_MAX);
    }

    fn end(&mut self, ending: Ending) {
        self.state = State::Ended(ending);
        self.queue.clear();
        (self.bytes, self.under_way) = (0, 0);
    }
}

#[cfg(test)]
mod tests;
