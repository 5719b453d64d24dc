//! `/api/v1/tokens`: JSON Web Tokens that clients give as passwords, for admins: what is asked of them, one for a device, and all
//! of a user taken back. A token is told once, and kept nowhere.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tidegate_broker::Banned;

use crate::audit::about;
use crate::body::{text, words_in};
use crate::problem::{Answered, Problem, json_of};
use crate::process_control::TokenWish;
use crate::state::AdminState;
use crate::users::roles_in;

/// How long a token lasts when nothing is said.
const LIFE_USUAL: Duration = Duration::from_secs(30 * 86_400);

pub(crate) async fn list(State(state): State<Arc<AdminState>>) -> Answered {
    let process = Arc::clone(&state.process);
    let found = tokio::task::spawn_blocking(move || process.tokens()).await;
    let found = found.map_err(|_| Problem::busy("the files cannot be read"))?;
    let refused: Vec<Value> =
        found.refused.iter().map(|(reason, count)| json!({ "reason": reason, "count": count })).collect();
    let revoked: Vec<Value> =
        found.revoked.iter().map(|(user, until)| json!({ "user": user, "until_s": until })).collect();
    Ok(json_of(&json!({
        "are_taken": found.are_taken,
        "can_make": found.can_make,
        "keys": found.keys,
        "issuer": found.issuer,
        "audience": found.audience,
        "roles_claim": found.roles_claim,
        "refused": refused,
        "revoked": revoked,
    })))
}

pub(crate) async fn make(State(state): State<Arc<AdminState>>, headers: HeaderMap, body: Bytes) -> Answered {
    let words = words_in(&headers, &body)?;
    let user = text(&words, "user").ok_or_else(|| Problem::usage("\"user\" is missing"))?;
    let life = match words.get("seconds") {
        None => LIFE_USUAL,
        Some(seconds) => {
            let seconds = seconds.as_u64().ok_or_else(|| Problem::usage("\"seconds\" must be a whole number"))?;
            Duration::from_secs(seconds)
        }
    };
    let wish = TokenWish { user: user.clone(), roles: roles_in(&words)?.unwrap_or_default(), life };
    let process = Arc::clone(&state.process);
    let made = tokio::task::spawn_blocking(move || process.make_token(&wish)).await;
    let token = made.map_err(|_| Problem::busy("no token was made"))?.map_err(not_done)?;
    let answer = json!({ "user": user, "token": token, "seconds": life.as_secs() });
    Ok(about(format!("token of {user}"), json_of(&answer)))
}

pub(crate) async fn revoke(
    State(state): State<Arc<AdminState>>,
    Query(words): Query<HashMap<String, String>>,
) -> Answered {
    let user = words.get("user").cloned().ok_or_else(|| Problem::usage("\"user\" is missing"))?;
    let (process, whose) = (Arc::clone(&state.process), user.clone());
    let done = tokio::task::spawn_blocking(move || process.revoke_tokens(&whose)).await;
    done.map_err(|_| Problem::busy("nothing was taken back"))?.map_err(not_done)?;
    // Whoever has another proof of who it is comes back by itself.
    state.handle.expel(&Banned::User(user.clone()));
    Ok(about(format!("tokens of {user}"), json_of(&json!({ "user": user, "revoked": true }))))
}

fn not_done(why: String) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "not-changed", why)
}
