//! No text or document that is accepted needs more stack than a quarter of what `PARSE_STACK_BYTES` says, from the parser
//! to the drop. `TIDEGATE_STACK_KIB` runs the same with another stack, to find out how much they do need.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::thread;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tidegate_graph::{GraphError, GraphSpace, PARSE_STACK_BYTES, Query, QueryAnswer, QueryLimits, SpaceLimits, Update};

fn stack_bytes() -> usize {
    let kib = std::env::var("TIDEGATE_STACK_KIB").ok().and_then(|text| text.parse::<usize>().ok());
    kib.map_or(PARSE_STACK_BYTES / 4, |kib| kib << 10)
}

fn on_a_small_stack(work: impl FnOnce() + Send + 'static) {
    thread::Builder::new().stack_size(stack_bytes()).spawn(work).unwrap().join().unwrap();
}

/// Everything that is done with a text: parse, plan, write out, evaluate, subscribe to, drop. True if no limit of texts refused it.
fn whole_chain(text: &str, space: &mut GraphSpace) -> bool {
    let limits = QueryLimits { steps_max: 1000, ..QueryLimits::default() };
    let query = Query::parse(text, &limits);
    let is_accepted = !matches!(&query, Err(error) if error.limit().is_some());
    if let Ok(query) = query {
        let _ = (query.canonical(), format!("{query:?}").len(), query.is_cheap(), query.clone() == query);
        let snapshot = space.snapshot();
        match query.run(&snapshot, &limits) {
            Ok(QueryAnswer::Rows(rows)) => drop(rows.take(10).collect::<Result<Vec<_>, GraphError>>()),
            Ok(QueryAnswer::Triples(triples)) => drop(triples.take(10).collect::<Result<Vec<_>, GraphError>>()),
            Ok(QueryAnswer::Boolean(_)) | Err(_) => {}
        }
        if let Ok(subscribed) = space.subscribe(&query) {
            space.unsubscribe(subscribed.subscriber).unwrap();
        }
    }
    if let Ok(update) = Update::parse(text, &limits) {
        let _ = (format!("{update:?}").len(), space.update(&update, &limits));
    }
    is_accepted
}

fn space() -> GraphSpace {
    let standing = QueryLimits { steps_max: 1000, ..QueryLimits::default() };
    let mut space = GraphSpace::new(1, SpaceLimits { standing, ..SpaceLimits::default() });
    let limits = QueryLimits::default();
    let data = "INSERT DATA { <urn:a> <urn:p> <urn:b>, 1 . <urn:b> <urn:p> <urn:a> }";
    space.update(&Update::parse(data, &limits).unwrap(), &limits).unwrap();
    space
}

/// What can be put into itself: before, after, and whether it is a pattern or an expression inside and out.
const NESTS: [(&str, &str); 31] = [
    ("P{ ", " P}"),
    ("P{ ?s ?p ?o OPTIONAL { P", "P } }"),
    ("P{ ?s ?p ?o MINUS { P", "P } }"),
    ("P{ ?s ?p ?o LATERAL { P", "P } }"),
    ("P{ { P", "P } UNION { ?s ?p ?o } }"),
    ("P{ ?a ?b ?c . { P", "P } }"),
    ("PGRAPH ?g { P", "P }"),
    ("P{ SELECT * { P", "P } }"),
    (
        "P{ SELECT DISTINCT ?s (COUNT(?o) AS ?n) { ?s ?p ?o P",
        "P } GROUP BY ?s HAVING(1) ORDER BY ?s LIMIT 3 VALUES ?s { 1 } }",
    ),
    ("P?s ?p ?o FILTER(E", "E)P"),
    ("P?s ?p ?o FILTER EXISTS { P", "P }P"),
    ("P?s ?p ?o BIND(E", "E AS ?v)P"),
    ("P?s ?p ?o FILTER <urn:f>(E", "E)P"),
    ("E(E", "E)E"),
    ("E(1 + E", "E)E"),
    ("E(E", "E * 2)E"),
    ("E(?s || E", "E)E"),
    ("E(?s && E", "E)E"),
    ("E(1 < E", "E)E"),
    ("E-(E", "E)E"),
    ("E!(E", "E)E"),
    ("ESTR(E", "E)E"),
    ("EIF(1, E", "E, 2)E"),
    ("ECOALESCE(1, E", "E)E"),
    ("ECONCAT('a', E", "E)E"),
    ("E<urn:f>(E", "E)E"),
    ("E(?s IN (E", "E))E"),
    ("EREGEX(E", "E, 'a')E"),
    ("EEXISTS { P", "P }E"),
    ("ENOT EXISTS { ?s ?p ?o P", "P }E"),
    ("E(1 NOT IN (1, E", "E))E"),
];

/// A text of nests, the outermost first; those that do not fit what is around them are left out.
fn built(nests: impl IntoIterator<Item = usize>) -> String {
    let (mut open, mut close, mut inside) = (String::from("SELECT * { "), Vec::new(), b'P');
    for nest in nests {
        let (before, after) = NESTS[nest];
        if before.as_bytes()[0] != inside {
            continue;
        }
        open.push_str(&before[1..before.len() - 1].replace(" P", " "));
        inside = before.as_bytes()[before.len() - 1];
        let after = after.trim_start_matches(['P', 'E']).trim_end_matches(['P', 'E']);
        close.push(format!("{after} "));
    }
    let middle = if inside == b'P' { " ?s ?p ?o " } else { " 1 " };
    close.push(String::from("}"));
    let close: String = close[..close.len() - 1].iter().rev().map(String::as_str).collect();
    format!("{open}{middle}{close} }}")
}

#[test]
fn the_deepest_accepted_texts_need_a_quarter_of_the_stack() {
    on_a_small_stack(|| {
        let mut space = space();
        let counts =
            [100_000, 50_000, 4090, 2040, 1000, 400, 380, 370, 200, 127, 126, 124, 120, 100, 62, 60, 50, 20, 10];
        for (before, middle, after) in [
            ("ASK { ?s <urn:p>* 1", ",1", "}"),
            ("DELETE WHERE { GRAPH <urn:g> { <urn:s> <urn:p> 1", ",1", "} }"),
            ("DELETE WHERE { GRAPH <urn:g> { <urn:s> <urn:p> (", " 1", ") } }"),
            ("ASK { ", "?s ?p ?o .", "}"),
            ("ASK { ", "<urn:a> <urn:p> 1 .", "}"),
            ("SELECT * {} GROUP BY ", "STR(?a)", ""),
            ("SELECT ?a {} GROUP BY ?a HAVING ", "(1)", ""),
            ("ASK { ?s ?p true ", "FILTER(1)", "}"),
            ("ASK { ?s ?p 1", "FILTER(1)", "}"),
            ("DESCRIBE ", "<urn:a> ", ""),
            ("ASK { FILTER(", "true-", "1) }"),
            ("ASK { FILTER(", "1+", "1) }"),
            ("ASK { FILTER(", "?s||", "1) }"),
            ("ASK { FILTER(", "!", "1) }"),
            ("ASK { ?s ", "<urn:p>/", "<urn:p> ?o }"),
            ("ASK { ?s ", "<urn:p>*/", "<urn:p> ?o }"),
            ("ASK { ?s ", "<urn:p>|", "<urn:p> ?o }"),
            ("ASK { ", "{} UNION ", "{} }"),
            ("ASK { ", "OPTIONAL { ?s ?p ?o }", "}"),
            ("ASK { ", "MINUS { ?s ?p ?o }", "}"),
            ("ASK { ", "GRAPH ?g { ?s ?p ?o }", "}"),
            ("ASK { ", "VALUES ?x { 1 }", "}"),
            ("ASK { ", "<<", "}"),
            ("ASK { FILTER(", "<<(", ") }"),
            ("INSERT DATA { <urn:a> <urn:p> 1", ",1", "}"),
            ("INSERT DATA { <urn:a> <urn:p> (", " 1", ") }"),
        ] {
            let text = |count: usize| format!("{before}{}{after}", middle.repeat(count));
            assert!(counts.iter().any(|count| whole_chain(&text(*count), &mut space)), "{before}{middle}{after}");
        }
        for (open, close) in
            [("(", ")"), ("(", ")*"), ("^(", ")"), ("!(", ")"), ("(<urn:p>/", ")+"), ("(<urn:p>|", ")")]
        {
            let text = |depth: usize| format!("ASK {{ ?s {}<urn:p>{} ?o }}", open.repeat(depth), close.repeat(depth));
            assert!((1..130).rev().any(|depth| whole_chain(&text(depth), &mut space)), "{open}");
        }
        for (open, close) in [("[ <urn:p> ", "]"), ("(", ")"), ("([ <urn:p> ", "])"), ("1 {| <urn:p> ", "|}")] {
            for (before, after) in
                [("ASK { ?s <urn:p> ", "}"), ("ASK { ", "}"), ("INSERT DATA { <urn:a> <urn:p> ", "}")]
            {
                let text = |depth: usize| format!("{before}{}1{}{after}", open.repeat(depth), close.repeat(depth));
                assert!((1..130).rev().any(|depth| whole_chain(&text(depth), &mut space)), "{before} {open}");
            }
        }
        for nest in 0..NESTS.len() {
            // An expression needs a pattern around it, and a pattern in an expression is one again.
            let text = |depth: usize| built([9, nest].into_iter().cycle().take(2 * depth));
            assert!((1..130).rev().any(|depth| whole_chain(&text(depth), &mut space)), "{}", text(2));
            let text = |depth: usize| built([9].into_iter().chain(std::iter::repeat_n(nest, depth)));
            assert!((1..130).rev().any(|depth| whole_chain(&text(depth), &mut space)), "{}", text(2));
            let text = |depth: usize| built(std::iter::repeat_n(nest, depth));
            assert!((1..130).rev().any(|depth| whole_chain(&text(depth), &mut space)), "{}", text(2));
        }
    });
}

#[test]
fn random_nests_need_a_quarter_of_the_stack() {
    on_a_small_stack(|| {
        let space = std::cell::RefCell::new(space());
        let nests = prop::collection::vec(0..NESTS.len(), 300);
        let mut runner = TestRunner::new(Config { cases: 32, failure_persistence: None, ..Config::default() });
        let outcome = runner.run(&nests, |nests| {
            // The longest beginning that is accepted.
            let text = |count: usize| built(nests[..count].iter().copied());
            prop_assert!((1..nests.len()).rev().any(|count| whole_chain(&text(count), &mut space.borrow_mut())));
            Ok(())
        });
        outcome.unwrap();
    });
}
