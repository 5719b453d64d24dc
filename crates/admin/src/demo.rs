//! `/api/v1/demo`: a flooder among sensors, in a broker of its own.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde_json::Value;

use crate::body::words_in;
use crate::problem::{Answered, Problem, json_of};
use crate::process_control::Demo;
use crate::state::AdminState;

fn stage(state: &AdminState) -> Result<Arc<dyn Demo>, Problem> {
    let none = || Problem::new(StatusCode::NOT_FOUND, "no-demo", "there is no stage for a demonstration here");
    state.process.demo().ok_or_else(none)
}

async fn on_stage<T: Send + 'static>(
    state: &AdminState,
    act: impl FnOnce(Arc<dyn Demo>) -> T + Send + 'static,
) -> Result<T, Problem> {
    let demo = stage(state)?;
    let done = tokio::task::spawn_blocking(move || act(demo)).await;
    done.map_err(|_| Problem::busy("the demonstration does not answer"))
}

pub(crate) async fn show(State(state): State<Arc<AdminState>>) -> Answered {
    Ok(json_of(&on_stage(&state, |demo| demo.show()).await?))
}

pub(crate) async fn start(State(state): State<Arc<AdminState>>, headers: HeaderMap, body: Bytes) -> Answered {
    let words = words_in(&headers, &body)?;
    let gate = words.get("gate").and_then(Value::as_bool).unwrap_or(true);
    match on_stage(&state, move |demo| demo.start(gate)).await? {
        Ok(true) => show(State(state)).await,
        Ok(false) => Err(Problem::new(StatusCode::CONFLICT, "demo-runs", "the demonstration runs already")),
        Err(why) => Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "demo-failed", why)),
    }
}

pub(crate) async fn stop(State(state): State<Arc<AdminState>>) -> Answered {
    on_stage(&state, |demo| demo.stop()).await?;
    show(State(state)).await
}
