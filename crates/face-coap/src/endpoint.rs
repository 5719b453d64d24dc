//! All addresses that a shard speaks CoAP with.

mod arrive;
mod drive;

use alloc::collections::{BTreeSet, VecDeque};
use alloc::format;
use alloc::vec::Vec;
use core::net::SocketAddr;

use tidegate_control::Timestamp;
use tidegate_core::access::{COAP_IDS, COAP_SESSION_IDS};
use tidegate_core::datagrams::{Admission, Chance, DatagramEndpoint, DatagramOwner};
use tidegate_core::event::Why;
use tidegate_core::{ConnId, Shard};

use crate::crowd::Crowd;
use crate::echo::EchoKey;
use crate::frame::{self, Frame};
use crate::link::CoapLink;
use crate::message::{self, Answer, Datagram, MessageKind, write_empty};
use crate::peers::Peers;
use crate::rto::RtoRule;
use drive::tick;

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

/// Datagrams to and from one shard. *Handle what arrived, turn once, drain what is to be sent.*
#[derive(Debug)]
pub struct CoapEndpoint {
    peers: Peers,
    crowd: Crowd,
    timers: BTreeSet<(Timestamp, ConnId)>,
    echo: EchoKey,
    chance: Chance,
    rule: RtoRule,
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

impl CoapEndpoint {
    /// For one shard. The seed is drawn at each start and told to nobody.
    pub fn new(seed: [u64; 4]) -> Self {
        Self {
            peers: Peers::new(seed[0]),
            crowd: Crowd::default(),
            timers: BTreeSet::new(),
            echo: EchoKey::new([seed[1], seed[2]]),
            chance: Chance::new(seed[3]),
            rule: RtoRule::default(),
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

    /// The same with other times of repetition than those that ship.
    #[must_use]
    pub fn with_repetitions(self, rule: RtoRule) -> Self {
        Self { rule, ..self }
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
        self.peers.get(conn).map(|peer| peer.address)
    }

    /// Whether a connection is one of this door.
    pub fn has(&self, conn: ConnId) -> bool {
        self.peers.get(conn).is_some()
    }

    /// What an address was reached by is gone, and its connection with it.
    pub fn lose(&mut self, shard: &mut Shard, address: SocketAddr, now: Timestamp) {
        let Some(conn) = self.peers.conn_of(address) else { return };
        self.close(shard, conn, now);
    }
}

/// *Handle what arrived, turn once, drain what is to be sent.*
impl DatagramEndpoint for CoapEndpoint {
    fn owner(&self, from: SocketAddr, _: &[u8]) -> DatagramOwner {
        DatagramOwner::Client(self.id_of(from))
    }

    fn knows(&self, address: SocketAddr) -> bool {
        self.peers.conn_of(address).is_some()
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
        let known = self.peers.conn_of(from);
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
        let Some(address) = self.address_of(conn) else { return false };
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
