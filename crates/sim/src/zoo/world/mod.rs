//! Scenarios in virtual time: real shards, the order in which the broker's loop reads its sockets, and a modelled host,
//! modelled sockets and receivers.
//!
//! Time goes in ticks of a millisecond, and jumps where nothing happens. A thread of the host does so many units of work a
//! second: a message that is read is one, a KiB of it another, a copy that is written an eighth. What it cannot do in a tick waits in the
//! sockets of its publishers, and when those are full, with the publishers. Not here: the kernel's own buffers beyond
//! that, TLS, disk, memory budgets and the levels of pressure.

mod host;

use std::collections::BTreeSet;

use tidegate_control::Timestamp;
use tidegate_core::classes::Priority;
use tidegate_core::persist::SavedRhythm;
use tidegate_core::settings::{BackOff, Settings};

use super::crowd::{Crowd, DriverAction};
use super::model::{Phases, ZooScenario};
use super::tally::Figures;
use host::ZooHost;

/// A turn of the loop.
const TICK_NS: u64 = 1_000_000;
/// After the end, what is under way may still arrive for so long.
const DRAIN_S: f64 = 3.0;
/// Long enough for everybody's rate to be learned.
const LEARN_S: f64 = 75.0;
/// Where nobody is to be known.
const SHORT_S: f64 = 3.0;
/// Bytes of a publisher that wait in its socket.
const SOCKET_BYTES: usize = 64 * 1024;
/// Bytes that lie in the sockets towards a client that does not read, where nothing can be overtaken: little, because what is
/// to be seen here is the order of the broker's own queue.
pub(super) const SOCKET_DOWN_BYTES: usize = 4 * 1024;

/// Whether there is control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlSwitch {
    /// As shipped.
    On,
    /// `backoff.mode = off`, `priority.mode = off`.
    Off,
}

impl ControlSwitch {
    fn settings(self) -> Settings {
        match self {
            Self::On => Settings::default(),
            Self::Off => Settings {
                back_off: BackOff { rhythm: None, ..BackOff::default() },
                priority: Priority::off(),
                ..Settings::default()
            },
        }
    }
}

/// The parts of a run in virtual time.
pub fn phases(scenario: &ZooScenario) -> Phases {
    let lead = if scenario.is_known { LEARN_S } else { SHORT_S };
    Phases { lead, trouble: 6.0, after: 8.0 }
}

/// What became of each cohort. The same for the same seed.
pub fn run(scenario: &ZooScenario, control: ControlSwitch, seed: u64) -> Result<Vec<Figures>, String> {
    let phases = phases(scenario);
    ZooWorld::new(scenario, phases, control, seed).run(phases)
}

/// What a broker knows of the clients of a scenario who have been there for long: rates and batches, learned by real shards
/// from the same clients on the way to the trouble, and the time at which that is. Rates are those on sockets. Nothing of
/// clients who are strangers.
pub fn learned(scenario: &ZooScenario, seed: u64) -> (Vec<SavedRhythm>, Timestamp) {
    if !scenario.is_known {
        return (Vec::new(), Timestamp::ZERO);
    }
    let (phases, scenario) = (phases(scenario), ZooScenario { scale: 1.0, ..*scenario });
    let mut world = ZooWorld::new(&scenario, phases, ControlSwitch::On, seed);
    let until = (phases.lead * 1e9) as u64;
    world.live(until.saturating_sub(1), until);
    let now = Timestamp::from_nanos(until);
    (world.host.learned(now), now)
}

struct ZooWorld {
    crowd: Crowd,
    host: ZooHost,
    /// Clients with something to take, and those to be called when their socket has room.
    hearing: BTreeSet<usize>,
    blocked: BTreeSet<usize>,
    scratch: Vec<u8>,
}

impl ZooWorld {
    fn new(scenario: &ZooScenario, phases: Phases, control: ControlSwitch, seed: u64) -> Self {
        let crowd = Crowd::new(scenario, phases, scenario.scale, seed);
        let host = ZooHost::new(scenario, control.settings(), crowd.len());
        Self { crowd, host, hearing: BTreeSet::new(), blocked: BTreeSet::new(), scratch: Vec::new() }
    }

    fn run(mut self, phases: Phases) -> Result<Vec<Figures>, String> {
        let end = (phases.end() * 1e9) as u64;
        let last = end + (DRAIN_S * 1e9) as u64;
        self.live(last, end);
        self.host.check()?;
        Ok(self.crowd.finish())
    }

    /// Everything that happens until `last`; from `end` on nobody sends any more.
    fn live(&mut self, last: u64, end: u64) {
        let mut now = 0;
        for client in 0..self.crowd.len() {
            self.come_and_go(client, now);
        }
        while now <= last {
            self.host.wake(now, TICK_NS);
            while let Some(client) = self.crowd.pop_due(now) {
                self.come_and_go(client, now);
                if now <= end {
                    self.act(client, now);
                }
            }
            self.hear(now);
            self.host.turn(now, TICK_NS);
            self.follow_up(now, end);
            now = self.next(now).max(now + TICK_NS);
        }
    }

    /// When something happens next.
    fn next(&self, now: u64) -> u64 {
        let again = self.hearing.iter().filter_map(|client| self.host.ends[*client].again_ns);
        let is_busy = self.host.is_busy();
        let times = again.chain(self.crowd.next_wake()).chain(self.host.next_ns()).chain(is_busy.then_some(now));
        // In whole ticks.
        times.min().unwrap_or(u64::MAX / 2).div_ceil(TICK_NS).saturating_mul(TICK_NS)
    }

    fn come_and_go(&mut self, client: usize, now: u64) {
        let is_there = self.crowd.is_there(client, now);
        let is_connected = self.host.ends[client].conn.is_some();
        if is_there && !is_connected {
            self.connect(client, now);
        } else if !is_there && is_connected {
            self.host.disconnect(client, now);
        }
    }

    fn connect(&mut self, client: usize, now: u64) {
        self.scratch.clear();
        self.crowd.greet(client, &mut self.scratch);
        if self.host.connect(client, self.crowd.who(client), &self.scratch, now) {
            self.hearing.insert(client);
        } else {
            self.crowd.on_lost(client, now);
        }
    }

    fn act(&mut self, client: usize, now: u64) {
        let end = &mut self.host.ends[client];
        if end.conn.is_none() {
            return;
        }
        let room = SOCKET_BYTES.saturating_sub(end.up.len());
        match self.crowd.act(client, now, room, &mut end.up) {
            DriverAction::Stay => {}
            DriverAction::Blocked => {
                self.blocked.insert(client);
            }
            DriverAction::Vanish => {
                self.host.disconnect(client, now);
                self.connect(client, now);
                return;
            }
        }
        self.host.queue(client);
    }

    /// Everybody takes what it takes now.
    fn hear(&mut self, now: u64) {
        self.host.take_heard(&mut self.hearing);
        let hearing = std::mem::take(&mut self.hearing);
        for client in hearing {
            let end = &mut self.host.ends[client];
            if end.down.is_empty() {
                continue;
            }
            if end.again_ns.is_some_and(|again| again > now) {
                self.hearing.insert(client);
                continue;
            }
            let down = std::mem::take(&mut end.down);
            let heard = self.crowd.hear(client, &down, now, &mut end.up);
            end.down = down;
            end.down.drain(..heard.used);
            end.again_ns = heard.again_ns;
            if heard.again_ns.is_some() {
                self.hearing.insert(client);
            }
            if heard.used > 0 {
                self.host.on_taken(client);
                self.host.queue(client);
            }
        }
    }

    /// Who was cut off, and who has room again.
    fn follow_up(&mut self, now: u64, end: u64) {
        for client in std::mem::take(&mut self.host.cut) {
            self.crowd.on_lost(client, now);
        }
        if now > end {
            return;
        }
        for client in std::mem::take(&mut self.blocked) {
            if self.host.ends[client].up.len() < SOCKET_BYTES / 2 {
                self.act(client, now);
            } else {
                self.blocked.insert(client);
            }
        }
    }
}
