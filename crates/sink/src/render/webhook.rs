//! A batch as JSON:
//!
//! ```json
//! {"sink":"log","messages":[{"topic":"a/b","payload":"21.5","qos":1,"retain":false,"at":1763344800123}]}
//! ```
//! A payload that is no text stands in `payload_base64`. `content_type` and `properties` are there if the publisher said any.

use serde_json::{Map, Value, json};

use crate::message::SinkMessage;

/// The bytes of a request.
pub fn body(sink: &str, messages: &[SinkMessage], base64: impl Fn(&[u8]) -> String) -> Vec<u8> {
    let list: Vec<Value> = messages.iter().map(|message| of_message(message, &base64)).collect();
    json!({ "sink": sink, "messages": list }).to_string().into_bytes()
}

fn of_message(message: &SinkMessage, base64: impl Fn(&[u8]) -> String) -> Value {
    let mut fields = Map::new();
    fields.insert("topic".to_owned(), message.topic.as_str().into());
    match std::str::from_utf8(&message.payload) {
        Ok(text) => fields.insert("payload".to_owned(), text.into()),
        Err(_) => fields.insert("payload_base64".to_owned(), base64(&message.payload).into()),
    };
    fields.insert("qos".to_owned(), message.qos.bits().into());
    fields.insert("retain".to_owned(), message.retain.into());
    fields.insert("at".to_owned(), message.at_ms.into());
    if let Some(content_type) = &message.content_type {
        fields.insert("content_type".to_owned(), content_type.as_str().into());
    }
    if !message.user_properties.is_empty() {
        // A name may come several times: pairs, in order.
        let pairs = message.user_properties.iter().map(|(name, value)| json!([name, value])).collect();
        fields.insert("properties".to_owned(), Value::Array(pairs));
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_text_and_anything_else_is_base64() {
        let text = SinkMessage { topic: "a/\"b".into(), payload: b"21\n".to_vec(), at_ms: 5, ..SinkMessage::default() };
        let pair = ("k".to_owned(), "v".to_owned());
        let bytes = SinkMessage {
            payload: vec![0xff],
            retain: true,
            content_type: Some("x/y".into()),
            user_properties: vec![pair.clone(), pair],
            ..SinkMessage::default()
        };
        let body: Value = serde_json::from_slice(&body("log", &[text, bytes], |_| "/w==".to_owned())).unwrap();
        let expected = json!({ "sink": "log", "messages": [
            { "topic": "a/\"b", "payload": "21\n", "qos": 0, "retain": false, "at": 5 },
            { "topic": "", "payload_base64": "/w==", "qos": 0, "retain": true, "at": 0, "content_type": "x/y",
              "properties": [["k", "v"], ["k", "v"]] },
        ]});
        assert_eq!(body, expected);
    }
}
