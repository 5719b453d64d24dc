//! Messages (part 3): what a publication becomes of, and what becomes of a publication.
//!
//! | AMQP | MQTT 5 |
//! | --- | --- |
//! | `to` | the topic |
//! | data, one or more; an amqp-value that is a string, binary or null | the payload; of a string also its format |
//! | `content-type`, `correlation-id`, `reply-to` | content type, correlation data, response topic |
//! | application properties: strings, numbers, booleans | user properties |
//! | header: `ttl`, or `absolute-expiry-time` | message expiry, in seconds, rounded up |
//! | header: `priority` below 4 or above | the user property `pace-class`: `low` or `high` |
//! | annotation `x-opt-retain-message` | retained |
//!
//! A correlation that is text comes back as a string, and other bytes as binary.

use std::borrow::Cow;

use tidegate_core::face::OutgoingPublication;
use tidegate_wire_mqtt::Property;
use tidegate_wire_mqtt::property::PayloadFormat;

use crate::condition::{AmqpError, DECODE, INVALID_FIELD, NOT_IMPLEMENTED, RESOURCE_LIMIT};
use crate::limits::PROPERTIES_MAX;
use crate::types::{Items, Malformed, Reader, Value};
use crate::write::{binary, boolean, composite, map, symbol, text, uint};

/// The annotation of what is to be kept for those who come later, or was.
const RETAIN: &str = "x-opt-retain-message";
/// Bytes of a text in MQTT.
const TEXT_BYTES_MAX: usize = 65_535;
/// The priority of who says nothing (section 3.2.1).
const PRIORITY_USUAL: u8 = 4;

/// A message as it came.
#[derive(Debug, Default)]
pub(crate) struct Message<'a> {
    pub(crate) to: Option<&'a str>,
    pub(crate) payload: Cow<'a, [u8]>,
    pub(crate) retain: bool,
    is_text: bool,
    ttl: Option<u32>,
    priority: Option<u8>,
    /// Milliseconds since 1970.
    expires_at: Option<u64>,
    content_type: Option<&'a str>,
    correlation: Option<Cow<'a, [u8]>>,
    reply_to: Option<&'a str>,
    user: Vec<(&'a str, Cow<'a, str>)>,
}

impl<'a> Message<'a> {
    /// What these bytes say, or why they are none that can be published.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, AmqpError> {
        let mut message = Self::default();
        let mut reader = Reader::new(bytes);
        let mut body = Body::None;
        while !reader.is_empty() {
            let section = reader.value()?.described().ok_or(Malformed("a section of a message is described"))?;
            match section.code {
                Some(0x70) => message.read_header(section.fields()?)?,
                Some(0x71 | 0x78) => {}
                Some(0x72) => {
                    let retain = section.value()?.map()?.map(|items| items.get(RETAIN)).transpose()?.flatten();
                    message.retain = retain == Some(Value::Bool(true));
                }
                Some(0x73) => message.read_properties(section.fields()?)?,
                Some(0x74) => message.read_user(section.value()?.map()?)?,
                Some(0x75) if body != Body::Value => {
                    let data = section.value()?.binary()?.unwrap_or_default();
                    match body {
                        Body::None => message.payload = Cow::Borrowed(data),
                        _ => message.payload.to_mut().extend_from_slice(data),
                    }
                    body = Body::Data;
                }
                Some(0x77) if body == Body::None => {
                    body = Body::Value;
                    message.read_value(section.value()?)?;
                }
                Some(0x76) => return Err(AmqpError::new(NOT_IMPLEMENTED, "a body of sequences is no payload")),
                Some(0x75 | 0x77) => return Err(AmqpError::new(DECODE, "a message has one kind of body")),
                _ => return Err(AmqpError::new(DECODE, "there is no such section of a message")),
            }
        }
        if body == Body::None {
            return Err(AmqpError::new(DECODE, "a message without a body"));
        }
        Ok(message)
    }

    fn read_value(&mut self, value: Value<'a>) -> Result<(), AmqpError> {
        self.payload = match value {
            Value::Text(text) => {
                self.is_text = true;
                Cow::Borrowed(text.as_bytes())
            }
            Value::Binary(bytes) => Cow::Borrowed(bytes),
            Value::Null => Cow::Borrowed(&[]),
            _ => {
                let words = "a payload is a data section, or a value that is a string or binary";
                return Err(AmqpError::new(NOT_IMPLEMENTED, words));
            }
        };
        Ok(())
    }

    fn read_header(&mut self, mut fields: Items<'a>) -> Result<(), Malformed> {
        let _durable = fields.field()?.boolean()?;
        self.priority = fields.field()?.number()?;
        self.ttl = fields.field()?.number()?;
        Ok(())
    }

    fn read_properties(&mut self, mut fields: Items<'a>) -> Result<(), AmqpError> {
        let _message_id = fields.field()?;
        let _user_id = fields.field()?.binary()?;
        self.to = fields.field()?.text()?;
        let _subject = fields.field()?.text()?;
        self.reply_to = fields.field()?.text()?;
        self.correlation = match fields.field()? {
            Value::Null => None,
            Value::Text(text) => Some(Cow::Borrowed(text.as_bytes())),
            Value::Binary(bytes) | Value::Uuid(bytes) => Some(Cow::Borrowed(bytes)),
            Value::Unsigned(number) => Some(Cow::Owned(number.to_string().into_bytes())),
            _ => return Err(AmqpError::new(DECODE, "a correlation-id is a number, a uuid, binary or a string")),
        };
        self.content_type = fields.field()?.symbol()?;
        let _content_encoding = fields.field()?.symbol()?;
        self.expires_at = match fields.field()? {
            Value::Timestamp(at) => Some(u64::try_from(at).unwrap_or(0)),
            Value::Null => None,
            _ => return Err(AmqpError::new(DECODE, "a time is expected")),
        };
        for text in [self.reply_to, self.content_type].into_iter().flatten() {
            check_text(text)?;
        }
        if self.correlation.as_ref().is_some_and(|bytes| bytes.len() > TEXT_BYTES_MAX) {
            return Err(AmqpError::new(INVALID_FIELD, "a correlation-id is longer than MQTT can carry"));
        }
        Ok(())
    }

    fn read_user(&mut self, items: Option<Items<'a>>) -> Result<(), AmqpError> {
        let Some(mut items) = items else { return Ok(()) };
        while !items.is_empty() {
            let Value::Text(name) = items.field()? else {
                return Err(AmqpError::new(DECODE, "the name of an application property is a string"));
            };
            let value: Cow<'a, str> = match items.field()? {
                Value::Text(text) | Value::Symbol(text) => text.into(),
                Value::Bool(is) => is.to_string().into(),
                Value::Unsigned(number) => number.to_string().into(),
                Value::Signed(number) | Value::Timestamp(number) => number.to_string().into(),
                Value::Float(number) => number.to_string().into(),
                Value::Char(letter) => letter.to_string().into(),
                // Nothing that a text could say.
                _ => continue,
            };
            check_text(name)?;
            check_text(&value)?;
            if self.user.len() >= PROPERTIES_MAX {
                return Err(AmqpError::new(RESOURCE_LIMIT, "more than 128 application properties"));
            }
            self.user.push((name, value));
        }
        Ok(())
    }

    /// Its attributes, in MQTT's words; `wall` is the time of day in milliseconds.
    pub(crate) fn properties(&self, wall: u64) -> Vec<Property<'_>> {
        let mut list = Vec::new();
        if self.is_text {
            list.push(Property::PayloadFormat(PayloadFormat::Utf8));
        }
        let left = || self.expires_at.map(|at| at.saturating_sub(wall));
        if let Some(millis) = self.ttl.map(u64::from).or_else(left) {
            list.push(Property::MessageExpiry(u32::try_from(millis.div_ceil(1000)).unwrap_or(u32::MAX)));
        }
        list.extend(self.content_type.map(Property::ContentType));
        list.extend(self.reply_to.map(Property::ResponseTopic));
        list.extend(self.correlation.as_deref().map(Property::CorrelationData));
        list.extend(self.user.iter().map(|(name, value)| Property::UserProperty(name, value)));
        if let Some(class) = self.priority.and_then(class_of)
            && !self.user.iter().any(|(name, _)| *name == CLAIM)
        {
            list.push(Property::UserProperty(CLAIM, class));
        }
        list
    }

    pub(crate) fn reply_to(&self) -> Option<&'a str> {
        self.reply_to
    }
}

/// The user property by which a client asks for a class.
const CLAIM: &str = "pace-class";

/// The class that a priority asks for. Whether its client may have it is the core's affair.
fn class_of(priority: u8) -> Option<&'static str> {
    match priority.cmp(&PRIORITY_USUAL) {
        core::cmp::Ordering::Less => Some("low"),
        core::cmp::Ordering::Equal => None,
        core::cmp::Ordering::Greater => Some("high"),
    }
}

/// Which sections are the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    None,
    Data,
    Value,
}

fn check_text(text: &str) -> Result<(), AmqpError> {
    if text.len() > TEXT_BYTES_MAX || text.contains('\0') {
        return Err(AmqpError::new(INVALID_FIELD, "a text that MQTT cannot carry: it has a NUL, or is too long"));
    }
    Ok(())
}

/// Appends what one receiver's copy begins with.
pub(crate) fn put_head(outgoing: &OutgoingPublication<'_>, out: &mut Vec<u8>) {
    let (qos, dup) = match outgoing.delivery() {
        tidegate_wire_mqtt::Delivery::AtMostOnce => (false, false),
        tidegate_wire_mqtt::Delivery::AtLeastOnce { dup, .. }
        | tidegate_wire_mqtt::Delivery::ExactlyOnce { dup, .. } => (true, dup),
    };
    composite(0x70, out, |fields| {
        fields.boolean(qos).null();
        let millis = outgoing.seconds_left().map(|seconds| seconds.saturating_mul(1000));
        fields.some(millis, uint).null();
        if dup {
            // It may have been there before, on another connection.
            fields.uint(1);
        }
    });
    if outgoing.retain() {
        out.extend_from_slice(&[0, 0x53, 0x72]);
        map(1, out, |out| {
            symbol(RETAIN, out);
            boolean(true, out);
        });
    }
}

/// Appends what all receivers have in common.
pub(crate) fn put_tail(outgoing: &OutgoingPublication<'_>, out: &mut Vec<u8>) {
    let properties = outgoing.properties();
    let is_symbol = |text: &&str| !text.is_empty() && text.is_ascii();
    let content_type = properties.content_type().filter(is_symbol);
    composite(0x73, out, |fields| {
        fields.null().null().text(outgoing.topic()).null().some(properties.response_topic(), text);
        fields.some(properties.correlation_data(), put_correlation).some(content_type, symbol);
    });
    let pairs = properties.user_properties().count();
    if pairs > 0 {
        out.extend_from_slice(&[0, 0x53, 0x74]);
        map(pairs, out, |out| {
            for (name, value) in properties.user_properties() {
                text(name, out);
                text(value, out);
            }
        });
    }
    let payload = outgoing.payload();
    let is_text = content_type.is_none() && properties.payload_format() == Some(PayloadFormat::Utf8);
    match core::str::from_utf8(payload) {
        Ok(words) if is_text => {
            out.extend_from_slice(&[0, 0x53, 0x77]);
            text(words, out);
        }
        _ => {
            out.extend_from_slice(&[0, 0x53, 0x75]);
            binary(payload, out);
        }
    }
}

fn put_correlation(bytes: &[u8], out: &mut Vec<u8>) {
    match core::str::from_utf8(bytes) {
        Ok(words) if !words.chars().any(char::is_control) => text(words, out),
        _ => binary(bytes, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        composite(0x70, &mut out, |fields| {
            fields.boolean(true).put(|out| crate::write::ubyte(9, out)).uint(1500);
        });
        composite(0x73, &mut out, |fields| {
            fields.null().null().text("a/b").null().text("re/ply").text("c1").put(|out| symbol("text/plain", out));
        });
        out.extend_from_slice(&[0, 0x53, 0x74]);
        map(2, &mut out, |out| {
            text("n", out);
            out.extend_from_slice(&[0x54, 0xff]);
            text("t", out);
            text("x", out);
        });
        out.extend_from_slice(body);
        out
    }

    #[test]
    fn a_message_is_a_publication_with_its_attributes() {
        let bytes = message(b"\0\x53\x75\xa0\x02ab\0\x53\x75\xa0\x01c");
        let message = Message::read(&bytes).unwrap();
        assert_eq!((message.to, &*message.payload, message.retain), (Some("a/b"), &b"abc"[..], false));
        assert_eq!(
            message.properties(0),
            [
                Property::MessageExpiry(2),
                Property::ContentType("text/plain"),
                Property::ResponseTopic("re/ply"),
                Property::CorrelationData(b"c1"),
                Property::UserProperty("n", "-1"),
                Property::UserProperty("t", "x"),
                Property::UserProperty("pace-class", "high"),
            ]
        );
        let text = Message::read(b"\0\x53\x77\xa1\x02hi").unwrap();
        assert_eq!(text.properties(0), [Property::PayloadFormat(PayloadFormat::Utf8)]);
    }

    #[test]
    fn an_absolute_time_is_what_is_left_of_it() {
        let mut bytes = Vec::new();
        composite(0x73, &mut bytes, |fields| {
            for _ in 0..8 {
                fields.null();
            }
            fields.put(|out| {
                out.push(0x83);
                out.extend_from_slice(&10_000_i64.to_be_bytes());
            });
        });
        bytes.extend_from_slice(b"\0\x53\x75\xa0\x00");
        let message = Message::read(&bytes).unwrap();
        assert_eq!(message.properties(4_500), [Property::MessageExpiry(6)]);
        assert_eq!(message.properties(20_000), [Property::MessageExpiry(0)]);
    }

    #[test]
    fn what_is_no_payload_is_rejected_by_name() {
        let condition = |body: &[u8]| Message::read(&message(body)).unwrap_err().condition;
        assert_eq!(condition(b"\0\x53\x76\x45"), NOT_IMPLEMENTED);
        assert_eq!(condition(b"\0\x53\x77\x71\0\0\0\x01"), NOT_IMPLEMENTED);
        assert_eq!(condition(b"\0\x53\x75\xa0\x01c\0\x53\x77\x40"), DECODE);
        assert_eq!(condition(b""), DECODE);
        assert_eq!(condition(b"\0\x53\x99\x40"), DECODE);
        assert_eq!(condition(b"\0\x53\x75\xb0\x7f\xff\xff\xff"), DECODE);
        let mut many = vec![0, 0x53, 0x74];
        map(200, &mut many, |out| {
            for _ in 0..400 {
                text("x", out);
            }
        });
        assert_eq!(Message::read(&many).unwrap_err().condition, RESOURCE_LIMIT);
        let nul = b"\0\x53\x74\xc1\x06\x02\xa1\x01\0\xa1\0".to_vec();
        assert_eq!(Message::read(&nul).unwrap_err().condition, INVALID_FIELD);
    }
}
