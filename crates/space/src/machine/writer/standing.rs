//! Standing queries that are evaluated beside the commits: which one is next, who waits for one, and what becomes of a
//! result.
//!
//! Only data that everybody may see are evaluated: an evaluation begins while no group waits for the disk.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_graph::{Evaluated, Evaluation, Query};

use super::apart::Prepared;
use super::{Writer, WriterWait, WriterWork};
use crate::limits::STANDING_WAITING_MAX;
use crate::machine::order::Taken;
use crate::machine::request::{Refused, SpaceRequest, Watched};
use crate::machine::task::{PendingRequest, Requester};

/// Subscriptions that wait for an evaluation.
pub(super) struct PendingEvaluations<R, C> {
    /// Those whose query was never evaluated, in the order in which they came.
    pub(super) firsts: VecDeque<Taken<PendingRequest<R, C>>>,
    /// The one of them that the evaluator works for, with the number of the evaluation.
    pub(super) first: Option<(u64, Taken<PendingRequest<R, C>>)>,
    /// Those whose query stands already and has to reach this version.
    pub(super) behind: Vec<(u64, Taken<PendingRequest<R, C>>)>,
}

impl<R, C> Default for PendingEvaluations<R, C> {
    fn default() -> Self {
        Self { firsts: VecDeque::new(), first: None, behind: Vec::new() }
    }
}

impl<R: Requester, C: Clone + Eq> Writer<R, C> {
    /// Keeps a subscription back until its query has been evaluated; gives it back if it need not be.
    pub(super) fn keep_back(&mut self, taken: Taken<PendingRequest<R, C>>) -> Option<Taken<PendingRequest<R, C>>> {
        let Some(query) = query_of(&taken.value).filter(|_| self.hold() != WriterWait::Stuck) else {
            return Some(taken);
        };
        let is_new = self.space.needs_evaluation(query);
        if !is_new && !self.space.is_behind(query) {
            return Some(taken);
        }
        if self.beside.firsts.len() + self.beside.behind.len() >= STANDING_WAITING_MAX {
            self.refuse(taken, Refused::busy(Duration::from_secs(1)));
        } else if is_new {
            self.beside.firsts.push_back(taken);
        } else {
            self.space.want(query);
            self.beside.behind.push((self.space.version(), taken));
        }
        self.is_evaluator_wanted = true;
        None
    }

    /// The evaluator has nothing to do.
    pub(crate) fn handle_idle(&mut self) {
        self.is_evaluator_wanted = true;
    }

    /// Whether [`Writer::poll_evaluation`] is to be asked, if the evaluator is idle. Said once: an evaluator that is busy
    /// says when it is idle.
    pub(crate) fn poll_evaluator(&mut self) -> bool {
        std::mem::take(&mut self.is_evaluator_wanted)
    }

    /// What an idle evaluator is to do, if there is anything.
    pub(crate) fn poll_evaluation(&mut self, now: Timestamp) -> Option<Evaluation> {
        if self.group.is_some() || self.beside.first.is_some() {
            return None;
        }
        while let Some(taken) = self.beside.firsts.pop_front() {
            if taken.value.is_over(now) {
                self.refuse(taken, Refused::Late);
                continue;
            }
            let first = query_of(&taken.value).map(|query| self.space.first_evaluation(query));
            if let Some(Ok(Some(evaluation))) = first {
                self.beside.first = Some((evaluation.number(), taken));
                return Some(evaluation);
            }
            // Somebody else asked for the same meanwhile, or it cannot stand at all.
            self.due.push_back(WriterWork::new(taken));
        }
        let Self { space, registry, delegator, .. } = self;
        // Whoever checks has it evaluated then.
        space.poll_evaluation(|id| registry.is_heard(id) && !delegator.is_delegated(id.0))
    }

    /// A standing query was evaluated.
    pub(crate) fn handle_evaluated(&mut self, now: Timestamp, evaluated: Evaluated) {
        self.is_evaluator_wanted = true;
        let is_first = |(number, _): &mut (u64, Taken<PendingRequest<R, C>>)| *number == evaluated.number();
        if let Some((_, taken)) = self.beside.first.take_if(is_first) {
            self.due.push_back(WriterWork { prepared: Prepared::Evaluated(evaluated), ..WriterWork::new(taken) });
            return;
        }
        self.space.finish_evaluation(evaluated);
        self.ready.extend(self.space.ready());
        self.look_behind(now);
    }

    /// Those whose query has come far enough are served; those whose query is gone begin anew, beside the commits like
    /// anybody else.
    pub(super) fn look_behind(&mut self, now: Timestamp) {
        for (version, taken) in std::mem::take(&mut self.beside.behind) {
            let Some(query) = query_of(&taken.value) else { continue };
            let is_behind = self.space.result_version(query).is_some_and(|found| found < version);
            if taken.value.is_over(now) {
                self.refuse(taken, Refused::Late);
            } else if is_behind {
                self.space.want(query);
                self.beside.behind.push((version, taken));
            } else if self.space.needs_evaluation(query) {
                self.beside.firsts.push_back(taken);
            } else {
                self.due.push_back(WriterWork::new(taken));
            }
        }
    }

    /// Everybody who waits for an evaluation.
    pub(super) fn take_beside(&mut self) -> impl Iterator<Item = Taken<PendingRequest<R, C>>> + use<R, C> {
        let PendingEvaluations { firsts, first, behind } = std::mem::take(&mut self.beside);
        let first = first.map(|(_, taken)| taken);
        firsts.into_iter().chain(first).chain(behind.into_iter().map(|(_, taken)| taken))
    }
}

pub(super) fn query_of<R, C>(task: &PendingRequest<R, C>) -> Option<&Query> {
    match &task.ask {
        SpaceRequest::Subscribe { what: Watched::Query(query), .. } => Some(query),
        _ => None,
    }
}
