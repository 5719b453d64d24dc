//! `/api/v1/topics`: what is published to, by a sample; `/api/v1/retained`: retained messages by filter.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Query, State};
use serde_json::{Value, json};
use tidegate_broker::ask::{Answer, Question};
use tidegate_core::retained::RetainedReport;

use crate::ask::ask;
use crate::guard::Principal;
use crate::limits::{FILTER_BYTES_MAX, TOPICS_MAX};
use crate::problem::{Answered, Problem, json_of};
use crate::process_control::Role;
use crate::state::AdminState;
use crate::view;

type Words = HashMap<String, String>;

pub(crate) async fn topics(State(state): State<Arc<AdminState>>) -> Answered {
    let (mut by_topic, mut rate, mut sampled) = (BTreeMap::<Box<str>, f64>::new(), 0.0, 0_usize);
    for shard in 0..state.handle.shards() {
        let Answer::Topics(report) = ask(&state, shard, Question::Topics).await? else { continue };
        let seconds = report.span.as_secs_f64().max(1.0);
        rate += report.messages as f64 / seconds;
        sampled += report.sample.len();
        for (topic, weight) in report.sample {
            *by_topic.entry(topic).or_default() += f64::from(weight) / seconds;
        }
    }
    let seen = by_topic.len();
    let mut rows: Vec<(Box<str>, f64)> = by_topic.into_iter().collect();
    rows.sort_by(|one, other| other.1.total_cmp(&one.1));
    rows.truncate(TOPICS_MAX);
    let rows: Vec<Value> =
        rows.iter().map(|(topic, rate)| json!({ "topic": &**topic, "rate": view::rounded(*rate) })).collect();
    let retained = state.handle.stats();
    Ok(json_of(&json!({
        "rate": view::rounded(rate),
        "sampled_messages": sampled,
        "sampled_topics": seen,
        "topics": rows,
        "retained_messages": retained.retained_messages,
        "retained_bytes": retained.retained_bytes,
    })))
}

pub(crate) async fn retained(
    State(state): State<Arc<AdminState>>,
    who: Option<Extension<Principal>>,
    Query(words): Query<Words>,
) -> Answered {
    let filter = words.get("filter").map_or("#", String::as_str);
    if filter.is_empty() || filter.len() > FILTER_BYTES_MAX || filter.contains('\0') {
        return Err(Problem::usage("filter must be a topic filter, such as house/+/temperature or #"));
    }
    let from =
        words.get("cursor").map(|cursor| unhex(cursor).ok_or_else(|| Problem::usage("this is no cursor of ours")));
    let question = Question::Retained { filter: filter.into(), from: from.transpose()? };
    // All shards keep all of them.
    let Answer::Retained { messages, next } = ask(&state, 0, question).await? else {
        return Err(Problem::busy("a shard answered something else"));
    };
    // What is in a message is more than how the broker is.
    let shows_payload = who.is_some_and(|Extension(who)| who.role >= Role::Operator);
    let rows: Vec<Value> = messages.iter().map(|message| row(message, shows_payload)).collect();
    Ok(json_of(&json!({ "messages": rows, "payloads_shown": shows_payload, "cursor": next.as_deref().map(hex) })))
}

fn row(message: &RetainedReport, shows_payload: bool) -> Value {
    let payload = shows_payload.then(|| String::from_utf8_lossy(&message.payload).into_owned());
    json!({
        "topic": &*message.topic,
        "qos": message.qos.bits(),
        "bytes": message.payload_bytes,
        "payload": payload,
        "is_cut": message.payload.len() < message.payload_bytes,
        "expires_s": message.expires_in.map(|left| left.as_secs()),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) || text.len() > 2 * FILTER_BYTES_MAX + 4 {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_an_address() {
        assert_eq!(unhex(&hex(b"a\0b\xff")), Some(b"a\0b\xff".to_vec()));
        for bad in ["a", "zz", "é0", "0é"] {
            assert_eq!(unhex(bad), None, "{bad}");
        }
    }
}
