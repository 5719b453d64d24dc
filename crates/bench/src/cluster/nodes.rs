//! Three nodes of this machine, as `tidegate cluster init` would configure them, on free ports; they end with the value.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tidegate_program::{Stop, program_beside};

use crate::process::folder;

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Starting three engines, and a node that has to catch up.
const PATIENCE: Duration = Duration::from_secs(120);
const GLANCE: Duration = Duration::from_millis(50);

/// The processes of a cluster.
#[derive(Debug)]
pub(super) struct Nodes {
    list: Vec<Node>,
    _folder: TempDir,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Node {
    folder: PathBuf,
    mqtt: u16,
    admin: u16,
    child: Option<Child>,
}

impl Nodes {
    /// Starts them, and waits until one serves and two stand by.
    pub(super) fn start(engine: &Path, queue_max: u32, stop: &Stop) -> Result<Self> {
        let folder = folder()?;
        let mut held = Vec::new();
        // Held until all are chosen, or one might be chosen twice.
        let mut port = || -> Result<u16> {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a port")?;
            let port = listener.local_addr()?.port();
            held.push(listener);
            Ok(port)
        };
        let ports = NAMES.map(|_| -> Result<[u16; 4]> { Ok([port()?, port()?, port()?, port()?]) });
        let ports = ports.into_iter().collect::<Result<Vec<_>>>()?;
        drop(held);
        let peers: Vec<String> = ports.iter().map(|[.., routes]| format!("\"127.0.0.1:{routes}\"")).collect();
        let mut list = Vec::new();
        for (name, [mqtt, admin, listen, routes]) in NAMES.iter().zip(&ports) {
            let folder = folder.path().join(name);
            std::fs::create_dir_all(&folder)?;
            let mut text = format!(
                "[server]\ndata = \"data\"\n[log]\nlevel = \"warn\"\n[listeners]\nmqtt = \"127.0.0.1:{mqtt}\"\nadmin = \"127.0.0.1:{admin}\"\n"
            );
            for door in ["ws", "coap", "sn", "http_topics", "amqp"] {
                let _ = writeln!(text, "{door} = \"off\"");
            }
            let bytes = u64::from(queue_max) * 512;
            let _ = writeln!(text, "[limits]\nqueue_messages_max = {queue_max}\nqueue_bytes_max = {bytes}");
            let _ = writeln!(
                text,
                "[cluster]\nname = \"bench\"\nnode = \"{name}\"\nengine_program = {:?}",
                engine.display().to_string()
            );
            let _ = writeln!(
                text,
                "engine_listen = \"127.0.0.1:{listen}\"\nengine_routes = \"127.0.0.1:{routes}\"\npeers = [{}]",
                peers.join(", ")
            );
            std::fs::write(folder.join("tidegate.toml"), text)?;
            list.push(Node { folder, mqtt: *mqtt, admin: *admin, child: None });
        }
        let mut nodes = Self { list, _folder: folder };
        for node in &mut nodes.list {
            node.start()?;
        }
        nodes.wait_until_well(stop)?;
        Ok(nodes)
    }

    /// Whose listener is open: only the owner's is.
    pub(super) fn owner(&self, stop: &Stop) -> Result<&Node> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(node) = self.list.iter().find(|node| TcpStream::connect(node.mqtt()).is_ok()) {
                return Ok(node);
            }
            if Instant::now() > until || stop.is_wanted() {
                bail!("nobody serves: {}", self.last_words());
            }
            std::thread::sleep(GLANCE);
        }
    }

    /// Where clients may find one that serves.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.list.iter().map(Node::mqtt).collect()
    }

    /// Ends the owner as a power cut does, and its engine.
    pub(super) fn kill_owner(&mut self, stop: &Stop) -> Result<Instant> {
        let at = self.owner(stop)?.mqtt;
        let node = self.list.iter_mut().find(|node| node.mqtt == at).context("the owner")?;
        let begun = Instant::now();
        node.kill();
        Ok(begun)
    }

    /// Tells the owner to end in good order; when that was.
    pub(super) fn drain_owner(&self, stop: &Stop) -> Result<Instant> {
        let node = self.owner(stop)?;
        let pid = node.process().context("the owner's process")?;
        let begun = Instant::now();
        kill_process(pid, Signal::TERM)?;
        Ok(begun)
    }

    /// Starts whoever has ended, and waits until all is as at the beginning.
    pub(super) fn mend(&mut self, stop: &Stop) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        // One that was told to end may still be at it: it waits for who carries on.
        while Instant::now() < until && !stop.is_wanted() {
            let mut has_changed = false;
            for node in &mut self.list {
                if node.has_ended() {
                    node.start()?;
                    has_changed = true;
                }
            }
            if has_changed {
                return self.wait_until_well(stop);
            }
            std::thread::sleep(GLANCE);
        }
        bail!("no node has ended")
    }

    fn wait_until_well(&mut self, stop: &Stop) -> Result<()> {
        let (program, until) = (program_beside("tidegate")?, Instant::now() + PATIENCE);
        let config = self.list.first().context("a node")?.folder.join("tidegate.toml");
        let mut said = String::new();
        while Instant::now() < until && !stop.is_wanted() {
            let ended: Vec<String> = self.list.iter_mut().filter_map(Node::end).collect();
            if let Some(words) = ended.first() {
                bail!("a node has ended: {words}");
            }
            let answer = Command::new(&program).args(["cluster", "status", "-c"]).arg(&config).output()?;
            said = String::from_utf8_lossy(&answer.stdout).into_owned();
            if answer.status.success() && said.matches(" standby ").count() == NAMES.len() - 1 {
                return Ok(());
            }
            std::thread::sleep(GLANCE * 4);
        }
        bail!("the nodes do not find each other: {said}{}", self.last_words())
    }

    /// For a sentence about what went wrong.
    pub(super) fn last_words(&self) -> String {
        let last = |node: &Node| {
            let log = std::fs::read_to_string(node.folder.join("log")).unwrap_or_default();
            log.lines().last().unwrap_or("nothing").to_owned()
        };
        let words: Vec<String> =
            NAMES.iter().zip(&self.list).map(|(name, node)| format!("{name} says: {}", last(node))).collect();
        words.join("; ")
    }
}

impl Node {
    pub(super) fn mqtt(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.mqtt).into()
    }

    pub(super) fn admin(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.admin).into()
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    fn process(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.pid()?).ok()?)
    }

    fn start(&mut self) -> Result<()> {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("log"))?;
        let mut command = Command::new(program_beside("tidegate")?);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TIDEGATE_")) {
            command.env_remove(name);
        }
        command.args(["serve", "-c", "tidegate.toml"]).current_dir(&self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().context("a node cannot be started")?);
        Ok(())
    }

    fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Its last words, if it has ended by itself.
    fn end(&mut self) -> Option<String> {
        self.has_ended().then(|| {
            let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            log.lines().last().unwrap_or("it said nothing").to_owned()
        })
    }

    /// The engine first: its number is surely its own while its parent lives.
    fn kill(&mut self) {
        let engine = std::fs::read_to_string(self.folder.join("data/engine/nats.pid"));
        let Some(mut child) = self.child.take() else { return };
        if matches!(child.try_wait(), Ok(None))
            && let Some(pid) = engine.ok().and_then(|text| text.trim().parse().ok()).and_then(Pid::from_raw)
        {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in &mut self.list {
            node.kill();
        }
    }
}
