//! A broker under a supervisor: what it tells through `NOTIFY_SOCKET`, and what signals do.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Nothing here takes that long, unless it never happens.
const PATIENCE: Duration = Duration::from_secs(20);

struct Supervised {
    child: Child,
    socket: UnixDatagram,
    log: BufReader<std::process::ChildStderr>,
    _folder: tempfile::TempDir,
}

impl Supervised {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args([
                "serve",
                "--mqtt",
                "127.0.0.1:0",
                "--ws",
                "off",
                "--http",
                "off",
                "--ssap",
                "off",
                "--admin",
                "off",
                "--shards",
                "2",
                "-c",
                "/dev/null",
                "--data",
            ])
            .arg(folder.path().join("data"))
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", "100000")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the broker starts");
        let log = BufReader::new(child.stderr.take().expect("piped"));
        Self { child, socket, log, _folder: folder }
    }

    /// The next message that begins so; others may come between.
    fn hear(&self, start: &str) -> String {
        let mut bytes = [0; 256];
        loop {
            let count = self.socket.recv(&mut bytes).unwrap_or_else(|error| panic!("{start} was not heard: {error}"));
            let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
            if text.starts_with(start) {
                return text;
            }
        }
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status().expect("kill runs");
        assert!(status.success());
    }

    /// The next line of the log with these words.
    fn read_log(&mut self, words: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.log.read_line(&mut line).expect("the log is text") > 0, "{words:?} was not logged");
            if line.contains(words) {
                return line;
            }
        }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_step_is_told() {
    let mut broker = Supervised::start();
    assert_eq!(broker.hear("READY=1"), format!("READY=1\nMAINPID={}", broker.child.id()));
    for _ in 0..3 {
        broker.hear("WATCHDOG=1");
    }
    broker.signal("-HUP");
    broker.hear("RELOADING=1\nMONOTONIC_USEC=");
    broker.hear("READY=1");
    broker.signal("-TERM");
    broker.hear("STOPPING=1");
    assert_eq!(broker.child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn signals_do_what_the_help_says() {
    let mut broker = Supervised::start();
    broker.hear("READY=1");
    broker.signal("-USR1");
    assert!(broker.read_log("event=counters").contains("connections=0"));
    broker.signal("-USR2");
    assert!(broker.read_log("event=log_level").contains("level=debug"));
    broker.signal("-USR2");
    assert!(broker.read_log("event=log_level").contains("level=info"));
    broker.signal("-HUP");
    assert!(broker.read_log("event=reloaded").contains("changed="));
    broker.signal("-INT");
    broker.read_log("event=stopped");
    assert_eq!(broker.child.wait().expect("it ends").code(), Some(0));
}
