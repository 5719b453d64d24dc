//! A subscriber that works on one message after the other: what waits for it, and when which is done.

use std::collections::VecDeque;

use tidegate_wire_mqtt::PacketId;

use super::packets::PayloadHead;

/// A message that waits to be worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnworkedMessage {
    pub(super) packet_id: PacketId,
    pub(super) head: PayloadHead,
    done_ns: u64,
}

/// Messages that wait for their turn, in the order in which they came. What a broker may send ahead bounds them.
#[derive(Clone, Debug)]
pub(super) struct WorkerQueue {
    step_ns: u64,
    free_ns: u64,
    tasks: VecDeque<UnworkedMessage>,
}

impl WorkerQueue {
    /// So many a second.
    pub(super) fn new(per_s: f64) -> Self {
        Self { step_ns: (1e9 / per_s) as u64, free_ns: 0, tasks: VecDeque::new() }
    }

    /// A message came.
    pub(super) fn put(&mut self, packet_id: PacketId, head: PayloadHead, now_ns: u64) {
        self.free_ns = self.free_ns.max(now_ns) + self.step_ns;
        self.tasks.push_back(UnworkedMessage { packet_id, head, done_ns: self.free_ns });
    }

    /// The next message that is done by now.
    pub(super) fn take(&mut self, now_ns: u64) -> Option<UnworkedMessage> {
        if self.tasks.front()?.done_ns > now_ns { None } else { self.tasks.pop_front() }
    }

    /// When the next one is done.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.tasks.front().map(|task| task.done_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_one_after_the_other_at_its_rate() {
        let mut worker = WorkerQueue::new(1e6);
        let head = PayloadHead { time_ns: 0, sequence: 0, stream: 0 };
        worker.put(PacketId::MIN, head, 5_000);
        worker.put(PacketId::MIN, head, 5_100);
        assert_eq!(worker.due_ns(), Some(6_000));
        assert_eq!(worker.take(5_999), None);
        assert!(worker.take(6_000).is_some());
        assert_eq!(worker.due_ns(), Some(7_000), "the second begins when the first is done");
        assert!(worker.take(9_000).is_some());
        worker.put(PacketId::MIN, head, 20_000);
        assert_eq!(worker.due_ns(), Some(21_000), "who had nothing to do does not save up");
    }
}
