//! All addresses that a shard speaks CoAP with.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_control::Timestamp;
use tidegate_core::access::{COAP_IDS, COAP_SESSION_IDS};
use tidegate_core::datagrams::{Admission, Chance, DatagramEndpoint, DatagramOwner, NotAdmitted};
use tidegate_core::event::Why;
use tidegate_core::{ConnId, Hello, Portion, Progress, ReadStep, Shard, Then};

use crate::block;
use crate::crowd::Crowd;
use crate::echo::EchoKey;
use crate::frame::{self, Frame};
use crate::limits::{AMPLIFICATION_MAX, BUSY, EXCHANGES_MAX, PEERS_MAX, PING_AFTER};
use crate::link::{CoapLink, Sight, whole_seconds};
use crate::message::{self, Answer, Datagram, MessageKind, Request, code, write, write_empty};
use crate::request;

/// What was counted at this door.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoapStats {
    /// Datagrams that came.
    pub datagrams: u64,
    /// Of these, such as cannot be understood.
    pub malformed: u64,
    /// Acknowledgements and resets of something that was not sent.
    pub stray: u64,
    /// Requests that came again.
    pub repeated: u64,
    /// Requests whose address had to be proved first.
    pub challenged: u64,
    /// Of these, such as got no answer because it would have been too large for the request.
    pub unanswered: u64,
    /// Requests of somebody who was not let in.
    pub refused: u64,
    /// Messages that were sent again.
    pub retransmitted: u64,
    /// Messages that nobody acknowledged.
    pub given_up: u64,
    /// States that an observer did not see because a newer one came before it could be told.
    pub conflated: u64,
    /// States that an observer did not see for want of room.
    pub dropped: u64,
    /// Addresses that are known now.
    pub peers: u64,
    /// Observations that there are now.
    pub observers: u64,
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    conn: ConnId,
    deadline: Timestamp,
    observers: usize,
}

/// Datagrams to and from one shard. *Handle what arrived, turn once, drain what is to be sent.*
#[derive(Debug)]
pub struct CoapEndpoint {
    peers: HashMap<SocketAddr, Peer, FixedState>,
    addresses: BTreeMap<ConnId, SocketAddr>,
    crowd: Crowd,
    timers: BTreeSet<(Timestamp, ConnId)>,
    echo: EchoKey,
    chance: Chance,
    /// What identifiers have before the address.
    ids: &'static str,
    /// Something below has proved the addresses already.
    are_proved: bool,
    /// Answers to addresses of which nothing is known.
    replies: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Addresses that were forgotten since somebody asked.
    left: Vec<SocketAddr>,
    scratch: Vec<u8>,
    stats: CoapStats,
}

/// Timers that are looked at in one turn.
const TIMERS_PER_TURN_MAX: usize = 256;
/// Answers to strangers that wait to be sent; one for each datagram of a turn at most.
const REPLIES_MAX: usize = 256;

impl CoapEndpoint {
    /// For one shard. The seed is drawn at each start and told to nobody.
    pub fn new(seed: [u64; 4]) -> Self {
        Self {
            peers: HashMap::with_hasher(FixedState::with_seed(seed[0])),
            addresses: BTreeMap::new(),
            crowd: Crowd::default(),
            timers: BTreeSet::new(),
            echo: EchoKey::new([seed[1], seed[2]]),
            chance: Chance::new(seed[3]),
            ids: COAP_IDS,
            are_proved: false,
            replies: VecDeque::new(),
            left: Vec::new(),
            scratch: Vec::new(),
            stats: CoapStats::default(),
        }
    }

    /// The same inside of sessions, which have proved the addresses of their peers.
    pub fn inside_sessions(seed: [u64; 4]) -> Self {
        Self { ids: COAP_SESSION_IDS, are_proved: true, ..Self::new(seed) }
    }

    /// What was counted.
    pub fn stats(&self) -> CoapStats {
        CoapStats { peers: self.peers.len() as u64, ..self.stats }
    }

    /// Whether there is nobody.
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// What the client at an address is called, where there are no sessions.
    pub fn client_id(address: SocketAddr) -> alloc::string::String {
        format!("{COAP_IDS}{address}")
    }

    /// What the client at an address is called here.
    pub fn id_of(&self, address: SocketAddr) -> alloc::string::String {
        format!("{}{address}", self.ids)
    }

    /// The address of a connection.
    pub fn address_of(&self, conn: ConnId) -> Option<SocketAddr> {
        self.addresses.get(&conn).copied()
    }

    /// A stranger's request: it is let in, or told why not.
    fn meet(
        &mut self,
        shard: &mut Shard,
        from: SocketAddr,
        (request, size): (&Request, usize),
        admission: &mut dyn Admission,
        now: Timestamp,
    ) -> Option<ConnId> {
        // Nobody can send from an address of this machine but this machine.
        let is_proved = self.are_proved
            || from.ip().is_loopback()
            || request.echo.as_ref().is_some_and(|echo| self.echo.is_proof(echo, from, now));
        if !is_proved {
            self.stats.challenged += 1;
            let echo = self.echo.value(from, now);
            self.answer_stranger(
                from,
                (request, size),
                &Answer { echo: Some(&echo), ..Answer::new(code::UNAUTHORIZED) },
            );
            return None;
        }
        let has_room = self.peers.len() < PEERS_MAX && self.crowd.has_room(from.ip());
        let full = if has_room { Ok(()) } else { Err(NotAdmitted::Full) };
        let client_id = self.id_of(from);
        let identity = match full.and_then(|()| admission.admit(from, &client_id)) {
            Ok(identity) => identity,
            Err(why) => {
                self.stats.refused += 1;
                let answer = match why {
                    NotAdmitted::Unknown => Answer::new(code::UNAUTHORIZED),
                    NotAdmitted::Banned => Answer::new(code::FORBIDDEN),
                    NotAdmitted::Full => busy(),
                };
                self.answer_stranger(from, (request, size), &answer);
                return None;
            }
        };
        let link = CoapLink::new(shard.memory().charge(), Chance::new(self.chance.draw()), now);
        let hello = Hello {
            client_id: &client_id,
            identity,
            face: alloc::boxed::Box::new(link),
            objection: None,
            is_clean: true,
            expiry: Duration::ZERO,
            keep_alive: 0,
            window: 1,
            // More than there are exchanges: the face says no before the core has to.
            inbound_max: EXCHANGES_MAX as u16 * 2,
            will: None,
            bytes: 0,
        };
        let Some(conn) = shard.connect(hello, now) else {
            self.answer_stranger(from, (request, size), &busy());
            return None;
        };
        self.peers.insert(from, Peer { conn, deadline: Timestamp::MAX, observers: 0 });
        self.addresses.insert(conn, from);
        self.crowd.enter(from.ip());
        Some(conn)
    }

    fn on_request(
        &mut self,
        shard: &mut Shard,
        (conn, from): (ConnId, SocketAddr),
        (request, bytes): (&Request, &[u8]),
        dry_at: Timestamp,
        now: Timestamp,
    ) {
        let Some((link, _)) = shard.face_mut::<CoapLink>(conn) else { return };
        if link.recall(request.exchange.message, now) == Sight::Repeated {
            shard.say_due(conn);
            return self.settle(shard, conn);
        }
        let portion = Portion { since: dry_at.min(now), dry_at: dry_at.min(now), units: u32::MAX };
        let Progress { consumed, then, .. } =
            shard.handle_portion_by(conn, bytes, &portion, now, |shard, rest, moment| {
                if rest.is_empty() {
                    return ReadStep::Incomplete { at_least: 1 };
                }
                let (is_publication, handled) = request::handle(shard, conn, request, rest.len(), moment);
                ReadStep::Packet { size: rest.len(), is_publication, handled }
            });
        if let Some((link, _)) = shard.face_mut::<CoapLink>(conn) {
            link.observations.release();
            link.notify(now);
        }
        if then == Then::Pause && consumed == 0 {
            // It is not read for a while, and is told so; what it would have published is counted.
            if request.is_publication() {
                shard.refuse_unread(conn, bytes.len(), now);
            }
            if let Some((link, _)) = shard.face_mut::<CoapLink>(conn) {
                link.respond(&request.exchange, &busy(), now);
            }
        }
        if then == Then::Close && shard.outbox(conn).iter().all(|slice| slice.is_empty()) {
            self.answer_stranger(from, (request, bytes.len()), &busy());
        }
        shard.say_due(conn);
        self.settle(shard, conn);
    }

    fn on_ack(&mut self, shard: &mut Shard, known: Option<ConnId>, message: u16, now: Timestamp) {
        let Some(conn) = known else {
            self.stats.stray += 1;
            return;
        };
        let Some((link, _)) = shard.face_mut::<CoapLink>(conn) else { return };
        if !link.confirmables.acknowledge(message, now) {
            self.stats.stray += 1;
        }
        link.notify(now);
        shard.say_due(conn);
    }

    /// An observer that resets a notification wants no more of them (RFC 7641, section 3.6).
    fn on_reset(&mut self, shard: &mut Shard, known: Option<ConnId>, message: u16, now: Timestamp) {
        let Some(conn) = known else {
            self.stats.stray += 1;
            return;
        };
        let Some((link, _)) = shard.face_mut::<CoapLink>(conn) else { return };
        let observer = link.confirmables.reset(message, now).or_else(|| link.observations.observer_of(message));
        let ended = observer.and_then(|token| {
            link.confirmables.forget(token);
            link.observations.remove(token, &mut link.charge)
        });
        link.notify(now);
        if let Some(filter) = ended {
            request::unsubscribe(shard, conn, &filter);
        }
        shard.say_due(conn);
    }

    /// An answer to somebody of whom nothing is remembered, never larger than three times what was asked.
    fn answer_stranger(&mut self, to: SocketAddr, (request, size): (&Request, usize), answer: &Answer<'_>) {
        let exchange = &request.exchange;
        let bytes = match (exchange.is_confirmable, exchange.wants(answer.code)) {
            (true, true) => write(MessageKind::Acknowledgement, exchange.message, exchange.token, answer),
            (true, false) => write_empty(MessageKind::Acknowledgement, exchange.message),
            (false, true) => {
                let number = self.chance.draw() as u16;
                write(MessageKind::NonConfirmable, number, exchange.token, answer)
            }
            (false, false) => return,
        };
        if bytes.len() <= size.saturating_mul(AMPLIFICATION_MAX) {
            self.reply(to, bytes);
        } else {
            self.stats.unanswered += 1;
        }
    }

    fn reply(&mut self, to: SocketAddr, bytes: Vec<u8>) {
        if self.replies.len() < REPLIES_MAX {
            self.replies.push_back((to, bytes));
        }
    }

    /// The address is given up: whatever it observed ends, as if its connection were lost.
    fn leave(&mut self, shard: &mut Shard, conn: ConnId, now: Timestamp) {
        self.collect(shard, conn);
        self.forget(conn);
        shard.handle_closed(conn, Why::KeepAlive, now);
    }

    /// Whether a connection is one of this door.
    pub fn has(&self, conn: ConnId) -> bool {
        self.addresses.contains_key(&conn)
    }

    /// What an address was reached by is gone, and its connection with it.
    pub fn lose(&mut self, shard: &mut Shard, address: SocketAddr, now: Timestamp) {
        let Some(conn) = self.peers.get(&address).map(|peer| peer.conn) else { return };
        self.close(shard, conn, now);
    }

    fn forget(&mut self, conn: ConnId) {
        if let Some(address) = self.addresses.remove(&conn)
            && let Some(peer) = self.peers.remove(&address)
        {
            self.timers.remove(&(peer.deadline, conn));
            self.crowd.leave(address.ip());
            self.stats.observers -= peer.observers as u64;
            self.left.push(address);
        }
    }

    /// Counts what a link has counted.
    fn collect(&mut self, shard: &mut Shard, conn: ConnId) {
        let Some((link, _)) = shard.face_mut::<CoapLink>(conn) else { return };
        let stats = &mut self.stats;
        let mut add = |to: fn(&mut CoapStats) -> &mut u64, from: &mut u64| *to(stats) += core::mem::take(from);
        add(|stats| &mut stats.repeated, &mut link.repeated);
        add(|stats| &mut stats.retransmitted, &mut link.confirmables.repetitions);
        add(|stats| &mut stats.given_up, &mut link.confirmables.given_up);
        add(|stats| &mut stats.conflated, &mut link.observations.conflated);
        add(|stats| &mut stats.dropped, &mut link.observations.dropped);
    }

    /// Something of a link may have changed: its next deadline, its observers.
    fn settle(&mut self, shard: &mut Shard, conn: ConnId) {
        self.collect(shard, conn);
        let Some((link, _)) = shard.face_mut::<CoapLink>(conn) else { return };
        let (deadline, observers) = (link.deadline(), link.observations.len());
        let Some(&address) = self.addresses.get(&conn) else { return };
        let Some(peer) = self.peers.get_mut(&address) else { return };
        self.stats.observers = self.stats.observers + observers as u64 - peer.observers as u64;
        peer.observers = observers;
        if peer.deadline != deadline {
            self.timers.remove(&(peer.deadline, conn));
        }
        peer.deadline = deadline;
        // A timer that was taken out is set again even if its time is the same.
        self.timers.insert((deadline, conn));
    }
}

/// *Handle what arrived, turn once, drain what is to be sent.*
impl DatagramEndpoint for CoapEndpoint {
    fn owner(&self, from: SocketAddr, _: &[u8]) -> DatagramOwner {
        DatagramOwner::Client(self.id_of(from))
    }

    fn knows(&self, address: SocketAddr) -> bool {
        self.peers.contains_key(&address)
    }

    fn handle_datagram(
        &mut self,
        shard: &mut Shard,
        (from, bytes): (SocketAddr, &[u8]),
        admission: &mut dyn Admission,
        dry_at: Timestamp,
        now: Timestamp,
    ) {
        self.stats.datagrams += 1;
        let datagram = message::read(bytes);
        let known = self.peers.get(&from).map(|peer| peer.conn);
        if let Some(conn) = known
            && let Some((link, _)) = shard.face_mut::<CoapLink>(conn)
        {
            link.heard_at = now;
        }
        match datagram {
            Datagram::Nothing => self.stats.malformed += 1,
            Datagram::ToReset { message, is_ping } => {
                self.stats.malformed += u64::from(!is_ping);
                // Never larger than what it answers.
                self.reply(from, write_empty(MessageKind::Reset, message));
            }
            Datagram::Ack(message) => self.on_ack(shard, known, message, now),
            Datagram::Reset(message) => self.on_reset(shard, known, message, now),
            Datagram::Request(request) => {
                let request = &*request;
                let Some(conn) = known.or_else(|| self.meet(shard, from, (request, bytes.len()), admission, now))
                else {
                    return;
                };
                self.on_request(shard, (conn, from), (request, bytes), dry_at, now);
            }
        }
        if let Some(conn) = known {
            self.settle(shard, conn);
        }
    }

    /// Never: an address is a client.
    fn handle_moved(&mut self, _: &mut Shard, _: SocketAddr, _: Timestamp) {}

    fn poll_reply(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.replies.pop_front()
    }

    fn poll_left(&mut self) -> Option<SocketAddr> {
        loop {
            let address = self.left.pop()?;
            if !self.knows(address) {
                return Some(address);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    fn turn(&mut self, shard: &mut Shard, now: Timestamp) {
        for _ in 0..TIMERS_PER_TURN_MAX {
            let Some(&(at, conn)) = self.timers.first() else { return };
            if at > now {
                return;
            }
            self.timers.pop_first();
            if tick(shard, conn, now) {
                shard.say_due(conn);
                self.settle(shard, conn);
            } else {
                self.leave(shard, conn, now);
            }
        }
    }

    fn write(
        &mut self,
        shard: &mut Shard,
        conn: ConnId,
        now: Timestamp,
        send: &mut dyn FnMut(SocketAddr, &[u8]),
    ) -> bool {
        let Some(&address) = self.addresses.get(&conn) else { return false };
        let mut bytes = core::mem::take(&mut self.scratch);
        bytes.clear();
        for slice in shard.outbox(conn) {
            bytes.extend_from_slice(slice);
        }
        let mut rest = bytes.as_slice();
        while let Some((found, behind)) = frame::split(rest) {
            match found {
                Frame::Datagram(datagram) => send(address, datagram),
                Frame::Answer { number, code, max_age, why } => {
                    let answer = Answer { max_age, payload: why, ..Answer::new(code) };
                    let link = shard.face_mut::<CoapLink>(conn);
                    if let Some(datagram) = link.and_then(|(link, _)| link.finish(number, &answer, now)) {
                        send(address, &datagram);
                    }
                }
            }
            rest = behind;
        }
        shard.handle_written(conn, bytes.len(), now);
        self.scratch = bytes;
        self.settle(shard, conn);
        true
    }

    fn close(&mut self, shard: &mut Shard, conn: ConnId, now: Timestamp) -> bool {
        if !self.has(conn) {
            return false;
        }
        self.collect(shard, conn);
        self.forget(conn);
        shard.handle_closed(conn, Why::Lost, now);
        true
    }
}

fn busy() -> Answer<'static> {
    Answer { max_age: Some(whole_seconds(BUSY)), ..Answer::new(code::UNAVAILABLE) }
}

/// False if the address is given up.
fn tick(shard: &mut Shard, conn: ConnId, now: Timestamp) -> bool {
    let Some((link, _)) = shard.face_mut::<CoapLink>(conn) else { return false };
    if link.confirmables.repeat(&mut link.outgoing, now) || link.is_idle(now) {
        return false;
    }
    if link.assembly.as_ref().is_some_and(|assembly| assembly.ends_at() <= now) {
        block::forget(&mut link.assembly, &mut link.charge);
    }
    link.acknowledge_late(now);
    link.notify(now);
    let is_silent = now.since(link.heard_at) >= PING_AFTER && !link.observations.is_empty();
    if is_silent && link.confirmables.is_empty() {
        let number = link.message_number();
        let ping = write_empty(MessageKind::Confirmable, number);
        link.confirmables.push(number, None, &ping, &mut link.chance, now);
        frame::put_datagram(&ping, &mut link.outgoing);
    }
    true
}
