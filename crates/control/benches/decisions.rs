//! What one decision costs: `cargo bench -p tidegate-control`. Each beside a peer that does a comparable thing, in the
//! same run, because only the ratio survives a change of machine. Peers: `governor` (one keyless GCRA cell, no learning)
//! for the publisher decision, `backon` (exponential back-off with jitter) for the pacer.

#![allow(clippy::wildcard_imports, reason = "the groups are namespaces of this one file")]
#![allow(clippy::unwrap_used, reason = "a wrong configuration is a bug of the benchmark")]

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use governor::clock::FakeRelativeClock;
use governor::{Quota, RateLimiter};
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};
use tidegate_control::admission::{AdmissionRequest, Class, PoolConfig, RequestPool};
use tidegate_control::hints::Hints;
use tidegate_control::pacer::{Outcome, Pacer, PacerConfig, Preset};
use tidegate_control::rhythm::{Enforcement, Pressure, Rhythm, RhythmConfig, RhythmRule};
use tidegate_control::{Timestamp, analysis};

fn main() {
    divan::main();
}

/// Decisions per sample, so that the timer's own cost does not show.
const BATCH: usize = 10_000;

/// 10 000 publishers, one message each per second of virtual time: the state is not all in the first cache.
fn publishers(bencher: Bencher, rule: RhythmRule, gap_millis: u64) {
    let config =
        RhythmConfig { rule, enforcement: Enforcement::Always, paper_bounded: true, ..RhythmConfig::default() };
    let plan = config.build().unwrap();
    let mut rhythms: Vec<Rhythm> =
        (0..BATCH).map(|_| Rhythm::resume(&plan, Duration::from_secs(1), Timestamp::ZERO)).collect();
    let mut round = 0;
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        round += 1;
        let now = Timestamp::from_nanos(round * gap_millis * 1_000_000);
        for rhythm in &mut rhythms {
            let _ = black_box(rhythm.on_publish(&plan, now, Pressure::Pressed));
        }
    });
}

#[divan::bench_group(name = "publisher_decision")]
mod publisher_decision {
    use super::*;

    #[divan::bench]
    fn practical_in_rhythm(bencher: Bencher) {
        publishers(bencher, RhythmRule::Practical, 1000);
    }

    #[divan::bench]
    fn practical_flooding(bencher: Bencher) {
        publishers(bencher, RhythmRule::Practical, 10);
    }

    #[divan::bench]
    fn paper_in_rhythm(bencher: Bencher) {
        publishers(bencher, RhythmRule::Paper, 1000);
    }

    #[divan::bench]
    fn peer_governor(bencher: Bencher) {
        let clock = FakeRelativeClock::default();
        let quota = Quota::with_period(Duration::from_secs(1)).unwrap().allow_burst(8.try_into().unwrap());
        let cells: Vec<_> = (0..BATCH).map(|_| RateLimiter::direct_with_clock(quota, clock.clone())).collect();
        bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
            clock.advance(Duration::from_secs(1));
            for cell in &cells {
                black_box(cell.check().is_ok());
            }
        });
    }
}

fn pacers(bencher: Bencher, preset: Preset, outcome: &Outcome) {
    let plan = PacerConfig::from(preset).build().unwrap();
    let mut pacers: Vec<Pacer> = (0..BATCH).map(|_| Pacer::new(&plan)).collect();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut round = 0;
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        round += 1;
        let now = Timestamp::from_nanos(round * 10_000_000_000);
        for pacer in &mut pacers {
            black_box(pacer.on_outcome(now, outcome, &mut rng));
        }
    });
}

#[divan::bench_group(name = "pacer_outcome")]
mod pacer_outcome {
    use super::*;

    fn answered(losses: u32) -> Outcome {
        let hints = Hints { queued: Some(Duration::from_millis(3)), ..Hints::default() };
        Outcome::Answered { latency: Duration::from_millis(20), losses, not_modified: losses == 0, hints }
    }

    #[divan::bench]
    fn practical_answered(bencher: Bencher) {
        pacers(bencher, Preset::Active, &answered(0));
    }

    #[divan::bench]
    fn practical_answered_with_loss(bencher: Bencher) {
        pacers(bencher, Preset::Active, &answered(1));
    }

    #[divan::bench]
    fn practical_denied(bencher: Bencher) {
        pacers(bencher, Preset::Active, &Outcome::denied());
    }

    #[divan::bench]
    fn paper_p19_answered(bencher: Bencher) {
        pacers(bencher, Preset::ActiveP19, &answered(0));
    }

    #[divan::bench]
    fn peer_backon(bencher: Bencher) {
        let builder = ExponentialBuilder::default().with_jitter().without_max_times();
        let mut backoffs: Vec<_> = (0..BATCH).map(|_| builder.build()).collect();
        bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
            for backoff in &mut backoffs {
                black_box(backoff.next());
            }
        });
    }
}

#[divan::bench_group(name = "request_pool")]
mod request_pool {
    use super::*;

    /// Requests one after the other, on so many servers of which all but one are busy.
    #[divan::bench(args = [1, 16, 256])]
    fn offer_take_served(bencher: Bencher, servers: u32) {
        let mut pool = RequestPool::new(&PoolConfig { servers, ..PoolConfig::default() }).unwrap();
        let query = || AdmissionRequest { class: Class::Query, key: None, deadline: None, value: 1_u64 };
        let busy: Vec<_> = (1..servers)
            .filter_map(|_| {
                let _ = pool.offer(Timestamp::ZERO, query());
                pool.take(Timestamp::ZERO)
            })
            .collect();
        assert_eq!(busy.len(), servers as usize - 1);
        bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
            for _ in 0..BATCH {
                let _ = black_box(pool.offer(Timestamp::ZERO, query()));
                if let Some(taken) = pool.take(Timestamp::ZERO) {
                    pool.on_served(taken.job, Duration::from_millis(1));
                }
            }
        });
    }

    /// Ten times too much of everything: most is refused, every class is served.
    #[divan::bench]
    fn offer_overloaded(bencher: Bencher) {
        let mut pool = RequestPool::new(&PoolConfig::default()).unwrap();
        let mut now = Timestamp::ZERO;
        bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
            for step in 0..BATCH {
                let class = Class::ALL[1 + step % (Class::COUNT - 1)];
                let _ = black_box(pool.offer(now, AdmissionRequest { class, key: None, deadline: None, value: 1_u64 }));
                if step % 10 == 0
                    && let Some(taken) = pool.take(now)
                {
                    now = now + Duration::from_millis(1);
                    pool.on_served(taken.job, Duration::from_millis(1));
                }
                while let Some(ended) = pool.poll_ended() {
                    black_box(ended);
                }
            }
        });
    }
}

#[divan::bench_group(name = "analysis")]
mod analyses {
    use super::*;

    #[divan::bench]
    fn estimate_closed_form() -> analysis::AimdEstimates {
        analysis::Aimd::clamped(black_box(0.02), black_box(0.5), black_box(2.0)).estimate()
    }

    #[divan::bench]
    fn estimate_fixed_point() -> analysis::AimdEstimates {
        analysis::Aimd::clamped(black_box(0.5), black_box(0.5), black_box(2.0)).estimate()
    }

    #[divan::bench]
    fn admissible_load() -> f64 {
        analysis::poisson::admissible_load(black_box(120), black_box(0.01))
    }
}
