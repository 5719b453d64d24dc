//! The messages of a WebSocket, in SEPA's shapes, as a client writes and reads them.

use serde_json::{Value, json};
use tidegate_control::hints::{Asks, Hints};

use super::BrokerRefusal;
use super::row::{Delta, Row};
use super::sparql::rows_of;
use crate::prelude::*;

/// A message of a broker.
#[derive(Clone, Debug, PartialEq)]
pub enum SepaInput {
    /// A notification; number 0 is the baseline.
    Notification {
        /// The subscription.
        spuid: String,
        /// The name that we gave it; some brokers repeat it only at the beginning.
        alias: Option<String>,
        /// The number of the notification.
        sequence: u64,
        /// The rows that entered and left the result.
        delta: Delta,
        /// The first one after a return: whether it is what was missed, or the whole result.
        resumed: bool,
        /// What is said about pace.
        hints: Box<Hints>,
    },
    /// A subscription is over.
    Unsubscribed {
        /// The subscription's identifier.
        spuid: String,
        /// What is said about pace.
        hints: Box<Hints>,
    },
    /// A request was refused.
    Refused {
        /// The name that we gave it, if the broker repeats it.
        alias: Option<String>,
        /// Why the broker refused.
        refusal: BrokerRefusal,
    },
}

/// Asks for a subscription; `resume` is the name and the last number of one that shall go on.
pub fn subscribe(sparql: &str, alias: &str, resume: Option<(&str, u64)>, asks: &Asks) -> String {
    let mut wish = json!({"sparql": sparql, "alias": alias, "default-graph-uri": [], "named-graph-uri": []});
    // Members that a broker does not know are passed over.
    if let Some((spuid, sequence)) = resume {
        wish["spuid"] = spuid.into();
        wish["sequence"] = sequence.into();
    }
    asks.write(|name, text| wish[name] = text.into());
    json!({ "subscribe": wish }).to_string()
}

/// Ends a subscription.
pub fn unsubscribe(spuid: &str) -> String {
    json!({"unsubscribe": {"spuid": spuid}}).to_string()
}

/// Reads one message. `None` for one that means nothing to us.
pub fn read(text: &str) -> Result<Option<SepaInput>, BrokerRefusal> {
    let nonsense = |words: &str| BrokerRefusal::Nonsense(words.to_owned());
    let message: Value = serde_json::from_str(text).map_err(|error| nonsense(&error.to_string()))?;
    let word = |of: &Value, name: &str| of.get(name).and_then(Value::as_str).map(str::to_owned);
    if let Some(told) = message.get("notification") {
        let spuid = word(told, "spuid").ok_or_else(|| nonsense("a notification without spuid"))?;
        let sequence = told.get("sequence").and_then(Value::as_u64);
        let sequence = sequence.ok_or_else(|| nonsense("a notification without sequence"))?;
        let rows = |name: &str| match told.get(name) {
            Some(results) => rows_of(results),
            None => Ok(Vec::<Row>::new()),
        };
        let delta = Delta { added: rows("addedResults")?, removed: rows("removedResults")? };
        let hints = Box::new(hints_of(told));
        let resumed = told.get("resumed").and_then(Value::as_bool) == Some(true);
        return Ok(Some(SepaInput::Notification {
            spuid,
            alias: word(told, "alias"),
            sequence,
            delta,
            resumed,
            hints,
        }));
    }
    if let Some(told) = message.get("unsubscribed") {
        let hints = Box::new(hints_of(told));
        return Ok(word(told, "spuid").map(|spuid| SepaInput::Unsubscribed { spuid, hints }));
    }
    if let Some(error) = word(&message, "error") {
        let alias = word(&message, "alias");
        let words = word(&message, "error_description").map_or(error.clone(), |more| format!("{error}: {more}"));
        let code = message.get("status_code").and_then(Value::as_u64).unwrap_or(500);
        let refusal = match code {
            _ if matches!(code, 429 | 503) || error == "too_many_requests" => {
                // Of one that is busy the reason is that it is.
                let why = (!matches!(error.as_str(), "busy" | "too_many_requests")).then(|| words.into());
                BrokerRefusal::Busy(Box::new(hints_of(&message)), why)
            }
            401 | 403 => BrokerRefusal::Denied(words),
            501 => BrokerRefusal::Unsupported(words),
            400..=499 => BrokerRefusal::Rejected(words),
            _ => BrokerRefusal::Failed(words),
        };
        return Ok(Some(SepaInput::Refused { alias, refusal }));
    }
    Ok(None)
}

/// Members that speak of pace, as texts or numbers.
fn hints_of(message: &Value) -> Hints {
    let mut hints = Hints::default();
    for (name, value) in message.as_object().into_iter().flatten() {
        match value {
            Value::String(text) => {
                hints.read(name, text);
            }
            Value::Number(number) => {
                hints.read(name, &number.to_string());
            }
            _ => {}
        }
    }
    hints
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::session::row::literal_row;

    #[test]
    fn what_an_engine_of_sepa_says_is_understood() {
        let text = r#"{"notification":{"spuid":"sepa://subscription/3756","alias":"lamp1","sequence":0,
            "addedResults":{"head":{"vars":["o"]},"results":{"bindings":[{"o":{"type":"literal","value":"off"}}]}},
            "removedResults":{}}}"#;
        let delta = Delta { added: vec![literal_row("o", "off")], removed: Vec::new() };
        let spuid = "sepa://subscription/3756".to_owned();
        let alias = Some("lamp1".into());
        let told = SepaInput::Notification { spuid, alias, sequence: 0, delta, resumed: false, hints: Box::default() };
        assert_eq!(read(text), Ok(Some(told)));
        let busy = r#"{"error":"too_many_requests","status_code":500,"pace-retry-after-ms":70}"#;
        let hints = Hints { retry_after: Some(Duration::from_millis(70)), ..Hints::default() };
        assert_eq!(
            read(busy),
            Ok(Some(SepaInput::Refused { alias: None, refusal: BrokerRefusal::Busy(Box::new(hints), None) }))
        );
        assert_eq!(read(r#"{"ping":1}"#), Ok(None));
    }

    #[test]
    fn nonsense_is_named() {
        for text in ["", "[", "nonsense", r#"{"notification":{}}"#, r#"{"notification":{"spuid":"s","sequence":-1}}"#] {
            assert!(matches!(read(text), Err(BrokerRefusal::Nonsense(_))), "{text}");
        }
        let bad = r#"{"notification":{"spuid":"s","sequence":1,"addedResults":{"results":{"bindings":[{"o":5}]}}}}"#;
        assert!(matches!(read(bad), Err(BrokerRefusal::Nonsense(_))));
    }
}
