//! Rules of access as plain values, before they are compiled into an [`Access`](crate::Access).
//!
//! A rule says: this subject may, or may not, do these actions on the topics of this filter. The order of rules does not
//! matter. What is asked is answered so:
//!
//! 1. publishing to `$SYS` is refused, whatever the rules say;
//! 2. if a denying rule matches, refused;
//! 3. if an allowing rule matches, allowed;
//! 4. else refused: an access list without rules allows nothing.
//!
//! Topics that begin with `$` are only matched by filters that begin with the same `$` text. Role [`MONITOR`] may read
//! `$SYS/#` without a rule that says so (a denying one still wins).

use std::str::FromStr;
use std::sync::Arc;

use tidegate_core::access::Action;

use crate::fault::FileFault;
use crate::filter::{Filter, Names};
use crate::limits::RULES_MAX;
use crate::text::{is_name, is_principal};

/// The role that may read `$SYS/#`.
pub const MONITOR: &str = "monitor";

/// Whom a rule concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AclSubject {
    /// All clients, with or without a name.
    Everyone,
    /// Clients without a user name.
    Anonymous,
    /// One user.
    User(Arc<str>),
    /// The users with this role.
    Role(Arc<str>),
    /// Clients by their identifier, `*` standing for any run of characters. A client chooses its identifier freely
    /// unless identifiers are bound to users: a rule that allows should rather name a user.
    Client(Arc<str>),
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclEffect {
    /// Permits, unless a denying rule matches too.
    Allow,
    /// Refuses.
    Deny,
}

/// A set of actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actions(u8);

impl Actions {
    /// Publish, and have a will.
    pub const PUBLISH: Self = Self(1);
    /// Subscribe.
    pub const SUBSCRIBE: Self = Self(2);
    /// Be sent a message.
    pub const RECEIVE: Self = Self(4);
    /// Choose the class of one's own messages. Part of no other word: whoever may publish may not also overtake.
    pub const PRIORITY: Self = Self(8);
    /// Subscribe and receive.
    pub const READ: Self = Self(2 | 4);
    /// The same as publish.
    pub const WRITE: Self = Self::PUBLISH;
    /// Publish, subscribe and receive.
    pub const READWRITE: Self = Self(1 | 2 | 4);

    /// Both sets together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether this action is in the set.
    #[inline]
    pub const fn contains(self, action: Action) -> bool {
        let one = match action {
            Action::Publish => Self::PUBLISH,
            Action::Subscribe => Self::SUBSCRIBE,
            Action::Receive => Self::RECEIVE,
            Action::Prioritize => Self::PRIORITY,
        };
        self.0 & one.0 != 0
    }
}

/// `publish`, `subscribe`, `receive`, `read`, `write`, `readwrite`, `priority`.
impl FromStr for Actions {
    type Err = FileFault;

    fn from_str(word: &str) -> Result<Self, FileFault> {
        match word {
            "publish" | "write" => Ok(Self::WRITE),
            "subscribe" => Ok(Self::SUBSCRIBE),
            "receive" => Ok(Self::RECEIVE),
            "read" => Ok(Self::READ),
            "readwrite" => Ok(Self::READWRITE),
            "priority" => Ok(Self::PRIORITY),
            _ => Err(FileFault::AccessUnknown(word.into())),
        }
    }
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclRule {
    pub(crate) subject: AclSubject,
    pub(crate) effect: AclEffect,
    pub(crate) actions: Actions,
    pub(crate) filter: Filter,
}

impl AclRule {
    /// A rule for a topic filter in which `%u` stands for the user's name, `%c` for the client's identifier and
    /// `%{claim.NAME}` for what a token says of its user.
    pub fn new(subject: AclSubject, effect: AclEffect, actions: Actions, filter: &str) -> Result<Self, FileFault> {
        let is_valid = match &subject {
            AclSubject::Everyone | AclSubject::Anonymous => true,
            AclSubject::User(name) | AclSubject::Client(name) => is_principal(name),
            AclSubject::Role(name) => is_name(name),
        };
        if !is_valid {
            return Err(FileFault::NameInvalid);
        }
        Ok(Self { subject, effect, actions, filter: Filter::parse(filter, Names::WithClaims)? })
    }

    /// Whom it concerns.
    pub fn subject(&self) -> &AclSubject {
        &self.subject
    }

    /// Whether the rule allows or denies.
    pub fn effect(&self) -> AclEffect {
        self.effect
    }

    /// The actions that the rule is about.
    pub fn actions(&self) -> Actions {
        self.actions
    }

    /// Its topic filter, as it was given.
    pub fn filter(&self) -> &str {
        self.filter.as_str()
    }
}

/// Whose reading of the rules applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// As above. A subscription needs an allowing rule that covers it.
    Tidegate,
    /// As mosquitto: a user's own lines are asked first, the patterns only if none of them matched. A subscription is
    /// granted if anything at all could be delivered to it.
    Mosquitto,
}

/// An access list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    pub(crate) rules: Vec<AclRule>,
    pub(crate) dialect: Dialect,
}

impl Acl {
    /// An access list of these rules. None allow nothing.
    pub fn new(rules: Vec<AclRule>) -> Result<Self, FileFault> {
        if rules.len() > RULES_MAX {
            return Err(FileFault::TooManyRules);
        }
        Ok(Self { rules, dialect: Dialect::Tidegate })
    }

    /// What applies where no access list is configured: whoever was let in may do everything, outside `$…`.
    pub fn open() -> Self {
        let everything = Filter::parse("#", Names::Literal).map(|filter| AclRule {
            subject: AclSubject::Everyone,
            effect: AclEffect::Allow,
            actions: Actions::READWRITE,
            filter,
        });
        Self { rules: everything.into_iter().collect(), dialect: Dialect::Tidegate }
    }

    /// The rules, in the order given.
    pub fn rules(&self) -> &[AclRule] {
        &self.rules
    }
}
