//! Rows F091 to F108 of the fault catalogue that concern the graph. No test measures time: what is bounded is counted.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::thread;

use oxrdf::{GraphName, Literal, NamedNode, Quad};
use tidegate_graph::{
    CatchUp, GraphError, GraphSpace, Limit, Mask, Query, QueryAnswer, QueryLimits, QueryRefusal, QueueLimits,
    SpaceLimits, SubscriberEvent, Update,
};

fn iri(text: &str) -> NamedNode {
    NamedNode::new_unchecked(text)
}

fn quad(n: usize) -> Quad {
    Quad::new(iri(&format!("e:s{n}")), iri("e:p"), Literal::from(n as u64), GraphName::DefaultGraph)
}

fn space(quads: usize) -> GraphSpace {
    let mut space = GraphSpace::new(1, SpaceLimits::default());
    space.edit(&[], &(0..quads).map(quad).collect::<Vec<_>>()).unwrap();
    space
}

fn update(space: &mut GraphSpace, text: &str) -> Result<Vec<tidegate_graph::QuadDelta>, GraphError> {
    let limits = QueryLimits::default();
    Ok(space.update(&Update::parse(text, &limits)?, &limits)?.deltas)
}

/// All of a result, or the error it ended with.
fn answer(space: &GraphSpace, text: &str, limits: &QueryLimits) -> Result<usize, GraphError> {
    let snapshot = space.snapshot();
    match Query::parse(text, limits)?.run(&snapshot, limits)? {
        QueryAnswer::Rows(rows) => rows.collect::<Result<Vec<_>, _>>().map(|rows| rows.len()),
        QueryAnswer::Triples(triples) => triples.collect::<Result<Vec<_>, _>>().map(|triples| triples.len()),
        QueryAnswer::Boolean(holds) => Ok(usize::from(holds)),
    }
}

#[test]
fn f091_a_cartesian_product_ends_at_each_budget() {
    let space = space(300);
    let product = "SELECT * { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i }";
    let limited = |limits: QueryLimits| answer(&space, product, &limits);
    assert_eq!(limited(QueryLimits { rows_max: 1000, ..QueryLimits::default() }), Err(Limit::Rows.into()));
    assert_eq!(limited(QueryLimits { steps_max: 1000, ..QueryLimits::default() }), Err(Limit::Steps.into()));
    assert_eq!(
        limited(QueryLimits { result_bytes_max: 10_000, ..QueryLimits::default() }),
        Err(Limit::ResultBytes.into())
    );
    let counted = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i }";
    let few_steps = QueryLimits { steps_max: 100_000, ..QueryLimits::default() };
    assert_eq!(answer(&space, counted, &few_steps), Err(Limit::Steps.into()));
}

#[test]
fn f091_f108_a_cancelled_query_ends_at_its_next_row_and_holds_nothing() {
    let space = space(300);
    for text in ["SELECT * { ?a ?b ?c . ?d ?e ?f }", "CONSTRUCT { ?a ?b ?f } WHERE { ?a ?b ?c . ?d ?e ?f }"] {
        let limits = QueryLimits::default();
        let snapshot = space.snapshot();
        let results = Query::parse(text, &limits).unwrap().run(&snapshot, &limits).unwrap();
        let mut left: Box<dyn Iterator<Item = Result<(), GraphError>>> = match results {
            QueryAnswer::Rows(rows) => Box::new(rows.map(|row| row.map(|_| ()))),
            QueryAnswer::Triples(triples) => Box::new(triples.map(|triple| triple.map(|_| ()))),
            QueryAnswer::Boolean(_) => panic!("no rows"),
        };
        assert_eq!(left.next(), Some(Ok(())));
        limits.cancel.cancel();
        assert_eq!(left.next(), Some(Err(GraphError::Cancelled)));
        assert_eq!(left.next(), None);
    }
    // Ten thousand clients that go away after the first row: the results are values, and go with them.
    let limits = QueryLimits::default();
    let query = Query::parse("SELECT * { ?a ?b ?c . ?d ?e ?f }", &limits).unwrap();
    let snapshot = space.snapshot();
    for _ in 0..10_000 {
        let QueryAnswer::Rows(mut rows) = query.run(&snapshot, &limits).unwrap() else { panic!("no rows") };
        assert!(rows.next().is_some());
    }
}

#[test]
fn f091_products_that_read_nothing_are_cancelled_too() {
    let space = space(1);
    let values = |name: &str| format!("VALUES ?{name} {{ {} }} ", "1 ".repeat(100));
    let text = |names: &[&str]| {
        let tables: String = names.iter().map(|name| values(name)).collect();
        format!("SELECT (COUNT(*) AS ?n) {{ {tables} }}")
    };
    let unions = |count: usize| format!("SELECT (COUNT(*) AS ?n) {{ {} }}", "{ {} UNION {} UNION {} }".repeat(count));
    for text in [text(&["a", "b", "c"]), unions(6)] {
        let limits = QueryLimits::default();
        assert_eq!(answer(&space, &text, &limits), Ok(1));
        limits.cancel.cancel();
        assert_eq!(answer(&space, &text, &limits), Err(GraphError::Cancelled));
    }
    for text in [text(&["a", "b", "c", "d"]), unions(13)] {
        let limit = answer(&space, &text, &QueryLimits::default()).map_err(|error| error.limit());
        assert_eq!(limit, Err(Some(Limit::Chain)));
    }
}

#[test]
fn f091_an_update_that_is_cancelled_or_too_large_changes_nothing() {
    let mut space = space(300);
    let limits = QueryLimits { steps_max: 5000, ..QueryLimits::default() };
    let text = "INSERT { ?a <e:q> ?f } WHERE { ?a ?b ?c . ?d ?e ?f }";
    let product = Update::parse(text, &limits).unwrap();
    assert_eq!(space.update(&product, &limits), Err(Limit::Steps.into()));
    let limits = QueryLimits::default();
    limits.cancel.cancel();
    assert_eq!(space.update(&product, &limits), Err(GraphError::Cancelled));
    assert_eq!((space.version(), space.snapshot().len()), (1, 300));
}

/// As deep as a text of this shape may be.
fn nested(open: &str, middle: &str, close: &str, depth: usize) -> String {
    format!("{}{middle}{}", open.repeat(depth), close.repeat(depth))
}

#[test]
fn f092_nesting_is_refused_before_it_is_parsed() {
    let space = space(3);
    let limits = QueryLimits::default();
    for depth in [1000, 5000, 50_000] {
        for text in [
            format!("SELECT * {{ ?s ?p ?o FILTER({}) }}", nested("(", "1", ")", depth)),
            format!("SELECT * {{ ?s {} ?o }}", nested("(", "<e:p>", ")*", depth)),
            format!("SELECT * {}", nested("{ ?s ?p ?o OPTIONAL ", "{}", "}", depth)),
            format!("SELECT * {}", nested("{ SELECT * ", "{}", "}", depth)),
            format!("SELECT * {{ ?s <e:p> {} }}", nested("[ <e:p> ", "1", "]", depth)),
            format!("SELECT * {{ ?s <e:p> {} }}", nested("(", "1", ")", depth)),
            format!("SELECT * {{ {} {{}} }}", "{} UNION ".repeat(depth)),
            format!("SELECT * {{ ?s ?p ?o FILTER({} true) }}", "!".repeat(depth)),
            format!("SELECT * {{ ?s ?p ?o FILTER({} 1) }}", "1 + ".repeat(depth)),
            format!("SELECT * {{ ?s ?p ?o FILTER({}true) }}", "?s || ".repeat(depth)),
            format!("SELECT * {{ ?s {}<e:p> ?o }}", "<e:p>/".repeat(depth)),
            format!("SELECT * {{ {} }}", "?s ?p ?o . ".repeat(depth)),
        ] {
            let outcome = answer(&space, &text, &limits);
            let limit = outcome.map_err(|error| error.limit());
            assert!(
                matches!(limit, Err(Some(Limit::Depth | Limit::Chain | Limit::Patterns | Limit::TextBytes))),
                "{limit:?}"
            );
        }
    }
}

#[test]
fn f092_the_deepest_accepted_queries_fit_a_small_stack() {
    // Two megabytes are what a thread gets if nobody asks for more.
    let worker = thread::Builder::new().stack_size(2 << 20).spawn(|| {
        let limits = QueryLimits::default();
        let (depth, chain, groups) = (limits.depth_max, limits.chain_max, 32);
        let space = space(3);
        for text in [
            format!("SELECT * {{ ?s ?p ?o FILTER({}) }}", nested("(", "1", ")", depth - 2)),
            format!("SELECT * {{ ?s ?p ?o FILTER({}) }}", nested("(1 + ", "1", ")", chain - 6)),
            format!("SELECT * {}", nested("{ ?s ?p ?o OPTIONAL ", "{}", "}", groups - 1)),
            format!("SELECT * {}", nested("{ SELECT * ", "{}", "}", groups - 1)),
            format!("SELECT * {{ ?s <e:p> {} }}", nested("[ <e:p> ", "1", "]", depth - 1)),
            format!("SELECT * {{ {} {{}} }}", "{} UNION ".repeat(chain / 2 - 2)),
            format!("SELECT * {{ ?s ?p ?o {} }}", "OPTIONAL { ?s ?p ?o } ".repeat(chain / 2 - 2)),
            format!("SELECT * {{ ?s ?p ?o FILTER({} 1) }}", "1 + ".repeat(chain - 4)),
            // Each of these is read again by the one around it: few are refused as too many (`Limit::Reads`).
            format!("SELECT * {{ ?s ?p ?o FILTER({}) }}", nested("!(", "true", ")", 12)),
            format!("ASK {{ ?s {}<e:p> ?o }}", "<e:p>/".repeat(chain - 4)),
            format!("ASK {{ ?s {}<e:p> ?o }}", "<e:p>|".repeat(chain - 4)),
        ] {
            let outcome = answer(&space, &text, &limits);
            assert!(outcome.is_ok(), "{outcome:?} {text}");
        }
    });
    worker.unwrap().join().unwrap();
}

#[test]
fn f092_paths_over_a_cycle_end() {
    let mut space = space(0);
    update(&mut space, "INSERT DATA { <e:a> <e:p> <e:b> . <e:b> <e:p> <e:c> . <e:c> <e:p> <e:a> }").unwrap();
    let limits = QueryLimits::default();
    assert_eq!(answer(&space, "SELECT * { <e:a> (<e:p>|^<e:p>)* ?o }", &limits), Ok(3));
    assert_eq!(answer(&space, "SELECT * { ?s ((<e:p>*)*)+ ?o }", &limits), Ok(9));
    assert_eq!(answer(&space, "SELECT * { ?s !(<e:q>) ?o }", &limits), Ok(3));
}

#[test]
fn f093_values_do_not_grow_without_bound() {
    let space = space(2000);
    let limits = QueryLimits { value_bytes_max: 1 << 16, ..QueryLimits::default() };
    let doubled = (0..40).fold(String::from("BIND('xxxxxxxxxxxxxxxx' AS ?v0) "), |text, n| {
        format!("{text}BIND(CONCAT(?v{n}, ?v{n}) AS ?v{}) ", n + 1)
    });
    let long = "y".repeat(1000);
    for text in [
        format!("SELECT * {{ {doubled} }}"),
        format!("SELECT (REPLACE(REPLACE(REPLACE('{long}', 'y', '{long}'), 'y', '{long}'), 'y', '{long}') AS ?x) {{}}"),
        format!("SELECT (GROUP_CONCAT(CONCAT(STR(?s), '{long}')) AS ?x) {{ ?s ?p ?o }}"),
        format!("SELECT (GROUP_CONCAT(STR(?s); SEPARATOR='{long}') AS ?x) {{ ?s ?p ?o }}"),
    ] {
        let outcome = answer(&space, &text, &limits);
        assert!(
            matches!(outcome, Err(GraphError::Limit(Limit::ValueBytes | Limit::Memory))),
            "{outcome:?} {}",
            &text[..60]
        );
    }
    let tags = nested("STRLANG(STR(", "'a'", "), 'de')", 20);
    assert_eq!(answer(&space, &format!("SELECT ({tags} AS ?x) {{}}"), &limits), Ok(1));
}

#[test]
fn f093_a_catastrophic_pattern_is_linear_or_refused() {
    let space = space(1);
    let limits = QueryLimits::default();
    let text = format!("ASK {{ FILTER(REGEX('{}b', '^(a+)+$')) }}", "a".repeat(50_000));
    assert_eq!(answer(&space, &text, &limits), Ok(0));
    assert_eq!(answer(&space, "ASK { FILTER(REGEX('a', '((a{1,100}){1,100}){1,100}')) }", &limits), Ok(0));
}

#[test]
fn f094_what_must_be_held_is_bounded() {
    let space = space(2000);
    let limits = QueryLimits { live_terms_max: 20_000, ..QueryLimits::default() };
    for text in [
        "SELECT * { ?a ?b ?c . ?d ?e ?f } ORDER BY ?a ?f",
        "SELECT DISTINCT * { ?a ?b ?c . ?d ?e ?f }",
        "SELECT ?a ?f (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f } GROUP BY ?a ?f",
    ] {
        assert_eq!(answer(&space, text, &limits), Err(Limit::Memory.into()), "{text}");
        assert_eq!(answer(&space, "SELECT DISTINCT ?a { ?a ?b ?c }", &limits), Ok(2000));
    }
}

#[test]
fn f095_nothing_is_fetched() {
    let mut space = space(1);
    let limits = QueryLimits::default();
    for text in [
        "SELECT * { SERVICE <http://169.254.169.254/latest> { ?s ?p ?o } }",
        "SELECT * { ?s ?p ?x SERVICE ?x { ?s ?p ?o } }",
        "SELECT * { SERVICE SILENT <http://localhost/> { ?s ?p ?o } }",
        "ASK { FILTER EXISTS { SERVICE <http://localhost/> {} } }",
    ] {
        assert_eq!(answer(&space, text, &limits), Err(GraphError::Refused(QueryRefusal::Service)), "{text}");
    }
    assert_eq!(update(&mut space, "LOAD <file:///etc/passwd>"), Err(GraphError::Refused(QueryRefusal::Load)));
    assert_eq!(update(&mut space, "LOAD SILENT <file:///etc/passwd> INTO GRAPH <e:g>"), Ok(Vec::new()));
    // FROM names a graph of the dataset, never a place to fetch it from.
    assert_eq!(answer(&space, "SELECT * FROM <http://localhost/data> { ?s ?p ?o }", &limits), Ok(0));
}

#[test]
fn f099_an_update_that_is_too_large_is_refused_as_a_whole() {
    let mut limits = SpaceLimits::default();
    (limits.dataset.term_bytes_max, limits.dataset.change_quads_max) = (1000, 100);
    let mut space = GraphSpace::new(1, limits);
    let data = |count: usize| (0..count).map(|n| format!("<e:s> <e:p> {n} . ")).collect::<Vec<_>>().concat();
    assert_eq!(update(&mut space, &format!("INSERT DATA {{ {} }}", data(101))), Err(Limit::ChangeQuads.into()));
    let long = "x".repeat(2000);
    let half = format!("INSERT DATA {{ <e:a> <e:p> 1 }} ; INSERT DATA {{ <e:s> <e:p> '{long}' }}");
    assert_eq!(update(&mut space, &half), Err(Limit::TermBytes.into()));
    assert_eq!((space.version(), space.snapshot().len(), space.terms()), (0, 0, (0, 0)));
    let blanks = (0..100).map(|n| format!("_:b{n} <e:p> _:c{n} . ")).collect::<Vec<_>>().concat();
    assert_eq!(update(&mut space, &format!("INSERT DATA {{ {blanks} }}")).unwrap()[0].added.len(), 100);
}

#[test]
fn f100_deleting_everything_under_ten_thousand_subscriptions() {
    let mut space = space(500);
    let limits = QueryLimits::default();
    let mut subscribers = Vec::new();
    for n in 0..10_000 {
        let query = Query::parse(&format!("SELECT ?o {{ <e:s{n}> <e:p> ?o }}"), &limits).unwrap();
        subscribers.push(space.subscribe(&query).unwrap().subscriber);
    }
    assert_eq!(update(&mut space, "DELETE WHERE { ?s ?p ?o }").unwrap()[0].removed.len(), 500);
    assert_eq!(space.ready(), subscribers[..500]);
    for subscriber in &subscribers[..500] {
        let Ok(Some(SubscriberEvent::Changed(notification))) = space.poll(*subscriber) else { panic!("nothing") };
        assert_eq!((notification.sequence, notification.delta.removed.len()), (1, 1));
    }
}

#[test]
fn f100_a_standing_query_that_cannot_be_kept_says_so() {
    let mut limits = SpaceLimits::default();
    limits.standing.steps_max = 1000;
    let mut space = GraphSpace::new(1, limits);
    let query = Query::parse("SELECT * { ?a <e:p> ?b . ?c <e:p> ?d }", &QueryLimits::default()).unwrap();
    let subscriber = space.subscribe(&query).unwrap().subscriber;
    space.edit(&[], &(0..100).map(quad).collect::<Vec<_>>()).unwrap();
    assert_eq!(space.poll(subscriber), Ok(Some(SubscriberEvent::Ended(Limit::Steps.into()))));
    assert_eq!((space.poll(subscriber), space.standing_queries()), (Ok(None), 0));
    assert_eq!(space.check(subscriber, 0), Err(GraphError::Unknown));
    assert_eq!(space.unsubscribe(subscriber), Ok(()));
}

#[test]
fn f103_one_subscriber_that_never_polls_costs_the_others_nothing() {
    let queue = QueueLimits { pending_max: 4, ..QueueLimits::default() };
    let mut space = GraphSpace::new(1, SpaceLimits { queue, ..SpaceLimits::default() });
    let everything = [Mask::default()];
    let dead = space.subscribe_masks(&everything).unwrap().subscriber;
    let alive: Vec<_> = (0..99).map(|_| space.subscribe_masks(&everything).unwrap().subscriber).collect();
    assert_eq!(space.standing_queries(), 1);
    for n in 0..1000 {
        space.edit(&[], &[quad(n)]).unwrap();
        for subscriber in &alive {
            let Ok(Some(SubscriberEvent::Changed(notification))) = space.poll(*subscriber) else { panic!("nothing") };
            assert_eq!((notification.sequence, notification.delta.added.len()), (n as u64 + 1, 1));
        }
    }
    let mut rows = 0;
    while let Some(event) = space.poll(dead).unwrap() {
        let SubscriberEvent::Changed(notification) = event else { panic!("{event:?}") };
        rows += notification.delta.added.len();
    }
    assert_eq!(rows, 1000);
}

#[test]
fn f104_equal_queries_are_evaluated_once_however_they_are_written() {
    let mut space = space(1);
    let limits = QueryLimits::default();
    for text in [
        "SELECT ?s { ?s <e:p> ?o }",
        "select  ?s\nwhere { ?s <e:p> ?o . } # a comment",
        "PREFIX e: <e:> SELECT ?s { ?s e:p ?o }",
    ] {
        space.subscribe(&Query::parse(text, &limits).unwrap()).unwrap();
    }
    assert_eq!(space.standing_queries(), 1);
}

#[test]
fn f106_a_snapshot_after_an_update_has_it_and_one_before_has_not() {
    let mut space = space(0);
    for n in 0..100 {
        let before = space.snapshot();
        space.edit(&[], &[quad(n)]).unwrap();
        assert!(!before.contains(quad(n).as_ref()) && space.snapshot().contains(quad(n).as_ref()));
        assert_eq!((before.version() + 1, space.version()), (space.snapshot().version(), n as u64 + 1));
    }
}

#[test]
fn f107_hostile_text_is_a_value_and_nothing_else() {
    let mut space = space(0);
    let hostile = "x> . } ; DROP ALL ; INSERT DATA { <e:a> <e:b> \"\"\"\n\\";
    let term = Literal::new_simple_literal(hostile);
    let quad = Quad::new(iri("e:s"), iri("e:p"), term.clone(), GraphName::DefaultGraph);
    space.edit(&[], std::slice::from_ref(&quad)).unwrap();
    let mask = Mask { object: Some(term.into()), ..Mask::default() };
    assert_eq!(space.subscribe_masks(std::slice::from_ref(&mask)).unwrap().baseline.rows.len(), 1);
    let outcome = space.edit(&[mask], &[]).unwrap();
    assert_eq!(outcome.deltas[0].removed, [quad]);
}

#[test]
fn a_subscriber_that_was_away_learns_exactly_what_it_missed_or_everything() {
    let mut limits = SpaceLimits::default();
    limits.journal.changes_max = 5;
    let mut space = GraphSpace::new(1, limits);
    let query = Query::parse("SELECT ?s { ?s <e:p> ?o }", &QueryLimits::default()).unwrap();
    let subscriber = space.subscribe(&query).unwrap().subscriber;
    (0..3).for_each(|n| drop(space.edit(&[], &[quad(n)]).unwrap()));
    let CatchUp::Missed { sequence, delta, version } = space.check(subscriber, 0).unwrap() else { panic!("fresh") };
    assert_eq!((sequence, delta.added.len(), version, space.poll(subscriber)), (1, 3, 3, Ok(None)));
    (3..20).for_each(|n| drop(space.edit(&[], &[quad(n)]).unwrap()));
    let CatchUp::Fresh(baseline) = space.check(subscriber, 1).unwrap() else { panic!("missed") };
    assert_eq!((baseline.sequence, baseline.rows.len()), (2, 20));
    let CatchUp::Missed { sequence, delta, .. } = space.check(subscriber, 2).unwrap() else { panic!("fresh") };
    assert_eq!((sequence, delta.is_empty()), (3, true));
}
