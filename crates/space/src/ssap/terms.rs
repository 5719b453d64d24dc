//! Between the triples of RDF-M3 and terms of RDF.

use oxrdf::{BlankNode, GraphName, Literal, NamedNode, NamedOrBlankNode, Quad, Term};
use oxrdfio::RdfFormat;
use tidegate_graph::{Mask, MaskGraph, QueryLimits, RdfLimits, read_rdf};
use tidegate_wire_ssap::limits::TRIPLES_MAX;
use tidegate_wire_ssap::{Status, Triple, TripleNode};

use super::plan::status_of;

/// Why triples cannot be used: a status and words for people.
pub(crate) type Wrong = (Status, String);

/// Labels of blank nodes and the names that they were given.
pub(crate) type Names = Vec<(String, String)>;

fn wrong(words: impl Into<String>) -> Wrong {
    (Status::Syntax, words.into())
}

/// A URI is any text that can be written between angle brackets: bare names and UUIDs are common. What would end the
/// brackets is refused, or else a dump of the data would say something else than the data.
fn uri(text: &str) -> Result<NamedNode, Wrong> {
    let is_forbidden = |c: char| c <= ' ' || "<>\"{}|^`\\".contains(c);
    match text.chars().find(|c| is_forbidden(*c)) {
        None => Ok(NamedNode::new_unchecked(text)),
        Some(c) => Err(wrong(format!("a URI with the character {c:?}"))),
    }
}

fn blank(label: &str) -> Result<BlankNode, Wrong> {
    BlankNode::new(label).map_err(|_| wrong(format!("{label:?} names no blank node")))
}

/// Patterns of the default graph, which is all that SSAP knows.
pub(crate) fn masks(patterns: &[Triple<'_>]) -> Result<Vec<Mask>, Wrong> {
    let mask = |pattern: &Triple<'_>| {
        Ok(Mask {
            subject: match &pattern.subject {
                TripleNode::Any => None,
                TripleNode::Blank(label) => Some(NamedOrBlankNode::from(blank(label)?)),
                TripleNode::Uri(text) | TripleNode::Literal(text) => Some(uri(text)?.into()),
            },
            predicate: match &pattern.predicate {
                TripleNode::Any => None,
                TripleNode::Uri(text) | TripleNode::Literal(text) | TripleNode::Blank(text) => Some(uri(text)?),
            },
            object: match &pattern.object {
                TripleNode::Any => None,
                TripleNode::Uri(text) => Some(Term::from(uri(text)?)),
                TripleNode::Blank(label) => Some(blank(label)?.into()),
                TripleNode::Literal(text) => Some(Literal::new_simple_literal(text.as_ref()).into()),
            },
            graph: MaskGraph::Default,
        })
    };
    patterns.iter().map(mask).collect()
}

/// Triples to insert, and the names that were given to the labels of their blank nodes. Brokers of this protocol store
/// those as resources with names of their own; `name` makes them.
pub(crate) fn quads(triples: &[Triple<'_>], mut name: impl FnMut() -> String) -> Result<(Vec<Quad>, Names), Wrong> {
    let mut names = Names::new();
    let mut places: std::collections::HashMap<String, usize> = std::collections::HashMap::new();
    let mut named = |label: &str| {
        let place = *places.entry(label.to_owned()).or_insert_with(|| {
            names.push((label.to_owned(), name()));
            names.len() - 1
        });
        NamedNode::new_unchecked(names[place].1.as_str())
    };
    let mut quads = Vec::with_capacity(triples.len());
    for triple in triples {
        if triple.is_pattern() {
            return Err(wrong("a wildcard among triples to insert"));
        }
        let subject = match &triple.subject {
            TripleNode::Blank(label) => named(label),
            TripleNode::Uri(text) | TripleNode::Literal(text) => uri(text)?,
            TripleNode::Any => continue,
        };
        let predicate = match &triple.predicate {
            TripleNode::Uri(text) | TripleNode::Literal(text) | TripleNode::Blank(text) => uri(text)?,
            TripleNode::Any => continue,
        };
        let object = match &triple.object {
            TripleNode::Blank(label) => Term::from(named(label)),
            TripleNode::Uri(text) => uri(text)?.into(),
            TripleNode::Literal(text) => Literal::new_simple_literal(text.as_ref()).into(),
            TripleNode::Any => continue,
        };
        quads.push(Quad::new(subject, predicate, object, GraphName::DefaultGraph));
    }
    Ok((quads, names))
}

/// The triples of an RDF/XML document. Entities of its own are refused, nothing is fetched.
pub(crate) fn rdf_xml(text: &str, limits: &QueryLimits) -> Result<Vec<Quad>, Wrong> {
    let limits = {
        let (memory, cancel) = (limits.memory.clone(), limits.cancel.clone());
        RdfLimits { quads_max: TRIPLES_MAX, memory, cancel, ..RdfLimits::default() }
    };
    match read_rdf(text.trim().as_bytes(), RdfFormat::RdfXml, None, None, &limits) {
        Ok(document) => Ok(document.quads),
        Err(error) => Err((status_of(&error), error.to_string())),
    }
}

/// Exactly these quads, as masks.
pub(crate) fn masks_of(quads: Vec<Quad>) -> Vec<Mask> {
    let mask = |quad: Quad| Mask {
        subject: Some(quad.subject),
        predicate: Some(quad.predicate),
        object: Some(quad.object),
        graph: MaskGraph::Default,
    };
    quads.into_iter().map(mask).collect()
}

fn node(term: &Term) -> TripleNode<'static> {
    match term {
        Term::NamedNode(node) => TripleNode::Uri(node.as_str().to_owned().into()),
        Term::BlankNode(node) => TripleNode::Blank(node.as_str().to_owned().into()),
        // RDF-M3 has no place for a datatype or a language.
        Term::Literal(literal) => TripleNode::Literal(literal.value().to_owned().into()),
    }
}

/// A triple as RDF-M3 has it.
pub(crate) fn triple_of(subject: &Term, predicate: &Term, object: &Term) -> Triple<'static> {
    Triple { subject: node(subject), predicate: node(predicate), object: node(object) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn triple<'a>(subject: TripleNode<'a>, object: TripleNode<'a>) -> Triple<'a> {
        Triple { subject, predicate: TripleNode::Uri("p".into()), object }
    }

    #[test]
    fn labels_become_resources_with_new_names_once_each() {
        let triples = [
            triple(TripleNode::Blank("a".into()), TripleNode::Blank("".into())),
            triple(TripleNode::Blank("".into()), TripleNode::Blank("a".into())),
        ];
        let mut number = 0;
        let (quads, names) = quads(&triples, || {
            number += 1;
            format!("uuid-{number}")
        })
        .unwrap();
        assert_eq!(names, [("a".into(), "uuid-1".into()), (String::new(), "uuid-2".into())]);
        assert_eq!(quads[0].to_string(), "<uuid-1> <p> <uuid-2>");
        assert_eq!(quads[1].to_string(), "<uuid-2> <p> <uuid-1>");
    }

    #[test]
    fn what_would_leave_its_brackets_is_refused_and_bare_names_are_not() {
        let bad = [triple(TripleNode::Uri("a> <b".into()), TripleNode::Literal("x".into()))];
        assert_eq!(quads(&bad, String::new).unwrap_err().0, Status::Syntax);
        assert!(masks(&bad).is_err());
        let bare = [triple(TripleNode::Uri("Agent_X".into()), TripleNode::Literal("<any> \"text\"\n".into()))];
        assert_eq!(quads(&bare, String::new).unwrap().0.len(), 1);
        let pattern = [triple(TripleNode::Any, TripleNode::Any)];
        assert!(quads(&pattern, String::new).is_err() && masks(&pattern).is_ok());
    }

    #[test]
    fn f096_entities_of_ones_own_are_refused_in_rdf_xml() {
        let bomb = "<!DOCTYPE x [<!ENTITY a \"aa\"><!ENTITY b \"&a;&a;\">]><rdf:RDF \
                    xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\"/>";
        assert!(rdf_xml(bomb, &QueryLimits::default()).is_err());
        let plain = "<rdf:RDF xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\" xmlns:e=\"http://ex.org/\">\
                     <rdf:Description rdf:about=\"http://ex.org/a\"><e:b>c</e:b></rdf:Description></rdf:RDF>";
        assert_eq!(rdf_xml(plain, &QueryLimits::default()).unwrap().len(), 1);
    }
}
