//! The brokers under test: started with a folder of their own, ended by their process id however the benchmark ends.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use tempfile::TempDir;

use super::cases::UserCheck;
use super::peers;
use super::report::BrokerRole;
use tidegate_program::Stop;
use tidegate_server::plan::STORE;

/// The longest that a broker may take until it listens.
const START_MAX: Duration = Duration::from_secs(10);
/// Where ours keeps everything, in its folder.
const DATA: &str = "data";

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

/// Field order is drop order: the process has ended when its folder is removed.
#[derive(Debug)]
struct ChildBroker {
    child: KillOnDrop,
    folder: TempDir,
    /// What ours was told, to start it once more.
    arguments: Vec<String>,
}

impl ChildBroker {
    /// Starts a process whose complaints go to a file.
    fn new(mut command: Command, folder: TempDir) -> Result<Self> {
        let log = std::fs::File::create(folder.path().join("log"))?;
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.current_dir(folder.path()).stderr(log).spawn().with_context(|| program)?;
        Ok(Self { child: KillOnDrop(child), folder, arguments: Vec::new() })
    }

    /// What it complained about last.
    fn complaint(&self) -> anyhow::Error {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let last = log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        anyhow!("{}", last.trim())
    }
}

/// A process that is ended when this is dropped. Nothing of it is worth keeping, so it is not asked twice.
#[derive(Debug)]
struct KillOnDrop(Child);

impl std::ops::Deref for KillOnDrop {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl std::ops::DerefMut for KillOnDrop {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| "peer".to_owned(), |name| name.to_string_lossy().into_owned())
}

pub(super) fn folder() -> Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("tidegate-bench-").tempdir().context("no temporary folder")?;
    // mosquitto gives up root's rights before it looks at its folder again.
    #[cfg(unix)]
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    Ok(folder)
}

/// Doors beside MQTT that are open unless they are shut.
const DOORS: [&str; 8] = ["--ws", "--admin", "--http", "--ssap", "--coap", "--sn", "--http-topics", "--amqp"];

/// The words that start a broker of ours on free ports, with MQTT and no other doors than these.
fn serve<'a>(config: &'a str, open: &[&str], log_level: &'a str) -> Vec<&'a str> {
    let mut words = vec!["serve", "-c", config, "--data", DATA, "--log-level", log_level, "--mqtt", "127.0.0.1:0"];
    words.extend(DOORS.iter().flat_map(|door| [*door, if open.contains(door) { "127.0.0.1:0" } else { "off" }]));
    words
}

fn start_tidegate(
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
pub(super) fn start_site(source: &BrokerSource, to: u16, wish: &BrokerNeeds, stop: &Stop) -> Result<RunningBroker> {
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
pub(super) fn start_with_sink(to: u16) -> Result<RunningBroker> {
    let folder = folder()?;
    let sink = format!(
        "[[sink]]\nname = \"count\"\ntype = \"webhook\"\nurl = \"http://127.0.0.1:{to}/\"\n[[sink.topic]]\nfilter = \"drain/#\"\n"
    );
    std::fs::write(folder.path().join("sink.toml"), sink)?;
    start_own(folder, &serve("sink.toml", &["--admin"], "error"))
}

/// A guard of ours in front of a broker.
pub(super) fn start_guard(upstream: SocketAddr) -> Result<RunningBroker> {
    let upstream = upstream.to_string();
    let mut arguments =
        vec!["guard", "--upstream", &upstream, "-c", "/dev/null", "--mqtt", "127.0.0.1:0", "--ws", "off"];
    arguments.extend(["--data", DATA, "--admin", "127.0.0.1:0", "--log-level", "warn"]);
    start_own(folder()?, &arguments).context("the guard did not start")
}

/// HAProxy in front of a broker, as a proxy of TCP with one thread.
pub(super) fn start_haproxy(path: &Path, upstream: SocketAddr, stop: &Stop) -> Result<RunningBroker> {
    let text = |port, _: &Path| {
        Ok(format!(
            "global\n  maxconn 4096\n  nbthread 1\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  \
             timeout server 1h\nlisten mqtt\n  bind 127.0.0.1:{port}\n  server behind {upstream}\n"
        ))
    };
    start_configured(path, &["-db", "-f"], text, stop).context("HAProxy did not start")
}

/// The broker that lies beside this program. Not one on the path: that may be any other.
fn start_own(folder: TempDir, arguments: &[&str]) -> Result<RunningBroker> {
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
fn start_program(program: PathBuf, folder: TempDir, arguments: &[&str]) -> Result<RunningBroker> {
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
pub(super) fn start_space(settings: &[&str]) -> Result<RunningBroker> {
    let mut arguments = serve("/dev/null", &["--http"], "warn");
    arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    start_own(folder()?, &arguments)
}

/// This binary with CoAP.
pub(super) fn start_coap() -> Result<RunningBroker> {
    let mut arguments = vec!["serve", "-c", "/dev/null", "--mqtt", "127.0.0.1:0", "--ws", "off", "--data", DATA];
    arguments.extend(["--admin", "off", "--http", "off", "--ssap", "off", "--http-topics", "off"]);
    // In memory alone, as servers of CoAP have their states.
    arguments.extend(["--coap", "127.0.0.1:0", "--set", "store.keep=false", "--log-level", "warn"]);
    start_own(folder()?, &arguments)
}

/// This binary with MQTT and these doors.
pub(super) fn start_doors(open: &[&str], settings: &[&str]) -> Result<RunningBroker> {
    let mut arguments = serve("/dev/null", open, "warn");
    arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    start_own(folder()?, &arguments)
}

/// A server whose folder and port are chosen already; it listens when somebody is let in there.
pub(super) fn start_beside(
    command: Command,
    folder: TempDir,
    port: u16,
    end: Instant,
    stop: &Stop,
) -> Result<RunningBroker> {
    await_listener(ChildBroker::new(command, folder)?, port, end, stop)
}

/// A server of datagrams, of which only an answer says that it is there.
pub(super) fn start_unheard(mut command: Command, address: SocketAddr) -> Result<RunningBroker> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Ok(RunningBroker::of(ChildBroker::new(command, folder()?)?, address))
}

/// A peer that reads a file which names its port.
fn start_configured(
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

fn start_command(command: &str, stop: &Stop) -> Result<RunningBroker> {
    let (folder, port) = (folder()?, free_port()?);
    let filled = command.replace("{port}", &port.to_string()).replace("{dir}", &folder.path().display().to_string());
    let mut shell = Command::new("sh");
    // `exec`: the process that is measured and ended is the broker, not the shell.
    shell.arg("-c").arg(format!("exec {filled}")).stdin(Stdio::null()).stdout(Stdio::null());
    await_listener(ChildBroker::new(shell, folder)?, port, Instant::now() + START_MAX, stop)
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
pub(super) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?.local_addr()?.port())
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

    #[test]
    fn a_broker_that_ends_at_once_is_told_with_its_last_words() {
        let stop = Stop::on_signals().unwrap();
        let source = BrokerSource::Command("sh -c 'echo no such port {port} >&2; exit 1'".to_owned());
        let error = format!("{:#}", source.start(&BrokerNeeds::NONE, &stop).unwrap_err());
        assert!(error.starts_with("sh did not start: no such port "), "{error}");
    }

    #[test]
    fn a_started_process_and_its_folder_are_gone_afterwards() {
        let mut command = Command::new("sleep");
        command.arg("60");
        let started = ChildBroker::new(command, folder().unwrap()).unwrap();
        let (pid, path) = (started.child.id(), started.folder.path().to_owned());
        drop(started);
        assert!(!path.exists());
        assert_eq!(crate::procfs::usage(pid), None);
    }
}
