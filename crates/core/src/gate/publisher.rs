//! What is kept of one publisher: 81 bytes for everybody, and the rest only for those with whom there was trouble.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::claim::{Claim, ClaimPlan, Colour};
use tidegate_control::rank::Band;
use tidegate_control::rhythm::{Rhythm, RhythmPlan};

use super::parents::Parents;
use crate::classes::ClassId;
use crate::limits::{BAN_MAX, BAN_MIN, PATIENCE, STRIKES_MAX};
use crate::settings::Rate;

/// Nothing in here has an alignment: fields of one byte leave no gaps.
#[derive(Debug)]
pub(crate) struct Publisher {
    pub(super) key: PublisherKey,
    /// Who it belongs to: 48 bits.
    parent: [u8; 6],
    /// What it is used to, and what it sent of late.
    pub(crate) claim: Claim,
    /// Told only where rhythms are enforced, or an operator has set a limit.
    pub(crate) rhythm: Rhythm,
    /// Where it is counted by its rate.
    pub(super) band: Band,
    /// The rate that was last told of: see `drift`.
    told: Band,
    flags: u8,
}

const _: () = assert!(size_of::<Option<Publisher>>() <= 81, "a publisher that does nothing wrong is to cost little");

/// A principal: 56 bits of a hash whose key nobody outside knows.
///
/// The name itself is nowhere kept. Among a million publishers two share a key once in 140 000 runs of the broker, and then
/// they share a rhythm, as the connections of one user do; neither sees anything of the other. Nobody can bring it
/// about: without the seed a name is as good as any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PublisherKey([u8; 7]);

impl PublisherKey {
    pub(super) fn new(hash: u64) -> Self {
        let [a, b, c, d, e, f, g, _] = hash.to_le_bytes();
        Self([a, b, c, d, e, f, g])
    }

    /// For a table that looks at both ends of a hash.
    pub(super) fn hash(self) -> u64 {
        let [a, b, c, d, e, f, g] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, a])
    }
}

/// What is remembered of a publisher that was ever slowed, refused, limited or disconnected.
#[derive(Debug, Default)]
pub(crate) struct PublisherTrouble {
    /// Set by the operator: the rate, and the plan that goes with it.
    pin: Option<Box<Pin>>,
    /// While an episode of being slowed goes on: since when, and until when its latest message waits.
    slowed: Option<(Timestamp, Timestamp)>,
    /// The most messages a second that it sent in this episode, over ten seconds, and when that was last asked.
    asked: (f32, Timestamp),
    refused: u64,
    dropped: u64,
    /// When there will be room for what was refused because all receivers were full.
    receivers_full_until: Option<Timestamp>,
    run: Run,
    /// Disconnected for its rate so often of late, and when last.
    strikes: u32,
    struck_at: Timestamp,
}

/// A limit of the operator's.
#[derive(Clone, Debug)]
pub(crate) struct Pin {
    pub(crate) rate: Rate,
    pub(crate) plan: RhythmPlan,
    /// It is that of this user: all its clients have it together.
    pub(crate) user: Option<Arc<str>>,
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
    pub(super) fn new(key: PublisherKey, parent: u64, rhythm: Rhythm) -> Self {
        let [a, b, c, d, e, f, ..] = parent.to_le_bytes();
        let parent = [a, b, c, d, e, f];
        Self { key, parent, claim: Claim::default(), rhythm, band: Band::ABSENT, told: Band::LEARNING, flags: 0 }
    }

    /// Something is known of it, or granted to it.
    pub(crate) fn is_learned(&self) -> bool {
        self.usual_rate().is_some() || self.claim.is_granted()
    }

    /// Messages a second that are usual for it, whatever is granted: by its rhythm where that is enforced, else by its
    /// claim.
    pub(crate) fn usual_rate(&self) -> Option<f64> {
        self.rhythm.rate().or_else(|| self.claim.learned_rate().map(f64::from))
    }

    /// The same as an interval.
    pub(crate) fn usual_interval(&self) -> Option<Duration> {
        self.usual_rate().map(|rate| Duration::from_secs_f64(1.0 / rate.max(1e-9)))
    }

    /// Who it belongs to; 0 if that is not known.
    pub(super) fn parent(&self) -> u64 {
        let [a, b, c, d, e, f] = self.parent;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }

    /// What it counts for in the sum of its parent, whatever is granted.
    pub(crate) fn learned(&self) -> f32 {
        self.claim.learned_rate().unwrap_or(0.0)
    }

    /// Whether its latest message was entitled.
    pub(crate) fn is_entitled(&self) -> bool {
        self.has(Flag::Entitled)
    }

    #[inline]
    pub(crate) fn set_entitled(&mut self, colour: Colour) {
        self.set(Flag::Entitled, colour == Colour::Entitled);
    }

    /// When it published last.
    pub(crate) fn last_at(&self, now: Timestamp) -> Timestamp {
        self.claim.last_at(now)
    }

    /// Something is remembered against it, or an operator has set a limit.
    pub(super) fn is_troubled(&self) -> bool {
        self.has(Flag::Troubled)
    }

    /// Messages that it is known to send at once.
    pub(crate) fn batch(&self) -> u32 {
        if self.rhythm.rate().is_some() { self.rhythm.batch() } else { self.claim.batch().max(1) }
    }

    /// Messages per second of late, the fewer the later.
    pub(crate) fn current_rate(&self, now: Timestamp) -> f64 {
        if self.rhythm.rate().is_some() { self.rhythm.current_rate() } else { self.claim.recent_rate(now) }
    }

    #[inline]
    pub(super) fn has(&self, flag: Flag) -> bool {
        self.flags & flag as u8 != 0
    }

    #[inline]
    pub(super) fn set(&mut self, flag: Flag, value: bool) {
        self.flags = if value { self.flags | flag as u8 } else { self.flags & !(flag as u8) };
    }

    /// By its rate. Said anew every second.
    #[inline]
    pub(super) fn class(&self) -> Option<ClassId> {
        let class = match self.flags >> CLASS_SHIFT & 3 {
            1 => ClassId::HIGH,
            2 => ClassId::LOW,
            _ => ClassId::NORMAL,
        };
        self.has(Flag::Ranked).then_some(class)
    }

    pub(super) fn set_class(&mut self, class: ClassId) {
        let code = match class {
            ClassId::HIGH => 1,
            ClassId::LOW => 2,
            _ => 0,
        };
        self.flags = self.flags & !(3 << CLASS_SHIFT) | code << CLASS_SHIFT | Flag::Ranked as u8;
    }

    /// The claim's second is over, if it is: ρ moves, within what is left for its parent. Whether it was.
    #[inline]
    pub(super) fn end_second(
        &mut self,
        plan: &ClaimPlan,
        now: Timestamp,
        dry_at: Timestamp,
        parents: &mut Parents,
    ) -> bool {
        let is_over = self.claim.ends_second(now);
        if is_over {
            let change = self.claim.go_on(plan, now, dry_at, parents.room(self.parent()));
            parents.shift(self.parent(), change);
        }
        is_over
    }

    /// Its first message in a second. What holds for a second ends; the answer is its drift, as of `drift`.
    #[cold]
    pub(super) fn begin_second(&mut self) -> Option<(Duration, Duration)> {
        self.set(Flag::Ranked, false);
        self.set(Flag::Refreshed, false);
        self.drift()
    }

    /// A retained message that says the same again is no news, but only once in a second.
    pub(super) fn may_refresh(&mut self) -> bool {
        let may = !self.has(Flag::Refreshed);
        self.set(Flag::Refreshed, true);
        may
    }

    /// Whether the learned interval has become a quarter of what it was when it was last told of.
    fn drift(&mut self) -> Option<(Duration, Duration)> {
        let now = self.usual_interval()?;
        let band = Band::of(self.usual_rate());
        if band.octaves_above(self.told) >= 2 {
            let before = core::mem::replace(&mut self.told, band).rate()?;
            return Some((Duration::from_secs_f64(1.0 / before), now));
        }
        self.told = if self.told == Band::LEARNING { band } else { self.told.min(band) };
        None
    }
}

/// Facts about a publisher, a bit each. Two more bits are its class.
#[derive(Clone, Copy, Debug)]
pub(super) enum Flag {
    /// There is a `PublisherTrouble`.
    Troubled = 1,
    /// A connection publishes as this principal; how many, if more, is in a table of its own.
    Connected = 2,
    /// Its class holds.
    Ranked = 4,
    /// A retained message that said the same again was forgiven in this second.
    Refreshed = 8,
    /// Its latest message was within what is usual.
    Entitled = 16,
}

const CLASS_SHIFT: u32 = 6;
/// How often somebody who is slowed is asked for its rate: it is one over ten seconds.
const ASKED_EVERY: Duration = Duration::from_millis(100);
/// A refusal for want of room is shown for so long after there should be some: whoever was refused comes back within it.
const RECEIVERS_FULL_SHOWN: Duration = Duration::from_secs(2);

impl PublisherTrouble {
    /// The operator's limit, if there is one.
    #[inline]
    pub(crate) fn pin(&self) -> Option<&Pin> {
        self.pin.as_deref()
    }

    pub(crate) fn set_pin(&mut self, pin: Option<Pin>) {
        self.pin = pin.map(Box::new);
    }

    /// While an episode of being slowed goes on: since when, and until when its latest message waits.
    pub(crate) fn slowed(&self) -> Option<(Timestamp, Timestamp)> {
        self.slowed
    }

    /// It is slowed until then; false if it was before.
    pub(crate) fn note_slowed(&mut self, until: Timestamp, now: Timestamp) -> bool {
        let before = self.slowed;
        self.slowed = Some((before.map_or(now, |(since, _)| since), until));
        before.is_none()
    }

    /// Whether it is time to look at what it sends.
    pub(super) fn takes_rate(&self, now: Timestamp) -> bool {
        self.slowed.is_none() || now.since(self.asked.1) >= ASKED_EVERY
    }

    /// It sends so many messages a second in this episode, or did.
    pub(super) fn note_asked(&mut self, rate: f64, is_new: bool, now: Timestamp) {
        let before = if is_new { 0.0 } else { self.asked.0 };
        self.asked = (before.max(rate as f32), now);
    }

    /// The most that it sent while it is slowed, in messages a second; 0 if it is not.
    pub(super) fn asked(&self) -> f32 {
        if self.slowed.is_some() { self.asked.0 } else { 0.0 }
    }

    /// Nothing had to wait for so long: the episode is over. False if it goes on, or there was none.
    pub(crate) fn calm_down(&mut self, calm: Duration, now: Timestamp) -> bool {
        self.slowed.take_if(|(_, until)| *until + calm <= now).is_some()
    }

    /// What waits goes by then at the latest. True if that is now, and the episode is over with it.
    pub(crate) fn shorten_wait(&mut self, last: Timestamp, now: Timestamp) -> bool {
        let is_over = last == now && self.slowed.take().is_some();
        if let Some((_, until)) = &mut self.slowed {
            *until = last.min(*until);
        }
        is_over
    }

    /// Messages that were refused, and messages that were dropped without a word.
    pub(crate) fn lost(&self) -> (u64, u64) {
        (self.refused, self.dropped)
    }

    pub(crate) fn count_refused(&mut self) {
        self.refused += 1;
    }

    pub(crate) fn count_dropped(&mut self) {
        self.dropped += 1;
    }

    /// A message was refused because all its receivers are full, and will be until then.
    pub(crate) fn note_receivers_full(&mut self, until: Timestamp) {
        self.count_refused();
        self.receivers_full_until = Some(until);
    }

    /// When a message was refused or dropped last.
    pub(crate) fn refused_at(&self) -> Option<Timestamp> {
        (self.run.refused > 0).then_some(self.run.last)
    }

    /// Whether messages were refused of late because all their receivers were full.
    pub(crate) fn are_receivers_full(&self, now: Timestamp) -> bool {
        self.receivers_full_until.is_some_and(|until| until + RECEIVERS_FULL_SHOWN > now)
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

    /// So many messages were taken while it is slowed.
    pub(crate) fn note_taken(&mut self, count: u32) {
        self.run.taken = self.run.taken.saturating_add(count);
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

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_control::rhythm::RhythmConfig;

    #[test]
    fn f136_a_ban_grows_is_capped_and_is_forgotten_after_an_hour() {
        let mut trouble = PublisherTrouble::default();
        let at = |secs: u32| Timestamp::from_secs_f64(f64::from(10_000 + secs));
        let bans: alloc::vec::Vec<_> = (0..12).map(|n| trouble.strike(at(n * 60)).map(|it| it.as_secs())).collect();
        let expected = [0, 0, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600, 3600];
        assert_eq!(bans, expected.map(|secs| Some(secs).filter(|secs| *secs > 0)));
        assert_eq!(trouble.strike(at(11 * 60 + 3600)), None, "an hour later it is as if nothing had been");
    }

    #[test]
    fn patience_ends_with_refusals_that_go_on_and_returns_with_a_pause() {
        let mut trouble = PublisherTrouble::default();
        let mut refuse =
            |secs: u32| trouble.note_refused(Duration::from_secs(30), Timestamp::from_secs_f64(secs.into()));
        assert!((1000..=1150).step_by(10).all(|secs| refuse(secs) == Patience::Left));
        assert_eq!(refuse(1160), Patience::Over);
        assert_eq!(refuse(1161), Patience::Over, "it stays so");
        assert_eq!(refuse(1192), Patience::Left, "after a pause");
    }

    #[test]
    fn flags_and_class_do_not_touch_each_other() {
        let plan = RhythmConfig::default().build().unwrap();
        let mut publisher = Publisher::new(PublisherKey::new(1), 0, Rhythm::new(&plan));
        assert_eq!(publisher.class(), None);
        publisher.set(Flag::Troubled, true);
        for class in [ClassId::LOW, ClassId::HIGH, ClassId::NORMAL] {
            publisher.set_class(class);
            assert_eq!(publisher.class(), Some(class));
        }
        assert!(publisher.may_refresh() && !publisher.may_refresh());
        assert_eq!(publisher.begin_second(), None);
        assert!(publisher.may_refresh() && publisher.class().is_none() && publisher.has(Flag::Troubled));
    }

    #[test]
    fn f129_a_rhythm_that_has_become_four_times_as_fast_is_told_once() {
        let plan = RhythmConfig::default().build().unwrap();
        let mut told = alloc::vec::Vec::new();
        let mut publisher = Publisher::new(PublisherKey::new(1), 0, Rhythm::new(&plan));
        for secs in [16, 10, 5, 4, 3, 2, 1] {
            publisher.rhythm = Rhythm::resume(&plan, Duration::from_secs(secs), Timestamp::ZERO);
            told.extend(publisher.begin_second().map(|(before, now)| (before.as_secs(), now.as_secs())));
        }
        assert_eq!(told, [(16, 4), (4, 1)]);
    }
}
