//! What the generator counts.

use super::histogram::Histogram;

/// What became of the messages of one flow.
#[derive(Clone, Debug)]
pub(super) struct FlowTally {
    /// Given to the socket, over all publishers.
    pub(super) sent: u64,
    /// Received for the first time.
    pub(super) received: u64,
    /// Messages received for the first time while measuring.
    pub(super) measured: u64,
    pub(super) duplicated: u64,
    pub(super) reordered: u64,
    /// Due, but never sent: the publisher's buffer was full.
    pub(super) unsent: u64,
    /// Windows that were given up.
    pub(super) stalls: u64,
    /// From the intended time of sending to reading, or to the end of the work on it, ns, while measuring.
    pub(super) latency: Histogram,
    /// From sending to the acknowledgement, ns, while measuring; known of publishers that have one message under way.
    pub(super) acks: Histogram,
    /// How late the generator itself was, ns, while measuring; known of flows with a pace.
    pub(super) late: Histogram,
}

impl FlowTally {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        Self {
            sent: 0,
            received: 0,
            measured: 0,
            duplicated: 0,
            reordered: 0,
            unsent: 0,
            stalls: 0,
            latency: Histogram::new(),
            acks: Histogram::new(),
            late: Histogram::new(),
        }
    }

    /// The same counts, with nothing measured yet.
    pub(super) fn unmeasured(&self) -> Self {
        Self { measured: 0, latency: Histogram::new(), acks: Histogram::new(), late: Histogram::new(), ..self.clone() }
    }

    /// What was sent, or should have been, and never arrived.
    pub(super) fn missing(&self) -> u64 {
        (self.sent + self.unsent).saturating_sub(self.received)
    }
}
