//! Whose messages a receiver loses for want of room: a short tally by publisher, of the last ten to twenty seconds. Of somebody
//! who is away only how many: a million of them may lose at the same time.
//!
//! Told by `deliver`, read by `report`. Knows publishers by their number alone ([`Session::origin`]); names are for whoever
//! asks all shards. Time is an argument. Of many publishers the most frequent are counted, each never as more than it was.
//!
//! Whose losses began when nothing was usual for it yet is a *newcomer* here as long as they go on. What it is used to since was
//! learned while this receiver never had room for it (another one may have had), and does not count here: it comes after those
//! who are known.
//!
//! [`Session::origin`]: crate::session::Session

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use tidegate_control::Timestamp;

/// How long one count lasts; what is told is of this one and the one before.
const TALLY_TIME: Duration = Duration::from_secs(10);
/// Publishers that are told apart. Who fills a queue is one of a few; this is what one look at a line of cache or two costs.
const TALLIED_MAX: usize = 8;

/// What a receiver has lost of late.
#[derive(Clone, Debug)]
pub(crate) struct Crowding {
    since: Timestamp,
    last: Timestamp,
    now: Tally,
    before: Tally,
    /// Whether `before` is a whole one: the time that rates are about.
    has_before: bool,
}

#[derive(Clone, Debug, Default)]
struct Tally {
    all: u64,
    /// Publishers whose number is known, [`TALLIED_MAX`] at most; nothing is allocated without one.
    by: Vec<Tallied>,
}

/// What was lost of one publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tallied {
    pub(crate) origin: u64,
    pub(crate) lost: u64,
    /// Nothing was usual for it when that began.
    pub(crate) is_newcomer: bool,
}

impl Crowding {
    /// A receiver has lost a message of this publisher, 0 if nobody knows whose; and whether nothing was usual for it when that
    /// message came.
    pub(crate) fn note(crowding: &mut Option<Box<Self>>, (origin, is_newcomer): (u64, bool), now: Timestamp) {
        let crowding = crowding.get_or_insert_with(|| Box::new(Self::new(now)));
        crowding.go_on(now);
        crowding.last = now;
        let is_newcomer = is_newcomer || crowding.before.is_newcomer(origin);
        crowding.now.note(origin, is_newcomer);
    }

    /// Whether messages of this publisher have been lost here since nothing was usual for it.
    pub(crate) fn is_newcomer(&self, origin: u64, now: Timestamp) -> bool {
        let passed = now.since(self.since);
        let is_before = || passed < TALLY_TIME && self.before.is_newcomer(origin);
        passed < 2 * TALLY_TIME && (self.now.is_newcomer(origin) || is_before())
    }

    fn new(now: Timestamp) -> Self {
        Self { since: now, last: now, now: Tally::default(), before: Tally::default(), has_before: false }
    }

    fn go_on(&mut self, now: Timestamp) {
        let passed = now.since(self.since);
        if passed >= 2 * TALLY_TIME {
            *self = Self::new(now);
        } else if passed >= TALLY_TIME {
            (self.before, self.has_before) = (core::mem::take(&mut self.now), true);
            self.since = self.since + TALLY_TIME;
        }
    }

    /// When the latest was lost.
    pub(crate) fn last(&self) -> Timestamp {
        self.last
    }

    /// How many were lost of late, and a second; and of whom, the most first.
    pub(crate) fn of_late(&self, now: Timestamp) -> (u64, f64, Vec<Tallied>) {
        let mut this = self.clone();
        this.go_on(now);
        let before = if this.has_before { TALLY_TIME } else { Duration::ZERO };
        let time = (before + now.since(this.since)).max(Duration::from_secs(1));
        let all = this.now.all + this.before.all;
        let mut by: Vec<Tallied> = Vec::new();
        for one in this.now.by.into_iter().chain(this.before.by) {
            match by.iter_mut().find(|other| other.origin == one.origin) {
                Some(sum) => {
                    sum.lost += one.lost;
                    sum.is_newcomer |= one.is_newcomer;
                }
                None => by.push(one),
            }
        }
        by.sort_unstable_by_key(|one| (core::cmp::Reverse(one.lost), one.origin));
        (all, all as f64 / time.as_secs_f64(), by)
    }
}

impl Tally {
    fn note(&mut self, origin: u64, is_newcomer: bool) {
        self.all += 1;
        if origin == 0 {
            return;
        }
        if let Some(known) = self.by.iter_mut().find(|other| other.origin == origin) {
            known.lost += 1;
            known.is_newcomer |= is_newcomer;
            return;
        }
        let first = Tallied { origin, lost: 1, is_newcomer };
        if self.by.len() < TALLIED_MAX {
            self.by.push(first);
            return;
        }
        // Another one takes the place of the rarest, and does not inherit its count: nobody is blamed for others.
        if let Some(rarest) = self.by.iter_mut().min_by_key(|other| other.lost) {
            *rarest = first;
        }
    }

    fn is_newcomer(&self, origin: u64) -> bool {
        self.by.iter().any(|other| other.origin == origin && other.is_newcomer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: f64) -> Timestamp {
        Timestamp::from_secs_f64(secs)
    }

    #[test]
    fn who_is_lost_the_most_comes_first_and_nobody_is_blamed_for_others() {
        let mut crowding = None;
        for n in 0..10_000_u32 {
            let origin = if n % 10 == 0 { 1000 + u64::from(n) } else { 7 };
            Crowding::note(&mut crowding, (origin, false), at(f64::from(n) / 1000.0));
        }
        let (all, rate, by) = crowding.unwrap().of_late(at(10.0));
        assert_eq!(all, 10_000);
        assert!((900.0..=1100.0).contains(&rate), "{rate}");
        assert_eq!((by[0].origin, by[0].lost), (7, 9000));
        assert!(by[1..].iter().all(|one| one.lost <= 1), "{by:?}");
    }

    #[test]
    fn of_somebody_who_is_away_only_the_number_is_kept() {
        let mut crowding = None;
        for n in 0..100_u32 {
            Crowding::note(&mut crowding, (0, false), at(f64::from(n) / 10.0));
        }
        let crowding = crowding.unwrap();
        assert_eq!((crowding.of_late(at(10.0)).0, crowding.of_late(at(10.0)).2), (100, Vec::new()));
        assert_eq!(crowding.now.by.capacity() + crowding.before.by.capacity(), 0);
        assert!(size_of::<Crowding>() <= 96, "a million of them are no more than a full queue each");
    }

    #[test]
    fn who_was_new_when_its_losses_began_is_a_newcomer_as_long_as_they_go_on() {
        let mut crowding = None;
        for tenth in 0..3000_u32 {
            // It is known after a minute. Another one was known before it lost anything.
            Crowding::note(&mut crowding, (7, tenth < 600), at(f64::from(tenth) / 10.0));
            Crowding::note(&mut crowding, (8, false), at(f64::from(tenth) / 10.0));
        }
        let known = crowding.as_deref().unwrap();
        assert!(known.is_newcomer(7, at(300.0)) && !known.is_newcomer(8, at(300.0)));
        assert!(known.of_late(at(300.0)).2.iter().any(|one| one.origin == 7 && one.is_newcomer));
        assert!(!known.is_newcomer(7, at(320.0)), "it has stopped");
        Crowding::note(&mut crowding, (7, false), at(330.0));
        assert!(!crowding.unwrap().is_newcomer(7, at(330.0)), "and is known when it begins again");
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let mut crowding = None;
        for n in 0..100_u32 {
            Crowding::note(&mut crowding, (7, false), at(f64::from(n) / 100.0));
        }
        let crowding = crowding.unwrap();
        assert_eq!(crowding.of_late(at(15.0)).0, 100, "in the count before");
        assert_eq!(crowding.of_late(at(25.0)).0, 0);
        assert_eq!(crowding.last(), at(0.99));
    }
}
