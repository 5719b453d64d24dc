//! From the text of a TOML file to entries with their places.
//!
//! The parser goes on after an error, and so does this: whatever can be read is checked, and every problem of the file
//! is reported at once. Which values fit their keys is not known here.

use std::path::Path;

use tidegate_settings::Document;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::block::RawBlock;
use super::keys::{KEYS, SECTIONS, SettingKey};
use super::map::{MapDirection, RawMap};
use super::{ConfigEntry, ConfigProblem, ConfigValue, Origin, suggest};

/// The settings, rules and maps of a file.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Keys that exist, with their values.
    pub entries: Vec<ConfigEntry>,
    /// Rules of access, in order; each a list of fields.
    pub rules: Vec<Vec<ConfigEntry>>,
    /// Classes of messages, in order; each with where it begins and a list of fields.
    pub classes: Vec<(ConfigEntry, Vec<ConfigEntry>)>,
    /// Listeners with rules of their own, in order; each with where it begins and a list of fields.
    pub listeners: Vec<(Origin, Vec<ConfigEntry>)>,
    /// Maps, in order; each with where it begins and a list of fields.
    pub maps: Vec<RawMap>,
    /// Bridges, in order.
    pub bridges: Vec<RawBlock>,
    /// Sinks, in order.
    pub sinks: Vec<RawBlock>,
    /// Everything that is wrong.
    pub problems: Vec<ConfigProblem>,
}

/// Reads the text of the file at `path`.
pub(super) fn parse(path: &Path, text: &str) -> Contents {
    let document = Document::of_file(path, text);
    let (root, problems) = document.parse();
    let mut file = File { document, contents: Contents { problems, ..Contents::default() } };
    for (section, value) in root.get_ref() {
        file.section(section, value);
    }
    // The parser sorts by name; people read from top to bottom.
    file.contents.problems.sort_by_key(|problem| problem.origin.as_ref().map(Origin::position));
    file.contents.entries.sort_by_key(|entry| entry.origin.position());
    file.contents.maps.sort_by_key(|map| map.at.position());
    file.contents.classes.sort_by_key(|(head, _)| head.origin.position());
    file.contents
}

/// Whether this is mosquitto's own configuration: its words, and no `=` after them.
pub(super) fn looks_like_mosquitto(text: &str) -> bool {
    const WORDS: &[&str] = &[
        "acl_file",
        "allow_anonymous",
        "bind_address",
        "cafile",
        "certfile",
        "connection",
        "include_dir",
        "keyfile",
        "listener",
        "log_dest",
        "log_type",
        "max_queued_messages",
        "password_file",
        "per_listener_settings",
        "persistence",
        "persistence_location",
        "pid_file",
        "plugin",
        "port",
        "protocol",
        "require_certificate",
        "user",
    ];
    text.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next().is_some_and(|word| WORDS.contains(&word))
            && words.next().is_some_and(|word| !word.starts_with('='))
    })
}

/// The list of listeners with rules of their own.
const LISTENER: &str = "listener";

/// The section whose parts the operator names.
const CLASSES: &str = "classes";
/// The list whose entries have sections of their own.
const BRIDGE: &str = "bridge";
const SINK: &str = "sink";

struct File<'a> {
    document: Document<'a>,
    contents: Contents,
}

impl File<'_> {
    fn section(&mut self, name: &Spanned<std::borrow::Cow<'_, str>>, value: &Spanned<DeValue<'_>>) {
        let section = name.get_ref().as_ref();
        let origin = self.document.origin(name.span().start);
        if section == LISTENER && value.get_ref().as_array().is_some() {
            let listeners = self.tables(&origin, section, value);
            return self.contents.listeners.extend(listeners);
        }
        if section == BRIDGE {
            self.contents.bridges = self.blocks(BRIDGE, super::bridge::SECTIONS, &origin, value);
            return;
        }
        if section == SINK {
            self.contents.sinks = self.blocks(SINK, super::sink::SECTIONS, &origin, value);
            return;
        }
        let Some(table) = value.get_ref().as_table() else {
            // A key before the first section, most likely one that belongs into it.
            let home = KEYS.iter().find(|key| key.path.rsplit('.').next() == Some(section));
            let hint = home.map(|key| format!("did you mean \"{}\"? It belongs into a section", key.path));
            self.problem(ConfigProblem::of_key(&origin, section, "key outside of a section").with_hint(hint));
            return;
        };
        let mut section = section;
        if section != CLASSES && !SECTIONS.contains(&section) {
            let meant = suggest::nearest(section, SECTIONS.iter().copied().chain([CLASSES, BRIDGE, SINK]));
            let hint = meant.map(|name| format!("did you mean \"{name}\"?"));
            self.problem(ConfigProblem::of_key(&origin, section, "unknown section").with_hint(hint));
            // Its keys are judged as if it had its right name: one run shows all mistakes.
            let Some(meant) = meant.filter(|meant| ![BRIDGE, SINK].contains(meant)) else { return };
            section = meant;
        }
        if section == CLASSES {
            return self.classes(table);
        }
        for (key, value) in table {
            let path = format!("{section}.{}", key.get_ref());
            let origin = self.document.origin(key.span().start);
            if path == "security.rule" {
                let rules = self.tables(&origin, &path, value);
                self.contents.rules.extend(rules.into_iter().map(|(_, fields)| fields));
            } else if let Some(kind) = MapDirection::of(&path) {
                let maps = self.tables(&origin, &path, value);
                self.contents.maps.extend(maps.into_iter().map(|(at, fields)| RawMap { kind, at, fields }));
            } else if SettingKey::find(&path).is_some() {
                self.contents.entries.push(self.document.entry(path, key, value));
            } else {
                self.problem(ConfigProblem::of_key(&origin, &path, "unknown key").with_hint(hint_for_key(&path)));
            }
        }
    }

    /// `[[LIST]]`: each table with where it begins.
    fn tables(&mut self, origin: &Origin, path: &str, value: &Spanned<DeValue<'_>>) -> Vec<(Origin, Vec<ConfigEntry>)> {
        let Some(list) = value.get_ref().as_array() else {
            let hint = format!("write [[{path}]] with two brackets");
            self.problem(ConfigProblem::of_key(origin, path, "expected a list of rules").with_hint(hint));
            return Vec::new();
        };
        let mut tables = Vec::new();
        for item in list {
            let at = self.document.origin(item.span().start);
            match item.get_ref().as_table() {
                Some(table) => {
                    let fields = self.document.fields(table);
                    // The parser sorts fields by name; people look at the first line.
                    let first = fields.iter().min_by_key(|field| field.origin.position());
                    let at = first.map_or(at, |first| first.origin.clone());
                    tables.push((at, fields));
                }
                None => self.problem(ConfigProblem::of_key(&at, path, "expected a table")),
            }
        }
        tables
    }

    /// `[classes.NAME]`: the name is the operator's, the fields are known.
    fn classes(&mut self, classes: &DeTable<'_>) {
        for (name, value) in classes {
            let origin = self.document.origin(name.span().start);
            let path = name.get_ref().to_string();
            let Some(table) = value.get_ref().as_table() else {
                let hint = "write [classes.NAME] and below it weight = 4".to_owned();
                self.problem(
                    ConfigProblem::of_key(&origin, &format!("{CLASSES}.{path}"), "expected a class").with_hint(hint),
                );
                continue;
            };
            let fields = self.document.fields(table);
            let head = ConfigEntry { path, value: ConfigValue::Other("a section"), origin };
            self.contents.classes.push((head, fields));
        }
    }

    /// `[[bridge]]` and the like, each with sections of its own and a list of topics.
    fn blocks(
        &mut self,
        name: &str,
        sections: &[&str],
        origin: &Origin,
        value: &Spanned<DeValue<'_>>,
    ) -> Vec<RawBlock> {
        let Some(list) = value.get_ref().as_array() else {
            let problem = ConfigProblem::of_key(origin, name, format!("expected a list of {name}s"));
            self.problem(problem.with_hint(format!("write [[{name}]] with two brackets")));
            return Vec::new();
        };
        let mut blocks = Vec::new();
        for item in list {
            let Some(table) = item.get_ref().as_table() else { continue };
            let mut raw = RawBlock::new(self.document.origin(item.span().start));
            for (key, value) in table {
                let at = self.document.origin(key.span().start);
                let fields = value.get_ref().as_table().map(|table| self.document.fields(table));
                match (key.get_ref().as_ref(), fields) {
                    ("topic", _) => raw.topics = self.tables(&at, &format!("{name}.topic"), value),
                    (section, Some(fields)) if sections.contains(&section) => {
                        raw.sections.push((section.to_owned(), fields));
                    }
                    (section, None) if sections.contains(&section) => {
                        let path = format!("{name}.{section}");
                        self.problem(
                            ConfigProblem::of_key(&at, &path, "expected a section")
                                .with_hint(format!("write [{path}]")),
                        );
                    }
                    (field, _) => raw.fields.push(self.document.entry(field.to_owned(), key, value)),
                }
            }
            raw.fields.sort_by_key(|field| field.origin.position());
            raw.topics.sort_by_key(|(at, _)| at.position());
            if let Some(first) = raw.fields.first() {
                raw.at = first.origin.clone();
            }
            blocks.push(raw);
        }
        blocks.sort_by_key(|raw| raw.at.position());
        blocks
    }

    fn problem(&mut self, problem: ConfigProblem) {
        self.contents.problems.push(problem);
    }
}

/// The best advice for a key that does not exist: a near name, first of the same section.
pub(super) fn hint_for_key(path: &str) -> Option<String> {
    let section = path.split('.').next().unwrap_or_default();
    if let Some(list) = suggest::nearest(path, ["map.ingest", "map.emit", "security.rule"]) {
        return Some(format!("did you mean \"{list}\"?"));
    }
    let name = path.rsplit('.').next().unwrap_or_default();
    let names = KEYS.iter().filter_map(|key| key.path.strip_prefix(section)?.strip_prefix('.'));
    if let Some(near) = suggest::nearest(name, names) {
        return Some(format!("did you mean \"{near}\"?"));
    }
    let elsewhere = suggest::nearest(name, KEYS.iter().filter_map(|key| key.path.rsplit('.').next()))?;
    let home = KEYS.iter().find(|key| key.path.rsplit('.').next() == Some(elsewhere))?;
    Some(format!("did you mean \"{}\"?", home.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        parse(Path::new("t.toml"), text).problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn f146_unknown_keys_are_named_with_place_and_suggestion() {
        let text = "[limits]\nrecieve_max = 5\nmax_connections = 1\n\n[sys]\nfoo = 1\n";
        assert_eq!(
            problems(text),
            [
                "t.toml:2:1: limits.recieve_max: unknown key; did you mean \"receive_max\"?",
                "t.toml:3:1: limits.max_connections: unknown key; did you mean \"connections_max\"?",
                "t.toml:6:1: sys.foo: unknown key",
            ]
        );
    }

    #[test]
    fn f146_keys_in_the_wrong_section_are_sent_home() {
        let text = "receive_max = 5\n[listener]\n[listeners]\nacl_file = \"x\"\n";
        assert_eq!(
            problems(text),
            [
                "t.toml:1:1: receive_max: key outside of a section; \
                 did you mean \"limits.receive_max\"? It belongs into a section",
                "t.toml:2:2: listener: unknown section; did you mean \"listeners\"?",
                "t.toml:4:1: listeners.acl_file: unknown key; did you mean \"security.acl_file\"?",
            ]
        );
    }

    #[test]
    fn f146_keys_of_a_misspelled_section_are_judged_too() {
        let text = "[limts]\nrecieve_max = 5\nkeep_alive = \"5s\"\n[nonsense]\nx = 1\n";
        assert_eq!(
            problems(text),
            [
                "t.toml:1:2: limts: unknown section; did you mean \"limits\"?",
                "t.toml:2:1: limits.recieve_max: unknown key; did you mean \"receive_max\"?",
                "t.toml:3:1: limits.keep_alive: unknown key; did you mean \"keep_alive_max\"?",
                "t.toml:4:2: nonsense: unknown section",
            ]
        );
    }

    #[test]
    fn the_file_of_another_broker_is_recognised() {
        assert!(looks_like_mosquitto("# comment\nlistener 1883\nallow_anonymous true\n"));
        assert!(!looks_like_mosquitto("[security]\nacl_file = \"x\"\nallow_anonymous=true\nuser\n"));
    }

    #[test]
    fn f146_errors_of_syntax_do_not_hide_others() {
        let found = problems("[limits]\nreceive_max = = 5\nrecieve_max = 1\n[limits]\nqos_max = 1\n");
        assert!(found.len() >= 3, "{found:#?}");
        assert!(found[0].starts_with("t.toml:2:"), "{found:#?}");
        assert!(found.iter().any(|problem| problem.starts_with("t.toml:4:")), "duplicate section: {found:#?}");
        assert!(found.iter().any(|problem| problem.contains("did you mean \"receive_max\"")), "{found:#?}");
    }

    #[test]
    fn f146_tabs_and_comments_are_welcome() {
        let contents = parse(Path::new("t.toml"), "[limits]\n\treceive_max\t= 5 # five\n");
        assert!(contents.problems.is_empty());
        assert_eq!(contents.entries[0].value, ConfigValue::Integer(5));
        assert_eq!(contents.entries[0].origin.to_string(), "t.toml:2");
    }

    #[test]
    fn rules_are_lists_of_fields() {
        let text = "[[security.rule]]\nuser = \"a\"\n[[security.rule]]\ntopic = \"b\"\n[security]\nrule = 1";
        let contents = parse(Path::new("t.toml"), text);
        assert_eq!(contents.rules.len(), 2, "{contents:?}");
        assert_eq!(contents.rules[1][0].path, "topic");
    }
}
