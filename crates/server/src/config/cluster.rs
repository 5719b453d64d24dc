//! Settings of a cluster with a meaning of their own: names, where the engine is, where the others' engines are.

use std::path::Path;

use tidegate_cluster::{ClusterName, NodeName};

use super::ConfigValue;
use super::setting::Setting;

/// Engines that are named, at most: beyond seven nodes a cluster's quorum is the wrong tool.
const ENGINES_MAX: usize = 16;

macro_rules! name_setting {
    ($(#[$text:meta])* $setting:ident, $name:ident, $what:literal) => {
        $(#[$text])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $setting(pub $name);

        impl Setting for $setting {
            fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
                value.text()?.trim().parse().ok().map(Self)
            }

            fn expected() -> String {
                concat!("the name of a ", $what, " in quotes: 1 to 32 of a-z, 0-9 and -").to_owned()
            }

            fn show(&self) -> String {
                format!("\"{}\"", self.0)
            }
        }
    };
}

name_setting!(
    /// The name of a cluster.
    ClusterLabel, ClusterName, "cluster"
);
name_setting!(
    /// The name of a node.
    NodeLabel, NodeName, "node"
);

/// Where the engine is that keeps the copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineWord {
    /// This process starts one beside itself, and ends it with itself.
    Managed,
    /// Somebody else's: addresses of its servers.
    At(Vec<String>),
}

impl Setting for EngineWord {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        let list: Vec<String> = match value {
            ConfigValue::List(list) => list.iter().map(|server| server.trim().to_owned()).collect(),
            other => other.text()?.split(',').map(|server| server.trim().to_owned()).collect(),
        };
        if list == ["managed"] {
            return Some(Self::Managed);
        }
        let is_fine = !list.is_empty() && list.len() <= ENGINES_MAX && list.iter().all(|server| is_engine(server));
        is_fine.then_some(Self::At(list))
    }

    fn expected() -> String {
        format!(
            "\"managed\" (this process starts nats-server), or up to {ENGINES_MAX} addresses of NATS servers such as \
             [\"nats://10.0.0.1:4222\", \"tls://10.0.0.2:4222\"], without a password (that is cluster.password_file)"
        )
    }

    fn show(&self) -> String {
        match self {
            Self::Managed => "\"managed\"".to_owned(),
            Self::At(list) => show_list(list),
        }
    }
}

/// A password in an address would be in `config show` and in logs.
fn is_engine(server: &str) -> bool {
    let place = server.strip_prefix("nats://").or_else(|| server.strip_prefix("tls://"));
    place.is_some_and(is_place)
}

/// `HOST:PORT`, with a name, an address, or `[V6]`.
fn is_place(place: &str) -> bool {
    let Some((host, port)) = place.rsplit_once(':') else { return false };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_host = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-_:".contains(c));
    is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
}

fn show_list(list: &[String]) -> String {
    let quoted: Vec<String> = list.iter().map(|one| format!("{one:?}")).collect();
    format!("[{}]", quoted.join(", "))
}

/// Where the managed engines of all nodes find each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerList(pub Vec<String>);

impl Setting for PeerList {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        let list: Vec<String> = match value {
            ConfigValue::List(list) => list.iter().map(|peer| peer.trim().to_owned()).collect(),
            other => {
                other.text()?.split(',').map(|peer| peer.trim().to_owned()).filter(|peer| !peer.is_empty()).collect()
            }
        };
        let is_fine = list.len() <= ENGINES_MAX && list.iter().all(|peer| is_place(peer));
        is_fine.then_some(Self(list))
    }

    fn expected() -> String {
        format!(
            "up to {ENGINES_MAX} places such as [\"10.0.0.1:6222\", \"b.example:6222\"]: cluster.engine_routes of each node"
        )
    }

    fn show(&self) -> String {
        show_list(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> ConfigValue {
        ConfigValue::Text(text.to_owned())
    }

    #[test]
    fn an_engine_is_managed_or_a_list_of_places_without_passwords() {
        assert_eq!(EngineWord::read(&text("managed"), None), Some(EngineWord::Managed));
        let list = ConfigValue::List(vec!["nats://a:4222".to_owned(), "tls://[::1]:4222".to_owned()]);
        let engine = EngineWord::read(&list, None).unwrap();
        assert_eq!(engine.show(), "[\"nats://a:4222\", \"tls://[::1]:4222\"]");
        for wrong in ["", "nats", "a:4222", "nats://a", "nats://a:0", "nats://me:secret@a:4222", "nats://a:4222/x"] {
            assert_eq!(EngineWord::read(&text(wrong), None), None, "{wrong}");
        }
    }

    #[test]
    fn names_and_peers_say_what_they_may_be() {
        assert!(NodeLabel::read(&text("a-1"), None).is_some());
        assert!(NodeLabel::read(&text("A.1"), None).is_none());
        assert!(NodeLabel::expected().contains("1 to 32 of a-z, 0-9 and -"));
        assert_eq!(PeerList::read(&text("a:6222, b:6222"), None).unwrap().0, ["a:6222", "b:6222"]);
        assert!(PeerList::read(&text("a"), None).is_none());
    }
}
