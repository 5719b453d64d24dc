//! Passwords of operators: HTTP Basic, judged by the broker's own threads and with the same pauses after wrong ones.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::http::{HeaderMap, StatusCode};
use tidegate_broker::NotAsked;
use tidegate_broker::authenticate::{Authenticator, Credentials, LoginGrant};
use tidegate_http::{basic, who_are_you};
use tokio::sync::oneshot;

use crate::guard::no_role;
use crate::problem::Problem;
use crate::process_control::{Role, UserDirectory};
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

/// The user of a request with a token, and what the token lets it be here. Never remembered: a token has an end.
pub(crate) async fn by_token(
    state: &AdminState,
    directory: &UserDirectory,
    token: &[u8],
    from: IpAddr,
) -> Result<(Arc<str>, Role), Problem> {
    let credentials = Credentials { password: Some(token.to_vec()), ..Credentials::default() };
    let grant = judge(state, directory, credentials, from).await?.filter(|grant| !grant.is_lasting());
    let Some(LoginGrant { user: Some(user), roles: Some(roles), .. }) = grant else {
        return Err(who_are_you("the token is not valid here"));
    };
    let role = roles.iter().filter_map(|role| Role::named(role)).max().ok_or_else(no_role)?;
    Ok((user, role))
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
    let credentials = Credentials { user_name: Some(name), password: Some(password), ..Credentials::default() };
    let grant = judge(state, directory, credentials, from).await?;
    // Nothing that ends is remembered, and no session outlives a token.
    let user = grant.filter(LoginGrant::is_lasting).and_then(|grant| grant.user);
    if let Some(user) = &user {
        let proof = PasswordProof { user: Arc::clone(user), authenticator: Arc::clone(&directory.authenticator) };
        state.remembered.keep(print, Instant::now(), proof);
    }
    Ok(user)
}

/// Asks the broker's threads.
async fn judge(
    state: &AdminState,
    directory: &UserDirectory,
    credentials: Credentials,
    from: IpAddr,
) -> Result<Option<LoginGrant>, Problem> {
    let busy = || Problem::busy("too many passwords are being checked");
    let _place = state.checks.try_acquire().map_err(|_| busy())?;
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
    verdict.await.map_err(|_| busy()).map(Result::ok)
}
