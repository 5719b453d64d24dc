//! Wrong passwords: who has given some has to wait before the next one is looked at (F065). Pure: time is an argument.
//!
//! A hash costs a tenth of a second on purpose, so nobody may ask for many. What is counted is the pair of address and
//! user name, and the address alone: not the user name alone, or anybody could lock anybody out. The first few failures
//! are free, then the pause doubles with each, up to five minutes; a success, or an hour, forgives.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use tidegate_control::Timestamp;

use crate::limits::ATTEMPTS_MAX;

#[derive(Debug, Default)]
pub(crate) struct Attempts {
    by_whom: BTreeMap<(IpAddr, Option<String>), Failures>,
    swept_at: Timestamp,
}

#[derive(Clone, Copy, Debug, Default)]
struct Failures {
    count: u32,
    last: Timestamp,
}

const FREE_OF_A_USER: u32 = 5;
/// A network behind one address has several users.
const FREE_OF_AN_ADDRESS: u32 = 50;
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// Looking at all of them for each failure would be work to flood us with.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
const FORGIVEN: Duration = Duration::from_secs(3600);

impl Attempts {
    /// How long to wait before another password of this user from there is looked at.
    pub(crate) fn wait(&self, ip: IpAddr, user: &str, now: Timestamp) -> Option<Duration> {
        let of = |user: Option<String>, free| {
            let failures = self.by_whom.get(&(ip, user))?;
            let beyond = failures.count.checked_sub(free)?;
            let pause = Duration::from_secs(1 << beyond.min(16)).min(PAUSE_MAX);
            Some((failures.last + pause).since(now))
        };
        let waits = [of(Some(user.to_owned()), FREE_OF_A_USER), of(None, FREE_OF_AN_ADDRESS)];
        waits.into_iter().flatten().max().filter(|wait| !wait.is_zero())
    }

    pub(crate) fn failed(&mut self, ip: IpAddr, user: &str, now: Timestamp) {
        if self.by_whom.len() >= ATTEMPTS_MAX && now.since(self.swept_at) >= SWEEP_EVERY {
            self.swept_at = now;
            self.by_whom.retain(|_, failures| now.since(failures.last) < FORGIVEN);
        }
        for whom in [(ip, Some(user.to_owned())), (ip, None)] {
            if self.by_whom.len() >= ATTEMPTS_MAX && !self.by_whom.contains_key(&whom) {
                // From so many addresses that nobody can be told from anybody: the bounded queue of hashes is what is left.
                continue;
            }
            let failures = self.by_whom.entry(whom).or_default();
            if now.since(failures.last) >= FORGIVEN {
                failures.count = 0;
            }
            failures.count = failures.count.saturating_add(1);
            failures.last = now;
        }
    }

    /// The right password: the mistakes before it were mistakes. Those of the address stay: it may have other users.
    pub(crate) fn succeeded(&mut self, ip: IpAddr, user: &str) {
        if !self.by_whom.is_empty() {
            self.by_whom.remove(&(ip, Some(user.to_owned())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn f065_wrong_passwords_cost_hashes_less_and_less_often() {
        let mut attempts = Attempts::default();
        let (mut now, mut hashed) = (Timestamp::from_secs_f64(5000.0), 0);
        // A thousand a second for ten minutes.
        for _ in 0..600_000 {
            if attempts.wait(HERE, "ann", now).is_none() {
                attempts.failed(HERE, "ann", now);
                hashed += 1;
            }
            now = now + Duration::from_millis(1);
        }
        assert!((5..=16).contains(&hashed), "{hashed}");
        assert_eq!(attempts.wait(THERE, "ann", now), None, "ann herself, from elsewhere");
        assert_eq!(attempts.wait(HERE, "bob", now), None, "bob, behind the same NAT");
        assert_eq!(attempts.wait(HERE, "ann", now + PAUSE_MAX), None, "it ends");
    }

    #[test]
    fn f065_an_address_that_tries_every_name_has_to_wait_too() {
        let mut attempts = Attempts::default();
        let now = Timestamp::from_secs_f64(5000.0);
        let hashed = (0..1000)
            .filter(|n| {
                let may = attempts.wait(HERE, &n.to_string(), now).is_none();
                if may {
                    attempts.failed(HERE, &n.to_string(), now);
                }
                may
            })
            .count();
        assert_eq!(hashed, FREE_OF_AN_ADDRESS as usize);
    }

    #[test]
    fn a_success_forgives_and_so_does_an_hour() {
        let mut attempts = Attempts::default();
        let now = Timestamp::from_secs_f64(5000.0);
        (0..20).for_each(|_| attempts.failed(HERE, "ann", now));
        assert!(attempts.wait(HERE, "ann", now).is_some());
        attempts.succeeded(HERE, "ann");
        assert_eq!(attempts.wait(HERE, "ann", now), None);
        (0..20).for_each(|_| attempts.failed(HERE, "ann", now));
        let later = now + FORGIVEN;
        attempts.failed(HERE, "ann", later);
        assert_eq!(attempts.wait(HERE, "ann", later), None);
    }

    #[test]
    fn the_table_is_bounded() {
        let mut attempts = Attempts::default();
        for n in 0..(2 * ATTEMPTS_MAX) as u32 {
            attempts.failed(IpAddr::V4(n.into()), "x", Timestamp::from_secs_f64(1.0));
        }
        assert!(attempts.by_whom.len() <= ATTEMPTS_MAX);
    }
}
