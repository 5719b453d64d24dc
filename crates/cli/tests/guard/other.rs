//! A guard in front of what is at a port of this machine.

use tidegate_test_support::{Broker, Launch, Mosquitto};

/// mosquitto as Debian starts it.
pub(crate) fn mosquitto() -> Option<Mosquitto> {
    Mosquitto::start("")
}

/// A guard of what is at this port of this machine.
pub(crate) fn guard(port: u16) -> Broker {
    guard_within(port, "30s")
}

/// One that waits so long for an answer to a CONNECT.
pub(crate) fn guard_within(port: u16, timeout: &str) -> Broker {
    let (upstream, timeout) = (format!("127.0.0.1:{port}"), format!("guard.timeout={timeout}"));
    Launch::new().door("admin").door("ws").arguments(["--upstream", &upstream, "--set", &timeout]).start_as("guard")
}
