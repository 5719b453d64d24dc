//! From a configuration to a running broker, and what signals do to it.
//!
//! Everything that can be wrong is found before the first thread starts. Afterwards the main thread only waits for
//! signals: HUP reads the configuration again, TERM and INT drain, a second one ends the process at once. A supervisor
//! that asked for it is told about each step.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use tidegate_admin::{Admin, AdminListeners, ClusterReport, Demo, Otlp, ProcessControl, TlsSource};
use tidegate_broker::config::{Config, Listener, ListenerKind};
use tidegate_broker::store_link::{Opening, Restored};
use tidegate_broker::{Broker, ListenerReport};
use tidegate_space::SpaceAddresses;
use tidegate_store::Durability;
use tidegate_store::disk::Mirror;
use tracing::{info, warn};

use crate::config::{Loaded, Origin, Problems, Sources, absolute, read};
use crate::door_certificates::DoorCertificates;
use crate::log::LevelHandle;
use crate::own_clients::OwnClients;
use crate::plan::password_file;
use crate::running::{self, RunningProcess};
use crate::security::{Audience, Security};
use crate::supervisor::Supervisor;
use crate::{authority, bind, descriptors, log, panics, plan, security, space_service};

/// A configuration that is sound as a whole.
pub struct Ready {
    pub loaded: Loaded,
    pub config: Config,
    pub security: Security,
}

/// Reads and judges everything but whether ports are free.
pub fn prepare(sources: &Sources) -> Result<Ready, Problems> {
    let (loaded, mut problems) = read(sources);
    if !problems.is_empty() {
        // What the values mean together cannot be said yet; whether files are there can.
        problems.extend(plan::unreadable_files(&loaded));
        return Err(Problems(problems));
    }
    plan::check_data_kind(&loaded)?;
    plan::cluster::plan(&loaded)?;
    authority::check(&loaded)?;
    // Two independent judgements: the operator should see the problems of both.
    let (config, security) = match (plan::broker(&loaded), security::load(&loaded)) {
        (Ok(config), Ok(security)) => (config, security),
        (config, security) => {
            let problems = [config.err(), security.err()];
            return Err(Problems(problems.into_iter().flatten().flat_map(|Problems(list)| list).collect()));
        }
    };
    security::check_exposure(&config, &security, &loaded)?;
    let has_space = plan::has_space(&loaded.options, security.has_users);
    // A guard needs two descriptors for each client.
    let files = descriptors::shares(has_space).clients / if config.guard.is_some() { 2 } else { 1 };
    let connections_max = config.connections_max.min(files);
    Ok(Ready { loaded, config: Config { connections_max, ..config }, security })
}

/// The same for a broker that runs: its doors stay open as they are, with the certificates of now, and who may come in
/// is judged by them and not by what the file says about doors.
pub fn prepare_for(open: &[Listener], sources: &Sources) -> Result<Ready, Problems> {
    let mut ready = prepare(sources)?;
    authority::check_listeners(open, &ready.loaded)?;
    // What the section listeners opens shares its files; if the new configuration has none, they keep those they have.
    let usual = ready.config.listeners.iter().filter(|listener| !plan::is_block(listener));
    let fresh = usual.clone().find_map(|listener| listener.tls.clone());
    let keys = usual.clone().find_map(|listener| Some(listener.dtls.clone()).filter(|dtls| dtls.psk_file.is_some()));
    let renewed = |door: &Listener| {
        let block = ready.config.listeners.iter().find(|block| block.name == door.name && block.kind == door.kind);
        if let Some(block) = block.filter(|block| plan::is_block(block)) {
            return Listener { bind: door.bind, ..block.clone() };
        }
        let tls = door.tls.clone().map(|before| fresh.clone().unwrap_or(before));
        let dtls = keys.clone().unwrap_or_else(|| door.dtls.clone());
        Listener { tls, dtls, ..door.clone() }
    };
    let renewed = open.iter().map(renewed).collect();
    ready.config.listeners = renewed;
    security::check_exposure(&ready.config, &ready.security, &ready.loaded)?;
    Ok(ready)
}

/// Whether a configuration names a broker to stand in front of; whether it is sound is asked elsewhere.
pub fn has_upstream(sources: &Sources) -> bool {
    let (loaded, problems) = read(sources);
    !problems.is_empty() || plan::guard(&loaded.options).is_some()
}

/// How the broker was started, for sentences that tell a person what to type about the same files.
#[derive(Clone, Debug)]
pub struct ServeCommand {
    /// The program, as it was called.
    pub program: String,
    /// The flags of `tidegate user` for the same place, each with a space before it.
    pub place: String,
}

/// What lasts as long as the process, however often a broker begins and ends in it.
pub struct Process {
    pub sources: Sources,
    pub command: ServeCommand,
    pub demo: Arc<dyn Demo>,
    pub level: LevelHandle,
    /// None once the process is ending.
    pub signals: Option<Signals>,
    /// The configuration at the start.
    pub loaded: Loaded,
}

/// Why a node that serves is not ready: it may be overtaken, and says nothing to anybody until it knows.
pub(crate) const CUT_OFF: &str = "the cluster's engine does not confirm that this node has the log: nobody is told anything until it does, or until another node serves";

/// The place of a node in its cluster, while it serves.
#[derive(Clone)]
pub struct Seat {
    /// Another node has it: whoever is told so by a signal ends its clients.
    pub is_lost: Arc<AtomicBool>,
    /// The node, for whoever asks.
    pub report: Arc<dyn Fn() -> ClusterReport + Send + Sync>,
    /// Where the smart space is kept besides.
    pub space: Arc<dyn Mirror>,
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat").field("is_lost", &self.is_lost).finish_non_exhaustive()
    }
}

/// Why a broker has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServeEnd {
    /// It was told to.
    Stopped,
    /// Its log is another node's.
    Lost,
}

/// How long the store of a node that takes over may take to be read before a watchdog may think that it hangs: a million messages take seconds.
const OPENING_MAX: Duration = Duration::from_secs(600);

/// What a broker waits for that has lost its log: nothing of it can be kept, so only for clients to hear that it ends.
const LOST_DRAIN: Duration = Duration::from_secs(1);

/// Runs the broker until it is told to stop. `demo` is what the dashboard can show.
pub fn run(sources: Sources, command: ServeCommand, demo: Arc<dyn Demo>) -> Result<()> {
    let ready = prepare(&sources)?;
    plan::check_data(&ready.loaded)?;
    bind::check(&ready.config.listeners)?;
    let level = log::start(ready.loaded.options.log.level.0, ready.loaded.options.log.format);
    panics::log();
    descriptors::raise();
    // Registered before the first thread starts: a signal during the start is not lost.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2]).context("signals cannot be handled")?;
    log_warnings(&ready);
    authority::note(&ready.loaded.options);
    if security::is_root() {
        warn!(event = "security", "running as root; a user of its own is safer");
    }
    let loaded = ready.loaded.clone();
    let mut process = Process { sources, command, demo, level, signals: Some(signals), loaded };
    #[cfg(feature = "cluster")]
    if let Some(plan) = plan::cluster::plan(&process.loaded)? {
        return crate::cluster::run(&mut process, ready, &plan);
    }
    serve(&mut process, ready, None).map(drop)
}

/// Serves until the process is told to stop, or until the log is another node's.
pub fn serve(process: &mut Process, ready: Ready, seat: Option<&Seat>) -> Result<ServeEnd> {
    let Process { sources, command, demo, level, .. } = &*process;
    let (sources, command, demo, level) = (sources.clone(), command.clone(), Arc::clone(demo), level.clone());
    let Ready { loaded, config, security } = ready;
    let audience = security::audience(&config, &security);
    let banner = Banner { audience, command, loaded: &loaded };
    let (mut listeners, has_users) = (config.listeners.clone(), security.has_users);
    let (authenticator, policy) = security.judges(&config);
    let supervisor = Supervisor::of_process();
    // A node of a cluster has been called ready when it began to stand by: how long a store takes to be read is no hang.
    let opening = seat.map(|_| supervisor.feed_for(OPENING_MAX));
    let mut broker = Broker::start_closed(config, authenticator, policy).context("the broker did not start")?;
    for left_out in broker.left_out() {
        listeners.retain(|listener| listener.name != left_out.name);
        warn!(event = "door_off", door = left_out.name, "{}", bind::left_out_words(left_out));
    }
    let handle = broker.handle();
    if let Some(tokens) = &security.tokens {
        tokens.start().context("the keys of tokens cannot be fetched")?;
    }
    let running = Arc::new(RunningProcess::new(handle, sources, level, listeners, loaded.clone(), &security, demo));
    if let Some(seat) = seat {
        running.note_seat(seat.clone());
    }
    let admin = open_admin(&loaded, &running)?;
    log_opening(&broker);
    // Before anybody can publish, at whatever listener: nothing that is acknowledged misses a bridge, a sink or a map.
    let own_clients = OwnClients::start(&loaded, &running)?;
    let space = space_service::open(&loaded, has_users, &running)?;
    broker.open_doors();
    let doors = space.as_ref().map(space_service::SpaceService::addresses).unwrap_or_default();
    if running.listeners.is_empty() && doors.named().iter().all(|(_, at)| at.is_none()) {
        anyhow::bail!("MQTT is off and no listener of the smart space could be opened: there is nobody to serve");
    }
    let (wanted, admin_at) = (plan::space(&loaded.options, has_users), admin.as_ref().and_then(Admin::address));
    let admins_at = admin.as_ref().and_then(Admin::secure_address);
    let of_space = wanted.named().into_iter().zip(doors.named()).map(|((name, wanted), (_, is))| (name, wanted, is));
    let of_admin = [
        ("admin", plan::admin(&loaded.options), admin_at),
        ("admin_https", plan::admin_https(&loaded.options), admins_at),
    ];
    running.note_doors(of_space.chain(of_admin).collect());
    print_banner(&banner.text(&running.handle.listeners(), [admin_at, admins_at], doors));
    let otlp = send_metrics(&loaded, &running)?;
    supervisor.ready();
    supervisor.feed(broker.watchdog());
    drop(opening);
    running::watch_certificates(&running).context("certificates cannot be watched")?;
    let end = match process.signals.as_mut() {
        Some(signals) => watch_signals(&broker, signals, &running, &supervisor, seat),
        None => ServeEnd::Stopped,
    };
    match end {
        ServeEnd::Stopped => drain(broker, own_clients, process.signals.take(), &running, &supervisor),
        ServeEnd::Lost => {
            running.note_draining();
            drop(own_clients);
            broker.shutdown_within(LOST_DRAIN);
        }
    }
    // Open until the end: whoever asks while it drains is told so.
    drop(admin);
    drop(space);
    drop(otlp);
    Ok(end)
}

/// What the store had to say: one line if all is well, and one for each thing that is not.
fn log_opening(broker: &Broker) {
    let Some(Opening { report, restored, notes }) = broker.opening() else { return };
    let Restored { sessions, deliveries: messages, retained, lost, rhythms, bans } = *restored;
    let words = if report.is_new() { "a new store" } else { "what was kept is back" };
    info!(
        event = "store_opened",
        sessions,
        messages,
        retained,
        lost,
        missing = report.missing,
        damaged_bytes = report.damaged_bytes,
        rhythms,
        bans,
        %report,
        "{words}"
    );
    for line in &report.lines {
        warn!(event = "store_repaired", "{line}");
    }
    if report.lines_left_out > 0 {
        warn!(event = "store_repaired", "and {} more", report.lines_left_out);
    }
    for note in notes {
        warn!(event = "store_note", "{note}");
    }
}

/// The admin API, with TLS, without, or both.
fn open_admin(loaded: &Loaded, running: &Arc<RunningProcess>) -> Result<Option<Admin>> {
    let plain = plan::admin(&loaded.options).map(|at| bind_admin(loaded, at)).transpose()?.flatten();
    let secure = plan::admin_https(&loaded.options).map(|at| {
        let files = plan::admin_certificates(&loaded.options).context("there is no certificate")?;
        let certificates = Arc::new(DoorCertificates::load(&files)?);
        running.note_admin_certificates(Arc::clone(&certificates));
        let listener = TcpListener::bind(at).map_err(|error| bind::cannot_listen("admin_https", at, &error))?;
        Ok::<_, anyhow::Error>((listener, certificates as Arc<dyn TlsSource>))
    });
    let listeners = AdminListeners { plain, secure: secure.transpose()? };
    if listeners.plain.is_none() && listeners.secure.is_none() {
        return Ok(None);
    }
    let process = Arc::clone(running) as Arc<dyn ProcessControl>;
    let alarms = loaded.options.telemetry.alarms.clone().value().map(|receiver| receiver.0);
    Admin::open(listeners, running.handle.clone(), process, alarms).map(Some).context("the admin API did not start")
}

/// One that nobody asked for, at a port that is taken, is no reason not to serve.
fn bind_admin(loaded: &Loaded, bind: SocketAddr) -> Result<Option<TcpListener>> {
    match TcpListener::bind(bind) {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if *loaded.origin("listeners.admin") == Origin::Default => {
            let other = SocketAddr::new(bind.ip(), bind.port().saturating_add(1));
            warn!(
                event = "admin_off", %error,
                "no admin, so `tidegate top`, `why` and the like cannot ask this broker: {bind} cannot be opened, \
                 perhaps it is another broker's; give this one its own with --admin {other}"
            );
            Ok(None)
        }
        Err(error) => Err(bind::cannot_listen("admin", bind, &error).into()),
    }
}

/// Metrics for a collector, if there is one.
fn send_metrics(loaded: &Loaded, running: &Arc<RunningProcess>) -> Result<Option<Otlp>> {
    let telemetry = &loaded.options.telemetry;
    let Some(receiver) = telemetry.otlp.clone().value() else { return Ok(None) };
    let process = Arc::clone(running) as Arc<dyn ProcessControl>;
    let otlp = Otlp::start(receiver.collector, telemetry.otlp_interval.0, running.handle.clone(), process);
    otlp.map(Some).context("metrics cannot be sent")
}

pub fn log_warnings(ready: &Ready) {
    for warning in security::warnings(&ready.loaded, &ready.config, &ready.security) {
        warn!(event = "security", "{warning}");
    }
}

fn watch_signals(
    broker: &Broker,
    signals: &mut Signals,
    running: &RunningProcess,
    supervisor: &Supervisor,
    seat: Option<&Seat>,
) -> ServeEnd {
    let is_lost = || seat.is_some_and(|seat| seat.is_lost.load(Ordering::Relaxed));
    if is_lost() {
        return ServeEnd::Lost;
    }
    for signal in signals.forever() {
        if is_lost() && !matches!(signal, SIGTERM | SIGINT) {
            return ServeEnd::Lost;
        }
        match signal {
            SIGHUP => {
                supervisor.reloading();
                // What became of it is in the log.
                drop(running.reload());
                supervisor.ready();
            }
            SIGUSR1 => log_counters(broker),
            SIGUSR2 => running.toggle_debug(),
            _ => break,
        }
    }
    ServeEnd::Stopped
}

fn drain(
    broker: Broker,
    own_clients: OwnClients,
    signals: Option<Signals>,
    running: &RunningProcess,
    supervisor: &Supervisor,
) {
    supervisor.stopping();
    info!(event = "drain", "draining; a second signal stops at once");
    running.note_draining();
    std::thread::spawn(move || {
        let stop = |signal: &i32| matches!(*signal, SIGTERM | SIGINT);
        if signals.is_some_and(|mut signals| signals.forever().any(|signal| stop(&signal))) {
            // Asked twice: nothing is waited for any more.
            std::process::exit(1);
        }
    });
    // First: what they have under way is answered for, or comes again.
    drop(own_clients);
    broker.shutdown();
    info!(event = "stopped", "stopped");
}

fn log_counters(broker: &Broker) {
    let counters: Vec<String> = broker.stats().iter().map(|(name, value)| format!("{name}={value}")).collect();
    info!(event = "counters", counters = counters.join(" "), "counters");
}

/// On stdout: the logs are elsewhere.
fn print_banner(text: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    // A broker whose output nobody reads goes on serving.
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

/// What is said at the start: where the broker listens, who may come in and what to do next, where its files are.
struct Banner<'a> {
    audience: Audience,
    command: ServeCommand,
    loaded: &'a Loaded,
}

impl Banner<'_> {
    fn text(
        &self,
        listeners: &[ListenerReport],
        [admin, admin_https]: [Option<SocketAddr>; 2],
        space: SpaceAddresses,
    ) -> String {
        let door = |listener: &ListenerReport| {
            let (kind, at) = (listener.kind.name(), listener.address);
            let place = match listener.kind {
                ListenerKind::Mqtt | ListenerKind::Mqtts | ListenerKind::Sn => format!("{kind} {at}"),
                ListenerKind::Amqp | ListenerKind::Amqps => format!("{kind}://{at}"),
                ListenerKind::Coap | ListenerKind::Coaps => format!("{kind}://{at}/ps"),
                ListenerKind::Ws | ListenerKind::Wss => format!("{kind}://{at}/mqtt"),
                ListenerKind::HttpTopics => format!("topics http://{at}/topics"),
                ListenerKind::HttpsTopics => format!("topics https://{at}/topics"),
            };
            if listener.name == kind { format!("  {place}") } else { format!("  {} ({place})", listener.name) }
        };
        let doors: String = listeners.iter().map(door).collect();
        let admins =
            [("http", admin), ("https", admin_https)].map(|(scheme, at)| Some(format!("  admin {scheme}://{}", at?)));
        let admin: String = admins.into_iter().flatten().collect();
        let http = space.http.map(|at| format!("  sparql http://{at}")).unwrap_or_default();
        let https = space.https.map(|at| format!("  https://{at}")).unwrap_or_default();
        let others =
            [("ssap", space.ssap), ("ssaps", space.ssaps), ("sepa-http", space.sepa_http), ("sepa-ws", space.sepa_ws)];
        let others: String = others.iter().filter_map(|(name, at)| Some(format!("  {name} {}", (*at)?))).collect();
        let next = self.next_step(listeners);
        format!("tidegate {}{doors}{admin}{http}{https}{others}\n{next}\n{}\n", env!("CARGO_PKG_VERSION"), self.files())
    }

    fn next_step(&self, listeners: &[ListenerReport]) -> String {
        let ServeCommand { program, place } = &self.command;
        if let Some(upstream) = plan::guard(&self.loaded.options) {
            let over = if upstream.is_tls { " over TLS" } else { "" };
            let upstream = format!("{}{over}", upstream.place());
            return format!(
                "guard of the broker at {upstream}, which alone knows its users. Who floods:  {program} top"
            );
        }
        let add = format!("{program} user add NAME{place}");
        let security::Opener { setting, how_to_close: mut close } = security::opener(self.loaded);
        if password_file(&self.loaded.options).is_none() {
            // Without users there would be nobody to let in.
            close = format!("{close}, after  {add}");
        }
        let plain = listeners.iter().find(|listener| listener.kind == ListenerKind::Mqtt);
        let plain = plain.map(|listener| listener.address.port());
        let port = plain.map(|port| if port == 1883 { String::new() } else { format!(" -p {port}") });
        let attempt = |who: &str| match &port {
            Some(port) => format!(" Try:  {program} sub{port} -t '#' -v{who}"),
            None => String::new(),
        };
        match self.audience {
            Audience::Everybody => {
                format!("OPEN: anybody who reaches these addresses may come in ({setting}). To close it: {close}")
            }
            Audience::AnybodyHere => {
                format!("OPEN: anybody on this machine may come in, users or not ({setting}). To close it: {close}")
            }
            Audience::SpaceOnly => "MQTT is off: the smart space alone is served.".to_owned(),
            Audience::ThisMachine if self.loaded.files.is_empty() && place.is_empty() => {
                format!("no users configured: listening for this machine only. To accept others:  {program} init")
            }
            Audience::ThisMachine => format!(
                "no users configured: listening for this machine only. To accept others:  {add}  and listen for them \
                 with --mqtt 0.0.0.0:1883"
            ),
            Audience::KnownHere => format!(
                "for users, on this machine only; to listen for others: --mqtt 0.0.0.0:1883.{}",
                attempt(" -u NAME -P PASSWORD")
            ),
            Audience::Known => {
                format!("ready for users and certificates.{}", attempt(" -u NAME -P PASSWORD"))
            }
        }
    }

    fn files(&self) -> String {
        let options = &self.loaded.options;
        let users = match password_file(options) {
            Some(path) => path.display().to_string(),
            None => format!("{} (none yet)", plan::usual_password_file(options).display()),
        };
        let files: Vec<String> = self.loaded.files.iter().map(|path| absolute(path).display().to_string()).collect();
        let config = if files.is_empty() { "none".to_owned() } else { files.join(", ") };
        let store = match (options.store.keep, options.store.durability.0) {
            (false, _) => "in memory only".to_owned(),
            (true, Durability::Always) => "durable".to_owned(),
            (true, other) => format!("durability {other}"),
        };
        format!("config {config}  store {} ({store})  users {users}", options.server.data.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load;

    fn banner(audience: Audience, flags: &[(&str, &str)]) -> String {
        let open = |name, kind, at: &str| {
            let (connections, accepted, refused) = (0, 0, Vec::new());
            ListenerReport { name, kind, address: at.parse().unwrap(), connections, accepted, refused }
        };
        let listeners = [
            open("mqtt", ListenerKind::Mqtt, "127.0.0.1:1999"),
            open("ws", ListenerKind::Ws, "127.0.0.1:8083"),
            open("factory", ListenerKind::Mqtts, "127.0.0.1:8884"),
        ];
        let mut flags: Vec<_> = flags
            .iter()
            .map(|(flag, value)| crate::config::ConfigEntry::flag("--allow-anonymous", flag, value))
            .collect();
        flags.push(crate::config::ConfigEntry::flag("--data", "server.data", "/nonexistent"));
        let loaded = load(&Sources { file: Some("/dev/null".into()), flags, ..Sources::default() }).unwrap();
        let command = ServeCommand { program: "./tidegate".into(), place: " --data x".into() };
        Banner { audience, command, loaded: &loaded }.text(
            &listeners,
            [Some("127.0.0.1:18830".parse().unwrap()), None],
            SpaceAddresses {
                http: Some("127.0.0.1:7878".parse().unwrap()),
                ssap: Some("127.0.0.1:10010".parse().unwrap()),
                ..SpaceAddresses::default()
            },
        )
    }

    #[test]
    fn the_banner_names_every_door_the_next_step_and_the_files() {
        let expected = format!(
            "tidegate {}  mqtt 127.0.0.1:1999  ws://127.0.0.1:8083/mqtt  factory (mqtts 127.0.0.1:8884)  admin \
             http://127.0.0.1:18830  sparql http://127.0.0.1:7878  ssap 127.0.0.1:10010\nno users configured: listening for this \
             machine only. To accept others:  ./tidegate user add NAME --data x  and listen for them with --mqtt \
             0.0.0.0:1883\nconfig /dev/null  store /nonexistent (durable)  users /nonexistent/users (none yet)\n",
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(banner(Audience::ThisMachine, &[]), expected);
    }

    #[test]
    fn an_open_broker_says_so_and_what_closes_it() {
        let anonymous = [("security.allow_anonymous", "true")];
        let open = banner(Audience::Everybody, &anonymous);
        assert!(open.contains("\nOPEN: anybody who reaches these addresses may come in (allow_anonymous)."), "{open}");
        assert!(
            open.contains("To close it: start without --allow-anonymous, after  ./tidegate user add NAME --data x\n"),
            "{open}"
        );
        let here = banner(Audience::AnybodyHere, &anonymous);
        assert!(here.contains("OPEN: anybody on this machine may come in, users or not"), "{here}");
    }

    #[test]
    fn users_are_told_how_to_listen_for_others_and_what_to_try() {
        let text = banner(Audience::KnownHere, &[]);
        assert!(text.contains("on this machine only; to listen for others: --mqtt 0.0.0.0:1883"), "{text}");
        assert!(text.contains("Try:  ./tidegate sub -p 1999 -t '#' -v -u NAME -P PASSWORD\n"), "{text}");
    }

    #[test]
    fn a_reload_judges_the_doors_that_are_open() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().display().to_string();
        let flags = vec![crate::config::ConfigEntry::flag("--data", "server.data", &data)];
        let sources = Sources { file: Some("/dev/null".into()), flags, ..Sources::default() };
        let open = |bind: &str| [Listener::new(ListenerKind::Mqtt, bind.parse().unwrap())];
        assert!(prepare(&sources).is_ok(), "by itself the configuration is sound: this machine only");
        let refused = prepare_for(&open("0.0.0.0:1883"), &sources).err().unwrap().to_string();
        assert!(refused.contains("\"0.0.0.0:1883\" accepts other machines, but there are no users"), "{refused}");
        let ready = prepare_for(&open("127.0.0.1:1999"), &sources).unwrap();
        assert_eq!(ready.config.listeners.len(), 1, "doors stay as they are, whatever the file says now");
    }

    #[test]
    fn a_reload_gives_each_listener_its_own_and_misses_one_that_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tidegate.toml");
        // Whether usual ports are free is another question.
        let usual = "[listeners]\namqp = \"off\"\ncoap = \"off\"\nsn = \"off\"\nhttp_topics = \"off\"\n";
        let block = |more: &str| {
            format!("{usual}[[listener]]\nname = \"f\"\nkind = \"mqtt\"\naddress = \"127.0.0.1:1884\"\n{more}")
        };
        std::fs::write(&file, block("")).unwrap();
        let sources = Sources { file: Some(file.clone()), ..Sources::default() };
        let open = prepare(&sources).unwrap().config.listeners;
        assert_eq!(open.iter().map(|listener| listener.name).collect::<Vec<_>>(), ["mqtt", "ws", "f"]);
        std::fs::write(&file, block("connections_max = 3\n")).unwrap();
        let ready = prepare_for(&open, &sources).unwrap();
        assert_eq!(ready.config.listeners[2].connections_max, Some(3));
        std::fs::write(&file, usual).unwrap();
        let refused = prepare_for(&open, &sources).err().unwrap().to_string();
        assert!(refused.contains("the listener f is open, and its [[listener]] is gone with its rules"), "{refused}");
    }
}
