//! Publishers: how long one is held that breaks its rhythm, and who loses when all send too much.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::rhythm::{Enforcement, Pressure, Rhythm, RhythmConfig, RhythmPlan, RhythmRule, Verdict};

use crate::Drawn;
use crate::plot::{Axis, Curve, CurveShape, Figure, by_ratio, evenly, of};

fn plan(rule: RhythmRule) -> Drawn<RhythmPlan> {
    Ok(RhythmConfig { rule, enforcement: Enforcement::Always, ..RhythmConfig::default() }.build()?)
}

/// Seconds that the `message`-th of a run is held; its sender is known for one message in `interval` seconds and is now
/// `faster` times as fast.
fn held(plan: &RhythmPlan, interval: f64, faster: f64, message: u32) -> f64 {
    let mut rhythm = Rhythm::resume(plan, Duration::from_secs_f64(interval), Timestamp::ZERO);
    let mut verdict = Verdict::Pass;
    for n in 1..=message {
        let now = Timestamp::from_secs_f64(f64::from(n) * interval / faster);
        verdict = rhythm.on_publish(plan, now, Pressure::Pressed);
    }
    match verdict {
        Verdict::Pass => 0.0,
        Verdict::Hold(time) | Verdict::Refuse(time) | Verdict::Disconnect(time) => time.as_secs_f64(),
    }
}

/// Delay over the rate: the paper's for three sensors, and the practical one.
pub(crate) fn delay() -> Drawn<Figure> {
    let speeds = by_ratio(0.5, 20.0, 140);
    let (paper, practical) = (plan(RhythmRule::Paper)?, plan(RhythmRule::Practical)?);
    let shown = |seconds: f64| seconds.max(0.01);
    let paper = |interval: f64| move |faster: f64| shown(held(&paper, interval, faster, 1));
    let practical = |message: u32| move |faster: f64| shown(held(&practical, 1.0, faster, message));
    Ok(Figure {
        title: "Hold of a message, by how much its sender is faster than it was learned to be",
        x: Axis::logarithmic(
            "rate, times the learned one",
            0.5,
            20.0,
            &[(0.5, "0.5"), (1.0, "1"), (2.0, "2"), (5.0, "5"), (10.0, "10"), (20.0, "20")],
        ),
        y: Axis::logarithmic(
            "hold",
            0.01,
            1e9,
            &[
                (0.01, "0"),
                (1.0, "1 s"),
                (60.0, "1 min"),
                (3600.0, "1 h"),
                (86_400.0, "1 day"),
                (31_557_600.0, "1 year"),
            ],
        ),
        curves: vec![
            of("paper, 10 per s", CurveShape::Dashed, &speeds, paper(0.1)),
            of("paper, 1 per s", CurveShape::Dashed, &speeds, paper(1.0)),
            of("paper, 1 per 10 s", CurveShape::Dashed, &speeds, paper(10.0)),
            of("practical, 12th message", CurveShape::Line, &speeds, practical(12)),
            of("practical, 40th message", CurveShape::Line, &speeds, practical(40)),
        ],
    })
}

/// Verdicts per second about a sensor of one message a second that sends ten.
pub(crate) fn flood() -> Drawn<Figure> {
    let plan = plan(RhythmRule::Practical)?;
    let mut rhythm = Rhythm::resume(&plan, Duration::from_secs(1), Timestamp::ZERO);
    // Ten messages a second for 240 s, silence for a minute, then the old rhythm.
    let flood = (1..=2400).map(|n| f64::from(n) * 0.1);
    let healthy = (0..120).map(|n| 300.0 + f64::from(n));
    let mut verdicts: [[f64; 42]; 3] = [[0.0; 42]; 3];
    for now in flood.chain(healthy) {
        let row = match rhythm.on_publish(&plan, Timestamp::from_secs_f64(now), Pressure::Pressed) {
            Verdict::Pass | Verdict::Hold(_) => 0,
            Verdict::Refuse(_) => 1,
            Verdict::Disconnect(_) => 2,
        };
        verdicts[row][(now / BIN) as usize] += 1.0 / BIN;
    }
    let rates = |row: usize| (0_u32..).zip(verdicts[row]).map(|(bin, rate)| (f64::from(bin) * BIN, rate)).collect();
    Ok(Figure {
        title: "A sensor of 1 message/s sends 10/s for 240 s, is silent for 60 s, and returns",
        x: Axis::linear("time, s", 0.0, 420.0, 60.0),
        y: Axis::linear("messages per second", 0.0, 11.0, 1.0),
        curves: vec![
            Curve::new("taken, at once or held", CurveShape::Steps, rates(0)),
            Curve::new("refused", CurveShape::Steps, rates(1)),
            Curve::new("told to disconnect", CurveShape::Steps, rates(2)),
            Curve::new("headroom: 2 × learned", CurveShape::Dashed, vec![(0.0, 2.0), (420.0, 2.0)]),
        ],
    })
}

/// Who loses in overload: by formula, 60 publishers over three decades of rate.
pub(crate) fn losses() -> Figure {
    let rates: Vec<f64> = evenly(0.0, 3.0, 60).into_iter().map(libm::exp10).collect();
    let total: f64 = rates.iter().sum();
    let weight = |n: usize| [4.0, 2.0, 1.0][n / 20];
    let mut curves = Vec::new();
    for load in [1.2, 3.0] {
        let level = water_level(&rates, total / load, weight);
        let alike = rates.iter().map(|rate| (*rate, 100.0 * (1.0 - 1.0 / load))).collect();
        let share = |(n, rate): (usize, &f64)| (*rate, 100.0 * (1.0 - level * weight(n) / rate).max(0.0));
        curves.push(Curve::new(format!("tail drop, load {load}"), CurveShape::Dashed, alike));
        let fair = rates.iter().enumerate().map(share).collect();
        curves.push(Curve::new(format!("longest-queue drop, load {load}"), CurveShape::Line, fair));
    }
    Figure {
        title: "Share of messages lost, by rate of the publisher (by formula)",
        x: Axis::logarithmic(
            "rate of the publisher, times that of the rarest",
            1.0,
            1000.0,
            &[(1.0, "1"), (10.0, "10"), (100.0, "100"), (1000.0, "1000")],
        ),
        y: Axis::linear("lost, %", 0.0, 100.0, 20.0),
        curves,
    }
}

/// The service per weight at which all of the capacity is used: max-min fairness.
fn water_level(rates: &[f64], capacity: f64, weight: impl Fn(usize) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, capacity);
    for _ in 0..100 {
        let level = 0.5 * (low + high);
        let used: f64 = rates.iter().enumerate().map(|(n, rate)| rate.min(level * weight(n))).sum();
        if used < capacity { low = level } else { high = level }
    }
    low
}

/// Seconds over which verdicts are counted.
const BIN: f64 = 10.0;
