//! Proposals are applied as they are worded, to a shard in virtual time whose loop has so much time and no more.

use std::sync::Arc;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::order::{ReadOrder, ReadPlace, Served};
use tidegate_control::rhythm::Enforcement;
use tidegate_core::access::{Identity, Open};
use tidegate_core::settings::{BackOff, Settings};
use tidegate_core::{ConnId, Portion, Shard, Then, Whom};
use tidegate_face_mqtt::{MqttHello, MqttShard};
use tidegate_wire_mqtt::{Connect, Delivery, Encode, PacketId, Peer, Properties, Publish, Version};

use super::*;
use crate::control::parse_rate;
use crate::situation::TroubleReport;

const TICK: Duration = Duration::from_millis(10);

/// One that publishes so many messages a second.
struct Sender {
    conn: ConnId,
    version: Version,
    qos: u8,
    rate: f64,
    due: f64,
    sent: u32,
    /// Sent, and not read yet.
    unread: Vec<u8>,
    dry_at: Timestamp,
    is_paused: bool,
    place: Option<ReadPlace>,
}

struct World {
    shard: Shard,
    order: ReadOrder,
    now: Timestamp,
    senders: Vec<Sender>,
    /// Units of work a second.
    capacity: f64,
    credit: f64,
    reader: Option<SlowReader>,
}

/// One that has subscribed to everything and takes so many bytes a second.
struct SlowReader {
    conn: ConnId,
    rate: f64,
    credit: f64,
}

/// What a message is on the wire: two bytes, a topic of one letter, and one letter.
const BYTES_EACH: f64 = 6.0;

impl World {
    fn new(settings: Settings) -> Self {
        let shard = Shard::new(0, 1, Arc::new(settings), Arc::new(Open), 7);
        let now = Timestamp::from_secs_f64(1000.0);
        Self { shard, order: ReadOrder::default(), now, senders: Vec::new(), capacity: 1e6, credit: 0.0, reader: None }
    }

    /// Each from a network of its own.
    fn join(&mut self, client_id: &str, version: Version, qos: u8, rate: f64) -> usize {
        let connect = Connect {
            version,
            is_bridge: false,
            clean_start: true,
            keep_alive: 0,
            properties: Properties::EMPTY,
            client_id,
            will: None,
            user_name: None,
            password: None,
        };
        let peer = format!("10.0.{}.1:5", self.senders.len()).into();
        let identity = Identity { user: None, peer, listener: "mqtt", roles: None, claims: None };
        let conn = self.shard.handle_connect(&MqttHello { connect: &connect, client_id, identity }, self.now).unwrap();
        let (dry_at, unread) = (self.now, Vec::new());
        let sender =
            Sender { conn, version, qos, rate, due: 0.0, sent: 0, unread, dry_at, is_paused: false, place: None };
        self.senders.push(sender);
        self.senders.len() - 1
    }

    /// A receiver that takes so many messages a second.
    fn attend(&mut self, client_id: &str, takes: f64) {
        let index = self.join(client_id, Version::V311, 0, 0.0);
        let conn = self.subscribe(index);
        self.reader = Some(SlowReader { conn, rate: takes * BYTES_EACH, credit: 0.0 });
    }

    fn subscribe(&mut self, index: usize) -> ConnId {
        let conn = self.senders[index].conn;
        let subscribe = [0x82, 6, 0, 1, 0, 1, b'#', 0];
        let portion = Portion { since: self.now, dry_at: self.now, units: u32::MAX };
        self.shard.handle_portion(conn, &subscribe, &portion, self.now);
        conn
    }

    fn live(&mut self, secs: u32) {
        for _ in 0..secs * 100 {
            self.now = self.now + TICK;
            self.shard.turn(self.now);
            (0..self.senders.len()).for_each(|index| self.send(index));
            self.credit = (self.credit + self.capacity * TICK.as_secs_f64()).min(self.capacity);
            self.order.begin_turn(64, self.now);
            while self.credit > 0.0 && self.visit() {}
            self.swallow();
        }
    }

    fn send(&mut self, index: usize) {
        let sender = &mut self.senders[index];
        sender.due += sender.rate * TICK.as_secs_f64();
        while sender.due >= 1.0 {
            sender.due -= 1.0;
            sender.sent += 1;
            let packet_id = PacketId::new((sender.sent % 60_000) as u16 + 1).unwrap();
            let delivery =
                if sender.qos == 1 { Delivery::AtLeastOnce { packet_id, dup: false } } else { Delivery::AtMostOnce };
            let publish = Publish { delivery, retain: false, topic: "t", properties: Properties::EMPTY, payload: b"x" };
            let _ = publish.encode(Peer::new(sender.version), &mut sender.unread);
        }
        sender.is_paused &= !self.shard.may_read(sender.conn);
        if sender.place.is_none() && !sender.unread.is_empty() && !sender.is_paused {
            sender.dry_at = self.now;
            let reading = self.shard.reading(sender.conn, self.now, self.now);
            sender.place = Some(self.order.wait(index as u32, reading.parent, reading.standing, 0, self.now));
        }
    }

    /// Reads one that waits; false if nobody does.
    fn visit(&mut self) -> bool {
        let (shard, senders, now) = (&mut self.shard, &mut self.senders, self.now);
        let entitled = |key: u32| shard.entitled(senders[key as usize].conn, senders[key as usize].dry_at, now);
        let Some(visit) = self.order.next(now, entitled) else { return false };
        let sender = &mut senders[visit.key as usize];
        let portion = Portion { since: now, dry_at: sender.dry_at, units: visit.units };
        let progress = shard.handle_portion(sender.conn, &sender.unread, &portion, now);
        sender.unread.drain(..progress.consumed);
        self.credit -= f64::from(progress.units.max(1));
        sender.is_paused = progress.then == Then::Pause;
        let served = if sender.unread.is_empty() || sender.is_paused {
            sender.place = None;
            Served::Dry
        } else {
            Served::More(shard.reading(sender.conn, sender.dry_at, now).standing)
        };
        self.order.served(visit.place, progress.units, served, now);
        true
    }

    /// Clients take their answers.
    fn swallow(&mut self) {
        let slow = self.reader.as_ref().map(|reader| reader.conn);
        while let Some(conn) = self.shard.poll_write() {
            if Some(conn) != slow {
                let waiting = self.shard.outbox(conn).iter().map(|slice| slice.len()).sum();
                self.shard.handle_written(conn, waiting, self.now);
            }
        }
        if let Some(reader) = &mut self.reader {
            let waiting: usize = self.shard.outbox(reader.conn).iter().map(|slice| slice.len()).sum();
            reader.credit = (reader.credit + reader.rate * TICK.as_secs_f64()).min(reader.rate);
            let taken = waiting.min(reader.credit as usize);
            reader.credit -= taken as f64;
            if waiting > 0 {
                self.shard.handle_written(reader.conn, taken, self.now);
            }
        }
        while self.shard.poll_event().is_some() {}
    }

    fn report(&self, client_id: &str) -> ClientReport {
        self.shard.client(client_id, self.now).unwrap().client
    }

    /// Types the command of the first proposal.
    fn apply_proposal(&mut self, client_id: &str, is_limited: bool) -> String {
        let report = self.report(client_id);
        let mut others = Neighbours::of(&report);
        self.shard.clients(0, self.now).0.iter().for_each(|other| others.note(other));
        let around = Surroundings { limit: is_limited.then_some(1.0), ..Surroundings::default() };
        let step = next(&report, &around, &others).swap_remove(0).text;
        let (_, command) = step.split_once("tidegate limits set ").unwrap_or_else(|| panic!("no command: {step}"));
        let mut words = command.split(' ');
        let (id, setting) = (words.next().unwrap(), words.next().unwrap());
        let (setting, rate) = setting.split_once('=').unwrap();
        let (whom, rate) = (Whom::Client(id.into()), parse_rate(rate));
        assert!(rate.is_some(), "{command}");
        match setting {
            "rate" => self.shard.set_limit(&whom, rate, self.now).unwrap(),
            _ => self.shard.set_grant(&whom, rate, self.now).unwrap(),
        }
        command.to_owned()
    }

    /// Refused or dropped so far, and whether more than a tenth of a second of its messages waits to be read.
    fn losses(&self, sender: usize) -> (u64, bool) {
        let stats = self.shard.stats();
        let lost = stats.publish_refused + stats.dropped_rhythm + stats.dropped_held_full;
        let Sender { unread, rate, .. } = &self.senders[sender];
        // A message has some ten bytes.
        (lost, unread.len() as f64 > rate + 10.0)
    }

    /// From now on nothing of it is refused, dropped or left behind.
    fn recovers(&mut self, client_id: &str, sender: usize, command: &str) {
        // It was told to come back in up to 30 s, and counts as slowed for ten more.
        self.live(60);
        let (lost, _) = self.losses(sender);
        self.live(20);
        let (lost_now, is_behind) = self.losses(sender);
        assert_eq!((lost_now - lost, is_behind), (0, false), "{command}");
        assert_eq!(self.report(client_id).state, ClientState::Ok, "{command}");
    }
}

/// A gateway that sends what it always does, beside devices that double: each gets the same, and a grant is for this.
#[test]
fn by_default_a_gateway_that_waits_is_entitled_to_what_is_usual_and_recovers() {
    let mut world = World::new(Settings::default());
    let gateway = world.join("gateway", Version::V311, 0, 200.0);
    let devices: Vec<usize> = (0..10).map(|n| world.join(&format!("device-{n}"), Version::V311, 0, 20.0)).collect();
    world.live(75);
    for device in devices {
        world.senders[device].rate = 60.0;
    }
    world.capacity = 400.0;
    world.live(20);
    let report = world.report("gateway");
    let publisher = report.publisher.unwrap();
    assert!(publisher.unread_since.is_some() && publisher.served < 100.0, "{publisher:?}");
    let command = world.apply_proposal("gateway", false);
    assert!(["gateway entitled=250/s", "gateway entitled=251/s"].contains(&&*command), "{command}");
    world.recovers("gateway", gateway, &command);
}

/// Before MQTT 5 there is no word to refuse with: it is not read, and what is taken of it is what the limit allows.
#[test]
fn by_default_a_limit_that_is_too_low_is_raised_to_what_is_usual_not_to_what_is_taken() {
    for (version, qos) in [(Version::V311, 1), (Version::V5, 1), (Version::V311, 0), (Version::V5, 0)] {
        let mut world = World::new(Settings::default());
        let sender = world.join("pump", version, qos, 40.0);
        world.live(75);
        let too_low = parse_rate("2/s");
        world.shard.set_limit(&Whom::Client("pump".into()), too_low, world.now).unwrap();
        world.live(60);
        assert_ne!(world.report("pump").state, ClientState::Ok);
        let command = world.apply_proposal("pump", true);
        world.recovers("pump", sender, &format!("{version:?} QoS {qos}: {command}"));
    }
}

#[test]
fn where_rhythms_are_enforced_the_proposal_lets_a_client_recover_that_sends_more() {
    for (version, qos) in [(Version::V311, 1), (Version::V5, 1)] {
        let mut settings = Settings::default();
        let rhythm = settings
            .back_off
            .rhythm
            .map(|rhythm| tidegate_control::rhythm::RhythmConfig { enforcement: Enforcement::Always, ..rhythm });
        settings.back_off = BackOff { rhythm, ..settings.back_off };
        let mut world = World::new(settings);
        let sender = world.join("pump", version, qos, 10.0);
        world.live(75);
        world.senders[sender].rate = 40.0;
        world.live(20);
        assert_ne!(world.report("pump").state, ClientState::Ok);
        let command = world.apply_proposal("pump", false);
        world.recovers("pump", sender, &format!("{version:?} QoS {qos}: {command}"));
    }
}

/// A client without a word for "no" is not read; after a minute of that its rate is what was read, far below what it is used to.
#[test]
fn a_client_that_was_paused_for_long_is_proposed_more_than_is_usual_for_it_and_recovers() {
    let mut settings = Settings::default();
    let rhythm = settings
        .back_off
        .rhythm
        .map(|rhythm| tidegate_control::rhythm::RhythmConfig { enforcement: Enforcement::Always, ..rhythm });
    settings.back_off = BackOff { rhythm, ..settings.back_off };
    for qos in [0, 1] {
        let mut world = World::new(settings.clone());
        let sender = world.join("plc", Version::V311, qos, 10.0);
        world.live(75);
        world.senders[sender].rate = 400.0;
        let mut least = f64::MAX;
        for _ in 0..120 {
            world.live(1);
            least = least.min(world.report("plc").rate.unwrap());
            if world.report("plc").state == ClientState::Paused && least < 8.0 {
                break;
            }
        }
        assert_eq!(world.report("plc").state, ClientState::Paused, "QoS {qos}");
        let command = world.apply_proposal("plc", false);
        let proposed: f64 = command.rsplit_once('=').unwrap().1.trim_end_matches(['/', 's', 'm']).parse().unwrap();
        assert!(proposed >= 18.0, "QoS {qos}: {command} at {least}/s");
        // The fault is mended; what it had not sent it has thrown away.
        world.senders[sender].rate = 15.0;
        world.senders[sender].unread.clear();
        world.recovers("plc", sender, &format!("QoS {qos}: {command}"));
    }
}

/// Half of what it sends would be too much for one that takes a tenth.
#[test]
fn a_stranger_that_drowns_a_receiver_is_proposed_what_that_one_takes_and_nothing_is_lost_any_more() {
    for (sends, takes) in [(2000.0, 200.0), (2000.0, 1600.0), (20_000.0, 100.0)] {
        let mut world = World::new(Settings::default());
        world.attend("historian", takes);
        world.join("flood", Version::V311, 0, sends);
        world.live(40);
        assert!(world.report("historian").receiver.is_losing, "{sends}/s into {takes}/s");
        let command = world.apply_proposal("flood", false);
        let proposed: f64 = command.split(['=', '/']).nth(1).unwrap().parse().unwrap();
        assert!((0.5 * takes..=takes).contains(&proposed), "{sends}/s into {takes}/s: {command}");
        world.live(5);
        let lost = |world: &World| world.report("historian").ledger.lost(Loss::QueueFull);
        let before = lost(&world);
        world.live(30);
        assert_eq!(lost(&world), before, "{sends}/s into {takes}/s: {command}");
    }
}

#[test]
fn who_fills_the_queue_of_one_that_takes_nothing_is_not_to_be_slowed_for_it() {
    let mut world = World::new(Settings::default());
    world.attend("historian", 0.0);
    world.join("pump", Version::V311, 0, 1000.0);
    world.live(20);
    let report = world.report("pump");
    let mut others = Neighbours::of(&report);
    world.shard.clients(0, world.now).0.iter().for_each(|other| others.note(other));
    let step = next(&report, &Surroundings::default(), &others).swap_remove(0).text;
    assert!(step.ends_with("tidegate why historian"), "{step}");
}

/// Before MQTT 5 nobody hears that it is too fast: it is not read, and its rate is that of what is read, ever less.
#[test]
fn a_proposal_does_not_shrink_with_what_is_taken_and_lets_the_client_recover() {
    let mut settings = Settings::default();
    let rhythm = settings
        .back_off
        .rhythm
        .map(|rhythm| tidegate_control::rhythm::RhythmConfig { enforcement: Enforcement::Always, ..rhythm });
    settings.back_off = BackOff { rhythm, ..settings.back_off };
    for (version, qos) in [(Version::V311, 0), (Version::V311, 1), (Version::V5, 1)] {
        let mut world = World::new(settings.clone());
        let sender = world.join("pump", version, qos, 10.0);
        world.live(75);
        world.senders[sender].rate = 30.0;
        let (mut proposed, mut rates) = (Vec::new(), Vec::new());
        for _ in 0..90 {
            world.live(1);
            let report = world.report("pump");
            if code(report.state).is_some() {
                proposed.extend(allowed_rate(&report, false));
                rates.extend(report.rate);
            }
        }
        assert!(proposed.len() > 30, "{version:?} QoS {qos}: slowed {} s", proposed.len());
        let falls = proposed.windows(2).filter(|pair| pair[1] < pair[0]).count();
        assert_eq!(falls, 0, "{version:?} QoS {qos}: {proposed:?} at {rates:?}");
        let command = world.apply_proposal("pump", false);
        world.recovers("pump", sender, &format!("{version:?} QoS {qos}: {command}"));
    }
}

/// Somebody else has room for all of it, so that it becomes usual; where there never was any it is named all the same, and what is
/// proposed helps.
#[test]
fn who_was_too_much_from_its_beginning_is_named_when_it_is_known_and_a_limit_lets_its_receiver_recover() {
    let mut world = World::new(Settings::default());
    world.attend("historian", 200.0);
    let fast = world.join("fast", Version::V311, 0, 0.0);
    world.subscribe(fast);
    for n in 0..5 {
        world.join(&format!("device-{n}"), Version::V311, 0, 5.0);
    }
    world.live(75);
    world.join("flood", Version::V311, 0, 1000.0);
    world.live(100);
    let usual = view::learned_rate(&world.report("flood"));
    assert!(usual.is_some_and(|usual| usual > 900.0), "{usual:?}");
    let mut situation = TroubleReport::default();
    let clients = world.shard.clients(0, world.now).0;
    for client in &clients {
        situation.note(client, |_| None);
    }
    for client_id in situation.to_look_into() {
        situation.note_waiting(&world.report(&client_id));
    }
    let blamed = situation.blamed();
    for client in &clients {
        if let Some(blame) = blamed.get(&client.origin) {
            situation.note_blamed(client, None, blame);
        }
    }
    let sentence = situation.sentence();
    assert!(
        sentence.text.starts_with("\"flood\" sends ")
            && sentence.text.contains("/s (new, and too much from its beginning; "),
        "{}",
        sentence.text
    );
    assert!(
        sentence.text.contains("fills the queue of \"historian\" (100 % of what is lost there is its own)"),
        "{}",
        sentence.text
    );
    assert_eq!(sentence.next, "tidegate why flood");
    let historian = world.report("historian");
    let mut others = Neighbours::of(&historian);
    for other in &clients {
        others.note(other);
    }
    let words = others.crowding(&historian.receiver);
    assert!(words[0].starts_with("of \"flood\", which sends ") && words[0].contains("too much here"), "{words:?}");
    let command = world.apply_proposal("flood", false);
    world.live(30);
    let historian = world.report("historian");
    assert!(!historian.receiver.is_losing, "{command}: {historian:?}");
}
