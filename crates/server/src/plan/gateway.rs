//! The gateway of MQTT-SN, and where it is told of.

use tidegate_broker::config::{Listener, ListenerKind, SnAdvertising, SnConfig};

use crate::config::words::EverybodyAddress;
use crate::config::{ConfigProblem, Loaded};

const KEY: &str = "sn.advertise";

/// What the gateway is told. Telling everybody of one that is not there, or that nobody else can reach, is a mistake.
pub(super) fn sn_config(loaded: &Loaded, listeners: &[Listener], problems: &mut Vec<ConfigProblem>) -> SnConfig {
    let options = &loaded.options.sn;
    let advertising = options
        .advertise
        .value()
        .map(|EverybodyAddress(address)| SnAdvertising { address, interval: options.advertise_interval.0 });
    if let Some(SnAdvertising { address, .. }) = advertising {
        let mut problem = |message: String, hint: &str| {
            problems.push(ConfigProblem::of_key(loaded.origin(KEY), KEY, message).with_hint(hint.to_owned()));
        };
        match listeners.iter().find(|listener| listener.kind == ListenerKind::Sn).map(|listener| listener.bind) {
            None => problem("there is no gateway to tell of, listeners.sn is off".to_owned(), "say where: --sn ADDR"),
            Some(at) if at.is_ipv6() => problem(
                format!("MQTT-SN is at {at}, and what is told is an address of IPv4"),
                "listen at an address of IPv4",
            ),
            // Loopback has a broadcast address of its own.
            Some(at) if at.ip().is_loopback() && !address.ip().is_loopback() => problem(
                format!("MQTT-SN is at {at}, which nobody at {address} can reach"),
                "listen at the address that the nodes reach, with --sn ADDR and --allow-anonymous",
            ),
            Some(_) => {}
        }
    }
    SnConfig { topics: options.topics.0.clone(), gateway: options.gateway.0 as u8, advertising }
}
