//! mosquitto's listeners: the first of each kind is one of the section `[listeners]`, every other and each that has users,
//! rules, limits or a certificate of its own is a block `[[listener]]`. Pure.

use super::mosquitto::{ConfLine, in_words};
use super::translation::{Translation, quoted};

/// Protocols that this broker listens for unless it is told otherwise, and mosquitto does not.
const OTHERS: [&str; 7] = [
    "listeners.ws",
    "listeners.http",
    "listeners.ssap",
    "listeners.coap",
    "listeners.sn",
    "listeners.http_topics",
    "listeners.amqp",
];

/// A listener and what was said of it.
#[derive(Debug, Default)]
pub(super) struct ConfListener {
    /// The line that began it; none for the one that `port` and `bind_address` are about.
    line: Option<ConfLine>,
    port: Option<String>,
    address: Option<String>,
    is_websocket: bool,
    cert: Option<String>,
    key: Option<String>,
    ca: Option<String>,
    crl: Option<String>,
    needs_certificate: bool,
    connections_max: Option<ConfLine>,
    /// Only where each listener has settings of its own.
    anonymous: Option<bool>,
    password_file: Option<String>,
    acl_file: Option<String>,
}

/// All of them, in the order of the file.
#[derive(Debug)]
pub(super) struct ConfListeners {
    all: Vec<ConfListener>,
    /// The one that lines are about; 0 before any is named.
    pub(super) current: usize,
    /// `per_listener_settings true`: users and rules belong to the listener above them.
    are_apart: bool,
}

impl ConfListeners {
    pub(super) fn new(lines: &[ConfLine]) -> Self {
        let are_apart = lines.iter().any(|line| line.word == "per_listener_settings" && line.value == "true");
        Self { all: vec![ConfListener::default()], current: 0, are_apart }
    }

    /// Whether the line is about a listener; then it is noted.
    pub(super) fn take(&mut self, line: &ConfLine) -> bool {
        if line.word == "listener" {
            let mut words = line.value.split_whitespace().map(str::to_owned);
            let (port, address) = (words.next(), words.next());
            self.current = self.all.len();
            self.all.push(ConfListener { line: Some(line.clone()), port, address, ..ConfListener::default() });
            return true;
        }
        let (value, are_apart) = (Some(line.value.clone()), self.are_apart);
        if line.word == "port" || line.word == "bind_address" {
            let Some(first) = self.all.first_mut() else { return false };
            *(if line.word == "port" { &mut first.port } else { &mut first.address }) = value;
            return true;
        }
        let is_named = self.current > 0;
        let Some(last) = self.all.get_mut(self.current) else { return false };
        match line.word.as_str() {
            "protocol" => last.is_websocket = line.value == "websockets",
            "certfile" => last.cert = value,
            "keyfile" => last.key = value,
            "cafile" => last.ca = value,
            "crlfile" => last.crl = value,
            "require_certificate" => last.needs_certificate = line.value == "true",
            "max_connections" if is_named => last.connections_max = Some(line.clone()),
            "allow_anonymous" if are_apart => last.anonymous = Some(line.value == "true"),
            "password_file" if are_apart => last.password_file = value,
            "acl_file" if are_apart => last.acl_file = value,
            "per_listener_settings" => return are_apart,
            _ => return false,
        }
        true
    }

    /// What becomes of them.
    pub(super) fn place(&self, translation: &mut Translation) {
        let count = self.all.iter().filter(|listener| listener.port.is_some()).count();
        for listener in &self.all {
            listener.place(translation, count, self.are_apart);
        }
        // What mosquitto has not listened on must not be open because of a move: another protocol asks when it is wanted. Without
        // any listener it has MQTT for this machine, as this broker does.
        let has_others = ["listeners.mqtts", "listeners.ws", "listeners.wss"].iter().any(|key| translation.has(key));
        let mqtt = (has_others || translation.has_blocks()).then_some("listeners.mqtt");
        let closed: Vec<&'static str> = mqtt.into_iter().chain(OTHERS).filter(|key| !translation.has(key)).collect();
        for &key in &closed {
            translation.set(key, quoted("off"));
        }
        let names: Vec<&str> = closed.iter().filter_map(|key| key.strip_prefix("listeners.")).collect();
        if !names.is_empty() {
            translation.say(format!(
                "Off, because mosquitto has no such listener: {}. Delete a line of [listeners] to have that protocol on this machine.",
                names.join(", ")
            ));
        }
        // Users of one listener are not users of the broker.
        if self.are_apart && count > 0 {
            translation.leave_out(
                "per_listener_settings true".to_owned(),
                "users of a listener are none for the admin API, which asks nobody on this machine until `tidegate user add`",
            );
        }
    }
}

impl ConfListener {
    fn place(&self, translation: &mut Translation, count: usize, are_apart: bool) {
        let Some(port) = &self.port else { return };
        let said = self.line.as_ref().map_or_else(|| format!("port {port}"), in_words);
        let is_path = self.address.as_deref().is_some_and(|address| address.starts_with('/'));
        if is_path || port == "0" {
            return translation.leave_out(said, "no sockets of the file system: bind an address instead");
        }
        let (key, kind) = match (self.is_websocket, self.cert.is_some()) {
            (false, false) => ("listeners.mqtt", "mqtt"),
            (false, true) => ("listeners.mqtts", "mqtts"),
            (true, false) => ("listeners.ws", "ws"),
            (true, true) => ("listeners.wss", "wss"),
        };
        let host = match self.address.as_deref() {
            None => "0.0.0.0".to_owned(),
            Some(address) if address.contains(':') => format!("[{address}]"),
            Some(address) => address.to_owned(),
        };
        let address = quoted(&format!("{host}:{port}"));
        let asks_ca = self.ca.as_ref().filter(|_| self.needs_certificate);
        if let Some(ca) = self.ca.as_ref().filter(|_| !self.needs_certificate) {
            translation.leave_out(format!("cafile {ca}"), "certificates of clients are not asked for");
        }
        let crl = self.crl.as_ref().filter(|_| asks_ca.is_some());
        if let Some(crl) = self.crl.as_ref().filter(|_| asks_ca.is_none()) {
            translation.leave_out(format!("crlfile {crl}"), "certificates of clients are not asked for");
        }
        let files = [
            ("tls.cert", self.cert.as_ref()),
            ("tls.key", self.key.as_ref()),
            ("tls.client_ca", asks_ca),
            ("tls.crl", crl),
        ];
        let is_other_certificate = self.cert.is_some()
            && translation.has("tls.cert")
            && files.iter().any(|(key, path)| translation.get(key) != path.map(|path| quoted(path)).as_deref());
        let has_own = are_apart || (self.connections_max.is_some() && count > 1);
        if !has_own && !is_other_certificate && !translation.has(key) {
            translation.set(key, address);
            for (key, path) in files.into_iter().filter_map(|(key, path)| Some((key, path?))) {
                translation.set(key, quoted(path));
            }
            return self.limit_all(translation);
        }
        let mut block = vec![("kind", quoted(kind)), ("address", address)];
        for ((_, path), field) in files.iter().zip(["cert", "key", "client_ca", "crl"]) {
            block.extend(path.map(|path| (field, quoted(path))));
        }
        if are_apart {
            // mosquitto's word, where nothing is said.
            block.push(("anonymous", self.anonymous.unwrap_or(false).to_string()));
            block.extend(self.password_file.as_ref().map(|path| ("password_file", quoted(path))));
            block.extend(self.acl_file.as_ref().map(|path| ("acl_file", quoted(path))));
        }
        if let Some(line) = &self.connections_max {
            match line.value.parse::<u32>() {
                Ok(number) if number > 0 => block.push(("connections_max", number.to_string())),
                // -1 is mosquitto's word for no limit.
                _ => translation.leave_out(in_words(line), "no such number here, and none is no limit"),
            }
        }
        translation.add_block(block);
    }

    /// The limit of the only listener there is.
    fn limit_all(&self, translation: &mut Translation) {
        let Some(line) = &self.connections_max else { return };
        match line.value.parse::<u32>() {
            Ok(number) if number > 0 => translation.set("limits.connections_max", number.to_string()),
            _ => translation.leave_out(in_words(line), "no such value here"),
        }
    }
}
