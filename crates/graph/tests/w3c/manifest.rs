//! Reads the suite's manifests.

use std::fs;
use std::path::PathBuf;

use oxrdf::vocab::{rdf, rdfs};
use oxrdf::{Graph, NamedNodeRef, NamedOrBlankNode, NamedOrBlankNodeRef, Quad, Term, TermRef};
use oxrdfio::{RdfFormat, RdfParser};

const MF: &str = "http://www.w3.org/2001/sw/DataAccess/tests/test-manifest#";
const QT: &str = "http://www.w3.org/2001/sw/DataAccess/tests/test-query#";
const UT: &str = "http://www.w3.org/2009/sparql/tests/test-update#";
/// The base under which the suite's files have their IRIs.
const BASE: &str = "http://w3c.test/";

/// The files of the suite.
pub(crate) struct Suite {
    root: PathBuf,
}

/// Files of data: those of the default graph, and named ones.
#[derive(Default)]
pub(crate) struct Data {
    pub default: Vec<String>,
    pub named: Vec<(String, String)>,
}

/// One test.
pub(crate) struct Test {
    /// Folder and name, as `sparql11/bind/bind01`.
    pub name: String,
    /// The local name of its type.
    pub kind: String,
    /// The file of the query, update or text.
    pub action: String,
    pub data: Data,
    pub result: Option<String>,
    pub result_data: Data,
    pub lax: bool,
}

impl Suite {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(crate) fn bytes(&self, iri: &str) -> Vec<u8> {
        let path = self.root.join(iri.strip_prefix(BASE).unwrap_or(iri));
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub(crate) fn text(&self, iri: &str) -> String {
        String::from_utf8(self.bytes(iri)).expect("text")
    }

    pub(crate) fn quads(&self, iri: &str) -> Vec<Quad> {
        let extension = iri.rsplit_once('.').map_or("ttl", |(_, extension)| extension);
        let format = RdfFormat::from_extension(extension).unwrap_or(RdfFormat::Turtle);
        let parser = RdfParser::from_format(format).with_base_iri(iri).expect("an IRI").rename_blank_nodes();
        parser.for_slice(&self.bytes(iri)).map(|quad| quad.unwrap_or_else(|error| panic!("{iri}: {error}"))).collect()
    }

    pub(crate) fn graph(&self, iri: &str) -> Graph {
        self.quads(iri).into_iter().map(oxrdf::Triple::from).collect()
    }

    pub(crate) fn tests(&self, manifest: &str) -> Vec<Test> {
        let iri = format!("{BASE}{manifest}");
        let graph = self.graph(&iri);
        let node = NamedNodeRef::new_unchecked(&iri);
        let mut tests = Vec::new();
        if let Some(list) = one(&graph, node.into(), MF, "include") {
            for included in items(&graph, list) {
                if let Term::NamedNode(included) = included {
                    tests.extend(self.tests(included.as_str().strip_prefix(BASE).expect("in the suite")));
                }
            }
        }
        if let Some(list) = one(&graph, node.into(), MF, "entries") {
            let folder = manifest.rsplit_once('/').map_or("", |(folder, _)| folder);
            tests.extend(items(&graph, list).iter().filter_map(|entry| test(&graph, folder, entry)));
        }
        tests
    }
}

fn one<'a>(graph: &'a Graph, node: NamedOrBlankNodeRef<'a>, space: &str, name: &str) -> Option<TermRef<'a>> {
    all(graph, node, space, name).into_iter().next()
}

fn all<'a>(graph: &'a Graph, node: NamedOrBlankNodeRef<'a>, space: &str, name: &str) -> Vec<TermRef<'a>> {
    let predicate = format!("{space}{name}");
    graph.objects_for_subject_predicate(node, NamedNodeRef::new_unchecked(&predicate)).collect()
}

fn items(graph: &Graph, list: TermRef<'_>) -> Vec<Term> {
    let mut found = Vec::new();
    let mut next = node(list);
    while let Some(cell) = next {
        let Some(first) = graph.object_for_subject_predicate(cell.as_ref(), rdf::FIRST) else { break };
        found.push(first.into_owned());
        next = graph.object_for_subject_predicate(cell.as_ref(), rdf::REST).and_then(node);
    }
    found
}

fn node(term: TermRef<'_>) -> Option<NamedOrBlankNode> {
    match term {
        TermRef::NamedNode(node) => Some(node.into_owned().into()),
        TermRef::BlankNode(node) => Some(node.into_owned().into()),
        TermRef::Literal(_) => None,
    }
}

fn text(term: TermRef<'_>) -> String {
    match term {
        TermRef::NamedNode(node) => node.as_str().to_owned(),
        TermRef::BlankNode(node) => node.as_str().to_owned(),
        TermRef::Literal(literal) => literal.value().to_owned(),
    }
}

fn local(iri: &str) -> String {
    iri.rsplit(['#', '/']).next().unwrap_or(iri).to_owned()
}

fn data(graph: &Graph, holder: NamedOrBlankNodeRef<'_>) -> Data {
    let mut data = Data::default();
    for space in [QT, UT] {
        data.default.extend(all(graph, holder, space, "data").into_iter().map(text));
        for named in all(graph, holder, space, "graphData") {
            let file = node(named).and_then(|node| one(graph, node.as_ref(), UT, "graph").map(text));
            let label =
                node(named).and_then(|node| graph.object_for_subject_predicate(node.as_ref(), rdfs::LABEL).map(text));
            match (file, label) {
                (Some(file), Some(label)) => data.named.push((label, file)),
                _ => data.named.push((text(named), text(named))),
            }
        }
    }
    data
}

fn test(graph: &Graph, folder: &str, entry: &Term) -> Option<Test> {
    let entry = node(entry.as_ref())?;
    let kinds = graph.objects_for_subject_predicate(entry.as_ref(), rdf::TYPE).map(text);
    let kind = kinds.map(|kind| local(&kind)).find(|kind| kind.contains("Test"))?;
    let name = match &entry {
        NamedOrBlankNode::NamedNode(node) => local(node.as_str()),
        NamedOrBlankNode::BlankNode(_) => text(one(graph, entry.as_ref(), MF, "name")?),
    };
    let action = node(one(graph, entry.as_ref(), MF, "action")?)?;
    let files = ["query", "request"].iter().zip([QT, UT]);
    let file = files.filter_map(|(name, space)| one(graph, action.as_ref(), space, name)).map(text).next();
    let result = one(graph, entry.as_ref(), MF, "result").and_then(node);
    let cardinality = one(graph, entry.as_ref(), MF, "resultCardinality").map(text);
    Some(Test {
        name: format!("{folder}/{name}"),
        kind,
        action: file.unwrap_or_else(|| text(action.as_ref().into())),
        data: data(graph, action.as_ref()),
        result_data: result.as_ref().map(|result| data(graph, result.as_ref())).unwrap_or_default(),
        result: match result {
            Some(NamedOrBlankNode::NamedNode(file)) => Some(file.as_str().to_owned()),
            _ => None,
        },
        lax: cardinality.is_some_and(|kind| kind.ends_with("LaxCardinality")),
    })
}
