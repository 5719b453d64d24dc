//! The writer's life: it owns the space, does one change after the other, and tells subscribers what changed.
//!
//! If the space is kept, what requests did is handed to the disk, and they are answered together when it has all of it:
//! while one group is synced the next one gathers in the request pool.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tidegate_control::admission::Taken;
use tidegate_graph::{Check, Error, Event, Outcome, QueryLimits, RuleId, Snapshot, Space, SubscriberId};
use tracing::warn;

use crate::ask::{Answer, Answered, Ask, Refused, Source, Watched};
use crate::desk::{Control, Hold, Next, Shared, Task};
use crate::group::{Done, Group};
use crate::keep::{Keep, Kept};
use crate::outlet::{Outlet, Room, Told};

pub(crate) struct Owner {
    space: Space,
    /// Rules by their names on the wire; as many as the space has rules.
    names: HashMap<String, RuleId>,
    keep: Option<Box<dyn Keep>>,
    group: Option<Group>,
    seats: HashMap<u64, Seat>,
    shared: Arc<Shared>,
}

/// A subscriber as the writer knows it.
struct Seat {
    outlet: Arc<Outlet>,
    /// The last number it was told.
    told: u64,
}

impl Owner {
    pub(crate) fn new(
        space: Space,
        names: Vec<(String, RuleId)>,
        keep: Option<Box<dyn Keep>>,
        shared: Arc<Shared>,
    ) -> Self {
        Self { space, names: names.into_iter().collect(), keep, group: None, seats: HashMap::new(), shared }
    }

    pub(crate) fn run(mut self) {
        while let Some(next) = self.shared.next_write(self.hold()) {
            match next {
                Next::Snapshot => self.shared.show(self.visible()),
                Next::Control(Control::Unsubscribe(id)) => self.leave(id),
                Next::Control(Control::Call(mut ids)) => match &mut self.group {
                    Some(group) => group.called.append(&mut ids),
                    None => ids.into_iter().for_each(|id| self.tell(id)),
                },
                Next::Work(taken) => self.serve(*taken),
                Next::Look => self.look(),
            }
        }
        let is_kept = self.keep.as_mut().is_none_or(|keep| keep.close());
        if is_kept {
            self.settle();
        } else {
            self.give_up();
        }
    }

    fn hold(&self) -> Hold {
        self.group.as_ref().map_or(Hold::Free, |group| group.hold)
    }

    /// The data as they are for everybody else.
    fn visible(&self) -> Snapshot {
        self.group.as_ref().map_or_else(|| self.space.snapshot(), |group| group.before.clone())
    }

    fn serve(&mut self, taken: Taken<Task>) {
        // Changes have no key, so nobody joins them.
        let Taken { job, value: mut task, joined: _, queued } = taken;
        let is_subscription = matches!(task.ask, Ask::Subscribe { .. });
        let refusal = match () {
            () if is_subscription && task.is_gone.load(Ordering::Relaxed) => Some(Refused::Late),
            // What a subscription begins with must not be more than everybody sees.
            () if self.hold() == Hold::Stuck || !is_subscription && self.is_unwritable() => Some(Refused::Unwritable),
            () => None,
        };
        if let Some(refused) = refusal {
            self.shared.reply(task, Err(refused));
            return self.shared.served(job, false, None);
        }
        let began = Instant::now();
        let is_kept = self.keep.is_some() && !is_subscription;
        let before = (is_kept && self.group.is_none()).then(|| self.space.snapshot());
        let ask = std::mem::replace(&mut task.ask, Ask::RemoveRule(String::new()));
        let mut is_submitted = false;
        let outcome = self.perform(ask, task.until, &mut is_submitted);
        let (version, source) = (self.space.version(), Source::Fresh);
        let outcome = outcome.map(|answer| Answered { answer, version, queued, source });
        if let Some(before) = before.filter(|_| is_submitted) {
            self.group = Some(Group::new(before, began));
        }
        let done = Done { task, outcome, job };
        match &mut self.group {
            Some(group) => group.push(done),
            None => self.finish(vec![done], began),
        }
    }

    fn is_unwritable(&mut self) -> bool {
        self.keep.as_mut().is_some_and(|keep| keep.trouble().is_some())
    }

    /// What has become of the group?
    fn look(&mut self) {
        let Some(keep) = &mut self.keep else { return };
        if keep.is_kept() {
            return self.settle();
        }
        if keep.trouble().is_some() {
            return self.give_up();
        }
        if let Some(group) = &mut self.group {
            group.hold = Hold::Settling;
        }
    }

    /// Everything is kept: everybody may see it.
    fn settle(&mut self) {
        let Some(Group { since, done, called, .. }) = self.group.take() else { return };
        self.finish(done, since);
        for id in called {
            self.tell(id);
        }
    }

    /// The disk fails. Whoever waits is told that it is not known what will be; when the disk is well again, it is seen.
    fn give_up(&mut self) {
        let Some(group) = &mut self.group else { return };
        group.hold = Hold::Stuck;
        for Done { task, outcome, job } in std::mem::take(&mut group.done) {
            if let Ok(Answered { answer: Answer::Subscribed(id, _), .. }) = &outcome {
                self.leave(*id);
            }
            // What failed by itself has failed.
            self.shared.reply(task, outcome.and(Err(Refused::Unconfirmed)));
            self.shared.served(job, false, None);
        }
    }

    fn finish(&mut self, done: Vec<Done>, since: Instant) {
        let version = self.space.version();
        if version != self.shared.version.load(Ordering::SeqCst) {
            let space = &self.space;
            self.shared.changed(version, || space.snapshot());
        }
        let each = since.elapsed() / u32::try_from(done.len().max(1)).unwrap_or(u32::MAX);
        for Done { task, outcome, job } in done {
            self.shared.reply(task, outcome);
            self.shared.served(job, false, Some(each));
        }
        for id in self.space.ready() {
            self.tell(id);
        }
    }

    fn perform(&mut self, ask: Ask, until: Instant, is_submitted: &mut bool) -> Result<Answer, Refused> {
        let shared = Arc::clone(&self.shared);
        match ask {
            Ask::Update(update) => {
                let space = &mut self.space;
                // Done for its own sake: whoever sent it may have gone, and meant it all the same.
                let outcome = shared.watched(until, Vec::new(), |cancel| {
                    space.update(&update, &QueryLimits { cancel, ..QueryLimits::default() })
                });
                Ok(self.changed(outcome?, None, is_submitted))
            }
            Ask::Edit { remove, insert } => {
                let outcome = self.space.edit(&remove, &insert)?;
                Ok(self.changed(outcome, None, is_submitted))
            }
            Ask::Subscribe { what, outlet } => {
                let subscribed = match what {
                    Watched::Query(query) => self.space.subscribe(&query)?,
                    Watched::Masks(masks) => self.space.subscribe_masks(&masks)?,
                };
                self.seats.insert(subscribed.subscriber.0, Seat { outlet, told: 0 });
                Ok(Answer::Subscribed(subscribed.subscriber, Box::new(subscribed.baseline)))
            }
            Ask::AddRule { name, text } => {
                let space = &mut self.space;
                let added = shared.watched(until, Vec::new(), |cancel| {
                    space.add_rule(&text, &QueryLimits { cancel, ..QueryLimits::default() })
                });
                let (id, outcome) = added?;
                self.names.insert(name.clone(), id);
                self.changed(outcome, Some(Kept::Rule(id, &name, &text)), is_submitted);
                Ok(Answer::Rule(name))
            }
            Ask::RemoveRule(name) => {
                let id = *self.names.get(&name).ok_or(Refused::Failed(Error::Unknown))?;
                self.space.remove_rule(id)?;
                self.names.remove(&name);
                self.changed(Outcome::default(), Some(Kept::NoRule(id)), is_submitted);
                Ok(Answer::Rule(name))
            }
            // Questions go to the readers.
            Ask::Query { .. } | Ask::Match { .. } => Err(Refused::Closing),
        }
    }

    /// Hands over what a request did, as one.
    fn changed(&mut self, outcome: Outcome, rule: Option<Kept<'_>>, is_submitted: &mut bool) -> Answer {
        let Outcome { deltas, stopped, blanks } = outcome;
        for (rule, error) in &stopped {
            warn!(event = "rule_stopped", rule = rule.0, %error, "a rule was removed");
            self.names.retain(|_, id| id != rule);
        }
        if let Some(keep) = &mut self.keep {
            let stopped = stopped.iter().map(|(rule, _)| Kept::NoRule(*rule));
            let what: Vec<_> = rule.into_iter().chain(stopped).chain(deltas.iter().map(Kept::Delta)).collect();
            if !what.is_empty() {
                keep.submit(&what);
                *is_submitted = true;
            }
        }
        Answer::Changed { is_change: !deltas.is_empty(), blanks }
    }

    /// Gives a subscriber what waits for it, as far as there is room.
    fn tell(&mut self, id: SubscriberId) {
        loop {
            let Some(seat) = self.seats.get_mut(&id.0) else { return };
            let outlet = Arc::clone(&seat.outlet);
            let permit = match outlet.room(id) {
                Room::Here(permit) => permit,
                Room::Later => return,
                Room::Gone => return self.leave(id),
            };
            let told = match self.space.poll(id) {
                Ok(None) => return,
                Ok(Some(Event::Changed(next))) => Told::Changed { sequence: next.sequence, delta: next.delta },
                // It would see a number missing and ask; we know what it will ask.
                Ok(Some(Event::Gap { .. })) => match self.space.check(id, seat.told) {
                    Ok(Check::Missed { sequence, delta, .. }) => Told::Changed { sequence, delta: Arc::new(delta) },
                    Ok(Check::Fresh(_)) => Told::Ended(None),
                    Err(error) => Told::Ended(Some(error)),
                },
                Ok(Some(Event::Ended(error))) | Err(error) => Told::Ended(Some(error)),
            };
            let is_over = matches!(told, Told::Ended(_));
            if let Told::Changed { sequence, .. } = &told {
                seat.told = *sequence;
            }
            permit.send((id, told));
            if is_over {
                return self.leave(id);
            }
        }
    }

    fn leave(&mut self, id: SubscriberId) {
        self.seats.remove(&id.0);
        // It may have ended by itself.
        let _ = self.space.unsubscribe(id);
    }
}
