//! What `[[bridge]]` and `[[sink]]` have in common: fields, sections of their own, and a list of topics.

use super::{ConfigEntry, Origin};

/// One of them as it stands in a file.
#[derive(Clone, Debug)]
pub struct RawBlock {
    pub at: Origin,
    pub fields: Vec<ConfigEntry>,
    pub sections: Vec<(String, Vec<ConfigEntry>)>,
    pub topics: Vec<(Origin, Vec<ConfigEntry>)>,
}

impl RawBlock {
    pub(super) fn new(at: Origin) -> Self {
        Self { at, fields: Vec::new(), sections: Vec::new(), topics: Vec::new() }
    }

    /// The fields of a section, if it is there.
    pub fn section(&self, name: &str) -> Option<&[ConfigEntry]> {
        self.sections.iter().find(|(known, _)| known == name).map(|(_, fields)| fields.as_slice())
    }

    /// Whether a field is not there.
    pub fn lacks(&self, name: &str) -> bool {
        !self.fields.iter().any(|field| field.path == name)
    }
}
