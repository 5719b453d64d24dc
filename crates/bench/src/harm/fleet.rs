//! The clients of a scenario on sockets: one readiness loop that carries bytes for `tidegate_sim::zoo::crowd`.
//!
//! Decides nothing: who sends what when, who reads how fast and what is counted is the crowd's. Every network of the
//! scenario is a loopback address of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mio::{Events, Poll, Token};
use tidegate_sim::zoo::crowd::{Crowd, DriverAction};
use tidegate_sim::zoo::judge::REFUSED_S;
use tidegate_sim::zoo::model::{Phases, ZooScenario};
use tidegate_sim::zoo::tally::Figures;

use crate::connection::{BytesRead, ConnectState, GeneratorConnection};
use crate::timer::{CaseClock, Sleeper, WAIT_MAX};
use tidegate_program::Stop;

/// Handshakes at a time: fewer than any listen backlog.
const HANDSHAKES_MAX: usize = 64;
/// The longest that all clients may take to connect.
const CONNECT_MAX: Duration = Duration::from_secs(20);
/// After everybody was greeted, subscriptions get so long.
const SETTLE: Duration = Duration::from_millis(100);
/// Bytes that wait in a publisher's own buffer, besides those in its socket.
const BACKLOG_MAX: usize = 16 * 1024;
/// A reader that does not take what it has reads no more than this ahead.
const AHEAD_MAX: usize = 4 * 1024;
/// Buffers read from one connection per turn, so that one busy reader does not hold up the rest.
const READS_MAX: usize = 4;
/// At the end, what is under way may still arrive for so long...
const DRAIN_MAX_NS: u64 = 1_000_000_000;
/// ...and is given up when nothing of it has come for so long.
const QUIET_NS: u64 = 300_000_000;
/// Refusals are watched for so much longer than they may last.
const WATCH_MORE_S: f64 = 1.0;

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

struct FleetConnection {
    connection: GeneratorConnection,
    /// The reader takes more from then on.
    again_ns: Option<u64>,
    /// It has more to send than there was room for.
    is_blocked: bool,
    is_greeted: bool,
    is_listed: bool,
}

pub(super) struct HarmFleet {
    poll: Poll,
    events: Events,
    sleeper: Sleeper,
    clock: CaseClock,
    begin_ns: u64,
    address: SocketAddr,
    stop: Stop,
    crowd: Crowd,
    ends: Vec<Option<FleetConnection>>,
    /// Connections that may have more to read than was read, or whose reader waits.
    unread: Vec<usize>,
    /// Publishers that had no room, and have it already: their socket took everything.
    hungry: Vec<usize>,
    buffer: Vec<u8>,
}

impl HarmFleet {
    pub(super) fn new(
        scenario: &ZooScenario,
        phases: Phases,
        seed: u64,
        address: SocketAddr,
        stop: Stop,
    ) -> Result<Self> {
        let poll = Poll::new().context("no readiness loop")?;
        let sleeper = Sleeper::new(&poll).context("no timer")?;
        let crowd = Crowd::new(scenario, phases, 1.0, seed);
        Ok(Self {
            poll,
            events: Events::with_capacity(1024),
            sleeper,
            clock: CaseClock::start(),
            begin_ns: 0,
            address,
            stop,
            ends: (0..crowd.len()).map(|_| None).collect(),
            crowd,
            unread: Vec::new(),
            hungry: Vec::new(),
            buffer: vec![0; 128 * 1024],
        })
    }

    /// Connects everybody who is there from the beginning.
    pub(super) fn connect(&mut self) -> Result<()> {
        let begin = Instant::now();
        let wanted: Vec<usize> = (0..self.crowd.len()).filter(|&client| self.crowd.is_there(client, 0)).collect();
        let (mut next, mut greeted) = (0, 0);
        while greeted < wanted.len() {
            while next < wanted.len() && next - greeted < HANDSHAKES_MAX {
                self.open(wanted[next])?;
                next += 1;
            }
            self.turn(WAIT_MAX, None)?;
            let is_in = |&&client: &&usize| self.ends[client].as_ref().is_some_and(|end| end.is_greeted);
            greeted = wanted.iter().filter(is_in).count();
            if begin.elapsed() > CONNECT_MAX {
                bail!("{greeted} of {} clients were let in", wanted.len());
            }
        }
        let settled = Instant::now() + SETTLE;
        while Instant::now() < settled {
            self.turn(WAIT_MAX, None)?;
        }
        self.begin_ns = self.clock.now_ns();
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        self.clock.now_ns() - self.begin_ns
    }

    /// Runs all parts, and tells what became of each cohort.
    pub(super) fn run(&mut self, phases: Phases) -> Result<Vec<Figures>> {
        let end_ns = nanos(phases.end());
        while self.now_ns() < end_ns {
            self.step(end_ns)?;
        }
        // What is due before the end is sent, however late this process is.
        self.act_due(end_ns.saturating_sub(1));
        let (mut last, mut since, drained) = (0, self.now_ns(), end_ns + DRAIN_MAX_NS);
        while !self.crowd.is_complete() && self.now_ns() < drained.min(since + QUIET_NS) {
            self.step(drained)?;
            let delivered = self.crowd.delivered();
            if delivered != last {
                (last, since) = (delivered, self.now_ns());
            }
        }
        Ok(self.crowd.clone().finish())
    }

    /// Goes on until all is well, or until refusals must have ended, and adds what was seen.
    pub(super) fn watch(mut self, phases: Phases, figures: &mut [Figures]) -> Result<()> {
        let limit = nanos(phases.trouble_end() + REFUSED_S + WATCH_MORE_S);
        while self.now_ns() < limit && !self.crowd.is_well(self.now_ns()) {
            self.step(limit)?;
        }
        self.crowd.look_back(figures, nanos(phases.end()).max(self.now_ns().saturating_sub(QUIET_NS)));
        Ok(())
    }

    /// Everybody whose time has come acts, and what there is is carried; waits for that until `limit_ns` at most.
    fn step(&mut self, limit_ns: u64) -> Result<()> {
        let now = self.now_ns();
        self.act_due(now.min(limit_ns.saturating_sub(1)));
        for client in std::mem::take(&mut self.hungry) {
            self.act(client, now);
        }
        let wake = self.crowd.next_wake().unwrap_or(u64::MAX).min(limit_ns);
        self.turn(Duration::from_nanos(wake.saturating_sub(self.now_ns())), Some(now))
    }

    fn act_due(&mut self, until: u64) {
        while let Some(client) = self.crowd.pop_due(until) {
            self.come_and_go(client, until);
            self.act(client, until);
        }
    }

    /// Waits, then carries what there is. Publishers that had no room are called only while the run goes on.
    fn turn(&mut self, limit: Duration, running: Option<u64>) -> Result<()> {
        if self.stop.is_wanted() {
            bail!("interrupted");
        }
        let now = self.now_ns();
        let again = self.unread.iter().filter_map(|&client| {
            let end = self.ends[client].as_ref()?;
            Some(end.again_ns.unwrap_or(now).saturating_sub(now))
        });
        let limit = if self.hungry.is_empty() { limit } else { Duration::ZERO };
        let wait = again.min().map_or(limit, |nanos| limit.min(Duration::from_nanos(nanos)));
        let mut events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        self.sleeper.wait(&mut self.poll, &mut events, wait.min(WAIT_MAX)).context("the readiness loop failed")?;
        for client in std::mem::take(&mut self.unread) {
            if let Some(end) = &mut self.ends[client] {
                end.is_listed = false;
                self.read(client);
            }
        }
        for event in &events {
            if event.token().0 < self.ends.len() {
                self.serve(event.token().0, running.is_some());
            }
        }
        self.events = events;
        Ok(())
    }

    fn open(&mut self, client: usize) -> Result<()> {
        let [network, host] = self.crowd.who(client).address;
        let source = Ipv4Addr::new(127, 1, network, host);
        let opened = GeneratorConnection::open_from(source, self.address, self.poll.registry(), Token(client));
        let mut connection = opened.with_context(|| format!("cannot connect to {}", self.address))?;
        self.crowd.greet(client, &mut connection.outbox);
        // Once it is open it acts.
        let (again_ns, is_blocked, is_greeted, is_listed) = (None, true, false, false);
        self.ends[client] = Some(FleetConnection { connection, again_ns, is_blocked, is_greeted, is_listed });
        Ok(())
    }

    fn come_and_go(&mut self, client: usize, now: u64) {
        let is_there = self.crowd.is_there(client, now);
        if !is_there {
            // Dropping the socket closes it, without a word.
            self.ends[client] = None;
        } else if self.ends[client].is_none() && self.open(client).is_err() {
            self.crowd.on_lost(client, now);
        }
    }

    fn act(&mut self, client: usize, now: u64) {
        let Some(end) = &mut self.ends[client] else { return };
        if end.connection.state == ConnectState::Opening {
            return;
        }
        let room = BACKLOG_MAX.saturating_sub(end.connection.backlog());
        match self.crowd.act(client, now, room, &mut end.connection.outbox) {
            DriverAction::Stay => end.is_blocked = false,
            DriverAction::Blocked => end.is_blocked = true,
            DriverAction::Vanish => {
                self.ends[client] = None;
                self.come_and_go(client, now);
                return;
            }
        }
        self.flush(client);
        // Of a socket that took everything no event will tell.
        if let Some(end) = &self.ends[client]
            && end.is_blocked
            && end.connection.backlog() < BACKLOG_MAX / 2
        {
            self.hungry.push(client);
        }
    }

    /// Something happened to this connection.
    fn serve(&mut self, client: usize, is_running: bool) {
        let Some(end) = &mut self.ends[client] else { return };
        if end.connection.state == ConnectState::Opening {
            match end.connection.is_open() {
                Ok(true) => end.connection.state = ConnectState::Ready,
                Ok(false) => return,
                Err(_) => return self.lose(client),
            }
        }
        self.flush(client);
        self.read(client);
        if let Some(end) = &self.ends[client]
            && is_running
            && end.is_blocked
            && end.connection.backlog() < BACKLOG_MAX / 2
        {
            self.act(client, self.now_ns());
        }
    }

    fn flush(&mut self, client: usize) {
        if let Some(end) = &mut self.ends[client]
            && end.connection.flush().is_err()
        {
            self.lose(client);
        }
    }

    fn lose(&mut self, client: usize) {
        self.ends[client] = None;
        let now = self.now_ns();
        self.crowd.on_lost(client, now);
    }

    fn read(&mut self, client: usize) {
        for _ in 0..READS_MAX {
            let now = self.clock.now_ns() - self.begin_ns;
            let Some(end) = &mut self.ends[client] else { return };
            if end.connection.state == ConnectState::Opening {
                return;
            }
            if !end.connection.partial.is_empty() && !self.hear(client, now) {
                return;
            }
            let Some(end) = &mut self.ends[client] else { return };
            let most = if self.crowd.is_eager(client, now) { self.buffer.len() } else { AHEAD_MAX };
            if end.is_greeted && self.crowd.is_dead(client) {
                return;
            }
            match end.connection.read(&mut self.buffer[..most]) {
                Ok(BytesRead::Bytes(count)) => {
                    end.is_greeted = true;
                    end.connection.partial.extend_from_slice(&self.buffer[..count]);
                    if !self.hear(client, now) || count < most {
                        return;
                    }
                }
                Ok(BytesRead::Nothing) => return,
                Err(_) => return self.lose(client),
            }
        }
        self.list(client);
    }

    fn list(&mut self, client: usize) {
        if let Some(end) = &mut self.ends[client]
            && !std::mem::replace(&mut end.is_listed, true)
        {
            self.unread.push(client);
        }
    }

    /// The client takes what was read. False if it takes no more for now, or is gone.
    fn hear(&mut self, client: usize, now: u64) -> bool {
        let Some(end) = &mut self.ends[client] else { return false };
        if end.again_ns.is_some_and(|again| again > now) {
            self.list(client);
            return false;
        }
        let connection = &mut end.connection;
        let mut answers = std::mem::take(&mut connection.outbox);
        let heard = self.crowd.hear(client, &connection.partial, now, &mut answers);
        connection.outbox = answers;
        connection.partial.drain(..heard.used);
        end.again_ns = heard.again_ns;
        if heard.is_broken {
            self.lose(client);
            return false;
        }
        let waits = heard.again_ns.is_some();
        if connection.backlog() > 0 {
            self.flush(client);
        }
        if waits {
            self.list(client);
        }
        !waits
    }
}
