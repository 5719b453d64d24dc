use super::*;
use proptest::prelude::*;

fn plan() -> PressurePlan {
    PressureConfig::default().build().unwrap()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn memory(used: u64) -> Signal {
    Signal { memory_used: used, memory_max: 1000, ..Signal::default() }
}

fn entitled(time: u64) -> Signal {
    Signal { entitled: ms(time), ..Signal::default() }
}

fn unread(time: u64) -> Signal {
    Signal { unread: ms(time), ..Signal::default() }
}

/// Tells the same signal every 100 ms for so long; the levels that were passed, in order.
fn feed(gauge: &mut Gauge, signal: Signal, from: Timestamp, time: Duration) -> std::vec::Vec<Level> {
    let mut levels = std::vec![gauge.level()];
    for tick in 0..=time.as_millis() as u64 / 100 {
        let level = gauge.on_sample(&plan(), &signal, from + ms(100 * tick));
        if levels.last() != Some(&level) {
            levels.push(level);
        }
    }
    levels
}

#[test]
fn each_level_has_its_threshold_and_its_cause() {
    for (signal, level, cause) in [
        (unread(999), Level::Calm, None),
        (unread(1000), Level::Busy, Some(Cause::Backlog)),
        (unread(1_000_000), Level::Busy, Some(Cause::Backlog)),
        (entitled(49), Level::Calm, None),
        (entitled(50), Level::Strained, Some(Cause::Backlog)),
        (entitled(999), Level::Strained, Some(Cause::Backlog)),
        (entitled(1000), Level::Overloaded, Some(Cause::Backlog)),
        (entitled(1_000_000), Level::Overloaded, Some(Cause::Backlog)),
        (Signal { turn: ms(60), ..Signal::default() }, Level::Strained, Some(Cause::Lag)),
        (Signal { store: ms(999), ..Signal::default() }, Level::Calm, None),
        (Signal { store: ms(1000), ..Signal::default() }, Level::Busy, Some(Cause::Store)),
        (Signal { store: ms(10_000), ..Signal::default() }, Level::Strained, Some(Cause::Store)),
        (memory(599), Level::Calm, None),
        (memory(600), Level::Busy, Some(Cause::Memory)),
        (memory(750), Level::Strained, Some(Cause::Memory)),
        (memory(850), Level::Overloaded, Some(Cause::Memory)),
        (memory(950), Level::Emergency, Some(Cause::Memory)),
        (Signal { memory_used: u64::MAX, memory_max: 0, ..Signal::default() }, Level::Calm, None),
    ] {
        let mut gauge = Gauge::default();
        feed(&mut gauge, signal, Timestamp::ZERO, ms(200));
        assert_eq!((gauge.level(), gauge.cause()), (level, cause), "{signal:?}");
    }
}

#[test]
fn one_long_turn_is_an_accident_and_memory_is_none() {
    let mut gauge = Gauge::default();
    assert_eq!(gauge.on_sample(&plan(), &entitled(5000), Timestamp::ZERO), Level::Calm);
    assert_eq!(gauge.on_sample(&plan(), &entitled(0), Timestamp::ZERO + ms(100)), Level::Calm);
    assert_eq!(gauge.on_sample(&plan(), &memory(960), Timestamp::ZERO + ms(200)), Level::Emergency);
    assert_eq!(gauge.since(), Timestamp::ZERO + ms(200));
}

#[test]
fn f140_it_recovers_one_level_at_a_time_and_takes_five_seconds_for_each() {
    let mut gauge = Gauge::default();
    feed(&mut gauge, memory(960), Timestamp::ZERO, ms(1000));
    let down = feed(&mut gauge, Signal::default(), Timestamp::ZERO + ms(1000), ms(20_100));
    assert_eq!(down, [Level::Emergency, Level::Overloaded, Level::Strained, Level::Busy, Level::Calm]);
}

#[test]
fn f140_a_load_around_a_threshold_does_not_flap() {
    let mut gauge = Gauge::default();
    let mut changes = 0;
    for tick in 0..6000_u64 {
        // 40 % above the threshold and 20 % below it in turns, for ten minutes.
        let before = gauge.level();
        let load = if tick / 7 % 2 == 0 { 70 } else { 40 };
        gauge.on_sample(&plan(), &entitled(load), Timestamp::ZERO + ms(100 * tick));
        changes += u32::from(gauge.level() != before);
    }
    assert_eq!((gauge.level(), changes), (Level::Strained, 1));
}

#[test]
fn f141_a_clock_that_jumps_moves_it_one_step_down_at_most() {
    let mut gauge = Gauge::default();
    let now = Timestamp::from_secs_f64(1e6);
    feed(&mut gauge, memory(960), now, ms(500));
    assert_eq!(gauge.on_sample(&plan(), &Signal::default(), Timestamp::MAX), Level::Overloaded);
    // Back to the beginning: nothing is frozen, five seconds are five seconds.
    assert_eq!(gauge.on_sample(&plan(), &Signal::default(), Timestamp::ZERO), Level::Overloaded);
    feed(&mut gauge, Signal::default(), Timestamp::ZERO, ms(20_000));
    assert_eq!(gauge.level(), Level::Calm);
}

#[test]
fn numbers_and_names_go_both_ways() {
    for (number, level) in Level::ALL.iter().enumerate() {
        assert_eq!(Level::from_number(number as u8), *level);
        assert_eq!(level.name().parse(), Ok(*level));
    }
    assert_eq!(Level::from_number(200), Level::Emergency);
}

fn signals() -> impl Strategy<Value = Signal> {
    (0_u64..1000, 0_u64..1000, 0_u64..3000, 0_u64..20_000, 0_u64..1200).prop_map(
        |(turn, entitled, unread, store, used)| Signal {
            turn: ms(turn),
            entitled: ms(entitled),
            unread: ms(unread),
            store: ms(store),
            memory_used: used,
            memory_max: 1000,
        },
    )
}

proptest! {
    /// More of anything never gives a lower level.
    #[test]
    fn a_larger_signal_never_gives_a_lower_level(history in prop::collection::vec(signals(), 1..40), more in signals()) {
        let (mut less, mut greater) = (Gauge::default(), Gauge::default());
        for (tick, signal) in history.iter().enumerate() {
            let now = Timestamp::ZERO + ms(100 * tick as u64);
            let sum = Signal {
                turn: signal.turn + more.turn,
                entitled: signal.entitled + more.entitled,
                unread: signal.unread + more.unread,
                store: signal.store + more.store,
                memory_used: signal.memory_used + more.memory_used,
                memory_max: signal.memory_max,
            };
            prop_assert!(less.on_sample(&plan(), signal, now) <= greater.on_sample(&plan(), &sum, now));
        }
    }

    /// Whatever happened, and whatever the clock showed: one step down in five seconds, and calm after twenty quiet ones.
    #[test]
    fn f140_f141_it_goes_down_slowly_and_always_to_the_end(
        history in prop::collection::vec((signals(), 0_u64..20_000_000_000), 1..60),
    ) {
        let mut gauge = Gauge::default();
        let mut lowered_at: Option<Timestamp> = None;
        for (signal, nanos) in &history {
            let (now, before) = (Timestamp::from_nanos(*nanos), gauge.level());
            let level = gauge.on_sample(&plan(), signal, now);
            prop_assert!(level.number() + 1 >= before.number());
            if level < before {
                lowered_at = Some(now);
            }
        }
        let now = lowered_at.unwrap_or_default();
        feed(&mut gauge, Signal::default(), now, ms(20_200));
        prop_assert_eq!(gauge.level(), Level::Calm);
    }

    #[test]
    fn f140_two_steps_down_are_five_seconds_apart(history in prop::collection::vec(signals(), 1..300)) {
        let (mut gauge, mut last) = (Gauge::default(), None::<Timestamp>);
        for (tick, signal) in history.iter().enumerate() {
            let (now, before) = (Timestamp::ZERO + ms(100 * tick as u64), gauge.level());
            if gauge.on_sample(&plan(), signal, now) < before {
                prop_assert!(last.is_none_or(|last| now.since(last) >= CALM_MIN));
                last = Some(now);
            }
        }
    }
}
