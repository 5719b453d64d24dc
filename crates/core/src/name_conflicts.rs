//! Two clients with one name: each connection takes the session over from the other, which comes back and does the same. Both
//! work for a moment at a time, and neither is told more than "taken over" (MQTT 3.1.1: not even that).
//!
//! Told by `connect`, read by `report`. A short list of names, the most recent ones; time is an argument. One takeover is
//! a client that has lost its network and comes back; several within a minute, each of a connection that was just heard of,
//! are a conflict.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use tidegate_control::Timestamp;

/// Names that are followed at the same time: a fleet that was copied with one name is one problem.
const NAMES_MAX: usize = 64;
/// A connection that was silent for so long may have been lost before it was taken over.
const ALIVE_FOR: Duration = Duration::from_secs(10);
/// Takeovers within this time belong together; without another one for so long it is over.
const CONFLICT_WINDOW: Duration = Duration::from_secs(60);
/// From so many on it is no accident.
const CONFLICT_TAKEOVERS: u32 = 3;

/// Names whose connections were taken over of late.
#[derive(Debug, Default)]
pub(crate) struct NameConflicts {
    names: Vec<TakenName>,
}

#[derive(Debug)]
struct TakenName {
    client_id: Arc<str>,
    /// Takeovers in this window, and in the one before.
    count: u32,
    before: u32,
    since: Timestamp,
    last: Timestamp,
}

impl NameConflicts {
    /// A connection of this client that was heard of at `seen_at` has been taken over.
    pub(crate) fn note(&mut self, client_id: &Arc<str>, seen_at: Timestamp, now: Timestamp) {
        if now.since(seen_at) > ALIVE_FOR {
            return;
        }
        if let Some(name) = self.names.iter_mut().find(|name| name.client_id == *client_id) {
            name.go_on(now);
            (name.count, name.last) = (name.count.saturating_add(1), now);
            return;
        }
        if self.names.len() >= NAMES_MAX
            && let Some((oldest, _)) = self.names.iter().enumerate().min_by_key(|(_, name)| name.last)
        {
            self.names.swap_remove(oldest);
        }
        self.names.push(TakenName { client_id: Arc::clone(client_id), count: 1, before: 0, since: now, last: now });
    }

    /// How often a name that is in conflict was taken over in the last minute or two; 0 if it is in none.
    pub(crate) fn takeovers(&self, client_id: &str, now: Timestamp) -> u32 {
        let name = self.names.iter().find(|name| &*name.client_id == client_id);
        let is_recent = |name: &&TakenName| now.since(name.last) < CONFLICT_WINDOW;
        name.filter(is_recent).map(TakenName::of_late).filter(|count| *count >= CONFLICT_TAKEOVERS).unwrap_or(0)
    }
}

impl TakenName {
    fn of_late(&self) -> u32 {
        self.count.saturating_add(self.before)
    }

    fn go_on(&mut self, now: Timestamp) {
        let passed = now.since(self.since);
        if passed >= 2 * CONFLICT_WINDOW {
            (self.before, self.count, self.since) = (0, 0, now);
        } else if passed >= CONFLICT_WINDOW {
            (self.before, self.count, self.since) = (self.count, 0, self.since + CONFLICT_WINDOW);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: f64) -> Timestamp {
        Timestamp::from_secs_f64(secs)
    }

    #[test]
    fn two_that_throw_each_other_out_are_a_conflict_until_a_minute_after_the_last_time() {
        let (mut conflicts, name) = (NameConflicts::default(), Arc::from("plc"));
        for second in 0..200_u32 {
            let now = f64::from(second);
            conflicts.note(&name, at(now - 0.9), at(now));
            let expected = if second < 2 { 0..=0 } else { 3..=120 };
            assert!(expected.contains(&conflicts.takeovers("plc", at(now))), "{second}");
        }
        assert!(conflicts.takeovers("plc", at(250.0)) >= 60);
        assert_eq!(conflicts.takeovers("plc", at(260.0)), 0);
        assert_eq!(conflicts.takeovers("other", at(200.0)), 0);
    }

    #[test]
    fn one_that_lost_its_network_comes_back_without_a_conflict() {
        let (mut conflicts, name) = (NameConflicts::default(), Arc::from("phone"));
        for second in (0..600).step_by(15).map(f64::from) {
            // silent since the network went
            conflicts.note(&name, at(second - 12.0), at(second));
            assert_eq!(conflicts.takeovers("phone", at(second)), 0);
        }
        for second in (1000..2000).step_by(61).map(f64::from) {
            conflicts.note(&name, at(second), at(second));
            assert_eq!(conflicts.takeovers("phone", at(second)), 0, "once a minute at {second}");
        }
    }

    #[test]
    fn names_are_bounded_and_the_latest_are_kept() {
        let mut conflicts = NameConflicts::default();
        for round in 0..3_u32 {
            for n in 0..1000_u32 {
                let name: Arc<str> = alloc::format!("c{n}").into();
                let now = at(f64::from(round) * 10.0 + f64::from(n) / 1000.0);
                conflicts.note(&name, now, now);
            }
        }
        assert_eq!(conflicts.names.len(), NAMES_MAX);
        assert!(conflicts.names.iter().any(|name| &*name.client_id == "c999"));
    }
}
