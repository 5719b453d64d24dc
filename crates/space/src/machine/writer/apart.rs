//! Changes that are made apart from the commits, so that nobody waits for them.
//!
//! ```text
//! names many quads, or clears many        in pieces on a copy of the data, each a turn of the writer; done in one moment
//! its WHERE is more than a commit reads   worked out on a snapshot by another thread; done if nothing that it read has
//!                                         changed meanwhile, else worked out again, and the last time by the writer
//! ```
//! Either way it comes behind everything that was committed before its last moment, and nobody sees a part of it. Whose
//! turn it is between two pieces is decided by `piece_turns`. Refuses to know of threads and time; driven like the writer.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_graph::{DraftedUpdate, GraphError, LargeChange, Limit, Mask, UpdateDraft};

use super::household_turns::HouseholdTurns;
use super::{Writer, WriterWork};
use crate::limits::{
    APART_WAITING_MAX, BEGUN_GRACE, DRAFTS_MAX, DRAFTS_OF_HOUSEHOLD_MAX, LARGE_QUADS, LARGE_TIME_FACTOR, PIECE_STEPS,
    UPDATE_INLINE_STEPS,
};
use crate::machine::order::Taken;
use crate::machine::request::{Refused, SpaceRequest};
use crate::machine::task::{PendingRequest, Requester};

/// What is small.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ApartLimits {
    /// A change of so many quads is made in pieces.
    pub(crate) large_quads: usize,
    /// Steps of one piece.
    pub(crate) piece_steps: usize,
    /// Quads that an update may read within the commit.
    pub(crate) inline_steps: u64,
    /// How often an update is worked out beside the commits before the writer does it.
    pub(crate) drafts_max: u32,
}

impl Default for ApartLimits {
    fn default() -> Self {
        Self {
            large_quads: LARGE_QUADS,
            piece_steps: PIECE_STEPS,
            inline_steps: UPDATE_INLINE_STEPS,
            drafts_max: DRAFTS_MAX,
        }
    }
}

/// A request that is worked on apart.
pub(super) struct ApartRequest<R, C> {
    pub(super) taken: Taken<PendingRequest<R, C>>,
    pub(super) history: ApartHistory,
}

/// What has become of a request so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ApartHistory {
    /// What was spent on it before its turn: by the writer in pieces, by another thread on drafts.
    pub(super) spent: Duration,
    /// How often it was worked out.
    pub(super) drafts: u32,
}

/// A large change: what is to be done, and what its request is told.
struct LargeRequest<R, C> {
    request: ApartRequest<R, C>,
    /// None after it was begun.
    change: Option<LargeChange>,
    staged: Staged,
    /// Why its last piece failed: said when it is known what the piece took.
    failed: Option<GraphError>,
}

impl<R, C> LargeRequest<R, C> {
    fn new(request: ApartRequest<R, C>, change: Option<LargeChange>, staged: Staged) -> Self {
        Self { request, change, staged, failed: None }
    }

    /// Until when it is worked on.
    fn until(&self) -> Timestamp {
        let PendingRequest { began, until, .. } = self.request.taken.value;
        if self.change.is_some() {
            return until;
        }
        until + until.since(began).saturating_mul(LARGE_TIME_FACTOR - 1).min(BEGUN_GRACE)
    }
}

/// An update that another thread works out.
struct RunningDraft<R, C> {
    number: u64,
    began: Timestamp,
    request: ApartRequest<R, C>,
}

/// What has to be known of a large change at its end.
#[derive(Clone, Debug)]
pub(crate) struct Staged {
    /// The draft that it is.
    pub(super) draft: Option<u64>,
    /// Whose place it takes, if it puts graphs.
    pub(super) target: Option<Box<Mask>>,
    pub(super) is_insertion: bool,
    /// It only takes something away.
    pub(super) is_smaller: bool,
}

/// Everything that is made apart.
pub(super) struct ApartChanges<R, C> {
    /// The first of them is under way, if it was begun.
    large: VecDeque<LargeRequest<R, C>>,
    /// Updates to be worked out, and the one that is.
    drafts: HouseholdTurns<ApartRequest<R, C>>,
    drafting: Option<RunningDraft<R, C>>,
    /// When the piece began that is being done.
    piece: Option<Timestamp>,
    /// When an update was tried that is the last of those to be worked out.
    tried: Option<Timestamp>,
}

impl<R, C> Default for ApartChanges<R, C> {
    fn default() -> Self {
        Self { large: VecDeque::new(), drafts: HouseholdTurns::default(), drafting: None, piece: None, tried: None }
    }
}

impl<R, C> ApartChanges<R, C> {
    /// Whether there is no place for one more of this household.
    pub(super) fn is_full(&self, household: u64) -> bool {
        self.large.len() + self.drafts.len() >= APART_WAITING_MAX
            || self.drafts.of(household) >= DRAFTS_OF_HOUSEHOLD_MAX
    }

    /// Everybody who waits for it.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Taken<PendingRequest<R, C>>> + use<R, C> {
        let Self { large, drafts, drafting, .. } = std::mem::take(self);
        let large = large.into_iter().map(|large| large.request.taken);
        let drafting = drafting.into_iter().map(|draft| draft.request);
        large.chain(drafts.into_all().chain(drafting).map(|request| request.taken))
    }
}

impl<R: Requester, C: Clone + Eq> Writer<R, C> {
    /// Takes what is to be made apart; gives back what is not.
    pub(super) fn set_apart(&mut self, mut taken: Taken<PendingRequest<R, C>>) -> Option<Taken<PendingRequest<R, C>>> {
        let large = self.apart_limits.large_quads;
        let clears_many = |masks: &[Mask]| self.space.matches_more_than(masks, large);
        let (is_draft, is_large) = match &taken.value.ask {
            SpaceRequest::Update(update) if update.reads() => (taken.job.is_long(), false),
            SpaceRequest::Update(update) => (false, update.size() >= large),
            SpaceRequest::Edit { remove, insert } => (false, insert.len() >= large || clears_many(remove)),
            SpaceRequest::Put { target, replaces, insert } => {
                (false, insert.len() >= large || *replaces && clears_many(std::slice::from_ref(target)))
            }
            _ => (false, false),
        };
        if !is_draft && !is_large {
            return Some(taken);
        }
        let household = taken.value.household;
        if self.apart.is_full(household) {
            self.refuse(taken, Refused::busy(Duration::from_secs(1)));
            return None;
        }
        let history = ApartHistory::default();
        if is_draft {
            self.apart.drafts.push(household, ApartRequest { taken, history });
            return None;
        }
        let is_smaller = self.is_smaller(&taken.value.ask);
        let Some((change, target, is_insertion)) = large_change(&mut taken.value.ask) else { return Some(taken) };
        let staged = Staged { draft: None, target, is_insertion, is_smaller };
        let request = ApartRequest { taken, history };
        self.apart.large.push_back(LargeRequest::new(request, Some(change), staged));
        None
    }

    /// The flows of what is made apart, in ascending order: what else there is of them is done afterwards, or it would overtake
    /// what was sent before it.
    pub(crate) fn flows_apart(&self) -> Vec<u64> {
        let ApartChanges { large, drafts, drafting, .. } = &self.apart;
        let apart =
            large.iter().map(|large| &large.request).chain(drafts.iter()).chain(drafting.iter().map(|it| &it.request));
        let taken = apart.map(|request| &request.taken).chain(self.due.iter().map(|work| &work.taken));
        let mut flows: Vec<u64> = taken.map(|taken| taken.value.flow).filter(|flow| *flow != 0).collect();
        flows.sort_unstable();
        flows
    }

    /// Whether the writer has a piece to do when it has time.
    pub(crate) fn has_piece(&self) -> bool {
        !self.apart.large.is_empty() || self.space.is_untidy()
    }

    /// Does one piece; [`Writer::end_piece`] ends it.
    pub(crate) fn handle_piece(&mut self, now: Timestamp) {
        // What is left of the last one goes before the next is begun.
        let is_begun = self.apart.large.front().is_some_and(|large| large.change.is_none());
        let next = if self.space.has_leftovers() && !is_begun { None } else { self.apart.large.pop_front() };
        let Some(mut large) = next else { return self.space.tidy(self.apart_limits.piece_steps) };
        if let Some(error) = large.failed.take() {
            return self.fail_large(large, error);
        }
        let is_overtaken = large.staged.draft.is_some_and(|draft| self.space.is_overtaken(draft));
        if large.until() <= now || is_overtaken {
            self.space.abandon_large();
            self.end_draft(&large.staged);
            if is_overtaken {
                self.again(large.request);
            } else {
                self.refuse_apart(large.request, Refused::Late);
            }
            return;
        }
        if let Some(change) = large.change.take() {
            let task = &large.request.taken.value;
            if let Some(refused) = self.refusal(task, large.staged.is_smaller) {
                self.end_draft(&large.staged);
                return self.refuse_apart(large.request, refused);
            }
            if let Err(error) = self.space.begin_large(change, self.store.is_some()) {
                return self.fail_large(large, error);
            }
        }
        self.apart.piece = Some(now);
        match self.space.stage(self.apart_limits.piece_steps) {
            Ok(false) => self.apart.large.push_front(large),
            Ok(true) => {
                let LargeRequest { request: ApartRequest { taken, history }, staged, .. } = large;
                self.due.push_back(WriterWork { taken, prepared: Prepared::Staged(staged), history });
            }
            Err(error) => {
                large.failed = Some(error);
                self.apart.large.push_front(large);
            }
        }
    }

    /// The piece is done, if one was: its request has cost so much more.
    pub(crate) fn end_piece(&mut self, now: Timestamp) {
        let Some(began) = self.apart.piece.take() else { return };
        let history = match self.due.back_mut() {
            Some(WriterWork { prepared: Prepared::Staged(_), history, .. }) => Some(history),
            _ => self.apart.large.front_mut().map(|large| &mut large.request.history),
        };
        if let Some(history) = history {
            history.spent += now.since(began);
        }
    }

    /// What was spent on it is not free because it was in vain.
    pub(super) fn refuse_apart(&mut self, request: ApartRequest<R, C>, refused: Refused) {
        let ApartRequest { taken, history } = request;
        self.end(taken.value, taken.job, Err(refused), history.spent);
    }

    fn fail_large(&mut self, large: LargeRequest<R, C>, error: GraphError) {
        self.end_draft(&large.staged);
        self.refuse_apart(large.request, error.into());
    }

    fn end_draft(&mut self, staged: &Staged) {
        if let Some(draft) = staged.draft {
            self.space.end_draft(draft);
        }
    }

    /// What was prepared is not done.
    pub(super) fn give_up(&mut self, prepared: &Prepared) {
        match prepared {
            Prepared::Staged(staged) => {
                self.space.abandon_large();
                self.end_draft(staged);
            }
            Prepared::Drafted(drafted) => self.space.end_draft(drafted.number()),
            Prepared::Nothing | Prepared::Evaluated(_) | Prepared::LastTime => {}
        }
    }

    /// The commit cannot do it in its time, or it was overtaken: it is worked out, or done whatever it takes.
    pub(super) fn again(&mut self, request: ApartRequest<R, C>) {
        let household = request.taken.value.household;
        match request.history.drafts {
            0 if self.apart.is_full(household) => self.refuse_apart(request, Refused::busy(Duration::from_secs(1))),
            0 => self.apart.drafts.push(household, request),
            // Before those who wait for their first time.
            drafts if drafts < self.apart_limits.drafts_max => self.apart.drafts.push_again(household, request),
            _ => self.last_time(request),
        }
    }

    /// An update was tried within the commits, and has to be worked out; [`Writer::charge_try`] says what that took.
    pub(super) fn set_aside(&mut self, now: Timestamp, request: ApartRequest<R, C>, is_first_try: bool) {
        let waiting = self.apart.drafts.len();
        self.again(request);
        self.apart.tried = (is_first_try && self.apart.drafts.len() > waiting).then_some(now);
    }

    /// What was spent on an update that was tried is not free because it was in vain.
    pub(super) fn charge_try(&mut self, now: Timestamp) {
        let Some(began) = self.apart.tried.take() else { return };
        if let Some(request) = self.apart.drafts.last_mut() {
            request.history.spent += now.since(began);
        }
    }

    fn last_time(&mut self, request: ApartRequest<R, C>) {
        let ApartRequest { taken, history } = request;
        self.due.push_back(WriterWork { taken, prepared: Prepared::LastTime, history });
    }

    /// Whether another thread has something to work out.
    pub(crate) fn wants_drafter(&self) -> bool {
        !self.apart.drafts.is_empty() && self.apart.drafting.is_none()
    }

    /// What is to be worked out next, and until when.
    pub(crate) fn poll_draft(&mut self, now: Timestamp) -> Option<(UpdateDraft, Timestamp)> {
        while self.apart.drafting.is_none() {
            let mut request = self.apart.drafts.pop()?;
            let task = &request.taken.value;
            let is_smaller = self.is_smaller(&task.ask);
            let refused = if task.until <= now { Some(Refused::Late) } else { self.refusal(task, is_smaller) };
            if let Some(refused) = refused {
                self.refuse_apart(request, refused);
                continue;
            }
            request.history.drafts += 1;
            let until = request.taken.value.until;
            let draft = match &request.taken.value.ask {
                SpaceRequest::Update(update) => self.space.begin_draft(update),
                _ => Err(GraphError::Unknown),
            };
            match draft {
                Ok(draft) => {
                    self.apart.drafting = Some(RunningDraft { number: draft.number(), began: now, request });
                    return Some((draft, until));
                }
                Err(error) => self.refuse_apart(request, error.into()),
            }
        }
        None
    }

    /// An update was worked out.
    pub(crate) fn handle_drafted(&mut self, now: Timestamp, drafted: DraftedUpdate) {
        let number = drafted.number();
        let Some(draft) = self.apart.drafting.take_if(|draft| draft.number == number) else { return };
        let RunningDraft { began, mut request, .. } = draft;
        request.history.spent += now.since(began);
        let is_overtaken = self.space.is_overtaken(number);
        let outcome = match drafted.error() {
            _ if is_overtaken => None,
            // A commit counts only those quads that change.
            Some(GraphError::Limit(Limit::ChangeQuads)) => {
                self.space.end_draft(number);
                return self.last_time(request);
            }
            Some(error) => Some(error.clone()),
            None => None,
        };
        if request.taken.value.until <= now || outcome.is_some() {
            self.space.end_draft(number);
            return self.refuse_apart(request, outcome.map_or(Refused::Late, Refused::from));
        }
        if is_overtaken {
            self.space.end_draft(number);
            return self.again(request);
        }
        if drafted.size() >= self.apart_limits.large_quads {
            let is_smaller = self.is_smaller(&request.taken.value.ask);
            let staged = Staged { draft: Some(number), target: None, is_insertion: false, is_smaller };
            let change = LargeChange::of_drafted(drafted);
            self.apart.large.push_back(LargeRequest::new(request, change, staged));
            return;
        }
        let ApartRequest { taken, history } = request;
        self.due.push_back(WriterWork { taken, prepared: Prepared::Drafted(drafted), history });
    }
}

/// What was done for a request before its turn.
pub(crate) enum Prepared {
    Nothing,
    /// The first result of its standing query.
    Evaluated(tidegate_graph::Evaluated),
    /// What an update does.
    Drafted(DraftedUpdate),
    /// A large change that is ready.
    Staged(Staged),
    /// Others were faster too often: it is done whatever it takes.
    LastTime,
}

/// The change that a request wants, taken out of it.
fn large_change<C>(ask: &mut SpaceRequest<C>) -> Option<(LargeChange, Option<Box<Mask>>, bool)> {
    match std::mem::replace(ask, SpaceRequest::RemoveRule(String::new())) {
        SpaceRequest::Edit { remove, insert } => {
            let is_insertion = !insert.is_empty();
            Some((LargeChange::edit(remove, insert), None, is_insertion))
        }
        SpaceRequest::Put { target, replaces, insert } => {
            let (remove, is_insertion) =
                (if replaces { vec![(*target).clone()] } else { Vec::new() }, !insert.is_empty());
            Some((LargeChange::edit(remove, insert), Some(target), is_insertion))
        }
        SpaceRequest::Update(update) => match LargeChange::of_update(update) {
            Ok(change) => Some((change, None, true)),
            Err(update) => {
                *ask = SpaceRequest::Update(update);
                None
            }
        },
        other => {
            *ask = other;
            None
        }
    }
}
