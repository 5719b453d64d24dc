//! Rules of access to the graphs of the smart space, compiled for whoever asks: [`GraphAccess`].
//!
//! A rule says: this subject may, or may not, read or write these graphs. They are answered as those of topics are: what is
//! denied wins, and what no rule allows is refused. Without a single rule about graphs everything is allowed. In the name of
//! a graph `%u` stands for the user's name; a name that could mean more than itself (with `*`, `/` or the like) is of no use
//! there: an allowing rule then matches nothing, and a denying one everything from that place on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_graph::{GraphList, GraphNames, GraphRights};

use crate::acl::{AclEffect, AclSubject};
use crate::fault::FileFault;
use crate::limits::{GRAPH_RIGHTS_KNOWN_MAX, GRAPH_RULES_MAX};
use crate::users::Users;

/// One rule about graphs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphRule {
    subject: AclSubject,
    effect: AclEffect,
    reads: bool,
    writes: bool,
    graph: Box<str>,
}

/// The word for the default graph.
const DEFAULT: &str = "default";
/// Where the user's name goes.
const USER: &str = "%u";

impl GraphRule {
    /// A rule for `read`, `write` or `readwrite` of `default`, `*` (every graph), or an IRI in which `*` stands for any
    /// characters and `%u` for the user's name.
    pub fn new(subject: AclSubject, effect: AclEffect, access: &str, graph: &str) -> Result<Self, FileFault> {
        let (reads, writes) = match access {
            "read" => (true, false),
            "write" => (false, true),
            "readwrite" => (true, true),
            _ => return Err(FileFault::GraphAccessUnknown(access.to_owned())),
        };
        if let AclSubject::Client(_) = subject {
            return Err(FileFault::GraphOfClient);
        }
        if graph != DEFAULT && graph != "*" && !is_iri_pattern(graph) {
            return Err(FileFault::GraphInvalid);
        }
        Ok(Self { subject, effect, reads, writes, graph: graph.into() })
    }

    /// Whom it concerns.
    pub fn subject(&self) -> &AclSubject {
        &self.subject
    }

    fn concerns(&self, user: Option<&str>, roles: &[Arc<str>]) -> bool {
        match &self.subject {
            AclSubject::Everyone => true,
            AclSubject::Anonymous => user.is_none(),
            AclSubject::User(name) => user == Some(&**name),
            AclSubject::Role(role) => roles.contains(role),
            AclSubject::Client(_) => false,
        }
    }

    /// The graphs that it means for this user; none if it means nothing.
    fn names(&self, user: Option<&str>) -> Option<GraphNames> {
        let graph = match (&*self.graph, self.graph.find(USER), user) {
            (DEFAULT, ..) => return Some(GraphNames::Default),
            ("*", ..) => return Some(GraphNames::Every),
            (graph, None, _) => graph.to_owned(),
            (graph, Some(_), Some(user)) if is_usable(user) => graph.replace(USER, user),
            (graph, Some(at), Some(_)) if self.effect == AclEffect::Deny => format!("{}*", &graph[..at]),
            (_, Some(_), _) => return None,
        };
        Some(GraphNames::Matching(graph.into()))
    }
}

/// Whether a text, but for its `*` and `%u`, could be an absolute IRI.
fn is_iri_pattern(text: &str) -> bool {
    let is_letter = |c: char| !(c <= ' ' || c == '\u{7f}' || "<>\"{}|\\^`".contains(c));
    let scheme = text.split(':').next().unwrap_or_default();
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic() || c == '*')
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.*".contains(c));
    let is_absolute = text.contains(':') || text.starts_with('*');
    is_absolute && (is_scheme || text.starts_with('*')) && text.chars().all(is_letter)
}

/// A name that means nothing but itself within an IRI.
fn is_usable(user: &str) -> bool {
    !user.is_empty() && user.chars().all(|c| c.is_alphanumeric() || "-._~@".contains(c))
}

/// Who may do what with which graphs.
#[derive(Debug)]
pub struct GraphAccess {
    rules: Vec<GraphRule>,
    roles: BTreeMap<Arc<str>, Box<[Arc<str>]>>,
    /// By user: what was worked out already.
    known: Mutex<BTreeMap<Option<Box<str>>, Arc<GraphRights>>>,
}

impl GraphAccess {
    /// The rules for these users; their roles are taken from there.
    pub fn new(rules: Vec<GraphRule>, users: &Users) -> Result<Self, FileFault> {
        if rules.len() > GRAPH_RULES_MAX {
            return Err(FileFault::TooManyGraphRules);
        }
        let of_roles = |name: &Arc<str>, roles: &[Arc<str>]| (Arc::clone(name), roles.into());
        let roles = users.iter().filter(|(_, roles)| !roles.is_empty()).map(|(name, roles)| of_roles(name, roles));
        Ok(Self { roles: roles.collect(), rules, known: Mutex::default() })
    }

    /// What this user may do, or somebody without a name.
    pub fn rights(&self, user: Option<&str>) -> Arc<GraphRights> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let name = user.map(Box::from);
        if let Some(rights) = known.get(&name) {
            return Arc::clone(rights);
        }
        if known.len() >= GRAPH_RIGHTS_KNOWN_MAX {
            known.clear();
        }
        let rights = Arc::new(self.work_out(user));
        known.insert(name, Arc::clone(&rights));
        rights
    }

    fn work_out(&self, user: Option<&str>) -> GraphRights {
        let roles = user.and_then(|user| self.roles.get(user)).map_or(&[][..], |roles| roles);
        let mut rights = GraphRights::default();
        for rule in self.rules.iter().filter(|rule| rule.concerns(user, roles)) {
            let Some(names) = rule.names(user) else { continue };
            let side = |list: &mut GraphList| match rule.effect {
                AclEffect::Allow => list.allow.push(names.clone()),
                AclEffect::Deny => list.deny.push(names.clone()),
            };
            if rule.reads {
                side(&mut rights.read);
            }
            if rule.writes {
                side(&mut rights.write);
            }
        }
        rights
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxrdf::NamedNodeRef;

    fn rule(subject: AclSubject, effect: AclEffect, access: &str, graph: &str) -> GraphRule {
        GraphRule::new(subject, effect, access, graph).unwrap()
    }

    fn reads(rights: &GraphRights, graph: &str) -> bool {
        rights.read.has_named(NamedNodeRef::new_unchecked(graph))
    }

    #[test]
    fn rules_are_of_users_roles_and_everybody_and_a_denial_wins() {
        use AclEffect::{Allow, Deny};
        let mut users = Users::default();
        users.add("ann", b"secret", b"0123456789abcdef").unwrap();
        users.set_roles("ann", &["staff"]).unwrap();
        let access = GraphAccess::new(
            vec![
                rule(AclSubject::Everyone, Allow, "read", "default"),
                rule(AclSubject::Everyone, Allow, "readwrite", "urn:home/%u/*"),
                rule(AclSubject::Role("staff".into()), Allow, "read", "*"),
                rule(AclSubject::User("bob".into()), Deny, "read", "default"),
                rule(AclSubject::Anonymous, Allow, "read", "http://open.example/*"),
            ],
            &users,
        )
        .unwrap();
        let (bob, nobody) = (access.rights(Some("bob")), access.rights(None));
        assert!(reads(&bob, "urn:home/bob/x") && !reads(&bob, "urn:home/ann/x") && !bob.read.has_default());
        assert!(bob.write.has_named(NamedNodeRef::new_unchecked("urn:home/bob/x")) && !bob.write.has_default());
        assert!(nobody.read.has_default() && reads(&nobody, "http://open.example/a") && !reads(&nobody, "urn:home//x"));
        let ann = access.rights(Some("ann"));
        assert!(ann.read.has_all() && !ann.write.has_all(), "by her role");
    }

    #[test]
    fn a_name_that_could_mean_more_than_itself_gains_nothing_and_is_denied_more() {
        for name in ["*", "a/b", "a*", "%u", ""] {
            let allowed = rule(AclSubject::Everyone, AclEffect::Allow, "read", "urn:home/%u/*");
            let denied = rule(AclSubject::Everyone, AclEffect::Deny, "read", "urn:home/%u/*");
            assert_eq!(allowed.names(Some(name)), None, "{name:?}");
            assert_eq!(denied.names(Some(name)), Some(GraphNames::Matching("urn:home/*".into())), "{name:?}");
        }
    }

    #[test]
    fn what_no_rule_can_mean_is_refused() {
        let new = |access: &str, graph: &str| GraphRule::new(AclSubject::Everyone, AclEffect::Allow, access, graph);
        for graph in ["", "relative", "urn:a b", "<urn:a>", "1:x", "a%u", "/x"] {
            assert_eq!(new("read", graph), Err(FileFault::GraphInvalid), "{graph:?}");
        }
        for graph in ["default", "*", "urn:a", "http://e.example/%u/*", "*/public", "urn:%u", "http*:x"] {
            assert!(new("read", graph).is_ok(), "{graph:?}");
        }
        assert_eq!(new("subscribe", "urn:a"), Err(FileFault::GraphAccessUnknown("subscribe".to_owned())));
        let client = GraphRule::new(AclSubject::Client("x".into()), AclEffect::Allow, "read", "urn:a");
        assert_eq!(client, Err(FileFault::GraphOfClient));
    }
}
