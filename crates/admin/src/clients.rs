//! `/api/v1/clients`: lists by any column, one client, connections that have ended, and the end of one.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde_json::{Value, json};
use tidegate_broker::ask::{Answer, Closed, Question};
use tidegate_core::report::{ClientDetail, ClientReport, ClientState};

use crate::ask::{ask, walk};
use crate::audit::about;
use crate::limits::{ROWS_MAX, ROWS_USUAL};
use crate::live::unix_seconds;
use crate::problem::{Answered, Problem, json_of, no_client};
use crate::state::{AdminState, lock};
use crate::view;
use crate::why::words;

/// A column to sort by, the largest first; names go from A to Z.
#[derive(Clone, Copy)]
struct Column {
    name: &'static str,
    of: fn(&ClientReport) -> f64,
}

const COLUMNS: &[Column] = &[
    Column { name: "id", of: |_| 0.0 },
    Column { name: "trouble", of: |client| trouble(client) },
    Column { name: "rate", of: |client| client.rate.unwrap_or(0.0) },
    Column { name: "delay", of: |client| client.delay.as_secs_f64() },
    Column { name: "state", of: |client| f64::from(client.state as u8) },
    Column { name: "queue", of: |client| client.queued.0 as f64 },
    Column { name: "queue_bytes", of: |client| client.queued.1 as f64 },
    Column { name: "drops", of: |client| view::drops(&client.ledger) as f64 },
    Column { name: "refused", of: |client| client.ledger.refused() as f64 },
    Column { name: "received", of: |client| client.ledger.received as f64 },
    Column { name: "delivered", of: |client| client.ledger.delivered as f64 },
    Column { name: "bytes", of: |client| (client.ledger.bytes_received + client.ledger.bytes_sent) as f64 },
    Column { name: "subscriptions", of: |client| client.subscriptions as f64 },
];

/// Who is worth a look first: those who lose or are held back, then by rate.
fn trouble(client: &ClientReport) -> f64 {
    // More than anybody sends in a second.
    const STEP: f64 = 1e9;
    let rank = match client.state {
        ClientState::Ok | ClientState::Away => 0.0,
        state => f64::from(state as u8),
    };
    rank * STEP + client.rate.unwrap_or(0.0)
}

/// A place in the order: by the column downwards, then by name upwards.
#[derive(Clone, Debug, PartialEq)]
struct SortPlace {
    value: f64,
    client_id: Arc<str>,
}

impl SortPlace {
    fn of(client: &ClientReport, column: Column) -> Self {
        Self { value: (column.of)(client), client_id: Arc::clone(&client.client_id) }
    }

    fn cmp(&self, other: &Self) -> Ordering {
        other.value.total_cmp(&self.value).then_with(|| self.client_id.cmp(&other.client_id))
    }

    /// Where the next page begins: after this.
    fn to_cursor(&self) -> String {
        format!("{:016x}:{}", self.value.to_bits(), self.client_id)
    }

    fn from_cursor(text: &str) -> Option<Self> {
        let (bits, client_id) = text.split_once(':')?;
        let value = f64::from_bits(u64::from_str_radix(bits, 16).ok()?);
        Some(Self { value, client_id: client_id.into() })
    }
}

type Words = HashMap<String, String>;

pub(crate) async fn list(State(state): State<Arc<AdminState>>, Query(words): Query<Words>) -> Answered {
    let limit = limit(&words)?;
    let wanted = words.get("state").map(String::as_str);
    if wanted == Some("closed") {
        return list_closed(&state, limit).await;
    }
    let sort = words.get("sort").map_or("id", String::as_str);
    let column = COLUMNS.iter().find(|column| column.name == sort).copied().ok_or_else(|| {
        let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
        Problem::usage(format!("cannot sort by {sort:?}; there are {}", names.join(", ")))
    })?;
    let after = match words.get("cursor") {
        Some(cursor) => {
            Some(SortPlace::from_cursor(cursor).ok_or_else(|| Problem::usage("this is no cursor of ours"))?)
        }
        None => None,
    };
    let is_wanted = |client: &ClientReport| wanted.is_none_or(|wanted| is_in_state(client.state, wanted));
    let (rows, total) = first(&state, column, after.as_ref(), limit, is_wanted).await?;
    let next = (rows.len() == limit).then(|| rows.last()).flatten();
    let clients: Vec<Value> = rows.iter().map(|(_, client)| view::client(&state, client)).collect();
    Ok(json_of(&json!({
        "clients": clients,
        "total": total,
        "cursor": next.map(|(place, _)| place.to_cursor()),
    })))
}

/// Who is away and loses is both.
fn is_in_state(state: ClientState, wanted: &str) -> bool {
    let is_both = state == ClientState::AwayLosing && ["away", "losing"].contains(&wanted);
    is_both || state.name() == wanted
}

/// The first so many clients in an order, and how many there are.
async fn first(
    state: &AdminState,
    column: Column,
    after: Option<&SortPlace>,
    limit: usize,
    is_wanted: impl Fn(&ClientReport) -> bool,
) -> Result<(Vec<(SortPlace, ClientReport)>, usize), Problem> {
    let mut rows: Vec<(SortPlace, ClientReport)> = Vec::new();
    let mut total = 0;
    let sort = |rows: &mut Vec<(SortPlace, ClientReport)>| {
        rows.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        rows.truncate(limit);
    };
    walk(state, |client| {
        if !is_wanted(&client) {
            return;
        }
        total += 1;
        let place = SortPlace::of(&client, column);
        if after.is_none_or(|after| after.cmp(&place).is_lt()) {
            rows.push((place, client));
        }
        // As many again before it is sorted: each row is sorted a few times at most, and memory stays bounded.
        if rows.len() >= limit * 2 {
            sort(&mut rows);
        }
    })
    .await?;
    sort(&mut rows);
    Ok((rows, total))
}

/// The clients with the most losses.
pub(crate) async fn worst(state: &AdminState, limit: usize) -> Result<Vec<ClientReport>, Problem> {
    let column = COLUMNS.iter().find(|column| column.name == "drops").copied();
    let Some(column) = column else { return Ok(Vec::new()) };
    let lost = |client: &ClientReport| view::drops(&client.ledger) > 0;
    Ok(first(state, column, None, limit, lost).await?.0.into_iter().map(|(_, client)| client).collect())
}

/// The connections of late with the most losses.
pub(crate) async fn worst_closed(state: &AdminState, limit: usize) -> Result<Vec<Closed>, Problem> {
    let mut all = closed_among(state, |closed| view::drops(&closed.parting.ledger) > 0).await?;
    all.sort_by_key(|closed| core::cmp::Reverse(view::drops(&closed.parting.ledger)));
    all.truncate(limit);
    Ok(all)
}

fn limit(words: &Words) -> Result<usize, Problem> {
    let Some(text) = words.get("limit") else { return Ok(ROWS_USUAL) };
    let limit = text.parse().ok().filter(|limit| (1..=ROWS_MAX).contains(limit));
    limit.ok_or_else(|| Problem::usage(format!("limit must be a number from 1 to {ROWS_MAX}")))
}

async fn list_closed(state: &AdminState, limit: usize) -> Answered {
    let mut all = Vec::new();
    for shard in 0..state.handle.shards() {
        all.extend(closed_of(state, shard, limit, |_| true).await?);
    }
    all.sort_by_key(|closed| core::cmp::Reverse(closed.parting.at));
    all.truncate(limit);
    let clients: Vec<Value> = all.iter().map(|closed| view::closed(state, closed)).collect();
    Ok(json_of(&json!({ "clients": clients })))
}

async fn closed_of(
    state: &AdminState,
    shard: usize,
    limit: usize,
    is_wanted: impl Fn(&Closed) -> bool,
) -> Result<Vec<Closed>, Problem> {
    let (mut found, mut before) = (Vec::new(), None);
    loop {
        let Answer::Closed { closed, next } = ask(state, shard, Question::Closed { before }).await? else { break };
        found.extend(closed.into_iter().filter(&is_wanted));
        if next.is_none() || found.len() >= limit {
            break;
        }
        before = next;
    }
    found.truncate(limit);
    Ok(found)
}

/// Connections of late of all shards that have ended and are wanted.
pub(crate) async fn closed_among(
    state: &AdminState,
    is_wanted: impl Fn(&Closed) -> bool,
) -> Result<Vec<Closed>, Problem> {
    let mut all = Vec::new();
    for shard in 0..state.handle.shards() {
        all.extend(closed_of(state, shard, ROWS_USUAL, &is_wanted).await?);
    }
    Ok(all)
}

/// How this client's last connection ended.
pub(crate) async fn last_closed(state: &AdminState, client_id: &str) -> Result<Option<Closed>, Problem> {
    let shard = state.handle.shard_of(client_id);
    Ok(closed_of(state, shard, 1, |closed| &*closed.client_id == client_id).await?.pop())
}

pub(crate) async fn find(state: &AdminState, client_id: &str) -> Result<Option<Box<ClientDetail>>, Problem> {
    let question = Question::Client { client_id: client_id.into() };
    match ask(state, state.handle.shard_of(client_id), question).await? {
        Answer::Client(detail) => Ok(detail),
        _ => Ok(None),
    }
}

pub(crate) async fn show(State(state): State<Arc<AdminState>>, Path(client_id): Path<String>) -> Answered {
    if let Some(detail) = find(&state, &client_id).await? {
        return Ok(json_of(&view::detail(&state, &detail)));
    }
    let closed = last_closed(&state, &client_id).await?;
    closed.map(|closed| json_of(&view::closed(&state, &closed))).ok_or_else(|| no_client(&client_id))
}

/// An hour of it, as far as it was followed; from now on it is.
pub(crate) async fn history(State(state): State<Arc<AdminState>>, Path(client_id): Path<String>) -> Answered {
    let mut histories = lock(&state.live.clients);
    histories.want(&client_id, unix_seconds());
    Ok(json_of(&histories.json(&client_id)))
}

pub(crate) async fn kick(State(state): State<Arc<AdminState>>, Path(client_id): Path<String>) -> Answered {
    let question = Question::Kick { client_id: client_id.as_str().into() };
    let is_kicked = ask(&state, state.handle.shard_of(&client_id), question).await? == Answer::Kicked(true);
    // A KP of that name may be connected beside it, or in its place.
    let ended = crate::kps::end_connections(&state, |kp| kp.name == Some(client_id.as_str()));
    if is_kicked || ended > 0 {
        let told = json!({ "kicked": client_id, "mqtt": is_kicked, "kp_connections": ended });
        return Ok(about(format!("client {client_id}"), json_of(&told)));
    }
    let is_kept = find(&state, &client_id).await?.is_some();
    let detail = if is_kept {
        format!(
            "client {client_id:?} is not connected, and its session is kept; to end that:  {}",
            words::end_session(&client_id)
        )
    } else {
        format!("client {client_id:?} is not connected")
    };
    Err(Problem::new(StatusCode::NOT_FOUND, "no-such-client", detail))
}

/// `DELETE /api/v1/clients/{id}/session`: its connection, subscriptions, and what waits for it.
pub(crate) async fn end_session(State(state): State<Arc<AdminState>>, Path(client_id): Path<String>) -> Answered {
    let question = Question::EndSession { client_id: client_id.as_str().into() };
    match ask(&state, state.handle.shard_of(&client_id), question).await? {
        Answer::SessionEnded(Some(before)) => {
            let ended = json!({
                "ended": client_id,
                "was_connected": before.client.link.is_some(),
                "lost": before.client.queued.0 + before.client.inflight,
                "subscriptions": before.client.subscriptions,
            });
            Ok(about(format!("session {client_id}"), json_of(&ended)))
        }
        _ => Err(no_client(&client_id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_away_and_loses_is_found_as_either() {
        let found = |wanted| is_in_state(ClientState::AwayLosing, wanted);
        assert!(found("away") && found("losing") && found("away-losing") && !found("ok"));
        assert!(!is_in_state(ClientState::Away, "losing") && !is_in_state(ClientState::Losing, "away"));
    }

    #[test]
    fn a_cursor_is_a_place_in_the_order() {
        let place = |value: f64, client_id: &str| SortPlace { value, client_id: client_id.into() };
        let order = [place(3.0, "b"), place(2.5, "a"), place(2.5, "c:d"), place(0.0, "")];
        assert!(order.windows(2).all(|pair| pair[0].cmp(&pair[1]).is_lt()));
        for place in order {
            assert_eq!(SortPlace::from_cursor(&place.to_cursor()), Some(place));
        }
        assert_eq!(SortPlace::from_cursor("nonsense"), None);
    }
}
