//! From the environment to entries: `TIDEGATE_LIMITS__RECEIVE_MAX=5` is `limits.receive_max = 5`.
//!
//! Two underscores separate section and name. Variables without them are not ours to judge (an orchestrator sets
//! `TIDEGATE_SERVICE_HOST` when the service has this name); one with them that names no key is an error, because
//! somebody meant it.

use super::file::hint_for_key;
use super::keys::SettingKey;
use super::{ConfigEntry, ConfigProblem, ConfigValue, Origin};

const PREFIX: &str = "TIDEGATE_";

/// The variable that names the configuration file.
pub(super) const CONFIG: &str = "TIDEGATE_CONFIG";

/// Entries and problems of these variables, in the order of their names.
pub(super) fn parse(variables: &[(String, String)]) -> (Vec<ConfigEntry>, Vec<ConfigProblem>) {
    let mut entries = Vec::new();
    let mut problems = Vec::new();
    let mut ours: Vec<_> = variables.iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
    ours.sort();
    for (name, value) in ours {
        let Some((section, key)) = name[PREFIX.len()..].split_once("__") else { continue };
        let path = format!("{}.{}", section.to_lowercase(), key.to_lowercase());
        let origin = Origin::Environment(name.clone());
        if SettingKey::find(&path).is_some() {
            entries.push(ConfigEntry { path, value: ConfigValue::Bare(value.clone()), origin });
        } else {
            problems.push(ConfigProblem::of_key(&origin, &path, "unknown key").with_hint(hint_for_key(&path)));
        }
    }
    (entries, problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: &str, value: &str) -> (Vec<ConfigEntry>, Vec<ConfigProblem>) {
        parse(&[(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn double_underscores_nest() {
        let (entries, problems) = parsed("TIDEGATE_LIMITS__RECEIVE_MAX", "5");
        assert!(problems.is_empty());
        assert_eq!(entries[0].path, "limits.receive_max");
        assert_eq!(entries[0].origin.to_string(), "environment TIDEGATE_LIMITS__RECEIVE_MAX");
    }

    #[test]
    fn strangers_are_ignored_and_typos_are_not() {
        assert_eq!(parsed("TIDEGATE_SERVICE_HOST", "10.0.0.1").1, []);
        assert_eq!(parsed("PATH__X", "1").1, []);
        let (_, problems) = parsed("TIDEGATE_LIMITS__RECIEVE_MAX", "5");
        assert_eq!(
            problems[0].to_string(),
            "environment TIDEGATE_LIMITS__RECIEVE_MAX: limits.recieve_max: unknown key; did you mean \"receive_max\"?"
        );
    }
}
