//! Brokers of ours: this program's neighbour, on free ports, with the doors that a case wants.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use tidegate_program::Stop;
use tidegate_server::plan::STORE;

use super::child::{ChildBroker, folder};
use super::others::start_configured;
use super::{BrokerNeeds, BrokerSource, Counters, RunningBroker, Tune};
use crate::cases::UserCheck;
use crate::peers;

/// Where ours keeps everything, in its folder.
const DATA: &str = "data";

/// Doors beside MQTT that are open unless they are shut.
const DOORS: [&str; 8] = ["--ws", "--admin", "--http", "--ssap", "--coap", "--sn", "--http-topics", "--amqp"];

/// The words that start a broker of ours on free ports, with MQTT and no other doors than these.
fn serve<'a>(config: &'a str, open: &[&str], log_level: &'a str) -> Vec<&'a str> {
    let mut words = vec!["serve", "-c", config, "--data", DATA, "--log-level", log_level, "--mqtt", "127.0.0.1:0"];
    words.extend(DOORS.iter().flat_map(|door| [*door, if open.contains(door) { "127.0.0.1:0" } else { "off" }]));
    words
}

pub(super) fn start_tidegate(
    shards: Option<u32>,
    tune: &Tune,
    wish: &BrokerNeeds,
    prepare: impl FnOnce(&Path) -> Result<()>,
) -> Result<RunningBroker> {
    let folder = folder()?;
    prepare(&folder.path().join(DATA).join(STORE)).context("its store cannot be prepared")?;
    let mut arguments: Vec<String> = serve("/dev/null", &["--admin"], "warn").into_iter().map(Into::into).collect();
    if let Some(shards) = shards {
        arguments.extend(["--shards".to_owned(), shards.to_string()]);
    }
    let mut settings: Vec<String> = tune.settings.iter().map(|&setting| setting.to_owned()).collect();
    settings.extend((wish.counters == Counters::Often).then(|| "sys.interval=1s".to_owned()));
    settings.extend(wish.queue_max.map(|count| format!("limits.queue_messages_max={count}")));
    // So many messages of the benchmark fit into it: the count is the bound.
    let bytes = wish.queue_max.map(|count| u64::from(count).saturating_mul(512).max(16 << 20));
    settings.extend(bytes.map(|bytes| format!("limits.queue_bytes_max={bytes}")));
    if wish.users == UserCheck::One {
        let file = peers::password_file(folder.path())?;
        settings.push(format!("security.password_file={}", file.display()));
    }
    arguments.extend(settings.into_iter().flat_map(|setting| ["--set".to_owned(), setting]));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    start_own(folder, &arguments)
}

/// A broker with a bridge to a port of this machine, for everything below `drain/`.
pub(crate) fn start_site(source: &BrokerSource, to: u16, wish: &BrokerNeeds, stop: &Stop) -> Result<RunningBroker> {
    if let BrokerSource::Mosquitto(path) = source {
        let bridge = format!(
            "connection hub\naddress 127.0.0.1:{to}\ntopic drain/# out 1\ncleansession false\nrestart_timeout 1\n"
        );
        let text = |port, folder: &Path| Ok(peers::mosquitto_config(port, wish, folder)? + &bridge);
        return start_configured(path, &["-c"], text, stop);
    }
    let folder = folder()?;
    let bridge = format!(
        "[[bridge]]\nname = \"hub\"\naddress = \"127.0.0.1:{to}\"\n[[bridge.topic]]\nfilter = \"drain/#\"\nqos = 1\n"
    );
    std::fs::write(folder.path().join("site.toml"), bridge)?;
    start_own(folder, &serve("site.toml", &["--admin"], "warn"))
}

/// A broker with a sink to a web server on a port of this machine, for everything below `drain/`.
pub(crate) fn start_with_sink(to: u16) -> Result<RunningBroker> {
    let folder = folder()?;
    let sink = format!(
        "[[sink]]\nname = \"count\"\ntype = \"webhook\"\nurl = \"http://127.0.0.1:{to}/\"\n[[sink.topic]]\nfilter = \"drain/#\"\n"
    );
    std::fs::write(folder.path().join("sink.toml"), sink)?;
    start_own(folder, &serve("sink.toml", &["--admin"], "error"))
}

/// A guard of ours in front of a broker.
pub(crate) fn start_guard(upstream: SocketAddr) -> Result<RunningBroker> {
    let upstream = upstream.to_string();
    let mut arguments =
        vec!["guard", "--upstream", &upstream, "-c", "/dev/null", "--mqtt", "127.0.0.1:0", "--ws", "off"];
    arguments.extend(["--data", DATA, "--admin", "127.0.0.1:0", "--log-level", "warn"]);
    start_own(folder()?, &arguments).context("the guard did not start")
}

/// The broker that lies beside this program. Not one on the path: that may be any other.
pub(super) fn start_own(folder: TempDir, arguments: &[&str]) -> Result<RunningBroker> {
    start_program(own_program()?, folder, arguments)
}

fn own_program() -> Result<PathBuf> {
    let program = std::env::current_exe().context("where is this program?")?.with_file_name("tidegate");
    if !program.is_file() {
        bail!(
            "{} is not there; in the sources it is made by `cargo build --release -p tidegate-cli`",
            program.display()
        );
    }
    Ok(program)
}

/// A program of ours says in its first line where it listens, so that no port is guessed. It runs in a folder of its own.
pub(super) fn start_program(program: PathBuf, folder: TempDir, arguments: &[&str]) -> Result<RunningBroker> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    // The settings of whoever runs the benchmark are not those of the broker under test.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TIDEGATE_")) {
        command.env_remove(name);
    }
    let mut started = ChildBroker::new(command, folder)?;
    started.arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let output = started.child.stdout.take().context("no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let address = line.split_whitespace().find_map(|word| word.parse::<SocketAddr>().ok());
    match address {
        Some(address) => {
            let (admin, space) = (door_in(&line, "admin"), door_in(&line, "sparql"));
            let [coap, amqp] = ["coap://", "amqp://"].map(|scheme| address_in(&line, scheme));
            let sn = line.split_whitespace().skip_while(|word| *word != "sn").nth(1).and_then(|at| at.parse().ok());
            Ok(RunningBroker { admin, space, coap, sn, amqp, ..RunningBroker::of(started, address) })
        }
        None => Err(started.complaint()),
    }
}

/// What the first line says behind this scheme.
fn address_in(line: &str, scheme: &str) -> Option<SocketAddr> {
    line.split_whitespace().find_map(|word| word.strip_prefix(scheme)?.split('/').next()?.parse().ok())
}

/// Where the first line says that this door is.
fn door_in(line: &str, name: &str) -> Option<SocketAddr> {
    let mut words = line.split_whitespace().skip_while(|word| *word != name);
    words.nth(1)?.strip_prefix("http://")?.parse().ok()
}

/// This binary with its smart space, in memory as long as it lives: what is measured is its front desk, not the disk.
pub(crate) fn start_space(settings: &[&str]) -> Result<RunningBroker> {
    let mut arguments = serve("/dev/null", &["--http"], "warn");
    arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    start_own(folder()?, &arguments)
}

/// This binary with CoAP.
pub(crate) fn start_coap() -> Result<RunningBroker> {
    let mut arguments = serve("/dev/null", &["--coap"], "warn");
    // In memory alone, as servers of CoAP have their states.
    arguments.extend(["--set", "store.keep=false"]);
    start_own(folder()?, &arguments)
}

/// This binary with MQTT and these doors.
pub(crate) fn start_doors(open: &[&str], settings: &[&str]) -> Result<RunningBroker> {
    let mut arguments = serve("/dev/null", open, "warn");
    arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    start_own(folder()?, &arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_are_in_the_first_line() {
        let line = "tidegate 0.1.0  mqtt 127.0.0.1:1999  admin http://127.0.0.1:18830  sparql http://127.0.0.1:7878";
        assert_eq!(door_in(line, "admin"), "127.0.0.1:18830".parse().ok());
        assert_eq!(door_in(line, "sparql"), "127.0.0.1:7878".parse().ok());
        assert_eq!(door_in("tidegate 0.1.0  mqtt 127.0.0.1:1999", "admin"), None);
        let line =
            "tidegate 0.1.0  mqtt 127.0.0.1:1999  coap://127.0.0.1:5683/ps  sn 127.0.0.1:1885  amqp://127.0.0.1:5672";
        assert_eq!(address_in(line, "coap://"), "127.0.0.1:5683".parse().ok());
        assert_eq!(address_in(line, "amqp://"), "127.0.0.1:5672".parse().ok());
    }

    /// Two benchmarks at once, or one beside a broker: a door that is not wanted is shut, and one that is has a free port.
    #[test]
    fn no_door_has_the_port_of_somebody_else() {
        let words = serve("/dev/null", &["--coap"], "warn");
        for door in DOORS {
            let at = words.iter().position(|word| *word == door).expect("every door is named");
            assert_eq!(words[at + 1], if door == "--coap" { "127.0.0.1:0" } else { "off" }, "{door}");
        }
    }
}
