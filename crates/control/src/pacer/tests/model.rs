//! Any sequence of events, against what is known of a pacer from outside.

use super::*;

fn hints() -> impl Strategy<Value = Hints> {
    let time =
        || prop::option::of(prop_oneof![Just(0), Just(u64::MAX), 0..100_000_u64].prop_map(Duration::from_millis));
    let stretch =
        prop::option::of(prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), Just(0.0), 1.0..2000.0_f64]);
    let ticket = prop::option::of(Just(Ticket { slot: Timestamp::ZERO, mac: 0 }));
    (time(), time(), stretch, time(), time(), ticket, time()).prop_map(
        |(queued, permitted, stretch, interval, retry_after, ticket, spread)| Hints {
            queued,
            permitted,
            stretch,
            interval,
            retry_after,
            ticket,
            spread,
            delegate: None,
        },
    )
}

#[derive(Clone, Debug)]
enum Operation {
    Finish(Outcome),
    Sent,
    Late(u32),
    Push(Option<Duration>),
    Settled,
    UserWaiting,
    Pass(u64),
    ClockBack(u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    let losses = || prop_oneof![4 => Just(0), 4 => 1..10_u32, 1 => Just(u32::MAX)];
    let latency = prop_oneof![0..5000_u64, Just(u64::MAX)].prop_map(Duration::from_millis);
    let answer = (latency, losses(), any::<bool>(), hints()).prop_map(|(latency, losses, not_modified, hints)| {
        Operation::Finish(Outcome::Answered { latency, losses, not_modified, hints })
    });
    prop_oneof![
        8 => answer,
        4 => hints().prop_map(|hints| Operation::Finish(Outcome::Denied { hints })),
        2 => Just(Operation::Finish(Outcome::TimedOut)),
        1 => Just(Operation::Finish(Outcome::Failed)),
        2 => Just(Operation::Sent),
        1 => losses().prop_map(Operation::Late),
        1 => prop::option::of(any::<u64>().prop_map(Duration::from_nanos)).prop_map(Operation::Push),
        1 => Just(Operation::Settled),
        1 => Just(Operation::UserWaiting),
        4 => (0..100_000_000_000_u64).prop_map(Operation::Pass),
        1 => any::<u64>().prop_map(Operation::ClockBack),
    ]
}

fn config() -> impl Strategy<Value = PacerConfig> {
    (
        prop::sample::select(Preset::ALL),
        prop::sample::select(DetectorRule::ALL),
        prop::sample::select(InitialRule::ALL),
        prop::sample::select(Growth::ALL),
        prop::sample::select(HintUse::ALL),
        any::<bool>(),
    )
        .prop_map(|(preset, detector, initial, growth, hints, fixed)| {
            let mut config = PacerConfig::from(preset);
            config.detector.rule = detector;
            config.initial = initial;
            config.ast.growth = growth;
            config.hints = hints;
            if fixed {
                config.ast.step = AstStep::Fixed(Duration::from_millis(700));
            }
            config
        })
}

/// What is known of the pacer from outside: the model that its invariants are checked against.
struct Model {
    pacer: Pacer,
    config: PacerConfig,
    now: Timestamp,
    rng: Xoshiro256PlusPlus,
}

impl Model {
    fn apply(&mut self, operation: &Operation) -> Result<(), TestCaseError> {
        match operation {
            Operation::Finish(outcome) => return self.finish(outcome),
            Operation::Sent => self.pacer.on_sent(),
            Operation::Late(losses) => self.pacer.on_late_answer(self.now, *losses),
            Operation::Push(spread) => {
                if let Some(delay) = self.pacer.on_push_hint(*spread, &mut self.rng) {
                    self.in_bounds(delay)?;
                }
            }
            Operation::Settled => self.pacer.on_settled(),
            Operation::UserWaiting => self.pacer.on_user_waiting(),
            Operation::Pass(nanos) => self.now = self.now + Duration::from_nanos(*nanos),
            Operation::ClockBack(to) => self.now = self.now.min(Timestamp::from_nanos(*to)),
        }
        Ok(())
    }

    fn finish(&mut self, outcome: &Outcome) -> Result<(), TestCaseError> {
        let before = self.pacer.snapshot();
        let delay = self.pacer.on_outcome(self.now, outcome, &mut self.rng);
        let after = self.pacer.snapshot();
        prop_assert_eq!(delay.is_none(), self.config.level == Level::None);
        let Some(delay) = delay else { return Ok(()) };
        self.in_bounds(delay)?;
        if after.congested && self.config.back_off.rule == RbtRule::Stretch {
            // Invariants 3 and 4: no speed-up under congestion.
            prop_assert!(after.stretch >= before.stretch, "{before:?} {after:?}");
            if self.config.ast.rule == AstRule::Practical {
                prop_assert!(after.ast >= before.ast, "{before:?} {after:?}");
            }
            self.not_before_half_a_stretched_interval(outcome, &after, delay)?;
        }
        Ok(())
    }

    /// Invariant 3, second half: a periodic check without a slot waits at least half of the raised σ·a.
    fn not_before_half_a_stretched_interval(
        &self,
        outcome: &Outcome,
        after: &PacerSnapshot,
        delay: Duration,
    ) -> Result<(), TestCaseError> {
        let failed = !matches!(outcome, Outcome::Answered { .. });
        let slot = outcome.hints().is_some_and(|hints| hints.ticket.is_some() && hints.retry_after.is_some());
        if failed && !after.urgent && !slot && self.config.level == Level::Active {
            let half = 0.5 * after.stretch * after.ast.as_secs_f64();
            let least = half.min(self.config.delay_max.as_secs_f64());
            prop_assert!(delay.as_secs_f64() >= least * (1.0 - 1e-6), "{delay:?} after {after:?}");
        }
        Ok(())
    }

    /// Invariant 1.
    fn in_bounds(&self, delay: Duration) -> Result<(), TestCaseError> {
        prop_assert!((self.config.delay_min..=self.config.delay_max).contains(&delay), "{delay:?}");
        Ok(())
    }

    /// Invariant 2, and that every number shown is a number.
    fn invariants(&self) -> Result<(), TestCaseError> {
        let state = self.pacer.snapshot();
        prop_assert!((self.config.ast.floor..=self.config.ast.ceiling).contains(&state.ast), "{state:?}");
        prop_assert!((1.0..=self.config.back_off.stretch_max).contains(&state.stretch), "{state:?}");
        prop_assert!(state.loss_rate.is_finite() && state.loss_rate > 0.0, "{state:?}");
        prop_assert!(state.burst.is_finite() && state.burst >= 1.0, "{state:?}");
        prop_assert!(state.growths.is_none_or(|growths| growths.is_finite() && growths >= 0.0), "{state:?}");
        Ok(())
    }
}

proptest! {
    #[test]
    fn no_sequence_of_events_breaks_a_pacer(
        config in config(),
        operations in prop::collection::vec(operation(), 1..200),
        seed in any::<u64>(),
    ) {
        let pacer = Pacer::new(&config.build().unwrap());
        let mut model = Model { pacer, config, now: Timestamp::from_secs_f64(1e6), rng: rng(seed) };
        if let Some(delay) = model.pacer.first_delay(&mut model.rng) {
            model.in_bounds(delay)?;
        }
        for operation in &operations {
            model.apply(operation)?;
            model.invariants()?;
        }
        let resumed = Pacer::resume(&model.config.build().unwrap(), &model.pacer.snapshot());
        prop_assert_eq!(resumed.snapshot().ast, model.pacer.snapshot().ast);
    }

    /// The strategy `history` keeps one entry of the paper's ring of 16; the ring itself is the model.
    #[test]
    fn history_equals_the_papers_ring(checks in prop::collection::vec((1.0_f32..100.0, any::<bool>()), 1..60)) {
        let plan = BackOffConfig { rule: RbtRule::P18, ..BackOffConfig::default() }.build().unwrap();
        let (mut past, mut ring) = (Past::NONE, Vec::new());
        for (interval, congested) in checks {
            past.on_check(interval, congested);
            ring.push((interval, congested));
            let recent = ring.iter().rev().take(16).find(|(_, congested)| !congested);
            let situation = Situation { now: Timestamp::ZERO, interval: 1000.0, ast: 1.0, hints: None };
            // A current interval of 1000 s makes b negative: t_min if the ring has an entry, nothing if not.
            let first = past.first_back_off(InitialRule::History, &plan, &situation, &mut rng(0));
            prop_assert_eq!(first, recent.map(|_| 0.1));
            let situation = Situation { interval: 0.0, ..situation };
            let first = past.first_back_off(InitialRule::History, &plan, &situation, &mut rng(0));
            let expected = recent.map(|(interval, _)| draw::exponential(&mut rng(0), f64::from(*interval)));
            prop_assert_eq!(first, expected);
        }
    }
}
