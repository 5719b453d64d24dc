//! The gate of shares: when every receiver of a message would only drop something for it, its publisher is told, with the time when there
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

mod full;
mod turned_away;

use core::hash::BuildHasher;
use core::time::Duration;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{Delivery, QoS};

use super::{Admission, GateArrival, Refusal};
use crate::between::{Envelope, ShardSet};
use crate::cache::Route;
use crate::classes::PriorityMode;
use crate::deliver::bounds_of;
use crate::ledger::Loss;
use crate::limits::{BATCH_BYTES_MAX, SATURATED_MAX};
use crate::message::{Colour, Publication};
use crate::queue::{Bounds, Queue, Share};
use crate::session::Session;
use crate::state::ShardState;
pub(crate) use full::Full;
use full::{FULL_FOR, FULL_GAP};
use turned_away::TurnedAway;

/// What another shard said holds for so long; it says it every second.
const HEARSAY: Duration = Duration::from_millis(1500);
/// Nobody is told to come back sooner, nor later: who can wait longer will be told again.
const RETRY_MIN: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// What became of a message among all its receivers here.
#[derive(Clone, Copy, Debug, Default)]
struct Reach {
    /// One has it, or will, and nothing of the same publisher went for it.
    is_taken: bool,
    /// One had no room, or only for it instead of another one of the same publisher.
    is_crowded: bool,
    /// Whether one did not even let it in.
    door: Door,
}

/// Whether somebody did not let a message in; what comes later here outweighs what comes before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Door {
    /// Nobody.
    #[default]
    Open,
    /// One, which has enough to send for long.
    Closed,
    /// One, which will soon have nothing to send.
    Ajar,
}

impl Reach {
    fn is_crowded_out(self) -> bool {
        self.is_crowded && !self.is_taken
    }

    /// Nobody let it in, and nobody misses anything.
    fn is_for_nobody(self) -> bool {
        self.door == Door::Closed && !self.is_taken
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
    reach: Reach,
    turned_away: TurnedAway,
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
        Self {
            full_at: None,
            reach: Reach::default(),
            turned_away: TurnedAway::default(),
            told,
            heard,
            heard_until: Timestamp::ZERO,
        }
    }

    /// Another message is routed.
    #[inline]
    pub(crate) fn begin_message(&mut self) {
        self.reach = Reach::default();
    }

    /// Another connection is read, or somebody takes a message.
    #[inline]
    pub(crate) fn begin_reading(&mut self) {
        self.turned_away.begin();
    }

    /// So many messages in a row were for nobody that their connection is to be read slower.
    #[inline]
    pub(crate) fn is_too_much_turned_away(&self) -> bool {
        self.turned_away.is_too_many()
    }

    /// Another shard turns this client away.
    pub(crate) fn hear_turned_away(&mut self, origin: u64, now: Timestamp) {
        self.turned_away.hear(origin, now);
    }

    /// A receiver has the message, or will.
    #[inline]
    pub(crate) fn note_taken(&mut self) {
        self.reach.is_taken = true;
    }

    /// A receiver had no room for the message.
    #[inline]
    pub(crate) fn note_crowded(&mut self) {
        self.reach.is_crowded = true;
    }

    /// A receiver did not even let the message in.
    pub(crate) fn note_turned_away(&mut self, door: Door) {
        self.reach.is_crowded = true;
        self.reach.door = self.reach.door.max(door);
    }

    #[inline]
    pub(crate) fn is_taken(&self) -> bool {
        self.reach.is_taken
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

    /// Whether this was told of late.
    fn is_told(&self, key: Key, now: Timestamp) -> bool {
        self.told.get(&key).is_some_and(|at| now.since(*at) < FULL_FOR)
    }

    /// Whether this can be told now, which is noted. Beyond the maximum nobody is told anything.
    fn may_tell(&mut self, key: Key, now: Timestamp) -> bool {
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
        let rate = self.rate_when_full(now)?;
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

impl ShardState {
    /// Whether a message is not to be taken, because nobody would get it.
    #[inline]
    pub(crate) fn admit_to_receivers(
        &mut self,
        arrival: GateArrival,
        publication: &Publication<'_>,
        now: Timestamp,
    ) -> Option<Admission> {
        if arrival.delivery == Delivery::AtMostOnce || publication.retain || !self.saturation.is_possible(now) {
            return None;
        }
        let is_told = self.hears_refusals(arrival.conn);
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
        Some(Refusal::later(room_at.since(now).max(RETRY_MIN), "no receiver has room for more of this client"))
    }

    /// When the first of its receivers will have room, here or elsewhere; none if one has.
    #[cold]
    fn saturated_until(&mut self, publication: &Publication<'_>, now: Timestamp) -> Option<Timestamp> {
        let route = self.find_route(publication.topic);
        let shards = route.shards.iter();
        let topic = hash_of(publication.topic);
        let elsewhere = shards.map(|shard| self.saturation.room_at((publication.origin, topic, shard), now));
        if !route.groups.is_empty() || route.is_tapped {
            return None;
        }
        let mut first: Option<Timestamp> = None;
        for room_at in elsewhere {
            first = Some(first.map_or(room_at?, |first| first.min(room_at.unwrap_or(first))));
        }
        match self.saturated_along(&route, publication, now) {
            Here::Nobody => first,
            Here::Room => None,
            Here::Full(room_at) => Some(first.map_or(room_at, |first| first.min(room_at))),
        }
    }

    /// Its receivers here are as full as if it had been given to them.
    fn note_refused_here(&mut self, publication: &Publication<'_>, now: Timestamp) {
        let route = self.find_route(publication.topic);
        let mut is_lasting = true;
        for target in &route.targets {
            let queue = self.sessions.get_mut(target.session).and_then(Session::queue_mut);
            if let Some(lasts) = queue.and_then(|queue| queue.note_refused(now)) {
                is_lasting &= lasts;
                self.saturation.note_full(now);
            }
        }
        if is_lasting {
            self.saturation.turned_away.count();
        }
    }

    fn saturated_here(&mut self, publication: &Publication<'_>, now: Timestamp) -> Here {
        let route = self.find_route(publication.topic);
        self.saturated_along(&route, publication, now)
    }

    fn saturated_along(&self, route: &Route, publication: &Publication<'_>, now: Timestamp) -> Here {
        let mut found = Here::Nobody;
        for target in &route.targets {
            let Some(session) = self.sessions.get(target.session) else { continue };
            if target.no_local && session.origin() == publication.origin {
                continue;
            }
            let bounds = bounds_of(&self.settings, session.spool(), publication.standing.class);
            let queue = session.queue().filter(|_| session.conn().is_some());
            // Of a full spool a lower class makes room.
            let makes_room = |queue: &Queue| {
                bounds.is_spool && queue.has_lower_than(publication.standing.class, &self.settings.priority)
            };
            let queue = queue.filter(|queue| !makes_room(queue));
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
    pub(crate) fn note_reach(&mut self, index: u32, publication: &Publication<'_>, shards: &ShardSet, now: Timestamp) {
        let Reach { is_taken, is_crowded, .. } = self.saturation.reach;
        // What is retained was taken, whoever has room for it now.
        if self.saturation.reach.is_for_nobody() && shards.is_empty() && !publication.retain {
            self.saturation.turned_away.count();
        } else if !is_crowded && shards.len() == 1 {
            self.saturation.turned_away.note_sent_on(publication.origin, now);
        }
        if is_taken || (!is_crowded && self.saturation.heard_until <= now) {
            return;
        }
        let topic = hash_of(publication.topic);
        let is_anybody = is_crowded || !shards.is_empty();
        if is_anybody
            && shards.iter().all(|shard| self.saturation.is_crowded_at((publication.origin, topic, shard), now))
        {
            self.note_crowded_out(index);
        }
    }

    /// A message came from another shard, and was given to those here: if they have no room for more, that shard is told.
    #[inline]
    pub(crate) fn tell_saturated(&mut self, from: usize, publication: &Publication<'_>, now: Timestamp) {
        self.tell_turned_away(from, publication);
        let is_crowded_out = self.saturation.reach.is_crowded_out();
        if !is_crowded_out && (publication.qos == QoS::AtMostOnce || !self.saturation.is_possible(now)) {
            return;
        }
        let origin = publication.origin;
        let topic = hash_of(publication.topic);
        let has_room = self.links.waiting(from).is_some_and(|bytes| bytes < BATCH_BYTES_MAX);
        if !has_room || self.saturation.is_told((origin, topic, from), now) {
            return;
        }
        let room_at = match self.saturated_here(publication, now) {
            Here::Full(room_at) => room_at,
            // When there will be room cannot be said: no reason to refuse, nor to learn from what comes.
            Here::Nobody | Here::Room if is_crowded_out => now,
            Here::Nobody | Here::Room => return,
        };
        if self.saturation.may_tell((origin, topic, from), now) {
            let millis = room_at.since(now).as_millis() as u32;
            self.links.send(from, &Envelope::Saturated { origin, topic, millis });
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
