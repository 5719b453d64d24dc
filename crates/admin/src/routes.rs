//! What is where.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, post};

use crate::guard::guard;
use crate::limits::BODY_BYTES_MAX;
use crate::problem::Problem;
use crate::state::State;
use crate::{clients, control, metrics, process, status, why};

pub(crate) fn routes(state: Arc<State>) -> Router {
    Router::new()
        .route("/", get(status::welcome))
        .route("/api/v1/status", get(status::show))
        .route("/api/v1/clients", get(clients::list))
        .route("/api/v1/clients/{id}", get(clients::show).merge(delete(clients::kick)))
        .route("/api/v1/clients/{id}/why", get(why::show))
        .route("/api/v1/drops", get(status::drops))
        .route("/api/v1/limits", get(control::limits).put(control::set_limit).delete(control::unset_limit))
        .route("/api/v1/bans", get(control::bans).post(control::add_ban).delete(control::remove_ban))
        .route("/api/v1/reload", post(process::reload))
        .route("/api/v1/backup", post(process::backup))
        .route("/api/v1/drain", post(process::drain))
        .route("/metrics", get(metrics::show))
        .route("/healthz", get(process::healthz))
        .route("/readyz", get(process::readyz))
        .route("/version", get(status::version))
        .fallback(nothing_here)
        .method_not_allowed_fallback(other_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(Arc::clone(&state), guard))
        .with_state(state)
}

async fn nothing_here(uri: Uri) -> Problem {
    let detail = format!("there is nothing at {}; GET / lists what there is", uri.path());
    Problem::new(StatusCode::NOT_FOUND, "no-such-place", detail)
}

async fn other_method(uri: Uri) -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", format!("{} is not used that way", uri.path()))
}
