//! The broker as a process of its own, and the host below it, which can be slowed.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tidegate_program::program_beside;

use super::duty::Duty;

/// What MQTT publishers say becomes the newest value of an item.
const CONFIG: &str = "[[map.ingest]]\ntopic = \"testbed/+item\"\n\
    triples = [\"<urn:testbed:{item}> <urn:testbed:value> {payload}\"]\n";

/// What the broker complains about, in its folder.
const LOG: &str = "log";

/// A broker, which ends with this value. Field order is drop order: the process has ended when its folder is removed.
#[derive(Debug)]
pub(super) struct Host {
    slowing: Option<Slowing>,
    child: KillOnDrop,
    pub(super) mqtt: SocketAddr,
    pub(super) http: SocketAddr,
    pub(super) ssap: SocketAddr,
    _folder: TempDir,
}

impl Host {
    /// The broker beside this program, on free ports, with these settings.
    pub(super) fn start(settings: &[String]) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("tidegate-lab-").tempdir().context("no temporary folder")?;
        std::fs::write(folder.path().join("testbed.toml"), CONFIG)?;
        let mut command = Command::new(program_beside("tidegate")?);
        let free = "127.0.0.1:0";
        command.args(["serve", "-c", "testbed.toml", "--data", "data", "--log-level", "error", "--ws", "off"]);
        command.args([
            "--admin",
            "off",
            "--coap",
            "off",
            "--sn",
            "off",
            "--http-topics",
            "off",
            "--amqp",
            "off",
            "--mqtt",
            free,
            "--http",
            free,
            "--ssap",
            free,
        ]);
        command.args(settings.iter().flat_map(|setting| ["--set", setting]));
        // The settings of whoever runs the laboratory are not those of the broker under test.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TIDEGATE_")) {
            command.env_remove(name);
        }
        let log = std::fs::File::create(folder.path().join(LOG))?;
        command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = KillOnDrop(command.spawn().context("the broker cannot be run")?);
        let output = child.0.stdout.take().context("no output")?;
        let mut line = String::new();
        // It says in its first line where it listens, so that no port is guessed.
        BufReader::new(output).read_line(&mut line)?;
        let door = |name: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let word = words.iter().position(|word| *word == name).and_then(|at| words.get(at + 1))?;
            word.trim_start_matches("http://").parse().ok()
        };
        let (Some(mqtt), Some(http), Some(ssap)) = (door("mqtt"), door("sparql"), door("ssap")) else {
            drop(child);
            let log = std::fs::read_to_string(folder.path().join(LOG)).unwrap_or_default();
            let last = log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
            bail!("the broker did not start: {}", last.trim());
        };
        Ok(Self { slowing: None, child, mqtt, http, ssap, _folder: folder })
    }

    /// CPU time of its threads so far, in seconds, as the scheduler counts it; none where there is no such count.
    pub(super) fn cpu(&self) -> Option<f64> {
        let of_task = |task: std::fs::DirEntry| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        };
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.0.id())).ok()?;
        Some(tasks.filter_map(|task| of_task(task.ok()?)).sum::<u64>() as f64 * 1e-9)
    }

    /// From now on it has one part in `slow` of the time; 1 for all of it.
    pub(super) fn slow_down(&mut self, slow: f64) {
        self.slowing = None;
        let duty = Duty::new(slow);
        if let Some(pid) = Pid::from_raw(self.child.0.id().cast_signed()).filter(|_| duty.is_needed()) {
            self.slowing = Some(Slowing::start(pid, duty));
        }
    }

    /// Whether it ended by itself, which it must not.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.0.try_wait(), Ok(None))
    }
}

/// The thread that stops the broker and lets it go on, until this is dropped; then the broker runs.
#[derive(Debug)]
struct Slowing {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Slowing {
    fn start(pid: Pid, mut duty: Duty) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let mut since = Instant::now();
            while !over.load(Ordering::Relaxed) {
                sleep(duty.run());
                let rest = duty.ran(since.elapsed());
                if !rest.is_zero() {
                    since = Instant::now();
                    if kill_process(pid, Signal::STOP).is_err() {
                        return;
                    }
                    sleep(rest);
                    let _ = kill_process(pid, Signal::CONT);
                    duty.rested(since.elapsed());
                }
                since = Instant::now();
            }
        });
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for Slowing {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Its last word is that the broker goes on.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A process that is ended when this is dropped, also while it is stopped.
#[derive(Debug)]
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
