//! Clients that only come and go: one readiness loop for connects and disconnects, all at once or over and over.
//!
//! Each attempt ends in one of the ways that `ConnectFailures` counts, or inside. A client that failed tries again after a pause.

use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mio::{Events, Interest, Poll, Token};

use super::outcome::ConnectFailures;
use super::packets;
use super::slot::{ClientSlot, ConnectFailure, ConnectStage, ConnectStep, connect};
use super::timer::WAIT_MAX;
use tidegate_program::Stop;

/// How long a client that was refused waits before it tries again.
const PAUSE: Duration = Duration::from_millis(500);
/// An attempt without an answer is given up.
const ATTEMPT_MAX: Duration = Duration::from_secs(30);

/// How many are inside after a while, and how long it took.
#[derive(Clone, Copy, Debug)]
pub(super) struct FillOutcome {
    pub(super) inside: usize,
    pub(super) time: Duration,
    /// Until 99 % were inside.
    pub(super) most: Option<Duration>,
}

/// Clients that come and go.
pub(super) struct Handshakes {
    poll: Poll,
    events: Events,
    address: SocketAddr,
    slots: Vec<ClientSlot>,
    /// Those that may come now, and those that may later, by their time.
    ready: VecDeque<usize>,
    resting: VecDeque<(Instant, usize)>,
    under_way: usize,
    inside: usize,
    done: u64,
    trouble: ConnectFailures,
    is_churning: bool,
    next_check: Instant,
    run: u32,
    user: Option<(&'static str, &'static str)>,
    stop: Stop,
}

impl Handshakes {
    /// So many clients, all away.
    pub(super) fn new(address: SocketAddr, count: usize, run: u32, stop: Stop) -> Result<Self> {
        let slot = |_| ClientSlot { socket: None, stage: ConnectStage::Away, input: Vec::new() };
        Ok(Self {
            poll: Poll::new().context("no readiness loop")?,
            events: Events::with_capacity(1024),
            address,
            slots: (0..count).map(slot).collect(),
            ready: (0..count).collect(),
            resting: VecDeque::new(),
            under_way: 0,
            inside: 0,
            done: 0,
            trouble: ConnectFailures::default(),
            is_churning: false,
            next_check: Instant::now(),
            run,
            user: None,
            stop,
        })
    }

    /// From now on all have this name and password.
    pub(super) fn introduce(&mut self, user: (&'static str, &'static str)) {
        self.user = Some(user);
    }

    /// What went wrong so far.
    pub(super) fn trouble(&self) -> ConnectFailures {
        self.trouble
    }

    /// Lets everybody in who is away, so many at a time, until all are inside or the time is over.
    pub(super) fn fill(&mut self, at_a_time: usize, limit: Duration) -> Result<FillOutcome> {
        self.is_churning = false;
        let (begin, total) = (Instant::now(), self.slots.len());
        let mut most = None;
        while self.inside < total && begin.elapsed() < limit {
            self.turn(at_a_time)?;
            if most.is_none() && self.inside * 100 >= total * 99 {
                most = Some(begin.elapsed());
            }
        }
        Ok(FillOutcome { inside: self.inside, time: begin.elapsed(), most })
    }

    /// Lets everybody come and go for so long; returns how many did, and the exact time.
    pub(super) fn churn(&mut self, time: Duration) -> Result<(u64, Duration)> {
        self.is_churning = true;
        let (begin, before) = (Instant::now(), self.done);
        while begin.elapsed() < time {
            self.turn(usize::MAX)?;
        }
        Ok((self.done - before, begin.elapsed()))
    }

    /// All connections end without a word, as when the network is gone.
    pub(super) fn leave_all(&mut self) {
        for slot in &mut self.slots {
            slot.socket = None;
            slot.stage = ConnectStage::Away;
            slot.input = Vec::new();
        }
        self.ready = (0..self.slots.len()).collect();
        self.resting.clear();
        (self.under_way, self.inside) = (0, 0);
    }

    fn turn(&mut self, at_a_time: usize) -> Result<()> {
        if self.stop.is_wanted() {
            bail!("interrupted");
        }
        let now = Instant::now();
        while self.resting.front().is_some_and(|(until, _)| *until <= now) {
            self.ready.extend(self.resting.pop_front().map(|(_, place)| place));
        }
        while self.under_way < at_a_time
            && let Some(place) = self.ready.pop_front()
        {
            self.open(place);
        }
        match self.poll.poll(&mut self.events, Some(WAIT_MAX)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => self.events.clear(),
            outcome => outcome.context("the readiness loop failed")?,
        }
        let places: Vec<usize> = self.events.iter().map(|event| event.token().0).collect();
        for place in places {
            self.serve(place);
        }
        self.give_up(now);
        Ok(())
    }

    fn open(&mut self, place: usize) {
        self.under_way += 1;
        let opened = connect(self.address, place).and_then(|mut socket| {
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut socket, Token(place), interest)?;
            Ok(socket)
        });
        match opened {
            Ok(socket) => {
                let slot = &mut self.slots[place];
                (slot.socket, slot.stage) = (Some(socket), ConnectStage::Opening(Instant::now()));
                slot.input.clear();
            }
            Err(_) => self.fail(place, ConnectFailure::Local),
        }
    }

    fn serve(&mut self, place: usize) {
        let id = format!("bench-{}-c{place}", self.run);
        let Some(slot) = self.slots.get_mut(place) else { return };
        match slot.step(&id, self.user) {
            ConnectStep::Wait => {}
            ConnectStep::Failed(failure) if slot.stage == ConnectStage::Inside => {
                // Let in and then put out again: counted, and not back.
                self.inside -= 1;
                self.under_way += 1;
                self.fail(place, failure);
            }
            ConnectStep::Failed(failure) => self.fail(place, failure),
            ConnectStep::Welcome => self.welcome(place),
        }
    }

    fn welcome(&mut self, place: usize) {
        self.under_way -= 1;
        self.done += 1;
        let slot = &mut self.slots[place];
        slot.input = Vec::new();
        if !self.is_churning {
            slot.stage = ConnectStage::Inside;
            self.inside += 1;
            return;
        }
        let mut out = Vec::new();
        packets::disconnect(&mut out);
        if let Some(mut socket) = slot.socket.take() {
            // Two bytes fit; if not, the broker sees a client that vanished.
            let _ = socket.write(&out);
        }
        slot.stage = ConnectStage::Away;
        self.ready.push_back(place);
    }

    fn fail(&mut self, place: usize, failure: ConnectFailure) {
        self.under_way -= 1;
        let counter = match failure {
            ConnectFailure::Later => &mut self.trouble.later,
            ConnectFailure::Refused => &mut self.trouble.refused,
            ConnectFailure::Reset => &mut self.trouble.reset,
            ConnectFailure::Closed => &mut self.trouble.closed,
            ConnectFailure::Silent => &mut self.trouble.silent,
            ConnectFailure::Local => &mut self.trouble.local,
        };
        *counter += 1;
        let slot = &mut self.slots[place];
        (slot.socket, slot.stage) = (None, ConnectStage::Away);
        self.resting.push_back((Instant::now() + PAUSE, place));
    }

    /// Looks now and then for attempts that nobody answers.
    fn give_up(&mut self, now: Instant) {
        if now < self.next_check {
            return;
        }
        self.next_check = now + PAUSE;
        for place in 0..self.slots.len() {
            if let ConnectStage::Opening(since) | ConnectStage::Greeting(since) = self.slots[place].stage
                && now.saturating_duration_since(since) > ATTEMPT_MAX
            {
                self.fail(place, ConnectFailure::Silent);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_listening_is_counted_and_tried_again() {
        let free = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let mut clients = Handshakes::new(address, 3, 1, Stop::on_signals().unwrap()).unwrap();
        let filled = clients.fill(usize::MAX, Duration::from_millis(50)).unwrap();
        assert_eq!((filled.inside, filled.most), (0, None));
        assert_eq!((clients.trouble().reset, clients.trouble().errors()), (3, 3));
    }
}
