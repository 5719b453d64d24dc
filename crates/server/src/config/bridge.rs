//! Bridges to other brokers: `[[bridge]]`.
//!
//! ```toml
//! [[bridge]]
//! name = "hub"
//! address = ["10.0.0.5:1883", "backup:1883"]   # tried in turn
//! user = "site7"
//! password_file = "hub.password"
//!
//! [[bridge.topic]]
//! filter = "sensors/#"
//! qos = 1
//! remote_prefix = "building7/"
//!
//! [bridge.spool]
//! bytes = "256MiB"
//! ```

use std::path::{Path, PathBuf};

use tidegate_bridge::limits::{ADDRESSES_MAX, BRIDGES_MAX, KEEP_ALIVE_DEFAULT, NAME_BYTES_MAX, WINDOW_MAX};
use tidegate_bridge::{BridgeTopic, PaceConfig, SpoolKeep, TopicDirection, TopicMap};
use tidegate_wire_mqtt::{QoS, Version};

use super::block::RawBlock;
use super::setting::{Setting, Size, Span, WholeNumber};
use super::{ConfigProblem, ConfigValue, Fields, read_fields};

/// Sections of a bridge, beside its topics.
pub const SECTIONS: &[&str] = &["tls", "spool", "pace"];

/// One bridge, sound.
#[derive(Clone, Debug, PartialEq)]
pub struct BridgeSettings {
    pub name: String,
    /// Host and port; none is 1883, or 8883 with TLS.
    pub addresses: Vec<(String, Option<u16>)>,
    pub user: Option<String>,
    pub password: Option<BridgePassword>,
    /// None: made of the name of the machine and of the bridge.
    pub client_id: Option<String>,
    pub version: Version,
    pub is_clean: bool,
    pub keep_alive: u16,
    pub notifies: bool,
    pub tls: Option<BridgeTls>,
    pub topics: TopicMap,
    pub spool_bytes: u64,
    pub keep: SpoolKeep,
    pub pace: PaceConfig,
}

/// What no log shows.
#[derive(Clone, PartialEq, Eq)]
pub struct BridgePassword(pub String);

impl std::fmt::Debug for BridgePassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

/// Whom to trust, and what to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BridgeTls {
    /// Certificates to trust; none: those of the operating system.
    pub ca: Option<PathBuf>,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

pub const FIELDS: Fields = &[
    ("name", "What it is called: letters, digits, `-`, `_` and `.`. Needed."),
    ("address", "The other broker, or a list of its addresses, tried in turn: `\"10.0.0.5:1883\"`. Needed."),
    ("user", "The user there."),
    ("password_file", "A file whose first line is the password there."),
    (
        "client_id",
        "The client identifier there; if nothing is said, the name of this machine, a dot and the name of the bridge.",
    ),
    ("version", "`5` (if nothing is said) or `4`, which is MQTT 3.1.1."),
    ("clean", "`true`: the other broker forgets the session with each connection; QoS 2 is not exactly once then."),
    ("keep_alive", "Between two signs of life; 60s if nothing is said."),
    (
        "notifications",
        "Tell the other broker, at `$SYS/broker/connection/ID/state`, whether the bridge stands; `true` if nothing is said.",
    ),
];

pub const TOPIC_FIELDS: Fields = &[
    ("filter", "A topic filter, without the prefixes. Needed."),
    ("direction", "`out` (if nothing is said), `in` or `both`."),
    ("qos", "0, 1 or 2: the best quality of service; 1 if nothing is said."),
    ("local_prefix", "What topics here begin with, and topics there do not."),
    ("remote_prefix", "What topics there begin with, and topics here do not."),
];

pub const TLS_FIELDS: Fields = &[
    ("ca", "Certificates to trust, PEM; if nothing is said, those of the operating system."),
    ("cert", "Our own certificate chain, PEM."),
    ("key", "Its private key, PEM."),
];

pub const SPOOL_FIELDS: Fields = &[
    ("bytes", "What may wait while the other broker cannot be reached; 256MiB if nothing is said."),
    ("keep", "`all` (if nothing is said), or `latest`: of each topic only the newest message waits."),
];

pub const PACE_FIELDS: Fields = &[
    ("max_rate", "Messages a second to the other broker at most; if nothing is said, as many as it bears."),
    ("window", "Messages under way at most, 1 to 1024; 256 if nothing is said."),
];

pub(super) type SpoolBytes = Size<{ 64 << 10 }, { 1 << 40 }>;
pub(super) const SPOOL_BYTES: u64 = 256 << 20;

/// All bridges that are sound; what is wrong goes to `problems`.
pub fn compile(raw: &[RawBlock], problems: &mut Vec<ConfigProblem>) -> Vec<BridgeSettings> {
    let mut bridges: Vec<BridgeSettings> = Vec::new();
    for raw in raw {
        let Some(bridge) = read(raw, problems) else { continue };
        if bridges.iter().any(|other| other.name == bridge.name) {
            let message = format!("there is another bridge of the name {:?}", bridge.name);
            problems.push(ConfigProblem::of_key(&raw.at, "bridge.name", message));
        }
        bridges.push(bridge);
    }
    if bridges.len() > BRIDGES_MAX {
        problems.push(ConfigProblem::general(format!("there are more than {BRIDGES_MAX} bridges")));
    }
    bridges
}

fn read(raw: &RawBlock, problems: &mut Vec<ConfigProblem>) -> Option<BridgeSettings> {
    let (before, folder) = (problems.len(), raw.at.folder());
    let mut bridge = BridgeSettings {
        name: String::new(),
        addresses: Vec::new(),
        user: None,
        password: None,
        client_id: None,
        version: Version::V5,
        is_clean: false,
        keep_alive: KEEP_ALIVE_DEFAULT,
        notifies: true,
        tls: raw.section("tls").map(|_| BridgeTls::default()),
        topics: TopicMap::default(),
        spool_bytes: SPOOL_BYTES,
        keep: SpoolKeep::All,
        pace: PaceConfig::default(),
    };
    let unfit = |value: &ConfigValue, set: Result<(), String>| set.map_err(|expected| value.unfit(&expected));
    read_fields("bridge", FIELDS, &raw.fields, problems, |field, value| {
        if field == "password_file" {
            // What is wrong with a file is said by itself.
            return set_password(&mut bridge, value, folder);
        }
        unfit(value, set(&mut bridge, field, value))
    });
    let tls = bridge.tls.get_or_insert_default();
    read_fields("bridge.tls", TLS_FIELDS, raw.section("tls").unwrap_or(&[]), problems, |field, value| {
        set_tls(tls, field, value, folder)
    });
    bridge.tls = bridge.tls.filter(|_| raw.section("tls").is_some());
    read_fields("bridge.spool", SPOOL_FIELDS, raw.section("spool").unwrap_or(&[]), problems, |field, value| {
        unfit(value, set_spool(&mut bridge, field, value))
    });
    read_fields("bridge.pace", PACE_FIELDS, raw.section("pace").unwrap_or(&[]), problems, |field, value| {
        unfit(value, set_pace(&mut bridge.pace, field, value))
    });
    let is_missing = |name: &str| !raw.fields.iter().any(|field| field.path == name);
    for needed in ["name", "address"].into_iter().filter(|name| is_missing(name)) {
        problems.push(ConfigProblem::of_key(&raw.at, "bridge", format!("a bridge needs \"{needed}\"")));
    }
    if bridge.password.is_some() && bridge.user.is_none() {
        problems.push(ConfigProblem::of_key(&raw.at, "bridge.password_file", "a password needs a \"user\", too"));
    }
    if let Some(BridgeTls { cert, key, .. }) = &bridge.tls
        && cert.is_some() != key.is_some()
    {
        problems.push(ConfigProblem::of_key(&raw.at, "bridge.tls", "\"cert\" and \"key\" belong together"));
    }
    bridge.topics = read_topics(raw, problems);
    (problems.len() == before).then_some(bridge)
}

fn read_topics(raw: &RawBlock, problems: &mut Vec<ConfigProblem>) -> TopicMap {
    let mut topics = Vec::new();
    if raw.topics.is_empty() {
        let problem = ConfigProblem::of_key(&raw.at, "bridge", "a bridge without topics carries nothing");
        problems.push(problem.with_hint("write [[bridge.topic]] and below it filter = \"sensors/#\"".to_owned()));
    }
    for (at, fields) in &raw.topics {
        let mut topic = BridgeTopic { qos: QoS::AtLeastOnce, ..BridgeTopic::default() };
        read_fields("bridge.topic", TOPIC_FIELDS, fields, problems, |field, value| {
            set_topic(&mut topic, field, value).map_err(|expected| value.unfit(&expected))
        });
        if !fields.iter().any(|field| field.path == "filter") {
            problems.push(ConfigProblem::of_key(at, "bridge.topic", "a topic needs \"filter\""));
            return TopicMap::default();
        }
        topics.push(topic);
    }
    TopicMap::new(topics).unwrap_or_else(|faults| {
        for fault in faults {
            let (at, fields) = raw.topics.get(fault.index).map_or((&raw.at, &[][..]), |(at, fields)| (at, fields));
            let origin = fields.iter().find(|field| field.path == fault.field).map_or(at, |field| &field.origin);
            problems.push(ConfigProblem::of_key(origin, &format!("bridge.topic.{}", fault.field), fault.message));
        }
        TopicMap::default()
    })
}

/// Or what was expected.
fn set(bridge: &mut BridgeSettings, field: &str, value: &ConfigValue) -> Result<(), String> {
    match field {
        "name" => bridge.name = name(value)?,
        "address" => bridge.addresses = addresses(value)?,
        "user" => bridge.user = Some(text(value)?),
        "client_id" => bridge.client_id = Some(client_id(value)?),
        "version" => {
            bridge.version = match (value, value.text()) {
                (ConfigValue::Integer(5), _) | (_, Some("5")) => Version::V5,
                (ConfigValue::Integer(4), _) | (_, Some("4" | "3.1.1")) => Version::V311,
                _ => return Err("5, or 4 for MQTT 3.1.1".to_owned()),
            };
        }
        "clean" => bridge.is_clean = bool::read(value, None).ok_or_else(bool::expected)?,
        "keep_alive" => {
            type KeepAlive = Span<5_000, 65_535_000>;
            let span = KeepAlive::read(value, None).ok_or_else(KeepAlive::expected)?;
            bridge.keep_alive = span.0.as_secs() as u16;
        }
        _ => bridge.notifies = bool::read(value, None).ok_or_else(bool::expected)?,
    }
    Ok(())
}

fn set_password(bridge: &mut BridgeSettings, value: &ConfigValue, folder: Option<&Path>) -> Result<(), String> {
    let path = PathBuf::read(value, folder).ok_or_else(|| value.unfit(&PathBuf::expected()))?;
    let read = std::fs::read_to_string(&path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    let password = read.lines().next().unwrap_or_default().trim_end_matches('\r');
    if password.is_empty() {
        return Err(format!("the first line of {} is empty", path.display()));
    }
    bridge.password = Some(BridgePassword(password.to_owned()));
    Ok(())
}

fn set_tls(tls: &mut BridgeTls, field: &str, value: &ConfigValue, folder: Option<&Path>) -> Result<(), String> {
    let path = PathBuf::read(value, folder).ok_or_else(|| value.unfit(&PathBuf::expected()))?;
    std::fs::File::open(&path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    let place = match field {
        "ca" => &mut tls.ca,
        "cert" => &mut tls.cert,
        _ => &mut tls.key,
    };
    *place = Some(path);
    Ok(())
}

fn set_spool(bridge: &mut BridgeSettings, field: &str, value: &ConfigValue) -> Result<(), String> {
    match field {
        "bytes" => bridge.spool_bytes = SpoolBytes::read(value, None).ok_or_else(SpoolBytes::expected)?.0,
        _ => {
            bridge.keep = match value.text() {
                Some("all") => SpoolKeep::All,
                Some("latest") => SpoolKeep::Latest,
                _ => return Err("\"all\" or \"latest\"".to_owned()),
            };
        }
    }
    Ok(())
}

fn set_pace(pace: &mut PaceConfig, field: &str, value: &ConfigValue) -> Result<(), String> {
    match field {
        "max_rate" => pace.rate_max = Some(number::<1, 1_000_000>(value)? as u32),
        _ => pace.window_max = number::<1, { WINDOW_MAX as u64 }>(value)? as u16,
    }
    Ok(())
}

fn set_topic(topic: &mut BridgeTopic, field: &str, value: &ConfigValue) -> Result<(), String> {
    let plain = || value.text().map(str::to_owned).ok_or_else(|| "text in quotes".to_owned());
    match field {
        "filter" => topic.filter = text(value)?,
        "direction" => {
            topic.direction = match value.text() {
                Some("out") => TopicDirection::Out,
                Some("in") => TopicDirection::In,
                Some("both") => TopicDirection::Both,
                _ => return Err("\"out\", \"in\" or \"both\"".to_owned()),
            };
        }
        "qos" => topic.qos = QoS::from_bits(number::<0, 2>(value)? as u8).unwrap_or_default(),
        "local_prefix" => topic.local_prefix = plain()?,
        _ => topic.remote_prefix = plain()?,
    }
    Ok(())
}

pub(super) fn text(value: &ConfigValue) -> Result<String, String> {
    let text = value.text().filter(|text| !text.is_empty());
    text.map(str::to_owned).ok_or_else(|| "text in quotes".to_owned())
}

pub(super) fn name(value: &ConfigValue) -> Result<String, String> {
    let is_plain = |text: &&str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    let text = value.text().filter(|text| !text.is_empty() && text.len() <= NAME_BYTES_MAX).filter(is_plain);
    text.map(str::to_owned).ok_or_else(|| format!("1 to {NAME_BYTES_MAX} letters, digits, \"-\", \"_\" and \".\""))
}

fn client_id(value: &ConfigValue) -> Result<String, String> {
    let text = value.text().filter(|text| !text.is_empty() && !text.contains(['/', '+', '#', '\0']));
    text.map(str::to_owned).ok_or_else(|| "text without \"/\", \"+\" and \"#\"".to_owned())
}

fn addresses(value: &ConfigValue) -> Result<Vec<(String, Option<u16>)>, String> {
    let list = match value {
        ConfigValue::List(list) => list.clone(),
        value => value.text().map(str::to_owned).into_iter().collect(),
    };
    let read: Option<Vec<_>> = list.iter().map(|text| address(text)).collect();
    read.filter(|list| (1..=ADDRESSES_MAX).contains(&list.len())).ok_or_else(|| {
        format!("an address such as \"10.0.0.5:1883\", \"[::1]:1883\" or \"broker.example\", or a list of 1 to {ADDRESSES_MAX}")
    })
}

fn address(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, rest.strip_prefix(':').or_else(|| rest.is_empty().then_some("")))
        }
        None => text.split_once(':').map_or((text, Some("")), |(host, port)| (host, Some(port))),
    };
    let is_host = !host.is_empty() && !host.contains(['/', '@', ' ', ',']);
    match port? {
        "" if is_host && !text.ends_with(':') => Some((host.to_owned(), None)),
        port => Some((host.to_owned(), Some(port.parse().ok().filter(|port| *port > 0)?))).filter(|_| is_host),
    }
}

pub(super) fn number<const MIN: u64, const MAX: u64>(value: &ConfigValue) -> Result<u64, String> {
    WholeNumber::<MIN, MAX>::read(value, None)
        .map(|WholeNumber(number)| number)
        .ok_or_else(WholeNumber::<MIN, MAX>::expected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file;

    fn bridges(text: &str) -> (Vec<BridgeSettings>, Vec<String>) {
        let contents = file::parse(Path::new("t.toml"), text);
        let mut problems = contents.problems;
        let bridges = compile(&contents.bridges, &mut problems);
        (bridges, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_bridge_is_read_with_all_its_parts() {
        let text = "[[bridge]]\nname = \"hub\"\naddress = [\"10.0.0.5:1884\", \"[::1]:1\", \"backup\"]\nversion = 4\n\
                    clean = true\n[[bridge.topic]]\nfilter = \"a/#\"\nqos = 2\n[[bridge.topic]]\nfilter = \"b\"\n\
                    direction = \"in\"\nlocal_prefix = \"x/\"\n[bridge.spool]\nbytes = \"1MiB\"\nkeep = \"latest\"\n\
                    [bridge.pace]\nmax_rate = 100\n[[bridge]]\nname = \"two\"\naddress = \"h\"\n[bridge.tls]\n\
                    [[bridge.topic]]\nfilter = \"#\"\n";
        let (bridges, problems) = bridges(text);
        assert_eq!(problems, [""; 0]);
        let hub = &bridges[0];
        let expected = [("10.0.0.5", Some(1884)), ("::1", Some(1)), ("backup", None)];
        assert_eq!(hub.addresses, expected.map(|(host, port)| (host.to_owned(), port)));
        assert_eq!(
            (hub.version, hub.is_clean, hub.keep, hub.spool_bytes),
            (Version::V311, true, SpoolKeep::Latest, 1 << 20)
        );
        assert_eq!(hub.pace, PaceConfig { rate_max: Some(100), ..PaceConfig::default() });
        assert_eq!(hub.topics.outward("a/b"), Some(("a/b".into(), QoS::ExactlyOnce)));
        assert_eq!(hub.topics.inward("b"), Some(("x/b".into(), QoS::AtLeastOnce)));
        assert_eq!((hub.tls.is_some(), bridges[1].tls.is_some()), (false, true));
    }

    #[test]
    fn f146_every_fault_of_a_bridge_has_its_place_and_what_was_expected() {
        let text = "[[bridge]]\nname = \"a/b\"\naddress = \"h:x\"\nversoin = 5\nversion = 3\n[bridge.pace]\nmax_rate = 0\n\
                    [bridge.spool]\nbytes = \"1KiB\"\n[[bridge.topic]]\nfilter = \"a/#/b\"\nqos = 3\n[[bridge]]\nuser = \"u\"\n";
        let found = bridges(text).1;
        let expected = [
            "t.toml:2:1: bridge.name: \"a/b\" does not fit: expected 1 to 64 letters",
            "t.toml:3:1: bridge.address: \"h:x\" does not fit: expected an address such as",
            "t.toml:4:1: bridge.versoin: unknown key; did you mean \"version\"?",
            "t.toml:5:1: bridge.version: 3 does not fit: expected 5, or 4 for MQTT 3.1.1",
            "t.toml:7:1: bridge.pace.max_rate: 0 does not fit: expected a whole number from 1 to 1000000",
            "t.toml:9:1: bridge.spool.bytes: \"1KiB\" does not fit: expected a size such as \"64KiB\", \"16MiB\" or \"1MB\", from 64KiB",
            "t.toml:12:1: bridge.topic.qos: 3 does not fit: expected a whole number from 0 to 2",
            "t.toml:11:1: bridge.topic.filter: \"a/#/b\" is no topic filter",
            "t.toml:14:1: bridge: a bridge needs \"name\"",
            "t.toml:14:1: bridge: a bridge needs \"address\"",
            "t.toml:14:1: bridge: a bridge without topics carries nothing; write [[bridge.topic]]",
        ];
        for part in expected {
            let count = found.iter().filter(|problem| problem.starts_with(part)).count();
            assert_eq!(count, 1, "{part} in {found:#?}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let text = "[[bridge]]\nname = \"a\"\naddress = \"h\"\nuser = \"u\"\npassword_file = \"/nonexistent/p\"\n\
                    [bridge.tls]\nca = \"/nonexistent/ca\"\n[[bridge.topic]]\nfilter = \"#\"\n";
        let found = bridges(text).1;
        assert!(found.iter().any(|it| it.contains("bridge.password_file: /nonexistent/p cannot be read")), "{found:?}");
        assert!(found.iter().any(|it| it.contains("bridge.tls.ca: /nonexistent/ca cannot be read")), "{found:?}");
    }
}
