//! What operators allow single KPs and users (`tidegate limits set`), in requests.
//!
//! ```text
//! "N per time"      N requests at once, then one every time/N
//! beyond that       refused, with the time after which one more is within the limit; what is refused counts for nothing
//! ```
//! The limit of a KP goes before that of its user. That of a user is for all its KPs together. That of a KP is for whoever
//! calls itself so, and each user or network has its own account: taking the name of another uses up nothing of its.
//!
//! Pure: time is an argument. Driven by the directory of KPs, for each request that comes.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_control::Timestamp;

/// Whose a limit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOwner {
    /// The KP's own, by its name.
    Kp,
    /// Its user's, for all KPs of the user together.
    User,
}

impl LimitOwner {
    /// What `tidegate limits` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kp => "client",
            Self::User => "user",
        }
    }
}

/// So many requests and no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimit {
    /// The time between two, if they come evenly.
    pub interval: Duration,
    /// How many may come at once.
    pub burst: u32,
    /// Whose it is.
    pub owner: LimitOwner,
}

impl RequestLimit {
    /// Requests a second.
    pub fn rate(&self) -> f64 {
        1.0 / self.interval.as_secs_f64().max(1e-9)
    }
}

/// How those stand with their limits who have any. Two generations: when the younger is full, the older is forgotten; who
/// is forgotten may have as many at once as at first.
#[derive(Debug, Default)]
pub(crate) struct RequestLimits {
    young: BTreeMap<u64, Timestamp>,
    old: BTreeMap<u64, Timestamp>,
}

impl RequestLimits {
    /// One more request of this account: whether it is within the limit, and if not, when one will be.
    pub(crate) fn admit(&mut self, now: Timestamp, account: u64, limit: &RequestLimit) -> Result<(), Duration> {
        let tolerance = limit.interval.saturating_mul(limit.burst.max(1) - 1);
        let due = self.young.get(&account).or_else(|| self.old.get(&account)).copied().unwrap_or(now);
        // Nobody owes more than a whole burst: another limit may have held before.
        let start = due.max(now).min(now + tolerance + limit.interval);
        let owed = start.since(now);
        if owed > tolerance {
            self.keep(account, start);
            return Err(owed.saturating_sub(tolerance).max(RETRY_MIN));
        }
        self.keep(account, start + limit.interval);
        Ok(())
    }

    fn keep(&mut self, account: u64, due: Timestamp) {
        if self.young.len() >= ACCOUNTS_MAX / 2 && !self.young.contains_key(&account) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(account, due);
    }
}

/// Accounts that are remembered: as many as KPs are.
const ACCOUNTS_MAX: usize = 8192;
/// Hints are in whole milliseconds, and who comes back too early is refused again.
const RETRY_MIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limit(interval_ms: u64, burst: u32) -> RequestLimit {
        RequestLimit { interval: Duration::from_millis(interval_ms), burst, owner: LimitOwner::Kp }
    }

    proptest! {
        /// In any span of time there are no more than a burst and what the rate gives in it; who comes when it was told is
        /// let in; and who comes evenly is never refused.
        #[test]
        fn nobody_has_more_than_its_limit_and_whoever_comes_when_it_was_told_is_let_in(
            interval in 1..500_u64, burst in 1..20_u32, gaps in prop::collection::vec(0..900_u64, 1..120),
        ) {
            let (mut limits, limit) = (RequestLimits::default(), limit(interval, burst));
            let (mut now, mut taken) = (Timestamp::from_secs_f64(1.0), Vec::<Timestamp>::new());
            for gap in gaps {
                now = now + Duration::from_millis(gap);
                match limits.admit(now, 7, &limit) {
                    Ok(()) => taken.push(now),
                    Err(after) => {
                        let early = after.saturating_sub(RETRY_MIN);
                        if !early.is_zero() {
                            prop_assert!(limits.admit(now + early, 7, &limit).is_err());
                        }
                        now = now + after;
                        prop_assert_eq!(limits.admit(now, 7, &limit), Ok(()));
                        taken.push(now);
                    }
                }
            }
            for (first, from) in taken.iter().enumerate() {
                for (more, until) in taken[first..].iter().enumerate() {
                    let span = until.since(*from).as_millis() as u64;
                    prop_assert!((more as u64) < u64::from(burst) + span / interval, "{more} in {span} ms");
                }
            }
        }
    }

    #[test]
    fn who_comes_evenly_is_never_refused_and_others_have_accounts_of_their_own() {
        let (mut limits, limit) = (RequestLimits::default(), limit(100, 1));
        for n in 0..100 {
            let now = Timestamp::from_secs_f64(1.0) + Duration::from_millis(100 * n);
            assert_eq!(limits.admit(now, 1, &limit), Ok(()));
            assert!(limits.admit(now, 1, &limit).is_err(), "a second one at the same time");
            assert_eq!(limits.admit(now, 2, &limit), Ok(()));
        }
    }

    #[test]
    fn another_limit_holds_at_once_whatever_was_owed() {
        let (mut limits, now) = (RequestLimits::default(), Timestamp::from_secs_f64(1.0));
        let rare = limit(3_600_000, 1);
        assert_eq!(limits.admit(now, 1, &rare), Ok(()));
        assert_eq!(limits.admit(now, 1, &rare), Err(Duration::from_secs(3600)));
        assert_eq!(limits.admit(now, 1, &limit(100, 1)), Err(Duration::from_millis(100)), "no more than one interval");
    }

    #[test]
    fn accounts_are_bounded_and_who_comes_again_is_remembered() {
        let (mut limits, now, limit) = (RequestLimits::default(), Timestamp::from_secs_f64(1.0), limit(1000, 1));
        assert_eq!(limits.admit(now, 0, &limit), Ok(()));
        for account in 1..3 * ACCOUNTS_MAX as u64 {
            assert_eq!(limits.admit(now, account, &limit), Ok(()));
            assert!(limits.admit(now, 0, &limit).is_err());
            assert!(limits.young.len() + limits.old.len() <= ACCOUNTS_MAX);
        }
    }
}
