//! `/api/v1/system`, `/api/v1/store` and `/api/v1/config`: the machine room.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::State;
use serde_json::{Value, json};
use tidegate_broker::store_link::StoreReport;
use tidegate_control::Timestamp;
use tidegate_store::SyncTimes;

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
            "p50_ms": quantile(syncs, 0.5).map(millis),
            "p99_ms": quantile(syncs, 0.99).map(millis),
            "max_ms": millis(syncs.max),
            "last_ms": millis(syncs.last),
            "buckets": syncs.buckets,
        },
    })
}

/// The upper end of the bucket in which this part of the syncs is reached.
fn quantile(syncs: &SyncTimes, part: f64) -> Option<Duration> {
    let wanted = (syncs.count as f64 * part).ceil().max(1.0) as u64;
    let mut seen = 0;
    let bucket = syncs.buckets.iter().position(|count| {
        seen += count;
        seen >= wanted
    })?;
    Some(Duration::from_micros(1 << bucket).min(syncs.max.max(Duration::from_micros(1))))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_end_of_its_bucket() {
        let mut syncs = SyncTimes { max: Duration::from_millis(40), ..SyncTimes::default() };
        assert_eq!(quantile(&syncs, 0.5), None);
        (syncs.buckets[10], syncs.buckets[16], syncs.count) = (99, 1, 100);
        assert_eq!(quantile(&syncs, 0.5), Some(Duration::from_micros(1024)));
        assert_eq!(quantile(&syncs, 0.999), Some(Duration::from_millis(40)), "not more than the longest");
    }
}
