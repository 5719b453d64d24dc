//! Brokers that are not ours: Debian's mosquitto, and some that are none.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::PATIENCE;
use crate::skip::{Remedy, skip};

/// mosquitto on a port of its own, ended with the test.
#[derive(Debug)]
pub struct Mosquitto {
    child: Child,
    program: PathBuf,
    /// Where it listens.
    pub port: u16,
    folder: tempfile::TempDir,
}

impl Mosquitto {
    /// With these lines in its configuration. None, and counted as skipped, if there is no such program.
    #[must_use]
    pub fn start(settings: &str) -> Option<Self> {
        let places = ["/usr/sbin/mosquitto", "/usr/local/sbin/mosquitto", "/usr/bin/mosquitto"];
        let Some(program) = places.iter().map(PathBuf::from).find(|place| place.is_file()) else {
            skip("mosquitto", "no such program", Remedy::Owner("apt-get install mosquitto"));
            return None;
        };
        let (folder, port) = (tempfile::tempdir().expect("a folder"), free_port());
        let file = folder.path().join("mosquitto.conf");
        let text = format!("listener {port} 127.0.0.1\nallow_anonymous true\n{settings}\n");
        std::fs::write(&file, text).expect("a file");
        // Started by root, it reads its files as somebody else.
        #[cfg(unix)]
        for path in [folder.path(), &file] {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(path, mode).expect("rights");
        }
        Some(Self { child: run(&program, &file, port), program, port, folder })
    }

    /// Kills it.
    pub fn stop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }

    /// Lets it end as it likes: it writes what it keeps.
    pub fn terminate(&mut self) {
        let told = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(told.is_ok_and(|status| status.success()), "mosquitto is told to end");
        let _ = self.child.wait();
    }

    /// Starts it again at the same port.
    pub fn start_again(&mut self) {
        self.child = run(&self.program, &self.folder.path().join("mosquitto.conf"), self.port);
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(program: &Path, file: &Path, port: u16) -> Child {
    let mut command = Command::new(program);
    command.arg("-c").arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().expect("it starts");
    let end = Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < end, "mosquitto does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

/// A port where nobody listens.
#[must_use]
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port()
}

/// Somebody at a port who is no broker: answers the first bytes of every connection with these, and keeps it open.
#[must_use]
pub fn stranger(answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
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

/// A CONNECT of level 4 or 5 with a clean start, this keep-alive and identifier.
#[must_use]
pub fn connect_packet(level: u8, keep_alive: u8, id: &str) -> Vec<u8> {
    let properties: &[u8] = if level == 5 { &[0] } else { &[] };
    let body =
        [b"\x00\x04MQTT", &[level, 2, 0, keep_alive][..], properties, &[0, id.len() as u8], id.as_bytes()].concat();
    [&[0x10, body.len() as u8], &body[..]].concat()
}

/// A connection by hand, and what is answered to the first bytes.
#[must_use]
pub fn raw_connection(port: u16, first: &[u8]) -> (TcpStream, Vec<u8>) {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    socket.write_all(first).expect("it takes it");
    let mut answer = vec![0; 256];
    let size = socket.read(&mut answer).expect("it answers");
    answer.truncate(size);
    (socket, answer)
}
