//! A burst takes memory, and when it is over the process gives it back: what Linux says is resident, with the program as it
//! is shipped. Nothing is timed: the end of the wait is far beyond the second or two that it takes.

#![cfg(all(feature = "jemalloc", target_os = "linux", target_env = "gnu"))]
#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::fmt::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tidegate_test_support::skip::{Remedy, skip};
use tidegate_test_support::{Broker, Launch, code};

const MIB: u64 = 1024 * 1024;
/// What may stay: pages that are half in use, and tables that keep their size. The system's allocator kept 70 to 200 MiB.
const STAYS_MAX: u64 = 32 * MIB;
/// What a burst must have taken at least: otherwise the test shows nothing.
const TAKEN_MIN: u64 = 48 * MIB;
/// Far beyond what it takes on a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(60);

/// A broker and what Linux says about it.
struct Measured(Broker);

impl Measured {
    /// None, and says so, where nobody tells what is resident.
    fn start(config: &str) -> Option<Self> {
        if std::fs::metadata("/proc/self/status").is_err() {
            skip("/proc/self/status", "this system does not have it", Remedy::Owner("use Linux"));
            return None;
        }
        Some(Self(Launch::new().door("http").config(config).start()))
    }

    /// A field of what Linux says about the process, in bytes.
    fn bytes(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.child.id())).expect("the broker runs");
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_else(|| panic!("no {field}"));
        1024 * line.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok()).expect("a number of KiB")
    }

    fn run(&self, tool: &str, arguments: &[&str]) {
        let mut command = self.0.tool(tool, &["-q", "1"]);
        assert!(command.args(arguments).stdout(Stdio::null()).status().expect("it runs").success(), "{tool}");
    }

    /// The burst has taken much, and what is resident comes back to about what it was.
    fn gives_back(&self, before: u64) {
        let most = self.bytes("VmHWM");
        assert!(most > before + TAKEN_MIN, "a burst from {before} to {most} bytes is none");
        let end = Instant::now() + PATIENCE;
        while self.bytes("VmRSS") > before + STAYS_MAX {
            let now = self.bytes("VmRSS");
            assert!(Instant::now() < end, "{now} bytes are resident; {before} were before, {most} in between");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn a_space_that_was_filled_sorted_and_emptied_gives_its_memory_back() {
    let Some(broker) = Measured::start("") else { return };
    let before = broker.bytes("VmRSS");
    for part in 0..12 {
        let mut text = "INSERT DATA {".to_owned();
        for number in part * 10_000..(part + 1) * 10_000 {
            let _ = writeln!(text, "<http://x/s{number}> <http://x/p> \"the value with the number {number}\" .");
        }
        text.push('}');
        broker.0.update(&text);
    }
    let query = "SELECT * { ?s ?p ?o } ORDER BY ?o";
    assert_eq!(code(&broker.0.post("/query", "application/sparql-query", query)), 200);
    broker.0.update("CLEAR ALL");
    broker.gives_back(before);
}

#[test]
fn a_queue_that_was_long_and_is_drained_gives_its_memory_back() {
    let config = "[limits]\nqueue_messages_max = 1000000\nqueue_bytes_max = \"1GiB\"\nmemory = \"1GiB\"\n\
                  [store]\nkeep = false\n";
    let Some(broker) = Measured::start(config) else { return };
    let before = broker.bytes("VmRSS");
    let away = ["-t", "q", "-c", "-i", "away"];
    broker.run("sub", &[&away[..], &["-E"]].concat());
    let payload = "x".repeat(300);
    broker.run("pub", &["-t", "q", "-m", &payload, "--repeat", "200000"]);
    broker.run("sub", &[&away[..], &["-C", "200000", "-W", "300"]].concat());
    broker.gives_back(before);
}
