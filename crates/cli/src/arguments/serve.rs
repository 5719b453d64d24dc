//! Arguments of `tidegate serve`. Each flag is a key of the configuration under another name; what the values mean is
//! decided there, once for flags, environment and file.

use std::path::PathBuf;

use clap::Args;

use tidegate_server::config::{ConfigEntry, Sources};
use tidegate_server::serve::ServeCommand;

/// Arguments of `tidegate serve`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ServeArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Folder for what the broker keeps
    #[arg(long, value_name = "DIR")]
    data: Option<String>,

    /// Shard threads, or "auto" for one for every two cores
    #[arg(long, value_name = "N")]
    shards: Option<String>,

    /// MQTT over TCP
    #[arg(long, value_name = "ADDR|off", help_heading = "Listeners")]
    mqtt: Option<String>,

    /// MQTT over TLS (needs --cert and --key)
    #[arg(long, value_name = "ADDR|off", help_heading = "Listeners")]
    mqtts: Option<String>,

    /// MQTT over WebSocket, at /mqtt
    #[arg(long, value_name = "ADDR|off", help_heading = "Listeners")]
    ws: Option<String>,

    /// MQTT over secure WebSocket, at /mqtt (needs --cert and --key)
    #[arg(long, value_name = "ADDR|off", help_heading = "Listeners")]
    wss: Option<String>,

    /// CoAP over UDP: topics below /ps
    #[arg(long, value_name = "ADDR|off", help_heading = "Listeners")]
    coap: Option<String>,

    /// CoAP over DTLS (needs --psk-file, or --cert, --key and --client-ca)
    #[arg(long, value_name = "ADDR|off", help_heading = "Listeners")]
    coaps: Option<String>,

    /// MQTT-SN over UDP: a gateway in the broker
    #[arg(long, value_name = "ADDR|off", help_heading = "Listeners")]
    sn: Option<String>,

    /// Topics over HTTP, with server-sent events
    #[arg(long, value_name = "ADDR|off", help_heading = "Listeners")]
    http_topics: Option<String>,

    /// Topics over TLS (needs --cert and --key)
    #[arg(long, value_name = "ADDR|off", help_heading = "Listeners")]
    https_topics: Option<String>,

    /// AMQP 1.0
    #[arg(long, value_name = "ADDR|off", help_heading = "Listeners")]
    amqp: Option<String>,

    /// AMQP 1.0 over TLS (needs --cert and --key)
    #[arg(long, value_name = "ADDR|off", help_heading = "Listeners")]
    amqps: Option<String>,

    /// Smart-M3 (SSAP)
    #[arg(long, value_name = "ADDR|off", help_heading = "Listeners")]
    ssap: Option<String>,

    /// SPARQL and subscriptions over HTTP
    #[arg(long, value_name = "ADDR|off", help_heading = "Listeners")]
    http: Option<String>,

    /// Smart-M3 (SSAP) over TLS (needs --cert and --key)
    #[arg(long, value_name = "ADDR|off", help_heading = "Listeners")]
    ssaps: Option<String>,

    /// SPARQL and subscriptions over TLS (needs --cert and --key)
    #[arg(long, value_name = "ADDR|off", help_heading = "Listeners")]
    https: Option<String>,

    /// SPARQL where clients of SEPA look for it (port 8000)
    #[arg(long, value_name = "ADDR|off", help_heading = "Listeners")]
    sepa_http: Option<String>,

    /// Subscriptions where clients of SEPA look for them (port 9000)
    #[arg(long, value_name = "ADDR|off", help_heading = "Listeners")]
    sepa_ws: Option<String>,

    /// Status, clients, metrics and health over HTTP
    #[arg(long, value_name = "ADDR|off", help_heading = "Listeners")]
    admin: Option<String>,

    /// The same over TLS, for operators at other machines
    #[arg(long, value_name = "ADDR|off", help_heading = "Listeners")]
    admin_https: Option<String>,

    /// Certificate chain, PEM
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    cert: Option<String>,

    /// Private key, PEM
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    key: Option<String>,

    /// CA of client certificates, PEM; clients must then show one
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    client_ca: Option<String>,

    /// Keys of clients of CoAP over DTLS, "name:hexadecimal" on each line
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    psk_file: Option<String>,

    /// Users, from "tidegate user add" or mosquitto_passwd
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    password_file: Option<String>,

    /// Rules of access in mosquitto's format
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    acl_file: Option<String>,

    /// Let clients in without a user name, even from other machines
    #[arg(long, help_heading = "Security")]
    allow_anonymous: bool,

    /// off, error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", help_heading = "Logs")]
    log_level: Option<String>,

    /// text or json
    #[arg(long, value_name = "FORMAT", help_heading = "Logs")]
    log_format: Option<String>,

    /// Any other setting, as "config show" lists them: --set limits.receive_max=20
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Of `tidegate guard`.
    #[arg(skip)]
    upstream: UpstreamArgs,
}

/// The broker behind a guard.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct UpstreamArgs {
    /// The broker behind: HOST:PORT, or mqtts://HOST:PORT if it wants TLS (default: as the configuration file says)
    #[arg(short, long, value_name = "ADDR")]
    upstream: Option<String>,

    /// Certificates to trust behind mqtts://, PEM (default: those of the operating system)
    #[arg(long, value_name = "FILE")]
    upstream_ca: Option<String>,

    /// The certificate that the guard shows there, PEM
    #[arg(long, value_name = "FILE", requires = "upstream_key")]
    upstream_cert: Option<String>,

    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "upstream_cert")]
    upstream_key: Option<String>,
}

/// Arguments of `tidegate guard`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct GuardArgs {
    #[command(flatten)]
    upstream: UpstreamArgs,

    #[command(flatten)]
    serve: ServeArgs,
}

impl GuardArgs {
    /// The same as arguments of a process that serves.
    pub(crate) fn into_serve(self) -> ServeArgs {
        ServeArgs { upstream: self.upstream, ..self.serve }
    }
}

impl ServeArgs {
    /// What a person would type to reach the same files.
    pub(crate) fn command(&self) -> ServeCommand {
        let config = self.config.as_ref().map(|path| path.display().to_string());
        let flags = [("-c", config), ("--data", self.data.clone()), ("--password-file", self.password_file.clone())];
        let place = flags.into_iter().filter_map(|(flag, value)| Some(format!(" {flag} {}", in_shell(&value?))));
        ServeCommand { program: program(), place: place.collect() }
    }

    /// All that the configuration is made of when these are the arguments.
    pub(crate) fn sources(&self) -> Sources {
        Sources::of_process(self.config.clone(), self.entries())
    }

    /// The flags as values of the configuration.
    pub(crate) fn entries(&self) -> Vec<ConfigEntry> {
        // `--set` first: a flag with a name of its own is the more deliberate one.
        let split = |set: &String| {
            let (path, value) = set.split_once('=').unwrap_or((set, ""));
            ConfigEntry::flag("--set", path.trim(), value.trim())
        };
        let mut entries: Vec<ConfigEntry> = self.set.iter().map(split).collect();
        let flags = [
            ("--data", "server.data", &self.data),
            ("--shards", "server.shards", &self.shards),
            ("--mqtt", "listeners.mqtt", &self.mqtt),
            ("--mqtts", "listeners.mqtts", &self.mqtts),
            ("--ws", "listeners.ws", &self.ws),
            ("--wss", "listeners.wss", &self.wss),
            ("--coap", "listeners.coap", &self.coap),
            ("--coaps", "listeners.coaps", &self.coaps),
            ("--sn", "listeners.sn", &self.sn),
            ("--http-topics", "listeners.http_topics", &self.http_topics),
            ("--https-topics", "listeners.https_topics", &self.https_topics),
            ("--amqp", "listeners.amqp", &self.amqp),
            ("--amqps", "listeners.amqps", &self.amqps),
            ("--ssap", "listeners.ssap", &self.ssap),
            ("--http", "listeners.http", &self.http),
            ("--ssaps", "listeners.ssaps", &self.ssaps),
            ("--https", "listeners.https", &self.https),
            ("--sepa-http", "listeners.sepa_http", &self.sepa_http),
            ("--sepa-ws", "listeners.sepa_ws", &self.sepa_ws),
            ("--admin", "listeners.admin", &self.admin),
            ("--admin-https", "listeners.admin_https", &self.admin_https),
            ("--cert", "tls.cert", &self.cert),
            ("--key", "tls.key", &self.key),
            ("--client-ca", "tls.client_ca", &self.client_ca),
            ("--psk-file", "tls.psk_file", &self.psk_file),
            ("--password-file", "security.password_file", &self.password_file),
            ("--acl-file", "security.acl_file", &self.acl_file),
            ("--upstream", "guard.upstream", &self.upstream.upstream),
            ("--upstream-ca", "guard.ca", &self.upstream.upstream_ca),
            ("--upstream-cert", "guard.cert", &self.upstream.upstream_cert),
            ("--upstream-key", "guard.key", &self.upstream.upstream_key),
            ("--log-level", "log.level", &self.log_level),
            ("--log-format", "log.format", &self.log_format),
        ];
        let given = flags.into_iter().filter_map(|(flag, path, value)| Some((flag, path, value.as_deref()?)));
        entries.extend(given.map(|(flag, path, value)| ConfigEntry::flag(flag, path, value)));
        if self.allow_anonymous {
            entries.push(ConfigEntry::flag("--allow-anonymous", "security.allow_anonymous", "true"));
        }
        entries
    }
}

/// This program, as a person would call it again.
pub(crate) fn program() -> String {
    // `cargo run` and a path must be repeated as they are; a bare name is found again.
    let program = std::env::args().next().filter(|name| name.contains('/'));
    in_shell(&program.unwrap_or_else(|| "tidegate".to_owned()))
}

/// A word as a shell reads it back.
pub(crate) fn in_shell(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+:=@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_server::config::keys::SettingKey;

    #[test]
    fn every_flag_is_a_key() {
        let all = |value: &str| Some(value.to_owned());
        let args = ServeArgs {
            mqtt: all("off"),
            admin: all("off"),
            allow_anonymous: true,
            set: vec!["limits.receive_max = 20".to_owned()],
            ..ServeArgs::default()
        };
        let entries = args.entries();
        assert_eq!(entries.len(), 4);
        for entry in &entries {
            assert!(SettingKey::find(&entry.path).is_some(), "{}", entry.path);
        }
        assert_eq!(entries[0].path, "limits.receive_max");
    }
}
