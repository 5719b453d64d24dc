//! `tidegate lab overload`: Pr{N_t} of the papers, the tail that a limit needs, and the interval that keeps a risk.
//!
//! Only words around `tidegate_control::analysis::poisson`, which knows what they mean and where they fail.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tidegate_control::analysis::poisson::{pmf, shortest_interval, tail};
use tidegate_program::{out, say};

use crate::arguments::OverloadArgs;

/// Seconds from which on an interval is no advice.
const DAY: f64 = 86_400.0;
/// Intervals beside the given one that are shown, as multiples of it.
const BESIDE: [f64; 5] = [0.5, 0.8, 1.25, 2.0, 4.0];

pub(crate) fn run(args: &OverloadArgs) {
    if args.json {
        return say!("{:#}", figures(args));
    }
    out(&report(args));
}

/// The same numbers, for machines.
fn figures(args: &OverloadArgs) -> Value {
    let OverloadArgs { clients, interval, limit, window, risk, .. } = *args;
    let t = window.as_secs_f64();
    let advised = shortest_interval(clients, t, limit.saturating_add(1), risk);
    let at = |tau: f64| {
        let load = clients as f64 * t / tau;
        json!({
            "interval_s": tau,
            "load": load,
            "exactly": pmf(limit, load),
            "reached": tail(limit, load),
            "exceeded": tail(limit + 1, load),
        })
    };
    json!({
        "clients": clients,
        "limit": limit,
        "window_s": t,
        "risk": risk,
        "given": at(interval.as_secs_f64()),
        "advised": at(advised),
    })
}

fn report(args: &OverloadArgs) -> String {
    let OverloadArgs { clients, interval, limit, window, risk, .. } = *args;
    let (tau, t) = (interval.as_secs_f64(), window.as_secs_f64());
    let load = |tau: f64| clients as f64 * t / tau;
    let advised = shortest_interval(clients, t, limit.saturating_add(1), risk);
    let mut text = format!(
        "m = {clients} clients, each every τ = {tau} s, bring a Poisson number X of requests into t = {t} s; its mean is \
         m·t/τ = {:.4}\n\n\
         Pr{{X = N}}   {:<12} exactly N = {limit}: the Pr{{N_t}} that the papers print\n\
         Pr{{X ≥ N}}   {:<12} the limit is reached\n\
         Pr{{X > N}}   {:<12} it is exceeded\n\n\
         interval to advise: {advised:.4} s, which exceeds N in {} of the windows; load {:.4}, {:.1} % of N\n\n\
         interval     Pr{{X = N}}   Pr{{X > N}}\n",
        load(tau),
        share(pmf(limit, load(tau))),
        share(tail(limit, load(tau))),
        share(tail(limit + 1, load(tau))),
        share(tail(limit + 1, load(advised))),
        load(advised),
        100.0 * load(advised) / limit as f64,
    );
    if advised > DAY {
        let _ = writeln!(
            text,
            "(that is {:.0} days: with N = {limit} a window of {t} s has no room for this risk; what helps is a larger --limit or \
             --risk)\n",
            advised / DAY
        );
    }
    let mut beside: Vec<f64> = BESIDE.iter().map(|factor| factor * tau).chain([tau, advised]).collect();
    beside.sort_by(f64::total_cmp);
    for tau in beside {
        let (exactly, more) = (share(pmf(limit, load(tau))), share(tail(limit + 1, load(tau))));
        let _ = writeln!(text, "{:<12} {exactly:<11} {more}", format!("{tau:.4} s"));
    }
    text.push_str(
        "\nIt holds for clients that do not ask together: after a restart or an announcement all m may come at once.\n",
    );
    text
}

/// A probability, also a very small one.
fn share(value: f64) -> String {
    if value == 0.0 || (1e-3..=1.0).contains(&value) { format!("{value:.4}") } else { format!("{value:.2e}") }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_numbers_of_the_papers_and_an_interval_that_keeps_the_risk() {
        let seconds = Duration::from_secs;
        let (interval, window, json) = (seconds(5), seconds(1), true);
        let args = OverloadArgs { clients: 1000, interval, limit: 120, window, risk: 0.01, json };
        let text = report(&args);
        assert!(text.contains("Pr{X = N}   2.75e-10"), "exactly N is unlikely in overload: {text}");
        assert!(text.contains("Pr{X > N}   1.0000"), "{text}");
        let advised: f64 = text.split("advise: ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        let exceeded = |tau: f64| tail(121, 1000.0 / tau);
        let figures = figures(&args);
        assert!((figures["advised"]["interval_s"].as_f64().unwrap() - advised).abs() < 1e-3, "{figures}");
        assert!(figures["given"]["exactly"].as_f64().unwrap() < 3e-10, "{figures}");
        assert!(!text.contains("days"), "{text}");
        let far = OverloadArgs { clients: 1_000_000, interval, limit: 0, window, risk: 0.000_001, json };
        assert!(
            report(&far).contains(" days: with N = 0 a window of 1 s has no room for this risk"),
            "{}",
            report(&far)
        );
        assert!(exceeded(advised) <= 0.0101 && exceeded(advised * 0.99) > 0.01, "{advised} s");
    }
}
