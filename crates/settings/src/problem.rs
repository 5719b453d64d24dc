//! What is wrong with a configuration, and where a value came from.
//!
//! A problem says place, key, what was seen, what is expected and what to do; problems are collected, never thrown one
//! at a time, so that one run of `tidegate check` shows all of them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The default: nobody has set the key.
    Default,
    /// A configuration file; lines and columns count from 1.
    File {
        /// The file.
        path: Arc<Path>,
        /// The line.
        line: usize,
        /// The column, in characters.
        column: usize,
    },
    /// A text that its reader names; lines and columns count from 1.
    Text {
        /// The line.
        line: usize,
        /// The column, in characters.
        column: usize,
    },
    /// An environment variable, by name.
    Environment(String),
    /// The command line, by flag.
    Flag(String),
}

impl Origin {
    /// Line and column; the beginning for what is in no file.
    pub fn position(&self) -> (usize, usize) {
        match self {
            Self::File { line, column, .. } | Self::Text { line, column } => (*line, *column),
            _ => (0, 0),
        }
    }

    /// The folder that relative paths start from: that of the file, else the working directory.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Self::File { path, .. } => path.parent(),
            _ => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line, .. } => write!(f, "{}:{line}", path.display()),
            Self::Text { line, .. } => write!(f, "line {line}"),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Where; none for a rule between several keys.
    pub origin: Option<Origin>,
    /// The key, with its section.
    pub key: Option<String>,
    /// What is wrong, in one sentence.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl ConfigProblem {
    /// A problem with the value of a key.
    pub fn of_key(origin: &Origin, key: &str, message: impl Into<String>) -> Self {
        let origin = Some(origin.clone()).filter(|origin| *origin != Origin::Default);
        Self { origin, key: Some(key.to_owned()), message: message.into(), hint: None }
    }

    /// A problem between keys, or with something that has no key.
    pub fn general(message: impl Into<String>) -> Self {
        Self { origin: None, key: None, message: message.into(), hint: None }
    }

    /// A file that cannot be used at all.
    pub fn of_file(path: &Path, message: impl fmt::Display) -> Self {
        Self::general(format!("{}: {message}", path.display()))
    }

    /// The problem with advice.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<Option<String>>) -> Self {
        Self { hint: hint.into(), ..self }
    }

    /// For programs: the same facts as the text.
    pub fn to_json(&self) -> serde_json::Value {
        let (file, line, column) = match &self.origin {
            Some(Origin::File { path, line, column }) => (Some(PathBuf::from(&**path)), Some(*line), Some(*column)),
            _ => (None, None, None),
        };
        json!({
            "file": file, "line": line, "column": column, "key": self.key, "message": self.message, "hint": self.hint,
            "origin": self.origin.as_ref().map(ToString::to_string),
        })
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Some(Origin::File { path, line, column }) => write!(f, "{}:{line}:{column}: ", path.display())?,
            Some(origin) => write!(f, "{origin}: ")?,
            None => {}
        }
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

/// All that is wrong, as one error of the program.
#[derive(Debug)]
pub struct Problems(pub Vec<ConfigProblem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let line_break = if index == 0 { "" } else { "\n" };
            write!(f, "{line_break}error: {problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
