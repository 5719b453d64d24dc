//! What came of it: settings by section, and lines without a counterpart.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// A configuration in the making.
#[derive(Debug, Default)]
pub(super) struct Translation {
    /// By section and key, as TOML writes the value.
    settings: BTreeMap<(&'static str, &'static str), String>,
    /// Listeners with something of their own: fields, as TOML writes their values.
    blocks: Vec<Vec<(&'static str, String)>>,
    /// Entries of lists, as TOML, in order.
    lists: Vec<String>,
    /// What is worth a word before everything else.
    remarks: Vec<String>,
    /// What is left out: where it was, what it was, and why.
    missing: Vec<(String, String)>,
}

impl Translation {
    /// The last of several holds, as in mosquitto.
    pub(super) fn set(&mut self, key: &'static str, value: String) {
        let (section, name) = key.split_once('.').unwrap_or(("", key));
        self.settings.insert((section, name), value);
    }

    pub(super) fn has(&self, key: &str) -> bool {
        let (section, name) = key.split_once('.').unwrap_or(("", key));
        self.settings.keys().any(|known| *known == (section, name))
    }

    pub(super) fn get(&self, key: &'static str) -> Option<&str> {
        self.settings.get(&key.split_once('.').unwrap_or(("", key))).map(String::as_str)
    }

    pub(super) fn add_block(&mut self, fields: Vec<(&'static str, String)>) {
        self.blocks.push(fields);
    }

    pub(super) fn has_blocks(&self) -> bool {
        !self.blocks.is_empty()
    }

    pub(super) fn is_set_to(&self, key: &'static str, value: &str) -> bool {
        let key = key.split_once('.').unwrap_or(("", key));
        self.settings.get(&key).is_some_and(|set| set == value)
    }

    pub(super) fn leave_out(&mut self, line: String, why: &str) {
        self.missing.push((line, why.to_owned()));
    }

    /// An entry of a list, which stands behind all sections.
    pub(super) fn add_list(&mut self, text: String) {
        self.lists.push(text);
    }

    /// A comment at the top.
    pub(super) fn say(&mut self, remark: String) {
        self.remarks.push(remark);
    }

    pub(super) fn remarks(&self) -> &[String] {
        &self.remarks
    }

    pub(super) fn missing(&self) -> usize {
        self.missing.len()
    }

    pub(super) fn to_toml(&self, from: &Path) -> String {
        let mut text = format!("# from {}; check it with:  tidegate check -c FILE\n", from.display());
        for remark in &self.remarks {
            let _ = writeln!(text, "# {remark}");
        }
        let mut present = "";
        for ((section, name), value) in &self.settings {
            if *section != present {
                present = section;
                let _ = write!(text, "\n[{section}]\n");
            }
            let _ = writeln!(text, "{name} = {value}");
        }
        for block in &self.blocks {
            text.push_str("\n[[listener]]\n");
            for (field, value) in block {
                let _ = writeln!(text, "{field} = {value}");
            }
        }
        text.extend(self.lists.iter().map(String::as_str));
        if !self.missing.is_empty() {
            text.push_str("\n# Not taken over:\n");
            for (line, why) in &self.missing {
                let _ = writeln!(text, "#   {line}: {why}");
            }
        }
        text
    }
}

/// A text as TOML has it: a basic string, with everything escaped that has to be.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
