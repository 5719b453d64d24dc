//! RabbitMQ with its plugin for AMQP 1.0, if Debian's package is installed: on ports and in a folder of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tidegate_program::Stop;

use crate::process::{RunningBroker, folder, free_port, start_beside, start_unheard};

/// How to get it.
pub(super) const GET_RABBITMQ: &str =
    "skipped: no RabbitMQ with AMQP 1.0 to compare with: apt-get install rabbitmq-server";
/// How long Erlang may take to begin.
const START_MAX: Duration = Duration::from_secs(60);

/// Its own script; that on the path wants to be root or a service.
pub(super) fn find() -> Option<PathBuf> {
    let homes = std::fs::read_dir("/usr/lib/rabbitmq/lib").ok()?;
    homes.flatten().map(|home| home.path().join("sbin/rabbitmq-server")).find(|script| script.is_file())
}

/// It and the names of Erlang's nodes, a process of its own that would outlive it.
pub(super) fn start(script: &Path, stop: &Stop) -> Result<(RunningBroker, RunningBroker)> {
    let (port, names, nodes) = (free_port()?, free_port()?, free_port()?);
    let mut epmd = Command::new("epmd");
    epmd.args(["-port", &names.to_string(), "-address", "127.0.0.1"]);
    let epmd = start_unheard(epmd, ([127, 0, 0, 1], names).into()).context("Erlang's epmd")?;
    let place = folder()?;
    let at = |name: &str| place.path().join(name);
    std::fs::write(at("plugins"), "[rabbitmq_amqp1_0].\n")?;
    std::fs::write(at("rabbit.conf"), format!("listeners.tcp.1 = 127.0.0.1:{port}\nlog.file.level = error\n"))?;
    let mut command = Command::new(script);
    command
        .env("HOME", place.path())
        .env("ERL_EPMD_PORT", names.to_string())
        .env("RABBITMQ_NODENAME", format!("bench{port}@localhost"))
        .env("RABBITMQ_DIST_PORT", nodes.to_string())
        .env("RABBITMQ_MNESIA_BASE", at("data"))
        .env("RABBITMQ_LOG_BASE", at("logs"))
        .env("RABBITMQ_CONFIG_FILE", at("rabbit.conf"))
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", at("plugins"))
        // The script becomes Erlang then, instead of waiting for it: what is measured and ended is the broker.
        .env("RABBITMQ_ALLOW_INPUT", "1")
        .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-noinput")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let end = Instant::now() + START_MAX;
    let broker = start_beside(command, place, port, end, stop).context("RabbitMQ did not start")?;
    Ok((broker, epmd))
}
