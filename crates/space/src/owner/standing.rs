//! The owner's side of standing queries that are evaluated beside the commits: which one is next, who waits for one, and
//! what becomes of a result.
//!
//! Only data that everybody may see are evaluated: an evaluation begins while no group waits for the disk.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tidegate_graph::{Evaluated, Query};

use super::Owner;
use crate::ask::{Ask, Refused, Watched};
use crate::condition::Condition;
use crate::desk::{Hold, Task};
use crate::limits::STANDING_WAITING_MAX;
use crate::order::Taken;

/// Subscriptions that wait for an evaluation.
#[derive(Default)]
pub(super) struct Beside {
    /// Those whose query was never evaluated, in the order in which they came.
    firsts: VecDeque<Taken<Task>>,
    /// The one of them that the evaluator works for, with the number of the evaluation.
    first: Option<(u64, Taken<Task>)>,
    /// Those whose query stands already and has to reach this version.
    behind: Vec<(u64, Taken<Task>)>,
    /// The first result of the subscription that is being served.
    pub(super) found: Option<Evaluated>,
    /// The next evaluation is being chosen: whoever is served meanwhile does not begin another choice.
    is_choosing: bool,
}

impl Owner {
    /// Keeps a subscription back until its query has been evaluated; gives it back if it need not be.
    pub(super) fn keep_back(&mut self, taken: Taken<Task>) -> Option<Taken<Task>> {
        let Some(query) = query_of(&taken.value).filter(|_| self.hold() != Hold::Stuck) else { return Some(taken) };
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
        self.evaluate_next();
        None
    }

    /// Gives the evaluator something to do, if it is idle and there is anything.
    pub(super) fn evaluate_next(&mut self) {
        let is_busy = self.beside.is_choosing || self.beside.first.is_some() || !self.shared.is_evaluator_idle();
        if self.group.is_none() && !is_busy {
            self.beside.is_choosing = true;
            self.choose_next();
            self.beside.is_choosing = false;
        }
    }

    fn choose_next(&mut self) {
        while let Some(taken) = self.beside.firsts.pop_front() {
            if is_over(&taken.value) {
                self.refuse(taken, Refused::Late);
                continue;
            }
            let first = query_of(&taken.value).map(|query| self.space.first_evaluation(query));
            if let Some(Ok(Some(evaluation))) = first {
                self.beside.first = Some((evaluation.number(), taken));
                return self.shared.evaluate(evaluation);
            }
            // Somebody else asked for the same meanwhile, or it cannot stand at all.
            self.serve_now(taken);
        }
        let Self { space, seats, .. } = self;
        if let Some(evaluation) = space.poll_evaluation(|id| seats.is_heard(id)) {
            self.shared.evaluate(evaluation);
        }
    }

    /// A result has come.
    pub(super) fn evaluated(&mut self, evaluated: Evaluated) {
        let is_first = |(number, _): &mut (u64, Taken<Task>)| *number == evaluated.number();
        if let Some((_, taken)) = self.beside.first.take_if(is_first) {
            self.beside.found = Some(evaluated);
            self.serve_now(taken);
            self.beside.found = None;
            return;
        }
        self.space.finish_evaluation(evaluated);
        match &mut self.group {
            Some(group) => group.called.extend(self.space.ready()),
            None => self.tell_ready(),
        }
        self.look_behind();
    }

    /// Those whose query has come far enough are served; those whose query is gone begin anew, beside the commits like
    /// anybody else.
    pub(super) fn look_behind(&mut self) {
        for (version, taken) in std::mem::take(&mut self.beside.behind) {
            let Some(query) = query_of(&taken.value) else { continue };
            let is_behind = self.space.result_version(query).is_some_and(|found| found < version);
            if is_over(&taken.value) {
                self.refuse(taken, Refused::Late);
            } else if is_behind {
                self.space.want(query);
                self.beside.behind.push((version, taken));
            } else if self.space.needs_evaluation(query) {
                self.beside.firsts.push_back(taken);
            } else {
                self.serve_now(taken);
            }
        }
    }

    /// The owner ends: whoever waits is told.
    pub(super) fn abandon_beside(&mut self) {
        let Beside { firsts, first, behind, .. } = std::mem::take(&mut self.beside);
        let first = first.map(|(_, taken)| taken);
        for taken in firsts.into_iter().chain(first).chain(behind.into_iter().map(|(_, taken)| taken)) {
            self.refuse(taken, Refused::Unavailable(Condition::Restarting));
        }
    }

    fn refuse(&mut self, taken: Taken<Task>, refused: Refused) {
        self.shared.cancelled(taken.job, false, Duration::ZERO);
        self.shared.reply(taken.value, Err(refused));
    }
}

pub(super) fn query_of(task: &Task) -> Option<&Query> {
    match &task.ask {
        Ask::Subscribe { what: Watched::Query(query), .. } => Some(query),
        _ => None,
    }
}

fn is_over(task: &Task) -> bool {
    task.progress.is_gone() || task.until <= Instant::now()
}
