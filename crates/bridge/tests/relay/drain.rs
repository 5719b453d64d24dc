//! A backlog of 100 000 messages drains through a bridge in virtual time: the window grows to what the other broker bears, and shrinks
//! when that takes longer to answer. Nothing here is measured by a clock of the machine that runs it.

use std::collections::VecDeque;
use std::num::NonZeroU16;
use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use tidegate_bridge::{BridgeAction, BridgeConfig, BridgeMachine, BridgeSide, PaceConfig};
use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{
    Ack, AckKind, ConnAck, Decoded, Delivery, Encode, Limits, Packet, PacketId, Peer, Properties, Property, Publish,
    ReasonCode, ReasonCodes, SubAck, Version, decode, decode_connect,
};

use crate::model::config;

const TICK: Duration = Duration::from_micros(20);
const SPOOLED: u32 = 100_000;

/// One end of a connection of the bridge.
#[derive(Default)]
struct End {
    inbox: Vec<u8>,
    is_greeted: bool,
    /// Messages that the bridge may have at once, as it says.
    window: u16,
    /// What is said next.
    out: Vec<u8>,
}

/// What the bridge has said to a broker.
enum Said {
    Message(PacketId),
    Answer(PacketId),
}

impl End {
    fn say(&mut self, packet: &Packet<'_>) {
        let _ = packet.encode(Peer::new(Version::V5), &mut self.out);
    }

    /// Reads all that is whole. Greetings are answered at once.
    fn read(&mut self) -> Vec<Said> {
        let (inbox, mut at, mut said) = (std::mem::take(&mut self.inbox), 0, Vec::new());
        loop {
            let (bytes, limits) = (&inbox[at..], Limits::default());
            let decoded =
                if self.is_greeted { decode(bytes, Version::V5, &limits) } else { decode_connect(bytes, &limits) };
            let Ok(Decoded::Packet { packet, consumed }) = decoded else { break };
            at += consumed;
            match packet {
                Packet::Connect(connect) => {
                    self.is_greeted = true;
                    self.window = connect.properties.receive_maximum().map_or(u16::MAX, NonZeroU16::get);
                    let list = [Property::ReceiveMaximum(NonZeroU16::new(1024).unwrap())];
                    let (reason, properties) = (ReasonCode::Success, Properties::new(&list));
                    self.say(&Packet::ConnAck(ConnAck { session_present: false, reason, properties }));
                }
                Packet::Subscribe(asked) => {
                    let granted = [ReasonCode::GrantedQos1];
                    let (packet_id, reasons) = (asked.packet_id, ReasonCodes::new(&granted));
                    self.say(&Packet::SubAck(SubAck { packet_id, properties: Properties::EMPTY, reasons }));
                }
                Packet::Publish(publish) => said.extend(publish.delivery.packet_id().map(Said::Message)),
                Packet::Ack(ack) => said.push(Said::Answer(ack.packet_id)),
                Packet::PingReq => self.say(&Packet::PingResp),
                _ => {}
            }
        }
        self.inbox = inbox[at..].to_vec();
        said
    }
}

/// The bridge, its own broker with a backlog, and the other one, which takes `service` for each message and `way` besides.
struct Drain {
    bridge: BridgeMachine,
    now: Timestamp,
    rng: Xoshiro256PlusPlus,
    here: End,
    there: End,
    waiting: u32,
    next_id: u16,
    free_ids: VecDeque<PacketId>,
    under_way_here: usize,
    taken: u32,
    way: Duration,
    service: Duration,
    free_at: Timestamp,
    answers: VecDeque<(Timestamp, PacketId)>,
}

impl Drain {
    fn new(way: Duration, service: Duration) -> Self {
        let config = BridgeConfig { pace: PaceConfig::default(), ..config(Version::V5) };
        Self {
            bridge: BridgeMachine::new(config, Timestamp::ZERO),
            now: Timestamp::ZERO,
            rng: Xoshiro256PlusPlus::seed_from_u64(7),
            here: End::default(),
            there: End::default(),
            waiting: SPOOLED,
            next_id: 1,
            free_ids: VecDeque::new(),
            under_way_here: 0,
            taken: 0,
            way,
            service,
            free_at: Timestamp::ZERO,
            answers: VecDeque::new(),
        }
    }

    fn tick(&mut self) {
        self.bridge.turn(self.now, &mut self.rng);
        while let Some(action) = self.bridge.poll_action() {
            match action {
                BridgeAction::Open { .. } => self.bridge.handle_opened(BridgeSide::Remote, self.now),
                BridgeAction::Attach => self.bridge.handle_opened(BridgeSide::Local, self.now),
                // It registers here before it looks for the other one; once it stands it stays.
                BridgeAction::Close if self.taken == 0 => (self.here, self.there) = (End::default(), End::default()),
                BridgeAction::Close => panic!("it closes: {:?}", self.bridge.status(self.now)),
            }
        }
        let (local, remote) = self.bridge.outputs();
        self.here.inbox.extend_from_slice(local);
        self.there.inbox.extend_from_slice(remote);
        let (local, remote) = (local.len(), remote.len());
        self.bridge.handle_written(BridgeSide::Local, local);
        self.bridge.handle_written(BridgeSide::Remote, remote);
        self.serve_here();
        self.serve_there();
        for side in [BridgeSide::Local, BridgeSide::Remote] {
            let end = if side == BridgeSide::Local { &mut self.here } else { &mut self.there };
            if self.bridge.wants_read(side) && !end.out.is_empty() {
                let bytes = std::mem::take(&mut end.out);
                self.bridge.handle_bytes(side, &bytes, self.now, &mut self.rng);
            }
        }
        self.now = self.now + TICK;
    }

    fn serve_here(&mut self) {
        for said in self.here.read() {
            if let Said::Answer(id) = said {
                self.free_ids.push_back(id);
                self.under_way_here -= 1;
            }
        }
        if !self.bridge.is_up() {
            return;
        }
        while self.waiting > 0 && self.under_way_here < usize::from(self.here.window) {
            let packet_id = self.free_ids.pop_front().unwrap_or_else(|| {
                self.next_id += 1;
                PacketId::new(self.next_id - 1).unwrap()
            });
            let delivery = Delivery::AtLeastOnce { packet_id, dup: false };
            let properties = Properties::EMPTY;
            let publish = Publish { delivery, retain: false, topic: "out/x", properties, payload: b"21.5" };
            self.here.say(&Packet::Publish(publish));
            (self.waiting, self.under_way_here) = (self.waiting - 1, self.under_way_here + 1);
        }
    }

    fn serve_there(&mut self) {
        for said in self.there.read() {
            if let Said::Message(id) = said {
                self.free_at = self.free_at.max(self.now) + self.service;
                self.answers.push_back((self.free_at + self.way, id));
            }
        }
        while let Some(&(_, id)) = self.answers.front().filter(|(at, _)| *at <= self.now) {
            self.answers.pop_front();
            self.taken += 1;
            self.there.say(&Packet::Ack(Ack::success(AckKind::PubAck, id)));
        }
    }

    /// Until so many were taken; how long that was.
    fn until(&mut self, taken: u32) -> Duration {
        let began = self.now;
        while self.taken < taken {
            assert!(self.now.since(began) < Duration::from_secs(600), "{:?}", self.bridge.status(self.now));
            self.tick();
        }
        self.now.since(began)
    }

    fn window(&self) -> u16 {
        self.bridge.status(self.now).window
    }
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_hundred_thousand_spooled_drain_at_fifty_thousand_a_second_where_answers_take_a_millisecond() {
    let mut drain = Drain::new(MS, Duration::ZERO);
    let took = drain.until(SPOOLED);
    let rate = f64::from(SPOOLED) / took.as_secs_f64();
    assert!(rate >= 50_000.0, "{rate:.0} messages a second, window {}", drain.window());
    assert_eq!(drain.window(), 256, "all that the configuration allows");
}

#[test]
fn the_window_is_what_the_other_broker_bears() {
    // It takes 50 messages a millisecond, one after the other, and each answer is a millisecond on its way.
    let mut drain = Drain::new(MS, Duration::from_micros(20));
    let took = drain.until(SPOOLED);
    let rate = f64::from(SPOOLED) / took.as_secs_f64();
    assert!(rate > 0.9 * 50_000.0, "{rate:.0} messages a second, window {}", drain.window());
    let latency = drain.bridge.status(drain.now).latency.unwrap();
    assert!(latency < 3 * MS, "its queue of ours is short: {latency:?}, window {}", drain.window());
}

#[test]
fn it_halves_when_answers_take_longer_and_is_back_when_they_do_not() {
    let mut drain = Drain::new(MS, Duration::ZERO);
    drain.until(20_000);
    let before = drain.window();
    assert_eq!(before, 256);
    drain.way = 10 * MS;
    // What was under way, and six rounds.
    drain.until(20_000 + 6 * u32::from(before));
    let slowed = drain.window();
    assert!(slowed <= before / 2, "{slowed} of {before}");
    drain.until(20_000 + 60 * u32::from(before));
    assert!((8..=32).contains(&drain.window()), "and no fewer than help anybody: {}", drain.window());
    drain.way = MS;
    let at = drain.taken;
    drain.until(at + 30_000);
    assert!(drain.window() > before / 2, "{} of {before}", drain.window());
}

/// The other broker syncs its disk every five milliseconds and answers all that came before at once: the first answers of a drain are
/// quick or slow by chance, and none of them keeps the drain at its first four.
#[test]
fn answers_in_groups_do_not_keep_a_drain_at_its_beginning() {
    for first in [0, 1, 2, 3, 4] {
        let mut drain = Drain::new(Duration::from_nanos(1), Duration::ZERO);
        drain.now = Timestamp::from_nanos(first * 1_000_000);
        while drain.taken < SPOOLED / 2 {
            drain.tick();
            // Whatever was to be answered is answered at the next sync.
            let sync = Timestamp::from_nanos((drain.now.as_nanos() / 5_000_000 + 1) * 5_000_000);
            for (at, _) in drain.answers.iter_mut().rev().take_while(|(at, _)| at.as_nanos() % 5_000_000 != 0) {
                *at = sync;
            }
        }
        assert!(drain.window() > 128, "begun {first} ms after a sync: {}", drain.window());
        let rate = f64::from(SPOOLED / 2) / drain.now.as_secs_f64();
        assert!(rate > 20_000.0, "{rate:.0} messages a second");
    }
}
