//! What the scanner and the plan add to the parser: `cargo bench -p tidegate-graph --bench parse`. `parser` is spargebra
//! alone; `whole` is a query as it is read here, from the scanner to the plan.
//!
//! On a busy machine count instructions instead: run the program under `valgrind --tool=callgrind` with the arguments
//! `count parser 100` and `count whole 100`. It then reads each text so often, and nothing else.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a benchmark")]

use divan::Bencher;
use spargebra::SparqlParser;
use tidegate_graph::{Query, QueryLimits, Update};

/// Texts as they are written every day.
const ORDINARY: [&str; 10] = [
    "SELECT ?v { <urn:lamp> <urn:state> ?v }",
    "SELECT * WHERE { ?s ?p ?o } LIMIT 100",
    "ASK { <http://home.test/door> <http://home.test/isOpen> true }",
    "PREFIX h: <http://home.test/> SELECT ?room ?t WHERE { ?room a h:Room ; h:temperature ?t . FILTER(?t > 21.5) } ORDER BY DESC(?t)",
    "PREFIX h: <http://home.test/> CONSTRUCT { ?lamp h:near ?person } WHERE { ?lamp h:in ?room . ?person h:in ?room }",
    "PREFIX h: <http://home.test/> SELECT DISTINCT ?device { { ?device h:state 'on' } UNION { ?device h:state \"standby\"@en } MINUS { ?device a h:Fridge } }",
    "PREFIX foaf: <http://xmlns.com/foaf/0.1/> SELECT ?name (COUNT(?friend) AS ?count) WHERE { ?person foaf:name ?name ; foaf:knows ?friend . } GROUP BY ?person ?name",
    "SELECT ?s WHERE { ?s <http://home.test/partOf>+/<http://home.test/label> ?label FILTER(REGEX(STR(?label), '^kit', 'i') && LANG(?label) = 'en') }",
    "PREFIX h: <http://home.test/> SELECT ?sensor ?value WHERE { VALUES ?sensor { h:a h:b h:c h:d } ?sensor h:value ?value OPTIONAL { ?sensor h:unit ?unit } BIND(?value * 1.8 + 32 AS ?fahrenheit) }",
    MIDDLE,
];
const SMALL: &str = ORDINARY[0];
const MIDDLE: &str = "PREFIX s: <http://www.w3.org/ns/sosa/> PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>
    SELECT ?sensor (AVG(?value) AS ?mean) { ?o a s:Observation ; s:madeBySensor ?sensor ; s:hasSimpleResult ?value ;
    s:resultTime ?time . OPTIONAL { ?sensor s:isHostedBy ?room } FILTER(?value > 20.5 && ?value < 30 && BOUND(?room))
    FILTER(?time >= '2026-01-01T00:00:00Z'^^xsd:dateTime) } GROUP BY ?sensor HAVING(COUNT(*) > 3) ORDER BY ?mean LIMIT 10";

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["count", what, times] => count(what, times.parse().unwrap()),
        _ => divan::main(),
    }
}

fn count(what: &str, times: usize) {
    let limits = QueryLimits::default();
    for text in ORDINARY.iter().flat_map(|text| std::iter::repeat_n(text, times)) {
        match what {
            "parser" => drop(divan::black_box(SparqlParser::new().parse_query(text).unwrap())),
            "whole" => drop(divan::black_box(Query::parse(text, &limits).unwrap())),
            _ => panic!("count parser or whole"),
        }
    }
}

#[divan::bench(args = [SMALL, MIDDLE])]
fn parser(bencher: Bencher<'_, '_>, text: &str) {
    bencher.bench(|| SparqlParser::new().parse_query(text).unwrap());
}

#[divan::bench(args = [SMALL, MIDDLE])]
fn whole(bencher: Bencher<'_, '_>, text: &str) {
    let limits = QueryLimits::default();
    bencher.bench(|| Query::parse(text, &limits).unwrap());
}

fn data() -> String {
    let triples: String = (0..1000).fold(String::new(), |text, n| text + &format!("<urn:s{n}> <urn:p> '{n}' . "));
    format!("INSERT DATA {{ {triples} }}")
}

#[divan::bench]
fn parser_of_data(bencher: Bencher<'_, '_>) {
    let text = data();
    bencher.bench(|| SparqlParser::new().parse_update(&text).unwrap());
}

#[divan::bench]
fn whole_of_data(bencher: Bencher<'_, '_>) {
    let (text, limits) = (data(), QueryLimits::default());
    bencher.bench(|| Update::parse(&text, &limits).unwrap());
}
