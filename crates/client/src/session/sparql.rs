//! SPARQL as text and as JSON: what triples and patterns are as updates and queries, and what results mean.

use core::fmt::Write;

use serde_json::{Map, Value};
use tidegate_wire_ssap::{Triple, TripleNode};

use super::BrokerRefusal;
use super::row::{Row, Term, write_term};
use crate::limits::ROWS_MAX;
use crate::prelude::*;

/// The rows of a result of SELECT. Nothing at all is no rows.
pub fn rows_of(results: &Value) -> Result<Vec<Row>, BrokerRefusal> {
    let nonsense = |words: &str| BrokerRefusal::Nonsense(words.to_owned());
    let Some(bindings) = results.get("results").and_then(|results| results.get("bindings")) else {
        return Ok(Vec::new());
    };
    let bindings = bindings.as_array().ok_or_else(|| nonsense("bindings that are no list"))?;
    if bindings.len() > ROWS_MAX {
        return Err(nonsense("too many rows"));
    }
    // One text for each name, however many rows.
    let mut names: Vec<Arc<str>> = Vec::new();
    let mut name_of = |name: &str| {
        if let Some(known) = names.iter().find(|known| &***known == name) {
            return Arc::clone(known);
        }
        names.push(name.into());
        Arc::from(name)
    };
    let mut row = |binding: &Map<String, Value>| {
        let terms: Result<Vec<_>, BrokerRefusal> =
            binding.iter().map(|(name, value)| Ok((name_of(name), term_of(value)?))).collect();
        Ok(Row::new(terms?))
    };
    bindings.iter().map(|binding| row(binding.as_object().ok_or_else(|| nonsense("a row that is none"))?)).collect()
}

/// The answer to ASK as a row: `boolean` is true or false, as standing queries have it.
pub fn truth_row(truth: bool) -> Row {
    let datatype = Some("http://www.w3.org/2001/XMLSchema#boolean".to_owned());
    Row::new([(Arc::from("boolean"), Term::Literal { text: truth.to_string(), datatype, language: None })])
}

fn term_of(value: &Value) -> Result<Term, BrokerRefusal> {
    let word = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let (Some(kind), Some(text)) = (word("type"), word("value")) else {
        return Err(BrokerRefusal::Nonsense("a term without type or value".to_owned()));
    };
    match kind.as_str() {
        "uri" => Ok(Term::Uri(text)),
        "bnode" => Ok(Term::Blank(text)),
        "literal" | "typed-literal" => {
            Ok(Term::Literal { text, datatype: word("datatype"), language: word("xml:lang") })
        }
        other => Err(BrokerRefusal::Nonsense(format!("a term of the unknown type {other:?}"))),
    }
}

/// Triples to add and patterns to remove, as one SPARQL update: first what goes, then what comes.
pub fn update_of(insert: &[Triple<'_>], remove: &[Triple<'_>]) -> Result<String, BrokerRefusal> {
    let mut text = String::new();
    for pattern in remove {
        let word = if pattern.is_pattern() { "DELETE WHERE" } else { "DELETE DATA" };
        if matches!(pattern.subject, TripleNode::Blank(_)) || matches!(pattern.object, TripleNode::Blank(_)) {
            return Err(BrokerRefusal::Rejected("a blank node cannot be removed by its label".to_owned()));
        }
        let _ = writeln!(text, "{word} {{ {} }};", statement(pattern)?);
    }
    if !insert.is_empty() {
        text.push_str("INSERT DATA {");
        for triple in insert {
            if triple.is_pattern() {
                return Err(BrokerRefusal::Rejected("a wildcard cannot be inserted".to_owned()));
            }
            let _ = write!(text, " {} .", statement(triple)?);
        }
        text.push_str(" }");
    }
    Ok(text)
}

/// A query whose rows are the triples that match any of the patterns, as `subject`, `predicate` and `object`.
pub fn query_of(patterns: &[Triple<'_>]) -> Result<String, BrokerRefusal> {
    let mut text = String::from("SELECT DISTINCT ?subject ?predicate ?object {");
    for (place, pattern) in patterns.iter().enumerate() {
        let union = if place > 0 { " UNION" } else { "" };
        let _ = write!(text, "{union} {{ {}", statement(pattern)?);
        for (name, node) in places(pattern) {
            if *node != TripleNode::Any {
                let _ = write!(text, " BIND({} AS ?{name})", node_of(name, node)?);
            }
        }
        text.push_str(" }");
    }
    text.push_str(" }");
    Ok(text)
}

fn places<'t, 'a>(triple: &'t Triple<'a>) -> [(&'static str, &'t TripleNode<'a>); 3] {
    [("subject", &triple.subject), ("predicate", &triple.predicate), ("object", &triple.object)]
}

fn statement(triple: &Triple<'_>) -> Result<String, BrokerRefusal> {
    let [s, p, o] = places(triple).map(|(name, node)| node_of(name, node));
    Ok(format!("{} {} {}", s?, p?, o?))
}

fn node_of(name: &str, node: &TripleNode<'_>) -> Result<String, BrokerRefusal> {
    let term = match node {
        TripleNode::Any => return Ok(format!("?{name}")),
        TripleNode::Uri(text) => {
            let is_bad = |c: char| c.is_whitespace() || c.is_control() || "<>\"{}|^`\\".contains(c);
            if text.contains(is_bad) {
                return Err(BrokerRefusal::Rejected(format!("{text:?} is no URI")));
            }
            Term::Uri(text.to_string())
        }
        TripleNode::Blank(text) => {
            if text.is_empty() || !text.chars().all(|c| c.is_ascii_alphanumeric()) {
                return Err(BrokerRefusal::Rejected(format!("{text:?} is no label of a blank node")));
            }
            Term::Blank(text.to_string())
        }
        TripleNode::Literal(text) => Term::Literal { text: text.to_string(), datatype: None, language: None },
    };
    let mut out = String::new();
    let _ = write_term(&term, &mut out);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn triple<'a>(subject: &'a str, object: TripleNode<'a>) -> Triple<'a> {
        Triple { subject: TripleNode::Uri(subject.into()), predicate: TripleNode::Uri("urn:p".into()), object }
    }

    #[test]
    fn triples_become_updates_and_patterns_queries() {
        let on = triple("urn:a", TripleNode::Literal("o\"n\\".into()));
        let any = triple("urn:a", TripleNode::Any);
        assert_eq!(
            update_of(std::slice::from_ref(&on), std::slice::from_ref(&any)).unwrap(),
            "DELETE WHERE { <urn:a> <urn:p> ?object };\nINSERT DATA { <urn:a> <urn:p> \"o\\\"n\\\\\" . }"
        );
        assert_eq!(
            query_of(std::slice::from_ref(&any)).unwrap(),
            "SELECT DISTINCT ?subject ?predicate ?object { { <urn:a> <urn:p> ?object BIND(<urn:a> AS ?subject) \
             BIND(<urn:p> AS ?predicate) } }"
        );
        assert!(update_of(&[any], &[]).is_err());
        assert!(update_of(&[triple("urn:a> <urn:x", TripleNode::Any)], &[]).is_err(), "nothing escapes from a URI");
        assert!(query_of(&[triple("urn:a> . ?s ?p ?o . <x", TripleNode::Any)]).is_err());
    }
}
