//! What an update changed: the quads that are new and the quads that are gone, net, and the version it led to.
//!
//! The bytes of a delta are what a log stores: a table of the terms, then the quads by their place in it.

use std::collections::BTreeMap;

use oxrdf::{GraphName, NamedOrBlankNode, Quad, Term, TermRef};

use crate::encode::{decode, encode};

/// The net effect of one commit. No quad is in both lists, none twice in one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuadDelta {
    /// The version of the dataset after it.
    pub version: u64,
    /// Quads that were not there before.
    pub added: Vec<Quad>,
    /// Quads that were there before.
    pub removed: Vec<Quad>,
}

impl QuadDelta {
    /// True if nothing changed.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }

    /// Quads in both lists.
    pub fn len(&self) -> usize {
        self.added.len() + self.removed.len()
    }

    /// The delta that takes this one back, as the given version.
    #[must_use]
    pub fn inverse(&self, version: u64) -> Self {
        Self { version, added: self.removed.clone(), removed: self.added.clone() }
    }

    /// The bytes for a log.
    pub fn encode(&self) -> Vec<u8> {
        let (mut encoder, mut known, mut text) =
            (DeltaEncoder::default(), BTreeMap::<Box<str>, u64>::new(), String::new());
        for (list, is_added) in [(&self.added, true), (&self.removed, false)] {
            for quad in list {
                encoder.push(is_added, terms_of(quad), |encoder, term| {
                    text.clear();
                    if let Some(term) = term {
                        encode(term, &mut text);
                    }
                    if let Some(place) = known.get(text.as_str()) {
                        return *place;
                    }
                    let place = encoder.add(&text);
                    known.insert(text.as_str().into(), place);
                    place
                });
            }
        }
        encoder.finish(self.version)
    }

    /// The delta of bytes that [`QuadDelta::encode`] made. `None` for anything else, at a cost that the bytes bound. Terms are
    /// taken as they are: Smart-M3 clients use names that are no IRIs, and what the dataset took must come back.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = DeltaReader { bytes };
        if reader.byte()? != FORMAT {
            return None;
        }
        let version = reader.number()?;
        let count = reader.count()?;
        let mut terms = Vec::with_capacity(count);
        for _ in 0..count {
            let length = reader.count()?;
            let (text, rest) = reader.bytes.split_at_checked(length)?;
            reader.bytes = rest;
            let text = std::str::from_utf8(text).ok()?;
            terms.push(if text.is_empty() { None } else { Some(decode(text)?) });
        }
        let added = reader.quads(&terms)?;
        let removed = reader.quads(&terms)?;
        reader.bytes.is_empty().then_some(Self { version, added, removed })
    }
}

/// The first byte, so that a later format is not taken for this one.
const FORMAT: u8 = 1;

/// Subject, predicate, object, graph; none for the default graph.
fn terms_of(quad: &Quad) -> [Option<TermRef<'_>>; 4] {
    let graph = match &quad.graph_name {
        GraphName::NamedNode(node) => Some(node.as_ref().into()),
        GraphName::BlankNode(node) => Some(node.as_ref().into()),
        GraphName::DefaultGraph => None,
    };
    let (subject, predicate) = (quad.subject.as_ref().into(), quad.predicate.as_ref().into());
    [Some(subject), Some(predicate), Some(quad.object.as_ref()), graph]
}

/// Writes a delta quad by quad. Which terms are in the table already is known by whoever writes.
#[derive(Default)]
pub(crate) struct DeltaEncoder {
    table: Vec<u8>,
    texts: u64,
    added: QuadList,
    removed: QuadList,
}

#[derive(Default)]
struct QuadList {
    count: u64,
    bytes: Vec<u8>,
}

impl DeltaEncoder {
    /// The next quad, which comes or leaves; `place` says where each of its terms is in the table. None is said twice.
    pub(crate) fn push<T>(&mut self, is_added: bool, terms: [T; 4], mut place: impl FnMut(&mut Self, T) -> u64) {
        for term in terms {
            let place = place(self, term);
            number(&mut self.list(is_added).bytes, place);
        }
        self.list(is_added).count += 1;
    }

    fn list(&mut self, is_added: bool) -> &mut QuadList {
        if is_added { &mut self.added } else { &mut self.removed }
    }

    /// Another text for the table, and its place there; the default graph is the empty text.
    pub(crate) fn add(&mut self, text: &str) -> u64 {
        number(&mut self.table, text.len() as u64);
        self.table.extend_from_slice(text.as_bytes());
        self.texts += 1;
        self.texts - 1
    }

    pub(crate) fn finish(self, version: u64) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        bytes.reserve(HEAD_BYTES + self.table.len() + self.added.bytes.len() + self.removed.bytes.len());
        number(&mut bytes, version);
        number(&mut bytes, self.texts);
        bytes.extend_from_slice(&self.table);
        for list in [&self.added, &self.removed] {
            number(&mut bytes, list.count);
            bytes.extend_from_slice(&list.bytes);
        }
        bytes
    }
}

/// Room for the numbers beside the lists, ten bytes each.
const HEAD_BYTES: usize = 40;

/// A quad of four terms, if they may stand where they do.
pub(crate) fn quad_of(subject: Term, predicate: Term, object: Term, graph: Option<Term>) -> Option<Quad> {
    let subject = match subject {
        Term::NamedNode(node) => NamedOrBlankNode::from(node),
        Term::BlankNode(node) => node.into(),
        Term::Literal(_) => return None,
    };
    let Term::NamedNode(predicate) = predicate else { return None };
    let graph_name = match graph {
        None => GraphName::DefaultGraph,
        Some(Term::NamedNode(node)) => node.into(),
        Some(Term::BlankNode(node)) => node.into(),
        Some(Term::Literal(_)) => return None,
    };
    Some(Quad { subject, predicate, object, graph_name })
}

/// LEB128: seven bits a byte, low ones first.
fn number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

struct DeltaReader<'a> {
    bytes: &'a [u8],
}

impl DeltaReader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// A number of things that take at least a byte each: more than there are bytes is a lie.
    fn count(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok().filter(|count| *count <= self.bytes.len())
    }

    fn quads(&mut self, terms: &[Option<Term>]) -> Option<Vec<Quad>> {
        let count = self.count()?;
        let mut quads = Vec::with_capacity(count.min(self.bytes.len() / 4));
        for _ in 0..count {
            let mut places = [None, None, None, None];
            for place in &mut places {
                place.clone_from(terms.get(usize::try_from(self.number()?).ok()?)?);
            }
            let [subject, predicate, object, graph] = places;
            quads.push(quad_of(subject?, predicate?, object?, graph)?);
        }
        Some(quads)
    }
}

#[cfg(test)]
mod tests {
    use oxrdf::{BlankNode, Literal, NamedNode};
    use proptest::prelude::*;

    use super::*;

    fn sample() -> QuadDelta {
        let a = NamedNode::new_unchecked("http://e/a");
        let quad = |object: Term, graph: GraphName| Quad::new(a.clone(), a.clone(), object, graph);
        QuadDelta {
            version: 300,
            added: vec![
                quad(Literal::new_language_tagged_literal_unchecked("ü", "de").into(), GraphName::DefaultGraph),
                quad(Literal::from(7).into(), a.clone().into()),
            ],
            removed: vec![quad(BlankNode::new_unchecked("x").into(), BlankNode::new_unchecked("g").into())],
        }
    }

    #[test]
    fn the_bytes_of_a_delta_give_it_back() {
        for delta in [sample(), QuadDelta::default(), sample().inverse(301)] {
            assert_eq!(QuadDelta::decode(&delta.encode()), Some(delta));
        }
    }

    #[test]
    fn f099_cut_and_flipped_bytes_are_refused_or_another_delta_never_a_panic() {
        let bytes = sample().encode();
        for cut in 0..bytes.len() {
            assert_eq!(QuadDelta::decode(&bytes[..cut]), None);
        }
        for place in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[place] ^= 1 << bit;
                if let Some(delta) = QuadDelta::decode(&flipped) {
                    assert_eq!(QuadDelta::decode(&delta.encode()), Some(delta));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut with_format = vec![FORMAT];
            with_format.extend_from_slice(&bytes);
            let _ = QuadDelta::decode(&bytes);
            let _ = QuadDelta::decode(&with_format);
        }
    }
}
