//! Publishers that keep their rhythm at a broker that does not: it looks late, and finds much at once.

use alloc::vec::Vec;

use super::*;

/// What a reader that looked last at `since` makes of `count` messages that it finds at `now`: they came evenly.
fn came(since: f64, now: f64, message: u32, count: u32) -> ArrivalTime {
    let likely = since + (now - since) * f64::from(message + 1) / f64::from(count);
    ArrivalTime::new(at(since), at(likely), at(now))
}

/// Messages that did not pass, of a publisher with these times of sending, at a broker that reads it at these.
fn delayed(plan: &RhythmPlan, sent: &[f64], reads: &[f64]) -> usize {
    let (mut rhythm, mut since, mut delayed, mut rest) = (Rhythm::new(plan), 0.0, 0, sent);
    for read in reads {
        let (found, later) = rest.split_at(rest.partition_point(|at| at <= read));
        for message in 0..found.len() as u32 {
            let came = came(since, *read, message, found.len() as u32);
            let verdict = rhythm.on_arrival(plan, came, Pressure::Pressed);
            delayed += usize::from(verdict != Verdict::Pass);
        }
        (since, rest) = (*read, later);
    }
    delayed
}

/// Times that lie `gaps` apart.
fn times(gaps: impl Iterator<Item = f64>) -> Vec<f64> {
    gaps.scan(0.0, |now, gap| {
        *now += gap;
        Some(*now)
    })
    .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However long the broker sleeps between two looks: a publisher within 30 % of its period is never slowed, one that
    /// is ten times as fast as it was is.
    #[test]
    fn our_own_stalls_are_nobodys_flood(
        period in 0.002..20.0_f64,
        jitter in prop::collection::vec(0.7..1.3_f64, 400),
        // In periods: from a look at every message to two hundred of them at once.
        sleeps in prop::collection::vec(prop_oneof![3 => 0.01..2.0_f64, 1 => 2.0..200.0_f64], 400),
    ) {
        let plan = plan(always);
        let sent = times(jitter.iter().map(|share| share * period));
        let mut reads = times(sleeps.iter().map(|share| share * period));
        reads.push(sent[399].max(*reads.last().unwrap_or(&0.0)) + period);
        prop_assert_eq!(delayed(&plan, &sent, &reads), 0);
        // The same, but from the middle on everything comes in a tenth of the time, and is looked at in time.
        let flood = times(jitter.iter().enumerate().map(|(n, share)| share * period * if n < 200 { 1.0 } else { 0.1 }));
        let in_time = times((0..600).map(|_| period));
        prop_assert!(delayed(&plan, &flood, &in_time) > 100, "{}", delayed(&plan, &flood, &in_time));
    }
}

#[test]
fn connections_of_one_user_that_were_kept_waiting_together_are_not_slowed() {
    let plan = plan(always);
    let mut rhythm = Rhythm::new(&plan);
    // Ten connections, a message every 100 ms each; all are read every 20 ms, and once after two seconds.
    let (mut since, mut sent) = (0.0, 0_u32);
    let sleeps = (0..500).map(|_| 0.02).chain([2.0]).chain((0..500).map(|_| 0.02));
    for now in times(sleeps) {
        for _connection in 0..10 {
            let count = (now * 10.0) as u32 - (since * 10.0) as u32;
            for message in 0..count {
                let came = came(since, now, message, count);
                let verdict = rhythm.on_arrival(&plan, came, Pressure::Pressed);
                assert_eq!(verdict, Verdict::Pass, "message {sent} at {now}");
                sent += 1;
            }
        }
        since = now;
    }
    assert!(sent > 2000);
    assert!(rhythm.current_rate() < 1000.0, "{}", rhythm.current_rate());
}

#[test]
fn nobody_comes_later_than_now() {
    let plan = plan(always);
    let mut rhythm = Rhythm::new(&plan);
    for message in 0..100 {
        let now = at(f64::from(message));
        let later = now + Duration::from_secs(50);
        let verdict = rhythm.on_arrival(&plan, ArrivalTime::new(later, later, now), Pressure::Pressed);
        assert_eq!(verdict, Verdict::Pass);
        assert_eq!(rhythm.last_at(now), now);
    }
}
