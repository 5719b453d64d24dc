//! Listeners with rules of their own in the configuration file: `[[listener]]`.
//!
//! ```toml
//! [[listener]]
//! name = "factory"                     # else the kind and the port: "mqtts-8884"
//! kind = "mqtts"                       # mqtt, mqtts, ws, wss, http_topics, https_topics, amqp or amqps
//! address = "0.0.0.0:8884"
//! cert = "factory.pem"                 # else that of [tls]; with it key, client_ca and client_cert_required
//! key = "factory.key"
//! anonymous = false                    # else security.allow_anonymous
//! password_file = "factory-users"      # else the users of the broker
//! rules = "factory"                    # the [[security.rule]] with set = "factory", else those without a set
//! connections_max = 100                # beside limits.connections_max
//! proxy_protocol = ["10.0.0.7"]        # only these may connect, and say for whom
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;

use tidegate_broker::config::ListenerKind;
use tidegate_broker::{Fingerprint, listener_name};
use tidegate_core::classes::AddressRange;

use super::proofs::PinList;
use super::setting::{Setting, WholeNumber};
use super::words::BindAddress;
use super::{ConfigEntry, ConfigProblem, ConfigValue, Fields, Origin, read_fields};
use crate::plan::DOORS;

/// Listeners of one configuration: a broker with a hundred has another trouble.
pub const LISTENERS_MAX: usize = 64;

/// Every field with its meaning.
pub const FIELDS: Fields = &[
    ("kind", "What is spoken there: `mqtt`, `mqtts`, `ws`, `wss`, `http_topics`, `https_topics`, `amqp` or `amqps`."),
    ("address", "Where it listens, as in the section listeners."),
    (
        "name",
        "What it is called in logs, status and metrics: letters, digits, `-`, `_` and `.`. Unset: kind and port, `mqtts-8884`.",
    ),
    (
        "cert",
        "Certificate chain for `mqtts`, `wss` and `https_topics`, PEM. Unset: that of the section tls, with all that belongs to it.",
    ),
    ("key", "Private key of cert."),
    ("client_ca", "CA that signs client certificates, with cert."),
    ("crl", "Certificates of clients that were taken back, with client_ca."),
    ("client_pins", "The only client certificates that are let in, by SHA-256, with client_ca."),
    ("client_cert_required", "Whether, with client_ca, a client must show a certificate. Unset: true."),
    ("anonymous", "Whether clients without a user name are let in. Unset: security.allow_anonymous."),
    ("password_file", "Users of this listener alone. Unset: those of the broker."),
    ("acl_file", "Rules of access in mosquitto's format, for this listener alone."),
    ("rules", "The rules with this `set`, for this listener in place of those without one."),
    ("connections_max", "Connections at the same time here, beside limits.connections_max."),
    (
        "proxy_protocol",
        "A list of addresses of proxies such as `[\"10.0.0.7\", \"10.1.0.0/16\"]`: only they may connect, and each connection begins \
         with a PROXY header (version 1 or 2) that says where its client is.",
    ),
];

/// One listener, as it was written and found sound. What is unset is the broker's.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerSetting {
    pub name: &'static str,
    pub kind: ListenerKind,
    pub address: SocketAddr,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub client_ca: Option<PathBuf>,
    pub client_cert_required: bool,
    pub crl: Option<PathBuf>,
    pub client_pins: Vec<Fingerprint>,
    pub anonymous: Option<bool>,
    pub password_file: Option<PathBuf>,
    pub acl_file: Option<PathBuf>,
    pub rules: Option<String>,
    pub connections_max: Option<usize>,
    pub proxies: Vec<AddressRange>,
    /// Where it stands, for messages.
    pub origin: Origin,
}

impl ListenerSetting {
    /// Whether users or rules differ from the broker's.
    pub fn has_own_rules(&self) -> bool {
        self.anonymous.is_some() || self.password_file.is_some() || self.acl_file.is_some() || self.rules.is_some()
    }

    /// The same, wherever it stands in the file.
    pub fn says_the_same_as(&self, other: &Self) -> bool {
        *self == Self { origin: self.origin.clone(), ..other.clone() }
    }

    /// A problem with this field of it.
    pub fn problem(&self, field: &str, message: impl Into<String>) -> ConfigProblem {
        ConfigProblem::of_key(&self.origin, &format!("listener.{}.{field}", self.name), message)
    }

    /// Reads the fields of one listener; what is wrong goes to `problems`.
    pub fn read(at: &Origin, fields: &[ConfigEntry], problems: &mut Vec<ConfigProblem>) -> Option<Self> {
        let before = problems.len();
        let mut draft = ListenerDraft::default();
        read_fields("listener", FIELDS, fields, problems, |field, value| draft.set(field, value, at));
        for required in ["kind", "address"] {
            if !fields.iter().any(|entry| entry.path == required) {
                problems.push(ConfigProblem::of_key(at, "listener", format!("a listener needs \"{required}\"")));
            }
        }
        let (Some(kind), Some(address), true) = (draft.kind, draft.address, problems.len() == before) else {
            return None;
        };
        let usual = || format!("{}-{}", kind.name(), address.port());
        let setting = Self {
            name: listener_name(&draft.name.unwrap_or_else(usual)),
            kind,
            address,
            cert: draft.cert,
            key: draft.key,
            client_ca: draft.client_ca,
            client_cert_required: draft.client_cert_required.unwrap_or(true),
            crl: draft.crl,
            client_pins: draft.client_pins,
            anonymous: draft.anonymous,
            password_file: draft.password_file,
            acl_file: draft.acl_file,
            rules: draft.rules,
            connections_max: draft.connections_max,
            proxies: draft.proxies,
            origin: at.clone(),
        };
        setting.check(problems);
        (problems.len() == before).then_some(setting)
    }

    /// What its fields mean together.
    fn check(&self, problems: &mut Vec<ConfigProblem>) {
        let tls = [("cert", &self.cert), ("key", &self.key), ("client_ca", &self.client_ca)];
        for (field, _) in tls.iter().filter(|(_, path)| path.is_some() && !self.kind.is_encrypted()) {
            problems
                .push(self.problem(field, format!("there is no TLS at a listener of kind \"{}\"", self.kind.name())));
        }
        if self.kind.is_encrypted() && self.cert.is_some() != self.key.is_some() {
            problems.push(self.problem("cert", "a certificate needs its private key, and the key its certificate"));
        }
        if self.client_ca.is_some() && self.cert.is_none() && self.kind.is_encrypted() {
            problems
                .push(self.problem("client_ca", "a listener with a client_ca of its own needs its own cert and key"));
        }
        let needs_ca = [("crl", self.crl.is_some()), ("client_pins", !self.client_pins.is_empty())];
        for (field, _) in needs_ca.iter().filter(|(_, is_set)| *is_set && self.client_ca.is_none()) {
            problems.push(self.problem(field, "is about certificates of clients, and needs a client_ca"));
        }
        if self.acl_file.is_some() && self.rules.is_some() {
            problems.push(self.problem("rules", "a listener has rules or acl_file, and not both"));
        }
    }
}

/// Names that other listeners have, `bridge` where the broker's own bridges come in.
const TAKEN: &[&str] =
    &["admin", "admin_https", "http", "https", "ssap", "ssaps", "sepa_http", "sepa_ws", "map", "bridge"];

/// Refuses two of one name, and too many of them.
pub fn check_names(listeners: &[ListenerSetting], problems: &mut Vec<ConfigProblem>) {
    for (index, listener) in listeners.iter().enumerate() {
        let name = listener.name;
        if DOORS.iter().any(|(_, door)| *door == name) || TAKEN.contains(&name) {
            problems
                .push(listener.problem("name", format!("{name:?} is the name of a listener of the section listeners")));
        } else if listeners[..index].iter().any(|other| other.name == name) {
            let problem = listener.problem("name", format!("there is another listener {name:?}"));
            problems.push(problem.with_hint("give each a name of its own".to_owned()));
        }
    }
    if let Some(listener) = listeners.get(LISTENERS_MAX) {
        problems.push(listener.problem("name", format!("there are more than {LISTENERS_MAX} listeners")));
    }
}

#[derive(Default)]
struct ListenerDraft {
    name: Option<String>,
    kind: Option<ListenerKind>,
    address: Option<SocketAddr>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
    client_cert_required: Option<bool>,
    crl: Option<PathBuf>,
    client_pins: Vec<Fingerprint>,
    anonymous: Option<bool>,
    password_file: Option<PathBuf>,
    acl_file: Option<PathBuf>,
    rules: Option<String>,
    connections_max: Option<usize>,
    proxies: Vec<AddressRange>,
}

/// As many as a limit of all listeners may say.
type Places = WholeNumber<1, { u32::MAX as u64 }>;

impl ListenerDraft {
    /// Or what is wrong.
    fn set(&mut self, field: &str, value: &ConfigValue, at: &Origin) -> Result<(), String> {
        match field {
            "name" => self.name = Some(name(value)?),
            "kind" => self.kind = Some(kind(value)?),
            "address" => self.address = Some(read::<BindAddress>(value, at)?.0),
            "cert" => self.cert = Some(path(value, at)?),
            "key" => self.key = Some(path(value, at)?),
            "client_ca" => self.client_ca = Some(path(value, at)?),
            "client_cert_required" => self.client_cert_required = Some(read(value, at)?),
            "crl" => self.crl = Some(path(value, at)?),
            "client_pins" => self.client_pins = read::<PinList>(value, at)?.0,
            "anonymous" => self.anonymous = Some(read(value, at)?),
            "password_file" => self.password_file = Some(path(value, at)?),
            "acl_file" => self.acl_file = Some(path(value, at)?),
            "rules" => self.rules = Some(name(value)?),
            "connections_max" => self.connections_max = Some(read::<Places>(value, at)?.0 as usize),
            _ => self.proxies = proxies(value)?,
        }
        Ok(())
    }
}

fn read<S: Setting>(value: &ConfigValue, at: &Origin) -> Result<S, String> {
    S::read(value, at.folder()).ok_or_else(|| value.unfit(&S::expected()))
}

fn path(value: &ConfigValue, at: &Origin) -> Result<PathBuf, String> {
    read(value, at).map(|path: PathBuf| super::absolute(&path))
}

fn kind(value: &ConfigValue) -> Result<ListenerKind, String> {
    // Of CoAP there is one, one over DTLS, and one of MQTT-SN.
    let found = DOORS.iter().find(|(kind, name)| !kind.is_datagrams() && value.text() == Some(name));
    let expected = "\"mqtt\", \"mqtts\", \"ws\", \"wss\", \"http_topics\", \"https_topics\", \"amqp\" or \"amqps\"";
    found.map(|(kind, _)| *kind).ok_or_else(|| value.unfit(expected))
}

/// A name that fits a log line, a label of a metric and a table.
pub fn name(value: &ConfigValue) -> Result<String, String> {
    let is_fit = |text: &&str| {
        (1..=32).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    let expected = "1 to 32 letters, digits, \"-\", \"_\" and \".\"";
    value.text().filter(is_fit).map(str::to_owned).ok_or_else(|| value.unfit(expected))
}

fn proxies(value: &ConfigValue) -> Result<Vec<AddressRange>, String> {
    let list = if let ConfigValue::List(list) = value { list.as_slice() } else { &[] };
    let ranges: Option<Vec<AddressRange>> = list.iter().map(|text| text.parse().ok()).collect();
    let expected = "a list of addresses such as [\"10.0.0.7\", \"10.1.0.0/16\"]";
    ranges.filter(|ranges| !ranges.is_empty()).ok_or_else(|| value.unfit(expected))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::file;
    use super::*;

    fn listeners(text: &str) -> (Vec<ListenerSetting>, Vec<String>) {
        let contents = file::parse(Path::new("/etc/t.toml"), text);
        let mut problems = contents.problems;
        let found =
            contents.listeners.iter().filter_map(|(at, fields)| ListenerSetting::read(at, fields, &mut problems));
        let found: Vec<_> = found.collect();
        check_names(&found, &mut problems);
        (found, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn several_of_a_kind_have_names_of_their_own() {
        let (found, problems) = listeners(
            "[[listener]]\nkind = \"mqtt\"\naddress = \"1884\"\n[[listener]]\nname = \"factory\"\nkind = \"mqtts\"\n\
             address = \"0.0.0.0:8884\"\ncert = \"c.pem\"\nkey = \"/k.pem\"\nanonymous = false\nrules = \"f\"\n\
             connections_max = 7\nproxy_protocol = [\"10.0.0.0/8\"]\n",
        );
        assert_eq!(problems, [""; 0]);
        assert_eq!((found[0].name, found[1].name), ("mqtt-1884", "factory"));
        assert_eq!(found[1].cert.as_deref(), Some(Path::new("/etc/c.pem")), "beside the file");
        assert_eq!((found[1].anonymous, found[1].connections_max, found[1].proxies.len()), (Some(false), Some(7), 1));
        assert!(found[1].has_own_rules() && !found[0].has_own_rules());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let (_, problems) = listeners(
            "[[listener]]\nkind = \"coap\"\naddress = \"x\"\nadress = 1\n[[listener]]\nname = \"mqtt\"\nkind = \"mqtt\"\n\
             address = \"1\"\n[[listener]]\nkind = \"ws\"\n",
        );
        for words in [
            "/etc/t.toml:2:1: listener.kind: \"coap\" does not fit: expected \"mqtt\", \"mqtts\", \"ws\", \"wss\", \"http_topics\", \"https_topics\", \"amqp\" or \"amqps\"",
            "/etc/t.toml:3:1: listener.address: \"x\" does not fit",
            "/etc/t.toml:4:1: listener.adress: unknown key; did you mean \"address\"?",
            "listener.mqtt.name: \"mqtt\" is the name of a listener of the section listeners",
            "a listener needs \"address\"",
        ] {
            assert!(problems.iter().any(|problem| problem.contains(words)), "{words} in {problems:#?}");
        }
    }

    #[test]
    fn the_name_by_which_bridges_come_in_is_taken() {
        let (_, problems) = listeners("[[listener]]\nname = \"bridge\"\nkind = \"mqtt\"\naddress = \"1884\"\n");
        assert!(problems[0].contains("listener.bridge.name: \"bridge\" is the name of"), "{problems:?}");
    }

    #[test]
    fn two_of_one_name_and_tls_without_tls_are_refused() {
        let one = "[[listener]]\nkind = \"mqtt\"\naddress = \"1884\"\n";
        assert!(listeners(&format!("{one}{one}")).1[0].contains("there is another listener \"mqtt-1884\""));
        let (_, problems) = listeners(&format!("{one}cert = \"c\"\nrules = \"a\"\nacl_file = \"b\"\n"));
        assert!(
            problems.iter().any(|problem| problem.contains("there is no TLS at a listener of kind")),
            "{problems:?}"
        );
        assert!(problems.iter().any(|problem| problem.contains("and not both")), "{problems:?}");
        let secure = one.replace("mqtt", "wss");
        assert!(listeners(&format!("{secure}key = \"c\"\n")).1[0].contains("needs its private key"));
        assert!(listeners(&format!("{secure}client_ca = \"c\"\n")).1[0].contains("needs its own cert and key"));
    }
}
