//! `/api/v1/kps`: knowledge processors of the smart space, what each counts for in its queues, and what became of its requests.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use serde_json::{Value, json};
use tidegate_core::Whom;
use tidegate_space::{KpIdentity, KpReport, KpRole, LimitOwner, RequestLimit};

use crate::problem::{Answered, json_of};
use crate::state::AdminState;
use crate::view;
use crate::why::words::{counted, span, whole_per_second};

/// KPs in the list; the others are counted.
const KPS_SHOWN_MAX: usize = 500;
/// What every KP has to know of then.
const YIELDING: &str = "  the broker is pressed for processors: of what takes long in the smart space less is done at a time, until \
                        `tidegate status` says level 1 or less; short requests are served as always";
/// KPs of one name that are spoken of.
const OF_NAME_MAX: usize = 8;

pub(crate) async fn list(State(state): State<Arc<AdminState>>) -> Answered {
    let Some(space) = state.process.space() else {
        return Ok(json_of(&json!({ "kps": [], "total": 0, "class_claims_ignored": 0 })));
    };
    let all = space.kps();
    let (total, ignored) = (all.len(), space.class_claims_ignored());
    let live = |kp: KpReport| view_of(&KpReport { limit: limit_of(&state, &kp), ..kp });
    let shown: Vec<Value> = all.into_iter().take(KPS_SHOWN_MAX).map(live).collect();
    Ok(json_of(&json!({ "kps": shown, "total": total, "class_claims_ignored": ignored })))
}

/// What there is to say about the KPs of a name, a user or an address; nothing if there are none.
pub(crate) fn why(state: &AdminState, name: &str) -> Option<(Value, String)> {
    let is_meant = |kp: &KpReport| {
        kp.name.as_deref() == Some(name) || kp.user.as_deref() == Some(name) || kp.address.to_string() == name
    };
    let space = state.process.space()?;
    let live = |kp: KpReport| KpReport { limit: limit_of(state, &kp), ..kp };
    let meant: Vec<KpReport> = space.kps().into_iter().filter(is_meant).take(OF_NAME_MAX).map(live).collect();
    let mut text: Vec<String> = meant.iter().map(words_of).collect();
    text.extend(space.is_yielding().then(|| YIELDING.to_owned()));
    (!meant.is_empty()).then(|| (meant.iter().map(view_of).collect(), text.join("\n")))
}

/// Ends the connections of KPs that stay, and their subscriptions; how many.
pub(crate) fn end_connections(state: &AdminState, is_meant: impl Fn(&KpIdentity<'_>) -> bool) -> usize {
    state.process.space().map_or(0, |space| space.end_connections(is_meant))
}

/// What holds for it now: its own report has what held when it asked last.
fn limit_of(state: &AdminState, kp: &KpReport) -> Option<RequestLimit> {
    let (whom, rate) = state.handle.limit_for(kp.name.as_deref(), kp.user.as_deref())?;
    let owner = match whom {
        Whom::Client(_) => LimitOwner::Kp,
        Whom::User(_) => LimitOwner::User,
    };
    Some(RequestLimit { interval: rate.interval(), burst: rate.burst(), owner })
}

fn millis(time: Duration) -> f64 {
    view::rounded(time.as_secs_f64() * 1000.0)
}

fn view_of(kp: &KpReport) -> Value {
    let counts = &kp.counts;
    json!({
        "name": kp.name.as_deref(),
        "user": kp.user.as_deref(),
        "address": kp.address.to_string(),
        "door": kp.door,
        "class": &*kp.class,
        "role": kp.standing.role.name(),
        "weight": kp.standing.weight,
        "silent_s": kp.silent.as_secs(),
        "requests": counts.requests,
        "answered": counts.answered,
        "refused": counts.refused,
        "limited": counts.limited,
        "outdated": counts.outdated,
        "failed": counts.failed,
        "class_claims_ignored": counts.claims_ignored,
        "waited_mean_ms": millis(counts.waited_mean),
        "waited_max_ms": millis(counts.waited_max),
        "limit_rate": kp.limit.map(|limit| view::rounded(limit.rate())),
        "limit_of": kp.limit.map(|limit| limit.owner.name()),
        "delegable": kp.delegation.accepting,
        "delegated": kp.delegation.delegated,
        "check_every_s": kp.delegation.every.map(|every| view::rounded(every.as_secs_f64())),
    })
}

fn words_of(kp: &KpReport) -> String {
    let (counts, standing) = (&kp.counts, kp.standing);
    let called = kp.name.as_deref().map_or_else(|| "without a name".to_owned(), |name| format!("{name:?}"));
    let user = kp.user.as_deref().map(|user| format!(", user {user:?}")).unwrap_or_default();
    let comes = match standing.role {
        KpRole::Service => "before customers",
        KpRole::Customer => "after services, and a sixteenth of the time always",
    };
    let mut lines = vec![
        format!("KP {called} ({}, {}{user}) was heard {} ago", kp.address, kp.door, span(kp.silent)),
        format!("class {}, a {} ({comes}), share {}", kp.class, standing.role.name(), standing.weight),
        format!(
            "{}: {} answered, {} refused, {} out of date, {} failed; an answer waits {} (at most {})",
            counted(counts.requests, "request"),
            counts.answered,
            counts.refused,
            counts.outdated,
            counts.failed,
            span(counts.waited_mean),
            span(counts.waited_max),
        ),
    ];
    if let Some(every) = kp.delegation.every {
        let (delegated, all) = (kp.delegation.delegated, kp.delegation.accepting);
        let which = match (delegated, all) {
            (1, 1) => "its subscription is".to_owned(),
            (1, _) => format!("1 of its {all} subscriptions is"),
            _ => format!("{delegated} of its {all} subscriptions are"),
        };
        lines.push(format!("{which} handed over: it is told of nothing, and checks every {} or so", span(every)));
    }
    lines.extend(kp.limit.map(|limit| limited(kp, &limit)));
    if counts.claims_ignored > 0 {
        let times = counted(counts.claims_ignored, "time");
        lines.push(format!("{times} it claimed a class without the right to it; classes.NAME.claimants lists who may"));
    }
    if counts.refused > 0 && standing.role == KpRole::Customer {
        lines
            .push("if others rely on it: [classes.NAME] with role = \"service\" and its users or addresses".to_owned());
    }
    lines.join("\n  ")
}

/// What an operator has set for it, what that has cost it, and how it ends.
fn limited(kp: &KpReport, limit: &RequestLimit) -> String {
    let (whose, option) = match limit.owner {
        LimitOwner::Kp => (kp.name.as_deref(), ""),
        LimitOwner::User => (kp.user.as_deref(), " --user"),
    };
    format!(
        "an operator's limit of {} requests holds for this {}, of which {} at once; {} were refused for it; end it:  \
         tidegate limits unset {}{option}",
        whole_per_second(limit.rate()),
        limit.owner.name(),
        limit.burst,
        kp.counts.limited,
        whose.unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use tidegate_space::{ClientDelegation, KpCounts, KpStanding};

    use super::*;

    #[test]
    fn a_kp_is_told_its_class_its_role_and_what_became_of_its_requests() {
        let counts = KpCounts {
            requests: 9,
            answered: 5,
            refused: 3,
            limited: 4,
            outdated: 1,
            claims_ignored: 2,
            ..KpCounts::default()
        };
        let kp = KpReport {
            name: Some("lamp-1".into()),
            user: None,
            address: [10, 0, 0, 7].into(),
            door: "http",
            class: "normal".into(),
            standing: KpStanding::default(),
            silent: Duration::from_secs(12),
            counts,
            limit: Some(RequestLimit { interval: Duration::from_millis(200), burst: 5, owner: LimitOwner::Kp }),
            delegation: ClientDelegation { accepting: 3, delegated: 2, every: Some(Duration::from_secs(14)) },
        };
        let text = words_of(&kp);
        for part in [
            "KP \"lamp-1\" (10.0.0.7, http) was heard 12 s ago",
            "class normal, a customer (after services",
            "9 requests: 5 answered, 3 refused, 1 out of date, 0 failed",
            "2 of its 3 subscriptions are handed over: it is told of nothing, and checks every 14 s or so",
            "an operator's limit of 5/s requests holds for this client, of which 5 at once; 4 were refused for it",
            "tidegate limits unset lamp-1",
            "2 times it claimed a class",
            "role = \"service\"",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        assert_eq!(view_of(&kp)["role"], "customer");
    }
}
