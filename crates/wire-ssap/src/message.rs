//! A message as it is: header and parameters, before anybody asks what they mean.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use crate::fault::SsapFault;
use crate::header::SsapHeader;
use crate::limits::{HEADER_BYTES_MAX, PARAMETERS_MAX};
use crate::xml::{StartTag, XmlDocument, XmlStep};

/// A well-formed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SsapMessage<'a> {
    /// Transaction, client and space.
    pub header: SsapHeader,
    parameters: Vec<Parameter<'a>>,
}

/// A named value of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter<'a> {
    /// The name of the parameter.
    pub name: Box<str>,
    /// How it is written, if the message says so.
    pub encoding: Option<Box<str>>,
    /// What is inside, as it is written.
    pub inside: &'a str,
}

impl<'a> SsapMessage<'a> {
    /// Reads the bytes of one message, as [`Scanner`](crate::Scanner) found them.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, SsapFault> {
        let text = core::str::from_utf8(bytes).map_err(|_| SsapFault::broken("not UTF-8"))?;
        if let Some(forbidden) = text.bytes().find(|byte| *byte < b' ' && !byte.is_ascii_whitespace()) {
            return Err(SsapFault::broken(format!("the character {forbidden:#04x} is not allowed in XML")));
        }
        let mut message = SsapMessage { header: SsapHeader::default(), parameters: Vec::new() };
        match message.read(text) {
            Ok(()) => Ok(message),
            Err(fault) => Err(fault.in_message(&message.header)),
        }
    }

    fn read(&mut self, text: &'a str) -> Result<(), SsapFault> {
        let mut document = XmlDocument::new(text);
        loop {
            match document.next()? {
                Some(XmlStep::Open(root)) if root.name() == "SSAP_message" => break,
                Some(XmlStep::Open(_)) => return Err(SsapFault::syntax("the root is not SSAP_message")),
                Some(XmlStep::Text(text)) if text.trim().is_empty() => {}
                _ => return Err(SsapFault::broken("no message")),
            }
        }
        while let Some(XmlStep::Open(start)) = Self::next_child(&mut document)? {
            let name = start.local_name();
            let Some(field) = self.field(name) else {
                if name == "parameter" {
                    self.read_parameter(&start, &mut document)?;
                } else {
                    // Integrity checks and what else there may be.
                    document.inside()?;
                }
                continue;
            };
            if !field.is_empty() {
                return Err(SsapFault::syntax(format!("<{name}> twice")));
            }
            let value = document.text()?;
            let value = value.trim();
            if value.len() > HEADER_BYTES_MAX {
                return Err(SsapFault::syntax(format!("a header element of more than {HEADER_BYTES_MAX} bytes")));
            }
            *field = value.into();
        }
        self.check()
    }

    fn next_child(document: &mut XmlDocument<'a>) -> Result<Option<XmlStep<'a>>, SsapFault> {
        loop {
            match document.next()? {
                Some(XmlStep::Text(text)) if text.trim().is_empty() => {}
                Some(XmlStep::Text(_)) => return Err(SsapFault::syntax("text between the elements of a message")),
                Some(step @ XmlStep::Open(_)) => return Ok(Some(step)),
                Some(XmlStep::Close) | None => return Ok(None),
            }
        }
    }

    fn field(&mut self, name: &str) -> Option<&mut Box<str>> {
        let header = &mut self.header;
        Some(match name {
            "transaction_type" => &mut header.transaction_type,
            "message_type" => &mut header.message_type,
            "transaction_id" => &mut header.transaction_id,
            "node_id" => &mut header.node_id,
            "space_id" => &mut header.space_id,
            _ => return None,
        })
    }

    fn read_parameter(&mut self, start: &StartTag<'a>, document: &mut XmlDocument<'a>) -> Result<(), SsapFault> {
        let name = start.attribute("name")?.ok_or_else(|| SsapFault::syntax("a parameter without a name"))?;
        let mut encoding = None;
        for spelling in ["encoding", "type", "format"] {
            encoding = encoding.or(start.attribute(spelling)?);
        }
        if self.parameters.len() == PARAMETERS_MAX {
            return Err(SsapFault::syntax(format!("more than {PARAMETERS_MAX} parameters")));
        }
        let inside = document.inside()?;
        let (name, encoding) = (name.trim().into(), encoding.map(|encoding| encoding.trim().into()));
        self.parameters.push(Parameter { name, encoding, inside });
        Ok(())
    }

    fn check(&self) -> Result<(), SsapFault> {
        let SsapHeader { transaction_type, message_type, transaction_id, node_id, .. } = &self.header;
        let all = [
            ("transaction_type", transaction_type),
            ("message_type", message_type),
            ("transaction_id", transaction_id),
            ("node_id", node_id),
        ];
        match all.into_iter().find(|(_, value)| value.is_empty()) {
            Some((name, _)) => Err(SsapFault::incomplete(format!("<{name}> is missing"))),
            None => Ok(()),
        }
    }

    /// The parameter of this name; the first if there are several.
    pub fn parameter(&self, name: &str) -> Option<&Parameter<'a>> {
        self.parameters.iter().find(|parameter| &*parameter.name == name)
    }

    /// The same, as text; none if it is not there.
    pub fn text(&self, name: &str) -> Result<Option<Cow<'a, str>>, SsapFault> {
        self.parameter(name).map(Parameter::text).transpose().map_err(|fault| fault.in_message(&self.header))
    }

    /// The same; an error if it is not there.
    pub fn required(&self, name: &str) -> Result<&Parameter<'a>, SsapFault> {
        self.parameter(name)
            .ok_or_else(|| SsapFault::incomplete(format!("the parameter {name} is missing")).in_message(&self.header))
    }
}

impl<'a> Parameter<'a> {
    /// The value as text: entities and CDATA sections resolved, or child elements as they are written.
    pub fn text(&self) -> Result<Cow<'a, str>, SsapFault> {
        if self.has_children()? { Ok(Cow::Borrowed(self.inside)) } else { XmlDocument::new(self.inside).text() }
    }

    fn has_children(&self) -> Result<bool, SsapFault> {
        let mut document = XmlDocument::new(self.inside);
        while let Some(step) = document.next()? {
            if matches!(step, XmlStep::Open(_)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
