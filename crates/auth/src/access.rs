//! The rules, compiled for the hot path: [`Access`] answers [`Policy`] from memory, without a lock and without allocating.
//!
//! Rules are sorted once into groups: for everyone, for nobody in particular, per user, per role. A question then looks
//! at the few rules that can concern the asker: one hash lookup by user name, denials first, allowances after. Nothing is
//! cached per client, so there is nothing to bound and nothing to forget when rules change: a reload builds a new
//! `Access`, and because deliveries ask again, a right that is gone is gone at once.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use tidegate_core::access::{Action, Identity, Policy};
use tidegate_core::glob::Glob;

use crate::acl::{Acl, AclEffect, AclRule, AclSubject, Actions, Dialect, MONITOR};
use crate::filter::{Filter, Names, RequesterNames, Topic};
use crate::users::Users;

/// Who may do what.
#[derive(Debug)]
pub struct Access {
    dialect: Dialect,
    everyone: SubjectRules,
    anonymous: SubjectRules,
    /// By user name: those with a role or with rules of their own. Names come from files, never from the network, so the
    /// hash needs no secret.
    people: HashMap<Arc<str>, UserAccess, FixedState>,
    roles: Vec<SubjectRules>,
    /// Indices of `Access::roles`, for those whose roles come with a token.
    role_indices: HashMap<Arc<str>, u32, FixedState>,
}

#[derive(Debug, Default)]
struct UserAccess {
    own: SubjectRules,
    /// Indices of `Access::roles`.
    roles: Vec<u32>,
}

/// Rules of one subject. Apart by effect, because all denials are looked at before the first allowance.
#[derive(Debug, Default)]
struct SubjectRules {
    deny: Vec<AccessRule>,
    allow: Vec<AccessRule>,
}

#[derive(Debug)]
struct AccessRule {
    actions: Actions,
    filter: Filter,
    /// Only for these clients.
    clients: Option<Glob>,
}

/// Whether this client may do this to this topic.
#[derive(Clone, Copy)]
struct AccessQuestion<'a> {
    who: RequesterNames<'a>,
    action: Action,
    /// A topic name, or for [`Action::Subscribe`] a filter without its share.
    topic: Topic<'a>,
    dialect: Dialect,
}

impl Access {
    /// Compile an access list for these users; their roles are taken from there.
    pub fn new(acl: &Acl, users: &Users) -> Self {
        let mut access = Self {
            dialect: acl.dialect,
            everyone: SubjectRules::default(),
            anonymous: SubjectRules::default(),
            people: HashMap::with_hasher(FixedState::default()),
            roles: Vec::new(),
            role_indices: HashMap::with_hasher(FixedState::default()),
        };
        let mut role_indices = HashMap::with_hasher(FixedState::default());
        for rule in acl.rules.iter().chain(monitor_rule().as_ref()) {
            access.group(&rule.subject, &mut role_indices).insert(rule);
        }
        for (name, roles) in users.iter().filter(|(_, roles)| !roles.is_empty()) {
            // A role without a rule grants nothing and needs no place.
            let indices = roles.iter().filter_map(|role| role_indices.get(role).copied()).collect();
            access.people.entry(Arc::clone(name)).or_default().roles = indices;
        }
        access.role_indices = role_indices;
        access
    }

    fn group(&mut self, subject: &AclSubject, roles: &mut HashMap<Arc<str>, u32, FixedState>) -> &mut SubjectRules {
        match subject {
            AclSubject::Everyone | AclSubject::Client(_) => &mut self.everyone,
            AclSubject::Anonymous => &mut self.anonymous,
            AclSubject::User(name) => &mut self.people.entry(Arc::clone(name)).or_default().own,
            AclSubject::Role(name) => {
                let next = self.roles.len() as u32;
                let index = *roles.entry(Arc::clone(name)).or_insert(next);
                if index == next {
                    self.roles.push(SubjectRules::default());
                }
                &mut self.roles[index as usize]
            }
        }
    }

    /// The groups that speak of this user in particular.
    fn personal<'a>(&'a self, identity: &'a Identity) -> impl Iterator<Item = &'a SubjectRules> + Clone {
        let (own, roles) = match identity.user.as_deref() {
            None => (Some(&self.anonymous), &[][..]),
            Some(name) => match self.people.get(name) {
                Some(person) => (Some(&person.own), &person.roles[..]),
                None => (None, &[][..]),
            },
        };
        let shown = identity.roles.as_deref().unwrap_or_default().iter();
        let shown = shown.filter_map(|role| self.role_indices.get(role).copied());
        own.into_iter().chain(roles.iter().copied().chain(shown).filter_map(|index| self.roles.get(index as usize)))
    }
}

impl Policy for Access {
    fn allows(&self, identity: &Identity, client_id: &str, action: Action, topic: &str) -> bool {
        if matches!(action, Action::Publish | Action::Prioritize) && is_sys(topic) {
            return false;
        }
        let is_shared = action == Action::Subscribe && topic.starts_with("$share/");
        let topic = if action == Action::Subscribe { without_share(topic) } else { Some(topic) };
        let Some(topic) = topic else { return false };
        // mosquitto grants every subscription, and asks again for each message: whoever may read nothing of it gets silence. Not
        // where others share it: a member that may read nothing of it would be one to whom messages go.
        if action == Action::Subscribe && self.dialect == Dialect::Mosquitto && !is_shared {
            return true;
        }
        let user = identity.user.as_deref();
        let question = AccessQuestion {
            who: RequesterNames { user, client: client_id, claims: identity.claims.as_deref().unwrap_or_default() },
            action,
            topic: Topic::new(topic),
            dialect: self.dialect,
        };
        let personal = self.personal(identity);
        let common = std::iter::once(&self.everyone);
        let answer = match self.dialect {
            Dialect::Tidegate => question.ask(personal.chain(common)),
            Dialect::Mosquitto => question.ask(personal).or_else(|| question.ask(common)),
        };
        answer == Some(AclEffect::Allow)
    }
}

impl AccessQuestion<'_> {
    /// What the groups say together; none if no rule matches.
    #[inline]
    fn ask<'g>(self, groups: impl Iterator<Item = &'g SubjectRules> + Clone) -> Option<AclEffect> {
        let any = |entries: &[AccessRule], effect| entries.iter().any(|entry| self.concerns(entry, effect));
        if groups.clone().any(|group| any(&group.deny, AclEffect::Deny)) {
            return Some(AclEffect::Deny);
        }
        groups.into_iter().any(|group| any(&group.allow, AclEffect::Allow)).then_some(AclEffect::Allow)
    }

    #[inline]
    fn concerns(self, entry: &AccessRule, effect: AclEffect) -> bool {
        if !entry.actions.contains(self.action) {
            return false;
        }
        let is_topic_meant = match (self.action, self.dialect, effect) {
            (Action::Publish | Action::Prioritize | Action::Receive, ..) => {
                entry.filter.matches(self.topic, self.who, effect)
            }
            (Action::Subscribe, Dialect::Mosquitto, AclEffect::Allow) => {
                entry.filter.overlaps(self.topic.as_str(), self.who)
            }
            (Action::Subscribe, ..) => entry.filter.covers(self.topic.as_str(), self.who, effect),
        };
        is_topic_meant && entry.clients.as_ref().is_none_or(|clients| clients.matches(self.who.client))
    }
}

impl SubjectRules {
    fn insert(&mut self, rule: &AclRule) {
        let clients = match &rule.subject {
            AclSubject::Client(pattern) => Some(Glob::new(pattern)),
            _ => None,
        };
        let entry = AccessRule { actions: rule.actions, filter: rule.filter.clone(), clients };
        match rule.effect {
            AclEffect::Allow => self.allow.push(entry),
            AclEffect::Deny => self.deny.push(entry),
        }
    }
}

fn monitor_rule() -> Option<AclRule> {
    let filter = Filter::parse("$SYS/#", Names::Literal).ok()?;
    Some(AclRule {
        subject: AclSubject::Role(MONITOR.into()),
        effect: AclEffect::Allow,
        actions: Actions::READ,
        filter,
    })
}

fn is_sys(topic: &str) -> bool {
    topic.strip_prefix("$SYS").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What is subscribed to, without `$share/group/`. None for a share without a filter. A share inside a share stays and is
/// matched by no rule, because no rule can begin with `$share/`.
fn without_share(filter: &str) -> Option<&str> {
    match filter.strip_prefix("$share/") {
        Some(shared) => shared.split_once('/').map(|(_, pattern)| pattern),
        None => Some(filter),
    }
}
