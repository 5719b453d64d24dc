//! When a publisher may send. Told what was delivered and acknowledged, asked whether the next message may go.

use std::num::NonZeroU16;

use super::cases::{FlowSpec, INFLIGHT, PublishPace, WINDOW};
use super::packets::PublishTemplate;
use tidegate_wire_mqtt::QoS;

/// A window in which nothing was delivered for so long is given up: its messages were lost, the rest can still be
/// measured.
const STALL_NS: u64 = 1_000_000_000;

/// Unacknowledged messages of a publisher with a rate. Beyond it the broker is so far behind that more would only grow
/// the generator's own memory.
const PACED_INFLIGHT_MAX: u64 = 10_000;

/// Whether the next message may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    /// The next message may be sent.
    Send,
    /// Not before something is delivered or acknowledged.
    Wait,
}

/// The state of one stream at its source.
#[derive(Debug)]
pub(super) struct GeneratorPublisher {
    pub(super) flow: usize,
    pub(super) stream: usize,
    pub(super) template: PublishTemplate,
    /// Messages that were handed to the socket's buffer; also the next sequence number.
    pub(super) sent: u64,
    pub(super) acked: u64,
    /// When the last message was given to the socket's buffer.
    pub(super) sent_ns: u64,
    packet_id: NonZeroU16,
    /// Deliveries that are no longer waited for.
    forgiven: u64,
    /// The last count of deliveries, and when it was first seen.
    progress: (u64, u64),
    pub(super) stalls: u64,
}

impl GeneratorPublisher {
    pub(super) fn new(flow: usize, stream: usize, template: PublishTemplate) -> Self {
        let packet_id = NonZeroU16::MAX;
        Self {
            flow,
            stream,
            template,
            sent: 0,
            acked: 0,
            sent_ns: 0,
            packet_id,
            forgiven: 0,
            progress: (0, 0),
            stalls: 0,
        }
    }

    /// Judges by acknowledgements and, with a window, by deliveries.
    #[inline]
    pub(super) fn permission(&mut self, flow: &FlowSpec, delivered: u64, now_ns: u64) -> Permission {
        let has_acks = flow.qos != QoS::AtMostOnce;
        let unacked_max = match flow.pace {
            PublishPace::Window => INFLIGHT,
            PublishPace::OneByOne => 1,
            PublishPace::Rate(_) | PublishPace::Flood | PublishPace::Each(_) => PACED_INFLIGHT_MAX,
        };
        if has_acks && self.sent - self.acked >= unacked_max {
            return Permission::Wait;
        }
        if flow.pace != PublishPace::Window {
            return Permission::Send;
        }
        let open = (self.sent * flow.fan()).saturating_sub(delivered + self.forgiven);
        if open < WINDOW * flow.fan() {
            return Permission::Send;
        }
        if self.progress.0 != delivered || self.progress.1 == 0 {
            self.progress = (delivered, now_ns);
        } else if now_ns - self.progress.1 > STALL_NS {
            self.forgiven += open;
            self.progress = (delivered, now_ns);
            self.stalls += 1;
            return Permission::Send;
        }
        Permission::Wait
    }

    /// Appends the next message.
    #[inline]
    pub(super) fn emit(&mut self, out: &mut Vec<u8>, time_ns: u64) {
        self.packet_id = self.packet_id.checked_add(1).unwrap_or(NonZeroU16::MIN);
        self.template.emit(out, self.packet_id, time_ns, self.sent);
        self.sent += 1;
        self.sent_ns = time_ns;
    }
}

/// Due times of a rate, without drift: the time of message n is always counted from the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateSchedule {
    start_ns: u64,
    step_ns: f64,
    count: u64,
}

impl RateSchedule {
    pub(super) fn new(start_ns: u64, rate: f64) -> Self {
        Self { start_ns, step_ns: 1e9 / rate, count: 0 }
    }

    /// When the next message is due.
    pub(super) fn due_ns(&self) -> u64 {
        self.start_ns + (self.count as f64 * self.step_ns) as u64
    }

    /// The next message's number and intended time, if that time has come.
    pub(super) fn take(&mut self, now_ns: u64) -> Option<(u64, u64)> {
        let (number, due) = (self.count, self.due_ns());
        (due <= now_ns).then(|| {
            self.count += 1;
            (number, due)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::Topology;

    fn publisher(qos: QoS) -> GeneratorPublisher {
        GeneratorPublisher::new(0, 0, PublishTemplate::new("a", qos, 64, 0).unwrap())
    }

    fn flow(shape: Topology, qos: QoS, pace: PublishPace) -> FlowSpec {
        FlowSpec { shape, qos, payload_bytes: 64, pace }
    }

    fn sends(publisher: &mut GeneratorPublisher, flow: &FlowSpec, delivered: u64, now_ns: u64) -> u64 {
        let before = publisher.sent;
        let mut out = Vec::new();
        while publisher.permission(flow, delivered, now_ns) == Permission::Send && publisher.sent - before < 1_000 {
            publisher.emit(&mut out, now_ns);
        }
        publisher.sent - before
    }

    #[test]
    fn a_window_is_filled_and_refilled_by_deliveries() {
        let flow = flow(Topology::FanOut(50), QoS::AtMostOnce, PublishPace::Window);
        let mut publisher = publisher(QoS::AtMostOnce);
        assert_eq!(sends(&mut publisher, &flow, 0, 1), WINDOW);
        assert_eq!(sends(&mut publisher, &flow, 49, 2), 1, "a begun message is a free place");
        assert_eq!(sends(&mut publisher, &flow, 50 * 10, 3), 9);
    }

    #[test]
    fn acknowledgements_limit_higher_qos() {
        let flow = flow(Topology::Pairs(1), QoS::AtLeastOnce, PublishPace::Window);
        let mut publisher = publisher(QoS::AtLeastOnce);
        assert_eq!(sends(&mut publisher, &flow, 0, 1), INFLIGHT);
        publisher.acked = 5;
        assert_eq!(sends(&mut publisher, &flow, 5, 1), 5);
    }

    #[test]
    fn one_by_one_waits_for_each_acknowledgement() {
        let flow = flow(Topology::FanIn(1), QoS::AtLeastOnce, PublishPace::OneByOne);
        let mut publisher = publisher(QoS::AtLeastOnce);
        assert_eq!(sends(&mut publisher, &flow, 0, 1), 1);
        assert_eq!(sends(&mut publisher, &flow, 1, 2), 0);
        publisher.acked = 1;
        assert_eq!(sends(&mut publisher, &flow, 1, 3), 1);
    }

    #[test]
    fn a_stalled_window_is_given_up_and_counted() {
        let flow = flow(Topology::Pairs(1), QoS::AtMostOnce, PublishPace::Window);
        let mut publisher = publisher(QoS::AtMostOnce);
        assert_eq!(sends(&mut publisher, &flow, 0, 1), WINDOW);
        assert_eq!(sends(&mut publisher, &flow, 0, STALL_NS), 0);
        assert_eq!(sends(&mut publisher, &flow, 0, STALL_NS + 2), WINDOW);
        assert_eq!(publisher.stalls, 1);
    }

    #[test]
    fn a_rate_keeps_its_times_when_it_is_late() {
        let mut pacer = RateSchedule::new(1_000, 3.0);
        let times: Vec<_> = std::iter::from_fn(|| pacer.take(1_000_001_000)).collect();
        assert_eq!(times, [(0, 1_000), (1, 333_334_333), (2, 666_667_666), (3, 1_000_001_000)]);
        assert_eq!(pacer.take(1_000_001_000), None);
    }
}
