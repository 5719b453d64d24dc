//! What is wrong with a rule.

use std::fmt;

/// A rule that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapFault {
    /// The field of the rule that is wrong.
    pub field: &'static str,
    /// What is wrong with the field.
    pub message: String,
    /// What to do about it, if that is known.
    pub hint: Option<String>,
    /// A name that is not known, and those that are: for "did you mean".
    pub unknown: Option<(String, Vec<String>)>,
}

impl MapFault {
    pub(crate) fn new(field: &'static str, message: impl Into<String>) -> Self {
        Self { field, message: message.into(), hint: None, unknown: None }
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    pub(crate) fn unknown(field: &'static str, kind: &str, name: &str, known: Vec<String>) -> Self {
        let message = format!("there is no {kind} {name:?}");
        let hint = (!known.is_empty()).then(|| format!("there is: {}", known.join(", ")));
        Self { hint, unknown: Some((name.to_owned(), known)), ..Self::new(field, message) }
    }
}

impl fmt::Display for MapFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {hint}"))
    }
}

impl std::error::Error for MapFault {}
