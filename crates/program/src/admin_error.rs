//! Why a question was not answered, and what to do next. The exit code says which kind it was.

use std::fmt;
use std::io;

use serde_json::Value;

use crate::{certificate_hint, harmless};

/// No answer.
#[derive(Debug)]
pub struct AdminError {
    code: u8,
    text: String,
}

impl AdminError {
    /// The question makes no sense.
    pub fn usage(text: String) -> Self {
        Self { code: 2, text }
    }

    /// It did not work, in these words.
    pub fn failure(text: String) -> Self {
        Self { code: 1, text }
    }

    /// Nobody is there, in these words.
    pub fn unreached(text: String) -> Self {
        Self { code: 3, text }
    }

    /// Nobody answers at this address.
    pub fn unreachable(url: &str, error: &io::Error) -> Self {
        let words = error.to_string();
        let next = match error.kind() {
            _ if certificate_hint(&words).is_some() => certificate_hint(&words).unwrap_or_default(),
            _ if words.contains("invalid peer certificate") => {
                "if it is yours, name the certificate that signed it with --cafile FILE"
            }
            _ if words.contains("corrupt message") => "this port does not speak TLS: try http://",
            io::ErrorKind::ConnectionRefused => {
                "is the broker running? Start it with `tidegate`; if it has another admin address (it says so at its \
                 start), name it with --admin URL"
            }
            _ => "name the broker's admin address with --admin URL",
        };
        Self { code: 3, text: format!("cannot ask the broker at {url}: {words}; {next}") }
    }

    /// The broker said no, in the words of RFC 9457.
    pub fn refused(status: u16, problem: &Value) -> Self {
        let detail = match (problem["detail"].as_str(), problem["reasons"].as_array()) {
            (Some(detail), _) => detail.to_owned(),
            (None, Some(reasons)) => {
                let reasons: Vec<&str> = reasons.iter().filter_map(Value::as_str).collect();
                format!("not ready: {}", reasons.join(", "))
            }
            _ => format!("HTTP status {status}"),
        };
        let (code, next) = match status {
            401 => (4, "; name a user with -u and -P".to_owned()),
            403 => (4, role_hint(&detail).unwrap_or_default()),
            400 => (2, String::new()),
            429 | 503 => (5, "; try again in a moment".to_owned()),
            404 if problem["type"].as_str().is_some_and(|kind| kind.ends_with(":no-such-client")) => {
                (1, "; `tidegate clients` lists who is there, `tidegate clients --closed` who was".to_owned())
            }
            _ => (1, String::new()),
        };
        Self { code, text: format!("{}{next}", harmless(&detail)) }
    }

    /// What the program ends with.
    pub fn exit_code(&self) -> u8 {
        self.code
    }
}

/// How to get the role that the broker asks for: the least of those it names.
fn role_hint(detail: &str) -> Option<String> {
    let after = detail.split_once("the role ").or_else(|| detail.split_once("the roles "))?.1;
    let role: String = after.chars().take_while(char::is_ascii_alphabetic).collect();
    Some(format!("; roles are given with `tidegate user add NAME --roles {role}`"))
}

impl fmt::Display for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for AdminError {}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_wrong_with_tls_has_its_own_advice() {
        let said = |words: &str| AdminError::unreachable("https://x", &io::Error::other(words)).to_string();
        assert!(said("invalid peer certificate: UnknownIssuer").ends_with("signed it with --cafile FILE"));
        assert!(said("received corrupt message of type X").ends_with("try http://"));
    }

    #[test]
    fn the_role_that_is_needed_is_the_one_advised() {
        let refused = |detail: &str| AdminError::refused(403, &json!({ "detail": detail })).to_string();
        assert!(refused("this needs the role admin, and you are operator").ends_with("--roles admin`"));
        assert!(refused("this user has none of the roles viewer, operator and admin").ends_with("--roles viewer`"));
        assert_eq!(refused("changes are not taken from pages of other sites").matches("--roles").count(), 0);
    }
}
