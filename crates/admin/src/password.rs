//! Passwords of operators: HTTP Basic, judged by the broker's own threads and with the same pauses after wrong ones.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::http::{HeaderMap, StatusCode};
use tidegate_broker::NotAsked;
use tidegate_broker::authenticate::{Authenticator, Credentials};
use tidegate_http::{basic, who_are_you};
use tokio::sync::oneshot;

use crate::problem::Problem;
use crate::process_control::UserDirectory;
use crate::state::AdminState;

/// What is known of a password that was right a moment ago.
#[derive(Clone)]
pub(crate) struct PasswordProof {
    user: Arc<str>,
    /// Forgotten with the users that it was right for. Held, so that its place in memory is nobody else's.
    authenticator: Arc<dyn Authenticator>,
}

/// The user of a request with HTTP Basic.
pub(crate) async fn by_header(
    state: &AdminState,
    directory: &UserDirectory,
    headers: &HeaderMap,
    from: IpAddr,
) -> Result<Arc<str>, Problem> {
    let (name, password) = basic(headers)?;
    let user = check(state, directory, name, password, from).await?;
    user.ok_or_else(|| who_are_you("wrong user name or password"))
}

/// Judges a password, on the broker's threads for that; none if it is wrong. One that is remembered waits for nothing:
/// neither for a thread nor because of those who guess.
pub(crate) async fn check(
    state: &AdminState,
    directory: &UserDirectory,
    name: String,
    password: Vec<u8>,
    from: IpAddr,
) -> Result<Option<Arc<str>>, Problem> {
    let print = state.remembered.print(&name, &password);
    let is_same = |proof: &PasswordProof| Arc::ptr_eq(&proof.authenticator, &directory.authenticator);
    if let Some(proof) = state.remembered.find(print, Instant::now(), is_same) {
        return Ok(Some(proof.user));
    }
    let busy = || Problem::busy("too many passwords are being checked");
    let _place = state.checks.try_acquire().map_err(|_| busy())?;
    let credentials = Credentials { user_name: Some(name), password: Some(password), ..Credentials::default() };
    let (reply, verdict) = oneshot::channel();
    let asked = state.handle.authenticate(Arc::clone(&directory.authenticator), credentials, from, move |verdict| {
        let _ = reply.send(verdict);
    });
    asked.map_err(|why| match why {
        NotAsked::Busy => busy(),
        NotAsked::Wait(wait) => {
            let seconds = wait.as_secs() + 1;
            let detail = format!("too many wrong passwords: try again in {seconds} s");
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too-many-wrong-passwords", detail).after(wait)
        }
    })?;
    let user = verdict.await.map_err(|_| busy())?.ok().flatten();
    if let Some(user) = &user {
        let proof = PasswordProof { user: Arc::clone(user), authenticator: Arc::clone(&directory.authenticator) };
        state.remembered.keep(print, Instant::now(), proof);
    }
    Ok(user)
}
