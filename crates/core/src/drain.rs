//! How fast a receiver takes what it is given, and so how much may lie before it where nothing can be overtaken.
//!
//! Two things are known of a socket: how many bytes it took, and whether it refused any. The *rate* is what it took per
//! second, smoothed over a tenth of one; while it refuses, time that passes lowers it. The *sustained* rate is the same of a
//! second: who has long been fast and does not read for a tenth of a second keeps its room, or a load that is no trouble at
//! all would wait in a queue, where each message costs half as much again; a slow reader whose socket takes a burst gains
//! next to nothing by it. A rate only counts what there was
//! to take, so beside both stands a *reach*: whoever takes all that it is shown may be shown twice as much the next time,
//! some milliseconds later, and whoever refuses begins again from next to nothing. So a prompt receiver has room for a whole turn of everybody's
//! messages a few turns after it began, or after it paused; a slow one has what it takes in [`AHEAD`].
//!
//! Time is an argument. Driven by `Connection::on_written`; asked by `deliver`.

use core::time::Duration;

use tidegate_control::Timestamp;

/// What may lie before a receiver, in time: several turns of a busy loop, and less than anybody notices...
pub(crate) const AHEAD: Duration = Duration::from_millis(8);
/// ...and before one that takes [`FAST`]: with 8 ms a receiver of two million small messages a second had 0.5 MiB, less than
/// comes in while its one thread does something else.
const AHEAD_OF_THE_FAST: Duration = Duration::from_millis(20);
/// Bytes per second of one that is fast: no link of a small space, but another program of the same room.
const FAST: f32 = 16.0 * 1024.0 * 1024.0;
/// The rate is that of about so long...
const SMOOTHED_OVER: Duration = Duration::from_millis(100);
/// ...and the sustained one of so long.
const SUSTAINED_OVER: Duration = Duration::from_secs(1);
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
    /// The same over a second.
    sustained: f32,
    /// Bytes that were taken since then.
    taken: u32,
    reach: u32,
    /// The second in which it last refused something; 0: never.
    refused_s: u32,
    since: Timestamp,
}

impl Drain {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { rate: 0.0, sustained: 0.0, taken: 0, reach: REACH_FIRST, refused_s: 0, since: now }
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
            (self.rate, self.sustained) = (self.smoothed(self.rate, SMOOTHED_OVER, now), self.sustained(now));
            (self.taken, self.since) = (0, now);
        }
    }

    /// Bytes per second that it takes, as far as is known by now.
    pub(crate) fn rate(&self, now: Timestamp) -> f32 {
        if now.since(self.since) >= SPAN { self.smoothed(self.rate, SMOOTHED_OVER, now) } else { self.rate }
    }

    /// The same over a second.
    pub(crate) fn sustained(&self, now: Timestamp) -> f32 {
        self.smoothed(self.sustained, SUSTAINED_OVER, now)
    }

    /// Bytes that may lie before it in any case.
    #[inline]
    pub(crate) fn reach(&self) -> usize {
        self.reach as usize
    }

    /// Bytes that it takes in a moment.
    pub(crate) fn ahead(&self, now: Timestamp) -> usize {
        let rate = self.rate(now).max(self.sustained(now));
        let ahead = if rate >= FAST { AHEAD_OF_THE_FAST } else { AHEAD };
        (rate * ahead.as_secs_f32()) as usize
    }

    /// The reach of a socket that has taken everything: a burst may well be taken, too, if nothing was refused of late.
    pub(crate) fn reach_for_burst(&self, now: Timestamp) -> usize {
        let is_prompt = self.refused_s == 0 || seconds(now).saturating_sub(self.refused_s) > REFUSED_FOR_S;
        self.reach().max(if is_prompt { REACH_FIRST as usize } else { 0 })
    }

    /// A rate that was known at `since`, with what was taken after it.
    fn smoothed(&self, rate: f32, over: Duration, now: Timestamp) -> f32 {
        let span = now.since(self.since).as_secs_f32();
        let part = span / (span + over.as_secs_f32());
        rate + part * (self.taken as f32 / span.max(SPAN.as_secs_f32()) - rate)
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

    impl Drain {
        /// Bytes that may lie before it.
        fn room(&self, now: Timestamp) -> usize {
            self.ahead(now).max(self.reach())
        }

        /// The same if its socket has taken everything.
        fn room_for_burst(&self, now: Timestamp) -> usize {
            self.ahead(now).max(self.reach_for_burst(now))
        }
    }

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
        drain.on_written(0, 100_000, at(5_400_000));
        assert!(drain.room(at(5_400_000)) < MIB / 4);
        let mut shown = drain.room(at(5_400_000));
        for turn in 1..=100 {
            drain.on_written(shown, shown, at(5_400_000 + turn * 200));
            shown = drain.room(at(5_400_000 + turn * 200));
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
        run(&mut drain, (1_000_000, 6_000_000), 2000, 70, 2000);
        assert_eq!(drain.room(at(6_000_000)), REACH_REFUSED as usize);
        // One that takes nothing any more.
        assert_eq!(drain.room(at(60_000_000)), REACH_REFUSED as usize);
    }

    #[test]
    fn who_was_fast_for_seconds_keeps_its_room_while_it_does_something_else() {
        let mut drain = Drain::new(at(0));
        // 60 MB/s: two million small messages a second.
        run(&mut drain, (0, 3_000_000), 1000, 60_000, 60_000);
        drain.on_written(0, 60_000, at(3_300_000));
        assert!(drain.room(at(3_300_000)) > MIB / 2, "{}", drain.room(at(3_300_000)));
    }

    #[test]
    fn a_slow_reader_gains_next_to_nothing_by_the_burst_that_its_socket_takes() {
        let mut drain = Drain::new(at(0));
        // The kernel's buffers take a hundred thousand bytes at once, then it is 35 kB/s.
        drain.on_written(100_000, 100_000, at(5_000));
        run(&mut drain, (7_000, 500_000), 2000, 70, 2000);
        let room = drain.room(at(500_000));
        assert!(room < 4 * REACH_REFUSED as usize, "{room}");
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
