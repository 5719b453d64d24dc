//! What a receiver has been sent and has not read yet: bytes in buffers of two kernels, where nothing can be overtaken.
//!
//! The socket takes much more than a slow receiver reads, so what it takes says nothing. Two figures of TCP do. The peer's
//! *window* falls by what lies unread, once that is more than a few KiB (a Linux peer tells of no less); that is how a
//! receiver is found that has fallen behind. And *when an acknowledgement comes*: a peer acknowledges a little that it was
//! sent when its program has read all of it, or when its timer for that ends, 40 ms later. So whoever is behind gets
//! *portions*: one, and the next when that is acknowledged. Early means that it was read, and the portion grows to what
//! is read in [`AHEAD`]; late means that more lies there, and the portion falls until nothing does. What waits meanwhile
//! waits in the session's queue, where the order of service holds.
//!
//! A receiver that takes [`PORTION_FAST`] at a time is not slow any more, and one that is not [`NEAR`] gets what its socket
//! takes. Time and figures are arguments; driven by `Shard::handle_look`, asked by `deliver`.

mod portions;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use core::time::Duration;

use tidegate_control::Timestamp;

use portions::{Portions, Round};

/// What the kernel knows of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpState {
    /// Bytes that the peer has acknowledged, ever.
    pub acked: u64,
    /// Bytes that were written and are not acknowledged: under way, or not even sent.
    pub outstanding: u64,
    /// Bytes that the peer has room for, as it said last.
    pub window: u32,
    /// The shortest time in which anything was acknowledged.
    pub rtt_min: Duration,
}

/// What a slow receiver has before it, in time; less than a peer's timer for acknowledgements (40 ms).
const AHEAD: Duration = Duration::from_millis(28);
/// A portion costs a round trip in which a receiver has nothing to read: whoever is farther away than this gets none.
const NEAR: Duration = Duration::from_millis(1);
/// Less than this of a fallen window is noise: windows come in steps of a KiB or so, and grow with the first bytes.
const FALLEN_MIN: u32 = 2 * 1024;
/// Whoever reads what lies there within this time is not behind.
const BEHIND_MIN: Duration = Duration::from_millis(50);
/// Two looks at a receiver that seems to be behind, so far apart: a prompt one has read by then.
const SUSPECT_SPAN: Duration = Duration::from_millis(2);
/// Bytes between two looks at a receiver, for the first looks...
const LOOK_FIRST: u32 = 4 * 1024;
const FIRST_LOOKS: u8 = 8;
/// ...and as long as it is never behind: a look costs as much as a few messages.
const LOOK_LAST: u32 = 64 * 1024;
/// The same for one that was too fast for portions: a second or so, or what that cost would add up...
const LOOK_FAST: u32 = 2 * 1024 * 1024;
/// ...and for one that did not read at all: more than sockets take, so that it has read since.
const LOOK_STUCK: u32 = 256 * 1024;
/// Then looks are so far apart, besides.
const LOOK_SPAN: Duration = Duration::from_millis(20);
/// Who reads this much at a time (1 MB/s) is not slow: what its buffers hold is read in no time.
const PORTION_FAST: u32 = 32 * 1024;
/// Bytes a second of a receiver that may be slow: half of that.
const SLOW_MAX: f32 = 512.0 * 1024.0;
/// A receiver gets portions as long as something waited for it within this time.
const PRESSED_FOR: Duration = Duration::from_secs(1);

/// One receiver.
#[derive(Debug)]
pub(crate) struct Unread {
    /// Bytes that were written since the last look.
    written: u32,
    look_after: u32,
    /// Looks that found it prompt, as far as they are counted.
    looks: u8,
    looked_at: Timestamp,
    /// The window when nothing lay unread, as far as is known.
    open: u32,
    /// The kernel forgets it after some minutes.
    rtt_min: Duration,
    state: State,
}

#[derive(Debug)]
enum State {
    Free,
    /// It seems to be behind: a second look will tell.
    Suspect {
        since: Timestamp,
        acked: u64,
        fallen: u32,
    },
    Portioned(Box<Portions>),
}

/// What a look has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    Began,
    Ended,
}

impl Unread {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            written: 0,
            look_after: LOOK_FIRST,
            looks: 0,
            looked_at: now,
            open: 0,
            rtt_min: Duration::MAX,
            state: State::Free,
        }
    }

    pub(crate) fn is_portioned(&self) -> bool {
        matches!(self.state, State::Portioned(_))
    }

    /// More lies there than it should have, so that what it is sent says nothing about how fast it reads.
    pub(crate) fn is_draining(&self) -> bool {
        matches!(&self.state, State::Portioned(portions) if portions.is_draining())
    }

    /// Bytes that may still be given to it; none if there is no bound.
    #[inline]
    pub(crate) fn left(&self) -> Option<usize> {
        match &self.state {
            State::Free => None,
            // Whoever was prompt until now is not stopped for a look.
            State::Suspect { .. } => (self.look_after < LOOK_LAST).then_some(0),
            State::Portioned(portions) => Some(portions.left() as usize),
        }
    }

    /// So many bytes went to the socket.
    #[inline]
    pub(crate) fn on_written(&mut self, bytes: usize, now: Timestamp) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.written = self.written.saturating_add(bytes);
        if let State::Portioned(portions) = &mut self.state
            && bytes > 0
        {
            portions.on_written(bytes, now);
        }
    }

    /// When to look at it next; none if nothing is expected.
    #[inline]
    pub(crate) fn next_look(&self, now: Timestamp) -> Option<Timestamp> {
        match &self.state {
            State::Free if self.written < self.look_after => None,
            State::Free if self.look_after != LOOK_LAST => Some(now),
            State::Free => (now.since(self.looked_at) >= LOOK_SPAN).then_some(now),
            State::Suspect { since, .. } => Some(*since + self.suspect_span()),
            State::Portioned(portions) => portions.next_look(now),
        }
    }

    /// The kernel says nothing: whatever it takes has to be right.
    pub(crate) fn on_unseen(&mut self, now: Timestamp) -> Change {
        (self.looked_at, self.written, self.look_after) = (now, 0, LOOK_LAST);
        match core::mem::replace(&mut self.state, State::Free) {
            State::Portioned(_) => Change::Ended,
            State::Free | State::Suspect { .. } => Change::None,
        }
    }

    /// What the kernel says now. `is_waiting`: something waits for it; `may_portion`: not too many others get portions.
    pub(crate) fn on_look(&mut self, tcp: &TcpState, is_waiting: bool, may_portion: bool, now: Timestamp) -> Change {
        self.open = self.open.max(tcp.window);
        self.rtt_min = self.rtt_min.min(tcp.rtt_min);
        let may_portion = may_portion && self.rtt_min <= NEAR;
        (self.looked_at, self.written) = (now, 0);
        let (fallen, span) = (self.open - tcp.window, self.suspect_span());
        match &mut self.state {
            State::Free if may_portion && fallen >= FALLEN_MIN => {
                self.state = State::Suspect { since: now, acked: tcp.acked, fallen };
                Change::None
            }
            State::Free => {
                self.on_prompt();
                Change::None
            }
            State::Suspect { since, .. } if now.since(*since) < span => Change::None,
            State::Suspect { since, acked, fallen: before } => {
                // What it has read is what it has acknowledged and does not portions.
                let read = (tcp.acked.saturating_sub(*acked) as f32 + *before as f32 - fallen as f32).max(0.0);
                let span = now.since(*since).as_secs_f32();
                if may_portion && is_behind(fallen, read / span) {
                    self.state = State::Portioned(Box::new(Portions::new(fallen, tcp, now)));
                    Change::Began
                } else {
                    self.state = State::Free;
                    self.on_prompt();
                    Change::None
                }
            }
            State::Portioned(portions) => match portions.on_look(tcp, fallen, is_waiting, now) {
                Round::UnderWay => Change::None,
                Round::Ended { is_read } => {
                    // Whoever has read all of it has a window that is as open as it gets.
                    self.open -= if is_read { fallen / 8 } else { 0 };
                    Change::None
                }
                Round::Over => self.let_go(LOOK_FIRST, 0),
                Round::Fast => self.let_go(LOOK_FAST, FIRST_LOOKS),
                Round::Stuck => self.let_go(LOOK_STUCK, FIRST_LOOKS),
            },
        }
    }

    /// How long it is suspected: who goes on being sent to has time to show what it reads.
    fn suspect_span(&self) -> Duration {
        if self.look_after < LOOK_LAST { SUSPECT_SPAN } else { BEHIND_MIN }
    }

    fn on_prompt(&mut self) {
        self.looks = self.looks.saturating_add(1);
        if self.looks > FIRST_LOOKS {
            self.look_after = (self.look_after * 2).min(LOOK_LAST);
        }
    }

    /// It gets what there is, and is looked at after so many bytes.
    fn let_go(&mut self, look_after: u32, looks: u8) -> Change {
        (self.state, self.look_after, self.looks) = (State::Free, look_after, looks);
        Change::Ended
    }
}

/// Whether more lies there than is read in a moment, and slowly.
fn is_behind(fallen: u32, rate: f32) -> bool {
    fallen >= FALLEN_MIN && rate < SLOW_MAX && fallen as f32 > rate * BEHIND_MIN.as_secs_f32()
}
