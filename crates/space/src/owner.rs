//! The writer's life: it owns the space, does one change after the other, and tells subscribers what changed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tidegate_control::admission::Taken;
use tidegate_graph::{Check, Error, Event, Outcome, QueryLimits, Space, SubscriberId};
use tracing::{error, warn};

use crate::ask::{Answer, Answered, Ask, Refused, Source, Watched};
use crate::desk::{Control, Next, Shared, Task};
use crate::keep::{Keep, Kept};
use crate::outlet::{Outlet, Room, Told};

pub(crate) struct Owner {
    space: Space,
    keep: Option<Box<dyn Keep>>,
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
    pub(crate) fn new(space: Space, keep: Option<Box<dyn Keep>>, shared: Arc<Shared>) -> Self {
        Self { space, keep, seats: HashMap::new(), shared }
    }

    pub(crate) fn run(mut self) {
        while let Some(next) = self.shared.next_write() {
            match next {
                Next::Snapshot => self.shared.show(self.space.snapshot()),
                Next::Control(Control::Unsubscribe(id)) => self.leave(id),
                Next::Control(Control::Call(ids)) => ids.into_iter().for_each(|id| self.tell(id)),
                Next::Work(taken) => self.serve(*taken),
            }
        }
    }

    fn serve(&mut self, taken: Taken<Task>) {
        // Changes have no key, so nobody joins them.
        let Taken { job, value: mut task, joined: _, queued } = taken;
        let is_pointless = matches!(task.ask, Ask::Subscribe { .. }) && task.is_gone.load(Ordering::Relaxed);
        if is_pointless {
            self.shared.reply(task, Err(Refused::Late));
            return self.shared.served(job, false, None);
        }
        let began = Instant::now();
        let ask = std::mem::replace(&mut task.ask, Ask::AddRule(String::new()));
        let outcome = self.perform(ask, task.until);
        let (version, source) = (self.space.version(), Source::Fresh);
        if version != self.shared.version.load(Ordering::SeqCst) {
            let space = &self.space;
            self.shared.changed(version, || space.snapshot());
        }
        self.shared.reply(task, outcome.map(|answer| Answered { answer, version, queued, source }));
        for id in self.space.ready() {
            self.tell(id);
        }
        self.shared.served(job, false, Some(began.elapsed()));
    }

    fn perform(&mut self, ask: Ask, until: Instant) -> Result<Answer, Refused> {
        let shared = Arc::clone(&self.shared);
        match ask {
            Ask::Update(update) => {
                let space = &mut self.space;
                // Done for its own sake: whoever sent it may have gone, and meant it all the same.
                let outcome = shared.watched(until, Vec::new(), |cancel| {
                    space.update(&update, &QueryLimits { cancel, ..QueryLimits::default() })
                });
                self.changed(outcome?)
            }
            Ask::Edit { remove, insert } => {
                let outcome = self.space.edit(&remove, &insert)?;
                self.changed(outcome)
            }
            Ask::Subscribe { what, outlet } => {
                let subscribed = match what {
                    Watched::Query(query) => self.space.subscribe(&query)?,
                    Watched::Masks(masks) => self.space.subscribe_masks(&masks)?,
                };
                self.seats.insert(subscribed.subscriber.0, Seat { outlet, told: 0 });
                Ok(Answer::Subscribed(subscribed.subscriber, Box::new(subscribed.baseline)))
            }
            Ask::AddRule(text) => {
                let space = &mut self.space;
                let added = shared.watched(until, Vec::new(), |cancel| {
                    space.add_rule(&text, &QueryLimits { cancel, ..QueryLimits::default() })
                });
                let (id, outcome) = added?;
                self.keep(Kept::Rule(id, &text))?;
                self.changed(outcome)?;
                Ok(Answer::Rule(id))
            }
            Ask::RemoveRule(id) => {
                self.space.remove_rule(id)?;
                self.keep(Kept::NoRule(id))?;
                Ok(Answer::Rule(id))
            }
            // Questions go to the readers.
            Ask::Query { .. } | Ask::Match { .. } => Err(Refused::Closing),
        }
    }

    fn changed(&mut self, outcome: Outcome) -> Result<Answer, Refused> {
        for (rule, error) in &outcome.stopped {
            warn!(event = "rule_stopped", rule = rule.0, %error, "a rule was removed");
            self.keep(Kept::NoRule(*rule))?;
        }
        let is_change = !outcome.deltas.is_empty();
        if is_change {
            self.keep(Kept::Deltas(&outcome.deltas))?;
        }
        Ok(Answer::Changed { is_change, blanks: outcome.blanks })
    }

    fn keep(&mut self, what: Kept<'_>) -> Result<(), Refused> {
        let Some(keep) = &mut self.keep else { return Ok(()) };
        keep.keep(what).map_err(|why| {
            error!(event = "not_kept", why, "a change of the smart space could not be stored, and was not confirmed");
            Refused::Failed(Error::Evaluation("the change could not be stored".to_owned()))
        })
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
                Ok(Some(Event::Changed(next))) => {
                    Told::Changed { sequence: next.sequence, version: next.version, delta: next.delta }
                }
                // It would see a number missing and ask; we know what it will ask.
                Ok(Some(Event::Gap { .. })) => match self.space.check(id, seat.told) {
                    Ok(Check::Missed { sequence, version, delta }) => {
                        Told::Changed { sequence, version, delta: Arc::new(delta) }
                    }
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
