//! Who changed what through this door, and when: the last few, for as long as the process lives.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use axum::extract::State;
use axum::http::Method;
use axum::response::Response;
use serde_json::{Value, json};

use crate::limits::AUDIT_MAX;
use crate::problem::{Answered, json_of};
use crate::state::{AdminState, lock};
use crate::view;

/// A request that was to change something.
#[derive(Clone, Debug)]
pub(crate) struct AuditedChange {
    pub(crate) at: SystemTime,
    /// None where there are no users.
    pub(crate) user: Option<Arc<str>>,
    pub(crate) method: Method,
    pub(crate) path: String,
    /// Whom it concerned, as far as that is known: a client, a user, a network.
    pub(crate) whom: Option<String>,
    /// Where it came from.
    pub(crate) from: IpAddr,
    /// What it was answered with.
    pub(crate) status: u16,
}

/// Whom an answer is about; travels with it to whoever notes the change.
#[derive(Clone, Debug)]
pub(crate) struct AuditSubject(pub(crate) String);

/// An answer that says whom the change concerned.
pub(crate) fn about(whom: impl Into<String>, mut answer: Response) -> Response {
    answer.extensions_mut().insert(AuditSubject(whom.into()));
    answer
}

#[derive(Debug, Default)]
pub(crate) struct Audit(Mutex<VecDeque<AuditedChange>>);

impl Audit {
    pub(crate) fn note(&self, change: AuditedChange) {
        tracing::info!(
            event = "admin_change", user = change.user.as_deref(), from = %change.from, method = %change.method,
            path = %change.path.escape_default(), whom = change.whom.as_deref(), status = change.status,
            "a change through the admin API"
        );
        let mut changes = lock(&self.0);
        if changes.len() >= AUDIT_MAX {
            changes.pop_front();
        }
        changes.push_back(change);
    }
}

pub(crate) async fn show(State(state): State<Arc<AdminState>>) -> Answered {
    let row = |change: &AuditedChange| {
        json!({
            "at": view::rfc3339(change.at),
            "user": change.user.as_deref(),
            "method": change.method.as_str(),
            "path": change.path,
            "whom": change.whom,
            "from": change.from.to_string(),
            "status": change.status,
        })
    };
    let changes: Vec<Value> = lock(&state.audit.0).iter().rev().map(row).collect();
    Ok(json_of(&json!({ "changes": changes })))
}
