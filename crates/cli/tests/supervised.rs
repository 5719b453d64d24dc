//! A broker under a supervisor: what it tells through `NOTIFY_SOCKET`, and what signals do.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use tidegate_test_support::{Broker, Launch};

/// Nothing here takes that long, unless it never happens.
const PATIENCE: Duration = Duration::from_secs(20);

struct Supervised {
    broker: Broker,
    socket: UnixDatagram,
}

impl Supervised {
    fn start() -> Self {
        let launch = Launch::new();
        let path = launch.folder().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let launch = launch.environment("NOTIFY_SOCKET", path).environment("WATCHDOG_USEC", "100000");
        Self { broker: launch.arguments(["--shards", "2"]).start(), socket }
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

    /// Waits for so many lines of the log with these words; the last.
    fn await_logged(&self, words: &str, times: usize) -> String {
        let end = std::time::Instant::now() + PATIENCE;
        loop {
            let log = self.broker.log();
            if let Some(line) = log.lines().filter(|line| line.contains(words)).nth(times - 1) {
                return line.to_owned();
            }
            assert!(std::time::Instant::now() < end, "{words:?} is not {times} times in:\n{log}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends by a signal and with success.
    fn ends_well(&mut self) {
        assert_eq!(self.broker.child.wait().expect("it ends").code(), Some(0));
    }
}

#[test]
fn every_step_is_told() {
    let mut supervised = Supervised::start();
    let ready = format!("READY=1\nMAINPID={}", supervised.broker.child.id());
    assert_eq!(supervised.hear("READY=1"), ready);
    for _ in 0..3 {
        supervised.hear("WATCHDOG=1");
    }
    supervised.broker.signal("-HUP");
    supervised.hear("RELOADING=1\nMONOTONIC_USEC=");
    supervised.hear("READY=1");
    supervised.broker.signal("-TERM");
    supervised.hear("STOPPING=1");
    supervised.ends_well();
}

#[test]
fn signals_do_what_the_help_says() {
    let mut supervised = Supervised::start();
    supervised.hear("READY=1");
    supervised.broker.signal("-USR1");
    assert!(supervised.await_logged("event=counters", 1).contains("connections=0"));
    supervised.broker.signal("-USR2");
    assert!(supervised.await_logged("event=log_level", 1).contains("level=debug"));
    supervised.broker.signal("-USR2");
    assert!(supervised.await_logged("event=log_level", 2).contains("level=info"));
    supervised.broker.signal("-HUP");
    assert!(supervised.await_logged("event=reloaded", 1).contains("changed="));
    supervised.broker.signal("-INT");
    supervised.await_logged("event=stopped", 1);
    supervised.ends_well();
}
