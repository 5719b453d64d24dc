//! The messages of `/subscribe`, in SEPA's shapes: one JSON object each.

use std::time::Duration;

use oxrdf::{NamedNode, Term, Variable};
use serde_json::{Map, Value, json};
use tidegate_control::hints::{Asks, Hints};
use tidegate_graph::{GraphError, Limit, Query, QueryLimits, Row};

use crate::change::{Manner, WrittenChange};
use crate::http::problem::{LIMITED, OUTDATED};
use crate::limits::GRAPHS_MAX;
use crate::machine::request::{Begun, Refused, ResumePoint, Subscribed};

/// What a client says.
#[derive(Debug)]
pub(crate) enum SepaRequest {
    Subscribe(Box<WantedSubscription>),
    Unsubscribe { spuid: String, alias: Option<String> },
}

/// A subscription that a client wants; its query is not read yet.
#[derive(Debug)]
pub(crate) struct WantedSubscription {
    pub(crate) sparql: String,
    default: Vec<NamedNode>,
    named: Vec<NamedNode>,
    pub(crate) alias: Option<String>,
    pub(crate) seen: Option<ResumePoint>,
    pub(crate) asks: Asks,
}

impl WantedSubscription {
    /// Reads the query.
    pub(crate) fn query(&self, limits: &QueryLimits) -> Result<Query, GraphError> {
        let query = Query::parse(&self.sparql, limits)?;
        let is_plain = self.default.is_empty() && self.named.is_empty();
        Ok(if is_plain { query } else { query.on_graphs(self.default.clone(), self.named.clone()) })
    }
}

/// What is wrong, as the client is told.
#[derive(Debug)]
pub(crate) struct SepaError {
    pub(crate) code: u16,
    pub(crate) error: &'static str,
    pub(crate) description: String,
    pub(crate) alias: Option<String>,
    /// What is said about pace beside it.
    pub(crate) hints: Option<Box<Hints>>,
}

fn wrong(code: u16, error: &'static str, description: impl Into<String>, alias: Option<&str>) -> SepaError {
    SepaError { code, error, description: description.into(), alias: alias.map(str::to_owned), hints: None }
}

/// Reads one message. Members that are not known are passed over: a client sends its whole configuration along.
pub(crate) fn read(text: &str) -> Result<SepaRequest, SepaError> {
    let bad = |error: &'static str, words: &str| wrong(400, error, words, None);
    let message: Value = serde_json::from_str(text).map_err(|error| bad("not_json", &error.to_string()))?;
    let word = |of: &Value, name: &str| of.get(name).and_then(Value::as_str).map(str::to_owned);
    if let Some(subscribe) = message.get("subscribe") {
        let alias = word(subscribe, "alias");
        let wrong = |error, words: &str| wrong(400, error, words, alias.as_deref());
        let sparql = word(subscribe, "sparql").ok_or_else(|| wrong("bad_request", "sparql is missing"))?;
        let default = graphs(subscribe.get("default-graph-uri")).map_err(|words| wrong("bad_request", &words))?;
        let named = graphs(subscribe.get("named-graph-uri")).map_err(|words| wrong("bad_request", &words))?;
        // SEPA knows no coming back; these are the names of what a notification has.
        let sequence = subscribe.get("sequence").and_then(Value::as_u64);
        let seen = word(subscribe, "spuid").zip(sequence);
        let seen = seen.map(|(name, sequence)| ResumePoint { name, sequence, round: None });
        let asks = asks(subscribe);
        return Ok(SepaRequest::Subscribe(Box::new(WantedSubscription { sparql, default, named, alias, seen, asks })));
    }
    if let Some(unsubscribe) = message.get("unsubscribe") {
        let alias = word(unsubscribe, "alias");
        let spuid = word(unsubscribe, "spuid");
        let spuid = spuid.ok_or_else(|| wrong(400, "bad_request", "spuid is missing", alias.as_deref()))?;
        return Ok(SepaRequest::Unsubscribe { spuid, alias });
    }
    Err(bad("bad_request", "neither subscribe nor unsubscribe"))
}

/// What a message says about pace, as texts or numbers.
fn asks(message: &Value) -> Asks {
    let mut asks = Asks::default();
    // A subscription has no version: it goes on from a number.
    for known in Asks::NAMES.into_iter().filter(|name| *name != "pace-version") {
        match message.get(known) {
            Some(Value::String(text)) => drop(asks.read(known, text)),
            Some(Value::Number(number)) => drop(asks.read(known, &number.to_string())),
            _ => {}
        }
    }
    asks
}

/// One graph, a list of them, or nothing.
fn graphs(value: Option<&Value>) -> Result<Vec<NamedNode>, String> {
    let texts: Vec<&str> = match value {
        Some(Value::String(text)) if !text.is_empty() => vec![text],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if texts.len() > GRAPHS_MAX {
        return Err(format!("more than {GRAPHS_MAX} graphs"));
    }
    texts.into_iter().map(|text| NamedNode::new(text).map_err(|_| format!("{text:?} is no absolute IRI"))).collect()
}

/// A subscription as it is written about.
#[derive(Clone, Debug)]
pub(crate) struct SepaSubscription {
    pub(crate) spuid: String,
    pub(crate) alias: Option<String>,
    pub(crate) variables: Vec<Variable>,
}

impl SepaSubscription {
    pub(crate) fn new(subscribed: &Subscribed, alias: Option<String>) -> Self {
        let variables = match &subscribed.begun {
            Begun::Whole(baseline) => baseline.variables.clone(),
            Begun::Missed { variables, .. } => variables.clone(),
        };
        Self { spuid: subscribed.name.clone(), alias, variables }
    }

    /// The first one. Whoever came back is told whether it is what was missed, or the whole result again.
    /// Whoever is to go on checking is told how often.
    pub(crate) fn begin(&self, begun: &Begun, is_return: bool, hints: &Hints) -> String {
        let (mut told, is_missed) = match begun {
            Begun::Whole(baseline) => (self.told(baseline.sequence, &baseline.rows, &[]), false),
            Begun::Missed { sequence, delta, .. } => (self.told(*sequence, &delta.added, &delta.removed), true),
        };
        if is_return {
            told["resumed"] = is_missed.into();
        }
        say_delegation(&mut told, hints);
        json!({ "notification": told }).to_string()
    }

    /// Tells of a change. Its rows are written once for all who are told the same.
    pub(crate) fn notification(&self, sequence: u64, change: &WrittenChange) -> String {
        let rows = change.written(Manner::Sepa, || {
            let (added, removed) = (self.results(&change.added), self.results(&change.removed));
            format!(r#""addedResults":{added},"removedResults":{removed}"#)
        });
        let spuid = Value::from(self.spuid.as_str());
        let alias = self.alias.as_deref().map(|alias| format!(r#","alias":{}"#, Value::from(alias)));
        let alias = alias.unwrap_or_default();
        format!(r#"{{"notification":{{"spuid":{spuid}{alias},"sequence":{sequence},{rows}}}}}"#)
    }

    /// Nothing is new, but who brings what will be: said with the number of the last change.
    pub(crate) fn delegated(&self, sequence: u64, hints: &Hints) -> String {
        let mut told = self.told(sequence, &[], &[]);
        say_delegation(&mut told, hints);
        json!({ "notification": told }).to_string()
    }

    fn told(&self, sequence: u64, added: &[Row], removed: &[Row]) -> Value {
        let mut told = json!({
            "spuid": self.spuid,
            "sequence": sequence,
            "addedResults": self.results(added),
            "removedResults": self.results(removed),
        });
        if let Some(alias) = &self.alias {
            told["alias"] = alias.as_str().into();
        }
        told
    }

    fn results(&self, rows: &[Row]) -> Value {
        let names: Vec<&str> = self.variables.iter().map(Variable::as_str).collect();
        let bindings: Vec<Value> = rows.iter().map(|row| binding(&self.variables, row)).collect();
        json!({"head": {"vars": names}, "results": {"bindings": bindings}})
    }

    /// It is over, by the client's wish or ours; with many others if its client is to come back within a time.
    pub(crate) fn unsubscribed(&self, spread: Option<Duration>) -> String {
        let mut told = json!({"spuid": self.spuid});
        if let Some(alias) = &self.alias {
            told["alias"] = alias.as_str().into();
        }
        Hints { spread, ..Hints::default() }.write(|name, text| told[name] = text.into());
        json!({ "unsubscribed": told }).to_string()
    }
}

fn say_delegation(told: &mut Value, hints: &Hints) {
    if hints.delegate.is_some() {
        let words = Hints { delegate: hints.delegate, interval: hints.interval, ..Hints::default() };
        words.write(|name, text| told[name] = text.into());
    }
}

fn binding(variables: &[Variable], row: &Row) -> Value {
    let pairs = variables.iter().zip(row.iter()).filter_map(|(name, term)| Some((name, term.as_ref()?)));
    pairs.map(|(name, term)| (name.as_str().to_owned(), value(term))).collect::<Map<_, _>>().into()
}

fn value(term: &Term) -> Value {
    match term {
        Term::NamedNode(node) => json!({"type": "uri", "value": node.as_str()}),
        Term::BlankNode(node) => json!({"type": "bnode", "value": node.as_str()}),
        Term::Literal(literal) => {
            let mut value = json!({"type": "literal", "value": literal.value()});
            if let Some(language) = literal.language() {
                value["xml:lang"] = language.into();
            } else if literal.datatype() != oxrdf::vocab::xsd::STRING {
                value["datatype"] = literal.datatype().as_str().into();
            }
            value
        }
    }
}

impl SepaError {
    pub(crate) fn text(&self) -> String {
        let mut told = json!({"error": self.error, "status_code": self.code, "error_description": self.description});
        if let Some(alias) = &self.alias {
            told["alias"] = alias.as_str().into();
        }
        if let Some(hints) = &self.hints {
            hints.write(|name, text| told[name] = text.into());
        }
        told.to_string()
    }

    /// The query cannot be read.
    pub(crate) fn unread(error: &GraphError, alias: Option<&str>) -> Self {
        wrong(400, "parsing failed", error.to_string(), alias)
    }

    pub(crate) fn no_such(spuid: &str, alias: Option<&str>) -> Self {
        wrong(500, "sid_not_found", format!("no subscription {spuid}"), alias)
    }

    pub(crate) fn too_many(alias: Option<&str>) -> Self {
        wrong(429, "too_many_requests", "too many subscriptions on this connection", alias)
    }

    pub(crate) fn banned(words: &str, alias: Option<&str>) -> Self {
        wrong(403, "banned", words, alias)
    }

    pub(crate) fn ended(words: &str, alias: Option<&str>) -> Self {
        wrong(410, "subscription_ended", words, alias)
    }

    pub(crate) fn refused(refused: &Refused, alias: Option<&str>) -> Self {
        match refused {
            Refused::Busy(hints) => {
                let after = hints.retry_after.unwrap_or_default().as_millis().max(1);
                let words = format!("too much to do; come back in {after} ms");
                Self { hints: Some(hints.clone()), ..wrong(429, "too_many_requests", words, alias) }
            }
            Refused::Limited(after) => {
                let hints = Hints { retry_after: Some(*after), ..Hints::default() };
                Self { hints: Some(Box::new(hints)), ..wrong(429, "limited", LIMITED, alias) }
            }
            Refused::Late => wrong(503, "late", "not done in time", alias),
            Refused::Dropped => wrong(503, "dropped", "there is too much to do", alias),
            Refused::Outdated => wrong(409, "outdated", OUTDATED, alias),
            Refused::Unwritable => wrong(503, "unwritable", "the disk fails; nothing was changed", alias),
            Refused::Unconfirmed => wrong(503, "unconfirmed", "the disk fails; what is stored is not known", alias),
            Refused::TooLong => wrong(413, "too_long", "the result is too long", alias),
            Refused::Closing => wrong(503, "closing", "the broker ends", alias),
            Refused::Panicked => wrong(500, "failed", "an internal error, which is logged", alias),
            Refused::Unavailable(condition) => wrong(503, "unavailable", condition.words(), alias),
            Refused::Declined(_) => wrong(400, "bad_request", "declined", alias),
            Refused::Failed(error @ GraphError::Forbidden(_)) => wrong(403, "forbidden", error.to_string(), alias),
            Refused::Failed(error @ GraphError::Limit(Limit::DataBytes)) => {
                wrong(507, "memory_full", error.to_string(), alias)
            }
            Refused::Failed(error) => wrong(400, "failed", error.to_string(), alias),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_both_clients_are_read() {
        let text = r#"{"subscribe":{"sparql":"SELECT * {?s ?p ?o}","alias":"a","default-graph-uri":["urn:g"],
                       "named-graph-uri":"","host":"x","options":{"deep":[1]}}}"#;
        assert!(matches!(read(text), Ok(SepaRequest::Subscribe(wanted)) if wanted.alias.as_deref() == Some("a")));
        let text = r#"{"unsubscribe":{"spuid":"s","alias":"a","more":1}}"#;
        assert!(matches!(read(text), Ok(SepaRequest::Unsubscribe { spuid, .. }) if spuid == "s"));
    }

    #[test]
    fn everything_else_is_answered_with_its_alias() {
        for text in ["", "[]", "nonsense", "{}", r#"{"subscribe":1}"#, r#"{"subscribe":{}}"#, r#"{"unsubscribe":{}}"#] {
            assert_eq!(read(text).unwrap_err().code, 400, "{text}");
        }
        let Ok(SepaRequest::Subscribe(wanted)) = read(r#"{"subscribe":{"sparql":"SELEC","alias":"x"}}"#) else {
            panic!()
        };
        let error = wanted.query(&QueryLimits::default()).unwrap_err();
        let told = SepaError::unread(&error, wanted.alias.as_deref()).text();
        assert!(told.contains(r#""alias":"x""#) && told.contains(r#""error":"parsing failed""#), "{told}");
        let deep = "[".repeat(100_000);
        assert_eq!(read(&deep).unwrap_err().code, 400);
    }

    #[test]
    fn a_notification_has_all_that_clients_look_at_even_if_empty() {
        let variables = vec![Variable::new_unchecked("o")];
        let subscription = SepaSubscription { spuid: "s\"".into(), alias: Some("a".into()), variables };
        let row: Row = std::sync::Arc::from([Some(Term::from(oxrdf::Literal::from(5)))]);
        let delta = tidegate_graph::ResultDelta { added: vec![row], removed: vec![] };
        let change = WrittenChange::from(std::sync::Arc::new(delta));
        let told: Value = serde_json::from_str(&subscription.notification(0, &change)).unwrap();
        let expected = json!({"notification": {"spuid": "s\"", "alias": "a", "sequence": 0,
            "addedResults": {"head": {"vars": ["o"]}, "results": {"bindings": [{"o": {"type": "literal", "value": "5",
                "datatype": "http://www.w3.org/2001/XMLSchema#integer"}}]}},
            "removedResults": {"head": {"vars": ["o"]}, "results": {"bindings": []}}}});
        assert_eq!(told, expected);
    }
}
