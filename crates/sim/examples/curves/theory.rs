//! The curves of `analysis`, beside a Monte Carlo run of a real pacer.

use std::time::Duration;

use tidegate_control::analysis::aimd::{Aimd, c, efficiency};
use tidegate_control::analysis::poisson;
use tidegate_control::pacer::{AstConfig, AstStep, Outcome, PacerConfig, Preset};

use crate::Drawn;
use crate::client::live;
use crate::plot::{Axis, Curve, CurveShape, Figure, by_ratio, evenly, of};

/// c, T₀ and η over α.
pub(crate) fn constants() -> Figure {
    let alphas = evenly(1.1, 8.0, 120);
    let before = |alpha: f64| alpha / ((alpha - 1.0) * c(alpha));
    Figure {
        title: "Constants of the adaptive timeout",
        x: Axis::linear("α, the divisor at a loss", 1.0, 8.0, 1.0),
        y: Axis::linear("value, times in units of √(δ/λ)", 0.0, 3.5, 0.5),
        curves: vec![
            of("c: mean timeout τ", CurveShape::Line, &alphas, c),
            of("T: timeout before a decrease", CurveShape::Line, &alphas, before),
            of("η: efficiency (1 is ideal)", CurveShape::Line, &alphas, efficiency),
        ],
    }
}

/// τ over ε: three formulas and a Monte Carlo run of equation (3), α = 2.
pub(crate) fn estimates() -> Drawn<Figure> {
    let epsilons = by_ratio(0.01, 1.0, 90);
    // δ = 1 s, so that ε = √λ and the unit of time is 1/ε.
    let map = |epsilon: f64| Aimd::clamped(epsilon * epsilon, 1.0, 2.0);
    let mut measured = Vec::new();
    for epsilon in by_ratio(0.01, 1.0, 11) {
        measured.push((epsilon, mean_timeout(epsilon)? * epsilon));
    }
    Ok(Figure {
        title: "Mean timeout τ of equation (3), Poisson losses, α = 2",
        x: Axis::logarithmic(
            "ε = √(λδ)",
            0.01,
            1.0,
            &[(0.01, "0.01"), (0.03, "0.03"), (0.1, "0.1"), (0.3, "0.3"), (1.0, "1")],
        ),
        y: Axis::linear("τ in units of √(δ/λ)", 1.0, 1.4, 0.1),
        curves: vec![
            of("fluid limit (F3)", CurveShape::Dashed, &epsilons, |e| map(e).fluid().timeout * e),
            of("estimate (F3 corrected, F4)", CurveShape::Line, &epsilons, |e| map(e).estimate().timeout * e),
            of("fixed point (F4)", CurveShape::Dashed, &epsilons, |e| map(e).mean_field().timeout * e),
            Curve::new("Monte Carlo, a real pacer", CurveShape::Dots, measured),
        ],
    })
}

/// Mean AST of a pacer with equation (3) and δ = 1 s, over 300 000 checks.
fn mean_timeout(epsilon: f64) -> Drawn<f64> {
    let mut config = PacerConfig::from(Preset::AdaptiveEquation3);
    config.interval = Duration::from_secs_f64(1.3 / epsilon);
    config.ast = AstConfig { step: AstStep::Fixed(Duration::from_secs(1)), ..config.ast };
    let plan = config.build()?;
    let answer = |_: f64, losses| Outcome::answered(Duration::ZERO, losses);
    let moments = live(&plan, 11, epsilon * epsilon, 1.3 * 300_000.0 / epsilon, answer);
    let steady = &moments[moments.len() / 20..];
    Ok(steady.iter().map(|moment| moment.state.ast.as_secs_f64()).sum::<f64>() / steady.len() as f64)
}

/// Exactly N and at least N requests, over the interval of 1000 clients.
pub(crate) fn overload() -> Figure {
    let intervals = evenly(4.0, 16.0, 140);
    let load = |interval: f64| 1000.0 / interval;
    Figure {
        title: "1000 clients, a window of 1 s, room for N = 120",
        x: Axis::linear("interval τ between checks of one client, s", 4.0, 16.0, 2.0),
        y: Axis::logarithmic(
            "probability",
            1e-10,
            1.5,
            &[(1.0, "1"), (1e-2, "0.01"), (1e-4, "1e-4"), (1e-6, "1e-6"), (1e-8, "1e-8"), (1e-10, "1e-10")],
        ),
        curves: vec![
            of("exactly 120 (the papers)", CurveShape::Dashed, &intervals, |tau| poisson::pmf(120, load(tau))),
            of("120 or more (the tail)", CurveShape::Line, &intervals, |tau| poisson::tail(120, load(tau))),
        ],
    }
}

/// How much of a limit may be used, over the accepted risk.
pub(crate) fn inverse() -> Figure {
    let risks = by_ratio(1e-6, 0.5, 60);
    let share = |limit: u64| move |risk: f64| poisson::admissible_load(limit, risk) / limit as f64;
    let shortcut = |risk: f64| poisson::admissible_load_approx(20, risk) / 20.0;
    Figure {
        title: "Admissible load as a share of the limit N",
        x: Axis::logarithmic(
            "risk that a window brings N requests or more",
            1e-6,
            0.5,
            &[(1e-6, "1e-6"), (1e-5, "1e-5"), (1e-4, "1e-4"), (1e-3, "0.001"), (1e-2, "0.01"), (0.1, "0.1")],
        ),
        y: Axis::linear("admissible load / N", 0.0, 1.0, 0.2),
        curves: vec![
            of("N = 1000", CurveShape::Line, &risks, share(1000)),
            of("N = 120", CurveShape::Line, &risks, share(120)),
            of("N = 20", CurveShape::Line, &risks, share(20)),
            of("N = 20, closed form", CurveShape::Dashed, &risks, shortcut),
        ],
    }
}
