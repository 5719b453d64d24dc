//! What comes with a request: parameters that may be repeated, and RDF in any of its formats.

use axum::http::{HeaderMap, StatusCode, header};
use oxrdf::{GraphName, NamedNode, Quad};
use oxrdfio::RdfFormat;
use tidegate_graph::{QueryLimits, RdfLimits, read_rdf};

use super::problem::SpaceProblem;
use crate::limits::GRAPHS_MAX;

/// The parameters of a query string or form, in order.
#[derive(Debug, Default)]
pub(crate) struct Parameters(Vec<(String, String)>);

impl Parameters {
    pub(crate) fn read(text: &[u8]) -> Self {
        let pair = |(name, value): (std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)| {
            (name.into_owned(), value.into_owned())
        };
        Self(form_urlencoded::parse(text).take(2 * GRAPHS_MAX).map(pair).collect())
    }

    /// The value of a parameter that comes once.
    pub(crate) fn one(&self, name: &str) -> Result<Option<&str>, SpaceProblem> {
        let mut values = self.0.iter().filter(|(other, _)| other == name).map(|(_, value)| value.as_str());
        match (values.next(), values.next()) {
            (_, Some(_)) => Err(SpaceProblem::usage(format!("{name} is given twice"))),
            (value, None) => Ok(value),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(other, _)| other == name)
    }

    /// Takes a text out, which may be long.
    pub(crate) fn take(&mut self, name: &str) -> Result<Option<String>, SpaceProblem> {
        self.one(name)?;
        let place = self.0.iter().position(|(other, _)| other == name);
        Ok(place.map(|place| self.0.remove(place).1))
    }

    /// The graphs of a parameter that may be repeated.
    pub(crate) fn graphs(&self, name: &str) -> Result<Vec<NamedNode>, SpaceProblem> {
        let values = self.0.iter().filter(|(other, _)| other == name).map(|(_, value)| value);
        let graphs: Vec<_> = values.map(|value| iri(value)).collect::<Result<_, _>>()?;
        if graphs.len() > GRAPHS_MAX {
            Err(SpaceProblem::usage(format!("more than {GRAPHS_MAX} graphs")))
        } else {
            Ok(graphs)
        }
    }
}

/// An absolute IRI.
pub(crate) fn iri(text: &str) -> Result<NamedNode, SpaceProblem> {
    NamedNode::new(text).map_err(|_| SpaceProblem::usage(format!("{text:?} is no absolute IRI")))
}

/// The media type of a body, without its parameters.
pub(crate) fn content_type(headers: &HeaderMap) -> String {
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The format of a body with RDF.
pub(crate) fn rdf_format(kind: &str) -> Result<RdfFormat, SpaceProblem> {
    RdfFormat::from_media_type(kind).ok_or_else(|| {
        let detail = format!("Content-Type {kind:?} is no format of RDF that is read here");
        SpaceProblem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content-type", detail)
    })
}

/// Reads RDF. Without a graph it may have graphs of its own; with one, everything goes there, and what is relative is
/// relative to its name. Nothing is fetched.
pub(crate) fn quads(
    bytes: &[u8],
    format: RdfFormat,
    graph: Option<&GraphName>,
    quads_max: usize,
    limits: &QueryLimits,
) -> Result<Vec<Quad>, SpaceProblem> {
    let limits = {
        let (memory, cancel) = (limits.memory.clone(), limits.cancel.clone());
        RdfLimits { quads_max, memory, cancel, ..RdfLimits::default() }
    };
    let base = if let Some(GraphName::NamedNode(name)) = graph { Some(name.as_str()) } else { None };
    Ok(read_rdf(bytes, format, base, graph, &limits)?.quads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_come_once_or_often() {
        let parameters = Parameters::read(b"query=ASK+%7B%7D&default-graph-uri=urn:a&default-graph-uri=urn:b&x");
        assert_eq!(parameters.one("query").unwrap(), Some("ASK {}"));
        assert_eq!(parameters.graphs("default-graph-uri").unwrap().len(), 2);
        assert!(parameters.one("default-graph-uri").is_err() && parameters.has("x") && !parameters.has("y"));
        assert!(Parameters::read(b"g=relative").graphs("g").is_err());
    }

    #[test]
    fn f096_nothing_is_fetched_and_nothing_grows() {
        let json = br#"{"@context": "http://192.0.2.1/context.jsonld", "@id": "urn:a", "b": "c"}"#;
        let format = RdfFormat::from_media_type("application/ld+json").unwrap();
        assert_eq!(
            quads(json, format, None, 10, &QueryLimits::default()).unwrap_err().answer.status,
            StatusCode::BAD_REQUEST
        );
        let bomb = b"<!DOCTYPE r [<!entity a 'x'>]><rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'/>";
        assert_eq!(
            quads(bomb, RdfFormat::RdfXml, None, 10, &QueryLimits::default()).unwrap_err().answer.status,
            StatusCode::BAD_REQUEST
        );
        let external = b"<!DOCTYPE r SYSTEM 'file:///etc/passwd'><rdf:RDF \
            xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'/>";
        assert_eq!(
            quads(external, RdfFormat::RdfXml, None, 10, &QueryLimits::default()).map_or(0, |quads| quads.len()),
            0
        );
        let relative = b"<../../x> <urn:b> <urn:c> .";
        assert!(
            quads(relative, RdfFormat::Turtle, None, 10, &QueryLimits::default()).is_err(),
            "there is no base to be relative to"
        );
        let graph = GraphName::from(oxrdf::NamedNode::new_unchecked("http://e.test/a/b/c"));
        let found = quads(relative, RdfFormat::Turtle, Some(&graph), 10, &QueryLimits::default()).unwrap();
        assert_eq!(found[0].subject.to_string(), "<http://e.test/x>", "the name of the graph is one");
        let many = b"<urn:a> <urn:b> 1, 2, 3 .";
        assert_eq!(
            quads(many, RdfFormat::Turtle, None, 2, &QueryLimits::default()).unwrap_err().answer.status,
            StatusCode::PAYLOAD_TOO_LARGE
        );
    }
}
