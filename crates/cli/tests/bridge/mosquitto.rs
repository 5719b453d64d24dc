//! Our bridge to Debian's mosquitto, in both versions of MQTT and both directions.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tidegate_test_support::skip::{Remedy, skip};
use tidegate_test_support::{Launch, PATIENCE, text, tidegate};

use crate::{await_seen, await_up, bridge};

/// mosquitto, ended with the test.
struct OtherBroker {
    child: Child,
    port: u16,
}

impl Drop for OtherBroker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> Option<PathBuf> {
    let places = ["/usr/sbin/mosquitto", "/usr/local/sbin/mosquitto", "/usr/bin/mosquitto"];
    places.iter().map(PathBuf::from).find(|place| place.is_file())
}

fn start(program: &Path, folder: &Path, port: u16) -> OtherBroker {
    let file = folder.join("mosquitto.conf");
    let text = format!(
        "listener {port} 127.0.0.1\nallow_anonymous true\npersistence true\npersistence_location {}/\nautosave_interval 1\n",
        folder.display()
    );
    std::fs::write(&file, text).expect("a file");
    let mut command = Command::new(program);
    command.arg("-c").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let other = OtherBroker { child: command.spawn().expect("it starts"), port };
    let end = Instant::now() + PATIENCE;
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < end, "mosquitto does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    other
}

impl OtherBroker {
    fn first(&self, topic: &str) -> String {
        let port = self.port.to_string();
        let output = tidegate(&["sub", "-p", &port, "-t", topic, "-v", "-C", "1", "-W", "60", "-q", "2"]).output();
        text(&output.expect("sub runs").stdout)
    }
}

fn both_ways(version: u8) {
    let Some(program) = program() else {
        return skip("mosquitto", "no such program", Remedy::Owner("apt-get install mosquitto"));
    };
    let folder = tempfile::tempdir().expect("a folder");
    let port = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
    let other = start(&program, folder.path(), port);
    let topics = format!(
        "version = {version}\n[[bridge.topic]]\nfilter = \"#\"\ndirection = \"both\"\nqos = 2\nlocal_prefix = \"m/\"\nremote_prefix = \"t/\"\n"
    );
    let here = Launch::new().door("admin").config(&bridge("mosq", port, &topics)).start();
    await_up(&here);

    // Retained, so that it does not matter who is quicker.
    here.send(&["-t", "m/to/there", "-m", "1", "-q", "2", "-r"]);
    assert_eq!(other.first("t/to/there"), "t/to/there 1\n");
    let mut site = here.subscriber(&["-t", "m/from/#", "-v", "-q", "2"]);
    let to = port.to_string();
    let publish = |message: &str| {
        let done = tidegate(&["pub", "-p", &to, "-t", "t/from/there", "-m", message, "-q", "2"]).output();
        assert!(done.expect("pub runs").status.success());
    };
    publish("2");
    assert_eq!(site.line(), "m/from/there 2");
    publish("3");
    assert_eq!(site.line(), "m/from/there 3", "and no echo of the one before");

    // mosquitto is away for a while; what is published meanwhile waits here.
    drop(other);
    await_seen(&here, "down", |bridge| bridge["state"] != "up");
    for number in 10..20 {
        here.send(&["-t", &format!("m/late/{number}"), "-m", "x", "-q", "1", "-r"]);
    }
    let other = start(&program, folder.path(), port);
    await_up(&here);
    for number in 10..20 {
        assert_eq!(other.first(&format!("t/late/{number}")), format!("t/late/{number} x\n"));
    }
    let bridge = await_seen(&here, "drained", |bridge| bridge["queued"] == 0);
    assert_eq!((&bridge["refused"], &bridge["looped"]), (&0.into(), &0.into()), "{bridge}");
}

#[test]
fn a_bridge_to_mosquitto_speaks_mqtt_5() {
    both_ways(5);
}

#[test]
fn a_bridge_to_mosquitto_speaks_3_1_1() {
    both_ways(4);
}
