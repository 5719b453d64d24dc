//! Settings with a meaning of their own: addresses, log level and format, priorities.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::sync::Arc;

use tidegate_admin::HttpTarget;
use tidegate_broker::config::PredefinedTopics;
use tidegate_core::classes::{ClassBy, ClassRole, OnFull, PriorityMode};
use tidegate_space::limits::SERVICES_MAX;
use tidegate_space::{Policy, PoolRule, ServiceEndpoint};
use tidegate_store::Durability;
use tracing::level_filters::LevelFilter;

use super::ConfigValue;
use super::setting::{Auto, Off, Or, Setting};

/// An address to listen on. Loopback unless another one is written, so that nothing is opened to the world by accident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindAddress(pub SocketAddr);

impl Setting for BindAddress {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        let text = value.text()?.trim();
        if let Ok(address) = text.parse() {
            return Some(Self(address));
        }
        // `localhost` is 127.0.0.1 here: where it means ::1, clients that only try IPv4 find nobody.
        let port = text.strip_prefix("localhost:").unwrap_or(text).parse().ok()?;
        Some(Self(SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
    }

    fn expected() -> String {
        "\"PORT\" (this machine only), \"HOST:PORT\" with an IP address or localhost (\"0.0.0.0:1883\" is all \
         addresses), \"[V6]:PORT\" (port 0 takes a free one)"
            .to_owned()
    }

    fn show(&self) -> String {
        format!("\"{}\"", self.0)
    }
}

/// Where another broker is: a name or an address, a port, and whether it is spoken to over TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamAddress {
    /// An address of IPv6 without brackets.
    pub host: String,
    pub port: u16,
    pub is_tls: bool,
}

impl UpstreamAddress {
    /// Host and port, as people write them.
    pub fn place(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl Setting for UpstreamAddress {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        let text = value.text()?.trim();
        let (is_tls, usual, place) = match text.split_once("://") {
            Some(("mqtts", place)) => (true, Some(8883), place),
            Some(("mqtt", place)) => (false, Some(1883), place),
            Some(_) => return None,
            None => (false, None, text),
        };
        let number = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
        if let Some(port) = number(place) {
            return Some(Self { host: "127.0.0.1".to_owned(), port, is_tls });
        }
        let (host, port) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, rest)) => {
                let _: std::net::Ipv6Addr = host.parse().ok()?;
                (host, rest.strip_prefix(':').map_or(usual.filter(|_| rest.is_empty()), number)?)
            }
            None => match place.split_once(':') {
                Some((host, port)) => (host, number(port)?),
                None => (place, usual?),
            },
        };
        let is_name = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-_:".contains(c));
        is_name.then(|| Self { host: host.to_owned(), port, is_tls })
    }

    fn expected() -> String {
        "\"HOST:PORT\" of an MQTT broker, with a name or an address, \"mqtts://HOST:PORT\" if it wants TLS, or \"PORT\" on this \
         machine"
            .to_owned()
    }

    fn show(&self) -> String {
        let scheme = if self.is_tls { "mqtts://" } else { "" };
        format!("\"{scheme}{}\"", self.place())
    }
}

/// When something counts as kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durable(pub Durability);

impl Setting for Durable {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        value.text()?.trim().parse().ok().map(Self)
    }

    fn expected() -> String {
        "\"always\", \"interval:TIME\" with a time of 1ms to 60s, or \"off\"".to_owned()
    }

    fn show(&self) -> String {
        format!("\"{}\"", self.0)
    }
}

/// A listener: an address, or switched off.
pub type Door = Or<Off, BindAddress>;

/// A listener that is only opened by itself when something else is so: a certificate is there, or no users are.
pub type SecureDoor = Or<Auto, Door>;

/// Pages that may use a door, by their origins as browsers send them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins(pub Vec<String>);

impl Setting for Origins {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        let list: Vec<String> = match value {
            ConfigValue::List(list) => list.iter().map(|origin| origin.trim().to_ascii_lowercase()).collect(),
            ConfigValue::Bare(text) => text.split(',').map(|origin| origin.trim().to_ascii_lowercase()).collect(),
            _ => return None,
        };
        list.iter().all(|origin| is_origin(origin)).then_some(Self(list))
    }

    fn expected() -> String {
        "a list of origins such as [\"https://app.example\", \"http://10.0.0.7:3000\"], each with scheme, name and \
         port and nothing behind them, or [\"*\"] for every page"
            .to_owned()
    }

    fn show(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// An address by which everybody of a network is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EverybodyAddress(pub SocketAddrV4);

impl Setting for EverybodyAddress {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        let address: SocketAddrV4 = value.text()?.trim().parse().ok()?;
        (!address.ip().is_unspecified() && address.port() != 0).then_some(Self(address))
    }

    fn expected() -> String {
        "\"IPV4:PORT\" of a group (\"239.255.18.85:1885\") or of a broadcast address (\"192.168.1.255:1885\")"
            .to_owned()
    }

    fn show(&self) -> String {
        format!("\"{}\"", self.0)
    }
}

/// Topics of MQTT-SN by identifiers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicIds(pub Arc<PredefinedTopics>);

impl Setting for TopicIds {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        let list: Vec<&str> = match value {
            ConfigValue::List(list) => list.iter().map(String::as_str).collect(),
            ConfigValue::Bare(text) => text.split(',').map(str::trim).collect(),
            _ => return None,
        };
        PredefinedTopics::parse(list).ok().map(|topics| Self(Arc::new(topics)))
    }

    fn expected() -> String {
        "a list of identifiers from 1 to 65534 with their topics, such as [\"1=room/t\", \"2=alarm\"], each of them once"
            .to_owned()
    }

    fn show(&self) -> String {
        format!("{:?}", self.0.texts().collect::<Vec<_>>())
    }
}

/// `scheme://host[:port]` as RFC 6454 has it, or the star.
fn is_origin(text: &str) -> bool {
    let is_plain = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic() && !"/?#@*,".contains(c));
    text == "*" || text.split_once("://").is_some_and(|(scheme, host)| is_plain(scheme) && is_plain(host))
}

/// Endpoints that queries with `SERVICE` may ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceList(pub Vec<ServiceEndpoint>);

impl Setting for ServiceList {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        let list: Vec<ServiceEndpoint> = match value {
            ConfigValue::List(list) => {
                list.iter().map(|iri| ServiceEndpoint::parse(iri.trim())).collect::<Option<_>>()?
            }
            ConfigValue::Bare(text) => {
                text.split(',').map(|iri| ServiceEndpoint::parse(iri.trim())).collect::<Option<_>>()?
            }
            _ => return None,
        };
        (list.len() <= SERVICES_MAX).then_some(Self(list))
    }

    fn expected() -> String {
        format!(
            "a list of at most {SERVICES_MAX} addresses such as [\"http://10.0.0.7:7878/sparql\"], without TLS, users and \
             passwords"
        )
    }

    fn show(&self) -> String {
        format!("{:?}", self.0.iter().map(ToString::to_string).collect::<Vec<_>>())
    }
}

/// A collector of metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    url: String,
    pub collector: HttpTarget,
}

impl Setting for Receiver {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        let url = value.text()?.trim();
        Some(Self { url: url.to_owned(), collector: tidegate_admin::collector(url)? })
    }

    fn expected() -> String {
        "\"http://HOST:PORT\" of a collector that takes OTLP over HTTP (port 4318 unless another one is written)"
            .to_owned()
    }

    fn show(&self) -> String {
        format!("{:?}", self.url)
    }
}

/// Who is told of alarms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlarmReceiver(pub HttpTarget);

impl Setting for AlarmReceiver {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        tidegate_admin::alarm_receiver(value.text()?.trim()).map(Self)
    }

    fn expected() -> String {
        "\"http://HOST:PORT/PATH\" that takes a POST with JSON".to_owned()
    }

    fn show(&self) -> String {
        format!("\"{}\"", self.0)
    }
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLevel(pub LevelFilter);

const LEVELS: &[(&str, LevelFilter)] = &[
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

impl Setting for LogLevel {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        let text = value.text()?;
        LEVELS.iter().find(|(name, _)| *name == text).map(|(_, level)| Self(*level))
    }

    fn expected() -> String {
        "\"off\", \"error\", \"warn\", \"info\", \"debug\" or \"trace\"".to_owned()
    }

    fn show(&self) -> String {
        format!("\"{}\"", self.0)
    }
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// `ts=… level=… msg=… key=value`
    Text,
    /// One object per line.
    Json,
}

impl Setting for LogFormat {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        match value.text()? {
            "text" => Some(Self::Text),
            "json" => Some(Self::Json),
            _ => None,
        }
    }

    fn expected() -> String {
        "\"text\" or \"json\"".to_owned()
    }

    fn show(&self) -> String {
        match self {
            Self::Text => "\"text\"".to_owned(),
            Self::Json => "\"json\"".to_owned(),
        }
    }
}

/// Whose a client identifier is. Once a switch: `true` and `false` mean what they meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindIds {
    /// Nobody's: a session gives way while its user is away.
    Off,
    /// Its user's, for as long as the session lives.
    Sessions,
    /// The user's whose name it is or begins with.
    Names,
}

impl Setting for BindIds {
    fn read(value: &ConfigValue, folder: Option<&Path>) -> Option<Self> {
        if value.text().is_some_and(|text| text.trim() == "session") {
            return Some(Self::Sessions);
        }
        bool::read(value, folder).map(|by_name| if by_name { Self::Names } else { Self::Off })
    }

    fn expected() -> String {
        "\"session\", true or false".to_owned()
    }

    fn show(&self) -> String {
        match self {
            Self::Off => "false",
            Self::Sessions => "\"session\"",
            Self::Names => "true",
        }
        .to_owned()
    }
}

/// A setting that is one of a few words.
macro_rules! one_of {
    ($(#[$doc:meta])* $type:ident($inner:ty) { $($word:literal = $value:expr,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $type(pub $inner);

        impl $type {
            /// The words, as they are written, with what they mean.
            const WORDS: &[(&str, $inner)] = &[$(($word, $value)),+];
        }

        impl Setting for $type {
            fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
                let text = value.text()?;
                Self::WORDS.iter().find(|(word, _)| *word == text).map(|(_, value)| Self(*value))
            }

            fn expected() -> String {
                let words: Vec<String> = Self::WORDS.iter().map(|(word, _)| format!("{word:?}")).collect();
                format!("one of {}", words.join(", "))
            }

            fn show(&self) -> String {
                let word = Self::WORDS.iter().find(|(_, value)| *value == self.0);
                word.map_or_else(String::new, |(word, _)| format!("{word:?}"))
            }
        }
    };
}

one_of! {
    /// What happens to a request of the smart space that would wait too long.
    PolicyWord(Policy) {
        "deny" = Policy::Deny,
        "postpone" = Policy::Postpone,
        "drop-newest" = Policy::TailDrop,
        "drop-oldest" = Policy::HeadDrop,
    }
}

one_of! {
    /// Which request pool the smart space has.
    PoolRuleWord(PoolRule) {
        "practical" = PoolRule::Practical,
        "paper" = PoolRule::Paper,
    }
}

one_of! {
    /// Who is served first.
    PriorityWord(PriorityMode) {
        "practical" = PriorityMode::Practical,
        "paper" = PriorityMode::Paper,
        "off" = PriorityMode::Off,
    }
}

one_of! {
    /// What decides about the class of a message.
    ByWord(ClassBy) {
        "rules" = ClassBy::Rules,
        "rank" = ClassBy::Rank,
        "both" = ClassBy::Both,
    }
}

one_of! {
    /// What a full queue does.
    OnFullWord(OnFull) {
        "drop_longest" = OnFull::DropLongest,
        "drop_newest" = OnFull::DropNewest,
        "drop_oldest" = OnFull::DropOldest,
        "latest" = OnFull::Latest,
        "refuse" = OnFull::Refuse,
    }
}

one_of! {
    /// Who comes first at the smart space.
    RoleWord(ClassRole) {
        "service" = ClassRole::Service,
        "customer" = ClassRole::Customer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door(text: &str) -> Option<Door> {
        Door::read(&ConfigValue::Text(text.to_owned()), None)
    }

    #[test]
    fn f147_addresses_are_loopback_unless_said_otherwise() {
        let at = |text: &str| Some(Or::Is(BindAddress(text.parse().unwrap())));
        assert_eq!(door("0.0.0.0:1883"), at("0.0.0.0:1883"));
        assert_eq!(door("1884"), at("127.0.0.1:1884"));
        assert_eq!(door("localhost:0"), at("127.0.0.1:0"));
        assert_eq!(door("[::1]:1883"), at("[::1]:1883"));
        assert_eq!(door("off"), Some(Or::WORD));
        for bad in ["", ":1883", "host", "example.org:1883", "127.0.0.1", "127.0.0.1:70000", "on"] {
            assert_eq!(door(bad), None, "{bad}");
        }
    }

    #[test]
    fn origins_are_what_a_browser_sends_and_nothing_more() {
        let read =
            |list: &[&str]| Origins::read(&ConfigValue::List(list.iter().map(|&text| text.to_owned()).collect()), None);
        let app = || Some(Origins(vec!["https://app.example".to_owned()]));
        assert_eq!(read(&["https://App.example"]), app());
        assert_eq!(Origins::read(&ConfigValue::Bare("https://app.example".to_owned()), None), app());
        assert_eq!(read(&["*"]).map(|list| list.show()).as_deref(), Some("[\"*\"]"));
        assert_eq!(read(&[]), Some(Origins(Vec::new())), "no page at all");
        for bad in ["app.example", "https://", "https://app.example/", "https://*.example", "https://a b", ""] {
            assert_eq!(read(&[bad]), None, "{bad}");
        }
        assert_eq!(Origins::read(&ConfigValue::Text("https://app.example".into()), None), None, "a list has brackets");
    }

    #[test]
    fn f039_whose_an_identifier_is_was_once_a_switch() {
        let read = |value: ConfigValue| BindIds::read(&value, None);
        assert_eq!(read(ConfigValue::Text("session".into())), Some(BindIds::Sessions));
        assert_eq!(
            (read(ConfigValue::Boolean(true)), read(ConfigValue::Bare("false".into()))),
            (Some(BindIds::Names), Some(BindIds::Off))
        );
        assert_eq!((read(ConfigValue::Text("true".into())), read(ConfigValue::Text("name".into()))), (None, None));
    }

    #[test]
    fn levels_read_back() {
        for (name, level) in LEVELS {
            assert_eq!(LogLevel(*level).show(), format!("\"{name}\""));
        }
    }
}
