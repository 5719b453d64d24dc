//! The brokers of others: where they are found, what they are told, which version they are.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;

use super::cases::UserCheck;
use super::process::{BrokerNeeds, BrokerSource, Counters};

/// What mosquitto is told besides its port: nothing in the log. Its queue holds what 50 windows need,
/// and its window per subscriber is as large as the generator's.
const MOSQUITTO: &str = "\
log_type error
max_inflight_messages 100
set_tcp_nodelay true
";

/// How to get what is missing.
pub(super) const GET_MOSQUITTO: &str = "mosquitto is not on the PATH nor in /usr/sbin: apt-get install mosquitto, or say \
                                        --peer PATH";
/// How to get what is missing.
pub(super) const GET_RUMQTTD: &str = "rumqttd is not on the PATH nor in cargo's folder: cargo install rumqttd, or say \
                                      --rumqttd PATH";

/// Messages that may wait for a subscriber of mosquitto, unless a case says otherwise: enough for all windows.
const QUEUE_MAX: u32 = 10_000;

/// The user of `packets::USER`, and those of the zoo, who all have the same password.
const USERS: [&str; 8] = ["bench", "app", "fleet", "other", "north", "south", "east", "west"];
/// mosquitto's own hash of it, which ours reads too: PBKDF2 of 101 rounds, as mosquitto makes it.
const HASH: &str =
    "$7$101$dGlkZWdhdGViZW5j$aukWECl4i9AxNjzt/Xj3K0RnBeGUdxwh7YLM7foszl9O5xRHk9KXDi7iOYXdyNAOJBqkdg0u/q9lStQB1wKtnQ==";

/// Writes a file of users into a folder.
pub(super) fn password_file(folder: &Path) -> Result<PathBuf> {
    let file = folder.join("users");
    let lines = USERS.map(|user| format!("{user}:{HASH}\n"));
    std::fs::write(&file, lines.concat())?;
    Ok(file)
}

/// The configuration of mosquitto.
pub(super) fn mosquitto_config(port: u16, wish: &BrokerNeeds, folder: &Path) -> Result<String> {
    let often = if wish.counters == Counters::Often { "sys_interval 1\n" } else { "" };
    let queue_max = wish.queue_max.unwrap_or(QUEUE_MAX);
    let people = match wish.users {
        UserCheck::Nobody => "allow_anonymous true\n".to_owned(),
        UserCheck::One => format!("allow_anonymous false\npassword_file {}\n", password_file(folder)?.display()),
    };
    // It would become another user, who may not write into our folder.
    let disk = if wish.is_kept {
        format!("user root\npersistence true\npersistence_location {}/\n", folder.display())
    } else {
        "persistence false\n".to_owned()
    };
    Ok(format!("listener {port} 127.0.0.1\n{disk}{MOSQUITTO}max_queued_messages {queue_max}\n{people}{often}"))
}

/// The configuration of rumqttd: one listener for MQTT 3.1.1, room for all clients, windows as large as the generator's.
pub(super) fn rumqttd_config(port: u16) -> String {
    format!(
        "id = 0
[router]
id = 0
max_connections = 20000
max_outgoing_packet_count = 200
max_segment_size = 104857600
max_segment_count = 10
[v4.1]
name = \"bench\"
listen = \"127.0.0.1:{port}\"
next_connection_delay_ms = 0
[v4.1.connections]
connection_timeout_ms = 60000
max_payload_size = 1048576
max_inflight_count = 100
dynamic_filters = true
"
    )
}

/// Debian puts it into a folder that is not on everybody's PATH.
pub(super) fn find_mosquitto() -> Option<PathBuf> {
    find("mosquitto", [PathBuf::from("/usr/sbin")])
}

/// cargo puts it into a folder of its own.
pub(super) fn find_rumqttd() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let usual = || std::env::home_dir().map(|home| home.join(".cargo"));
    find("rumqttd", home.or_else(usual).map(|folder| folder.join("bin")))
}

fn find(name: &str, more: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(more).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Name and version of a broker, as far as it says.
pub(super) fn version(source: &BrokerSource) -> String {
    let said = match source {
        BrokerSource::Mosquitto(path) => first_version(path, "-h"),
        BrokerSource::Rumqttd(path) => first_version(path, "--version"),
        BrokerSource::Tidegate { .. } => Some(env!("CARGO_PKG_VERSION").to_owned()),
        BrokerSource::Relay | BrokerSource::Command(_) | BrokerSource::Running { .. } => None,
    };
    said.map_or_else(|| source.name(), |version| format!("{} {version}", source.name()))
}

fn first_version(path: &Path, flag: &str) -> Option<String> {
    let output = Command::new(path).arg(flag).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    version_in(&String::from_utf8_lossy(&output.stdout))
}

/// The first word with a number and a point.
fn version_in(text: &str) -> Option<String> {
    let is_version = |word: &&str| word.contains('.') && word.starts_with(|first: char| first.is_ascii_digit());
    text.split_whitespace().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_brokers_say() {
        let text = "mosquitto version 2.0.11\n\nmosquitto is an MQTT v5.0/v3.1.1 broker.\n";
        assert_eq!(version_in(text).as_deref(), Some("2.0.11"));
        assert_eq!(version_in("rumqttd 0.20.0\n").as_deref(), Some("0.20.0"));
        assert_eq!(version_in("nothing"), None);
    }

    #[test]
    fn configurations_name_the_port_and_the_counters() {
        let folder = tempfile::tempdir().unwrap();
        let config = |wish: BrokerNeeds| mosquitto_config(1999, &wish, folder.path()).unwrap();
        let usual = config(BrokerNeeds::NONE);
        assert!(usual.starts_with("listener 1999 127.0.0.1\n") && usual.contains("max_queued_messages 10000\n"));
        assert!(!usual.contains("sys_interval"));
        assert!(config(BrokerNeeds { counters: Counters::Often, ..BrokerNeeds::NONE }).ends_with("sys_interval 1\n"));
        let known = config(BrokerNeeds { users: UserCheck::One, queue_max: Some(7), ..BrokerNeeds::NONE });
        assert!(known.contains("allow_anonymous false\n") && known.contains("max_queued_messages 7\n"), "{known}");
        assert!(std::fs::read_to_string(folder.path().join("users")).unwrap().starts_with("bench:$7$"));
        assert!(rumqttd_config(1999).contains("listen = \"127.0.0.1:1999\"\n"));
    }
}
