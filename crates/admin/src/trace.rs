//! `/api/v1/trace`: when messages come, without a name of anybody, for `tidegate what-if`.
//!
//! One recording at a time. Whoever began it fetches what was written down, several times a second; a recording that is
//! not fetched ends by itself, here and in the shards.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Map, Value, json};
use tidegate_broker::ask::{Answer, Question};
use tidegate_control::Timestamp;
use tidegate_core::glob::Glob;
use tidegate_core::trace::GROUPS_MAX;
use tidegate_core::{Arrived, RecordedGroups};

use crate::ask::ask;
use crate::body::words_in;
use crate::limits::{RECORDING_LEASE, TRACED_MAX};
use crate::problem::{Answered, Problem, json_of, text};
use crate::state::{AdminState, lock};

type Words = HashMap<String, String>;

/// A recording that is under way.
pub(crate) struct TraceRecording {
    /// What its owner shows. Also what shards hash with: nobody can find out who a number stands for.
    key: u64,
    since: Timestamp,
    groups: RecordedGroups,
    asked_at: Instant,
    publishers: Numbers,
    topics: Numbers,
}

/// In the order in which they were first seen.
#[derive(Default)]
struct Numbers(HashMap<u64, usize>);

impl Numbers {
    fn number(&mut self, of: u64) -> usize {
        let next = self.0.len();
        if next >= TRACED_MAX {
            return self.0.get(&of).copied().unwrap_or(TRACED_MAX);
        }
        *self.0.entry(of).or_insert(next)
    }
}

pub(crate) async fn begin(State(state): State<Arc<AdminState>>, headers: HeaderMap, body: Bytes) -> Answered {
    let words = if body.is_empty() { Map::new() } else { words_in(&headers, &body)? };
    let groups = groups_of(words.get("groups").unwrap_or(&Value::Null))?;
    let mut key = [0; 8];
    SystemRandom::new().fill(&mut key).map_err(|_| Problem::busy("the system gives no random numbers"))?;
    let key = u64::from_le_bytes(key);
    {
        let mut trace = lock(&state.trace);
        if trace.as_ref().is_some_and(|trace| trace.asked_at.elapsed() < RECORDING_LEASE) {
            let detail = "a recording is under way; it ends five seconds after it was fetched last";
            return Err(Problem::new(StatusCode::CONFLICT, "recording", detail));
        }
        *trace = Some(TraceRecording {
            key,
            since: state.handle.now(),
            groups: Arc::clone(&groups),
            asked_at: Instant::now(),
            publishers: Numbers::default(),
            topics: Numbers::default(),
        });
    }
    for shard in 0..state.handle.shards() {
        ask(&state, shard, Question::Arrivals { seed: key, groups: Arc::clone(&groups) }).await?;
    }
    Ok(json_of(&json!({ "recording": format!("{key:016x}") })))
}

/// Patterns of client identifiers, in order.
fn groups_of(body: &Value) -> Result<RecordedGroups, Problem> {
    let wrong = || {
        let detail = format!("groups: expected a list of at most {GROUPS_MAX} patterns of client identifiers");
        Problem::new(StatusCode::BAD_REQUEST, "groups", detail)
    };
    let patterns = match body {
        Value::Null => return Ok(RecordedGroups::default()),
        Value::Array(patterns) if patterns.len() <= GROUPS_MAX => patterns,
        _ => return Err(wrong()),
    };
    let glob = |pattern: &Value| pattern.as_str().filter(|text| !text.is_empty() && text.len() <= 256).map(Glob::new);
    patterns.iter().map(glob).collect::<Option<_>>().ok_or_else(wrong)
}

pub(crate) async fn take(State(state): State<Arc<AdminState>>, Query(words): Query<Words>) -> Answered {
    let key = words.get("recording").and_then(|key| u64::from_str_radix(key, 16).ok());
    let gone = || Problem::new(StatusCode::NOT_FOUND, "no-recording", "there is no such recording, or it has ended");
    let key = key.ok_or_else(gone)?;
    let groups = {
        let trace = lock(&state.trace);
        let trace = trace.as_ref().filter(|trace| trace.key == key).ok_or_else(gone)?;
        Arc::clone(&trace.groups)
    };
    let (mut arrived, mut missed, mut unheard) = (Vec::new(), 0, 0);
    for shard in 0..state.handle.shards() {
        match ask(&state, shard, Question::Arrivals { seed: key, groups: Arc::clone(&groups) }).await {
            Ok(Answer::Arrivals(arrivals)) => {
                arrived.extend(arrivals.arrived);
                missed += arrivals.missed;
            }
            // What the others have told is not told again.
            _ => unheard += 1,
        }
    }
    arrived.sort_by_key(|arrived| arrived.at);
    let mut trace = lock(&state.trace);
    let trace = trace.as_mut().filter(|trace| trace.key == key).ok_or_else(gone)?;
    trace.asked_at = Instant::now();
    // Written by hand: there may be a hundred thousand.
    let mut body = format!("{{\"missed\":{missed},\"unheard\":{unheard},\"arrivals\":[");
    for (number, arrived) in arrived.iter().enumerate() {
        body.push_str(if number > 0 { "," } else { "" });
        trace.write(arrived, &mut body);
    }
    body.push_str("]}");
    Ok(text(StatusCode::OK, "application/json", body))
}

/// Lets go of a recording that has ended; looked at once a second.
pub(crate) fn forget(state: &AdminState) {
    lock(&state.trace).take_if(|trace| trace.asked_at.elapsed() >= RECORDING_LEASE);
}

impl TraceRecording {
    /// Microseconds since the beginning, publisher, topic, bytes of the topic, bytes of the payload, QoS, retained, group.
    fn write(&mut self, arrived: &Arrived, out: &mut String) {
        let micros = arrived.at.since(self.since).as_micros();
        let (publisher, topic) = (self.publishers.number(arrived.publisher), self.topics.number(arrived.topic));
        let Arrived { topic_bytes, payload_bytes, qos, retain, group, .. } = arrived;
        let (qos, retain) = (qos.bits(), u8::from(*retain));
        // Writing to a string cannot fail.
        let _ = write!(out, "[{micros},{publisher},{topic},{topic_bytes},{payload_bytes},{qos},{retain},{group}]");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_order_of_appearance_and_end() {
        let mut numbers = Numbers::default();
        let seen: Vec<usize> = [77, 5, 77, 9].into_iter().map(|of| numbers.number(of)).collect();
        assert_eq!(seen, [0, 1, 0, 2]);
        for of in 0..TRACED_MAX as u64 + 5 {
            assert!(numbers.number(of) <= TRACED_MAX);
        }
        assert_eq!(numbers.0.len(), TRACED_MAX);
        assert_eq!(numbers.number(u64::MAX), TRACED_MAX);
        assert_eq!(numbers.number(77), 0);
    }
}
