//! Passwords that were right of late, as keyed hashes: the key is this process's own and leaves it never, the passwords
//! are not kept. Time is an argument.
//!
//! Two uses. A password that was verified by the rules that still hold need not be hashed again, however long ago that was:
//! the same password and the same rules give the same answer, and a fleet that was connected for weeks and comes back
//! together after an outage comes back at once, instead of at 140 ms for each. A reload makes new rules, so a password
//! that was changed or taken back is asked for again. And a password that was right within a day does not wait because of
//! wrong ones (F132): whoever guesses cannot lock out whoever knows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ring::hmac;
use ring::rand::SystemRandom;
use tidegate_control::Timestamp;

use crate::authenticate::Credentials;
use crate::inbox::lock;
use crate::limits::KNOWN_MAX;

/// A user name and a password, as nobody else can compute it.
pub(crate) type Print = [u8; 32];

/// How well credentials are known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Familiarity {
    /// Not at all.
    Stranger,
    /// They were right of late: worth a hash, whatever else came from there.
    Familiar,
    /// They were right, and nothing has changed since.
    Verified(Arc<str>),
}

/// The table, shared by all threads.
#[derive(Debug)]
pub(crate) struct KnownPasswords {
    /// None without randomness: then nobody is known.
    key: Option<hmac::Key>,
    table: Mutex<KnownTable>,
}

/// When the young fill their half, they become the old, and the old are forgotten; whoever is seen is young.
#[derive(Debug, Default)]
struct KnownTable {
    young: BTreeMap<Print, Proof>,
    old: BTreeMap<Print, Proof>,
}

#[derive(Clone, Debug)]
struct Proof {
    user: Arc<str>,
    generation: u64,
    hashed_at: Timestamp,
}

/// The number of no rules at all.
pub(crate) const NO_RULES: u64 = u64::MAX;

/// How long a password that was right by earlier rules does not wait because of wrong ones.
const FAMILIAR_FOR: Duration = Duration::from_secs(86_400);

impl KnownPasswords {
    pub(crate) fn new() -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).ok();
        Self { key, table: Mutex::default() }
    }

    /// None if there is nothing to recognise.
    pub(crate) fn print(&self, credentials: &Credentials) -> Option<Print> {
        let (user, password) = (credentials.user_name.as_ref()?, credentials.password.as_ref()?);
        let mut context = hmac::Context::with_key(self.key.as_ref()?);
        // The length first: where a name ends must not be a matter of opinion. Listeners may have users of their own.
        for name in [credentials.listener, user] {
            context.update(&(name.len() as u64).to_le_bytes());
            context.update(name.as_bytes());
        }
        context.update(password);
        context.sign().as_ref().try_into().ok()
    }

    /// How well these are known, by the rules of this number.
    pub(crate) fn find(&self, print: &Print, generation: u64, now: Timestamp) -> Familiarity {
        let mut table = lock(&self.table);
        let Some(proof) = table.take(print) else { return Familiarity::Stranger };
        let age = now.since(proof.hashed_at);
        let is_valid = proof.generation == generation;
        if !is_valid && age >= FAMILIAR_FOR {
            return Familiarity::Stranger;
        }
        let user = Arc::clone(&proof.user);
        table.put(*print, proof);
        if is_valid { Familiarity::Verified(user) } else { Familiarity::Familiar }
    }

    /// They were hashed, and right.
    pub(crate) fn note(&self, print: Print, user: Arc<str>, generation: u64, now: Timestamp) {
        lock(&self.table).put(print, Proof { user, generation, hashed_at: now });
    }

    /// They were hashed, and wrong.
    pub(crate) fn forget(&self, print: &Print) {
        lock(&self.table).take(print);
    }
}

impl KnownTable {
    fn take(&mut self, print: &Print) -> Option<Proof> {
        let old = self.old.remove(print);
        self.young.remove(print).or(old)
    }

    fn put(&mut self, print: Print, proof: Proof) {
        if self.young.len() >= KNOWN_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(print, proof);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::ZERO;

    fn shown(user: &str, password: &str) -> Credentials {
        Credentials {
            client_id: "c".into(),
            user_name: Some(user.into()),
            password: Some(password.into()),
            ..Credentials::default()
        }
    }

    #[test]
    fn f132_right_passwords_are_known_for_a_while_and_by_the_rules_that_hold() {
        let known = KnownPasswords::new();
        let print = |user, password| known.print(&shown(user, password)).unwrap();
        let right = print("ann", "right");
        assert_eq!(known.find(&right, 1, NOW), Familiarity::Stranger);
        known.note(right, "ann".into(), 1, NOW);
        assert_eq!(known.find(&right, 1, NOW), Familiarity::Verified("ann".into()));
        assert_eq!(known.find(&right, 2, NOW), Familiarity::Familiar, "after a reload");
        let weeks = Duration::from_secs(30 * 86_400);
        assert_eq!(known.find(&right, 1, NOW + weeks), Familiarity::Verified("ann".into()), "after an outage");
        assert_eq!(known.find(&print("ann", "wrong"), 1, NOW), Familiarity::Stranger);
        assert_eq!(known.find(&print("annr", "ight"), 1, NOW), Familiarity::Stranger);
        assert_eq!(known.find(&right, 2, NOW + FAMILIAR_FOR), Familiarity::Stranger);
        known.note(right, "ann".into(), 1, NOW);
        known.forget(&right);
        assert_eq!(known.find(&right, 1, NOW), Familiarity::Stranger);
        assert_ne!(KnownPasswords::new().print(&shown("ann", "right")), Some(right), "a key of its own");
        let elsewhere = Credentials { listener: "factory", ..shown("ann", "right") };
        assert_ne!(known.print(&elsewhere), Some(right), "another listener, perhaps with another ann");
    }

    #[test]
    fn the_table_is_bounded_and_keeps_those_that_come_back() {
        let known = KnownPasswords::new();
        let print = |n: usize| {
            let mut print = [0; 32];
            print[..8].copy_from_slice(&n.to_le_bytes());
            print
        };
        for n in 0..2 * KNOWN_MAX {
            known.note(print(n), "x".into(), 0, NOW);
            assert_ne!(known.find(&print(0), 0, NOW), Familiarity::Stranger, "it is seen all the time");
        }
        let table = lock(&known.table);
        assert!(table.young.len() + table.old.len() <= KNOWN_MAX);
    }
}
