//! Wrong passwords: who has given some has to wait before the next one is looked at (F065). Pure: time is an argument.
//!
//! A hash costs a tenth of a second on purpose, so nobody may ask for many. What is counted is the pair of network and
//! user name, and for the network the names that have failed there: not the user name alone, or anybody could lock
//! anybody out, and not the network's failures, or one device with an old password would lock out its neighbours
//! (F132). A network is an IPv4 address or a /64 of IPv6. The first few failures are free, then the pause doubles with
//! each. Time forgives: half of what was counted every ten minutes. A password that was right of late never waits,
//! whatever is counted here: see [`crate::known`].

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use tidegate_control::Timestamp;

use crate::bans::masked;
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

impl Failures {
    /// What time has not forgiven.
    fn left(&self, now: Timestamp) -> u32 {
        let halvings = now.since(self.last).as_secs() / HALVED_EVERY.as_secs();
        u32::try_from(halvings).ok().and_then(|halvings| self.count.checked_shr(halvings)).unwrap_or(0)
    }
}

const FREE_OF_A_USER: u32 = 5;
/// Names, of which a network has several.
const FREE_OF_A_NETWORK: u32 = 50;
/// Who gives the right password for the first time waits for those who gave wrong ones in the same name and from the same
/// address, which behind a proxy is everybody's: not for long. It leaves 120 guesses an hour to one address and name; a
/// word of the thousand commonest is found in eight hours, one of ten random letters never.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Neighbours that come for the first time have to wait, too: not for long.
const PAUSE_OF_A_NETWORK_MAX: Duration = Duration::from_secs(8);
/// Beyond what is free: counting further would change no pause, and would take longer to forgive.
const COUNTED_BEYOND_MAX: u32 = 10;
/// Looking at all of them for each failure would be work to flood us with.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
const HALVED_EVERY: Duration = Duration::from_secs(600);

/// What counts as one network: addresses of IPv6 cost nothing, a /64 is what one customer has.
pub(crate) fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        ip @ IpAddr::V4(_) => ip,
        ip @ IpAddr::V6(_) => masked(ip, 64),
    }
}

impl Attempts {
    /// How long to wait before another password of this user from there is looked at.
    pub(crate) fn wait(&self, ip: IpAddr, user: &str, now: Timestamp) -> Option<Duration> {
        let of = |user: Option<String>, free, pause_max| {
            let failures = self.by_whom.get(&(network(ip), user))?;
            let beyond = failures.left(now).checked_sub(free)?;
            let pause = Duration::from_secs(1 << beyond.min(16)).min(pause_max);
            Some((failures.last + pause).since(now))
        };
        let waits =
            [of(Some(user.to_owned()), FREE_OF_A_USER, PAUSE_MAX), of(None, FREE_OF_A_NETWORK, PAUSE_OF_A_NETWORK_MAX)];
        waits.into_iter().flatten().max().filter(|wait| !wait.is_zero())
    }

    pub(crate) fn failed(&mut self, ip: IpAddr, user: &str, now: Timestamp) {
        if self.by_whom.len() >= ATTEMPTS_MAX && now.since(self.swept_at) >= SWEEP_EVERY {
            self.swept_at = now;
            self.by_whom.retain(|_, failures| failures.left(now) > 0);
        }
        let ip = network(ip);
        if self.count((ip, Some(user.to_owned())), FREE_OF_A_USER, now) == 1 {
            // The first of this name. Its others are its own affair.
            self.count((ip, None), FREE_OF_A_NETWORK, now);
        }
    }

    /// One more; how many that makes. One, too, where the table is full: from so many addresses that nobody can be told
    /// from anybody, the bounded queue of hashes is what is left.
    fn count(&mut self, whom: (IpAddr, Option<String>), free: u32, now: Timestamp) -> u32 {
        if self.by_whom.len() >= ATTEMPTS_MAX && !self.by_whom.contains_key(&whom) {
            return 1;
        }
        let failures = self.by_whom.entry(whom).or_default();
        failures.count = (failures.left(now) + 1).min(free + COUNTED_BEYOND_MAX);
        failures.last = now;
        failures.count
    }

    /// The right password: the mistakes before it were mistakes, and its name is none of those that fail there.
    pub(crate) fn succeeded(&mut self, ip: IpAddr, user: &str) {
        if self.by_whom.is_empty() {
            return;
        }
        let ip = network(ip);
        if self.by_whom.remove(&(ip, Some(user.to_owned()))).is_some()
            && let Some(failures) = self.by_whom.get_mut(&(ip, None))
        {
            failures.count = failures.count.saturating_sub(1);
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
        // A hundred a second for an hour.
        for _ in 0..360_000 {
            if attempts.wait(HERE, "ann", now).is_none() {
                attempts.failed(HERE, "ann", now);
                hashed += 1;
            }
            now = now + Duration::from_millis(10);
        }
        assert!((120..=130).contains(&hashed), "so many guesses are left in an hour: {hashed}");
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
        assert_eq!(hashed, FREE_OF_A_NETWORK as usize);
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
        let later = now + Duration::from_secs(3600);
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

    #[test]
    fn f132_a_device_with_an_old_password_locks_out_no_neighbour() {
        let mut attempts = Attempts::default();
        let (start, mut hashed) = (Timestamp::from_secs_f64(5000.0), 0);
        // It tries every 10 s for half a day; healthy ones behind the same address reconnect once a minute.
        for second in (0..12 * 3600).step_by(10) {
            let now = start + Duration::from_secs(second);
            if second % 60 == 30 {
                assert_eq!(attempts.wait(HERE, "bob", now), None, "after {second} s");
                attempts.succeeded(HERE, "bob");
            }
            if attempts.wait(HERE, "ann", now).is_none() {
                attempts.failed(HERE, "ann", now);
                hashed += 1;
            }
        }
        let end = start + Duration::from_secs(12 * 3600);
        assert!((1400..=1450).contains(&hashed), "its own pauses go on: {hashed}");
        assert_eq!(attempts.wait(HERE, "ann", end + HALVED_EVERY * 2), None, "and end when it stops");
    }

    #[test]
    fn who_tries_every_name_makes_its_neighbours_wait_for_seconds_and_not_for_minutes() {
        let mut attempts = Attempts::default();
        let now = Timestamp::from_secs_f64(5000.0);
        (0..1000).for_each(|n| attempts.failed(HERE, &n.to_string(), now));
        assert!(attempts.wait(HERE, "bob", now).is_some_and(|wait| wait <= PAUSE_OF_A_NETWORK_MAX));
        assert_eq!(attempts.wait(HERE, "bob", now + PAUSE_OF_A_NETWORK_MAX), None);
    }

    #[test]
    fn f065_the_addresses_of_one_ipv6_customer_are_one() {
        let mut attempts = Attempts::default();
        let now = Timestamp::from_secs_f64(5000.0);
        let at = |net: u16, host: u16| IpAddr::from([0x2001, 0xdb8, 0, net, 0, 0, 0, host]);
        (0..20).for_each(|host| attempts.failed(at(1, host), "ann", now));
        assert!(attempts.wait(at(1, 77), "ann", now).is_some());
        assert_eq!(attempts.wait(at(2, 77), "ann", now), None);
        (0..20).for_each(|_| attempts.failed("::ffff:10.0.0.1".parse().unwrap(), "bob", now));
        assert!(attempts.wait(HERE, "bob", now).is_some(), "the same address, written as IPv6");
    }
}
