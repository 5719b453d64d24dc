//! Changes that are made apart from the commits, against a space that does one after the other: large ones in pieces,
//! and updates that are worked out on a snapshot.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a step that cannot be done has failed the test")]

use std::collections::BTreeSet;

use oxrdf::Quad;
use proptest::prelude::*;
use tidegate_graph::{
    CancelToken, DatasetLimits, GraphError, GraphSpace, LargeChange, Limit, Mask, MaskGraph, QuadDelta, Query,
    QueryLimits, SpaceLimits, SubscriberEvent, SubscriberId, Update,
};

fn update(text: &str) -> Update {
    Update::parse(text, &QueryLimits::default()).unwrap()
}

fn space() -> GraphSpace {
    GraphSpace::new(1, SpaceLimits::default())
}

fn data(space: &GraphSpace) -> BTreeSet<String> {
    space.snapshot().quads().map(|quad| quad.to_string()).collect()
}

fn change(space: &mut GraphSpace, text: &str) -> Vec<QuadDelta> {
    space.update(&update(text), &QueryLimits::default()).unwrap().deltas
}

/// A space with the same quads, each inserted by itself.
fn rebuilt(of: &GraphSpace) -> GraphSpace {
    let mut space = space();
    space.restore(of.version(), of.snapshot().quads()).unwrap();
    space
}

fn quad_text(graph: u8, s: u8, p: u8, o: u8) -> String {
    let triple = format!("<urn:s{s}> <urn:p{p}> {o}");
    if graph == 0 { triple } else { format!("GRAPH <urn:g{graph}> {{ {triple} }}") }
}

fn inserted(quads: &[(u8, u8, u8, u8)]) -> String {
    let quads: Vec<String> = quads.iter().map(|(g, s, p, o)| quad_text(*g, *s, *p, *o)).collect();
    format!("INSERT DATA {{ {} }}", quads.join(" . "))
}

/// The quads of an `INSERT DATA`.
fn quads_of(text: &str) -> Vec<Quad> {
    let mut space = space();
    change(&mut space, text);
    space.snapshot().quads().collect()
}

#[test]
fn nobody_sees_a_part_of_a_large_change_and_others_go_between() {
    let mut space = space();
    change(&mut space, "INSERT DATA { <urn:a> <urn:p> 1 . <urn:b> <urn:p> 2 }");
    let insert = quads_of("INSERT DATA { <urn:a> <urn:p> 3 . <urn:a> <urn:p> 4 . <urn:a> <urn:p> 5 }");
    space.begin_large(LargeChange::edit(vec![Mask::default()], insert), true).unwrap();
    assert_eq!(space.begin_large(LargeChange::edit(Vec::new(), Vec::new()), true), Err(GraphError::OutOfStep));
    let mut pieces = 0;
    while !space.stage(1).unwrap() {
        pieces += 1;
        // What comes meanwhile is removed with the rest, and what is removed meanwhile comes all the same.
        change(&mut space, &format!("INSERT DATA {{ <urn:c> <urn:q> {pieces} }}"));
        change(&mut space, "DELETE DATA { <urn:a> <urn:p> 3 }");
        assert!(data(&space).iter().all(|quad| !quad.contains("urn:a> <urn:p> \"5")), "a part is seen");
    }
    let version = space.version();
    let outcome = space.commit_large().unwrap();
    assert_eq!((outcome.deltas.len(), space.version()), (1, version + 1));
    let left = data(&space);
    assert!(left.len() == 3 && left.iter().all(|quad| quad.contains("urn:a")), "{left:?}");
    assert!(pieces > 6, "{pieces}");
    while space.is_untidy() {
        space.tidy(2);
    }
    assert_eq!(space.terms(), rebuilt(&space).terms(), "terms are held exactly as often as they are used");
}

#[test]
fn a_large_change_that_fails_or_is_given_up_leaves_nothing_behind() {
    let dataset = DatasetLimits { quads_max: 4, ..DatasetLimits::default() };
    let mut space = GraphSpace::new(1, SpaceLimits { dataset, ..SpaceLimits::default() });
    change(&mut space, "INSERT DATA { <urn:a> <urn:p> 1 }");
    let (terms, before) = (space.terms(), data(&space));
    let many = "INSERT DATA { <urn:x> <urn:y> 1, 2, 3, 4, 5 }";
    space.begin_large(LargeChange::of_update(Box::new(update(many))).ok().unwrap(), true).unwrap();
    let failed = loop {
        match space.stage(1) {
            Ok(is_ready) => assert!(!is_ready),
            Err(error) => break error,
        }
    };
    assert_eq!(failed, GraphError::Limit(Limit::Quads));
    assert_eq!(space.commit_large().unwrap_err(), GraphError::OutOfStep);
    space.begin_large(LargeChange::of_update(Box::new(update(many))).ok().unwrap(), true).unwrap();
    space.stage(3).unwrap();
    space.abandon_large();
    while space.is_untidy() {
        space.tidy(1);
    }
    assert_eq!((space.terms(), data(&space)), (terms, before));
}

#[test]
fn it_is_known_whether_masks_clear_many() {
    let mut space = space();
    change(&mut space, "INSERT DATA { <urn:a> <urn:p> 1, 2, 3 . <urn:b> <urn:p> 4 }");
    let subject = |name: &str| Some(oxrdf::NamedNode::new_unchecked(name).into());
    let of = |name: &str| Mask { subject: subject(name), ..Mask::default() };
    assert!(space.matches_more_than(&[of("urn:a")], 2) && !space.matches_more_than(&[of("urn:a")], 3));
    assert!(space.matches_more_than(&[of("urn:a"), of("urn:b")], 3));
    assert!(!space.matches_more_than(&[], 0));
    let predicate = Some(oxrdf::NamedNode::new_unchecked("urn:p"));
    let exact = Mask { predicate, object: Some(oxrdf::Literal::from(1).into()), ..of("urn:a") };
    assert!(!space.matches_more_than(std::slice::from_ref(&exact), 1));
    assert!(space.matches_more_than(&[exact.clone(), exact], 1), "they are looked for");
}

#[test]
fn blank_nodes_are_new_ones_and_their_names_are_told() {
    let mut space = space();
    let blank = quads_of("INSERT DATA { _:x <urn:p> 1 . _:x <urn:p> 2 }");
    let mut names = BTreeSet::new();
    for _ in 0..2 {
        space.begin_large(LargeChange::edit(Vec::new(), blank.clone()), false).unwrap();
        while !space.stage(10).unwrap() {}
        let outcome = space.commit_large().unwrap();
        assert!(outcome.bytes.is_none(), "no log wants them");
        let [(_, new)] = &outcome.blanks[..] else { panic!("{:?}", outcome.blanks) };
        assert!(names.insert(new.to_string()));
    }
    let two = "INSERT DATA { _:x <urn:p> 3 } ; INSERT DATA { _:y <urn:p> 4 }";
    space.begin_large(LargeChange::of_update(Box::new(update(two))).ok().unwrap(), true).unwrap();
    while !space.stage(1).unwrap() {}
    space.commit_large().unwrap();
    let subjects: BTreeSet<String> = space.snapshot().quads().map(|quad| quad.subject.to_string()).collect();
    assert_eq!((space.snapshot().len(), subjects.len()), (6, 4));
}

/// What happens beside a large change.
#[derive(Clone, Debug)]
enum Beside {
    Insert(u8, u8, u8, u8),
    Delete(u8, u8, u8, u8),
    Piece,
    Large { clears: u8, quads: Vec<(u8, u8, u8, u8)>, removed: Vec<(u8, u8, u8, u8)> },
    Abandon,
}

fn quad() -> impl Strategy<Value = (u8, u8, u8, u8)> {
    (0..3u8, 0..3u8, 0..2u8, 0..3u8)
}

fn beside() -> impl Strategy<Value = Beside> {
    let quads = || prop::collection::vec(quad(), 0..6);
    prop_oneof![
        4 => quad().prop_map(|(g, s, p, o)| Beside::Insert(g, s, p, o)),
        3 => quad().prop_map(|(g, s, p, o)| Beside::Delete(g, s, p, o)),
        8 => Just(Beside::Piece),
        2 => (0..6u8, quads(), quads()).prop_map(|(clears, quads, removed)| Beside::Large { clears, quads, removed }),
        1 => Just(Beside::Abandon),
    ]
}

/// A mask that says all terms.
fn exact(quad: &Quad) -> Mask {
    let graph = match &quad.graph_name {
        oxrdf::GraphName::DefaultGraph => MaskGraph::Default,
        oxrdf::GraphName::NamedNode(name) => MaskGraph::Named(name.clone().into()),
        oxrdf::GraphName::BlankNode(name) => MaskGraph::Named(name.clone().into()),
    };
    let (subject, predicate) = (Some(quad.subject.clone()), Some(quad.predicate.clone()));
    Mask { subject, predicate, object: Some(quad.object.clone()), graph }
}

fn cleared(clears: u8, removed: &[(u8, u8, u8, u8)]) -> Vec<Mask> {
    let graph = match clears {
        0 => return Vec::new(),
        5 => return quads_of(&inserted(removed)).iter().map(exact).collect(),
        1 => MaskGraph::Default,
        2 => MaskGraph::Any,
        _ => MaskGraph::Named(oxrdf::NamedNode::new_unchecked("urn:g1").into()),
    };
    let predicate = (clears == 4).then(|| oxrdf::NamedNode::new_unchecked("urn:p1"));
    vec![Mask { graph, predicate, ..Mask::default() }]
}

/// A large change, to be done in one go by the serial space.
enum Whole {
    Edit(Vec<Mask>, Vec<Quad>),
    Text(String),
}

/// A space, one that does everything in one go, and one that reads what was logged.
struct Compared {
    space: GraphSpace,
    serial: GraphSpace,
    replayed: GraphSpace,
    rows: Vec<String>,
    subscriber: SubscriberId,
    large: Option<Whole>,
}

impl Compared {
    fn new() -> Self {
        let mut space = space();
        let query = Query::parse("SELECT ?s ?o { ?s <urn:p1> ?o }", &QueryLimits::default()).unwrap();
        let subscriber = space.subscribe(&query).unwrap().subscriber;
        Self { space, serial: self::space(), replayed: self::space(), rows: Vec::new(), subscriber, large: None }
    }

    /// What one commit did: once to the log, once to the subscriber, and the same as in one go.
    fn check(&mut self, deltas: &[QuadDelta], bytes: Option<&[u8]>) {
        for (place, delta) in deltas.iter().enumerate() {
            let stored = bytes.filter(|_| place == 0).map_or_else(|| delta.encode(), <[u8]>::to_vec);
            assert!(self.replayed.replay(&QuadDelta::decode(&stored).unwrap()).unwrap(), "versions follow");
        }
        let mut told = 0;
        while let Ok(Some(SubscriberEvent::Changed(notification))) = self.space.poll(self.subscriber) {
            told += 1;
            assert_eq!(notification.version, self.space.version());
            for row in &notification.delta.removed {
                let row = format!("{row:?}");
                let place = self.rows.iter().position(|known| *known == row).unwrap();
                self.rows.swap_remove(place);
            }
            self.rows.extend(notification.delta.added.iter().map(|row| format!("{row:?}")));
        }
        assert!(told <= deltas.len(), "{told} notifications of {} versions", deltas.len());
        let data = data(&self.space);
        assert_eq!(self.rows.len(), data.iter().filter(|quad| quad.contains("p1") && !quad.contains("urn:g")).count());
        assert_eq!((&data, self.space.version()), (&self::data(&self.serial), self.serial.version()));
        assert_eq!((&data, self.space.version()), (&self::data(&self.replayed), self.replayed.version()));
    }

    fn step(&mut self, step: &Beside) {
        match step {
            Beside::Insert(g, s, p, o) | Beside::Delete(g, s, p, o) => {
                let verb = if matches!(step, Beside::Insert(..)) { "INSERT" } else { "DELETE" };
                let text = format!("{verb} DATA {{ {} }}", quad_text(*g, *s, *p, *o));
                let deltas = change(&mut self.space, &text);
                assert_eq!(deltas, change(&mut self.serial, &text));
                self.check(&deltas, None);
            }
            Beside::Large { clears, quads, removed } if self.large.is_none() => {
                let large = if *clears == 0 {
                    // First in, then out again.
                    let text = format!("{} ; {}", inserted(quads), inserted(removed).replace("INSERT", "DELETE"));
                    let large = LargeChange::of_update(Box::new(update(&text))).ok().unwrap();
                    self.large = Some(Whole::Text(text));
                    large
                } else {
                    let (masks, insert) = (cleared(*clears, removed), quads_of(&inserted(quads)));
                    self.large = Some(Whole::Edit(masks.clone(), insert.clone()));
                    LargeChange::edit(masks, insert)
                };
                self.space.begin_large(large, true).unwrap();
            }
            Beside::Piece if self.large.is_some() => {
                if self.space.stage(1).unwrap() {
                    self.finish();
                }
            }
            Beside::Abandon => {
                self.space.abandon_large();
                self.large = None;
            }
            Beside::Large { .. } | Beside::Piece => {}
        }
    }

    fn finish(&mut self) {
        let outcome = self.space.commit_large().unwrap();
        let whole = match self.large.take() {
            Some(Whole::Text(text)) => change(&mut self.serial, &text),
            Some(Whole::Edit(remove, insert)) => self.serial.edit(&remove, &insert).unwrap().deltas,
            None => panic!("nothing is under way"),
        };
        let sets = |deltas: &[QuadDelta]| -> Vec<(u64, BTreeSet<String>, BTreeSet<String>)> {
            let texts = |quads: &[Quad]| quads.iter().map(Quad::to_string).collect();
            deltas.iter().map(|delta| (delta.version, texts(&delta.added), texts(&delta.removed))).collect()
        };
        assert_eq!(sets(&outcome.deltas), sets(&whole), "the net effect, behind all that came between");
        assert_eq!(outcome.bytes.is_some(), !outcome.deltas.is_empty());
        self.check(&outcome.deltas, outcome.bytes.as_deref());
    }
}

proptest! {
    #[test]
    fn a_large_change_is_what_it_would_be_in_one_go_at_its_end(steps in prop::collection::vec(beside(), 1..120)) {
        let mut compared = Compared::new();
        for step in &steps {
            compared.step(step);
        }
        if compared.large.is_some() {
            while !compared.space.stage(3).unwrap() {}
            compared.finish();
        }
        let space = &mut compared.space;
        while space.is_untidy() {
            space.tidy(2);
        }
        space.unsubscribe(compared.subscriber).unwrap();
        while space.is_untidy() {
            space.tidy(2);
        }
        prop_assert_eq!(space.terms(), rebuilt(space).terms());
    }
}

/// Updates that look at the data.
const READING: [&str; 10] = [
    "DELETE { ?s <urn:p0> ?o } INSERT { ?s <urn:p1> ?o } WHERE { ?s <urn:p0> ?o }",
    "INSERT { GRAPH <urn:g1> { ?s <urn:p0> ?o } } WHERE { ?s <urn:p1> ?o FILTER NOT EXISTS { ?s <urn:p0> ?o } }",
    "DELETE WHERE { <urn:s0> ?p ?o }",
    "DELETE { ?s ?p ?o } INSERT { <urn:s2> <urn:p0> ?n } WHERE { { SELECT (COUNT(*) AS ?n) { ?a <urn:p1> ?b } } ?s ?p ?o }",
    "INSERT DATA { <urn:s0> <urn:p0> 1 } ; DELETE { ?s <urn:p0> 1 } INSERT { ?s <urn:p0> 2 } WHERE { ?s <urn:p0> 1 }",
    "CLEAR GRAPH <urn:g1> ; INSERT { GRAPH <urn:g1> { ?s ?p ?o } } WHERE { GRAPH <urn:g2> { ?s ?p ?o } }",
    "INSERT { ?s <urn:p0> ?g } WHERE { GRAPH ?g { ?s <urn:p1> ?o } }",
    "DELETE { ?s <urn:p0> 0 } WHERE { ?s <urn:p1>* ?o }",
    "WITH <urn:g2> DELETE { ?s <urn:p1> ?o } WHERE { ?s <urn:p1> ?o MINUS { ?s <urn:p0> ?o } }",
    "CLEAR DEFAULT ; INSERT DATA { <urn:s1> <urn:p1> 2 } ; DELETE DATA { <urn:s2> <urn:p1> 1 }",
];

proptest! {
    #[test]
    fn a_draft_that_is_not_overtaken_is_what_the_update_does_now(
        steps in prop::collection::vec((0..READING.len(), 0..4u8, prop::collection::vec((any::<bool>(), quad()), 0..4)), 1..25),
    ) {
        let (mut space, mut serial) = (space(), space());
        for (reading, pieces, between) in steps {
            let reads = update(READING[reading]);
            let draft = space.begin_draft(&reads).unwrap();
            let number = draft.lost().number();
            let before = space.version();
            for (is_insert, (g, s, p, o)) in between {
                let text = format!("{} DATA {{ {} }}", if is_insert { "INSERT" } else { "DELETE" }, quad_text(g, s, p, o));
                change(&mut space, &text);
                change(&mut serial, &text);
            }
            let is_overtaken = space.is_overtaken(number);
            prop_assert!(!is_overtaken || space.version() > before);
            let drafted = draft.run(&QueryLimits::default(), CancelToken::default());
            prop_assert_eq!(drafted.number(), number);
            if is_overtaken {
                prop_assert_eq!(space.commit_drafted(drafted), Err(GraphError::OutOfStep));
                space.end_draft(number);
                continue;
            }
            if pieces == 0 {
                space.commit_drafted(drafted).unwrap();
            } else {
                space.begin_large(LargeChange::of_drafted(drafted).unwrap(), true).unwrap();
                while !space.stage(pieces.into()).unwrap() {}
                space.commit_large().unwrap();
                space.end_draft(number);
            }
            change(&mut serial, READING[reading]);
            prop_assert_eq!((data(&space), space.version()), (data(&serial), serial.version()), "{}", READING[reading]);
        }
        while space.is_untidy() {
            space.tidy(1);
        }
        prop_assert_eq!(space.terms(), rebuilt(&space).terms());
    }
}

#[test]
fn a_draft_is_overtaken_by_what_it_reads_and_by_nothing_else() {
    let mut space = space();
    change(&mut space, "INSERT DATA { <urn:a> <urn:p> 1 }");
    let moved = update("DELETE { ?s <urn:p> ?o } INSERT { ?s <urn:q> ?o } WHERE { ?s <urn:p> ?o }");
    let draft = space.begin_draft(&moved).unwrap();
    let number = draft.lost().number();
    for other in 0..100 {
        change(
            &mut space,
            &format!("INSERT DATA {{ <urn:a> <urn:q> {other} . GRAPH <urn:g> {{ <urn:a> <urn:p> 2 }} }}"),
        );
    }
    assert!(!space.is_overtaken(number));
    // What the update removes may come meanwhile, if it does not read it.
    let drafted = draft.run(&QueryLimits::default(), CancelToken::default());
    space.commit_drafted(drafted).unwrap();
    assert!(space.is_overtaken(number), "it is over");
    let draft = space.begin_draft(&moved).unwrap();
    let number = draft.lost().number();
    change(&mut space, "INSERT DATA { <urn:b> <urn:p> 1 }");
    assert!(space.is_overtaken(number));
    let cancelled = CancelToken::default();
    cancelled.cancel();
    assert_eq!(draft.run(&QueryLimits::default(), cancelled).error(), Some(&GraphError::Cancelled));
    space.end_draft(number);
}

/// What the owner of the data is kept from others by a load: in one go, by the longest piece, and by the last moment.
#[test]
#[ignore = "a measurement"]
#[expect(clippy::disallowed_methods, reason = "a measurement")]
fn how_long_a_load_keeps_the_owner() {
    use std::time::{Duration, Instant};
    let node = |text: String| oxrdf::NamedNode::new_unchecked(text);
    let quad = |number: u64| {
        let property = node(format!("urn:p{}", number % 7));
        let graph = oxrdf::GraphName::DefaultGraph;
        Quad::new(node(format!("urn:load:{number}")), property, oxrdf::Literal::from(number), graph)
    };
    let insert: Vec<Quad> = (0..100_000).map(quad).collect();
    let mut whole = space();
    let began = Instant::now();
    let outcome = whole.edit(&[], &insert).unwrap();
    let _ = outcome.deltas[0].encode();
    let in_one_go = began.elapsed();
    let mut space = space();
    space.begin_large(LargeChange::edit(Vec::new(), insert), true).unwrap();
    let mut longest = Duration::ZERO;
    loop {
        let began = Instant::now();
        let is_ready = space.stage(512).unwrap();
        longest = longest.max(began.elapsed());
        if is_ready {
            break;
        }
    }
    let began = Instant::now();
    space.commit_large().unwrap();
    println!("100 000 quads: in one go {in_one_go:?}, longest piece {longest:?}, last moment {:?}", began.elapsed());
    assert_eq!(data(&space).len(), 100_000);
}
