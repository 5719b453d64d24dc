//! From what was typed about the connection to what the client needs.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use tidegate_wire_mqtt::{Limits, QoS, Version, topic};

use tidegate_program::{Trust, Usage};

use crate::arguments::{ConnectArgs, listener_of};
use crate::client::{BrokerAddress, ConnectOptions, WillMessage, properties};

/// Where to, how, and the topic if the URL had one.
#[derive(Debug)]
pub(crate) struct ConnectTarget {
    pub(crate) target: BrokerAddress,
    pub(crate) hello: ConnectOptions,
    pub(crate) topic: Option<String>,
}

/// The parts of `mqtt[s]://[user[:password]@]host[:port]/topic`. Nothing is decoded: `#` and `+` stand for themselves,
/// as in mosquitto's tools.
#[derive(Debug, Default, PartialEq, Eq)]
struct Url {
    is_secure: bool,
    user: Option<String>,
    password: Option<String>,
    host: String,
    port: Option<u16>,
    topic: Option<String>,
}

impl ConnectTarget {
    /// Judges the arguments.
    pub(crate) fn of(args: &ConnectArgs) -> Result<Self> {
        Self::judge(args).context(Usage)
    }

    fn judge(args: &ConnectArgs) -> Result<Self> {
        let url = match &args.url {
            Some(text) => parse_url(text).with_context(|| {
                format!("-L {text:?}: expected mqtt://[user[:password]@]host[:port]/topic, or mqtts://…")
            })?,
            None => {
                Url { host: args.host.clone().unwrap_or_else(|| HERE.to_owned()), port: args.port, ..Url::default() }
            }
        };
        let is_unnamed = args.url.is_none() && args.port.is_none() && args.host.is_none();
        let version = version(&args.protocol_version)?;
        let properties = properties::parse(&args.property)?;
        if !version.is_v5() && (!properties.is_empty() || args.session_expiry_interval.is_some()) {
            bail!("-D and -x need MQTT 5: add -V 5");
        }
        let clean_start = !args.disable_clean_session;
        if !clean_start && args.id.is_none() && args.id_prefix.is_none() && !version.is_v5() {
            bail!("-c keeps a session under a name: add -i ID");
        }
        if let Some((host, port)) = host_and_port(&url.host) {
            bail!("-h {:?} is a host and a port: give the port with -p, as in -h {host} -p {port}", url.host);
        }
        let wants_tls = args.cafile.is_some() || args.capath.is_some() || args.cert.is_some() || args.tls_use_os_certs;
        let tls = (url.is_secure || wants_tls || url.port == Some(8883)).then(|| trust(args)).transpose()?;
        if args.insecure && tls.is_none() {
            bail!(
                "--insecure says whom to trust and does not switch TLS on: add -p 8883, --cafile, --tls-use-os-certs or mqtts://"
            );
        }
        let usual = if tls.is_some() { 8883 } else { 1883 };
        let (host, port) = match is_unnamed.then(|| configured(tls.is_some())).flatten() {
            // A certificate is for names: the host stays as it is.
            Some(at) if tls.is_some() => (url.host, at.port()),
            Some(at) if at.port() != usual || !at.ip().is_loopback() => (at.ip().to_string(), at.port()),
            _ => (url.host, url.port.unwrap_or(usual)),
        };
        let hello = ConnectOptions {
            version,
            client_id: args.id.clone().unwrap_or_else(|| made_up_id(args.id_prefix.as_deref(), version)),
            clean_start,
            keep_alive: args.keepalive,
            user: args.username.clone().or(url.user),
            password: match args.pw.clone().or(url.password) {
                None => password_of_environment()?,
                given => given,
            },
            will: will(args)?,
            properties,
            // In MQTT 5 a kept session also needs a lifetime; without -x it is for ever, as in mosquitto's tools.
            session_expiry: args.session_expiry_interval.or((version.is_v5() && !clean_start).then_some(u32::MAX)),
            debug: args.debug,
        };
        Ok(Self { target: BrokerAddress { host, port, tls, from: args.bind }, hello, topic: url.topic })
    }
}

/// The broker of this machine.
const HERE: &str = "localhost";

/// Where the broker whose configuration is here listens.
fn configured(with_tls: bool) -> Option<SocketAddr> {
    listener_of(if with_tls { "listeners.mqtts" } else { "listeners.mqtt" })
}

/// `host:1884`, which is no host; an IPv6 address has more colons than one.
fn host_and_port(host: &str) -> Option<(&str, u16)> {
    let (name, port) = host.rsplit_once(':')?;
    let is_v6 = name.contains(':') && !name.ends_with(']');
    (!is_v6).then(|| Some((name.trim_matches(['[', ']']), port.parse().ok()?)))?
}

/// The broker chooses, except in MQTT 3.1, which knows no empty identifier.
fn made_up_id(prefix: Option<&str>, version: Version) -> String {
    match prefix {
        Some(prefix) => format!("{prefix}{}", std::process::id()),
        None if version == Version::V31 => format!("tidegate-{}", std::process::id()),
        None => String::new(),
    }
}

/// Names a file whose first line is the password: what stands there is in no list of processes or variables.
const PASSWORD_FILE: &str = "TIDEGATE_PASSWORD_FILE";

/// The password in the file that the environment names, if it names one.
pub(crate) fn password_of_environment() -> Result<Option<String>> {
    password_of_file(std::env::var_os(PASSWORD_FILE))
}

fn password_of_file(path: Option<std::ffi::OsString>) -> Result<Option<String>> {
    let Some(path) = path else { return Ok(None) };
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("{PASSWORD_FILE}: {}", std::path::Path::new(&path).display()))?;
    Ok(Some(text.lines().next().unwrap_or_default().to_owned()))
}

fn trust(args: &ConnectArgs) -> Result<Trust> {
    let newest_only = match args.tls_version.as_deref() {
        None | Some("tlsv1.2") => false,
        Some("tlsv1.3") => true,
        Some(other) => bail!("--tls-version {other:?}: expected tlsv1.2 or tlsv1.3"),
    };
    Ok(Trust {
        ca: args.cafile.clone(),
        ca_folder: args.capath.clone(),
        newest_only,
        alpn: args.tls_alpn.clone(),
        everybody: args.insecure,
        identity: args.cert.clone().zip(args.key.clone()),
    })
}

fn will(args: &ConnectArgs) -> Result<Option<WillMessage>> {
    let Some(name) = &args.will_topic else { return Ok(None) };
    check_topic(name)?;
    Ok(Some(WillMessage {
        topic: name.clone(),
        payload: args.will_payload.clone().unwrap_or_default().into_bytes(),
        qos: qos(args.will_qos),
        retain: args.will_retain,
    }))
}

/// A topic name that can be published to.
pub(crate) fn check_topic(name: &str) -> Result<()> {
    let limits = Limits { topic_levels_max: usize::MAX, ..Limits::default() };
    topic::check_name(name, &limits).map_err(|violation| anyhow::anyhow!("{name:?}: {}", violation.detail))
}

/// Clap has checked the range.
pub(crate) fn qos(bits: u8) -> QoS {
    QoS::from_bits(bits).unwrap_or_default()
}

fn version(text: &str) -> Result<Version> {
    Ok(match text {
        "5" | "mqttv5" => Version::V5,
        "311" | "3.1.1" | "mqttv311" => Version::V311,
        "31" | "3.1" | "mqttv31" => Version::V31,
        _ => bail!("-V {text:?}: expected 31, 311 or 5"),
    })
}

fn parse_url(text: &str) -> Option<Url> {
    let (scheme, rest) = text.split_once("://")?;
    let is_secure = match scheme {
        "mqtt" => false,
        "mqtts" => true,
        _ => return None,
    };
    let (authority, topic) = match rest.split_once('/') {
        Some((authority, topic)) => (authority, Some(topic.to_owned()).filter(|topic| !topic.is_empty())),
        None => (rest, None),
    };
    let (credentials, place) = match authority.rsplit_once('@') {
        Some((credentials, place)) => (Some(credentials), place),
        None => (None, authority),
    };
    let (user, password) = match credentials.map(|credentials| credentials.split_once(':').unwrap_or((credentials, "")))
    {
        Some((user, password)) => (Some(user.to_owned()), Some(password.to_owned()).filter(|text| !text.is_empty())),
        None => (None, None),
    };
    let (host, port) = split_port(place)?;
    Some(Url { is_secure, user, password, host, port, topic })
}

/// `host`, `host:port`, `[::1]` or `[::1]:port`.
fn split_port(place: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            (host, after.strip_prefix(':'))
        }
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    if host.is_empty() {
        return None;
    }
    let port = match port {
        Some(port) => Some(port.parse().ok()?),
        None => None,
    };
    Some((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let url = parse_url("mqtts://ann:s3:cret@broker.example:8884/a/b/#").unwrap();
        assert!(url.is_secure);
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("ann"), Some("s3:cret")));
        assert_eq!((url.host.as_str(), url.port, url.topic.as_deref()), ("broker.example", Some(8884), Some("a/b/#")));
        assert_eq!(parse_url("mqtt://h").unwrap(), Url { host: "h".into(), ..Url::default() });
        assert_eq!(parse_url("mqtt://[::1]:1884/t").unwrap().host, "::1");
        for bad in ["h/t", "http://h/t", "mqtt:///t", "mqtt://h:x/t", "mqtt://[::1/t"] {
            assert_eq!(parse_url(bad), None, "{bad}");
        }
    }

    fn args() -> ConnectArgs {
        ConnectArgs { host: Some("h".into()), protocol_version: "311".into(), ..ConnectArgs::default() }
    }

    #[test]
    fn ports_follow_tls() {
        assert_eq!(ConnectTarget::of(&args()).unwrap().target.port, 1883);
        let secure = ConnectTarget::of(&ConnectArgs { tls_use_os_certs: true, ..args() }).unwrap();
        assert_eq!((secure.target.port, secure.target.tls.is_some()), (8883, true));
        let insecure = ConnectTarget::of(&ConnectArgs { insecure: true, port: Some(8883), ..args() }).unwrap();
        assert!(insecure.target.tls.is_some_and(|trust| trust.everybody));
        let by_port = ConnectTarget::of(&ConnectArgs { port: Some(8883), ..args() }).unwrap();
        assert!(by_port.target.tls.is_some());
    }

    #[test]
    fn only_the_oldest_version_needs_a_made_up_identifier() {
        let id = |version: &str| {
            ConnectTarget::of(&ConnectArgs { protocol_version: version.into(), ..args() }).unwrap().hello.client_id
        };
        assert_eq!((id("311"), id("5")), (String::new(), String::new()));
        assert!(id("31").starts_with("tidegate-"));
    }

    #[test]
    fn a_prefix_is_followed_by_the_process() {
        let id = ConnectTarget::of(&ConnectArgs { id_prefix: Some("lamp-".into()), ..args() }).unwrap().hello.client_id;
        assert_eq!(id, format!("lamp-{}", std::process::id()));
    }

    #[test]
    fn a_password_may_stand_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pw");
        std::fs::write(&path, "secret\nmore\n").unwrap();
        assert_eq!(password_of_file(Some(path.into())).unwrap().as_deref(), Some("secret"));
        assert_eq!(password_of_file(None).unwrap(), None);
        let missing = format!("{:#}", password_of_file(Some("/nonexistent".into())).unwrap_err());
        assert!(missing.starts_with("TIDEGATE_PASSWORD_FILE: /nonexistent: "), "{missing}");
    }

    #[test]
    fn what_does_not_go_together_is_said() {
        let refused = |args: ConnectArgs| format!("{:#}", ConnectTarget::of(&args).unwrap_err());
        let refused_expiry = refused(ConnectArgs { session_expiry_interval: Some(1), ..args() });
        assert_eq!(refused_expiry, "wrong usage: -D and -x need MQTT 5: add -V 5");
        assert!(refused(ConnectArgs { insecure: true, ..args() }).contains("does not switch TLS on"));
        let with_port = refused(ConnectArgs { host: Some("127.0.0.1:19081".into()), ..args() });
        assert!(with_port.ends_with("give the port with -p, as in -h 127.0.0.1 -p 19081"), "{with_port}");
        assert!(ConnectTarget::of(&ConnectArgs { host: Some("::1".into()), ..args() }).is_ok());
        assert!(refused(ConnectArgs { disable_clean_session: true, ..args() }).contains("add -i ID"));
        assert!(refused(ConnectArgs { will_topic: Some("a/#".into()), ..args() }).contains("wildcard"));
        let old = ConnectArgs { tls_version: Some("tlsv1.1".into()), tls_use_os_certs: true, ..args() };
        assert!(refused(old).contains("expected tlsv1.2 or tlsv1.3"));
        assert!(refused(ConnectArgs { protocol_version: "4".into(), ..args() }).contains("expected 31, 311 or 5"));
    }
}
