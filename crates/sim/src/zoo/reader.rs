//! One subscriber of the zoo: how fast it takes its messages, and what it answers.

use tidegate_wire_mqtt::{Ack, AckKind, Delivery, Encode, Publish};

use super::message::{Head, peer};
use super::model::{Phases, ReadPace, Readers, Speaks};

/// How far a reader that was held up may catch up with its rate: less than what matters, more than a tick.
const CATCH_UP_NS: u64 = 10_000_000;

/// The state of one subscriber.
#[derive(Clone, Debug)]
pub(super) struct ZooReader {
    pace: ReadPace,
    pub(super) counts: bool,
    speaks: Speaks,
    phases: Phases,
    scale: f64,
    free_ns: u64,
    /// The last number of each publisher, to see whether order is kept; empty where it is not to be.
    last: Vec<u64>,
}

impl ZooReader {
    pub(super) fn new(readers: &Readers, phases: Phases, scale: f64, streams: usize) -> Self {
        let keeps_order = readers.counts && !readers.is_group;
        Self {
            pace: readers.pace,
            counts: readers.counts,
            speaks: readers.speaks,
            phases,
            scale,
            free_ns: 0,
            last: if keeps_order { vec![0; streams] } else { Vec::new() },
        }
    }

    /// Whether it takes a message now; else when. None if never.
    pub(super) fn ready_at(&self, now_ns: u64) -> Option<u64> {
        match self.pace {
            ReadPace::PerSecond(_) => Some(self.free_ns.max(now_ns)),
            ReadPace::Slows(_) if self.is_trouble(now_ns) => Some(self.free_ns.max(now_ns)),
            ReadPace::Fast | ReadPace::NoAcks | ReadPace::Slows(_) => Some(now_ns),
            ReadPace::Dead => None,
            ReadPace::Pauses { secs, times } => {
                let now = now_ns as f64 * 1e-9;
                let gap = self.phases.trouble / f64::from(times.max(1));
                let begins = (0..times).map(|number| self.phases.lead + f64::from(number) * gap);
                let pause = begins.into_iter().find(|begin| (*begin..begin + secs).contains(&now));
                Some(pause.map_or(now_ns, |begin| ((begin + secs) * 1e9) as u64 + 1))
            }
        }
    }

    /// Whether it takes as much as there is.
    pub(super) fn is_eager(&self, now_ns: u64) -> bool {
        match self.pace {
            ReadPace::Fast | ReadPace::NoAcks => true,
            ReadPace::PerSecond(_) | ReadPace::Dead => false,
            ReadPace::Slows(_) => !self.is_trouble(now_ns),
            ReadPace::Pauses { .. } => self.ready_at(now_ns) == Some(now_ns),
        }
    }

    fn is_trouble(&self, now_ns: u64) -> bool {
        (self.phases.lead..self.phases.trouble_end()).contains(&(now_ns as f64 * 1e-9))
    }

    /// A message is taken: its answer, and whether it came after a later one.
    pub(super) fn take(&mut self, publish: &Publish<'_>, head: Option<Head>, now_ns: u64, out: &mut Vec<u8>) -> bool {
        if let ReadPace::PerSecond(rate) | ReadPace::Slows(rate) = self.pace
            && !self.is_eager(now_ns)
        {
            let step = (1e9 / (rate * self.scale).max(1e-3)) as u64;
            self.free_ns = self.free_ns.max(now_ns.saturating_sub(CATCH_UP_NS)) + step;
        }
        if self.pace != ReadPace::NoAcks {
            let answer = match publish.delivery {
                Delivery::AtMostOnce => None,
                Delivery::AtLeastOnce { packet_id, .. } => Some(Ack::success(AckKind::PubAck, packet_id)),
                Delivery::ExactlyOnce { packet_id, .. } => Some(Ack::success(AckKind::PubRec, packet_id)),
            };
            if let Some(ack) = answer {
                let _ = ack.encode(peer(self.speaks), out);
            }
        }
        let Some(head) = head else { return false };
        let Some(last) = self.last.get_mut(head.stream as usize) else { return false };
        let is_late = head.sequence < *last;
        *last = head.sequence.max(*last);
        is_late
    }

    /// The second half of QoS 2.
    pub(super) fn release(&self, ack: &Ack<'_>, out: &mut Vec<u8>) {
        if ack.kind == AckKind::PubRel && self.pace != ReadPace::NoAcks {
            let _ = Ack::success(AckKind::PubComp, ack.packet_id).encode(peer(self.speaks), out);
        }
    }
}
