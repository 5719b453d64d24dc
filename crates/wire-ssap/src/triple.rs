//! Triples in RDF-M3, the list that all clients speak.

use std::borrow::Cow;

use quick_xml::events::BytesStart;

use crate::fault::Fault;
use crate::limits::TRIPLES_MAX;
use crate::write;
use crate::xml::{self, Document, Step};

/// What matches anything, in the two ways that it is written.
const ANY: [&str; 2] = ["http://www.nokia.com/NRC/M3/sib#any", "sib:any"];

/// Prefixes that are understood without being declared.
const PREFIXES: [(&str, &str); 5] = [
    ("rdf:", "http://www.w3.org/1999/02/22-rdf-syntax-ns#"),
    ("rdfs:", "http://www.w3.org/2000/01/rdf-schema#"),
    ("owl:", "http://www.w3.org/2002/07/owl#"),
    ("xsd:", "http://www.w3.org/2001/XMLSchema#"),
    ("fn:", "http://www.w3.org/2005/xpath-functions#"),
];

/// A place of a triple or pattern.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node<'a> {
    /// A resource. Any text will do: bare names and UUIDs are common.
    Uri(Cow<'a, str>),
    /// A value; RDF-M3 knows neither datatype nor language.
    Literal(Cow<'a, str>),
    /// A blank node, by its label in this message.
    Blank(Cow<'a, str>),
    /// Anything; in patterns only.
    Any,
}

/// A triple, or a pattern if a place of it is [`Node::Any`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Triple<'a> {
    /// What it is about.
    pub subject: Node<'a>,
    /// Which property of it.
    pub predicate: Node<'a>,
    /// The value.
    pub object: Node<'a>,
}

impl<'a> Node<'a> {
    fn read(start: &BytesStart<'a>, text: Cow<'a, str>) -> Result<Self, Fault> {
        let kind = xml::attribute(start, "type")?.unwrap_or_default();
        let kind = kind.trim();
        if ANY.contains(&text.trim()) {
            return Ok(Self::Any);
        }
        if kind.is_empty() || kind.eq_ignore_ascii_case("uri") {
            let text = expand(text);
            return if text.is_empty() { Err(Fault::syntax("an empty URI in a triple")) } else { Ok(Self::Uri(text)) };
        }
        if kind.eq_ignore_ascii_case("literal") {
            Ok(Self::Literal(text))
        } else if kind.eq_ignore_ascii_case("bnode") {
            Ok(Self::Blank(text))
        } else {
            Err(Fault::syntax(format!("a node of the unknown type {kind:?}")))
        }
    }

    fn write(&self, element: &str, out: &mut String) {
        let kind = match self {
            _ if element == "predicate" => "",
            Self::Uri(_) | Self::Any => " type=\"uri\"",
            Self::Literal(_) => " type=\"literal\"",
            Self::Blank(_) => " type=\"bnode\"",
        };
        write::open(element, kind, out);
        match self {
            Self::Uri(text) | Self::Blank(text) => write::escaped(text, out),
            Self::Literal(text) => write::literal(text, out),
            Self::Any => out.push_str(ANY[0]),
        }
        write::close(element, out);
    }
}

fn expand(text: Cow<'_, str>) -> Cow<'_, str> {
    let found = PREFIXES.iter().find_map(|(prefix, whole)| Some((whole, text.strip_prefix(prefix)?)));
    match found {
        // `fn://host` would be a URI of its own.
        Some((whole, rest)) if !rest.starts_with("//") => Cow::Owned(format!("{whole}{rest}")),
        _ => text,
    }
}

/// Reads the triple list inside a parameter, however it is wrapped: as elements, escaped or as CDATA.
pub fn read_triples(inside: &str) -> Result<Vec<Triple<'_>>, Fault> {
    let mut document = Document::new(inside);
    loop {
        match document.next()? {
            Some(Step::Open(start)) if xml::is(&start, "triple_list") => return read_list(&mut document),
            Some(Step::Text(text)) if text.trim().is_empty() => {}
            Some(Step::Text(text)) if text.trim_start().starts_with("<triple_list") => {
                let text = Document::new(inside).text()?;
                let triples = read_list_of(&text)?;
                return Ok(triples.into_iter().map(Triple::into_owned).collect());
            }
            _ => return Err(Fault::syntax("no triple_list")),
        }
    }
}

fn read_list_of(text: &str) -> Result<Vec<Triple<'_>>, Fault> {
    let mut document = Document::new(text.trim());
    match document.next()? {
        Some(Step::Open(start)) if xml::is(&start, "triple_list") => read_list(&mut document),
        _ => Err(Fault::syntax("no triple_list")),
    }
}

fn read_list<'a>(document: &mut Document<'a>) -> Result<Vec<Triple<'a>>, Fault> {
    let mut triples = Vec::new();
    loop {
        match document.next()? {
            Some(Step::Open(start)) if xml::is(&start, "triple") => {
                if triples.len() == TRIPLES_MAX {
                    return Err(Fault::syntax(format!("more than {TRIPLES_MAX} triples")));
                }
                triples.push(read_triple(document)?);
            }
            Some(Step::Text(text)) if text.trim().is_empty() => {}
            Some(Step::Close) => return Ok(triples),
            _ => return Err(Fault::syntax("something else than triples in a triple_list")),
        }
    }
}

fn read_triple<'a>(document: &mut Document<'a>) -> Result<Triple<'a>, Fault> {
    let mut places = [None, None, None];
    loop {
        match document.next()? {
            Some(Step::Open(start)) => {
                let place = ["subject", "predicate", "object"].iter().position(|name| xml::is(&start, name));
                let place = place.ok_or_else(|| Fault::syntax("an unknown element in a triple"))?;
                let text = document.text()?;
                if places[place].replace(Node::read(&start, text)?).is_some() {
                    return Err(Fault::syntax("a triple with a place twice"));
                }
            }
            Some(Step::Text(text)) if text.trim().is_empty() => {}
            Some(Step::Close) => break,
            _ => return Err(Fault::syntax("text in a triple")),
        }
    }
    let [Some(subject), Some(predicate), Some(object)] = places else {
        return Err(Fault::syntax("a triple without subject, predicate or object"));
    };
    if matches!(subject, Node::Literal(_)) {
        return Err(Fault::syntax("a literal as subject"));
    }
    if matches!(predicate, Node::Literal(_) | Node::Blank(_)) {
        return Err(Fault::syntax("a predicate that is no URI"));
    }
    Ok(Triple { subject, predicate, object })
}

impl Node<'_> {
    fn into_owned(self) -> Node<'static> {
        match self {
            Self::Uri(text) => Node::Uri(Cow::Owned(text.into_owned())),
            Self::Literal(text) => Node::Literal(Cow::Owned(text.into_owned())),
            Self::Blank(text) => Node::Blank(Cow::Owned(text.into_owned())),
            Self::Any => Node::Any,
        }
    }
}

impl Triple<'_> {
    /// The same, independent of the message that it came in.
    pub fn into_owned(self) -> Triple<'static> {
        Triple {
            subject: self.subject.into_owned(),
            predicate: self.predicate.into_owned(),
            object: self.object.into_owned(),
        }
    }

    /// Whether a place of it matches anything.
    pub fn is_pattern(&self) -> bool {
        [&self.subject, &self.predicate, &self.object].contains(&&Node::Any)
    }
}

/// Writes a triple list: one line, no space between elements, because clients stumble over it.
pub fn write_triples<'a, 'b: 'a>(triples: impl IntoIterator<Item = &'a Triple<'b>>, out: &mut String) {
    out.push_str("<triple_list>");
    for triple in triples {
        out.push_str("<triple>");
        triple.subject.write("subject", out);
        triple.predicate.write("predicate", out);
        triple.object.write("object", out);
        out.push_str("</triple>");
    }
    out.push_str("</triple_list>");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Node<'_> {
        Node::Uri(text.into())
    }

    #[test]
    fn reads_what_the_four_clients_write() {
        let list = "\n <triple_list> <triple><subject type = 'URI'>http://ex.org/lamp1</subject> \
                    <predicate>rdf:type</predicate><object type=\"literal\"><![CDATA[a <b> & c]]]]><![CDATA[>]]></object>\
                    </triple><triple><object>sib:any</object><predicate>p</predicate><subject \
                    type=\"bnode\"></subject></triple></triple_list> ";
        let expected = vec![
            Triple {
                subject: uri("http://ex.org/lamp1"),
                predicate: uri("http://www.w3.org/1999/02/22-rdf-syntax-ns#type"),
                object: Node::Literal("a <b> & c]]>".into()),
            },
            Triple { subject: Node::Blank("".into()), predicate: uri("p"), object: Node::Any },
        ];
        assert_eq!(read_triples(list), Ok(expected.clone()));
        assert_eq!(
            read_triples(&format!("<![CDATA[{}]]>", list.replace("]]>", "]]]]><![CDATA[>"))),
            Ok(expected.clone())
        );
        let escaped = list.replace('&', "&amp;").replace('<', "&lt;");
        assert_eq!(read_triples(&escaped), Ok(expected));
    }

    #[test]
    fn refuses_what_is_no_triple() {
        let of = |inside: &str| read_triples(&format!("<triple_list>{inside}</triple_list>")).unwrap_err().status;
        for bad in [
            "<triple></triple>",
            "<triple><subject>a</subject><predicate>b</predicate></triple>",
            "<triple><subject>a</subject><subject>a</subject><predicate>b</predicate><object>c</object></triple>",
            "<triple><subject type='literal'>a</subject><predicate>b</predicate><object>c</object></triple>",
            "<triple><subject>a</subject><predicate type='literal'>b</predicate><object>c</object></triple>",
            "<triple><subject type='x'>a</subject><predicate>b</predicate><object>c</object></triple>",
            "<triple><subject></subject><predicate>b</predicate><object>c</object></triple>",
            "<triple><subject><b/></subject><predicate>b</predicate><object>c</object></triple>",
            "<triple>x</triple>",
            "text",
            "<other/>",
        ] {
            assert_eq!(of(bad), crate::Status::Syntax, "{bad}");
        }
        assert!(read_triples("").is_err() && read_triples("SELECT").is_err());
    }
}
