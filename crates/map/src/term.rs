//! A triple with placeholders, as a rule has it:
//!
//! ```text
//! <http://example.org/sensor/{sensor}> sosa:hasSimpleResult {$.value}^^xsd:double
//! ```
//!
//! It is taken apart once, into terms that are fixed, IRIs with openings, and literals with openings. What fills an opening
//! never meets this syntax.

use std::collections::BTreeMap;
use std::str::FromStr;

use oxrdf::vocab::{rdf, xsd};
use oxrdf::{Literal, NamedNode, NamedNodeRef, Term};
use oxsdatatypes::{Boolean, Date, DateTime, Decimal, Double, Duration, Float, Integer, Time};
use serde_json::Value;

use crate::digits::is_whole;
use crate::fault::MapFault;
use crate::limits::TERM_BYTES_MAX;
use crate::loss::Loss;
use crate::text::{MappedMessage, Placeholder, PlaceholderValue, TextPiece, encode, split};

/// What prefixes stand for. Some are known from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefixes(BTreeMap<String, String>);

const KNOWN: &[(&str, &str)] = &[
    ("rdf", "http://www.w3.org/1999/02/22-rdf-syntax-ns#"),
    ("rdfs", "http://www.w3.org/2000/01/rdf-schema#"),
    ("xsd", "http://www.w3.org/2001/XMLSchema#"),
    ("owl", "http://www.w3.org/2002/07/owl#"),
    ("sosa", "http://www.w3.org/ns/sosa/"),
    ("ssn", "http://www.w3.org/ns/ssn/"),
    ("qudt", "http://qudt.org/schema/qudt/"),
    ("unit", "http://qudt.org/vocab/unit/"),
    ("saref", "https://saref.etsi.org/core/"),
    ("schema", "https://schema.org/"),
    ("geo", "http://www.w3.org/2003/01/geo/wgs84_pos#"),
];

impl Default for Prefixes {
    fn default() -> Self {
        Self(KNOWN.iter().map(|&(name, iri)| (name.to_owned(), iri.to_owned())).collect())
    }
}

impl Prefixes {
    /// Adds one, written `name: http://example.org/`.
    pub fn add(&mut self, text: &str) -> Result<(), MapFault> {
        let fault = |words: &str| MapFault::new("prefixes", format!("{text:?}: {words}"));
        let (name, iri) = text.split_once(':').ok_or_else(|| fault("write \"ex: http://example.org/\""))?;
        let iri = iri.trim().trim_start_matches('<').trim_end_matches('>');
        NamedNode::new(iri).map_err(|_| fault("not followed by an absolute IRI"))?;
        self.0.insert(name.trim().to_owned(), iri.to_owned());
        Ok(())
    }

    /// As a query declares them.
    pub(crate) fn sparql(&self) -> String {
        let declared: Vec<String> = self.0.iter().map(|(name, iri)| format!("PREFIX {name}: <{iri}> ")).collect();
        declared.concat()
    }

    fn resolve(&self, text: &str) -> Result<NamedNode, MapFault> {
        let (prefix, name) = text.split_once(':').ok_or_else(|| {
            MapFault::new("triples", format!("{text:?} is no term"))
                .with_hint("an IRI is written <http://…>, a literal \"…\", a value of the message {…}")
        })?;
        let start = self.0.get(prefix).ok_or_else(|| {
            MapFault::unknown("triples", "prefix", prefix, self.0.keys().cloned().collect())
                .with_hint("add it: [map] prefixes = [\"ex: http://example.org/\"]")
        })?;
        iri(&format!("{start}{name}"))
    }
}

/// A subject, predicate or object with openings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TermTemplate {
    Fixed(Term),
    Iri(Vec<TextPiece>),
    /// With its language or datatype.
    Literal(Vec<TextPiece>, LiteralKind),
    /// A value as it is: numbers stay numbers.
    Value(Placeholder),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LiteralKind {
    Plain,
    Language(String),
    Typed(NamedNode),
}

/// Three of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TripleTemplate {
    pub(crate) subject: TermTemplate,
    pub(crate) predicate: TermTemplate,
    pub(crate) object: TermTemplate,
}

fn iri(text: &str) -> Result<NamedNode, MapFault> {
    NamedNode::new(text).map_err(|_| MapFault::new("triples", format!("{text:?} is no absolute IRI")))
}

impl TermTemplate {
    /// True if it differs between messages of one topic.
    pub(crate) fn varies(&self) -> bool {
        let open = |piece: &TextPiece| matches!(piece, TextPiece::Open(placeholder) if placeholder.varies());
        match self {
            Self::Fixed(_) => false,
            Self::Iri(pieces) | Self::Literal(pieces, _) => pieces.iter().any(open),
            Self::Value(placeholder) => placeholder.varies(),
        }
    }

    fn is_node(&self) -> bool {
        matches!(self, Self::Fixed(Term::NamedNode(_)) | Self::Iri(_))
    }

    pub(crate) fn build(&self, source: &MappedMessage<'_>) -> Result<Term, Loss> {
        match self {
            Self::Fixed(term) => Ok(term.clone()),
            Self::Iri(pieces) => Ok(build_iri(pieces, source)?.into()),
            Self::Literal(pieces, kind) => {
                let text = fill(pieces, source, |text, out| out.push_str(text))?;
                Ok(literal(text, kind)?.into())
            }
            Self::Value(placeholder) => Ok(natural(source.find(placeholder)?)?.into()),
        }
    }
}

pub(crate) fn build_iri(pieces: &[TextPiece], source: &MappedMessage<'_>) -> Result<NamedNode, Loss> {
    NamedNode::new(fill(pieces, source, encode)?).map_err(|_| Loss::ValueInvalid)
}

fn fill(pieces: &[TextPiece], source: &MappedMessage<'_>, add: impl Fn(&str, &mut String)) -> Result<String, Loss> {
    let mut out = String::new();
    for piece in pieces {
        match piece {
            TextPiece::Fixed(text) => out.push_str(text),
            TextPiece::Open(placeholder) => add(&source.find(placeholder)?.text()?, &mut out),
        }
        if out.len() > TERM_BYTES_MAX {
            return Err(Loss::ValueInvalid);
        }
    }
    Ok(out)
}

/// A value of a document as RDF has it.
fn natural(found: PlaceholderValue<'_>) -> Result<Literal, Loss> {
    Ok(match found {
        PlaceholderValue::Time(text) => Literal::new_typed_literal(text, xsd::DATE_TIME),
        PlaceholderValue::Json(Value::Bool(value)) => (*value).into(),
        PlaceholderValue::Json(Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.into(),
            (None, _) if number.is_u64() => Literal::new_typed_literal(number.to_string(), xsd::INTEGER),
            (None, Some(value)) => value.into(),
            (None, None) => return Err(Loss::ValueInvalid),
        },
        PlaceholderValue::Digits(text) if text.len() <= TERM_BYTES_MAX => {
            Literal::new_typed_literal(text, xsd::INTEGER)
        }
        other => {
            let text = other.text()?;
            if text.len() > TERM_BYTES_MAX {
                return Err(Loss::ValueInvalid);
            }
            Literal::new_simple_literal(text)
        }
    })
}

fn literal(text: String, kind: &LiteralKind) -> Result<Literal, Loss> {
    Ok(match kind {
        LiteralKind::Plain => Literal::new_simple_literal(text),
        LiteralKind::Language(tag) => {
            Literal::new_language_tagged_literal(text, tag).map_err(|_| Loss::ValueInvalid)?
        }
        LiteralKind::Typed(datatype) if fits(&text, datatype.as_ref()) => {
            Literal::new_typed_literal(text, datatype.clone())
        }
        LiteralKind::Typed(_) => return Err(Loss::ValueInvalid),
    })
}

/// Whether a text is of a datatype. Of those that are not known every text is.
fn fits(text: &str, datatype: NamedNodeRef<'_>) -> bool {
    fn reads<T: FromStr>(text: &str) -> bool {
        text.parse::<T>().is_ok()
    }
    match datatype {
        xsd::BOOLEAN => reads::<Boolean>(text),
        // Whole numbers have no end; those with a name for their size do.
        xsd::INTEGER => is_whole(text) || reads::<Integer>(text),
        xsd::LONG | xsd::INT | xsd::SHORT | xsd::BYTE => reads::<Integer>(text),
        xsd::NON_NEGATIVE_INTEGER | xsd::UNSIGNED_LONG | xsd::UNSIGNED_INT => {
            text.parse::<Integer>().is_ok_and(|number| number >= Integer::from(0))
        }
        xsd::DECIMAL => reads::<Decimal>(text),
        xsd::DOUBLE => reads::<Double>(text),
        xsd::FLOAT => reads::<Float>(text),
        xsd::DATE_TIME => reads::<DateTime>(text),
        xsd::DATE => reads::<Date>(text),
        xsd::TIME => reads::<Time>(text),
        xsd::DURATION => reads::<Duration>(text),
        _ => true,
    }
}

/// Reads `subject predicate object`, with or without a full stop.
pub(crate) fn parse(text: &str, names: &[&str], prefixes: &Prefixes) -> Result<TripleTemplate, MapFault> {
    let mut reader = TermReader { rest: text.trim(), names, prefixes };
    let (subject, predicate, object) = (reader.term()?, reader.term()?, reader.term()?);
    let fault = |message: &str| MapFault::new("triples", format!("{text:?}: {message}"));
    if !matches!(reader.rest.trim(), "" | ".") {
        let hint = "one triple in each text of the list";
        return Err(fault(&format!("{:?} is left over", reader.rest.trim())).with_hint(hint));
    }
    if !subject.is_node() {
        return Err(fault("the subject is an IRI").with_hint("such as <http://example.org/sensor/{sensor}>"));
    }
    if !predicate.is_node() {
        return Err(fault("the predicate is an IRI").with_hint("such as sosa:hasSimpleResult"));
    }
    Ok(TripleTemplate { subject, predicate, object })
}

/// Reads an IRI with openings, for the graph of a rule.
pub(crate) fn parse_iri(text: &str, names: &[&str], field: &'static str) -> Result<Vec<TextPiece>, MapFault> {
    let open = |name: &str| Placeholder::parse(name, names, field).map(TextPiece::Open);
    let pieces = split(text, field, open, TextPiece::Fixed)?;
    // The scheme and what follows are the rule's own: a device cannot choose them.
    let is_own = matches!(pieces.first(), Some(TextPiece::Fixed(start)) if start.contains(':'));
    let sample: String =
        pieces.iter().map(|piece| if let TextPiece::Fixed(text) = piece { text } else { "x" }).collect();
    if !is_own || NamedNode::new(&sample).is_err() {
        return Err(MapFault::new(field, format!("<{text}> is no absolute IRI"))
            .with_hint("it begins with fixed text such as http://example.org/"));
    }
    Ok(pieces)
}

struct TermReader<'a> {
    rest: &'a str,
    names: &'a [&'a str],
    prefixes: &'a Prefixes,
}

impl<'a> TermReader<'a> {
    fn term(&mut self) -> Result<TermTemplate, MapFault> {
        self.rest = self.rest.trim_start();
        match self.rest.chars().next() {
            None => Err(MapFault::new("triples", "a triple has a subject, a predicate and an object")),
            Some('<') => self.iri(),
            Some('"') => self.quoted(),
            Some('{') => self.value(),
            Some('_') if self.rest.starts_with("_:") => {
                Err(MapFault::new("triples", "blank nodes cannot be replaced later")
                    .with_hint("give it a name: <urn:x:{sensor}>, or <urn:x:{id}> for one of its own"))
            }
            Some(_) => self.word(),
        }
    }

    /// Up to a sign that is not within braces.
    fn until(&mut self, end: char) -> Result<&'a str, MapFault> {
        let (mut depth, mut is_escaped) = (0_usize, false);
        for (at, sign) in self.rest.char_indices() {
            match sign {
                _ if is_escaped => is_escaped = false,
                '\\' if depth == 0 => is_escaped = true,
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ if sign == end && depth == 0 => {
                    let inside = &self.rest[..at];
                    self.rest = &self.rest[at + sign.len_utf8()..];
                    return Ok(inside);
                }
                _ => {}
            }
        }
        Err(MapFault::new("triples", format!("{:?} has no {end:?}", self.rest)))
    }

    fn iri(&mut self) -> Result<TermTemplate, MapFault> {
        self.rest = &self.rest[1..];
        let inside = self.until('>')?;
        let pieces = parse_iri(inside, self.names, "triples")?;
        match &pieces[..] {
            [TextPiece::Fixed(text)] => Ok(TermTemplate::Fixed(iri(text)?.into())),
            _ => Ok(TermTemplate::Iri(pieces)),
        }
    }

    fn quoted(&mut self) -> Result<TermTemplate, MapFault> {
        self.rest = &self.rest[1..];
        let inside = self.until('"')?.replace("\\\"", "\"").replace("\\n", "\n").replace("\\\\", "\\");
        let open = |name: &str| Placeholder::parse(name, self.names, "triples").map(TextPiece::Open);
        let pieces = split(&inside, "triples", open, TextPiece::Fixed)?;
        let kind = self.kind()?;
        match &pieces[..] {
            [TextPiece::Fixed(text)] => {
                let misfit = |_| MapFault::new("triples", format!("{text:?} is not of that language or datatype"));
                Ok(TermTemplate::Fixed(literal(text.clone(), &kind).map_err(misfit)?.into()))
            }
            _ => Ok(TermTemplate::Literal(pieces, kind)),
        }
    }

    fn value(&mut self) -> Result<TermTemplate, MapFault> {
        let end = self.rest.find('}').ok_or_else(|| MapFault::new("triples", "a brace has no partner"))?;
        let placeholder = Placeholder::parse(&self.rest[1..end], self.names, "triples")?;
        self.rest = &self.rest[end + 1..];
        Ok(match self.kind()? {
            LiteralKind::Plain => TermTemplate::Value(placeholder),
            kind => TermTemplate::Literal(vec![TextPiece::Open(placeholder)], kind),
        })
    }

    fn kind(&mut self) -> Result<LiteralKind, MapFault> {
        if let Some(rest) = self.rest.strip_prefix('@') {
            self.rest = rest;
            let tag = self.bare();
            let check = Literal::new_language_tagged_literal("", tag);
            check.map_err(|_| MapFault::new("triples", format!("{tag:?} is no language")))?;
            return Ok(LiteralKind::Language(tag.to_owned()));
        }
        let Some(rest) = self.rest.strip_prefix("^^") else { return Ok(LiteralKind::Plain) };
        self.rest = rest;
        let TermTemplate::Fixed(Term::NamedNode(datatype)) = self.term()? else {
            return Err(MapFault::new("triples", "a datatype is an IRI without placeholders"));
        };
        Ok(if datatype == xsd::STRING { LiteralKind::Plain } else { LiteralKind::Typed(datatype) })
    }

    fn bare(&mut self) -> &'a str {
        let end = self.rest.find(char::is_whitespace).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    /// `a`, a number, a truth value or a prefixed name.
    fn word(&mut self) -> Result<TermTemplate, MapFault> {
        let word = self.bare();
        Ok(TermTemplate::Fixed(match word {
            "a" => rdf::TYPE.into_owned().into(),
            "true" | "false" => Literal::from(word == "true").into(),
            _ if fits(word, xsd::INTEGER) => Literal::new_typed_literal(word, xsd::INTEGER).into(),
            _ if fits(word, xsd::DECIMAL) => Literal::new_typed_literal(word, xsd::DECIMAL).into(),
            _ => self.prefixes.resolve(word)?.into(),
        }))
    }
}
