//! Triples in RDF-M3, the list that all clients speak.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::fault::SsapFault;
use crate::limits::TRIPLES_MAX;
use crate::write;
use crate::xml::{StartTag, XmlDocument, XmlStep};

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
pub enum TripleNode<'a> {
    /// A resource. Any text will do: bare names and UUIDs are common.
    Uri(Cow<'a, str>),
    /// A value; RDF-M3 knows neither datatype nor language.
    Literal(Cow<'a, str>),
    /// A blank node, by its label in this message.
    Blank(Cow<'a, str>),
    /// Anything; in patterns only.
    Any,
}

/// A triple, or a pattern if a place of it is [`TripleNode::Any`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Triple<'a> {
    /// The subject.
    pub subject: TripleNode<'a>,
    /// The predicate.
    pub predicate: TripleNode<'a>,
    /// The value.
    pub object: TripleNode<'a>,
}

impl<'a> TripleNode<'a> {
    fn read(start: &StartTag<'a>, text: Cow<'a, str>) -> Result<Self, SsapFault> {
        let kind = start.attribute("type")?.unwrap_or_default();
        let kind = kind.trim();
        if ANY.contains(&text.trim()) {
            return Ok(Self::Any);
        }
        if kind.is_empty() || kind.eq_ignore_ascii_case("uri") {
            let text = expand(text);
            return if text.is_empty() {
                Err(SsapFault::syntax("an empty URI in a triple"))
            } else {
                Ok(Self::Uri(text))
            };
        }
        if kind.eq_ignore_ascii_case("literal") {
            Ok(Self::Literal(text))
        } else if kind.eq_ignore_ascii_case("bnode") {
            Ok(Self::Blank(text))
        } else {
            Err(SsapFault::syntax(format!("a node of the unknown type {kind:?}")))
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
pub fn read_triples(inside: &str) -> Result<Vec<Triple<'_>>, SsapFault> {
    let mut document = XmlDocument::new(inside);
    loop {
        match document.next()? {
            Some(XmlStep::Open(start)) if start.is("triple_list") => return read_list(&mut document),
            Some(XmlStep::Text(text)) if text.trim().is_empty() => {}
            Some(XmlStep::Text(text)) if text.trim_start().starts_with("<triple_list") => {
                let text = XmlDocument::new(inside).text()?;
                let triples = read_list_of(&text)?;
                return Ok(triples.into_iter().map(Triple::into_owned).collect());
            }
            _ => return Err(SsapFault::syntax("no triple_list")),
        }
    }
}

fn read_list_of(text: &str) -> Result<Vec<Triple<'_>>, SsapFault> {
    let mut document = XmlDocument::new(text.trim());
    match document.next()? {
        Some(XmlStep::Open(start)) if start.is("triple_list") => read_list(&mut document),
        _ => Err(SsapFault::syntax("no triple_list")),
    }
}

fn read_list<'a>(document: &mut XmlDocument<'a>) -> Result<Vec<Triple<'a>>, SsapFault> {
    let mut triples = Vec::new();
    loop {
        match document.next()? {
            Some(XmlStep::Open(start)) if start.is("triple") => {
                if triples.len() == TRIPLES_MAX {
                    return Err(SsapFault::syntax(format!("more than {TRIPLES_MAX} triples")));
                }
                triples.push(read_triple(document)?);
            }
            Some(XmlStep::Text(text)) if text.trim().is_empty() => {}
            Some(XmlStep::Close) => return Ok(triples),
            _ => return Err(SsapFault::syntax("something else than triples in a triple_list")),
        }
    }
}

fn read_triple<'a>(document: &mut XmlDocument<'a>) -> Result<Triple<'a>, SsapFault> {
    let mut places = [None, None, None];
    loop {
        match document.next()? {
            Some(XmlStep::Open(start)) => {
                let place = ["subject", "predicate", "object"].iter().position(|name| start.is(name));
                let place = place.ok_or_else(|| SsapFault::syntax("an unknown element in a triple"))?;
                let text = document.text()?;
                if places[place].replace(TripleNode::read(&start, text)?).is_some() {
                    return Err(SsapFault::syntax("a triple with a place twice"));
                }
            }
            Some(XmlStep::Text(text)) if text.trim().is_empty() => {}
            Some(XmlStep::Close) => break,
            _ => return Err(SsapFault::syntax("text in a triple")),
        }
    }
    let [Some(subject), Some(predicate), Some(object)] = places else {
        return Err(SsapFault::syntax("a triple without subject, predicate or object"));
    };
    if matches!(subject, TripleNode::Literal(_)) {
        return Err(SsapFault::syntax("a literal as subject"));
    }
    if matches!(predicate, TripleNode::Literal(_) | TripleNode::Blank(_)) {
        return Err(SsapFault::syntax("a predicate that is no URI"));
    }
    Ok(Triple { subject, predicate, object })
}

impl TripleNode<'_> {
    fn into_owned(self) -> TripleNode<'static> {
        match self {
            Self::Uri(text) => TripleNode::Uri(Cow::Owned(text.into_owned())),
            Self::Literal(text) => TripleNode::Literal(Cow::Owned(text.into_owned())),
            Self::Blank(text) => TripleNode::Blank(Cow::Owned(text.into_owned())),
            Self::Any => TripleNode::Any,
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
        [&self.subject, &self.predicate, &self.object].contains(&&TripleNode::Any)
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

    fn uri(text: &str) -> TripleNode<'_> {
        TripleNode::Uri(text.into())
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
                object: TripleNode::Literal("a <b> & c]]>".into()),
            },
            Triple { subject: TripleNode::Blank("".into()), predicate: uri("p"), object: TripleNode::Any },
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
