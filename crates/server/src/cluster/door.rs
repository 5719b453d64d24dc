//! The door of a node that stands by: alive, not ready, and why. It is where the admin API will be when the node serves, and knows no
//! users, so beyond health it answers to this machine only.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use serde_json::{Value, json};
use tidegate_http::{PeerAddress, Serving, Timeouts, serve_connection};
use tokio::sync::Semaphore;

use super::board::ClusterBoard;
use crate::bind;

/// Connections at once; who comes beyond waits at the socket.
const CONNECTIONS_MAX: usize = 16;
const STACK_BYTES: usize = 512 * 1024;
const TIMEOUTS: Timeouts = Timeouts {
    head: Duration::from_secs(5),
    connection: Duration::from_secs(10),
    last: Duration::ZERO,
    buffer_bytes: 8192,
};

/// Open until it is dropped: then the admin API takes its place.
#[derive(Debug)]
pub(crate) struct StandbyDoor {
    _serving: Serving,
    pub(crate) address: SocketAddr,
}

impl StandbyDoor {
    pub(crate) fn open(at: SocketAddr, board: Arc<ClusterBoard>) -> Result<Self> {
        let listener = TcpListener::bind(at).map_err(|error| bind::cannot_listen("admin", at, &error))?;
        listener.set_nonblocking(true).context("the door of a node that stands by")?;
        let address = listener.local_addr().context("the door of a node that stands by")?;
        let router = Router::new()
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .route("/api/v1/cluster", get(cluster))
            .route("/metrics", get(metrics))
            .fallback(nothing_here)
            .with_state(board);
        let begin = async move || {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tokio::spawn(accept(listener, router));
            Ok(())
        };
        let serving = Serving::start("standby", STACK_BYTES, 1, begin).context("the door of a node that stands by")?;
        Ok(Self { _serving: serving, address })
    }
}

async fn accept(listener: tokio::net::TcpListener, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, from)) => {
                let router = router.clone();
                tokio::spawn(async move {
                    serve_connection(stream, from.ip(), router, TIMEOUTS).await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

fn answer(code: StatusCode, value: &Value) -> Response {
    (code, [(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

async fn healthz() -> Response {
    answer(StatusCode::OK, &json!({ "status": "ok" }))
}

/// No client is welcome here: balancers and supervisors read the code, people the words.
async fn readyz(State(board): State<Arc<ClusterBoard>>) -> Response {
    let report = board.report();
    answer(StatusCode::SERVICE_UNAVAILABLE, &json!({ "status": report.role.word(), "reasons": [why(&report)] }))
}

fn why(report: &tidegate_admin::ClusterReport) -> String {
    match (&report.trouble, &report.owner) {
        (Some(trouble), _) => trouble.clone(),
        (None, Some(owner)) if *owner != report.node => {
            let at = report.owner_address.as_deref().map(|at| format!(" at {at}")).unwrap_or_default();
            format!("this node stands by: node {owner} serves{at}")
        }
        _ => "this node is about to take over".to_owned(),
    }
}

async fn cluster(
    State(board): State<Arc<ClusterBoard>>,
    Extension(PeerAddress(from)): Extension<PeerAddress>,
) -> Response {
    guarded(from, || answer(StatusCode::OK, &json!({ "cluster": board.report().json() })))
}

async fn metrics(
    State(board): State<Arc<ClusterBoard>>,
    Extension(PeerAddress(from)): Extension<PeerAddress>,
) -> Response {
    const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    guarded(from, || ([(header::CONTENT_TYPE, KIND)], board.report().exposition()).into_response())
}

fn guarded(from: IpAddr, answered: impl FnOnce() -> Response) -> Response {
    if from.is_loopback() {
        return answered();
    }
    let words = "a node that stands by answers this to its own machine only";
    answer(StatusCode::FORBIDDEN, &json!({ "type": "other-machine", "detail": words }))
}

async fn nothing_here(State(board): State<Arc<ClusterBoard>>, uri: Uri) -> Response {
    let detail = format!("there is nothing at {} while {}", uri.path(), why(&board.report()));
    answer(StatusCode::SERVICE_UNAVAILABLE, &json!({ "type": "standby", "status": 503, "detail": detail }))
}
