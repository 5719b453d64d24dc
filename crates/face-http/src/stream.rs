//! A stream of events: its number, and the last events for who comes back to it.
//!
//! A stream outlives its connection for a while. Its session goes on then, and what comes for it is remembered here, as it is
//! while somebody listens: so whoever comes back is told all that is still there, and how much is not.

use std::collections::VecDeque;

use tidegate_core::access::Identity;
use tidegate_core::face::OutgoingPublication;
use tidegate_core::{Charge, Kind, Memory};

use crate::event::{put_message, put_missed};
use crate::limits::{RING_BYTES_MAX, RING_EVENTS_MAX};

/// One stream.
#[derive(Debug)]
pub(crate) struct Stream {
    token: Box<str>,
    /// What was asked for: who asks for something else is somebody else.
    target: Box<str>,
    identity: Identity,
    pub(crate) state: StreamState,
    /// Events so far.
    number: u64,
    /// What came before this one, nobody knows.
    known_from: u64,
    /// The last of them, without a gap.
    ring: VecDeque<Box<[u8]>>,
    ring_bytes: usize,
    charge: Charge,
    /// Messages for it that were lost before they came here, as far as its reader was told.
    pub(crate) lost_told: u64,
}

/// Whether somebody listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamState {
    /// Nothing is granted yet, or nothing will be.
    Closed,
    Open,
    /// Its connection is gone.
    Waiting,
}

impl Stream {
    /// `after`: the last event that its reader has seen of a stream of that name which is gone.
    pub(crate) fn new(token: &str, target: &str, identity: Identity, after: Option<u64>, charge: Charge) -> Self {
        let (ring, state) = (VecDeque::new(), StreamState::Closed);
        let (token, target) = (token.into(), target.into());
        // Whoever shows the old number again is behind one event, of which nobody knows how many it stands for.
        let number = after.map_or(0, |after| after.saturating_add(1));
        let known_from = number;
        Self { token, target, identity, state, number, known_from, ring, ring_bytes: 0, charge, lost_told: 0 }
    }

    /// Whether somebody who shows this, and asks for this, may go on with it.
    pub(crate) fn is_of(&self, identity: &Identity, target: &str) -> bool {
        let (mine, other) = (&self.identity, identity);
        let is_same = mine.user == other.user
            && mine.roles == other.roles
            && mine.claims == other.claims
            && mine.listener == other.listener;
        is_same && &*self.target == target
    }

    /// A message came for it: it is remembered, and written if somebody listens.
    pub(crate) fn take(&mut self, message: &OutgoingPublication<'_>, memory: &Memory, out: &mut Vec<u8>) {
        if self.state == StreamState::Closed {
            return;
        }
        self.number += 1;
        let begin = out.len();
        put_message(&self.token, self.number, message, out);
        self.remember(&out[begin..], memory);
        if self.state == StreamState::Waiting {
            out.truncate(begin);
        }
    }

    fn remember(&mut self, event: &[u8], memory: &Memory) {
        let is_fit = event.len() <= RING_BYTES_MAX && memory.has_room(Kind::Passing, event.len());
        while self.ring.len() >= RING_EVENTS_MAX
            || (!self.ring.is_empty() && (!is_fit || self.ring_bytes + event.len() > RING_BYTES_MAX))
        {
            let Some(oldest) = self.ring.pop_front() else { break };
            self.ring_bytes -= oldest.len();
            self.charge.change(0, oldest.len());
        }
        // Without it there would be a gap: then nothing before it is there either.
        if is_fit {
            self.ring_bytes += event.len();
            self.charge.change(event.len(), 0);
            self.ring.push_back(event.into());
        }
    }

    /// Says where it stands, which is no event.
    pub(crate) fn put_id(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("id: {}-{}\n\n", self.token, self.number).as_bytes());
    }

    /// What came after this number, and how much of that is not there any more. How many events that was, and how many are
    /// missing; none if nobody knows.
    pub(crate) fn put_after(&self, number: u64, out: &mut Vec<u8>) -> (u64, Option<u64>) {
        let is_known = (self.known_from..=self.number).contains(&number);
        let behind = if is_known { self.number - number } else { self.ring.len() as u64 };
        let there = (self.ring.len() as u64).min(behind);
        let missing = is_known.then_some(behind - there);
        if missing != Some(0) {
            put_missed(missing, out);
        }
        for event in self.ring.iter().skip(self.ring.len() - there as usize) {
            out.extend_from_slice(event);
        }
        if there == 0 {
            self.put_id(out);
        }
        (there, missing)
    }
}
