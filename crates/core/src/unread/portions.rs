//! A receiver that is behind: one portion at a time, each as large as it reads before it would acknowledge by its timer.

use core::time::Duration;

use tidegate_control::Timestamp;

use super::{AHEAD, FALLEN_MIN, PORTION_FAST, PRESSED_FOR, TcpState};

/// An acknowledgement that takes longer came by the peer's timer: 40 ms and more.
const EARLY: Duration = Duration::from_millis(37);
/// One that takes less may be that of a peer that acknowledges at once whatever comes...
const INSTANT: Duration = Duration::from_millis(4);
/// ...which Linux does for so many packets after a connection has begun or was silent. They say nothing.
const INSTANTS_MAX: u8 = 17;
/// A connection that was silent for so long begins anew with that.
const SILENT: Duration = Duration::from_millis(200);
/// A program that reads ahead into a buffer of its own reads a portion or two too soon, and Linux
/// acknowledges at once now and then; so many in a row mean that it is faster.
const TOO_SOON_MAX: u8 = INSTANTS_MAX;
/// A portion of so many bytes that is not read shows in the window.
const LEFT_MIN: u32 = 2 * 1024;
/// Peers whose timer is longer (200 ms are usual elsewhere) are not waited for: their window has to tell.
const GIVEN_UP: Duration = Duration::from_millis(60);
/// The least portion that is meant as one: some packets. While more lies there it is a single message.
const PORTION_MIN: u32 = 512;
/// The rate is that of about so long.
const SMOOTHED_OVER: Duration = Duration::from_millis(100);
/// A receiver that has read most of what lay there after this time was only late to wake up.
const AWAKE_WITHIN: Duration = Duration::from_millis(20);
/// One that reads nothing at all in this time is not slow but stuck: it is left to its socket, which will refuse.
const STUCK: Duration = Duration::from_secs(2);
/// The first look at a portion; those when it should have been read; and those when it is late.
const LOOK_FIRST: Duration = Duration::from_millis(2);
const LOOK_OFTEN: Duration = Duration::from_millis(1);
const LOOK_LATE: Duration = Duration::from_millis(4);

#[derive(Clone, Copy, Debug)]
pub(super) struct Portions {
    /// Bytes of a portion.
    portion: u32,
    /// Bytes of it that were written, and since when; none of those before is under way then.
    sent: u32,
    since: Timestamp,
    /// The same of the portion before, and by how much the window had fallen then.
    before: u32,
    fallen: u32,
    /// When the last portion was acknowledged.
    ended_at: Timestamp,
    looked_at: Timestamp,
    /// Bytes a second that it reads.
    rate: f32,
    /// Portions one after the other that were read sooner than they should have been.
    too_soon: u8,
    /// The portion before was read.
    was_read: bool,
    /// No look has found the portion unread since it should have been read.
    was_first: bool,
    /// Acknowledgements that came at once, while it is not known what that means.
    instants: Option<u8>,
    began: Timestamp,
    fallen_at_first: u32,
    pressed_at: Timestamp,
    /// How far it has let us send, ever: that moves when it reads; and when it did.
    edge: u64,
    read_at: Timestamp,
}

/// What became of a portion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    UnderWay,
    Ended {
        is_read: bool,
    },
    /// It needs no portions any more.
    Over,
    /// It is too fast for portions.
    Fast,
    /// It does not read at all.
    Stuck,
}

impl Portions {
    pub(super) fn new(fallen: u32, tcp: &TcpState, now: Timestamp) -> Self {
        Self {
            portion: 1,
            // What lies there is the first portion.
            sent: u32::try_from(tcp.outstanding).unwrap_or(u32::MAX),
            since: now,
            before: 0,
            fallen,
            ended_at: now,
            looked_at: now,
            rate: 0.0,
            too_soon: 0,
            was_first: true,
            was_read: false,
            instants: Some(0),
            began: now,
            fallen_at_first: fallen,
            pressed_at: now,
            edge: tcp.acked + u64::from(tcp.window),
            read_at: now,
        }
    }

    /// It gets single messages until it has read what lies there.
    pub(super) fn is_draining(&self) -> bool {
        self.portion == 1
    }

    pub(super) fn left(&self) -> u32 {
        self.portion.saturating_sub(self.sent)
    }

    pub(super) fn on_written(&mut self, bytes: u32, now: Timestamp) {
        if self.sent == 0 {
            self.since = now;
            if now.since(self.ended_at) > SILENT {
                self.instants = Some(0);
            }
        }
        self.sent = self.sent.saturating_add(bytes);
    }

    /// Ever more seldom until it should have been read, and often from then on.
    pub(super) fn next_look(&self, now: Timestamp) -> Option<Timestamp> {
        if self.sent == 0 {
            return None;
        }
        let due = self.due();
        if now < due {
            let age = self.looked_at.since(self.since);
            return Some(due.min(self.since + (age * 2).max(LOOK_FIRST)));
        }
        let is_late = now.since(due) > INSTANT;
        Some(self.looked_at + if is_late { LOOK_LATE } else { LOOK_OFTEN })
    }

    /// When most of it should have been read.
    fn due(&self) -> Timestamp {
        let expected = if self.rate > 0.0 { self.sent as f32 / self.rate } else { 0.0 };
        self.since + Duration::from_secs_f32(expected.min(EARLY.as_secs_f32())).mul_f32(0.9)
    }

    pub(super) fn on_look(&mut self, tcp: &TcpState, fallen: u32, is_waiting: bool, now: Timestamp) -> Round {
        self.looked_at = now;
        if is_waiting {
            self.pressed_at = now;
        }
        let edge = tcp.acked + u64::from(tcp.window);
        if edge > self.edge {
            (self.edge, self.read_at) = (edge, now);
        }
        let was_asleep = now.since(self.began) < AWAKE_WITHIN && fallen < self.fallen_at_first / 4;
        if was_asleep || now.since(self.pressed_at) >= PRESSED_FOR {
            return Round::Over;
        }
        if now.since(self.read_at) >= STUCK {
            return Round::Stuck;
        }
        let took = now.since(self.since);
        let is_acked = tcp.outstanding == 0;
        if self.sent == 0 || (!is_acked && took < GIVEN_UP) {
            self.was_first &= now < self.due();
            return Round::UnderWay;
        }
        // Windows of those that read all they are given fall and rise by a KiB or two.
        let is_left = self.sent >= LEFT_MIN && fallen > self.fallen + self.sent / 2;
        let is_read = is_acked && self.is_read(took) && !is_left;
        let is_fallen = fallen > FALLEN_MIN + self.portion;
        let grown = self.portion.saturating_mul(2).max(PORTION_MIN);
        let portion = match (is_acked, is_fallen) {
            // One that is larger than the last may be acknowledged at once whatever is read: the next one tells.
            (true, _) if is_read && self.sent > self.before + self.before / 8 => self.portion,
            (true, false) if is_read => self.grown(grown, took, is_waiting, now),
            // A long timer, and nothing lies there as far as the window tells.
            (false, false) => grown,
            // What the acknowledgement means is not known yet.
            _ if self.instants.is_some() => 1,
            _ => {
                if self.was_read {
                    // Nothing else lay there: it reads more slowly than this.
                    self.rate = self.rate.min(self.sent as f32 / took.as_secs_f32());
                }
                self.portion / 2
            }
        };
        if is_read {
            self.read_at = now;
        }
        (self.was_read, self.fallen) = (is_read, fallen);
        (self.portion, self.before, self.sent) = (portion.max(1), self.sent, 0);
        (self.ended_at, self.was_first) = (now, true);
        if self.portion >= PORTION_FAST { Round::Fast } else { Round::Ended { is_read } }
    }

    /// Whether an acknowledgement after this time means that all was read.
    fn is_read(&mut self, took: Duration) -> bool {
        if let Some(instants) = &mut self.instants {
            *instants += 1;
            if took >= INSTANT || *instants > INSTANTS_MAX {
                self.instants = None;
            }
        }
        took < EARLY && self.instants.is_none()
    }

    /// The next portion of one that has read the last: twice as much at most, and what it reads in `AHEAD`.
    fn grown(&mut self, grown: u32, took: Duration, is_waiting: bool, now: Timestamp) -> u32 {
        let span = now.since(self.ended_at).as_secs_f32().max(1e-4);
        let sample = self.sent as f32 / span;
        // Where nothing waited, there may have been nothing to read.
        if is_waiting || sample > self.rate {
            let part = if self.rate > 0.0 { span / (span + SMOOTHED_OVER.as_secs_f32()) } else { 1.0 };
            self.rate += part * (sample - self.rate);
        }
        self.too_soon = if self.was_first { self.too_soon.saturating_add(1) } else { 0 };
        if self.too_soon >= TOO_SOON_MAX {
            self.rate = self.rate.max(sample);
            return grown;
        }
        let wanted = self.rate * AHEAD.as_secs_f32();
        // A rate counts only what there was to read: whoever was found to have read may be faster.
        let most = match () {
            () if took < INSTANT => (wanted * 2.0).max(PORTION_MIN as f32 * 2.0),
            () if self.was_first => wanted * 1.25,
            () => wanted,
        };
        grown.min(most.max(PORTION_MIN as f32) as u32)
    }
}
