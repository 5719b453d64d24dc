//! Users and rules that differ from one listener to another: who is asked, by the name of the listener where a client came in.
//!
//! A listener without anything of its own has the broker's. Sessions that came back from the store know their listener, so
//! that what comes for a client that is away is judged as if the client were there.

use std::sync::Arc;

use tidegate_auth::{Acl, Users};
use tidegate_broker::authenticate::{Authenticator, Credentials, LoginGrant, LoginRefusal};
use tidegate_core::access::{Action, Identity, Policy};

use super::{JudgesElsewhere, access_list, judges, read};
use crate::config::listener::ListenerSetting;
use crate::config::{ConfigProblem, Loaded};

/// What a listener has of its own.
#[derive(Clone, Debug)]
pub(super) struct ListenerSecurity {
    pub(super) name: &'static str,
    authenticator: Arc<dyn Authenticator>,
    policy: Arc<dyn Policy>,
    /// Whether somebody without a name comes in.
    pub(super) is_open: bool,
    /// Whether that is what the block itself says.
    pub(super) is_open_on_purpose: bool,
}

/// The users and rules of the broker, for blocks that have none of their own.
pub(super) struct Usual<'a> {
    pub(super) users: Option<&'a Arc<Users>>,
    pub(super) acl: Option<&'a Acl>,
    pub(super) elsewhere: &'a JudgesElsewhere,
}

/// What blocks have of their own.
pub(super) fn own(loaded: &Loaded, usual: &Usual<'_>, problems: &mut Vec<ConfigProblem>) -> Vec<ListenerSecurity> {
    check_sets(loaded, problems);
    let blocks = loaded.listeners.iter().filter(|block| block.has_own_rules());
    blocks.filter_map(|block| of_block(block, loaded, usual, problems)).collect()
}

fn of_block(
    block: &ListenerSetting,
    loaded: &Loaded,
    usual: &Usual<'_>,
    problems: &mut Vec<ConfigProblem>,
) -> Option<ListenerSecurity> {
    let own_users = match &block.password_file {
        Some(path) => Some(Arc::new(read(path, Users::parse, problems)?)),
        None => None,
    };
    let users = own_users.as_ref().or(usual.users);
    let own_acl = match (&block.acl_file, &block.rules) {
        (Some(path), _) => Some(read(path, Acl::parse_mosquitto, problems)?),
        (None, Some(set)) => Some(access_list(loaded, Some(set), problems)?),
        (None, None) => None,
    };
    let acl = own_acl.as_ref().or(usual.acl);
    let options = &loaded.options.security;
    let is_open = block.anonymous.unwrap_or(options.allow_anonymous || users.is_none());
    let (authenticator, policy) = judges(users, acl, is_open, options, usual.elsewhere);
    let is_open_on_purpose = block.anonymous == Some(true);
    Some(ListenerSecurity { name: block.name, authenticator, policy, is_open, is_open_on_purpose })
}

/// A set that nobody uses shuts out nobody, and one without rules would shut out everybody: both are mistakes.
fn check_sets(loaded: &Loaded, problems: &mut Vec<ConfigProblem>) {
    for rule in &loaded.rules {
        if let Some(set) = &rule.set
            && !loaded.listeners.iter().any(|block| block.rules.as_ref() == Some(set))
        {
            let message = format!("no [[listener]] has rules = {set:?}");
            problems.push(ConfigProblem::of_key(&rule.origin, "security.rule.set", message));
        }
    }
    for block in &loaded.listeners {
        if let Some(set) = &block.rules
            && !loaded.rules.iter().any(|rule| rule.set.as_ref() == Some(set))
        {
            problems.push(block.problem("rules", format!("no [[security.rule]] has set = {set:?}")));
        }
    }
}

/// Asks whoever knows the users of the listener.
#[derive(Debug)]
pub(super) struct ListenerAuthenticators {
    usual: Arc<dyn Authenticator>,
    own: Vec<(&'static str, Arc<dyn Authenticator>)>,
}

impl ListenerAuthenticators {
    pub(super) fn new(usual: Arc<dyn Authenticator>, own: &[ListenerSecurity]) -> Self {
        Self { usual, own: own.iter().map(|one| (one.name, Arc::clone(&one.authenticator))).collect() }
    }

    fn at(&self, listener: &str) -> &dyn Authenticator {
        self.own.iter().find(|(name, _)| *name == listener).map_or(&*self.usual, |(_, own)| &**own)
    }
}

impl Authenticator for ListenerAuthenticators {
    fn is_slow(&self, credentials: &Credentials) -> bool {
        self.at(credentials.listener).is_slow(credentials)
    }

    fn authenticate(&self, credentials: &Credentials) -> Result<Option<Arc<str>>, LoginRefusal> {
        self.at(credentials.listener).authenticate(credentials)
    }

    fn admits(&self, user: Option<&str>, client_id: &str) -> bool {
        self.usual.admits(user, client_id)
    }

    fn login(&self, credentials: &Credentials) -> Result<LoginGrant, LoginRefusal> {
        self.at(credentials.listener).login(credentials)
    }

    fn recall(&self, credentials: &Credentials) -> Option<Result<LoginGrant, LoginRefusal>> {
        self.at(credentials.listener).recall(credentials)
    }

    fn asks_elsewhere(&self, credentials: &Credentials) -> bool {
        self.at(credentials.listener).asks_elsewhere(credentials)
    }

    fn is_guessable(&self, credentials: &Credentials) -> bool {
        self.at(credentials.listener).is_guessable(credentials)
    }

    fn admits_identity(&self, identity: &Identity, client_id: &str) -> bool {
        self.at(identity.listener).admits_identity(identity, client_id)
    }
}

/// Asks the rules of the listener.
#[derive(Debug)]
pub(super) struct ListenerPolicies {
    usual: Arc<dyn Policy>,
    own: Vec<(&'static str, Arc<dyn Policy>)>,
}

impl ListenerPolicies {
    pub(super) fn new(usual: Arc<dyn Policy>, own: &[ListenerSecurity]) -> Self {
        Self { usual, own: own.iter().map(|one| (one.name, Arc::clone(&one.policy))).collect() }
    }
}

impl Policy for ListenerPolicies {
    fn allows(&self, identity: &Identity, client_id: &str, action: Action, topic: &str) -> bool {
        let own = self.own.iter().find(|(name, _)| *name == identity.listener);
        own.map_or(&self.usual, |(_, own)| own).allows(identity, client_id, action, topic)
    }
}
