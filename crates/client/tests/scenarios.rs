//! The real state of a client and the real graph, in virtual time, with links that lose, delay, reorder and break.
//!
//! For each level of control 100 seeds, over which detectors, strategies of the first back-off and the two kinds of check
//! rotate. In each run the view must equal the space when the links have been well for a while, and the changes that
//! were told must add up to the view. `TIDEGATE_SEEDS` runs more; a seed that fails is printed.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use tidegate_client::session::hub::{Hub, WatchId};
use tidegate_client::session::watch::{Attempt, ChangeDelivery, ExchangeFailure, Input, WatchAction, WatchPlan};
use tidegate_client::{Delta, DetectorRule, InitialRule, Level, PacerConfig, Row, Term};
use tidegate_control::Timestamp;
use tidegate_control::hints::Hints;
use tidegate_control::rand_core::Rng;
use tidegate_graph::{CatchUp, GraphSpace, Query, QueryLimits, SpaceLimits, SubscriberEvent, SubscriberId, Update};

/// Queries of a run: a value, a set, a join.
const QUERIES: [&str; 3] = [
    "SELECT ?v { <urn:lamp> <urn:state> ?v }",
    "SELECT DISTINCT ?s ?v { ?s <urn:state> ?v }",
    "SELECT ?s ?v { ?s <urn:in> <urn:kitchen> . ?s <urn:state> ?v }",
];
/// How long the links are bad, and at most how long it may take afterwards.
const BAD: f64 = 300.0;
const GOOD: f64 = 4.0 * 3600.0;

enum Happens {
    Update,
    Cut,
    /// A request arrives at the broker.
    Request(WatchId, WatchAction),
    /// Something arrives at the client, on the subscription of this number if it is one.
    Arrive(WatchId, Input, Option<u64>),
}

struct World {
    space: GraphSpace,
    queries: BTreeMap<WatchId, Query>,
    /// The columns of each.
    names: BTreeMap<WatchId, Vec<Arc<str>>>,
    hub: Hub,
    rng: Xoshiro256PlusPlus,
    now: Timestamp,
    agenda: BTreeMap<(Timestamp, u64), Happens>,
    planned: u64,
    /// Subscribers whose line was cut and who may come back, if the broker can tell what was missed.
    away: BTreeMap<(WatchId, Attempt), SubscriberId>,
    /// Subscriptions at the broker, and until when their line is taken.
    lines: BTreeMap<u64, (WatchId, Attempt, Timestamp)>,
    /// The client's sum of changes.
    sums: BTreeMap<WatchId, Delta>,
    /// Notifications that the link lost and nobody has noticed yet.
    lost_at: BTreeMap<WatchId, Vec<Timestamp>>,
    with_missed: bool,
    /// The broker says absurd things about pace.
    is_absurd: bool,
    tally: Tally,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    runs: u32,
    /// Notifications that a link lost on a subscription that stood.
    lost: u32,
    /// Losses that were told, with those of cuts.
    found: u64,
    /// Lost notifications after which the view was right again, and the time that it took.
    repaired: u32,
    delay: f64,
    checks: u64,
    /// Subscriptions that went on where they were.
    resumed: u32,
}

impl World {
    fn new(seed: u64, level: Level, detector: DetectorRule, initial: InitialRule, with_missed: bool) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut config = PacerConfig { level, initial, ..PacerConfig::default() };
        config.detector.rule = detector;
        let plan = WatchPlan {
            check_timeout: config.request_timeout,
            pacer: config.build().unwrap(),
            delivery: ChangeDelivery::Push,
        };
        let plan = Arc::new(plan);
        let mut hub = Hub::default();
        let limits = QueryLimits::default();
        let mut space = GraphSpace::new(seed, SpaceLimits::default());
        let (mut queries, mut names) = (BTreeMap::new(), BTreeMap::new());
        for text in QUERIES {
            let id = hub.open(&plan, Timestamp::ZERO, &mut rng).unwrap();
            let query = Query::parse(text, &limits).unwrap();
            let made = space.subscribe(&query).unwrap();
            space.unsubscribe(made.subscriber).unwrap();
            names.insert(id, names_of(&made.baseline.variables));
            queries.insert(id, query);
            if with_missed {
                hub.tell(id, Timestamp::ZERO, &mut rng, tidegate_client::session::watch::Watch::allow_missed);
            }
        }
        let mut world = Self {
            space,
            queries,
            names,
            hub,
            rng,
            now: Timestamp::ZERO,
            agenda: BTreeMap::new(),
            planned: 0,
            away: BTreeMap::new(),
            lines: BTreeMap::new(),
            sums: BTreeMap::new(),
            lost_at: BTreeMap::new(),
            with_missed,
            is_absurd: seed % 5 == 4,
            tally: Tally::default(),
        };
        let lamps = "INSERT DATA { <urn:lamp> <urn:in> <urn:kitchen> . <urn:lamp2> <urn:in> <urn:kitchen> }";
        world.space.update(&Update::parse(lamps, &limits).unwrap(), &limits).unwrap();
        world.plan(Duration::from_millis(500), Happens::Update);
        world.plan(Duration::from_secs(20), Happens::Cut);
        world
    }

    fn unit(&mut self) -> f64 {
        (self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn is_bad(&self) -> bool {
        self.now.as_secs_f64() < BAD
    }

    /// True with this probability, while links are bad.
    fn strikes(&mut self, probability: f64) -> bool {
        let drawn = self.unit();
        self.is_bad() && drawn < probability
    }

    fn latency(&mut self) -> Duration {
        let slow = self.strikes(0.03);
        Duration::from_secs_f64(0.001 + 0.05 * self.unit() + if slow { 3.0 * self.unit() } else { 0.0 })
    }

    fn plan(&mut self, delay: Duration, what: Happens) {
        self.planned += 1;
        self.agenda.insert((self.now + delay, self.planned), what);
    }

    /// Runs until nothing is owed any more.
    fn run(&mut self) {
        loop {
            self.drain();
            let next = self.agenda.keys().next().map(|(at, _)| *at);
            let timer = self.hub.poll_timeout();
            let Some(at) = next.into_iter().chain(timer).min() else { break };
            if at.as_secs_f64() > BAD + GOOD || (!self.is_bad() && self.is_settled()) {
                break;
            }
            assert!(at >= self.now, "time does not go back");
            self.now = at;
            if next == Some(at) {
                let (_, what) = self.agenda.pop_first().unwrap();
                self.happen(what);
            } else {
                self.hub.turn(at, &mut self.rng);
            }
        }
        // A space may come back to what a view still says.
        for id in self.queries.keys().copied().collect::<Vec<_>>() {
            self.look(id);
        }
    }

    /// Every watch stands, nothing is on its way, and each has checked since the links are well.
    fn is_settled(&self) -> bool {
        self.agenda.is_empty() && self.queries.keys().all(|id| self.view(*id) == self.truth(*id))
    }

    fn drain(&mut self) {
        while let Some((id, action)) = self.hub.poll_action() {
            // At most one check and one subscription of a watch are under way: no busy loop.
            let is_check = matches!(action, WatchAction::Check { .. });
            self.tally.checks += u64::from(is_check);
            if !self.strikes(0.03) {
                let delay = self.latency();
                self.plan(delay, Happens::Request(id, action));
            }
        }
        while let Some((id, change)) = self.hub.poll_change() {
            self.tally.found += u64::from(change.lost);
            let sum = self.sums.remove(&id).unwrap_or_default();
            self.sums.insert(id, sum.then(Delta { added: change.added, removed: change.removed }));
        }
    }

    fn happen(&mut self, what: Happens) {
        match what {
            Happens::Update => self.update(),
            Happens::Cut => self.cut(),
            Happens::Request(id, action) => self.serve(id, &action),
            Happens::Arrive(id, input, line) => {
                // What was on a line that is cut is gone.
                if line.is_some_and(|line| !self.lines.contains_key(&line)) {
                    return;
                }
                if let Input::Subscribed { attempt, .. } | Input::Resumed { attempt, .. } = input {
                    self.leave(id, attempt);
                }
                self.hub.handle(id, input, self.now, &mut self.rng);
                self.look(id);
            }
        }
    }

    /// The driver ends the subscription before.
    fn leave(&mut self, id: WatchId, but: Attempt) {
        let old: Vec<u64> = self
            .lines
            .iter()
            .filter(|(_, (on, attempt, _))| *on == id && *attempt < but)
            .map(|(line, _)| *line)
            .collect();
        for line in old {
            self.lines.remove(&line);
            let _ = self.space.unsubscribe(SubscriberId(line));
        }
    }

    /// Whether a view that had lost something is right again.
    fn look(&mut self, id: WatchId) {
        if self.lost_at.contains_key(&id) && self.view(id) == self.truth(id) {
            for at in self.lost_at.remove(&id).unwrap_or_default() {
                self.tally.repaired += 1;
                self.tally.delay += self.now.since(at).as_secs_f64();
            }
        }
    }

    fn update(&mut self) {
        let (lamp, value) = (self.rng.next_u64() % 3, self.rng.next_u64() % 5);
        let lamp = ["urn:lamp", "urn:lamp2", "urn:lamp3"][lamp as usize];
        let text =
            format!("DELETE WHERE {{ <{lamp}> <urn:state> ?o }}; INSERT DATA {{ <{lamp}> <urn:state> '{value}' }}");
        let limits = QueryLimits::default();
        self.space.update(&Update::parse(&text, &limits).unwrap(), &limits).unwrap();
        for id in self.space.ready() {
            self.notify(id);
        }
        if self.is_bad() {
            let gap = -2.0 * (1.0 - self.unit()).ln();
            self.plan(Duration::from_secs_f64(gap), Happens::Update);
        }
    }

    fn notify(&mut self, subscriber: SubscriberId) {
        while let Ok(Some(event)) = self.space.poll(subscriber) {
            let SubscriberEvent::Changed(told) = event else { continue };
            let Some((id, attempt, _)) = self.lines.get(&subscriber.0).copied() else { continue };
            if self.strikes(0.1) {
                self.tally.lost += 1;
                self.lost_at.entry(id).or_default().push(self.now);
                continue;
            }
            let names = &self.names[&id];
            let delta =
                Delta { added: rows_of(names, &told.delta.added), removed: rows_of(names, &told.delta.removed) };
            let input = Input::Changed { attempt, sequence: Some(told.sequence), delta, spread: None };
            self.send_on(subscriber, id, input);
        }
    }

    /// In order: a line does not reorder.
    fn send_on(&mut self, line: SubscriberId, id: WatchId, input: Input) {
        let latency = self.latency();
        let now = self.now;
        let Some((_, _, until)) = self.lines.get_mut(&line.0) else { return };
        *until = (*until).max(now + latency);
        let delay = until.since(now);
        self.plan(delay, Happens::Arrive(id, input, Some(line.0)));
    }

    /// A subscription's line breaks; its client finds out sooner or later.
    fn cut(&mut self) {
        let lines: Vec<u64> = self.lines.keys().copied().collect();
        if !lines.is_empty() {
            let line = lines[(self.rng.next_u64() % lines.len() as u64) as usize];
            let (id, attempt, _) = self.lines.remove(&line).unwrap();
            self.depart(line, id, attempt);
            let delay = Duration::from_secs_f64(20.0 * self.unit());
            self.plan(delay, Happens::Arrive(id, Input::Ended { attempt, hints: Hints::default() }, None));
        }
        if self.is_bad() {
            let gap = 15.0 + 30.0 * self.unit();
            self.plan(Duration::from_secs_f64(gap), Happens::Cut);
        } else {
            // Once more for everybody, so that level none ends with a baseline, too.
            for (line, (id, attempt, _)) in std::mem::take(&mut self.lines) {
                self.depart(line, id, attempt);
                self.plan(Duration::ZERO, Happens::Arrive(id, Input::Ended { attempt, hints: Hints::default() }, None));
            }
        }
    }

    /// A line is gone; a broker that can tell what was missed keeps its subscriber for a while.
    fn depart(&mut self, line: u64, id: WatchId, attempt: Attempt) {
        if self.with_missed {
            self.away.insert((id, attempt), SubscriberId(line));
        } else {
            let _ = self.space.unsubscribe(SubscriberId(line));
        }
    }

    /// Goes on with a subscription, under the number of the new attempt.
    fn go_on(&mut self, id: WatchId, attempt: Attempt, before: Attempt, since: u64) -> bool {
        let standing = self.lines.iter().find(|(_, (on, of, _))| *on == id && *of == before).map(|(line, _)| *line);
        let known = self.away.remove(&(id, before)).or(standing.map(SubscriberId)).filter(|_| self.with_missed);
        let Some(subscriber) = known else { return false };
        let input = match self.space.check(subscriber, since) {
            Ok(CatchUp::Missed { sequence, delta, .. }) => {
                let names = &self.names[&id];
                let delta = Delta { added: rows_of(names, &delta.added), removed: rows_of(names, &delta.removed) };
                Input::Resumed { attempt, sequence, delta }
            }
            Ok(CatchUp::Fresh(baseline)) => {
                let rows = rows_of(&self.names[&id], &baseline.rows);
                Input::Subscribed { attempt, sequence: baseline.sequence, rows }
            }
            Err(_) => return false,
        };
        self.tally.resumed += u32::from(matches!(input, Input::Resumed { .. }));
        self.lines.insert(subscriber.0, (id, attempt, self.now));
        self.send_on(subscriber, id, input);
        true
    }

    fn serve(&mut self, id: WatchId, action: &WatchAction) {
        let query = self.queries[&id].clone();
        let attempt = match *action {
            WatchAction::Subscribe { attempt, .. } | WatchAction::Check { attempt, .. } => attempt,
        };
        if self.strikes(0.1) {
            let kinds = if self.is_absurd { 4 } else { 2 };
            let retry_after = [None, Some(Duration::from_secs(2)), Some(Duration::ZERO), Some(Duration::MAX)];
            let retry_after = retry_after[(self.rng.next_u64() % kinds) as usize];
            let stretch = [None, Some(1.5), Some(0.0), Some(f64::MAX)][(self.rng.next_u64() % kinds) as usize];
            let failure = ExchangeFailure::Denied(Hints { retry_after, stretch, ..Hints::default() });
            let delay = self.latency();
            return self.plan(delay, Happens::Arrive(id, Input::Refused { attempt, failure }, None));
        }
        let hints = Hints::default();
        match *action {
            WatchAction::Subscribe { attempt, resume: Some((before, since)), .. }
                if self.go_on(id, attempt, before, since) => {}
            WatchAction::Subscribe { attempt, .. } => {
                let made = self.space.subscribe(&query).unwrap();
                let rows = rows_of(&self.names[&id], &made.baseline.rows);
                self.lines.insert(made.subscriber.0, (id, attempt, self.now));
                self.send_on(made.subscriber, id, Input::Subscribed { attempt, sequence: 0, rows });
            }
            WatchAction::Check { attempt, since: Some((of, since)), .. } => {
                let line =
                    self.lines.iter().find(|(_, (on, number, _))| *on == id && *number == of).map(|(line, _)| *line);
                let Some(line) = line else {
                    let input = Input::Refused { attempt, failure: ExchangeFailure::Failed(None) };
                    let delay = self.latency();
                    return self.plan(delay, Happens::Arrive(id, input, None));
                };
                let names = &self.names[&id];
                let input = match self.space.check(SubscriberId(line), since).unwrap() {
                    CatchUp::Missed { sequence, delta, .. } => {
                        let delta =
                            Delta { added: rows_of(names, &delta.added), removed: rows_of(names, &delta.removed) };
                        Input::Missed { attempt, sequence, delta, hints }
                    }
                    CatchUp::Fresh(baseline) => {
                        let rows = rows_of(names, &baseline.rows);
                        Input::Fresh { attempt, sequence: baseline.sequence, rows, hints }
                    }
                };
                self.send_on(SubscriberId(line), id, input);
            }
            WatchAction::Check { attempt, .. } => {
                let rows = result(&query, &mut self.space);
                let delay = self.latency();
                self.plan(delay, Happens::Arrive(id, Input::Whole { attempt, rows, version: None, hints }, None));
            }
        }
    }

    fn view(&self, id: WatchId) -> Vec<Row> {
        self.hub.watch(id).unwrap().view().rows().cloned().collect()
    }

    fn truth(&self, id: WatchId) -> Vec<Row> {
        let snapshot = self.space.snapshot();
        let limits = QueryLimits::default();
        let tidegate_graph::QueryAnswer::Rows(found) = self.queries[&id].run(&snapshot, &limits).unwrap() else {
            panic!("no rows")
        };
        let rows: Vec<_> = found.map(Result::unwrap).collect();
        let mut rows = rows_of(&self.names[&id], &rows);
        rows.sort();
        rows
    }
}

fn names_of(variables: &[oxrdf::Variable]) -> Vec<Arc<str>> {
    variables.iter().map(|name| name.as_str().into()).collect()
}

fn result(query: &Query, space: &mut GraphSpace) -> Vec<Row> {
    let made = space.subscribe(query).unwrap();
    space.unsubscribe(made.subscriber).unwrap();
    rows_of(&names_of(&made.baseline.variables), &made.baseline.rows)
}

fn rows_of(names: &[Arc<str>], rows: &[tidegate_graph::Row]) -> Vec<Row> {
    let term = |term: &oxrdf::Term| match term {
        oxrdf::Term::NamedNode(node) => Term::Uri(node.as_str().to_owned()),
        oxrdf::Term::BlankNode(node) => Term::Blank(node.as_str().to_owned()),
        oxrdf::Term::Literal(literal) => {
            Term::Literal { text: literal.value().to_owned(), datatype: None, language: None }
        }
    };
    let row = |row: &tidegate_graph::Row| {
        let bound =
            names.iter().zip(row.iter()).filter_map(|(name, value)| Some((Arc::clone(name), term(value.as_ref()?))));
        Row::new(bound)
    };
    rows.iter().map(row).collect()
}

fn seeds() -> u64 {
    std::env::var("TIDEGATE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(100)
}

#[test]
fn after_any_sequence_of_losses_and_cuts_the_view_equals_the_space() {
    let detectors = [DetectorRule::Mediate, DetectorRule::Rigorous, DetectorRule::Light];
    let mut table: BTreeMap<String, Tally> = BTreeMap::new();
    for (place, level) in Level::ALL.iter().enumerate() {
        for seed in 0..seeds() {
            let detector = detectors[(seed % 3) as usize];
            let initial = InitialRule::ALL[(seed / 3) as usize % InitialRule::ALL.len()];
            let with_missed = seed % 2 == 1;
            let mut world = World::new(seed, *level, detector, initial, with_missed);
            world.run();
            let what = format!("seed {seed}, {level}, {detector}, {initial}, missed {with_missed}");
            for id in world.queries.keys().copied().collect::<Vec<_>>() {
                assert_eq!(world.view(id), world.truth(id), "{what}: {:?}", world.hub.watch(id).unwrap().stats());
                let sum = world.sums.get(&id).cloned().unwrap_or_default();
                assert_eq!((sum.added, sum.removed), (world.view(id), vec![]), "{what}: what was told adds up");
            }
            assert_eq!(*level == Level::None, world.tally.checks == 0, "{what}");
            assert_eq!(world.tally.repaired, world.tally.lost, "{what}: every loss came to an end");
            if world.is_absurd {
                // They end well, too; how soon, is what the broker asked for.
                continue;
            }
            for key in [
                format!("{place} {level}"),
                format!("6 {level} / {detector}"),
                format!("7 {level} / {initial}"),
                format!("8 {level} / {}", if world.with_missed { "missed" } else { "query and difference" }),
            ] {
                let row = table.entry(key).or_default();
                row.runs += 1;
                row.lost += world.tally.lost;
                row.found += world.tally.found;
                row.repaired += world.tally.repaired;
                row.delay += world.tally.delay;
                row.checks += world.tally.checks;
                row.resumed += world.tally.resumed;
            }
        }
    }
    println!("{:<42}{:>6}{:>8}{:>8}{:>14}{:>16}", "", "runs", "lost", "told", "right after", "checks per run");
    for (name, row) in &table {
        println!(
            "{:<42}{:>6}{:>8}{:>8}{:>12.2} s{:>16.1}",
            &name[2..],
            row.runs,
            row.lost,
            row.found,
            row.delay / f64::from(row.repaired.max(1)),
            row.checks as f64 / f64::from(row.runs)
        );
    }
    assert!(table["5 active"].resumed > 0 && table["8 active / query and difference"].resumed == 0);
    // What the papers expect of the levels: the view of whoever checks is right sooner than that of whoever only hears.
    let delay = |name: &str| table[name].delay / f64::from(table[name].repaired.max(1));
    assert!(delay("5 active") < delay("0 none"), "{} < {}", delay("5 active"), delay("0 none"));
}
