//! Does one test.

use oxrdf::{Dataset, GraphName, NamedNode, Quad};
use sparesults::QueryResultsFormat;
use spargebra::SparqlParser;
use tidegate_graph::{GraphSpace, Query, QueryAnswer, QueryLimits, Row, Snapshot, SpaceLimits, Update};

use crate::compare::{Table, same_dataset, same_graph, same_table, table_of_graph};
use crate::manifest::{Data, Suite, Test};

pub(crate) fn run(suite: &Suite, test: &Test) -> Result<(), String> {
    let limits = QueryLimits::default();
    let text = || suite.text(&test.action);
    let query = || Query::parse_at(&text(), Some(&test.action), &limits);
    let update = || Update::parse_at(&text(), Some(&test.action), &limits);
    let parsed = |outcome: Result<(), tidegate_graph::GraphError>| outcome.map_err(|error| error.to_string());
    let refused = |outcome: Result<(), tidegate_graph::GraphError>| match outcome {
        Ok(()) => Err("accepted".to_owned()),
        Err(_) => Ok(()),
    };
    match test.kind.as_str() {
        "PositiveSyntaxTest" | "PositiveSyntaxTest11" => parsed(query().map(|_| ())),
        "NegativeSyntaxTest" | "NegativeSyntaxTest11" => refused(query().map(|_| ())),
        "PositiveUpdateSyntaxTest11" => parsed(update().map(|_| ())),
        "NegativeUpdateSyntaxTest11" => refused(update().map(|_| ())),
        "QueryEvaluationTest" | "CSVResultFormatTest" => evaluate(suite, test),
        "UpdateEvaluationTest" => apply(suite, test),
        other => Err(format!("a test of the kind {other} is not done here")),
    }
}

fn space(suite: &Suite, data: &Data, more: &[String]) -> GraphSpace {
    let mut space = GraphSpace::new(7, SpaceLimits::default());
    space.restore(1, quads(suite, data, more)).expect("the data fits");
    space
}

fn quads(suite: &Suite, data: &Data, more: &[String]) -> Vec<Quad> {
    let mut quads: Vec<Quad> = data.default.iter().flat_map(|file| suite.quads(file)).collect();
    let more = more.iter().filter(|graph| !data.named.iter().any(|(name, _)| name == *graph)).map(|file| (file, file));
    for (name, file) in data.named.iter().map(|(name, file)| (name, file)).chain(more) {
        let graph = GraphName::from(NamedNode::new_unchecked(name));
        quads.extend(suite.quads(file).into_iter().map(|quad| Quad { graph_name: graph.clone(), ..quad }));
    }
    quads
}

fn evaluate(suite: &Suite, test: &Test) -> Result<(), String> {
    let limits = QueryLimits::default();
    let text = suite.text(&test.action);
    let query = Query::parse_at(&text, Some(&test.action), &limits).map_err(|error| error.to_string())?;
    let algebra = SparqlParser::new().with_base_iri(&test.action).unwrap().parse_query(&text).unwrap();
    let from: Vec<String> = algebra.dataset().map_or_else(Vec::new, |graphs| {
        let all = graphs.default.iter().chain(graphs.named.iter().flatten());
        all.map(|graph| graph.as_str().to_owned()).collect()
    });
    // Graphs of FROM are files of the suite.
    let snapshot = space(suite, &test.data, &from).snapshot();
    let expected = test.result.as_ref().ok_or("no result")?;
    match query.run(&snapshot, &limits).map_err(|error| error.to_string())? {
        QueryAnswer::Triples(triples) => {
            let found = triples.collect::<Result<oxrdf::Graph, _>>().map_err(|error| error.to_string())?;
            same_graph(found, suite.graph(expected))
        }
        QueryAnswer::Boolean(holds) => same_table(&Table::Boolean(holds), &table(suite, expected)?, false, false),
        QueryAnswer::Rows(rows) => {
            let variables = rows.variables().iter().map(|variable| variable.as_str().to_owned()).collect();
            let rows: Vec<Row> = rows.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
            let rows = rows.iter().map(|row| row.to_vec()).collect();
            let ordered = text.contains("ORDER BY");
            same_table(&Table::Rows { variables, rows }, &table(suite, expected)?, ordered, test.lax)
        }
    }
}

fn table(suite: &Suite, file: &str) -> Result<Table, String> {
    let extension = file.rsplit_once('.').map_or("", |(_, extension)| extension);
    match QueryResultsFormat::from_extension(extension) {
        Some(QueryResultsFormat::Csv) => Err("CSV forgets the kinds of terms".to_owned()),
        Some(format) => crate::compare::table_of_results(&suite.bytes(file), format),
        None => table_of_graph(&suite.graph(file)),
    }
}

fn apply(suite: &Suite, test: &Test) -> Result<(), String> {
    let limits = QueryLimits::default();
    let mut space = space(suite, &test.data, &[]);
    let update = Update::parse_at(&suite.text(&test.action), Some(&test.action), &limits);
    let before = space.snapshot();
    let outcome =
        space.update(&update.map_err(|error| error.to_string())?, &limits).map_err(|error| error.to_string())?;
    // The delta is exactly the difference.
    let mut followed: Dataset = before.quads().collect();
    for delta in &outcome.deltas {
        for quad in &delta.removed {
            assert!(followed.remove(quad), "{quad}");
        }
        for quad in &delta.added {
            assert!(followed.insert(quad), "{quad}");
        }
    }
    assert_eq!(followed, dataset(&space.snapshot()), "{}", test.name);
    same_dataset(followed, quads(suite, &test.result_data, &[]).into_iter().collect())
}

fn dataset(snapshot: &Snapshot) -> Dataset {
    snapshot.quads().collect()
}
