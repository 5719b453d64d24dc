//! The last connections of a shard that have ended, for an operator who asks why.
//!
//! They lie in two rings, one of lines of the same size and one of bytes, and not in boxes of their own: what is allocated
//! while a flood fills the heap, and lives longer than the flood, keeps the page on which it lies from being given back.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_control::Timestamp;
use tidegate_core::access::Identity;
use tidegate_core::event::Event;
use tidegate_core::ledger::{Ledger, Loss};
use tidegate_core::report::Parting;

use crate::ask::{Answer, Closed};
use crate::event_log::in_words;
use crate::limits::{CLOSED_MAX, CLOSED_PER_PAGE, CLOSED_TEXT_BYTES_MAX};

/// Bytes of one reason for a loss: its place in the list of all, and how many.
const LOSS_BYTES: usize = 1 + size_of::<u64>();

#[derive(Debug, Default)]
pub(crate) struct Departed {
    lines: VecDeque<DepartedLine>,
    /// What belongs to the lines and has no fixed size, in their order.
    bytes: VecDeque<u8>,
    count: u64,
}

/// One connection; how many of the bytes belong to each of its texts, in this order.
#[derive(Clone, Copy, Debug)]
struct DepartedLine {
    client_id: usize,
    user: Option<usize>,
    peer: usize,
    why: usize,
    losses: usize,
    listener: &'static str,
    protocol: &'static str,
    since: Timestamp,
    at: Timestamp,
    /// Received, passed, deliveries, delivered, bytes received, bytes sent.
    counts: [u64; 6],
}

impl DepartedLine {
    const fn bytes(&self) -> usize {
        let user = match self.user {
            Some(user) => user,
            None => 0,
        };
        self.client_id + user + self.peer + self.why + self.losses
    }
}

impl Departed {
    pub(crate) fn note(&mut self, event: &Event) {
        let Event::Disconnected { client_id, why, parting, .. } = event else { return };
        let Parting { identity, protocol, since, at, ledger } = &**parting;
        let why = in_words(why);
        let mut line = DepartedLine {
            client_id: client_id.len(),
            user: identity.user.as_ref().map(|user| user.len()),
            peer: identity.peer.len(),
            why: why.len(),
            losses: 0,
            listener: identity.listener,
            protocol,
            since: *since,
            at: *at,
            counts: [
                ledger.received,
                ledger.passed,
                ledger.deliveries,
                ledger.delivered,
                ledger.bytes_received,
                ledger.bytes_sent,
            ],
        };
        for text in [client_id, identity.user.as_deref().unwrap_or_default(), &*identity.peer, &*why] {
            self.bytes.extend(text.as_bytes());
        }
        for (place, loss) in (0..).zip(Loss::ALL) {
            let lost = ledger.lost(loss);
            if lost > 0 {
                self.bytes.push_back(place);
                self.bytes.extend(lost.to_le_bytes());
                line.losses += LOSS_BYTES;
            }
        }
        self.count += 1;
        self.lines.push_back(line);
        while self.lines.len() > CLOSED_MAX || self.bytes.len() > CLOSED_TEXT_BYTES_MAX {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes.drain(..oldest.bytes());
        }
    }

    /// The latest, or those before this number, the latest first.
    pub(crate) fn page(&self, before: Option<u64>) -> Answer {
        let (mut closed, mut end) = (Vec::new(), self.bytes.len());
        let numbers = (0..=self.count).rev();
        for (number, line) in numbers.zip(self.lines.iter().rev()) {
            let start = end - line.bytes();
            if before.is_none_or(|before| number < before) {
                if closed.len() == CLOSED_PER_PAGE {
                    let next = closed.last().map(|last: &Closed| last.number);
                    return Answer::Closed { closed, next };
                }
                closed.push(self.read(number, line, start));
            }
            end = start;
        }
        Answer::Closed { closed, next: None }
    }

    fn read(&self, number: u64, line: &DepartedLine, mut at: usize) -> Closed {
        let mut take = |length: usize| {
            let bytes: Vec<u8> = self.bytes.range(at..at + length).copied().collect();
            at += length;
            bytes
        };
        let mut text = |length| String::from_utf8_lossy(&take(length)).into_owned();
        let client_id = Arc::from(text(line.client_id));
        let user = line.user.map(|user| Arc::from(text(user)));
        let (peer, why) = (Arc::from(text(line.peer)), text(line.why).into());
        let losses = take(line.losses);
        let losses = losses.chunks_exact(LOSS_BYTES).filter_map(|loss| {
            let (place, lost) = loss.split_first()?;
            Some((*Loss::ALL.get(usize::from(*place))?, u64::from_le_bytes(lost.try_into().ok()?)))
        });
        let mut ledger = Ledger::default();
        [
            ledger.received,
            ledger.passed,
            ledger.deliveries,
            ledger.delivered,
            ledger.bytes_received,
            ledger.bytes_sent,
        ] = line.counts;
        losses.for_each(|(loss, lost)| ledger.set_lost(loss, lost));
        let identity = Identity { user, peer, listener: line.listener, roles: None, claims: None };
        let (protocol, since, at) = (line.protocol, line.since, line.at);
        Closed { number, client_id, why, parting: Box::new(Parting { identity, protocol, since, at, ledger }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::ConnId;
    use tidegate_core::event::Why;

    fn ended(name: &str, parting: Parting) -> Event {
        let conn = ConnId { index: 0, generation: 0 };
        Event::Disconnected { conn, client_id: name.into(), why: Why::Lost, parting: Box::new(parting) }
    }

    fn parting(user: Option<&str>, lost: u64) -> Parting {
        let identity = Identity {
            user: user.map(Arc::from),
            peer: "127.0.0.1:5".into(),
            listener: "mqtt",
            roles: None,
            claims: None,
        };
        let mut ledger = Ledger::default();
        (ledger.received, ledger.bytes_sent) = (7, 9);
        ledger.set_lost(Loss::Denied, lost);
        ledger.set_lost(Loss::Away, lost);
        let (since, at) = (Timestamp::from_nanos(3), Timestamp::from_nanos(4));
        Parting { identity, protocol: "5", since, at, ledger }
    }

    fn all(departed: &Departed) -> Vec<Closed> {
        let (mut before, mut seen) = (None, Vec::new());
        loop {
            let Answer::Closed { closed, next } = departed.page(before) else { panic!("another answer") };
            assert!(closed.len() <= CLOSED_PER_PAGE);
            seen.extend(closed);
            before = next;
            if next.is_none() {
                return seen;
            }
        }
    }

    #[test]
    fn only_the_last_connections_are_kept_and_pages_lead_through_all_of_them() {
        let mut departed = Departed::default();
        for number in 0..CLOSED_MAX + 7 {
            departed.note(&ended(&number.to_string(), parting(None, 0)));
        }
        let seen: Vec<String> = all(&departed).into_iter().map(|closed| closed.client_id.to_string()).collect();
        let expected: Vec<String> = (7..CLOSED_MAX + 7).rev().map(|number| number.to_string()).collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_connection_is_told_as_it_was() {
        let mut departed = Departed::default();
        let partings = [parting(Some("alice"), 300), parting(None, 0), parting(Some(""), 1)];
        for (number, parting) in partings.iter().enumerate() {
            departed.note(&ended(&format!("client-{number}"), parting.clone()));
        }
        let seen = all(&departed);
        let numbers: Vec<u64> = seen.iter().map(|closed| closed.number).collect();
        assert_eq!(numbers, [3, 2, 1]);
        for (closed, parting) in seen.iter().rev().zip(&partings) {
            assert_eq!((&*closed.why, &*closed.parting), ("connection lost", parting));
        }
        assert_eq!(&*seen[2].client_id, "client-0");
    }

    #[test]
    fn long_names_push_out_older_ones_before_the_bytes_are_too_many() {
        let mut departed = Departed::default();
        let name = "x".repeat(60_000);
        for _ in 0..100 {
            departed.note(&ended(&name, parting(None, 0)));
            assert!(departed.bytes.len() <= CLOSED_TEXT_BYTES_MAX);
        }
        let seen = all(&departed);
        assert_eq!(seen.len(), CLOSED_TEXT_BYTES_MAX / (60_000 + "127.0.0.1:5connection lost".len()));
        assert!(seen.iter().all(|closed| *closed.client_id == *name));
    }
}
