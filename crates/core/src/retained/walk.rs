//! A walk over all topics that match a filter, in order, that can stop and go on at any time.
//!
//! A key is a topic with its levels ended by the lowest byte instead of a slash. Keys in the order of their bytes are
//! then topics in the order of their levels, with everything below a topic right behind it; and from any key it can be
//! said which is the lowest one behind it that may match. So a walk does not look at what lies between: it is as long as
//! what it finds, plus what its wildcards make it try.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;

pub(super) type Key = Arc<[u8]>;

/// No topic contains this character.
const END: u8 = 0;

pub(super) fn write_key(topic: &str, key: &mut Vec<u8>) {
    key.clear();
    key.extend(topic.bytes().map(|byte| if byte == b'/' { END } else { byte }));
}

/// Where a walk stands.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    filter: Vec<u8>,
    /// Everything before this has been seen.
    from: Vec<u8>,
}

pub(super) enum WalkVerdict {
    Match,
    /// The walk has moved to where the next match may be.
    Elsewhere,
    End,
}

impl Walk {
    pub(crate) fn new(filter: &str) -> Self {
        let mut walk = Self { filter: Vec::new(), from: Vec::new() };
        write_key(filter, &mut walk.filter);
        walk.seek(&[], 0);
        walk
    }

    pub(super) fn from(&self) -> &[u8] {
        &self.from
    }

    /// Where it stands, for going on later.
    pub(super) fn place(&self) -> &[u8] {
        &self.from
    }

    /// Goes on from a place where a walk with the same filter stood. Any other leads nowhere, or sees things again.
    pub(super) fn resume_from(&mut self, place: Vec<u8>) {
        self.from = place;
    }

    /// Leaves the topic that was found behind.
    pub(crate) fn advance(&mut self) {
        // There is no key between one and the same with the lowest byte behind it.
        self.from.push(END);
    }

    /// Whether the first key behind `from` matches; if not, where to look next.
    pub(super) fn judge(&mut self, key: &[u8]) -> WalkVerdict {
        // Where the level begins that is compared, in the filter and in the key; behind the end if there is none.
        let (mut in_filter, mut in_key) = (0, 0);
        // Where the level of the key ends that the last `+` stands for.
        let mut last_plus = None;
        while in_filter <= self.filter.len() {
            let wanted = level_at(&self.filter, in_filter);
            // [MQTT-4.7.2-1] A leading wildcard does not match topics that begin with `$`.
            if in_filter == 0 && matches!(wanted, b"#" | b"+") && key.first() == Some(&b'$') {
                return self.go_to(&[], b'$' + 1);
            }
            if wanted == b"#" {
                return self.stay(key);
            }
            if in_key > key.len() {
                // Shorter than anything that matches.
                let below = [key, &[END]].concat();
                return self.seek(&below, in_filter);
            }
            let level = level_at(key, in_key);
            if wanted == b"+" {
                last_plus = Some(in_key + level.len());
            } else {
                match level.cmp(wanted) {
                    Ordering::Equal => {}
                    Ordering::Less => return self.seek(&key[..in_key], in_filter),
                    Ordering::Greater => return self.skip(key, last_plus),
                }
            }
            in_filter += wanted.len() + 1;
            in_key += level.len() + 1;
        }
        if in_key > key.len() { self.stay(key) } else { self.skip(key, last_plus) }
    }

    fn stay(&mut self, key: &[u8]) -> WalkVerdict {
        self.from.clear();
        self.from.extend_from_slice(key);
        WalkVerdict::Match
    }

    /// To the first key that begins like this and goes on with the levels of the filter up to its next wildcard.
    fn seek(&mut self, beginning: &[u8], in_filter: usize) -> WalkVerdict {
        self.from.clear();
        self.from.extend_from_slice(beginning);
        let mut at = in_filter;
        while at <= self.filter.len() {
            let level = level_at(&self.filter, at);
            if matches!(level, b"#" | b"+") {
                break;
            }
            if at > in_filter {
                self.from.push(END);
            }
            self.from.extend_from_slice(level);
            at += level.len() + 1;
        }
        WalkVerdict::Elsewhere
    }

    /// Behind everything in which the last `+` stands for the same level; without one there is nothing more.
    fn skip(&mut self, key: &[u8], last_plus: Option<usize>) -> WalkVerdict {
        match last_plus {
            Some(end) => self.go_to(&key[..end], END + 1),
            None => WalkVerdict::End,
        }
    }

    fn go_to(&mut self, beginning: &[u8], next: u8) -> WalkVerdict {
        self.from.clear();
        self.from.extend_from_slice(beginning);
        self.from.push(next);
        WalkVerdict::Elsewhere
    }
}

/// The level that begins here.
fn level_at(key: &[u8], start: usize) -> &[u8] {
    let rest = key.get(start..).unwrap_or_default();
    rest.split(|byte| *byte == END).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::string::String;
    use proptest::prelude::*;
    use tidegate_wire_mqtt::{Limits, TopicFilter};

    fn text(levels: &'static [&'static str]) -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(levels), 1..5).prop_map(|levels| levels.join("/"))
    }

    fn filter() -> impl Strategy<Value = String> {
        (text(&["a", "b", "ab", "", "+", "$x"]), any::<bool>())
            .prop_map(|(text, hash)| if hash { text + "/#" } else { text })
            .prop_filter("no filter", |text| TopicFilter::parse(text, &Limits::default()).is_ok())
    }

    fn topic() -> impl Strategy<Value = String> {
        text(&["a", "b", "ab", "", "$x", "a\u{1}", "%", "z"]).prop_filter("no topic", |topic| !topic.is_empty())
    }

    proptest! {
        #[test]
        fn a_walk_finds_what_a_filter_matches_and_can_rest_anywhere(
            topics in prop::collection::btree_set(topic(), 0..40),
            filter in prop_oneof![9 => filter(), 1 => Just(String::from("#"))],
        ) {
            let keys: BTreeSet<Vec<u8>> = topics.iter().map(|topic| { let mut key = Vec::new(); write_key(topic, &mut key); key }).collect();
            let (mut walk, mut found, mut steps) = (Walk::new(&filter), Vec::new(), 0);
            while let Some(key) = keys.range(walk.from().to_vec()..).next() {
                steps += 1;
                prop_assert!(steps < 200, "no end");
                let before = walk.from().to_vec();
                match walk.judge(key) {
                    WalkVerdict::Match => {
                        found.push(key.clone());
                        walk.advance();
                    }
                    WalkVerdict::Elsewhere => {}
                    WalkVerdict::End => break,
                }
                prop_assert!(*walk.from() > *before, "forward only");
            }
            let parsed = TopicFilter::parse(&filter, &Limits::default()).unwrap();
            let mut expected: Vec<Vec<u8>> = Vec::new();
            for topic in topics.iter().filter(|topic| parsed.matches(topic)) {
                let mut key = Vec::new();
                write_key(topic, &mut key);
                expected.push(key);
            }
            expected.sort();
            prop_assert_eq!(found, expected);
        }
    }
}
