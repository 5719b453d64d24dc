//! `tidegate config reference`: the page `docs/configuration.md`, from the table that the program itself reads.
//!
//! `tests/docs` fails when the page is not what is printed here, so it cannot fall behind.

use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::Result;

use tidegate_server::config::keys::{KEYS, Options, SECTIONS, TakesEffect};
use tidegate_server::config::map::MapDirection;
use tidegate_server::config::{Fields, bridge, class, listener, rule, sink};

const HEAD: &str = "\
# Configuration

Every setting that there is. This page is printed by `tidegate config reference`; a test fails when it is out of date.

A value comes from a flag, else from the environment, else from a file, else it is the default.
`tidegate config show --origin` prints which it was, and `tidegate check` finds every mistake at once.

| source | looks like |
| --- | --- |
| flag | `--mqtt 1884`, or any setting: `--set limits.receive_max=20` |
| environment | `TIDEGATE_LIMITS__RECEIVE_MAX=20`: section, two underscores, name |
| file | `--config FILE`, else `$TIDEGATE_CONFIG`, else `./tidegate.toml`, else `/etc/tidegate/tidegate.toml` and `/etc/tidegate/conf.d/*.toml` |

Durations and sizes have units: `\"10s\"`, `\"1h30m\"`, `\"64KiB\"`, `\"1MB\"`. Rates are `\"500/s\"`, `\"30/m\"` or `\"10/h\"`.
`\"unlimited\"`, `\"off\"` and `\"auto\"` are words; zero is a number like any other. A relative path starts at the folder of the
file that names it, elsewhere at the working directory. A name that does not exist is an error.

A changed value takes effect at the next reload (`tidegate reload`, SIGHUP), unless it is marked *restart*.
";

/// Prints the page.
pub(crate) fn print() -> Result<()> {
    std::io::stdout().lock().write_all(page().as_bytes())?;
    Ok(())
}

fn page() -> String {
    let defaults = Options::default();
    let mut page = HEAD.to_owned();
    for section in SECTIONS {
        let _ = write!(page, "\n## [{section}]\n\n| key | default | meaning | expected |\n| --- | --- | --- | --- |\n");
        let prefix = format!("{section}.");
        for key in KEYS {
            let Some(name) = key.path.strip_prefix(&prefix) else { continue };
            let restart = if key.change == TakesEffect::Restart { " *restart*" } else { "" };
            let default = match (key.show)(&defaults).as_str() {
                "unset" => "unset".to_owned(),
                shown => format!("`{shown}`"),
            };
            let (about, expected) = (cell(key.about), cell(&(key.expected)()));
            let _ = writeln!(page, "| `{name}` | {default} | {about}{restart} | {expected} |");
        }
        for (head, about, fields) in lists().into_iter().filter(|(head, ..)| head.contains(&prefix)) {
            list(&mut page, head, about, fields);
        }
    }
    let is_apart = |head: &str| {
        !head.contains('.') || head.starts_with("[classes") || head.contains("[bridge") || head.contains("[sink")
    };
    for (head, about, fields) in lists().into_iter().filter(|(head, ..)| is_apart(head)) {
        list(&mut page, head, about, fields);
    }
    page
}

/// What may stand more than once in a file.
fn lists() -> [(&'static str, &'static str, Fields); 15] {
    [
        (
            "[[listener]]",
            "A listener with rules of its own, beside those of the section listeners ([security.md](security.md#several-listeners)). \
             A change of kind or address, and a new one: *restart*",
            listener::FIELDS,
        ),
        (
            "[[security.rule]]",
            "A rule of access ([security.md](security.md)). The first one shuts out what none allows.",
            rule::FIELDS,
        ),
        (
            "[[map.ingest]]",
            "From MQTT into the smart space ([smart-space.md](smart-space.md)). *restart*",
            MapDirection::Ingest.fields(),
        ),
        ("[[map.emit]]", "From the smart space to MQTT. *restart*", MapDirection::Emit.fields()),
        (
            "[classes.NAME]",
            "A class of messages ([operations.md](operations.md)). A message belongs to the first one whose rules it meets; \
             all that is given must be met.",
            class::FIELDS,
        ),
        ("[[bridge]]", "A bridge to another broker ([bridge.md](bridge.md)). *restart*", bridge::FIELDS),
        ("[[bridge.topic]]", "A topic of the bridge before it; one at least.", bridge::TOPIC_FIELDS),
        ("[bridge.tls]", "TLS to the other broker; the section alone is enough.", bridge::TLS_FIELDS),
        ("[bridge.spool]", "What waits while the other broker cannot be reached.", bridge::SPOOL_FIELDS),
        ("[bridge.pace]", "How fast the bridge may go.", bridge::PACE_FIELDS),
        ("[[sink]]", "A receiver that is no broker ([sinks.md](sinks.md)). *restart*", sink::FIELDS),
        ("[[sink.topic]]", "A topic of the sink before it; one at least.", sink::TOPIC_FIELDS),
        ("[sink.batch]", "What goes together.", sink::BATCH_FIELDS),
        ("[sink.spool]", "What waits while the receiver cannot be reached.", sink::SPOOL_FIELDS),
        ("[sink.pace]", "How fast the sink may go.", sink::PACE_FIELDS),
    ]
}

fn list(page: &mut String, head: &str, about: &str, fields: Fields) {
    let _ = write!(page, "\n## {head}\n\n{about}\n\n| field | meaning |\n| --- | --- |\n");
    for (name, about) in fields {
        let _ = writeln!(page, "| `{name}` | {} |", cell(about));
    }
}

/// A text as a cell of a table has it.
fn cell(text: &str) -> String {
    text.trim().replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_on_the_page_once() {
        let page = page();
        for key in KEYS {
            let about = format!("| {}", cell(key.about));
            assert_eq!(page.matches(&about).count(), 1, "{}", key.path);
        }
        for (head, _, fields) in lists() {
            assert_eq!(page.matches(&format!("## {head}\n")).count(), 1, "{head}");
            assert!(fields.iter().all(|(name, _)| page.contains(&format!("| `{name}` |"))), "{head}");
        }
    }
}
