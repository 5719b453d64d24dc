//! A bridge as a state machine: which address is tried when, when both ends stand, and what is passed on.
//!
//! Both connections live and die together. When either is gone the other is closed, too, and the next pair begins with the other
//! broker's: so each message that has no answer is sent again by whoever has it, under the number that it has there.
//!
//! Before the first pair it makes sure that its session here is there and has its subscriptions: what is published while the other
//! broker cannot be reached waits from then on.
//!
//! ```text
//! Registering ─ CONNACK, SUBACKs ─> Waiting
//! Waiting ─ time ─> Opening ─ opened ─> Greeting ─ CONNACK, SUBACKs ─> Attaching ─ CONNACK, SUBACKs ─> Up
//!                                          (a session that is there: its SUBACKs are not waited for)
//!    ^───────────────────────────── anything that fails, on either side ────────────────────────────────┘
//! ```
//! - told: [`BridgeMachine::handle_opened`], [`BridgeMachine::handle_bytes`], [`BridgeMachine::handle_written`],
//!   [`BridgeMachine::handle_lost`]
//! - acts: [`BridgeMachine::turn`]
//! - asked: [`BridgeMachine::poll_action`], [`BridgeMachine::outputs`], [`BridgeMachine::wants_read`], [`BridgeMachine::poll_timeout`]
//!
//! The driver handles what happened, turns once, does every action, writes both outputs, and sleeps until the timeout.

mod packets;
mod status;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use tidegate_client::session::reconnect::Reconnect;
use tidegate_control::Timestamp;
use tidegate_control::hints::Hints;
use tidegate_control::rand_core::Rng;
use tidegate_wire_mqtt::{Disconnect, Packet, PacketId, ReasonCode, Version};

use crate::config::{BridgeConfig, SpoolKeep};
use crate::counts::BridgeCounts;
use crate::greeting;
use crate::lane::RelayLane;
use crate::limits::{
    ANSWER_TIMEOUT, GOOD_AFTER, KEPT_BEFORE_V5, OPEN_TIMEOUT, OUTPUT_BYTES_MAX, RECEIVE_MAX, UNWRITTEN_BYTES_MAX,
};
use crate::pace::{DrainPace, PaceConfig};
use crate::wire_end::WireEnd;

pub use status::{BridgePhase, BridgeStatus};

/// Which of its two brokers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BridgeSide {
    /// This one.
    Local,
    /// The other one.
    Remote,
}

/// What the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BridgeAction {
    /// Connect to the other broker at this address, and say [`BridgeMachine::handle_opened`] or [`BridgeMachine::handle_lost`].
    Open {
        /// Its place in the list.
        address: usize,
    },
    /// Connect to this broker.
    Attach,
    /// Drop both connections, with what was not written.
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PairPhase {
    Registering { deadline: Timestamp },
    Waiting { until: Timestamp },
    Opening { deadline: Timestamp },
    Greeting { deadline: Timestamp },
    Attaching { deadline: Timestamp },
    Up,
}

/// A bridge: which address is tried when, when both ends stand, and what is passed on.
#[derive(Debug)]
pub struct BridgeMachine {
    config: BridgeConfig,
    phase: PairPhase,
    local: WireEnd,
    remote: WireEnd,
    /// From here to there.
    out: RelayLane,
    /// From there to here.
    into: RelayLane,
    pace_out: DrainPace,
    pace_in: DrainPace,
    /// When a lane may go on that waits for time.
    pump_at: Option<Timestamp>,
    reconnect: Reconnect,
    /// Messages that had got through when this pair began to stand.
    passed_before: u64,
    address: usize,
    /// Addresses that failed since one stood.
    failed: usize,
    /// The bit of the protocol level before MQTT 5.
    with_bit: bool,
    actions: VecDeque<BridgeAction>,
    /// Subscriptions here without an answer.
    asked_here: BTreeSet<PacketId>,
    /// The same there.
    asked_there: BTreeSet<PacketId>,
    /// The session here has its subscriptions.
    is_registered: bool,
    /// Filters that the session here has from an earlier configuration.
    stale: Vec<String>,
    /// The other broker was told in this life what is wanted of it, and has answered.
    has_subscribed: bool,
    keep_alive: Duration,
    last_sent: Timestamp,
    pinged: Option<Timestamp>,
    counts: BridgeCounts,
    /// Why it does not stand, or what is wrong though it does.
    trouble: Option<String>,
    /// Since when it is in this state.
    since: Timestamp,
}

impl BridgeMachine {
    /// A bridge that begins at once.
    pub fn new(config: BridgeConfig, now: Timestamp) -> Self {
        let into = PaceConfig { window_max: RECEIVE_MAX, rate_max: None };
        Self {
            phase: PairPhase::Waiting { until: now },
            local: WireEnd::new(Version::V5),
            remote: WireEnd::new(config.version),
            out: RelayLane::new(),
            into: RelayLane::new(),
            pace_out: DrainPace::new(config.pace),
            pace_in: DrainPace::new(into),
            pump_at: None,
            reconnect: Reconnect::default(),
            passed_before: 0,
            address: 0,
            failed: 0,
            with_bit: true,
            actions: VecDeque::new(),
            asked_here: BTreeSet::new(),
            asked_there: BTreeSet::new(),
            is_registered: false,
            stale: Vec::new(),
            has_subscribed: false,
            keep_alive: Duration::ZERO,
            last_sent: now,
            pinged: None,
            counts: BridgeCounts::default(),
            trouble: None,
            since: now,
            config,
        }
    }

    /// What the session here is subscribed to, from an earlier life: what is not wanted any more is given up before anything else.
    pub fn note_subscribed<'a>(&mut self, filters: impl Iterator<Item = &'a str>) {
        let wanted = self.config.topics.local_filters();
        let is_stale = |filter: &&str| !wanted.iter().any(|(known, _)| known == filter);
        self.stale = filters.filter(is_stale).map(str::to_owned).collect();
    }

    /// A connection that was asked for is open.
    pub fn handle_opened(&mut self, side: BridgeSide, now: Timestamp) {
        match (side, self.phase) {
            (BridgeSide::Remote, PairPhase::Opening { .. }) => {
                greeting::greet_remote(&self.config, self.with_bit, &mut self.remote);
                (self.last_sent, self.pinged) = (now, None);
                self.phase = PairPhase::Greeting { deadline: now + ANSWER_TIMEOUT };
            }
            (BridgeSide::Local, PairPhase::Registering { .. } | PairPhase::Attaching { .. }) => {
                greeting::greet_local(&self.config, &mut self.local);
            }
            _ => {}
        }
    }

    /// Bytes of one of the brokers.
    pub fn handle_bytes<R: Rng + ?Sized>(&mut self, side: BridgeSide, bytes: &[u8], now: Timestamp, rng: &mut R) {
        if self.is_waiting() {
            return;
        }
        let end = self.end(side);
        end.feed(bytes);
        let (version, limits, (inbox, mut read)) = (end.version(), end.limits(), end.take_inbox());
        loop {
            let handled = match WireEnd::decode(&inbox[read..], version, &limits) {
                Ok(None) => break,
                Ok(Some((packet, size))) => {
                    read += size;
                    self.handle(side, &packet, now)
                }
                Err(words) => Err(Fall { words, hints: None }),
            };
            if let Err(Fall { words, hints }) = handled {
                let whose = if side == BridgeSide::Local { "this broker" } else { "the other broker" };
                return self.fall(format!("{whose}: {words}"), hints.as_deref(), now, rng);
            }
            if self.is_waiting() {
                // What came after belongs to a connection that is over.
                return;
            }
        }
        self.end(side).put_inbox(inbox, read);
    }

    /// A connection could not be made, or is gone.
    pub fn handle_lost<R: Rng + ?Sized>(&mut self, side: BridgeSide, why: &str, now: Timestamp, rng: &mut R) {
        if self.is_waiting() {
            return;
        }
        if matches!(self.phase, PairPhase::Greeting { .. }) && !self.remote.is_up && self.leave_bit() {
            return self.begin_again(now);
        }
        let words = match side {
            BridgeSide::Local => format!("this broker: {why}"),
            BridgeSide::Remote => why.to_owned(),
        };
        self.fall(words, None, now, rng);
    }

    /// Does what is due.
    pub fn turn<R: Rng + ?Sized>(&mut self, now: Timestamp, rng: &mut R) {
        match self.phase {
            PairPhase::Waiting { until } if until <= now && !self.is_registered => {
                self.actions.push_back(BridgeAction::Attach);
                self.phase = PairPhase::Registering { deadline: now + ANSWER_TIMEOUT };
            }
            PairPhase::Waiting { until } if until <= now => {
                self.actions.push_back(BridgeAction::Open { address: self.address });
                self.phase = PairPhase::Opening { deadline: now + OPEN_TIMEOUT };
            }
            PairPhase::Opening { deadline } if deadline <= now => {
                self.fall("no connection in time".to_owned(), None, now, rng);
            }
            PairPhase::Registering { deadline } | PairPhase::Attaching { deadline } if deadline <= now => {
                self.fall("this broker: no answer in time".to_owned(), None, now, rng);
            }
            PairPhase::Greeting { deadline } if deadline <= now => {
                self.fall("no answer of the other broker in time".to_owned(), None, now, rng);
            }
            PairPhase::Up => {
                if !self.ping(now) {
                    return self.fall("the other broker does not answer".to_owned(), None, now, rng);
                }
                if self.into.overrun() > 0 && self.into.is_drained() {
                    let words =
                        format!("it had sent more than could be held; {} messages come again", self.into.overrun());
                    return self.fall(words, None, now, rng);
                }
                self.pump(now);
            }
            _ => {}
        }
    }

    /// What the driver has to do next.
    pub fn poll_action(&mut self) -> Option<BridgeAction> {
        self.actions.pop_front()
    }

    /// Bytes for this broker, and for the other one.
    pub fn outputs(&self) -> (&Vec<u8>, &Vec<u8>) {
        (&self.local.out, &self.remote.out)
    }

    /// So many of them were written.
    pub fn handle_written(&mut self, side: BridgeSide, count: usize) {
        let out = &mut self.end(side).out;
        out.drain(..count.min(out.len()));
    }

    /// Whether its session here has its subscriptions: what is published from now on waits for it.
    pub fn is_registered(&self) -> bool {
        self.is_registered
    }

    /// Whether more of a broker can be taken in. What a lane waits for comes over the same socket as what it has no room for, so it
    /// is read as long as anything is waited for: messages with a number are no more than Receive Maximum, or come again on the next
    /// connection, and those without one are dropped where there is no room.
    pub fn wants_read(&self, side: BridgeSide) -> bool {
        match side {
            BridgeSide::Local => {
                (self.out.has_room() || self.out.awaits_release()) && self.remote.out.len() < 2 * OUTPUT_BYTES_MAX
            }
            BridgeSide::Remote => {
                // Nothing of it is passed on before the answers to the greeting are there, which may come behind anything.
                let is_greeting = matches!(self.phase, PairPhase::Greeting { .. });
                let is_awaited =
                    self.out.under_way() > 0 || self.into.awaits_release() || self.pinged.is_some() || is_greeting;
                let is_written = self.local.out.len().max(self.remote.out.len()) < UNWRITTEN_BYTES_MAX;
                (!self.into.is_overfull() || is_awaited) && is_written
            }
        }
    }

    /// When to turn again, if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        match self.phase {
            PairPhase::Waiting { until } => Some(until),
            PairPhase::Registering { deadline }
            | PairPhase::Opening { deadline }
            | PairPhase::Greeting { deadline }
            | PairPhase::Attaching { deadline } => Some(deadline),
            PairPhase::Up => self.pump_at.into_iter().chain(self.ping_due()).min(),
        }
    }

    /// The process ends: the other broker is told, as far as there are words for it. Its session stays.
    pub fn say_goodbye(&mut self) {
        if self.remote.is_up && self.remote.version().is_v5() {
            // With the will: whoever watches the state hears that the bridge is down.
            self.remote.write(&Packet::Disconnect(Disconnect::because(ReasonCode::DisconnectWithWill)));
        }
    }

    fn is_waiting(&self) -> bool {
        matches!(self.phase, PairPhase::Waiting { .. })
    }

    fn end(&mut self, side: BridgeSide) -> &mut WireEnd {
        match side {
            BridgeSide::Local => &mut self.local,
            BridgeSide::Remote => &mut self.remote,
        }
    }

    fn pump(&mut self, now: Timestamp) {
        let counts = &mut self.counts;
        let out = self.out.pump(&mut self.pace_out, ((&mut self.local, &mut self.remote), u16::MAX), now, |is_sent| {
            *(if is_sent { &mut counts.sent } else { &mut counts.too_large }) += 1;
        });
        // mosquitto 2.0.11 keeps over a restart how far an exchange of QoS 2 has come for as many messages only as it takes at once itself.
        let kept = if self.config.version.is_v5() { self.remote.receive_max } else { KEPT_BEFORE_V5 };
        let into = self.into.pump(&mut self.pace_in, ((&mut self.remote, &mut self.local), kept), now, |is_sent| {
            *(if is_sent { &mut counts.received } else { &mut counts.too_large }) += 1;
        });
        self.pump_at = out.into_iter().chain(into).min();
    }

    /// The other broker has answered what there was to answer: now this one.
    fn attach(&mut self, now: Timestamp) {
        self.actions.push_back(BridgeAction::Attach);
        self.phase = PairPhase::Attaching { deadline: now + ANSWER_TIMEOUT };
    }

    fn stand(&mut self, now: Timestamp) {
        (self.phase, self.since, self.failed) = (PairPhase::Up, now, 0);
        self.counts.connects += 1;
        self.reconnect.on_success(now);
        self.passed_before = self.counts.passed();
        if self.config.notifies {
            greeting::say_up(&self.config, &mut self.remote);
        }
    }

    /// Both connections are over; another pair is tried after a while.
    fn fall<R: Rng + ?Sized>(&mut self, words: String, hints: Option<&Hints>, now: Timestamp, rng: &mut R) {
        let stood = self.phase == PairPhase::Up;
        self.counts.failures += 1;
        self.close();
        if stood && self.counts.passed() - self.passed_before >= GOOD_AFTER {
            self.reconnect = Reconnect::default();
        }
        if stood {
            self.since = now;
        } else if self.is_registered {
            // The next address at once; a pause when all of them were tried.
            self.failed += 1;
            self.address = (self.address + 1) % self.config.addresses.max(1);
        }
        let is_round_over = stood || self.failed.is_multiple_of(self.config.addresses.max(1));
        let until = if is_round_over { now + self.reconnect.on_failure(now, hints, rng) } else { now };
        self.trouble = Some(words);
        self.phase = PairPhase::Waiting { until };
    }

    /// Its session here is as it should be.
    fn registered(&mut self, now: Timestamp) {
        self.is_registered = true;
        self.begin_again(now);
    }

    fn begin_again(&mut self, now: Timestamp) {
        self.close();
        self.phase = PairPhase::Waiting { until: now };
    }

    fn close(&mut self) {
        self.actions.clear();
        self.actions.push_back(BridgeAction::Close);
        self.counts.overrun += self.into.overrun();
        self.counts.lost += self.out.reset() + self.into.reset();
        self.pace_out.on_lost();
        self.pace_in.on_lost();
        self.local.reset();
        self.remote.reset();
        self.asked_here.clear();
        self.asked_there.clear();
        (self.pump_at, self.pinged) = (None, None);
    }

    /// A broker may not know the bit of bridges: the next greeting is without it. False if it was not said.
    fn leave_bit(&mut self) -> bool {
        !self.config.version.is_v5() && core::mem::take(&mut self.with_bit)
    }

    /// What this broker sends is to be asked for, or is asked for already.
    fn subscribe(&mut self, side: BridgeSide) {
        let (filters, keep) = match side {
            BridgeSide::Local => (self.config.topics.local_filters(), self.config.keep),
            BridgeSide::Remote => (self.config.topics.remote_filters(), SpoolKeep::All),
        };
        let end = if side == BridgeSide::Local { &mut self.local } else { &mut self.remote };
        let mut asked: BTreeSet<PacketId> = greeting::subscribe(&filters, keep, end).into_iter().collect();
        if side == BridgeSide::Local {
            let stale = core::mem::take(&mut self.stale);
            asked.extend(greeting::unsubscribe(&stale, asked.len(), &mut self.local));
        }
        *self.asked(side) = asked;
    }

    /// Subscriptions at this side without an answer.
    fn asked(&mut self, side: BridgeSide) -> &mut BTreeSet<PacketId> {
        match side {
            BridgeSide::Local => &mut self.asked_here,
            BridgeSide::Remote => &mut self.asked_there,
        }
    }

    /// Pings when it is time; false if the last one was not answered.
    fn ping(&mut self, now: Timestamp) -> bool {
        if self.keep_alive.is_zero() {
            return true;
        }
        if let Some(pinged) = self.pinged {
            return now < pinged + self.keep_alive;
        }
        if self.ping_due().is_some_and(|due| due <= now) {
            self.remote.write(&Packet::PingReq);
            (self.pinged, self.last_sent) = (Some(now), now);
        }
        true
    }

    fn ping_due(&self) -> Option<Timestamp> {
        // By the clock and not by what else was sent: the answer shows that the other side lives.
        let due = self.pinged.map_or(self.last_sent + self.keep_alive.mul_f32(0.75), |pinged| pinged + self.keep_alive);
        (!self.keep_alive.is_zero()).then_some(due)
    }
}

/// Why a connection ends, and what its broker said about coming back.
struct Fall {
    words: String,
    hints: Option<Box<Hints>>,
}

impl From<String> for Fall {
    fn from(words: String) -> Self {
        Self { words, hints: None }
    }
}
