//! One watch, step by step. Whole populations with lossy links are in `tests/scenarios`.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use tidegate_control::pacer::{Level, PacerConfig, Preset};

use super::*;
use crate::limits::MISSED_MAX;
use crate::session::row::{Row, literal_row};

struct Bed {
    watch: Watch,
    rng: Xoshiro256PlusPlus,
    now: Timestamp,
}

fn rows(texts: &[&str]) -> Vec<Row> {
    texts.iter().map(|text| literal_row("o", text)).collect()
}

fn moved(from: &[&str], to: &[&str]) -> Delta {
    Delta { added: rows(to), removed: rows(from) }
}

impl Bed {
    fn new(level: Level, delivery: ChangeDelivery) -> Self {
        Self::with(&PacerConfig { level, ..PacerConfig::default() }, delivery)
    }

    fn with(config: &PacerConfig, delivery: ChangeDelivery) -> Self {
        let pacer = config.build().unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let plan = Arc::new(WatchPlan { pacer, delivery, check_timeout: Duration::from_secs(2) });
        Self { watch: Watch::new(&plan, Timestamp::ZERO, &mut rng), rng, now: Timestamp::ZERO }
    }

    fn hear(&mut self, input: Input) {
        self.watch.handle(input, self.now, &mut self.rng);
    }

    fn turn(&mut self) -> Option<WatchAction> {
        self.watch.turn(self.now, &mut self.rng)
    }

    /// Goes on to the next thing that is sent.
    fn next(&mut self) -> WatchAction {
        for _ in 0..100 {
            if let Some(action) = self.turn() {
                return action;
            }
            self.now = self.now.max(self.watch.poll_timeout().expect("something to wait for"));
        }
        panic!("a busy loop");
    }

    /// Up to a subscription that stands.
    fn live(level: Level, texts: &[&str]) -> (Self, Attempt) {
        Self::live_with(&PacerConfig { level, ..PacerConfig::default() }, texts)
    }

    fn live_with(config: &PacerConfig, texts: &[&str]) -> (Self, Attempt) {
        let mut bed = Self::with(config, ChangeDelivery::Push);
        let Some(WatchAction::Subscribe { attempt, .. }) = bed.turn() else { panic!() };
        bed.hear(Input::Subscribed { attempt, sequence: 0, rows: rows(texts) });
        assert_eq!(bed.watch.poll_change().unwrap().source, ChangeSource::Baseline);
        (bed, attempt)
    }

    fn changed(&mut self, attempt: Attempt, sequence: u64, delta: Delta) {
        self.hear(Input::Changed { attempt, sequence: Some(sequence), delta, spread: None });
    }

    fn whole(&mut self, attempt: Attempt, texts: &[&str]) {
        self.hear(Input::Whole { attempt, rows: rows(texts), version: None, hints: Hints::default() });
    }

    fn check(&mut self) -> Attempt {
        match self.next() {
            WatchAction::Check { attempt, .. } => attempt,
            other @ WatchAction::Subscribe { .. } => panic!("{other:?}"),
        }
    }

    fn texts(&self) -> Vec<String> {
        self.watch.view().rows().filter_map(|row| row.text("o").map(str::to_owned)).collect()
    }
}

#[test]
fn a_gap_is_told_and_repaired_by_a_new_subscription() {
    let (mut bed, live) = Bed::live(Level::Active, &["a"]);
    bed.changed(live, 1, moved(&["a"], &["b"]));
    bed.changed(live, 4, moved(&["d"], &["e"]));
    let change = bed.watch.poll_change().unwrap();
    assert_eq!((change.lost, change.source), (2, ChangeSource::Notification));
    let WatchAction::Subscribe { attempt, .. } = bed.next() else { panic!() };
    assert!(bed.now <= Timestamp::from_secs_f64(1.1), "what was announced is fetched within the spread");
    bed.hear(Input::Subscribed { attempt, sequence: 0, rows: rows(&["e"]) });
    assert_eq!(bed.texts(), ["e"]);
    let change = bed.watch.poll_change().unwrap();
    assert_eq!((change.added, change.removed, change.lost), (vec![], rows(&["b"]), 0), "the loss was told before");
    // The old subscription may speak on; nobody listens.
    bed.changed(live, 5, moved(&["e"], &["x"]));
    assert_eq!(bed.texts(), ["e"]);
    assert_eq!(bed.watch.stats().counts.losses, 2);
}

#[test]
fn an_answer_that_overtakes_its_notification_is_no_loss() {
    let (mut bed, live) = Bed::live(Level::Fixed, &["a"]);
    let attempt = bed.check();
    bed.whole(attempt, &["b"]);
    assert_eq!(bed.turn(), None, "a notification may be on its way");
    bed.changed(live, 1, moved(&["a"], &["b"]));
    assert_eq!(bed.watch.stats().counts.losses, 0);
    let attempt = bed.check();
    // And one that is overtaken by notifications is none either.
    bed.changed(live, 2, moved(&["b"], &["c"]));
    bed.whole(attempt, &["b"]);
    bed.check();
    assert_eq!((bed.texts(), bed.watch.stats().counts.losses), (vec!["c".to_owned()], 0));
}

#[test]
fn a_difference_that_nothing_explains_is_a_loss_and_is_repaired() {
    let (mut bed, _) = Bed::live(Level::Active, &["a"]);
    let attempt = bed.check();
    bed.whole(attempt, &["b", "c"]);
    let WatchAction::Subscribe { attempt, .. } = bed.next() else { panic!() };
    bed.hear(Input::Refused { attempt, failure: ExchangeFailure::Denied(Hints::default()) });
    let WatchAction::Subscribe { attempt, .. } = bed.next() else { panic!() };
    bed.hear(Input::Subscribed { attempt, sequence: 0, rows: rows(&["b", "c"]) });
    let change = bed.watch.poll_change().unwrap();
    assert_eq!((change.added, change.removed, change.lost), (rows(&["b", "c"]), rows(&["a"]), 2));
    assert_eq!(bed.watch.stats().counts.losses, 2);
}

#[test]
fn a_broker_that_can_tell_is_asked_what_was_missed() {
    let (mut bed, live) = Bed::live(Level::Active, &["a"]);
    bed.watch.allow_missed();
    bed.changed(live, 1, moved(&["a"], &["b"]));
    let WatchAction::Check { attempt, since, .. } = bed.next() else { panic!() };
    assert_eq!(since, Some((live, 1)));
    // Meanwhile a notification comes that the answer contains, too.
    bed.changed(live, 2, moved(&["b"], &["c"]));
    let delta = moved(&["b"], &["d"]);
    bed.hear(Input::Missed { attempt, sequence: 4, delta, hints: Hints::default() });
    assert_eq!(bed.texts(), ["d"]);
    bed.changed(live, 3, moved(&["c"], &["d"]));
    bed.changed(live, 5, moved(&["d"], &["e"]));
    assert_eq!((bed.texts(), bed.watch.stats().counts.gaps), (vec!["e".to_owned()], 0));
    // One that cannot is asked in the other way, at once.
    let WatchAction::Check { attempt, .. } = bed.next() else { panic!() };
    bed.hear(Input::Refused { attempt, failure: ExchangeFailure::Unsupported });
    assert!(matches!(bed.turn(), Some(WatchAction::Check { since: None, .. })));
}

#[test]
fn an_absurd_number_of_an_answer_ends_in_a_baseline() {
    for absurd in [0, 1 + MISSED_MAX + 1, u64::MAX] {
        let (mut bed, live) = Bed::live(Level::Active, &["a"]);
        bed.watch.allow_missed();
        bed.changed(live, 1, moved(&["a"], &["b"]));
        let attempt = bed.check();
        bed.hear(Input::Missed { attempt, sequence: absurd, delta: moved(&["b"], &["x"]), hints: Hints::default() });
        assert_eq!(bed.texts(), ["b"], "{absurd}: what was right stays");
        let WatchAction::Subscribe { attempt, resume: None, .. } = bed.next() else { panic!("{absurd}") };
        bed.hear(Input::Subscribed { attempt, sequence: 0, rows: rows(&["c"]) });
        bed.changed(attempt, 1, moved(&["c"], &["d"]));
        assert_eq!((bed.texts(), bed.watch.stats().counts.gaps), (vec!["d".to_owned()], 0), "{absurd}");
    }
    // An answer that a notification has overtaken is only late.
    let (mut bed, live) = Bed::live(Level::Active, &["a"]);
    bed.watch.allow_missed();
    let attempt = bed.check();
    bed.changed(live, 1, moved(&["a"], &["b"]));
    bed.hear(Input::Missed { attempt, sequence: 0, delta: Delta::default(), hints: Hints::default() });
    assert_eq!((bed.texts(), bed.watch.stats().is_live), (vec!["b".to_owned()], true));
}

#[test]
fn only_what_was_numbered_and_does_not_come_any_more_was_lost() {
    let (mut bed, live) = Bed::live(Level::Active, &["a"]);
    bed.watch.allow_missed();
    let ask = |bed: &mut Bed, sequence: u64, from: &str, to: &str| {
        let WatchAction::Check { attempt, since: Some(_), .. } = bed.next() else { panic!() };
        bed.watch.poll_change();
        bed.hear(Input::Missed { attempt, sequence, delta: moved(&[from], &[to]), hints: Hints::default() });
        assert_eq!(bed.watch.poll_change().unwrap().lost, 0, "not known yet");
    };
    // Told by the answer itself, because nobody had told it before.
    ask(&mut bed, 1, "a", "b");
    assert_eq!(bed.watch.stats().counts.losses, 0);
    // Numbered, and late.
    ask(&mut bed, 3, "b", "c");
    bed.changed(live, 2, moved(&["b"], &["c"]));
    assert_eq!((bed.watch.stats().counts.losses, bed.texts()), (0, vec!["c".to_owned()]));
    // Numbered, and lost: known after a grace.
    ask(&mut bed, 5, "c", "d");
    let WatchAction::Check { .. } = bed.next() else { panic!() };
    assert_eq!((bed.watch.stats().counts.losses, bed.watch.poll_change().unwrap().lost), (1, 1));
}

#[test]
fn without_notifications_each_check_is_a_difference() {
    let mut bed = Bed::new(Level::Adaptive, ChangeDelivery::Poll);
    let attempt = bed.check();
    assert_eq!(bed.now, Timestamp::ZERO, "somebody waits for the first one");
    bed.whole(attempt, &["a"]);
    assert_eq!(bed.watch.poll_change().unwrap().source, ChangeSource::Baseline);
    let attempt = bed.check();
    bed.whole(attempt, &["b"]);
    assert_eq!(bed.watch.poll_change().unwrap().added, rows(&["b"]));
    assert_eq!(bed.watch.stats().counts.losses, 1);
}

#[test]
fn a_cut_ends_in_a_baseline_and_the_difference_is_told() {
    let (mut bed, live) = Bed::live(Level::None, &["a"]);
    bed.hear(Input::Ended { attempt: live, hints: Hints::default() });
    let WatchAction::Subscribe { attempt, .. } = bed.next() else { panic!() };
    bed.hear(Input::Subscribed { attempt, sequence: 0, rows: rows(&["a", "b"]) });
    let change = bed.watch.poll_change().unwrap();
    assert_eq!((change.added, change.lost, change.source), (rows(&["b"]), 1, ChangeSource::Check));
    assert_eq!(bed.watch.poll_timeout(), None, "level none waits for notifications only");
    assert_eq!(bed.watch.stats().counts.away, 1);
}

#[test]
fn lies_about_numbers_are_found_out_and_repaired() {
    let (mut bed, live) = Bed::live(Level::Active, &["a"]);
    bed.changed(live, u64::MAX, moved(&[], &["x"]));
    assert_eq!(bed.watch.poll_change().unwrap().lost, u32::MAX);
    let WatchAction::Subscribe { attempt: live, .. } = bed.next() else { panic!() };
    bed.hear(Input::Subscribed { attempt: live, sequence: 7, rows: rows(&["a"]) });
    bed.changed(live, 8, moved(&[], &["b"]));
    bed.changed(live, 8, moved(&[], &["b"]));
    assert_eq!(bed.texts(), ["a", "b"], "the same number twice is not believed");
    assert!(matches!(bed.next(), WatchAction::Subscribe { .. }));
}

#[test]
fn slow_readers_get_the_sum() {
    let (mut bed, live) = Bed::live(Level::Active, &["0"]);
    for number in 1..=100_u32 {
        let (from, to) = ((number - 1).to_string(), number.to_string());
        bed.changed(live, number.into(), moved(&[&from], &[&to]));
    }
    let change = bed.watch.poll_change().unwrap();
    assert_eq!((change.added, change.removed), (rows(&["100"]), rows(&["0"])));
}

#[test]
fn a_watch_is_small() {
    println!("Watch {} B", size_of::<Watch>());
    assert!(size_of::<Watch>() <= 640, "{} B", size_of::<Watch>());
}

#[test]
fn a_gap_is_repaired_by_a_baseline_even_if_the_broker_can_tell_what_was_missed() {
    let (mut bed, live) = Bed::live(Level::Active, &["a"]);
    bed.watch.allow_missed();
    bed.changed(live, 2, moved(&[], &["c"]));
    // "Since 2" would leave out what 1 said.
    assert!(matches!(bed.next(), WatchAction::Subscribe { resume: None, .. }));
}

#[test]
fn a_subscription_that_was_cut_goes_on_where_it_was() {
    let (mut bed, live) = Bed::live(Level::Active, &["a"]);
    bed.changed(live, 1, moved(&["a"], &["b"]));
    bed.watch.poll_change();
    bed.hear(Input::Ended { attempt: live, hints: Hints::default() });
    let WatchAction::Subscribe { attempt, resume, .. } = bed.next() else { panic!() };
    assert_eq!(resume, Some((live, 1)));
    bed.hear(Input::Resumed { attempt, sequence: 3, delta: moved(&["b"], &["c"]) });
    let change = bed.watch.poll_change().unwrap();
    assert_eq!((change.added, change.removed, change.lost), (rows(&["c"]), rows(&["b"]), 1));
    bed.changed(attempt, 4, moved(&["c"], &["d"]));
    assert_eq!((bed.texts(), bed.watch.stats().counts.gaps), (vec!["d".to_owned()], 0));
}

/// The papers' AST with a first timeout of so many milliseconds, and δ a tenth of it.
fn equation_3(millis: u64) -> PacerConfig {
    let mut config = PacerConfig::from(Preset::AdaptiveEquation3);
    config.interval = Duration::from_millis(millis);
    config.ast.step = tidegate_control::pacer::AstStep::Fixed(Duration::from_millis(millis / 10));
    config
}

#[test]
fn after_a_loss_the_next_check_comes_when_the_formula_says() {
    // A grace of a second fits into the first timeout and not into the second.
    for millis in [10_000, 400] {
        let ms = |millis: u64| Duration::from_millis(millis);
        // By a whole result that nothing explains, which a new subscription repairs.
        let (mut bed, _) = Bed::live_with(&equation_3(millis), &["a"]);
        let attempt = bed.check();
        bed.whole(attempt, &["b"]);
        let answered = bed.now;
        let WatchAction::Subscribe { attempt, .. } = bed.next() else { panic!() };
        assert_eq!(
            bed.now,
            answered + ms(1000).min(ms(millis / 2)),
            "a grace, and no longer than until the next check"
        );
        bed.hear(Input::Subscribed { attempt, sequence: 0, rows: rows(&["b"]) });
        bed.check();
        assert_eq!(bed.now, answered + ms(millis / 2), "AST/α from the answer on");

        // By what the broker says was missed.
        let (mut bed, live) = Bed::live_with(&equation_3(millis), &["a"]);
        bed.watch.allow_missed();
        bed.changed(live, 1, moved(&["a"], &["b"]));
        let attempt = bed.check();
        bed.hear(Input::Missed { attempt, sequence: 3, delta: moved(&["b"], &["c"]), hints: Hints::default() });
        let answered = bed.now;
        bed.check();
        assert_eq!((bed.now, bed.watch.stats().counts.losses), (answered + ms(millis / 2), 1));

        // And if the notification was only late, as if it had been there.
        let (mut bed, live) = Bed::live_with(&equation_3(millis), &["a"]);
        let attempt = bed.check();
        bed.whole(attempt, &["b"]);
        let answered = bed.now;
        bed.now = answered + ms(50);
        bed.changed(live, 1, moved(&["a"], &["b"]));
        bed.check();
        // (δ is kept with seven digits.)
        let waited = (bed.now.since(answered).as_secs_f64() * 1000.0).round();
        assert_eq!((waited as u64, bed.watch.stats().counts.losses), (millis + millis / 10, 0));
    }
}

#[test]
fn the_timeout_that_is_shown_is_the_one_that_is_waited() {
    let config = PacerConfig { interval: Duration::from_millis(300), ..PacerConfig::default() };
    for level in [Level::Fixed, Level::Random, Level::Active] {
        let (mut bed, _) = Bed::live_with(&PacerConfig { level, ..config.clone() }, &["a"]);
        for _ in 0..5 {
            let attempt = bed.check();
            bed.whole(attempt, &["a"]);
            let (answered, shown) = (bed.now, bed.watch.stats().timeout.unwrap());
            assert!(level != Level::Fixed || shown == config.interval, "{shown:?}");
            let next = bed.watch.stats().next_check.unwrap().since(answered);
            assert_eq!(next.as_millis(), shown.as_millis(), "{level}");
        }
    }
    let (bed, _) = Bed::live_with(&PacerConfig { level: Level::None, ..config }, &["a"]);
    assert_eq!(bed.watch.stats().timeout, None);
}

#[test]
fn the_papers_know_regular_checks_only() {
    let (mut bed, live) = Bed::live_with(&equation_3(10_000), &["a"]);
    let attempt = bed.check();
    bed.whole(attempt, &["a"]);
    let due = bed.now + Duration::from_secs(11);
    bed.now = bed.now + Duration::from_secs(5);
    bed.changed(live, 3, moved(&["a"], &["b"]));
    assert_eq!(bed.watch.poll_change().unwrap().lost, 2, "told at once");
    // Repaired by the next regular one, which is a subscription.
    let WatchAction::Subscribe { attempt, .. } = bed.next() else { panic!() };
    assert_eq!(bed.now, due);
    bed.hear(Input::Subscribed { attempt, sequence: 0, rows: rows(&["b"]) });
    bed.check();
    assert_eq!(bed.now, due + Duration::from_millis(5500), "k = 2: AST/α");
}

#[test]
fn a_repair_that_was_refused_is_no_reason_to_hurry() {
    let (mut bed, _) = Bed::live_with(&equation_3(10_000), &["a"]);
    let attempt = bed.check();
    bed.whole(attempt, &["b"]);
    let WatchAction::Subscribe { attempt, .. } = bed.next() else { panic!() };
    bed.hear(Input::Refused { attempt, failure: ExchangeFailure::Denied(Hints::default()) });
    let WatchAction::Subscribe { attempt, .. } = bed.next() else { panic!() };
    bed.now = bed.now + Duration::from_secs(20);
    bed.hear(Input::Subscribed { attempt, sequence: 0, rows: rows(&["b"]) });
    let repaired = bed.now;
    bed.check();
    assert_eq!(bed.now, repaired + Duration::from_secs(5));
}
