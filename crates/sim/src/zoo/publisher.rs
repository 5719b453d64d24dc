//! One publisher of the zoo: what it sends when, how many it has under way, and what it makes of what it is told.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_control::hints::Hints;
use tidegate_wire_mqtt::{Ack, AckKind, Encode, PacketId, ReasonCode};

use super::message::{Template, peer};
use super::model::{Cohort, Manners, Speaks};
use super::rhythm::{DueTimes, NextDue};
use super::tally::CohortTally;

/// Messages at QoS 1 and 2 that are under way: fewer than every broker here takes at a time.
const UNDER_WAY_MAX: usize = 100;
/// Whoever is told an interval goes so much faster after each second in which it is told nothing.
const QUICKEN: f64 = 1.5;
const NANOS: u64 = 1_000_000_000;
/// A message that could not be sent for so long is a sign that its publisher is held back.
const LATE_NS: u64 = 100_000_000;
/// Messages that one call sends, so that all get their turn.
const BATCH: usize = 256;

#[derive(Clone, Copy, Debug)]
struct SentPublish {
    packet_id: u16,
    due_ns: u64,
    topic: u32,
    sequence: u64,
}

/// The state of one publisher.
#[derive(Clone, Debug)]
pub(super) struct ZooPublisher {
    rhythm: DueTimes,
    template: Template,
    topics: u32,
    qos: u8,
    speaks: Speaks,
    manners: Manners,
    sequence: u64,
    next_id: u16,
    under_way: VecDeque<SentPublish>,
    /// What was refused, of those who send it again.
    again: VecDeque<SentPublish>,
    not_before_ns: u64,
    /// The interval that it keeps because it was told to, and when it was told last.
    interval: Option<(f64, u64)>,
    /// Messages since it came under this name.
    pub(super) since_named: u32,
}

impl ZooPublisher {
    pub(super) fn new(cohort: &Cohort, rhythm: DueTimes, template: Template) -> Self {
        Self {
            rhythm,
            template,
            topics: cohort.topics,
            qos: cohort.qos,
            speaks: cohort.speaks,
            manners: cohort.manners,
            sequence: 0,
            next_id: 0,
            under_way: VecDeque::new(),
            again: VecDeque::new(),
            not_before_ns: 0,
            interval: None,
            since_named: 0,
        }
    }

    /// When it wants to send; none before it hears something.
    pub(super) fn wakes_at(&self, now_ns: u64) -> Option<u64> {
        if self.qos > 0 && self.under_way.len() >= UNDER_WAY_MAX {
            return None;
        }
        let due = if self.again.is_empty() {
            match self.rhythm.next() {
                NextDue::At(at) | NextDue::Silent(at) => at,
                NextDue::Full { from_ns, .. } => from_ns.max(now_ns),
            }
        } else {
            now_ns
        };
        Some(due.max(self.not_before_ns))
    }

    /// Sends what is due, as far as there is room for so many bytes. True if it had to stop for want of it.
    pub(super) fn send(&mut self, now_ns: u64, room: usize, out: &mut Vec<u8>, tally: &mut CohortTally) -> bool {
        self.quicken(now_ns);
        let start = out.len();
        for _ in 0..BATCH {
            if now_ns < self.not_before_ns || (self.qos > 0 && self.under_way.len() >= UNDER_WAY_MAX) {
                return false;
            }
            if out.len() - start + self.template.len() > room {
                return true;
            }
            let message = if let Some(sent) = self.again.pop_front() {
                SentPublish { packet_id: 0, ..sent }
            } else {
                let due_ns = match self.rhythm.next() {
                    NextDue::At(at) if at <= now_ns => at,
                    NextDue::Full { from_ns, until_ns } if (from_ns..until_ns).contains(&now_ns) => now_ns,
                    NextDue::Full { until_ns: end, .. } | NextDue::Silent(end) if end <= now_ns => {
                        self.rhythm.advance();
                        continue;
                    }
                    _ => return false,
                };
                if !matches!(self.rhythm.next(), NextDue::Full { .. }) {
                    self.rhythm.advance();
                }
                self.sequence += 1;
                tally.on_offered(due_ns);
                let topic = (self.sequence % u64::from(self.topics.max(1))) as u32;
                SentPublish { packet_id: 0, due_ns, topic, sequence: self.sequence }
            };
            if now_ns.saturating_sub(message.due_ns) > LATE_NS {
                tally.on_sign(now_ns);
            }
            self.emit(message, out);
            if let Some((interval, _)) = self.interval {
                self.not_before_ns = now_ns + (interval * 1e9) as u64;
            }
        }
        false
    }

    fn emit(&mut self, message: SentPublish, out: &mut Vec<u8>) {
        self.next_id = self.next_id.checked_add(1).unwrap_or(1);
        let packet_id = PacketId::new(self.next_id).unwrap_or(PacketId::MIN);
        self.template.emit(out, packet_id, message.topic, message.due_ns, message.sequence);
        self.since_named += 1;
        if self.qos > 0 {
            self.under_way.push_back(SentPublish { packet_id: packet_id.get(), ..message });
        }
    }

    /// An answer to one of its messages.
    pub(super) fn hear(&mut self, ack: &Ack<'_>, now_ns: u64, out: &mut Vec<u8>, tally: &mut CohortTally) {
        match ack.kind {
            AckKind::PubAck | AckKind::PubRec => {}
            AckKind::PubRel | AckKind::PubComp => return,
        }
        let is_refused = ack.reason as u8 >= ReasonCode::UnspecifiedError as u8;
        if let Some(at) = self.under_way.iter().position(|sent| sent.packet_id == ack.packet_id.get())
            && let Some(sent) = self.under_way.remove(at)
            && is_refused
        {
            tally.on_refused(sent.due_ns);
            if self.manners != Manners::Ignores {
                self.again.push_back(sent);
            }
        }
        if ack.kind == AckKind::PubRec && !is_refused {
            let _ = Ack::success(AckKind::PubRel, ack.packet_id).encode(peer(self.speaks), out);
        }
        let mut hints = Hints::default();
        for (name, text) in ack.properties.user_properties() {
            hints.read(name, text);
        }
        self.take_hints(&hints, now_ns, tally);
    }

    /// What it is told about its pace.
    pub(super) fn take_hints(&mut self, hints: &Hints, now_ns: u64, tally: &mut CohortTally) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if hints.retry_after.is_some() || hints.interval.is_some() {
            tally.on_hint(now_ns, hints.retry_after);
        }
        if self.manners != Manners::Obeys {
            return;
        }
        if let Some(wait) = hints.retry_after {
            self.not_before_ns = self.not_before_ns.max(now_ns.saturating_add(nanos(wait)));
        }
        if let Some(interval) = hints.interval {
            self.interval = Some((interval.as_secs_f64(), now_ns));
        }
    }

    /// Who hears nothing for a second tries to go faster.
    fn quicken(&mut self, now_ns: u64) {
        if let Some((interval, told_ns)) = &mut self.interval
            && now_ns.saturating_sub(*told_ns) > NANOS
        {
            (*interval, *told_ns) = (*interval / QUICKEN, now_ns);
            // Below a tenth of a millisecond nobody is held back.
            if *interval < 1e-4 {
                self.interval = None;
            }
        }
    }

    /// Its connection is gone: what was under way is sent again, or lost by who does not care.
    pub(super) fn on_lost(&mut self) {
        self.since_named = 0;
        if self.manners == Manners::Ignores {
            self.under_way.clear();
        } else {
            self.again.extend(self.under_way.drain(..));
        }
    }

    /// At the end: what was due and never sent.
    pub(super) fn count_unsent(&mut self, end_ns: u64, tally: &mut CohortTally) {
        loop {
            match self.rhythm.next() {
                NextDue::At(at) if at < end_ns => tally.on_offered(at),
                NextDue::Full { until_ns: end, .. } | NextDue::Silent(end) if end < end_ns => {}
                _ => return,
            }
            self.rhythm.advance();
        }
    }
}
