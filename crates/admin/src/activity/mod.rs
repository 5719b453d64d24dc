//! `/api/v1/log`: what one client does, or what becomes of the messages of a topic, line by line, for `tidegate log` and the page.
//!
//! A log is begun, and then fetched several times a second by whoever began it; one that is not fetched ends by itself, here and
//! in the shards. There are few at a time. No payload is in it.

mod words;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Value, json};
use tidegate_broker::ask::{Answer, Question};
use tidegate_core::activity::{Activity, ActivityFilter, RecordedActivities};

use crate::ask::ask;
use crate::audit::about;
use crate::body::{text, words_in};
use crate::limits::{LOG_LEASE, LOGS_MAX};
use crate::problem::{Answered, Problem, json_of};
use crate::state::{AdminState, lock};
use crate::view;

/// A log that is followed.
#[derive(Clone, Debug)]
pub(crate) struct FollowedLog {
    key: u64,
    filter: ActivityFilter,
    asked_at: Instant,
}

pub(crate) async fn begin(State(state): State<Arc<AdminState>>, headers: HeaderMap, body: Bytes) -> Answered {
    let words = words_in(&headers, &body)?;
    let given = |name: &str| text(&words, name).filter(|text| !text.is_empty());
    let (client, topic) = (given("client"), given("topic"));
    if client.is_none() && topic.is_none() {
        return Err(Problem::usage("\"client\" or \"topic\" is missing: a log is of one client, or of some topics"));
    }
    let wrong = || Problem::usage("\"topic\" must be a topic filter, such as house/+/temperature or #");
    let filter = ActivityFilter::new(client.as_deref(), topic.as_deref()).ok_or_else(wrong)?;
    let mut key = [0; 8];
    SystemRandom::new().fill(&mut key).map_err(|_| Problem::busy("the system gives no random numbers"))?;
    let key = u64::from_le_bytes(key);
    {
        let mut logs = lock(&state.logs);
        logs.retain(|log| log.asked_at.elapsed() < LOG_LEASE);
        if logs.len() >= LOGS_MAX {
            return Err(too_many());
        }
        logs.push(FollowedLog { key, filter: filter.clone(), asked_at: Instant::now() });
    }
    fetch(&state, key, &filter).await?;
    let whom = [client.map(|it| format!("client {it}")), topic.map(|it| format!("topic {it}"))];
    let whom: Vec<String> = whom.into_iter().flatten().collect();
    Ok(about(whom.join(", "), json_of(&json!({ "log": format!("{key:016x}") }))))
}

pub(crate) async fn take(
    State(state): State<Arc<AdminState>>,
    Query(words): Query<HashMap<String, String>>,
) -> Answered {
    let key = words.get("log").and_then(|key| u64::from_str_radix(key, 16).ok());
    let gone = || Problem::new(StatusCode::NOT_FOUND, "no-log", "there is no such log, or it has ended");
    let found = {
        let mut logs = lock(&state.logs);
        let log = logs.iter_mut().find(|log| Some(log.key) == key);
        log.map(|log| {
            log.asked_at = Instant::now();
            log.clone()
        })
    };
    let log = found.ok_or_else(gone)?;
    let RecordedActivities { activities, missed } = fetch(&state, log.key, &log.filter).await?;
    let lines: Vec<Value> = activities.iter().map(|activity| line(&state, activity)).collect();
    Ok(json_of(&json!({ "lines": lines, "missed": missed })))
}

/// Lets go of logs that have ended; looked at once a second.
pub(crate) fn forget(state: &AdminState) {
    lock(&state.logs).retain(|log| log.asked_at.elapsed() < LOG_LEASE);
}

fn too_many() -> Problem {
    let detail = format!("{LOGS_MAX} logs are followed already; one ends five seconds after it was fetched last");
    Problem::new(StatusCode::CONFLICT, "logs", detail)
}

/// What all shards have written down, in the order of time.
async fn fetch(state: &AdminState, key: u64, filter: &ActivityFilter) -> Result<RecordedActivities, Problem> {
    let mut all = RecordedActivities::default();
    for shard in 0..state.handle.shards() {
        let question = Question::Activities { key, filter: filter.clone() };
        if let Answer::Activities(found) = ask(state, shard, question).await? {
            let found = found.map_err(|_| too_many())?;
            all.activities.extend(found.activities);
            all.missed += found.missed;
        }
    }
    all.activities.sort_by_key(|activity| activity.at);
    Ok(all)
}

fn line(state: &AdminState, activity: &Activity) -> Value {
    let at = state.wall(activity.at);
    let mut line = words::line(&activity.deed);
    line["at"] = json!(with_millis(&view::rfc3339(at), at.duration_since(UNIX_EPOCH).unwrap_or_default()));
    line["client"] = json!(&*activity.client_id);
    line
}

/// A log is read beside others: seconds are not enough to tell what came first.
fn with_millis(seconds: &str, since: Duration) -> String {
    format!("{}.{:03}Z", seconds.trim_end_matches('Z'), since.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_milliseconds() {
        let at = Duration::from_millis(1_042);
        assert_eq!(with_millis("1970-01-01T00:00:01Z", at), "1970-01-01T00:00:01.042Z");
    }
}
