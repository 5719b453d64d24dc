//! Text with placeholders: `{room}` is a capture of the topic, `{$.value}` a value of the payload, `{now}` when the message
//! came, `{id}` a name that no other message has, `{topic}` and `{payload}` what they say. `{{` and `}}` are braces.

use std::borrow::Cow;

use serde_json::Value;

use crate::digits::is_whole;
use crate::fault::MapFault;
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::loss::Loss;
use crate::path::Path;

/// Placeholders that every rule has.
pub(crate) const BUILT_IN: &[&str] = &["now", "id", "topic", "payload"];

/// What stands for something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Placeholder {
    /// The capture at this place.
    Capture(usize),
    Path(Path),
    Now,
    Id,
    Topic,
    Payload,
}

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TextPiece {
    Fixed(String),
    Open(Placeholder),
}

/// A message while it is mapped.
pub(crate) struct MappedMessage<'a> {
    pub(crate) topic: &'a str,
    pub(crate) payload: &'a [u8],
    pub(crate) captures: Vec<&'a str>,
    /// Its payload as a document, if it is one. Read when it is first asked for.
    pub(crate) document: std::cell::OnceCell<Result<Value, Loss>>,
    pub(crate) now: &'a str,
    pub(crate) id: &'a str,
}

/// What stands in place of a placeholder.
pub(crate) enum PlaceholderValue<'a> {
    Text(Cow<'a, str>),
    Json(&'a Value),
    /// A whole number that is larger than those of JSON documents are in here.
    Digits(&'a str),
    Time(&'a str),
}

impl MappedMessage<'_> {
    fn document(&self) -> Result<&Value, Loss> {
        let read = || {
            if self.payload.len() > PAYLOAD_BYTES_MAX {
                return Err(Loss::PayloadTooLong);
            }
            serde_json::from_slice(self.payload).map_err(|_| Loss::PayloadNotJson)
        };
        self.document.get_or_init(read).as_ref().map_err(|loss| *loss)
    }

    /// The digits of a whole number that has become a double.
    fn digits(&self, path: &Path, value: &Value) -> Option<PlaceholderValue<'_>> {
        let is_inexact = matches!(value, Value::Number(number) if number.is_f64());
        let text = std::str::from_utf8(self.payload).ok().filter(|_| is_inexact)?;
        path.find_text(text).filter(|text| is_whole(text)).map(PlaceholderValue::Digits)
    }

    pub(crate) fn find(&self, placeholder: &Placeholder) -> Result<PlaceholderValue<'_>, Loss> {
        Ok(match placeholder {
            Placeholder::Capture(place) => {
                PlaceholderValue::Text(self.captures.get(*place).copied().ok_or(Loss::PathMissing)?.into())
            }
            Placeholder::Path(path) => match path.find(self.document()?) {
                None | Some(Value::Null) => return Err(Loss::PathMissing),
                Some(value) => self.digits(path, value).unwrap_or(PlaceholderValue::Json(value)),
            },
            Placeholder::Now => PlaceholderValue::Time(self.now),
            Placeholder::Id => PlaceholderValue::Text(self.id.into()),
            Placeholder::Topic => PlaceholderValue::Text(self.topic.into()),
            Placeholder::Payload if self.payload.len() > PAYLOAD_BYTES_MAX => return Err(Loss::PayloadTooLong),
            Placeholder::Payload => {
                PlaceholderValue::Text(std::str::from_utf8(self.payload).map_err(|_| Loss::ValueInvalid)?.into())
            }
        })
    }
}

impl<'a> PlaceholderValue<'a> {
    /// As characters; objects and lists have none.
    pub(crate) fn text(self) -> Result<Cow<'a, str>, Loss> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Time(text) | Self::Digits(text) => Ok(text.into()),
            Self::Json(Value::String(text)) => Ok(text.as_str().into()),
            Self::Json(Value::Number(number)) => Ok(number.to_string().into()),
            Self::Json(Value::Bool(value)) => Ok(value.to_string().into()),
            Self::Json(_) => Err(Loss::ValueInvalid),
        }
    }
}

impl Placeholder {
    /// Reads what is between the braces.
    pub(crate) fn parse(name: &str, captures: &[&str], field: &'static str) -> Result<Self, MapFault> {
        let name = name.trim();
        if name.starts_with('$') {
            let path = Path::parse(name).map_err(|why| MapFault::new(field, format!("{{{name}}}: {why}")))?;
            return Ok(Self::Path(path));
        }
        Ok(match name {
            "now" => Self::Now,
            "id" => Self::Id,
            "topic" => Self::Topic,
            "payload" => Self::Payload,
            _ => {
                let place = captures.iter().position(|known| *known == name);
                Self::Capture(place.ok_or_else(|| {
                    let known = captures.iter().chain(BUILT_IN).map(|&known| known.to_owned()).collect();
                    let fault = MapFault::unknown(field, "placeholder", name, known);
                    let more = fault.hint.clone().unwrap_or_default();
                    fault.with_hint(format!("{more}, and {{$.member}} for a value of the payload"))
                })?)
            }
        })
    }

    /// Whether it differs between messages of one topic.
    pub(crate) fn varies(&self) -> bool {
        !matches!(self, Self::Capture(_) | Self::Topic)
    }
}

/// Takes a text apart. `open` reads what is between braces.
pub(crate) fn split<T>(
    text: &str,
    field: &'static str,
    mut open: impl FnMut(&str) -> Result<T, MapFault>,
    fixed: impl Fn(String) -> T,
) -> Result<Vec<T>, MapFault> {
    let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
    while let Some(at) = rest.find(['{', '}']) {
        plain.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        let after = &rest[at + 1..];
        if let Some(doubled) = after.strip_prefix(brace) {
            plain.push_str(brace);
            rest = doubled;
            continue;
        }
        let inside = (brace == "{").then(|| after.split_once('}')).flatten();
        let (name, after) = inside.ok_or_else(|| {
            MapFault::new(field, format!("{text:?}: a brace has no partner")).with_hint("{{ and }} are plain braces")
        })?;
        if !plain.is_empty() {
            pieces.push(fixed(std::mem::take(&mut plain)));
        }
        pieces.push(open(name)?);
        rest = after;
    }
    plain.push_str(rest);
    if !plain.is_empty() || pieces.is_empty() {
        pieces.push(fixed(plain));
    }
    Ok(pieces)
}

/// As a part of an IRI: nothing in it can be taken for a delimiter, or for the way up.
pub(crate) fn encode(text: &str, out: &mut String) {
    use std::fmt::Write;
    if matches!(text, "." | "..") {
        return out.push_str(&text.replace('.', "%2E"));
    }
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(byte.into());
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}
