//! mosquitto's ACL file (`acl_file` of mosquitto.conf), read as mosquitto reads it.
//!
//! ```text
//! # before the first `user`: for anonymous clients
//! topic read news/#
//! user alice
//! topic readwrite home/alice/#
//! topic deny home/alice/secret
//! # for everybody, wherever it stands
//! pattern write devices/%c/state
//! ```
//!
//! Two differences, both on the safe side: a line that is not understood refuses the whole file, and a file without a
//! single rule denies everything (CVE-2018-12550: there it allowed everything).

use std::sync::Arc;

use crate::acl::{Acl, AclEffect, AclRule, AclSubject, Actions, Dialect};
use crate::fault::{FileError, FileFault};
use crate::filter::{Filter, Names};
use crate::limits::RULES_MAX;
use crate::text::{Errors, is_principal, lines};

impl Acl {
    /// Read an ACL file of mosquitto. Either all lines are right, or all errors come back.
    pub fn parse_mosquitto(text: &str) -> Result<Self, Vec<FileError>> {
        let mut rules = Vec::new();
        let mut subject = AclSubject::Anonymous;
        let mut errors = Errors::default();
        lines(text, &mut errors, |_, line| {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                return Ok(());
            }
            let (keyword, rest) = split_word(line);
            let rule = match keyword {
                "user" => {
                    subject = parse_user(rest)?;
                    return Ok(());
                }
                "topic" => parse_rule(subject.clone(), Names::Literal, rest)?,
                "pattern" => parse_rule(AclSubject::Everyone, Names::Substituted, rest)?,
                other => return Err(FileFault::KeywordUnknown(shown(other))),
            };
            if rules.len() == RULES_MAX {
                return Err(FileFault::TooManyRules);
            }
            rules.push(rule);
            Ok(())
        });
        errors.or(Self { rules, dialect: Dialect::Mosquitto })
    }
}

/// The rest of the line is the name, spaces inside included.
fn parse_user(name: &str) -> Result<AclSubject, FileFault> {
    match name {
        "" => Err(FileFault::NameMissing),
        name if is_principal(name) => Ok(AclSubject::User(Arc::from(name))),
        _ => Err(FileFault::NameInvalid),
    }
}

/// `[read|write|readwrite|deny] filter`. A filter with a space in it needs the word in front, as in mosquitto: a first
/// word that is none of the four, with more behind it, is an error and not part of the filter.
fn parse_rule(subject: AclSubject, names: Names, rest: &str) -> Result<AclRule, FileFault> {
    let (effect, actions, filter) = match split_word(rest) {
        ("", _) => return Err(FileFault::FilterMissing),
        (filter, "") | ("readwrite", filter) => (AclEffect::Allow, Actions::READWRITE, filter),
        ("read", filter) => (AclEffect::Allow, Actions::READ, filter),
        ("write", filter) => (AclEffect::Allow, Actions::WRITE, filter),
        ("deny", filter) => (AclEffect::Deny, Actions::READWRITE, filter),
        (other, _) => return Err(FileFault::AccessUnknown(shown(other))),
    };
    Ok(AclRule { subject, effect, actions, filter: Filter::parse(filter, names)? })
}

fn split_word(text: &str) -> (&str, &str) {
    text.split_once([' ', '\t']).map_or((text, ""), |(word, rest)| (word, rest.trim_start()))
}

/// A word for an error message, not longer than is useful.
fn shown(word: &str) -> String {
    word.chars().take(32).collect()
}
