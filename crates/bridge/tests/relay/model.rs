//! Two brokers as MQTT has them, each with the lasting session of the bridge, and the bridge between them. Everything that a session
//! keeps is kept through every cut; what was on its way is not.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroU16;
use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use tidegate_bridge::{
    BridgeAction, BridgeConfig, BridgeMachine, BridgeSide, BridgeTopic, PaceConfig, SpoolKeep, TopicDirection, TopicMap,
};
use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{
    Ack, AckKind, ConnAck, Decoded, Delivery, Encode, Limits, Packet, PacketId, Peer, Properties, Property, Publish,
    QoS, ReasonCode, ReasonCodes, SubAck, Version, decode, decode_connect,
};

/// A message under way to the bridge.
#[derive(Clone, Debug)]
pub(crate) struct ModelFlight {
    pub(crate) id: u16,
    pub(crate) number: u32,
    pub(crate) qos: QoS,
    pub(crate) is_released: bool,
}

#[derive(Debug, Default)]
struct ModelLink {
    inbox: Vec<u8>,
    out: Vec<u8>,
    version: Option<Version>,
    window: u16,
    /// What is to be answered: a broker takes its time.
    unanswered: VecDeque<Ack<'static>>,
}

/// One of the two brokers.
#[derive(Debug)]
pub(crate) struct ModelBroker {
    topic: &'static str,
    pub(crate) receive_max: u16,
    has_session: bool,
    pub(crate) waiting: VecDeque<(u32, QoS)>,
    pub(crate) flights: Vec<ModelFlight>,
    next_id: u16,
    incoming: BTreeSet<u16>,
    pub(crate) received: Vec<u32>,
    pub(crate) published: Vec<(u32, QoS)>,
    pub(crate) most_unanswered: usize,
    /// The next so many messages are refused, for now.
    pub(crate) refusals: u8,
    /// Subscriptions that it was asked for.
    pub(crate) subscribed: usize,
    /// It neither reads nor answers.
    pub(crate) is_stalled: bool,
    /// Messages that it sends at once, at most.
    pub(crate) window_max: u16,
    /// It does not care how many the bridge takes at once.
    pub(crate) is_greedy: bool,
    /// Bytes of each of its messages, at least.
    pub(crate) payload_bytes: usize,
    link: Option<ModelLink>,
}

impl ModelBroker {
    fn new(topic: &'static str, receive_max: u16) -> Self {
        Self {
            topic,
            receive_max,
            has_session: false,
            waiting: VecDeque::new(),
            flights: Vec::new(),
            next_id: 1,
            incoming: BTreeSet::new(),
            received: Vec::new(),
            published: Vec::new(),
            most_unanswered: 0,
            refusals: 0,
            subscribed: 0,
            is_stalled: false,
            payload_bytes: 0,
            window_max: 20,
            is_greedy: false,
            link: None,
        }
    }

    pub(crate) fn publish(&mut self, number: u32, qos: QoS) {
        self.published.push((number, qos));
        self.waiting.push_back((number, qos));
    }

    /// The session of the bridge is gone with all that waits in it; what this broker has taken of the bridge stays, too, as of a
    /// broker whose numbers are kept elsewhere.
    pub(crate) fn forget_queue(&mut self) {
        (self.link, self.has_session, self.next_id) = (None, false, 1);
        self.waiting.clear();
        self.flights.clear();
        self.published.clear();
    }

    fn say(link: &mut ModelLink, packet: &Packet<'_>) {
        let version = link.version.unwrap_or(Version::V5);
        let _ = packet.encode(Peer::new(version), &mut link.out);
    }

    /// Reads one packet, if it is there.
    fn read(&mut self) -> bool {
        let Some(mut link) = self.link.take() else { return false };
        let inbox = std::mem::take(&mut link.inbox);
        let limits = Limits { packet_bytes_max: 4 << 20, ..Limits::default() };
        let decoded = match link.version {
            None => decode_connect(&inbox, &limits),
            Some(version) => decode(&inbox, version, &limits),
        };
        let Ok(Decoded::Packet { packet, consumed }) = decoded else {
            link.inbox = inbox;
            self.link = Some(link);
            return false;
        };
        self.handle(&mut link, &packet);
        link.inbox = inbox[consumed..].to_vec();
        self.link = Some(link);
        true
    }

    fn handle(&mut self, link: &mut ModelLink, packet: &Packet<'_>) {
        match packet {
            Packet::Connect(connect) => {
                link.version = Some(connect.version);
                link.window = connect.properties.receive_maximum().map_or(20, NonZeroU16::get);
                let list = [Property::ReceiveMaximum(NonZeroU16::new(self.receive_max).unwrap())];
                let properties = if connect.version.is_v5() { Properties::new(&list) } else { Properties::EMPTY };
                let session_present = self.has_session;
                Self::say(link, &Packet::ConnAck(ConnAck { session_present, reason: ReasonCode::Success, properties }));
                self.has_session = true;
                self.send_again(link);
            }
            Packet::Subscribe(packet) => {
                let id = packet.packet_id.get();
                assert!(!self.incoming.contains(&id), "a subscription has the number {id} of a message");
                self.subscribed += 1;
                let granted = [ReasonCode::GrantedQos2];
                let answer = SubAck {
                    packet_id: packet.packet_id,
                    properties: Properties::EMPTY,
                    reasons: ReasonCodes::new(&granted),
                };
                Self::say(link, &Packet::SubAck(answer));
            }
            Packet::Publish(publish) => self.take(link, publish),
            Packet::Ack(ack) => self.on_ack(link, ack),
            Packet::PingReq => Self::say(link, &Packet::PingResp),
            _ => {}
        }
    }

    fn send_again(&self, link: &mut ModelLink) {
        for flight in &self.flights {
            if flight.is_released {
                let id = PacketId::new(flight.id).unwrap();
                Self::say(link, &Packet::Ack(Ack::success(AckKind::PubRel, id)));
            } else {
                self.send(link, flight, true);
            }
        }
    }

    fn send(&self, link: &mut ModelLink, flight: &ModelFlight, dup: bool) {
        let packet_id = PacketId::new(flight.id).unwrap();
        let delivery = match flight.qos {
            QoS::ExactlyOnce => Delivery::ExactlyOnce { packet_id, dup },
            QoS::AtLeastOnce => Delivery::AtLeastOnce { packet_id, dup },
            QoS::AtMostOnce => Delivery::AtMostOnce,
        };
        let (payload, properties) = (format!("{}{}", "0".repeat(self.payload_bytes), flight.number), Properties::EMPTY);
        let publish = Publish { delivery, retain: false, topic: self.topic, properties, payload: payload.as_bytes() };
        Self::say(link, &Packet::Publish(publish));
    }

    fn take(&mut self, link: &mut ModelLink, publish: &Publish<'_>) {
        let Some(id) = publish.delivery.packet_id() else { return };
        let number: u32 = std::str::from_utf8(publish.payload).unwrap().parse().unwrap();
        let kind = match publish.delivery {
            Delivery::ExactlyOnce { .. } => AckKind::PubRec,
            _ => AckKind::PubAck,
        };
        let is_known = kind == AckKind::PubRec && self.incoming.contains(&id.get());
        let reason = if self.refusals > 0 && !is_known && link.version == Some(Version::V5) {
            self.refusals -= 1;
            ReasonCode::QuotaExceeded
        } else {
            if !is_known {
                self.received.push(number);
            }
            if kind == AckKind::PubRec {
                self.incoming.insert(id.get());
            }
            ReasonCode::Success
        };
        link.unanswered.push_back(Ack { reason, ..Ack::success(kind, id) });
        self.most_unanswered = self.most_unanswered.max(link.unanswered.len());
    }

    fn on_ack(&mut self, link: &mut ModelLink, ack: &Ack<'_>) {
        let id = ack.packet_id.get();
        match ack.kind {
            AckKind::PubRel => {
                let is_known = self.incoming.remove(&id);
                let reason = if is_known { ReasonCode::Success } else { ReasonCode::PacketIdentifierNotFound };
                Self::say(link, &Packet::Ack(Ack { reason, ..Ack::success(AckKind::PubComp, ack.packet_id) }));
            }
            AckKind::PubRec if !ack.reason.is_failure() => {
                if let Some(flight) = self.flights.iter_mut().find(|flight| flight.id == id) {
                    flight.is_released = true;
                    Self::say(link, &Packet::Ack(Ack::success(AckKind::PubRel, ack.packet_id)));
                }
            }
            _ => self.flights.retain(|flight| flight.id != id),
        }
    }

    /// Answers one message, and sends one, if there is room.
    fn work(&mut self) {
        let Some(mut link) = self.link.take() else { return };
        if link.version.is_some() {
            if let Some(ack) = link.unanswered.pop_front() {
                Self::say(&mut link, &Packet::Ack(ack));
            }
            let window = if self.is_greedy { self.window_max } else { link.window.min(self.window_max) };
            if self.flights.len() < usize::from(window)
                && let Some((number, qos)) = self.waiting.pop_front()
            {
                // Few numbers, so that they are used again soon.
                let numbers = 2 * self.window_max;
                while self.flights.iter().any(|flight| flight.id == self.next_id) {
                    self.next_id = self.next_id % numbers + 1;
                }
                let flight = ModelFlight { id: self.next_id, number, qos, is_released: false };
                self.next_id = self.next_id % numbers + 1;
                self.send(&mut link, &flight, false);
                if qos != QoS::AtMostOnce {
                    self.flights.push(flight);
                }
            }
        }
        self.link = Some(link);
    }
}

/// Both brokers, the bridge, and time.
pub(crate) struct World {
    pub(crate) here: ModelBroker,
    pub(crate) there: ModelBroker,
    pub(crate) bridge: BridgeMachine,
    pub(crate) now: Timestamp,
    config: BridgeConfig,
    rng: Xoshiro256PlusPlus,
    next: u32,
}

pub(crate) fn config(version: Version) -> BridgeConfig {
    let topic = |filter: &str, direction| BridgeTopic {
        filter: filter.to_owned(),
        direction,
        qos: QoS::ExactlyOnce,
        local_prefix: String::new(),
        remote_prefix: "r/".to_owned(),
    };
    let topics = vec![topic("out/#", TopicDirection::Out), topic("in/#", TopicDirection::In)];
    BridgeConfig {
        name: "model".to_owned(),
        addresses: 1,
        local_id: "$bridge/model".to_owned(),
        remote_id: "here.model".to_owned(),
        user: None,
        version,
        is_clean: false,
        keep_alive: 60,
        notifies: false,
        topics: TopicMap::new(topics).unwrap(),
        keep: SpoolKeep::All,
        pace: PaceConfig { window_max: 20, rate_max: None },
    }
}

impl World {
    pub(crate) fn new(version: Version, receive_max: u16) -> Self {
        // Before MQTT 5 nobody can say how much it takes.
        let receive_max = if version.is_v5() { receive_max } else { 20 };
        Self {
            here: ModelBroker::new("out/x", 20),
            there: ModelBroker::new("r/in/x", receive_max),
            bridge: BridgeMachine::new(config(version), Timestamp::ZERO),
            now: Timestamp::ZERO,
            config: config(version),
            rng: Xoshiro256PlusPlus::seed_from_u64(7),
            next: 0,
        }
    }

    /// One thing happens.
    pub(crate) fn step(&mut self, step: u8, chance: u8) {
        match step {
            0..=5 => self.exchange(1 + usize::from(chance)),
            6..=8 => {
                self.here.read();
                self.here.work();
            }
            9..=11 => {
                self.there.read();
                self.there.work();
            }
            12 | 13 => self.now = self.now + Duration::from_millis(u64::from(chance) * 10),
            14 => self.there.refusals = chance % 4,
            15 => self.here.refusals = chance % 4,
            16 => self.cut(BridgeSide::Remote),
            17 => self.cut(BridgeSide::Local),
            18 => {
                // The process of the bridge is killed, and with it its broker: what that has kept is there again.
                (self.here.link, self.there.link) = (None, None);
                self.bridge = BridgeMachine::new(self.config.clone(), self.now);
            }
            _ => {
                self.next += 1;
                let qos = if chance.is_multiple_of(2) { QoS::ExactlyOnce } else { QoS::AtLeastOnce };
                let broker = if step.is_multiple_of(2) { &mut self.here } else { &mut self.there };
                broker.publish(self.next, qos);
            }
        }
    }

    /// Bytes go both ways on both connections, at most so many on each, and everybody does one thing.
    pub(crate) fn exchange(&mut self, most: usize) {
        self.bridge.turn(self.now, &mut self.rng);
        while let Some(action) = self.bridge.poll_action() {
            match action {
                BridgeAction::Open { .. } => self.open(BridgeSide::Remote),
                BridgeAction::Attach => self.open(BridgeSide::Local),
                BridgeAction::Close => (self.here.link, self.there.link) = (None, None),
            }
        }
        for side in [BridgeSide::Local, BridgeSide::Remote] {
            let broker = if side == BridgeSide::Local { &mut self.here } else { &mut self.there };
            let Some(link) = broker.link.as_mut().filter(|_| !broker.is_stalled) else { continue };
            let (local, remote) = self.bridge.outputs();
            let out = if side == BridgeSide::Local { local } else { remote };
            let count = out.len().min(most);
            link.inbox.extend_from_slice(&out[..count]);
            self.bridge.handle_written(side, count);
            let count = if self.bridge.wants_read(side) { link.out.len().min(most) } else { 0 };
            let bytes: Vec<u8> = link.out.drain(..count).collect();
            if !bytes.is_empty() {
                self.bridge.handle_bytes(side, &bytes, self.now, &mut self.rng);
            }
            let broker = if side == BridgeSide::Local { &mut self.here } else { &mut self.there };
            while broker.read() {}
            broker.work();
        }
    }

    /// Until the bridge has tried to reach the other broker.
    pub(crate) fn there_is_nobody(&self) -> bool {
        self.there.link.is_none()
    }

    fn open(&mut self, side: BridgeSide) {
        let broker = if side == BridgeSide::Local { &mut self.here } else { &mut self.there };
        broker.link = Some(ModelLink::default());
        self.bridge.handle_opened(side, self.now);
    }

    pub(crate) fn cut(&mut self, side: BridgeSide) {
        let broker = if side == BridgeSide::Local { &mut self.here } else { &mut self.there };
        if broker.link.take().is_some() {
            self.bridge.handle_lost(side, "cut", self.now, &mut self.rng);
        }
    }

    /// Nothing happens any more but what has to.
    pub(crate) fn calm_down(&mut self) {
        (self.here.refusals, self.there.refusals) = (0, 0);
        for _ in 0..20_000 {
            self.exchange(usize::MAX);
            self.now = self.now + Duration::from_millis(20);
            let is_done = |broker: &ModelBroker| broker.waiting.is_empty() && broker.flights.is_empty();
            if is_done(&self.here) && is_done(&self.there) {
                break;
            }
        }
        for _ in 0..10 {
            self.exchange(usize::MAX);
        }
    }
}
