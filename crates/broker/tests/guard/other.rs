//! A guard in front of what is at a port of this machine.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_broker::config::{Config, Listener, ListenerKind};
use tidegate_broker::{AskedBehind, Broker, GuardConfig};
use tidegate_core::access::Open;
use tidegate_test_support::{Mosquitto, PATIENCE};

/// mosquitto as Debian starts it.
pub(crate) fn mosquitto() -> Option<Mosquitto> {
    Mosquitto::start("")
}

/// A guard of what is at this port of this machine, and its own port.
pub(crate) fn guard(port: u16) -> (Broker, u16) {
    guard_within(port, PATIENCE)
}

/// One that waits so long for an answer to a CONNECT.
pub(crate) fn guard_within(port: u16, timeout: Duration) -> (Broker, u16) {
    let here = SocketAddr::from(([127, 0, 0, 1], 0));
    let upstream = format!("127.0.0.1:{port}");
    let config = Config {
        listeners: vec![Listener::new(ListenerKind::Mqtt, here)],
        guard: Some(GuardConfig { upstream, tls: None, timeout }),
        sys_interval: Duration::ZERO,
        ..Config::default()
    };
    let broker = Broker::start(config, Arc::new(AskedBehind), Arc::new(Open)).unwrap();
    let port = broker.addresses()[0].1.port();
    (broker, port)
}
