//! The load generator: one readiness loop for all clients of a case, driven by whoever measures.
//!
//! Connect, run, drain: each returns when its time is over or its work is done. Nothing here knows about processes,
//! CPU time or tables. What is sent is in `send.rs`, what packets mean in `receive.rs`.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mio::{Events, Poll, Token};

use super::beats::{Beat, Beats};
use super::cases::{FlowSpec, PublishPace};
use super::clients::{ClientPart, ClientSpec, ReadSpeed};
use super::connection::{ConnectState, GeneratorConnection};
use super::packets::{self, PublishTemplate};
use super::publisher::{GeneratorPublisher, RateSchedule};
use super::stream::ReceivedStream;
use super::tally::FlowTally;
use super::timer::{CaseClock, Sleeper, WAIT_MAX};
use super::worker_queue::WorkerQueue;
use tidegate_program::Stop;

/// Handshakes at a time: enough to keep a broker busy, fewer than any listen backlog.
const HANDSHAKES_MAX: usize = 64;
/// The longest that all clients of a case may take to connect.
const CONNECT_MAX: Duration = Duration::from_secs(30);
/// After so long without a new message, what has not come is lost.
const QUIET: Duration = Duration::from_millis(700);
/// The longest that the rest may take to arrive.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// What a first packet is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Greeting {
    /// A broker: CONNECT, and SUBSCRIBE where it applies.
    Mqtt,
    /// A relay of bytes: nothing is said.
    None,
}

/// Whether publishers send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoadSwitch {
    On,
    Off,
}

#[derive(Debug)]
pub(super) enum ClientActivity {
    Publisher(Box<GeneratorPublisher>),
    Subscriber(GeneratorSubscriber),
    Idle,
}

#[derive(Debug)]
pub(super) struct GeneratorSubscriber {
    pub(super) flow: usize,
    pub(super) filter: String,
    pub(super) first: u32,
    pub(super) streams: Vec<ReceivedStream>,
    pub(super) reader: ReadSpeed,
    pub(super) next_read_ns: u64,
    /// Where the messages of one that works are.
    pub(super) worker: Option<WorkerQueue>,
}

/// All clients of a case on one thread.
pub(super) struct Engine {
    poll: Poll,
    events: Events,
    sleeper: Sleeper,
    pub(super) clock: CaseClock,
    stop: Stop,
    pub(super) greeting: Greeting,
    pub(super) flows: Vec<FlowSpec>,
    pub(super) tallies: Vec<FlowTally>,
    pub(super) pacers: Vec<Option<RateSchedule>>,
    pub(super) beats: Vec<Option<Beats>>,
    /// Places of the publishers of each flow.
    pub(super) publishers: Vec<Vec<usize>>,
    /// Deliveries per stream.
    pub(super) delivered: Vec<u64>,
    /// The flow of each stream.
    pub(super) flow_of: Vec<usize>,
    pub(super) ids: Vec<String>,
    pub(super) roles: Vec<ClientActivity>,
    /// Those that were opened so far; same places as `roles`.
    pub(super) connections: Vec<GeneratorConnection>,
    pub(super) ready: usize,
    pub(super) closed: u64,
    pub(super) buffer: Vec<u8>,
    /// Connections that may have more to read than was read.
    pub(super) unread: Vec<usize>,
    /// Places of the subscribers that work.
    pub(super) workers: Vec<usize>,
    pub(super) is_measuring: bool,
    pub(super) is_hurried: bool,
}

impl Engine {
    /// A generator for these flows and clients.
    pub(super) fn new(
        flows: &[FlowSpec],
        clients: Vec<ClientSpec>,
        greeting: Greeting,
        clock: CaseClock,
        stop: Stop,
    ) -> Result<Self> {
        let poll = Poll::new().context("no readiness loop")?;
        let sleeper = Sleeper::new(&poll).context("no timer")?;
        let mut engine = Self {
            poll,
            events: Events::with_capacity(1024),
            sleeper,
            clock,
            stop,
            greeting,
            flows: flows.to_vec(),
            tallies: flows.iter().map(|_| FlowTally::new()).collect(),
            pacers: vec![None; flows.len()],
            publishers: vec![Vec::new(); flows.len()],
            beats: vec![None; flows.len()],
            delivered: vec![0; flows.iter().map(|flow| flow.publishers() as usize).sum()],
            flow_of: flows
                .iter()
                .enumerate()
                .flat_map(|(number, flow)| vec![number; flow.publishers() as usize])
                .collect(),
            ids: Vec::new(),
            roles: Vec::new(),
            connections: Vec::new(),
            ready: 0,
            closed: 0,
            buffer: vec![0; 256 * 1024],
            unread: Vec::new(),
            workers: Vec::new(),
            is_measuring: false,
            is_hurried: false,
        };
        clients.into_iter().try_for_each(|client| engine.add(client))?;
        Ok(engine)
    }

    fn add(&mut self, client: ClientSpec) -> Result<()> {
        let role = match client.part {
            ClientPart::Publish { flow, stream, topic } => {
                self.publishers[flow].push(self.roles.len());
                let FlowSpec { qos, payload_bytes, .. } = self.flows[flow];
                let template = PublishTemplate::new(&topic, qos, payload_bytes, stream)?;
                ClientActivity::Publisher(Box::new(GeneratorPublisher::new(flow, stream as usize, template)))
            }
            ClientPart::Subscribe { flow, filter, first, streams, reader } => {
                let streams = vec![ReceivedStream::default(); streams as usize];
                let worker = match reader {
                    ReadSpeed::Worker { per_s, .. } => {
                        self.workers.push(self.roles.len());
                        Some(WorkerQueue::new(per_s))
                    }
                    ReadSpeed::Eager | ReadSpeed::Lasting | ReadSpeed::Slow => None,
                };
                ClientActivity::Subscriber(GeneratorSubscriber {
                    flow,
                    filter,
                    first,
                    streams,
                    reader,
                    next_read_ns: 0,
                    worker,
                })
            }
            ClientPart::Idle => ClientActivity::Idle,
        };
        self.ids.push(client.id);
        self.roles.push(role);
        Ok(())
    }

    /// Connects everybody; returns how long it took.
    pub(super) fn connect(&mut self, address: SocketAddr) -> Result<Duration> {
        let begin = Instant::now();
        let total = self.roles.len();
        while self.ready < total {
            while self.connections.len() < total && self.connections.len() - self.ready < HANDSHAKES_MAX {
                let token = Token(self.connections.len());
                let connection = GeneratorConnection::open(address, self.poll.registry(), token)
                    .with_context(|| format!("cannot connect to {address}"))?;
                self.connections.push(connection);
            }
            self.turn(LoadSwitch::Off, WAIT_MAX)?;
            if self.closed > 0 || begin.elapsed() > CONNECT_MAX {
                let seconds = begin.elapsed().as_secs_f64();
                bail!("{} of {total} clients were connected after {seconds:.1} s, {} refused", self.ready, self.closed);
            }
        }
        Ok(begin.elapsed())
    }

    /// Goes on for so long.
    pub(super) fn run(&mut self, load: LoadSwitch, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.turn(load, left.min(WAIT_MAX))?;
        }
    }

    /// The same, with what arrives counted as measured; returns how long it took exactly.
    pub(super) fn measure(&mut self, time: Duration) -> Result<Duration> {
        self.is_measuring = true;
        let begin = Instant::now();
        let outcome = self.run(LoadSwitch::On, time);
        self.is_measuring = false;
        outcome.map(|()| begin.elapsed())
    }

    /// From now on the publishers of a flow have another rhythm.
    pub(super) fn change(&mut self, flow: usize, beat: Beat) {
        self.flows[flow].pace = PublishPace::Each(beat);
        self.beats[flow] = None;
    }

    /// Stops sending and lets arrive what is under way. What would have been due meanwhile is not made up for.
    pub(super) fn rest(&mut self, time: Duration) -> Result<()> {
        self.pacers.fill(None);
        self.beats.fill(None);
        self.run(LoadSwitch::Off, time)
    }

    /// What was measured since the last time, flow by flow; counting begins anew.
    pub(super) fn harvest(&mut self) -> Vec<FlowTally> {
        let fresh = self.tallies.iter().map(FlowTally::unmeasured).collect();
        std::mem::replace(&mut self.tallies, fresh)
    }

    /// Sends what waits in the generator's own buffers and nothing else, for so long at most.
    pub(super) fn empty(&mut self, limit: Duration) -> Result<()> {
        let begin = Instant::now();
        while self.connections.iter().any(|connection| connection.backlog() > 0) && begin.elapsed() < limit {
            self.turn(LoadSwitch::Off, WAIT_MAX)?;
        }
        Ok(())
    }

    /// Reads all there is, also with slow subscribers, for so long.
    pub(super) fn hurry(&mut self, time: Duration) -> Result<()> {
        self.is_hurried = true;
        self.run(LoadSwitch::Off, time)
    }

    /// Receives what is still on its way.
    pub(super) fn drain(&mut self) -> Result<()> {
        self.is_hurried = true;
        let begin = Instant::now();
        let (mut last, mut since) = (0, begin);
        while !self.is_complete() && since.elapsed() < QUIET && begin.elapsed() < DRAIN_MAX {
            self.turn(LoadSwitch::Off, WAIT_MAX)?;
            let received = self.tallies.iter().map(|tally| tally.received).sum();
            if received != last {
                (last, since) = (received, Instant::now());
            }
        }
        Ok(())
    }

    /// Messages of all publishers that were acknowledged so far.
    pub(super) fn acknowledged(&self) -> u64 {
        let acked =
            |role: &ClientActivity| if let ClientActivity::Publisher(publisher) = role { publisher.acked } else { 0 };
        self.roles.iter().map(acked).sum()
    }

    /// Says goodbye and tells what happened.
    pub(super) fn finish(mut self) -> (Vec<FlowTally>, u64) {
        for role in &self.roles {
            if let ClientActivity::Publisher(publisher) = role {
                let tally = &mut self.tallies[publisher.flow];
                tally.sent += publisher.sent;
                tally.stalls += publisher.stalls;
            }
        }
        for connection in &mut self.connections {
            if self.greeting == Greeting::Mqtt && connection.state == ConnectState::Ready && connection.backlog() == 0 {
                packets::disconnect(&mut connection.outbox);
                // The broker is about to end anyway.
                let _ = connection.flush();
            }
        }
        (self.tallies, self.closed)
    }

    /// Whether everything that was sent has arrived. Never true of a flow whose publishers are on another thread.
    pub(super) fn is_complete(&self) -> bool {
        let is_done = |(number, flow): (usize, &FlowSpec)| {
            let sent = self.publishers[number].iter().filter_map(|&at| match &self.roles[at] {
                ClientActivity::Publisher(publisher) => Some(publisher.sent),
                _ => None,
            });
            let expected = sent.sum::<u64>() * flow.fan();
            !self.publishers[number].is_empty() && self.tallies[number].received >= expected
        };
        self.flows.iter().enumerate().all(is_done)
    }

    /// Send what may be sent, wait, receive what has come.
    fn turn(&mut self, load: LoadSwitch, limit: Duration) -> Result<()> {
        if self.stop.is_wanted() {
            bail!("interrupted");
        }
        let mut wait = limit;
        if load == LoadSwitch::On {
            wait = wait.min(self.send());
        }
        wait = wait.min(self.time_to_next_read()).min(self.work());
        // Taken out, because the loop below needs all of `self`.
        let mut events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        self.sleeper.wait(&mut self.poll, &mut events, wait).context("the readiness loop failed")?;
        for place in std::mem::take(&mut self.unread) {
            self.read(place);
        }
        for event in &events {
            if event.token().0 < self.connections.len() {
                self.serve(event.token().0);
            }
        }
        self.events = events;
        Ok(())
    }

    fn time_to_next_read(&self) -> Duration {
        let now = self.clock.now_ns();
        let due = self.unread.iter().map(|&place| match &self.roles[place] {
            ClientActivity::Subscriber(subscriber) => subscriber.next_read_ns.saturating_sub(now),
            _ => 0,
        });
        due.min().map_or(Duration::MAX, Duration::from_nanos)
    }

    /// Writes what waits; a connection that fails is gone.
    pub(super) fn flush(&mut self, place: usize) {
        if self.connections[place].flush().is_err() {
            self.lose(place);
        }
    }

    pub(super) fn lose(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        if connection.state != ConnectState::Closed {
            connection.state = ConnectState::Closed;
            connection.outbox.clear();
            self.closed += 1;
        }
    }
}
