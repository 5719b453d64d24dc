//! A sink as a state machine: its session at this broker, what it holds, what is under way, and what an answer means.
//!
//! ```text
//! Detached ─ time ─> Attaching ─ CONNACK ─> Attached ─ messages ─> held ─ batch ─> out ─ taken ─> acknowledged
//!                                                                   ^────── not now ──────┘
//! ```
//! - told: [`SinkMachine::handle_attached`], [`SinkMachine::handle_bytes`], [`SinkMachine::handle_lost`], [`SinkMachine::handle_answer`]
//! - acts: [`SinkMachine::turn`]
//! - asked: [`SinkMachine::poll_action`], [`SinkMachine::take_output`], [`SinkMachine::batch`], [`SinkMachine::wants_read`],
//!   [`SinkMachine::poll_timeout`]
//!
//! The driver handles what happened, turns once, does every action, writes the output, and sleeps until the timeout.

mod answer;
mod greeting;

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_client::session::mqtt::connection::{ConnectionBounds, MqttConnection, PacketMeaning};
use tidegate_client::session::reconnect::Reconnect;
use tidegate_control::Timestamp;
use tidegate_control::rand_core::Rng;
use tidegate_wire_mqtt::{Limits, QoS, Version};

use crate::batch::{BatchConfig, BatchPace, BatchVerdict};
use crate::limits::{ATTACH_TIMEOUT, HELD_BYTES_MAX, HELD_UNKEPT_MAX, PACKET_BYTES_MAX, TOPIC_LEVELS_MAX};
use crate::message::{SinkBatch, SinkMessage};
use crate::status::{SinkCounts, SinkPhase, SinkStatus};

/// One sink. Plain values; where they come from is not known here.
#[derive(Clone, Debug, PartialEq)]
pub struct SinkConfig {
    /// The client identifier of its session.
    pub local_id: String,
    /// What it wants, each with the best quality of service.
    pub filters: Vec<(String, QoS)>,
    /// Of each topic only the newest message waits.
    pub keeps_latest: bool,
    /// How messages go together.
    pub batch: BatchConfig,
}

/// What the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkAction {
    /// Connect to this broker, and say [`SinkMachine::handle_attached`] or [`SinkMachine::handle_lost`].
    Attach,
    /// Drop the connection to this broker.
    Close,
    /// Send [`SinkMachine::batch`], and say [`SinkMachine::handle_answer`].
    Deliver,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttachPhase {
    Detached { until: Timestamp },
    Attaching { deadline: Timestamp },
    Attached,
}

/// The one batch that is under way.
#[derive(Debug)]
enum Flight {
    None,
    /// It goes again, as it is, when the pause is over.
    Waiting(SinkBatch),
    /// Its answer is awaited.
    Out {
        batch: SinkBatch,
        since: Timestamp,
        /// The connection with which its messages came is gone: the broker sends them again.
        is_orphan: bool,
    },
}

/// A sink: what is gathered into a batch, when it goes, and what is acknowledged after it.
#[derive(Debug)]
pub struct SinkMachine {
    config: SinkConfig,
    link: MqttConnection,
    attach: AttachPhase,
    reconnect: Reconnect,
    /// What came and is not under way, with its time.
    held: VecDeque<(Timestamp, SinkMessage)>,
    held_bytes: usize,
    /// How many of them are of QoS 0.
    held_unkept: usize,
    flight: Flight,
    pace: BatchPace,
    /// Something was taken since a message was given up.
    is_proven: bool,
    /// The message that is refused now was refused before a pause, too.
    has_waited: bool,
    actions: VecDeque<SinkAction>,
    /// Filters that the session has from an earlier configuration.
    stale: Vec<String>,
    /// SUBSCRIBE packets without an answer; none before the first were sent.
    asked: Option<usize>,
    batches: u64,
    counts: SinkCounts,
    phase: SinkPhase,
    since: Timestamp,
    latency: Option<Duration>,
    trouble: Option<String>,
    /// Of the last message that was given up.
    refusal: Option<String>,
}

impl SinkMachine {
    /// A sink that begins at once.
    pub fn new(config: SinkConfig, now: Timestamp) -> Self {
        let limits =
            Limits { packet_bytes_max: PACKET_BYTES_MAX, topic_levels_max: TOPIC_LEVELS_MAX, ..Limits::default() };
        let bounds = ConnectionBounds { limits, window_max: 1, aliases_max: 0, keep_alive_min: Duration::ZERO };
        Self {
            link: MqttConnection::new(Version::V5, bounds),
            attach: AttachPhase::Detached { until: now },
            reconnect: Reconnect::default(),
            held: VecDeque::new(),
            held_bytes: 0,
            held_unkept: 0,
            flight: Flight::None,
            pace: BatchPace::new(config.batch),
            is_proven: true,
            has_waited: false,
            actions: VecDeque::new(),
            stale: Vec::new(),
            asked: None,
            batches: 0,
            counts: SinkCounts::default(),
            phase: SinkPhase::Starting,
            since: now,
            latency: None,
            trouble: None,
            refusal: None,
            config,
        }
    }

    /// What its session is subscribed to, from an earlier life: what is not wanted any more is given up.
    pub fn note_subscribed<'a>(&mut self, filters: impl Iterator<Item = &'a str>) {
        let is_stale = |filter: &&str| !self.config.filters.iter().any(|(known, _)| known == filter);
        self.stale = filters.filter(is_stale).map(str::to_owned).collect();
    }

    /// The connection to this broker is open.
    pub fn handle_attached(&mut self, now: Timestamp) {
        greeting::greet(&self.config, &mut self.link, now);
    }

    /// Bytes of this broker; `wall_ms` is the time of day, for the messages in them.
    pub fn handle_bytes<R: Rng + ?Sized>(&mut self, bytes: &[u8], now: Timestamp, wall_ms: u64, rng: &mut R) {
        self.link.handle_bytes(bytes);
        while let Some(meaning) = self.link.poll_packet(|_, _| {}) {
            match meaning {
                PacketMeaning::Connected { .. } => {
                    self.attach = AttachPhase::Attached;
                    self.reconnect.on_success(now);
                    self.asked = Some(greeting::subscribe(&self.config, &self.stale, &mut self.link));
                }
                PacketMeaning::Message(message) => self.hold(SinkMessage::new(message, wall_ms), now),
                PacketMeaning::Subscribed(_, reasons) => {
                    self.asked = self.asked.map(|asked| asked.saturating_sub(1));
                    if let Some(reason) = reasons.iter().find(|reason| reason.is_failure()) {
                        self.trouble = Some(format!("this broker does not grant a topic: {reason:?}"));
                    }
                }
                PacketMeaning::Refused(why) | PacketMeaning::Ended(why) => {
                    return self.lose(&format!("{:?}", why.reason), now, rng);
                }
                PacketMeaning::Nonsense(words) => return self.lose(&words, now, rng),
                _ => {}
            }
        }
    }

    fn hold(&mut self, message: SinkMessage, now: Timestamp) {
        if message.packet_id.is_none() {
            // Nobody keeps them, and there may be any number.
            if self.held_unkept >= HELD_UNKEPT_MAX || self.held_bytes >= HELD_BYTES_MAX {
                self.counts.lost += 1;
                return;
            }
            self.held_unkept += 1;
        }
        self.held_bytes += message.size();
        self.held.push_back((now, message));
    }

    /// The connection to this broker could not be made, or is gone.
    pub fn handle_lost<R: Rng + ?Sized>(&mut self, why: &str, now: Timestamp, rng: &mut R) {
        if !matches!(self.attach, AttachPhase::Detached { .. }) {
            self.lose(why, now, rng);
        }
    }

    /// What it holds comes again, under other numbers; what is of QoS 0 does not.
    fn lose<R: Rng + ?Sized>(&mut self, why: &str, now: Timestamp, rng: &mut R) {
        self.counts.lost += self.held_unkept as u64;
        self.held.clear();
        (self.held_bytes, self.held_unkept) = (0, 0);
        match core::mem::replace(&mut self.flight, Flight::None) {
            Flight::Waiting(batch) => self.count_lost(&batch),
            Flight::Out { batch, since, .. } => self.flight = Flight::Out { batch, since, is_orphan: true },
            Flight::None => {}
        }
        self.trouble = Some(format!("this broker: {why}"));
        self.attach = AttachPhase::Detached { until: now + self.reconnect.on_failure(now, None, rng) };
        let _ = self.link.take_output();
        self.actions.push_back(SinkAction::Close);
    }

    fn count_lost(&mut self, batch: &SinkBatch) {
        self.counts.lost += batch.messages.iter().filter(|message| message.packet_id.is_none()).count() as u64;
    }

    /// Does what is due.
    pub fn turn<R: Rng + ?Sized>(&mut self, now: Timestamp, rng: &mut R) {
        match self.attach {
            AttachPhase::Detached { until } if until <= now => {
                self.attach = AttachPhase::Attaching { deadline: now + ATTACH_TIMEOUT };
                self.actions.push_back(SinkAction::Attach);
            }
            AttachPhase::Attaching { deadline } if deadline <= now => self.lose("no answer in time", now, rng),
            _ => {}
        }
        match &mut self.flight {
            Flight::None => {
                if let BatchVerdict::Go(count) = self.verdict(now) {
                    self.send(count, now);
                }
            }
            Flight::Waiting(batch) if self.pace.paused_until(now).is_none() => {
                let batch = core::mem::take(batch);
                self.pace.on_sent(batch.messages.len(), now);
                self.flight = Flight::Out { batch, since: now, is_orphan: false };
                self.actions.push_back(SinkAction::Deliver);
            }
            Flight::Waiting(_) | Flight::Out { .. } => {}
        }
    }

    fn verdict(&self, now: Timestamp) -> BatchVerdict {
        let sizes = self.held.iter().map(|(_, message)| message.size());
        self.pace.verdict(sizes, self.held.front().map(|(since, _)| *since), now)
    }

    fn send(&mut self, count: usize, now: Timestamp) {
        let messages: Vec<SinkMessage> = self.held.drain(..count).map(|(_, message)| message).collect();
        for message in &messages {
            self.held_bytes -= message.size();
            self.held_unkept -= usize::from(message.packet_id.is_none());
        }
        self.batches += 1;
        self.pace.on_sent(count, now);
        self.flight = Flight::Out { batch: SinkBatch { number: self.batches, messages }, since: now, is_orphan: false };
        self.actions.push_back(SinkAction::Deliver);
    }

    /// What the driver has to do next.
    pub fn poll_action(&mut self) -> Option<SinkAction> {
        self.actions.pop_front()
    }

    /// What is to be delivered; none if nothing is.
    pub fn batch(&self) -> Option<&SinkBatch> {
        match &self.flight {
            Flight::Out { batch, .. } => Some(batch),
            Flight::None | Flight::Waiting(_) => None,
        }
    }

    /// Bytes for this broker.
    pub fn take_output(&mut self) -> Vec<u8> {
        self.link.take_output()
    }

    /// Whether its session has its subscriptions: what is published from now on waits for it.
    pub fn is_subscribed(&self) -> bool {
        self.asked == Some(0)
    }

    /// Whether more of this broker can be taken in.
    pub fn wants_read(&self) -> bool {
        self.held_bytes < HELD_BYTES_MAX
    }

    /// When to turn again, if nothing happens.
    pub fn poll_timeout(&self, now: Timestamp) -> Option<Timestamp> {
        let attach = match self.attach {
            AttachPhase::Detached { until } => Some(until),
            AttachPhase::Attaching { deadline } => Some(deadline),
            AttachPhase::Attached => None,
        };
        let send = match (&self.flight, self.verdict(now)) {
            (Flight::Waiting(_), _) => Some(self.pace.paused_until(now).unwrap_or(now)),
            (Flight::None, BatchVerdict::At(at)) => Some(at),
            (Flight::None, BatchVerdict::Go(_)) => Some(now),
            (Flight::None, BatchVerdict::Empty) | (Flight::Out { .. }, _) => None,
        };
        attach.into_iter().chain(send).min()
    }

    /// How it is now.
    pub fn status(&self, now: Timestamp) -> SinkStatus {
        let under_way = match &self.flight {
            Flight::None => 0,
            Flight::Waiting(batch) | Flight::Out { batch, .. } => batch.messages.len(),
        };
        SinkStatus {
            phase: self.phase,
            age: now.since(self.since),
            next_try: self.pace.paused_until(now).map(|until| until.since(now)),
            counts: self.counts,
            batch_size: self.pace.size(),
            under_way,
            held: self.held.len(),
            latency: self.latency,
            trouble: self.trouble.clone(),
            refusal: self.refusal.clone(),
        }
    }
}
