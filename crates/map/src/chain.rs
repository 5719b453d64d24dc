//! How long a chain of messages is: a message makes a change, the change wakes a standing query, the query makes a message.
//! Lengths are carried through the smart space by its versions. What cannot be told apart is taken for the longer chain,
//! so that a circle always ends.

use std::collections::VecDeque;

use crate::limits::{CHAIN_MAX, CHANGES_MAX};

/// Lengths of the latest changes that maps have made because of messages of maps.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// Version and length, in order.
    changes: VecDeque<(u64, u8)>,
    /// How many changes of each length are under way: which version they lead to is not known yet.
    under_way: [usize; CHAIN_MAX as usize + 1],
}

impl Chain {
    /// A message of this length is about to change something. Messages of clients have the length 0.
    pub fn begin(&mut self, length: u8) {
        self.under_way[usize::from(length.min(CHAIN_MAX))] += 1;
    }

    /// It has, and has led to this version; or it has changed nothing.
    pub fn end(&mut self, length: u8, version: Option<u64>) {
        let length = length.min(CHAIN_MAX);
        let under_way = &mut self.under_way[usize::from(length)];
        *under_way = under_way.saturating_sub(1);
        let (Some(version), 1..) = (version, length) else { return };
        if self.changes.len() >= CHANGES_MAX {
            // The length of what is forgotten is remembered with the next, which is not shorter than it was.
            if let (Some((_, forgotten)), Some((_, next))) = (self.changes.pop_front(), self.changes.front_mut()) {
                *next = (*next).max(forgotten);
            }
        }
        self.changes.push_back((version, length));
    }

    /// The length of a message about what changed after one version up to another.
    pub fn length(&self, after: u64, until: u64) -> u8 {
        // A change may have led to several versions, of which only the last is noted: the next one counts, too.
        let later = self.changes.iter().filter(|(version, _)| *version > after);
        let mut longest = self.under_way.iter().rposition(|count| *count > 0).unwrap_or(0) as u8;
        for (version, length) in later {
            longest = longest.max(*length);
            if *version >= until {
                break;
            }
        }
        longest + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(chain: &mut Chain, version: u64, length: u8) {
        chain.begin(length);
        chain.end(length, Some(version));
    }

    #[test]
    fn a_message_is_one_longer_than_what_it_is_about() {
        let mut chain = Chain::default();
        assert_eq!(chain.length(0, 10), 1);
        note(&mut chain, 3, 0);
        note(&mut chain, 5, 1);
        note(&mut chain, 8, 3);
        assert_eq!(chain.length(0, 5), 2);
        assert_eq!(chain.length(0, 8), 4, "several changes in one message: the longest");
        assert_eq!(chain.length(5, 8), 4);
        assert_eq!(chain.length(5, 6), 4, "which of the versions up to 8 it was is not known");
        assert_eq!(chain.length(8, 9), 1);
    }

    #[test]
    fn what_is_under_way_may_have_been_it() {
        let mut chain = Chain::default();
        chain.begin(2);
        assert_eq!(chain.length(0, 1), 3);
        chain.end(2, None);
        assert_eq!(chain.length(0, 1), 1, "it has changed nothing");
    }

    #[test]
    fn a_circle_ends_however_much_is_forgotten() {
        let mut chain = Chain::default();
        for version in 2..=2 * CHANGES_MAX as u64 {
            let length = chain.length(version - 2, version - 1).min(CHAIN_MAX);
            note(&mut chain, version, length);
        }
        assert_eq!(chain.length(u64::MAX - 1, u64::MAX), 1);
        assert_eq!(chain.length(2 * CHANGES_MAX as u64 - 2, 2 * CHANGES_MAX as u64), CHAIN_MAX + 1);
        assert_eq!(chain.changes.len(), CHANGES_MAX);
    }
}
