//! RDF/XML before its parser sees it, read by the tokenizer that the parser uses: the two cannot disagree.
//!
//! That tokenizer compares each attribute with all others of its element, and each name with all namespaces that hold
//! (RUSTSEC-2026-0194 and -0195). Where there are few of them that is cheap.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::{DEPTH_MAX, RdfLimits};
use crate::error::{GraphError, Limit, TextPlace};

/// Attributes of one element; comparing each with all costs some microseconds.
const ATTRIBUTES_MAX: usize = 128;
/// Namespaces that hold at one place, declared again or not; every name is compared with all.
const NAMESPACES_MAX: usize = 256;
/// Bytes of an element's prefix or namespace, which the parser joins to each name.
const NAMESPACE_BYTES_MAX: usize = 4 << 10;

pub(super) fn check(document: &[u8], limits: &RdfLimits) -> Result<(), GraphError> {
    let mut reader = Reader::from_reader(document);
    reader.config_mut().expand_empty_elements = true;
    // Namespaces that hold, before each element that is open.
    let mut outside = Vec::new();
    let mut namespaces = 0;
    loop {
        let event = reader.read_event().map_err(|error| GraphError::NotRdf(error.to_string()))?;
        let outcome = match &event {
            Event::Start(start) => {
                outside.push(namespaces);
                declared(start).and_then(|declared| {
                    namespaces += declared;
                    if outside.len() > DEPTH_MAX {
                        Err(Limit::Depth)
                    } else if namespaces > NAMESPACES_MAX {
                        Err(Limit::Attributes)
                    } else {
                        Ok(())
                    }
                })
            }
            Event::End(_) => {
                namespaces = outside.pop().unwrap_or(0);
                Ok(())
            }
            Event::DocType(text) if has_entity(text) => {
                return Err(GraphError::NotRdf("entities of one's own are not allowed in RDF/XML".to_owned()));
            }
            Event::Eof => return Ok(()),
            _ => Ok(()),
        };
        let here = || TextPlace::of(document, usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX));
        outcome.map_err(|limit| GraphError::LimitAt(limit, here()))?;
        if limits.cancel.is_cancelled() {
            return Err(GraphError::Cancelled);
        }
    }
}

/// Namespaces that an element declares.
fn declared(start: &BytesStart<'_>) -> Result<usize, Limit> {
    let (mut attributes, mut namespaces) = (0, 0);
    for attribute in start.attributes().with_checks(false) {
        // What is no attribute the parser will say.
        let Ok(attribute) = attribute else { break };
        attributes += 1;
        let is_namespace = attribute.key.as_namespace_binding().is_some();
        namespaces += usize::from(is_namespace);
        let is_long = attribute.value.len() > NAMESPACE_BYTES_MAX;
        if attributes > ATTRIBUTES_MAX || (is_long && (is_namespace || attribute.key.as_ref() == b"xml:base")) {
            return Err(Limit::Attributes);
        }
    }
    Ok(namespaces)
}

/// Entities of one's own can grow without end; nobody needs them for data.
fn has_entity(doctype: &[u8]) -> bool {
    doctype.windows(8).any(|window| window.eq_ignore_ascii_case(b"<!ENTITY"))
}
