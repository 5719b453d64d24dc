//! Everything but the clients: the shards, what is between them, the disk, and what goes wrong with it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tidegate_broker::store_link::records::StoreImage;
use tidegate_broker::store_link::{WallClock, Written, batches, location_of, restore, saved};
use tidegate_control::Timestamp;
use tidegate_core::access::{Identity, Open};
use tidegate_core::event::Why;
use tidegate_core::persist::{Fetch, Trouble};
use tidegate_core::settings::Settings;
use tidegate_core::{Batch as Mail, ConnId, Shard, shard_of};
use tidegate_face_mqtt::{MqttHello, MqttShard};
use tidegate_store::disk::sim::{Crash, DiskFault, SimDisk};
use tidegate_store::{Location, Log, LogOptions, LogRoom, LogState, RecordBatch, StoreError};
use tidegate_wire_mqtt::{Connect, Properties, Property, QoS, Version, Will};

use crate::client::{Client, Habit};
use crate::{Dice, trace};

/// What a seed lives through before it comes to rest.
const STEPS: usize = 1500;

/// Of a small disk, at least: a few hundred messages.
const CAPACITY: u64 = 24_000;

pub(crate) struct World {
    pub(crate) dice: Dice,
    pub(crate) now: Timestamp,
    disk: SimDisk,
    pub(crate) log: Option<Log<SimDisk>>,
    wall: WallClock,
    shards: Vec<Shard>,
    /// What was handed to the writer and is not kept, with the turn that it ends.
    unwritten: VecDeque<(usize, Option<u64>, Written)>,
    /// Where compactions have put what shards remember elsewhere.
    pub(crate) moves: BTreeMap<Location, Location>,
    /// Pages of queues that shards wait for.
    fetches: VecDeque<(usize, Fetch)>,
    /// Pages that were read.
    pub(crate) pages: u64,
    mail: BTreeMap<(usize, usize), VecDeque<Mail>>,
    pub(crate) clients: Vec<Client>,
    wires: BTreeMap<usize, (usize, ConnId)>,
    pub(crate) crashes: u64,
    /// The disk may fail; else only the process does.
    is_disk_bad: bool,
    /// Attempts to write until the disk moves again.
    stalled: u64,
    /// What nobody waits for is written only with what somebody does wait for.
    is_lazy: bool,
    /// Whoever is fickle is.
    is_restless: bool,
    /// A disk that may be full; and how often it was found to be.
    pub(crate) room: Option<LogRoom>,
    pub(crate) fulls: u64,
}

impl World {
    pub(crate) fn new(seed: u64, clients: Vec<Client>) -> Self {
        let (disk, now) = (SimDisk::new(seed), Timestamp::from_secs_f64(1000.0));
        let is_small = clients.iter().any(|client| client.habit == Habit::Away);
        if is_small {
            disk.set_capacity(Some(CAPACITY + seed % 32 * 1000));
        }
        let mut world = Self {
            dice: Dice::new(seed),
            now,
            disk,
            log: None,
            wall: WallClock::new(now, 1_800_000_000_000, 0),
            shards: Vec::new(),
            unwritten: VecDeque::new(),
            moves: BTreeMap::new(),
            fetches: VecDeque::new(),
            pages: 0,
            mail: BTreeMap::new(),
            clients,
            wires: BTreeMap::new(),
            crashes: 0,
            is_disk_bad: !seed.is_multiple_of(3),
            stalled: 0,
            // On a full disk the writer looks by itself.
            is_lazy: seed % 4 == 1 && !is_small,
            is_restless: true,
            room: is_small.then(LogRoom::default),
            fulls: 0,
        };
        world.start();
        world
    }

    /// The broker starts with what is on the disk, on any number of shards.
    fn start(&mut self) {
        let count = 1 + self.dice.below(3) as usize;
        let options =
            LogOptions { segment_bytes: 4000, compact_bytes_min: 8000, compact_percent: 100, ..LogOptions::default() };
        let mut image = StoreImage::default();
        let opened = Log::open(self.disk.boot(), options, |record, at| image.apply(record, at));
        let Ok((mut log, report)) = opened else {
            self.disk.set_broken(None);
            return self.start();
        };
        assert!(!report.is_damaged(), "{report}");
        assert_eq!(image.orphans(), 0, "every record speaks of something that is there");
        // Next to nothing stays in memory, or everything does.
        let queue_memory_max = [1, 300, 300, 64 * 1024][self.dice.below(4) as usize];
        let inflight_max = [1, 3, 64][self.dice.below(3) as usize];
        let mut settings = Settings { queue_memory_max, inflight_max, ..Settings::default() };
        if self.room.is_some() {
            // Whoever had to wait for the disk and goes on has no rhythm that it could break.
            settings.back_off.rhythm = None;
        }
        let settings = Arc::new(settings);
        let shard = |index| Shard::new(index, count, Arc::clone(&settings), Arc::new(Open), 7);
        self.shards = (0..count).map(shard).collect();
        let restored = restore(&image, &mut |at, into| log.read(at, into), &mut self.shards, &self.wall, self.now);
        assert_eq!(restored.lost, 0);
        trace(|| format!("start on {count} shards: {restored:?}"));
        self.log = Some(log);
        for shard in (0..count).rev() {
            self.hand_over(shard);
        }
    }

    fn crash(&mut self) {
        self.crashes += 1;
        // The end of the process may come right behind a sync that failed, and the power cut after that: what the failed
        // sync was about is then shown by the system to the second life, and lost by the third.
        let how = match self.dice.below(4) {
            0 => Crash::Process,
            1 => Crash::LoseUnsynced,
            2 => Crash::KeepBytes(self.dice.below(300) as usize),
            _ => Crash::Tear,
        };
        trace(|| format!("crash: {how:?}, {} not written", self.unwritten.len()));
        self.disk.set_broken(None);
        self.disk.crash(how);
        self.log = None;
        self.unwritten.clear();
        self.moves.clear();
        self.fetches.clear();
        self.mail.clear();
        self.wires.clear();
        self.clients.iter_mut().for_each(Client::lose);
        self.start();
    }

    pub(crate) fn live(&mut self) {
        for _ in 0..STEPS {
            self.now = self.now + Duration::from_millis(self.dice.below(20));
            match self.dice.below(100) {
                0 => self.crash(),
                1 if self.is_disk_bad => {
                    let (n, fault) =
                        (self.dice.below(6), [DiskFault::Full, DiskFault::Device][self.dice.below(2) as usize]);
                    self.disk.fail_call(n, fault);
                    trace(|| format!("call {n} from now fails: {fault:?}"));
                }
                2 if self.is_disk_bad => {
                    self.disk.set_broken([Some(DiskFault::Full), None, None][self.dice.below(3) as usize]);
                }
                3 | 4 => {
                    let client = self.dice.below(self.clients.len() as u64) as usize;
                    self.cut(client);
                }
                5 if self.is_disk_bad && self.dice.one_in(4) => self.stall(20),
                5..17 if self.stalled > 0 => self.stall(self.stalled - 1),
                5..17 => self.write(),
                17..20 => self.fetch(),
                20..50 => {
                    let shard = self.dice.below(self.shards.len() as u64) as usize;
                    self.turn(shard);
                }
                50..60 => self.carry(),
                _ => {
                    let client = self.dice.below(self.clients.len() as u64) as usize;
                    if self.clients[client].habit == Habit::Away && self.clients[client].is_subscribed {
                        self.cut(client);
                    } else {
                        self.act(client);
                    }
                }
            }
        }
    }

    /// The disk takes its time, F116: nothing is written, and nobody says that it fails.
    fn stall(&mut self, attempts: u64) {
        self.stalled = attempts;
        let lag = Duration::from_secs(if attempts > 0 { 30 } else { 0 });
        self.shards.iter_mut().for_each(|shard| shard.handle_store_lag(lag));
    }

    /// Nothing fails any more; everything goes on until nothing is left to do.
    pub(crate) fn come_to_rest(&mut self) {
        self.is_restless = false;
        self.disk.set_broken(None);
        self.stall(0);
        if self.dice.one_in(2) {
            self.crash();
        }
        // Before MQTT 5 a client waits for a second when the disk is full, and then once more.
        let rounds = if self.room.is_some() { 9000 } else { 3000 };
        for _ in 0..rounds {
            self.now = self.now + Duration::from_millis(10);
            (0..self.clients.len()).for_each(|client| self.act(client));
            (0..self.shards.len()).for_each(|shard| self.turn(shard));
            self.write();
            self.carry();
            (0..4).for_each(|_| self.fetch());
            let is_done = self.clients.iter().all(|client| client.is_ready() && client.is_done());
            let is_written = self.unwritten.is_empty() || (self.is_lazy && !self.is_awaited());
            let is_quiet = is_written && self.mail.values().all(VecDeque::is_empty);
            let stats = self.shards.iter().map(Shard::stats);
            let waiting: u64 = stats.map(|stats| stats.queued_messages + stats.inflight_messages).sum();
            if is_done && is_quiet && waiting == 0 {
                return;
            }
        }
        panic!("the broker does not come to rest");
    }

    /// One turn of a shard, by the contract.
    fn turn(&mut self, index: usize) {
        self.shards[index].turn(self.now);
        self.hand_over(index);
        for to in 0..self.shards.len() {
            while let Some(batch) = self.shards[index].poll_batch(to) {
                self.mail.entry((index, to)).or_default().push_back(batch);
            }
        }
        while let Some(conn) = self.shards[index].poll_write() {
            let bytes = self.shards[index].outbox(conn).concat();
            self.shards[index].handle_written(conn, bytes.len(), self.now);
            if let Some((&client, _)) = self.wires.iter().find(|(_, wire)| **wire == (index, conn)) {
                self.clients[client].incoming.extend(bytes);
            }
        }
        while let Some(conn) = self.shards[index].poll_close() {
            self.shards[index].handle_closed(conn, Why::Lost, self.now);
            if let Some(client) = self.wires.iter().find(|(_, wire)| **wire == (index, conn)).map(|(client, _)| *client)
            {
                self.wires.remove(&client);
                self.clients[client].lose();
            }
        }
        while let Some(fetch) = self.shards[index].poll_fetch() {
            self.fetches.push_back((index, fetch));
        }
        assert_eq!(self.shards[index].stats().dropped_unreadable, 0);
        assert_eq!(self.shards[index].stats().check(), Ok(()));
        assert_eq!(self.shards[index].audit(), Ok(()));
    }

    fn hand_over(&mut self, index: usize) {
        let Some(turn) = self.shards[index].poll_journal() else { return };
        let mut batches = batches(&turn, &self.wall).into_iter().peekable();
        while let Some(written) = batches.next() {
            self.unwritten.push_back((index, batches.peek().is_none().then_some(turn.position), written));
        }
    }

    fn is_awaited(&self) -> bool {
        let mut ends = self.unwritten.iter().filter_map(|(shard, turn, _)| turn.map(|turn| (*shard, turn)));
        ends.any(|(shard, turn)| turn <= self.shards[shard].awaited_turn())
    }

    /// The writer: one group, or the same again if it failed.
    pub(crate) fn write(&mut self) {
        if self.is_lazy && !self.is_awaited() {
            return;
        }
        let Some(log) = &mut self.log else { return };
        let count = self.unwritten.len().min(1 + self.dice.below(8) as usize);
        let group: Vec<RecordBatch> =
            self.unwritten.iter().take(count).map(|(.., written)| written.batch.clone()).collect();
        let mut places = Vec::new();
        let mut attempt = || {
            if log.is_failed() {
                log.repair()?;
            }
            if log.is_segment_full() {
                log.rotate()?;
            }
            if group.is_empty() {
                return Ok(());
            }
            log.append(&group, &mut places)?;
            log.sync()
        };
        let written = attempt();
        let is_well = written.is_ok();
        if is_well && self.dice.one_in(10) {
            let done = log.compact::<StoreImage>();
            if let Ok(compacted) = &done {
                self.moves.values_mut().for_each(|to| *to = compacted.moved.get(to).copied().unwrap_or(*to));
                self.moves.extend(&compacted.moved);
            }
            trace(|| format!("compacted: {:?}", done.map(drop)));
        }
        if !group.is_empty() {
            trace(|| format!("{count} batches written: {is_well}, to {:?}", log.end()));
        }
        let is_full = self.room.is_some() && self.look(written.err().as_ref());
        let trouble = (!is_well || is_full).then_some(Trouble::Full);
        self.shards.iter_mut().for_each(|shard| shard.handle_store_health(trouble));
        if is_well {
            for ((shard, position, written), at) in self.unwritten.drain(..count).zip(places).collect::<Vec<_>>() {
                written.split().1.tell(at);
                if let Some(position) = position {
                    self.shards[shard].handle_synced(position, self.now);
                }
            }
        }
    }

    /// The reader: one page, or the same again if the disk fails.
    fn fetch(&mut self) {
        let (Some(log), Some((shard, fetch))) = (&mut self.log, self.fetches.pop_front()) else { return };
        let mut page = Vec::new();
        for (_, spot) in &fetch.messages {
            let at = location_of(*spot);
            let mut record = Vec::new();
            match log.read(self.moves.get(&at).copied().unwrap_or(at), &mut record) {
                Ok(()) => page.push(record),
                Err(StoreError::Io { .. }) => return self.fetches.push_front((shard, fetch)),
                Err(error) => panic!("{error}"),
            }
        }
        self.pages += 1;
        trace(|| format!("{} messages read", page.len()));
        self.shards[shard].handle_fetched(&fetch, |at| saved(&page[at], &self.wall), self.now);
    }

    /// One batch from one shard to another.
    fn carry(&mut self) {
        let full: Vec<(usize, usize)> =
            self.mail.iter().filter(|(_, mail)| !mail.is_empty()).map(|(way, _)| *way).collect();
        if full.is_empty() {
            return;
        }
        let way = full[self.dice.below(full.len() as u64) as usize];
        if let Some(batch) = self.mail.get_mut(&way).and_then(VecDeque::pop_front) {
            self.shards[way.1].handle_batch(&batch, self.now).unwrap();
        }
    }

    fn cut(&mut self, client: usize) {
        if let Some((shard, conn)) = self.wires.remove(&client) {
            self.shards[shard].handle_closed(conn, Why::Lost, self.now);
            self.clients[client].lose();
        }
    }

    /// A client connects, or reads, or sends, or publishes.
    fn act(&mut self, client: usize) {
        let Some(&(shard, conn)) = self.wires.get(&client) else { return self.dial(client) };
        let one = &mut self.clients[client];
        for _ in 0..=self.dice.below(4) {
            one.read();
        }
        // Everybody listens before anybody speaks, so that the checker knows who should hear what.
        let is_heard = self.clients.iter().all(Client::has_subscribed);
        // By the contract: what other shards have sent comes before what was read after it.
        for from in 0..self.shards.len() {
            while let Some(batch) = self.mail.get_mut(&(from, shard)).and_then(VecDeque::pop_front) {
                self.shards[shard].handle_batch(&batch, self.now).unwrap();
            }
        }
        let one = &mut self.clients[client];
        if one.is_ready() && is_heard {
            one.publish(&mut self.dice);
        }
        if self.is_restless && one.habit == Habit::Fickle && one.is_ready() && self.dice.one_in(2) {
            one.change_mind();
        }
        if !one.out.is_empty() && self.shards[shard].may_read(conn) {
            let progress = self.shards[shard].handle_input(conn, &one.out, self.now);
            one.out.drain(..progress.consumed.min(one.out.len()));
        }
    }

    fn dial(&mut self, index: usize) {
        self.clients[index].dials += 1;
        let client = &self.clients[index];
        let (topic, payload) = (format!("w/{}", client.id), format!("{} {}", client.id, client.dials));
        let properties = Properties::EMPTY;
        let will =
            Will { qos: QoS::ExactlyOnce, retain: false, properties, topic: &topic, payload: payload.as_bytes() };
        let expiry = [Property::SessionExpiry(86_400)];
        let properties = if client.version == Version::V5 { Properties::new(&expiry) } else { Properties::EMPTY };
        let connect = Connect {
            version: client.version,
            is_bridge: false,
            clean_start: false,
            keep_alive: 0,
            properties,
            client_id: &client.id,
            will: client.leaves_wills.then_some(will),
            user_name: None,
            password: None,
        };
        let shard = shard_of(&client.id, self.shards.len());
        let hello = MqttHello { connect: &connect, client_id: &client.id, identity: Identity::default() };
        if let Some(conn) = self.shards[shard].handle_connect(&hello, self.now) {
            self.wires.insert(index, (shard, conn));
        }
    }

    /// How many messages came, and how many of them not for the first time.
    pub(crate) fn deliveries(&self) -> (u64, u64) {
        let (mut all, mut twice) = (0, 0);
        for client in &self.clients {
            let mut seen = std::collections::BTreeSet::new();
            all += client.got.len() as u64;
            twice += client.got.iter().filter(|(from, number)| !seen.insert((from.clone(), *number))).count() as u64;
        }
        (all, twice)
    }

    pub(crate) fn check(&mut self) {
        for receiver in self.clients.iter().filter(|client| client.filter.is_some() && !client.is_member()) {
            for sender in self.clients.iter().filter(|client| client.publishes.is_some()) {
                check_pair(sender, receiver);
                // A client of MQTT 5 that is refused while the disk fails, and has not heard of it when the connection
                // breaks, sends that message again after later ones.
                if sender.version == Version::V311 || !self.is_disk_bad {
                    check_order(sender, receiver);
                }
            }
        }
        self.check_retained();
    }

    /// Somebody new sees the last retained message of each topic that was acknowledged, or a later one.
    fn check_retained(&mut self) {
        self.clients.push(Client::new("curious", Version::V5, None, Some(("t/#", QoS::AtLeastOnce))));
        self.come_to_rest();
        let curious = self.clients.last().unwrap();
        for sender in self.clients.iter().filter(|client| client.retained_acknowledged > 0) {
            let found = curious.got.iter().filter(|(from, _)| *from == sender.id).map(|(_, number)| *number).max();
            let found = found.unwrap_or(0);
            assert!(
                (sender.retained_acknowledged..=sender.retained_sent).contains(&found),
                "{}: {found} is retained, {} was acknowledged",
                sender.id,
                sender.retained_acknowledged
            );
        }
    }
}

fn check_pair(sender: &Client, receiver: &Client) {
    let (filter, wanted) = receiver.filter.clone().unwrap();
    let topic = sender.publishes.clone().unwrap();
    let matches = filter.ends_with(['#', '+']) || filter == topic;
    let from_sender = receiver.got.iter().filter(|(from, _)| *from == sender.id);
    let got: Vec<u32> = from_sender.map(|(_, number)| *number).collect();
    let who = format!("{} to {}", sender.id, receiver.id);
    if !matches {
        assert!(got.is_empty(), "{who}: nobody asked for {got:?}");
        return;
    }
    for number in &got {
        assert!(sender.sent.contains_key(number), "{who}: {number} was never sent");
    }
    for (&number, published) in &sender.sent {
        let times = got.iter().filter(|other| **other == number).count();
        assert!(times > 0 || !sender.acknowledged.contains(&number), "{who}: {number} was acknowledged and is lost");
        if (*published).min(wanted) == QoS::ExactlyOnce {
            assert!(times <= 1, "{who}: {number} came {times} times");
        }
    }
}

fn check_order(sender: &Client, receiver: &Client) {
    let from_sender = receiver.got.iter().filter(|(from, _)| *from == sender.id);
    let got: Vec<u32> = from_sender.map(|(_, number)| *number).collect();
    let who = format!("{} to {}", sender.id, receiver.id);
    // Section 4.6: the order is that of messages of the same topic and quality of service.
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let mut seen = std::collections::BTreeSet::new();
        let is_first = |number: &u32| sender.sent.get(number) == Some(&qos) && seen.insert(*number);
        let first: Vec<u32> = got.iter().copied().filter(is_first).collect();
        assert!(first.is_sorted(), "{who}: out of order at {qos:?}: {first:?}");
    }
}
