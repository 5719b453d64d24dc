//! Documents of RDF into quads, within limits: depth and width before the parser sees the document, time and memory
//! while it works.
//!
//! The parsers are not ours. Three of them are looked after in front: JSON-LD and RDF/XML by the very tokenizers that
//! their parsers use (so that the two cannot disagree), Turtle and its kin by a scanner of brackets. While a parser
//! works it comes past here for each quad, and those of JSON-LD and RDF/XML for each piece of input, too.

mod bound;
mod json;
mod source;
mod turtle;
mod xml;

use oxrdf::{GraphName, Quad};
use oxrdfio::{RdfFormat, RdfParser};

use crate::error::{GraphError, Limit};
use crate::limits::{CancelToken, MemorySource, memory_free};
use source::ParserInput;

pub(crate) use bound::DEPTH_MAX;

/// How much one document may use.
#[derive(Clone, Debug)]
pub struct RdfLimits {
    /// Quads.
    pub quads_max: usize,
    /// Bytes of the quads in memory, shared texts counted each time.
    pub memory_max: usize,
    /// Asked for them, step by step.
    pub memory: MemorySource,
    /// Cancelled by whoever watches the clock or the connection.
    pub cancel: CancelToken,
}

impl Default for RdfLimits {
    fn default() -> Self {
        Self {
            quads_max: 1_000_000,
            memory_max: 256 << 20,
            memory: MemorySource::default(),
            cancel: CancelToken::default(),
        }
    }
}

/// The quads of a document, and its length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RdfDocument {
    /// The quads, in the order of the document.
    pub quads: Vec<Quad>,
    /// Their bytes in memory, for whoever has a budget.
    pub bytes: usize,
}

/// Reads a document. Without a graph it may have graphs of its own; with one, everything goes there. Nothing is fetched.
/// The cost is bounded by the limits, whatever the document.
pub fn read_rdf(
    document: &[u8],
    format: RdfFormat,
    base: Option<&str>,
    graph: Option<&GraphName>,
    limits: &RdfLimits,
) -> Result<RdfDocument, GraphError> {
    bound::check(document, format, limits)?;
    let mut parser = RdfParser::from_format(format);
    if let Some(base) = base {
        parser = parser.with_base_iri(base).map_err(|error| GraphError::NotRdf(error.to_string()))?;
    }
    if let Some(graph) = graph {
        parser = parser.with_default_graph(graph.clone()).without_named_graphs();
    }
    let words =
        |error: String| if limits.cancel.is_cancelled() { GraphError::Cancelled } else { GraphError::NotRdf(error) };
    let free = memory_free(document.len());
    if bound::is_buffered(format) {
        // Much may happen between two quads: the source looks at the token, too.
        let quads = parser.for_reader(ParserInput::new(document, &limits.cancel));
        collect(quads.map(|quad| quad.map_err(|error| words(error.to_string()))), free, limits)
    } else {
        collect(parser.for_slice(document).map(|quad| quad.map_err(|error| words(error.to_string()))), free, limits)
    }
}

/// Memory is asked for in steps of so many bytes.
const MEMORY_STEP: usize = 64 << 10;

fn collect(
    quads: impl Iterator<Item = Result<Quad, GraphError>>,
    mut paid: usize,
    limits: &RdfLimits,
) -> Result<RdfDocument, GraphError> {
    let mut read = RdfDocument::default();
    for quad in quads {
        if limits.cancel.is_cancelled() {
            return Err(GraphError::Cancelled);
        }
        let quad = quad?;
        read.bytes = read.bytes.saturating_add(bound::quad_bytes(&quad));
        read.quads.push(quad);
        if read.quads.len() > limits.quads_max {
            return Err(Limit::ChangeQuads.into());
        }
        let more = read.bytes.saturating_sub(paid).next_multiple_of(MEMORY_STEP);
        paid += more;
        if read.bytes > limits.memory_max || more > 0 && !limits.memory.take(more) {
            return Err(Limit::DocumentMemory.into());
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests;
