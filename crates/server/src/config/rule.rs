//! Rules of access in the configuration file: `[[security.rule]]`.
//!
//! ```toml
//! [[security.rule]]
//! role = "sensor"              # or user = "…", client = "…*", anonymous = true; none of them: everybody
//! allow = "write"              # or deny; "publish", "subscribe", "receive", "read", "write", "readwrite", "priority"
//! topic = "sensors/%c/#"       # %u is the user, %c the client identifier
//!
//! [[security.rule]]
//! user = "ann"
//! allow = "readwrite"          # or deny; "read", "write", "readwrite"
//! graph = "urn:home/%u/*"      # a graph of the smart space, "default", or "*" for every one
//! ```

use tidegate_wire_mqtt::{Limits, TopicFilter};

use super::{ConfigEntry, ConfigProblem, ConfigValue, Fields, Origin, read_fields};

/// Whom a rule concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleSubject {
    /// All clients.
    Everyone,
    /// Clients without a user name.
    Anonymous,
    /// One user.
    User(String),
    /// The users with this role.
    Role(String),
    /// Clients by their identifier; `*` stands for anything.
    Client(String),
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleEffect {
    /// Permits.
    Allow,
    /// Refuses.
    Deny,
}

/// What a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleTarget {
    /// The topics of this filter.
    Topic(String),
    /// Graphs of the smart space.
    Graph(String),
}

impl RuleTarget {
    /// The filter, or the name of the graphs.
    pub fn name(&self) -> &str {
        match self {
            Self::Topic(name) | Self::Graph(name) => name,
        }
    }
}

/// One rule, as it was written and found sound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSetting {
    /// Whom the rule is for.
    pub subject: RuleSubject,
    /// Granted or taken away.
    pub effect: RuleEffect,
    /// What: `publish`, `subscribe`, `receive`, `read`, `write`, `readwrite` or `priority`.
    pub actions: String,
    /// What the rule is for.
    pub target: RuleTarget,
    /// The set it belongs to, for listeners with rules of their own; none for those of the broker.
    pub set: Option<String>,
    /// Where the rule stands, for messages.
    pub origin: Origin,
}

/// Every field with its meaning.
pub const FIELDS: Fields = &[
    (
        "user",
        "One user. Of `user`, `role`, `client` and `anonymous` a rule has one at most; with none it is for everybody.",
    ),
    ("role", "Users with this role."),
    ("client", "Client identifiers; `*` stands for anything."),
    ("anonymous", "`true`: clients without a user name."),
    (
        "allow",
        "What is permitted: `publish` (also `write`), `subscribe`, `receive`, `read` (the last two), `readwrite` or \
         `priority`. A rule has `allow` or `deny`.",
    ),
    ("deny", "What is refused, with the same words; it wins over whatever is allowed."),
    (
        "topic",
        "A topic filter, in which `%u` stands for the user and `%c` for the client identifier. A rule has `topic` or `graph`.",
    ),
    (
        "graph",
        "Graphs of the smart space, for `read`, `write` and `readwrite`: `default`, `*` (every graph), or an IRI in which `*` \
         stands for any characters and `%u` for the user. With a single such rule, what none allows is refused.",
    ),
    (
        "set",
        "The rule is one of this set: it holds at listeners with `rules` = the same word, and nowhere else. For topics only.",
    ),
];

/// Words for what can be allowed or denied.
const ACTIONS: &[&str] = &["publish", "subscribe", "receive", "read", "write", "readwrite", "priority"];

#[derive(Default)]
struct RuleDraft {
    subject: Option<RuleSubject>,
    grant: Option<(RuleEffect, String)>,
    target: Option<RuleTarget>,
    set: Option<String>,
}

impl RuleSetting {
    /// Reads the fields of one rule; what is wrong goes to `problems`.
    pub fn read(fields: &[ConfigEntry], problems: &mut Vec<ConfigProblem>) -> Option<Self> {
        let before = problems.len();
        let mut draft = RuleDraft::default();
        read_fields("security.rule", FIELDS, fields, problems, |field, value| draft.set(field, value));
        let origin = fields.first().map_or(Origin::Default, |entry| entry.origin.clone());
        let given = |names: &[&str]| fields.iter().any(|entry| names.contains(&entry.path.as_str()));
        for required in [&["allow", "deny"][..], &["topic", "graph"]].iter().filter(|names| !given(names)) {
            let message = format!("a rule needs \"{}\"", required.join("\" or \""));
            problems.push(ConfigProblem::of_key(&origin, "security.rule", message));
        }
        if draft.set.is_some() && matches!(draft.target, Some(RuleTarget::Graph(_))) {
            let message = "rules for graphs hold at all listeners";
            problems.push(ConfigProblem::of_key(&origin, "security.rule.set", message));
        }
        if problems.len() > before {
            return None;
        }
        let (effect, actions) = draft.grant?;
        Some(Self {
            subject: draft.subject.unwrap_or(RuleSubject::Everyone),
            effect,
            actions,
            target: draft.target?,
            set: draft.set,
            origin,
        })
    }
}

impl RuleDraft {
    fn set(&mut self, field: &str, value: &ConfigValue) -> Result<(), String> {
        match field {
            "anonymous" => match value {
                ConfigValue::Boolean(true) => self.set_subject(RuleSubject::Anonymous),
                _ => Err(value.unfit("true")),
            },
            "user" => self.set_subject(RuleSubject::User(text(value)?)),
            "role" => self.set_subject(RuleSubject::Role(text(value)?)),
            "client" => self.set_subject(RuleSubject::Client(text(value)?)),
            "allow" => self.set_grant(RuleEffect::Allow, text(value)?),
            "deny" => self.set_grant(RuleEffect::Deny, text(value)?),
            "graph" => self.set_target(RuleTarget::Graph(text(value)?)),
            "set" => {
                self.set = Some(super::listener::name(value)?);
                Ok(())
            }
            _ => {
                let topic = text(value)?;
                check_topic(&topic).map_err(|why| format!("{value} does not fit: {why}"))?;
                self.set_target(RuleTarget::Topic(topic))
            }
        }
    }

    fn set_subject(&mut self, subject: RuleSubject) -> Result<(), String> {
        match self.subject.replace(subject) {
            None => Ok(()),
            Some(_) => Err("a rule has one of user, role, client and anonymous".to_owned()),
        }
    }

    fn set_target(&mut self, target: RuleTarget) -> Result<(), String> {
        match self.target.replace(target) {
            None => Ok(()),
            Some(_) => Err("a rule has one of topic and graph".to_owned()),
        }
    }

    fn set_grant(&mut self, effect: RuleEffect, actions: String) -> Result<(), String> {
        if !ACTIONS.contains(&actions.as_str()) {
            return Err(format!("{actions:?} does not fit: expected one of \"{}\"", ACTIONS.join("\", \"")));
        }
        match self.grant.replace((effect, actions)) {
            None => Ok(()),
            Some(_) => Err("a rule has one of allow and deny".to_owned()),
        }
    }
}

fn text(value: &ConfigValue) -> Result<String, String> {
    match value {
        ConfigValue::Text(text) if !text.is_empty() => Ok(text.clone()),
        _ => Err(format!("{value} does not fit: expected text in quotes")),
    }
}

fn check_topic(text: &str) -> Result<(), String> {
    match TopicFilter::parse(text, &Limits::default()) {
        Ok(filter) if filter.group().is_some() => Err("rules name topics without \"$share/group/\"".to_owned()),
        Ok(_) => Ok(()),
        Err(violation) => Err(format!("expected a topic filter; {}", violation.detail)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(fields: &[(&str, &str)]) -> (Option<RuleSetting>, Vec<String>) {
        let entry = |(path, value): &(&str, &str)| ConfigEntry {
            path: (*path).to_owned(),
            value: ConfigValue::Text((*value).to_owned()),
            origin: Origin::Default,
        };
        let fields: Vec<ConfigEntry> = fields.iter().map(entry).collect();
        let mut problems = Vec::new();
        let rule = RuleSetting::read(&fields, &mut problems);
        (rule, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_rule_says_who_what_and_where() {
        let (rule, problems) = rule(&[("user", "ann"), ("allow", "write"), ("topic", "a/%u/#")]);
        let rule = rule.unwrap();
        assert!(problems.is_empty());
        assert_eq!(rule.subject, RuleSubject::User("ann".into()));
        assert_eq!((rule.effect, rule.actions.as_str()), (RuleEffect::Allow, "write"));
        assert_eq!(rule.target, RuleTarget::Topic("a/%u/#".to_owned()));
    }

    #[test]
    fn every_fault_of_a_rule_is_named() {
        let (none, problems) = rule(&[("uesr", "ann"), ("allow", "all"), ("topic", "a/#/b")]);
        assert!(none.is_none());
        assert_eq!(
            problems,
            [
                "security.rule.uesr: unknown key; did you mean \"user\"?",
                "security.rule.allow: \"all\" does not fit: expected one of \"publish\", \"subscribe\", \"receive\", \
                 \"read\", \"write\", \"readwrite\", \"priority\"",
                "security.rule.topic: \"a/#/b\" does not fit: expected a topic filter; # is not the last level",
            ]
        );
        assert_eq!(
            rule(&[("user", "ann"), ("deny", "read")]).1,
            ["security.rule: a rule needs \"topic\" or \"graph\""]
        );
        assert_eq!(rule(&[("topic", "a")]).1, ["security.rule: a rule needs \"allow\" or \"deny\""]);
    }

    #[test]
    fn a_rule_concerns_one_subject_and_has_one_effect() {
        let both = [("user", "a"), ("role", "b"), ("allow", "read"), ("deny", "read"), ("topic", "t")];
        assert_eq!(rule(&both).1.len(), 2);
        let two = [("allow", "read"), ("topic", "t"), ("graph", "urn:g")];
        assert_eq!(rule(&two).1, ["security.rule.graph: a rule has one of topic and graph"]);
    }
}
