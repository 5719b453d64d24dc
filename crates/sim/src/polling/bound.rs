//! The least share of stale copies that a capacity allows.
//!
//! A client that is checked every s seconds, whose item changes λ times a second and whose notifications are lost with
//! probability p, is stale for S(s) = p·(1 − (1 − e^(−λs))/(λs)) of the time; deterministic checks are the best ones.
//! Equal clients share the capacity equally: s = m/μ. Clients that differ do not: the best check rates r = 1/s minimise the
//! mean of S for a given mean of r, so they have the same −dS/dr, or are not checked at all. That slope is found by bisection, for
//! the quantiles of the log-normal law of λ.

/// p·S for mean update rate, σ of its logarithm, loss, and seconds per check and client that the capacity allows.
pub(super) fn least_stale(rate: f64, spread: f64, loss: f64, interval: f64) -> f64 {
    if rate * interval < 1e-9 {
        return 0.0;
    }
    if spread == 0.0 {
        return loss * unseen(rate * interval);
    }
    let rates: Vec<f64> = (0..QUANTILES)
        .map(|n| rate * (spread * normal_quantile((n as f64 + 0.5) / QUANTILES as f64) - spread * spread / 2.0).exp())
        .collect();
    let mean_checks = |slope: f64| rates.iter().map(|rate| checks(*rate, slope)).sum::<f64>() / QUANTILES as f64;
    // −dS/dr falls with r, so checks fall with the slope.
    let (mut low, mut high) = (1e-12, 1e12);
    for _ in 0..STEPS {
        let middle = f64::sqrt(low * high);
        if mean_checks(middle) > 1.0 / interval { low = middle } else { high = middle }
    }
    let stale = |rate: f64| match checks(rate, high) {
        0.0 => 1.0,
        checks => unseen(rate / checks),
    };
    loss * rates.iter().map(|rate| stale(*rate)).sum::<f64>() / QUANTILES as f64
}

const QUANTILES: usize = 400;
const STEPS: usize = 80;

/// 1 − (1 − e^−x)/x.
fn unseen(exposure: f64) -> f64 {
    if exposure < 1e-6 { exposure / 2.0 } else { 1.0 + (-exposure).exp_m1() / exposure }
}

/// Checks per second at which −dS/dr is this slope, for an item of this rate; none if it is less from the start.
fn checks(rate: f64, slope: f64) -> f64 {
    // With x = λ/r: −dS/dr = (1 − e^−x − x·e^−x)/λ, which rises with x from 0 to 1/λ.
    let wanted = slope * rate;
    if wanted >= 1.0 {
        return 0.0;
    }
    let (mut low, mut high) = (1e-9_f64, 1e3_f64);
    for _ in 0..STEPS {
        let x = f64::sqrt(low * high);
        if -(-x).exp_m1() - x * (-x).exp() < wanted { low = x } else { high = x }
    }
    rate / high
}

/// The point below which a standard normal variable is with this probability, by bisection of the logistic-free series of
/// its integral: good to 1e-6, which is more than a mean over quantiles needs.
fn normal_quantile(share: f64) -> f64 {
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if normal_share(middle) < share { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// Φ, by the series of the error function (Abramowitz and Stegun 26.2.11).
fn normal_share(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    let mut n = 1.0;
    while term.abs() > 1e-15 * sum.abs() && n < 400.0 {
        n += 2.0;
        term *= x * x / n;
        sum += term;
    }
    0.5 + sum * (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_clients_are_the_limit_of_a_small_spread() {
        let (equal, nearly) = (least_stale(0.1, 0.0, 0.2, 15.0), least_stale(0.1, 0.001, 0.2, 15.0));
        assert!((equal - 0.0964).abs() < 1e-4, "{equal}");
        assert!((equal / nearly - 1.0).abs() < 1e-4, "{equal} {nearly}");
    }

    #[test]
    fn the_best_rates_are_better_than_equal_ones_and_never_negative() {
        for spread in [0.5, 1.0, 2.0] {
            let rates = (0..400)
                .map(|n| 0.1 * (spread * normal_quantile((f64::from(n) + 0.5) / 400.0) - spread * spread / 2.0).exp());
            let equal = 0.2 * rates.map(|rate| unseen(rate * 15.0)).sum::<f64>() / 400.0;
            let best = least_stale(0.1, spread, 0.2, 15.0);
            assert!(best > 0.0 && best < equal, "{spread}: {best} and {equal}");
        }
        assert!((normal_share(1.96) - 0.975).abs() < 1e-4 && (normal_quantile(0.975) - 1.96).abs() < 1e-3);
    }
}
