//! What the scanner adds to the parser: `cargo bench -p tidegate-graph --bench parse`. `parser` is spargebra alone; `whole`
//! is a query as it is read here, from the scanner to the plan.
#![allow(clippy::unwrap_used, reason = "a benchmark")]

use divan::Bencher;
use spargebra::SparqlParser;
use tidegate_graph::{Query, QueryLimits, Update};

const SMALL: &str = "SELECT ?v { <urn:lamp> <urn:state> ?v }";
const MIDDLE: &str = "PREFIX s: <http://www.w3.org/ns/sosa/> PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>
    SELECT ?sensor (AVG(?value) AS ?mean) { ?o a s:Observation ; s:madeBySensor ?sensor ; s:hasSimpleResult ?value ;
    s:resultTime ?time . OPTIONAL { ?sensor s:isHostedBy ?room } FILTER(?value > 20.5 && ?value < 30 && BOUND(?room))
    FILTER(?time >= '2026-01-01T00:00:00Z'^^xsd:dateTime) } GROUP BY ?sensor HAVING(COUNT(*) > 3) ORDER BY ?mean LIMIT 10";

fn main() {
    divan::main();
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
