//! Who a client is, and what it may do. The rules themselves are elsewhere; here is only the question.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::net::{IpAddr, SocketAddr};

/// Who is connected, as far as is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The authenticated user: from a password, or from a client certificate. None on an open broker.
    pub user: Option<Arc<str>>,
    /// The name under which the network address is known, for logs: `127.0.0.1:50312`.
    pub peer: Arc<str>,
    /// The listener's name, for logs and rules: `mqtt`, `mqtts`, `ws`, `wss`, or one of its own.
    pub listener: &'static str,
    /// Roles that came with what it has shown (a token). Those of users that the broker knows are found by name.
    pub roles: Option<Arc<[Arc<str>]>>,
    /// What else came with it that rules of access speak of, by name (claims of a token).
    pub claims: Option<Claims>,
}

/// Names and values.
pub type Claims = Arc<[(Arc<str>, Arc<str>)]>;

/// The user that the broker's own bridges are. Nobody else can be: whoever authenticates as this is turned away.
pub const BRIDGE_USER: &str = "$bridge";

/// What the client identifiers of the broker's own bridges begin with. Nobody else may have one.
pub const BRIDGE_IDS: &str = "$bridge/";

/// The user that the broker's own sinks are, as [`BRIDGE_USER`].
pub const SINK_USER: &str = "$sink";

/// What the client identifiers of the broker's own sinks begin with, as [`BRIDGE_IDS`].
pub const SINK_IDS: &str = "$sink/";

/// What the client identifiers of addresses that speak CoAP begin with. Whoever had one could take such a client over, so
/// nobody has one who speaks anything else.
pub const COAP_IDS: &str = "$coap/";

/// The same of clients that speak HTTP: connections and streams.
pub const HTTP_IDS: &str = "$http/";

/// The same of addresses that publish by MQTT-SN without being connected.
pub const SN_IDS: &str = "$sn/";

/// The same of clients that speak CoAP inside of sessions of DTLS: others than those at the same address that have none.
pub const COAP_SESSION_IDS: &str = "$coap/dtls/";

/// All such beginnings; one that begins with another stands before it.
pub(crate) const GIVEN_IDS: [&str; 4] = [COAP_SESSION_IDS, COAP_IDS, HTTP_IDS, SN_IDS];

/// What a client is called over all its connections: one that is called by its address is so without the port, which is another
/// one each time.
pub fn lasting_name(client_id: &str) -> &str {
    let place = GIVEN_IDS.iter().find_map(|ids| client_id.strip_prefix(ids));
    let is_place = place.is_some_and(|place| place.parse::<SocketAddr>().is_ok());
    client_id.rsplit_once(':').filter(|_| is_place).map_or(client_id, |(name, _)| name)
}

/// The same of whoever has been given its name, by where it comes from: also of a stream, which is called by a token.
pub fn name_by_address(client_id: &str, ip: IpAddr) -> Option<String> {
    let ids = GIVEN_IDS.iter().find(|ids| client_id.starts_with(**ids))?;
    Some(match ip.to_canonical() {
        IpAddr::V4(ip) => format!("{ids}{ip}"),
        IpAddr::V6(ip) => format!("{ids}[{ip}]"),
    })
}

/// Which user a client identifier belongs to that is the broker's own; none if it is not.
pub fn own_user(client_id: &str) -> Option<&'static str> {
    let known = [(BRIDGE_IDS, BRIDGE_USER), (SINK_IDS, SINK_USER)];
    known.into_iter().find(|(ids, _)| client_id.starts_with(ids)).map(|(_, user)| user)
}

/// Whether this user is one of the broker's own, which nobody can be who comes from outside.
pub fn is_own_user(user: &str) -> bool {
    [BRIDGE_USER, SINK_USER].contains(&user)
}

impl Identity {
    /// The value of a claim; none if nothing was said of it.
    pub fn claim(&self, name: &str) -> Option<&str> {
        self.claims.iter().flat_map(|claims| claims.iter()).find(|(own, _)| **own == *name).map(|(_, value)| &**value)
    }

    /// Whether this is a bridge or a sink of the broker's own.
    pub fn is_own(&self) -> bool {
        self.user.as_deref().is_some_and(is_own_user)
    }
}

/// What a client wants to do with a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Publish to this topic name (also: have a will there).
    Publish,
    /// Subscribe to this filter.
    Subscribe,
    /// Be sent a message of this topic name: asked again at delivery, because rules change.
    Receive,
    /// Say by itself that a message to this topic name belongs to a better class.
    Prioritize,
}

/// The rules of access. Asked on the hot path: an implementation should answer from memory.
pub trait Policy: fmt::Debug + Send + Sync {
    /// Whether the client may do this.
    fn allows(&self, identity: &Identity, client_id: &str, action: Action, topic: &str) -> bool;
}

/// Everybody may do everything, but write to `$SYS`, which nobody may, and choose the class of its own messages, which is
/// for somebody else to grant.
#[derive(Clone, Copy, Debug)]
pub struct Open;

impl Policy for Open {
    fn allows(&self, _: &Identity, _: &str, action: Action, _: &str) -> bool {
        action != Action::Prioritize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_by_address_lasts_without_its_port() {
        assert_eq!(lasting_name("$http/10.0.0.1:5000"), "$http/10.0.0.1");
        assert_eq!(lasting_name("$coap/[2001:db8::1]:5683"), "$coap/[2001:db8::1]");
        for other in ["$http/t0123", "10.0.0.1:5000", "lamp:1", "$http/10.0.0.1", "$http/", "", "$http/host:80"] {
            assert_eq!(lasting_name(other), other);
        }
        assert_eq!(name_by_address("$http/t0123", [10, 0, 0, 1].into()).as_deref(), Some("$http/10.0.0.1"));
        assert_eq!(lasting_name("$coap/dtls/10.0.0.1:40000"), "$coap/dtls/10.0.0.1");
        assert_eq!(lasting_name("$coap/dtls/[2001:db8::1]:5684"), "$coap/dtls/[2001:db8::1]");
        let inside = name_by_address("$coap/dtls/10.0.0.1:40000", [10, 0, 0, 1].into());
        assert_eq!(inside.as_deref(), Some("$coap/dtls/10.0.0.1"), "not who has no session there");
        assert_eq!(name_by_address("$coap/10.0.0.1:9", [10, 0, 0, 1].into()).as_deref(), Some("$coap/10.0.0.1"));
        assert_eq!(name_by_address("lamp", [10, 0, 0, 1].into()), None);
    }
}
