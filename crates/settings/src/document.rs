//! A text of TOML whose every key and value has its place.
//!
//! The parser goes on after an error: whatever can be read is checked, and every problem of the text is reported at once.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::fields::ConfigEntry;
use crate::problem::{ConfigProblem, Origin};
use crate::value::ConfigValue;

/// A text, and the file that it stands in, if it stands in one.
#[derive(Debug)]
pub struct Document<'a> {
    file: Option<Arc<Path>>,
    text: &'a str,
}

impl<'a> Document<'a> {
    /// The text of a file.
    pub fn of_file(path: &Path, text: &'a str) -> Self {
        Self { file: Some(path.into()), text }
    }

    /// A text that its reader names.
    pub fn of_text(text: &'a str) -> Self {
        Self { file: None, text }
    }

    /// The tables that could be read, and what is wrong with the rest.
    pub fn parse(&self) -> (Spanned<DeTable<'a>>, Vec<ConfigProblem>) {
        let (root, errors) = DeTable::parse_recoverable(self.text);
        let problem = |error: toml::de::Error| {
            let origin = self.origin(error.span().map_or(0, |span| span.start));
            ConfigProblem { origin: Some(origin), ..ConfigProblem::general(error.message().trim()) }
        };
        (root, errors.into_iter().map(problem).collect())
    }

    /// Line and column of an offset.
    pub fn origin(&self, offset: usize) -> Origin {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        match &self.file {
            Some(path) => Origin::File { path: Arc::clone(path), line, column },
            None => Origin::Text { line, column },
        }
    }

    /// A key of a table with its value, under this path.
    pub fn entry(&self, path: String, key: &Spanned<Cow<'_, str>>, value: &Spanned<DeValue<'_>>) -> ConfigEntry {
        let value = ConfigValue::of_toml(value.get_ref());
        ConfigEntry { path, value, origin: self.origin(key.span().start) }
    }

    /// All keys of a table, by their names.
    pub fn fields(&self, table: &DeTable<'_>) -> Vec<ConfigEntry> {
        table.iter().map(|(key, value)| self.entry(key.get_ref().to_string(), key, value)).collect()
    }
}
