//! A real shard without sockets: publishers on one side, one reader on the other, bytes carried by hand.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_control::Timestamp;
use tidegate_core::access::{Identity, Open};
use tidegate_core::event::{Stats, Why};
use tidegate_core::settings::Settings;
use tidegate_core::trace::Arrival;
use tidegate_core::{ConnId, Shard, Then};
use tidegate_face_mqtt::{MqttHello, MqttShard};
use tidegate_wire_mqtt::{
    Ack, AckKind, Connect, Decoded, Delivery, Encode, Limits, Packet, PacketId, Peer, Properties, Publish, QoS,
    ReasonCode, Sender, Subscribe, Subscription, SubscriptionList, SubscriptionOptions, TopicFilter, Version, decode,
};

/// Bytes of a publisher that wait in its socket; what it wants to send beyond is not sent.
const SOCKET_BYTES_MAX: usize = 128 * 1024;
/// A payload begins with the number of its message.
const NUMBER_BYTES: usize = 4;
const LISTENER: &str = "mqtt";

/// What a shard did with messages, by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// Taken and routed.
    Taken(u32),
    /// Refused, and its publisher was told.
    Refused(u32),
    /// It reached the reader.
    Read(u32),
    /// The connection of this publisher was ended.
    Cut(u32),
}

/// A publisher's end.
struct End {
    name: String,
    conn: Option<ConnId>,
    unread: Vec<u8>,
    is_paused: bool,
    next_id: u16,
    /// QoS 1 and 2 under way: packet identifier and number, in order.
    unanswered: VecDeque<(u16, u32)>,
}

pub(super) struct Stage {
    shard: Shard,
    ends: Vec<End>,
    /// Publishers by the place of their connection.
    by_place: Vec<Option<u32>>,
    /// Publishers with something unread that their connection does not take now.
    paused: Vec<u32>,
    reader: ConnId,
    /// The reader takes one message when it is told to, and not whatever there is.
    is_reader_slow: bool,
    /// Something waits for a slow reader.
    pub(super) has_to_read: bool,
    pub(super) done: Vec<Done>,
    scratch: Vec<u8>,
}

impl Stage {
    /// A shard with its reader of everything, for publishers of these groups. None if the settings do not let the reader in.
    pub(super) fn new(settings: Settings, is_reader_slow: bool, groups: &[u8], now: Timestamp) -> Option<Self> {
        let mut shard = Shard::new(0, 1, Arc::new(settings), Arc::new(Open), 7);
        shard.set_taps(Arc::new(["#".into()]), None);
        let reader = greet(&mut shard, "reader", now)?;
        let end = |(publisher, group): (usize, &u8)| End {
            name: format!("{}publisher-{publisher}", prefix_of(*group)),
            conn: None,
            unread: Vec::new(),
            is_paused: false,
            next_id: 0,
            unanswered: VecDeque::new(),
        };
        let mut stage = Self {
            shard,
            ends: groups.iter().enumerate().map(end).collect(),
            by_place: Vec::new(),
            paused: Vec::new(),
            reader,
            is_reader_slow: false,
            has_to_read: false,
            done: Vec::new(),
            scratch: Vec::new(),
        };
        stage.subscribe(now)?;
        stage.is_reader_slow = is_reader_slow;
        Some(stage)
    }

    fn subscribe(&mut self, now: Timestamp) -> Option<()> {
        let filter = TopicFilter::parse("#", &Limits::default()).ok()?;
        let list = [Subscription { filter, options: SubscriptionOptions::with_qos(QoS::AtLeastOnce) }];
        let (packet_id, properties, subscriptions) = (PacketId::MIN, Properties::EMPTY, SubscriptionList::new(&list));
        let mut bytes = Vec::new();
        let _ = Subscribe { packet_id, properties, subscriptions }.encode(Peer::new(Version::V5), &mut bytes);
        self.shard.handle_input(self.reader, &bytes, now);
        self.settle(now);
        Some(())
    }

    /// When the shard has something to do by itself.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.shard.poll_timeout()
    }

    /// A publisher sends a message. Not if it has no connection and gets none, or its socket is full.
    pub(super) fn publish(&mut self, number: u32, arrival: &Arrival, now: Timestamp) -> bool {
        let publisher = arrival.publisher;
        if !self.connect(publisher, now) {
            return false;
        }
        let end = &mut self.ends[publisher as usize];
        if end.unread.len() >= SOCKET_BYTES_MAX || end.unanswered.len() >= 1000 {
            return false;
        }
        let delivery = match (arrival.qos, end.identifier()) {
            (1, packet_id) => Delivery::AtLeastOnce { packet_id, dup: false },
            (2, packet_id) => Delivery::ExactlyOnce { packet_id, dup: false },
            _ => Delivery::AtMostOnce,
        };
        if let Delivery::AtLeastOnce { packet_id, .. } | Delivery::ExactlyOnce { packet_id, .. } = delivery {
            end.unanswered.push_back((packet_id.get(), number));
        }
        let topic = topic_of(arrival);
        self.scratch.clear();
        self.scratch.extend_from_slice(&number.to_le_bytes());
        self.scratch.resize(NUMBER_BYTES.max(arrival.payload_bytes as usize), 0);
        let publish = Publish {
            delivery,
            retain: arrival.retain,
            topic: &topic,
            properties: Properties::EMPTY,
            payload: &self.scratch,
        };
        let _ = publish.encode(Peer::new(Version::V5), &mut end.unread);
        self.feed(publisher, now);
        true
    }

    fn connect(&mut self, publisher: u32, now: Timestamp) -> bool {
        if self.ends[publisher as usize].conn.is_some() {
            return true;
        }
        let Some(conn) = greet(&mut self.shard, &self.ends[publisher as usize].name, now) else { return false };
        let place = conn.index as usize;
        if self.by_place.len() <= place {
            self.by_place.resize(place + 1, None);
        }
        self.by_place[place] = Some(publisher);
        let end = &mut self.ends[publisher as usize];
        (end.conn, end.is_paused) = (Some(conn), false);
        true
    }

    fn feed(&mut self, publisher: u32, now: Timestamp) {
        let end = &mut self.ends[publisher as usize];
        let Some(conn) = end.conn.filter(|_| !end.unread.is_empty()) else { return };
        if end.is_paused && !self.shard.may_read(conn) {
            return;
        }
        let progress = self.shard.handle_input(conn, &end.unread, now);
        end.unread.drain(..progress.consumed.min(end.unread.len()));
        let was_paused = std::mem::replace(&mut end.is_paused, progress.then == Then::Pause);
        if end.is_paused && !was_paused {
            self.paused.push(publisher);
        }
    }

    /// The shard acts, and everything is carried until nothing moves any more.
    pub(super) fn settle(&mut self, now: Timestamp) {
        // Bounded, because a shard that always has more to do would be a defect of it: its next timer comes at once.
        for _ in 0..64 {
            self.shard.turn(now);
            let mut moved = self.carry(now);
            let paused = std::mem::take(&mut self.paused);
            for publisher in paused {
                let end = &self.ends[publisher as usize];
                let Some(conn) = end.conn.filter(|_| end.is_paused) else { continue };
                if self.shard.may_read(conn) {
                    self.ends[publisher as usize].is_paused = false;
                    self.feed(publisher, now);
                    moved = true;
                } else {
                    self.paused.push(publisher);
                }
            }
            while self.shard.poll_event().is_some() {}
            if !moved {
                return;
            }
        }
    }

    fn carry(&mut self, now: Timestamp) -> bool {
        let mut moved = false;
        while let Some(tapped) = self.shard.poll_tapped() {
            self.done.extend(number_of(&tapped.payload).map(Done::Taken));
        }
        while let Some(conn) = self.shard.poll_write() {
            if conn == self.reader && self.is_reader_slow {
                self.has_to_read = true;
                // Its socket is full.
                self.shard.handle_written(conn, 0, now);
                continue;
            }
            moved = true;
            let bytes = self.shard.outbox(conn).concat();
            self.shard.handle_written(conn, bytes.len(), now);
            if conn == self.reader {
                self.read(&bytes, now);
            } else {
                self.hear(conn, &bytes, now);
            }
        }
        while let Some(conn) = self.shard.poll_close() {
            moved = true;
            self.shard.handle_closed(conn, Why::Lost, now);
            let publisher = self.by_place.get_mut(conn.index as usize).and_then(Option::take);
            if let Some(publisher) = publisher {
                let end = &mut self.ends[publisher as usize];
                end.conn = None;
                end.unread.clear();
                end.unanswered.clear();
                self.done.push(Done::Cut(publisher));
            }
        }
        moved
    }

    /// A slow reader takes one message, if there is one.
    pub(super) fn read_one(&mut self, now: Timestamp) {
        let bytes = self.shard.outbox(self.reader).concat();
        let taken = match decode(&bytes, Version::V5, &from_broker()) {
            Ok(Decoded::Packet { consumed, .. }) => consumed,
            _ => bytes.len(),
        };
        self.has_to_read = bytes.len() > taken;
        if taken > 0 {
            self.shard.handle_written(self.reader, taken, now);
            self.read(&bytes[..taken], now);
        }
        self.settle(now);
    }

    /// From now on the reader takes whatever there is.
    pub(super) fn hurry(&mut self, now: Timestamp) {
        self.is_reader_slow = false;
        self.read_one(now);
        let bytes = self.shard.outbox(self.reader).concat();
        self.shard.handle_written(self.reader, bytes.len(), now);
        self.read(&bytes, now);
        self.settle(now);
    }

    fn read(&mut self, mut bytes: &[u8], now: Timestamp) {
        let mut acks = Vec::new();
        while let Ok(Decoded::Packet { packet, consumed }) = decode(bytes, Version::V5, &from_broker()) {
            bytes = &bytes[consumed..];
            let Packet::Publish(publish) = packet else { continue };
            self.done.extend(number_of(publish.payload).map(Done::Read));
            if let Delivery::AtLeastOnce { packet_id, .. } = publish.delivery {
                let _ = Ack::success(AckKind::PubAck, packet_id).encode(Peer::new(Version::V5), &mut acks);
            }
        }
        if !acks.is_empty() {
            self.shard.handle_input(self.reader, &acks, now);
        }
    }

    /// A publisher hears what became of its messages.
    fn hear(&mut self, conn: ConnId, mut bytes: &[u8], now: Timestamp) {
        let Some(publisher) = self.by_place.get(conn.index as usize).copied().flatten() else { return };
        let mut answers = Vec::new();
        while let Ok(Decoded::Packet { packet, consumed }) = decode(bytes, Version::V5, &from_broker()) {
            bytes = &bytes[consumed..];
            let Packet::Ack(ack) = packet else { continue };
            if !matches!(ack.kind, AckKind::PubAck | AckKind::PubRec) {
                continue;
            }
            let end = &mut self.ends[publisher as usize];
            let Some(at) = end.unanswered.iter().position(|(id, _)| *id == ack.packet_id.get()) else { continue };
            let Some((_, number)) = end.unanswered.remove(at) else { continue };
            if ack.reason as u8 >= ReasonCode::UnspecifiedError as u8 {
                self.done.push(Done::Refused(number));
            } else if ack.kind == AckKind::PubRec {
                let _ = Ack::success(AckKind::PubRel, ack.packet_id).encode(Peer::new(Version::V5), &mut answers);
            }
        }
        if !answers.is_empty() {
            self.shard.handle_input(conn, &answers, now);
        }
    }

    /// Messages a second that the shard has learned to expect of a publisher; zero while it has learned nothing.
    pub(super) fn learned_rate(&self, publisher: u32, now: Timestamp) -> f64 {
        let known = self.shard.publisher(&self.ends[publisher as usize].name, now);
        let interval = known.and_then(|known| known.learned_interval);
        interval.map_or(0.0, |interval| 1.0 / interval.as_secs_f64().max(1e-9))
    }

    /// Publishers of whom something is held.
    pub(super) fn blocked(&self) -> u64 {
        self.stats().clients_held
    }

    pub(super) fn stats(&self) -> Stats {
        self.shard.stats()
    }
}

impl End {
    fn identifier(&mut self) -> PacketId {
        self.next_id = self.next_id.wrapping_add(1);
        PacketId::new(self.next_id).unwrap_or_else(|| {
            self.next_id = 1;
            PacketId::MIN
        })
    }
}

fn greet(shard: &mut Shard, name: &str, now: Timestamp) -> Option<ConnId> {
    let connect = Connect {
        version: Version::V5,
        is_bridge: false,
        clean_start: true,
        keep_alive: 0,
        properties: Properties::EMPTY,
        client_id: name,
        will: None,
        user_name: None,
        password: None,
    };
    let identity = Identity { user: None, peer: "trace".into(), listener: LISTENER, roles: None, claims: None };
    shard.handle_connect(&MqttHello { connect: &connect, client_id: name, identity }, now)
}

/// What the identifiers of a group's publishers begin with.
pub(super) fn prefix_of(group: u8) -> String {
    if group == 0 { String::new() } else { format!("g{group}-") }
}

/// As long as the real one was, and the same for the same number.
fn topic_of(arrival: &Arrival) -> String {
    let mut topic = format!("t/{}", arrival.topic);
    while topic.len() < usize::from(arrival.topic_bytes) {
        topic.push('.');
    }
    topic
}

fn number_of(payload: &[u8]) -> Option<u32> {
    payload.first_chunk::<NUMBER_BYTES>().map(|bytes| u32::from_le_bytes(*bytes))
}

fn from_broker() -> Limits {
    Limits { packet_bytes_max: u32::MAX, ..Limits::default().with_sender(Sender::Server) }
}
