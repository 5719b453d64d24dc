//! The writer's thread: does what `machine::writer` says. Waits for requests and the disk, hands over what is to be kept,
//! answers, and puts notifications into the connections that have room.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_control::Timestamp;
use tidegate_graph::{CancelToken, DataBudget, GraphSpace, RuleId, SubscriberId};
use tracing::warn;

use crate::machine::condition::Condition;
use crate::machine::front_desk::Side;
use crate::machine::notification::SpaceNotification;
use crate::machine::writer::{StoreHealth, Writer, WriterEvent, WriterReply, WriterWork};
use crate::notifications::{NotificationOutlet, OutletRoom};
use crate::panics::Part;
use crate::persistence::Persistence;
use crate::shared_state::{Control, Next, ReplyTo, Shared};

type Machine = Writer<ReplyTo, Arc<NotificationOutlet>>;

pub(crate) struct WriterThread {
    machine: Machine,
    keep: Option<Box<dyn Persistence>>,
    shared: Arc<Shared>,
    /// There were subscriptions that may be delegated when that was last looked at.
    is_delegable: bool,
}

impl WriterThread {
    pub(crate) fn new(
        mut space: GraphSpace,
        rules: Vec<(String, RuleId)>,
        keep: Option<Box<dyn Persistence>>,
        shared: Arc<Shared>,
    ) -> Self {
        space.charge_data_to(Arc::clone(&shared.data) as Arc<dyn DataBudget>);
        let machine = Writer::new(space, rules, keep.is_some().then_some(StoreHealth::Fine));
        let machine = machine.with_delegation(&shared.delegation);
        Self { machine, keep, shared, is_delegable: false }
    }

    /// Serves until the end; false if something panicked. Then nothing of the data is used any more.
    pub(crate) fn run(mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let lived = shared.panics.catch(Part::Writer, || self.live());
        if lived.is_err() {
            let _ = shared.panics.catch(Part::Writer, || self.abandon());
        }
        lived.is_ok()
    }

    fn live(&mut self) {
        loop {
            let (hold, has_piece, held) = (self.machine.hold(), self.machine.has_piece(), self.machine.flows_apart());
            let Some(next) = self.shared.next_write(hold, has_piece, &held, self.machine.poll_look()) else { break };
            let now = self.shared.now();
            match next {
                Next::Snapshot => self.shared.show(self.machine.visible()),
                Next::Control(Control::Unsubscribe(id, outlet)) => self.machine.handle_unsubscribe(id, &outlet),
                Next::Control(Control::Depart(id, outlet)) => self.machine.handle_departure(now, id, &outlet),
                Next::Control(Control::Call(ids)) => self.machine.handle_room(ids),
                Next::Control(Control::Evaluated(evaluated)) => self.machine.handle_evaluated(now, *evaluated),
                Next::Control(Control::Drafted(drafted)) => self.machine.handle_drafted(now, *drafted),
                Next::Piece => {
                    self.machine.handle_piece(now);
                    self.machine.end_piece(self.shared.now());
                }
                Next::Work(taken) => {
                    self.machine.sweep(now, |outlet| outlet.is_closed());
                    self.machine.handle_request(*taken);
                }
                Next::Look => self.look(),
                Next::Control(Control::Idle) => self.machine.handle_idle(),
                Next::Wait(_) | Next::End => {}
            }
            self.look_at_delegations(now);
            self.act();
        }
        let is_kept = self.keep.as_mut().is_none_or(|keep| keep.close());
        if is_kept {
            self.machine.handle_stored(self.shared.now());
        } else {
            self.machine.handle_store_failed();
        }
        self.answer();
    }

    /// Also once after the last subscription has gone that may be delegated: nothing of it is shown then.
    fn look_at_delegations(&mut self, now: Timestamp) {
        let look = self.machine.poll_look();
        if look.map_or(!self.is_delegable, |look| now < look) {
            return;
        }
        self.is_delegable = look.is_some();
        let counts = self.machine.look(now, self.shared.wait_of_late());
        self.shared.watch.delegation(counts);
        self.shared.kps.show_delegations(self.machine.delegations());
    }

    /// After a panic: whoever waits is told what is known, and whoever listens that it is over.
    fn abandon(&mut self) {
        self.shared.suspend(Condition::Restarting);
        let is_kept = self.keep.as_mut().is_none_or(|keep| keep.close());
        let spread = self.machine.return_spread();
        let listening = self.machine.abandon(is_kept);
        while let Some(reply) = self.machine.poll_reply() {
            self.reply(reply);
        }
        for (id, outlet) in listening {
            outlet.end(id, spread);
        }
    }

    /// What has become of what was handed over?
    fn look(&mut self) {
        let Some(keep) = &mut self.keep else { return };
        if keep.is_kept() {
            self.machine.handle_stored(self.shared.now());
        } else if keep.trouble().is_some() {
            self.machine.handle_store_failed();
        } else {
            self.machine.handle_store_busy();
        }
    }

    /// Does everything that the machine wants to be done.
    fn act(&mut self) {
        loop {
            self.answer();
            if self.machine.is_due()
                && let Some(keep) = &mut self.keep
            {
                self.machine.handle_store_health(health(&mut **keep));
            }
            if let Some(work) = self.machine.poll_job() {
                self.work(work);
                continue;
            }
            if self.machine.poll_evaluator()
                && self.shared.evaluator.is_idle()
                && let Some(evaluation) = self.machine.poll_evaluation(self.shared.now())
            {
                self.shared.evaluator.call(evaluation);
            }
            if self.machine.wants_drafter()
                && self.shared.drafter.is_idle()
                && let Some(work) = self.machine.poll_draft(self.shared.now())
            {
                self.shared.drafter.call(work);
            }
            if self.machine.is_at_rest() {
                return;
            }
        }
    }

    fn work(&mut self, work: WriterWork<ReplyTo, Arc<NotificationOutlet>>) {
        let shared = Arc::clone(&self.shared);
        shared.probe(Part::Writer);
        let (machine, now) = (&mut self.machine, shared.now());
        match work.until(now) {
            // Done for its own sake: whoever sent it may have gone, and meant it all the same.
            Some(until) => shared.watched(until, Vec::new(), None, |cancel| machine.perform(now, work, cancel)),
            None => machine.perform(now, work, CancelToken::default()),
        };
        if let Some(keep) = &mut self.keep {
            while let Some(write) = machine.poll_write() {
                keep.submit(&write.kept());
                machine.handle_written(write);
            }
        }
        machine.turn(shared.now());
    }

    /// Shows what is new, answers, and tells.
    fn answer(&mut self) {
        if let Some((version, touched)) = self.machine.poll_version() {
            let machine = &self.machine;
            self.shared.changed(version, &touched, || machine.visible());
        }
        while let Some(event) = self.machine.poll_event() {
            match event {
                WriterEvent::Subscribed(id, text) => {
                    self.shared.subscribers_made.fetch_max(id.0, Ordering::SeqCst);
                    self.shared.watch.subscribed(id.0, text);
                }
                WriterEvent::Left(id) => self.shared.watch.left(id.0),
                WriterEvent::Displaced(id, outlet) => outlet.displace(id),
                WriterEvent::RuleStopped(rule, error) => {
                    warn!(event = "rule_stopped", rule = rule.0, %error, "a rule was removed");
                }
            }
        }
        while let Some(reply) = self.machine.poll_reply() {
            self.reply(reply);
        }
        while let Some(id) = self.machine.poll_ready() {
            self.tell(id);
        }
    }

    fn reply(&mut self, reply: WriterReply<ReplyTo, Arc<NotificationOutlet>>) {
        let WriterReply { task, outcome, job, cost, is_done, subscription } = reply;
        if is_done {
            self.shared.served(job, Side::Write, cost);
        } else {
            self.shared.cancelled(job, Side::Write, cost);
        }
        let is_heard = self.shared.reply(task, outcome);
        if let Some(subscription) = subscription.filter(|_| !is_heard) {
            self.machine.handle_unheard(self.shared.now(), subscription);
        }
    }

    /// Gives a subscriber what waits for it, as far as there is room.
    fn tell(&mut self, id: SubscriberId) {
        while let Some(outlet) = self.machine.connection(id).cloned() {
            let permit = match outlet.room(id) {
                OutletRoom::Here(permit) => permit,
                OutletRoom::Later => return,
                // It will say so itself.
                OutletRoom::Gone => return self.machine.handle_gone(self.shared.now(), id),
            };
            let Some(told) = self.machine.poll_notification(id) else { return };
            if let SpaceNotification::Changed { .. } = &told {
                self.shared.watch.told(id.0);
            }
            permit.send((id, told));
        }
    }
}

fn health(keep: &mut dyn Persistence) -> StoreHealth {
    if keep.trouble().is_some() {
        StoreHealth::Failed
    } else if keep.is_full() {
        StoreHealth::Full
    } else {
        StoreHealth::Fine
    }
}
