//! Why a question was not answered, and what to do next. The exit code says which kind it was.

use std::fmt;
use std::io;

use serde_json::Value;

/// No answer.
#[derive(Debug)]
pub(crate) struct AdminError {
    code: u8,
    text: String,
}

impl AdminError {
    pub(crate) fn usage(text: String) -> Self {
        Self { code: 2, text }
    }

    pub(crate) fn failure(text: String) -> Self {
        Self { code: 1, text }
    }

    pub(crate) fn unreachable(host: &str, error: &io::Error) -> Self {
        let next = match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                "is the broker running? Start it with `tidegate`; if it has another admin address (it says so at its \
                 start), name it with --admin URL"
            }
            _ => "name the broker's admin address with --admin URL",
        };
        Self { code: 3, text: format!("cannot ask the broker at http://{host}: {error}; {next}") }
    }

    /// The broker said no, in the words of RFC 9457.
    pub(crate) fn refused(status: u16, problem: &Value) -> Self {
        let detail = match (problem["detail"].as_str(), problem["reasons"].as_array()) {
            (Some(detail), _) => detail.to_owned(),
            (None, Some(reasons)) => {
                let reasons: Vec<&str> = reasons.iter().filter_map(Value::as_str).collect();
                format!("not ready: {}", reasons.join(", "))
            }
            _ => format!("HTTP status {status}"),
        };
        let (code, next) = match status {
            401 => (4, "; name a user with -u and -P"),
            403 => (4, "; roles are given with `tidegate user add NAME --roles operator`"),
            400 => (2, ""),
            429 | 503 => (5, "; try again in a moment"),
            404 if problem["type"].as_str().is_some_and(|kind| kind.ends_with(":no-such-client")) => {
                (1, "; `tidegate clients` lists who is there, `tidegate clients --closed` who was")
            }
            _ => (1, ""),
        };
        // Quotes are ours; what could move a cursor is not.
        let harmless = |c: char| if c.is_control() { c.escape_debug().to_string() } else { c.to_string() };
        Self { code, text: format!("{}{next}", detail.chars().map(harmless).collect::<String>()) }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for AdminError {}
