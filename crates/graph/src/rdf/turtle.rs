//! Brackets of Turtle, TriG, N-Triples, N-Quads and N3 before their parser sees them.
//!
//! Those parsers do not recurse: they keep some bytes on the heap for each bracket that is open. This scanner knows
//! strings, IRIs and comments as they do; were it to miss a bracket, memory would grow by a constant times the
//! document, and nothing else would happen.

use memchr::{memchr2, memchr3};

use super::DEPTH_MAX;
use crate::error::{GraphError, Limit, TextPlace};

pub(super) fn check(document: &[u8]) -> Result<(), GraphError> {
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(&byte) = document.get(at) {
        at = match byte {
            b'(' | b'[' | b'{' => {
                depth += 1;
                at + 1
            }
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                at + 1
            }
            b'<' if document.get(at + 1) == Some(&b'<') => {
                depth += 1;
                at + 2
            }
            b'>' if document.get(at + 1) == Some(&b'>') => {
                depth = depth.saturating_sub(1);
                at + 2
            }
            b'<' => iri_end(document, at),
            b'#' => memchr2(b'\n', b'\r', &document[at..]).map_or(document.len(), |end| at + end),
            b'"' | b'\'' => string_end(document, at, byte),
            b'\\' => at + 2,
            _ => at + 1,
        };
        if depth > DEPTH_MAX {
            return Err(GraphError::LimitAt(Limit::Depth, TextPlace::of(document, at - 1)));
        }
    }
    Ok(())
}

/// Behind an IRI, or behind the bracket if none begins here (N3 has arrows).
fn iri_end(document: &[u8], at: usize) -> usize {
    let inside = &document[at + 1..];
    match inside.iter().position(|byte| *byte <= b' ' || matches!(byte, b'<' | b'>' | b'"' | b'{' | b'}')) {
        Some(end) if inside[end] == b'>' => at + 1 + end + 1,
        _ => at + 1,
    }
}

fn string_end(document: &[u8], start: usize, quote: u8) -> usize {
    let long = [quote; 3];
    let is_long = document[start..].starts_with(&long);
    let mut at = start + if is_long { 3 } else { 1 };
    loop {
        let Some(rest) = document.get(at..) else { return document.len() };
        let next = if is_long { memchr2(quote, b'\\', rest) } else { memchr3(quote, b'\\', b'\n', rest) };
        let Some(next) = next else { return document.len() };
        at += next;
        match document[at] {
            b'\\' => at += 2,
            _ if !is_long => return at + 1,
            _ if document[at..].starts_with(&long) => return at + 3,
            _ => at += 1,
        }
    }
}
