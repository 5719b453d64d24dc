//! What a document may be, by its format, before its parser sees it.

use oxrdf::{GraphName, NamedOrBlankNode, Quad, Term};
use oxrdfio::RdfFormat;

use super::{RdfLimits, json, turtle, xml};
use crate::error::GraphError;
use crate::query::term_bytes;

/// Brackets within brackets, and elements within elements. Data that people write has less than a dozen levels; the
/// parsers keep some hundred bytes for each.
pub(crate) const DEPTH_MAX: usize = 128;

pub(super) fn check(document: &[u8], format: RdfFormat, limits: &RdfLimits) -> Result<(), GraphError> {
    match format {
        RdfFormat::JsonLd { .. } => json::check(document, limits),
        RdfFormat::RdfXml => xml::check(document, limits),
        _ => turtle::check(document),
    }
}

/// True for parsers that may do much between two quads.
pub(super) fn is_buffered(format: RdfFormat) -> bool {
    matches!(format, RdfFormat::JsonLd { .. } | RdfFormat::RdfXml)
}

/// About the bytes of a quad in memory.
pub(super) fn quad_bytes(quad: &Quad) -> usize {
    let subject = match &quad.subject {
        NamedOrBlankNode::NamedNode(node) => node.as_str().len(),
        NamedOrBlankNode::BlankNode(node) => node.as_str().len(),
    };
    let graph = match &quad.graph_name {
        GraphName::NamedNode(node) => node.as_str().len(),
        GraphName::BlankNode(node) => node.as_str().len(),
        GraphName::DefaultGraph => 0,
    };
    let kind = match &quad.object {
        Term::Literal(literal) => literal.datatype().as_str().len(),
        _ => 0,
    };
    size_of::<Quad>() + subject + quad.predicate.as_str().len() + term_bytes(&quad.object) + kind + graph
}
