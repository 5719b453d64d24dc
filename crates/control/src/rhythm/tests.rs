//! The paper's own numbers, and invariants 20 and 21 of CONTROL §11.

mod publishers;
mod stalls;

use super::*;
use proptest::prelude::*;
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

use crate::draw;

fn plan(change: impl FnOnce(&mut RhythmConfig)) -> RhythmPlan {
    let mut config = RhythmConfig::default();
    change(&mut config);
    config.build().unwrap()
}

fn always(config: &mut RhythmConfig) {
    config.enforcement = Enforcement::Always;
}

fn at(secs: f64) -> Timestamp {
    Timestamp::from_secs_f64(secs)
}

/// What the paper does with a message that comes `interval` seconds after four regular ones (every 6 s).
fn paper_delay(rule: RhythmRule, interval: f64) -> Verdict {
    let plan = plan(|config| config.rule = rule);
    let mut rhythm = Rhythm::new(&plan);
    for message in 0..4 {
        assert_eq!(rhythm.on_publish(&plan, at(f64::from(message) * 6.0), Pressure::Idle), Verdict::Pass);
    }
    rhythm.on_publish(&plan, at(18.0 + interval), Pressure::Idle)
}

/// Invariant 21: Table I to the printed digits (two rows are printed with one decimal).
#[test]
fn table_1_of_paper_003() {
    for (interval, millis) in [(3.0, 1340), (1.5, 1820), (1.0, 2710), (0.75, 3660), (0.6, 4950), (0.5, 7380)] {
        let expected = Verdict::Hold(Duration::from_millis(millis));
        // On a wire no interval is exact.
        for late in [0.0, 0.01, -0.001] {
            let interval = interval * (1.0 + late);
            assert_eq!(paper_delay(RhythmRule::PaperTable, interval), expected, "every {interval} s");
        }
    }
}

#[test]
fn the_formula_of_paper_003_without_truncation() {
    for (interval, delay) in
        [(3.0, 1.396), (1.5, 1.948), (1.0, core::f64::consts::E), (0.75, 3.794), (0.6, 5.294), (0.5, 7.389)]
    {
        let Verdict::Hold(held) = paper_delay(RhythmRule::Paper, interval) else { panic!("not held") };
        assert!((held.as_secs_f64() - delay).abs() < 6e-4, "every {interval} s: {held:?}");
    }
    assert_eq!(paper_delay(RhythmRule::Paper, 6.0), Verdict::Pass);
    assert_eq!(paper_delay(RhythmRule::Paper, 0.0), Verdict::Hold(crate::time::DURATION_MAX));
}

/// A sensor that keeps its period to the nanosecond is not faster than itself.
#[test]
fn the_formula_does_not_hold_a_perfect_sensor_by_rounding() {
    for period in [700_000_000, 2_300_000_000, 6_100_000_000_u64] {
        let plan = plan(|config| config.rule = RhythmRule::Paper);
        let mut rhythm = Rhythm::new(&plan);
        for message in 0..1000 {
            let now = Timestamp::from_nanos(message * period);
            assert_eq!(rhythm.on_publish(&plan, now, Pressure::Idle), Verdict::Pass, "{period} ns, message {message}");
        }
    }
}

/// "5 messages per 30 seconds: FR_avg will be 0.16": N − 1 intervals, cut after two digits.
#[test]
fn five_messages_in_thirty_seconds() {
    let plan = plan(|config| {
        config.rule = RhythmRule::Paper;
        config.learn_messages = 6;
    });
    let mut rhythm = Rhythm::new(&plan);
    for message in 0..=5 {
        assert_eq!(rhythm.rate(), None);
        let _ = rhythm.on_publish(&plan, at(f64::from(message) * 6.0), Pressure::Idle);
    }
    let rate = rhythm.rate().unwrap();
    assert_eq!((rate * 100.0) as u32, 16);
    assert!((rate - 5.0 / 30.0).abs() < 1e-12);
}

#[test]
fn the_papers_maximum_is_optional() {
    let plan = plan(|config| {
        config.rule = RhythmRule::Paper;
        config.paper_bounded = true;
    });
    let mut rhythm = Rhythm::resume(&plan, Duration::from_secs(6), at(0.0));
    assert_eq!(rhythm.on_publish(&plan, at(0.01), Pressure::Idle), Verdict::Hold(Duration::from_secs(30)));
}

/// Share of messages that a sensor of this period and jitter (normal, coefficient of variation) has delayed.
fn delayed_share(plan: &RhythmPlan, period: f64, variation: f64, messages: u32) -> f64 {
    let (mut rhythm, mut rng) = (Rhythm::new(plan), Xoshiro256PlusPlus::seed_from_u64(17));
    let (mut now, mut delayed) = (0.0, 0);
    for _ in 0..messages {
        now += (period * (1.0 + variation * draw::normal(&mut rng))).max(0.0);
        delayed += u32::from(rhythm.on_publish(plan, at(now), Pressure::Pressed) != Verdict::Pass);
    }
    f64::from(delayed) / f64::from(messages)
}

#[test]
fn healthy_sensors_are_never_delayed_where_the_paper_delays_a_third() {
    let practical = plan(always);
    for period in [1.0, 60.0, 3600.0] {
        for variation in [0.01, 0.1, 0.3] {
            assert_eq!(delayed_share(&practical, period, variation, 20_000), 0.0, "every {period} s ± {variation}");
        }
    }
    let paper = plan(|config| config.rule = RhythmRule::Paper);
    assert!(delayed_share(&paper, 60.0, 0.1, 20_000) > 0.3);
}

/// An attacker that learned at 1/s floods with 100/s for ten minutes; its messages are taken when their hold ends.
#[test]
fn a_flood_passes_little_and_recovery_is_immediate() {
    let plan = plan(always);
    let mut rhythm = Rhythm::resume(&plan, Duration::from_secs(1), at(0.0));
    let (mut taken, mut refused, mut ended) = (0, 0, 0);
    for message in 0..60_000_u32 {
        match rhythm.on_publish(&plan, at(f64::from(message) * 0.01), Pressure::Pressed) {
            Verdict::Pass | Verdict::Hold(_) => taken += 1,
            Verdict::Refuse(_) => refused += 1,
            Verdict::Disconnect(_) => ended += 1,
        }
    }
    let times_nominal = f64::from(taken) / 600.0;
    assert!((1.0..2.5).contains(&times_nominal), "{times_nominal} times the learned rate");
    assert!(refused > 0 && ended > 0, "refused {refused}, then told to go {ended} times");
    // Silent for D_max and then as before: nothing is held against it.
    for message in 0..100 {
        let verdict = rhythm.on_publish(&plan, at(631.0 + f64::from(message)), Pressure::Pressed);
        assert_eq!(verdict, Verdict::Pass, "message {message}");
    }
}

#[test]
fn disconnect_comes_after_five_times_the_longest_delay() {
    let plan = plan(always);
    let mut rhythm = Rhythm::resume(&plan, Duration::from_secs(10), at(0.0));
    let mut first_refusal = None;
    for message in 0..100_000_u32 {
        let now = f64::from(message) * 0.01;
        match rhythm.on_publish(&plan, at(now), Pressure::Pressed) {
            Verdict::Refuse(_) => first_refusal = first_refusal.or(Some(now)),
            Verdict::Disconnect(_) => {
                let patience = now - first_refusal.unwrap();
                assert!((150.0..151.0).contains(&patience), "{patience} s");
                return;
            }
            _ => {}
        }
    }
    panic!("never told to go");
}

#[test]
fn an_idle_broker_lets_everything_pass_and_no_debt_is_run_up() {
    let plan = plan(|_| {});
    let mut rhythm = Rhythm::resume(&plan, Duration::from_secs(1), at(0.0));
    for message in 0..400 {
        let verdict = rhythm.on_publish(&plan, at(f64::from(message) * 0.25), Pressure::Idle);
        assert_eq!(verdict, Verdict::Pass);
    }
    // A hundred seconds at four times its rate, and then pressure: what counts is the last burst.
    let Verdict::Hold(first) = rhythm.on_publish(&plan, at(100.0), Pressure::Pressed) else { panic!("not held") };
    assert!(first < Duration::from_secs(2), "{first:?}");
}

#[test]
fn learning_is_slow_downwards_and_forgives_a_silence() {
    let plan = plan(|_| {});
    let mut rhythm = Rhythm::resume(&plan, Duration::from_secs(60), at(0.0));
    let mut now = 0.0;
    while now < 3600.0 {
        now += 0.1;
        let _ = rhythm.on_publish(&plan, at(now), Pressure::Idle);
    }
    let learned = rhythm.interval().unwrap().as_secs_f64();
    assert!((29.9..31.0).contains(&learned), "a flood of an hour halves the interval at most: {learned} s");
    let _ = rhythm.on_publish(&plan, at(now + 3.0 * 86_400.0), Pressure::Idle);
    let after = rhythm.interval().unwrap().as_secs_f64();
    assert!(after < learned * 1.2, "three days off: {after} s");
}

#[test]
fn the_quota_bounds_what_can_be_learned() {
    let plan = plan(|config| config.interval_min = Duration::from_secs(1));
    let mut rhythm = Rhythm::new(&plan);
    for message in 0..=128 {
        assert_eq!(rhythm.interval(), None, "faster than its class: no rhythm yet");
        let _ = rhythm.on_publish(&plan, at(f64::from(message) * 0.01), Pressure::Idle);
    }
    assert_eq!(rhythm.interval(), Some(Duration::from_secs(1)));
    assert!((rhythm.current_rate() - 100.0).abs() < 1.0);
}

#[test]
fn a_wrong_configuration_is_named() {
    let error = |change: fn(&mut RhythmConfig)| {
        let mut config = RhythmConfig::default();
        change(&mut config);
        config.build().unwrap_err().field
    };
    assert_eq!(error(|config| config.headroom = f64::NAN), "headroom");
    assert_eq!(error(|config| config.burst = 10_001), "burst");
    assert_eq!(error(|config| config.learn_messages = 1), "learn_messages");
    assert_eq!(error(|config| config.interval_min = Duration::from_secs(86_401)), "interval_min");
}

#[derive(Clone, Debug)]
enum Operation {
    Publish { after_nanos: u64, pressure: Pressure },
    ClockBack { to: u64 },
}

fn operation() -> impl Strategy<Value = Operation> {
    let pressure = prop_oneof![Just(Pressure::Idle), Just(Pressure::Pressed)];
    let after = prop_oneof![Just(0), Just(1), 0..10_000_000_000_u64, Just(u64::MAX / 64)];
    prop_oneof![
        20 => (after, pressure).prop_map(|(after_nanos, pressure)| Operation::Publish { after_nanos, pressure }),
        1 => any::<u64>().prop_map(|to| Operation::ClockBack { to }),
    ]
}

/// GCRA as a leaky bucket in exact nanoseconds: the level drains with time and rises by one increment per message taken.
#[derive(Default)]
struct Bucket {
    level: i128,
    at: u64,
}

impl Bucket {
    /// How far above the tolerance the level is when a message arrives.
    fn early(&mut self, now: Timestamp, tolerance: i128) -> i128 {
        self.level -= i128::from(now.as_nanos()) - i128::from(self.at);
        self.at = now.as_nanos();
        self.level = self.level.max(0);
        self.level - tolerance
    }
}

proptest! {
    /// Invariant 20: no delay for what conforms, never more than D_max, for any clock.
    #[test]
    fn no_sequence_of_arrivals_breaks_a_rhythm(
        rule in prop::sample::select(RhythmRule::ALL),
        operations in prop::collection::vec(operation(), 1..100),
    ) {
        let plan = plan(|config| config.rule = rule);
        let (mut rhythm, mut now) = (Rhythm::new(&plan), Timestamp::ZERO);
        for operation in operations {
            match operation {
                Operation::ClockBack { to } => now = now.min(Timestamp::from_nanos(to)),
                Operation::Publish { after_nanos, pressure } => {
                    now = now + Duration::from_nanos(after_nanos);
                    let verdict = rhythm.on_publish(&plan, now, pressure);
                    if rule == RhythmRule::Practical {
                        let held_long = matches!(verdict, Verdict::Hold(delay) if delay > Duration::from_secs(30));
                        prop_assert!(!held_long);
                        prop_assert!(pressure == Pressure::Pressed || verdict == Verdict::Pass);
                    }
                }
            }
            prop_assert!(rhythm.rate().is_none_or(|rate| rate.is_finite() && rate > 0.0));
            prop_assert!(rhythm.current_rate().is_finite() && rhythm.current_rate() >= 0.0);
        }
        // Whatever the clock did: after a pause of D_max a publisher that keeps its rhythm passes.
        now = Timestamp::from_nanos(now.as_nanos() % (u64::MAX / 4));
        let _ = rhythm.on_publish(&plan, now, Pressure::Pressed);
        now = now + Duration::from_secs(31) + rhythm.interval().unwrap_or_default();
        for message in 0..40 {
            prop_assert_eq!(rhythm.on_publish(&plan, now, Pressure::Pressed), Verdict::Pass, "message {}", message);
            // A millionth more: nine years in nanoseconds are rounded as seconds.
            let interval = rhythm.interval().unwrap_or(Duration::from_secs(1));
            now = now + interval + interval / 1_000_000 + Duration::from_nanos(1);
        }
    }

    /// The verdicts are those of a leaky bucket: pass below the tolerance, hold above it, refuse beyond D_max.
    #[test]
    fn verdicts_follow_the_bucket(gaps in prop::collection::vec(0..3_000_000_000_u64, 1..200)) {
        // Pinned to 1 s, so that the bucket needs no learning: increments of 500 ms, tolerance of 4 s.
        let plan = plan(always);
        let (mut rhythm, mut bucket) = (Rhythm::pin(&plan, Duration::from_secs(1), at(0.0)), Bucket::default());
        let mut now = Timestamp::ZERO;
        for gap in gaps {
            now = now + Duration::from_nanos(gap / 8);
            let early = bucket.early(now, 4_000_000_000);
            let verdict = rhythm.on_publish(&plan, now, Pressure::Pressed);
            match verdict {
                Verdict::Pass => prop_assert!(early <= 0),
                Verdict::Hold(delay) => {
                    prop_assert!(early > 0 && early <= 30_000_000_000);
                    prop_assert!(delay.as_nanos().cast_signed() >= early.min(30_000_000_000) - 1000);
                }
                Verdict::Refuse(_) | Verdict::Disconnect(_) => prop_assert!(early > 30_000_000_000),
            }
            if matches!(verdict, Verdict::Pass | Verdict::Hold(_)) {
                bucket.level += 500_000_000;
            }
        }
    }

    /// Invariant 20: the delay does not fall when the excess grows, and it starts from zero.
    #[test]
    fn delay_is_continuous_and_grows_with_the_excess(interval in 0.001..1000.0_f64, speed in 2.0..100.0_f64) {
        let plan = plan(|_| {});
        let delay = |early| plan.gcra.delay(early, interval, interval / speed);
        // D_0·(e^(over − 1) − 1)·w·h/ι near zero, with D_0 = 1 s and h = 2: a jump at w = 0 would be above it.
        let steepness = (libm::exp((speed / 2.0).min(20.0) - 1.0) - 1.0) * 2.0 / interval;
        for early in [1e-12, 1e-9, 1e-6, 1e-3].map(|share| share * interval) {
            prop_assert!(delay(early) <= (steepness * early).max(early) * (1.0 + 1e-9), "delay({early})");
        }
        let mut before = 0.0;
        for step in 0..=100 {
            let now = delay(f64::from(step) * 0.3);
            prop_assert!(now >= before && now <= 30.0);
            before = now;
        }
        let slower = plan.gcra.delay(interval, interval, interval / speed);
        let faster = plan.gcra.delay(interval, interval, interval / (speed * 1.1));
        prop_assert!(faster >= slower);
    }
}

/// State is kept per principal for hours: it must be small.
#[test]
fn a_publisher_costs_36_bytes_at_most() {
    assert!(size_of::<Rhythm>() <= 36, "{}", size_of::<Rhythm>());
}

/// A publisher of one message in 10 s that sends three: what is refused for its wait owes nothing, so that two of three
/// still get through, as the headroom promises.
#[test]
fn what_was_given_back_owes_nothing() {
    let plan = plan(always);
    let mut rhythm = Rhythm::resume(&plan, Duration::from_secs(10), at(0.0));
    let mut taken = 0;
    for message in 0..300 {
        match rhythm.on_publish(&plan, at(f64::from(message) * 10.0 / 3.0), Pressure::Pressed) {
            Verdict::Hold(wait) if wait > Duration::from_millis(7500) => rhythm.give_back(&plan),
            Verdict::Pass | Verdict::Hold(_) => taken += 1,
            verdict => panic!("{verdict:?}"),
        }
    }
    assert!((200..230).contains(&taken), "{taken} of 300");
}
