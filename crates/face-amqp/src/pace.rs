//! How much credit publishers of a connection get: what the core entitles them to.
//!
//! While nobody is pressed a link has as much as it can use, less what waits for its answers: so a message that the core
//! holds back is credit that its publisher does not have, and nobody says a word. A publisher that was told to slow down, or of
//! which a message was refused, gets for each second what its interval allows, and nothing before it may come back. While
//! its connection is not read at all it gets nothing.

use core::time::Duration;

use tidegate_control::Timestamp;

use crate::limits::{CREDIT_MAX, CREDIT_PAUSE_MAX, PACE_EVERY, PACED_FOR};

/// What publishers of a connection may have.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// What was heard since the last turn: when to come back, and the interval that would do.
    heard: Option<(Duration, Option<Duration>)>,
    /// Nothing until then.
    blocked_until: Option<Timestamp>,
    /// So many for each second, until then.
    paced: Option<Paced>,
    /// What is left of this second.
    left: u32,
    /// The most without that.
    most: Option<u32>,
    /// The core does not read the connection.
    is_waiting: bool,
}

#[derive(Clone, Copy, Debug)]
struct Paced {
    per_second: u32,
    until: Timestamp,
    next: Timestamp,
}

impl Pace {
    /// The core has said something about the pace.
    pub(crate) fn hear(&mut self, retry_after: Option<Duration>, interval: Option<Duration>) {
        self.heard = Some((retry_after.unwrap_or_default(), interval));
        if retry_after.is_some() {
            // At once: whoever is answered now would take the rest of its credit for an invitation.
            self.left = 0;
            self.paced.get_or_insert(Paced { per_second: 1, until: Timestamp::MAX, next: Timestamp::MAX });
        }
    }

    /// A message was taken from a connection.
    pub(crate) fn note_taken(&mut self) {
        self.left = self.left.saturating_sub(1);
        self.is_waiting = false;
    }

    /// A message was left on its connection, which is not read for now.
    pub(crate) fn note_waiting(&mut self) {
        self.is_waiting = true;
    }

    /// Credit of each of so many links.
    pub(crate) fn allowance(&self, links: u32) -> u32 {
        if self.is_waiting || self.blocked_until.is_some() {
            return 0;
        }
        match self.paced {
            Some(_) if self.left == 0 => 0,
            Some(_) => (self.left / links).max(1),
            None => self.most.unwrap_or(CREDIT_MAX),
        }
    }

    /// When there is something to do without being told.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        let paced = self.paced.map(|paced| paced.next.min(paced.until));
        [self.blocked_until, paced].into_iter().flatten().filter(|at| *at < Timestamp::MAX).min()
    }

    /// So many messages are entitled now.
    pub(crate) fn turn(&mut self, entitled: u32, is_pressed: bool, now: Timestamp) {
        self.most = is_pressed.then(|| entitled.clamp(1, CREDIT_MAX));
        if let Some((after, interval)) = self.heard.take() {
            let until = now + after.min(CREDIT_PAUSE_MAX);
            self.blocked_until = (until > now).then_some(until);
            let nanos = interval.map_or(0, |interval| interval.as_nanos());
            let per_second = PACE_EVERY.as_nanos().checked_div(nanos).unwrap_or(0);
            // Who is slower than a message a second gets one, and is refused if it comes too soon.
            let per_second = u32::try_from(per_second).unwrap_or(u32::MAX).clamp(1, CREDIT_MAX);
            let per_second = if interval.is_none() { CREDIT_MAX / 4 } else { per_second };
            if self.paced.is_none() {
                self.left = per_second;
            }
            self.paced = Some(Paced { per_second, until: until + PACED_FOR, next: until.max(now + PACE_EVERY) });
        }
        if self.blocked_until.is_some_and(|until| until <= now) {
            self.blocked_until = None;
            if let Some(paced) = &mut self.paced {
                paced.next = now;
            }
        }
        match &mut self.paced {
            Some(paced) if paced.until <= now => self.paced = None,
            Some(paced) if paced.next <= now => {
                paced.next = now + PACE_EVERY;
                self.left = paced.per_second;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(1_000_000_000 + millis * 1_000_000)
    }

    #[test]
    fn a_refusal_takes_all_credit_and_gives_it_back_by_the_second() {
        let mut pace = Pace::default();
        pace.turn(0, false, at(0));
        assert_eq!((pace.allowance(1), pace.due()), (CREDIT_MAX, None));
        pace.hear(Some(Duration::from_millis(1500)), Some(Duration::from_millis(100)));
        assert_eq!(pace.allowance(1), 0);
        pace.turn(0, false, at(0));
        assert_eq!((pace.allowance(1), pace.due()), (0, Some(at(1500))));
        pace.turn(0, false, at(1500));
        assert_eq!((pace.allowance(1), pace.allowance(5)), (10, 2));
        for _ in 0..10 {
            pace.note_taken();
        }
        pace.turn(0, false, at(1600));
        assert_eq!((pace.allowance(1), pace.due()), (0, Some(at(2500))));
        pace.turn(0, false, at(2500));
        assert_eq!(pace.allowance(1), 10);
        pace.turn(0, false, at(11_500));
        assert_eq!((pace.allowance(1), pace.due()), (CREDIT_MAX, None));
    }

    #[test]
    fn a_hint_slows_without_a_pause_and_who_is_not_read_gets_nothing() {
        let mut pace = Pace::default();
        pace.hear(None, Some(Duration::from_millis(250)));
        pace.turn(0, false, at(0));
        assert_eq!((pace.allowance(1), pace.due()), (4, Some(at(1000))));
        pace.note_waiting();
        assert_eq!(pace.allowance(1), 0);
        pace.note_taken();
        assert_eq!(pace.allowance(1), 3);
    }

    #[test]
    fn under_pressure_credit_is_what_is_entitled() {
        let mut pace = Pace::default();
        pace.turn(7, true, at(0));
        assert_eq!(pace.allowance(1), 7);
        pace.turn(0, true, at(0));
        assert_eq!(pace.allowance(1), 1);
        pace.turn(0, false, at(0));
        assert_eq!(pace.allowance(1), CREDIT_MAX);
    }
}
