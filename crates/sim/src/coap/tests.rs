use super::*;

fn metric(config: &Watchers, name: &str) -> f64 {
    run(config, 1).unwrap().metric(name).unwrap()
}

fn small() -> Watchers {
    Watchers { clients: 10, duration: 900.0, ..Watchers::default() }
}

#[test]
fn on_a_link_that_loses_nothing_an_observer_knows_after_half_a_round_trip() {
    let outcome = run(&small(), 1).unwrap();
    let value = |name| outcome.metric(name).unwrap();
    // Half a round trip is 0.1 s; while a notification is under way the next one waits, at most for a round trip.
    assert!((0.09..0.13).contains(&value("detection_mean")), "{outcome:?}");
    assert_eq!((value("refused"), value("forgotten")), (0.0, 0.0), "{outcome:?}");
    assert!(value("repeated") < 0.1, "{outcome:?}");
}

#[test]
fn whoever_asks_knows_after_half_an_interval() {
    let config = Watchers { way: Way::Poll, preset: Preset::Fixed, ..small() };
    let detection = metric(&config, "detection_mean");
    assert!((3.0..7.0).contains(&detection), "{detection}");
    assert!(metric(&config, "stale") > 0.1);
}

#[test]
fn the_same_seed_is_the_same_run() {
    let config = Watchers { loss: 0.2, ..small() };
    assert_eq!(run(&config, 3), run(&config, 3));
    assert_ne!(run(&config, 3), run(&config, 4));
}

#[test]
fn what_is_lost_is_sent_again_and_known_in_the_end() {
    for repetitions in [RtoRule::Cocoa, RtoRule::Default] {
        let config = Watchers { loss: 0.3, repetitions, ..small() };
        let outcome = run(&config, 5).unwrap();
        assert!(outcome.metric("repeated").unwrap() > 0.1, "{outcome:?}");
        assert!(outcome.metric("stale").unwrap() < 0.3, "{outcome:?}");
    }
}
