//! How much lies unread at a client, by the window that its machine offers, and how much of a flood may follow.
//!
//! A socket that takes everything says nothing about its reader: its buffer takes 64 to 250 KiB, which is seconds of a
//! reader of five hundred small messages a second. But each acknowledgement carries a window, the room that is left. Its
//! *edge*, what was acknowledged and the window, moves on when the client reads: that is its rate. The window of an empty
//! buffer is not known; the largest that was seen is taken for it, and slowly forgotten, because it depends on the sizes
//! of what is in the buffer, too.
//!
//! Both are coarse: memory is given back in steps of several KiB, and the window grows when a buffer is first used, which hides up to
//! 40 KiB. So no more is asked than whether about [`UNREAD_MAX`] bytes, or what is read in [`AHEAD`], are there; it is asked about excess
//! alone, so whoever is wrong about it costs a flooder; and a reader that is found with nothing left, as one that reads every
//! second or so, has more the next time.
//!
//! Time is an argument.

use std::time::Duration;

use tidegate_control::Timestamp;

/// Bytes that may lie unread at a client of which nothing is known: more than the window of an empty buffer varies by.
const UNREAD_MAX: u32 = 12 * 1024;
/// The same of one that was found with nothing left, at most...
const UNREAD_MAX_OF_BATCHES: u32 = 64 * 1024;
/// ...which is forgotten by half when that was not so for this long.
const BATCHES_FORGOTTEN_AFTER: Duration = Duration::from_secs(5);
/// What may lie unread at one whose rate is known, in time.
const AHEAD: Duration = Duration::from_millis(250);
/// The rate is that of about so long.
const SMOOTHED_OVER: Duration = Duration::from_millis(500);
/// Bytes per second by which the largest window is forgotten.
const FORGOTTEN_PER_SECOND: f32 = 2000.0;
/// What was read is not told before something is sent: so many bytes per second are, at least, or half of the rate.
const PROBED_PER_SECOND: f32 = 4000.0;
/// Looks at one that has no allowance: so soon, if it has read a quarter of what it may have since the last one...
const LOOK_SOONEST: Duration = Duration::from_millis(1);
/// ...then later and later, up to this...
const LOOK_LATEST: Duration = Duration::from_millis(16);
/// ...or to this, if it reads nothing at all.
const LOOK_AT_STUCK: Duration = Duration::from_millis(128);

/// Bytes after which a client is looked at for the first time.
pub(crate) const FIRST_LOOK: u32 = UNREAD_MAX / 2;

/// What the kernel knows of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowLook {
    /// Bytes that the client's machine has acknowledged.
    pub(crate) acknowledged: u64,
    /// Bytes that it has room for beyond these.
    pub(crate) window: u32,
}

/// What is known of one client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowGauge {
    /// The window of an empty buffer, as far as is known.
    empty: f32,
    edge: u64,
    /// Bytes per second that are read.
    rate: f32,
    unread: f32,
    /// Bytes that may lie there in any case.
    floor: u32,
    floor_at: Timestamp,
    looked_at: Timestamp,
    /// Bytes that were written since then.
    written: u32,
    /// Bytes that may be sent to be told of what was read; below zero, of which too many were.
    probes: f32,
    /// Until the next look, if there is no allowance.
    pause: Duration,
}

impl WindowGauge {
    pub(crate) fn new(look: WindowLook, now: Timestamp) -> Self {
        Self {
            empty: look.window as f32,
            edge: edge(look),
            rate: 0.0,
            unread: 0.0,
            floor: UNREAD_MAX,
            floor_at: now,
            looked_at: now,
            written: 0,
            probes: 0.0,
            pause: LOOK_SOONEST,
        }
    }

    /// So many bytes went to the kernel; whether it is time to look.
    pub(crate) fn on_written(&mut self, bytes: usize) -> bool {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.written = self.written.saturating_add(bytes);
        self.probes -= bytes as f32;
        self.is_due()
    }

    /// Half of what may lie unread was written since the last look.
    pub(crate) fn is_due(&self) -> bool {
        self.written as f32 >= self.limit() / 2.0
    }

    /// What the kernel says now.
    pub(crate) fn on_look(&mut self, look: WindowLook, now: Timestamp) {
        let span = now.since(self.looked_at).as_secs_f32();
        let (window, edge) = (look.window as f32, edge(look));
        // A window that has grown beyond all others does not say what was read.
        let grown = (window - self.empty).max(0.0);
        let read = (edge.saturating_sub(self.edge) as f32 - grown).max(0.0);
        self.empty = (self.empty - FORGOTTEN_PER_SECOND * span).max(window);
        if span > 0.0 {
            self.rate += (read / span - self.rate) * span / (span + SMOOTHED_OVER.as_secs_f32());
        }
        let was_due = self.unread >= self.limit() / 2.0;
        self.unread = self.empty - window;
        self.follow_batches(was_due && read >= self.limit() / 2.0, now);
        self.pause = if read >= self.limit() / 4.0 {
            LOOK_SOONEST
        } else {
            (self.pause * 2).min(if read > 0.0 { LOOK_LATEST } else { LOOK_AT_STUCK })
        };
        let least = (self.rate / 2.0).max(PROBED_PER_SECOND);
        self.probes = (self.probes + least * span).clamp(-least, least * LOOK_LATEST.as_secs_f32());
        (self.edge, self.looked_at, self.written) = (edge, now, 0);
    }

    /// Who had something and has nothing left, all at once, reads in batches.
    fn follow_batches(&mut self, has_read_much: bool, now: Timestamp) {
        if has_read_much && self.unread <= self.floor as f32 / 8.0 {
            (self.floor, self.floor_at) = ((self.floor * 2).min(UNREAD_MAX_OF_BATCHES), now);
        } else if self.floor > UNREAD_MAX && now.since(self.floor_at) >= BATCHES_FORGOTTEN_AFTER {
            (self.floor, self.floor_at) = ((self.floor / 2).max(UNREAD_MAX), now);
        }
    }

    /// Bytes in excess that may be sent before the next look.
    pub(crate) fn allowance(&self) -> u32 {
        let allowed = (self.limit() - self.unread).max(self.probes);
        // Up to a turn's worth of the fastest; and never what stands for "nobody knows".
        allowed.clamp(0.0, (u32::MAX / 2) as f32) as u32
    }

    /// When to look at a client without allowance.
    pub(crate) fn look_at(&self) -> Timestamp {
        self.looked_at + self.pause
    }

    /// Bytes that may lie unread.
    fn limit(&self) -> f32 {
        (self.rate * AHEAD.as_secs_f32()).max(self.floor as f32)
    }
}

/// Where what may be sent ends.
fn edge(look: WindowLook) -> u64 {
    look.acknowledged.saturating_add(u64::from(look.window))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client's machine: a buffer of so many bytes, and what was read of it.
    struct Reader {
        buffer: u64,
        sent: u64,
        read: u64,
        gauge: WindowGauge,
    }

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_nanos(1_000_000_000 + micros * 1000)
    }

    impl Reader {
        fn new(buffer: u64) -> Self {
            let look = WindowLook { acknowledged: 0, window: buffer as u32 };
            Self { buffer, sent: 0, read: 0, gauge: WindowGauge::new(look, at(0)) }
        }

        fn look(&self) -> WindowLook {
            WindowLook { acknowledged: self.sent, window: (self.buffer - (self.sent - self.read)) as u32 }
        }

        /// A flood without end for so many milliseconds; `reads` says how much is read in each of them. What was unread at most.
        fn flood(&mut self, from: u64, millis: u64, reads: impl Fn(u64) -> u64) -> u64 {
            let mut most = 0;
            let mut due = at(0);
            for milli in from..from + millis {
                self.read = self.sent.min(self.read + reads(milli));
                let now = at(milli * 1000);
                if now >= due {
                    self.gauge.on_look(self.look(), now);
                    let room = self.buffer - (self.sent - self.read);
                    let allowed = u64::from(self.gauge.allowance()).min(room);
                    self.sent += allowed;
                    self.gauge.on_written(allowed as usize);
                    due = self.gauge.look_at();
                }
                most = most.max(self.sent - self.read);
            }
            most
        }
    }

    #[test]
    fn a_slow_reader_has_little_unread_and_is_never_without() {
        let mut reader = Reader::new(100_000);
        let most = reader.flood(1, 5000, |_| 35);
        assert!(most <= u64::from(UNREAD_MAX) * 2, "{most} of 100 000 bytes lay unread");
        assert!(reader.read >= 5000 * 35 * 95 / 100, "{} were read of 175 000", reader.read);
    }

    #[test]
    fn a_fast_reader_is_fast_after_a_few_looks() {
        let mut reader = Reader::new(3_000_000);
        reader.flood(1, 1000, |_| 60_000);
        assert!(reader.read >= 1000 * 60_000 * 9 / 10, "{} were read of 60 000 000", reader.read);
    }

    #[test]
    fn who_reads_once_a_second_gets_what_it_reads() {
        let mut reader = Reader::new(200_000);
        // All there is, every second.
        reader.flood(1, 10_000, |milli| if milli % 1000 == 0 { u64::MAX / 2 } else { 0 });
        let before = reader.read;
        reader.flood(10_001, 5_000, |milli| if milli % 1000 == 0 { u64::MAX / 2 } else { 0 });
        let a_second = (reader.read - before) / 5;
        assert!(a_second >= u64::from(UNREAD_MAX) * 3, "{a_second} bytes a second");
    }

    #[test]
    fn a_window_that_was_once_larger_does_not_starve_its_reader() {
        let mut reader = Reader::new(100_000);
        reader.flood(1, 1000, |_| 35);
        // Its machine has less room from now on, by more than may lie unread.
        reader.buffer -= 20_000;
        let before = reader.read;
        reader.flood(1001, 10_000, |_| 35);
        assert!(reader.read - before >= 10_000 * 35 / 2, "{}", reader.read - before);
    }

    #[test]
    fn whoever_reads_nothing_is_looked_at_seldom_and_sent_next_to_nothing() {
        let mut reader = Reader::new(100_000);
        reader.flood(1, 2000, |_| 0);
        assert_eq!(reader.gauge.pause, LOOK_AT_STUCK);
        assert!(reader.sent <= 3 * u64::from(UNREAD_MAX), "{}", reader.sent);
    }

    #[test]
    fn a_look_comes_after_half_of_what_may_lie_unread() {
        let mut gauge = WindowGauge::new(WindowLook { acknowledged: 0, window: 65_536 }, at(0));
        assert!(!gauge.on_written(1000));
        assert!(gauge.on_written(UNREAD_MAX as usize / 2));
    }
}
