//! Each standing query's view, built from its baseline and its notifications, equals a fresh evaluation after every one
//! of many random updates. `TIDEGATE_MODEL_UPDATES=100000 cargo test -p tidegate-graph --release --test standing_model`
//! is the long run; `TIDEGATE_MODEL_SEED` replays one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use tidegate_graph::{
    CancelToken, CatchUp, Evaluated, GraphSpace, Mask, MaskGraph, Query, QueryAnswer, QueryLimits, QueueLimits, Row,
    SpaceLimits, SubscriberEvent, SubscriberId, Update,
};

/// Every shape of query, and whether it is followed change by change.
const QUERIES: &[(&str, bool)] = &[
    ("SELECT * { ?s ?p ?o }", true),
    ("SELECT ?o { <e:s1> <e:p1> ?o }", true),
    ("SELECT ?s { ?s <e:p1> ?o }", true),
    ("SELECT ?s ?o2 { ?s <e:p1> ?o . ?o <e:p2> ?o2 }", true),
    ("SELECT ?a { ?a <e:p1> ?b . ?b <e:p1> ?c . ?c <e:p1> ?a }", true),
    ("SELECT ?a ?b { ?a ?p ?b . ?b ?p ?a }", true),
    ("SELECT * { ?x <e:p1> ?x }", true),
    ("SELECT ?s { ?s <e:p1> ?a . ?s <e:p1> ?b }", true),
    ("SELECT ?s ?o { ?s <e:p3> ?o FILTER(?o > 2) }", true),
    ("SELECT ?s ?n { ?s <e:p3> ?o BIND(?o + 1 AS ?n) FILTER(?n < 4) }", true),
    ("SELECT (?o * 2 AS ?d) { ?s <e:p3> ?o }", true),
    ("SELECT ?s { { ?s <e:p1> ?o } UNION { ?s <e:p2> ?o } }", true),
    ("SELECT ?s ?o { { ?s <e:p1> ?o } UNION { ?o <e:p1> ?s } ?s <e:p2> ?z }", true),
    ("SELECT ?s ?v { VALUES ?s { <e:s1> <e:s2> } ?s <e:p1> ?v }", true),
    ("SELECT ?s ?w { ?s <e:p1> ?v VALUES (?w ?v) { (1 <e:s1>) (2 <e:s1>) (3 <e:s3>) } }", true),
    ("SELECT DISTINCT ?s { ?s ?p ?o }", true),
    ("SELECT DISTINCT ?p { ?s ?p ?o . ?o ?q ?r }", true),
    ("SELECT REDUCED ?p { ?s ?p ?o } ORDER BY ?p", true),
    ("SELECT ?g ?s { GRAPH ?g { ?s <e:p1> ?o } }", true),
    ("SELECT ?s ?o { GRAPH <e:g1> { ?s <e:p1> ?o } }", true),
    ("SELECT ?s { ?s <e:p1> ?o GRAPH ?g { ?s <e:p2> ?z } }", true),
    ("SELECT ?s { GRAPH ?g { ?s <e:p1> ?o . ?o <e:p1> ?z } }", true),
    ("SELECT ?g { GRAPH ?g { ?s <e:p1> ?o FILTER(?g = <e:g1>) } }", true),
    ("SELECT * { ?s <e:p1> [] }", true),
    ("SELECT ?s (STR(?o) AS ?t) { ?s <e:p4> ?o FILTER(ISLITERAL(?o) && STRLEN(STR(?o)) > 1) }", true),
    ("ASK { ?s <e:p1> <e:s1> }", true),
    ("ASK { ?s <e:p1> ?o . ?o <e:p2> ?s }", true),
    ("CONSTRUCT { ?o <e:back> ?s } WHERE { ?s <e:p1> ?o }", true),
    ("CONSTRUCT { ?s <e:x> ?p . ?s <e:y> <e:k> } WHERE { ?s ?p ?o FILTER(ISIRI(?o)) }", true),
    ("SELECT ?s ?z { ?s <e:p1> ?o OPTIONAL { ?o <e:p2> ?z } }", false),
    ("SELECT ?s { ?s <e:p1> ?o FILTER NOT EXISTS { ?s <e:p2> ?z } }", false),
    ("SELECT ?s { ?s <e:p1> ?o FILTER EXISTS { ?o <e:p2> ?z } }", false),
    ("SELECT ?s { ?s <e:p1> ?o MINUS { ?s <e:p2> ?z } }", false),
    ("SELECT ?s (COUNT(*) AS ?n) { ?s ?p ?o } GROUP BY ?s", false),
    ("SELECT (SUM(?o) AS ?n) (MAX(?o) AS ?m) { ?s <e:p3> ?o }", false),
    ("SELECT ?s ?o { ?s <e:p1>+ ?o }", false),
    ("SELECT ?s ?o { ?s <e:p1>* ?o }", false),
    ("SELECT ?o { <e:s1> (<e:p1>|<e:p2>)/^<e:p1> ?o }", false),
    ("SELECT ?s { ?s !<e:p1> ?o }", false),
    ("SELECT ?s { ?s <e:p3> ?o } ORDER BY ?o ?s LIMIT 2", false),
    ("SELECT ?s ?n { ?s <e:p1> ?o { SELECT ?o (COUNT(?x) AS ?n) { ?o <e:p2> ?x } GROUP BY ?o } }", false),
    ("SELECT ?s { { ?s <e:p1> ?o FILTER(?z = 1) } ?s <e:p3> ?z }", false),
    ("SELECT ?s { GRAPH ?g { } ?s <e:p1> ?o }", false),
    ("SELECT ?s FROM <e:g1> FROM <e:g2> { ?s <e:p1> ?o }", false),
    ("ASK { FILTER NOT EXISTS { ?s <e:p1> <e:s1> } }", false),
    ("ASK { ?s <e:p1> ?o OPTIONAL { ?o <e:p2> ?z } FILTER(!BOUND(?z)) }", false),
    ("CONSTRUCT { ?s <e:n> ?z } WHERE { ?s <e:p1> ?o OPTIONAL { ?o <e:p2> ?z } }", false),
];

struct Random(Xoshiro256PlusPlus);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end
    }

    fn node(&mut self) -> String {
        format!("<e:s{}>", self.below(5))
    }

    fn triple(&mut self) -> String {
        let predicate = self.below(4) + 1;
        let object = match predicate {
            3 => self.below(5).to_string(),
            4 => match self.below(3) {
                0 => format!("'v{}'", self.below(4)),
                1 => format!("'{}'@en", self.below(2)),
                _ => self.node(),
            },
            _ => self.node(),
        };
        format!("{} <e:p{predicate}> {object} .", self.node())
    }

    fn block(&mut self) -> String {
        let triples: String = (0..=self.below(4)).map(|_| self.triple()).collect();
        match self.below(3) {
            0 => format!("GRAPH <e:g{}> {{ {triples} }}", self.below(2) + 1),
            _ => triples,
        }
    }

    fn update(&mut self) -> String {
        match self.below(16) {
            0..=5 => format!("INSERT DATA {{ {} }}", self.block()),
            6..=9 => format!("DELETE DATA {{ {} }}", self.block()),
            10 => format!("DELETE {{ {0} ?p ?o }} WHERE {{ {0} ?p ?o }}", self.node()),
            11 => format!(
                "DELETE {{ ?s <e:p1> ?o }} INSERT {{ ?o <e:p1> ?s }} WHERE {{ ?s <e:p1> ?o . ?s <e:p2> {} }}",
                self.node()
            ),
            12 => format!(
                "DELETE {{ {0} <e:p3> ?o }} INSERT {{ {0} <e:p3> {1} }} WHERE {{ OPTIONAL {{ {0} <e:p3> ?o }} }}",
                self.node(),
                self.below(5)
            ),
            13 => format!("INSERT DATA {{ {} }} ; DELETE DATA {{ {} }}", self.block(), self.block()),
            14 => match self.below(6) {
                0 => "CLEAR GRAPH <e:g1>".to_owned(),
                1 => "CLEAR NAMED".to_owned(),
                2 => "DELETE WHERE { ?s <e:p2> ?o }".to_owned(),
                3 => "MOVE <e:g1> TO <e:g2>".to_owned(),
                _ => "ADD DEFAULT TO <e:g1>".to_owned(),
            },
            _ => format!(
                "INSERT {{ GRAPH <e:g1> {{ ?s <e:p1> ?o }} }} WHERE {{ ?s <e:p2> ?o . ?s <e:p1> {} }}",
                self.node()
            ),
        }
    }
}

type View = BTreeMap<String, i64>;

fn name(row: &Row) -> String {
    let values: Vec<String> =
        row.iter().map(|term| term.as_ref().map_or("-".to_owned(), ToString::to_string)).collect();
    values.join(" ")
}

fn bag<'a>(rows: impl IntoIterator<Item = &'a Row>) -> View {
    let mut view = View::new();
    for row in rows {
        *view.entry(name(row)).or_default() += 1;
    }
    view
}

/// The result of a fresh evaluation.
fn model(query: &Query, text: &str, space: &GraphSpace) -> View {
    let snapshot = space.snapshot();
    match query.run(&snapshot, &QueryLimits::default()).unwrap() {
        QueryAnswer::Boolean(holds) => {
            View::from([(format!("\"{holds}\"^^<http://www.w3.org/2001/XMLSchema#boolean>"), 1)])
        }
        QueryAnswer::Triples(triples) => triples
            .map(|triple| triple.map(|t| (format!("{} {} {}", t.subject, t.predicate, t.object), 1)).unwrap())
            .collect(),
        QueryAnswer::Rows(rows) => {
            let rows: Vec<Row> = rows.collect::<Result<_, _>>().unwrap();
            let mut view = bag(&rows);
            if text.contains("REDUCED") {
                for count in view.values_mut() {
                    *count = 1;
                }
            }
            view
        }
    }
}

struct Follower {
    text: String,
    query: Option<Query>,
    subscriber: SubscriberId,
    view: View,
    sequence: u64,
}

impl Follower {
    fn apply(&mut self, added: &[Row], removed: &[Row]) {
        for (list, sign) in [(removed, -1), (added, 1)] {
            for row in list {
                let count = self.view.entry(name(row)).or_default();
                *count += sign;
                assert!(*count >= 0, "{}: {} left without having entered", self.text, name(row));
            }
        }
        self.view.retain(|_, count| *count != 0);
    }

    fn drain(&mut self, space: &mut GraphSpace) {
        while let Some(event) = space.poll(self.subscriber).unwrap() {
            match event {
                SubscriberEvent::Changed(notification) => {
                    self.sequence += 1;
                    assert_eq!(notification.sequence, self.sequence, "{}", self.text);
                    assert!(!notification.delta.is_empty());
                    self.apply(&notification.delta.added, &notification.delta.removed);
                }
                SubscriberEvent::Gap { sequence } => {
                    assert_eq!(sequence, self.sequence + 1);
                    match space.check(self.subscriber, self.sequence).unwrap() {
                        CatchUp::Missed { sequence, delta, .. } => {
                            self.apply(&delta.added, &delta.removed);
                            self.sequence = sequence;
                        }
                        CatchUp::Fresh(baseline) => {
                            self.view = bag(&baseline.rows);
                            self.sequence = baseline.sequence;
                        }
                    }
                }
                SubscriberEvent::Ended(error) => panic!("{}: {error}", self.text),
            }
        }
    }

    fn model(&self, space: &GraphSpace) -> View {
        match &self.query {
            Some(query) => model(query, &self.text, space),
            None => space
                .snapshot()
                .quads()
                .filter(|quad| quad.graph_name.is_default_graph())
                .filter(|quad| {
                    quad.subject.to_string() == "<e:s1>"
                        || quad.predicate.as_str() == "e:p2"
                        || quad.object.to_string() == "<e:s2>"
                })
                .map(|quad| (format!("{} {} {} -", quad.subject, quad.predicate, quad.object), 1))
                .collect(),
        }
    }
}

fn masks() -> Vec<Mask> {
    let iri = |text: &str| oxrdf::NamedNode::new_unchecked(text);
    vec![
        Mask { subject: Some(iri("e:s1").into()), ..Mask::default() },
        Mask { predicate: Some(iri("e:p2")), graph: MaskGraph::Default, ..Mask::default() },
        Mask { object: Some(iri("e:s2").into()), ..Mask::default() },
    ]
}

fn followers(space: &mut GraphSpace) -> Vec<Follower> {
    let limits = QueryLimits::default();
    let mut followers = Vec::new();
    for (text, followed) in QUERIES {
        let query = Query::parse(text, &limits).unwrap();
        let subscribed = match space.first_evaluation(&query).unwrap() {
            Some(evaluation) => {
                let evaluated = evaluation.run(CancelToken::default());
                space.subscribe_evaluated(&query, evaluated).unwrap()
            }
            None => space.subscribe(&query).unwrap(),
        };
        assert_eq!(space.is_followed(subscribed.subscriber), Some(*followed), "{text}");
        let (subscriber, view) = (subscribed.subscriber, bag(&subscribed.baseline.rows));
        followers.push(Follower { text: (*text).to_owned(), query: Some(query), subscriber, view, sequence: 0 });
    }
    let subscribed = space.subscribe_masks(&masks()).unwrap();
    let (subscriber, view) = (subscribed.subscriber, bag(&subscribed.baseline.rows));
    followers.push(Follower { text: "masks".to_owned(), query: None, subscriber, view, sequence: 0 });
    followers
}

/// Runs the updates; followers look at their events every `patience` updates.
fn run(seed: u64, updates: u64, patience: u64, queue: QueueLimits) {
    let mut space = GraphSpace::new(seed, SpaceLimits { queue, ..SpaceLimits::default() });
    let mut random = Random(Xoshiro256PlusPlus::seed_from_u64(seed));
    let limits = QueryLimits::default();
    for _ in 0..20 {
        space.update(&Update::parse(&random.update(), &limits).unwrap(), &limits).unwrap();
    }
    let mut followers = followers(&mut space);
    let terms = space.terms().0;
    for n in 0..updates {
        let text = random.update();
        let update = Update::parse(&text, &limits).unwrap();
        let before = space.snapshot();
        let outcome = space.update(&update, &limits).unwrap();
        assert_eq!(space.version(), before.version() + outcome.deltas.len() as u64);
        for delta in &outcome.deltas {
            assert!(delta.added.iter().all(|quad| !before.contains(quad.as_ref())));
            assert!(delta.removed.iter().all(|quad| before.contains(quad.as_ref())));
            let after = space.snapshot();
            assert_eq!(after.len(), before.len() + delta.added.len() - delta.removed.len());
        }
        if n % patience != patience - 1 {
            continue;
        }
        for follower in &mut followers {
            follower.drain(&mut space);
            assert_eq!(follower.view, follower.model(&space), "seed {seed}, update {n} {text}: {}", follower.text);
        }
    }
    assert!(space.terms().0 < terms + 100, "terms are left behind: {terms} and then {:?}", space.terms());
    for follower in &followers {
        space.unsubscribe(follower.subscriber).unwrap();
    }
    assert_eq!(space.standing_queries(), 0);
    let clear = Update::parse("CLEAR ALL", &limits).unwrap();
    space.update(&clear, &limits).unwrap();
    assert_eq!(space.terms(), (0, 0));
}

/// Queries that cannot be followed are evaluated beside the commits: they begin and end at any moment.
/// When nothing is behind any more everybody has the latest result; and whoever is told something is never told a wrong
/// number.
fn run_beside(seed: u64, updates: u64) {
    let limits = SpaceLimits { inline_steps_max: 0, ..SpaceLimits::default() };
    let mut space = GraphSpace::new(seed, limits);
    let mut random = Random(Xoshiro256PlusPlus::seed_from_u64(seed));
    let limits = QueryLimits::default();
    for _ in 0..20 {
        space.update(&Update::parse(&random.update(), &limits).unwrap(), &limits).unwrap();
    }
    let mut followers = followers(&mut space);
    let mut under_way: Vec<Evaluated> = Vec::new();
    for n in 0..updates {
        space.update(&Update::parse(&random.update(), &limits).unwrap(), &limits).unwrap();
        for _ in 0..random.below(4) {
            let evaluation = space.poll_evaluation(|_| true);
            under_way.extend(evaluation.map(|evaluation| evaluation.run(CancelToken::default())));
        }
        while !under_way.is_empty() && random.below(3) > 0 {
            let place = random.below(under_way.len() as u64) as usize;
            space.finish_evaluation(under_way.swap_remove(place));
        }
        if random.below(10) == 0 {
            for follower in &mut followers {
                follower.drain(&mut space);
            }
        }
        if n % 50 == 49 {
            under_way.drain(..).for_each(|evaluated| space.finish_evaluation(evaluated));
            while let Some(evaluation) = space.poll_evaluation(|_| true) {
                space.finish_evaluation(evaluation.run(CancelToken::default()));
            }
            for follower in &mut followers {
                follower.drain(&mut space);
                assert_eq!(follower.view, follower.model(&space), "seed {seed}, update {n}: {}", follower.text);
                assert!(follower.query.as_ref().is_none_or(|query| !space.is_behind(query)), "{}", follower.text);
            }
        }
    }
    // What takes too long cannot stand: whoever subscribed is told so.
    let text = "SELECT (COUNT(*) AS ?n) { ?a <e:p1> ?b OPTIONAL { ?b <e:p2> ?c } }";
    let dear = Query::parse(text, &limits).unwrap();
    let first = space.first_evaluation(&dear).unwrap().unwrap().run(CancelToken::default());
    let subscriber = space.subscribe_evaluated(&dear, first).unwrap().subscriber;
    space.update(&Update::parse("INSERT DATA { <e:s1> <e:p1> <e:newer> }", &limits).unwrap(), &limits).unwrap();
    let cancelled = CancelToken::default();
    cancelled.cancel();
    space.want(&dear);
    let evaluation = space.poll_evaluation(|id| id == subscriber).unwrap();
    space.finish_evaluation(evaluation.run(cancelled));
    assert!(matches!(space.poll(subscriber), Ok(Some(SubscriberEvent::Ended(_)))));
    // Who does not listen is not worked for, unless somebody asks.
    space.update(&Update::parse("INSERT DATA { <e:s1> <e:p1> <e:new> }", &limits).unwrap(), &limits).unwrap();
    assert!(space.poll_evaluation(|_| false).is_none());
    let behind = followers.iter().filter_map(|follower| follower.query.as_ref()).find(|query| space.is_behind(query));
    let behind = behind.unwrap().clone();
    space.want(&behind);
    let evaluation = space.poll_evaluation(|_| false).unwrap();
    for follower in &followers {
        space.unsubscribe(follower.subscriber).unwrap();
    }
    // It comes too late for anybody.
    space.finish_evaluation(evaluation.run(CancelToken::default()));
    assert!(space.poll_evaluation(|_| true).is_none() && space.standing_queries() == 0);
}

#[test]
fn what_is_evaluated_beside_the_commits_ends_where_they_do() {
    for seed in 0..4 {
        run_beside(seed, updates(300));
    }
}

fn updates(default: u64) -> u64 {
    std::env::var("TIDEGATE_MODEL_UPDATES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn seed(default: u64) -> u64 {
    std::env::var("TIDEGATE_MODEL_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn f101_views_equal_evaluation_after_every_update() {
    run(seed(1), updates(250), 1, QueueLimits::default());
}

#[test]
fn f101_f102_views_equal_evaluation_when_notifications_merge() {
    run(seed(2), updates(600), 37, QueueLimits { pending_max: 3, ..QueueLimits::default() });
}

#[test]
fn f101_f103_views_equal_evaluation_after_gaps_and_checks() {
    run(seed(3), updates(600), 41, QueueLimits { pending_max: 4, rows_max: 12, ..QueueLimits::default() });
}
