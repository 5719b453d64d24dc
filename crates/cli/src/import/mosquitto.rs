//! mosquitto's words, line by line; docs/mosquitto.md is the same table for people. Pure: told lines, says settings.

use super::bridges::ConfBridges;
use super::listeners::ConfListeners;
use super::translation::{Translation, quoted};

/// A line that says something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConfLine {
    pub(super) word: String,
    pub(super) value: String,
    /// Its file: 0 is the one that was named, the others are included.
    file: usize,
    /// Name of the file, and number in it.
    place: String,
}

/// The lines of a file that are neither empty nor comments.
pub(super) fn lines(text: &str, name: &str, file: usize) -> Vec<ConfLine> {
    let numbered = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    let said = numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    said.map(|(number, line)| {
        let (word, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let place = format!("{name}:{number}");
        ConfLine { word: word.to_owned(), value: value.trim().to_owned(), file, place }
    })
    .collect()
}

/// What a word becomes.
enum Counterpart {
    /// This key, and how its value is written.
    Key(&'static str, fn(&str) -> Option<String>),
    /// There is none, and why.
    None(&'static str),
}

/// All lines, as a configuration of ours.
pub(super) fn translate(lines: &[ConfLine]) -> Translation {
    let mut translation = Translation::default();
    let mut listeners = ConfListeners::new(lines);
    let mut bridges = ConfBridges::default();
    let (mut file, mut above) = (0, (0, None));
    for line in lines {
        // Each file begins outside of listeners and connections, and ends its own; then the one that it is included in goes on.
        if line.file != file {
            let returns = line.file == 0;
            let at = if returns { above } else { (0, None) };
            if file == 0 {
                above = (listeners.current, bridges.current);
            }
            (listeners.current, bridges.current) = at;
            file = line.file;
        }
        if !bridges.take(line) && !listeners.take(line) {
            of_broker(&mut translation, line);
        }
    }
    listeners.place(&mut translation);
    bridges.place(&mut translation);
    translation
}

fn of_broker(translation: &mut Translation, line: &ConfLine) {
    match counterpart(&line.word) {
        Counterpart::None(why) => translation.leave_out(in_words(line), why),
        Counterpart::Key(key, write) => match write(&line.value) {
            // Of two listeners with different words the stricter holds: users are those of all listeners here.
            Some(value)
                if key == ANONYMOUS && translation.is_set_to(key, if value == "true" { "false" } else { "true" }) =>
            {
                translation.set(key, "false".to_owned());
                translation.leave_out(
                    in_words(line),
                    "listeners differ in this, and users hold for all of them: false is taken",
                );
            }
            // Kinds of log lines add up there; a level here has all that are more important.
            Some(value) if key == LOG_LEVEL && value != quoted("off") => {
                let set = translation.get(key).map(str::to_owned);
                let rank = |level: &str| LEVELS.iter().position(|known| quoted(known) == level);
                let most = set.filter(|set| rank(set) > rank(&value)).unwrap_or(value);
                translation.set(key, most);
            }
            Some(value) => translation.set(key, value),
            None if line.value == "0" => translation.leave_out(in_words(line), "0 is without end there, and none here"),
            None => translation.leave_out(in_words(line), "no such value here"),
        },
    }
}

/// A line as it was, without secrets.
pub(super) fn in_words(line: &ConfLine) -> String {
    let is_secret = line.word.ends_with("password") || line.word == "bridge_psk";
    let value = if is_secret { "…" } else { &line.value };
    format!("{} {} {value}", line.place, line.word).trim_end().to_owned()
}

const LOG_LEVEL: &str = "log.level";
/// Each says what those before it say, and more.
const LEVELS: [&str; 5] = ["off", "error", "warn", "info", "debug"];
const ANONYMOUS: &str = "security.allow_anonymous";
/// Words of a bridge, where none began.
const NO_CONNECTION: &str = "it belongs to a connection, and there is none before it";
/// Why a line is not missed.
const AS_IT_IS: &str = "needs no word here";

fn counterpart(word: &str) -> Counterpart {
    use Counterpart::{Key, None};
    match word {
        "allow_anonymous" => Key(ANONYMOUS, truth),
        "password_file" => Key("security.password_file", path),
        "acl_file" => Key("security.acl_file", path),
        "use_username_as_clientid" => Key("security.bind_client_ids", truth),
        "max_connections" => Key("limits.connections_max", whole),
        "max_inflight_messages" => Key("limits.inflight_max", counted),
        "max_queued_messages" => Key("limits.queue_messages_max", counted),
        "max_queued_bytes" => Key("limits.queue_bytes_max", bytes),
        "queue_qos0_messages" => Key("limits.queue_qos0", truth),
        "max_packet_size" | "message_size_limit" => Key("limits.packet_bytes_max", bytes),
        "max_keepalive" => Key("limits.keep_alive_max", seconds),
        "max_qos" => Key("limits.qos_max", whole),
        "max_topic_alias" => Key("limits.topic_alias_max", whole),
        "memory_limit" => Key("limits.memory", bytes),
        "retain_available" => Key("limits.retain_available", truth),
        "persistent_client_expiration" => Key("limits.session_expiry_v3", expiry),
        "sys_interval" => Key("sys.interval", interval),
        "persistence" => Key("store.keep", truth),
        "log_type" => Key(LOG_LEVEL, level),
        "include_dir" => None("read, too"),
        "set_tcp_nodelay"
        | "allow_zero_length_clientid"
        | "auto_id_prefix"
        | "pid_file"
        | "user"
        | "log_dest"
        | "log_facility"
        | "log_timestamp"
        | "log_timestamp_format"
        | "connection_messages"
        | "autosave_interval"
        | "autosave_on_changes"
        | "persistence_file"
        | "websockets_log_level"
        | "websockets_headers_size"
        | "upgrade_outgoing_qos"
        | "allow_duplicate_messages"
        | "check_retain_source"
        | "max_inflight_bytes" => None(AS_IT_IS),
        "persistence_location" => None("its mosquitto.db is not read; server.data is the folder of this broker"),
        "per_listener_settings" => None("users, rules and limits hold for all listeners"),
        "plugin" | "auth_plugin" | "plugin_opt_config_file" => None("there are no plugins"),
        "use_identity_as_username" | "use_subject_as_username" => None("the name of a certificate is the user, always"),
        "mount_point" | "clientid_prefixes" => None("rules with %u and %c keep clients apart"),
        "bind_interface" | "socket_domain" => None("bind an address instead"),
        "http_dir" => None("put a web server before it"),
        "psk_file" | "psk_hint" | "ciphers" | "ciphers_tls1.3" | "tls_version" | "dhparamfile" | "tls_engine"
        | "capath" => None("TLS 1.2 and 1.3 with sound ciphers, and certificates, only"),
        "address"
        | "addresses"
        | "topic"
        | "cleansession"
        | "start_type"
        | "restart_timeout"
        | "round_robin"
        | "try_private"
        | "notifications"
        | "notifications_local_only"
        | "notification_topic"
        | "keepalive_interval"
        | "idle_timeout"
        | "threshold" => None(NO_CONNECTION),
        word if word.starts_with("bridge_") || word.starts_with("remote_") || word.starts_with("local_") => {
            None(NO_CONNECTION)
        }
        word if word.starts_with("auth_opt_") => None("there are no plugins"),
        _ => None("nobody here knows this word"),
    }
}

fn truth(value: &str) -> Option<String> {
    matches!(value, "true" | "false").then(|| value.to_owned())
}

fn path(value: &str) -> Option<String> {
    (!value.is_empty()).then(|| quoted(value))
}

fn whole(value: &str) -> Option<String> {
    value.parse::<u32>().ok().map(|number| number.to_string())
}

/// 0 is without end there, and zero here.
fn counted(value: &str) -> Option<String> {
    whole(value).filter(|number| number != "0")
}

fn bytes(value: &str) -> Option<String> {
    counted(value).map(|number| quoted(&format!("{number}B")))
}

fn seconds(value: &str) -> Option<String> {
    counted(value).map(|number| quoted(&format!("{number}s")))
}

fn interval(value: &str) -> Option<String> {
    if value == "0" { Some(quoted("off")) } else { seconds(value) }
}

/// A number with h, d, w, m (month) or y.
fn expiry(value: &str) -> Option<String> {
    let number: u64 = value.get(..value.len().checked_sub(1)?)?.parse().ok()?;
    let hours = match value.chars().last()? {
        'h' => 1,
        'd' => 24,
        'w' => 24 * 7,
        'm' => 24 * 30,
        'y' => 24 * 365,
        _ => return None,
    };
    Some(quoted(&format!("{}h", number.checked_mul(hours)?)))
}

fn level(value: &str) -> Option<String> {
    let level = match value {
        "none" => "off",
        "error" => "error",
        "warning" => "warn",
        "notice" | "information" => "info",
        "all" | "debug" => "debug",
        _ => return None,
    };
    Some(quoted(level))
}
