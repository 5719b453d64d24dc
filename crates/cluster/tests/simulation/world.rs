//! Time, chance and harm: three nodes, the twin, and everything that can go wrong between them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;
use std::time::Duration;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tidegate_cluster::{Ending, Folder};

use super::node::{Node, Step, TICK, version_of};
use super::twin::{Reply, Request, Twin};

/// How long a world lives, and how long before its end nothing goes wrong any more.
const LIFE: Duration = Duration::from_secs(120);
const PEACE: Duration = Duration::from_secs(40);
/// Without an answer for as long, there is none.
const SILENCE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nodes die, are cut off and come again; the engine stalls, and keeps what it said to be kept.
    Faults,
    /// The same, and now and then all lose power: the engine forgets its last messages, and the last owner starts first.
    PowerCuts,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) acknowledged: u64,
    /// Of them changes of the smart space.
    pub(crate) versions: u64,
    pub(crate) adopted: u64,
    pub(crate) fenced: u64,
    pub(crate) tails_lost: u64,
    pub(crate) doubts: u64,
}

impl AddAssign for Outcome {
    fn add_assign(&mut self, other: Self) {
        self.acknowledged += other.acknowledged;
        self.versions += other.versions;
        self.adopted += other.adopted;
        self.fenced += other.fenced;
        self.tails_lost += other.tails_lost;
        self.doubts += other.doubts;
    }
}

/// What happens; those of nodes only if it is still the same process.
#[derive(Debug)]
enum Event {
    Arrives { node: usize, process: u64, request: Request },
    Answered { node: usize, process: u64, reply: Reply },
    Silent { node: usize, process: u64, request: Request },
    Tick { node: usize, process: u64 },
    Synced { node: usize, process: u64 },
    Client,
    Harm,
    Start { node: usize },
}

pub(crate) struct World {
    kind: Kind,
    seed: u64,
    chance: Xoshiro256PlusPlus,
    now: Duration,
    count: u64,
    events: BTreeMap<(Duration, u64), Event>,
    twin: Twin,
    nodes: Vec<Node>,
    is_up: Vec<bool>,
    cut_until: Vec<Duration>,
    stalled_until: Duration,
    next_process: u64,
    next_record: u32,
    acknowledged: BTreeSet<u64>,
    /// What was acknowledged as a version of the smart space.
    versions: BTreeMap<u32, u64>,
    last_owner: usize,
    /// All have lost power, and the last owner does not serve yet: the others are not started before.
    waits_for_owner: bool,
    outcome: Outcome,
}

impl World {
    pub(crate) fn new(kind: Kind, seed: u64) -> Self {
        let nodes: Vec<Node> =
            ["a", "b", "c"].iter().zip(1..).map(|(name, process)| Node::new(name, process)).collect();
        let mut world = Self {
            kind,
            seed,
            chance: Xoshiro256PlusPlus::seed_from_u64(seed),
            now: Duration::ZERO,
            count: 0,
            events: BTreeMap::new(),
            twin: Twin::default(),
            nodes,
            is_up: vec![false; 3],
            cut_until: vec![Duration::ZERO; 3],
            stalled_until: Duration::ZERO,
            next_process: 10,
            next_record: 1,
            acknowledged: BTreeSet::new(),
            versions: BTreeMap::new(),
            last_owner: 0,
            waits_for_owner: false,
            outcome: Outcome::default(),
        };
        for node in 0..3 {
            let after = world.millis(0, 3000);
            world.at(after, Event::Start { node });
        }
        world.at(Duration::ZERO, Event::Client);
        let after = world.millis(8000, 15000);
        world.at(after, Event::Harm);
        world
    }

    fn below(&mut self, end: u64) -> u64 {
        self.chance.next_u64() % end
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }

    fn at(&mut self, after: Duration, event: Event) {
        self.count += 1;
        self.events.insert((self.now + after, self.count), event);
    }

    fn is_calm(&self) -> bool {
        self.now + PEACE > LIFE
    }

    pub(crate) fn run(mut self) -> Outcome {
        while let Some(((now, _), event)) = self.events.pop_first() {
            if now > LIFE {
                break;
            }
            self.now = now;
            self.on_event(event);
        }
        let owner = self.nodes.iter().zip(&self.is_up).find(|(node, is_up)| **is_up && node.is_ready());
        let (owner, _) = owner.unwrap_or_else(|| panic!("seed {}: nobody serves at the end", self.seed));
        self.check_kept(&owner.records());
        self.outcome.acknowledged = self.acknowledged.len() as u64;
        self.outcome
    }

    fn check_kept(&self, records: &BTreeSet<u64>) {
        let lost: Vec<_> = self.acknowledged.difference(records).collect();
        assert!(lost.is_empty(), "seed {}, at {:?}: acknowledged and lost: {lost:?}", self.seed, self.now);
    }

    fn is_same(&self, node: usize, process: u64) -> bool {
        self.is_up[node] && self.nodes[node].incarnation == process
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Arrives { node, process, request } => {
                let name = self.nodes[node].name.clone();
                if let Some(reply) = self.twin.answer(&name, request) {
                    let is_lost = self.now < self.cut_until[node] || (!self.is_calm() && self.below(100) < 2);
                    let after = self.delay();
                    if !is_lost {
                        self.at(after, Event::Answered { node, process, reply });
                    }
                }
            }
            Event::Answered { node, process, reply } if self.is_same(node, process) => {
                let step = self.nodes[node].on_reply(reply, self.now);
                self.take(node, step);
            }
            Event::Silent { node, process, request } if self.is_same(node, process) => {
                let step = self.nodes[node].on_silence(&request, self.now);
                self.take(node, step);
            }
            Event::Tick { node, process } if self.is_same(node, process) => {
                self.at(TICK, Event::Tick { node, process });
                let step = self.nodes[node].on_tick(self.now);
                self.take(node, step);
            }
            Event::Synced { node, process } if self.is_same(node, process) => {
                let step = self.nodes[node].on_synced(self.now);
                self.take(node, step);
            }
            Event::Client => self.on_client(),
            Event::Harm => self.on_harm(),
            Event::Start { node } if self.waits_for_owner && node != self.last_owner => {
                self.at(Duration::from_secs(1), Event::Start { node });
            }
            Event::Start { node } => self.start(node),
            _ => {}
        }
    }

    fn delay(&mut self) -> Duration {
        let micros = 100 + self.below(3000);
        // One in two hundred is late, and arrives after it was given up.
        let late = if !self.is_calm() && self.below(200) == 0 { self.millis(500, 6000) } else { Duration::ZERO };
        Duration::from_micros(micros) + late
    }

    fn on_client(&mut self) {
        let after = self.millis(5, 80);
        self.at(after, Event::Client);
        for node in 0..3 {
            if !self.is_up[node] || !self.nodes[node].is_ready() {
                continue;
            }
            // Both folders of one owner, in one stream.
            let folder = if self.below(3) == 0 { Folder::Space } else { Folder::Store };
            let step = if self.below(150) == 0 {
                self.nodes[node].compact(folder, self.now)
            } else {
                self.next_record += 1;
                self.nodes[node].write(folder, self.next_record, self.now)
            };
            self.take(node, step);
            let (after, process) = (self.millis(1, 30), self.nodes[node].incarnation);
            self.at(after, Event::Synced { node, process });
        }
    }

    fn on_harm(&mut self) {
        if self.is_calm() {
            self.stalled_until = self.stalled_until.min(self.now);
            return;
        }
        let after = self.millis(500, 12000);
        self.at(after, Event::Harm);
        let node = self.below(3) as usize;
        match self.below(8) {
            0..=2 => self.crash(node),
            3 => self.crash(self.last_owner),
            4 | 5 => self.cut_until[node] = self.now + self.millis(100, 15000),
            6 => self.stalled_until = self.now + self.millis(4000, 9000),
            _ if self.kind == Kind::PowerCuts => self.cut_power(),
            _ => self.cut_until[self.last_owner] = self.now + self.millis(6000, 15000),
        }
    }

    /// The process ends, and a part of what was not synced is gone.
    fn crash(&mut self, node: usize) {
        if !self.is_up[node] {
            return;
        }
        self.kill(node);
        let after = self.millis(100, 20000);
        self.at(after, Event::Start { node });
    }

    fn kill(&mut self, node: usize) {
        self.is_up[node] = false;
        let names: Vec<String> = self.nodes[node].folder.keys().cloned().collect();
        for name in names {
            let rest = self.nodes[node].folder.get(&name).map_or(0, |file| file.bytes.len() - file.synced);
            // Records are written whole here: what a log does about halves is the log's business.
            let lost = self.below(rest as u64 / 8 + 1) as usize * 8;
            let file = self.nodes[node].folder.get_mut(&name).unwrap();
            file.bytes.truncate(file.bytes.len() - lost);
        }
    }

    fn cut_power(&mut self) {
        // Everybody who is down comes back in the order that keeps the promise: the last owner first.
        self.events.retain(|_, event| !matches!(event, Event::Start { .. } | Event::Arrives { .. }));
        for node in 0..3 {
            if self.is_up[node] {
                self.kill(node);
            }
            let after = if node == self.last_owner { self.millis(0, 1000) } else { self.millis(3000, 9000) };
            self.cut_until[node] = self.now;
            self.at(after, Event::Start { node });
        }
        self.waits_for_owner = true;
        self.stalled_until = self.now;
        let lost = self.below(20);
        self.twin.lose_tail(lost);
    }

    fn start(&mut self, node: usize) {
        if self.is_up[node] {
            return;
        }
        self.next_process += 1;
        let process = self.next_process;
        self.nodes[node] = self.nodes[node].reborn(process);
        self.is_up[node] = true;
        self.at(Duration::ZERO, Event::Tick { node, process });
    }

    fn take(&mut self, node: usize, step: Step) {
        let process = self.nodes[node].incarnation;
        self.outcome.doubts += u64::from(step.doubted);
        for (record, operation) in step.acknowledged {
            assert!(self.twin.taken.contains(&operation), "seed {}: {operation:?} was never taken", self.seed);
            self.acknowledged.insert(record);
            self.outcome.versions += u64::from(version_of(record) > 0);
            if version_of(record) > 0 {
                let before = self.versions.insert(version_of(record), record);
                let is_other = before.is_some_and(|before| before != record);
                assert!(!is_other, "seed {}: version {} was another before", self.seed, version_of(record));
            }
        }
        if let Some(records) = step.began {
            self.check_kept(&records);
            self.outcome.adopted += u64::from(node != self.last_owner);
            self.last_owner = node;
            self.waits_for_owner = false;
        }
        for request in step.requests {
            self.at(SILENCE, Event::Silent { node, process, request: request.clone() });
            let is_lost = self.now < self.cut_until[node] || (!self.is_calm() && self.below(100) < 2);
            if !is_lost {
                let after = self.stalled_until.saturating_sub(self.now) + self.delay();
                self.at(after, Event::Arrives { node, process, request });
            }
        }
        if let Some(ending) = step.ended {
            match ending {
                Ending::Fenced { .. } => self.outcome.fenced += 1,
                Ending::TailLost => self.outcome.tails_lost += 1,
            }
            self.is_up[node] = false;
            self.at(Duration::from_millis(300), Event::Start { node });
        }
    }
}
