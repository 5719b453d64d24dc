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
use tidegate_control::address::place_of;
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
    /// Messages whose topic a client did not want to know, or that waited for one that did not come back.
    pub dropped: u64,
    /// How often everybody was told that the gateway is there.
    pub advertised: u64,
    /// Who looked for a gateway and asked everybody.
    pub searched: u64,
    /// Addresses that are known now.
    pub peers: u64,
    /// Of these, clients that sleep.
    pub asleep: u64,
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    conn: ConnId,
    met_at: Timestamp,
    deadline: Timestamp,
    is_sender: bool,
    is_asleep: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    clients: u32,
    senders: u32,
}

/// Datagrams to and from one shard.
#[derive(Debug)]
pub struct SnEndpoint {
    peers: HashMap<SocketAddr, Peer, FixedState>,
    addresses: BTreeMap<ConnId, SocketAddr>,
    /// Clients of each address beyond this machine, whatever their ports, and senders; of IPv6 of each network.
    by_network: BTreeMap<IpAddr, Count>,
    senders: usize,
    /// Clients that have not shown yet that they hear us, oldest first.
    unproved: BTreeSet<(Timestamp, ConnId)>,
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
            by_network: BTreeMap::new(),
            senders: 0,
            unproved: BTreeSet::new(),
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
        if matches!(packet, Packet::Disconnect { .. }) {
            end_with_connection(shard, conn);
        }
        let (mut said, mut is_stray) = (Said::new(), false);
        let portion = Portion { since: dry_at.min(now), dry_at: dry_at.min(now), units: u32::MAX };
        let Progress { consumed, then, .. } =
            shard.handle_portion_by(conn, bytes, &portion, now, |shard, rest, moment| {
                if rest.is_empty() {
                    return ReadStep::Incomplete { at_least: 1 };
                }
                let (is_publication, handled) = if request::is_answer(packet) {
                    is_stray = !request::handle_answer(shard, conn, packet, now, &mut said);
                    (false, Ok(Flow::On))
                } else {
                    request::handle(shard, conn, packet, rest.len(), moment, &mut said)
                };
                ReadStep::Packet { size: rest.len(), is_publication, handled }
            });
        if then == Then::Pause && consumed == 0 {
            // A pause is for what it publishes, and nobody says goodbye twice.
            if matches!(packet, Packet::Disconnect { .. }) {
                return self.say_goodbye(shard, (conn, from), now);
            }
            is_stray = !request::handle_paused(shard, conn, (packet, bytes.len()), now, &mut said);
        }
        self.stats.stray += u64::from(is_stray);
        for bytes in said {
            self.reply_bytes(from, bytes);
        }
        self.settle(shard, conn);
    }

    /// A client leaves while it is not read: its will is not published.
    fn say_goodbye(&mut self, shard: &mut Shard, (conn, from): (ConnId, SocketAddr), now: Timestamp) {
        let _ = shard.set_will(conn, None);
        self.leave(shard, conn, Why::Goodbye, now);
        self.reply(from, Packet::Disconnect { seconds: None });
    }

    /// Somebody says what only clients may say.
    fn on_stranger(&mut self, from: SocketAddr, packet: &Packet<'_>) {
        match packet {
            Packet::PingResp => self.stats.stray += 1,
            answer if request::is_answer(answer) => self.stats.stray += 1,
            // It is to connect (section 5.4.21); two bytes, so never more than what it answers.
            _ => {
                self.stats.unknown += 1;
                self.reply(from, Packet::Disconnect { seconds: None });
            }
        }
    }

    /// A client is given up: whatever it subscribed to ends, as if its connection were lost.
    fn leave(&mut self, shard: &mut Shard, conn: ConnId, why: Why, now: Timestamp) {
        if let Some((link, _)) = shard.face_mut::<SnLink>(conn) {
            link.outbound.drop_held();
        }
        end_with_connection(shard, conn);
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
        self.unproved.remove(&(peer.met_at, conn));
        let network = place_of(address.ip());
        if let Some(count) = self.by_network.get_mut(&network) {
            let places = if peer.is_sender { &mut count.senders } else { &mut count.clients };
            *places = places.saturating_sub(1);
            if (count.clients, count.senders) == (0, 0) {
                self.by_network.remove(&network);
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
        let (deadline, is_asleep, is_there) = (link.deadline(), link.is_asleep(), link.is_there());
        let Some(&address) = self.addresses.get(&conn) else { return };
        let Some(peer) = self.peers.get_mut(&address) else { return };
        self.stats.asleep = self.stats.asleep + u64::from(is_asleep) - u64::from(peer.is_asleep);
        peer.is_asleep = is_asleep;
        if is_there {
            self.unproved.remove(&(peer.met_at, conn));
        }
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

/// Nobody may ever have been where this came from: a session that began with it does not last.
fn end_with_connection(shard: &mut Shard, conn: ConnId) {
    let link = shard.face_mut::<SnLink>(conn);
    if link.is_some_and(|(link, _)| !link.is_there() && !link.is_resumed) {
        let _ = shard.set_session_expiry(conn, Duration::ZERO);
    }
}
