//! Terms as one string each: what the dictionary stores and compares.
//!
//! The first byte names the kind, so that two terms are equal exactly when their strings are. A literal's datatype or
//! language is preceded by its length in decimal, because a value may contain any separator.

use oxrdf::vocab::xsd;
use oxrdf::{BlankNode, Literal, NamedNode, NamedNodeRef, Term, TermRef};

/// Datatypes that get a byte of their own; most literals of sensors are one of these.
const SHORT: [(char, NamedNodeRef<'static>); 6] = [
    ('i', xsd::INTEGER),
    ('d', xsd::DECIMAL),
    ('f', xsd::FLOAT),
    ('g', xsd::DOUBLE),
    ('b', xsd::BOOLEAN),
    ('t', xsd::DATE_TIME),
];

/// Appends the string of a term.
pub(crate) fn encode(term: TermRef<'_>, text: &mut String) {
    match term {
        TermRef::NamedNode(node) => {
            text.push('N');
            text.push_str(node.as_str());
        }
        TermRef::BlankNode(node) => {
            text.push('B');
            text.push_str(node.as_str());
        }
        TermRef::Literal(literal) => {
            if let Some(language) = literal.language() {
                qualified('L', language, literal.value(), text);
            } else if literal.datatype() == xsd::STRING {
                text.push('S');
                text.push_str(literal.value());
            } else if let Some((byte, _)) = SHORT.iter().find(|(_, datatype)| *datatype == literal.datatype()) {
                text.push(*byte);
                text.push_str(literal.value());
            } else {
                qualified('T', literal.datatype().as_str(), literal.value(), text);
            }
        }
    }
}

fn qualified(kind: char, qualifier: &str, value: &str, text: &mut String) {
    text.push(kind);
    text.push_str(&qualifier.len().to_string());
    text.push(':');
    text.push_str(qualifier);
    text.push_str(value);
}

/// The term of a string that [`encode`] made; `None` for any other.
pub(crate) fn decode(text: &str) -> Option<Term> {
    let kind = text.chars().next()?;
    let rest = text.get(kind.len_utf8()..)?;
    Some(match kind {
        'N' => NamedNode::new_unchecked(rest).into(),
        'B' => BlankNode::new_unchecked(rest).into(),
        'S' => Literal::new_simple_literal(rest).into(),
        'L' | 'T' => {
            let (length, rest) = rest.split_once(':')?;
            let length = length.parse::<usize>().ok()?;
            let (qualifier, value) = (rest.get(..length)?, rest.get(length..)?);
            if kind == 'L' {
                Literal::new_language_tagged_literal_unchecked(value, qualifier).into()
            } else {
                Literal::new_typed_literal(value, NamedNode::new_unchecked(qualifier)).into()
            }
        }
        _ => {
            let (_, datatype) = SHORT.iter().find(|(byte, _)| *byte == kind)?;
            Literal::new_typed_literal(rest, *datatype).into()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(term: &Term) {
        let mut text = String::new();
        encode(term.as_ref(), &mut text);
        assert_eq!(decode(&text).as_ref(), Some(term), "{text}");
    }

    #[test]
    fn every_kind_of_term_survives() {
        round(&NamedNode::new_unchecked("http://example.org/a").into());
        round(&NamedNode::new_unchecked("a name that is no IRI").into());
        round(&BlankNode::new_unchecked("b1").into());
        for value in ["", "on", "3:x", "ünï", "\0"] {
            round(&Literal::new_simple_literal(value).into());
            round(&Literal::new_language_tagged_literal_unchecked(value, "de-at").into());
            round(&Literal::new_typed_literal(value, NamedNode::new_unchecked("http://example.org/t")).into());
            for (_, datatype) in SHORT {
                round(&Literal::new_typed_literal(value, datatype).into());
            }
        }
    }

    #[test]
    fn strings_that_are_no_terms_are_refused() {
        for text in ["", "L", "L9:de", "T:x", "Lx:de", "Q", "L1:üx"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
