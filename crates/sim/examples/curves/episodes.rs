//! Congestion episodes check by check: how far a client backs off, when it believes the broker is busy, what it is told.

use std::sync::Arc;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::hints::{HintRead, Hints};
use tidegate_control::pacer::{
    AverageRule, DetectorRule, InitialRule, Noise, Outcome, Pacer, PacerConfig, PacerPlan, PacerSnapshot, Preset,
};

use crate::Drawn;
use crate::chance::{exponential, seeded};
use crate::plot::{Axis, Curve, CurveShape, Figure, thinned};

fn plan(preset: Preset, change: impl FnOnce(&mut PacerConfig)) -> Drawn<Arc<PacerPlan>> {
    let mut config = PacerConfig::from(preset);
    config.back_off.noise = Noise::Off;
    change(&mut config);
    Ok(config.build()?)
}

/// The states of a pacer after each of these outcomes, one every 10 s.
fn states(plan: &Arc<PacerPlan>, outcomes: &[Outcome]) -> Vec<PacerSnapshot> {
    let (mut pacer, mut chance) = (Pacer::new(plan), seeded(1));
    let outcomes = outcomes.iter().zip(0_u32..);
    outcomes
        .map(|(outcome, n)| {
            pacer.on_outcome(Timestamp::from_secs_f64(10.0 * f64::from(n)), outcome, &mut chance);
            pacer.snapshot()
        })
        .collect()
}

/// A value of each state, over the number of the check.
fn over_checks(states: &[PacerSnapshot], value: impl Fn(&PacerSnapshot) -> f64) -> Vec<(f64, f64)> {
    (1_u32..).zip(states).map(|(n, state)| (f64::from(n), value(state))).collect()
}

/// RBT of the three papers in the same overload.
pub(crate) fn caps() -> Drawn<Figure> {
    let latencies = [20; 8].into_iter().chain([2000; 16]).chain([20; 8]);
    let outcomes: Vec<Outcome> = latencies.map(|ms| Outcome::answered(Duration::from_millis(ms), 0)).collect();
    let mut curves = Vec::new();
    for (preset, label) in [
        (Preset::ActiveP18, "p18: t_max = 60 s"),
        (Preset::ActiveP19, "p19: t_max = 5 × mean"),
        (Preset::ActiveS19, "s19: t_max = n × mean, n = 2"),
    ] {
        let plan = plan(preset, |config| config.back_off.rounds = 2)?;
        let rbt = |state: &PacerSnapshot| state.rbt.as_secs_f64().max(0.05);
        curves.push(Curve::new(label, CurveShape::Steps, over_checks(&states(&plan, &outcomes), rbt)));
    }
    Ok(Figure {
        title: "RBT check by check: answers take 2 s in checks 9 to 24, else 20 ms (noise off)",
        x: Axis::linear("check", 0.0, 32.0, 4.0),
        y: Axis::logarithmic("RBT, s", 0.05, 80.0, &[(0.05, "0"), (0.2, "0.2"), (1.0, "1"), (5.0, "5"), (60.0, "60")]),
        curves,
    })
}

/// By how much the interval is longer than AST: stretch and Algorithm 3.
pub(crate) fn stretch() -> Drawn<Figure> {
    let fine = || Outcome::answered(Duration::from_millis(20), 0);
    let outcomes: Vec<Outcome> = core::iter::repeat_with(fine)
        .take(5)
        .chain(core::iter::repeat_with(Outcome::denied).take(7))
        .chain(core::iter::repeat_with(fine).take(20))
        .chain(core::iter::repeat_with(Outcome::denied).take(1))
        .chain(core::iter::repeat_with(fine).take(57))
        .collect();
    let mut curves = Vec::new();
    for (preset, label) in [(Preset::Active, "practical: σ"), (Preset::ActiveP18, "Algorithm 3 (p18)")] {
        let longer = |state: &PacerSnapshot| 1.0 + state.rbt.as_secs_f64() / state.ast.as_secs_f64();
        let states = states(&plan(preset, |config| config.ast.alpha = 2.0)?, &outcomes);
        curves.push(Curve::new(label, CurveShape::Steps, over_checks(&states, longer)));
    }
    let denied = over_checks(&states(&plan(Preset::Active, |_| {})?, &outcomes), |_| 0.8);
    let denied = denied.into_iter().zip(&outcomes).filter(|(_, outcome)| matches!(outcome, Outcome::Denied { .. }));
    curves.push(Curve::new("denied", CurveShape::Dots, denied.map(|(at, _)| at).collect()));
    Ok(Figure {
        title: "(AST + RBT) / AST through an episode of seven denials, and a single one later",
        x: Axis::linear("check", 0.0, 90.0, 10.0),
        y: Axis::logarithmic(
            "times the own interval",
            0.7,
            200.0,
            &[(1.0, "1"), (2.0, "2"), (5.0, "5"), (10.0, "10"), (50.0, "50"), (128.0, "128")],
        ),
        curves,
    })
}

/// Response times, the thresholds, and what each detector makes of them.
pub(crate) fn detection() -> Drawn<Figure> {
    let mut chance = seeded(21);
    let (queues, latencies): (Vec<f64>, Vec<f64>) = (0..120)
        .map(|round| {
            let queue = if (40..90).contains(&round) { 200.0 + exponential(&mut chance, 30.0) } else { 0.0 };
            (queue, 20.0 + queue + exponential(&mut chance, 8.0))
        })
        .unzip();
    let rounds = || (1_u32..).map(f64::from);
    let (mut mean, mut least) = (latencies[0], latencies[0]);
    let (mut by_mean, mut by_least, mut by_share) = (Vec::new(), Vec::new(), Vec::new());
    for (round, latency) in rounds().zip(&latencies) {
        mean += (latency - mean) / 8.0;
        least = least.min(*latency);
        by_mean.push((round, mean));
        by_least.push((round, (3.0 * least).max(least + 50.0)));
        by_share.push((round, 1.9 * least));
    }
    let rules = [
        (DetectorRule::LightPaper, -40.0),
        (DetectorRule::Light, -80.0),
        (DetectorRule::Mediate, -120.0),
        (DetectorRule::RigorousPaper, -160.0),
    ];
    let mut flagged = Vec::new();
    for (rule, row) in rules {
        let plan = plan(Preset::Active, |config| {
            config.detector.rule = rule;
            config.detector.average = AverageRule::Ewma;
        })?;
        let outcomes: Vec<Outcome> =
            latencies.iter().zip(&queues).map(|(latency, queue)| answer(*latency, *queue)).collect();
        let states = states(&plan, &outcomes);
        flagged.extend(rounds().zip(&states).filter(|(_, state)| state.congested).map(|(round, _)| (round, row)));
    }
    let ticks = [0.0, 100.0, 200.0, 300.0, 400.0].map(|ms| (ms, ms.to_string()));
    let rows = rules.map(|(rule, row)| (row, rule.name().to_owned()));
    let named: Vec<(f64, String)> = rows.into_iter().chain(ticks).collect();
    let named: Vec<(f64, &str)> = named.iter().map(|(at, text)| (*at, text.as_str())).collect();
    Ok(Figure {
        title: "Response times, thresholds, and who calls it congestion (queue in rounds 41 to 90)",
        x: Axis::linear("check", 0.0, 120.0, 10.0),
        y: Axis::named("response time, ms", -190.0, 400.0, &named),
        curves: vec![
            Curve::new("response time", CurveShape::Line, rounds().zip(latencies).collect()),
            Curve::new("light-paper: moving mean", CurveShape::Dashed, by_mean),
            Curve::new("light: max(3 × min, min + 50 ms)", CurveShape::Dashed, by_least),
            Curve::new("rigorous-paper: 1.9 × minimum", CurveShape::Dashed, by_share),
            Curve::new("flagged as congestion", CurveShape::Dots, flagged),
        ],
    })
}

/// An answer of a broker that measures what a request waited.
fn answer(latency_ms: f64, queued_ms: f64) -> Outcome {
    let hints = Hints { queued: Some(millis(queued_ms)), ..Hints::default() };
    Outcome::Answered { latency: millis(latency_ms), losses: 0, not_modified: false, hints }
}

fn millis(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1000.0)
}

/// The law of the first back-off of an episode, by strategy.
pub(crate) fn first_back_offs() -> Drawn<Figure> {
    let fine = |losses| Outcome::answered(Duration::from_millis(20), losses);
    // An interval of 20 s that worked, a loss that halves it, a denial.
    let after_halving = [fine(0), fine(1), Outcome::denied()];
    // An episode that ended with a back-off, calm, and a denial.
    let again = |denials: usize| -> Vec<Outcome> {
        let episode = core::iter::repeat_with(Outcome::denied).take(denials);
        episode.chain(core::iter::repeat_with(|| fine(0)).take(60)).chain([Outcome::denied()]).collect()
    };
    let advice = Hints { interval: Some(Duration::from_secs(40)), ..Hints::default() };
    let advised = [fine(0), Outcome::Denied { hints: advice }];
    let mut curves = Vec::new();
    for (preset, rule, label, outcomes) in [
        (Preset::ActiveP18, InitialRule::Minimum, "minimum, p18", again(8)),
        (Preset::ActiveP18, InitialRule::History, "history, p18", after_halving.to_vec()),
        (Preset::ActiveP18, InitialRule::Memory, "memory, p18", again(8)),
        (Preset::Active, InitialRule::Memory, "memory, stretch", again(2)),
        (Preset::Active, InitialRule::Advice, "advice, stretch", advised.to_vec()),
    ] {
        let plan = plan(preset, |config| {
            config.initial = rule;
            config.interval = Duration::from_secs(if rule == InitialRule::History { 20 } else { 10 });
        })?;
        let mut firsts: Vec<f64> = (0..1000).map(|seed| first_back_off(&plan, &outcomes, seed)).collect();
        firsts.sort_by(f64::total_cmp);
        let law: Vec<(f64, f64)> = firsts.into_iter().zip((1_u32..).map(|n| f64::from(n) / 1000.0)).collect();
        let from_zero = law.first().map(|(least, _)| (*least, 0.0));
        curves.push(Curve::new(label, CurveShape::Line, from_zero.into_iter().chain(thinned(&law, 100)).collect()));
    }
    Ok(Figure {
        title: "Law of the first back-off of an episode (1000 draws each)",
        x: Axis::linear("first back-off, s", 0.0, 80.0, 10.0),
        y: Axis::linear("share of draws up to this", 0.0, 1.0, 0.2),
        curves,
    })
}

fn first_back_off(plan: &Arc<PacerPlan>, outcomes: &[Outcome], seed: u64) -> f64 {
    let (mut pacer, mut chance) = (Pacer::new(plan), seeded(seed));
    for outcome in outcomes {
        pacer.on_outcome(Timestamp::ZERO, outcome, &mut chance);
    }
    pacer.snapshot().rbt.as_secs_f64()
}

/// A hint as it is written: its word and its value.
type Pair = (&'static str, &'static str);

/// What a client with an interval of 10 s does after each hint, as it is written on the wire.
pub(crate) fn hints() -> Drawn<Figure> {
    let ticket = "00000000000000ff-00000000000000ff";
    let cases: [(&str, bool, &[Pair]); 7] = [
        ("answer", true, &[]),
        ("queued 400", true, &[("pace-queued-ms", "400")]),
        ("stretch 3", true, &[("pace-stretch", "3000")]),
        ("deny", false, &[]),
        ("interval 40 s", false, &[("pace-interval-ms", "40000")]),
        ("retry 15 s", false, &[("pace-retry-after-ms", "15000")]),
        ("+ ticket", false, &[("pace-retry-after-ms", "15000"), ("pace-ticket", ticket)]),
    ];
    let plan = plan(Preset::Active, |_| {})?;
    let (mut waits, mut names) = (Vec::new(), Vec::new());
    for (column, (name, answered, texts)) in (1_u32..).map(f64::from).zip(cases) {
        names.push((column, name));
        let mut hints = Hints::default();
        if !texts.iter().all(|(word, text)| hints.read(word, text) == HintRead::Taken) {
            return Err("a hint that is not one".into());
        }
        let outcome = if answered {
            Outcome::Answered { latency: Duration::from_millis(20), losses: 0, not_modified: false, hints }
        } else {
            Outcome::Denied { hints }
        };
        for seed in 0..45 {
            let delay = Pacer::new(&plan).on_outcome(Timestamp::ZERO, &outcome, &mut seeded(seed));
            waits.push((column, delay.ok_or("level none")?.as_secs_f64()));
        }
    }
    Ok(Figure {
        title: "The next delay of a client with an interval of 10 s, by what the broker said",
        x: Axis::named("outcome and hint", 0.4, 7.6, &names),
        y: Axis::linear("delay until the next check, s", 0.0, 60.0, 10.0),
        curves: vec![Curve::new("one client", CurveShape::Dots, waits)],
    })
}
