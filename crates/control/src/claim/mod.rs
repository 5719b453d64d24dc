//! What a publisher is used to, and which of its messages it may therefore count on.
//!
//! One [`Claim`] for each client identifier learns a rate ρ and a batch b, and fills a bucket of tokens with 2ρ a second up
//! to 8 + b. A message that finds a token is [`Colour::Entitled`], any other is [`Colour::Excess`]. Nobody is slowed here:
//! where something is scarce, who serves it takes the entitled first (`order`, and the queues of receivers). The caller
//! tells every message, and when the connection had last been read dry; this module knows neither sockets nor receivers.
//!
//! *Learning.* A second is *calm* if its publisher had been read dry within the second before and its messages were not
//! all refused: what it sent is then what it wanted to send. A stranger becomes known after 60 calm seconds and 8
//! messages; ρ is then their number by those seconds. From there ρ follows the mean by a factor of two an hour, upwards in
//! calm seconds only. The mean is one of 64 s, or of 16 messages if those take longer: with 64 s alone a sensor that
//! speaks every ten minutes would lose nine tenths of its claim. b is the most that came in two calm seconds in a row, and
//! at most 512, or a second of ρ.
//!
//! *Young* is a claim for some seven minutes after it was learned: a first minute may have been anything, a backlog or a
//! fault. For so long ρ falls with the mean, by a factor of e in 64 s, in seconds in which something came, and stays at most a
//! sixteenth above it; a pause, however long, counts for 16 s: it tells little of how fast somebody is. So whoever floods in
//! its first minute and is then as usual has the usual claim seven minutes later, and not after an hour for each halving.
//!
//! *Grants.* An operator's rate stands before what was learned, with a second of it as the batch. Learning goes on beneath:
//! when the grant is taken back, the claim is what it would be without it.
//!
//! *Unread.* Who waits to be read loses nothing by it: the bucket is then as deep as 60 s of its rate.
//!
//! *Who trains a claim* needs an hour of sending for each doubling while nobody is in its way, and gets what that buys:
//! 2ρ a second, and once 8 + max(512, ρ) on top, beside others with a claim, and shared with all others of its parent.
//! The sum of a parent's ρ grows no further than the caller allows ([`Claim::go_on`]).

mod learn;
#[cfg(test)]
mod tests;

use crate::compact;
use crate::time::Timestamp;

/// Whether a message is within what its publisher is used to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Colour {
    /// The message is within the claim.
    #[default]
    Entitled,
    /// It is more than that, or nothing is known of its publisher.
    Excess,
}

/// The numbers of a claim; one for all publishers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClaimPlan {
    /// Tokens come at this many times ρ.
    pub headroom: f32,
    /// Depth of the bucket, batches apart.
    pub burst: f32,
    /// The largest b that is learned, unless a second of ρ is more.
    pub batch_max: f32,
}

impl Default for ClaimPlan {
    fn default() -> Self {
        Self { headroom: 2.0, burst: 8.0, batch_max: 512.0 }
    }
}

/// What is known of one publisher: 29 bytes without an alignment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Claim {
    /// While learning: messages (4) and calm seconds (2). Then ρ and the mean.
    body: [u8; 8],
    tokens: [u8; 4],
    /// When the last message came, in milliseconds modulo 2³².
    last_ms: [u8; 4],
    /// Messages in the second of the last one, and a second from the one of the message before up to it.
    count: [u8; 3],
    before: [u8; 2],
    /// Mean of the seconds before with weights that fall by e in ten of them, and how many seconds there were.
    recent: [u8; 2],
    age: u8,
    batch: [u8; 2],
    /// What the operator has granted, to a part in two thousand.
    grant: [u8; 2],
    flags: u8,
}

const LEARNED: u8 = 1;
const GRANTED: u8 = 2;
/// The second of the last message is not calm.
const STRAINED: u8 = 4;
/// The second before it was calm.
const CALM_BEFORE: u8 = 8;
/// A message has come.
const SEEN: u8 = 16;
/// How many ends of a [`YOUNG_STEP`] a claim is still young for, in the three bits above.
const YOUNG_SHIFT: u32 = 5;
const YOUNG_MAX: u8 = 7;

impl Claim {
    /// Known from before a restart, with the time of its last message.
    pub fn resume(plan: &ClaimPlan, rate: f32, batch: u32, last_at: Timestamp) -> Self {
        let mut claim = Self { last_ms: ms(last_at).to_le_bytes(), ..Self::default() };
        claim.learn(plan, rate, batch);
        claim
    }

    fn learn(&mut self, plan: &ClaimPlan, rate: f32, batch: u32) {
        let rate = if rate.is_finite() { rate.clamp(RATE_MIN, RATE_MAX) } else { RATE_MIN };
        self.flags |= LEARNED;
        self.batch = (batch.min(plan.batch_most(rate)) as u16).to_le_bytes();
        self.set_rates(rate, rate);
        if !self.is_granted() {
            self.set_tokens(self.depth(plan));
        }
    }

    /// The operator has said what it is entitled to, or takes that back: then it has what was learned, and no more.
    pub fn grant(&mut self, plan: &ClaimPlan, rate: Option<f32>) {
        let code = rate.map_or(0, |rate| compact::close(rate.clamp(RATE_MIN, RATE_MAX)));
        if code == u16::from_le_bytes(self.grant) {
            return;
        }
        self.grant = code.to_le_bytes();
        if rate.is_some() {
            self.flags |= GRANTED;
            self.set_tokens(self.depth(plan));
        } else {
            self.flags &= !GRANTED;
            let most = if self.flags & LEARNED == 0 { 0.0 } else { self.depth(plan) };
            self.set_tokens(f32::from_le_bytes(self.tokens).min(most));
        }
    }

    /// Nothing is learned of it any more; what is granted stays.
    pub fn forget(&mut self) {
        let Self { tokens, last_ms, grant, flags, .. } = *self;
        *self = Self::default();
        if flags & GRANTED != 0 {
            (self.tokens, self.last_ms, self.grant, self.flags) = (tokens, last_ms, grant, flags & (GRANTED | SEEN));
        }
    }

    /// Whether the operator has set the rate.
    #[inline]
    pub fn is_granted(&self) -> bool {
        self.flags & GRANTED != 0
    }

    /// Whether this is the first message in a second, so that [`go_on`](Self::go_on) is due before it is counted.
    #[inline]
    pub fn ends_second(&self, now: Timestamp) -> bool {
        u32::from_le_bytes(self.last_ms) / 1000 != ms(now) / 1000 || self.flags & SEEN == 0
    }

    /// The seconds up to this one are over. The connection was last known to be read dry at `dry_at`; ρ may grow by `room` at
    /// most. The answer is by how much it has changed, granted or not.
    #[cold]
    pub fn go_on(&mut self, plan: &ClaimPlan, now: Timestamp, dry_at: Timestamp, room: f32) -> f32 {
        if self.flags & SEEN == 0 {
            self.flags |= SEEN;
            self.last_ms = ms(now).to_le_bytes();
            return 0.0;
        }
        let passed = self.seconds_until(now).max(1);
        // Seconds that end at most one second after it was dry, from that of the last message on.
        let waiting = u32::try_from(now.since(dry_at).as_millis() / 1000).unwrap_or(u32::MAX);
        let calm = passed.saturating_sub(waiting.saturating_sub(1));
        let is_calm = self.flags & STRAINED == 0 && calm > 0;
        let silent = calm.saturating_sub(1);
        let count = self.count();
        let before = self.learned_rate().unwrap_or(0.0);
        // Up to now by the rate of the time that has passed.
        self.set_tokens(self.tokens_at(plan, now, dry_at));
        self.last_ms = ms(now).to_le_bytes();
        self.study(plan, is_calm.then_some(count), silent, room);
        if is_calm {
            let pair = count + if self.flags & CALM_BEFORE != 0 { self.before() } else { 0 };
            let most = plan.batch_most(self.learned_rate().unwrap_or(0.0));
            self.batch = (self.batch().max(pair.min(most)) as u16).to_le_bytes();
        }
        self.count_second(count, passed);
        self.grow_older(now, passed);
        self.flags = self.flags & !(STRAINED | CALM_BEFORE) | if is_calm && passed == 1 { CALM_BEFORE } else { 0 };
        self.learned_rate().unwrap_or(0.0) - before
    }

    /// A message comes, `go_on` having been told of a new second. Takes a token if there is one.
    #[inline]
    pub fn on_message(&mut self, plan: &ClaimPlan, now: Timestamp, dry_at: Timestamp) -> Colour {
        let count = (self.count() + 1).min(COUNT_MAX).to_le_bytes();
        self.count = [count[0], count[1], count[2]];
        if now.since(dry_at) > CALM_WINDOW {
            self.flags |= STRAINED;
        }
        let tokens = self.tokens_at(plan, now, dry_at);
        self.last_ms = ms(now).to_le_bytes();
        let is_entitled = tokens >= 1.0;
        self.set_tokens(if is_entitled { tokens - 1.0 } else { tokens });
        if is_entitled { Colour::Entitled } else { Colour::Excess }
    }

    /// How many of the messages that come at the same time as the last one find a token.
    #[inline]
    pub fn tokens(&self) -> u32 {
        f32::from_le_bytes(self.tokens) as u32
    }

    /// So many more came at the same time as the last one, and so many of them have taken a token: no more than
    /// [`tokens`](Self::tokens) said.
    pub fn on_more(&mut self, count: u32, entitled: u32) {
        let count = self.count().saturating_add(count).min(COUNT_MAX).to_le_bytes();
        self.count = [count[0], count[1], count[2]];
        self.set_tokens(f32::from_le_bytes(self.tokens) - entitled as f32);
    }

    /// A message was not taken, or reached nobody, for want of room: what comes now is not what it would send.
    pub fn on_refused(&mut self) {
        self.flags |= STRAINED;
    }

    /// How many of its next messages are entitled.
    #[inline]
    pub fn tokens_at(&self, plan: &ClaimPlan, now: Timestamp, dry_at: Timestamp) -> f32 {
        let Some(rate) = self.rate() else { return 0.0 };
        let tokens = f32::from_le_bytes(self.tokens);
        let passed = ms(now).wrapping_sub(u32::from_le_bytes(self.last_ms));
        // A clock that went back has not passed at all.
        let passed = if passed > u32::MAX / 2 { 0 } else { passed };
        if passed == 0 {
            return tokens;
        }
        let (rate, depth) = (rate * plan.headroom, self.depth(plan));
        let unread = u32::try_from(now.since(dry_at).as_millis()).unwrap_or(u32::MAX).min(passed);
        let dry = (passed - unread) as f32 / 1000.0;
        // Up to when it was read dry the bucket has its usual depth; what follows is our own delay.
        let tokens = if dry > 0.0 { (tokens + rate * dry).min(depth.max(1.0)) } else { tokens };
        (tokens + rate * (unread as f32 / 1000.0)).min((rate * UNREAD_SECS).max(depth))
    }

    /// What it is entitled to, in messages a second: what is granted, else ρ. None of a stranger.
    #[inline]
    pub fn rate(&self) -> Option<f32> {
        if self.is_granted() { Some(compact::open(u16::from_le_bytes(self.grant))) } else { self.learned_rate() }
    }

    /// ρ, whatever is granted; none if it is not known.
    #[inline]
    pub fn learned_rate(&self) -> Option<f32> {
        (self.flags & LEARNED != 0).then(|| self.rho())
    }

    /// Tokens that a bucket holds. Whoever is granted a rate may send a second of it at once.
    #[inline]
    fn depth(&self, plan: &ClaimPlan) -> f32 {
        let granted = if self.is_granted() { compact::open(u16::from_le_bytes(self.grant)) } else { 0.0 };
        plan.burst + (self.batch() as f32).max(granted)
    }

    /// ρ, or what is known before it is learned: the mean since its first message, once there are several.
    pub fn likely_rate(&self, now: Timestamp) -> Option<f64> {
        if let Some(rate) = self.rate() {
            return Some(rate.into());
        }
        let (messages, calm) = self.learning();
        (messages + self.count() >= LIKELY_MESSAGES)
            .then(|| self.recent_rate(now).max(f64::from(messages) / f64::from(calm.max(1))))
    }

    /// What a stranger's rate is at most, as far as it is known: that of the messages that came and one more. None of one
    /// that was watched for less than [`BOUND_SECONDS`].
    pub fn rate_bound(&self, now: Timestamp) -> Option<f64> {
        if let Some(rate) = self.rate() {
            return Some(rate.into());
        }
        let (messages, seconds) = self.watched(now)?;
        (seconds >= f64::from(BOUND_SECONDS)).then(|| (messages + 1.0) / seconds)
    }

    /// The mean rate of the messages that came before this time, or of late if that is more: 0 before the first.
    pub fn rate_so_far(&self, now: Timestamp) -> f64 {
        if let Some(rate) = self.rate() {
            return rate.into();
        }
        self.watched(now).map_or(0.0, |(messages, seconds)| (messages / seconds).max(self.recent_rate(now)))
    }

    /// Messages of a stranger, and the seconds in which they came: calm ones, and those since the last one; at least one.
    fn watched(&self, now: Timestamp) -> Option<(f64, f64)> {
        let (messages, calm) = self.learning();
        let seconds = u64::from(calm) + u64::from(self.seconds_until(now));
        (self.flags & SEEN != 0).then(|| (f64::from(messages + self.count()), seconds.max(1) as f64))
    }

    /// b: messages that it is known to send at once.
    #[inline]
    pub fn batch(&self) -> u32 {
        u16::from_le_bytes(self.batch).into()
    }

    /// Messages a second before the second of the last one: what it was served. 0 if that is not known.
    pub fn served(&self) -> f32 {
        compact::open(u16::from_le_bytes(self.before))
    }

    /// Messages per second over the last ten seconds, less if it began to publish later.
    pub fn recent_rate(&self, now: Timestamp) -> f64 {
        if self.flags & SEEN == 0 {
            return 0.0;
        }
        let mut claim = *self;
        let passed = self.seconds_until(now);
        if passed > 0 {
            claim.count_second(claim.count(), passed);
        }
        let part = (ms(now) % 1000) as f32 / 1000.0;
        let sum = claim.recent() * fade(part) + claim.count() as f32 * (1.0 - FADE);
        // What was never watched is not missing; but nobody's rate is told from less than a second.
        f64::from(sum / (1.0 - fade((f32::from(claim.age) + part).max(1.0))))
    }

    /// The time of its last message, as seen from now.
    pub fn last_at(&self, now: Timestamp) -> Timestamp {
        let ago = u64::from(ms(now).wrapping_sub(u32::from_le_bytes(self.last_ms)));
        Timestamp::from_nanos(now.as_nanos().saturating_sub(ago * 1_000_000))
    }

    /// ρ and the mean.
    fn rates(&self) -> [f32; 2] {
        let [a, b, c, d, e, f, g, h] = self.body;
        [[a, b, c, d], [e, f, g, h]].map(f32::from_le_bytes)
    }

    fn rho(&self) -> f32 {
        self.rates()[0]
    }

    fn set_rates(&mut self, rate: f32, mean: f32) {
        let [[a, b, c, d], [e, f, g, h]] = [rate, mean].map(f32::to_le_bytes);
        self.body = [a, b, c, d, e, f, g, h];
    }

    fn set_tokens(&mut self, tokens: f32) {
        self.tokens = tokens.to_le_bytes();
    }

    fn count(&self) -> u32 {
        let [a, b, c] = self.count;
        u32::from_le_bytes([a, b, c, 0])
    }

    fn before(&self) -> u32 {
        self.served() as u32
    }

    fn recent(&self) -> f32 {
        compact::open(u16::from_le_bytes(self.recent))
    }
}

impl ClaimPlan {
    fn batch_most(&self, rate: f32) -> u32 {
        (self.batch_max.max(rate) as u32).min(u16::MAX.into())
    }
}

/// What is left of a second's weight so many seconds later.
fn fade(seconds: f32) -> f32 {
    libm::expf(-seconds / RECENT_SECS)
}

fn ms(time: Timestamp) -> u32 {
    (time.as_nanos() / 1_000_000) as u32
}

/// A publisher is known after so many calm seconds...
pub const LEARN_SECONDS: u32 = 60;
/// ...and messages.
pub const LEARN_MESSAGES: u32 = 8;
/// So many seconds tell what a rate is at most. Who comes with ever new names is not taken for rare within them.
pub const BOUND_SECONDS: u32 = 5;
/// So many messages tell a rate that is good enough to rank by.
const LIKELY_MESSAGES: u32 = 4;
/// Read dry within this time, a publisher is served as it likes.
pub const CALM_WINDOW: core::time::Duration = core::time::Duration::from_secs(1);
/// Seconds of its rate that somebody who waits to be read is owed.
const UNREAD_SECS: f32 = 60.0;
const HOUR: f32 = 3600.0;
/// Seconds. A claim is young until seven multiples of this have passed.
const YOUNG_STEP: u32 = 64;
/// By how much a young claim stays above the mean: a second in which the client was slowed for the first time, so that little
/// came, is not a change of what is usual.
const YOUNG_SLACK: f32 = 1.0625;
/// Seconds that a pause counts for, however long it is, as long as a claim is young.
const YOUNG_SILENCE: u32 = 16;
/// Steps beyond a day are none: ρ cannot change by more than what was seen anyway.
const SECONDS_MAX: u32 = 86_400;
/// Slower than a message in three years is not told apart, nor faster than any link.
const RATE_MIN: f32 = 1e-8;
const RATE_MAX: f32 = 1e8;
const COUNT_MAX: u32 = (1 << 24) - 1;
/// Over how long a recent rate is averaged.
const RECENT_SECS: f32 = 10.0;
/// e^(−1/10).
const FADE: f32 = 0.904_837_4;
/// After so many silent seconds a recent rate is as if it had just begun.
const SILENCE_MAX: u32 = 60;
