//! The simulator against theory: queues whose waits are known, Poisson arrivals, and the closed forms of AST.

#![allow(clippy::unwrap_used, reason = "a wrong scenario is a bug of the test")]

use tidegate_control::analysis::Aimd;
use tidegate_control::analysis::aimd::burst;
use tidegate_control::analysis::poisson::tail;
use tidegate_control::pacer::Preset;
use tidegate_sim::polling::{Algorithm, Broker, Count, Outcome, Polling, Service, StepChoice, run};

const RTT: f64 = 0.02;

/// So many clients with exponential intervals that arrivals are Poisson, on a broker that refuses nobody.
fn queue(load: f64, servers: u32, service: Service) -> Polling {
    let mut config = Polling { warm_up: 200.0, duration: 3000.0, ..Polling::default() };
    config.broker = Broker::preset("unbounded").unwrap();
    config.clients.algorithm = Algorithm::Pacer(Preset::Exponential);
    config.clients.interval = 100.0;
    config.clients.request_timeout = 3600.0;
    config.clients.count = Count::Load(load);
    config.host.capacity = 50.0;
    config.host.servers = servers;
    config.host.service = service;
    config.updates.rate = 0.0;
    config
}

fn metric(outcome: &Outcome, name: &str) -> f64 {
    outcome.metric(name).unwrap()
}

/// Mean wait in the queue: latency without travel and service.
fn wait(outcome: &Outcome, config: &Polling) -> f64 {
    metric(outcome, "latency_mean") - RTT - f64::from(config.host.servers) / config.host.capacity
}

/// The utilisation that there really was.
fn utilisation(outcome: &Outcome) -> f64 {
    metric(outcome, "goodput")
}

fn close(found: f64, expected: f64, tolerance: f64, what: &str) {
    assert!((found / expected - 1.0).abs() <= tolerance, "{what}: {found}, and theory says {expected}");
}

/// Of several seeds, because the 99th percentile of one run differs from theory by up to a tenth either way.
#[test]
fn m_m_1() {
    const SEEDS: u64 = 6;
    for load in [0.5, 0.7, 0.8] {
        let config = queue(load, 1, Service::Exponential);
        // What was found, times what theory says: mean wait, median and 99th percentile.
        let mut found = [0.0; 3];
        for seed in 1..=SEEDS {
            let outcome = run(&config, seed).unwrap();
            let rho = utilisation(&outcome);
            // Time in the system is exponential.
            let rate = 50.0 * (1.0 - rho);
            let quantile = |name, share: f64| (metric(&outcome, name) - RTT) * rate / -(1.0 - share).ln();
            let of_seed =
                [wait(&outcome, &config) * rate / rho, quantile("latency_p50", 0.5), quantile("latency_p99", 0.99)];
            for (sum, ratio) in found.iter_mut().zip(of_seed) {
                *sum += ratio / SEEDS as f64;
            }
        }
        close(found[0], 1.0, 0.03, "mean wait of M/M/1");
        close(found[1], 1.0, 0.03, "median of M/M/1");
        close(found[2], 1.0, 0.03, "99th percentile of M/M/1");
    }
}

#[test]
fn m_d_1() {
    let config = queue(0.8, 1, Service::Fixed);
    let outcome = run(&config, 2).unwrap();
    let rho = utilisation(&outcome);
    close(wait(&outcome, &config), rho / (2.0 * 50.0 * (1.0 - rho)), 0.06, "mean wait of M/D/1");
}

#[test]
fn m_g_1_by_pollaczek_and_khinchine() {
    let cv = 2.0;
    let config = queue(0.6, 1, Service::LogNormal(cv));
    // The tail is heavy, so one run says little.
    let (mut found, mut expected) = (0.0, 0.0);
    for seed in 0..8 {
        let outcome = run(&config, seed).unwrap();
        let rho = utilisation(&outcome);
        found += wait(&outcome, &config);
        expected += rho * (1.0 + cv * cv) / (2.0 * 50.0 * (1.0 - rho));
    }
    close(found, expected, 0.05, "mean wait of M/G/1");
}

#[test]
fn m_m_c() {
    let servers = 4;
    let config = queue(0.85, servers, Service::Exponential);
    let outcome = run(&config, 4).unwrap();
    let rho = utilisation(&outcome);
    let offered = rho * f64::from(servers);
    let term = |n: u32| offered.powf(n.into()) / (1..=n).map(f64::from).product::<f64>();
    let all_busy = term(servers) / (1.0 - rho);
    let erlang_c = all_busy / ((0..servers).map(term).sum::<f64>() + all_busy);
    close(wait(&outcome, &config), erlang_c / (50.0 * (1.0 - rho)), 0.08, "mean wait of M/M/4");
}

#[test]
fn arrivals_exceed_a_limit_as_often_as_the_poisson_tail_says() {
    let outcome = run(&queue(0.8, 1, Service::Exponential), 5).unwrap();
    let seconds = &outcome.timeline[200..3000];
    let mean = seconds.iter().map(|second| f64::from(second.offered)).sum::<f64>() / seconds.len() as f64;
    for limit in [40_u64, 45, 50] {
        let measured = seconds.iter().filter(|second| u64::from(second.offered) >= limit).count() as f64;
        let share = measured / seconds.len() as f64;
        assert!((share - tail(limit, mean)).abs() < 0.025, "{limit}: {share} and {}", tail(limit, mean));
    }
}

/// T, N, K and τ of equation (3): the map of the paper and our thinned one have the same law when nothing is congested.
#[test]
fn the_closed_forms_of_ast() {
    for (preset, loss) in [(Preset::AdaptiveEquation3, 0.2), (Preset::Adaptive, 0.2), (Preset::Adaptive, 0.05)] {
        let mut config = Polling { warm_up: 1000.0, duration: 5000.0, ..Polling::default() };
        config.broker = Broker::preset("unbounded").unwrap();
        config.clients.algorithm = Algorithm::Pacer(preset);
        config.clients.count = Count::Clients(400);
        config.clients.hints = Some(false);
        config.clients.jitter = 0.0;
        config.clients.step = StepChoice::Fixed(0.2);
        config.host.capacity = 2000.0;
        config.link.loss = loss;
        let outcome = run(&config, 6).unwrap();
        let rate = config.updates.rate * loss;
        let theory = Aimd::new(rate, 0.2, 2.0).unwrap().estimate();
        let checks = metric(&outcome, "goodput") * config.host.capacity;
        // The interval begins when the answer is there.
        let timeout = 400.0 / checks - metric(&outcome, "latency_mean");
        let what = format!("{preset}, loss {loss}");
        close(timeout, theory.timeout, 0.02, &format!("τ, {what}"));
        close(metric(&outcome, "detection_mean"), theory.before_decrease / 2.0, 0.03, &format!("T/2, {what}"));
        let hit = metric(&outcome, "lossy_checks");
        close(1.0 / hit - 1.0, theory.growths, 0.03, &format!("N, {what}"));
        let expected = burst(rate, theory.timeout, theory.hit_probability);
        close(metric(&outcome, "losses_per_lossy_check"), expected, 0.02, &format!("K, {what}"));
    }
}
