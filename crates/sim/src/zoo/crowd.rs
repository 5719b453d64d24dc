//! All clients of a scenario as values: told the time and what arrived, they say what they send. The rim carries bytes.
//!
//! The same clients stand before a shard in virtual time and before sockets. A driver connects whoever is to be there,
//! calls `act` when a client's time has come or its socket has room again, and `hear` with what it received.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidegate_control::hints::Hints;
use tidegate_wire_mqtt::{
    Connect, Decoded, Encode, Limits, Packet, PacketId, Properties, Property, Publish, Sender, Subscribe, Subscription,
    SubscriptionList, SubscriptionOptions, TopicFilter, Will, decode,
};

use super::message::{Head, Look, Template, peer, qos};
use super::model::{Attendance, Churn, CohortSide, Home, Manners, Phases, Speaks, ZooScenario};
use super::publisher::ZooPublisher;
use super::reader::ZooReader;
use super::rhythm::DueTimes;
use super::tally::{CohortTally, Figures};
use crate::chance::Stream;

/// Networks of clients that come from one each: below those that are shared.
const NETWORKS_SHARED: u8 = 200;
/// After so long somebody who was cut off comes back.
const AWAY_NS: u64 = 1_000_000_000;
const PACE_TOPIC: &str = "$SYS/broker/pace/";

/// Who a client is to the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// Its name.
    pub id: String,
    /// The user, if it is one.
    pub user: Option<&'static str>,
    /// The network that it comes from, and its address there.
    pub address: [u8; 2],
    /// The protocol.
    pub speaks: Speaks,
}

#[derive(Clone, Debug)]
enum CrowdRole {
    Publisher(Box<ZooPublisher>),
    Reader(ZooReader),
}

#[derive(Clone, Debug)]
struct CrowdClient {
    role: CrowdRole,
    /// Its place among cohorts, or among readers.
    place: usize,
    number: u32,
    who: ClientIdentity,
    names: u32,
    /// Whether it has vanished at the beginning of the trouble, or when it does so again.
    vanished: bool,
    vanish_ns: Option<u64>,
    away_until_ns: u64,
    scheduled_ns: Option<u64>,
}

/// What a driver has to do after a client has acted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverAction {
    /// Nothing but to carry its bytes.
    Stay,
    /// It had more to send than there was room for: call again when there is.
    Blocked,
    /// It drops its connection without a word. It may want another one at once.
    Vanish,
}

/// Everybody.
#[derive(Clone, Debug)]
pub struct Crowd {
    scenario: ZooScenario,
    phases: Phases,
    clients: Vec<CrowdClient>,
    tallies: Vec<CohortTally>,
    /// The cohort of each publisher.
    cohort_of: Vec<usize>,
    due: BinaryHeap<Reverse<(u64, usize)>>,
    limits: Limits,
}

impl Crowd {
    /// The clients of a scenario; rates are `scale` times those that it says.
    pub fn new(scenario: &ZooScenario, phases: Phases, scale: f64, seed: u64) -> Self {
        let tallies = scenario.cohorts.iter().map(|cohort| CohortTally::new(phases, scenario.copies(cohort))).collect();
        let mut crowd = Self {
            scenario: *scenario,
            phases,
            clients: Vec::new(),
            tallies,
            cohort_of: Vec::new(),
            due: BinaryHeap::new(),
            limits: Limits { packet_bytes_max: u32::MAX, ..Limits::default().with_sender(Sender::Server) },
        };
        let mut network = 0;
        for (place, cohort) in scenario.cohorts.iter().enumerate() {
            let chance = Stream::of(seed, cohort.name);
            for number in 0..cohort.count {
                let stream = crowd.cohort_of.len() as u32;
                crowd.cohort_of.push(place);
                let look = Look {
                    topic: &format!("zoo/{}/{number}", cohort.name),
                    topics: cohort.topics,
                    speaks: cohort.speaks,
                    qos: cohort.qos,
                    bytes: cohort.bytes,
                    retain: cohort.retain,
                    stream,
                };
                let rhythm = DueTimes::new(cohort, phases, scale, chance.member(u64::from(number)));
                let publisher = ZooPublisher::new(cohort, rhythm, Template::new(&look));
                network += 1;
                let address = match cohort.home {
                    Home::Network(shared) => [NETWORKS_SHARED + shared % 50, 1],
                    Home::Own | Home::User(_) => {
                        [(network % u32::from(NETWORKS_SHARED)) as u8, 1 + (network / 200) as u8]
                    }
                };
                let user = if let Home::User(name) = cohort.home { Some(name) } else { None };
                let who =
                    ClientIdentity { id: format!("{}-{number}", cohort.name), user, address, speaks: cohort.speaks };
                let mut client = CrowdClient::new(CrowdRole::Publisher(Box::new(publisher)), place, number, who);
                if let Churn::Wills(ms) = cohort.churn {
                    // Not all in step.
                    let gap = u64::from(ms) * 1_000_000;
                    let share = u64::from(number) * gap / u64::from(cohort.count.max(1));
                    client.vanish_ns = Some((phases.lead * 1e9) as u64 + share);
                }
                crowd.clients.push(client);
            }
        }
        for (place, readers) in scenario.readers.iter().enumerate() {
            for number in 0..readers.count {
                let reader = ZooReader::new(readers, phases, scale, crowd.cohort_of.len());
                let id = format!("{}-{number}", readers.name);
                let address = [NETWORKS_SHARED + 50, (place * 50 + number as usize % 50 + 1) as u8];
                let who = ClientIdentity { id, user: scenario.reader_user(), address, speaks: readers.speaks };
                crowd.clients.push(CrowdClient::new(CrowdRole::Reader(reader), place, number, who));
            }
        }
        for place in 0..crowd.clients.len() {
            crowd.schedule(place, 0);
        }
        crowd
    }

    /// How many clients there are.
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Whether there is nobody.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Who a client is; its name may change when it comes back.
    pub fn who(&self, client: usize) -> &ClientIdentity {
        &self.clients[client].who
    }

    /// Whether a client never takes what is sent to it.
    pub fn is_dead(&self, client: usize) -> bool {
        matches!(&self.clients[client].role, CrowdRole::Reader(reader) if reader.ready_at(0).is_none())
    }

    /// Whether a client takes as much as there is, so that it is worth reading much at once.
    pub fn is_eager(&self, client: usize, now_ns: u64) -> bool {
        match &self.clients[client].role {
            CrowdRole::Publisher(_) => true,
            CrowdRole::Reader(reader) => reader.is_eager(now_ns),
        }
    }

    /// Whether a client is to be connected now.
    pub fn is_there(&self, client: usize, now_ns: u64) -> bool {
        let of = &self.clients[client];
        let is_trouble = || {
            let now = now_ns as f64 * 1e-9;
            (self.phases.lead..self.phases.trouble_end()).contains(&now)
        };
        now_ns >= of.away_until_ns
            && match &of.role {
                CrowdRole::Publisher(_) => true,
                CrowdRole::Reader(_) => self.scenario.readers[of.place].stay == Attendance::Always || is_trouble(),
            }
    }

    /// The first packets of a client: CONNECT, and SUBSCRIBE if it wants to hear something.
    pub fn greet(&self, client: usize, out: &mut Vec<u8>) {
        let of = &self.clients[client];
        let speaks = of.who.speaks;
        let mut properties = Vec::new();
        let mut filters = Vec::new();
        let (mut will, mut level) = (None, 0);
        let topic = format!("zoo/wills/{}", of.number);
        match &of.role {
            CrowdRole::Publisher(_) => {
                let cohort = &self.scenario.cohorts[of.place];
                if matches!(cohort.churn, Churn::Wills(_)) {
                    let (properties, payload) = (Properties::EMPTY, b"gone".as_slice());
                    will = Some(Will { qos: qos(cohort.qos), retain: false, properties, topic: &topic, payload });
                }
                if cohort.manners == Manners::Obeys {
                    filters.push(format!("{PACE_TOPIC}{}", of.who.id));
                }
            }
            CrowdRole::Reader(_) => {
                let readers = &self.scenario.readers[of.place];
                filters = readers.filters(of.number);
                level = readers.qos;
                let window = readers.window.filter(|_| speaks == Speaks::V5).and_then(core::num::NonZeroU16::new);
                properties.extend(window.map(Property::ReceiveMaximum));
            }
        }
        let connect = Connect {
            version: peer(speaks).version,
            is_bridge: false,
            clean_start: true,
            // Longer than any run: nobody has to ping.
            keep_alive: 1200,
            properties: Properties::new(&properties),
            client_id: &of.who.id,
            will,
            user_name: of.who.user,
            password: of.who.user.map(|_| PASSWORD.as_bytes()),
        };
        let _ = connect.encode(peer(speaks), out);
        subscribe(&filters, level, speaks, out);
    }

    /// When somebody wants to act.
    pub fn next_wake(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// Somebody whose time has come.
    pub fn pop_due(&mut self, now_ns: u64) -> Option<usize> {
        while let Some(&Reverse((at, client))) = self.due.peek().filter(|Reverse((at, _))| *at <= now_ns) {
            self.due.pop();
            if self.clients[client].scheduled_ns == Some(at) {
                self.clients[client].scheduled_ns = None;
                return Some(client);
            }
        }
        None
    }

    fn schedule(&mut self, client: usize, now_ns: u64) {
        let of = &mut self.clients[client];
        let mut at = match &of.role {
            CrowdRole::Publisher(publisher) => publisher.wakes_at(now_ns),
            CrowdRole::Reader(_) => {
                let is_guest = self.scenario.readers[of.place].stay == Attendance::Trouble;
                let edges = [self.phases.lead, self.phases.trouble_end()].map(|edge| (edge * 1e9) as u64 + 1);
                edges.into_iter().find(|edge| is_guest && *edge > now_ns)
            }
        };
        let edge = match &of.role {
            CrowdRole::Publisher(_) if self.scenario.cohorts[of.place].churn == Churn::Return && !of.vanished => {
                Some((self.phases.lead * 1e9) as u64 + 1)
            }
            _ => of.vanish_ns,
        };
        at = at.into_iter().chain(edge.filter(|edge| *edge > now_ns)).min();
        let Some(at) = at.map(|at| at.max(of.away_until_ns).max(now_ns)) else { return };
        if of.scheduled_ns.is_none_or(|known| at < known) {
            of.scheduled_ns = Some(at);
            self.due.push(Reverse((at, client)));
        }
    }

    /// A client acts: it sends what is due into a socket with so much room.
    pub fn act(&mut self, client: usize, now_ns: u64, room: usize, out: &mut Vec<u8>) -> DriverAction {
        let then = self.act_once(client, now_ns, room, out);
        // Who is blocked is called when there is room.
        if then != DriverAction::Blocked {
            self.schedule(client, now_ns.saturating_add(1));
        }
        then
    }

    fn act_once(&mut self, client: usize, now_ns: u64, room: usize, out: &mut Vec<u8>) -> DriverAction {
        let of = &mut self.clients[client];
        let CrowdRole::Publisher(publisher) = &mut of.role else { return DriverAction::Stay };
        let cohort = &self.scenario.cohorts[of.place];
        let trouble = (self.phases.lead * 1e9) as u64..(self.phases.trouble_end() * 1e9) as u64;
        if trouble.contains(&now_ns) {
            let is_over = match cohort.churn {
                Churn::Stay => false,
                Churn::NewName(after) => publisher.since_named >= after,
                Churn::Return => !std::mem::replace(&mut of.vanished, true),
                Churn::Wills(ms) => {
                    let is_due = of.vanish_ns.is_some_and(|at| at <= now_ns);
                    if is_due {
                        of.vanish_ns = Some(now_ns + u64::from(ms) * 1_000_000);
                    }
                    is_due
                }
            };
            if is_over {
                publisher.on_lost();
                if matches!(cohort.churn, Churn::NewName(_)) {
                    of.names += 1;
                    of.who.id = format!("{}-{}-{}", cohort.name, of.number, of.names);
                }
                return DriverAction::Vanish;
            }
        }
        let is_blocked = publisher.send(now_ns, room, out, &mut self.tallies[of.place]);
        if is_blocked { DriverAction::Blocked } else { DriverAction::Stay }
    }

    /// A client was cut off by the broker: it comes back after a second.
    pub fn on_lost(&mut self, client: usize, now_ns: u64) {
        let of = &mut self.clients[client];
        of.away_until_ns = now_ns + AWAY_NS;
        if let CrowdRole::Publisher(publisher) = &mut of.role {
            publisher.on_lost();
            self.tallies[of.place].on_sign(now_ns);
        }
        self.schedule(client, now_ns + AWAY_NS);
    }

    /// A client takes what has arrived, as far as it does so now: so many bytes, and perhaps when it takes more. Its
    /// answers go to `out`.
    pub fn hear(&mut self, client: usize, bytes: &[u8], now_ns: u64, out: &mut Vec<u8>) -> InputProgress {
        let mut used = 0;
        let version = peer(self.clients[client].who.speaks).version;
        let mut is_answered = false;
        loop {
            if let CrowdRole::Reader(reader) = &self.clients[client].role {
                match reader.ready_at(now_ns) {
                    Some(at) if at <= now_ns => {}
                    Some(at) => return InputProgress { used, again_ns: Some(at), is_broken: false },
                    None => return InputProgress { used, again_ns: None, is_broken: false },
                }
            }
            match decode(&bytes[used..], version, &self.limits) {
                Ok(Decoded::Packet { packet, consumed }) => {
                    used += consumed;
                    is_answered |= self.hear_one(client, &packet, now_ns, out);
                }
                Ok(_) => break,
                Err(_) => return InputProgress { used, again_ns: None, is_broken: true },
            }
        }
        if is_answered {
            self.schedule(client, now_ns);
        }
        InputProgress { used, again_ns: None, is_broken: false }
    }

    /// True if the client may have to act earlier than it thought.
    fn hear_one(&mut self, client: usize, packet: &Packet<'_>, now_ns: u64, out: &mut Vec<u8>) -> bool {
        let of = &mut self.clients[client];
        match (packet, &mut of.role) {
            (Packet::Publish(publish), CrowdRole::Reader(reader)) => {
                let head = Head::of(publish.payload);
                let is_late = reader.take(publish, head, now_ns, out);
                let Some(head) = head.filter(|_| reader.counts && !publish.retain) else { return false };
                let Some(cohort) = self.cohort_of.get(head.stream as usize) else { return false };
                let tally = &mut self.tallies[*cohort];
                tally.on_delivered(head.due_ns, now_ns);
                // Who sends again, or comes under another name, has no order to keep.
                let of = &self.scenario.cohorts[*cohort];
                if is_late && of.manners == Manners::Ignores && of.churn == Churn::Stay {
                    tally.on_reordered();
                }
                false
            }
            (Packet::Publish(publish), CrowdRole::Publisher(publisher)) => {
                publisher.take_hints(&notice(publish), now_ns, &mut self.tallies[of.place]);
                true
            }
            (Packet::Ack(ack), CrowdRole::Publisher(publisher)) => {
                publisher.hear(ack, now_ns, out, &mut self.tallies[of.place]);
                true
            }
            (Packet::Ack(ack), CrowdRole::Reader(reader)) => {
                reader.release(ack, out);
                false
            }
            _ => false,
        }
    }

    /// Whether everything that counts has arrived or was refused.
    pub fn is_complete(&self) -> bool {
        self.tallies.iter().all(CohortTally::is_complete)
    }

    /// Copies that have arrived of what counts.
    pub fn delivered(&self) -> u64 {
        self.tallies.iter().map(CohortTally::delivered).sum()
    }

    /// Whether nothing of the innocent has been lost or late for a second, and nobody was refused.
    pub fn is_well(&self, now_ns: u64) -> bool {
        let heard = self.scenario.cohorts.iter().zip(&self.tallies).filter(|(it, _)| self.scenario.copies(it) > 0);
        heard.into_iter().all(|(cohort, tally)| tally.is_well(now_ns, cohort.side == CohortSide::Innocent))
    }

    /// Times to recover and of refusals, of each cohort that was watched until then, into its figures of before.
    pub fn look_back(&self, figures: &mut [Figures], until_ns: u64) {
        for (figures, tally) in figures.iter_mut().zip(&self.tallies) {
            figures.recovered_s = tally.recovered_s(until_ns);
            figures.refused_s = tally.figures().refused_s;
        }
    }

    /// Everything is over: what became of each cohort, in order.
    pub fn finish(mut self) -> Vec<Figures> {
        let end = (self.phases.end() * 1e9) as u64;
        for client in &mut self.clients {
            if let CrowdRole::Publisher(publisher) = &mut client.role {
                publisher.count_unsent(end, &mut self.tallies[client.place]);
            }
        }
        self.tallies.iter().map(CohortTally::figures).collect()
    }
}

/// What came of hearing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputProgress {
    /// Bytes that were taken.
    pub used: usize,
    /// It takes the rest from then on; if none is said, when more comes, or never.
    pub again_ns: Option<u64>,
    /// What came is not MQTT.
    pub is_broken: bool,
}

/// The password of every user.
pub const PASSWORD: &str = "bench";

impl CrowdClient {
    fn new(role: CrowdRole, place: usize, number: u32, who: ClientIdentity) -> Self {
        let (vanished, vanish_ns, away_until_ns, scheduled_ns) = (false, None, 0, None);
        Self { role, place, number, who, names: 0, vanished, vanish_ns, away_until_ns, scheduled_ns }
    }
}

fn subscribe(filters: &[String], level: u8, speaks: Speaks, out: &mut Vec<u8>) {
    let limits = Limits::default();
    let options = SubscriptionOptions::with_qos(qos(level));
    let parsed = filters.iter().filter_map(|filter| TopicFilter::parse(filter, &limits).ok());
    let wanted: Vec<_> = parsed.map(|filter| Subscription { filter, options }).collect();
    if !wanted.is_empty() {
        let subscriptions = SubscriptionList::new(&wanted);
        let packet = Subscribe { packet_id: PacketId::MIN, properties: Properties::EMPTY, subscriptions };
        let _ = packet.encode(peer(speaks), out);
    }
}

/// The words of `$SYS/broker/pace/<client>`.
fn notice(publish: &Publish<'_>) -> Hints {
    let mut hints = Hints::default();
    if !publish.topic.starts_with(PACE_TOPIC) {
        return hints;
    }
    let words: serde_json::Value = serde_json::from_slice(publish.payload).unwrap_or_default();
    for (name, value) in words.as_object().into_iter().flatten() {
        if let Some(number) = value.as_u64() {
            hints.read(name, &number.to_string());
        }
    }
    hints
}
