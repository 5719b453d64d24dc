//! The little of XML that is needed: read once from the start, borrowed, without DTD, bounded in depth.
//!
//! Own code and no library, because SSAP's clients run where there is no `std`, and the usual readers need it. A test compares it
//! with quick-xml, document by document: the same is refused, and the same is read. What the elements mean is not known here.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use memchr::memmem;
use memchr::{memchr, memchr3};

use crate::fault::SsapFault;
use crate::limits::DEPTH_MAX;

/// One step through a document.
#[derive(Debug)]
pub(crate) enum XmlStep<'a> {
    /// An element begins.
    Open(StartTag<'a>),
    /// The current element ends.
    Close,
    /// Characters; several steps in a row belong together.
    Text(Cow<'a, str>),
}

/// A document that is read once.
#[derive(Debug)]
pub(crate) struct XmlDocument<'a> {
    text: &'a str,
    position: usize,
    /// Names of the elements that are open, the outermost first.
    open: Vec<&'a str>,
    /// The element that was opened last was empty: its end is the next step.
    is_ending: bool,
}

impl<'a> XmlDocument<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        // The mark of an editor before the first element.
        let position = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        Self { text, position, open: Vec::new(), is_ending: false }
    }

    /// The next step; none at the end.
    pub(crate) fn next(&mut self) -> Result<Option<XmlStep<'a>>, SsapFault> {
        loop {
            if core::mem::take(&mut self.is_ending) {
                self.open.pop();
                return Ok(Some(XmlStep::Close));
            }
            let rest = self.text.get(self.position..).unwrap_or_default();
            let Some(markup) = rest.strip_prefix('<') else {
                return self.characters(rest);
            };
            match markup.as_bytes().first() {
                Some(b'!') if markup.starts_with("!--") => self.skip(rest, "<!--", "-->").map(drop)?,
                Some(b'!') if markup.starts_with("![CDATA[") => {
                    let characters = self.skip(rest, "<![CDATA[", "]]>")?;
                    return Ok(Some(XmlStep::Text(Cow::Borrowed(characters))));
                }
                Some(b'!') if markup.as_bytes().get(1).is_some_and(|byte| byte.eq_ignore_ascii_case(&b'd')) => {
                    return Err(SsapFault::syntax("a document type is not allowed"));
                }
                Some(b'!') | None => return Err(ill_formed("markup that is none")),
                Some(b'?') => self.skip(rest, "<?", "?>").map(drop)?,
                Some(b'/') => return self.close(markup),
                Some(_) => return self.open(markup),
            }
        }
    }

    /// Characters up to the next markup, or the end of the text.
    fn characters(&mut self, rest: &'a str) -> Result<Option<XmlStep<'a>>, SsapFault> {
        if rest.is_empty() {
            let is_whole = self.open.is_empty();
            return if is_whole { Ok(None) } else { Err(SsapFault::broken("an element has no end")) };
        }
        let end = memchr(b'<', rest.as_bytes()).unwrap_or(rest.len());
        self.position += end;
        unescape(&rest[..end]).map(|text| Some(XmlStep::Text(text)))
    }

    /// Goes behind markup that begins and ends like this, and says what is between.
    fn skip(&mut self, rest: &'a str, begin: &str, end: &str) -> Result<&'a str, SsapFault> {
        let inside = &rest[begin.len()..];
        let len = memmem::find(inside.as_bytes(), end.as_bytes()).ok_or_else(|| ill_formed("markup without an end"))?;
        self.position += begin.len() + len + end.len();
        Ok(&inside[..len])
    }

    /// `/name>`
    fn close(&mut self, markup: &'a str) -> Result<Option<XmlStep<'a>>, SsapFault> {
        let end = memchr(b'>', markup.as_bytes()).ok_or_else(|| ill_formed("a tag without an end"))?;
        let name = markup[1..end].trim_end_matches(SPACE);
        match self.open.pop() {
            Some(open) if open == name => {}
            Some(open) => return Err(ill_formed(&format!("</{name}> where <{open}> ends"))),
            None => return Err(ill_formed(&format!("</{name}> without a beginning"))),
        }
        self.position += "<".len() + end + ">".len();
        Ok(Some(XmlStep::Close))
    }

    /// `name attribute="value">`
    fn open(&mut self, markup: &'a str) -> Result<Option<XmlStep<'a>>, SsapFault> {
        let end = tag_end(markup).ok_or_else(|| ill_formed("a tag without an end"))?;
        self.position += "<".len() + end + ">".len();
        let inside = &markup[..end];
        let (inside, is_empty) = inside.strip_suffix('/').map_or((inside, false), |inside| (inside, true));
        let (name, attributes) = inside.split_at(inside.find(SPACE).unwrap_or(inside.len()));
        if self.open.len() == DEPTH_MAX {
            return Err(SsapFault::syntax(format!("more than {DEPTH_MAX} elements inside each other")));
        }
        self.open.push(name);
        self.is_ending = is_empty;
        Ok(Some(XmlStep::Open(StartTag { name, attributes })))
    }

    /// Everything inside the element that was just opened, as it is written, and goes behind its end.
    pub(crate) fn inside(&mut self) -> Result<&'a str, SsapFault> {
        let (start, depth) = (self.position, self.open.len());
        let mut end = start;
        while self.open.len() >= depth {
            end = self.position;
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
                    return Err(SsapFault::syntax(format!("<{}> where text is expected", start.local_name())));
                }
            }
        }
    }
}

/// White space of XML.
const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

fn ill_formed(what: &str) -> SsapFault {
    SsapFault::broken(format!("not well-formed: {what}"))
}

/// Where the tag that begins here ends: at the first `>` outside of quotes.
fn tag_end(markup: &str) -> Option<usize> {
    let bytes = markup.as_bytes();
    let mut at = 0;
    loop {
        at += memchr3(b'>', b'"', b'\'', bytes.get(at..)?)?;
        match bytes[at] {
            b'>' => return Some(at),
            quote => at += 1 + memchr(quote, &bytes[at + 1..])? + 1,
        }
    }
}

/// The beginning of an element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartTag<'a> {
    name: &'a str,
    attributes: &'a str,
}

impl<'a> StartTag<'a> {
    /// With its prefix.
    pub(crate) fn name(&self) -> &'a str {
        self.name
    }

    /// Without its prefix.
    pub(crate) fn local_name(&self) -> &'a str {
        self.name.split_once(':').map_or(self.name, |(_, name)| name)
    }

    /// Whether this is its name, whatever the prefix.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.local_name() == name
    }

    /// An attribute, the first of several of this name; none if it is not there.
    pub(crate) fn attribute(&self, name: &str) -> Result<Option<Cow<'a, str>>, SsapFault> {
        let mut rest = self.attributes.trim_start_matches(SPACE);
        while !rest.is_empty() {
            let end = rest.find(|c| c == '=' || SPACE.contains(&c)).unwrap_or(rest.len());
            let (key, after) = rest.split_at(end);
            let after = after.trim_start_matches(SPACE).strip_prefix('=');
            let value = after.ok_or_else(|| bad_attribute("has no value"))?.trim_start_matches(SPACE);
            let quote = value.chars().next().filter(|quote| ['"', '\''].contains(quote));
            let quote = quote.ok_or_else(|| bad_attribute("has a value without quotes"))?;
            let (value, after) =
                value[1..].split_once(quote).ok_or_else(|| bad_attribute("has a value that does not end"))?;
            if key == name {
                return unescape(value).map(Some);
            }
            if key.is_empty() {
                return Err(bad_attribute("has no name"));
            }
            rest = after.trim_start_matches(SPACE);
        }
        Ok(None)
    }
}

fn bad_attribute(what: &str) -> SsapFault {
    SsapFault::broken(format!("bad attribute: one {what}"))
}

/// Characters as they are meant: the five names and the numbers of XML.
fn unescape(text: &str) -> Result<Cow<'_, str>, SsapFault> {
    let Some(mut at) = memchr(b'&', text.as_bytes()) else { return Ok(Cow::Borrowed(text)) };
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    loop {
        out.push_str(&rest[..at]);
        let (name, after) =
            rest[at + 1..].split_once(';').ok_or_else(|| ill_formed("a character reference that does not end"))?;
        out.push(character(name).ok_or_else(|| ill_formed("a reference to no character that is known"))?);
        rest = after;
        match memchr(b'&', rest.as_bytes()) {
            Some(next) => at = next,
            None => break,
        }
    }
    out.push_str(rest);
    Ok(Cow::Owned(out))
}

fn character(name: &str) -> Option<char> {
    Some(match name {
        "lt" => '<',
        "gt" => '>',
        "amp" => '&',
        "apos" => '\'',
        "quot" => '"',
        _ => {
            let number = name.strip_prefix('#')?;
            let (digits, radix) = number.strip_prefix('x').map_or((number, 10), |digits| (digits, 16));
            // `from_str_radix` takes a sign, and XML has no character 0.
            let is_digits = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
            let code = u32::from_str_radix(digits, radix).ok().filter(|code| is_digits && *code != 0)?;
            char::from_u32(code)?
        }
    })
}

#[cfg(test)]
mod tests;
