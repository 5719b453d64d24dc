//! What each thread of the host does next, as the product's threads do it: the writer, its disk, readers, the evaluator and the drafter.

use std::time::Duration;

use tidegate_graph::{CancelToken, QueryLimits, SubscriberId};

use super::host::{Asked, DRAFTER, EVALUATOR, SHARD, SpaceHost, WRITER, WriterTurn};
use crate::limits::{READERS, TIME_MAX};
use crate::machine::front_desk::{Control, NextRead, NextWrite, Side};
use crate::machine::order::Taken;
use crate::machine::request::{Refused, ResponseBody, SpaceResponse};
use crate::machine::writer::{StoreHealth, WriterReply, WriterWork};

/// A sync of the disk, and what the writer does besides: twenty times what they are on a usual machine.
const SYNC: Duration = Duration::from_millis(2);
const PIECE: Duration = Duration::from_millis(4);
/// An update that is found to be long is tried for so long.
const TRY: Duration = Duration::from_millis(10);
/// What was worked out before is put in place.
const COMMIT: Duration = Duration::from_millis(1);

impl SpaceHost {
    /// Whoever is free begins what there is to do.
    pub(super) fn drive(&mut self) {
        if let Some(shard) = &mut self.shard
            && self.processors.is_free(SHARD)
            && let Some(work) = shard.poll_work(self.now)
        {
            self.processors.begin(SHARD, work, self.now + TIME_MAX);
        }
        self.drive_writer();
        for reader in 0..READERS {
            while self.processors.is_free(reader) {
                let next = self.desk.next_read(self.now);
                self.answer_late(Side::Read);
                match next {
                    NextRead::Work(taken, snapshot) => {
                        let (work, until) = (taken.value.requester.work, taken.value.until);
                        self.processors.begin(reader, work, until);
                        self.reading[reader] = Some((taken, snapshot, self.now));
                    }
                    // The writer shows the data between two turns.
                    NextRead::Call if self.processors.is_free(WRITER) => self.drive_writer(),
                    NextRead::Call | NextRead::Wait | NextRead::End => break,
                }
            }
        }
    }

    fn drive_writer(&mut self) {
        while self.processors.is_free(WRITER) {
            self.answer_all();
            self.writer.handle_store_health(StoreHealth::Fine);
            if let Some(work) = self.writer.poll_job() {
                return self.begin_job(work);
            }
            self.call_others();
            if !self.writer.is_at_rest() {
                continue;
            }
            let (hold, has_piece) = (self.writer.hold(), self.writer.has_piece());
            let next = self.desk.next_write(self.now, hold, has_piece, &self.writer.flows_apart());
            self.answer_late(Side::Write);
            match next {
                NextWrite::Wait(time) => {
                    self.look = time.map(|time| self.now + time);
                    return;
                }
                NextWrite::Piece => {
                    self.writer.handle_piece(self.now);
                    self.processors.begin(WRITER, PIECE, self.now + TIME_MAX);
                    self.turn = Some(WriterTurn::Piece);
                }
                NextWrite::Work(taken) => {
                    self.writer.sweep(self.now, |_| false);
                    self.writer.handle_request(*taken);
                }
                NextWrite::Look if self.sync.is_none() => self.writer.handle_stored(self.now),
                NextWrite::Look => self.writer.handle_store_busy(),
                NextWrite::Snapshot => self.desk.show(self.writer.visible()),
                NextWrite::Control(control) => self.control(control),
                NextWrite::End => return,
            }
        }
    }

    fn control(&mut self, control: Control<u64>) {
        match control {
            Control::Unsubscribe(id, connection) => self.writer.handle_unsubscribe(id, &connection),
            Control::Depart(id, connection) => self.writer.handle_departure(self.now, id, &connection),
            Control::Call(ids) => self.writer.handle_room(ids),
            Control::Evaluated(evaluated) => self.writer.handle_evaluated(self.now, *evaluated),
            Control::Drafted(drafted) => self.writer.handle_drafted(self.now, *drafted),
            Control::Idle => self.writer.handle_idle(),
        }
    }

    fn begin_job(&mut self, work: WriterWork<super::askers::HostRequester, u64>) {
        let (own, is_prepared) = (work.requester().work, work.is_prepared());
        let is_done = self.writer.perform(self.now, work, CancelToken::default());
        let took = match (is_done, is_prepared) {
            (false, _) => TRY,
            (true, true) => COMMIT,
            (true, false) => own,
        };
        self.processors.begin(WRITER, took, self.now + TIME_MAX * 10);
        self.turn = Some(WriterTurn::Job);
    }

    /// Those beside the writer are called, if they are idle.
    fn call_others(&mut self) {
        let is_idle = self.processors.is_free(EVALUATOR) && self.rests.is_none();
        if self.writer.poll_evaluator()
            && is_idle
            && let Some(evaluation) = self.writer.poll_evaluation(self.now)
        {
            let work = Duration::from_secs_f64(self.scenario.standing_ms * 1e-3);
            self.processors.begin(EVALUATOR, work, self.now + TIME_MAX);
            self.evaluation = Some((evaluation, self.now));
        }
        if self.writer.wants_drafter()
            && self.processors.is_free(DRAFTER)
            && self.drafter_rests.is_none()
            && let Some((draft, until)) = self.writer.poll_draft(self.now)
        {
            let work = self.scenario.askers.iter().map(|askers| askers.work_ms).fold(0.0, f64::max);
            self.processors.begin(DRAFTER, Duration::from_secs_f64(work * 1e-3), until);
            self.draft = Some((draft, self.now));
        }
    }

    /// A thread has ended what it was at, or was told to end it.
    pub(super) fn end(&mut self, thread: usize, is_done: bool) {
        let cancel = CancelToken::default();
        if !is_done {
            cancel.cancel();
        }
        match thread {
            WRITER => self.end_turn(),
            EVALUATOR => {
                let Some((evaluation, began)) = self.evaluation.take() else { return };
                self.desk.control(Control::Evaluated(Box::new(evaluation.run(cancel))));
                let took = self.now.since(began);
                self.rests = Some(self.now + took + self.desk.rest(took));
            }
            DRAFTER => {
                let Some((draft, began)) = self.draft.take() else { return };
                let drafted = draft.run(&QueryLimits::default(), cancel);
                self.desk.control(Control::Drafted(Box::new(drafted)));
                self.drafter_rests = Some(self.now + self.desk.rest(self.now.since(began)));
            }
            SHARD => {
                if let Some(shard) = &mut self.shard {
                    shard.on_done(self.now);
                }
            }
            reader => {
                let Some((taken, _, began)) = self.reading[reader].take() else { return };
                let took = self.now.since(began);
                if is_done {
                    self.desk.served(taken.job, Side::Read, took);
                } else {
                    self.desk.cancelled(taken.job, Side::Read, took);
                }
                for task in std::iter::once(taken.value).chain(taken.joined) {
                    self.answer(&task, if is_done { Ok(()) } else { Err(&Refused::Late) });
                }
            }
        }
    }

    /// What takes long and was not taken for that is stopped, and waits again.
    pub(super) fn watch_readers(&mut self) {
        while let Some(number) = self.desk.poll_yielding(self.now) {
            let is_it = |taken: &Taken<Asked>| taken.job.number() == number;
            let place = self.reading.iter().position(|it| it.as_ref().is_some_and(|(taken, ..)| is_it(taken)));
            let Some(reader) = place else { continue };
            let Some((taken, _, began)) = self.reading[reader].take() else { continue };
            self.processors.stop(reader);
            let tasks = std::iter::once(taken.value).chain(taken.joined).collect();
            self.desk.take_back(taken.job, tasks, self.now.since(began));
        }
    }

    fn end_turn(&mut self) {
        match self.turn.take() {
            Some(WriterTurn::Piece) => self.writer.end_piece(self.now),
            Some(WriterTurn::Job) => {
                while let Some(write) = self.writer.poll_write() {
                    self.writer.handle_written(write);
                    self.is_unsynced = true;
                }
                if self.sync.is_none() {
                    self.begin_sync();
                }
                self.writer.turn(self.now);
            }
            None => {}
        }
    }

    /// False if the disk has everything.
    pub(super) fn begin_sync(&mut self) -> bool {
        let is_begun = std::mem::take(&mut self.is_unsynced);
        if is_begun {
            self.sync = Some(self.now + SYNC);
        }
        is_begun
    }

    fn answer_all(&mut self) {
        if self.writer.poll_version().is_some() {
            let writer = &self.writer;
            self.desk.handle_changed(|| writer.visible());
        }
        while self.writer.poll_event().is_some() {}
        while let Some(WriterReply { task, outcome, job, cost, is_done, .. }) = self.writer.poll_reply() {
            if is_done {
                self.desk.served(job, Side::Write, cost);
            } else {
                self.desk.cancelled(job, Side::Write, cost);
            }
            if let Ok(SpaceResponse { answer: ResponseBody::Subscribed(subscribed), .. }) = &outcome {
                self.subscriber = Some(subscribed.id);
            }
            self.answer(&task, outcome.as_ref().map(|_| ()));
        }
        while let Some(id) = self.writer.poll_ready() {
            self.tell(id);
        }
    }

    /// Every connection has room.
    fn tell(&mut self, id: SubscriberId) {
        while self.writer.connection(id).is_some() && self.writer.poll_notification(id).is_some() {}
    }
}
