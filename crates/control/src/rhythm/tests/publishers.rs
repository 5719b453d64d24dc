//! Populations of publishers, healthy and not, against the practical rule: what is learned, and who is delayed.

use super::*;

/// Arrival times that a publisher produces, one after the other.
type Arrivals<'a> = dyn FnMut(&mut Xoshiro256PlusPlus) -> f64 + 'a;

/// What became of a healthy publisher under pressure once its rhythm was known.
struct Watched {
    delayed: f64,
    interval: f64,
}

/// `next` gives the interval before the next message.
fn watch(seed: u64, messages: u32, next: &mut Arrivals<'_>) -> Watched {
    let plan = plan(always);
    let (mut rhythm, mut rng) = (Rhythm::new(&plan), Xoshiro256PlusPlus::seed_from_u64(seed));
    let (mut now, mut delayed, mut known) = (0.0, 0, 0);
    for _ in 0..messages {
        now += next(&mut rng);
        known += u32::from(rhythm.interval().is_some());
        delayed += u32::from(rhythm.on_publish(&plan, at(now), Pressure::Pressed) != Verdict::Pass);
    }
    Watched { delayed: f64::from(delayed) / f64::from(known), interval: rhythm.interval().unwrap().as_secs_f64() }
}

/// Batches of `size` every `period` seconds, `apart` seconds between the messages of one.
fn batches(size: u32, period: f64, apart: f64) -> impl FnMut(&mut Xoshiro256PlusPlus) -> f64 {
    let mut message = 0;
    move |_| {
        message += 1;
        if message % size == 0 { period - apart * f64::from(size - 1) } else { apart }
    }
}

fn assert_left_alone(name: &str, mean: f64, messages: u32, next: &mut Arrivals<'_>) {
    for seed in 0..8 {
        let Watched { delayed, interval } = watch(seed, messages, next);
        let (percent, ratio) = (delayed * 100.0, interval / mean);
        assert!(percent <= 0.1, "{name}: {percent:.3} % delayed, interval {ratio:.3} of the mean");
        assert!((0.7..1.5).contains(&ratio), "{name}: interval {ratio:.3} of the mean");
    }
}

/// F131: at most 0.1 % of the messages of well-behaved publishers are delayed.
#[test]
fn batches_are_a_rhythm() {
    for size in [2, 3, 5, 12] {
        for (period, apart) in [(10.0, 0.0), (10.0, 0.01), (3600.0, 0.0), (3600.0, 1.0)] {
            let name = std::format!("{size} every {period} s, {apart} s apart");
            assert_left_alone(&name, period / f64::from(size), 20_000, &mut batches(size, period, apart));
        }
    }
}

#[test]
fn chance_is_a_rhythm() {
    for (name, mean, messages) in [("1/s", 1.0, 100_000), ("100/s", 0.01, 400_000), ("1/min", 60.0, 20_000)] {
        assert_left_alone(&std::format!("Poisson, {name}"), mean, messages, &mut |rng| draw::exponential(rng, mean));
    }
    // More than an hour of each: so long it may take until ι has left what the first 16 intervals said.
    for (mean, messages) in [(0.01, 400_000), (1.0, 20_000), (3600.0, 20_000)] {
        let name = std::format!("uniform(0, {})", 2.0 * mean);
        assert_left_alone(&name, mean, messages, &mut |rng| draw::uniform(rng, 0.0, 2.0 * mean));
    }
    for (name, mean, jitter, messages) in [("10 ms ± 30 %", 0.01, 0.3, 400_000), ("hourly ± 20 %", 3600.0, 0.2, 20_000)]
    {
        assert_left_alone(name, mean, messages, &mut |rng| mean * (1.0 + jitter * draw::normal(rng)).max(0.0));
    }
}

/// The noise of a mean over 64 messages must not push ι to its upper end: it stays in the middle.
#[test]
fn chance_does_not_ratchet() {
    for seed in 0..4 {
        let ratio = watch(seed, 800_000, &mut |rng| draw::exponential(rng, 0.01)).interval / 0.01;
        assert!((0.9..1.1).contains(&ratio), "{ratio:.3} of the mean");
    }
}

/// A batch of 32 takes the learning phase three returns; the one that fills it alone is let pass and learned later.
#[test]
fn large_batches_are_not_held() {
    for size in [20, 32] {
        for (period, apart) in [(10.0, 0.0), (10.0, 0.01), (3600.0, 0.0), (3600.0, 1.0)] {
            let delayed = watch(1, 20_000, &mut batches(size, period, apart)).delayed;
            assert!(delayed <= 0.001, "{size} every {period} s, {apart} s apart: {:.2} %", delayed * 100.0);
        }
    }
}

/// A gateway that empties its buffer: from the first message on, nothing of it waits, and what is learned is its mean.
#[test]
fn buffers_of_two_hundred_are_a_rhythm() {
    for (size, period) in [(100, 5.0), (200, 5.0), (200, 60.0), (500, 30.0)] {
        for jitter in [0.0, 0.2] {
            for seed in 0..4 {
                let mut message = 0;
                let mut next = |rng: &mut Xoshiro256PlusPlus| {
                    message += 1;
                    let early = jitter * draw::uniform(rng, -0.5, 0.5);
                    if message % size == 0 { period * (1.0 + early) } else { 0.0 }
                };
                let Watched { delayed, interval } = watch(seed, 1000 * size, &mut next);
                let ratio = interval * f64::from(size) / period;
                let name = std::format!("{size} every {period} s ± {jitter}, seed {seed}");
                assert!(delayed <= 0.001, "{name}: {:.2} % delayed, interval {ratio:.2} of the mean", delayed * 100.0);
                assert!((0.5..1.6).contains(&ratio), "{name}: interval {ratio:.2} of the mean");
            }
        }
    }
}

/// Ten seconds at ten a second, fifty seconds of silence.
#[test]
fn a_duty_cycle_is_a_rhythm() {
    for (on, off, per_second) in [(10, 50.0, 10), (60, 3600.0, 1), (5, 5.0, 100)] {
        let mut message = 0;
        let mut next = |rng: &mut Xoshiro256PlusPlus| {
            message += 1;
            let pause = if message % (on * per_second) == 0 { off } else { 0.0 };
            pause + draw::uniform(rng, 0.7, 1.3) / f64::from(per_second)
        };
        let delayed = watch(3, 50_000, &mut next).delayed;
        assert!(delayed <= 0.001, "{on} s of {per_second}/s, then {off} s: {:.2} %", delayed * 100.0);
    }
}

/// A gateway that goes mad: a hundred times its rate. What is known as a batch passes, twice its rate, and no more.
#[test]
fn a_flood_of_a_sender_of_batches_is_slowed_after_a_batch() {
    let plan = plan(always);
    let mut rhythm = Rhythm::new(&plan);
    for message in 0..4000 {
        let _ = rhythm.on_publish(&plan, at(f64::from(message / 200) * 5.0), Pressure::Pressed);
    }
    assert_eq!(rhythm.batch(), 200);
    let flood = |n: u32| rhythm.on_publish(&plan, at(100.0 + f64::from(n) / 4000.0), Pressure::Pressed);
    let passed = (0..4000).map(flood).filter(|verdict| *verdict == Verdict::Pass).count();
    assert!((200..330).contains(&passed), "{passed} of 4000 in a second");
}

/// What is known as a batch grows from one to the next, not in one leap.
#[test]
fn a_larger_batch_is_learned_in_steps() {
    let plan = plan(always);
    let mut rhythm = Rhythm::resume(&plan, Duration::from_secs(1), at(0.0));
    let mut known = alloc::vec::Vec::new();
    for batch in 1..8 {
        for _ in 0..300 {
            let _ = rhythm.on_publish(&plan, at(f64::from(batch) * 3600.0), Pressure::Pressed);
        }
        known.push(rhythm.batch());
    }
    assert_eq!(known[..2], [1, 17], "{known:?}");
    assert!(known.windows(2).all(|pair| pair[0] <= pair[1] && pair[1] <= 2 * (pair[0] + 8)), "{known:?}");
    assert_eq!(known[6], 300, "{known:?}");
}

/// One message or two, off for a day after each, and then once a second.
#[test]
fn a_silence_while_learning_is_not_a_rhythm() {
    for silences in [1, 2] {
        let mut message = 0;
        let mut next = |_: &mut Xoshiro256PlusPlus| {
            message += 1;
            if (2..2 + silences).contains(&message) { 86_400.0 } else { 1.0 }
        };
        let Watched { delayed, interval } = watch(1, 5000, &mut next);
        assert_eq!(delayed, 0.0, "{silences} days off");
        assert!((0.7..1.5).contains(&interval), "{silences} days off: {interval} s");
    }
}

#[test]
fn three_days_off_do_not_make_a_slow_sensor() {
    let plan = plan(always);
    for period in [1.0, 60.0, 3600.0] {
        let (mut rhythm, mut now) = (Rhythm::resume(&plan, Duration::from_secs_f64(period), at(0.0)), 0.0);
        for message in 0..2000 {
            now += if message == 500 || message == 530 { 3.0 * 86_400.0 } else { period };
            assert_eq!(
                rhythm.on_publish(&plan, at(now), Pressure::Pressed),
                Verdict::Pass,
                "every {period} s, {message}"
            );
            let interval = rhythm.interval().unwrap().as_secs_f64();
            assert!(interval < 2.5 * period, "every {period} s: {interval} s after message {message}");
        }
    }
}

/// F129: what is learned from a ramp of 1 % a minute up to a hundred times the rate.
#[test]
fn training_is_slow_and_ends_at_the_class() {
    let plan = plan(|config| {
        always(config);
        config.interval_min = Duration::from_secs(1);
    });
    let (mut rhythm, mut now) = (Rhythm::resume(&plan, Duration::from_secs(60), at(0.0)), 0.0);
    while now < 8.0 * 3600.0 {
        let faster = libm::pow(1.01, now / 60.0).min(100.0);
        now += 60.0 / faster;
        let _ = rhythm.on_publish(&plan, at(now), Pressure::Pressed);
        let interval = rhythm.interval().unwrap().as_secs_f64();
        let least = (60.0 * libm::exp2(-now / 3600.0)).max(1.0);
        assert!(interval >= least * 0.999, "{interval} s after {now} s");
    }
    assert_eq!(rhythm.interval(), Some(Duration::from_secs(1)));
}

/// Whoever poses as a sender of batches gets one of `burst_max` through at once, and not a higher rate: in any time t
/// at most t·h/ι + burst + burst_max, and what D_max covers.
#[test]
fn a_learned_batch_is_bounded_and_paid_for() {
    let plan = plan(|config| {
        always(config);
        config.burst_max = 64;
    });
    for size in [64, 100] {
        let mut rhythm = Rhythm::resume(&plan, Duration::from_secs(1), at(0.0));
        let (mut taken, mut earned) = (0, 0.0);
        for batch in 0..225 {
            for _ in 0..size {
                let verdict = rhythm.on_publish(&plan, at(f64::from(batch) * 32.0), Pressure::Pressed);
                taken += u32::from(matches!(verdict, Verdict::Pass | Verdict::Hold(_)));
            }
            let interval = rhythm.interval().unwrap().as_secs_f64();
            let at_once = 8.0 + 64.0 + 30.0 * 2.0 / interval + 2.0;
            assert!(f64::from(taken) <= earned + at_once, "{taken} after {batch} batches of {size}");
            earned += 32.0 * 2.0 / (interval / (1.0 + 32.0 / 3600.0));
            assert!(rhythm.batch() <= 65, "{}", rhythm.batch());
        }
    }
}

#[test]
fn a_flood_does_not_become_a_batch() {
    let plan = plan(always);
    let mut rhythm = Rhythm::resume(&plan, Duration::from_secs(1), at(0.0));
    for message in 0..60_000_u32 {
        let _ = rhythm.on_publish(&plan, at(f64::from(message) * 0.01), Pressure::Pressed);
    }
    let _ = rhythm.on_publish(&plan, at(1000.0), Pressure::Pressed);
    assert_eq!(rhythm.batch(), 1);
}

#[test]
fn a_batch_is_known_after_a_restart() {
    let plan = plan(always);
    let interval = Duration::from_secs(300);
    let passes = |mut rhythm: Rhythm| {
        (0..12).filter(|_| rhythm.on_publish(&plan, at(1.0), Pressure::Pressed) == Verdict::Pass).count()
    };
    assert_eq!(passes(Rhythm::resume(&plan, interval, at(0.0))), 9);
    assert_eq!(passes(Rhythm::resume_batches(&plan, interval, 12, at(0.0))), 12);
}

/// A flood, and two hours later one message of a publisher whose interval has become shorter by that: it has the room that
/// it would have had with the old one.
#[test]
fn a_shorter_interval_shrinks_the_debt() {
    let plan = plan(always);
    let mut rhythm = Rhythm::resume(&plan, Duration::from_secs(3600), at(0.0));
    for message in 0..1000 {
        let _ = rhythm.on_publish(&plan, at(f64::from(message) * 0.01), Pressure::Pressed);
    }
    assert_eq!(rhythm.on_publish(&plan, at(7210.0), Pressure::Pressed), Verdict::Pass);
    assert!(rhythm.interval().unwrap() < Duration::from_secs(1800));
}

/// F131: what the operator sets, stays.
#[test]
fn a_pinned_publisher_teaches_nothing() {
    let plan = plan(always);
    let mut rhythm = Rhythm::pin(&plan, Duration::from_secs(10), at(0.0));
    for message in 1..10_000_u32 {
        let _ = rhythm.on_publish(&plan, at(f64::from(message)), Pressure::Pressed);
    }
    assert_eq!((rhythm.interval(), rhythm.batch()), (Some(Duration::from_secs(10)), 1));
    let _ = rhythm.on_publish(&plan, at(1e7), Pressure::Pressed);
    assert_eq!((rhythm.interval(), rhythm.batch()), (Some(Duration::from_secs(10)), 1));
}

/// F141: a clock that jumps a century ahead for one message, and comes back.
#[test]
fn a_clock_that_jumps_ahead_and_back_holds_nobody() {
    for rule in RhythmRule::ALL {
        let plan = plan(|config| {
            always(config);
            config.rule = *rule;
        });
        for jump in [2, 8, 1000] {
            let mut rhythm = Rhythm::new(&plan);
            for message in 0..2000 {
                let now = if message == jump { 3e9 } else { f64::from(message) };
                let verdict = rhythm.on_publish(&plan, at(now), Pressure::Pressed);
                assert_eq!(verdict, Verdict::Pass, "{rule}: message {message}, jump at {jump}");
            }
            // And it still watches.
            let flood = |n: u32| rhythm.on_publish(&plan, at(2000.0 + f64::from(n) * 0.01), Pressure::Pressed);
            assert!((0..1000).map(flood).any(|verdict| verdict != Verdict::Pass), "{rule}: jump at {jump}");
        }
    }
}
