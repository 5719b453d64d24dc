//! One shard's way to the store.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_core::Shard;
use tidegate_store::{KeptBatch, Producer, RecordBatch};

use super::records::Record;
use super::rhythms::Rhythms;
use super::{Messages, PageReader, StoreHandle, Written, batches};

/// How long what was handed over may take before somebody looks how the disk is; and how often, while it fails.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Places that an empty table keeps.
const ROOM_KEPT: usize = 1024;
/// How often the time of day is written down.
const CLOCK_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct ShardWriter {
    store: Arc<StoreHandle>,
    producer: Producer,
    /// Where pages of long queues come from.
    page_reader: PageReader,
    /// Batches that the store had no room for, with the turn that the last of them ends.
    backlog: VecDeque<(RecordBatch, BatchEnd)>,
    /// Those that it has, in order.
    sent: VecDeque<(u64, BatchEnd)>,
    /// The first turn that was handed over as one that nobody waits for, and behind which none came that somebody does.
    unawaited: Option<u64>,
    done: Vec<KeptBatch>,
    look_at: Option<Timestamp>,
    /// How often the health had changed when somebody looked.
    health_changes: u64,
    is_failing: bool,
    /// How long the disk was with one thing when somebody looked.
    lag: Duration,
    /// When the time of day is written down; on the first thread only.
    clock_at: Option<Timestamp>,
    rhythms: Rhythms,
}

/// What follows when a batch is kept.
#[derive(Debug, Default)]
struct BatchEnd {
    /// This turn is, too.
    turn: Option<u64>,
    /// It is known where these are.
    messages: Messages,
}

impl ShardWriter {
    /// `has_clock`: one of them writes the time of day down.
    pub(crate) fn new(
        store: Arc<StoreHandle>,
        (producer, page_reader): (Producer, PageReader),
        first: Vec<RecordBatch>,
        has_clock: bool,
        now: Timestamp,
    ) -> Self {
        let backlog = first.into_iter().map(|batch| (batch, BatchEnd::default())).collect();
        let (sent, done) = (VecDeque::new(), Vec::new());
        let (clock_at, rhythms) = (has_clock.then_some(now), Rhythms::new(now));
        Self {
            store,
            producer,
            page_reader,
            backlog,
            sent,
            unawaited: None,
            done,
            look_at: None,
            health_changes: 0,
            is_failing: false,
            lag: Duration::ZERO,
            clock_at,
            rhythms,
        }
    }

    /// Tells the shard what is kept by now, and how the disk is.
    pub(crate) fn hear(&mut self, shard: &mut Shard, now: Timestamp) {
        self.producer.poll(&mut self.done);
        let mut position = None;
        for done in self.done.drain(..) {
            // One for each ticket, in order.
            let Some((ticket, end)) = self.sent.pop_front() else { break };
            debug_assert_eq!(ticket, done.ticket);
            end.messages.tell(done.at);
            position = end.turn.or(position);
        }
        self.give_back();
        if let Some(position) = position {
            shard.handle_synced(position, now);
        }
        self.page_reader.hear(shard, &self.store.wall(), now);
        let changes = self.producer.health_changes();
        if self.look_at.is_some_and(|at| at <= now) || changes != self.health_changes {
            // At once: a store that is full has little room for those who do not know it yet.
            self.health_changes = changes;
            let trouble = self.store.trouble();
            self.is_failing = trouble.is_some();
            shard.handle_store_health(trouble);
            self.lag = self.store.busy_for();
        }
        let is_waiting = self.is_failing || !self.sent.is_empty() || !self.backlog.is_empty();
        if !is_waiting {
            self.lag = Duration::ZERO;
        }
        shard.handle_store_lag(self.lag);
        self.look_at =
            if is_waiting { Some(self.look_at.filter(|at| *at > now).unwrap_or(now + LOOK_EVERY)) } else { None };
    }

    /// Hands over what this turn has changed. Before anything goes to other shards: the log has to have it first.
    pub(crate) fn write(&mut self, shard: &mut Shard, now: Timestamp) {
        if let Some(turn) = shard.poll_journal() {
            let mut batches = batches(&turn, &self.store.wall()).into_iter().peekable();
            while let Some((batch, messages)) = batches.next().map(Written::split) {
                let turn = batches.peek().is_none().then_some(turn.position);
                self.backlog.push_back((batch, BatchEnd { turn, messages }));
            }
        }
        if self.clock_at.is_some_and(|at| at <= now) {
            self.clock_at = Some(now + CLOCK_EVERY);
            let mut batch = RecordBatch::new();
            if (Record::Clock { now_ms: self.store.wall().ms(now) }).push_to(&mut batch).is_ok() {
                self.backlog.push_back((batch, BatchEnd::default()));
            }
        }
        if let Some(batch) = self.rhythms.write(shard, &self.store.wall(), now) {
            self.backlog.push_back((batch, BatchEnd::default()));
        }
        self.submit(shard.awaited_turn());
        if self.look_at.is_none() && !(self.sent.is_empty() && self.backlog.is_empty()) {
            self.look_at = Some(now + LOOK_EVERY);
        }
    }

    /// Hands over what there is room for. Turns up to this one are waited for; what nobody waits for is not worth a sync of
    /// its own.
    fn submit(&mut self, awaited: u64) {
        while let Some((batch, end)) = self.backlog.pop_front() {
            let is_awaited = end.turn.is_some_and(|turn| turn <= awaited);
            let result = if is_awaited { self.producer.submit(batch) } else { self.producer.submit_unawaited(batch) };
            match result {
                Ok(ticket) => {
                    self.unawaited = if is_awaited { None } else { self.unawaited.or(end.turn) };
                    self.sent.push_back((ticket, end));
                }
                Err((_, batch)) => {
                    self.backlog.push_front((batch, end));
                    break;
                }
            }
        }
        if self.unawaited.is_some_and(|turn| turn <= awaited) {
            self.producer.hurry();
            self.unawaited = None;
        }
    }

    /// Asks for the pages that the shard wants. At the end of a turn: what was written may have made room for them.
    pub(crate) fn fetch(&mut self, shard: &mut Shard, now: Timestamp) {
        self.page_reader.ask(shard, now);
    }

    /// What was learned of publishers, before an orderly end; handed over with the next turn.
    pub(crate) fn write_rhythms(&mut self, shard: &mut Shard, now: Timestamp) {
        let batches = self.rhythms.write_all(shard, &self.store.wall(), now);
        self.backlog.extend(batches.into_iter().map(|batch| (batch, BatchEnd::default())));
    }

    /// A flood leaves tables behind that nothing else needs.
    fn give_back(&mut self) {
        if self.sent.is_empty() && self.sent.capacity() > ROOM_KEPT {
            self.sent = VecDeque::new();
        }
        if self.backlog.is_empty() && self.backlog.capacity() > ROOM_KEPT {
            self.backlog = VecDeque::new();
        }
        if self.done.capacity() > ROOM_KEPT {
            self.done = Vec::new();
        }
    }

    /// Whether everything that was handed over is kept.
    pub(crate) fn is_idle(&self) -> bool {
        self.sent.is_empty() && self.backlog.is_empty()
    }

    /// How long this shard has waited for the disk.
    pub(crate) fn lag(&self) -> Duration {
        self.lag
    }

    /// When to call again without being told.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        [self.look_at, self.clock_at, self.page_reader.due(), Some(self.rhythms.due())].into_iter().flatten().min()
    }
}
