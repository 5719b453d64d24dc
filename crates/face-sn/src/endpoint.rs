//! All addresses that a shard speaks MQTT-SN with.

mod arrive;
mod drive;

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
use tidegate_core::access::SN_IDS;
use tidegate_core::datagrams::Chance;
use tidegate_core::event::Why;
use tidegate_core::{ConnId, Flow, Portion, Progress, ReadStep, Shard, Then};

use crate::greet::Greetings;
use crate::link::{Presence, SnLink};
use crate::packet::Packet;
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
                    (false, Ok(Flow::On))
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
