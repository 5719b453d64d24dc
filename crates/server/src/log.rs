//! Log lines on stderr: one per event, RFC 3339 in UTC, as `key=value` text or as JSON.
//!
//! The text form is written here because values come from strangers (client identifiers, topics): whatever is not plain
//! is quoted and escaped, so that nobody can forge a line or send escape codes to a terminal.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt as lines};

use crate::config::words::LogFormat;

/// Changes the level while the process runs.
#[derive(Clone, Debug)]
pub struct LevelHandle(reload::Handle<LevelFilter, Registry>);

impl LevelHandle {
    /// Log this much from now on.
    pub fn set(&self, level: LevelFilter) {
        // It fails only when the subscriber is gone, and then nothing is logged anyway.
        let _ = self.0.reload(level);
    }

    /// What is logged now.
    pub fn now(&self) -> LevelFilter {
        self.0.clone_current().unwrap_or(LevelFilter::OFF)
    }
}

/// Starts logging; called once.
pub fn start(level: LevelFilter, format: LogFormat) -> LevelHandle {
    let (filter, handle) = reload::Layer::new(level);
    let registry = tracing_subscriber::registry().with(filter);
    let base = lines::layer().with_writer(std::io::stderr).with_ansi(false);
    // A second start can only happen in tests; the first one wins.
    let _ = match format {
        LogFormat::Text => registry.with(base.event_format(Text)).try_init(),
        LogFormat::Json => registry.with(base.json().flatten_event(true).with_target(false)).try_init(),
    };
    LevelHandle(handle)
}

/// `ts=… level=… msg="…" key=value …`
struct Text;

impl<S, N> FormatEvent<S, N> for Text
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        writer.write_str("ts=")?;
        SystemTime.format_time(&mut writer)?;
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        write!(writer, " level={level}")?;
        let mut fields = LogFields { line: String::new() };
        event.record(&mut fields);
        writeln!(writer, "{}", fields.line)
    }
}

/// Fields whose values strangers choose: quoted whatever they look like. (In JSON every text is.)
const STRANGERS: [&str; 4] = ["client", "user", "topic", "whom"];

struct LogFields {
    line: String,
}

impl LogFields {
    fn push(&mut self, field: &Field, value: &str) {
        let name = if field.name() == "message" { "msg" } else { field.name() };
        let _ = write!(self.line, " {name}=");
        if STRANGERS.contains(&name) {
            let _ = write!(self.line, "{value:?}");
        } else {
            quote_if_needed(value, &mut self.line);
        }
    }
}

impl Visit for LogFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.push(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.push(field, value);
    }
}

fn quote_if_needed(value: &str, out: &mut String) {
    let plain = |c: char| !c.is_control() && !c.is_whitespace() && !matches!(c, '"' | '=' | '\\');
    if (!value.is_empty() && value.chars().all(plain)) || is_quoted(value) {
        out.push_str(value);
    } else {
        let _ = write!(out, "{value:?}");
    }
}

/// Whether this is one quoted string already, as the debug form of a text is: nothing in it ends the quotes early.
fn is_quoted(value: &str) -> bool {
    let Some(inside) = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return false };
    let mut is_escaped = false;
    for letter in inside.chars() {
        if letter.is_control() || (letter == '"' && !is_escaped) {
            return false;
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    !is_escaped
}

/// RFC 3339 in UTC, by the same clock as the log.
pub fn iso_time() -> String {
    let mut text = String::new();
    let _ = tracing_subscriber::fmt::time::SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(value: &str) -> String {
        let mut out = String::new();
        quote_if_needed(value, &mut out);
        out
    }

    /// What a subscriber of this format writes for one event.
    fn written(format: LogFormat) -> String {
        #[derive(Clone, Default)]
        struct Lines(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);
        impl std::io::Write for Lines {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().unwrap().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let lines = Lines::default();
        let writer = lines.clone();
        let base = lines::layer().with_writer(move || writer.clone()).with_ansi(false);
        let tell = || tracing::info!(event = "connected", client = "la\"mp", listener = "mqtt", "hello");
        match format {
            LogFormat::Text => {
                tracing::subscriber::with_default(tracing_subscriber::registry().with(base.event_format(Text)), tell);
            }
            LogFormat::Json => {
                let base = base.json().flatten_event(true).with_target(false);
                tracing::subscriber::with_default(tracing_subscriber::registry().with(base), tell);
            }
        }
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn names_that_clients_choose_are_quoted_once_in_both_forms() {
        let text = written(LogFormat::Text);
        assert!(text.contains(r#" event=connected client="la\"mp" listener=mqtt"#), "{text}");
        let json: serde_json::Value = serde_json::from_str(&written(LogFormat::Json)).unwrap();
        assert_eq!(json["client"], "la\"mp");
    }

    #[test]
    fn plain_words_stay_plain() {
        assert_eq!(quoted("127.0.0.1:1883"), "127.0.0.1:1883");
        assert_eq!(quoted("two words"), "\"two words\"");
        assert_eq!(quoted(""), "\"\"");
        assert_eq!(quoted("\"two words\""), "\"two words\"", "the debug form of a text is quoted once");
    }

    #[test]
    fn a_value_can_neither_forge_a_line_nor_reach_the_terminal() {
        assert_eq!(quoted("a\nlevel=error"), "\"a\\nlevel=error\"");
        assert_eq!(quoted("\u{1b}[2J"), "\"\\u{1b}[2J\"");
        assert_eq!(quoted("\"a\" level=\"error\""), "\"\\\"a\\\" level=\\\"error\\\"\"");
        assert_eq!(quoted("\"a\\\""), "\"\\\"a\\\\\\\"\"", "a quote that is escaped closes nothing");
        assert_eq!(quoted("say \"hi\""), "\"say \\\"hi\\\"\"");
    }
}
