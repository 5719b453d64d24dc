//! Brokers behind a guard: Debian's mosquitto, and some that are none.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tidegate_test_support::skip::{Remedy, skip};
use tidegate_test_support::{Broker, Launch, PATIENCE};

/// mosquitto, ended with the test.
pub(crate) struct Mosquitto {
    child: Child,
    pub(crate) port: u16,
    folder: tempfile::TempDir,
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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
        let folder = tempfile::tempdir().expect("a folder");
        let port = free_port();
        Some(Self { child: run(&program, folder.path(), port), port, folder })
    }

    pub(crate) fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn start_again(&mut self) {
        self.child = run(Path::new("/usr/sbin/mosquitto"), self.folder.path(), self.port);
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port()
}

fn run(program: &Path, folder: &Path, port: u16) -> Child {
    let (file, users) = (folder.join("mosquitto.conf"), folder.join("acl"));
    // Two who may do everything, and a topic that nobody else may read.
    std::fs::write(&users, "topic readwrite #\ntopic deny secret/#\n").expect("a file");
    let text = format!("listener {port} 127.0.0.1\nallow_anonymous true\nacl_file {}\n", users.display());
    std::fs::write(&file, text).expect("a file");
    #[cfg(unix)]
    for path in [folder, &file, &users] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, mode).expect("rights");
    }
    let mut command = Command::new(program);
    command.arg("-c").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().expect("it starts");
    let end = Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < end, "mosquitto does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
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

/// Somebody at a port who is no broker: answers every connection with these bytes, and keeps it open.
pub(crate) fn stranger(answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut first = [0; 64];
            let _ = stream.read(&mut first);
            let _ = stream.write_all(answer);
            open.push(stream);
        }
    });
    port
}
