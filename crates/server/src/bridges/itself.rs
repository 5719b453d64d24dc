//! A bridge whose other broker is this one: its messages would come in again, and go round until the count of hops ends them.

use std::net::{IpAddr, SocketAddr};

use crate::config::bridge::BridgeSettings;

/// Ports of MQTT without and with TLS.
const USUAL_PORTS: (u16, u16) = (1883, 8883);

/// One for each address of a bridge where this broker itself listens, as far as that can be told without looking a name up.
pub(crate) fn warnings(bridges: &[BridgeSettings], listeners: &[SocketAddr], machine: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    for bridge in bridges {
        let usual = if bridge.tls.is_some() { USUAL_PORTS.1 } else { USUAL_PORTS.0 };
        for (host, port) in &bridge.addresses {
            let port = port.unwrap_or(usual);
            if listeners.iter().any(|listener| is_at(*listener, host, port, machine)) {
                let name = &bridge.name;
                warnings.push(format!(
                    "the bridge {name:?} leads to this broker itself ({host}:{port} is its own listener): messages would go round"
                ));
            }
        }
    }
    warnings
}

/// Whether whoever connects to this host and port meets this listener.
fn is_at(listener: SocketAddr, host: &str, port: u16, machine: &str) -> bool {
    if listener.port() != port || port == 0 {
        return false;
    }
    let is_here = host.eq_ignore_ascii_case("localhost") || host.eq_ignore_ascii_case(machine);
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        // Every address of this machine is listened at; which those are is not looked up, but these are among them.
        Ok(to) => to == listener.ip() || (listener.ip().is_unspecified() && (to.is_loopback() || to.is_unspecified())),
        Err(_) => is_here && (listener.ip().is_unspecified() || listener.ip().is_loopback()),
    }
}

#[cfg(test)]
mod tests {
    use super::is_at;

    #[test]
    fn a_broker_is_found_at_its_own_addresses_and_nowhere_else() {
        let meets = |listener: &str, host, port| is_at(listener.parse().unwrap(), host, port, "gateway");
        assert!(meets("127.0.0.1:1883", "127.0.0.1", 1883) && meets("127.0.0.1:1883", "localhost", 1883));
        assert!(meets("0.0.0.0:1883", "127.0.0.1", 1883) && meets("[::]:1883", "[::1]", 1883));
        assert!(meets("0.0.0.0:1883", "Gateway", 1883) && meets("10.0.0.5:1883", "10.0.0.5", 1883));
        assert!(!meets("127.0.0.1:1883", "127.0.0.1", 1884) && !meets("0.0.0.0:1883", "10.0.0.5", 1883));
        assert!(!meets("10.0.0.5:1883", "10.0.0.6", 1883) && !meets("127.0.0.1:1883", "hub.example", 1883));
        // A port that the system is to choose is nobody's.
        assert!(!meets("127.0.0.1:0", "127.0.0.1", 0));
    }
}
