//! All addresses that a shard speaks MQTT-SN with.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_control::Timestamp;
use tidegate_core::access::{Identity, SN_IDS};
use tidegate_core::datagrams::{Admission, Chance, DatagramEndpoint, DatagramOwner, NotAdmitted};
use tidegate_core::event::Why;
use tidegate_core::{ConnId, Hello, Portion, Progress, ReadStep, Shard, Then};
use tidegate_wire_mqtt::topic::check_name;

use crate::frame::{self, Frame};
use crate::greet::{Greeting, Greetings, Next};
use crate::limits::{PEERS_MAX, PEERS_PER_IP_MAX, SENDERS_MAX, WAITING_MAX};
use crate::link::{LinkKind, Presence, SnLink};
use crate::packet::{Packet, Publish, Quality, ReturnCode};
use crate::request::{self, Said};
use crate::topics::PredefinedTopics;

/// What was counted at this door.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnStats {
    /// Datagrams that came.
    pub datagrams: u64,
    /// Of these, such as cannot be understood.
    pub malformed: u64,
    /// Answers to something that was not asked, and words that only a gateway has.
    pub stray: u64,
    /// What came from somebody who has to connect first, and was told so.
    pub unknown: u64,
    /// Messages that came again.
    pub repeated: u64,
    /// What came from somebody who was not let in.
    pub refused: u64,
    /// Messages that were sent again.
    pub retransmitted: u64,
    /// Clients that did not answer any more.
    pub given_up: u64,
    /// Messages whose topic a client did not want to know.
    pub dropped: u64,
    /// Addresses that are known now.
    pub peers: u64,
    /// Of these, clients that sleep.
    pub asleep: u64,
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    conn: ConnId,
    deadline: Timestamp,
    is_sender: bool,
    is_asleep: bool,
}

/// Datagrams to and from one shard.
#[derive(Debug)]
pub struct SnEndpoint {
    peers: HashMap<SocketAddr, Peer, FixedState>,
    addresses: BTreeMap<ConnId, SocketAddr>,
    /// Clients of each address beyond this machine, whatever their ports.
    by_ip: BTreeMap<IpAddr, u32>,
    senders: usize,
    timers: BTreeSet<(Timestamp, ConnId)>,
    greetings: Greetings,
    predefined: Arc<PredefinedTopics>,
    gateway: u8,
    chance: Chance,
    /// What is said without an outbox.
    replies: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Addresses that were forgotten since somebody asked.
    left: Vec<SocketAddr>,
    scratch: Vec<u8>,
    stats: SnStats,
}

/// Timers that are looked at in one turn.
const TIMERS_PER_TURN_MAX: usize = 256;
/// Answers that wait to be sent: a few for each timer of a turn.
const REPLIES_MAX: usize = 1024;

impl SnEndpoint {
    /// For one shard: the topics whose identifiers everybody knows, and the number of this gateway. The seed is drawn at each
    /// start and told to nobody.
    pub fn new(seed: [u64; 2], predefined: Arc<PredefinedTopics>, gateway: u8) -> Self {
        Self {
            peers: HashMap::with_hasher(FixedState::with_seed(seed[0])),
            addresses: BTreeMap::new(),
            by_ip: BTreeMap::new(),
            senders: 0,
            timers: BTreeSet::new(),
            greetings: Greetings::default(),
            predefined,
            gateway,
            chance: Chance::new(seed[1]),
            replies: VecDeque::new(),
            left: Vec::new(),
            scratch: Vec::new(),
            stats: SnStats::default(),
        }
    }

    /// What was counted.
    pub fn stats(&self) -> SnStats {
        SnStats { peers: self.peers.len() as u64, ..self.stats }
    }

    /// What somebody is called who publishes from an address without being connected.
    pub fn sender_id(address: IpAddr) -> String {
        format!("{SN_IDS}{address}")
    }

    fn reply(&mut self, to: SocketAddr, packet: Packet<'_>) {
        self.reply_bytes(to, packet.bytes());
    }

    fn reply_bytes(&mut self, to: SocketAddr, bytes: Vec<u8>) {
        if self.replies.len() < REPLIES_MAX {
            self.replies.push_back((to, bytes));
        }
    }

    /// A client of this door says something.
    fn hear(
        &mut self,
        shard: &mut Shard,
        (conn, from): (ConnId, SocketAddr),
        (packet, bytes): (&Packet<'_>, &[u8]),
        dry_at: Timestamp,
        now: Timestamp,
    ) {
        let client_id = shard.client_id(conn).map(String::from);
        let Some((link, _)) = shard.face_mut::<SnLink>(conn) else { return };
        link.is_fresh = false;
        match *packet {
            Packet::PingReq { client_id: "" } => self.reply(from, Packet::PingResp),
            Packet::PingReq { client_id: named } if Some(named) != client_id.as_deref() => {
                self.reply(from, Packet::Disconnect { seconds: None });
            }
            Packet::PingReq { .. } => match link.presence {
                Presence::Active(_) => self.reply(from, Packet::PingResp),
                // It has what waits for it, then PINGRESP (section 6.14).
                Presence::Asleep(time) | Presence::Awake(time) => {
                    link.presence = Presence::Awake(time);
                    link.outbound.hurry(now);
                    link.wants_write = true;
                }
            },
            Packet::PingResp => {}
            Packet::Disconnect { seconds: Some(seconds) } if seconds > 0 => {
                link.presence = Presence::Asleep(Duration::from_secs(seconds.into()));
                self.reply(from, Packet::Disconnect { seconds: None });
            }
            _ => return self.pass_on(shard, (conn, from), (packet, bytes), dry_at, now),
        }
        self.settle(shard, conn);
    }

    /// What the core is to know of.
    fn pass_on(
        &mut self,
        shard: &mut Shard,
        (conn, from): (ConnId, SocketAddr),
        (packet, bytes): (&Packet<'_>, &[u8]),
        dry_at: Timestamp,
        now: Timestamp,
    ) {
        let (mut said, mut is_stray) = (Said::new(), false);
        let portion = Portion { since: dry_at.min(now), dry_at: dry_at.min(now), units: u32::MAX };
        let Progress { consumed, then, .. } =
            shard.handle_portion_by(conn, bytes, &portion, now, |shard, rest, moment| {
                if rest.is_empty() {
                    return ReadStep::Incomplete { at_least: 1 };
                }
                let is_answer = matches!(
                    packet,
                    Packet::RegAck { .. } | Packet::PubAck { .. } | Packet::PubRec(_) | Packet::PubComp(_)
                );
                let (is_publication, handled) = if is_answer {
                    is_stray = !request::handle_answer(shard, conn, packet, now, &mut said);
                    (false, Ok(tidegate_core::Flow::On))
                } else {
                    request::handle(shard, conn, packet, rest.len(), moment, &mut said)
                };
                ReadStep::Packet { size: rest.len(), is_publication, handled }
            });
        self.stats.stray += u64::from(is_stray);
        if let Some((link, _)) = shard.face_mut::<SnLink>(conn) {
            // It is not read for a while, and is told so.
            if then == Then::Pause && consumed == 0 && !link.is_sender() {
                said.extend(request::refuse_for_now(packet));
            }
            for bytes in &said {
                link.outbound.note_sent(bytes.len());
            }
        }
        for bytes in said {
            self.reply_bytes(from, bytes);
        }
        self.settle(shard, conn);
    }

    /// Somebody wants to come in.
    fn on_connect(
        &mut self,
        shard: &mut Shard,
        from: SocketAddr,
        (greeting, protocol, has_will): (Greeting, u8, bool),
        admission: &mut dyn Admission,
        now: Timestamp,
    ) {
        // There is one version (section 5.3.8), and nobody without a name.
        if protocol != 1 || greeting.client_id.is_empty() {
            self.stats.refused += 1;
            return self.reply(from, Packet::ConnAck(ReturnCode::NotSupported));
        }
        if has_will {
            let gone = self.greetings.ask(from, greeting, now);
            self.left.extend(gone);
            return self.reply(from, Packet::WillTopicReq);
        }
        if self.greetings.forget(from) {
            self.left.push(from);
        }
        self.let_in(shard, from, greeting, admission, now);
    }

    fn follow(
        &mut self,
        shard: &mut Shard,
        from: SocketAddr,
        next: Next,
        admission: &mut dyn Admission,
        now: Timestamp,
    ) {
        match next {
            Next::Stray => self.stats.stray += 1,
            Next::Ask(packet) => self.reply(from, packet),
            Next::Come(greeting) => {
                self.left.push(from);
                self.let_in(shard, from, greeting, admission, now);
            }
        }
    }

    fn let_in(
        &mut self,
        shard: &mut Shard,
        from: SocketAddr,
        greeting: Greeting,
        admission: &mut dyn Admission,
        now: Timestamp,
    ) {
        let limits = shard.packet_limits();
        if greeting.will.as_ref().is_some_and(|will| check_name(will.topic(), limits).is_err()) {
            self.stats.refused += 1;
            return self.reply(from, Packet::ConnAck(ReturnCode::NotSupported));
        }
        if let Some(conn) = self.peers.get(&from).map(|peer| peer.conn) {
            let is_same = shard.client_id(conn) == Some(&greeting.client_id) && !shard.is_closing(conn);
            let is_fresh = shard.face_mut::<SnLink>(conn).is_some_and(|(link, _)| link.is_fresh);
            // Awake again, or it did not hear our answer: it goes on with what it has.
            if is_same && (!greeting.is_clean || is_fresh) {
                return self.go_on(shard, (conn, from), greeting, now);
            }
            self.leave(shard, conn, Why::TakenOver, now);
        }
        let is_here = from.ip().is_loopback();
        let crowd = self.by_ip.get(&from.ip()).copied().unwrap_or(0);
        let is_full = self.peers.len() - self.senders >= PEERS_MAX || crowd >= PEERS_PER_IP_MAX;
        let full = if is_full { Err(NotAdmitted::Full) } else { Ok(()) };
        let identity = match full.and_then(|()| admission.admit(from, &greeting.client_id)) {
            Ok(identity) => identity,
            Err(why) => {
                self.stats.refused += 1;
                let is_full = why == NotAdmitted::Full;
                let code = if is_full { ReturnCode::Congestion } else { ReturnCode::NotSupported };
                return self.reply(from, Packet::ConnAck(code));
            }
        };
        let presence = Presence::Active(greeting.keep_alive);
        let mut link = self.link(shard, (LinkKind::Client, presence), is_here, now);
        link.set_will(greeting.will.clone());
        let will = greeting.will.as_ref().map(crate::greet::Will::as_core);
        let name = greeting.client_id.as_str();
        let expiry = if greeting.is_clean { Duration::ZERO } else { shard.settings().session_expiry_v3 };
        let hello = hello((name, identity), link, (greeting.is_clean, expiry), will);
        match shard.connect(hello, now) {
            Some(conn) => self.note_peer(shard, from, conn, LinkKind::Client),
            None => self.reply(from, Packet::ConnAck(ReturnCode::Congestion)),
        }
    }

    /// A client that is connected connects: its session and its messages stay as they are.
    fn go_on(&mut self, shard: &mut Shard, (conn, from): (ConnId, SocketAddr), greeting: Greeting, now: Timestamp) {
        let mut code = ReturnCode::Accepted;
        if greeting.will.is_some() {
            code = request::change_will(shard, conn, greeting.will);
        }
        if let Some((link, _)) = shard.face_mut::<SnLink>(conn) {
            link.presence = Presence::Active(greeting.keep_alive);
            // It may have been switched off and on.
            link.topics.doubt_all();
            link.outbound.hurry(now);
            link.wants_write = true;
        }
        self.reply(from, Packet::ConnAck(code));
        self.settle(shard, conn);
    }

    /// Who publishes without being connected, as a client of the core: one for each address, whatever its ports.
    fn sender(
        &mut self,
        shard: &mut Shard,
        from: SocketAddr,
        admission: &mut dyn Admission,
        now: Timestamp,
    ) -> Option<ConnId> {
        let place = SocketAddr::new(from.ip(), 0);
        if let Some(peer) = self.peers.get(&place) {
            return Some(peer.conn);
        }
        let full = if self.senders >= SENDERS_MAX { Err(NotAdmitted::Full) } else { Ok(()) };
        let name = Self::sender_id(from.ip());
        let Ok(identity) = full.and_then(|()| admission.admit(place, &name)) else {
            self.stats.refused += 1;
            return None;
        };
        let link = self.link(shard, (LinkKind::Sender, Presence::Active(Duration::ZERO)), false, now);
        let conn = shard.connect(hello((&name, identity), link, (true, Duration::ZERO), None), now)?;
        self.note_peer(shard, place, conn, LinkKind::Sender);
        Some(conn)
    }

    fn link(
        &mut self,
        shard: &Shard,
        (kind, presence): (LinkKind, Presence),
        is_proved: bool,
        now: Timestamp,
    ) -> SnLink {
        let chance = Chance::new(self.chance.draw());
        SnLink::new(kind, presence, Arc::clone(&self.predefined), shard.memory(), (chance, is_proved), now)
    }

    fn note_peer(&mut self, shard: &mut Shard, address: SocketAddr, conn: ConnId, kind: LinkKind) {
        let is_sender = kind == LinkKind::Sender;
        self.senders += usize::from(is_sender);
        if !is_sender && !address.ip().is_loopback() {
            *self.by_ip.entry(address.ip()).or_default() += 1;
        }
        self.peers.insert(address, Peer { conn, deadline: Timestamp::MAX, is_sender, is_asleep: false });
        self.addresses.insert(conn, address);
        self.settle(shard, conn);
    }

    /// Somebody says what only clients may say.
    fn on_stranger(&mut self, from: SocketAddr, packet: &Packet<'_>) {
        match packet {
            Packet::RegAck { .. } | Packet::PubAck { .. } | Packet::PubRec(_) | Packet::PubComp(_) => {
                self.stats.stray += 1;
            }
            Packet::PingResp => self.stats.stray += 1,
            // It is to connect (section 5.4.21); two bytes, so never more than what it answers.
            _ => {
                self.stats.unknown += 1;
                self.reply(from, Packet::Disconnect { seconds: None });
            }
        }
    }

    /// A client is given up: whatever it subscribed to ends, as if its connection were lost.
    fn leave(&mut self, shard: &mut Shard, conn: ConnId, why: Why, now: Timestamp) {
        self.collect(shard, conn);
        self.forget(conn);
        shard.handle_closed(conn, why, now);
    }

    fn forget(&mut self, conn: ConnId) {
        let Some(address) = self.addresses.remove(&conn) else { return };
        let Some(peer) = self.peers.remove(&address) else { return };
        self.timers.remove(&(peer.deadline, conn));
        self.stats.asleep -= u64::from(peer.is_asleep);
        self.senders -= usize::from(peer.is_sender);
        if let Some(count) = self.by_ip.get_mut(&address.ip()).filter(|_| !peer.is_sender) {
            *count -= 1;
            if *count == 0 {
                self.by_ip.remove(&address.ip());
            }
        }
        self.left.push(address);
    }

    /// Counts what a link has counted.
    fn collect(&mut self, shard: &mut Shard, conn: ConnId) {
        let Some((link, _)) = shard.face_mut::<SnLink>(conn) else { return };
        let stats = &mut self.stats;
        stats.repeated += core::mem::take(&mut link.inbound.repeated);
        stats.retransmitted += core::mem::take(&mut link.outbound.retransmitted);
        stats.given_up += core::mem::take(&mut link.outbound.given_up);
        stats.dropped += core::mem::take(&mut link.outbound.dropped);
    }

    /// Something of a link may have changed: its next deadline, what may be sent.
    fn settle(&mut self, shard: &mut Shard, conn: ConnId) {
        if let Some((link, _)) = shard.face_mut::<SnLink>(conn) {
            // Who is awake is waited for until it has everything.
            let may_sleep_on = matches!(link.presence, Presence::Awake(_)) && link.outbound.is_empty();
            link.wants_write |= may_sleep_on || (!link.is_asleep() && link.outbound.has_more());
            if link.wants_write {
                shard.say_due(conn);
            }
        }
        self.set_timer(shard, conn);
    }

    fn set_timer(&mut self, shard: &mut Shard, conn: ConnId) {
        self.collect(shard, conn);
        let Some((link, _)) = shard.face_mut::<SnLink>(conn) else { return };
        let (deadline, is_asleep) = (link.deadline(), link.is_asleep());
        let Some(&address) = self.addresses.get(&conn) else { return };
        let Some(peer) = self.peers.get_mut(&address) else { return };
        self.stats.asleep = self.stats.asleep + u64::from(is_asleep) - u64::from(peer.is_asleep);
        peer.is_asleep = is_asleep;
        if peer.deadline != deadline {
            self.timers.remove(&(peer.deadline, conn));
        }
        peer.deadline = deadline;
        // A timer that was taken out is set again even if its time is the same.
        self.timers.insert((deadline, conn));
    }

    /// What is due for one client. False if it is given up.
    fn tick(&mut self, shard: &mut Shard, conn: ConnId, now: Timestamp) -> bool {
        let Some(&address) = self.addresses.get(&conn) else { return true };
        let Some((link, _)) = shard.face_mut::<SnLink>(conn) else { return false };
        if link.is_silent(now) {
            return false;
        }
        let mut said = Said::new();
        let goes_on = link.is_asleep() || link.outbound.repeat(now, &mut |bytes| said.push(bytes.into()));
        for bytes in said {
            self.reply_bytes(address, bytes);
        }
        goes_on
    }
}

fn hello<'a>(
    (client_id, identity): (&'a str, Identity),
    link: SnLink,
    (is_clean, expiry): (bool, Duration),
    will: Option<tidegate_core::ClientWill<'a>>,
) -> Hello<'a> {
    Hello {
        client_id,
        identity,
        face: Box::new(link),
        objection: None,
        is_clean,
        expiry,
        // A datagram's sender may sleep: the face knows how long it may be silent.
        keep_alive: 0,
        // One message at a time (section 6.6).
        window: 1,
        // More than wait for the core: the face says no before the core has to.
        inbound_max: WAITING_MAX as u16 * 4,
        will,
        bytes: 0,
    }
}

/// *Handle what arrived, turn once, drain what is to be sent.*
impl DatagramEndpoint for SnEndpoint {
    fn owner(&self, from: SocketAddr, bytes: &[u8]) -> DatagramOwner {
        match Packet::read(bytes) {
            Some(Packet::Connect { client_id, .. }) => DatagramOwner::Client(client_id.into()),
            _ => DatagramOwner::Address(Self::sender_id(from.ip())),
        }
    }

    fn knows(&self, address: SocketAddr) -> bool {
        self.peers.contains_key(&address) || self.greetings.knows(address)
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
        let known = self.peers.get(&from).map(|peer| peer.conn).filter(|conn| !shard.is_closing(*conn));
        let Some(packet) = Packet::read(bytes) else {
            self.stats.malformed += 1;
            return;
        };
        if let Some((link, _)) = known.and_then(|conn| shard.face_mut::<SnLink>(conn)) {
            link.heard_at = now;
            link.outbound.note_received(bytes.len());
        }
        match packet {
            Packet::SearchGw { .. } => self.reply(from, Packet::GwInfo { gateway: self.gateway, address: &[] }),
            Packet::Connect { will, clean, protocol, seconds, client_id } => {
                let keep_alive = Duration::from_secs(seconds.into());
                let greeting = Greeting { client_id: client_id.into(), is_clean: clean, keep_alive, will: None };
                self.on_connect(shard, from, (greeting, protocol, will), admission, now);
            }
            Packet::WillTopic(topic) => {
                let next = self.greetings.on_topic(from, topic, now);
                self.follow(shard, from, next, admission, now);
            }
            Packet::WillMsg(message) => {
                let next = self.greetings.on_message(from, message);
                self.follow(shard, from, next, admission, now);
            }
            // Only a gateway says such things.
            Packet::Advertise { .. }
            | Packet::GwInfo { .. }
            | Packet::ConnAck(_)
            | Packet::WillTopicReq
            | Packet::WillMsgReq
            | Packet::SubAck { .. }
            | Packet::UnsubAck(_)
            | Packet::WillTopicResp(_)
            | Packet::WillMsgResp(_) => self.stats.stray += 1,
            Packet::Publish(Publish { quality: Quality::Unconnected, .. }) => {
                let conn = known.or_else(|| self.sender(shard, from, admission, now));
                let Some(conn) = conn else { return };
                if let Some((link, _)) = shard.face_mut::<SnLink>(conn) {
                    link.heard_at = now;
                }
                self.pass_on(shard, (conn, from), (&packet, bytes), dry_at, now);
            }
            packet => match known {
                Some(conn) => self.hear(shard, (conn, from), (&packet, bytes), dry_at, now),
                None => self.on_stranger(from, &packet),
            },
        }
        let conn = self.peers.get(&from).map(|peer| peer.conn).filter(|conn| Some(*conn) != known);
        if let Some((link, _)) = conn.and_then(|conn| shard.face_mut::<SnLink>(conn)) {
            link.outbound.note_received(bytes.len());
        }
    }

    fn handle_moved(&mut self, shard: &mut Shard, address: SocketAddr, now: Timestamp) {
        self.greetings.forget(address);
        if let Some(conn) = self.peers.get(&address).map(|peer| peer.conn) {
            self.leave(shard, conn, Why::TakenOver, now);
        }
        self.left.push(address);
    }

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
        let timer = self.timers.first().map(|(at, _)| *at);
        timer.into_iter().chain(self.greetings.due()).min()
    }

    fn turn(&mut self, shard: &mut Shard, now: Timestamp) {
        if self.greetings.due().is_some_and(|due| due <= now) {
            let mut questions = Vec::new();
            self.greetings.turn(now, |address, question| questions.push((address, question)));
            for (address, question) in questions {
                match question {
                    Some(question) => self.reply(address, question),
                    None => self.left.push(address),
                }
            }
        }
        for _ in 0..TIMERS_PER_TURN_MAX {
            let Some(&(at, conn)) = self.timers.first() else { return };
            if at > now {
                return;
            }
            self.timers.pop_first();
            if self.tick(shard, conn, now) {
                self.settle(shard, conn);
                continue;
            }
            let address = self.addresses.get(&conn).copied().filter(|address| address.port() != 0);
            self.leave(shard, conn, Why::KeepAlive, now);
            if let Some(address) = address {
                self.reply(address, Packet::Disconnect { seconds: None });
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
        let is_closing = shard.is_closing(conn);
        let is_full = shard.face_mut::<SnLink>(conn).is_some_and(|(link, _)| link.is_asleep() && link.is_full());
        if is_full && !is_closing {
            return true;
        }
        let mut bytes = core::mem::take(&mut self.scratch);
        bytes.clear();
        for slice in shard.outbox(conn) {
            bytes.extend_from_slice(slice);
        }
        let Some((link, memory)) = shard.face_mut::<SnLink>(conn) else { return false };
        let mut send = |bytes: &[u8]| send(address, bytes);
        link.send_held(memory, now, &mut send);
        let mut consumed = 0;
        while let Some((found, length)) = frame::split(&bytes[consumed..]) {
            match found {
                Frame::Datagram([]) => {}
                Frame::Datagram(datagram) => link.outbound.say(datagram, &mut send),
                Frame::Answer { message, qos, code } => {
                    if let Some(datagram) = link.inbound.finish(message, qos, code) {
                        link.outbound.say(&datagram, &mut send);
                    }
                }
                Frame::Release { message, is_known } => link.outbound.release(message, is_known, now, &mut send),
                Frame::Publication(_) if is_closing => {}
                Frame::Publication(outgoing) => {
                    let frame = &bytes[consumed..consumed + length];
                    if !link.take((frame, &outgoing), memory, now, &mut send) {
                        break;
                    }
                }
            }
            consumed += length;
        }
        let declined = core::mem::take(&mut link.outbound.declined);
        self.scratch = bytes;
        if consumed > 0 {
            shard.handle_written(conn, consumed, now);
        }
        for (number, confirmation) in declined {
            let _ = shard.confirm(conn, number, confirmation, now);
        }
        if shard.outbox(conn).iter().all(|slice| slice.is_empty())
            && let Some((link, _)) = shard.face_mut::<SnLink>(conn)
            && let Presence::Awake(time) = link.presence
            && link.outbound.is_empty()
        {
            // It has all that waited for it, and may sleep on.
            link.presence = Presence::Asleep(time);
            link.outbound.say(&Packet::PingResp.bytes(), &mut send);
        }
        self.set_timer(shard, conn);
        true
    }

    fn close(&mut self, shard: &mut Shard, conn: ConnId, now: Timestamp) -> bool {
        if !self.addresses.contains_key(&conn) {
            return false;
        }
        self.leave(shard, conn, Why::Lost, now);
        true
    }
}
