//! A batch as lines of InfluxDB: `measurement,tag=value field=value time`.
//!
//! A level of the topic becomes the measurement or a tag by a template: with `_/room/measurement`, the message `21.5` at
//! `sensors/hall/temperature` is `temperature,room=hall value=21.5 1763344800123`. Without a template the last level is the
//! measurement; the topic is always a tag. Numbers are always written as floats: `21` and `21.5` must not be of different types.

use std::fmt::Write;

use serde_json::Value;
use tidegate_wire_mqtt::topic;

use crate::limits::{LINE_DEPTH_MAX, LINE_FIELDS_MAX};
use crate::message::SinkMessage;

/// How topics of one filter become lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineRule {
    /// Which topics.
    pub filter: String,
    /// What each level is: `_` for nothing, `measurement`, or the name of a tag. Empty: the last level is the measurement.
    pub template: Vec<String>,
    /// The measurement, if it is always the same.
    pub measurement: Option<String>,
    /// The member of a JSON payload that says when: seconds, milliseconds, microseconds or nanoseconds since 1970.
    pub time_field: Option<String>,
}

/// The lines of these messages, with times in milliseconds, and how many messages say nothing in this language.
pub fn body(rules: &[LineRule], messages: &[SinkMessage]) -> (String, usize) {
    let (mut text, mut unmapped) = (String::new(), 0);
    for message in messages {
        match line(rules, message) {
            Some(line) => {
                text.push_str(&line);
                text.push('\n');
            }
            None => unmapped += 1,
        }
    }
    (text, unmapped)
}

fn line(rules: &[LineRule], message: &SinkMessage) -> Option<String> {
    let rule = rules.iter().find(|rule| topic::matches(&rule.filter, &message.topic))?;
    let (fields, at_ms) = fields(rule, message)?;
    let levels: Vec<&str> = message.topic.split('/').collect();
    let named = || rule.template.iter().map(String::as_str).zip(levels.iter().copied());
    let by_level = || named().find(|(name, _)| *name == "measurement").map(|(_, level)| level);
    let measurement = rule.measurement.as_deref().or_else(by_level).or_else(|| levels.last().copied())?;
    // Neither a measurement nor a tag may be empty.
    let measurement = if measurement.is_empty() { "mqtt" } else { measurement };
    let mut line = escaped(measurement, &[',', ' ']);
    for (name, level) in named() {
        if !matches!(name, "_" | "measurement") && !level.is_empty() {
            let _ = write!(line, ",{}={}", escaped(name, TAG), escaped(level, TAG));
        }
    }
    let _ = write!(line, ",topic={} {fields} {at_ms}", escaped(&message.topic, TAG));
    Some(line)
}

/// Letters with a meaning in names and values of tags, and names of fields.
const TAG: &[char] = &[',', '=', ' '];

/// A line ends with a line feed, and a backslash takes the letter after it or does not, by the version: there is no way to write them in
/// a name.
fn escaped(text: &str, special: &[char]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        let letter = match letter {
            '\\' => '_',
            letter if letter.is_control() => ' ',
            letter => letter,
        };
        if special.contains(&letter) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

/// The fields of a payload as a line has them, and its time in milliseconds.
fn fields(rule: &LineRule, message: &SinkMessage) -> Option<(String, u64)> {
    let text = std::str::from_utf8(&message.payload).ok()?.trim();
    let mut fields = Vec::new();
    let mut at_ms = message.at_ms;
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(members)) => {
            let time = rule.time_field.as_ref().and_then(|name| members.get(name));
            at_ms = time.and_then(milliseconds).unwrap_or(at_ms);
            for (name, value) in &members {
                if rule.time_field.as_ref() != Some(name) {
                    collect(name, value, 1, &mut fields);
                }
            }
        }
        Ok(value) => collect("value", &value, 1, &mut fields),
        Err(_) if text.is_empty() => return None,
        Err(_) => match text.to_ascii_lowercase().as_str() {
            "on" => fields.push(("value".to_owned(), "true".to_owned())),
            "off" => fields.push(("value".to_owned(), "false".to_owned())),
            _ => fields.push(("value".to_owned(), quoted(text))),
        },
    }
    let list: Vec<String> = fields.iter().map(|(name, value)| format!("{}={value}", escaped(name, TAG))).collect();
    (!list.is_empty()).then(|| (list.join(","), at_ms))
}

fn collect(name: &str, value: &Value, depth: usize, fields: &mut Vec<(String, String)>) {
    if fields.len() >= LINE_FIELDS_MAX || name.is_empty() {
        return;
    }
    let text = match value {
        Value::Number(number) => match number.as_f64().filter(|number| number.is_finite()) {
            Some(number) => format!("{number}"),
            None => return,
        },
        Value::Bool(is_so) => is_so.to_string(),
        Value::String(text) => quoted(text),
        Value::Object(members) if depth < LINE_DEPTH_MAX => {
            for (inner, value) in members {
                collect(&format!("{name}.{inner}"), value, depth + 1, fields);
            }
            return;
        }
        Value::Array(_) | Value::Object(_) | Value::Null => return,
    };
    fields.push((name.to_owned(), text));
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace(['\n', '\r'], " "))
}

/// The unit is known by the size: each is a thousand of the next, and all are times of this century.
fn milliseconds(value: &Value) -> Option<u64> {
    let number = value.as_f64().filter(|number| *number > 0.0)?;
    let ms = match number {
        seconds if seconds < 1e11 => seconds * 1e3,
        ms if ms < 1e14 => ms,
        us if us < 1e17 => us / 1e3,
        ns => ns / 1e6,
    };
    Some(ms as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(topic: &str, payload: &str) -> SinkMessage {
        SinkMessage { topic: topic.into(), payload: payload.into(), at_ms: 1_763_344_800_123, ..SinkMessage::default() }
    }

    fn rule(filter: &str, template: &str) -> LineRule {
        let template = template.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        LineRule { filter: filter.into(), template, ..LineRule::default() }
    }

    #[test]
    fn levels_become_tags_and_payloads_become_fields() {
        let rules = [rule("sensors/+/+", "_/room/measurement"), rule("#", "")];
        let one = |topic, payload| line(&rules, &message(topic, payload));
        let said = |text: &str| Some(text.to_owned());
        assert_eq!(
            one("sensors/hall/temperature", "21.5"),
            said("temperature,room=hall,topic=sensors/hall/temperature value=21.5 1763344800123")
        );
        assert_eq!(one("a/b c", " 21 "), said(r"b\ c,topic=a/b\ c value=21 1763344800123"));
        assert_eq!(one("a", "true"), said("a,topic=a value=true 1763344800123"));
        assert_eq!(one("a", "ON"), said("a,topic=a value=true 1763344800123"));
        assert_eq!(one("a", "say \"hi\"\\"), said("a,topic=a value=\"say \\\"hi\\\"\\\\\" 1763344800123"));
        assert_eq!(
            one("a", r#"{"t":1,"x":{"y":"z","n":null},"l":[1]}"#),
            said(r#"a,topic=a t=1,x.y="z" 1763344800123"#)
        );
        assert_eq!(one("a/", "1"), said("mqtt,topic=a/ value=1 1763344800123"));
        for nothing in ["", "  ", "null", "[1]", "{}", "1e999"] {
            assert!(one("a", nothing).is_none_or(|line| nothing == "1e999" && line.contains("\"1e999\"")), "{nothing}");
        }
        let bytes = SinkMessage { payload: vec![0xff, 0xfe], ..message("a", "") };
        assert_eq!(body(&rules, &[bytes, message("a", "1")]).1, 1);
    }

    #[test]
    fn a_payload_may_say_when_it_was() {
        let rules = [LineRule { time_field: Some("ts".into()), measurement: Some("m".into()), ..rule("#", "") }];
        for ts in ["1763344800", "1763344800000", "1763344800000000", "1763344800000000000"] {
            let line = line(&rules, &message("a", &format!("{{\"ts\":{ts},\"v\":1}}")));
            assert_eq!(line.as_deref(), Some("m,topic=a v=1 1763344800000"), "{ts}");
        }
        assert_eq!(line(&rules, &message("a", r#"{"ts":-1,"v":1}"#)).as_deref(), Some("m,topic=a v=1 1763344800123"));
    }

    proptest! {
        /// Whatever is published: one line, three parts, nothing of it outside of its place.
        #[test]
        fn a_line_has_three_parts_and_one_end(topic in "[ -~äé\\\\]{1,20}", payload in ".{0,40}") {
            let rules = [rule("#", "a/measurement")];
            if let Some(line) = line(&rules, &message(&topic, &payload)) {
                prop_assert!(!line.contains(['\n', '\r']));
                let (mut parts, mut letters, mut is_quoted) = (1, line.chars(), false);
                while let Some(letter) = letters.next() {
                    match letter {
                        '\\' => { letters.next(); }
                        '"' if parts == 2 => is_quoted = !is_quoted,
                        ' ' if !is_quoted => parts += 1,
                        _ => {}
                    }
                }
                prop_assert_eq!((parts, is_quoted), (3, false), "{}", line);
            }
        }
    }
}
