//! A sink of the type `kafka`: where, over what, and as whom.

use std::net::IpAddr;

use super::sink::{SinkSecret, SinkTarget};

/// As whom Kafka knows the sink (SASL).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaLogin {
    pub mechanism: KafkaMechanism,
    pub user: String,
    pub password: SinkSecret,
}

/// How the sink shows that it knows its password.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KafkaMechanism {
    /// By saying it.
    Plain,
    /// By an answer that only who knows it can give.
    ScramSha256,
    #[default]
    ScramSha512,
}

impl KafkaMechanism {
    /// The word of the configuration for it.
    pub(super) fn read(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "plain" => Some(Self::Plain),
            "scram-sha-256" => Some(Self::ScramSha256),
            "scram-sha-512" => Some(Self::ScramSha512),
            _ => None,
        }
    }
}

/// What the fields of such a sink mean together; or which of them is wrong, and how. `has_ca`: certificates to trust are named.
pub(super) fn target(
    url: &str,
    (user, password, mechanism): (Option<String>, Option<SinkSecret>, Option<KafkaMechanism>),
    has_ca: bool,
) -> Result<SinkTarget, (&'static str, String)> {
    let no_address = || {
        (
            "url",
            "this is no address such as \"kafka://host:9092/topic\" or, with TLS, \"kafkas://host:9093/topic\""
                .to_owned(),
        )
    };
    let (is_tls, rest) = match (url.strip_prefix("kafkas://"), url.strip_prefix("kafka://")) {
        (Some(rest), _) => (true, rest),
        (None, Some(rest)) => (false, rest),
        (None, None) => return Err(no_address()),
    };
    let (hosts, topic) = rest
        .split_once('/')
        .filter(|(hosts, topic)| !hosts.is_empty() && !hosts.contains('@') && !topic.is_empty() && !topic.contains('/'))
        .ok_or_else(no_address)?;
    let port = if is_tls { 9093 } else { 9092 };
    let with_port = |host: &str| if host.contains(':') { host.to_owned() } else { format!("{host}:{port}") };
    let brokers: Vec<String> = hosts.split(',').map(with_port).collect();
    if has_ca && !is_tls {
        return Err(("ca", "there is no TLS with kafka://; write kafkas:// for it".to_owned()));
    }
    let login = match (user, password) {
        (Some(user), Some(password)) => Some(KafkaLogin { mechanism: mechanism.unwrap_or_default(), user, password }),
        (Some(_), None) => return Err(("user", "it needs a password: name its file with password_file".to_owned())),
        (None, Some(_)) => return Err(("password_file", "whose password is it? Say it with user".to_owned())),
        (None, None) if mechanism.is_some() => return Err(("mechanism", "it needs a user and a password".to_owned())),
        (None, None) => None,
    };
    let is_said = login.as_ref().is_some_and(|login| login.mechanism == KafkaMechanism::Plain);
    if is_said && !is_tls && !brokers.iter().all(|broker| is_here(broker)) {
        let message = "a password would be said in the clear: write kafkas:// for TLS, or take scram-sha-512";
        return Err(("mechanism", message.to_owned()));
    }
    Ok(SinkTarget::Kafka { brokers, topic: topic.to_owned(), is_tls, login })
}

/// Whether an address is of this machine, by what is written.
fn is_here(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let ip: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    host == "localhost" || ip.is_some_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Login<'a> = (Option<&'a str>, Option<&'a str>, Option<KafkaMechanism>);

    fn read(
        url: &str,
        (user, password, mechanism): Login<'_>,
        has_ca: bool,
    ) -> Result<SinkTarget, (&'static str, String)> {
        let secret = |text: &str| SinkSecret(text.to_owned());
        target(url, (user.map(str::to_owned), password.map(secret), mechanism), has_ca)
    }

    const NOBODY: Login<'_> = (None, None, None);

    #[test]
    fn brokers_have_the_usual_port_of_what_they_are_spoken_to_over() {
        for (url, is_tls, ports) in
            [("kafka://h,g:1/t", false, ["h:9092", "g:1"]), ("kafkas://h,g:1/t", true, ["h:9093", "g:1"])]
        {
            let brokers = ports.map(str::to_owned).to_vec();
            let expected = SinkTarget::Kafka { brokers, topic: "t".into(), is_tls, login: None };
            assert_eq!(read(url, NOBODY, is_tls), Ok(expected), "{url}");
        }
    }

    #[test]
    fn a_user_is_known_by_scram_unless_it_is_said_otherwise() {
        let login = |mechanism| match read("kafkas://h/t", (Some("ann"), Some("secret"), mechanism), false) {
            Ok(SinkTarget::Kafka { login: Some(login), .. }) => login,
            other => panic!("{other:?}"),
        };
        assert_eq!(login(None).mechanism, KafkaMechanism::ScramSha512);
        let plain = login(Some(KafkaMechanism::Plain));
        assert_eq!((plain.user.as_str(), plain.password.0.as_str()), ("ann", "secret"));
        assert!(!format!("{plain:?}").contains("secret"), "no log shows it");
        for (word, mechanism) in [
            ("PLAIN", Some(KafkaMechanism::Plain)),
            ("scram-sha-256", Some(KafkaMechanism::ScramSha256)),
            ("SCRAM-SHA-512", Some(KafkaMechanism::ScramSha512)),
            ("gssapi", None),
        ] {
            assert_eq!(KafkaMechanism::read(word), mechanism, "{word}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_named() {
        let (ann, plain) =
            ((Some("ann"), Some("SECRET"), None), (Some("ann"), Some("SECRET"), Some(KafkaMechanism::Plain)));
        for (url, login, has_ca, field) in [
            ("http://h/t", NOBODY, false, "url"),
            ("kafka://h", NOBODY, false, "url"),
            ("kafka:///t", NOBODY, false, "url"),
            ("kafka://h/a/b", NOBODY, false, "url"),
            ("kafka://ann:SECRET@h/t", NOBODY, false, "url"),
            ("kafka://h/t", NOBODY, true, "ca"),
            ("kafkas://h/t", (Some("ann"), None, None), false, "user"),
            ("kafkas://h/t", (None, Some("SECRET"), None), false, "password_file"),
            ("kafkas://h/t", (None, None, Some(KafkaMechanism::Plain)), false, "mechanism"),
            ("kafka://h/t", plain, false, "mechanism"),
            ("kafka://127.0.0.1:1,h:1/t", plain, false, "mechanism"),
        ] {
            let (found, words) = read(url, login, has_ca).unwrap_err();
            assert_eq!(found, field, "{url} {login:?}: {words}");
            assert!(!words.contains("SECRET"), "{words}");
        }
        for url in ["kafka://127.0.0.1/t", "kafka://localhost:1,[::1]:2/t", "kafkas://h/t"] {
            assert!(read(url, plain, false).is_ok(), "{url}");
        }
        assert!(read("kafka://h/t", ann, false).is_ok(), "SCRAM does not say the password");
    }
}
