//! Entries: a value for a path, from somewhere; and the fields of an entry of a list.

use crate::problem::{ConfigProblem, Origin};
use crate::suggest;
use crate::value::ConfigValue;

/// A value for a key, from somewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigEntry {
    /// Section and name.
    pub path: String,
    /// The value as it was written.
    pub value: ConfigValue,
    /// Where the value was written.
    pub origin: Origin,
}

impl ConfigEntry {
    /// A value from the command line.
    pub fn flag(flag: &str, path: &str, value: &str) -> Self {
        let origin = Origin::Flag(flag.to_owned());
        Self { path: path.to_owned(), value: ConfigValue::Bare(value.to_owned()), origin }
    }
}

/// The fields of an entry of a list, such as a rule, each with its meaning.
pub type Fields = &'static [(&'static str, &'static str)];

/// Gives each field to `set`, which says what is wrong with it. Unknown names and what is wrong go to `problems`; `list` is what
/// the list is called.
pub fn read_fields(
    list: &str,
    known: Fields,
    fields: &[ConfigEntry],
    problems: &mut Vec<ConfigProblem>,
    mut set: impl FnMut(&str, &ConfigValue) -> Result<(), String>,
) {
    let names = || known.iter().map(|(name, _)| *name);
    for ConfigEntry { path, value, origin } in fields {
        let key = format!("{list}.{path}");
        if !names().any(|name| name == path) {
            let hint = suggest::did_you_mean(path, names());
            problems.push(ConfigProblem::of_key(origin, &key, "unknown key").with_hint(hint));
        } else if let Err(message) = set(path, value) {
            problems.push(ConfigProblem::of_key(origin, &key, message));
        }
    }
}
