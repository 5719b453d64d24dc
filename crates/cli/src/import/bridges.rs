//! mosquitto's `connection` blocks as `[[bridge]]`. Pure: told lines, says text.

use std::fmt::Write;

use super::mosquitto::{ConfLine, in_words};
use super::translation::{Translation, quoted};

/// Words after any of which a bridge is one with TLS.
const TLS_WORDS: [&str; 11] = [
    "bridge_alpn",
    "bridge_cafile",
    "bridge_capath",
    "bridge_certfile",
    "bridge_identity",
    "bridge_insecure",
    "bridge_keyfile",
    "bridge_psk",
    "bridge_require_ocsp",
    "bridge_tls_use_os_certs",
    "bridge_tls_version",
];

/// A `connection` and what was said of it.
#[derive(Debug, Default)]
pub(super) struct ConfBridge {
    /// The line that began it.
    line: String,
    name: String,
    addresses: Vec<String>,
    /// Fields of the bridge itself, as TOML writes them.
    fields: Vec<(&'static str, String)>,
    tls: Vec<(&'static str, String)>,
    /// Something was said of TLS: then it is not left out, whatever else is.
    is_encrypted: bool,
    /// It is encrypted by a key that both share, which there is no field for.
    has_shared_key: bool,
    topics: Vec<String>,
    left_out: Vec<(String, &'static str)>,
}

/// All of them, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct ConfBridges {
    all: Vec<ConfBridge>,
    /// The one that lines are about.
    pub(super) current: Option<usize>,
}

impl ConfBridges {
    /// Whether the line is about a bridge; then it is noted.
    pub(super) fn take(&mut self, line: &ConfLine) -> bool {
        if line.word == "connection" {
            self.current = Some(self.all.len());
            self.all.push(ConfBridge { line: in_words(line), name: plain_name(&line.value), ..ConfBridge::default() });
            return true;
        }
        if line.word == "listener" {
            self.current = None;
        }
        let bridge = self.current.and_then(|place| self.all.get_mut(place));
        bridge.is_some_and(|bridge| bridge.take(line))
    }

    pub(super) fn place(self, translation: &mut Translation) {
        for bridge in self.all {
            bridge.place(translation);
        }
    }
}

impl ConfBridge {
    fn take(&mut self, line: &ConfLine) -> bool {
        let value = line.value.as_str();
        self.is_encrypted |= TLS_WORDS.contains(&line.word.as_str());
        match line.word.as_str() {
            "address" | "addresses" => self.addresses.extend(value.split_whitespace().map(str::to_owned)),
            "topic" => match topic(value) {
                Some(text) => self.topics.push(text),
                None => self.leave_out(line, "no such topic here"),
            },
            "remote_username" | "username" => self.set("user", quoted(value)),
            "remote_clientid" | "clientid" => self.set("client_id", quoted(value)),
            "cleansession" => self.set_truth("clean", value),
            "notifications" => self.set_truth("notifications", value),
            "keepalive_interval" => self.set("keep_alive", quoted(&format!("{value}s"))),
            "bridge_protocol_version" => {
                self.set("version", if value == "mqttv50" { "5" } else { "4" }.to_owned());
            }
            "bridge_cafile" => self.tls.push(("ca", quoted(value))),
            "bridge_certfile" => self.tls.push(("cert", quoted(value))),
            "bridge_keyfile" => self.tls.push(("key", quoted(value))),
            "bridge_max_packet_size" | "bridge_max_topic_alias" => {
                self.leave_out(line, "what the other broker takes, it says itself");
            }
            "remote_password" | "password" => {
                self.leave_out(line, "put it into a file, and name the file with password_file of this bridge");
            }
            "try_private"
            | "round_robin"
            | "start_type"
            | "restart_timeout"
            | "idle_timeout"
            | "threshold"
            | "bridge_attempt_unsubscribe"
            | "bridge_outgoing_retain"
            | "bridge_reload_type"
            | "bridge_tcp_keepalive"
            | "bridge_tcp_user_timeout" => self.leave_out(line, "needs no word here"),
            "bridge_identity" | "bridge_psk" => {
                self.has_shared_key = true;
                self.leave_out(line, "TLS with certificates that are checked, only");
            }
            "bridge_capath" => {
                self.leave_out(line, "name one file with ca in [bridge.tls], or the system's are trusted");
            }
            "bridge_tls_use_os_certs" => {}
            word if TLS_WORDS.contains(&word) => self.leave_out(line, "TLS with certificates that are checked, only"),
            "notification_topic" | "notifications_local_only" | "bridge_bind_address" => {
                self.leave_out(line, "there is no such choice here");
            }
            word if word.starts_with("local_") => self.leave_out(line, "a bridge needs no user here"),
            _ => return false,
        }
        true
    }

    fn set(&mut self, field: &'static str, value: String) {
        self.fields.retain(|(known, _)| *known != field);
        self.fields.push((field, value));
    }

    fn set_truth(&mut self, field: &'static str, value: &str) {
        if matches!(value, "true" | "false") {
            self.set(field, value.to_owned());
        }
    }

    fn leave_out(&mut self, line: &ConfLine, why: &'static str) {
        self.left_out.push((in_words(line), why));
    }

    /// As TOML, behind everything that has a section.
    fn place(self, translation: &mut Translation) {
        for (line, why) in &self.left_out {
            translation.leave_out(line.clone(), why);
        }
        if self.addresses.is_empty() || self.topics.is_empty() {
            let why = "a bridge has an address and a topic";
            return translation.leave_out(self.line, why);
        }
        if self.has_shared_key {
            let why = "its TLS has a shared key and no certificates, and it is not to become a bridge without TLS";
            return translation.leave_out(self.line, why);
        }
        let addresses: Vec<String> = self.addresses.iter().map(|address| quoted(address)).collect();
        let mut text = format!("\n[[bridge]]\nname = {}\naddress = [{}]\n", quoted(&self.name), addresses.join(", "));
        // Without a word about it, mosquitto speaks 3.1.1.
        if !self.fields.iter().any(|(field, _)| *field == "version") {
            text.push_str("version = 4\n");
        }
        for (field, value) in &self.fields {
            let _ = writeln!(text, "{field} = {value}");
        }
        if self.is_encrypted {
            text.push_str("[bridge.tls]\n");
            for (field, value) in &self.tls {
                let _ = writeln!(text, "{field} = {value}");
            }
        }
        for topic in &self.topics {
            let _ = write!(text, "[[bridge.topic]]\n{topic}");
        }
        translation.add_list(text);
    }
}

/// `PATTERN [DIRECTION [QOS [LOCAL [REMOTE]]]]`; a prefix of two quotes is none.
fn topic(value: &str) -> Option<String> {
    let mut words = value.split_whitespace();
    let filter = words.next()?;
    let direction = words.next().unwrap_or("out");
    let qos: u8 = words.next().unwrap_or("0").parse().ok()?;
    let prefix = |word: Option<&str>| word.filter(|word| *word != "\"\"").unwrap_or_default().to_owned();
    let (local, remote) = (prefix(words.next()), prefix(words.next()));
    if !matches!(direction, "out" | "in" | "both") || qos > 2 || words.next().is_some() {
        return None;
    }
    let filter = if filter == "\"\"" { "" } else { filter };
    // With an empty pattern the prefixes are the topics.
    let (filter, local, remote) = match filter {
        "" if local == remote => (local.clone(), String::new(), String::new()),
        "" => return None,
        filter => (filter.to_owned(), local, remote),
    };
    let mut text = format!("filter = {}\ndirection = \"{direction}\"\nqos = {qos}\n", quoted(&filter));
    for (field, prefix) in [("local_prefix", local), ("remote_prefix", remote)] {
        if !prefix.is_empty() {
            let _ = writeln!(text, "{field} = {}", quoted(&prefix));
        }
    }
    Some(text)
}

/// A name as `[[bridge]]` takes it.
fn plain_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    name.chars().take(64).map(plain).collect()
}
