//! Sinks: `[[sink]]`.
//!
//! ```toml
//! [[sink]]
//! name = "log"
//! type = "webhook"
//! url = "https://example.org/messages"
//! secret_file = "log.secret"
//!
//! [[sink.topic]]
//! filter = "sensors/#"
//!
//! [sink.batch]
//! messages = 500
//! ```

use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_sink::BatchConfig;
use tidegate_sink::limits::{BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, SINKS_MAX, TOPIC_LEVELS_MAX, TOPICS_MAX};
use tidegate_sink::render::influx::LineRule;
use tidegate_wire_mqtt::{Limits, QoS, TopicFilter};

use super::block::RawBlock;
use super::bridge::{SPOOL_BYTES, SpoolBytes, name, number, text};
use super::kafka::{self, KafkaLogin, KafkaMechanism};
use super::setting::{Setting, Size, Span};
use super::{ConfigProblem, ConfigValue, Fields, read_fields};
use crate::fetch::WebAddress;

/// One sink, sound.
#[derive(Clone, Debug, PartialEq)]
pub struct SinkSettings {
    pub name: String,
    pub target: SinkTarget,
    /// Certificates to trust; none: those of the operating system.
    pub ca: Option<PathBuf>,
    /// How long an answer may take.
    pub timeout: Duration,
    pub filters: Vec<(String, QoS)>,
    pub spool_bytes: u64,
    pub keeps_latest: bool,
    pub batch: BatchConfig,
}

/// Where messages go, and in which words.
#[derive(Clone, Debug, PartialEq)]
pub enum SinkTarget {
    Webhook { at: WebAddress, secret: Option<SinkSecret>, token: Option<SinkSecret> },
    Influx { at: WebAddress, token: Option<SinkSecret>, rules: Vec<LineRule> },
    Postgres { url: String, password: Option<SinkSecret>, table: String },
    Kafka { brokers: Vec<String>, topic: String, is_tls: bool, login: Option<KafkaLogin> },
}

impl SinkTarget {
    /// The word of the configuration for it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Webhook { .. } => "webhook",
            Self::Influx { .. } => "influxdb",
            Self::Postgres { .. } => "postgres",
            Self::Kafka { .. } => "kafka",
        }
    }
}

/// What no log shows.
#[derive(Clone, PartialEq, Eq)]
pub struct SinkSecret(pub String);

impl std::fmt::Debug for SinkSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

/// Sections of a sink, beside its topics.
pub const SECTIONS: &[&str] = &["batch", "spool", "pace"];

pub const FIELDS: Fields = &[
    ("name", "What it is called: letters, digits, `-`, `_` and `.`. Needed."),
    (
        "type",
        "`webhook`, `influxdb`, `postgres` or `kafka`. Needed. The last two are there if the program was built with them.",
    ),
    (
        "url",
        "Where: `https://HOST/PATH`; for InfluxDB with what its API wants (`/api/v2/write?org=O&bucket=B` or `/write?db=D`); \
         `postgres://USER@HOST/DATABASE`; `kafka://HOST:9092,HOST:9092/TOPIC`, or `kafkas://HOST:9093/TOPIC` over TLS. Needed.",
    ),
    ("secret_file", "Webhook: a file whose first line is the key with which each request is signed."),
    ("token_file", "Webhook, InfluxDB: a file whose first line is the token of the field `Authorization`."),
    ("user", "Kafka: as whom it is known there (SASL), with `password_file`."),
    ("password_file", "PostgreSQL, Kafka: a file whose first line is the password."),
    (
        "mechanism",
        "Kafka: `scram-sha-512` (if nothing is said), `scram-sha-256`, or `plain`, which says the password and needs TLS.",
    ),
    ("table", "PostgreSQL: the table; `mqtt_messages` if nothing is said. It is made if it is not there."),
    ("ca", "Certificates to trust, PEM; if nothing is said, those of the operating system."),
    ("timeout", "How long an answer may take; 10s if nothing is said."),
];

pub const TOPIC_FIELDS: Fields = &[
    ("filter", "A topic filter. Needed."),
    (
        "qos",
        "0 or 1; 1 if nothing is said. What is published with less is not kept for the sink while its receiver is away.",
    ),
    (
        "template",
        "InfluxDB: what the levels of the topic are, such as `_/room/measurement`: `_` for nothing, `measurement`, or the name of a tag.",
    ),
    ("measurement", "InfluxDB: the measurement, if it is always the same."),
    ("time_field", "InfluxDB: the member of a JSON payload that says when, since 1970."),
];

pub const BATCH_FIELDS: Fields = &[
    ("messages", "Messages that go together at most, 1 to 1000; 500 if nothing is said."),
    ("bytes", "Bytes of their topics and payloads at most; 1MiB if nothing is said. A larger message goes alone."),
    ("wait", "How long a message waits for others; 100ms if nothing is said."),
];

pub const SPOOL_FIELDS: Fields = &[
    ("bytes", "What may wait while the receiver cannot be reached; 256MiB if nothing is said."),
    ("keep", "`all` (if nothing is said), or `latest`: of each topic only the newest message waits."),
];

pub const PACE_FIELDS: Fields = &[(
    "max_rate",
    "Messages a second at most; if nothing is said, as many as the receiver takes, one batch at a time.",
)];

type BatchBytes = Size<1, { BATCH_BYTES_MAX as u64 }>;
type BatchWait = Span<0, 60_000>;
type AnswerTime = Span<100, 300_000>;

/// What is said in a block, before it is known what it means together.
#[derive(Debug, Default)]
struct SinkDraft {
    name: String,
    kind: String,
    url: String,
    secret: Option<SinkSecret>,
    token: Option<SinkSecret>,
    user: Option<String>,
    password: Option<SinkSecret>,
    mechanism: Option<KafkaMechanism>,
    table: Option<String>,
    ca: Option<PathBuf>,
    timeout: Option<Duration>,
}

/// All sinks that are sound; what is wrong goes to `problems`.
pub fn compile(raw: &[RawBlock], problems: &mut Vec<ConfigProblem>) -> Vec<SinkSettings> {
    let mut sinks: Vec<SinkSettings> = Vec::new();
    for raw in raw {
        let Some(sink) = read(raw, problems) else { continue };
        if sinks.iter().any(|other| other.name == sink.name) {
            let message = format!("there is another sink of the name {:?}", sink.name);
            problems.push(ConfigProblem::of_key(&raw.at, "sink.name", message));
        }
        sinks.push(sink);
    }
    if sinks.len() > SINKS_MAX {
        problems.push(ConfigProblem::general(format!("there are more than {SINKS_MAX} sinks")));
    }
    sinks
}

fn read(raw: &RawBlock, problems: &mut Vec<ConfigProblem>) -> Option<SinkSettings> {
    let (before, folder) = (problems.len(), raw.at.folder());
    let mut draft = SinkDraft::default();
    read_fields("sink", FIELDS, &raw.fields, problems, |field, value| set(&mut draft, field, value, folder));
    for needed in ["name", "type", "url"].into_iter().filter(|name| raw.lacks(name)) {
        problems.push(ConfigProblem::of_key(&raw.at, "sink", format!("a sink needs \"{needed}\"")));
    }
    let mut batch = BatchConfig::default();
    let unfit = |value: &ConfigValue, set: Result<(), String>| set.map_err(|expected| value.unfit(&expected));
    read_fields("sink.batch", BATCH_FIELDS, raw.section("batch").unwrap_or(&[]), problems, |field, value| {
        unfit(value, set_batch(&mut batch, field, value))
    });
    read_fields("sink.pace", PACE_FIELDS, raw.section("pace").unwrap_or(&[]), problems, |_, value| {
        let rate = number::<1, 1_000_000>(value).map_err(|expected| value.unfit(&expected))?;
        batch.rate_max = Some(rate as u32);
        Ok(())
    });
    let (mut spool_bytes, mut keeps_latest) = (SPOOL_BYTES, false);
    read_fields("sink.spool", SPOOL_FIELDS, raw.section("spool").unwrap_or(&[]), problems, |field, value| {
        match (field, value.text()) {
            ("keep", Some(word @ ("all" | "latest"))) => keeps_latest = word == "latest",
            ("keep", _) => return Err(value.unfit("\"all\" or \"latest\"")),
            _ => {
                let size = SpoolBytes::read(value, None).ok_or_else(|| value.unfit(&SpoolBytes::expected()))?;
                spool_bytes = size.0;
            }
        }
        Ok(())
    });
    let rules = read_topics(raw, problems);
    if problems.len() > before {
        return None;
    }
    let (name, ca) = (draft.name.clone(), draft.ca.clone());
    let timeout = draft.timeout.unwrap_or(Duration::from_secs(10));
    let filters = rules.iter().map(|(rule, qos)| (rule.filter.clone(), *qos)).collect();
    match target(draft, rules) {
        Ok(target) => Some(SinkSettings { name, target, ca, timeout, filters, spool_bytes, keeps_latest, batch }),
        Err((field, message)) => {
            problems.push(ConfigProblem::of_key(&raw.at, &format!("sink.{field}"), message));
            None
        }
    }
}

/// What the fields mean together; or which of them is wrong, and how.
fn target(draft: SinkDraft, rules: Vec<(LineRule, QoS)>) -> Result<SinkTarget, (&'static str, String)> {
    let SinkDraft { kind, url, secret, token, user, password, mechanism, table, ca, .. } = draft;
    let foreign = [
        ("secret_file", secret.is_some(), &["webhook"][..]),
        ("token_file", token.is_some(), &["webhook", "influxdb"][..]),
        ("user", user.is_some(), &["kafka"][..]),
        ("password_file", password.is_some(), &["postgres", "kafka"][..]),
        ("mechanism", mechanism.is_some(), &["kafka"][..]),
        ("table", table.is_some(), &["postgres"][..]),
    ];
    if let Some((field, ..)) = foreign.iter().find(|(_, is_there, kinds)| *is_there && !kinds.contains(&kind.as_str()))
    {
        return Err((*field, format!("a sink of the type {kind:?} has none")));
    }
    let web = || {
        let expected = || ("url", no_address("https://example.org/path"));
        WebAddress::parse(&url).ok_or_else(expected)
    };
    match kind.as_str() {
        "webhook" => Ok(SinkTarget::Webhook { at: web()?, secret, token }),
        "influxdb" => {
            let at = web()?;
            if at.path() == "/" {
                let message = "InfluxDB takes lines at /api/v2/write?org=ORG&bucket=BUCKET, or at /write?db=DATABASE";
                return Err(("url", message.to_owned()));
            }
            Ok(SinkTarget::Influx { at, token, rules: rules.into_iter().map(|(rule, _)| rule).collect() })
        }
        "postgres" => {
            let table = table.unwrap_or_else(|| "mqtt_messages".to_owned());
            if !(url.starts_with("postgres://") || url.starts_with("postgresql://")) {
                return Err(("url", no_address("postgres://user@host/database")));
            }
            Ok(SinkTarget::Postgres { url, password, table })
        }
        _ => kafka::target(&url, (user, password, mechanism), ca.is_some()),
    }
}

/// Without what was written: it may have a password in it.
fn no_address(example: &str) -> String {
    format!("this is no address such as {example:?}")
}

/// What is wrong with a file is said by itself.
fn set(draft: &mut SinkDraft, field: &str, value: &ConfigValue, folder: Option<&Path>) -> Result<(), String> {
    let unfit = |expected: String| value.unfit(&expected);
    match field {
        "name" => draft.name = name(value).map_err(unfit)?,
        "type" => draft.kind = kind(value)?,
        "url" => draft.url = text(value).map_err(unfit)?,
        "secret_file" => draft.secret = Some(secret(value, folder)?),
        "token_file" => draft.token = Some(secret(value, folder)?),
        "user" => draft.user = Some(text(value).map_err(unfit)?),
        "password_file" => draft.password = Some(secret(value, folder)?),
        "mechanism" => {
            let expected = || unfit("\"plain\", \"scram-sha-256\" or \"scram-sha-512\"".to_owned());
            draft.mechanism = Some(value.text().and_then(KafkaMechanism::read).ok_or_else(expected)?);
        }
        "table" => draft.table = Some(table(value).map_err(unfit)?),
        "ca" => {
            let path = PathBuf::read(value, folder).ok_or_else(|| unfit(PathBuf::expected()))?;
            std::fs::File::open(&path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
            draft.ca = Some(path);
        }
        _ => draft.timeout = Some(AnswerTime::read(value, None).ok_or_else(|| unfit(AnswerTime::expected()))?.0),
    }
    Ok(())
}

fn kind(value: &ConfigValue) -> Result<String, String> {
    match value.text() {
        Some(kind @ ("webhook" | "influxdb")) => Ok(kind.to_owned()),
        Some(kind @ "postgres") if cfg!(feature = "postgres") => Ok(kind.to_owned()),
        Some(kind @ "kafka") if cfg!(feature = "kafka") => Ok(kind.to_owned()),
        Some(kind @ ("postgres" | "kafka")) => {
            Err(format!("this program was built without it; build it with  cargo build --release --features {kind}"))
        }
        _ => Err(value.unfit("\"webhook\", \"influxdb\", \"postgres\" or \"kafka\"")),
    }
}

fn secret(value: &ConfigValue, folder: Option<&Path>) -> Result<SinkSecret, String> {
    let path = PathBuf::read(value, folder).ok_or_else(|| value.unfit(&PathBuf::expected()))?;
    let read = std::fs::read_to_string(&path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    let line = read.lines().next().unwrap_or_default().trim();
    let is_plain = !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    let words = || format!("the first line of {} is empty, or has other than ASCII letters", path.display());
    is_plain.then(|| SinkSecret(line.to_owned())).ok_or_else(words)
}

/// A name that needs no quotes, with its schema if that is said: it becomes part of a statement.
fn table(value: &ConfigValue) -> Result<String, String> {
    let is_name = |part: &str| {
        let mut letters = part.bytes();
        letters.next().is_some_and(|first| first.is_ascii_lowercase() || first == b'_')
            && letters.all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'_')
            && part.len() <= 63
    };
    let text = value.text().filter(|text| text.split('.').count() <= 2 && text.split('.').all(is_name));
    text.map(str::to_owned)
        .ok_or_else(|| "a name of small letters, digits and \"_\", with its schema or without".to_owned())
}

fn set_batch(batch: &mut BatchConfig, field: &str, value: &ConfigValue) -> Result<(), String> {
    match field {
        "messages" => batch.messages = number::<1, { BATCH_MESSAGES_MAX as u64 }>(value)? as usize,
        "bytes" => batch.bytes = BatchBytes::read(value, None).ok_or_else(BatchBytes::expected)?.0 as usize,
        _ => batch.wait = BatchWait::read(value, None).ok_or_else(BatchWait::expected)?.0,
    }
    Ok(())
}

fn read_topics(raw: &RawBlock, problems: &mut Vec<ConfigProblem>) -> Vec<(LineRule, QoS)> {
    let mut rules: Vec<(LineRule, QoS)> = Vec::new();
    if raw.topics.is_empty() {
        let problem = ConfigProblem::of_key(&raw.at, "sink", "a sink without topics takes nothing");
        problems.push(problem.with_hint("write [[sink.topic]] and below it filter = \"sensors/#\"".to_owned()));
    }
    for (at, fields) in &raw.topics {
        let (mut rule, mut qos) = (LineRule::default(), QoS::AtLeastOnce);
        read_fields("sink.topic", TOPIC_FIELDS, fields, problems, |field, value| {
            set_topic(&mut rule, &mut qos, field, value).map_err(|expected| value.unfit(&expected))
        });
        if !fields.iter().any(|field| field.path == "filter") {
            problems.push(ConfigProblem::of_key(at, "sink.topic", "a topic needs \"filter\""));
        }
        if rules.iter().any(|(other, _)| other.filter == rule.filter) {
            problems.push(ConfigProblem::of_key(at, "sink.topic.filter", "this sink has the same filter twice"));
        }
        rules.push((rule, qos));
    }
    if rules.len() > TOPICS_MAX {
        problems.push(ConfigProblem::of_key(&raw.at, "sink.topic", format!("a sink has {TOPICS_MAX} topics at most")));
    }
    rules
}

fn set_topic(rule: &mut LineRule, qos: &mut QoS, field: &str, value: &ConfigValue) -> Result<(), String> {
    match field {
        "filter" => rule.filter = filter(value)?,
        "qos" => *qos = QoS::from_bits(number::<0, 1>(value)? as u8).unwrap_or_default(),
        "template" => {
            let template = text(value)?;
            let parts: Vec<String> = template.split('/').map(str::to_owned).collect();
            let is_sound = |part: &String| {
                !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
            };
            if !parts.iter().all(is_sound) {
                return Err("names between \"/\", such as \"_/room/measurement\"".to_owned());
            }
            rule.template = parts;
        }
        "measurement" => rule.measurement = Some(text(value)?),
        _ => rule.time_field = Some(text(value)?),
    }
    Ok(())
}

fn filter(value: &ConfigValue) -> Result<String, String> {
    let text = text(value)?;
    let limits = Limits { topic_levels_max: TOPIC_LEVELS_MAX, ..Limits::default() };
    match TopicFilter::parse(&text, &limits) {
        Ok(parsed) if parsed.group().is_some() => {
            Err("a filter that is not shared: a sink has a session of its own".to_owned())
        }
        Ok(_) => Ok(text),
        Err(violation) => Err(format!("a topic filter: {}", violation.detail)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file;

    fn sinks(text: &str) -> (Vec<SinkSettings>, Vec<String>) {
        let contents = file::parse(Path::new("t.toml"), text);
        let mut problems = contents.problems;
        let sinks = compile(&contents.sinks, &mut problems);
        (sinks, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_sink_is_read_with_all_its_parts() {
        let text = "[[sink]]\nname = \"a\"\ntype = \"webhook\"\nurl = \"http://h:8/x\"\ntimeout = \"2s\"\n\
                    [[sink.topic]]\nfilter = \"a/#\"\nqos = 0\n[sink.batch]\nmessages = 7\nbytes = \"4KiB\"\nwait = \"1s\"\n\
                    [sink.pace]\nmax_rate = 9\n[sink.spool]\nbytes = \"1MiB\"\nkeep = \"latest\"\n\
                    [[sink]]\nname = \"b\"\ntype = \"influxdb\"\nurl = \"http://h/write?db=x\"\n\
                    [[sink.topic]]\nfilter = \"s/+/+\"\ntemplate = \"_/room/measurement\"\ntime_field = \"ts\"\n";
        let (sinks, problems) = sinks(text);
        assert_eq!(problems, [""; 0]);
        let wait = Duration::from_secs(1);
        assert_eq!(sinks[0].batch, BatchConfig { messages: 7, bytes: 4096, wait, rate_max: Some(9) });
        assert_eq!((sinks[0].keeps_latest, sinks[0].spool_bytes), (true, 1 << 20));
        assert_eq!((sinks[0].timeout, sinks[0].target.kind()), (Duration::from_secs(2), "webhook"));
        assert_eq!(sinks[0].filters, [("a/#".to_owned(), QoS::AtMostOnce)]);
        let SinkTarget::Influx { rules, .. } = &sinks[1].target else { panic!("{:?}", sinks[1]) };
        assert_eq!((rules[0].template.len(), rules[0].time_field.as_deref()), (3, Some("ts")));
    }

    #[test]
    fn f146_every_fault_of_a_sink_has_its_place_and_what_was_expected() {
        let head = "[[sink]]\nname = \"a\"\ntype = \"webhook\"\n";
        let topic = "[[sink.topic]]\nfilter = \"#\"\n";
        for (text, expected) in [
            (
                format!("[[sink]]\ntype = \"mail\"\n{topic}"),
                "sink.type: \"mail\" does not fit: expected \"webhook\", \"influxdb\"",
            ),
            (format!("[[sink]]\n{topic}"), "a sink needs \"name\""),
            (format!("{head}{topic}"), "a sink needs \"url\""),
            (format!("{head}url = \"h/x\"\n{topic}"), "sink.url: this is no address such as"),
            (format!("{head}url = \"http://h\"\n"), "a sink without topics takes nothing; write [[sink.topic]]"),
            (
                format!("{head}url = \"http://h\"\nsecret_file = \"/nonexistent/s\"\n{topic}"),
                "/nonexistent/s cannot be read",
            ),
            (
                format!("{head}url = \"http://h\"\ntable = \"x\"\n{topic}"),
                "sink.table: a sink of the type \"webhook\" has none",
            ),
            (
                format!("{head}url = \"http://h\"\nuser = \"x\"\n{topic}"),
                "sink.user: a sink of the type \"webhook\" has none",
            ),
            (
                format!("{head}url = \"http://h\"\nmechanism = \"gssapi\"\n{topic}"),
                "expected \"plain\", \"scram-sha-256\" or \"scram-sha-512\"",
            ),
            (
                format!("{head}url = \"http://h\"\n{topic}[sink.batch]\nmessages = 0\n"),
                "sink.batch.messages: 0 does not fit",
            ),
            (
                format!("{head}url = \"http://h\"\n[[sink.topic]]\nfilter = \"$share/g/a\"\n"),
                "a filter that is not shared",
            ),
            (format!("{head}url = \"http://h\"\n{topic}{topic}"), "the same filter twice"),
            (
                format!("{head}url = \"http://h\"\n{topic}{head}url = \"http://h\"\n{topic}"),
                "another sink of the name \"a\"",
            ),
            ("[sink]\nname = \"a\"\n".to_owned(), "expected a list of sinks; write [[sink]]"),
            (
                format!("[[sink]]\nname = \"a\"\ntype = \"influxdb\"\nurl = \"http://h\"\n{topic}"),
                "sink.url: InfluxDB takes lines at /api/v2/write?org=ORG&bucket=BUCKET",
            ),
        ] {
            let (_, found) = sinks(&text);
            assert!(found.iter().any(|problem| problem.contains(expected)), "{expected} in {found:#?}");
        }
    }

    #[test]
    fn a_password_in_an_address_is_not_repeated() {
        for url in ["https://ann:SECRET@h/x", "postgre://ann:SECRET@h/x", "SECRET"] {
            for kind in ["webhook", "influxdb", "postgres", "kafka"] {
                let head = format!("[[sink]]\nname = \"a\"\ntype = \"{kind}\"\nurl = \"{url}\"\n");
                let (_, found) = sinks(&format!("{head}[[sink.topic]]\nfilter = \"#\"\n"));
                assert!(!found.is_empty() && !found.concat().contains("SECRET"), "{found:#?}");
            }
        }
    }

    #[test]
    fn what_is_not_built_in_is_said_with_how_to_build_it() {
        let text =
            "[[sink]]\nname = \"a\"\ntype = \"kafka\"\nurl = \"kafka://h,g:1/t\"\n[[sink.topic]]\nfilter = \"#\"\n";
        let (sinks, found) = sinks(text);
        if cfg!(feature = "kafka") {
            let brokers = vec!["h:9092".into(), "g:1".into()];
            let target = SinkTarget::Kafka { brokers, topic: "t".into(), is_tls: false, login: None };
            assert_eq!(sinks[0].target, target);
        } else {
            assert!(
                found[0].contains("this program was built without it") && found[0].contains("--features kafka"),
                "{found:?}"
            );
        }
    }
}
