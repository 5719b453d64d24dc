//! One client through time: what its pacer does when the world answers, is late, or loses notifications.

use std::sync::Arc;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::analysis::Aimd;
use tidegate_control::hints::Hints;
use tidegate_control::pacer::{
    AstConfig, AstRule, AstStep, Outcome, Pacer, PacerConfig, PacerPlan, PacerSnapshot, Preset,
};

use crate::Drawn;
use crate::chance::{poisson, seeded};
use crate::plot::{Axis, Curve, CurveShape, Figure, evenly};

/// The state of a pacer after a check.
pub(crate) struct Moment {
    /// When the check ended, seconds.
    pub(crate) at: f64,
    pub(crate) state: PacerSnapshot,
}

/// A client from time 0 to `until`, seconds. Notifications are lost at `loss_rate`; `world` says what a check at a time
/// comes to, given the losses that it would reveal.
pub(crate) fn live(
    plan: &Arc<PacerPlan>,
    seed: u64,
    loss_rate: f64,
    until: f64,
    world: impl Fn(f64, u32) -> Outcome,
) -> Vec<Moment> {
    let (mut own, mut radio) = (seeded(seed), seeded(seed + 1_000_000));
    let mut pacer = Pacer::new(plan);
    let (mut now, mut losses, mut moments) = (0.0, 0_u32, Vec::new());
    let mut delay = pacer.first_delay(&mut own);
    while let Some(wait) = delay.map(|delay| delay.as_secs_f64()) {
        now += wait;
        if now > until {
            break;
        }
        losses += poisson(&mut radio, loss_rate * wait);
        let outcome = world(now, losses);
        if matches!(outcome, Outcome::Answered { .. }) {
            losses = 0;
        }
        delay = pacer.on_outcome(Timestamp::from_secs_f64(now), &outcome, &mut own);
        moments.push(Moment { at: now, state: pacer.snapshot() });
    }
    moments
}

/// A client with δ = 0.5 s; with the loss rate of [`LOSS_RATE`] its mean timeout is 6.4 s.
fn plan(preset: Preset, change: impl FnOnce(&mut PacerConfig)) -> Drawn<Arc<PacerPlan>> {
    let mut config = PacerConfig::from(preset);
    config.interval = Duration::from_secs(6);
    config.ast = AstConfig { step: AstStep::Fixed(Duration::from_millis(500)), ..config.ast };
    change(&mut config);
    Ok(config.build()?)
}

fn in_time(losses: u32) -> Outcome {
    Outcome::answered(Duration::from_millis(20), losses)
}

fn late(losses: u32) -> Outcome {
    Outcome::answered(Duration::from_secs(2), losses)
}

fn ast_of(moments: &[Moment]) -> Vec<(f64, f64)> {
    moments.iter().map(|moment| (moment.at, moment.state.ast.as_secs_f64())).collect()
}

/// The saw-tooth of AST, with the means that theory gives.
pub(crate) fn ast() -> Drawn<Figure> {
    let until = 900.0;
    let world = |_: f64, losses| in_time(losses);
    let run = |preset| -> Drawn<_> { Ok(ast_of(&live(&plan(preset, |_| {})?, 5, LOSS_RATE, until, world))) };
    let expected = Aimd::new(LOSS_RATE, 0.5, 2.0)?.estimate();
    let level = |value| vec![(0.0, value), (until, value)];
    Ok(Figure {
        title: "AST over time: one loss in 50 s on average, δ = 0.5 s, α = 2",
        x: Axis::linear("time, s", 0.0, until, 100.0),
        y: Axis::linear("AST, s", 0.0, 16.0, 2.0),
        curves: vec![
            Curve::new("equation (3)", CurveShape::Steps, run(Preset::AdaptiveEquation3)?),
            Curve::new("Algorithm 2", CurveShape::Steps, run(Preset::AdaptiveAlgorithm2)?),
            Curve::new("T, before a decrease", CurveShape::Dashed, level(expected.before_decrease)),
            Curve::new("τ, mean", CurveShape::Dashed, level(expected.timeout)),
        ],
    })
}

/// Mean AST of many clients that are told to stretch their interval tenfold.
pub(crate) fn exposure() -> Drawn<Figure> {
    let (until, stretched_at) = (3600.0, 900.0);
    let world = |now: f64, losses| {
        let stretch = if now < stretched_at { 1.0 } else { 10.0 };
        let hints = Hints { stretch: Some(stretch), ..Hints::default() };
        Outcome::Answered { latency: Duration::from_millis(20), losses, not_modified: false, hints }
    };
    let mean = |rule: AstRule| -> Drawn<_> {
        let plan = plan(Preset::Active, |config| config.ast.rule = rule)?;
        let clients: Vec<Vec<Moment>> = (0..400).map(|seed| live(&plan, seed, LOSS_RATE, until, world)).collect();
        let places = evenly(60.0, until, 119);
        Ok(places.into_iter().map(|at| (at, mean_ast(&clients, at))).collect())
    };
    let change = vec![(stretched_at, 0.0), (stretched_at, 9.0)];
    Ok(Figure {
        title: "Mean AST of 400 clients; from 900 s on all stretch their interval by 10",
        x: Axis::linear("time, s", 0.0, until, 600.0),
        y: Axis::linear("AST, s", 0.0, 9.0, 1.0),
        curves: vec![
            Curve::new("practical (thinned losses)", CurveShape::Line, mean(AstRule::Practical)?),
            Curve::new("equation (3)", CurveShape::Line, mean(AstRule::Equation3)?),
            Curve::new("stretch begins", CurveShape::Dashed, change),
        ],
    })
}

/// Mean over clients of the AST in force at a time.
fn mean_ast(clients: &[Vec<Moment>], at: f64) -> f64 {
    let in_force = |moments: &Vec<Moment>| {
        let passed = moments.partition_point(|moment| moment.at <= at);
        moments.get(passed.saturating_sub(1)).map_or(0.0, |moment| moment.state.ast.as_secs_f64())
    };
    clients.iter().map(in_force).sum::<f64>() / clients.len() as f64
}

/// AST and AST + RBT through an overload, as on the slides.
pub(crate) fn ast_and_rbt() -> Drawn<Figure> {
    let until = 900.0;
    let world = |now: f64, losses| if (300.0..500.0).contains(&now) { late(losses) } else { in_time(losses) };
    let moments = live(&plan(Preset::ActiveP18, |_| {})?, 4, LOSS_RATE, until, world);
    let total = moments.iter().map(|moment| (moment.at, (moment.state.ast + moment.state.rbt).as_secs_f64()));
    Ok(Figure {
        title: "t = AST + RBT over time (active-p18), overload from 300 s to 500 s",
        x: Axis::linear("time, s", 0.0, until, 100.0),
        y: Axis::linear("timeout, s", 0.0, 90.0, 10.0),
        curves: vec![
            Curve::new("AST + RBT", CurveShape::Steps, total.collect()),
            Curve::new("AST", CurveShape::Steps, ast_of(&moments)),
            Curve::new("overload", CurveShape::Dashed, vec![(300.0, 88.0), (500.0, 88.0)]),
        ],
    })
}

/// When each preset checks: the same world, one row each.
pub(crate) fn levels() -> Drawn<Figure> {
    let presets = [
        Preset::Active,
        Preset::ActiveP19,
        Preset::ActiveP18,
        Preset::Adaptive,
        Preset::AdaptiveEquation3,
        Preset::Exponential,
        Preset::Random,
        Preset::Fixed,
    ];
    let until = 500.0;
    // Losses are eight times as many while the broker is slow, because it sheds notifications.
    let world = |now: f64, losses: u32| {
        if (160.0..280.0).contains(&now) { late(losses * 8) } else { in_time(losses) }
    };
    let mut checks = Vec::new();
    for (row, preset) in (1_u32..).zip(presets) {
        let moments = live(&plan(preset, |_| {})?, 3, LOSS_RATE, until, world);
        let mut times: Vec<_> = moments.iter().map(|moment| (moment.at, f64::from(row))).collect();
        // Closer than this the dots would cover each other.
        times.dedup_by(|later, before| later.0 - before.0 < 2.5);
        checks.extend(times);
    }
    let rows: Vec<(f64, &str)> = (1_u32..).zip(presets).map(|(row, preset)| (f64::from(row), preset.name())).collect();
    Ok(Figure {
        title: "When a client checks, by preset",
        x: Axis::linear("time, s", 0.0, until, 100.0),
        y: Axis::named("", 0.4, 9.0, &rows),
        curves: vec![
            Curve::new("one check", CurveShape::Dots, checks),
            Curve::new("broker late, from 160 s to 280 s", CurveShape::Dashed, vec![(160.0, 8.7), (280.0, 8.7)]),
        ],
    })
}

/// Losses per second in most of the figures.
const LOSS_RATE: f64 = 0.02;
