//! Brokers behind a guard: Debian's mosquitto, and some that are none.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_broker::config::{Config, Listener, ListenerKind};
use tidegate_broker::{AskedBehind, Broker, GuardConfig};
use tidegate_core::access::Open;
use tidegate_test_support::PATIENCE;
use tidegate_test_support::skip::{Remedy, skip};

/// mosquitto, ended with the test.
pub(crate) struct Mosquitto {
    child: Child,
    program: PathBuf,
    pub(crate) port: u16,
    folder: tempfile::TempDir,
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Mosquitto {
    /// None, and said so, if there is no such program.
    pub(crate) fn start() -> Option<Self> {
        let places = ["/usr/sbin/mosquitto", "/usr/local/sbin/mosquitto", "/usr/bin/mosquitto"];
        let Some(program) = places.iter().map(PathBuf::from).find(|place| place.is_file()) else {
            skip("mosquitto", "no such program", Remedy::Owner("apt-get install mosquitto"));
            return None;
        };
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        Some(Self { child: run(&program, folder.path(), port), program, port, folder })
    }

    pub(crate) fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn start_again(&mut self) {
        self.child = run(&self.program, self.folder.path(), self.port);
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).unwrap().port()
}

fn run(program: &Path, folder: &Path, port: u16) -> Child {
    let (file, rules) = (folder.join("mosquitto.conf"), folder.join("acl"));
    // Everybody may do everything, but for one topic.
    std::fs::write(&rules, "topic readwrite #\ntopic deny secret/#\n").unwrap();
    let text = format!("listener {port} 127.0.0.1\nallow_anonymous true\nacl_file {}\n", rules.display());
    std::fs::write(&file, text).unwrap();
    #[cfg(unix)]
    for path in [folder, &file, &rules] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(program);
    command.arg("-c").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    let end = Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < end, "mosquitto does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
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
        guard: Some(GuardConfig { upstream, timeout }),
        sys_interval: Duration::ZERO,
        ..Config::default()
    };
    let broker = Broker::start(config, Arc::new(AskedBehind), Arc::new(Open)).unwrap();
    let port = broker.addresses()[0].1.port();
    (broker, port)
}

/// Somebody at a port who is no broker: answers every connection with these bytes, and keeps it open.
pub(crate) fn stranger(answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let mut first = [0; 64];
            let _ = stream.read(&mut first);
            let _ = stream.write_all(answer);
            open.push(stream);
        }
    });
    port
}
