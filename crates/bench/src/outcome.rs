//! What a case brought, as plain values.

use super::durable::DurableOutcome;
use super::gate::GateOutcome;
use super::space::SpaceFigures;

/// What a case brought.
#[derive(Clone, Debug)]
pub(super) enum CaseOutcome {
    Traffic(TrafficOutcome),
    /// The same traffic beside more and more subscriptions that do not match.
    Subscriptions(Vec<(usize, TrafficOutcome)>),
    Idle(IdleOutcome),
    Churn(ChurnOutcome),
    Storm(Storm),
    Overload(Overload),
    /// What the gate is for.
    Gate(GateOutcome),
    /// What is kept on disk.
    Durable(DurableOutcome),
    /// The smart space, and what looking costs: figures by name.
    Space(SpaceFigures),
}

/// Who used the processor while a case was measured, in cores.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cores {
    /// The broker; `None` if it cannot be known.
    pub(super) broker: Option<f64>,
    /// The load tool: this process.
    pub(super) tool: f64,
    /// All other processes: the reason to believe a figure or not.
    pub(super) others: Option<f64>,
}

/// The broker's CPU time for something, split as the kernel does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct CpuCost {
    pub(super) user: f64,
    pub(super) system: f64,
}

impl CpuCost {
    /// Both together.
    pub(super) fn total(&self) -> f64 {
        self.user + self.system
    }

    /// The same, spread over so many.
    pub(super) fn per(&self, count: f64) -> Self {
        Self { user: self.user / count, system: self.system / count }
    }
}

/// Messages through a broker.
#[derive(Clone, Debug)]
pub(super) struct TrafficOutcome {
    pub(super) delivered_per_s: f64,
    /// The broker's CPU seconds per million deliveries.
    pub(super) s_per_million: Option<CpuCost>,
    pub(super) cores: Cores,
    pub(super) rss_kib: Option<u64>,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
    /// From sending to the acknowledgement, p50 and p99, of publishers that have one message under way.
    pub(super) ack_us: Option<(f64, f64)>,
    pub(super) faults: Faults,
    /// Why messages were lost, if some were and the broker says so.
    pub(super) reasons: Option<String>,
}

/// What should be zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Faults {
    pub(super) lost: u64,
    /// Not lost: the broker holds them back, because it is pressed and their publisher broke its rhythm.
    pub(super) held: u64,
    pub(super) duplicated: u64,
    pub(super) reordered: u64,
    pub(super) unsent: u64,
    pub(super) stalls: u64,
    pub(super) closed: u64,
}

/// Connections that say nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdleOutcome {
    pub(super) connections: usize,
    /// More than there are when the limit of open files is too low.
    pub(super) wanted: usize,
    pub(super) connects_per_s: f64,
    pub(super) kib_each: Option<f64>,
    pub(super) cores: Cores,
}

/// Clients that connect and disconnect.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChurnOutcome {
    pub(super) connects_per_s: f64,
    /// The broker's CPU microseconds per connect and disconnect.
    pub(super) us_each: Option<f64>,
    pub(super) trouble: ConnectFailures,
    pub(super) cores: Cores,
}

/// Clients that come back at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Storm {
    pub(super) clients: usize,
    /// More than there are when the limit of open files is too low.
    pub(super) wanted: usize,
    pub(super) back: usize,
    /// Until 99 % and until all of them were back, in seconds.
    pub(super) most_s: Option<f64>,
    pub(super) all_s: Option<f64>,
    pub(super) rss_kib: Option<u64>,
    pub(super) trouble: ConnectFailures,
    pub(super) cores: Cores,
}

/// How attempts to connect ended that did not succeed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ConnectFailures {
    /// CONNACK "server unavailable" or "busy": an honest "come back later".
    pub(super) later: u64,
    /// CONNACK with any other refusal.
    pub(super) refused: u64,
    /// Nobody listened, or the connection was reset.
    pub(super) reset: u64,
    /// Closed without a word.
    pub(super) closed: u64,
    /// No answer in time.
    pub(super) silent: u64,
    /// This machine had no socket or port left: the tool's trouble, not the broker's.
    pub(super) local: u64,
}

impl ConnectFailures {
    /// What is not an honest "come back later".
    pub(super) fn errors(&self) -> u64 {
        self.refused + self.reset + self.closed + self.silent + self.local
    }
}

/// A flood and what it does to others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overload {
    pub(super) probe_p50_us: f64,
    pub(super) probe_p99_us: f64,
    pub(super) probes: Faults,
    /// The most memory that was resident at any time.
    pub(super) rss_max_kib: Option<u64>,
    pub(super) sent: u64,
    /// During the flood and after it.
    pub(super) delivered: u64,
    /// Of the flood: held back by the broker when all was over.
    pub(super) held: u64,
    /// During the flood: what the slow subscriber let through.
    pub(super) delivered_per_s: f64,
    /// What the broker says that it dropped, if it says so.
    pub(super) counted: Option<u64>,
    pub(super) closed: u64,
    pub(super) cores: Cores,
}

impl Overload {
    /// Messages of the flood that did not arrive, and do not wait either.
    pub(super) fn dropped(&self) -> u64 {
        self.sent.saturating_sub(self.delivered + self.held)
    }
}
