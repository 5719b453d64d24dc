//! The brokers under test: started with a folder of their own, ended by their process id however the benchmark ends.

mod child;
mod others;
mod own;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

use child::ChildBroker;
pub(super) use child::folder;
pub(super) use others::{free_port, start_beside, start_haproxy, start_unheard};
pub(super) use own::{start_coap, start_doors, start_guard, start_site, start_space, start_with_sink};
use own::{start_own, start_program, start_tidegate};

use super::cases::UserCheck;
use super::peers;
use super::report::BrokerRole;
use others::{start_command, start_configured};
use tidegate_program::Stop;

/// How often a broker publishes its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counters {
    /// As it does by default.
    Usual,
    /// Every second.
    Often,
}

/// What a case asks of every broker alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BrokerNeeds {
    pub(super) counters: Counters,
    pub(super) users: UserCheck,
    /// Messages that may wait for a subscriber; as many as by default, or as 50 windows need, if not said.
    pub(super) queue_max: Option<u32>,
    /// Whether peers keep sessions on disk; ours does by default.
    pub(super) is_kept: bool,
}

impl BrokerNeeds {
    /// Nothing in particular.
    pub(super) const NONE: Self =
        Self { counters: Counters::Usual, users: UserCheck::Nobody, queue_max: None, is_kept: false };
}

/// How our broker is set where a case compares several ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tune {
    /// Its name in the report.
    pub(super) name: &'static str,
    pub(super) role: BrokerRole,
    /// As for `--set`.
    pub(super) settings: &'static [&'static str],
}

impl Tune {
    /// As it is by default.
    pub(super) const USUAL: Self = Self { name: "tidegate", role: BrokerRole::Own, settings: &[] };
}

/// Where a broker comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BrokerSource {
    /// This binary, with so many shards or as many as it chooses.
    Tidegate { shards: Option<u32>, tune: Tune },
    /// This binary, copying bytes.
    Relay,
    /// mosquitto at this path.
    Mosquitto(PathBuf),
    /// rumqttd at this path.
    Rumqttd(PathBuf),
    /// A shell command with `{port}` and `{dir}`.
    Command(String),
    /// One that already runs.
    Running { address: SocketAddr, pid: Option<u32> },
}

impl BrokerSource {
    /// This binary as it is by default.
    pub(super) const fn own() -> Self {
        Self::Tidegate { shards: None, tune: Tune::USUAL }
    }

    /// Its name in the report.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Tidegate { shards: None, tune } => tune.name.to_owned(),
            Self::Tidegate { shards: Some(1), .. } => "1 shard".to_owned(),
            Self::Tidegate { shards: Some(shards), .. } => format!("{shards} shards"),
            Self::Relay => "relay".to_owned(),
            Self::Mosquitto(path) | Self::Rumqttd(path) => file_name(path),
            Self::Command(command) => {
                command.split_whitespace().next().map_or_else(String::new, |word| file_name(Path::new(word)))
            }
            Self::Running { .. } => "broker".to_owned(),
        }
    }

    /// What it is to the others in the report.
    pub(super) fn role(&self) -> BrokerRole {
        match self {
            Self::Tidegate { tune, .. } => tune.role,
            Self::Running { .. } => BrokerRole::Own,
            Self::Relay => BrokerRole::Relay,
            Self::Mosquitto(_) => BrokerRole::Mosquitto,
            Self::Rumqttd(_) | Self::Command(_) => BrokerRole::Peer,
        }
    }

    /// Starts it, or finds it, and waits until it listens.
    pub(super) fn start(&self, wish: &BrokerNeeds, stop: &Stop) -> Result<RunningBroker> {
        self.start_with(wish, |_| Ok(()), stop)
    }

    /// The same; before ours starts `prepare` may write into the folder of its store.
    pub(super) fn start_with(
        &self,
        wish: &BrokerNeeds,
        prepare: impl FnOnce(&Path) -> Result<()>,
        stop: &Stop,
    ) -> Result<RunningBroker> {
        let started = match self {
            Self::Running { address, pid } => Ok(RunningBroker {
                address: *address,
                admin: None,
                space: None,
                coap: None,
                sn: None,
                amqp: None,
                pid: *pid,
                is_relay: false,
                started: None,
            }),
            Self::Tidegate { shards, tune } => start_tidegate(*shards, tune, wish, prepare),
            Self::Relay => {
                start_program(std::env::current_exe().context("where is this program?")?, folder()?, &["--as-relay"])
                    .map(|broker| RunningBroker { is_relay: true, ..broker })
            }
            Self::Mosquitto(path) => {
                let text = |port, folder: &Path| peers::mosquitto_config(port, wish, folder);
                start_configured(path, &["-c"], text, stop)
            }
            Self::Rumqttd(path) => {
                start_configured(path, &["-q", "-c"], |port, _| Ok(peers::rumqttd_config(port)), stop)
            }
            Self::Command(command) => start_command(command, stop),
        };
        started.with_context(|| format!("{} did not start", self.name()))
    }
}

/// A broker to connect to. One that was started ends with this value.
#[derive(Debug)]
pub(super) struct RunningBroker {
    pub(super) address: SocketAddr,
    /// The admin address of our own broker.
    pub(super) admin: Option<SocketAddr>,
    /// The smart space over HTTP, where it is wanted.
    pub(super) space: Option<SocketAddr>,
    /// CoAP, where it is wanted.
    pub(super) coap: Option<SocketAddr>,
    /// MQTT-SN, where it is wanted.
    pub(super) sn: Option<SocketAddr>,
    /// AMQP, where it is wanted.
    pub(super) amqp: Option<SocketAddr>,
    pub(super) pid: Option<u32>,
    /// Whether it only copies bytes, and knows no packets.
    pub(super) is_relay: bool,
    started: Option<ChildBroker>,
}

impl RunningBroker {
    fn of(started: ChildBroker, address: SocketAddr) -> Self {
        let pid = Some(started.child.id());
        let (admin, space, coap, sn, amqp) = (None, None, None, None, None);
        Self { address, admin, space, coap, sn, amqp, pid, is_relay: false, started: Some(started) }
    }

    /// Where its files are, if it was started here.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.started.as_ref().map(|started| started.folder.path())
    }

    /// Ends ours at once, without a word to it; what it has written stays.
    pub(super) fn kill(self) -> Result<KilledBroker> {
        let ChildBroker { child, folder, arguments } = self.started.context("a broker that was not started here")?;
        drop(child);
        Ok(KilledBroker { folder, arguments })
    }

    /// Whether it ended by itself, which it must not.
    pub(super) fn has_ended(&mut self) -> bool {
        self.started.as_mut().is_some_and(|started| !matches!(started.child.try_wait(), Ok(None)))
    }
}

/// What is left of a broker of ours that was killed.
#[derive(Debug)]
pub(super) struct KilledBroker {
    folder: TempDir,
    arguments: Vec<String>,
}

impl KilledBroker {
    /// Starts it again on what it had written, and waits until it listens.
    pub(super) fn start(self) -> Result<RunningBroker> {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        start_own(self.folder, &arguments)
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| "peer".to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_programs() {
        assert_eq!(BrokerSource::Mosquitto("/usr/sbin/mosquitto".into()).name(), "mosquitto");
        assert_eq!(BrokerSource::Command("/opt/rumqttd -c x".to_owned()).name(), "rumqttd");
    }

    #[test]
    fn a_broker_that_ends_at_once_is_told_with_its_last_words() {
        let stop = Stop::on_signals().unwrap();
        let source = BrokerSource::Command("sh -c 'echo no such port {port} >&2; exit 1'".to_owned());
        let error = format!("{:#}", source.start(&BrokerNeeds::NONE, &stop).unwrap_err());
        assert!(error.starts_with("sh did not start: no such port "), "{error}");
    }
}
