//! What the nodes of a cluster have to know of each other before they can meet, and the configuration that it makes.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// Nodes of one invitation.
const NODES_MAX: usize = 7;
/// Of two, neither knows whether the other is gone.
const NODES_MIN: usize = 3;
/// Where the smart space is asked, if nobody says otherwise.
const HTTP_PORT: u16 = 7878;
/// Where the engines of other nodes listen, if nobody says otherwise.
const ROUTES_PORT: u16 = 6222;

/// As long as a name of a machine may be (RFC 1035).
const HOST_BYTES_MAX: usize = 253;
/// What `cluster.password_file` may have.
const PASSWORD_BYTES_MAX: usize = 128;
/// Of something wrong, so much is shown.
const SHOWN_CHARS: usize = 64;

/// All of a cluster, with its secret.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Invitation {
    pub(super) cluster: String,
    pub(super) password: String,
    pub(super) nodes: Vec<InvitedNode>,
}

/// A node and the ports it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InvitedNode {
    pub(super) name: String,
    pub(super) host: String,
    /// Ports of MQTT, the admin API, SPARQL over HTTP, the engine for the node, the engine for the others.
    pub(super) mqtt: u16,
    pub(super) admin: u16,
    pub(super) http: u16,
    pub(super) engine: u16,
    pub(super) routes: u16,
}

impl Invitation {
    /// From `NAME=HOST,…`. Nodes of one host get ports that follow each other.
    pub(super) fn new(cluster: &str, nodes: &str, password: String) -> Result<Self> {
        is_name(cluster)?;
        let mut list: Vec<InvitedNode> = Vec::new();
        for word in nodes.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let (name, place) = word.split_once('=').with_context(|| format!("{word:?}: expected NAME=HOST"))?;
            is_name(name)?;
            ensure!(list.iter().all(|node| node.name != name), "two nodes are called {name}");
            let (host, port) = match place.rsplit_once(':') {
                Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                    (host, Some(port.parse::<u16>().with_context(|| format!("{port:?} is no port"))?))
                }
                _ => (place, None),
            };
            is_host(host)?;
            let offset = u16::try_from(list.iter().filter(|node| node.host == host).count()).unwrap_or(0);
            list.push(InvitedNode {
                name: name.to_owned(),
                host: host.to_owned(),
                mqtt: 1883 + offset,
                admin: 18830 + offset,
                http: HTTP_PORT + offset,
                engine: 4222 + offset,
                routes: port.unwrap_or(ROUTES_PORT + offset),
            });
        }
        let count = list.len();
        ensure!((NODES_MIN..=NODES_MAX).contains(&count), "{count} nodes: expected {NODES_MIN} to {NODES_MAX}");
        Ok(Self { cluster: cluster.to_owned(), password, nodes: list })
    }

    pub(super) fn node(&self, name: &str) -> Result<&InvitedNode> {
        let found = self.nodes.iter().find(|node| node.name == name);
        found.with_context(|| {
            let known: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
            format!("no node of {} is called {name:?}: there are {}", self.cluster, known.join(", "))
        })
    }

    /// As a file that is carried to another machine.
    pub(super) fn text(&self) -> String {
        let node = |node: &InvitedNode| {
            json!({
                "name": node.name, "host": node.host,
                "mqtt": node.mqtt, "admin": node.admin, "http": node.http, "engine": node.engine, "routes": node.routes,
            })
        };
        let nodes: Vec<Value> = self.nodes.iter().map(node).collect();
        let all = json!({ "tidegate_cluster": 1, "name": self.cluster, "password": self.password, "nodes": nodes });
        format!("{all:#}\n")
    }

    /// What others have carried here, and may have changed on the way: it becomes configurations of two programs.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let all: Value = serde_json::from_str(text).context("this is no invitation")?;
        if all["tidegate_cluster"] != 1 {
            bail!("this is no invitation, or one of another version");
        }
        let cluster = word("name", &all["name"], is_name)?;
        let password = word("password", &all["password"], is_password)?;
        let nodes = all["nodes"].as_array().context("nodes: missing; expected a list")?;
        let count = nodes.len();
        ensure!(
            (NODES_MIN..=NODES_MAX).contains(&count),
            "nodes: {count} of them; expected {NODES_MIN} to {NODES_MAX}"
        );
        let mut list: Vec<InvitedNode> = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            let field = |name: &str| format!("nodes[{index}].{name}");
            let port = |name: &str| {
                let port = node[name].as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
                port.with_context(|| format!("{}: {}; expected a port, 1 to 65535", field(name), shown(&node[name])))
            };
            let name = word(&field("name"), &node["name"], is_name)?;
            ensure!(list.iter().all(|node| node.name != name), "{}: two nodes are called {name}", field("name"));
            list.push(InvitedNode {
                name,
                host: word(&field("host"), &node["host"], is_host)?,
                mqtt: port("mqtt")?,
                admin: port("admin")?,
                // One of a release that did not copy the smart space has none.
                http: if node["http"].is_null() { HTTP_PORT } else { port("http")? },
                engine: port("engine")?,
                routes: port("routes")?,
            });
        }
        Ok(Self { cluster, password, nodes: list })
    }

    /// The configuration of one of its nodes; the password is in the file `cluster.password` beside it.
    pub(super) fn configuration(&self, node: &InvitedNode) -> String {
        let is_here = is_this_machine(&node.host);
        let any = if is_here { "127.0.0.1" } else { "0.0.0.0" };
        let is_shared = self.nodes.iter().filter(|other| other.host == node.host).count() > 1;
        let mut text =
            format!("# Node {} of the cluster {}.\n\n[server]\ndata = \"tidegate-data\"\n\n", node.name, self.cluster);
        let _ = writeln!(text, "[listeners]\nmqtt = \"{any}:{}\"\nadmin = \"127.0.0.1:{}\"", node.mqtt, node.admin);
        if is_shared {
            // Other nodes of this machine have the usual ports.
            let _ = writeln!(text, "http = \"127.0.0.1:{}\"", node.http);
            for door in ["ws", "coap", "sn", "http_topics", "amqp", "ssap"] {
                let _ = writeln!(text, "{door} = \"off\"");
            }
        }
        let peers: Vec<String> = self.nodes.iter().map(|peer| format!("\"{}:{}\"", peer.host, peer.routes)).collect();
        let _ = writeln!(
            text,
            "\n[cluster]\nname = \"{}\"\nnode = \"{}\"\naddress = \"{}:{}\"\nengine = \"managed\"\npassword_file = \"cluster.password\"",
            self.cluster, node.name, node.host, node.mqtt
        );
        let _ = writeln!(
            text,
            "engine_listen = \"127.0.0.1:{}\"\nengine_routes = \"{any}:{}\"\npeers = [{}]",
            node.engine,
            node.routes,
            peers.join(", ")
        );
        text
    }
}

/// Whether everything stays on one machine.
pub(super) fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A text of an invitation that may be what it is there for.
fn word(field: &str, value: &Value, is_fine: fn(&str) -> Result<()>) -> Result<String> {
    let text = value.as_str().with_context(|| format!("{field}: {}; expected a text", shown(value)))?;
    is_fine(text).with_context(|| field.to_owned())?;
    Ok(text.to_owned())
}

/// For a sentence: whoever made the file may have made it long.
fn shown(value: &Value) -> String {
    if value.is_null() {
        return "missing".to_owned();
    }
    value.to_string().chars().take(SHOWN_CHARS).collect()
}

fn is_host(host: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
    let is_fine = !host.is_empty() && host.len() <= HOST_BYTES_MAX && host.chars().all(is_plain);
    let shown: String = host.chars().take(SHOWN_CHARS).collect();
    ensure!(is_fine, "{shown:?} is no name or address of a machine: up to {HOST_BYTES_MAX} letters, digits and .-_:[]");
    Ok(())
}

/// As the engine and its configuration bear it. What it is is not said: errors are read by others.
fn is_password(password: &str) -> Result<()> {
    const ALLOWED: &str = "letters, digits and signs, but no quotes, $ or \\";
    ensure!(
        (1..=PASSWORD_BYTES_MAX).contains(&password.len()),
        "has {} bytes; expected 1 to {PASSWORD_BYTES_MAX}: {ALLOWED}",
        password.len()
    );
    let strange = password.chars().find(|c| !c.is_ascii_graphic() || "\"'\\$".contains(*c));
    if let Some(strange) = strange {
        bail!("has a {strange:?} in it; allowed are {ALLOWED}");
    }
    Ok(())
}

fn is_name(name: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    ensure!(
        (1..=32).contains(&name.len()) && name.bytes().all(is_plain),
        "{:?} is no name of a cluster or node: 1 to 32 of a-z, 0-9 and -",
        name.chars().take(SHOWN_CHARS).collect::<String>()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invitation(nodes: &str) -> Result<Invitation> {
        Invitation::new("plant", nodes, "secret".to_owned())
    }

    #[test]
    fn an_invitation_reads_back_and_one_of_others_is_refused() {
        let made = invitation("a=10.0.0.1, b=10.0.0.2,c=c.example:7222").unwrap();
        assert!(Invitation::parse(&made.text()).unwrap() == made);
        assert_eq!(made.node("c").unwrap().routes, 7222);
        let old = Invitation::parse(&made.text().replace("\"http\": 7878,", "")).unwrap();
        assert!(old == made, "one of a release that did not copy the smart space");
        assert!(made.node("d").unwrap_err().to_string().contains("there are a, b, c"));
        for wrong in ["", "{}", "{\"tidegate_cluster\": 2}"] {
            assert!(Invitation::parse(wrong).is_err(), "{wrong}");
        }
        for wrong in
            ["a=x,b=y", "a=x,a=y,c=z", "a=x,B=y,c=z", "a=x,b=,c=z", "a=x,b=y:port,c=z", "a,b,c", "a=\",b=y,c=z"]
        {
            assert!(invitation(wrong).is_err(), "{wrong}");
        }
    }

    /// The words for one field of a sound invitation that is another.
    fn refused(pointer: &str, value: Value) -> String {
        let made = invitation("a=10.0.0.1,b=10.0.0.2,c=10.0.0.3").unwrap();
        let mut all: Value = serde_json::from_str(&made.text()).unwrap();
        *all.pointer_mut(pointer).unwrap() = value;
        format!("{:#}", Invitation::parse(&all.to_string()).map(|_| ()).unwrap_err())
    }

    #[test]
    fn each_field_that_was_changed_on_the_way_is_named_with_what_is_allowed() {
        let host = refused("/nodes/1/host", json!("x\"\nengine_program = \"/tmp/evil"));
        assert!(
            host.starts_with("nodes[1].host: \"x\\\"\\nengine_program") && host.contains("letters, digits and"),
            "{host}"
        );
        assert!(refused("/nodes/0/host", json!("")).starts_with("nodes[0].host: \"\" is no name"));
        assert!(refused("/nodes/0/host", json!("x".repeat(254))).contains("up to 253"));
        let password = refused("/password", json!("secret\nroutes"));
        assert!(
            password.starts_with("password: has a '\\n' in it; allowed are") && !password.contains("secret"),
            "{password}"
        );
        assert!(refused("/password", json!("a\"b")).starts_with("password: has a '\"' in it"));
        assert!(refused("/password", json!("")).starts_with("password: has 0 bytes; expected 1 to 128"));
        assert!(refused("/password", Value::Null).starts_with("password: missing; expected a text"));
        assert!(refused("/name", json!("Plant")).starts_with("name: \"Plant\" is no name of a cluster"));
        assert_eq!(refused("/nodes/2/mqtt", json!(70_000)), "nodes[2].mqtt: 70000; expected a port, 1 to 65535");
        assert_eq!(refused("/nodes/2/engine", json!(0)), "nodes[2].engine: 0; expected a port, 1 to 65535");
        assert_eq!(refused("/nodes/1/name", json!("a")), "nodes[1].name: two nodes are called a");
        assert_eq!(refused("/nodes", json!([])), "nodes: 0 of them; expected 3 to 7");
    }

    #[test]
    fn nodes_of_one_machine_get_ports_of_their_own_and_stay_on_it() {
        let made = invitation("a=127.0.0.1,b=127.0.0.1,c=127.0.0.1").unwrap();
        let text = made.configuration(made.node("c").unwrap());
        assert!(text.contains("mqtt = \"127.0.0.1:1885\"") && text.contains("ws = \"off\""), "{text}");
        assert!(text.contains("http = \"127.0.0.1:7880\"") && text.contains("ssap = \"off\""), "{text}");
        assert!(text.contains("engine_routes = \"127.0.0.1:6224\""), "{text}");
        assert!(text.contains("peers = [\"127.0.0.1:6222\", \"127.0.0.1:6223\", \"127.0.0.1:6224\"]"), "{text}");
        assert!(!text.contains("secret"), "{text}");
        let apart = invitation("a=10.0.0.1,b=10.0.0.2,c=10.0.0.3").unwrap();
        let text = apart.configuration(apart.node("b").unwrap());
        assert!(text.contains("mqtt = \"0.0.0.0:1883\"") && text.contains("address = \"10.0.0.2:1883\""), "{text}");
        assert!(!text.contains("ws =") && !text.contains("http ="), "{text}");
    }
}
