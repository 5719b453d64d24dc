//! Which names of a household are believed to be clients of their own. A name costs nothing, so one that was never heard
//! before gains nothing: newcomers of a household share one line, whatever they call themselves, until each has come a few
//! times. Whoever calls itself something else in each request stays among them for ever.
//!
//! ```text
//! known                             a line of its own, and its want is counted
//! heard fewer times than it takes   the newcomers' line of its household
//! ```
//! Numbers only, of names that were hashed by a secret key. Everything is bounded: newcomers in a table of fixed size, in which
//! another may take their slot; known ones in two generations, of which the older is forgotten when the younger is full or
//! old; and of one household no more than a part, so that it cannot make others forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_control::Timestamp;

#[derive(Debug)]
pub(super) struct NameBook {
    newcomers: Vec<Newcomer>,
    young: Generation,
    old: Generation,
    /// When the young ones began to be counted.
    since: Timestamp,
}

#[derive(Clone, Copy, Debug, Default)]
struct Newcomer {
    client: u64,
    heard: u32,
}

#[derive(Debug, Default)]
struct Generation {
    households: BTreeMap<u64, BTreeSet<u64>>,
    names: usize,
}

impl Generation {
    fn has(&self, household: u64, client: u64) -> bool {
        self.households.get(&household).is_some_and(|names| names.contains(&client))
    }

    /// False if its household has as many as one may have.
    fn add(&mut self, household: u64, client: u64) -> bool {
        let names = self.households.entry(household).or_default();
        if names.len() >= NAMES_OF_HOUSEHOLD_MAX {
            return names.contains(&client);
        }
        self.names += usize::from(names.insert(client));
        true
    }
}

impl Default for NameBook {
    fn default() -> Self {
        Self { newcomers: Vec::new(), young: Generation::default(), old: Generation::default(), since: Timestamp::ZERO }
    }
}

impl NameBook {
    /// A client of a household has come; whether it is known.
    pub(super) fn on_heard(&mut self, now: Timestamp, household: u64, client: u64) -> bool {
        if self.young.has(household, client) {
            return true;
        }
        if self.young.names >= NAMES_MAX || now.since(self.since) >= GENERATION_TIME {
            self.old = std::mem::take(&mut self.young);
            self.since = now;
        }
        if self.old.has(household, client) || self.is_heard_enough(client) {
            return self.young.add(household, client);
        }
        false
    }

    /// Whether a client is known, without having come.
    pub(super) fn knows(&self, household: u64, client: u64) -> bool {
        self.young.has(household, client) || self.old.has(household, client)
    }

    fn is_heard_enough(&mut self, client: u64) -> bool {
        if self.newcomers.is_empty() {
            self.newcomers.resize(NEWCOMERS, Newcomer::default());
        }
        let place = usize::try_from(client % NEWCOMERS as u64).unwrap_or(0);
        let Some(slot) = self.newcomers.get_mut(place) else { return false };
        if slot.client != client {
            *slot = Newcomer { client, heard: 0 };
        }
        slot.heard += 1;
        let is_enough = slot.heard >= HEARD_ENOUGH;
        if is_enough {
            *slot = Newcomer::default();
        }
        is_enough
    }
}

/// Requests by which a newcomer is known: with fewer, somebody with two names for each thing it asks would have two shares.
pub(super) const HEARD_ENOUGH: u32 = 4;
/// Newcomers that are remembered: as many as come within a few seconds.
const NEWCOMERS: usize = 4096;
/// Names of one generation, and of one household in it.
const NAMES_MAX: usize = 16_384;
const NAMES_OF_HOUSEHOLD_MAX: usize = 2048;
/// Whoever asks less often than this is new each time.
const GENERATION_TIME: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_name_is_known_when_it_has_come_a_few_times_and_another_each_time_never_is() {
        let mut book = NameBook::default();
        let heard: Vec<bool> = (0..6).map(|n| book.on_heard(at(n), 1, 77)).collect();
        assert_eq!(heard, [false, false, false, true, true, true]);
        assert!((0..100_000).all(|name| !book.on_heard(at(9), 1, 1_000_000 + name)));
        assert!(book.knows(1, 77), "whoever comes under many names makes nobody forgotten");
        assert!(book.on_heard(at(9), 1, 77));
    }

    #[test]
    fn a_household_with_very_many_names_has_no_more_than_its_part_and_what_is_kept_is_bounded() {
        let mut book = NameBook::default();
        for household in 0..20 {
            for name in 0..3000 {
                for _ in 0..HEARD_ENOUGH {
                    book.on_heard(at(1), household, household * 10_000 + name);
                }
            }
        }
        let sizes = [&book.young, &book.old].map(|generation| generation.names);
        assert!(sizes.iter().all(|size| *size <= NAMES_MAX), "{sizes:?}");
        let all = [&book.young, &book.old].into_iter().flat_map(|generation| generation.households.values());
        assert!(all.into_iter().all(|names| names.len() <= NAMES_OF_HOUSEHOLD_MAX));
    }

    #[test]
    fn who_was_not_heard_for_long_is_new() {
        let mut book = NameBook::default();
        for _ in 0..HEARD_ENOUGH {
            book.on_heard(at(1), 1, 5);
        }
        assert!(book.on_heard(at(3_000), 1, 5));
        for seconds in [4_000, 8_000, 12_000] {
            book.on_heard(at(seconds), 1, 6);
        }
        assert!(!book.on_heard(at(12_001), 1, 5));
    }
}
