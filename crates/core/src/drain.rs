//! How fast a receiver takes what it is given, and so how much may lie before it where nothing can be overtaken.
//!
//! Two things are known of a socket: how many bytes it took, and whether it refused any. The *rate* is what it took per
//! second, smoothed over a tenth of one; while it refuses, time that passes lowers it. A rate only counts what there was
//! to take, so beside it stands a *reach*: whoever takes all that it is shown may be shown twice as much the next time,
//! some milliseconds later, and whoever refuses begins again from next to nothing. So a prompt receiver has room for a whole turn of everybody's
//! messages a few turns after it began, or after it paused; a slow one has what it takes in [`AHEAD`].
//!
//! Time is an argument. Driven by `Connection::on_written`; asked by `deliver`.

use core::time::Duration;

use tidegate_control::Timestamp;

/// What may lie before a receiver, in time: several turns of a busy loop, and less than anybody notices.
pub(crate) const AHEAD: Duration = Duration::from_millis(8);
/// The rate is that of about so long.
const SMOOTHED_OVER: Duration = Duration::from_millis(100);
/// Looks at the clock that are nearer to each other say nothing about a rate.
const SPAN: Duration = Duration::from_millis(2);
/// What may lie before a receiver of which nothing is known but that its socket takes what it is given...
const REACH_FIRST: u32 = 16 * 1024;
/// ...and before one that has just refused: a few packets, so that it always has something to take.
const REACH_REFUSED: u32 = 1024;
/// Whoever has refused something is not taken for prompt for so long, even if its socket is empty again: that of a slow
/// reader is, now and then, and what it is shown then lies before everything that comes later.
const REFUSED_FOR_S: u32 = 5;
/// Doublings end here; no outbox is larger.
const REACH_MAX: u32 = 1 << 30;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Drain {
    /// Bytes per second, until `since`.
    rate: f32,
    /// Bytes that were taken since then.
    taken: u32,
    reach: u32,
    /// The second in which it last refused something; 0: never.
    refused_s: u32,
    since: Timestamp,
}

impl Drain {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { rate: 0.0, taken: 0, reach: REACH_FIRST, refused_s: 0, since: now }
    }

    /// So many bytes were taken of those that were shown.
    pub(crate) fn on_written(&mut self, taken: usize, shown: usize, now: Timestamp) {
        self.taken = self.taken.saturating_add(u32::try_from(taken).unwrap_or(u32::MAX));
        if taken < shown {
            (self.reach, self.refused_s) = (REACH_REFUSED, seconds(now).max(1));
        }
        if now.since(self.since) >= SPAN {
            // Whoever was given next to nothing says nothing about what it could take.
            if taken == shown && self.taken >= self.reach / 2 {
                self.reach = self.reach.saturating_mul(2).min(REACH_MAX);
            }
            (self.rate, self.taken, self.since) = (self.smoothed(now), 0, now);
        }
    }

    /// Bytes per second that it takes, as far as is known by now.
    pub(crate) fn rate(&self, now: Timestamp) -> f32 {
        if now.since(self.since) >= SPAN { self.smoothed(now) } else { self.rate }
    }

    /// Bytes that may lie before it in any case.
    #[inline]
    pub(crate) fn reach(&self) -> usize {
        self.reach as usize
    }

    /// Bytes that it takes in a moment.
    pub(crate) fn ahead(&self, now: Timestamp) -> usize {
        (self.rate(now) * AHEAD.as_secs_f32()) as usize
    }

    /// Bytes that may lie before it.
    pub(crate) fn room(&self, now: Timestamp) -> usize {
        self.ahead(now).max(self.reach as usize)
    }

    /// The same for a socket that has taken everything: a burst may well be taken, too, if nothing was refused of late.
    pub(crate) fn room_for_burst(&self, now: Timestamp) -> usize {
        let is_prompt = self.refused_s == 0 || seconds(now).saturating_sub(self.refused_s) > REFUSED_FOR_S;
        self.room(now).max(if is_prompt { REACH_FIRST as usize } else { 0 })
    }

    fn smoothed(&self, now: Timestamp) -> f32 {
        let span = now.since(self.since).as_secs_f32();
        let part = span / (span + SMOOTHED_OVER.as_secs_f32());
        self.rate + part * (self.taken as f32 / span.max(SPAN.as_secs_f32()) - self.rate)
    }
}

fn seconds(now: Timestamp) -> u32 {
    u32::try_from(now.as_nanos() / 1_000_000_000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: usize = 1024 * 1024;

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_nanos(1_000_000_000 + micros * 1000)
    }

    /// A receiver that takes `bytes` every so many microseconds of `shown`, from one time to another.
    fn run(drain: &mut Drain, (from, to): (u64, u64), every: usize, taken: usize, shown: usize) {
        for micros in (from..to).step_by(every) {
            drain.on_written(taken, shown, at(micros));
        }
    }

    #[test]
    fn a_prompt_receiver_has_room_for_a_turn_after_a_few_turns() {
        let mut drain = Drain::new(at(0));
        assert_eq!(drain.room(at(0)), REACH_FIRST as usize);
        let mut shown = drain.room(at(0));
        for turn in 1..=60 {
            drain.on_written(shown, shown, at(turn * 200));
            shown = drain.room(at(turn * 200));
        }
        assert!(shown >= MIB, "{shown} after twelve milliseconds");
    }

    #[test]
    fn one_refused_write_of_a_fast_receiver_costs_it_little() {
        let mut drain = Drain::new(at(0));
        // 100 MB/s for a while.
        run(&mut drain, (0, 400_000), 1000, 100_000, 100_000);
        drain.on_written(50_000, 100_000, at(400_000));
        assert!(drain.room(at(400_000)) > MIB * 2 / 3, "{}", drain.room(at(400_000)));
        // It is away for a tenth of a second, then goes on: no slow start.
        assert!(drain.room(at(500_000)) > MIB / 4);
        drain.on_written(0, 100_000, at(1_400_000));
        assert!(drain.room(at(1_400_000)) < MIB / 4);
        let mut shown = drain.room(at(1_400_000));
        for turn in 1..=100 {
            drain.on_written(shown, shown, at(1_400_000 + turn * 200));
            shown = drain.room(at(1_400_000 + turn * 200));
        }
        assert!(shown >= MIB, "{shown} twenty milliseconds after it came back");
    }

    #[test]
    fn a_slow_receiver_has_what_it_takes_in_a_few_milliseconds() {
        let mut drain = Drain::new(at(0));
        // 1 MB/s, and never all of what is there.
        run(&mut drain, (0, 1_000_000), 10_000, 10_000, 20_000);
        let room = drain.room(at(1_000_000));
        assert!((6_000..10_000).contains(&room), "{room}");
        // 35 kB/s: one that reads five hundred small messages a second.
        run(&mut drain, (1_000_000, 3_000_000), 2000, 70, 2000);
        assert_eq!(drain.room(at(3_000_000)), REACH_REFUSED as usize);
        // One that takes nothing any more.
        assert_eq!(drain.room(at(60_000_000)), REACH_REFUSED as usize);
    }

    #[test]
    fn who_has_refused_is_not_shown_a_burst_because_its_socket_is_empty_for_once() {
        let mut drain = Drain::new(at(0));
        assert_eq!(drain.room_for_burst(at(0)), REACH_FIRST as usize);
        drain.on_written(70, 2000, at(10_000));
        drain.on_written(1000, 1000, at(500_000));
        assert!(drain.room_for_burst(at(500_000)) <= 2 * REACH_REFUSED as usize);
        assert_eq!(drain.room_for_burst(at(7_000_000)), REACH_FIRST as usize, "some seconds later that is forgotten");
    }

    proptest! {
        #[test]
        fn the_rate_lies_between_the_least_and_the_most_that_was_taken(
            writes in prop::collection::vec((2_u64..200, 0_usize..100_000), 1..60),
        ) {
            let mut drain = Drain { rate: 50_000.0, ..Drain::new(at(0)) };
            let (mut now, mut least, mut most) = (0, 50_000.0_f32, 50_000.0_f32);
            for (millis, bytes) in writes {
                now += millis * 1000;
                drain.on_written(bytes, bytes + 1, at(now));
                let sample = bytes as f32 / (millis as f32 / 1000.0);
                (least, most) = (least.min(sample), most.max(sample));
                prop_assert!(drain.rate(at(now)) >= least * 0.999 && drain.rate(at(now)) <= most * 1.001);
                prop_assert!(drain.room(at(now)) >= REACH_REFUSED as usize);
            }
        }
    }
}
