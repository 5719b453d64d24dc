//! Whose a session is, as one text of its record: the user, and where it says more than that, the listener with rules of its
//! own where it came in, and the roles and claims that its token gave it. After a restart what comes for a client that is away is judged
//! by these.
//!
//! `ann`, or `ann NUL factory NUL operator,monitor`, or with claims after that `NUL site SOH north SOH line SOH 7`: no name has
//! a control character, and no value that is of any use. Earlier releases wrote the first forms only.

use std::sync::Arc;

use tidegate_core::access::Identity;

use crate::config::ListenerKind;
use crate::listener_names::listener_name;

/// What is written; none for somebody without a name at an ordinary listener.
pub(super) fn owner_text(identity: &Identity) -> Option<Arc<str>> {
    let kinds = [ListenerKind::Mqtt, ListenerKind::Mqtts, ListenerKind::Ws, ListenerKind::Wss, ListenerKind::Coap];
    let kinds = kinds.into_iter().chain([ListenerKind::Coaps, ListenerKind::Sn]);
    let kinds = kinds.chain([ListenerKind::HttpTopics, ListenerKind::HttpsTopics]);
    let kinds = kinds.chain([ListenerKind::Amqp, ListenerKind::Amqps]);
    let is_usual = identity.listener.is_empty() || kinds.into_iter().any(|kind| kind.name() == identity.listener);
    let user = identity.user.as_deref();
    match &identity.roles {
        None if is_usual && identity.claims.is_none() => identity.user.clone(),
        roles => {
            let listener = if is_usual { "" } else { identity.listener };
            let roles = roles.as_deref().unwrap_or_default().join(",");
            let claims = identity.claims.as_deref().unwrap_or_default().iter().filter(|(_, value)| is_plain(value));
            let claims: String = claims.flat_map(|(name, value)| ["\u{1}", name, "\u{1}", value]).collect();
            let claims = if claims.is_empty() { claims } else { claims.replacen('\u{1}', "\0", 1) };
            Some(format!("{}\0{listener}\0{roles}{claims}", user.unwrap_or_default()).into())
        }
    }
}

fn is_plain(value: &str) -> bool {
    !value.chars().any(char::is_control)
}

/// What was written.
pub(super) fn owner(text: Option<&str>) -> Identity {
    let Some(text) = text else { return Identity::default() };
    let mut parts = text.split('\0');
    let user = parts.next().filter(|user| !user.is_empty()).map(Arc::from);
    let listener = parts.next().filter(|listener| !listener.is_empty()).map_or("", listener_name);
    let roles = parts.next().filter(|roles| !roles.is_empty()).map(|roles| roles.split(',').map(Arc::from).collect());
    let claims = parts.next().map(|claims| {
        let words: Vec<&str> = claims.split('\u{1}').collect();
        words.chunks_exact(2).map(|pair| (pair[0].into(), pair[1].into())).collect()
    });
    Identity { user, listener, roles, claims, ..Identity::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_a_plain_user_is_written_as_before() {
        let at = |user: Option<&str>, listener, roles: &[&str]| Identity {
            user: user.map(Arc::from),
            listener,
            roles: (!roles.is_empty()).then(|| roles.iter().map(|role| Arc::from(*role)).collect()),
            ..Identity::default()
        };
        for identity in [
            at(None, "", &[]),
            at(Some("ann"), "", &[]),
            at(None, "factory", &[]),
            at(Some("ann"), "factory", &[]),
            at(Some("ann"), "", &["operator", "monitor"]),
            at(Some("ann"), "factory", &["operator"]),
        ] {
            assert_eq!(owner(owner_text(&identity).as_deref()), identity);
        }
        let claims = [("site", "north"), ("line", "7"), ("none", "")].map(|(name, value)| (name.into(), value.into()));
        let ann = Identity { claims: Some(claims.into()), ..at(Some("ann"), "", &["operator"]) };
        assert_eq!(owner(owner_text(&ann).as_deref()), ann);
        assert_eq!(owner_text(&at(Some("ann"), "mqtts", &[])).as_deref(), Some("ann"));
        assert_eq!(owner_text(&at(None, "ws", &[])), None);
    }
}
