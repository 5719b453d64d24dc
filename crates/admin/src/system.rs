//! `/api/v1/system`, `/api/v1/store` and `/api/v1/config`: the machine room.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::State;
use serde_json::{Value, json};
use tidegate_broker::store_link::StoreReport;
use tidegate_control::Timestamp;

use crate::metrics::resident_bytes;
use crate::problem::{Answered, Problem, json_of};
use crate::state::AdminState;
use crate::status::{VERSION, listeners};
use crate::view;

pub(crate) async fn show(State(state): State<Arc<AdminState>>) -> Answered {
    let process = Arc::clone(&state.process);
    // Certificates are files.
    let certificates = tokio::task::spawn_blocking(move || process.certificates()).await;
    let certificates = certificates.map_err(|_| Problem::busy("the certificates were not read"))?;
    let certificates: Vec<Value> = certificates
        .iter()
        .map(|it| {
            let left = it.expires.map(|at| at.duration_since(SystemTime::now()).unwrap_or_default().as_secs() / 86_400);
            json!({
                "listener": it.listener,
                "subject": it.subject,
                "expires": it.expires.map(view::rfc3339),
                "days_left": left,
            })
        })
        .collect();
    let (stats, pressure) = (state.handle.stats(), state.handle.pressure());
    let (sockets, handshakes) = state.handle.sockets();
    Ok(json_of(&json!({
        "version": VERSION,
        "started": view::rfc3339(state.wall(Timestamp::ZERO)),
        "uptime_s": state.handle.now().as_nanos() / 1_000_000_000,
        "process_id": std::process::id(),
        "shards": state.handle.shards(),
        "listeners": listeners(&state),
        "configured": state.process.configured_at().map(view::rfc3339),
        "sockets": sockets,
        "handshakes": handshakes,
        "memory": {
            "budget_bytes": pressure.memory_max,
            "used_bytes": pressure.memory_used,
            "resident_bytes": resident_bytes(),
            "queue_bytes": stats.queued_bytes,
            "held_bytes": stats.held_bytes,
            "retained_bytes": stats.retained_bytes,
        },
        "level_changes": state.handle.transitions(),
        "ready": state.process.unready().map_or(json!(true), |_| json!(false)),
        "not_ready_because": state.process.unready(),
        "store": state.handle.store().map(|report| store_json(&report)),
        "certificates": certificates,
    })))
}

pub(crate) async fn store(State(state): State<Arc<AdminState>>) -> Answered {
    Ok(json_of(&json!({ "store": state.handle.store().map(|report| store_json(&report)) })))
}

fn store_json(report: &StoreReport) -> Value {
    let (metrics, syncs) = (&report.metrics, &report.metrics.log.syncs);
    let why = report.health.why();
    let millis = |time: Duration| view::rounded(time.as_secs_f64() * 1000.0);
    let quantile = |share: f64| (syncs.count > 0).then(|| syncs.quantile(share));
    json!({
        "dir": report.dir.display().to_string(),
        "durability": report.durability.to_string(),
        "is_fine": why.is_none(),
        "trouble": why,
        "is_full": report.health.word() == "full",
        "disk_bytes": metrics.disk_bytes,
        "free_bytes": metrics.free_bytes,
        "size_max": report.size_max,
        "files": metrics.files,
        "records": metrics.log.records,
        "bytes_written": metrics.log.bytes,
        "failures": metrics.log.failures,
        "compactions": metrics.log.compactions,
        "queue_bytes": metrics.queue_bytes,
        "busy_ms": millis(metrics.busy_for),
        "syncs": {
            "count": syncs.count,
            "mean_ms": millis(syncs.total.checked_div(u32::try_from(syncs.count).unwrap_or(u32::MAX)).unwrap_or_default()),
            "p50_ms": quantile(0.5).map(millis),
            "p99_ms": quantile(0.99).map(millis),
            "max_ms": millis(syncs.max),
            "last_ms": millis(syncs.last),
            "buckets": syncs.buckets,
        },
    })
}

pub(crate) async fn config(State(state): State<Arc<AdminState>>) -> Answered {
    let process = Arc::clone(&state.process);
    let settings = tokio::task::spawn_blocking(move || process.settings()).await;
    let settings = settings.map_err(|_| Problem::busy("the settings were not read"))?;
    let rows: Vec<Value> = settings
        .iter()
        .map(|it| {
            json!({
                "key": it.path,
                "value": it.value,
                "origin": it.origin,
                "about": it.about,
                "needs_restart": it.needs_restart,
            })
        })
        .collect();
    Ok(json_of(&json!({ "settings": rows })))
}
