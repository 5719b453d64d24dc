//! What is where.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, delete, get, post};

use crate::guard::guard;
use crate::limits::BODY_BYTES_MAX;
use crate::problem::Problem;
use crate::state::AdminState;
use crate::{
    activity, audit, bridges, clients, cluster, control, demo, events, kps, metrics, mqtt, openapi, page, process,
    session, sinks, space, status, system, tokens, topics, trace, users, watch, why,
};

/// Every place of the API; `openapi` says what each is for.
fn places() -> Vec<(&'static str, MethodRouter<Arc<AdminState>>)> {
    vec![
        ("/api/v1/status", get(status::show)),
        ("/api/v1/events", get(events::listen)),
        ("/api/v1/history", get(events::history)),
        ("/api/v1/clients", get(clients::list)),
        ("/api/v1/clients/{id}", get(clients::show).merge(delete(clients::kick))),
        ("/api/v1/clients/{id}/session", delete(clients::end_session)),
        ("/api/v1/clients/{id}/why", get(why::show)),
        ("/api/v1/clients/{id}/history", get(clients::history)),
        ("/api/v1/drops", get(status::drops)),
        ("/api/v1/alarms", get(watch::show)),
        ("/api/v1/classes", get(status::show_classes)),
        ("/api/v1/topics", get(topics::topics)),
        ("/api/v1/retained", get(topics::retained)),
        ("/api/v1/limits", get(control::limits).put(control::set_limit).delete(control::unset_limit)),
        ("/api/v1/bans", get(control::bans).post(control::add_ban).delete(control::remove_ban)),
        ("/api/v1/bridges", get(bridges::list)),
        ("/api/v1/bridges/{name}", get(bridges::show)),
        ("/api/v1/sinks", get(sinks::list)),
        ("/api/v1/sinks/{name}", get(sinks::show)),
        ("/api/v1/cluster", get(cluster::show)),
        ("/api/v1/space", get(space::show)),
        ("/api/v1/kps", get(kps::list)),
        ("/api/v1/queries", get(space::queries).post(space::run)),
        ("/api/v1/queries/{number}", delete(space::cancel)),
        ("/api/v1/updates", post(space::update)),
        ("/api/v1/mqtt", get(mqtt::upgrade)),
        ("/api/v1/system", get(system::show)),
        ("/api/v1/store", get(system::store)),
        ("/api/v1/config", get(system::config)),
        ("/api/v1/users", get(users::list).put(users::put).delete(users::remove)),
        ("/api/v1/rules", axum::routing::put(users::put_rules)),
        ("/api/v1/tokens", get(tokens::list).post(tokens::make).delete(tokens::revoke)),
        ("/api/v1/audit", get(audit::show)),
        ("/api/v1/demo", get(demo::show).post(demo::start).delete(demo::stop)),
        ("/api/v1/login", get(session::show).post(session::log_in).delete(session::log_out)),
        ("/api/v1/trace", get(trace::take).post(trace::begin)),
        ("/api/v1/log", get(activity::take).post(activity::begin)),
        ("/api/v1/reload", post(process::reload)),
        ("/api/v1/backup", post(process::backup)),
        ("/api/v1/drain", post(process::drain)),
        ("/api/v1/openapi.json", get(openapi::show)),
        ("/metrics", get(metrics::show)),
        ("/healthz", get(process::healthz)),
        ("/readyz", get(process::readyz)),
        ("/version", get(status::version)),
    ]
}

pub(crate) fn routes(state: Arc<AdminState>) -> Router {
    let router = Router::new().route("/", get(page::index)).route("/ui/{name}", get(page::file));
    places()
        .into_iter()
        .fold(router, |router, (path, methods)| router.route(path, methods))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi::DOCS;
    use std::collections::BTreeSet;

    #[test]
    fn the_document_names_the_places_that_there_are() {
        let documented: BTreeSet<&str> = DOCS.iter().map(|doc| doc.path).collect();
        let there: BTreeSet<&str> = places().iter().map(|(path, _)| *path).collect();
        assert_eq!(documented, there);
        for (path, methods) in places() {
            // As axum writes it: the only way to ask it.
            let methods = format!("{methods:?}");
            for (method, field) in [("get", "get: "), ("put", "put: "), ("post", "post: "), ("delete", "delete: ")] {
                let is_there = !methods.contains(&format!("{field}None"));
                let is_documented = DOCS.iter().any(|doc| doc.path == path && doc.method == method);
                assert_eq!(is_there, is_documented, "{method} {path}: {methods}");
            }
        }
    }
}
