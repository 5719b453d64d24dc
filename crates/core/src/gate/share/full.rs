//! What is known of a queue that is full: since when, how fast it is sent, and how often something new took the place of
//! something older.
//!
//! Time is an argument. Told by `deliver`, asked by the gate of shares.

use core::time::Duration;

use tidegate_control::Timestamp;

/// Nobody is refused before a queue has been full for so long...
pub(super) const FULL_FOR: Duration = Duration::from_secs(1);
/// ...which begins anew when nothing found it so for this long. Refusing makes some room; that is no reason to forget.
pub(super) const FULL_GAP: Duration = Duration::from_secs(2);
/// How fast a queue drains is told from the last one or two of these: a receiver that stops refuses nobody soon after.
const DRAIN_WINDOW: Duration = FULL_FOR;
/// A full queue takes so many new messages for old ones in this time: as many in a second as it has room for by default, so
/// what waits is no older than that. Each costs two copies more than one that is not let in.
const REPLACED_MAX: u32 = 1024;
const REPLACED_WINDOW: Duration = Duration::from_millis(100);
/// A queue that lasts for so long lasts for some pauses; timers are late by a millisecond or two.
pub(super) const LASTS_FOR: Duration = Duration::from_millis(8);

/// Since when a queue has been full, and what it has sent of late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full {
    since: Timestamp,
    last: Timestamp,
    /// What was sent since then, at most for a second, and in the second before.
    counted_from: Timestamp,
    sent: u32,
    sent_before: u32,
    /// What took the place of something older since then.
    replaced_from: Timestamp,
    replaced: u32,
}

impl Full {
    /// A message found no room.
    pub(crate) fn note(full: &mut Option<Self>, now: Timestamp) {
        match full {
            Some(full) if now.since(full.last) < FULL_GAP => full.last = now,
            _ => *full = Some(Self::new(now)),
        }
    }

    fn new(now: Timestamp) -> Self {
        let (counted_from, replaced_from) = (now, now);
        Self { since: now, last: now, counted_from, sent: 0, sent_before: 0, replaced_from, replaced: 0 }
    }

    /// A message found no room. Whether it may take the place of something older: what a flood sends is not worth being
    /// kept for a moment, each of them.
    pub(crate) fn may_replace(&mut self, now: Timestamp) -> bool {
        if now.since(self.replaced_from) >= REPLACED_WINDOW {
            (self.replaced_from, self.replaced) = (now, 0);
        }
        self.replaced = self.replaced.saturating_add(1);
        self.replaced <= REPLACED_MAX
    }

    /// A message was sent.
    pub(crate) fn note_sent(&mut self, now: Timestamp) {
        self.go_on(now);
        self.sent = self.sent.saturating_add(1);
    }

    /// A message was refused for it: it would have found no room.
    pub(crate) fn note_refused(&mut self, now: Timestamp) {
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

    /// Whether so many messages that wait are more than are sent while whoever sends too much is not read for a
    /// moment (`turned_away`): nobody misses anything.
    pub(crate) fn lasts(mut self, waiting: usize, now: Timestamp) -> bool {
        self.go_on(now);
        let before = if self.counted_from > self.since { DRAIN_WINDOW } else { Duration::ZERO };
        let time = before + now.since(self.counted_from);
        let sent = f64::from(self.sent.saturating_add(self.sent_before));
        time >= LASTS_FOR && sent * LASTS_FOR.as_secs_f64() <= waiting as f64 * time.as_secs_f64()
    }

    /// Messages per second that it sends; none if it has not been full for long enough, or sent nothing of late.
    pub(crate) fn rate(mut self, now: Timestamp) -> Option<f64> {
        self.go_on(now);
        let has_been_full = now.since(self.since) >= FULL_FOR && now.since(self.last) < FULL_GAP;
        let (sent, time) = (self.sent.saturating_add(self.sent_before), DRAIN_WINDOW + now.since(self.counted_from));
        (has_been_full && sent > 0).then(|| f64::from(sent) / time.as_secs_f64())
    }
}
