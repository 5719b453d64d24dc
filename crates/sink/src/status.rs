//! How a sink is, for those who look after it.

use std::time::Duration;

/// Whether messages get through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SinkPhase {
    /// Nothing was tried yet.
    #[default]
    Starting,
    /// What was sent last was taken, or refused by somebody who is there.
    Up,
    /// What was sent last was not taken; it goes again.
    Down,
}

impl SinkPhase {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// Counters of one sink, since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkCounts {
    /// Messages that were taken.
    pub sent: u64,
    /// Batches that were taken.
    pub batches: u64,
    /// Batches that were not taken now, and go again.
    pub failures: u64,
    /// Messages that the receiver does not want, for good.
    pub refused: u64,
    /// Messages of which nothing can be made for this receiver.
    pub unmapped: u64,
    /// Messages of QoS 0 that were lost for want of room, or with the session's connection.
    pub lost: u64,
}

/// A look at a sink.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SinkStatus {
    /// Whether messages get through.
    pub phase: SinkPhase,
    /// For how long it is so.
    pub age: Duration,
    /// When the next batch goes, after a failure.
    pub next_try: Option<Duration>,
    /// Counters.
    pub counts: SinkCounts,
    /// Messages that the next batch may have.
    pub batch_size: usize,
    /// Messages under way.
    pub under_way: usize,
    /// Messages in its hands and not under way.
    pub held: usize,
    /// How long the last answer took.
    pub latency: Option<Duration>,
    /// What is wrong.
    pub trouble: Option<String>,
    /// What the receiver said of the last message that it does not want: it stays, while what is taken after it ends a trouble.
    pub refusal: Option<String>,
}
