//! Debian's mosquitto with a `connection` block as its manual has it, nothing added: it bridges to us, says so at its state
//! topic, and nothing that it sent comes back to it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tidegate_test_support::skip::{Remedy, skip};
use tidegate_test_support::{Broker, Launch, text, tidegate};

/// mosquitto, ended with the test.
struct Mosquitto {
    child: Child,
    port: u16,
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn mosquitto() -> Option<PathBuf> {
    let places = ["/usr/sbin/mosquitto", "/usr/local/sbin/mosquitto", "/usr/bin/mosquitto"];
    places.iter().map(PathBuf::from).find(|place| place.is_file())
}

/// A port that is free now: mosquitto takes none by itself.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

fn start(program: &Path, folder: &Path, connection: &str) -> Mosquitto {
    let (port, file) = (free_port(), folder.join("mosquitto.conf"));
    let text = format!("listener {port} 127.0.0.1\nallow_anonymous true\n{connection}");
    std::fs::write(&file, text).expect("a file");
    let mut command = Command::new(program);
    command.arg("-c").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Mosquitto { child: command.spawn().expect("it starts"), port }
}

impl Mosquitto {
    /// The first messages there.
    fn first(&self, topic: &str, count: usize) -> String {
        let (port, count) = (self.port.to_string(), count.to_string());
        let output = tidegate(&["sub", "-p", &port, "-t", topic, "-v", "-C", &count, "-W", "60"]).output();
        text(&output.expect("sub runs").stdout)
    }

    fn publish(&self, topic: &str, message: &str) {
        let port = self.port.to_string();
        let output = tidegate(&["pub", "-p", &port, "-t", topic, "-m", message, "-q", "1", "-r"]).output();
        assert!(output.expect("pub runs").status.success());
    }
}

/// The state that it says at our side, once it is this.
fn await_state(broker: &Broker, state: &str) {
    let mut states = broker.subscriber(&["-t", "$SYS/broker/connection/+/state", "-v", "-W", "60"]);
    loop {
        let line = states.line();
        assert!(!line.is_empty(), "the state is never {state}");
        if line.ends_with(&format!("/state {state}")) {
            return;
        }
    }
}

#[test]
fn a_default_connection_block_bridges_both_ways_without_echoes() {
    let Some(program) = mosquitto() else {
        return skip("mosquitto", "no such program", Remedy::Owner("apt-get install mosquitto"));
    };
    let broker = Launch::new().start();
    let folder = tempfile::tempdir().expect("a folder");
    let connection = format!("connection tide\naddress {}\ntopic # both 1\n", broker.address("mqtt"));
    let mosquitto = start(&program, folder.path(), &connection);
    await_state(&broker, "1");

    // A message from there is here, once: what comes after it is the next one.
    let mut here = broker.subscriber(&["-t", "from/+", "-v", "-W", "60"]);
    mosquitto.publish("from/there", "1");
    assert_eq!(here.line(), "from/there 1");
    mosquitto.publish("from/there", "2");
    assert_eq!(here.line(), "from/there 2", "and no echo of the first");
    // And retained, as it was there.
    assert_eq!(broker.subscriber(&["-t", "from/there", "-C", "1", "-v"]).line(), "from/there 2");

    // The other way; retained, so that it does not matter which of the two is quicker.
    broker.send(&["-t", "to/there", "-m", "3", "-q", "1", "-r"]);
    assert_eq!(mosquitto.first("to/there", 1), "to/there 3\n");

    drop(mosquitto);
    await_state(&broker, "0");
}
