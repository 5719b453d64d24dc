//! A table of small cases of our own: what SPARQL does here, readable without the W3C's files.

#![allow(clippy::unwrap_used, reason = "tests")]

use tidegate_graph::{GraphError, GraphSpace, Query, QueryAnswer, QueryLimits, SpaceLimits, Update};

const DATA: &str = "INSERT DATA { <e:a> <e:knows> <e:b> . <e:b> <e:knows> <e:c> . <e:a> <e:age> 30 . <e:b> <e:age> 40 .
    <e:a> <e:name> 'Ann' . <e:b> <e:name> 'Bo'@de . <e:c> <e:day> '2024-02-29'^^<http://www.w3.org/2001/XMLSchema#date> .
    GRAPH <e:g1> { <e:a> <e:seen> 1 . <e:b> <e:seen> 2 } GRAPH <e:g2> { <e:a> <e:seen> 1 } }";

/// A query, and its rows in alphabetical order, values separated by a space.
const QUERIES: &[(&str, &[&str])] = &[
    ("SELECT ?o { <e:a> <e:knows> ?o }", &["<e:b>"]),
    ("SELECT ?x ?z { ?x <e:knows> ?y . ?y <e:knows> ?z }", &["<e:a> <e:c>"]),
    ("SELECT ?x { ?x <e:age> ?n FILTER(?n > 35) }", &["<e:b>"]),
    ("SELECT ?x ?n { ?x <e:knows> ?y OPTIONAL { ?y <e:age> ?n } }", &["<e:a> 40", "<e:b> -"]),
    ("SELECT ?x { ?x <e:knows> ?y FILTER NOT EXISTS { ?y <e:age> ?n } }", &["<e:b>"]),
    ("SELECT ?x { ?x <e:knows> ?y MINUS { ?x <e:age> 30 } }", &["<e:b>"]),
    ("SELECT ?x { <e:a> <e:knows>+ ?x }", &["<e:b>", "<e:c>"]),
    ("SELECT ?x { <e:c> ^<e:knows>/^<e:knows> ?x }", &["<e:a>"]),
    ("SELECT (SUM(?n) AS ?s) (COUNT(*) AS ?c) { ?x <e:age> ?n }", &["70 2"]),
    ("SELECT (GROUP_CONCAT(?n; SEPARATOR=',') AS ?l) { SELECT ?n { ?x <e:name> ?n } ORDER BY ?n }", &["Ann,Bo"]),
    ("SELECT ?s { ?s <e:seen> ?o }", &[]),
    ("SELECT ?g ?o { GRAPH ?g { <e:a> <e:seen> ?o } }", &["<e:g1> 1", "<e:g2> 1"]),
    ("SELECT ?s FROM <e:g1> { ?s <e:seen> ?o }", &["<e:a>", "<e:b>"]),
    ("SELECT ?s FROM <e:g1> FROM <e:g2> { ?s <e:seen> ?o }", &["<e:a>", "<e:b>"]),
    ("SELECT ?g FROM NAMED <e:g2> { GRAPH ?g { ?s ?p ?o } }", &["<e:g2>"]),
    ("SELECT ?x { ?x <e:day> ?d FILTER(?d < '2024-03-01'^^<http://www.w3.org/2001/XMLSchema#date>) }", &["<e:c>"]),
    ("SELECT (LANG(?n) AS ?l) { <e:b> <e:name> ?n }", &["de"]),
    ("SELECT ?x ?v { VALUES (?x ?v) { (<e:a> 1) (<e:z> 2) } ?x <e:age> ?n }", &["<e:a> 1"]),
    ("SELECT ?a ?b { ?a <e:age> ?x . ?b <e:age> ?y FILTER(?x < ?y) }", &["<e:a> <e:b>"]),
    ("SELECT ?x { ?x <e:age> ?n } ORDER BY DESC(?n) LIMIT 1", &["<e:b>"]),
    ("SELECT (1/0 AS ?x) {}", &["-"]),
];

/// Updates from the same data, what they add and remove.
const UPDATES: &[(&str, usize, usize)] = &[
    ("INSERT DATA { <e:a> <e:knows> <e:b> }", 0, 0),
    ("DELETE DATA { <e:a> <e:knows> <e:c> }", 0, 0),
    ("DELETE { ?x <e:age> ?n } INSERT { ?x <e:age> ?m } WHERE { ?x <e:age> ?n BIND(?n + 1 AS ?m) }", 2, 2),
    ("DELETE { ?x <e:age> ?n } INSERT { ?x <e:age> ?n } WHERE { ?x <e:age> ?n }", 0, 0),
    ("INSERT DATA { <e:z> <e:p> 1 } ; DELETE DATA { <e:z> <e:p> 1 }", 0, 0),
    ("INSERT { ?n <e:p> 1 } WHERE { ?x <e:age> ?n }", 0, 0),
    ("INSERT { [] <e:of> ?x } WHERE { ?x <e:age> ?n }", 2, 0),
    ("INSERT DATA { _:x <e:p> _:x . _:y <e:p> _:x }", 2, 0),
    ("DELETE WHERE { ?x <e:knows> ?y . ?y <e:age> ?n }", 0, 2),
    ("WITH <e:g1> DELETE { ?s <e:seen> ?o } WHERE { ?s <e:seen> ?o }", 0, 2),
    ("CLEAR GRAPH <e:g1>", 0, 2),
    ("CLEAR GRAPH <e:none>", 0, 0),
    ("DROP NAMED", 0, 3),
    ("CLEAR DEFAULT", 0, 7),
    ("CLEAR ALL", 0, 10),
    ("COPY <e:g1> TO <e:g2>", 1, 0),
    ("MOVE <e:g2> TO <e:g3>", 1, 1),
    ("ADD <e:g1> TO DEFAULT", 2, 0),
    ("CREATE GRAPH <e:new>", 0, 0),
    ("CREATE SILENT GRAPH <e:g1>", 0, 0),
];

fn space() -> GraphSpace {
    let limits = QueryLimits::default();
    let mut space = GraphSpace::new(1, SpaceLimits::default());
    space.update(&Update::parse(DATA, &limits).unwrap(), &limits).unwrap();
    space
}

fn value(term: Option<&oxrdf::Term>) -> String {
    match term {
        None => "-".to_owned(),
        Some(oxrdf::Term::Literal(literal)) => literal.value().to_owned(),
        Some(other) => other.to_string(),
    }
}

#[test]
fn queries_answer_what_the_table_says() {
    let (space, limits) = (space(), QueryLimits::default());
    let snapshot = space.snapshot();
    for (text, expected) in QUERIES {
        let query = Query::parse(text, &limits).unwrap();
        let QueryAnswer::Rows(rows) = query.run(&snapshot, &limits).unwrap() else { continue };
        let row = |row: tidegate_graph::Row| row.iter().map(|term| value(term.as_ref())).collect::<Vec<_>>().join(" ");
        let mut found: Vec<String> = rows.map(|found| row(found.unwrap())).collect();
        found.sort_unstable();
        assert_eq!(found, *expected, "{text}");
    }
}

#[test]
fn updates_change_what_the_table_says_and_can_be_taken_back() {
    let limits = QueryLimits::default();
    for (text, added, removed) in UPDATES {
        let mut space = space();
        let sorted = |space: &GraphSpace| {
            let mut quads: Vec<String> = space.snapshot().quads().map(|quad| quad.to_string()).collect();
            quads.sort_unstable();
            quads
        };
        let before = sorted(&space);
        let outcome = space.update(&Update::parse(text, &limits).unwrap(), &limits).unwrap();
        let found = outcome.deltas.first().map_or((0, 0), |delta| (delta.added.len(), delta.removed.len()));
        assert_eq!(found, (*added, *removed), "{text}");
        assert_eq!(space.version(), 1 + outcome.deltas.len() as u64, "{text}");
        if let Some(delta) = outcome.deltas.first() {
            space.apply_delta(&delta.inverse(space.version() + 1)).unwrap();
        }
        assert_eq!(sorted(&space), before, "{text}");
    }
}

#[test]
fn what_is_no_sparql_is_refused_with_a_place() {
    let limits = QueryLimits::default();
    for text in ["", "SELECT", "SELECT * { ?s ?p }", "INSERT DATA { ?s <e:p> 1 }", "SELECT ?x { ?x x:y 1 }", "\u{0}"] {
        assert!(matches!(Query::parse(text, &limits), Err(GraphError::Syntax(words)) if !words.is_empty()), "{text}");
    }
    let space = &mut space();
    let clash = Update::parse("CREATE GRAPH <e:g1>", &limits).unwrap();
    assert!(matches!(space.update(&clash, &limits), Err(GraphError::Evaluation(_))));
}
