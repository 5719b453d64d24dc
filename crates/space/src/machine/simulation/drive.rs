//! What the driver does in the field, step by step: what the writer and readers are to do next, what is handed over,
//! answered and told; and what must hold at each of these moments.

use std::rc::Rc;
use std::time::Duration;

use tidegate_control::hints::Hints;
use tidegate_graph::{CancelToken, SubscriberId};

use super::subscriber::{Data, SimulatedSubscriber};
use super::world::{Asked, ROOM, SimulatedRequest, SimulatedRequester, SpaceWorld, data_of};
use crate::machine::front_desk::{Control, NextRead, NextWrite, Side};
use crate::machine::notification::SpaceNotification;
use crate::machine::request::{AnswerSource, Refused, ResponseBody, SpaceResponse, Subscribed};
use crate::machine::writer::{StoreHealth, WriterEvent, WriterReply};

impl SpaceWorld {
    pub(super) fn write(&mut self) {
        if self.store.write() {
            self.desk.handle_stored();
        }
        self.seen.full += u64::from(self.store.health == StoreHealth::Full);
    }

    pub(super) fn step_writer(&mut self) {
        let next =
            self.desk.next_write(self.now, self.writer.hold(), self.writer.has_piece(), &self.writer.flows_apart());
        let late = self.desk.drain(Side::Write);
        self.answer_late(late);
        match next {
            NextWrite::End => panic!("nobody ends it"),
            NextWrite::Wait(Some(_)) if self.dice.one_in(3) => self.desk.handle_stored(),
            NextWrite::Wait(_) => {}
            NextWrite::Snapshot => self.desk.show(self.writer.visible()),
            NextWrite::Control(Control::Unsubscribe(id, connection)) => self.writer.handle_unsubscribe(id, &connection),
            NextWrite::Control(Control::Depart(id, connection)) => {
                self.writer.handle_departure(self.now, id, &connection);
            }
            NextWrite::Control(Control::Call(ids)) => self.writer.handle_room(ids),
            NextWrite::Control(Control::Evaluated(evaluated)) => self.writer.handle_evaluated(self.now, *evaluated),
            NextWrite::Control(Control::Drafted(drafted)) => self.writer.handle_drafted(self.now, *drafted),
            NextWrite::Control(Control::Idle) => self.writer.handle_idle(),
            NextWrite::Piece => {
                self.seen.pieces += 1;
                self.writer.handle_piece(self.now);
                self.writer.end_piece(self.now);
            }
            NextWrite::Work(taken) => {
                let connections = &self.connections;
                self.writer.sweep(self.now, |number| !connections.contains_key(number));
                self.writer.handle_request(*taken);
            }
            NextWrite::Look if self.store.is_stored() => self.writer.handle_stored(self.now),
            NextWrite::Look if self.store.health == StoreHealth::Failed => self.writer.handle_store_failed(),
            NextWrite::Look => self.writer.handle_store_busy(),
        }
        self.act();
    }

    fn act(&mut self) {
        loop {
            self.answer_all();
            self.writer.handle_store_health(self.store.health);
            if let Some(work) = self.writer.poll_job() {
                let requester = Rc::clone(work.requester());
                if self.writer.perform(self.now, work, CancelToken::default()) {
                    self.check_order(&requester);
                    self.model(&requester.what);
                }
                while let Some(write) = self.writer.poll_write() {
                    self.store.submit(self.writer.version(), &write);
                    self.writer.handle_written(write);
                }
                self.now = self.now + Duration::from_micros(self.dice.below(200));
                self.writer.turn(self.now);
                continue;
            }
            if self.writer.poll_evaluator()
                && self.evaluation.is_none()
                && let Some(evaluation) = self.writer.poll_evaluation(self.now)
            {
                assert!(self.store.is_stored(), "only what everybody may see is evaluated");
                self.evaluation = Some(evaluation);
            }
            if self.draft.is_none()
                && let Some(work) = self.writer.poll_draft(self.now)
            {
                self.draft = Some(work);
            }
            if self.writer.is_at_rest() {
                return;
            }
        }
    }

    /// What was sent before on the same connection was done before, or never will be.
    fn check_order(&mut self, requester: &SimulatedRequester) {
        let SimulatedRequester { number, flow, .. } = *requester;
        if flow != 0 {
            let before = self.done_of_flow.insert(flow, number);
            assert!(
                before < Some(number),
                "{number} of connection {flow} is done behind {before:?}, which was sent later"
            );
        }
    }

    /// The plain list is told the same.
    fn model(&mut self, what: &SimulatedRequest) {
        let is_change = match what {
            SimulatedRequest::Insert(s, o) => self.data.insert((*s, *o)),
            SimulatedRequest::Remove(s, o) => self.data.remove(&(*s, *o)),
            SimulatedRequest::Load(pairs, replaces) => {
                self.seen.loaded += 1;
                let before = self.data.clone();
                if *replaces {
                    self.data.clear();
                }
                self.data.extend(pairs);
                self.data != before
            }
            SimulatedRequest::Move(from, to) => {
                self.seen.moved += 1;
                let before = self.data.clone();
                let (moved, mut left): (Data, Data) = before.iter().partition(|(s, _)| s == from);
                left.extend(moved.into_iter().map(|(_, o)| (*to, o)));
                self.data = left;
                self.data != before
            }
            SimulatedRequest::Count => {
                self.seen.moved += 1;
                self.data.insert((2, self.data.len() as u64))
            }
            SimulatedRequest::Read(_) | SimulatedRequest::Subscribe(..) | SimulatedRequest::Resume(..) => false,
        };
        let (last, version) = (*self.states.last_key_value().unwrap().0, self.writer.version());
        assert_eq!(version > last, is_change, "{what:?}");
        self.states.insert(version, self.data.clone());
    }

    fn answer_all(&mut self) {
        if let Some((version, _)) = self.writer.poll_version() {
            assert!(version <= self.store.stored, "{version} is seen, and {} is stored", self.store.stored);
            let writer = &self.writer;
            self.desk.handle_changed(|| writer.visible());
        }
        while let Some(event) = self.writer.poll_event() {
            if let WriterEvent::Displaced(id, connection) = event
                && let Some(connection) = self.connections.get_mut(&connection).filter(|it| it.queue.len() < ROOM)
            {
                connection.queue.push_back((id, SpaceNotification::Ended(None)));
            }
        }
        while let Some(WriterReply { task, outcome, job, cost, is_done, subscription }) = self.writer.poll_reply() {
            if is_done {
                self.desk.served(job, Side::Write, cost);
            } else {
                self.desk.cancelled(job, Side::Write, cost);
            }
            let is_heard = self.answer(task, &outcome);
            if let Some(subscription) = subscription.filter(|_| !is_heard) {
                self.writer.handle_unheard(self.now, subscription);
            }
        }
        while let Some(id) = self.writer.poll_ready() {
            self.tell(id);
        }
    }

    fn tell(&mut self, id: SubscriberId) {
        while let Some(number) = self.writer.connection(id).copied() {
            let Some(connection) = self.connections.get_mut(&number) else {
                return self.writer.handle_gone(self.now, id);
            };
            if connection.queue.len() >= ROOM {
                connection.waiting.push(id);
                return;
            }
            let Some(told) = self.writer.poll_notification(id) else { return };
            if let SpaceNotification::Changed { version, .. } = &told {
                assert!(*version <= self.store.stored, "told of {version}, and {} is stored", self.store.stored);
            }
            connection.queue.push_back((id, told));
        }
    }

    pub(super) fn answer_late(&mut self, ended: Vec<(Asked, Refused)>) {
        for (task, refused) in ended {
            self.answer(task, &Err(refused));
        }
    }

    /// False if nobody heard it.
    pub(super) fn answer(&mut self, task: Asked, outcome: &Result<SpaceResponse, Refused>) -> bool {
        let visitor = task.requester;
        assert!(self.pending.remove(&visitor.number).is_some(), "answered once: {visitor:?}");
        assert!(!visitor.is_withdrawn.get() || outcome.is_err(), "what was withdrawn is not done: {visitor:?}");
        match outcome {
            Ok(answered) => {
                let stored = self.store.stored;
                assert!(answered.version <= stored, "{} confirmed, {stored} stored", answered.version);
                match &answered.answer {
                    ResponseBody::Changed { .. } | ResponseBody::Put { .. } => {
                        self.confirmed = self.confirmed.max(answered.version);
                        self.seen.confirmed += 1;
                    }
                    ResponseBody::Subscribed(_)
                    | ResponseBody::Bytes(_)
                    | ResponseBody::Stream(_)
                    | ResponseBody::Rule(_) => {}
                }
            }
            Err(Refused::Unconfirmed) => self.seen.unconfirmed += 1,
            Err(_) => self.seen.refused += 1,
        }
        let is_lost = match &visitor.what {
            SimulatedRequest::Subscribe(_, connection) | SimulatedRequest::Resume(_, connection, _) => {
                !self.connections.contains_key(connection)
            }
            _ => false,
        };
        if let SimulatedRequest::Resume(_, _, name) = &visitor.what
            && let Some(place) = self.returning.iter().position(|one| one.name == *name)
        {
            self.away.push(self.returning.remove(place));
        }
        if visitor.is_gone.get() || is_lost {
            return false;
        }
        if let Ok(SpaceResponse { answer: ResponseBody::Subscribed(subscribed), version, .. }) = outcome {
            self.subscribed(&visitor.what, subscribed, *version);
        }
        true
    }

    fn subscribed(&mut self, what: &SimulatedRequest, subscribed: &Subscribed, version: u64) {
        let one = match what {
            SimulatedRequest::Subscribe(wanted, connection) => {
                SimulatedSubscriber::new(*wanted, *connection, subscribed)
            }
            SimulatedRequest::Resume(wanted, connection, name) => {
                let known = self.away.iter().position(|one| one.name == *name).map(|place| self.away.remove(place));
                match known {
                    Some(mut one) if subscribed.name == *name => {
                        self.seen.resumed += 1;
                        one.resume(*connection, subscribed, version);
                        one
                    }
                    _ => SimulatedSubscriber::new(*wanted, *connection, subscribed),
                }
            }
            other => panic!("{other:?}"),
        };
        one.check(&self.states[&one.version]);
        self.subscribers.retain(|other| other.id != one.id);
        self.subscribers.push(one);
    }

    pub(super) fn step_reader(&mut self) {
        if !self.reading.is_empty() && self.dice.one_in(2) {
            let (taken, snapshot) = self.reading.remove(0);
            let version = snapshot.version();
            self.desk.served(taken.job, Side::Read, Duration::from_micros(300));
            for task in std::iter::once(taken.value).chain(taken.joined) {
                self.seen.read += 1;
                let answer = ResponseBody::Bytes(bytes::Bytes::new());
                let source = AnswerSource::Fresh;
                self.answer(task, &Ok(SpaceResponse { answer, version, hints: Hints::default(), source }));
            }
            return;
        }
        let next = self.desk.next_read(self.now);
        let late = self.desk.drain(Side::Read);
        self.answer_late(late);
        if let NextRead::Work(taken, snapshot) = next {
            let version = snapshot.version();
            assert!(version <= self.store.stored, "what is not stored is seen by nobody");
            assert_eq!(data_of(&snapshot), self.states[&version]);
            for task in std::iter::once(&taken.value).chain(&taken.joined) {
                let SimulatedRequest::Read(confirmed) = task.requester.what else { panic!("{task:?}") };
                assert!(version >= confirmed, "what was confirmed before is seen: {version}, {confirmed}");
            }
            self.reading.push((taken, snapshot));
        }
    }

    pub(super) fn evaluate(&mut self) {
        let Some(evaluation) = self.evaluation.take() else { return };
        self.seen.evaluated += 1;
        let evaluated = if self.dice.one_in(20) { evaluation.lost() } else { evaluation.run(CancelToken::default()) };
        self.desk.control(Control::Evaluated(Box::new(evaluated)));
        self.desk.control(Control::Idle);
    }
}
