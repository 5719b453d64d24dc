//! Topic names and topic filters (section 4.7), shared subscriptions included (section 4.8.2).
//!
//! Names and filters stay ordinary `&str`; what the rules say about them is checked once, here, for whoever needs it:
//! the codec, the broker's configuration, a client's arguments. `$share/…` is read in every version: 3.1.1 does not
//! forbid it, and brokers offer it there too.

use crate::error::{Parse, Violation, violation};
use crate::limits::Limits;

const SHARE: &str = "$share/";

/// Check a topic name: what a message is published to.
#[inline]
pub fn check_name(name: &str, limits: &Limits) -> Result<(), &'static Violation> {
    let bytes = name.as_bytes();
    if has_forbidden(bytes) {
        return Err(forbidden(bytes));
    }
    if bytes.is_empty() {
        return Err(violation!(TopicNameInvalid, "topic name is empty", "MQTT-4.7.3-1"));
    }
    if bytes.len() > limits.topic_bytes_max {
        return Err(violation!(TopicNameInvalid, "topic name too long", "MQTT-4.7.3-3"));
    }
    if too_deep(bytes, limits) {
        return Err(violation!(TopicNameInvalid, "topic name has too many levels", "4.7.3"));
    }
    Ok(())
}

/// A topic filter that obeys the rules: what is subscribed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TopicFilter<'a> {
    text: &'a str,
    share: Option<SharedFilter<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SharedFilter<'a> {
    group: &'a str,
    pattern: &'a str,
}

impl<'a> TopicFilter<'a> {
    /// Check a filter, taking `$share/group/pattern` apart.
    pub fn parse(text: &'a str, limits: &Limits) -> Result<Self, &'static Violation> {
        if text.as_bytes().contains(&0) {
            return Err(crate::text::NUL);
        }
        if text.len() > limits.topic_bytes_max {
            return Err(violation!(TopicFilterInvalid, "topic filter too long", "MQTT-4.7.3-3"));
        }
        let filter = Self::split(text);
        if let Some(SharedFilter { group, .. }) = filter.share {
            check_group(group)?;
        }
        check_pattern(filter.pattern(), limits)?;
        Ok(filter)
    }

    /// Take a filter apart that was checked before.
    pub(crate) fn split(text: &'a str) -> Self {
        let share = text.strip_prefix(SHARE).map(|shared| {
            // Without a second slash there is no pattern; the empty one is refused by `check_pattern`.
            let (group, pattern) = shared.split_once('/').unwrap_or((shared, ""));
            SharedFilter { group, pattern }
        });
        Self { text, share }
    }

    /// The whole filter, as it was sent.
    pub fn as_str(&self) -> &'a str {
        self.text
    }

    /// The group of a shared subscription.
    pub fn group(&self) -> Option<&'a str> {
        self.share.map(|share| share.group)
    }

    /// What topic names are compared with: the filter, or the part after the group.
    pub fn pattern(&self) -> &'a str {
        self.share.map_or(self.text, |share| share.pattern)
    }

    /// True if `+` or `#` occurs in the pattern.
    pub fn has_wildcard(&self) -> bool {
        self.pattern().bytes().any(|byte| matches!(byte, b'+' | b'#'))
    }

    /// True if a message published to `name` is for this filter. Compares level by level, without an index: for
    /// clients, and as the oracle of faster matchers.
    pub fn matches(&self, name: &str) -> bool {
        matches(self.pattern(), name)
    }
}

/// True if a message published to `name` is for this pattern, which has been checked: a filter without its share.
pub fn matches(pattern: &str, name: &str) -> bool {
    // [MQTT-4.7.2-1] A leading wildcard does not match topics that begin with `$`.
    if name.starts_with('$') && pattern.starts_with(['+', '#']) {
        return false;
    }
    let mut levels = name.split('/');
    for wanted in pattern.split('/') {
        // `#` also matches the parent level, so it is looked at before the name may run out.
        if wanted == "#" {
            return true;
        }
        match levels.next() {
            Some(level) if wanted == "+" || wanted == level => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}

fn check_group(group: &str) -> Parse<()> {
    if group.is_empty() {
        return Err(violation!(TopicFilterInvalid, "share name is empty", "MQTT-4.8.2-1"));
    }
    if group.bytes().any(|byte| matches!(byte, b'+' | b'#')) {
        return Err(violation!(TopicFilterInvalid, "wildcard in a share name", "MQTT-4.8.2-2"));
    }
    Ok(())
}

fn check_pattern(pattern: &str, limits: &Limits) -> Parse<()> {
    let bytes = pattern.as_bytes();
    if bytes.is_empty() {
        return Err(violation!(TopicFilterInvalid, "topic filter is empty", "MQTT-4.7.3-1"));
    }
    if too_deep(bytes, limits) {
        return Err(violation!(TopicFilterInvalid, "topic filter has too many levels", "4.7.3"));
    }
    let mut level = LevelContent::Begins;
    for &byte in bytes {
        level = match (level, byte) {
            (LevelContent::Hash, b'/') => {
                return Err(violation!(TopicFilterInvalid, "# is not the last level", "MQTT-4.7.1-1"));
            }
            (LevelContent::Hash, _) | (LevelContent::Text, b'#') => {
                return Err(violation!(TopicFilterInvalid, "# shares its level", "MQTT-4.7.1-1"));
            }
            (_, b'/') => LevelContent::Begins,
            (LevelContent::Plus, _) | (LevelContent::Text, b'+') => {
                return Err(violation!(TopicFilterInvalid, "+ shares its level", "MQTT-4.7.1-2"));
            }
            (LevelContent::Begins, b'#') => LevelContent::Hash,
            (LevelContent::Begins, b'+') => LevelContent::Plus,
            _ => LevelContent::Text,
        };
    }
    Ok(())
}

/// What the level of a filter consists of so far.
#[derive(Clone, Copy)]
enum LevelContent {
    Begins,
    Text,
    Plus,
    Hash,
}

/// True if U+0000 or a wildcard occurs in a topic name.
///
/// Eight bytes at a time, the last eight overlapping: 1–2 ns for 26 bytes where a loop over bytes took 13, on the path
/// of every message.
#[inline]
fn has_forbidden(bytes: &[u8]) -> bool {
    let Some(last) = bytes.last_chunk::<8>() else {
        return bytes.iter().any(|byte| matches!(byte, 0 | b'+' | b'#'));
    };
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().chain([last]).fold(0, |found, &word| found | forbidden_in_word(u64::from_ne_bytes(word))) != 0
}

/// Not zero if one of the eight bytes is zero, `+` or `#`.
#[inline]
const fn forbidden_in_word(word: u64) -> u64 {
    // `+` is 0x2b and `#` is 0x23: with bit 3 set they are the same, and no other byte is.
    let wildcard_is_zero = (word | (ONES * 0x08)) ^ (ONES * b'+' as u64);
    (zero_in(word) | zero_in(wildcard_is_zero)) & (ONES * 0x80)
}

/// The upper bit of a byte is set if that byte, or one that borrowed from it, is zero.
#[inline]
const fn zero_in(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word
}

const ONES: u64 = u64::from_ne_bytes([1; 8]);

#[cold]
fn forbidden(bytes: &[u8]) -> &'static Violation {
    if bytes.contains(&0) {
        return crate::text::NUL;
    }
    violation!(TopicNameInvalid, "wildcard in a topic name", "MQTT-3.3.2-2")
}

#[inline]
fn too_deep(bytes: &[u8], limits: &Limits) -> bool {
    // n bytes make at most n + 1 levels: nearly every real topic is done here, without counting.
    bytes.len() >= limits.topic_levels_max && bytes.split(|&byte| byte == b'/').nth(limits.topic_levels_max).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::ReasonCode;
    use std::string::String;

    fn name(text: &str) -> Result<(), &'static str> {
        check_name(text, &Limits::default()).map_err(|violation| violation.section)
    }

    fn filter(text: &str) -> Result<TopicFilter<'_>, &'static str> {
        TopicFilter::parse(text, &Limits::default()).map_err(|violation| violation.section)
    }

    #[test]
    fn names_may_be_anything_but_wildcards_nul_and_nothing() {
        for good in ["a", "/", "//", "a b/ü", "$SYS/x", "\u{feff}"] {
            assert_eq!(name(good), Ok(()), "{good}");
        }
        assert_eq!(name("a/+"), Err("MQTT-3.3.2-2"));
        assert_eq!(name("a#b"), Err("MQTT-3.3.2-2"));
        assert_eq!(name("a\0b"), Err("MQTT-1.5.4-2"));
        assert_eq!(name(""), Err("MQTT-4.7.3-1"));
    }

    #[test]
    fn a_forbidden_byte_is_found_at_every_place_and_no_other_byte_is() {
        for len in 1..40 {
            for at in 0..len {
                for byte in 0..=u8::MAX {
                    let mut bytes = std::vec![0xff; len];
                    bytes[at] = byte;
                    assert_eq!(has_forbidden(&bytes), matches!(byte, 0 | b'+' | b'#'), "{byte:x} at {at} of {len}");
                }
            }
        }
    }

    #[test]
    fn depth_is_limited_exactly() {
        let limits = Limits { topic_levels_max: 4, ..Limits::default() };
        assert!(check_name("a/b/c/d", &limits).is_ok());
        let refused = check_name("a/b/c/d/e", &limits).unwrap_err();
        assert_eq!(refused.reason, ReasonCode::TopicNameInvalid);
        assert!(TopicFilter::parse("$share/g/a/b/c/d", &limits).is_ok());
        assert!(TopicFilter::parse("a/b/c/d/#", &limits).is_err());
        let slashes = "/".repeat(65_535);
        assert_eq!(name(&slashes), Err("4.7.3"));
        assert_eq!(filter(&slashes), Err("4.7.3"));
    }

    #[test]
    fn length_is_limited_exactly() {
        let limits = Limits { topic_bytes_max: 3, ..Limits::default() };
        assert!(check_name("abc", &limits).is_ok());
        assert!(check_name("abcd", &limits).is_err());
        assert!(TopicFilter::parse("abcd", &limits).is_err());
    }

    #[test]
    fn wildcards_stand_alone_and_hash_stands_last() {
        for good in ["#", "+", "+/+", "a/#", "/+", "+/", "a/+/b", "//#", "$SYS/#"] {
            assert!(filter(good).is_ok(), "{good}");
        }
        for bad in ["a/#/b", "#/", "a#", "#a", "a/b#"] {
            assert_eq!(filter(bad), Err("MQTT-4.7.1-1"), "{bad}");
        }
        for bad in ["a+", "+a", "a/+b/c", "++"] {
            assert_eq!(filter(bad), Err("MQTT-4.7.1-2"), "{bad}");
        }
    }

    #[test]
    fn shared_filters_have_a_group_and_a_pattern() {
        let shared = filter("$share/g/a/+").unwrap();
        assert_eq!((shared.group(), shared.pattern()), (Some("g"), "a/+"));
        assert_eq!(shared.as_str(), "$share/g/a/+");
        assert_eq!(filter("$share/g//x").unwrap().pattern(), "/x");
        assert_eq!(filter("$share").unwrap().group(), None);
        assert_eq!(filter("$share//x"), Err("MQTT-4.8.2-1"));
        assert_eq!(filter("$share/g"), Err("MQTT-4.7.3-1"));
        assert_eq!(filter("$share/g/"), Err("MQTT-4.7.3-1"));
        assert_eq!(filter("$share/g+/x"), Err("MQTT-4.8.2-2"));
        assert_eq!(filter("$share/#/x"), Err("MQTT-4.8.2-2"));
    }

    #[test]
    fn matching_follows_the_examples_of_section_4_7() {
        let table = [
            ("sport/tennis/player1/#", "sport/tennis/player1", true),
            ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", true),
            ("sport/#", "sport", true),
            ("#", "a/b", true),
            ("sport/+", "sport", false),
            ("sport/+", "sport/", true),
            ("+/+", "/finance", true),
            ("/+", "/finance", true),
            ("+", "/finance", false),
            ("#", "$SYS/x", false),
            ("+/monitor/Clients", "$SYS/monitor/Clients", false),
            ("$SYS/#", "$SYS/x", true),
            ("$share/g/a/+", "a/b", true),
            ("a/b", "a/b/c", false),
        ];
        for (pattern, name, expected) in table {
            assert_eq!(filter(pattern).unwrap().matches(name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_name_without_wildcards_is_a_filter_that_matches_itself() {
        let long = String::from("a/").repeat(20);
        let same = filter(&long).unwrap();
        assert!(same.matches(&long) && !same.has_wildcard());
    }
}
