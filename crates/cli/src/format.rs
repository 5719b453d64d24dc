//! How `tidegate sub -F` prints a message: the letters are those of mosquitto_sub.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use tidegate_server::log::iso_time;
use tidegate_wire_mqtt::PacketId;
use tidegate_wire_mqtt::property::PayloadFormat;

use crate::client::ReceivedMessage;

/// A format, taken apart once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Format {
    pieces: Vec<Piece>,
    /// JSON over several lines.
    is_pretty: bool,
    /// What stands for an empty payload.
    empty: &'static str,
}

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Field(char),
}

/// Letters that may follow a percent sign.
const FIELDS: &str = "tpxXlqrdmIUjJCDEFPRS";

impl Format {
    /// Reads a format; `end` is appended.
    pub(crate) fn parse(format: &str, end: &str) -> Result<Self> {
        let mut pieces = Vec::new();
        let mut text = Vec::new();
        let mut letters = format.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '%' => match letters.next().context("-F: a letter must follow %")? {
                    '%' => text.push(b'%'),
                    field if FIELDS.contains(field) => {
                        pieces.push(Piece::Text(std::mem::take(&mut text)));
                        pieces.push(Piece::Field(field));
                    }
                    other => bail!("-F: %{other} is unknown; see --help"),
                },
                '\\' => text.push(match letters.next().context("-F: a letter must follow \\")? {
                    'n' => b'\n',
                    't' => b'\t',
                    'r' => b'\r',
                    'e' => 0x1b,
                    '0' => 0,
                    'a' => 0x07,
                    '\\' => b'\\',
                    other => bail!("-F: \\{other} is unknown; see --help"),
                }),
                other => text.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        text.extend_from_slice(end.as_bytes());
        pieces.push(Piece::Text(text));
        pieces.retain(|piece| *piece != Piece::Text(Vec::new()));
        Ok(Self { pieces, is_pretty: false, empty: "" })
    }

    /// The same, with JSON over several lines if that is wanted.
    pub(crate) fn pretty(self, is_pretty: bool) -> Self {
        Self { is_pretty, ..self }
    }

    /// Appends a message in this format.
    pub(crate) fn write(&self, message: &ReceivedMessage, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text),
                Piece::Field('p') if message.payload.is_empty() => out.extend_from_slice(self.empty.as_bytes()),
                Piece::Field('p') => out.extend_from_slice(&message.payload),
                Piece::Field(field) => {
                    // Writing to a vector cannot fail.
                    let _ = self.write_field(*field, message, out);
                }
            }
        }
    }

    /// The same, with a word for payloads that are empty.
    pub(crate) fn with_empty(self, empty: &'static str) -> Self {
        Self { empty, ..self }
    }

    fn write_field(&self, field: char, message: &ReceivedMessage, out: &mut Vec<u8>) -> std::io::Result<()> {
        let payload = match field {
            'j' => Payload::AsText,
            'J' => Payload::AsJson,
            _ => return write_field(field, message, out),
        };
        let object = json(message, payload);
        if self.is_pretty { write!(out, "{object:#}") } else { write!(out, "{object}") }
    }
}

fn write_field(field: char, message: &ReceivedMessage, out: &mut Vec<u8>) -> std::io::Result<()> {
    let properties = message.properties();
    match field {
        't' => write!(out, "{}", message.topic),
        'x' => message.payload.iter().try_for_each(|byte| write!(out, "{byte:02x}")),
        'X' => message.payload.iter().try_for_each(|byte| write!(out, "{byte:02X}")),
        'l' => write!(out, "{}", message.payload.len()),
        'q' => write!(out, "{}", message.qos.bits()),
        'r' => write!(out, "{}", u8::from(message.retain)),
        'd' => write!(out, "{}", u8::from(message.dup)),
        'm' => write!(out, "{}", message.packet_id.map_or(0, PacketId::get)),
        'I' => write!(out, "{}", iso_time()),
        'U' => write!(out, "{:.6}", unix_time()),
        'C' => write!(out, "{}", properties.content_type().unwrap_or_default()),
        'D' => out.write_all(properties.correlation_data().unwrap_or_default()),
        'E' => properties.message_expiry().map_or(Ok(()), |seconds| write!(out, "{seconds}")),
        'F' => properties.payload_format().map_or(Ok(()), |format| write!(out, "{}", format as u8)),
        'R' => write!(out, "{}", properties.response_topic().unwrap_or_default()),
        'P' => {
            let pairs: Vec<_> = properties.user_properties().map(|(name, value)| format!("{name}:{value}")).collect();
            write!(out, "{}", pairs.join(" "))
        }
        'S' => {
            let ids: Vec<_> = properties.subscription_ids().map(|id| id.to_string()).collect();
            write!(out, "{}", ids.join(" "))
        }
        _ => Ok(()),
    }
}

#[derive(Clone, Copy)]
enum Payload {
    AsText,
    AsJson,
}

fn json(message: &ReceivedMessage, payload: Payload) -> Value {
    let text = || Value::String(String::from_utf8_lossy(&message.payload).into_owned());
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("tst", json!(iso_time()));
    put("topic", json!(message.topic));
    put("qos", json!(message.qos.bits()));
    put("retain", json!(u8::from(message.retain)));
    put("payloadlen", json!(message.payload.len()));
    if let Some(id) = message.packet_id {
        put("mid", json!(id.get()));
    }
    let properties = properties(message);
    if !properties.is_empty() {
        put("properties", Value::Object(properties));
    }
    put(
        "payload",
        match payload {
            Payload::AsText => text(),
            Payload::AsJson => serde_json::from_slice(&message.payload).unwrap_or_else(|_| text()),
        },
    );
    Value::Object(object)
}

fn properties(message: &ReceivedMessage) -> Map<String, Value> {
    let properties = message.properties();
    let mut object = Map::new();
    let mut put = |name: &str, value: Option<Value>| value.map(|value| object.insert(name.to_owned(), value));
    put("payload-format-indicator", properties.payload_format().map(|format| json!(format == PayloadFormat::Utf8)));
    put("message-expiry-interval", properties.message_expiry().map(|seconds| json!(seconds)));
    put("content-type", properties.content_type().map(|text| json!(text)));
    put("response-topic", properties.response_topic().map(|text| json!(text)));
    let correlation = properties.correlation_data().map(String::from_utf8_lossy);
    put("correlation-data", correlation.map(|text| json!(text)));
    let pairs: Vec<_> = properties.user_properties().map(|(name, value)| json!({ name: value })).collect();
    put("user-properties", (!pairs.is_empty()).then(|| json!(pairs)));
    object
}

fn unix_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_wire_mqtt::{Properties, Property, QoS};

    fn shown(format: &str) -> String {
        let mut properties = Vec::new();
        let list =
            [Property::ContentType("text/plain"), Property::UserProperty("a", "1"), Property::UserProperty("b", "2")];
        Properties::new(&list).encode(&mut properties, |_| true);
        let message = ReceivedMessage {
            topic: "t/1".into(),
            payload: b"{\"v\":1}".to_vec(),
            qos: QoS::AtLeastOnce,
            retain: true,
            dup: false,
            packet_id: PacketId::new(7),
            encoded_properties: properties,
        };
        let mut out = Vec::new();
        Format::parse(format, "\n").unwrap().write(&message, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn fields_are_filled_in() {
        assert_eq!(shown("%t %p"), "t/1 {\"v\":1}\n");
        assert_eq!(shown("%q%r%d %m %l 100%%\\t."), "110 7 7 100%\t.\n");
        assert_eq!(shown("%x"), "7b2276223a317d\n");
        assert_eq!(shown("%C|%P|%E|%R"), "text/plain|a:1 b:2||\n");
    }

    #[test]
    fn json_carries_the_payload_as_text_or_as_json() {
        let text: Value = serde_json::from_str(&shown("%j")).unwrap();
        assert_eq!(text["payload"], "{\"v\":1}");
        assert_eq!((text["mid"].as_u64(), text["retain"].as_u64()), (Some(7), Some(1)));
        let parsed: Value = serde_json::from_str(&shown("%J")).unwrap();
        assert_eq!(parsed["payload"]["v"], 1);
        assert_eq!(parsed["properties"]["user-properties"][1]["b"], "2");
    }

    #[test]
    fn unknown_letters_are_refused() {
        for bad in ["%z", "%", "\\q", "\\"] {
            assert!(Format::parse(bad, "").is_err(), "{bad}");
        }
    }

    #[test]
    fn times_are_utc() {
        assert!(shown("%I").trim_end().ends_with('Z'));
    }
}
