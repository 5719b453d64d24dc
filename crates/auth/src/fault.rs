//! What can be wrong with a line of a password file or of an ACL file, or with a rule of the configuration.
//!
//! A fault never carries a password or a hash: it ends up in logs. Readers collect all faults of a file and return them
//! together, because nobody likes to repair a file one line at a time.

use std::fmt;

use crate::limits;

/// One thing wrong with one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// Line, counted from 1; 0 when it concerns the whole file.
    pub line: usize,
    /// What is wrong in that line.
    pub what: FileFault,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.what),
            line => write!(f, "line {line}: {}", self.what),
        }
    }
}

impl std::error::Error for FileError {}

/// What can be wrong in a file of users or of access rules.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileFault {
    /// Reading failed; the text is the system's.
    Unreadable(String),
    /// More than [`limits::FILE_BYTES_MAX`].
    FileTooLong,
    /// Not UTF-8.
    NotUtf8,
    /// More than [`limits::LINE_BYTES_MAX`].
    LineTooLong,
    /// A control character, NUL included.
    ControlCharacter,
    /// More than [`limits::ERRORS_MAX`] errors; the rest is not listed.
    AndMore,

    /// No name before the colon, or after `user`.
    NameMissing,
    /// A name with a colon, a control character, a `#` in front or space around it, or too long.
    NameInvalid,
    /// The name was there before, on this line.
    NameTwice(usize),
    /// More than [`limits::USERS_MAX`].
    TooManyUsers,
    /// No password hash after the name.
    HashMissing,
    /// Not a hash: perhaps a password in clear.
    HashUnknown,
    /// A hash whose fields do not add up: cut off, wrong base64, wrong length.
    HashMalformed,
    /// A hash that asks for more time or memory than the limits allow, or for too little to be one.
    HashCost,
    /// One more than [`limits::HASH_KINDS_MAX`] kinds of hashes in one file.
    TooManyHashKinds,
    /// A third field other than `roles=a,b`.
    FieldUnknown,
    /// An empty or invalid role name, or too many roles.
    RolesInvalid,
    /// No such user.
    UserUnknown,
    /// An empty password, or one of more than [`limits::PASSWORD_BYTES_MAX`] bytes.
    PasswordLength,

    /// A line of an ACL file that starts with none of `user`, `topic`, `pattern`.
    KeywordUnknown(String),
    /// `topic` or `pattern` without a filter.
    FilterMissing,
    /// Something other than `read`, `write`, `readwrite`, `deny`.
    AccessUnknown(String),
    /// Not a topic filter; with the reason.
    FilterInvalid(&'static str),
    /// A rule for `$share/…`: rules speak of what is inside the share.
    FilterShared,
    /// More than [`limits::RULES_MAX`].
    TooManyRules,
    /// Something other than `read`, `write`, `readwrite` for a graph.
    GraphAccessUnknown(String),
    /// Not the name of a graph.
    GraphInvalid,
    /// The smart space knows users and no client identifiers.
    GraphOfClient,
    /// More than [`limits::GRAPH_RULES_MAX`].
    TooManyGraphRules,
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(why) => write!(f, "cannot be read: {why}"),
            Self::FileTooLong => write!(f, "the file has more than {} MiB", limits::FILE_BYTES_MAX >> 20),
            Self::NotUtf8 => f.write_str("not UTF-8"),
            Self::LineTooLong => write!(f, "more than {} bytes in one line", limits::LINE_BYTES_MAX),
            Self::ControlCharacter => f.write_str("control character in the line"),
            Self::AndMore => write!(f, "more than {} errors, the rest is not listed", limits::ERRORS_MAX),
            Self::NameMissing => f.write_str("name missing"),
            Self::NameInvalid => write!(
                f,
                "invalid name: 1 to {} bytes, no colon, no control character, no '#' first, no space around it",
                limits::NAME_BYTES_MAX
            ),
            Self::NameTwice(line) => write!(f, "this name was already on line {line}"),
            Self::TooManyUsers => write!(f, "more than {} users", limits::USERS_MAX),
            Self::HashMissing => f.write_str("password hash missing: expected name:hash"),
            Self::HashUnknown => f.write_str(
                "not a password hash ($argon2id$, $7$ or $6$); if it is a password in clear, hash it with \
                 `tidegate user add` or `mosquitto_passwd -U`",
            ),
            Self::HashMalformed => f.write_str("malformed password hash (cut off?)"),
            Self::HashCost => f.write_str("the hash's cost parameters are outside the limits"),
            Self::TooManyHashKinds => {
                write!(f, "more than {} different kinds of password hashes in one file", limits::HASH_KINDS_MAX)
            }
            Self::FieldUnknown => f.write_str("unknown third field: expected roles=a,b"),
            Self::RolesInvalid => {
                write!(f, "invalid roles: up to {} names separated by commas, each once", limits::ROLES_MAX)
            }
            Self::UserUnknown => f.write_str("no such user"),
            Self::PasswordLength => write!(f, "a password has 1 to {} bytes", limits::PASSWORD_BYTES_MAX),
            Self::KeywordUnknown(word) => write!(f, "unknown keyword {word:?}: expected user, topic or pattern"),
            Self::FilterMissing => f.write_str("topic filter missing"),
            Self::AccessUnknown(word) => {
                write!(f, "unknown access {word:?}: expected read, write, readwrite or deny")
            }
            Self::FilterInvalid(why) => write!(f, "invalid topic filter: {why}"),
            Self::FilterShared => {
                f.write_str("a rule names the topics of a shared subscription, without $share/group/")
            }
            Self::TooManyRules => write!(f, "more than {} rules", limits::RULES_MAX),
            Self::GraphAccessUnknown(word) => {
                write!(f, "{word:?} is nothing that is done to a graph: expected read, write or readwrite")
            }
            Self::GraphInvalid => f.write_str(
                "expected \"default\", \"*\" or an absolute IRI in which * stands for any characters and %u for the user",
            ),
            Self::GraphOfClient => {
                f.write_str("a rule for a graph has user, role or anonymous: the smart space knows no client identifiers")
            }
            Self::TooManyGraphRules => write!(f, "more than {} rules for graphs", limits::GRAPH_RULES_MAX),
        }
    }
}

impl std::error::Error for FileFault {}
