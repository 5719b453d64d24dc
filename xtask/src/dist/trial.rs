//! What was built is tried before it is packed: it starts, takes a message, is killed, starts again and has the message. A
//! program for another machine runs in qemu's user mode, where that is installed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use super::Failure;
use super::build::Target;

/// How programs of a target are run here.
#[derive(Clone, Debug)]
pub(super) enum Runner {
    Native,
    Qemu(&'static str),
}

impl Runner {
    /// None if they cannot be.
    pub(super) fn of(target: &Target) -> Option<Self> {
        if target.is_of_this_machine() {
            return Some(Self::Native);
        }
        let names: [&'static str; 2] = target.emulators();
        let is_there = |name: &&str| Command::new(*name).arg("--version").output().is_ok_and(|it| it.status.success());
        names.into_iter().find(|name| is_there(name)).map(Self::Qemu)
    }

    pub(super) fn command(&self, program: &Path) -> Command {
        match self {
            Self::Native => Command::new(program),
            Self::Qemu(emulator) => {
                let mut command = Command::new(emulator);
                command.arg(program);
                command
            }
        }
    }
}

/// A broker that is killed with this.
struct TriedBroker {
    child: Child,
    port: String,
    /// Kept open: whoever writes to a closed pipe ends.
    _said: BufReader<ChildStdout>,
}

impl Drop for TriedBroker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Tries the program; what there is to say about it.
pub(super) fn run(runner: &Runner, program: &Path) -> Result<String, Failure> {
    let folder = tempfile::tempdir().map_err(|error| format!("no folder: {error}"))?;
    let data = folder.path().join("data");
    let broker = start(runner, program, &data)?;
    say(runner, program, &["pub", "-p", &broker.port, "-t", "a/b", "-m", "kept", "-q", "1", "-r"])?;
    drop(broker);
    let broker = start(runner, program, &data)?;
    let found = say(runner, program, &["sub", "-p", &broker.port, "-t", "a/b", "-C", "1", "-W", "60"])?;
    if found.trim() != "kept" {
        return Err(format!("after kill -9 a kept message is {found:?}"));
    }
    let memory =
        resident(&broker).map_or_else(|| "an unknown amount".to_owned(), |kib| format!("{:.1} MiB", kib / 1024.0));
    let by = match runner {
        Runner::Native => String::new(),
        Runner::Qemu(emulator) => format!(" (in {emulator}, whose own memory is counted with it)"),
    };
    Ok(format!("starts, keeps a message through kill -9, has {memory} of memory{by}"))
}

fn start(runner: &Runner, program: &Path, data: &Path) -> Result<TriedBroker, Failure> {
    let mut command = runner.command(program);
    command.args([
        "serve",
        "-c",
        "/dev/null",
        "--mqtt",
        "127.0.0.1:0",
        "--ws",
        "off",
        "--http",
        "off",
        "--ssap",
        "off",
    ]);
    command
        .args([
            "--coap",
            "off",
            "--sn",
            "off",
            "--http-topics",
            "off",
            "--amqp",
            "off",
            "--admin",
            "off",
            "--log-level",
            "off",
            "--data",
        ])
        .arg(data)
        .stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
    let mut said = BufReader::new(child.stdout.take().ok_or("no output")?);
    let mut banner = String::new();
    // One line when it is ready, or none if it has ended.
    let read = said.read_line(&mut banner);
    let port =
        banner.split("mqtt 127.0.0.1:").nth(1).and_then(|rest| rest.split_whitespace().next()).map(str::to_owned);
    let broker = TriedBroker { child, port: port.unwrap_or_default(), _said: said };
    if broker.port.is_empty() {
        return Err(format!("{} does not start: {read:?} {banner:?}", program.display()));
    }
    Ok(broker)
}

fn say(runner: &Runner, program: &Path, words: &[&str]) -> Result<String, Failure> {
    let output =
        runner.command(program).args(words).output().map_err(|error| format!("{}: {error}", program.display()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{} {}: {}", program.display(), words.join(" "), String::from_utf8_lossy(&output.stderr)))
}

/// KiB that the process has in memory.
fn resident(broker: &TriedBroker) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{}/status", broker.child.id())).ok()?;
    text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().trim_end_matches(" kB").parse().ok()
}
