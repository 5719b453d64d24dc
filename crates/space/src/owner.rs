//! The writer's life: it owns the space, does one change after the other, and tells subscribers what changed.
//!
//! If the space is kept, what requests did is handed to the disk, and they are answered together when it has all of it:
//! while one group is synced the next one gathers in the request pool.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidegate_control::hints::Hints;
use tidegate_graph::{Check, Error, Event, Outcome, QueryLimits, RuleId, Snapshot, Space, SubscriberId};
use tracing::warn;

use crate::ask::{Answer, Answered, Ask, Begun, Refused, Seen, Source, Subscribed, Watched};
use crate::change::Change;
use crate::condition::Condition;
use crate::desk::{Control, Hold, Next, Shared, Task};
use crate::group::{Done, Group, share};
use crate::keep::{Keep, Kept};
use crate::order::{Job, Taken};
use crate::outlet::{Outlet, Room, Told};
use crate::panics::Part;
use crate::progress::{Progress, Stage};
use crate::seats::Seats;
use crate::watch::standing_text;

mod standing;

use standing::Beside;

pub(crate) struct Owner {
    space: Space,
    /// Rules by their names on the wire; as many as the space has rules.
    names: HashMap<String, RuleId>,
    keep: Option<Box<dyn Keep>>,
    group: Option<Group>,
    seats: Seats,
    /// What was told last: the next one may be told the same.
    told: Option<Arc<Change>>,
    /// Subscriptions that wait for their query to be evaluated.
    beside: Beside,
    /// What is being done: given back even if that panics.
    current: Option<Job>,
    shared: Arc<Shared>,
}

impl Owner {
    pub(crate) fn new(
        space: Space,
        names: Vec<(String, RuleId)>,
        keep: Option<Box<dyn Keep>>,
        shared: Arc<Shared>,
    ) -> Self {
        let (names, seats) = (names.into_iter().collect(), Seats::default());
        Self { space, names, keep, group: None, seats, told: None, beside: Beside::default(), current: None, shared }
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
        while let Some(next) = self.shared.next_write(self.hold()) {
            match next {
                Next::Snapshot => self.shared.show(self.visible()),
                Next::Control(Control::Unsubscribe(id, outlet)) if self.seats.is_of(id, &outlet) => self.leave(id),
                Next::Control(Control::Depart(id, outlet)) if self.seats.is_of(id, &outlet) => {
                    self.seats.take(id, None);
                }
                // Another connection has it now.
                Next::Control(Control::Unsubscribe(..) | Control::Depart(..)) => {}
                Next::Control(Control::Call(mut ids)) => match &mut self.group {
                    Some(group) => group.called.append(&mut ids),
                    None => ids.into_iter().for_each(|id| self.tell(id)),
                },
                Next::Control(Control::Evaluated(evaluated)) => {
                    self.evaluated(*evaluated);
                    self.evaluate_next();
                }
                Next::Control(Control::Idle) => self.evaluate_next(),
                Next::Work(taken) => {
                    self.sweep();
                    self.serve(*taken);
                }
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

    /// After a panic: whoever waits is told what is known, and whoever listens that it is over. What was handed over is
    /// whole and will be read again, so it is confirmed if the disk has it.
    fn abandon(&mut self) {
        self.shared.suspend(Condition::Restarting);
        let is_kept = self.keep.as_mut().is_none_or(|keep| keep.close());
        let done = self.group.take().map(|group| group.done).unwrap_or_default();
        if let Some(job) = self.current.take() {
            self.shared.cancelled(job, false, Duration::ZERO);
        }
        for Done { task, outcome, job, .. } in done {
            self.shared.cancelled(job, false, Duration::ZERO);
            let outcome = outcome.and_then(|answered| match answered.answer {
                Answer::Subscribed(_) => Err(Refused::Unavailable(Condition::Restarting)),
                _ if is_kept => Ok(answered),
                _ => Err(Refused::Unconfirmed),
            });
            self.shared.reply(task, outcome);
        }
        self.abandon_beside();
        self.seats.end_all();
    }

    fn hold(&self) -> Hold {
        self.group.as_ref().map_or(Hold::Free, |group| group.hold)
    }

    /// The data as they are for everybody else.
    fn visible(&self) -> Snapshot {
        self.group.as_ref().map_or_else(|| self.space.snapshot(), |group| group.before.clone())
    }

    fn serve(&mut self, taken: Taken<Task>) {
        if let Some(taken) = self.keep_back(taken) {
            self.serve_now(taken);
        }
    }

    fn serve_now(&mut self, taken: Taken<Task>) {
        // Changes have no key, so nobody joins them.
        let Taken { job, value: mut task, joined: _, queued } = taken;
        let is_subscription = matches!(task.ask, Ask::Subscribe { .. });
        let refusal = match () {
            () if is_subscription && task.progress.is_gone() || !task.progress.begin() => Some(Refused::Late),
            // What a subscription begins with must not be more than everybody sees.
            () if self.hold() == Hold::Stuck || !is_subscription && self.is_unwritable(&task.ask) => {
                Some(Refused::Unwritable)
            }
            () => None,
        };
        if let Some(refused) = refusal {
            self.shared.cancelled(job, false, Duration::ZERO);
            self.shared.reply(task, Err(refused));
            return;
        }
        let began = Instant::now();
        let is_kept = self.keep.is_some() && !is_subscription;
        let before = (is_kept && self.group.is_none()).then(|| self.space.snapshot());
        let outlet = if let Ask::Subscribe { outlet, .. } = &task.ask { outlet.clone() } else { None };
        let behind = standing::query_of(&task).and_then(|query| self.space.result_version(query));
        let ask = std::mem::replace(&mut task.ask, Ask::RemoveRule(String::new()));
        self.current = Some(job);
        let outcome = self.perform(ask, task.until, &task.progress);
        let Some(job) = self.current.take() else { return };
        let is_submitted = task.progress.stage() == Stage::Submitted;
        task.charge = None;
        let version = match &outcome {
            Ok(Answer::Subscribed(subscribed)) => subscribed.version().or(behind).unwrap_or(self.space.version()),
            _ => self.space.version(),
        };
        let source = Source::Fresh;
        let hints = Hints { queued: Some(queued), ..task.hints.clone() };
        let outcome = outcome.map(|answer| Answered { answer, version, hints, source });
        if let Some(before) = before.filter(|_| is_submitted) {
            self.group = Some(Group::new(before, began));
        }
        let done = Done { task, outcome, job, outlet, took: began.elapsed() };
        match &mut self.group {
            Some(group) => group.push(done),
            None => self.finish(vec![done], Duration::ZERO),
        }
    }

    /// Whether this cannot be kept. What takes something away needs less room afterwards.
    fn is_unwritable(&mut self, ask: &Ask) -> bool {
        let is_smaller = match ask {
            // A rule may answer a removal with something new.
            Ask::Update(update) => self.names.is_empty() && update.only_removes(),
            Ask::Edit { insert, .. } => self.names.is_empty() && insert.is_empty(),
            Ask::RemoveRule(_) => true,
            _ => false,
        };
        self.keep.as_mut().is_some_and(|keep| keep.trouble().is_some() || keep.is_full() && !is_smaller)
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
        let took = done.iter().map(|done| done.took).sum();
        let share = share(took, since.elapsed(), done.len());
        self.finish(done, share);
        for id in called {
            self.tell(id);
        }
    }

    /// The disk fails. Whoever waits is told that it is not known what will be; when the disk is well again, it is seen.
    fn give_up(&mut self) {
        let Some(group) = &mut self.group else { return };
        group.hold = Hold::Stuck;
        for Done { task, outcome, job, .. } in std::mem::take(&mut group.done) {
            if let Ok(Answered { answer: Answer::Subscribed(subscribed), .. }) = &outcome {
                self.leave(subscribed.id);
            }
            // What failed by itself has failed.
            self.shared.cancelled(job, false, Duration::ZERO);
            self.shared.reply(task, outcome.and(Err(Refused::Unconfirmed)));
        }
    }

    /// Answers, after each has waited so long as its share of what they waited for together.
    fn finish(&mut self, done: Vec<Done>, share: Duration) {
        let began = Instant::now();
        let version = self.space.version();
        if version != self.shared.version.load(Ordering::SeqCst) {
            let space = &self.space;
            self.shared.changed(version, || space.snapshot());
        }
        let share = share + began.elapsed() / u32::try_from(done.len().max(1)).unwrap_or(u32::MAX);
        for Done { task, outcome, job, outlet, took } in done {
            let subscribed = match &outcome {
                Ok(Answered { answer: Answer::Subscribed(it), .. }) => {
                    Some((it.id, matches!(it.begun, Begun::Whole(_))))
                }
                _ => None,
            };
            self.shared.served(job, false, took + share);
            let is_heard = self.shared.reply(task, outcome);
            match (subscribed, outlet) {
                // Nobody knows its name.
                (Some((id, true)), _) if !is_heard => self.leave(id),
                (Some((id, false)), Some(outlet)) if !is_heard && self.seats.is_of(id, &outlet) => {
                    self.seats.take(id, None);
                }
                _ => {}
            }
        }
        self.tell_ready();
        self.evaluate_next();
    }

    fn tell_ready(&mut self) {
        for id in self.space.ready() {
            self.tell(id);
        }
        self.told = None;
    }

    fn perform(&mut self, ask: Ask, until: Instant, progress: &Progress) -> Result<Answer, Refused> {
        let shared = Arc::clone(&self.shared);
        shared.probe(Part::Writer);
        match ask {
            Ask::Update(update) => {
                let space = &mut self.space;
                // Done for its own sake: whoever sent it may have gone, and meant it all the same.
                let outcome = shared.watched(until, Vec::new(), None, |cancel| {
                    space.update(&update, &QueryLimits { cancel, ..QueryLimits::default() })
                });
                Ok(self.changed(outcome?, None, progress))
            }
            Ask::Edit { remove, insert } => {
                let outcome = self.space.edit(&remove, &insert)?;
                Ok(self.changed(outcome, None, progress))
            }
            Ask::Subscribe { what, name, seen, outlet } => {
                let watched = what.canonical();
                if let Some(subscribed) = seen.and_then(|seen| self.resume(&seen, &watched, outlet.as_ref())) {
                    return Ok(Answer::Subscribed(Box::new(subscribed)));
                }
                let text = standing_text(&what);
                let subscribed = match what {
                    Watched::Query(query) => match self.beside.found.take() {
                        Some(found) => self.space.subscribe_evaluated(&query, found)?,
                        None => self.space.subscribe(&query)?,
                    },
                    Watched::Masks(masks) => self.space.subscribe_masks(&masks)?,
                };
                let id = subscribed.subscriber;
                self.seats.sit(id, name.clone(), watched, outlet);
                shared.watch.subscribed(id.0, text);
                Ok(Answer::Subscribed(Box::new(Subscribed { id, name, begun: Begun::Whole(subscribed.baseline) })))
            }
            Ask::AddRule { name, text } => {
                let space = &mut self.space;
                let added = shared.watched(until, Vec::new(), None, |cancel| {
                    space.add_rule(&text, &QueryLimits { cancel, ..QueryLimits::default() })
                });
                let (id, outcome) = added?;
                self.names.insert(name.clone(), id);
                self.changed(outcome, Some(Kept::Rule(id, &name, &text)), progress);
                Ok(Answer::Rule(name))
            }
            Ask::RemoveRule(name) => {
                let id = *self.names.get(&name).ok_or(Refused::Failed(Error::Unknown))?;
                self.space.remove_rule(id)?;
                self.names.remove(&name);
                self.changed(Outcome::default(), Some(Kept::NoRule(id)), progress);
                Ok(Answer::Rule(name))
            }
            // Questions go to the readers.
            Ask::Query { .. } | Ask::Match { .. } => Err(Refused::Closing),
        }
    }

    /// Goes on with a subscription where its client stopped hearing of it. None if what it missed is not known.
    fn resume(&mut self, seen: &Seen, watched: &str, outlet: Option<&Arc<Outlet>>) -> Option<Subscribed> {
        let (id, since) = self.seats.find(&seen.name, watched, seen.sequence, seen.round)?;
        match self.space.check(id, since) {
            Ok(Check::Missed { sequence, delta, .. }) => {
                let variables = self.space.variables(id).unwrap_or_default();
                if let Some(displaced) = self.seats.take(id, outlet.cloned())
                    && !outlet.is_some_and(|outlet| Arc::ptr_eq(outlet, &displaced))
                {
                    displaced.displace(id);
                }
                let sequence = self.seats.get_mut(id)?.number(sequence);
                let begun = Begun::Missed { sequence, variables, delta };
                Some(Subscribed { id, name: seen.name.clone(), begun })
            }
            Ok(Check::Fresh(_)) | Err(_) => {
                self.leave(id);
                None
            }
        }
    }

    /// Lets those go that did not come back.
    fn sweep(&mut self) {
        let now = Instant::now();
        self.seats.free_deserted(now);
        while let Some(id) = self.seats.over(now) {
            self.leave(id);
        }
        self.look_behind();
    }

    /// Hands over what a request did, as one.
    fn changed(&mut self, outcome: Outcome, rule: Option<Kept<'_>>, progress: &Progress) -> Answer {
        let Outcome { deltas, stopped, blanks } = outcome;
        for (rule, error) in &stopped {
            warn!(event = "rule_stopped", rule = rule.0, %error, "a rule was removed");
            self.names.retain(|_, id| id != rule);
        }
        if let Some(keep) = &mut self.keep {
            let stopped = stopped.iter().map(|(rule, _)| Kept::NoRule(*rule));
            let what: Vec<_> = rule.into_iter().chain(stopped).chain(deltas.iter().map(Kept::Delta)).collect();
            if !what.is_empty() {
                // Said before: whoever hears nothing must not take it for undone.
                progress.submit();
                keep.submit(&what);
            }
        }
        Answer::Changed { is_change: !deltas.is_empty(), blanks }
    }

    /// Gives a subscriber what waits for it, as far as there is room.
    fn tell(&mut self, id: SubscriberId) {
        loop {
            let Some(seat) = self.seats.get_mut(id) else { return };
            // Nobody listens: it waits in the graph, where it merges.
            let Some(outlet) = seat.outlet.clone() else { return };
            let permit = match outlet.room(id) {
                Room::Here(permit) => permit,
                Room::Later => return,
                // It will say so itself.
                Room::Gone => {
                    self.seats.take(id, None);
                    return;
                }
            };
            let told = match self.space.poll(id) {
                Ok(None) => return,
                Ok(Some(Event::Changed(next))) => {
                    let delta = Change::shared(&mut self.told, next.delta);
                    Told::Changed { sequence: seat.number(next.sequence), version: next.version, delta }
                }
                // It would see a number missing and ask; we know what it will ask.
                Ok(Some(Event::Gap { .. })) => match self.space.check(id, seat.last()) {
                    Ok(Check::Missed { sequence, version, delta }) => {
                        let delta = Arc::new(Change::from(Arc::new(delta)));
                        Told::Changed { sequence: seat.number(sequence), version, delta }
                    }
                    Ok(Check::Fresh(_)) => Told::Ended(None),
                    Err(error) => Told::Ended(Some(error)),
                },
                Ok(Some(Event::Ended(error))) | Err(error) => Told::Ended(Some(error)),
            };
            let is_over = matches!(told, Told::Ended(_));
            if let Told::Changed { .. } = &told {
                self.shared.watch.told(id.0);
            }
            permit.send((id, told));
            if is_over {
                return self.leave(id);
            }
        }
    }

    fn leave(&mut self, id: SubscriberId) {
        self.seats.remove(id);
        self.shared.watch.left(id.0);
        // It may have ended by itself.
        let _ = self.space.unsubscribe(id);
    }
}
