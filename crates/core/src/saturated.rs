//! When every receiver of a message would only drop something for it: then its publisher is told, with the time when there
//! will be room, instead of being thanked for what nobody gets.
//!
//! A QoS 1 or 2 message of an MQTT 5 client is refused (0x97) if it is in excess of its publisher's claim, and the queue of
//! *each* of its receivers has been full for a second, still sends, and has at least its share of it from this publisher:
//! its parent that of a parent, and of that the publisher its own. A receiver that is away, idle or stuck
//! refuses nobody: nothing could be said of when there will be room, and what is dropped there is that receiver's loss.
//! One receiver with room is reason enough to take a message. Before MQTT 5 there is no word for it, and it is taken.
//!
//! Receivers of other shards are known by hearsay: a shard on which all receivers of a message are like that says so to
//! the one that it came from, once a second for each publisher and topic ([`Envelope::Saturated`]).

use core::hash::BuildHasher;
use core::time::Duration;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{Delivery, Properties, QoS, ReasonCode, Version};

use crate::classes::PriorityMode;
use crate::deliver::bounds_of;
use crate::envelope::Envelope;
use crate::ledger::Loss;
use crate::limits::{BATCH_BYTES_MAX, SATURATED_MAX};
use crate::message::{Colour, Publication};
use crate::overload::{Admission, Arrival, Pace};
use crate::queue::{Bounds, Queue, Share};
use crate::shard::Shard;

/// Nobody is refused before a queue has been full for so long...
const FULL_FOR: Duration = Duration::from_secs(1);
/// ...which begins anew when nothing found it so for this long. Refusing makes some room; that is no reason to forget.
const FULL_GAP: Duration = Duration::from_secs(2);
/// How fast a queue drains is told from the last one or two of these: a receiver that stops refuses nobody soon after.
const DRAIN_WINDOW: Duration = FULL_FOR;
/// What another shard said holds for so long; it says it every second.
const HEARSAY: Duration = Duration::from_millis(1500);
/// Nobody is told to come back sooner, nor later: who can wait longer will be told again.
const RETRY_MIN: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Since when a queue has been full, and what it has sent of late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full {
    since: Timestamp,
    last: Timestamp,
    /// What was sent since then, at most for a second, and in the second before.
    counted_from: Timestamp,
    sent: u32,
    sent_before: u32,
}

impl Full {
    /// A message found no room.
    pub(crate) fn note(full: &mut Option<Self>, now: Timestamp) {
        match full {
            Some(full) if now.since(full.last) < FULL_GAP => full.last = now,
            _ => *full = Some(Self { since: now, last: now, counted_from: now, sent: 0, sent_before: 0 }),
        }
    }

    /// A message was sent.
    pub(crate) fn note_sent(&mut self, now: Timestamp) {
        self.go_on(now);
        self.sent = self.sent.saturating_add(1);
    }

    /// A message was refused for it: it would have found no room.
    fn note_refused(&mut self, now: Timestamp) {
        self.last = now;
    }

    fn go_on(&mut self, now: Timestamp) {
        let passed = now.since(self.counted_from);
        if passed >= 2 * DRAIN_WINDOW {
            (self.counted_from, self.sent, self.sent_before) = (now, 0, 0);
        } else if passed >= DRAIN_WINDOW {
            (self.counted_from, self.sent, self.sent_before) = (self.counted_from + DRAIN_WINDOW, 0, self.sent);
        }
    }

    /// Messages per second that it sends; none if it has not been full for long enough, or sent nothing of late.
    fn rate(mut self, now: Timestamp) -> Option<f64> {
        self.go_on(now);
        let has_been_full = now.since(self.since) >= FULL_FOR && now.since(self.last) < FULL_GAP;
        let (sent, time) = (self.sent.saturating_add(self.sent_before), DRAIN_WINDOW + now.since(self.counted_from));
        (has_been_full && sent > 0).then(|| f64::from(sent) / time.as_secs_f64())
    }
}

/// What became of a message among all its receivers here.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reach {
    /// One has it, or will, and nothing of the same publisher went for it.
    pub(crate) is_taken: bool,
    /// One had no room, or only for it instead of another one of the same publisher.
    pub(crate) is_crowded: bool,
}

impl Reach {
    fn is_crowded_out(self) -> bool {
        self.is_crowded && !self.is_taken
    }
}

/// Publisher, hash of the topic, and shard.
type Key = (u64, u64, usize);

/// What a shard knows of this.
#[derive(Debug)]
pub(crate) struct Saturation {
    /// When a queue was found full last; before that there is nothing to look for.
    full_at: Option<Timestamp>,
    /// Of the message that is being routed.
    pub(crate) reach: Reach,
    /// What was told to other shards, and when; and heard from them: until when it holds, and when there will be room.
    told: HashMap<Key, Timestamp, FixedState>,
    heard: HashMap<Key, Heard, FixedState>,
    /// After this nothing holds that was heard.
    heard_until: Timestamp,
}

/// What another shard has said of a publisher and a topic.
#[derive(Clone, Copy, Debug)]
struct Heard {
    /// Until then nobody there gets more of it.
    until: Timestamp,
    /// When there will be room, if that can be said: refused is until then.
    room_at: Timestamp,
}

impl Saturation {
    pub(crate) fn new(seed: u64) -> Self {
        let (told, heard) =
            (HashMap::with_hasher(FixedState::with_seed(seed)), HashMap::with_hasher(FixedState::with_seed(seed)));
        Self { full_at: None, reach: Reach::default(), told, heard, heard_until: Timestamp::ZERO }
    }

    pub(crate) fn note_full(&mut self, now: Timestamp) {
        self.full_at = Some(now);
    }

    #[inline]
    fn is_possible(&self, now: Timestamp) -> bool {
        self.heard_until > now || self.full_at.is_some_and(|at| now.since(at) < FULL_GAP)
    }

    /// When a shard will have room, if it said that it has none.
    fn room_at(&self, key: Key, now: Timestamp) -> Option<Timestamp> {
        let heard = self.heard.get(&key).filter(|_| self.heard_until > now)?;
        Some(heard.room_at).filter(|room_at| *room_at > now && heard.until > now)
    }

    /// Whether a shard said that nobody there gets more of this.
    fn is_crowded_at(&self, key: Key, now: Timestamp) -> bool {
        self.heard_until > now && self.heard.get(&key).is_some_and(|heard| heard.until > now)
    }

    fn hear(&mut self, key: Key, room_at: Timestamp, now: Timestamp) {
        if self.heard.len() >= SATURATED_MAX {
            self.heard.retain(|_, heard| heard.until > now);
        }
        if self.heard.len() < SATURATED_MAX {
            let until = now + HEARSAY;
            self.heard_until = self.heard_until.max(until);
            self.heard.insert(key, Heard { until, room_at });
        }
    }

    /// Whether this is to be told now. Beyond the maximum nobody is told anything.
    fn may_tell(&mut self, key: Key, now: Timestamp) -> bool {
        if self.told.get(&key).is_some_and(|at| now.since(*at) < FULL_FOR) {
            return false;
        }
        if self.told.len() >= SATURATED_MAX {
            self.told.retain(|_, at| now.since(*at) < FULL_FOR);
        }
        let has_room = self.told.len() < SATURATED_MAX;
        if has_room {
            self.told.insert(key, now);
        }
        has_room
    }
}

fn hash_of(topic: &str) -> u64 {
    FixedState::with_seed(0).hash_one(topic)
}

impl Queue {
    /// How long until half of what waits of this publisher has gone, if it has its share of a full queue.
    fn saturated_for(&self, publication: &Publication<'_>, bounds: Bounds, now: Timestamp) -> Option<Duration> {
        let rate = self.full?.rate(now)?;
        let Share { own, flows, parents, of_parent } = self.share_of(publication);
        // What is sent while nobody may send makes room; as much as an eighth, or each message would be asked for.
        let is_full = self.len() * 8 >= bounds.messages_max * 7 || self.bytes() / 7 >= bounds.bytes_max / 8;
        if !is_full || of_parent * parents < self.len() || own * flows < of_parent {
            return None;
        }
        let wait = Duration::from_secs_f64(own as f64 / 2.0 * (flows * parents) as f64 / rate);
        Some(wait.clamp(RETRY_MIN, RETRY_MAX))
    }
}

impl Shard {
    /// Whether a message is not to be taken, because nobody would get it.
    #[inline]
    pub(crate) fn admit_to_receivers(
        &mut self,
        arrival: Arrival,
        publication: &Publication<'_>,
        now: Timestamp,
    ) -> Option<Admission> {
        if arrival.delivery == Delivery::AtMostOnce || publication.retain || !self.saturation.is_possible(now) {
            return None;
        }
        let is_told = self.version_of(arrival.conn) == Version::V5;
        // Where nobody is watched, nobody has a claim.
        let is_entitled = publication.standing.colour == Colour::Entitled && self.gate.plan().is_some();
        if !is_told || is_entitled || self.settings.priority.mode != PriorityMode::Practical {
            return None;
        }
        let room_at = self.saturated_until(publication, now)?;
        self.note_refused_here(publication, now);
        self.note_crowded_out(arrival.session);
        self.note_full_receivers(arrival.session, room_at);
        self.give_back(arrival.session);
        self.lose(arrival.session, Loss::Refused);
        let pace = Pace::new(None, room_at.since(now).max(RETRY_MIN));
        let properties = pace.properties("no receiver has room for more of this client");
        self.answer_with(arrival.conn, arrival.delivery, ReasonCode::QuotaExceeded, Properties::new(&properties));
        Some(Admission::Settled)
    }

    /// When the first of its receivers will have room, here or elsewhere; none if one has.
    #[cold]
    fn saturated_until(&mut self, publication: &Publication<'_>, now: Timestamp) -> Option<Timestamp> {
        let route = self.find_route(publication.topic);
        let shards = self.other_shards().filter(|shard| route.shards & 1 << shard != 0);
        let topic = hash_of(publication.topic);
        let elsewhere = shards.map(|shard| self.saturation.room_at((publication.origin, topic, shard), now));
        if !route.groups.is_empty() || route.is_tapped {
            return None;
        }
        let mut first: Option<Timestamp> = None;
        for room_at in elsewhere {
            first = Some(first.map_or(room_at?, |first| first.min(room_at.unwrap_or(first))));
        }
        match self.saturated_here(publication, now) {
            Here::Nobody => first,
            Here::Room => None,
            Here::Full(room_at) => Some(first.map_or(room_at, |first| first.min(room_at))),
        }
    }

    /// Its receivers here are as full as if it had been given to them.
    fn note_refused_here(&mut self, publication: &Publication<'_>, now: Timestamp) {
        let route = self.find_route(publication.topic);
        for target in &route.targets {
            let queue = self.sessions.get_mut(target.session).and_then(|session| session.queue.as_mut());
            if let Some(full) = queue.and_then(|queue| queue.full.as_mut()) {
                full.note_refused(now);
                self.saturation.note_full(now);
            }
        }
    }

    fn saturated_here(&mut self, publication: &Publication<'_>, now: Timestamp) -> Here {
        let route = self.find_route(publication.topic);
        let bounds = bounds_of(&self.settings, publication.standing.class);
        let mut found = Here::Nobody;
        for target in &route.targets {
            let Some(session) = self.sessions.get(target.session) else { continue };
            if target.no_local && session.origin == publication.origin {
                continue;
            }
            let queue = session.queue.as_ref().filter(|_| session.conn.is_some());
            let Some(wait) = queue.and_then(|queue| queue.saturated_for(publication, bounds, now)) else {
                return Here::Room;
            };
            let room_at = now + wait;
            found = match found {
                Here::Full(first) => Here::Full(first.min(room_at)),
                Here::Nobody | Here::Room => Here::Full(room_at),
            };
        }
        found
    }

    /// A message was routed, and `shards` got it as well: if nobody has more of its publisher now than without it, nothing is
    /// learned from that.
    #[inline]
    pub(crate) fn note_reach(&mut self, index: u32, publication: &Publication<'_>, shards: u64, now: Timestamp) {
        let Reach { is_taken, is_crowded } = self.saturation.reach;
        if is_taken || (!is_crowded && self.saturation.heard_until <= now) {
            return;
        }
        let topic = hash_of(publication.topic);
        let mut others = self.other_shards().filter(|shard| shards & 1 << shard != 0).peekable();
        let is_anybody = is_crowded || others.peek().is_some();
        if is_anybody && others.all(|shard| self.saturation.is_crowded_at((publication.origin, topic, shard), now)) {
            self.note_crowded_out(index);
        }
    }

    /// A message came from another shard, and was given to those here: if they have no room for more, that shard is told.
    #[inline]
    pub(crate) fn tell_saturated(&mut self, from: usize, publication: &Publication<'_>, now: Timestamp) {
        let is_crowded_out = self.saturation.reach.is_crowded_out();
        if !is_crowded_out && (publication.qos == QoS::AtMostOnce || !self.saturation.is_possible(now)) {
            return;
        }
        let found = match self.saturated_here(publication, now) {
            Here::Full(room_at) => Some(room_at),
            // When there will be room cannot be said: no reason to refuse, nor to learn from what comes.
            Here::Nobody | Here::Room => is_crowded_out.then_some(now),
        };
        if let Some(room_at) = found {
            let topic = hash_of(publication.topic);
            let outgoing = self.outgoing.get_mut(from).map(|outgoing| &mut outgoing.messages);
            if let Some(outgoing) = outgoing.filter(|outgoing| outgoing.len() < BATCH_BYTES_MAX)
                && self.saturation.may_tell((publication.origin, topic, from), now)
            {
                let origin = publication.origin;
                Envelope::Saturated { origin, topic, millis: room_at.since(now).as_millis() as u32 }.write(outgoing);
            }
        }
    }

    /// Another shard has no room for more of this.
    pub(crate) fn hear_saturated(&mut self, from: usize, (origin, topic): (u64, u64), millis: u32, now: Timestamp) {
        self.saturation.hear((origin, topic, from), now + Duration::from_millis(millis.into()), now);
    }
}

/// What the receivers of one shard have room for.
#[derive(Clone, Copy, Debug)]
enum Here {
    /// There are none.
    Nobody,
    /// At least one takes it.
    Room,
    /// None does, until then.
    Full(Timestamp),
}
