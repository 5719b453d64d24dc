//! What was learned of publishers, told now and then and put back: whoever was known before a restart needs no new
//! learning phase. After a cold start nobody would be entitled to anything. Not part of any turn: nobody was promised
//! anything.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::claim::Claim;
use tidegate_control::rhythm::Rhythm;

use super::publishers::{client_in, key_of};
use crate::limits::LEFT_MAX;
use crate::session::Session;
use crate::shard::shard_of;
use crate::state::ShardState;

/// The rhythm of a publisher.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedRhythm {
    /// Whose: a client of a user, or where it comes from, in the words of this crate.
    pub key: String,
    /// Its usual interval.
    pub interval: Duration,
    /// Messages that it sends at once.
    pub batch: u32,
    /// When it published last.
    pub last_at: Timestamp,
}

/// Those who left since somebody asked, the latest of them.
pub(crate) type Left = VecDeque<SavedRhythm>;

impl ShardState {
    pub(crate) fn rhythms(
        &self,
        from: u32,
        places_max: u32,
        since: Timestamp,
        now: Timestamp,
    ) -> (Vec<SavedRhythm>, Option<u32>) {
        let to = from.saturating_add(places_max);
        let saved = |index| self.saved_rhythm(self.sessions.get(index)?, now).filter(|saved| saved.last_at >= since);
        let known = (from..to).filter_map(saved).collect();
        (known, ((to as usize) < self.sessions.places()).then_some(to))
    }

    pub(crate) fn take_left_rhythms(&mut self) -> Vec<SavedRhythm> {
        self.left.drain(..).collect()
    }

    /// Somebody's connection ends: what was learned of it is told the next time somebody asks. Only where somebody does.
    pub(crate) fn note_left(&mut self, index: u32, now: Timestamp) {
        if !self.journal.is_on() {
            return;
        }
        let saved = self.sessions.get(index).and_then(|session| self.saved_rhythm(session, now));
        if let Some(saved) = saved {
            if self.left.len() >= LEFT_MAX {
                self.left.pop_front();
            }
            self.left.push_back(saved);
        }
    }

    /// What an operator has set was not learned. What is learned beneath a grant is.
    fn saved_rhythm(&self, session: &Session, now: Timestamp) -> Option<SavedRhythm> {
        let publishers = &self.gate.publishers;
        let slot = session.publisher()?;
        let is_pinned = publishers.trouble(slot).is_some_and(|trouble| trouble.pin().is_some());
        let publisher = publishers.get(slot).filter(|_| !is_pinned)?;
        let (interval, last_at) = (publisher.usual_interval()?, publisher.last_at(now));
        let key = key_of(session.identity(), session.client_id());
        Some(SavedRhythm { key, interval, batch: publisher.batch(), last_at })
    }

    pub(crate) fn restore_rhythm(&mut self, saved: &SavedRhythm, now: Timestamp) {
        let is_ours =
            client_in(&saved.key).is_some_and(|client| shard_of(client, self.links.shards()) == self.links.index());
        if let Some(plan) = &self.gate.learning_plan().filter(|_| is_ours) {
            let rhythm = if plan.is_enforced() {
                Rhythm::resume_batches(plan, saved.interval, saved.batch, saved.last_at)
            } else {
                Rhythm::new(plan)
            };
            let rate = 1.0 / saved.interval.as_secs_f32().max(1e-9);
            // The store keeps them longer than a shard does. Who would be forgotten without a restart comes back if its
            // parent has room: claims that were trained one after the other do not come to life together.
            let is_remembered = now.since(saved.last_at) < self.settings.back_off.memory;
            if !is_remembered && rate > self.gate.publishers.room_of(&saved.key) {
                return;
            }
            let claim = Claim::resume(&plan.claim(), rate, saved.batch, saved.last_at);
            self.gate.publishers.import(&saved.key, rhythm, claim, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Identity, Open};
    use crate::settings::Settings;
    use alloc::sync::Arc;
    use alloc::vec;

    fn shard(index: usize, count: usize) -> ShardState {
        ShardState::new(index, count, Arc::new(Settings::default()), Arc::new(Open), 7)
    }

    /// Somebody from this address publishes.
    fn connect(shard: &mut ShardState, client_id: &str, user: Option<&str>, peer: &str) {
        let identity =
            Identity { user: user.map(Into::into), peer: peer.into(), listener: "mqtt", roles: None, claims: None };
        let (index, _) = shard.sessions.insert(Session::new(client_id.into(), identity, 0, 1));
        shard.enrol(index, Timestamp::from_secs_f64(1000.0));
    }

    fn saved(key: &str, secs: u64) -> SavedRhythm {
        let last_at = Timestamp::from_secs_f64(900.0);
        SavedRhythm { key: key.into(), interval: Duration::from_secs(secs), batch: 3, last_at }
    }

    #[test]
    fn what_was_told_is_what_is_put_back_a_part_at_a_time() {
        let now = Timestamp::from_secs_f64(1000.0);
        let mut before = shard(0, 1);
        let all: Vec<SavedRhythm> = (1..=5).map(|n| saved(&alloc::format!("U{n}\0client {n}"), n)).collect();
        for rhythm in &all {
            before.restore_rhythm(rhythm, now);
        }
        assert_eq!(before.rhythms(0, 10, Timestamp::ZERO, now), (vec![], None), "nobody is connected");
        for n in 1..=5 {
            connect(&mut before, &alloc::format!("client {n}"), Some(&alloc::format!("{n}")), "10.0.1.5:9");
        }
        let (first, next) = before.rhythms(0, 3, Timestamp::ZERO, now);
        let (rest, end) = before.rhythms(next.unwrap(), 3, Timestamp::ZERO, now);
        assert_eq!((first.len(), rest.len(), end), (3, 2, None));
        let near = |one: &SavedRhythm, other: &SavedRhythm| {
            let ratio = one.interval.as_secs_f64() / other.interval.as_secs_f64();
            (ratio - 1.0).abs() < 1e-6 && SavedRhythm { interval: other.interval, ..one.clone() } == *other
        };
        let told = [first, rest].concat();
        assert!(told.len() == 5 && told.iter().zip(&all).all(|(one, other)| near(one, other)), "{told:?}");
        assert_eq!(before.rhythms(0, 10, now, now), (vec![], None), "nobody has published since");
    }

    #[test]
    fn a_client_is_known_on_its_shard() {
        let network = saved("4[0a, 00, 01] sensor", 1);
        let (user, former) = (saved("Uanna\0sensor", 1), saved("uanna", 1));
        for index in 0..3 {
            let mut shard = shard(index, 3);
            for rhythm in [&network, &user, &former] {
                shard.restore_rhythm(rhythm, Timestamp::ZERO);
            }
            connect(&mut shard, "sensor", None, "10.0.1.5:9");
            connect(&mut shard, "sensor", Some("anna"), "10.0.1.5:9");
            let now = Timestamp::from_secs_f64(1000.0);
            let keys: Vec<String> =
                shard.rhythms(0, 10, Timestamp::ZERO, now).0.into_iter().map(|rhythm| rhythm.key).collect();
            let is_ours = index == shard_of("sensor", 3);
            assert_eq!(keys.len(), if is_ours { 2 } else { 0 }, "shard {index}: {keys:?}");
        }
    }

    #[test]
    fn claims_of_a_whole_day_do_not_come_to_life_beyond_the_part_of_their_parent() {
        let now = Timestamp::from_secs_f64(200_000.0);
        let day = |n: u32| SavedRhythm {
            key: alloc::format!("Uanna\0client {n}"),
            interval: Duration::from_millis(1),
            batch: 1,
            last_at: Timestamp::from_secs_f64(200_000.0 - f64::from(n) * 3601.0),
        };
        let mut shard = shard(0, 1);
        (1..=24).for_each(|n| shard.restore_rhythm(&day(n), now));
        assert_eq!(shard.gate.publishers_known(), 12, "a quarter of 50 000 messages a second");
        shard.restore_rhythm(&day(0), now);
        assert_eq!(shard.gate.publishers_known(), 13, "who published a moment ago was within it before the restart");
        shard.restore_rhythm(&SavedRhythm { key: "Ubert\0client".into(), ..day(9) }, now);
        assert_eq!(shard.gate.publishers_known(), 14);
    }

    #[test]
    fn who_has_left_is_told_once_and_only_where_somebody_keeps_it() {
        let now = Timestamp::from_secs_f64(1000.0);
        for is_kept in [false, true] {
            let mut shard = shard(0, 1);
            if is_kept {
                shard.keep_journal(0);
            }
            shard.restore_rhythm(&saved("Uanna\0sensor", 1), now);
            connect(&mut shard, "sensor", Some("anna"), "10.0.1.5:9");
            shard.leave_gate(0, now);
            assert_eq!(shard.take_left_rhythms().len(), usize::from(is_kept));
            assert_eq!(shard.take_left_rhythms(), []);
        }
    }
}
