//! The users: names, password hashes, roles; read from a text and written back.
//!
//! ```text
//! # comments and empty lines stay where they are when the file is written back
//! alice:$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHRzYWx0$…:roles=operator,monitor
//! bob:$7$101$JJN656oYqEK55KYU$…
//! ```
//!
//! The second line is one of mosquitto's: its password files are read as they are. Nothing here opens a file or draws a
//! salt; both are handed in. A text with one bad line gives no users at all, so a broken file cannot open a door.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use crate::fault::{FileError, FileFault};
use crate::limits::{HASH_KINDS_MAX, PASSWORD_BYTES_MAX, ROLES_MAX, USERS_MAX};
use crate::secret::{HashCost, SALT_BYTES, Secret};
use crate::text::{Errors, is_name, lines};

/// A salt, to be drawn from the operating system's generator by the caller.
pub type Salt = [u8; SALT_BYTES];

/// How a password was judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum PasswordVerdict {
    /// It is this user's password.
    Right,
    /// The password is not that of the user.
    Wrong,
    /// There is no such user. It took as long as [`PasswordVerdict::Wrong`]; do not tell the client.
    UnknownUser,
    /// More than [`PASSWORD_BYTES_MAX`] bytes; nothing was hashed.
    TooLong,
}

/// The users of a broker.
#[derive(Clone, Debug, Default)]
pub struct Users {
    people: BTreeMap<Arc<str>, User>,
    layout: Vec<UserFileLine>,
    /// Each cost that occurs, once; at most [`HASH_KINDS_MAX`].
    kinds: Vec<HashCost>,
}

#[derive(Clone, Debug)]
struct User {
    secret: Secret,
    roles: Vec<Arc<str>>,
}

/// A line of the file, to write it back as it was.
#[derive(Clone, Debug)]
enum UserFileLine {
    User(Arc<str>),
    Other(Box<str>),
}

impl Users {
    /// Read a password file, ours or mosquitto's. Either all lines are right, or all errors come back.
    pub fn parse(text: &str) -> Result<Self, Vec<FileError>> {
        let mut users = Self::default();
        let mut first_seen = BTreeMap::new();
        let mut errors = Errors::default();
        lines(text, &mut errors, |number, line| {
            if line.trim().is_empty() || line.starts_with('#') {
                users.layout.push(UserFileLine::Other(line.into()));
                return Ok(());
            }
            let (name, user) = parse_line(line)?;
            if let Some(&before) = first_seen.get(name) {
                return Err(FileFault::NameTwice(before));
            }
            first_seen.insert(name, number);
            users.insert(name, user)
        });
        errors.or(users)
    }

    /// The text of a password file with these users, comments where they were.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for line in &self.layout {
            match line {
                UserFileLine::Other(other) => text.push_str(other),
                UserFileLine::User(name) => {
                    let Some(user) = self.people.get(name) else { continue };
                    // Writing to a String cannot fail.
                    let _ = write!(text, "{name}:{}", user.secret);
                    if !user.roles.is_empty() {
                        let _ = write!(text, ":roles={}", user.roles.join(","));
                    }
                }
            }
            text.push('\n');
        }
        text
    }

    /// Add a user, or give one a new password (its roles stay). Takes as long as a hash takes.
    pub fn add(&mut self, name: &str, password: &[u8], salt: &Salt) -> Result<(), FileFault> {
        if !is_name(name) {
            return Err(FileFault::NameInvalid);
        }
        if !(1..=PASSWORD_BYTES_MAX).contains(&password.len()) {
            return Err(FileFault::PasswordLength);
        }
        let secret = Secret::new(password, salt)?;
        let roles = self.people.get(name).map(|user| user.roles.clone()).unwrap_or_default();
        self.insert(name, User { secret, roles })
    }

    /// Forget a user.
    pub fn remove(&mut self, name: &str) -> Result<(), FileFault> {
        self.people.remove(name).ok_or(FileFault::UserUnknown)?;
        self.layout.retain(|line| !matches!(line, UserFileLine::User(user) if **user == *name));
        self.count_kinds();
        Ok(())
    }

    /// Give a user these roles instead of the ones it has.
    pub fn set_roles(&mut self, name: &str, roles: &[&str]) -> Result<(), FileFault> {
        let user = self.people.get_mut(name).ok_or(FileFault::UserUnknown)?;
        user.roles = check_roles(roles.iter().copied())?;
        Ok(())
    }

    /// Judge a password. The time depends on the file, not on the name: every kind of hash that occurs in the file is
    /// computed once, the user's own for real and the others, or all for an unknown name, for nothing. A file whose
    /// users all have the same kind, the usual case, costs one hash. Slow on purpose: not for a shard's thread.
    pub fn verify(&self, name: &str, password: &[u8]) -> PasswordVerdict {
        if password.len() > PASSWORD_BYTES_MAX {
            return PasswordVerdict::TooLong;
        }
        let mut right = false;
        for (cost, secret) in self.work(name) {
            match secret {
                Some(secret) => right = secret.verify(password),
                None => cost.pay(password),
            }
        }
        match (self.contains(name), right) {
            (false, _) => PasswordVerdict::UnknownUser,
            (true, false) => PasswordVerdict::Wrong,
            (true, true) => PasswordVerdict::Right,
        }
    }

    /// What is computed to judge a password of this name: all costs, with the hash to compare where it is the user's.
    fn work(&self, name: &str) -> impl Iterator<Item = (HashCost, Option<&Secret>)> {
        let own = self.people.get(name).map(|user| &user.secret);
        let kinds = if self.kinds.is_empty() { &[HashCost::OURS][..] } else { &self.kinds };
        kinds.iter().map(move |&cost| (cost, own.filter(|secret| secret.cost() == cost)))
    }

    /// Whether there is such a user.
    pub fn contains(&self, name: &str) -> bool {
        self.people.contains_key(name)
    }

    /// The roles of a user; none if there is no such user.
    pub fn roles(&self, name: &str) -> &[Arc<str>] {
        self.people.get(name).map_or(&[], |user| &user.roles)
    }

    /// All users in the order of their names, with their roles.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &[Arc<str>])> {
        self.people.iter().map(|(name, user)| (name, user.roles.as_slice()))
    }

    /// The stored name, to be shared.
    pub(crate) fn name(&self, name: &str) -> Option<&Arc<str>> {
        self.people.get_key_value(name).map(|(name, _)| name)
    }

    /// The number of users.
    pub fn len(&self) -> usize {
        self.people.len()
    }

    /// Whether there is nobody.
    pub fn is_empty(&self) -> bool {
        self.people.is_empty()
    }

    fn insert(&mut self, name: &str, user: User) -> Result<(), FileFault> {
        let cost = user.secret.cost();
        let is_new_kind = !self.kinds.contains(&cost);
        if is_new_kind && self.kinds.len() == HASH_KINDS_MAX {
            return Err(FileFault::TooManyHashKinds);
        }
        if let Some(known) = self.people.get_mut(name) {
            *known = user;
            self.count_kinds();
            return Ok(());
        }
        if self.people.len() == USERS_MAX {
            return Err(FileFault::TooManyUsers);
        }
        if is_new_kind {
            self.kinds.push(cost);
        }
        let name: Arc<str> = name.into();
        self.layout.push(UserFileLine::User(Arc::clone(&name)));
        self.people.insert(name, user);
        Ok(())
    }

    /// After somebody is gone or has another hash: a kind that nobody has any more should cost nothing.
    fn count_kinds(&mut self) {
        self.kinds.clear();
        for user in self.people.values() {
            if !self.kinds.contains(&user.secret.cost()) {
                self.kinds.push(user.secret.cost());
            }
        }
    }
}

/// `name:hash` or `name:hash:roles=a,b`.
fn parse_line(line: &str) -> Result<(&str, User), FileFault> {
    let (name, rest) = line.split_once(':').ok_or(FileFault::HashMissing)?;
    if name.is_empty() {
        return Err(FileFault::NameMissing);
    }
    if !is_name(name) {
        return Err(FileFault::NameInvalid);
    }
    let (hash, extra) = match rest.split_once(':') {
        Some((hash, extra)) => (hash, Some(extra)),
        None => (rest, None),
    };
    if hash.is_empty() {
        return Err(FileFault::HashMissing);
    }
    let secret = Secret::parse(hash)?;
    let roles = match extra {
        None => Vec::new(),
        Some(extra) => check_roles(extra.strip_prefix("roles=").ok_or(FileFault::FieldUnknown)?.split(','))?,
    };
    Ok((name, User { secret, roles }))
}

fn check_roles<'a>(names: impl Iterator<Item = &'a str>) -> Result<Vec<Arc<str>>, FileFault> {
    let mut roles: Vec<Arc<str>> = Vec::new();
    for name in names {
        let known = roles.iter().any(|role| **role == *name);
        if known || roles.len() == ROLES_MAX || !is_name(name) || name.contains(',') {
            return Err(FileFault::RolesInvalid);
        }
        roles.push(name.into());
    }
    Ok(roles)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIXED: &str = "alice:$6$8RFzANNkUWT62fin$Nf3fG9LGsfghMMgW0x56EDZ095JBVSIebWIKaCmGtKqQpwA3jyyGNfDl5alxQUwO9u7D7wviZzMly6BqYi1Zuw==\n\
        bob:$7$101$PRDNEvDVNzo10bwu$4fEuDoxJklwmq61l40rOpCUhmOh6aWJL/6l5P0mzaEJjqyaieMl5lZ8hwS97P+Dn5Jb6mVvneoHWUCRREWe/gA==\n";

    #[test]
    fn f080_every_name_costs_the_same_work() {
        let costs = |users: &Users, name: &str| users.work(name).map(|(cost, _)| cost).collect::<Vec<_>>();
        let users = Users::parse(MIXED).unwrap();
        assert_eq!(costs(&users, "alice"), [HashCost::Sha512, HashCost::Pbkdf2 { rounds: 101 }]);
        assert_eq!(costs(&users, "alice"), costs(&users, "bob"));
        assert_eq!(costs(&users, "alice"), costs(&users, "nobody"));
        assert_eq!(costs(&Users::default(), "nobody"), [HashCost::OURS]);
    }

    #[test]
    fn f080_exactly_one_hash_is_compared_for_a_known_name_and_none_for_others() {
        let users = Users::parse(MIXED).unwrap();
        let compared = |name| users.work(name).filter(|(_, secret)| secret.is_some()).count();
        assert_eq!((compared("alice"), compared("bob"), compared("nobody")), (1, 1, 0));
    }

    #[test]
    fn a_kind_that_nobody_has_any_more_costs_nothing() {
        let mut users = Users::parse(MIXED).unwrap();
        users.remove("bob").unwrap();
        assert_eq!(users.kinds, [HashCost::Sha512]);
        users.add("alice", b"new", &[7; 16]).unwrap();
        assert_eq!(users.kinds, [HashCost::OURS]);
    }
}
