//! Which topics a change of subscriptions may concern: what was matched before is good for all others.
//!
//! A filter can only match topics that begin with the levels before its first wildcard. So each change is counted once,
//! under these levels, in one of a fixed number of counters; and a topic has to look at the counters of all its
//! beginnings, up to a depth. Two beginnings that share a counter cost a match too many now and then, and nothing else.

use alloc::boxed::Box;
use alloc::vec;

use crate::limits::{CHANGE_COUNTERS, CHANGE_LEVELS_MAX};

#[derive(Debug)]
pub(crate) struct Changes {
    counters: Box<[u64]>,
    seed: u64,
    total: u64,
}

/// What a topic has to look at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TopicWatch {
    counters: [u16; CHANGE_LEVELS_MAX + 1],
    len: u8,
    /// They only grow, so that their sum stays the same as long as each of them does.
    sum: u64,
}

impl Changes {
    pub(super) fn new(seed: u64) -> Self {
        Self { counters: vec![0; CHANGE_COUNTERS].into_boxed_slice(), seed, total: 0 }
    }

    /// How many there were.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Something has changed at this filter.
    pub(super) fn note(&mut self, filter: &str) {
        self.total += 1;
        let end = literal_len(filter);
        let hash = filter.as_bytes()[..end].iter().fold(self.seed, |hash, byte| mix(hash, *byte));
        self.counters[usize::from(counter(hash))] += 1;
    }

    /// Matches of this topic are good as long as `holds` says so of the watch.
    pub(crate) fn watch(&self, topic: &str) -> TopicWatch {
        let mut watch = TopicWatch::default();
        let mut hash = self.seed;
        // Nothing, as the beginning of filters that begin with a wildcard.
        watch.add(hash);
        for byte in topic.bytes() {
            if byte == b'/' && watch.add(hash) == Depth::Enough {
                break;
            }
            hash = mix(hash, byte);
        }
        watch.add(hash);
        watch.sum = self.sum(&watch);
        watch
    }

    /// Whether nothing has changed that could concern the topic.
    pub(crate) fn holds(&self, watch: &TopicWatch) -> bool {
        self.sum(watch) == watch.sum
    }

    fn sum(&self, watch: &TopicWatch) -> u64 {
        watch.counters[..usize::from(watch.len)].iter().map(|counter| self.counters[usize::from(*counter)]).sum()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    More,
    Enough,
}

impl TopicWatch {
    /// Another beginning to look at, if there is room for it.
    fn add(&mut self, hash: u64) -> Depth {
        let Some(place) = self.counters.get_mut(usize::from(self.len)) else { return Depth::Enough };
        *place = counter(hash);
        self.len += 1;
        Depth::More
    }
}

/// A hash of a beginning that goes on to be one of a longer beginning. Whoever finds two that meet gains nothing.
fn mix(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
}

fn counter(hash: u64) -> u16 {
    ((hash ^ hash >> 32) as usize % CHANGE_COUNTERS) as u16
}

/// Where the levels before the first wildcard end, and at most so many of them.
fn literal_len(filter: &str) -> usize {
    let mut end = 0;
    for (number, level) in filter.split('/').take(CHANGE_LEVELS_MAX).enumerate() {
        if level == "+" || level == "#" {
            break;
        }
        end += level.len() + usize::from(number > 0);
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec::Vec;

    #[test]
    fn a_change_concerns_the_topics_that_its_filter_may_match() {
        let mut changes = Changes::new(7);
        let concerns = |changes: &mut Changes, filter: &str, topic: &str| {
            let watch = changes.watch(topic);
            assert!(changes.holds(&watch));
            changes.note(filter);
            !changes.holds(&watch)
        };
        for (filter, topic) in [
            ("#", "a"),
            ("+", "a"),
            ("+/b", "a/b"),
            ("a", "a"),
            ("a/#", "a"),
            ("a/b/+", "a/b/c"),
            ("/a", "/a"),
            ("/+", "/a"),
            ("a//b", "a//b"),
        ] {
            assert!(concerns(&mut changes, filter, topic), "{filter} {topic}");
        }
        for (filter, topic) in [("a", "b"), ("a/b", "a/c"), ("a/b/#", "a/c/d"), ("ab", "a"), ("a/bc/+", "a/b/c")] {
            assert!(!concerns(&mut changes, filter, topic), "{filter} {topic}");
        }
        // Deeper than anybody looks.
        let deep: Vec<String> = (0..30).map(|level| alloc::format!("{level}")).collect();
        assert!(concerns(&mut changes, &deep.join("/"), &deep.join("/")));
        assert!(concerns(&mut changes, &alloc::format!("{}/#", deep.join("/")), &deep.join("/")));
    }
}
