//! The state of a rhythm as it is kept: 35 bytes, because a broker keeps one for every publisher it knows.
//!
//! The rules work on plain numbers; a state is opened for a decision and closed after it. What closing costs:
//! - times are multiples of 64 ns, counted modulo 2⁴⁸ (208 days) and opened with the help of the present one. A silence
//!   of more than 104 days looks like a clock that went back, which holds nobody;
//! - what is only compared or smoothed quickly has ten bits of mantissa, what is smoothed slowly keeps all of an `f32`.

use super::gcra::{Gcra, NEVER};
use super::learn::{FirstIntervals, LearnedInterval};
use super::paper::{Mean, Paper};
use crate::compact;
use crate::time::Timestamp;

/// `Gcra`, closed.
#[derive(Clone, Debug)]
pub(super) struct PackedGcra {
    phase: PackedPhase,
    last: [u8; 6],
    /// From `last` to the theoretical arrival, signed.
    debt: [u8; 6],
    /// ι and mean as `f32`; or the operator's ι, all of it; or the three longest intervals, the sum of the others, and how many they are.
    body: [u8; 10],
    batch: [u8; 3],
    refused_since: [u8; 3],
    short: [u8; 2],
    level: [u8; 3],
    peak: [u8; 2],
}

/// What `body` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PackedPhase {
    Unseen,
    Learning,
    Learned,
    Pinned,
}

/// `Paper`, closed: nothing is lost, it decides in whole nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct PackedPaper {
    mean: Mean,
    last: [u8; 8],
    total: [u8; 8],
    latest: [u8; 8],
    intervals: [u8; 2],
}

impl PackedGcra {
    pub(super) fn close(gcra: &Gcra) -> Self {
        let (last, arrival) = (ticks(gcra.last), (gcra.arrival.as_nanos().saturating_add(TICK / 2)) / TICK);
        let debt = arrival.cast_signed().saturating_sub(last.cast_signed()).clamp(-DEBT_MAX, DEBT_MAX);
        let (phase, body) = close_interval(&gcra.interval);
        Self {
            phase,
            last: low(last),
            debt: low(debt.cast_unsigned()),
            body,
            batch: coarse(gcra.batch),
            refused_since: quarter(gcra.refused_since),
            short: if gcra.short < 0.0 { [0; 2] } else { compact::close(gcra.short).to_le_bytes() },
            level: coarse(gcra.level),
            peak: (libm::ceilf(gcra.peak) as u16).to_le_bytes(),
        }
    }

    /// `now` tells which of the times that end like this is meant.
    pub(super) fn open(&self, now: Timestamp) -> Gcra {
        let last = self.last_tick(now);
        let arrival = last.saturating_add_signed(signed(self.debt));
        Gcra {
            interval: self.open_interval(),
            arrival: Timestamp::from_nanos(arrival.saturating_mul(TICK)),
            last: Timestamp::from_nanos(last.saturating_mul(TICK)),
            refused_since: open_quarter(self.refused_since, now),
            short: self.short(),
            level: open_coarse(self.level),
            peak: u16::from_le_bytes(self.peak).into(),
            batch: self.batch(),
        }
    }

    /// ι.
    pub(super) fn interval(&self) -> Option<f64> {
        self.open_interval().known()
    }

    pub(super) fn batch(&self) -> f32 {
        open_coarse(self.batch)
    }

    pub(super) fn short(&self) -> f32 {
        match u16::from_le_bytes(self.short) {
            0 => -1.0,
            code => compact::open(code),
        }
    }

    pub(super) fn last(&self, now: Timestamp) -> Timestamp {
        Timestamp::from_nanos(self.last_tick(now).saturating_mul(TICK))
    }

    /// Owes so many nanoseconds less.
    pub(super) fn give_back(&mut self, nanos: u64) {
        let debt = signed(self.debt).saturating_sub((nanos / TICK).cast_signed());
        self.debt = low(debt.clamp(-DEBT_MAX, DEBT_MAX).cast_unsigned());
    }

    fn last_tick(&self, now: Timestamp) -> u64 {
        let now = ticks(now);
        let [a, b, c, d, e, f] = self.last;
        let ago = now.wrapping_sub(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]));
        now.saturating_add_signed(-signed(low(ago)))
    }

    fn open_interval(&self) -> LearnedInterval {
        let [a, b, c, d, e, f, g, h, i, j] = self.body;
        match self.phase {
            PackedPhase::Unseen => LearnedInterval::Unseen,
            PackedPhase::Pinned => LearnedInterval::Pinned(f64::from_le_bytes([a, b, c, d, e, f, g, h])),
            PackedPhase::Learned => {
                let [interval, mean] = [[a, b, c, d], [e, f, g, h]].map(f32::from_le_bytes);
                LearnedInterval::Learned { interval: interval.into(), mean }
            }
            PackedPhase::Learning => {
                let [first, second, third, rest] =
                    [[a, b], [c, d], [e, f], [g, h]].map(|code| compact::open(u16::from_le_bytes(code)));
                LearnedInterval::Learning(FirstIntervals {
                    longest: [first, second, third],
                    rest,
                    seen: u16::from_le_bytes([i, j]),
                })
            }
        }
    }
}

fn close_interval(interval: &LearnedInterval) -> (PackedPhase, [u8; 10]) {
    match interval {
        LearnedInterval::Unseen => (PackedPhase::Unseen, [0; 10]),
        LearnedInterval::Pinned(interval) => {
            let [a, b, c, d, e, f, g, h] = interval.to_le_bytes();
            (PackedPhase::Pinned, [a, b, c, d, e, f, g, h, 0, 0])
        }
        LearnedInterval::Learned { interval, mean } => {
            let [[a, b, c, d], [e, f, g, h]] = [*interval as f32, *mean].map(f32::to_le_bytes);
            (PackedPhase::Learned, [a, b, c, d, e, f, g, h, 0, 0])
        }
        LearnedInterval::Learning(FirstIntervals { longest: [first, second, third], rest, seen }) => {
            let [[a, b], [c, d], [e, f], [g, h]] =
                [*first, *second, *third, *rest].map(|value| compact::close(value).to_le_bytes());
            let [i, j] = seen.to_le_bytes();
            (PackedPhase::Learning, [a, b, c, d, e, f, g, h, i, j])
        }
    }
}

impl PackedPaper {
    pub(super) fn close(paper: &Paper) -> Self {
        Self {
            mean: paper.mean,
            last: paper.last.as_nanos().to_le_bytes(),
            total: paper.total.to_le_bytes(),
            latest: paper.latest.to_le_bytes(),
            // A thousand messages at most.
            intervals: (paper.intervals as u16).to_le_bytes(),
        }
    }

    pub(super) fn open(&self) -> Paper {
        Paper {
            last: Timestamp::from_nanos(u64::from_le_bytes(self.last)),
            total: u64::from_le_bytes(self.total),
            intervals: u16::from_le_bytes(self.intervals).into(),
            mean: self.mean,
            latest: u64::from_le_bytes(self.latest),
        }
    }
}

/// A time that survives being closed.
pub(super) fn on_tick(time: Timestamp) -> Timestamp {
    Timestamp::from_nanos(time.as_nanos() & !(TICK - 1))
}

fn ticks(time: Timestamp) -> u64 {
    time.as_nanos() / TICK
}

/// The lower 48 bits.
fn low(number: u64) -> [u8; 6] {
    let [a, b, c, d, e, f, ..] = number.to_le_bytes();
    [a, b, c, d, e, f]
}

/// They as a signed number.
fn signed([a, b, c, d, e, f]: [u8; 6]) -> i64 {
    i64::from_le_bytes([0, 0, a, b, c, d, e, f]) >> 16
}

/// A number ≥ 0 in 24 bits: all of the exponent and 16 bits of mantissa, cut off. Closed twice it is the same.
fn coarse(value: f32) -> [u8; 3] {
    let [a, b, c, _] = (value.max(0.0).to_bits() >> 7).to_le_bytes();
    [a, b, c]
}

fn open_coarse([a, b, c]: [u8; 3]) -> f32 {
    f32::from_bits(u32::from_le_bytes([a, b, c, 0]) << 7)
}

/// The next quarter of a second, modulo 2²⁴ − 1; 0 is never.
fn quarter(since: Timestamp) -> [u8; 3] {
    if since == NEVER {
        return [0; 3];
    }
    let [a, b, c, ..] = (1 + since.as_nanos().div_ceil(QUARTER) % QUARTERS).to_le_bytes();
    [a, b, c]
}

fn open_quarter([a, b, c]: [u8; 3], now: Timestamp) -> Timestamp {
    let code = u64::from_le_bytes([a, b, c, 0, 0, 0, 0, 0]);
    if code == 0 {
        return NEVER;
    }
    let current = now.as_nanos().div_ceil(QUARTER);
    let ago = (current % QUARTERS + QUARTERS - (code - 1)) % QUARTERS;
    // From the future: the clock went back, or somebody was refused for three weeks.
    if ago > QUARTERS / 2 { now } else { Timestamp::from_nanos(current.saturating_sub(ago).saturating_mul(QUARTER)) }
}

/// Nanoseconds.
const TICK: u64 = 64;
const QUARTER: u64 = 250_000_000;
const QUARTERS: u64 = (1 << 24) - 1;
/// The longest debt, in ticks: 104 days.
const DEBT_MAX: i64 = (1 << 47) - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_cut_to_a_part_in_65_000(value in 1e-9..4e9_f32) {
            let opened = open_coarse(coarse(value));
            prop_assert!(opened <= value && opened >= value * (1.0 - 1.0 / 65_535.0), "{value} {opened}");
            prop_assert_eq!(coarse(opened), coarse(value));
        }

        /// Times within a hundred days of the present one are those that they were.
        #[test]
        fn times_come_back_on_their_tick(now in 0..u64::MAX / 2, ago in -8.6e15..8.6e15_f64, debt in -8.6e15..8.6e15_f64) {
            let now = Timestamp::from_nanos(now);
            let shift = |time: Timestamp, by: f64| Timestamp::from_nanos(time.as_nanos().saturating_add_signed(by as i64));
            let last = on_tick(shift(now, ago));
            let arrival = on_tick(shift(last, debt));
            let gcra = Gcra { arrival, last, ..Gcra::NEW };
            let opened = PackedGcra::close(&gcra).open(now);
            prop_assert_eq!((opened.last, opened.arrival), (last, arrival));
        }
    }

    #[test]
    fn nothing_is_nothing() {
        assert_eq!(open_coarse(coarse(0.0)), 0.0);
        let opened = PackedGcra::close(&Gcra::NEW).open(Timestamp::ZERO);
        assert!(opened.short < 0.0 && opened.refused_since == NEVER);
    }

    #[test]
    fn the_time_of_the_first_refusal_is_kept_to_a_quarter_of_a_second() {
        let at = |millis: u64| Timestamp::from_nanos(millis * 1_000_000);
        for since in [0, 1, 249, 250, 1_000_000, 5_000_000_000] {
            for later in [0, 10, 150_000, 432_000_000] {
                let opened = open_quarter(quarter(at(since)), at(since + later));
                let nanos = opened.as_nanos().cast_signed() - at(since).as_nanos().cast_signed();
                assert!((0..250_000_000).contains(&nanos), "{since} {later}: {nanos}");
            }
        }
        assert_eq!(open_quarter(quarter(at(900_000)), at(5000)), at(5000), "the clock went back");
    }
}
