//! Tokens that were taken back: for each user the time until which what was made for it counts for nothing. A token that does
//! not say when it was made is one of those.
//!
//! As a file: a line for each user, the seconds since 1970 and the name, `1763424000 lamp`.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::limits::REVOKED_MAX;
use crate::text::is_principal;

/// Whose tokens were taken back, and until when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevokedTokens(BTreeMap<Box<str>, u64>);

/// There are as many users in it as there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevokedFull;

impl RevokedTokens {
    /// Reads a file; the number of a line that is none.
    pub fn parse(text: &str) -> Result<Self, usize> {
        let mut found = Self::default();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
            let parts = line.split_once(' ').and_then(|(until, user)| Some((until.parse().ok()?, user)));
            let (until, user) = parts.filter(|(_, user)| is_principal(user)).ok_or(number + 1)?;
            found.revoke(user, until).map_err(|_| number + 1)?;
        }
        Ok(found)
    }

    /// The file.
    pub fn to_text(&self) -> String {
        self.0.iter().fold(String::new(), |mut text, (user, until)| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{until} {user}");
            text
        })
    }

    /// All tokens of this user that were made until then are taken back.
    pub fn revoke(&mut self, user: &str, until: u64) -> Result<(), RevokedFull> {
        if !self.0.contains_key(user) && self.0.len() >= REVOKED_MAX {
            return Err(RevokedFull);
        }
        let known = self.0.entry(user.into()).or_insert(until);
        *known = until.max(*known);
        Ok(())
    }

    /// Until when those of this user are taken back.
    pub fn until(&self, user: &str) -> Option<u64> {
        self.0.get(user).copied()
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(user, until)| (&**user, *until))
    }

    /// Whether a token of this user is one of those.
    pub(super) fn covers(&self, user: &str, made: Option<u64>) -> bool {
        self.until(user).is_some_and(|until| made.is_none_or(|made| made <= until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_back_and_a_wrong_line_is_named() {
        let mut revoked = RevokedTokens::default();
        for (user, until) in [("lamp 1", 10), ("door", 7), ("door", 5)] {
            revoked.revoke(user, until).unwrap();
        }
        assert_eq!(revoked.to_text(), "7 door\n10 lamp 1\n");
        assert_eq!(RevokedTokens::parse(&revoked.to_text()), Ok(revoked.clone()));
        assert!(revoked.covers("door", Some(7)) && revoked.covers("door", None) && !revoked.covers("door", Some(8)));
        assert!(!revoked.covers("nobody", None));
        for (text, line) in [("7\n", 1), ("7 a\nx b\n", 2), ("7 \n", 1)] {
            assert_eq!(RevokedTokens::parse(text), Err(line), "{text:?}");
        }
    }
}
