//! Brokers of others, which read a file or a command line, and do not say where they listen.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use tidegate_program::Stop;

use super::RunningBroker;
use super::child::{ChildBroker, folder};

/// The longest that a broker may take until it listens.
const START_MAX: Duration = Duration::from_secs(10);

/// HAProxy in front of a broker, as a proxy of TCP with one thread.
pub(crate) fn start_haproxy(path: &Path, upstream: SocketAddr, stop: &Stop) -> Result<RunningBroker> {
    let text = |port, _: &Path| {
        Ok(format!(
            "global\n  maxconn 4096\n  nbthread 1\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  \
             timeout server 1h\nlisten mqtt\n  bind 127.0.0.1:{port}\n  server behind {upstream}\n"
        ))
    };
    start_configured(path, &["-db", "-f"], text, stop).context("HAProxy did not start")
}

/// A server of datagrams, of which only an answer says that it is there.
pub(crate) fn start_unheard(mut command: Command, address: SocketAddr) -> Result<RunningBroker> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Ok(RunningBroker::of(ChildBroker::new(command, folder()?)?, address))
}

/// A peer that reads a file which names its port.
pub(super) fn start_configured(
    path: &Path,
    flags: &[&str],
    text: impl FnOnce(u16, &Path) -> Result<String>,
    stop: &Stop,
) -> Result<RunningBroker> {
    let (folder, port) = (folder()?, free_port()?);
    let config = folder.path().join("config.toml");
    std::fs::write(&config, text(port, folder.path())?)?;
    let mut command = Command::new(path);
    command.args(flags).arg(&config).stdin(Stdio::null()).stdout(Stdio::null());
    await_listener(ChildBroker::new(command, folder)?, port, Instant::now() + START_MAX, stop)
}

pub(super) fn start_command(command: &str, stop: &Stop) -> Result<RunningBroker> {
    let (folder, port) = (folder()?, free_port()?);
    let filled = command.replace("{port}", &port.to_string()).replace("{dir}", &folder.path().display().to_string());
    let mut shell = Command::new("sh");
    // `exec`: the process that is measured and ended is the broker, not the shell.
    shell.arg("-c").arg(format!("exec {filled}")).stdin(Stdio::null()).stdout(Stdio::null());
    await_listener(ChildBroker::new(shell, folder)?, port, Instant::now() + START_MAX, stop)
}

/// A server whose folder and port are chosen already; it listens when somebody is let in there.
pub(crate) fn start_beside(
    command: Command,
    folder: TempDir,
    port: u16,
    end: Instant,
    stop: &Stop,
) -> Result<RunningBroker> {
    await_listener(ChildBroker::new(command, folder)?, port, end, stop)
}

fn await_listener(mut started: ChildBroker, port: u16, end: Instant, stop: &Stop) -> Result<RunningBroker> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    while Instant::now() < end && !stop.is_wanted() {
        if !matches!(started.child.try_wait(), Ok(None)) {
            return Err(started.complaint());
        }
        if TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok() {
            return Ok(RunningBroker::of(started, address));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("nobody listens on {address}: {}", started.complaint())
}

/// A port that was free a moment ago: other brokers cannot tell which one they took.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?.local_addr()?.port())
}
