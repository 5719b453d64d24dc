//! How a bridge is, for those who look after it.

use std::time::Duration;

use tidegate_control::Timestamp;

use super::{BridgeMachine, PairPhase};
use crate::counts::BridgeCounts;

/// How far a bridge has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BridgePhase {
    /// Nothing is open; it tries again after a while.
    #[default]
    Waiting,
    /// It is connecting.
    Connecting,
    /// Both brokers are there.
    Up,
}

impl BridgePhase {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Waiting => "down",
            Self::Connecting => "connecting",
            Self::Up => "up",
        }
    }
}

/// A look at a bridge.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BridgeStatus {
    /// How far it has come.
    pub phase: BridgePhase,
    /// The place of the address in the list.
    pub address: usize,
    /// For how long it stands, or does not.
    pub age: Duration,
    /// When it tries again, while it waits.
    pub next_try: Option<Duration>,
    /// Counters.
    pub counts: BridgeCounts,
    /// Messages that may be under way to the other broker.
    pub window: u16,
    /// Messages that are.
    pub under_way: usize,
    /// Messages that are in the bridge's hands and not sent.
    pub held: usize,
    /// How long an answer of the other broker takes, on average of the last round.
    pub latency: Option<Duration>,
    /// The same when it has nothing else to do.
    pub base: Option<Duration>,
    /// How long nothing goes because the other broker said so.
    pub pause: Option<Duration>,
    /// Why it does not stand, or what is wrong though it does.
    pub trouble: Option<String>,
}

impl BridgeMachine {
    /// How it is now.
    pub fn status(&self, now: Timestamp) -> BridgeStatus {
        let (latency, base) = self.pace_out.latencies();
        let (phase, next_try) = match self.phase {
            PairPhase::Waiting { until } => (BridgePhase::Waiting, Some(until.since(now))),
            PairPhase::Up => (BridgePhase::Up, None),
            _ => (BridgePhase::Connecting, None),
        };
        BridgeStatus {
            phase,
            address: self.address,
            age: now.since(self.since),
            next_try,
            counts: self.counts,
            window: self.pace_out.window().min(self.remote.receive_max),
            under_way: self.out.under_way(),
            held: self.out.held(),
            latency,
            base,
            pause: self.pace_out.paused_until(now).map(|until| until.since(now)),
            trouble: self.trouble.clone(),
        }
    }

    /// Whether both brokers are there.
    pub fn is_up(&self) -> bool {
        self.phase == PairPhase::Up
    }
}
