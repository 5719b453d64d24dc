//! What is known of each publisher, for as long as it is connected and an hour longer.
//!
//! The key is the *principal*: the authenticated user, else the client identifier with the network it comes from (/24 of
//! IPv4, /64 of IPv6). A reconnect therefore buys no new learning phase, somebody else who uses a victim's identifier
//! from another network does not spoil its rhythm, and neighbours behind one NAT are told apart. An entry that a
//! connection uses stays; of the others the one that was used last the longest ago goes first. Those whose rhythm was
//! never learned have a smaller place of their own: a flood of names that come once does not push out anybody (F057).

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_control::Timestamp;
use tidegate_control::rank::Ranks;
use tidegate_control::rhythm::{Rhythm, RhythmPlan};
use tidegate_control::schedule::FlowId;

use super::share::Share;
use crate::access::Identity;
use crate::classes::ClassId;
use crate::limits::{
    BAN_MAX, BAN_MIN, PATIENCE, PUBLISHERS_IDLE_MAX, RANK_INTERVAL, REFRESH_EVERY, STRANGERS_IDLE_MAX, STRIKES_MAX,
};
use crate::message::{RATE_UNKNOWN, Standing};
use crate::persist::SavedRhythm;
use crate::settings::Rate;
use crate::slab::Slab;

#[derive(Debug)]
pub(crate) struct Publisher {
    pub(crate) rhythm: Rhythm,
    /// Set by the operator: the rate, and the plan that goes with it.
    pub(crate) pin: Option<Box<(Rate, RhythmPlan)>>,
    key: Arc<str>,
    /// Connections that publish as this principal, and since when there is none.
    connections: u32,
    idle_since: Timestamp,
    /// While an episode of being slowed goes on: since when, and until when its latest message waits.
    pub(crate) slowed: Option<(Timestamp, Timestamp)>,
    pub(crate) refused: u64,
    pub(crate) dropped: u64,
    run: Run,
    /// Disconnected for its rate so often of late, and when last.
    strikes: u32,
    struck_at: Timestamp,
    refreshed_at: Timestamp,
    /// Messages that passed, and the interval that was last told of, in seconds: see `drift`.
    passed: u32,
    told: f32,
    pub(crate) share: Share,
    /// How its messages stand by its rate, and until when that holds.
    standing: Standing,
    standing_until: Timestamp,
}

/// Refusals without a pause between them.
#[derive(Debug, Default)]
struct Run {
    since: Timestamp,
    last: Timestamp,
    refused: u32,
    taken: u32,
}

/// Whether there is any use in refusing on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Left,
    Over,
}

impl Publisher {
    /// When a message of it was refused or dropped last.
    pub(crate) fn refused_at(&self) -> Option<Timestamp> {
        (self.run.refused > 0).then_some(self.run.last)
    }

    /// The operator's limit.
    /// Whether several connections publish as this principal.
    pub(crate) fn is_shared(&self) -> bool {
        self.connections > 1
    }

    pub(crate) fn limit(&self) -> Option<Rate> {
        self.pin.as_deref().map(|(rate, _)| *rate)
    }

    pub(crate) fn is_learned(&self) -> bool {
        self.rhythm.interval().is_some()
    }

    /// A connection is ended for the rate of its messages; the answer is how long the publisher is to stay away, if it
    /// has not learned from that before. Twice as long each time, up to an hour; an hour without forgives everything.
    pub(crate) fn strike(&mut self, now: Timestamp) -> Option<Duration> {
        if now.since(self.struck_at) >= BAN_MAX {
            self.strikes = 0;
        }
        self.struck_at = now;
        self.strikes = self.strikes.saturating_add(1);
        let beyond = self.strikes.checked_sub(STRIKES_MAX)?;
        Some(BAN_MIN.saturating_mul(1 << beyond.min(16)).min(BAN_MAX))
    }

    /// A retained message that says the same again is no news, but not more often than now and then.
    pub(crate) fn may_refresh(&mut self, now: Timestamp) -> bool {
        let may = now.since(self.refreshed_at) >= REFRESH_EVERY;
        if may {
            self.refreshed_at = now;
        }
        may
    }

    /// Whether the learned interval has become a quarter of what it was when it was last told of; asked now and then.
    #[inline]
    pub(crate) fn drift(&mut self) -> Option<(Duration, Duration)> {
        self.passed = self.passed.wrapping_add(1);
        if self.passed.is_multiple_of(DRIFT_EVERY) { self.look_for_drift() } else { None }
    }

    #[cold]
    fn look_for_drift(&mut self) -> Option<(Duration, Duration)> {
        let now = self.rhythm.interval()?;
        let seconds = now.as_secs_f32();
        let before = self.told;
        if before > 0.0 && seconds * 4.0 <= before {
            self.told = seconds;
            return Some((Duration::from_secs_f32(before), now));
        }
        self.told = before.max(seconds);
        None
    }

    pub(crate) fn note_taken(&mut self) {
        self.run.taken = self.run.taken.saturating_add(1);
    }

    /// A message was refused. Over five D_max (150 s) of this, without a pause of one D_max and with more refused than
    /// taken, patience is over; and stays so after a reconnect, until there is such a pause.
    pub(crate) fn note_refused(&mut self, delay_max: Duration, now: Timestamp) -> Patience {
        if self.run.refused == 0 || now.since(self.run.last) > delay_max {
            self.run = Run { since: now, ..Run::default() };
        }
        self.run.last = now;
        self.run.refused = self.run.refused.saturating_add(1);
        let is_over = now.since(self.run.since) > delay_max * PATIENCE && self.run.refused > self.run.taken;
        if is_over { Patience::Over } else { Patience::Left }
    }
}

#[derive(Debug)]
pub(crate) struct Publishers {
    by_key: HashMap<Arc<str>, u32, FixedState>,
    table: Slab<Publisher>,
    /// Those without a connection, by when they lost it; and those of them whose rhythm is not known.
    idle: BTreeSet<(Timestamp, u32)>,
    strangers: BTreeSet<(Timestamp, u32)>,
    /// Those with one, by their rate.
    ranks: Ranks,
}

impl Publishers {
    pub(crate) fn new(seed: u64) -> Self {
        let by_key = HashMap::with_hasher(FixedState::with_seed(seed));
        let (idle, strangers) = (BTreeSet::new(), BTreeSet::new());
        Self { by_key, table: Slab::new(), idle, strangers, ranks: Ranks::new(u32::MAX) }
    }

    /// How many have a connection.
    #[inline]
    pub(crate) fn connected(&self) -> usize {
        self.table.len() - self.idle.len() - self.strangers.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn find(&self, key: &str) -> Option<&Publisher> {
        self.by_key.get(key).and_then(|slot| self.table.get(*slot))
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&Publisher> {
        self.table.get(slot)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Publisher> {
        self.table.get_mut(slot)
    }

    /// A connection publishes as this principal; its place is sure until it leaves.
    pub(crate) fn join(&mut self, key: &str, rhythm: impl FnOnce() -> Rhythm) -> u32 {
        let slot = self.by_key.get(key).copied().unwrap_or_else(|| self.insert(key, rhythm()));
        if let Some(publisher) = self.table.get_mut(slot) {
            if publisher.connections == 0 {
                self.idle.remove(&(publisher.idle_since, slot));
                self.strangers.remove(&(publisher.idle_since, slot));
            }
            publisher.connections += 1;
        }
        slot
    }

    /// The connection is gone.
    pub(crate) fn leave(&mut self, slot: u32, now: Timestamp) {
        let Some(publisher) = self.table.get_mut(slot) else { return };
        publisher.connections = publisher.connections.saturating_sub(1);
        if publisher.connections == 0 {
            publisher.idle_since = now;
            publisher.standing_until = Timestamp::ZERO;
            let kind = if publisher.is_learned() { &mut self.idle } else { &mut self.strangers };
            kind.insert((now, slot));
            self.ranks.remove(FlowId(slot));
        }
        if self.idle.len() > PUBLISHERS_IDLE_MAX {
            let oldest = self.idle.pop_first();
            self.forget(oldest);
        }
        if self.strangers.len() > STRANGERS_IDLE_MAX {
            let oldest = self.strangers.pop_first();
            self.forget(oldest);
        }
    }

    /// How the messages of a publisher stand by its rate.
    #[inline]
    pub(crate) fn standing(&mut self, slot: u32, now: Timestamp) -> Standing {
        match self.table.get(slot) {
            Some(publisher) if now < publisher.standing_until => publisher.standing,
            Some(_) => self.rank(slot, now),
            None => Standing::UNKNOWN,
        }
    }

    /// Its place among the others may have changed, by its own doing or by theirs.
    #[cold]
    fn rank(&mut self, slot: u32, now: Timestamp) -> Standing {
        let Some(publisher) = self.table.get_mut(slot) else { return Standing::UNKNOWN };
        let learned = publisher.rhythm.rate();
        // Who is rare by habit and floods now is not rare now. A burst that is part of the habit is none: only a rate
        // that the habit does not explain by far counts.
        let current = publisher.rhythm.current_rate();
        let batch = f64::from(publisher.rhythm.batch());
        let rate = learned.map(|learned| if current > learned * batch * FLOOD { current } else { learned });
        let _ = self.ranks.set(FlowId(slot), rate);
        let class = ClassId::of(self.ranks.tercile(FlowId(slot)));
        let bits = |rate: f64| (rate as f32).max(0.0).to_bits();
        publisher.standing = Standing { class, is_by_topic: false, rate: learned.map_or(RATE_UNKNOWN, bits) };
        publisher.standing_until = now + RANK_INTERVAL;
        publisher.standing
    }

    /// How many publishers come before this one by its rate, and how many there are.
    pub(crate) fn rank_of(&self, slot: u32) -> Option<(u32, u32)> {
        Some((self.ranks.rank(FlowId(slot))?, self.ranks.len()))
    }

    /// Forgets whoever was gone for longer than `memory`.
    pub(crate) fn expire(&mut self, memory: Duration, now: Timestamp) {
        let is_old = |(since, _): &(Timestamp, u32)| now.since(*since) >= memory;
        while let Some(oldest) = self.idle.first().copied().filter(is_old) {
            self.idle.remove(&oldest);
            self.forget(Some(oldest));
        }
        while let Some(oldest) = self.strangers.first().copied().filter(is_old) {
            self.strangers.remove(&oldest);
            self.forget(Some(oldest));
        }
    }

    /// What is known of those who published at `since` or later, from a place on; and where to go on.
    pub(crate) fn export(&self, from: u32, places_max: u32, since: Timestamp) -> (Vec<SavedRhythm>, Option<u32>) {
        let to = from.saturating_add(places_max);
        let saved = |publisher: &Publisher| {
            let interval = publisher.rhythm.interval().filter(|_| publisher.pin.is_none())?;
            let (batch, last_at) = (publisher.rhythm.batch(), publisher.rhythm.last_at());
            (last_at >= since).then(|| SavedRhythm { key: publisher.key.as_ref().into(), interval, batch, last_at })
        };
        let known = (from..to).filter_map(|slot| saved(self.table.get(slot)?)).collect();
        (known, ((to as usize) < self.table.places()).then_some(to))
    }

    /// What was known of somebody who is not connected yet.
    pub(crate) fn import(&mut self, key: &str, rhythm: Rhythm, now: Timestamp) {
        let slot = self.join(key, || rhythm);
        self.leave(slot, now);
    }

    /// The rule has changed: what was learned under another one is of no use.
    pub(crate) fn relearn(&mut self, rhythm: impl Fn() -> Rhythm) {
        for slot in self.by_key.values() {
            if let Some(publisher) = self.table.get_mut(*slot).filter(|publisher| publisher.pin.is_none()) {
                publisher.rhythm = rhythm();
            }
        }
    }

    fn insert(&mut self, key: &str, rhythm: Rhythm) -> u32 {
        let key: Arc<str> = key.into();
        let (slot, _) = self.table.insert(Publisher {
            rhythm,
            key: Arc::clone(&key),
            connections: 0,
            idle_since: Timestamp::ZERO,
            slowed: None,
            refused: 0,
            dropped: 0,
            run: Run::default(),
            pin: None,
            strikes: 0,
            struck_at: Timestamp::ZERO,
            refreshed_at: Timestamp::ZERO,
            passed: 0,
            told: 0.0,
            share: Share::default(),
            standing: Standing::UNKNOWN,
            standing_until: Timestamp::ZERO,
        });
        self.by_key.insert(key, slot);
        slot
    }

    fn forget(&mut self, idle: Option<(Timestamp, u32)>) {
        let Some((_, slot)) = idle else { return };
        if let Some(publisher) = self.table.remove(slot) {
            self.by_key.remove(&publisher.key);
        }
    }
}

/// A rhythm moves by a factor of two per hour at most: there is no hurry.
const DRIFT_EVERY: u32 = 64;
/// So many times its usual rate is a flood.
const FLOOD: f64 = 8.0;

/// The principal that a client publishes as.
pub(crate) fn key_of(identity: &Identity, client_id: &str) -> String {
    let mut key = String::new();
    // Writing into a string cannot fail. The first letter keeps users and identifiers apart.
    let _ = match &identity.user {
        Some(user) => write!(key, "u{user}"),
        None => match identity.peer.parse::<SocketAddr>().map(|peer| peer.ip().to_canonical()) {
            Ok(IpAddr::V4(ip)) => write!(key, "4{:02x?} {client_id}", &ip.octets()[..3]),
            Ok(IpAddr::V6(ip)) => write!(key, "6{:04x?} {client_id}", &ip.segments()[..4]),
            Err(_) => write!(key, "?{} {client_id}", identity.peer),
        },
    };
    key
}

/// The client identifier in such a name; none if it is a user's.
pub(crate) fn client_in(key: &str) -> Option<&str> {
    let end = match key.chars().next() {
        Some('4' | '6') => "] ",
        Some('?') => " ",
        _ => return None,
    };
    key.split_once(end).map(|(_, client)| client)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_control::rhythm::RhythmConfig;

    fn key(user: Option<&str>, peer: &str, client_id: &str) -> String {
        key_of(&Identity { user: user.map(Into::into), peer: peer.into(), listener: "mqtt" }, client_id)
    }

    #[test]
    fn a_principal_is_a_user_or_an_identifier_in_its_network() {
        assert_eq!(key(Some("u"), "10.0.0.1:1", "a"), key(Some("u"), "[::1]:2", "b"), "a user everywhere");
        assert_eq!(key(None, "10.0.0.1:1", "a"), key(None, "10.0.0.200:9", "a"), "a /24");
        assert_eq!(key(None, "[2001:db8::1]:1", "a"), key(None, "[2001:db8::ffff:1]:2", "a"), "a /64");
        assert_eq!(key(None, "[::ffff:10.0.0.1]:1", "a"), key(None, "10.0.0.2:1", "a"), "mapped addresses");
        assert_ne!(key(None, "10.0.0.1:1", "a"), key(None, "10.0.1.1:1", "a"));
        assert_ne!(key(None, "10.0.0.1:1", "a"), key(None, "10.0.0.1:1", "b"), "neighbours behind one NAT");
        for peer in ["10.0.0.1:1", "[2001:db8::1]:1", "pipe"] {
            assert_eq!(client_in(&key(None, peer, "a ] b")), Some("a ] b"), "{peer}");
            assert_eq!(client_in(&key(Some("4u ] a"), peer, "c")), None, "{peer}");
        }
        assert_ne!(key(Some("a"), "10.0.0.1:1", "a"), key(None, "10.0.0.1:1", "a"), "no user by name of a client");
    }

    #[test]
    fn the_oldest_without_a_connection_goes_first_and_the_hour_counts_from_the_last_one() {
        let plan = RhythmConfig::default().build().unwrap();
        let at = |secs: u32| Timestamp::from_secs_f64(secs.into());
        let hour = Duration::from_secs(3600);
        let mut publishers = Publishers::new(1);
        let learned = || Rhythm::resume(&plan, Duration::from_secs(1), at(0));
        let (first, second) = (publishers.join("first", learned), publishers.join("second", learned));
        assert_eq!(publishers.join("first", || panic!("known")), first, "a second connection");
        publishers.leave(first, at(0));
        publishers.leave(second, at(10));
        publishers.expire(hour, at(3700));
        assert!(publishers.find("first").is_some(), "still connected once");
        assert!(publishers.find("second").is_none());
        publishers.leave(first, at(3700));
        for n in 0..PUBLISHERS_IDLE_MAX {
            let slot = publishers.join(&alloc::format!("n{n}"), learned);
            publishers.leave(slot, at(3701));
        }
        assert_eq!(publishers.idle.len(), PUBLISHERS_IDLE_MAX);
        assert!(publishers.find("first").is_none(), "the oldest made room");
    }

    #[test]
    fn f057_names_that_come_once_do_not_grow_the_table_nor_push_out_who_is_known() {
        let plan = RhythmConfig::default().build().unwrap();
        let mut publishers = Publishers::new(1);
        let known = publishers.join("known", || Rhythm::resume(&plan, Duration::from_secs(1), Timestamp::ZERO));
        publishers.leave(known, Timestamp::ZERO);
        for n in 0..100_000_u32 {
            let slot = publishers.join(&alloc::format!("n{n}"), || Rhythm::new(&plan));
            publishers.leave(slot, Timestamp::from_secs_f64(f64::from(n) / 100.0));
        }
        assert!(publishers.len() <= STRANGERS_IDLE_MAX + 1, "{}", publishers.len());
        assert!(publishers.find("known").is_some());
    }

    #[test]
    fn f136_a_ban_grows_is_capped_and_is_forgotten_after_an_hour() {
        let plan = RhythmConfig::default().build().unwrap();
        let mut publishers = Publishers::new(1);
        let slot = publishers.join("p", || Rhythm::new(&plan));
        let publisher = publishers.get_mut(slot).unwrap();
        let at = |secs: u32| Timestamp::from_secs_f64(f64::from(10_000 + secs));
        let bans: alloc::vec::Vec<_> = (0..12).map(|n| publisher.strike(at(n * 60)).map(|it| it.as_secs())).collect();
        let expected = [0, 0, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600, 3600];
        assert_eq!(bans, expected.map(|secs| Some(secs).filter(|secs| *secs > 0)));
        assert_eq!(publisher.strike(at(11 * 60 + 3600)), None, "an hour later it is as if nothing had been");
    }

    #[test]
    fn patience_ends_with_refusals_that_go_on_and_returns_with_a_pause() {
        let plan = RhythmConfig::default().build().unwrap();
        let mut publishers = Publishers::new(1);
        let slot = publishers.join("p", || Rhythm::new(&plan));
        let publisher = publishers.get_mut(slot).unwrap();
        let mut refuse =
            |secs: u32| publisher.note_refused(Duration::from_secs(30), Timestamp::from_secs_f64(secs.into()));
        assert!((1000..=1150).step_by(10).all(|secs| refuse(secs) == Patience::Left));
        assert_eq!(refuse(1160), Patience::Over);
        assert_eq!(refuse(1161), Patience::Over, "it stays so");
        assert_eq!(refuse(1192), Patience::Left, "after a pause");
    }
}
