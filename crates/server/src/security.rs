//! Who may come in and what they may do: the one place where the configuration meets the crate that knows users.
//!
//! Without a password file and rules the broker is open, and `check_exposure` keeps it on this machine. A password file
//! that is named and missing, or has one bad line, is an error and never an open door.

mod exposure;
mod listeners;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use tidegate_auth::{
    Access, Acl, AnonymousClients, AuthSettings, Authority, AuthorityAuthenticator, CertificateUsers, ClientIds,
    FileError, FileFault, GraphAccess, GraphRule, PasswordAuthenticator, RevokedTokens, TokenAuthenticator, TokenRules,
    TokenSource, Users,
};
use tidegate_broker::AskedBehind;
use tidegate_broker::authenticate::{Anonymous, Authenticator};
use tidegate_broker::config::{Config, Listener};
use tidegate_core::access::{Open, Policy};

use crate::config::rule::{RuleEffect, RuleSetting, RuleSubject, RuleTarget};
use crate::config::words::BindIds;
use crate::config::{ConfigProblem, Loaded, Origin, Problems};
use crate::http_authority::HttpAuthority;
use crate::plan::password_file;
use crate::running::RoleTable;
use crate::tokens::{self, TokenKeys};

use exposure::asks_for_certificate;
pub use exposure::{Audience, Opener, audience, check_exposure, is_root, opener, server_certificates, warnings};
use listeners::{ListenerAuthenticators, ListenerPolicies, ListenerSecurity, Usual};

/// Users and access rules, as the broker asks for them.
#[derive(Clone, Debug)]
pub struct Security {
    /// Who are you?
    pub authenticator: Arc<dyn Authenticator>,
    /// May you do this?
    pub policy: Arc<dyn Policy>,
    /// Whether there are users; without them the broker stays on this machine.
    pub has_users: bool,
    /// Whether clients without a name are let in even if there are users.
    pub allow_anonymous: bool,
    /// What users may do at the admin API; none if there are no users.
    pub roles: Option<RoleTable>,
    /// Who may do what with the graphs of the smart space; none if no rule speaks of them.
    pub graphs: Option<Arc<GraphAccess>>,
    /// Users that rules name and the password file does not.
    strangers: Vec<String>,
    /// What single listeners have of their own.
    own: Vec<ListenerSecurity>,
    /// The keys of tokens; none if there are no tokens.
    pub tokens: Option<Arc<TokenKeys>>,
    /// Those that were taken back.
    pub revoked: Arc<RevokedTokens>,
    /// Who knows users elsewhere; none if nobody is asked.
    pub authority: Option<Arc<HttpAuthority>>,
}

impl Security {
    /// Whether somebody without a name comes in at this listener.
    fn is_open(&self, listener: &Listener) -> bool {
        let own = self.own.iter().find(|own| own.name == listener.name);
        let is_open = own.map_or(!self.has_users || self.allow_anonymous, |own| own.is_open);
        is_open && !asks_for_certificate(listener)
    }

    /// Whether the operator insists on that.
    fn is_open_on_purpose(&self, listener: &Listener) -> bool {
        self.allow_anonymous || self.own.iter().any(|own| own.name == listener.name && own.is_open_on_purpose)
    }
}

impl Security {
    /// Who judges clients: a guard leaves that to the broker behind.
    pub fn judges(&self, config: &Config) -> (Arc<dyn Authenticator>, Arc<dyn Policy>) {
        match config.guard {
            Some(_) => (Arc::new(AskedBehind), Arc::new(Open)),
            None => (Arc::clone(&self.authenticator), Arc::clone(&self.policy)),
        }
    }
}

/// Reads users and rules; all that is wrong with them at once.
pub fn load(loaded: &Loaded) -> Result<Security, Problems> {
    let mut problems = Vec::new();
    let options = &loaded.options.security;
    let file = password_file(&loaded.options);
    let users = file.as_deref().map(|path| Arc::new(read(path, Users::parse, &mut problems).unwrap_or_default()));
    let elsewhere = JudgesElsewhere {
        tokens: TokenJudge::load(loaded, &mut problems),
        authority: HttpAuthority::load(loaded, &mut problems),
    };
    // Whoever comes with a token, or is known elsewhere, is a user, too.
    let users = users.or_else(|| elsewhere.is_any().then(Arc::default));
    let acl = access_list(loaded, None, &mut problems);
    let own = listeners::own(
        loaded,
        &Usual { users: users.as_ref(), acl: acl.as_ref(), elsewhere: &elsewhere },
        &mut problems,
    );
    let graph_rules: Vec<GraphRule> =
        loaded.rules.iter().filter_map(|rule| compile_graph(rule, &mut problems)).collect();
    if !problems.is_empty() {
        return Err(Problems(problems));
    }
    let (has_users, allow_anonymous) = (users.is_some(), options.allow_anonymous);
    let graphs = graph_access(graph_rules.clone(), users.as_deref())?;
    let roles = users.as_deref().map(RoleTable::new);
    let (mut authenticator, mut policy) =
        judges(users.as_ref(), acl.as_ref(), allow_anonymous || !has_users, options, &elsewhere);
    // Where any name will do, none is unknown.
    let strangers = match users.as_deref().filter(|_| !options.any_certificate_user && !elsewhere.is_any()) {
        Some(users) => strangers(&acl.unwrap_or_else(Acl::open), &graph_rules, users),
        None => Vec::new(),
    };
    if !own.is_empty() {
        authenticator = Arc::new(ListenerAuthenticators::new(authenticator, &own));
        policy = Arc::new(ListenerPolicies::new(policy, &own));
    }
    let JudgesElsewhere { tokens, authority } = elsewhere;
    let (tokens, revoked) = tokens.map(|TokenJudge { rules, keys }| (keys, Arc::new(rules.revoked))).unzip();
    Ok(Security {
        authenticator,
        policy,
        has_users,
        allow_anonymous,
        roles,
        graphs,
        strangers,
        own,
        tokens,
        revoked: revoked.unwrap_or_default(),
        authority,
    })
}

/// Who knows these users and rules. Without users and rules everybody may do everything.
fn judges(
    users: Option<&Arc<Users>>,
    acl: Option<&Acl>,
    admits_anonymous: bool,
    options: &crate::config::keys::Security,
    elsewhere: &JudgesElsewhere,
) -> (Arc<dyn Authenticator>, Arc<dyn Policy>) {
    let by_name = options.bind_client_ids == BindIds::Names;
    if users.is_none() && acl.is_none() && !by_name && admits_anonymous && !elsewhere.is_any() {
        return (Arc::new(Anonymous), Arc::new(Open));
    }
    let takes_any = options.any_certificate_user || users.is_none();
    let users = users.cloned().unwrap_or_default();
    let policy = match acl {
        Some(acl) => Access::new(acl, &users),
        None => Access::new(&Acl::open(), &users),
    };
    let settings = AuthSettings {
        anonymous: if admits_anonymous { AnonymousClients::Admit } else { AnonymousClients::Refuse },
        certificate_users: if takes_any { CertificateUsers::Any } else { CertificateUsers::MustExist },
        client_ids: if by_name { ClientIds::BoundToUser } else { ClientIds::Free },
    };
    let passwords = || PasswordAuthenticator::new(Arc::clone(&users), settings);
    let mut authenticator: Arc<dyn Authenticator> = match &elsewhere.tokens {
        None => Arc::new(passwords()),
        Some(TokenJudge { rules, keys }) => {
            let source = Arc::clone(keys) as Arc<dyn TokenSource>;
            Arc::new(TokenAuthenticator::new(passwords(), rules.clone(), source))
        }
    };
    if let Some(authority) = &elsewhere.authority {
        let (has_tokens, authority) = (elsewhere.tokens.is_some(), Arc::clone(authority) as Arc<dyn Authority>);
        authenticator = Arc::new(AuthorityAuthenticator::new(passwords(), authenticator, has_tokens, authority));
    }
    (authenticator, Arc::new(policy))
}

/// Who knows users that are in no file.
struct JudgesElsewhere {
    tokens: Option<TokenJudge>,
    authority: Option<Arc<HttpAuthority>>,
}

impl JudgesElsewhere {
    fn is_any(&self) -> bool {
        self.tokens.is_some() || self.authority.is_some()
    }
}

/// How tokens are judged.
struct TokenJudge {
    rules: TokenRules,
    keys: Arc<TokenKeys>,
}

impl TokenJudge {
    fn load(loaded: &Loaded, problems: &mut Vec<ConfigProblem>) -> Option<Self> {
        Some(Self { rules: tokens::rules_now(loaded, problems)?, keys: TokenKeys::load(loaded, problems)? })
    }
}

/// Users that rules name and that cannot come in, each once.
fn strangers(acl: &Acl, graphs: &[GraphRule], users: &Users) -> Vec<String> {
    let unknown = |subject: &tidegate_auth::AclSubject| match subject {
        tidegate_auth::AclSubject::User(name) if !users.contains(name) => Some(name.to_string()),
        _ => None,
    };
    let subjects = acl.rules().iter().map(tidegate_auth::AclRule::subject).chain(graphs.iter().map(GraphRule::subject));
    let names: BTreeSet<String> = subjects.filter_map(unknown).collect();
    names.into_iter().collect()
}

/// The rules about graphs, for these users; none if there is not a single one.
fn graph_access(rules: Vec<GraphRule>, users: Option<&Users>) -> Result<Option<Arc<GraphAccess>>, Problems> {
    if rules.is_empty() {
        return Ok(None);
    }
    let none = Users::default();
    let access = GraphAccess::new(rules, users.unwrap_or(&none));
    access
        .map(|access| Some(Arc::new(access)))
        .map_err(|fault| Problems(vec![ConfigProblem::general(format!("security.rule: {fault}"))]))
}

/// The rules of the ACL file or of the configuration, or those of a set; none if there are neither.
fn access_list(loaded: &Loaded, set: Option<&str>, problems: &mut Vec<ConfigProblem>) -> Option<Acl> {
    let file = loaded.options.security.acl_file.as_deref().filter(|_| set.is_none());
    let of_set = loaded.rules.iter().filter(|rule| rule.set.as_deref() == set);
    let of_topics: Vec<(&RuleSetting, &str)> = of_set.filter_map(topic_rule).collect();
    match (file, of_topics.as_slice()) {
        (None, []) => None,
        (Some(path), []) => read(path, Acl::parse_mosquitto, problems),
        (Some(_), [(rule, _), ..]) => {
            let message = "rules stand both here and in security.acl_file; the two read rules differently";
            let problem = ConfigProblem::of_key(&rule.origin, "security.rule", message);
            problems.push(problem.with_hint("keep them in one place".to_owned()));
            None
        }
        (None, rules) => {
            let compiled: Vec<_> = rules.iter().filter_map(|(rule, topic)| compile(rule, topic, problems)).collect();
            Acl::new(compiled).map_err(|fault| problems.push(ConfigProblem::general(fault.to_string()))).ok()
        }
    }
}

fn topic_rule(rule: &RuleSetting) -> Option<(&RuleSetting, &str)> {
    if let RuleTarget::Topic(topic) = &rule.target { Some((rule, topic)) } else { None }
}

fn compile_graph(rule: &RuleSetting, problems: &mut Vec<ConfigProblem>) -> Option<GraphRule> {
    let RuleTarget::Graph(graph) = &rule.target else { return None };
    let (subject, effect) = whom(rule);
    let wrong = |fault: FileFault| {
        let field = match fault {
            FileFault::GraphInvalid => "security.rule.graph",
            FileFault::GraphAccessUnknown(_) if effect == tidegate_auth::AclEffect::Deny => "security.rule.deny",
            FileFault::GraphAccessUnknown(_) => "security.rule.allow",
            FileFault::GraphOfClient => "security.rule.client",
            _ => "security.rule",
        };
        let message = if fault == FileFault::GraphInvalid {
            format!("{graph:?} does not fit: {fault}")
        } else {
            fault.to_string()
        };
        problems.push(ConfigProblem::of_key(&rule.origin, field, message));
    };
    GraphRule::new(subject, effect, &rule.actions, graph).map_err(wrong).ok()
}

fn whom(rule: &RuleSetting) -> (tidegate_auth::AclSubject, tidegate_auth::AclEffect) {
    let subject = match &rule.subject {
        RuleSubject::Everyone => tidegate_auth::AclSubject::Everyone,
        RuleSubject::Anonymous => tidegate_auth::AclSubject::Anonymous,
        RuleSubject::User(name) => tidegate_auth::AclSubject::User(name.as_str().into()),
        RuleSubject::Role(name) => tidegate_auth::AclSubject::Role(name.as_str().into()),
        RuleSubject::Client(name) => tidegate_auth::AclSubject::Client(name.as_str().into()),
    };
    let effect = match rule.effect {
        RuleEffect::Allow => tidegate_auth::AclEffect::Allow,
        RuleEffect::Deny => tidegate_auth::AclEffect::Deny,
    };
    (subject, effect)
}

fn compile(rule: &RuleSetting, topic: &str, problems: &mut Vec<ConfigProblem>) -> Option<tidegate_auth::AclRule> {
    let (subject, effect) = whom(rule);
    let compiled =
        rule.actions.parse().and_then(|actions| tidegate_auth::AclRule::new(subject, effect, actions, topic));
    compiled
        .map_err(|fault| problems.push(ConfigProblem::of_key(&rule.origin, "security.rule", fault.to_string())))
        .ok()
}

/// Reads a file; its errors become problems with their lines.
pub fn read<T>(
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, Vec<FileError>>,
    problems: &mut Vec<ConfigProblem>,
) -> Option<T> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) => {
            problems.push(ConfigProblem::of_file(path, format_args!("cannot be read: {error}")));
            return None;
        }
    };
    let errors = match tidegate_auth::read(file).and_then(|text| parse(&text)) {
        Ok(value) => return Some(value),
        Err(errors) => errors,
    };
    problems.extend(errors.into_iter().map(|FileError { line, what }| match line {
        0 => ConfigProblem::of_file(path, what),
        line => {
            let origin = Origin::File { path: path.into(), line, column: 1 };
            ConfigProblem { origin: Some(origin), ..ConfigProblem::general(what.to_string()) }
        }
    }));
    None
}

#[cfg(test)]
mod tests;
