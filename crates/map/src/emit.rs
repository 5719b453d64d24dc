//! From a solution of a standing query to a message.

use oxrdf::vocab::xsd;
use oxrdf::{Term, Variable};
use serde_json::{Map, Value};
use tidegate_graph::{Query, QueryLimits};
use tidegate_wire_mqtt::{Limits, QoS, topic};

use crate::digits::is_whole;
use crate::fault::MapFault;
use crate::limits::TOPIC_BYTES_MAX;
use crate::loss::Loss;
use crate::term::Prefixes;
use crate::text::split;

/// A rule as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmitRule {
    /// What is watched: a SPARQL SELECT.
    pub query: String,
    /// Where its solutions are published: `alarm/{room}` with the names of its variables.
    pub topic: String,
    /// The changes of the result that make a message.
    pub on: EmitOn,
    /// Quality of service.
    pub qos: QoS,
    /// Whether the newest message of each topic is kept for those who subscribe later.
    pub retain: bool,
}

/// Which changes of a result make a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EmitOn {
    /// A solution that is there now.
    #[default]
    Added,
    /// One that is not any more.
    Removed,
    /// Both.
    Both,
}

impl EmitOn {
    /// Whether solutions that came (or went) make a message.
    pub fn includes(self, is_added: bool) -> bool {
        self == Self::Both || (self == Self::Added) == is_added
    }
}

/// A rule that can be used.
#[derive(Clone, Debug)]
pub struct Emit {
    query: Query,
    variables: Vec<Variable>,
    topic: Vec<TemplatePart>,
    on: EmitOn,
    qos: QoS,
    retain: bool,
}

#[derive(Clone, Debug)]
enum TemplatePart {
    Fixed(String),
    /// The variable at this place.
    Variable(usize),
}

/// A message to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmittedMessage {
    /// The topic.
    pub topic: String,
    /// A JSON object.
    pub payload: Vec<u8>,
    /// Quality of service.
    pub qos: QoS,
    /// Whether it is kept.
    pub retain: bool,
}

/// The member of a payload that says whether a solution came or went.
const CHANGE: &str = "change";

impl Emit {
    /// Compiles a rule.
    pub fn new(rule: &EmitRule, prefixes: &Prefixes) -> Result<Self, MapFault> {
        // On the first line, so that errors name the line that the operator sees. What a query declares itself holds.
        let query = Query::parse(&format!("{}{}", prefixes.sparql(), rule.query), &QueryLimits::default());
        let query = query.map_err(|error| MapFault::new("query", error.to_string()))?;
        let variables = query.variables().ok_or_else(|| {
            MapFault::new("query", "only the solutions of a SELECT can be published").with_hint("write SELECT ?x { … }")
        })?;
        if variables.iter().any(|variable| variable.as_str() == CHANGE) {
            let hint = "choose another name: this member says \"added\" or \"removed\"";
            return Err(MapFault::new("query", "the variable ?change is taken").with_hint(hint));
        }
        let open = |name: &str| {
            let name = name.trim().trim_start_matches('?');
            let place = variables.iter().position(|variable| variable.as_str() == name);
            let known = || variables.iter().map(|variable| variable.as_str().to_owned()).collect();
            place.map(TemplatePart::Variable).ok_or_else(|| MapFault::unknown("topic", "variable", name, known()))
        };
        let parts = split(&rule.topic, "topic", open, TemplatePart::Fixed)?;
        let sample: String =
            parts.iter().map(|part| if let TemplatePart::Fixed(text) = part { text } else { "x" }).collect();
        if let Err(violation) = topic::check_name(&sample, &Limits::default()) {
            return Err(MapFault::new("topic", format!("{:?} is no topic: {}", rule.topic, violation.detail)));
        }
        if sample.starts_with('$') || matches!(parts.first(), Some(TemplatePart::Variable(_))) {
            let hint = "such as alarm/{room}";
            return Err(MapFault::new("topic", "a topic begins with fixed text, and not with $").with_hint(hint));
        }
        let EmitRule { on, qos, retain, .. } = *rule;
        Ok(Self { query, variables, topic: parts, on, qos, retain })
    }

    /// The query whose result is watched.
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// The message about a solution that came or went; none if this rule does not tell of such.
    pub fn apply(&self, row: &[Option<Term>], is_added: bool) -> Option<Result<EmittedMessage, Loss>> {
        self.on.includes(is_added).then(|| self.message(row, is_added))
    }

    fn message(&self, row: &[Option<Term>], is_added: bool) -> Result<EmittedMessage, Loss> {
        let mut name = String::new();
        for part in &self.topic {
            match part {
                TemplatePart::Fixed(text) => name.push_str(text),
                TemplatePart::Variable(place) => {
                    let term = row.get(*place).and_then(Option::as_ref).ok_or(Loss::TopicInvalid)?;
                    level(text_of(term), &mut name);
                }
            }
        }
        if name.len() > TOPIC_BYTES_MAX || topic::check_name(&name, &Limits::default()).is_err() {
            return Err(Loss::TopicInvalid);
        }
        let change = if is_added { "added" } else { "removed" };
        let mut members = Map::from_iter([(CHANGE.to_owned(), Value::from(change))]);
        for (variable, term) in self.variables.iter().zip(row) {
            if let Some(term) = term {
                members.insert(variable.as_str().to_owned(), value_of(term));
            }
        }
        let payload = Value::Object(members).to_string().into_bytes();
        Ok(EmittedMessage { topic: name, payload, qos: self.qos, retain: self.retain })
    }
}

fn text_of(term: &Term) -> &str {
    match term {
        Term::NamedNode(node) => node.as_str(),
        Term::BlankNode(node) => node.as_str(),
        Term::Literal(literal) => literal.value(),
    }
}

/// As a part of one level: what would begin another, or is a wildcard, is percent-encoded.
fn level(text: &str, out: &mut String) {
    use std::fmt::Write;
    for sign in text.chars() {
        if matches!(sign, '/' | '+' | '#' | '%') || sign.is_control() {
            let mut bytes = [0; 4];
            for byte in sign.encode_utf8(&mut bytes).bytes() {
                let _ = write!(out, "%{byte:02X}");
            }
        } else {
            out.push(sign);
        }
    }
}

/// A term as JSON has it: numbers and truth values as they are, all others as their text.
fn value_of(term: &Term) -> Value {
    let Term::Literal(literal) = term else { return text_of(term).into() };
    let text = literal.value();
    let is_number = [xsd::INTEGER, xsd::DECIMAL, xsd::DOUBLE, xsd::FLOAT, xsd::LONG, xsd::INT];
    if is_number.contains(&literal.datatype()) {
        let whole = text.parse::<i64>().map(Value::from).or_else(|_| text.parse::<u64>().map(Value::from)).ok();
        if whole.is_none() && is_whole(text) {
            // Whoever reads JSON would make a double of it (RFC 8259, section 6): its digits are worth more.
            return text.into();
        }
        let number = whole.or_else(|| serde_json::Number::from_f64(text.parse().ok()?).map(Value::Number));
        return number.unwrap_or_else(|| text.into());
    }
    match (literal.datatype() == xsd::BOOLEAN, text) {
        (true, "true" | "1") => true.into(),
        (true, "false" | "0") => false.into(),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use oxrdf::{Literal, NamedNode};

    use super::*;

    fn rule(query: &str, topic: &str) -> Result<Emit, MapFault> {
        Emit::new(
            &EmitRule { query: query.to_owned(), topic: topic.to_owned(), ..EmitRule::default() },
            &Prefixes::default(),
        )
    }

    #[test]
    fn a_solution_becomes_a_topic_and_an_object() {
        let emit = rule("SELECT ?room ?v ?b ?n { ?room <urn:p> ?v }", "alarm/{room}/{?v}").unwrap();
        let room = Term::from(NamedNode::new_unchecked("http://e/a+b#c"));
        let row = [Some(room), Some(Literal::from(21.5).into()), Some(Literal::from(true).into()), None];
        let message = emit.apply(&row, true).unwrap().unwrap();
        assert_eq!(message.topic, "alarm/http:%2F%2Fe%2Fa%2Bb%23c/21.5");
        let payload: Value = serde_json::from_slice(&message.payload).unwrap();
        let expected = serde_json::json!({"change": "added", "room": "http://e/a+b#c", "v": 21.5, "b": true});
        assert_eq!(payload, expected);
        assert_eq!(emit.apply(&row, false), None);
        let unbound = [None, None, None, None];
        assert_eq!(emit.apply(&unbound, true), Some(Err(Loss::TopicInvalid)));
    }

    #[test]
    fn a_rule_is_refused_with_a_reason() {
        for (query, topic, field) in [
            ("SELEC", "a", "query"),
            ("ASK { ?s ?p ?o }", "a", "query"),
            ("SELECT ?change { ?change ?p ?o }", "a", "query"),
            ("SELECT ?s { ?s ?p ?o }", "a/{o}", "topic"),
            ("SELECT ?s { ?s ?p ?o }", "a/{s", "topic"),
            ("SELECT ?s { ?s ?p ?o }", "a/+", "topic"),
            ("SELECT ?s { ?s ?p ?o }", "", "topic"),
            ("SELECT ?s { ?s ?p ?o }", "{s}", "topic"),
            ("SELECT ?s { ?s ?p ?o }", "$SYS/{s}", "topic"),
        ] {
            assert_eq!(rule(query, topic).unwrap_err().field, field, "{query} {topic}");
        }
    }

    #[test]
    fn whole_numbers_keep_their_digits() {
        let value = |text: &str| value_of(&Literal::new_typed_literal(text, xsd::INTEGER).into());
        assert_eq!(value("-9223372036854775808"), serde_json::json!(i64::MIN));
        assert_eq!(value("18446744073709551615"), serde_json::json!(u64::MAX));
        assert_eq!(value("18446744073709551616"), serde_json::json!("18446744073709551616"));
        assert_eq!(value("+5"), serde_json::json!(5));
    }
}
