//! The owner of the data: does one change after the other, has what they did kept, and knows whom to tell.
//!
//! If the space is kept, what requests did is handed to the disk, and they are answered together when it has all of it:
//! while one group is synced the next one gathers in the request queue. Nobody sees anything of a group before.
//!
//! The contract: *[`Writer::handle_request`] with what arrives; do each [`Writer::poll_job`] by [`Writer::perform`], hand
//! over each [`Writer::poll_write`] and give it back, say by [`Writer::turn`] that it is done; then say what is visible
//! ([`Writer::poll_version`]), answer ([`Writer::poll_reply`]), and tell ([`Writer::poll_ready`]), in this order.* Every
//! request is answered once. Refuses to know of threads, channels and disks; driven by `writer_thread`, and by the
//! simulation.

mod apart;
mod group;
mod household_turns;
#[cfg(test)]
mod model;
mod notify;
mod perform;
mod standing;
mod words;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_graph::{GraphSpace, RuleId, Snapshot, SubscriberId, TouchedPlaces};

use apart::{ApartChanges, ApartRequest, Prepared};
use group::{CommitGroup, DoneRequest, share};
use standing::PendingEvaluations;

pub(crate) use apart::ApartLimits;
pub(crate) use group::WriterWait;

use super::condition::Condition;
use super::delegation::{DelegationConfig, DelegationCounts, Delegator};
use super::order::{Job, Taken};
use super::request::{Begun, Refused, ResponseBody, SpaceRequest, SpaceResponse};
use super::subscription_registry::SubscriptionRegistry;
use super::task::{PendingRequest, Requester};
use crate::change::WrittenChange;
use words::RuleChange;
pub(crate) use words::{NewSubscription, StoreHealth, Write, WriterEvent, WriterReply, WriterWork};

/// The owner of the data. `R` is whoever waits for an answer, `C` a connection that is told of changes.
pub(crate) struct Writer<R, C> {
    space: GraphSpace,
    /// Rules by their names on the wire; as many as the space has rules.
    rules: BTreeMap<String, RuleId>,
    /// None if nothing is kept.
    store: Option<StoreHealth>,
    group: Option<CommitGroup<R, C>>,
    registry: SubscriptionRegistry<C>,
    beside: PendingEvaluations<R, C>,
    apart: ApartChanges<R, C>,
    apart_limits: ApartLimits,
    delegator: Delegator,
    /// Requests whose turn it is.
    due: VecDeque<WriterWork<R, C>>,
    /// What was just done.
    current: Option<DoneRequest<R, C>>,
    writes: VecDeque<Write>,
    replies: VecDeque<WriterReply<R, C>>,
    /// Subscribers that something waits for, or who have room for it again. Each at most a few times.
    ready: VecDeque<SubscriberId>,
    /// What was told last: the next one may be told the same.
    told: Option<Arc<WrittenChange>>,
    events: VecDeque<WriterEvent<C>>,
    /// Something happened since an idle evaluator was last asked for.
    is_evaluator_wanted: bool,
    /// The version that everybody may see, and whether it is new.
    visible: u64,
    is_visible_new: bool,
    /// What changes have touched that nobody sees yet.
    touched: TouchedPlaces,
}

impl<R: Requester, C: Clone + Eq> Writer<R, C> {
    /// A space with its rules; it is kept, or is not.
    pub(crate) fn new(space: GraphSpace, rules: Vec<(String, RuleId)>, store: Option<StoreHealth>) -> Self {
        let visible = space.version();
        Self {
            space,
            rules: rules.into_iter().collect(),
            store,
            group: None,
            registry: SubscriptionRegistry::default(),
            beside: PendingEvaluations::default(),
            apart: ApartChanges::default(),
            apart_limits: ApartLimits::default(),
            delegator: Delegator::new(&DelegationConfig::default()),
            due: VecDeque::new(),
            current: None,
            writes: VecDeque::new(),
            replies: VecDeque::new(),
            ready: VecDeque::new(),
            told: None,
            events: VecDeque::new(),
            is_evaluator_wanted: false,
            visible,
            is_visible_new: false,
            touched: TouchedPlaces::default(),
        }
    }

    /// The same, with other ideas of what is small.
    #[cfg(test)]
    pub(crate) fn with_apart(self, apart_limits: ApartLimits) -> Self {
        Self { apart_limits, ..self }
    }

    /// The same, with a choice of how many subscriptions may be delegated.
    #[must_use]
    pub(crate) fn with_delegation(self, config: &DelegationConfig) -> Self {
        Self { delegator: Delegator::new(config), ..self }
    }

    /// What it waits for beside requests.
    pub(crate) fn hold(&self) -> WriterWait {
        self.group.as_ref().map_or(WriterWait::Free, |group| group.hold)
    }

    /// The data as they are for everybody else.
    pub(crate) fn visible(&self) -> Snapshot {
        self.group.as_ref().map_or_else(|| self.space.snapshot(), |group| group.before.clone())
    }

    /// A request arrives.
    pub(crate) fn handle_request(&mut self, taken: Taken<PendingRequest<R, C>>) {
        if let Some(taken) = self.keep_back(taken).and_then(|taken| self.set_apart(taken)) {
            self.due.push_back(WriterWork::new(taken));
        }
    }

    /// How the store is; to be said before a request is to be done.
    pub(crate) fn handle_store_health(&mut self, health: StoreHealth) {
        if let Some(store) = &mut self.store {
            *store = health;
        }
    }

    /// Whether requests are to be done.
    pub(crate) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Whether nothing is left to answer, to tell or to do for now.
    pub(crate) fn is_at_rest(&self) -> bool {
        let is_told = self.ready.is_empty() || self.group.is_some();
        self.due.is_empty() && self.replies.is_empty() && self.events.is_empty() && is_told && !self.is_visible_new
    }

    /// The next request to do.
    pub(crate) fn poll_job(&mut self) -> Option<WriterWork<R, C>> {
        while let Some(work) = self.due.pop_front() {
            let is_smaller = match &work.prepared {
                Prepared::Staged(staged) => staged.is_smaller,
                _ => self.is_smaller(&work.taken.value.ask),
            };
            let Some(refused) = self.refusal(&work.taken.value, is_smaller) else { return Some(work) };
            self.give_up(&work.prepared);
            self.refuse_apart(ApartRequest { taken: work.taken, history: work.history }, refused);
        }
        None
    }

    fn refusal(&self, task: &PendingRequest<R, C>, is_smaller: bool) -> Option<Refused> {
        let is_subscription = matches!(task.ask, SpaceRequest::Subscribe { .. });
        match () {
            () if is_subscription && task.requester.is_gone() || !task.requester.begin() => Some(Refused::Late),
            // What a subscription begins with must not be more than everybody sees.
            () if self.hold() == WriterWait::Stuck || !is_subscription && self.is_unwritable(is_smaller) => {
                Some(Refused::Unwritable)
            }
            () => None,
        }
    }

    /// Whether it takes something away, and needs less room afterwards.
    fn is_smaller(&self, ask: &SpaceRequest<C>) -> bool {
        match ask {
            // A rule may answer a removal with something new.
            SpaceRequest::Update(update) => self.rules.is_empty() && update.only_removes(),
            SpaceRequest::Edit { insert, .. } | SpaceRequest::Put { insert, .. } => {
                self.rules.is_empty() && insert.is_empty()
            }
            SpaceRequest::RemoveRule(_) => true,
            _ => false,
        }
    }

    /// Whether this cannot be kept.
    fn is_unwritable(&self, is_smaller: bool) -> bool {
        match self.store {
            None | Some(StoreHealth::Fine) => false,
            Some(StoreHealth::Full) => !is_smaller,
            Some(StoreHealth::Failed) => true,
        }
    }

    /// What is to be handed to the store next.
    pub(crate) fn poll_write(&mut self) -> Option<Write> {
        self.writes.pop_front()
    }

    /// It was handed over.
    pub(crate) fn handle_written(&mut self, write: Write) {
        for delta in write.deltas {
            self.space.let_go(delta);
        }
    }

    /// What was performed is done, and handed over.
    pub(crate) fn turn(&mut self, now: Timestamp) {
        let Some(mut done) = self.current.take() else { return self.charge_try(now) };
        done.took = now.since(done.began);
        match &mut self.group {
            Some(group) => group.push(now, done),
            None => self.finish(vec![done], Duration::ZERO),
        }
    }

    /// The store has everything: everybody may see it.
    pub(crate) fn handle_stored(&mut self, now: Timestamp) {
        let Some(CommitGroup { since, done, .. }) = self.group.take() else { return };
        let took = done.iter().map(|done| done.took).sum();
        let share = share(took, now.since(since), done.len());
        self.finish(done, share);
    }

    /// The store is not done yet.
    pub(crate) fn handle_store_busy(&mut self) {
        if let Some(group) = &mut self.group {
            group.hold = WriterWait::Settling;
        }
    }

    /// The store fails. Whoever waits is told that it is not known what will be; when the store is well again, it is seen.
    pub(crate) fn handle_store_failed(&mut self) {
        let Some(group) = &mut self.group else { return };
        group.hold = WriterWait::Stuck;
        for DoneRequest { task, outcome, job, .. } in std::mem::take(&mut group.done) {
            if let Ok(SpaceResponse { answer: ResponseBody::Subscribed(subscribed), .. }) = &outcome {
                self.leave(subscribed.id);
            }
            // What failed by itself has failed.
            self.cancel(task, job, outcome.and(Err(Refused::Unconfirmed)));
        }
    }

    /// The data that everybody may see from now on have this version, and what changed on the way. To be said before anybody
    /// is answered.
    pub(crate) fn poll_version(&mut self) -> Option<(u64, TouchedPlaces)> {
        let is_new = std::mem::take(&mut self.is_visible_new);
        is_new.then(|| (self.visible, std::mem::take(&mut self.touched)))
    }

    /// The next answer.
    pub(crate) fn poll_reply(&mut self) -> Option<WriterReply<R, C>> {
        self.replies.pop_front()
    }

    /// Whoever subscribed has gone without hearing that it did.
    pub(crate) fn handle_unheard(&mut self, now: Timestamp, subscription: NewSubscription<C>) {
        let NewSubscription { id, is_new, connection } = subscription;
        if is_new {
            self.leave(id);
        } else if connection.is_some_and(|connection| self.registry.is_of(id, &connection)) {
            self.delegator.release(now, id.0);
            self.registry.attach(now, id, None);
        }
    }

    /// The next thing that others want to know.
    pub(crate) fn poll_event(&mut self) -> Option<WriterEvent<C>> {
        self.events.pop_front()
    }

    /// After a fault of ours, when nothing of the data is used any more: whoever waits is told what is known. What was
    /// handed over is whole and will be read again, so it is confirmed if it `is_kept`. Whoever listens is returned, to be
    /// told that it is over.
    pub(crate) fn abandon(&mut self, is_kept: bool) -> Vec<(SubscriberId, C)> {
        let done = self.group.take().map(|group| group.done).unwrap_or_default();
        for DoneRequest { task, outcome, job, .. } in done {
            let outcome = outcome.and_then(|answered| match answered.answer {
                ResponseBody::Subscribed(_) => Err(Refused::Unavailable(Condition::Restarting)),
                _ if is_kept => Ok(answered),
                _ => Err(Refused::Unconfirmed),
            });
            self.cancel(task, job, outcome);
        }
        let due = std::mem::take(&mut self.due);
        for taken in self.take_beside().chain(self.apart.take_all()).chain(due.into_iter().map(|work| work.taken)) {
            self.refuse(taken, Refused::Unavailable(Condition::Restarting));
        }
        self.registry.end_all()
    }

    /// Answers, after each has waited so long as its share of what they waited for together.
    fn finish(&mut self, done: Vec<DoneRequest<R, C>>, share: Duration) {
        let version = self.space.version();
        self.is_visible_new |= version != self.visible;
        self.visible = version;
        for DoneRequest { task, outcome, job, connection, spent, took, .. } in done {
            let subscription = match &outcome {
                Ok(SpaceResponse { answer: ResponseBody::Subscribed(it), .. }) => {
                    let is_new = matches!(it.begun, Begun::Whole(_));
                    Some(NewSubscription { id: it.id, is_new, connection })
                }
                _ => None,
            };
            let cost = spent + took + share;
            self.replies.push_back(WriterReply { task, outcome, job, cost, is_done: true, subscription });
        }
        self.ready.extend(self.space.ready());
        self.is_evaluator_wanted = true;
    }

    #[cfg(test)]
    pub(crate) fn version(&self) -> u64 {
        self.space.version()
    }

    /// Requests that are due, done in a group, and subscribers that are ready; and outputs that nobody took.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> (usize, usize, usize, usize) {
        let done = self.group.as_ref().map_or(0, |group| group.done.len());
        let outputs = self.replies.len() + self.writes.len() + self.events.len();
        (self.due.len(), done, self.ready.len(), outputs)
    }

    fn refuse(&mut self, taken: Taken<PendingRequest<R, C>>, refused: Refused) {
        self.cancel(taken.value, taken.job, Err(refused));
    }

    fn cancel(&mut self, task: PendingRequest<R, C>, job: Job, outcome: Result<SpaceResponse, Refused>) {
        self.end(task, job, outcome, Duration::ZERO);
    }

    /// Nothing came of it, after this time.
    fn end(&mut self, task: PendingRequest<R, C>, job: Job, outcome: Result<SpaceResponse, Refused>, cost: Duration) {
        self.replies.push_back(WriterReply { task, outcome, job, cost, is_done: false, subscription: None });
    }
}
