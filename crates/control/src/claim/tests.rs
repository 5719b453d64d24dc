//! What a claim gives to those who are as usual, and what those get out of it who pretend.

use super::*;
use core::time::Duration;
use proptest::prelude::*;

/// A publisher whose messages are told one by one; `unread` is for how long it has not been read dry.
struct Publisher {
    claim: Claim,
    plan: ClaimPlan,
    entitled: u32,
    excess: u32,
}

impl Publisher {
    fn new() -> Self {
        Self { claim: Claim::default(), plan: ClaimPlan::default(), entitled: 0, excess: 0 }
    }

    fn send(&mut self, now: Timestamp, unread: Duration) -> Colour {
        let dry_at = Timestamp::from_nanos(now.as_nanos().saturating_sub(unread.as_nanos() as u64));
        if self.claim.ends_second(now) {
            self.claim.go_on(&self.plan, now, dry_at, f32::INFINITY);
        }
        let colour = self.claim.on_message(&self.plan, now, dry_at);
        match colour {
            Colour::Entitled => self.entitled += 1,
            Colour::Excess => self.excess += 1,
        }
        colour
    }

    /// `rate` messages a second, evenly, read dry, from and to so many seconds.
    fn run(&mut self, rate: f64, from: f64, to: f64) {
        let mut n = 0.0;
        while from + n / rate < to {
            self.send(at(from + n / rate), Duration::ZERO);
            n += 1.0;
        }
    }

    fn take(&mut self) -> (u32, u32) {
        (core::mem::take(&mut self.entitled), core::mem::take(&mut self.excess))
    }

    fn rate(&self) -> f32 {
        self.claim.rate().unwrap_or(0.0)
    }
}

fn at(secs: f64) -> Timestamp {
    Timestamp::from_secs_f64(1000.0 + secs)
}

#[test]
fn a_claim_is_small() {
    assert_eq!(size_of::<Claim>(), 29);
}

#[test]
fn a_stranger_has_no_claim_until_a_calm_minute_has_passed() {
    let mut publisher = Publisher::new();
    publisher.run(5.0, 0.0, 59.5);
    assert_eq!((publisher.take(), publisher.claim.rate()), ((0, 298), None));
    publisher.run(5.0, 60.0, 62.0);
    assert!((4.9..5.1).contains(&publisher.rate()), "{}", publisher.rate());
    assert_eq!(publisher.take(), (10, 0));
}

#[test]
fn seven_messages_teach_nothing_however_long_they_take() {
    let mut publisher = Publisher::new();
    publisher.run(0.01, 0.0, 699.0);
    assert_eq!((publisher.excess, publisher.claim.rate()), (7, None));
    publisher.run(0.01, 700.0, 1000.0);
    assert!(publisher.claim.rate().is_some());
}

#[test]
fn who_is_as_usual_or_twice_as_fast_is_entitled_to_all_of_it() {
    for rate in [0.02_f64, 1.0, 7.0, 500.0] {
        let mut publisher = Publisher::new();
        let learned = (10.0 / rate).max(70.0);
        publisher.run(rate, 0.0, learned);
        publisher.take();
        publisher.run(rate, learned, learned + 100.0 / rate);
        publisher.run(1.9 * rate, learned + 100.0 / rate, learned + 200.0 / rate);
        assert_eq!(publisher.take().1, 0, "{rate}/s");
    }
}

#[test]
fn a_flood_is_entitled_to_twice_the_usual_and_what_the_bucket_holds() {
    let mut publisher = Publisher::new();
    publisher.run(5.0, 0.0, 100.0);
    publisher.take();
    publisher.run(400.0, 100.0, 110.0);
    // 8, a batch of ten, ten a second; and what a growing batch adds within ten seconds.
    let (entitled, excess) = publisher.take();
    assert!((100..650).contains(&entitled) && excess > 3300, "{entitled} {excess}");
    publisher.run(400.0, 110.0, 130.0);
    let (entitled, _) = publisher.take();
    assert!((195..=215).contains(&entitled), "then ten a second: {entitled}");
}

#[test]
fn batches_are_learned_and_pass_at_once() {
    let mut publisher = Publisher::new();
    for minute in 0..5 {
        (0..200).for_each(|_| _ = publisher.send(at(f64::from(minute) * 60.0), Duration::ZERO));
    }
    publisher.take();
    for minute in 5..20 {
        (0..200).for_each(|_| _ = publisher.send(at(f64::from(minute) * 60.0), Duration::ZERO));
    }
    assert_eq!(publisher.take(), (3000, 0));
    assert_eq!(publisher.claim.batch(), 200);
}

#[test]
fn a_rare_sensor_keeps_its_claim() {
    for interval in [60.0, 600.0, 3600.0] {
        let mut publisher = Publisher::new();
        publisher.run(1.0 / interval, 0.0, 10.0 * interval);
        publisher.take();
        publisher.run(1.0 / interval, 10.0 * interval, 500.0 * interval);
        let rate = f64::from(publisher.rate()) * interval;
        assert!((0.7..1.5).contains(&rate), "every {interval} s: {rate}");
        assert_eq!(publisher.excess, 0, "every {interval} s");
    }
}

#[test]
fn who_waits_to_be_read_loses_nothing_by_it() {
    let mut publisher = Publisher::new();
    publisher.run(10.0, 0.0, 100.0);
    publisher.take();
    // Not read for 30 s, with what came meanwhile in one heap.
    (0..300).for_each(|_| _ = publisher.send(at(130.0), Duration::from_secs(30)));
    assert_eq!(publisher.take(), (300, 0));
    // Read dry, and silent for as long: a heap is one.
    (0..300).for_each(|_| _ = publisher.send(at(160.0), Duration::ZERO));
    assert!(publisher.take().0 <= 8 + 20, "depth and batch");
}

#[test]
fn a_grant_holds_whatever_is_sent_and_ends_when_it_is_taken_back() {
    let mut publisher = Publisher::new();
    publisher.claim.grant(&publisher.plan, Some(500.0));
    publisher.run(500.0, 0.0, 10.0);
    assert_eq!(publisher.take(), (5000, 0), "at once");
    publisher.claim.grant(&publisher.plan, None);
    assert_eq!((publisher.claim.rate(), publisher.claim.learned_rate()), (None, None), "a stranger again");
    publisher.run(500.0, 10.0, 11.0);
    assert_eq!(publisher.take(), (0, 500));
    let mut publisher = Publisher::new();
    publisher.claim.grant(&publisher.plan, Some(500.0));
    publisher.run(1.0, 0.0, 10_000.0);
    assert_eq!(publisher.rate(), 500.0);
    publisher.claim.grant(&publisher.plan, None);
    assert!((0.9..1.2).contains(&publisher.rate()), "what it sent all the time: {}", publisher.rate());
    publisher.take();
    publisher.run(100.0, 10_000.0, 10_001.0);
    let (entitled, _) = publisher.take();
    assert!(entitled <= 8 + 512 + 3, "no more than what was learned: {entitled}");
}

#[test]
fn what_is_forgotten_under_a_grant_is_not_there_after_it() {
    let mut publisher = Publisher::new();
    publisher.run(5.0, 0.0, 100.0);
    publisher.claim.grant(&publisher.plan, Some(50.0));
    publisher.claim.forget();
    assert_eq!(publisher.claim.rate(), Some(50.0));
    publisher.claim.grant(&publisher.plan, None);
    assert_eq!(publisher.claim.rate(), None);
}

#[test]
fn an_hour_of_training_doubles_the_claim_and_no_more() {
    let mut publisher = Publisher::new();
    publisher.run(5.0, 0.0, 100.0);
    // It sends as much as it likes while the broker is calm.
    publisher.run(200.0, 100.0, 3700.0);
    assert!((9.0..=10.3).contains(&publisher.rate()), "{}", publisher.rate());
    publisher.take();
    publisher.run(2000.0, 3700.0, 3760.0);
    let (entitled, _) = publisher.take();
    assert!(entitled <= 8 + 512 + 61 * 21, "what it bought: 2ρ and one batch, {entitled}");
}

#[test]
fn a_flood_in_the_first_minute_is_forgotten_when_it_is_over() {
    let mut publisher = Publisher::new();
    publisher.run(5.0, 0.0, 20.0);
    publisher.run(2000.0, 20.0, 60.0);
    publisher.run(5.0, 60.0, 62.0);
    assert!(publisher.rate() > 1000.0, "the mean of what is known: {}", publisher.rate());
    publisher.run(5.0, 62.0, 600.0);
    assert!(publisher.rate() < 10.0, "{}", publisher.rate());
    // A gateway that pauses is a gateway.
    let mut publisher = Publisher::new();
    publisher.run(500.0, 0.0, 90.0);
    publisher.run(500.0, 400.0, 500.0);
    assert!(publisher.rate() > 380.0, "{}", publisher.rate());
    // Once it is no longer young it falls by half in an hour.
    let mut publisher = Publisher::new();
    publisher.run(500.0, 0.0, 600.0);
    publisher.run(5.0, 600.0, 4200.0);
    assert!((245.0..260.0).contains(&publisher.rate()), "{}", publisher.rate());
}

#[test]
fn the_room_of_its_parent_bounds_what_is_learned() {
    let plan = ClaimPlan::default();
    let (mut claim, mut sum) = (Claim::default(), 0.0);
    for tenth in 0..40_000 {
        let now = at(f64::from(tenth) / 10.0);
        if claim.ends_second(now) {
            sum += claim.go_on(&plan, now, now, 3.0 - sum);
        }
        let _ = claim.on_message(&plan, now, now);
    }
    assert!(claim.rate().is_some_and(|rate| (2.9..=3.0001).contains(&rate)), "{:?}", claim.rate());
    assert!((sum - 3.0).abs() < 0.1);
}

#[test]
fn what_was_learned_is_resumed() {
    let plan = ClaimPlan::default();
    let mut claim = Claim::resume(&plan, 20.0, 40, at(-5.0));
    assert_eq!((claim.rate(), claim.batch()), (Some(20.0), 40));
    claim.go_on(&plan, at(0.0), at(0.0), f32::INFINITY);
    let entitled = (0..100).filter(|_| claim.on_message(&plan, at(0.0), at(0.0)) == Colour::Entitled).count();
    assert_eq!(entitled, 48);
    for nonsense in [f32::NAN, f32::INFINITY, -1.0, 0.0] {
        assert!(Claim::resume(&plan, nonsense, u32::MAX, at(0.0)).rate().is_some_and(|rate| rate > 0.0 && rate < 1e9));
    }
}

#[test]
fn what_is_served_less_than_once_a_second_is_told_as_it_is() {
    let mut publisher = Publisher::new();
    publisher.run(0.1, 0.0, 100.0);
    assert!((0.09..0.11).contains(&publisher.claim.served()), "{}", publisher.claim.served());
}

#[test]
fn a_recent_rate_is_that_of_the_last_ten_seconds_and_fades() {
    let mut publisher = Publisher::new();
    publisher.run(100.0, 0.0, 30.0);
    let rate = |publisher: &Publisher, secs| publisher.claim.recent_rate(at(secs));
    assert!((95.0..105.0).contains(&rate(&publisher, 30.0)), "{}", rate(&publisher, 30.0));
    assert!((publisher.claim.served() - 100.0).abs() < 0.1);
    assert!((33.0..41.0).contains(&rate(&publisher, 40.0)), "{}", rate(&publisher, 40.0));
    assert_eq!(rate(&publisher, 200.0), 0.0);
    publisher.run(100.0, 200.0, 202.0);
    assert!((95.0..110.0).contains(&rate(&publisher, 202.0)), "{}", rate(&publisher, 202.0));
    assert_eq!(Claim::default().recent_rate(at(0.0)), 0.0);
}

#[test]
fn the_clock_may_go_back_and_the_count_of_milliseconds_may_end() {
    let mut publisher = Publisher::new();
    let end = f64::from(u32::MAX) / 1000.0 - 1000.0;
    publisher.run(5.0, end - 100.0, end + 100.0);
    assert!((4.8..5.2).contains(&publisher.rate()), "{}", publisher.rate());
    publisher.take();
    publisher.run(5.0, end - 50.0, end);
    assert!(publisher.take().0 < 300 && publisher.rate() < 5.5);
}

proptest! {
    /// GATE property 9: ρ never rises in a second that was not calm, and at most doubles in an hour.
    #[test]
    fn rho_rises_in_calm_seconds_only_and_doubles_in_an_hour_at_most(
        start in 0.1..50.0_f32,
        seconds in prop::collection::vec((0_u32..300, 0_u32..4), 1..400),
    ) {
        let plan = ClaimPlan::default();
        let mut claim = Claim::resume(&plan, start, 1, at(0.0));
        let (mut now, mut elapsed) = (0.0, 0_u32);
        let mut was_calm = true;
        for (count, kind) in seconds {
            now += 1.0;
            elapsed += 1;
            // Kind 0 waits for longer than a second; kind 1 is refused.
            let dry_at = if kind == 0 { at(now - 5.0) } else { at(now) };
            for _ in 0..=count {
                if claim.ends_second(at(now)) {
                    let before = claim.rate().unwrap();
                    let change = claim.go_on(&plan, at(now), dry_at, f32::INFINITY);
                    let after = claim.rate().unwrap();
                    prop_assert!((after - before - change).abs() <= 1e-6 * after.abs());
                    prop_assert!(was_calm || after <= before, "{before} {after}");
                    prop_assert!(after <= before * 1.0002, "{before} {after}");
                }
                let _ = claim.on_message(&plan, at(now), dry_at);
            }
            if kind == 1 {
                claim.on_refused();
            }
            was_calm = kind > 1;
            prop_assert!(claim.rate().unwrap() <= start * libm::exp2f((elapsed as f32 + 1.0) / 3600.0) * 1.001);
        }
    }

    /// A grant that was given and taken back has left no trace.
    #[test]
    fn a_claim_after_a_grant_is_what_it_would_be_without(
        start in prop::option::of(0.1..50.0_f32),
        grant in 0.1..5000.0_f32,
        seconds in prop::collection::vec((0_u32..60, 0_u32..4), 60..200),
        from in 0_usize..60, length in 1_usize..100,
    ) {
        let plan = ClaimPlan::default();
        let known = |rate: Option<f32>| rate.map_or_else(Claim::default, |rate| Claim::resume(&plan, rate, 1, at(0.0)));
        let (mut claim, mut plain) = (known(start), known(start));
        for (n, (count, kind)) in seconds.into_iter().enumerate() {
            let now = n as f64 + 1.0;
            if n == from {
                claim.grant(&plan, Some(grant));
            } else if n == from + length {
                claim.grant(&plan, None);
            }
            let dry_at = if kind == 0 { at(now - 5.0) } else { at(now) };
            for claim in [&mut claim, &mut plain] {
                for _ in 0..count {
                    if claim.ends_second(at(now)) {
                        claim.go_on(&plan, at(now), dry_at, f32::INFINITY);
                    }
                    let _ = claim.on_message(&plan, at(now), dry_at);
                }
            }
        }
        claim.grant(&plan, None);
        prop_assert_eq!(claim.rate(), plain.rate());
        prop_assert_eq!((claim.learned_rate(), claim.batch()), (plain.learned_rate(), plain.batch()));
        let most = if plain.rate().is_some() { 8.0 + plain.batch() as f32 } else { 0.0 };
        prop_assert!(claim.tokens_at(&plan, at(400.0), at(400.0)) <= most);
    }

    /// Ten minutes after it came, a publisher whose first minute was anything is entitled to what it is used to since then,
    /// within a half.
    #[test]
    fn a_first_minute_of_anything_leaves_little_behind(
        first in prop::collection::vec(0_u32..20_000, 61),
        rate in 1_u32..20,
        start in 0_u32..1000,
    ) {
        let mut claim = Claim::default();
        let plan = ClaimPlan::default();
        let mut before: Option<f32> = None;
        for second in 0..600 {
            let count = first.get(second).copied().unwrap_or(rate);
            let now = at(f64::from(start) + second as f64);
            claim.go_on(&plan, now, now, f32::INFINITY);
            let after = claim.rate();
            prop_assert!(before.zip(after).is_none_or(|(before, after)| after <= before * 1.0002));
            before = after;
            (0..count.max(1)).for_each(|_| _ = claim.on_message(&plan, now, now));
        }
        let (usual, flood) = (rate as f32, first.iter().sum::<u32>() as f32 / 61.0);
        let left = claim.rate().unwrap();
        prop_assert!(left <= usual * 1.5 + flood * 0.004, "{left} of {usual} and {flood}");
        prop_assert!(left >= usual.min(flood) * 0.9, "{left} of {usual} and {flood}");
    }

    /// Messages that are told at once count as if they were told one by one.
    #[test]
    fn told_at_once_is_told_one_by_one(
        rate in prop::option::of(0.5..100.0_f32),
        portions in prop::collection::vec((0.0..2.0_f64, 1_u32..50, 0.0..3.0_f64), 1..100),
    ) {
        let plan = ClaimPlan::default();
        let known = |rate: Option<f32>| rate.map_or_else(Claim::default, |rate| Claim::resume(&plan, rate, 10, at(0.0)));
        let (mut single, mut whole) = (known(rate), known(rate));
        let mut now = 0.0;
        for (gap, count, unread) in portions {
            now += gap;
            let (now, dry_at) = (at(now), at(now - unread));
            for claim in [&mut single, &mut whole] {
                if claim.ends_second(now) {
                    claim.go_on(&plan, now, dry_at, f32::INFINITY);
                }
            }
            let is_entitled = |colour| u32::from(colour == Colour::Entitled);
            let one_by_one: u32 = (0..count).map(|_| is_entitled(single.on_message(&plan, now, dry_at))).sum();
            let first = is_entitled(whole.on_message(&plan, now, dry_at));
            let entitled = whole.tokens().min(count - 1);
            whole.on_more(count - 1, entitled);
            prop_assert_eq!(first + entitled, one_by_one);
            prop_assert_eq!(single.count(), whole.count());
            prop_assert!((single.tokens_at(&plan, now, now) - whole.tokens_at(&plan, now, now)).abs() < 0.01);
        }
    }

    /// Whatever it does, a claim gives no more than its rate and one bucket.
    #[test]
    fn tokens_are_bounded_by_rate_and_depth(
        rate in 0.5..100.0_f32,
        gaps in prop::collection::vec((0.0..2.0_f64, 1_u32..50), 1..200),
    ) {
        let plan = ClaimPlan::default();
        let mut claim = Claim::resume(&plan, rate, 10, at(0.0));
        let (mut now, mut entitled, mut most, mut batch) = (0.0, 0_u32, rate, 10);
        for (gap, count) in gaps {
            now += gap;
            for _ in 0..count {
                if claim.ends_second(at(now)) {
                    claim.go_on(&plan, at(now), at(now), f32::INFINITY);
                }
                entitled += u32::from(claim.on_message(&plan, at(now), at(now)) == Colour::Entitled);
            }
            (most, batch) = (most.max(claim.rate().unwrap()), batch.max(claim.batch()));
        }
        let bound = 2.0 * most * (now as f32 + 0.01) + 8.0 + batch as f32 + 1.0;
        prop_assert!(entitled as f32 <= bound, "{entitled} of {bound}");
    }
}
