//! The engine, as far as a cluster relies on it: one stream with expected sequences, one table of leases.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tidegate_cluster::{DiskOp, Entry, Lease, NodeName, Opening, ProbeAnswer, Subject};

/// What a node asks of it.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Publish { subject: Subject, message: Bytes, expected_last: u64, number: u64, attempt: u64 },
    Probe { attempt: u64 },
    Purge { subject: Subject, below: Option<u64>, attempt: u64 },
    Open { message: Bytes, expected_owner: u64 },
    Read { behind: u64 },
    Renew { lease: Lease },
    Look,
}

/// What it says.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Taken { number: u64, attempt: u64, at: Option<u64> },
    Last { attempt: u64, last: Option<ProbeAnswer> },
    Purged { attempt: u64 },
    Messages(Vec<(u64, Bytes)>),
    Table { leases: Vec<(NodeName, u64, Lease)>, owner: Option<(u64, u64, Opening)> },
}

/// How many messages a reader gets at once.
const READ_MAX: usize = 200;

/// Messages by their sequence.
type Messages = BTreeMap<u64, (Subject, Bytes)>;

#[derive(Debug, Default)]
pub(crate) struct Twin {
    stream: Messages,
    last: u64,
    leases: BTreeMap<NodeName, (u64, Lease)>,
    revision: u64,
    /// What was thrown away, and behind which message: who forgets that one has not thrown away either.
    purged: Vec<(u64, Messages)>,
    /// Whatever was ever taken, by epoch and number: for the checkers.
    pub(crate) taken: BTreeSet<(u64, u64)>,
    /// Who has opened an epoch.
    openers: BTreeMap<u64, u64>,
}

impl Twin {
    fn owner(&self) -> Option<(u64, u64, Opening)> {
        let (at, (_, message)) = self.stream.iter().rev().find(|(_, (subject, _))| *subject == Subject::Owner)?;
        match Entry::decode(message).unwrap() {
            Entry { epoch, op: DiskOp::Open(opening), .. } => Some((*at, epoch, opening)),
            other => panic!("not an opening: {other:?}"),
        }
    }

    fn take(&mut self, subject: Subject, message: Bytes) -> u64 {
        let Entry { epoch, number, op } = Entry::decode(&message).unwrap();
        assert!(self.taken.insert((epoch, number)), "operation {number} of epoch {epoch} was taken twice");
        if let DiskOp::Open(opening) = op {
            let before = self.openers.insert(epoch, opening.incarnation);
            assert_eq!(before, None, "epoch {epoch} has two owners");
        }
        self.last += 1;
        self.stream.insert(self.last, (subject, message));
        self.last
    }

    pub(crate) fn answer(&mut self, from: &NodeName, request: Request) -> Option<Reply> {
        match request {
            Request::Publish { subject, message, expected_last, number, attempt } => {
                let at = (self.last == expected_last).then(|| self.take(subject, message));
                Some(Reply::Taken { number, attempt, at })
            }
            Request::Probe { attempt } => {
                let last = self.stream.last_key_value().map(|(&sequence, (_, message))| {
                    let Entry { epoch, number, .. } = Entry::decode(message).unwrap();
                    ProbeAnswer { sequence, epoch, number }
                });
                Some(Reply::Last { attempt, last })
            }
            Request::Purge { subject, below, attempt } => {
                let is_gone = |at: u64, of: Subject| of == subject && below.is_none_or(|below| at < below);
                let keys = self.stream.iter().filter(|(at, (of, _))| is_gone(**at, *of)).map(|(at, _)| *at);
                let keys: Vec<u64> = keys.collect();
                let gone = keys.iter().filter_map(|at| self.stream.remove_entry(at)).collect();
                self.purged.push((self.last, gone));
                Some(Reply::Purged { attempt })
            }
            Request::Open { message, expected_owner } => {
                if self.owner().map_or(0, |(at, ..)| at) == expected_owner {
                    self.take(Subject::Owner, message);
                }
                // Whether it was taken is seen by the next look, as if the answer had been a maybe.
                None
            }
            Request::Read { behind } => {
                let messages = self.stream.range(behind + 1..).take(READ_MAX);
                Some(Reply::Messages(messages.map(|(at, (_, message))| (*at, message.clone())).collect()))
            }
            Request::Renew { lease } => {
                self.revision += 1;
                self.leases.insert(from.clone(), (self.revision, lease));
                None
            }
            Request::Look => {
                let lease =
                    |(node, (revision, lease)): (&NodeName, &(u64, Lease))| (node.clone(), *revision, lease.clone());
                Some(Reply::Table { leases: self.leases.iter().map(lease).collect(), owner: self.owner() })
            }
        }
    }

    /// The power goes, and with it the last messages that were not synced.
    pub(crate) fn lose_tail(&mut self, count: u64) {
        let end = self.last.saturating_sub(count);
        while let Some((_, gone)) = self.purged.pop_if(|(last, _)| *last > end) {
            self.stream.extend(gone);
        }
        for (_, (_, message)) in self.stream.split_off(&(end + 1)) {
            let Entry { epoch, number, .. } = Entry::decode(&message).unwrap();
            self.taken.remove(&(epoch, number));
            if number == 0 {
                self.openers.remove(&epoch);
            }
        }
        // An engine that has lost its end counts on from what it has.
        self.last = self.stream.last_key_value().map_or(0, |(at, _)| *at);
    }
}
