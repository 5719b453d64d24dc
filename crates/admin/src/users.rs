//! `/api/v1/users`: who may come in, by which roles, and the rules of access; for admins, who may also change users. The file
//! stays the truth: a change is written there, and read again as after a reload.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use crate::audit::about;
use crate::body::{Words, text, text as text_of, words_in};
use crate::guard::Principal;
use crate::problem::{Answered, Problem, json_of};
use crate::process_control::{Role, UserChange};
use crate::state::AdminState;

pub(crate) async fn list(State(state): State<Arc<AdminState>>) -> Answered {
    let process = Arc::clone(&state.process);
    let found = tokio::task::spawn_blocking(move || process.access()).await;
    let access = found.map_err(|_| Problem::busy("the files cannot be read"))?;
    let users: Vec<Value> = access.users.iter().map(|(name, roles)| json!({ "name": name, "roles": roles })).collect();
    Ok(json_of(&json!({
        "users": users,
        "users_file": access.users_file,
        "rules": access.rules,
        "rules_file": access.rules_file,
        "rules_text": access.rules_text,
        "allow_anonymous": access.allow_anonymous,
        "can_change": access.users_file.is_some(),
    })))
}

pub(crate) async fn put(
    State(state): State<Arc<AdminState>>,
    who: Option<Extension<Principal>>,
    headers: HeaderMap,
    body: Bytes,
) -> Answered {
    let words = words_in(&headers, &body)?;
    let name = text(&words, "name").ok_or_else(|| Problem::usage("\"name\" is missing"))?;
    let password = text(&words, "password").filter(|password| !password.is_empty());
    let roles = roles_in(&words)?;
    if password.is_none() && roles.is_none() {
        return Err(Problem::usage("\"password\" or \"roles\" is missing"));
    }
    let keeps_admin = roles.as_ref().is_none_or(|roles| roles.iter().any(|role| role == Role::Admin.name()));
    if is_own(who.as_ref(), &name) && !keeps_admin {
        return Err(Problem::new(StatusCode::CONFLICT, "own-user", "this would take your own role admin away"));
    }
    change(&state, UserChange::Put { name, password, roles }).await
}

/// The roles that are named in a request; none if it does not speak of them.
pub(crate) fn roles_in(words: &Words) -> Result<Option<Vec<String>>, Problem> {
    let Some(said) = words.get("roles") else { return Ok(None) };
    let roles: Option<Vec<String>> =
        said.as_array().and_then(|roles| roles.iter().map(|role| role.as_str().map(str::to_owned)).collect());
    roles.map(Some).ok_or_else(|| Problem::usage("\"roles\" must be a list of names"))
}

pub(crate) async fn remove(
    State(state): State<Arc<AdminState>>,
    who: Option<Extension<Principal>>,
    Query(words): Query<HashMap<String, String>>,
) -> Answered {
    let name = words.get("name").cloned().ok_or_else(|| Problem::usage("\"name\" is missing"))?;
    if is_own(who.as_ref(), &name) {
        return Err(Problem::new(StatusCode::CONFLICT, "own-user", "this is your own user"));
    }
    change(&state, UserChange::Remove { name }).await
}

/// The rules of access as a whole: their order counts, so they are written as a whole.
pub(crate) async fn put_rules(State(state): State<Arc<AdminState>>, headers: HeaderMap, body: Bytes) -> Answered {
    let words = words_in(&headers, &body)?;
    let missing = |name: &str| Problem::usage(format!("{name:?} is missing"));
    let text = text_of(&words, "text").ok_or_else(|| missing("text"))?;
    let before = text_of(&words, "before").ok_or_else(|| missing("before"))?;
    let process = Arc::clone(&state.process);
    let done = tokio::task::spawn_blocking(move || process.change_rules(&before, &text)).await;
    let done = done.map_err(|_| Problem::busy("the change was not made"))?;
    done.map_err(|why| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "not-changed", why))?;
    Ok(about("rules of access", json_of(&json!({ "changed": true }))))
}

fn is_own(who: Option<&Extension<Principal>>, name: &str) -> bool {
    who.is_some_and(|Extension(who)| who.user.as_deref() == Some(name))
}

/// It waits for a hash and the disk, and others are not to wait for it.
async fn change(state: &AdminState, change: UserChange) -> Answered {
    let (UserChange::Put { name, .. } | UserChange::Remove { name }) = &change;
    let (name, process) = (name.clone(), Arc::clone(&state.process));
    let done = tokio::task::spawn_blocking(move || process.change_user(&change)).await;
    let done = done.map_err(|_| Problem::busy("the change was not made"))?;
    done.map_err(|why| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "not-changed", why))?;
    Ok(about(format!("user {name}"), json_of(&json!({ "name": name, "changed": true }))))
}
