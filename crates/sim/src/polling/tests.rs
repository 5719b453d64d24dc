//! A world that is repeatable, conserves everything, and behaves as the prototype did.

use super::*;
use tidegate_control::pacer::Preset;

fn small(algorithm: Algorithm, broker: &str, load: f64) -> Polling {
    let mut config = Polling { warm_up: 100.0, duration: 200.0, ..Polling::default() };
    config.clients.count = Count::Load(load);
    config.clients.algorithm = algorithm;
    config.broker = Broker::preset(broker).unwrap();
    config
}

fn metric(config: &Polling, seed: u64, name: &str) -> f64 {
    run(config, seed).unwrap().metric(name).unwrap()
}

#[test]
fn a_seed_gives_the_same_run_to_the_bit_and_another_seed_another() {
    let cases = Broker::PRESETS.map(|broker| (Algorithm::Pacer(Preset::Active), broker));
    for (algorithm, broker) in cases.into_iter().chain([(Algorithm::Session, "product"), (Algorithm::Session, "paper")])
    {
        let config = small(algorithm, broker, 2.0);
        let (first, again, other) = (run(&config, 5).unwrap(), run(&config, 5).unwrap(), run(&config, 6).unwrap());
        assert_eq!(first, again, "{broker}");
        assert_ne!(first.metrics, other.metrics, "{broker}");
    }
}

#[test]
fn every_algorithm_runs_on_every_broker_and_nothing_is_lost() {
    let pacers = Preset::ALL.iter().map(|preset| Algorithm::Pacer(*preset));
    let baselines = Baseline::ALL.iter().map(|(_, rule)| Algorithm::Baseline(*rule));
    for algorithm in pacers.chain(baselines).chain([Algorithm::Session]) {
        for broker in Broker::PRESETS {
            let mut config = small(algorithm, broker, 1.5);
            config.duration = 60.0;
            config.warm_up = 20.0;
            config.link.request_loss = 0.05;
            config.link.loss_burst = 5.0;
            let outcome = run(&config, 1).unwrap();
            let goodput = outcome.metric("goodput").unwrap();
            assert!((0.0..=1.3).contains(&goodput), "{algorithm:?} {broker}: {goodput}");
        }
    }
}

#[test]
fn fixed_checks_below_capacity_are_as_stale_as_the_formula_says() {
    let mut config = small(Algorithm::Pacer(Preset::Fixed), "deny-100ms", 0.8);
    config.duration = 600.0;
    // Checks every 10 s: S = 0.2·(1 − (1 − e^−1)/1) = 0.0736, and a little for service and travel.
    let stale = metric(&config, 1, "stale");
    assert!((stale - 0.0736).abs() < 0.003, "{stale}");
}

#[test]
fn losses_come_in_the_share_that_was_asked_for() {
    for burst in [1.0, 5.0] {
        let mut config = small(Algorithm::Pacer(Preset::Fixed), "deny-100ms", 0.8);
        config.link.loss_burst = burst;
        let lost = metric(&config, 3, "radio_lost");
        assert!((lost - 0.2).abs() < 0.01, "burst {burst}: {lost}");
    }
}

#[test]
fn a_burst_with_appointments_drains_in_about_the_ideal_time() {
    let mut config = small(Algorithm::Pacer(Preset::Active), "product", 1.0);
    config.clients.count = Count::Clients(2000);
    config.host.capacity = 200.0;
    config.clients.together = true;
    config.clients.once = true;
    config.warm_up = 0.0;
    let outcome = run(&config, 1).unwrap();
    let drain = outcome.metric("drain_t100").unwrap();
    assert!(drain < 1.2, "{drain}");
    let requests = outcome.metric("requests_per_client").unwrap();
    assert!(requests <= 2.05, "{requests}");
}

#[test]
fn a_slide_is_fetched_by_everybody() {
    let mut config = small(Algorithm::Pacer(Preset::Active), "product", 1.0);
    config.clients.count = Count::Clients(500);
    config.updates.slides = Some(60.0);
    config.link.loss = 0.05;
    let delay = metric(&config, 1, "outdated_mean");
    assert!(delay < 5.0, "{delay}");
}

#[test]
fn what_ships_drains_a_burst_and_answers_in_overload() {
    for client in [Algorithm::Pacer(Preset::Active), Algorithm::Session] {
        let mut burst = small(client, "product", 1.0);
        burst.clients.count = Count::Clients(2000);
        burst.host.capacity = 200.0;
        (burst.clients.together, burst.clients.once, burst.warm_up) = (true, true, 0.0);
        let outcome = run(&burst, 1).unwrap();
        let [drain, requests] = ["drain_t100", "requests_per_client"].map(|name| outcome.metric(name).unwrap());
        let overload = run(&small(client, "product", 2.0), 1).unwrap();
        let [goodput, stale] = ["goodput", "stale"].map(|name| overload.metric(name).unwrap());
        println!(
            "{client:?}: drain {drain:.3}, {requests:.2} requests each; twice the load: {goodput:.3}, stale {stale:.4}"
        );
        assert!(drain < 1.2 && requests <= 2.2, "{client:?}: {drain}, {requests}");
        assert!(goodput > 0.8, "{client:?}: {goodput}");
    }
}

#[test]
fn a_session_finds_what_was_lost_and_its_losses_are_counted() {
    let mut config = small(Algorithm::Session, "product", 0.5);
    config.duration = 400.0;
    let outcome = run(&config, 1).unwrap();
    let of = |name: &str| outcome.metric(name).unwrap();
    assert!((of("radio_lost") - 0.2).abs() < 0.02, "{}", of("radio_lost"));
    assert!(of("stale") < 0.09 && of("stale") > 0.02, "{}", of("stale"));
    assert!(of("lossy_checks") > 0.1 && of("losses_per_lossy_check") >= 1.0, "{}", of("lossy_checks"));
    assert!(of("goodput") > 0.3 && of("congested") < 0.01, "{} {}", of("goodput"), of("congested"));
    config.updates.slides = Some(60.0);
    assert!(run(&config, 1).is_err(), "the notification of a slide does not say what it shows");
}
