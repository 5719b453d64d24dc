//! What the receiver's answer does with a batch.

use tidegate_control::Timestamp;
use tidegate_control::rand_core::Rng;
use tidegate_wire_mqtt::QoS;

use super::{Flight, SinkMachine};
use crate::message::SinkBatch;
use crate::status::SinkPhase;
use crate::verdict::SinkVerdict;

impl SinkMachine {
    /// What became of the batch that was to be delivered.
    pub fn handle_answer<R: Rng + ?Sized>(&mut self, verdict: SinkVerdict, now: Timestamp, rng: &mut R) {
        let Flight::Out { batch, since, is_orphan } = core::mem::replace(&mut self.flight, Flight::None) else {
            return;
        };
        match verdict {
            SinkVerdict::Taken { unmapped } => {
                self.latency = Some(now.since(since));
                self.note_taken(&batch, unmapped, now);
                if !is_orphan {
                    self.acknowledge(&batch);
                }
            }
            // The broker sends its messages again.
            _ if is_orphan => self.count_lost(&batch),
            SinkVerdict::Later { after, why } => {
                self.counts.failures += 1;
                self.turn_to(SinkPhase::Down, Some(why), now);
                if self.pace.on_failed(after, now, rng) {
                    self.flight = Flight::Waiting(batch);
                } else {
                    self.put_back(batch, since);
                }
            }
            SinkVerdict::Refused { why } => self.on_refused(batch, why, since, now, rng),
        }
    }

    fn note_taken(&mut self, batch: &SinkBatch, unmapped: usize, now: Timestamp) {
        let count = batch.messages.len();
        self.counts.sent += count.saturating_sub(unmapped) as u64;
        self.counts.unmapped += unmapped.min(count) as u64;
        self.counts.batches += 1;
        self.pace.on_taken();
        (self.is_proven, self.has_waited) = (true, false);
        self.turn_to(SinkPhase::Up, None, now);
    }

    /// Something in it is not wanted: it is looked for by halves. The first one is given up at once; the next one, if nothing was
    /// taken in between, after a pause: who refuses everything is set up wrongly, and loses a message a minute, not all of them.
    fn on_refused<R: Rng + ?Sized>(
        &mut self,
        batch: SinkBatch,
        why: String,
        since: Timestamp,
        now: Timestamp,
        rng: &mut R,
    ) {
        if batch.messages.len() > 1 {
            self.pace.on_refused(batch.messages.len());
            self.trouble = Some(why);
            return self.put_back(batch, since);
        }
        if !self.is_proven && !self.has_waited {
            self.has_waited = true;
            self.counts.failures += 1;
            self.pace.pause(None, now, rng);
            self.turn_to(SinkPhase::Down, Some(why), now);
            self.flight = Flight::Waiting(batch);
            return;
        }
        self.counts.refused += batch.messages.len() as u64;
        (self.is_proven, self.has_waited) = (false, false);
        let phase = if self.phase == SinkPhase::Down { SinkPhase::Down } else { SinkPhase::Up };
        self.refusal = Some(why.clone());
        self.turn_to(phase, Some(why), now);
        self.acknowledge(&batch);
    }

    fn turn_to(&mut self, phase: SinkPhase, trouble: Option<String>, now: Timestamp) {
        if self.phase != phase {
            (self.phase, self.since) = (phase, now);
        }
        self.trouble = trouble;
    }

    /// These messages are done with.
    fn acknowledge(&mut self, batch: &SinkBatch) {
        for id in batch.messages.iter().filter_map(|message| message.packet_id) {
            self.link.acknowledge(QoS::AtLeastOnce, id);
        }
    }

    /// To the front of what is held, in order.
    fn put_back(&mut self, batch: SinkBatch, since: Timestamp) {
        for message in batch.messages.into_iter().rev() {
            self.held_bytes += message.size();
            self.held_unkept += usize::from(message.packet_id.is_none());
            self.held.push_front((since, message));
        }
    }
}
