//! What was learned of publishers, told now and then and put back: whoever was known before a restart needs no new
//! learning phase. Not part of any turn: nobody was promised anything.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::rhythm::Rhythm;

use crate::overload::publishers::{client_in, key_of};
use crate::session::Session;
use crate::shard::{Shard, shard_of};

/// The rhythm of a publisher.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedRhythm {
    /// Whose: a user, or a client where it comes from, in the words of this crate.
    pub key: String,
    /// Its usual interval.
    pub interval: Duration,
    /// Messages that it sends at once.
    pub batch: u32,
    /// When it published last.
    pub last_at: Timestamp,
}

impl Shard {
    /// Rhythms of publishers that are connected and published at `since` or later, from the place `from` on, looking at
    /// `places_max` of them; and where to go on, if there are more. A user with several connections comes several times.
    pub fn rhythms(
        &self,
        from: u32,
        places_max: u32,
        since: Timestamp,
        now: Timestamp,
    ) -> (Vec<SavedRhythm>, Option<u32>) {
        let to = from.saturating_add(places_max);
        let publishers = &self.gate.publishers;
        let saved = |session: &Session| {
            let slot = session.publisher?;
            let is_pinned = publishers.trouble(slot).is_some_and(|trouble| trouble.pin.is_some());
            let rhythm = &publishers.get(slot).filter(|_| !is_pinned)?.rhythm;
            let (interval, last_at) = (rhythm.interval()?, rhythm.last_at(now));
            let key = key_of(&session.identity, &session.client_id);
            (last_at >= since).then(|| SavedRhythm { key, interval, batch: rhythm.batch(), last_at })
        };
        let known = (from..to).filter_map(|index| saved(self.sessions.get(index)?)).collect();
        (known, ((to as usize) < self.sessions.places()).then_some(to))
    }

    /// A rhythm from before a restart. Nothing happens if it is no publisher of this shard's, or if none are watched. A
    /// user may publish on every shard.
    pub fn restore_rhythm(&mut self, saved: &SavedRhythm, now: Timestamp) {
        let is_ours = client_in(&saved.key).is_none_or(|client| shard_of(client, self.outgoing.len()) == self.index);
        if let Some(plan) = self.gate.plan().filter(|_| is_ours) {
            let rhythm = Rhythm::resume_batches(plan, saved.interval, saved.batch, saved.last_at);
            self.gate.publishers.import(&saved.key, rhythm, now);
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

    fn shard(index: usize, count: usize) -> Shard {
        Shard::new(index, count, Arc::new(Settings::default()), Arc::new(Open), 7)
    }

    /// Somebody from this address publishes.
    fn connect(shard: &mut Shard, client_id: &str, user: Option<&str>, peer: &str) {
        let identity = Identity { user: user.map(Into::into), peer: peer.into(), listener: "mqtt" };
        let (index, _) = shard.sessions.insert(Session::new(client_id.into(), identity, 1));
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
        let all: Vec<SavedRhythm> = (1..=5).map(|n| saved(&alloc::format!("u{n}"), n)).collect();
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
        assert_eq!([first, rest].concat(), all);
        assert_eq!(before.rhythms(0, 10, now, now), (vec![], None), "nobody has published since");
    }

    #[test]
    fn a_client_is_known_on_its_shard_and_a_user_on_all() {
        let (client, user) = (saved("4[0a, 00, 01] sensor", 1), saved("uanna", 1));
        for index in 0..3 {
            let mut shard = shard(index, 3);
            shard.restore_rhythm(&client, Timestamp::ZERO);
            shard.restore_rhythm(&user, Timestamp::ZERO);
            connect(&mut shard, "sensor", None, "10.0.1.5:9");
            connect(&mut shard, "any", Some("anna"), "10.0.1.5:9");
            let now = Timestamp::from_secs_f64(1000.0);
            let keys: Vec<String> =
                shard.rhythms(0, 10, Timestamp::ZERO, now).0.into_iter().map(|rhythm| rhythm.key).collect();
            assert_eq!(keys.contains(&client.key), index == shard_of("sensor", 3), "shard {index}");
            assert!(keys.contains(&user.key));
        }
    }
}
