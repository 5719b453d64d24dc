//! The little of XML that is needed, over quick-xml: borrowed, without DTD, bounded in depth.

use std::borrow::Cow;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use crate::fault::SsapFault;
use crate::limits::DEPTH_MAX;

/// One step through a document.
pub(crate) enum XmlStep<'a> {
    /// An element begins.
    Open(BytesStart<'a>),
    /// The current element ends.
    Close,
    /// Characters; several steps in a row belong together.
    Text(Cow<'a, str>),
}

/// A document that is read once.
pub(crate) struct XmlDocument<'a> {
    text: &'a str,
    reader: Reader<&'a [u8]>,
    depth: usize,
}

impl<'a> XmlDocument<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let mut reader = Reader::from_str(text);
        // An empty element is one that begins and ends: one case less.
        reader.config_mut().expand_empty_elements = true;
        Self { text, reader, depth: 0 }
    }

    /// The next step; none at the end, or when what is open ends with the text.
    pub(crate) fn next(&mut self) -> Result<Option<XmlStep<'a>>, SsapFault> {
        loop {
            let step = match self.reader.read_event()? {
                Event::Start(start) => {
                    self.depth += 1;
                    if self.depth > DEPTH_MAX {
                        return Err(SsapFault::syntax(format!("more than {DEPTH_MAX} elements inside each other")));
                    }
                    XmlStep::Open(start)
                }
                Event::End(_) => {
                    self.depth = self.depth.saturating_sub(1);
                    XmlStep::Close
                }
                Event::Text(text) => XmlStep::Text(text.unescape()?),
                Event::CData(data) => match data.into_inner() {
                    Cow::Borrowed(bytes) => XmlStep::Text(Cow::Borrowed(utf8(bytes)?)),
                    Cow::Owned(bytes) => XmlStep::Text(Cow::Owned(utf8(&bytes)?.to_owned())),
                },
                Event::DocType(_) => return Err(SsapFault::syntax("a document type is not allowed")),
                Event::Eof if self.depth > 0 => return Err(SsapFault::broken("an element has no end")),
                Event::Eof => return Ok(None),
                Event::Empty(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) => continue,
            };
            return Ok(Some(step));
        }
    }

    /// Everything inside the element that was just opened, as it is written, and goes behind its end.
    pub(crate) fn inside(&mut self) -> Result<&'a str, SsapFault> {
        let (start, depth) = (self.position(), self.depth);
        let mut end = start;
        while self.depth >= depth {
            end = self.position();
            if self.next()?.is_none() {
                break;
            }
        }
        Ok(self.text.get(start..end).unwrap_or_default())
    }

    /// The characters of the element that was just opened, and goes behind its end. It must have no children.
    pub(crate) fn text(&mut self) -> Result<Cow<'a, str>, SsapFault> {
        let mut whole = Cow::Borrowed("");
        loop {
            match self.next()? {
                Some(XmlStep::Text(more)) if whole.is_empty() => whole = more,
                Some(XmlStep::Text(more)) => whole.to_mut().push_str(&more),
                Some(XmlStep::Close) | None => return Ok(whole),
                Some(XmlStep::Open(start)) => {
                    let name = String::from_utf8_lossy(start.local_name().as_ref()).into_owned();
                    return Err(SsapFault::syntax(format!("<{name}> where text is expected")));
                }
            }
        }
    }

    fn position(&self) -> usize {
        usize::try_from(self.reader.buffer_position()).unwrap_or(usize::MAX)
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, SsapFault> {
    std::str::from_utf8(bytes).map_err(|_| SsapFault::broken("not UTF-8"))
}

/// The name of an element without its prefix.
pub(crate) fn is(start: &BytesStart<'_>, name: &str) -> bool {
    start.local_name().as_ref() == name.as_bytes()
}

/// An attribute; none if it is not there.
pub(crate) fn attribute(start: &BytesStart<'_>, name: &str) -> Result<Option<String>, SsapFault> {
    let found = start.try_get_attribute(name).map_err(|error| SsapFault::broken(format!("bad attribute: {error}")))?;
    found.map(|found| found.unescape_value().map(Cow::into_owned).map_err(SsapFault::from)).transpose()
}
