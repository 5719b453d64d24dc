//! What became of messages.

/// Counters of one bridge, since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BridgeCounts {
    /// Messages to the other broker that are done: acknowledged, or sent at QoS 0.
    pub sent: u64,
    /// Messages of the other broker that this one has taken.
    pub received: u64,
    /// Refusals of the other broker that pass, such as 0x97: these messages are sent again.
    pub deferred: u64,
    /// Messages that the other broker does not want, for good.
    pub refused: u64,
    /// Messages of the other broker that this one does not want, for good.
    pub refused_here: u64,
    /// Messages that came through too many bridges.
    pub looped: u64,
    /// Messages of a topic that is no topic of this bridge (any more).
    pub unmapped: u64,
    /// Messages that are larger than the other side takes.
    pub too_large: u64,
    /// Messages of QoS 0 that were lost when a connection broke, or for want of room.
    pub lost: u64,
    /// Messages of the other broker for which there was no room. They have no answer: when all others are done with, the bridge connects
    /// anew, and they are sent again.
    pub overrun: u64,
    /// Connections that stood and broke, or could not be made.
    pub failures: u64,
    /// Connections that stood.
    pub connects: u64,
}

impl BridgeCounts {
    /// Messages that got through, either way.
    pub(crate) fn passed(&self) -> u64 {
        self.sent + self.received
    }
}
