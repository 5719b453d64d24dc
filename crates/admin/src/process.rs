//! `/healthz`, `/readyz`, reload, backup and drain.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tidegate_broker::ask::Question;
use tidegate_broker::store_link::StoreReport;

use crate::ask::ask;
use crate::body::words_in;
use crate::problem::{Answered, Problem, json_of, text};
use crate::state::AdminState;

/// The loops turn: each shard answers. Overload alone is no reason to say no.
pub(crate) async fn healthz(State(state): State<Arc<AdminState>>) -> Answered {
    for shard in 0..state.handle.shards() {
        ask(&state, shard, Question::Client { client_id: "".into() }).await?;
    }
    Ok(json_of(&json!({ "status": "ok" })))
}

/// New clients are welcome.
pub(crate) async fn readyz(State(state): State<Arc<AdminState>>) -> Answered {
    let (code, reasons) = match state.process.unready() {
        None => (StatusCode::OK, vec![]),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, vec![reason]),
    };
    let status = if reasons.is_empty() { "ready" } else { "not ready" };
    let store = state.handle.store().map(|store| store_json(&store));
    Ok(text(code, "application/json", json!({ "status": status, "reasons": reasons, "store": store }).to_string()))
}

/// How the disk does, for those who want to know before it is too late.
fn store_json(store: &StoreReport) -> Value {
    let (metrics, syncs) = (&store.metrics, &store.metrics.log.syncs);
    let ms = |time: Duration| (time.as_secs_f64() * 1e4).round() / 10.0;
    json!({
        "health": store.health.word(),
        "sync_last_ms": ms(syncs.last),
        "sync_p99_ms": ms(syncs.quantile(0.99)),
        "sync_max_ms": ms(syncs.max),
        "busy_ms": ms(metrics.busy_for),
        "queue_batches": metrics.queue_batches,
        "queue_bytes": metrics.queue_bytes,
    })
}

pub(crate) async fn reload(State(state): State<Arc<AdminState>>) -> Answered {
    let process = Arc::clone(&state.process);
    let done = tokio::task::spawn_blocking(move || process.reload()).await;
    match done {
        Ok(Ok(done)) => Ok(json_of(&json!({ "changed": done.changed, "needs_restart": done.restart }))),
        Ok(Err(problems)) => {
            let detail = format!("{}; the configuration from before stays in force", problems.join("; "));
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "reload-failed", detail))
        }
        Err(_) => Err(Problem::busy("the reload was not done")),
    }
}

/// Copies what is kept into a directory of this machine.
pub(crate) async fn backup(State(state): State<Arc<AdminState>>, headers: HeaderMap, body: Bytes) -> Answered {
    let words = words_in(&headers, &body)?;
    let to = words.get("to").and_then(Value::as_str).map(PathBuf::from).filter(|to| to.is_absolute());
    let to = to.ok_or_else(|| Problem::usage("\"to\" must be an absolute path"))?;
    let process = Arc::clone(&state.process);
    match tokio::task::spawn_blocking(move || process.backup(&to)).await {
        Ok(Ok(report)) => Ok(json_of(&json!({ "report": report }))),
        Ok(Err(error)) => {
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "backup-failed", format!("nothing was copied: {error}")))
        }
        Err(_) => Err(Problem::busy("the copy was not made")),
    }
}

pub(crate) async fn drain(State(state): State<Arc<AdminState>>) -> Answered {
    state.process.drain();
    Ok(text(StatusCode::ACCEPTED, "application/json", json!({ "draining": true }).to_string()))
}
