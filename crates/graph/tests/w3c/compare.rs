//! Are two results the same, whatever their blank nodes are called?

use std::collections::BTreeMap;

use oxrdf::dataset::CanonicalizationAlgorithm;
use oxrdf::vocab::{rdf, xsd};
use oxrdf::{Dataset, Graph, NamedNodeRef, NamedOrBlankNodeRef, Term, TermRef};
use sparesults::{QueryResultsFormat, QueryResultsParser, SliceQueryResultsParserOutput};

const RS: &str = "http://www.w3.org/2001/sw/DataAccess/tests/result-set#";

/// The result of a `SELECT` or an `ASK`.
#[derive(Debug)]
pub(crate) enum Table {
    Boolean(bool),
    Rows { variables: Vec<String>, rows: Vec<Vec<Option<Term>>> },
}

pub(crate) fn same_graph(mut found: Graph, mut expected: Graph) -> Result<(), String> {
    found.canonicalize(oxrdf::graph::CanonicalizationAlgorithm::Unstable);
    expected.canonicalize(oxrdf::graph::CanonicalizationAlgorithm::Unstable);
    if found == expected { Ok(()) } else { Err(format!("found\n{found}\nexpected\n{expected}")) }
}

pub(crate) fn same_dataset(mut found: Dataset, mut expected: Dataset) -> Result<(), String> {
    found.canonicalize(CanonicalizationAlgorithm::Unstable);
    expected.canonicalize(CanonicalizationAlgorithm::Unstable);
    if found == expected { Ok(()) } else { Err(format!("found\n{found}\nexpected\n{expected}")) }
}

pub(crate) fn table_of_results(bytes: &[u8], format: QueryResultsFormat) -> Result<Table, String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    match QueryResultsParser::from_format(format).for_slice(bytes).map_err(|error| words(&error))? {
        SliceQueryResultsParserOutput::Boolean(holds) => Ok(Table::Boolean(holds)),
        SliceQueryResultsParserOutput::Solutions(solutions) => {
            let variables = solutions.variables().iter().map(|variable| variable.as_str().to_owned()).collect();
            let rows = solutions.map(|solution| solution.map(|row| row.values().to_vec()));
            Ok(Table::Rows { variables, rows: rows.collect::<Result<_, _>>().map_err(|error| words(&error))? })
        }
    }
}

/// A result set written as RDF.
pub(crate) fn table_of_graph(graph: &Graph) -> Result<Table, String> {
    let name = |local: &str| format!("{RS}{local}");
    let kind = name("ResultSet");
    let kind = NamedNodeRef::new_unchecked(&kind);
    let set = graph.subject_for_predicate_object(rdf::TYPE, kind).ok_or("no result set")?;
    let objects = |node: NamedOrBlankNodeRef<'_>, local: &str| -> Vec<Term> {
        let predicate = name(local);
        graph
            .objects_for_subject_predicate(node, NamedNodeRef::new_unchecked(&predicate))
            .map(TermRef::into_owned)
            .collect()
    };
    if let Some(Term::Literal(holds)) = objects(set, "boolean").first() {
        return Ok(Table::Boolean(holds.value() == "true"));
    }
    let value = |term: &Term| match term {
        Term::Literal(literal) => literal.value().to_owned(),
        other => other.to_string(),
    };
    let variables: Vec<String> = objects(set, "resultVariable").iter().map(value).collect();
    let mut rows: Vec<(i64, Vec<Option<Term>>)> = Vec::new();
    for solution in objects(set, "solution") {
        let Some(solution) = holder(&solution) else { continue };
        let mut row = vec![None; variables.len()];
        for binding in objects(solution, "binding") {
            let Some(binding) = holder(&binding) else { continue };
            let (name, bound) = (objects(binding, "variable"), objects(binding, "value"));
            let place = name.first().and_then(|name| variables.iter().position(|known| *known == value(name)));
            if let Some(place) = place {
                row[place] = bound.first().cloned();
            }
        }
        let index = objects(solution, "index").first().and_then(|index| value(index).parse().ok()).unwrap_or(0);
        rows.push((index, row));
    }
    rows.sort_by_key(|(index, _)| *index);
    Ok(Table::Rows { variables, rows: rows.into_iter().map(|(_, row)| row).collect() })
}

fn holder(term: &Term) -> Option<NamedOrBlankNodeRef<'_>> {
    match term {
        Term::NamedNode(node) => Some(node.as_ref().into()),
        Term::BlankNode(node) => Some(node.as_ref().into()),
        Term::Literal(_) => None,
    }
}

/// `lax` compares sets instead of bags.
pub(crate) fn same_table(found: &Table, expected: &Table, ordered: bool, lax: bool) -> Result<(), String> {
    let different = || Err(format!("found {found:?}\nexpected {expected:?}"));
    match (found, expected) {
        (Table::Boolean(a), Table::Boolean(b)) => {
            if a == b {
                Ok(())
            } else {
                different()
            }
        }
        (Table::Rows { variables: a, rows: found }, Table::Rows { variables: b, rows: expected }) => {
            let sorted = |names: &[String]| {
                let mut names = names.to_vec();
                names.sort_unstable();
                names
            };
            if sorted(a) != sorted(b) {
                return different();
            }
            let columns: Vec<usize> = b.iter().map(|name| a.iter().position(|known| known == name).unwrap()).collect();
            let mut found: Vec<Vec<Option<Term>>> =
                found.iter().map(|row| columns.iter().map(|column| row[*column].clone()).collect()).collect();
            let mut expected = expected.clone();
            if lax {
                dedup(&mut found);
                dedup(&mut expected);
            }
            let matches = found.len() == expected.len()
                && assign(&found, &mut expected.into_iter().map(Some).collect(), 0, ordered, &BTreeMap::new());
            if matches { Ok(()) } else { different() }
        }
        _ => different(),
    }
}

fn dedup(rows: &mut Vec<Vec<Option<Term>>>) {
    let mut seen: Vec<Vec<Option<Term>>> = Vec::new();
    rows.retain(|row| {
        let new = !seen.contains(row);
        seen.push(row.clone());
        new
    });
}

/// Finds a place for each row, with one name for each blank node, by trying.
fn assign(
    found: &[Vec<Option<Term>>],
    free: &mut Vec<Option<Vec<Option<Term>>>>,
    place: usize,
    ordered: bool,
    names: &BTreeMap<String, String>,
) -> bool {
    let Some(row) = found.get(place) else { return true };
    let choices = if ordered { place..place + 1 } else { 0..free.len() };
    for choice in choices {
        let Some(candidate) = free[choice].clone() else { continue };
        let Some(names) = fits(row, &candidate, names) else { continue };
        free[choice] = None;
        if assign(found, free, place + 1, ordered, &names) {
            return true;
        }
        free[choice] = Some(candidate);
    }
    false
}

fn fits(
    row: &[Option<Term>],
    candidate: &[Option<Term>],
    names: &BTreeMap<String, String>,
) -> Option<BTreeMap<String, String>> {
    let mut names = names.clone();
    for pair in row.iter().zip(candidate) {
        match pair {
            (Some(Term::BlankNode(a)), Some(Term::BlankNode(b))) => {
                let (a, b) = (a.as_str().to_owned(), b.as_str().to_owned());
                let taken = names.iter().any(|(known, name)| *name == b && *known != a);
                if taken || *names.entry(a).or_insert_with(|| b.clone()) != b {
                    return None;
                }
            }
            (Some(a), Some(b)) if a == b || same_number(a, b) => {}
            (None, None) => {}
            _ => return None,
        }
    }
    Some(names)
}

/// Numbers of one datatype are the same by value: "1" and "1.0" are the same decimal.
fn same_number(a: &Term, b: &Term) -> bool {
    let (Term::Literal(a), Term::Literal(b)) = (a, b) else { return false };
    let numeric = [xsd::DECIMAL, xsd::FLOAT, xsd::DOUBLE];
    let value = |literal: &oxrdf::Literal| literal.value().parse::<f64>().ok();
    a.datatype() == b.datatype() && numeric.contains(&a.datatype()) && value(a).is_some() && value(a) == value(b)
}
