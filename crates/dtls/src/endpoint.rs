//! All sessions of one shard.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_control::Timestamp;
use tidegate_control::address::place_of;

use crate::cookie::CookieKey;
use crate::crowd::Crowd;
use crate::hello::{self, Alert, Hello, Opening};
use crate::limits::{
    ADDRESS_PUT_OFF_MAX, BUFFER_BYTES, IDLE_MAX, PUT_OFF_MAX, STEPS_PER_TURN_MAX, TIMERS_PER_TURN_MAX,
};
use crate::plan::DtlsPlan;
use crate::session::{DtlsPeer, Ending, Outgoing, Session};

/// What a driver is to do. To be taken until there is no more of it.
#[derive(Debug, PartialEq, Eq)]
pub enum DtlsEvent {
    /// A datagram is to be sent.
    Send(SocketAddr, Vec<u8>),
    /// Somebody has said something; [`DtlsEndpoint::peer`] says who.
    Data(SocketAddr, Vec<u8>),
    /// A handshake has come to nothing.
    Refused(SocketAddr),
    /// A session that was open is over.
    Ended(SocketAddr),
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DtlsStats {
    /// Datagrams that came.
    pub datagrams: u64,
    /// Of these, such as are no records.
    pub malformed: u64,
    /// Records of somebody who has no session.
    pub stray: u64,
    /// Hellos whose address had to be proved first.
    pub challenged: u64,
    /// Hellos that found no room.
    pub crowded: u64,
    /// Handshakes that have begun.
    pub begun: u64,
    /// Of these, such as came to an end with a session.
    pub opened: u64,
    /// And such as failed: no common suite, a wrong key, no answer in time.
    pub failed: u64,
    /// And such whose certificate is not trusted.
    pub not_trusted: u64,
    /// Sessions that are over.
    pub ended: u64,
    /// Sessions that are open now.
    pub sessions: u64,
    /// Handshakes under way now.
    pub handshakes: u64,
}

/// DTLS on one shard. *Handle what arrived, turn once, take every event.*
pub struct DtlsEndpoint {
    plan: Arc<DtlsPlan>,
    cookies: CookieKey,
    /// What the clock of sessions showed when that of the shard was at zero.
    origin: Instant,
    sessions: HashMap<SocketAddr, Box<Session>, FixedState>,
    timers: BTreeSet<(Timestamp, SocketAddr)>,
    /// Who was in sessions that are over, until that is told.
    leaving: BTreeMap<SocketAddr, DtlsPeer>,
    crowd: Crowd,
    /// Parts of handshakes that this turn has seen, and datagrams with more of them for the next turns.
    steps: usize,
    put_off: VecDeque<(SocketAddr, Box<[u8]>)>,
    events: VecDeque<DtlsEvent>,
    buffer: Box<[u8]>,
    stats: DtlsStats,
}

impl std::fmt::Debug for DtlsEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DtlsEndpoint").field("sessions", &self.sessions.len()).finish_non_exhaustive()
    }
}

impl DtlsEndpoint {
    /// For one shard. Secret and seed are drawn at each start and told to nobody.
    pub fn new(plan: Arc<DtlsPlan>, secret: &[u8; 32], seed: u64, origin: Instant) -> Self {
        Self {
            plan,
            cookies: CookieKey::new(secret),
            origin,
            sessions: HashMap::with_hasher(FixedState::with_seed(seed)),
            timers: BTreeSet::new(),
            leaving: BTreeMap::new(),
            crowd: Crowd::default(),
            steps: 0,
            put_off: VecDeque::new(),
            events: VecDeque::new(),
            buffer: vec![0; BUFFER_BYTES].into(),
            stats: DtlsStats::default(),
        }
    }

    /// What was counted.
    pub fn stats(&self) -> DtlsStats {
        let handshakes = self.crowd.handshakes();
        DtlsStats { handshakes, sessions: self.sessions.len() as u64 - handshakes, ..self.stats }
    }

    /// Sessions and handshakes that there are.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there is nobody.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Who is at an address, if there is a session with it, or was one of whose end nobody has been told yet: what it said before that
    /// is to be heard.
    pub fn peer(&self, address: SocketAddr) -> Option<&DtlsPeer> {
        match self.sessions.get(&address) {
            Some(session) => session.peer(),
            None => self.leaving.get(&address),
        }
    }

    /// Another plan. Whoever came with a key that is there no more has to go, and whoever is in the middle of a handshake has to begin
    /// it anew: it may have been given such a key already.
    pub fn set_plan(&mut self, plan: &Arc<DtlsPlan>) {
        if Arc::ptr_eq(plan, &self.plan) {
            return;
        }
        let before = std::mem::replace(&mut self.plan, Arc::clone(plan));
        let has_to_go = |session: &Session| match session.peer() {
            Some(DtlsPeer::Key(name)) => !plan.has_same_key(name, &before),
            Some(_) => false,
            None => true,
        };
        let gone = self.sessions.iter().filter(|(_, session)| has_to_go(session)).map(|(address, _)| *address);
        let mut gone: Vec<SocketAddr> = gone.collect();
        gone.sort_unstable();
        for address in gone {
            if self.peer(address).is_some() {
                self.close(address);
                self.events.push_back(DtlsEvent::Ended(address));
            } else {
                self.end(address);
            }
        }
    }

    /// A datagram came.
    pub fn handle_datagram(&mut self, from: SocketAddr, datagram: &[u8], now: Timestamp) {
        self.stats.datagrams += 1;
        let opening = hello::read(datagram);
        if self.is_step(from, &opening, now) {
            if self.steps >= STEPS_PER_TURN_MAX || !self.put_off.is_empty() {
                return self.put_off(from, datagram);
            }
            self.steps += 1;
        }
        self.handle_opening(from, datagram, &opening, now);
    }

    fn handle_opening(&mut self, from: SocketAddr, datagram: &[u8], opening: &Opening<'_>, now: Timestamp) {
        match opening {
            Opening::Nothing => self.stats.malformed += 1,
            Opening::Hello(hello) => self.on_hello(from, hello, now),
            Opening::Record => self.on_record(from, datagram, now),
        }
    }

    /// Whether dealing with this may take long: it is a part of a handshake whose address is proved.
    fn is_step(&self, from: SocketAddr, opening: &Opening<'_>, now: Timestamp) -> bool {
        match opening {
            Opening::Nothing => false,
            Opening::Hello(hello) => self.cookies.proof(hello, from, now).is_some(),
            Opening::Record => self.sessions.get(&from).is_some_and(|session| session.peer().is_none()),
        }
    }

    fn put_off(&mut self, from: SocketAddr, datagram: &[u8]) {
        let here = place_of(from.ip());
        let of_address = self.put_off.iter().filter(|(other, _)| place_of(other.ip()) == here).count();
        if self.put_off.len() >= PUT_OFF_MAX || of_address >= ADDRESS_PUT_OFF_MAX {
            self.stats.crowded += 1;
        } else {
            self.put_off.push_back((from, datagram.into()));
        }
    }

    /// Some of what an earlier turn had no time for.
    fn go_on(&mut self, now: Timestamp) {
        self.steps = 0;
        while self.steps < STEPS_PER_TURN_MAX
            && let Some((from, datagram)) = self.put_off.pop_front()
        {
            self.steps += 1;
            let opening = hello::read(&datagram);
            self.handle_opening(from, &datagram, &opening, now);
        }
    }

    fn on_hello(&mut self, from: SocketAddr, hello: &Hello<'_>, now: Timestamp) {
        if self.sessions.get(&from).is_some_and(|session| session.random == *hello.random) {
            return self.on_record(from, hello.record, now);
        }
        let Some(cookie) = self.cookies.proof(hello, from, now) else {
            self.stats.challenged += 1;
            let request = hello.verify_request(&self.cookies.value(hello, from, now));
            self.events.push_back(DtlsEvent::Send(from, request));
            return;
        };
        let Some(way) = self.plan.way(hello.suites) else { return self.refuse(from, hello) };
        // Whoever is there and proves its address has lost its session, and begins anew (RFC 6347, section 4.2.8).
        self.end(from);
        if !self.crowd.enter(from.ip()) {
            self.stats.crowded += 1;
            return;
        }
        self.stats.begun += 1;
        let times = (self.instant(now), now);
        let Some(session) = Session::begin(&self.plan, (hello, cookie, way), times, &mut self.buffer) else {
            self.crowd.leave(from.ip(), false);
            return self.refuse(from, hello);
        };
        self.sessions.insert(from, Box::new(session));
        self.after(from, Ok(()), now);
    }

    /// No session comes of this hello, and its sender hears so: its address is proved.
    fn refuse(&mut self, from: SocketAddr, hello: &Hello<'_>) {
        self.stats.failed += 1;
        let alert = hello::alert(Alert::HandshakeFailure, hello.number());
        self.events.push_back(DtlsEvent::Refused(from));
        self.events.push_back(DtlsEvent::Send(from, alert));
    }

    fn on_record(&mut self, from: SocketAddr, datagram: &[u8], now: Timestamp) {
        let instant = self.instant(now);
        let Some(session) = self.sessions.get_mut(&from) else {
            self.stats.stray += 1;
            return;
        };
        let heard = session.hear(datagram, instant);
        self.after(from, heard, now);
    }

    /// Says something to somebody who has a session.
    pub fn send(&mut self, to: SocketAddr, data: &[u8], now: Timestamp) {
        let Some(session) = self.sessions.get_mut(&to).filter(|session| session.peer().is_some()) else { return };
        let said = session.say(data);
        self.after(to, said, now);
    }

    /// Ends a session from here, with a last word. Nothing is left of it, and nothing is told of it.
    pub fn close(&mut self, address: SocketAddr) {
        let Some(session) = self.sessions.get_mut(&address) else { return };
        session.close();
        let events = &mut self.events;
        let _ = session.drain(&self.plan, &mut self.buffer, |outgoing| {
            if let Outgoing::Datagram(datagram) = outgoing {
                events.push_back(DtlsEvent::Send(address, datagram.to_vec()));
            }
        });
        self.forget(address);
    }

    /// When `turn` should be called.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        if !self.put_off.is_empty() {
            return Some(Timestamp::ZERO);
        }
        self.timers.first().map(|(at, _)| *at)
    }

    /// What a driver is to do.
    pub fn poll_event(&mut self) -> Option<DtlsEvent> {
        let event = self.events.pop_front();
        if let Some(DtlsEvent::Ended(address)) = &event {
            self.leaving.remove(address);
        }
        event
    }

    /// Parts of handshakes that are to be sent again, handshakes that take too long, sessions that are silent. Bounded work.
    pub fn turn(&mut self, now: Timestamp) {
        self.go_on(now);
        let instant = self.instant(now);
        for _ in 0..TIMERS_PER_TURN_MAX {
            let Some(&(at, address)) = self.timers.first().filter(|(at, _)| *at <= now) else { return };
            self.timers.remove(&(at, address));
            let Some(session) = self.sessions.get_mut(&address) else { continue };
            session.wake_at = Timestamp::MAX;
            if session.peer().is_some() && now.since(session.heard_at) >= IDLE_MAX {
                self.close(address);
                self.events.push_back(DtlsEvent::Ended(address));
                continue;
            }
            let is_late = session.peer().is_none() && session.deadline <= now;
            let ticked = if is_late { Err(Ending::Failed) } else { session.tick(instant) };
            self.settle(address, ticked, now);
        }
    }

    /// Something came, or was said.
    fn after(&mut self, address: SocketAddr, did: Result<(), Ending>, now: Timestamp) {
        if let Some(session) = self.sessions.get_mut(&address) {
            session.heard_at = now;
        }
        self.settle(address, did, now);
    }

    /// What came of it: datagrams, data, the end; and when to look again.
    fn settle(&mut self, address: SocketAddr, did: Result<(), Ending>, now: Timestamp) {
        let Some(session) = self.sessions.get_mut(&address) else { return };
        let (was_open, events) = (session.peer().is_some(), &mut self.events);
        let drained = session.drain(&self.plan, &mut self.buffer, |outgoing| {
            events.push_back(match outgoing {
                Outgoing::Datagram(datagram) => DtlsEvent::Send(address, datagram.to_vec()),
                Outgoing::Data(data) => DtlsEvent::Data(address, data.to_vec()),
            });
        });
        let is_open = session.peer().is_some();
        if is_open && !was_open {
            self.stats.opened += 1;
            self.crowd.settle(address.ip());
        }
        match did.and(drained) {
            Ok(at) => {
                let ours = if is_open { session.heard_at + IDLE_MAX } else { session.deadline };
                let at = Timestamp::from_nanos(nanos(at.saturating_duration_since(self.origin))).min(ours).max(now);
                // Later times are seen when the earlier one comes: a timer for each datagram would cost more.
                if at < session.wake_at {
                    self.timers.remove(&(session.wake_at, address));
                    session.wake_at = at;
                    self.timers.insert((at, address));
                }
            }
            Err(ending) => {
                let alert = session.refusal(ending);
                let count = match ending {
                    Ending::NotTrusted => Some(&mut self.stats.not_trusted),
                    _ if !is_open => Some(&mut self.stats.failed),
                    _ => None,
                };
                if let Some(count) = count {
                    *count += 1;
                }
                // Counted before it is told.
                self.end(address);
                self.events.extend(alert.map(|alert| DtlsEvent::Send(address, alert)));
            }
        }
    }

    /// A session is over; whoever speaks above it hears so.
    fn end(&mut self, address: SocketAddr) {
        let Some(session) = self.sessions.get(&address) else { return };
        let event = if let Some(peer) = session.peer() {
            self.leaving.insert(address, peer.clone());
            DtlsEvent::Ended
        } else {
            DtlsEvent::Refused
        };
        self.forget(address);
        self.events.push_back(event(address));
    }

    fn forget(&mut self, address: SocketAddr) {
        let Some(session) = self.sessions.remove(&address) else { return };
        let is_open = session.peer().is_some();
        self.stats.ended += u64::from(is_open);
        self.timers.remove(&(session.wake_at, address));
        self.crowd.leave(address.ip(), is_open);
    }

    fn instant(&self, now: Timestamp) -> Instant {
        self.origin.checked_add(Duration::from_nanos(now.as_nanos())).unwrap_or(self.origin)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
