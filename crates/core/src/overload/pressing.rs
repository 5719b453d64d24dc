//! Whose messages meet a receiver that does not keep up.
//!
//! The broker may be at rest and one receiver not: its window is full, and what one publisher sends it stands in the way
//! of what the others do. Such a publisher counts as pressing for a second or two, and the gate judges it as it would at
//! level 1: it is slowed if it breaks its rhythm *and* takes several times its share. Good publishers that meet the same
//! receiver press as well, and are left alone, because they do neither.
//!
//! *Newcomers.* Whoever began to publish within the last minute has no habit to speak of, whatever the first sixteen
//! intervals said. One that presses and takes several times its share may be four times as fast as the mean of the others,
//! and no faster, for as long as it does.
//!
//! A receiver may live on another shard. That one tells ours, once a second for each publisher.

use core::time::Duration;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_control::Timestamp;

use crate::envelope::Envelope;
use crate::limits::{BATCH_BYTES_MAX, PRESSING_MAX};
use crate::message::Publication;
use crate::shard::Shard;

/// Publishers that press, by `Session::origin`, with the second in which they did last.
#[derive(Debug)]
pub(crate) struct Pressing {
    by_origin: HashMap<u64, u32, FixedState>,
    swept: u32,
    /// Copies that met a receiver which does not keep up; only its growth says something.
    pub(crate) met: u64,
}

impl Pressing {
    pub(crate) fn new(seed: u64) -> Self {
        Self { by_origin: HashMap::with_hasher(FixedState::with_seed(seed)), swept: 0, met: 0 }
    }

    /// Whether this is its first time in this second. Beyond the maximum nobody is noted.
    pub(crate) fn note(&mut self, origin: u64, now: Timestamp) -> bool {
        let second = second_of(now);
        if self.by_origin.get(&origin) == Some(&second) {
            return false;
        }
        if second != self.swept {
            self.swept = second;
            self.by_origin.retain(|_, last| is_recent(*last, second));
        }
        if self.by_origin.len() < PRESSING_MAX || self.by_origin.contains_key(&origin) {
            self.by_origin.insert(origin, second);
            return true;
        }
        false
    }

    #[inline]
    pub(crate) fn contains(&self, origin: u64, now: Timestamp) -> bool {
        !self.by_origin.is_empty() && self.by_origin.get(&origin).is_some_and(|last| is_recent(*last, second_of(now)))
    }
}

/// In this second or the one before.
fn is_recent(last: u32, second: u32) -> bool {
    second.wrapping_sub(last) <= 1
}

fn second_of(now: Timestamp) -> u32 {
    (now.as_nanos() / 1_000_000_000) as u32
}

/// Seconds of publishing after which somebody is no newcomer.
pub(super) const NEWCOMER: Duration = Duration::from_secs(60);

impl Shard {
    /// A message of a publisher of this shard was routed; `met` is what `Pressing::met` was before.
    #[inline]
    pub(crate) fn note_pressing(&mut self, publication: &Publication<'_>, met: u64, now: Timestamp) {
        if self.gate.pressing.met != met {
            self.gate.pressing.note(publication.origin, now);
        }
    }

    /// The same for a message from another shard, which is told.
    #[inline]
    pub(crate) fn tell_pressing(&mut self, from: usize, publication: &Publication<'_>, met: u64, now: Timestamp) {
        if self.gate.pressing.met != met && self.gate.pressing.note(publication.origin, now) {
            let outgoing = self.outgoing.get_mut(from).map(|outgoing| &mut outgoing.messages);
            if let Some(outgoing) = outgoing.filter(|outgoing| outgoing.len() < BATCH_BYTES_MAX) {
                Envelope::Pressing { origin: publication.origin }.write(outgoing);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressing_is_forgotten_after_two_seconds_and_told_once_in_one() {
        let at = |millis: u64| Timestamp::ZERO + Duration::from_millis(millis);
        let mut pressing = Pressing::new(1);
        assert!(!pressing.contains(7, at(0)));
        assert!(pressing.note(7, at(100)) && !pressing.note(7, at(900)) && pressing.note(7, at(1000)));
        assert!(pressing.contains(7, at(2999)) && !pressing.contains(7, at(3000)) && !pressing.contains(8, at(1000)));
    }

    #[test]
    fn the_table_is_bounded_and_clears_itself() {
        let at = |secs: u64| Timestamp::ZERO + Duration::from_secs(secs);
        let mut pressing = Pressing::new(1);
        let noted = (0..2 * PRESSING_MAX as u64).filter(|origin| pressing.note(*origin, at(5))).count();
        assert_eq!((noted, pressing.by_origin.len()), (PRESSING_MAX, PRESSING_MAX));
        assert!(pressing.note(u64::MAX, at(7)));
        assert_eq!(pressing.by_origin.len(), 1);
    }
}
