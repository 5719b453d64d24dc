//! Who may come in and what they may do: the one place where the configuration meets the crate that knows users.
//!
//! Without a password file and rules the broker is open, and `check_exposure` keeps it on this machine. A password file
//! that is named and missing, or has one bad line, is an error and never an open door.

mod listeners;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_auth::{
    Access, Acl, AnonymousClients, AuthSettings, Authority, AuthorityAuthenticator, CertificateUsers, ClientIds,
    FileError, FileFault, GraphAccess, GraphRule, PasswordAuthenticator, RevokedTokens, TokenAuthenticator, TokenRules,
    TokenSource, Users,
};
use tidegate_broker::AskedBehind;
use tidegate_broker::authenticate::{Anonymous, Authenticator};
use tidegate_broker::config::{Config, Listener, ListenerKind};
use tidegate_core::access::{Open, Policy};

use crate::config::rule::{RuleEffect, RuleSetting, RuleSubject, RuleTarget};
use crate::config::words::BindIds;
use crate::config::{ConfigProblem, Loaded, Origin, Problems};
use crate::http_authority::HttpAuthority;
use crate::plan::{
    admin, admin_https, certificates, has_space, is_block, listener_key, password_file, space as space_doors,
};
use crate::running::RoleTable;
use crate::tokens::{self, TokenKeys};
use crate::{certificate, descriptors, disk_free};

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

/// Refuses to open the broker to other machines while everybody could come in.
pub fn check_exposure(config: &Config, security: &Security, loaded: &Loaded) -> Result<(), Problems> {
    let doors = space_doors(&loaded.options, security.has_users);
    let is_exposed = |at: &SocketAddr| !is_loopback(at.ip());
    let asks_all = certificates(&loaded.options).is_some_and(|files| files.client_cert_required);
    let unnamed = [("ssap", doors.ssap), ("ssaps", doors.ssaps.filter(|_| !asks_all))];
    let unnamed = unnamed.into_iter().find_map(|(name, at)| Some((name, at.filter(is_exposed)?)));
    if let Some((name, at)) = unnamed.filter(|_| !security.allow_anonymous) {
        let message = format!("listeners.{name} = \"{at}\" accepts other machines, but Smart-M3 knows no users");
        let hint = "listen on this machine only, or insist on an open listener with --allow-anonymous".to_owned();
        return Err(Problems(vec![ConfigProblem::general(message).with_hint(hint)]));
    }
    let is_open = |listener: &&Listener| listener.kind.is_datagrams() && is_exposed(&listener.bind);
    if let Some(listener) = config.listeners.iter().find(is_open).filter(|_| !security.allow_anonymous) {
        let (name, at) = (listener.kind.name(), listener.bind);
        let what = if listener.kind == ListenerKind::Coap { "CoAP" } else { "MQTT-SN" };
        let message = format!("listeners.{name} = \"{at}\" accepts other machines, but {what} knows no users");
        let hint = "listen on this machine only, or insist on an open door with --allow-anonymous".to_owned();
        return Err(Problems(vec![ConfigProblem::general(message).with_hint(hint)]));
    }
    if security.has_users {
        return Ok(());
    }
    let https = ("https", doors.https.filter(|_| !asks_all));
    let plain = [("http", doors.http), ("sepa_http", doors.sepa_http), ("sepa_ws", doors.sepa_ws), https];
    if let Some((name, at)) = plain.into_iter().find_map(|(name, at)| Some((name, at.filter(is_exposed)?))) {
        let message = format!("listeners.{name} = \"{at}\" accepts other machines, but there are no users");
        let hint = "add one with `tidegate user add NAME`, or listen on this machine only".to_owned();
        return Err(Problems(vec![ConfigProblem::general(message).with_hint(hint)]));
    }
    // Who may not be kept from publishing may still be kept from ending connections.
    let admins = [("admin", admin(&loaded.options)), ("admin_https", admin_https(&loaded.options))];
    if let Some((name, at)) = admins.into_iter().find_map(|(name, at)| Some((name, at.filter(is_exposed)?))) {
        let message = format!("listeners.{name} = \"{at}\" accepts other machines, but there are no users");
        let hint = "add one with `tidegate user add NAME --roles admin`, or listen on this machine only".to_owned();
        return Err(Problems(vec![ConfigProblem::general(message).with_hint(hint)]));
    }
    let problem = |listener: &Listener| {
        let (key, at) = (listener_key(listener), listener.bind);
        if is_block(listener) {
            let message = format!("{key} at {at} accepts other machines, but there are no users");
            let hint = "give it a password_file, add a user with `tidegate user add NAME`, or insist on an open listener with \
                        anonymous = true";
            return ConfigProblem::general(message).with_hint(hint.to_owned());
        }
        let message = format!("{key} = \"{at}\" accepts other machines, but there are no users");
        ConfigProblem::general(message).with_hint(
            "add one with `tidegate user add NAME`, or insist on an open broker with --allow-anonymous".to_owned(),
        )
    };
    // Who may come in is for the broker behind to say.
    if config.guard.is_some() {
        return Ok(());
    }
    let exposed = |listener: &&Listener| {
        !is_loopback(listener.bind.ip()) && security.is_open(listener) && !security.is_open_on_purpose(listener)
    };
    let problems: Vec<ConfigProblem> = config.listeners.iter().filter(exposed).map(problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
}

/// Who can come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Whoever has a password or a certificate, from everywhere.
    Known,
    /// Whoever has a password or a certificate, and only on this machine.
    KnownHere,
    /// Everybody on this machine: there are no users.
    ThisMachine,
    /// Everybody on this machine, whether there are users or not: `allow_anonymous` says so.
    AnybodyHere,
    /// Everybody, from everywhere.
    Everybody,
    /// Nobody by MQTT, which is off: the smart space alone is served.
    SpaceOnly,
}

/// Who can come in, to be said at the start.
pub fn audience(config: &Config, security: &Security) -> Audience {
    let is_here = |listener: &Listener| is_loopback(listener.bind.ip());
    let open: Vec<&Listener> = config.listeners.iter().filter(|listener| security.is_open(listener)).collect();
    match () {
        () if config.listeners.is_empty() => Audience::SpaceOnly,
        () if open.is_empty() && config.listeners.iter().all(is_here) => Audience::KnownHere,
        () if open.is_empty() => Audience::Known,
        () if !open.iter().all(|listener| is_here(listener)) => Audience::Everybody,
        () if open.iter().any(|listener| security.is_open_on_purpose(listener)) => Audience::AnybodyHere,
        () => Audience::ThisMachine,
    }
}

/// What opens a broker to everybody, and what closes it again: that depends on who said it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opener {
    /// The setting, with the listener if it is that of one.
    pub setting: String,
    pub how_to_close: String,
}

/// The setting that lets everybody in.
pub fn opener(loaded: &Loaded) -> Opener {
    let block = loaded.listeners.iter().find(|block| block.anonymous == Some(true));
    if let Some(block) = block.filter(|_| !loaded.options.security.allow_anonymous) {
        let setting = format!("anonymous of the listener {}", block.name);
        return Opener { setting, how_to_close: format!("remove anonymous = true ({})", block.origin) };
    }
    let how_to_close = match loaded.origin("security.allow_anonymous") {
        Origin::Flag(flag) if flag == "--allow-anonymous" => "start without --allow-anonymous".to_owned(),
        Origin::Environment(name) => format!("unset {name}"),
        origin @ Origin::File { .. } => format!("remove allow_anonymous ({origin})"),
        _ => "remove security.allow_anonymous".to_owned(),
    };
    Opener { setting: "allow_anonymous".to_owned(), how_to_close }
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

fn asks_for_certificate(listener: &Listener) -> bool {
    match (&listener.tls, listener.kind) {
        // Where there is neither an authority nor a key to show, there would be no listener.
        (tls, ListenerKind::Coaps) => tls.as_ref().is_none_or(|tls| tls.client_ca.is_some()),
        (tls, _) => tls.as_ref().is_some_and(|tls| tls.client_cert_required),
    }
}

/// What an operator should know and may have overlooked.
pub fn warnings(loaded: &Loaded, config: &Config, security: &Security) -> Vec<String> {
    let mut warnings = Vec::new();
    let place = match audience(config, security) {
        Audience::Everybody => Some("who reaches this broker"),
        Audience::AnybodyHere => Some("on this machine"),
        _ => None,
    };
    if let Some(place) = place {
        let Opener { setting, how_to_close } = opener(loaded);
        warnings.push(format!("anybody {place} may come in without a name ({setting}); to close it, {how_to_close}"));
    }
    if security.has_users && loaded.options.security.bind_client_ids == BindIds::Off {
        let message = "any user can end the session of another who is away, and lose its messages, by using its client \
                       identifier (security.bind_client_ids = false); \"session\" keeps it";
        warnings.push(message.to_owned());
    }
    let jwt = &loaded.options.jwt;
    if jwt.keys.clone().value().is_some() && jwt.audience.0.is_empty() {
        let message = "a token for anybody else that one of these keys has signed lets its owner in here, too \
                       (jwt.audience is empty); name the audience of the tokens that are for this broker";
        warnings.push(message.to_owned());
    }
    warnings.extend(crate::bridges::warnings(&loaded.bridges, &config.listeners));
    let stranger = |name: &String| format!("rules name the user {name:?}, who is not in the password file");
    warnings.extend(security.strangers.iter().map(stranger));
    warnings.extend(server_certificates(loaded).iter().filter_map(|cert| certificate::expiry_warning(cert)));
    warnings.extend(descriptors::warning(loaded, has_space(&loaded.options, security.has_users)));
    warnings.extend(disk_free::warning(&loaded.options.server.data));
    let secrets = [loaded.options.tls.key.clone(), password_file(&loaded.options)];
    let of_blocks = loaded.listeners.iter().flat_map(|block| [block.key.clone(), block.password_file.clone()]);
    for path in secrets.into_iter().chain(of_blocks).flatten().filter(|path| is_readable_by_all(path)) {
        warnings.push(format!("{0} can be read by everybody on this machine: chmod 600 {0}", path.display()));
    }
    warnings
}

/// The certificates that clients are shown, each once.
pub fn server_certificates(loaded: &Loaded) -> BTreeSet<PathBuf> {
    let of_blocks = loaded.listeners.iter().filter_map(|block| block.cert.clone());
    loaded.options.tls.cert.clone().into_iter().chain(of_blocks).collect()
}

/// Whether this process may do everything. Said once, when it serves.
pub fn is_root() -> bool {
    // The owner of our own entry in /proc is who we are; no system call of our own is needed.
    std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

/// Whether others than owner and group may read the file (mosquitto's CVE-2017-9868 was this, for its database).
fn is_readable_by_all(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}

#[cfg(test)]
mod tests;
