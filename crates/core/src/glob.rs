//! Patterns for client identifiers: `*` stands for any run of characters, everything else for itself.
//!
//! Only one wildcard and no classes: enough for `sensor-*` and `*-test`, and matched in one pass over the text, without
//! the backtracking that makes general globs slow on purpose-made names.

use alloc::boxed::Box;

/// One pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    /// The text between the stars: one part means no star.
    parts: Box<[Box<str>]>,
}

impl Glob {
    /// From its text.
    pub fn new(pattern: &str) -> Self {
        Self { parts: pattern.split('*').map(Into::into).collect() }
    }

    /// Whether the whole text is meant.
    pub fn matches(&self, text: &str) -> bool {
        let (first, middle, last) = match &*self.parts {
            [] => return false,
            [only] => return **only == *text,
            [first, middle @ .., last] => (first, middle, last),
        };
        let Some(mut rest) = text.strip_prefix(&**first).and_then(|rest| rest.strip_suffix(&**last)) else {
            return false;
        };
        // The leftmost place is always as good as any later one.
        middle.iter().all(|part| match rest.split_once(&**part) {
            Some((_, behind)) => {
                rest = behind;
                true
            }
            None => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, with all its backtracking.
    fn naive(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (Some((b'*', more)), _) if naive(more, text) => true,
            (Some((b'*', _)), Some((_, rest))) => naive(pattern, rest),
            (Some((one, more)), Some((other, rest))) => one == other && naive(more, rest),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn a_pattern_matches_what_the_definition_says(pattern in "[ab*]{0,7}", text in "[ab]{0,8}") {
            prop_assert_eq!(Glob::new(&pattern).matches(&text), naive(pattern.as_bytes(), text.as_bytes()));
        }
    }

    #[test]
    fn prefix_and_suffix_do_not_share_characters() {
        assert!(!Glob::new("ab*ba").matches("aba"));
        assert!(Glob::new("ab*ba").matches("abba"));
    }
}
