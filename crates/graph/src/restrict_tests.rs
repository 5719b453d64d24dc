//! Whoever has some rights sees what there would be if the other graphs did not exist.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::query::QueryAnswer;
use crate::rights::GraphNames;
use crate::space::{GraphSpace, SpaceLimits};
use crate::update::Update;

const GRAPHS: [&str; 5] = ["urn:a", "urn:a/1", "urn:b", "urn:b/x.1", "urn:c"];

fn done(space: &mut GraphSpace, text: &str) {
    let limits = QueryLimits::default();
    space.update(&Update::parse(text, &limits).unwrap(), &limits).unwrap();
}

/// Sorted rows, triples or a truth value.
fn answer(space: &GraphSpace, query: &Query) -> Vec<String> {
    let snapshot = space.snapshot();
    let mut found: Vec<String> = match query.run(&snapshot, &QueryLimits::default()).unwrap() {
        QueryAnswer::Rows(rows) => rows.map(|row| format!("{:?}", row.unwrap())).collect(),
        QueryAnswer::Triples(triples) => triples.map(|triple| triple.unwrap().to_string()).collect(),
        QueryAnswer::Boolean(truth) => vec![truth.to_string()],
    };
    found.sort();
    found
}

fn names() -> impl Strategy<Value = GraphNames> {
    let pattern = prop::sample::select(vec![
        "urn:a",
        "urn:b",
        "urn:c",
        "urn:a*",
        "urn:b/*",
        "*1",
        "urn:*/x.*",
        "*",
        "urn:?",
        "urn:b/x.1",
    ]);
    prop_oneof![
        2 => Just(GraphNames::Default),
        1 => Just(GraphNames::Every),
        6 => pattern.prop_map(|text| GraphNames::Matching(text.into())),
    ]
}

fn list() -> impl Strategy<Value = GraphList> {
    let names = || prop::collection::vec(names(), 0..4);
    (names(), prop::collection::vec(self::names(), 0..2)).prop_map(|(allow, deny)| GraphList { allow, deny })
}

/// Each graph's triples, as pairs of a subject and an object; the default graph is the last.
fn data() -> impl Strategy<Value = Vec<Vec<(u8, u8)>>> {
    prop::collection::vec(prop::collection::vec((0..3u8, 0..3u8), 0..4), GRAPHS.len() + 1)
}

fn space_of(data: &[Vec<(u8, u8)>], is_there: impl Fn(Option<&str>) -> bool) -> GraphSpace {
    let mut space = GraphSpace::new(1, SpaceLimits::default());
    for (graph, triples) in data.iter().enumerate() {
        let name = GRAPHS.get(graph).copied();
        if !is_there(name) {
            continue;
        }
        for (subject, object) in triples {
            let triple = format!("<urn:s{subject}> <urn:p> <urn:s{object}>");
            done(
                &mut space,
                &match name {
                    Some(name) => format!("INSERT DATA {{ GRAPH <{name}> {{ {triple} }} }}"),
                    None => format!("INSERT DATA {{ {triple} }}"),
                },
            );
        }
    }
    space
}

const QUERIES: [&str; 28] = [
    "SELECT * { ?s ?p ?o }",
    "SELECT * { <urn:s1> <urn:p> ?o }",
    "SELECT * { GRAPH ?g { ?s ?p ?o } }",
    "SELECT ?g { GRAPH ?g {} }",
    "SELECT DISTINCT ?g { GRAPH ?g { ?s ?p ?o } }",
    "SELECT (COUNT(*) AS ?n) { GRAPH ?g { ?s ?p ?o } }",
    "SELECT ?g (COUNT(?s) AS ?n) { GRAPH ?g { ?s ?p ?o } } GROUP BY ?g",
    "SELECT * { GRAPH <urn:a> { ?s ?p ?o } }",
    "ASK { GRAPH <urn:b> {} }",
    "ASK { GRAPH <urn:b> { ?s ?p ?o } }",
    "SELECT * FROM <urn:a> { ?s ?p ?o }",
    "SELECT * FROM <urn:a> FROM <urn:b> { ?s ?p ?o }",
    "SELECT * FROM NAMED <urn:a> FROM NAMED <urn:c> { GRAPH ?g { ?s ?p ?o } }",
    "SELECT * FROM <urn:b> FROM NAMED <urn:a> { ?s ?p ?o GRAPH ?g { ?s ?q ?r } }",
    "SELECT * { ?s ?p ?o OPTIONAL { GRAPH ?g { ?o ?q ?r } } }",
    "SELECT * { ?s ?p ?o FILTER NOT EXISTS { GRAPH ?g { ?s ?p ?o } } }",
    "SELECT * { GRAPH ?g { ?s ?p ?o FILTER EXISTS { ?o ?q ?r } } }",
    "SELECT * { GRAPH ?g { ?s ?p ?o } MINUS { GRAPH <urn:a> { ?s ?p ?o } } }",
    "SELECT * { GRAPH ?g { ?s <urn:p>+ ?o } }",
    "SELECT * { <urn:s1> <urn:p>* ?o }",
    "SELECT * { GRAPH <urn:c> { <urn:s1> <urn:p>* ?o } }",
    "SELECT * { GRAPH ?g { ?s ?p ?o } GRAPH ?h { ?o ?q ?r } FILTER(?g != ?h) }",
    "SELECT * { VALUES ?g { <urn:a> <urn:b> <urn:none> } GRAPH ?g { ?s ?p ?o } }",
    "SELECT * { GRAPH ?g { { SELECT ?s (COUNT(*) AS ?n) { ?s ?p ?o } GROUP BY ?s } } }",
    "SELECT * { VALUES ?g { <urn:a> } GRAPH ?g { { SELECT (COUNT(*) AS ?n) { ?s ?p ?o } } } }",
    "SELECT * { { GRAPH ?g { ?s ?p ?o } } UNION { GRAPH ?g { { SELECT ?o { ?s ?p ?o } } } } }",
    "CONSTRUCT { ?g <urn:has> ?s } { { GRAPH ?g { ?s ?p ?o } } UNION { ?s ?p ?g } }",
    "DESCRIBE <urn:s1> <urn:s2>",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_answer_is_that_of_a_dataset_without_the_other_graphs(data in data(), read in list()) {
        let limits = QueryLimits::default();
        let whole = space_of(&data, |_| true);
        let visible = space_of(&data, |name| match name {
            Some(name) => read.has_named(oxrdf::NamedNodeRef::new_unchecked(name)),
            None => read.has_default(),
        });
        let rights = GraphRights { read, write: GraphList::default() };
        for text in QUERIES {
            let query = Query::parse(text, &limits).unwrap();
            let restricted = query.clone().restricted(&rights, &limits).unwrap();
            prop_assert_eq!(answer(&whole, &restricted), answer(&visible, &query), "{} with {:?}", text, rights.read);
        }
    }

    #[test]
    fn a_standing_query_tells_of_nothing_that_may_not_be_read(
        before in data(),
        changes in prop::collection::vec((0..=GRAPHS.len(), 0..3u8, 0..3u8, any::<bool>()), 1..8),
        read in list(),
    ) {
        let limits = QueryLimits::default();
        let is_visible = |name: Option<&str>| match name {
            Some(name) => read.has_named(oxrdf::NamedNodeRef::new_unchecked(name)),
            None => read.has_default(),
        };
        let (mut whole, mut visible) = (space_of(&before, |_| true), space_of(&before, is_visible));
        let rights = GraphRights { read: read.clone(), write: GraphList::default() };
        let query = |text: &str| Query::parse(text, &limits).unwrap();
        for text in QUERIES.into_iter().filter(|text| text.starts_with("SELECT")) {
            let told = whole.subscribe(&query(text).restricted(&rights, &limits).unwrap());
            let expected = visible.subscribe(&query(text));
            // What cannot be followed cannot be followed by anybody.
            prop_assert_eq!(told.is_ok(), expected.is_ok(), "{}", text);
            let (Ok(told), Ok(expected)) = (told, expected) else { continue };
            let sorted = |rows: &[crate::query::Row]| {
                let mut rows: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
                rows.sort();
                rows
            };
            let mut rows = told.baseline.rows.clone();
            prop_assert_eq!(sorted(&rows), sorted(&expected.baseline.rows), "{}", text);
            for (graph, subject, object, is_insert) in &changes {
                let name = GRAPHS.get(*graph).copied();
                let triple = format!("<urn:s{subject}> <urn:p> <urn:s{object}>");
                let word = if *is_insert { "INSERT" } else { "DELETE" };
                let update = match name {
                    Some(name) => format!("{word} DATA {{ GRAPH <{name}> {{ {triple} }} }}"),
                    None => format!("{word} DATA {{ {triple} }}"),
                };
                done(&mut whole, &update);
                if is_visible(name) {
                    done(&mut visible, &update);
                }
                while let Ok(Some(crate::subscriber::SubscriberEvent::Changed(event))) = whole.poll(told.subscriber) {
                    for gone in &event.delta.removed {
                        let at = rows.iter().position(|row| row == gone);
                        rows.remove(at.expect("it was there"));
                    }
                    rows.extend(event.delta.added.iter().cloned());
                }
                prop_assert_eq!(sorted(&rows), answer(&visible, &query(text)), "{} after {}", text, update);
            }
            whole.unsubscribe(told.subscriber).unwrap();
            visible.unsubscribe(expected.subscriber).unwrap();
        }
    }
}

fn rights(read: &[&str], write: &[&str]) -> Arc<GraphRights> {
    let list = |names: &[&str]| GraphList {
        allow: names
            .iter()
            .map(|name| if *name == "default" { GraphNames::Default } else { GraphNames::Matching((*name).into()) })
            .collect(),
        deny: Vec::new(),
    };
    Arc::new(GraphRights { read: list(read), write: list(write) })
}

#[test]
fn an_update_that_touches_a_graph_without_the_right_is_refused_whole() {
    let limits = QueryLimits::default();
    let rights = rights(&["urn:a", "urn:b", "default"], &["urn:a"]);
    let mut space = GraphSpace::new(1, SpaceLimits::default());
    done(
        &mut space,
        "INSERT DATA { <urn:x> <urn:p> <urn:c> GRAPH <urn:b> { <urn:x> <urn:p> 1 } GRAPH <urn:c> { <urn:x> <urn:p> 2 } }",
    );
    let before: Vec<_> = space.snapshot().quads().collect();
    for (text, graph) in [
        ("INSERT DATA { GRAPH <urn:a> { <urn:x> <urn:p> 3 } <urn:x> <urn:p> 3 }", "write the default graph"),
        ("DELETE DATA { GRAPH <urn:b> { <urn:x> <urn:p> 1 } }", "write the graph <urn:b>"),
        ("DELETE WHERE { GRAPH <urn:b> { ?s ?p ?o } }", "write the graph <urn:b>"),
        ("DELETE WHERE { GRAPH ?g { ?s ?p ?o } }", "write the graph <urn:b>"),
        ("INSERT { GRAPH ?o { ?s ?p 7 } } WHERE { ?s ?p ?o }", "write the graph <urn:c>"),
        ("INSERT { GRAPH <urn:a> { ?s ?p ?o } } WHERE { GRAPH <urn:c> { ?s ?p ?o } }", "read the graph <urn:c>"),
        ("INSERT { GRAPH <urn:a> { ?s ?p ?o } } USING <urn:c> WHERE { ?s ?p ?o }", "read the graph <urn:c>"),
        ("COPY <urn:c> TO <urn:a>", "read the graph <urn:c>"),
        ("MOVE <urn:b> TO <urn:a>", "write the graph <urn:b>"),
        ("ADD <urn:a> TO DEFAULT", "write the default graph"),
        ("CLEAR ALL", "write every graph"),
        ("DROP NAMED", "write every graph"),
        ("CLEAR DEFAULT", "write the default graph"),
        ("DROP GRAPH <urn:c>", "write the graph <urn:c>"),
        ("CREATE GRAPH <urn:c>", "write the graph <urn:c>"),
        ("INSERT DATA { GRAPH <urn:a> { <urn:x> <urn:p> 3 } } ; CLEAR GRAPH <urn:b>", "write the graph <urn:b>"),
    ] {
        let outcome = Update::parse(text, &limits)
            .and_then(|update| update.restricted(&rights, &limits))
            .and_then(|update| space.update(&update, &limits));
        let error = outcome.expect_err(text).to_string();
        assert!(error.contains(&format!("no right to {graph}")), "{text}: {error}");
        assert_eq!(space.snapshot().quads().collect::<Vec<_>>(), before, "{text}");
    }
    for text in [
        "INSERT DATA { GRAPH <urn:a> { <urn:x> <urn:p> 3 } }",
        "COPY <urn:b> TO <urn:a>",
        "INSERT { GRAPH <urn:a> { ?s ?p ?g } } WHERE { GRAPH ?g { ?s ?p ?o } }",
        "DELETE WHERE { GRAPH <urn:a> { ?s ?p ?o } }",
        "LOAD SILENT <http://192.0.2.1/x> INTO GRAPH <urn:c>",
    ] {
        let update = Update::parse(text, &limits).unwrap().restricted(&rights, &limits).unwrap();
        space.update(&update, &limits).unwrap();
    }
    assert_eq!(
        space.snapshot().quads().collect::<Vec<_>>(),
        before,
        "what was copied is gone again, and no name of c with it"
    );
}

#[test]
fn without_the_right_to_the_default_graph_an_update_cannot_read_it_either() {
    let limits = QueryLimits::default();
    let rights = rights(&["urn:a"], &["urn:a"]);
    let update = |text: &str| Update::parse(text, &limits).unwrap().restricted(&rights, &limits);
    let refused = update("INSERT { GRAPH <urn:a> { ?s ?p ?o } } WHERE { ?s ?p ?o }").unwrap_err().to_string();
    assert_eq!(refused, "no right to read the default graph");
    assert!(update("INSERT { GRAPH <urn:a> { ?s ?p ?o } } WHERE { GRAPH <urn:a> { ?s ?p ?o } }").is_ok());
    assert!(update("INSERT { GRAPH <urn:a> { <urn:x> <urn:p> 1 } } WHERE {}").is_ok(), "nothing is read");
}

#[test]
fn who_may_read_everything_asks_what_it_asked() {
    let limits = QueryLimits::default();
    let all =
        GraphRights { read: GraphList { allow: vec![GraphNames::Every], deny: vec![] }, write: GraphList::default() };
    for text in QUERIES {
        let query = Query::parse(text, &limits).unwrap();
        assert_eq!(query.clone().restricted(&all, &limits).unwrap(), query);
    }
    let default = rights(&["default"], &[]);
    let plain = Query::parse("SELECT * { ?s ?p ?o }", &limits).unwrap();
    assert_eq!(plain.clone().restricted(&default, &limits).unwrap(), plain, "and so does who names nothing else");
}
