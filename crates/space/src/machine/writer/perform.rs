//! What each request does to the data.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::hints::{Delegate, Hints};
use tidegate_graph::{CancelToken, CatchUp, Evaluated, GraphError, Limit, QueryLimits, UpdateOutcome};

use super::apart::{ApartHistory, ApartRequest, Prepared, Staged};
use super::group::{CommitGroup, DoneRequest};
use super::standing::query_of;
use super::{RuleChange, Write, Writer, WriterEvent, WriterWork};
use crate::machine::delegation::DelegationTerms;
use crate::machine::order::Taken;
use crate::machine::request::{
    AnswerSource, Begun, Refused, ResponseBody, ResumePoint, SpaceRequest, SpaceResponse, Subscribed, Watched,
};
use crate::machine::task::{PendingRequest, Requester};

impl<R: Requester, C: Clone + Eq> Writer<R, C> {
    /// Does a request, until it is cancelled; [`Writer::turn`] ends it. False if it has to be worked out beside the commits,
    /// and nothing was done.
    pub(crate) fn perform(&mut self, now: Timestamp, work: WriterWork<R, C>, cancel: CancelToken) -> bool {
        let WriterWork { taken, prepared, history } = work;
        let is_first_try = matches!(prepared, Prepared::Nothing);
        // Changes have no key, so nobody joins them.
        let Taken { job, value: mut task, joined, queued } = taken;
        let is_kept = self.store.is_some() && !matches!(task.ask, SpaceRequest::Subscribe { .. });
        let before = (is_kept && self.group.is_none()).then(|| self.space.snapshot());
        let connection = if let SpaceRequest::Subscribe { outlet, .. } = &task.ask { outlet.clone() } else { None };
        let behind = query_of(&task).and_then(|query| self.space.result_version(query));
        let handed_over = self.writes.len();
        let outcome = match self.execute(now, &mut task, prepared, history, cancel) {
            Ok(None) => {
                drop(before);
                let request = ApartRequest { taken: Taken { job, value: task, joined, queued }, history };
                self.set_aside(now, request, is_first_try);
                return false;
            }
            Ok(Some(answer)) => Ok(answer),
            Err(refused) => Err(refused),
        };
        task.requester.release();
        let version = match &outcome {
            Ok(ResponseBody::Subscribed(subscribed)) => subscribed.version().or(behind).unwrap_or(self.space.version()),
            _ => self.space.version(),
        };
        let mut hints = Hints { queued: Some(queued), ..task.hints.clone() };
        if let Ok(ResponseBody::Subscribed(subscribed)) = &outcome
            && let Some(every) = self.delegator.tell_every(subscribed.id.0)
        {
            (hints.delegate, hints.interval) = (Some(Delegate::Check), Some(every));
        }
        let outcome = outcome.map(|answer| SpaceResponse { answer, version, hints, source: AnswerSource::Fresh });
        if let Some(before) = before.filter(|_| self.writes.len() > handed_over) {
            self.group = Some(CommitGroup::new(before, now));
        }
        let spent = history.spent;
        self.current = Some(DoneRequest { task, outcome, job, connection, spent, began: now, took: Duration::ZERO });
        true
    }

    /// None if it has to be worked out beside the commits.
    fn execute(
        &mut self,
        now: Timestamp,
        task: &mut PendingRequest<R, C>,
        prepared: Prepared,
        history: ApartHistory,
        cancel: CancelToken,
    ) -> Result<Option<ResponseBody>, Refused> {
        match (&mut task.ask, prepared) {
            (_, Prepared::Staged(staged)) => {
                if staged.draft.is_some_and(|draft| self.space.is_overtaken(draft)) {
                    self.give_up(&Prepared::Staged(staged));
                    return Ok(None);
                }
                self.finish_large(staged, &task.requester).map(Some)
            }
            (SpaceRequest::Update(_), Prepared::Drafted(drafted)) => {
                if self.space.is_overtaken(drafted.number()) {
                    self.give_up(&Prepared::Drafted(drafted));
                    return Ok(None);
                }
                let outcome = self.space.commit_drafted(drafted)?;
                Ok(Some(self.changed(outcome, None, &task.requester)))
            }
            (SpaceRequest::Update(update), prepared) => {
                let is_short = update.reads() && matches!(prepared, Prepared::Nothing);
                let mut limits = QueryLimits { cancel, ..QueryLimits::default() };
                if is_short {
                    limits.steps_max = self.apart_limits.inline_steps;
                }
                match self.space.update(update, &limits) {
                    Err(GraphError::Limit(Limit::Steps) | GraphError::Cancelled)
                        if is_short && history.drafts < self.apart_limits.drafts_max =>
                    {
                        Ok(None)
                    }
                    outcome => {
                        let outcome = outcome?;
                        Ok(Some(self.changed(outcome, None, &task.requester)))
                    }
                }
            }
            (_, Prepared::Evaluated(found)) => self.serve(now, task, Some(found), cancel).map(Some),
            (_, Prepared::Nothing | Prepared::LastTime | Prepared::Drafted(_)) => {
                self.serve(now, task, None, cancel).map(Some)
            }
        }
    }

    /// The last moment of a large change.
    fn finish_large(&mut self, staged: Staged, requester: &R) -> Result<ResponseBody, Refused> {
        let Staged { draft, target, is_insertion, .. } = staged;
        let is_new = is_insertion && target.as_ref().is_some_and(|target| !self.space.has(target));
        let outcome = self.space.commit_large();
        if let Some(draft) = draft {
            self.space.end_draft(draft);
        }
        let changed = self.changed(outcome?, None, requester);
        Ok(if target.is_some() { ResponseBody::Put { is_new } } else { changed })
    }

    fn serve(
        &mut self,
        now: Timestamp,
        task: &mut PendingRequest<R, C>,
        found: Option<Evaluated>,
        cancel: CancelToken,
    ) -> Result<ResponseBody, Refused> {
        match std::mem::replace(&mut task.ask, SpaceRequest::RemoveRule(String::new())) {
            SpaceRequest::Edit { remove, insert } => {
                let outcome = self.space.edit(&remove, &insert)?;
                Ok(self.changed(outcome, None, &task.requester))
            }
            SpaceRequest::Put { target, replaces, insert } => {
                let is_new = !insert.is_empty() && !self.space.has(&target);
                let remove = if replaces { vec![*target] } else { Vec::new() };
                let outcome = self.space.edit(&remove, &insert)?;
                self.changed(outcome, None, &task.requester);
                Ok(ResponseBody::Put { is_new })
            }
            SpaceRequest::Subscribe { what, name, seen, outlet } => {
                let watched = what.canonical();
                let terms = task.delegation;
                let resumed = seen.and_then(|seen| self.resume(now, &seen, &watched, outlet.as_ref(), terms));
                if let Some(subscribed) = resumed {
                    return Ok(ResponseBody::Subscribed(Box::new(subscribed)));
                }
                let text = what.shown();
                let subscribed = match what {
                    Watched::Query(query) => match found {
                        Some(found) => self.space.subscribe_evaluated(&query, found)?,
                        None => self.space.subscribe(&query)?,
                    },
                    Watched::Masks(masks) => self.space.subscribe_masks(&masks)?,
                };
                let id = subscribed.subscriber;
                if outlet.is_some() {
                    self.delegator.begin(now, id.0, terms);
                }
                self.registry.add(now, id, name.clone(), watched, outlet);
                self.events.push_back(WriterEvent::Subscribed(id, text));
                Ok(ResponseBody::Subscribed(Box::new(Subscribed {
                    id,
                    name,
                    begun: Begun::Whole(subscribed.baseline),
                })))
            }
            SpaceRequest::AddRule { name, text } => {
                let limits = QueryLimits { cancel, ..QueryLimits::default() };
                let (id, outcome) = self.space.add_rule(&text, &limits)?;
                self.rules.insert(name.clone(), id);
                self.changed(outcome, Some(RuleChange::Added(id, name.clone(), text)), &task.requester);
                Ok(ResponseBody::Rule(name))
            }
            SpaceRequest::RemoveRule(name) => {
                let id = *self.rules.get(&name).ok_or(Refused::Failed(GraphError::Unknown))?;
                self.space.remove_rule(id)?;
                self.rules.remove(&name);
                self.changed(UpdateOutcome::default(), Some(RuleChange::Removed(id)), &task.requester);
                Ok(ResponseBody::Rule(name))
            }
            // Questions go to the readers, and updates were done.
            SpaceRequest::Query { .. } | SpaceRequest::Match { .. } | SpaceRequest::Update(_) => Err(Refused::Closing),
        }
    }

    /// Goes on with a subscription where its client stopped hearing of it. None if what it missed is not known.
    fn resume(
        &mut self,
        now: Timestamp,
        seen: &ResumePoint,
        watched: &str,
        outlet: Option<&C>,
        terms: DelegationTerms,
    ) -> Option<Subscribed> {
        let (id, since) = self.registry.find(&seen.name, watched, seen.sequence, seen.round)?;
        let is_check = outlet.is_some_and(|outlet| self.registry.is_of(id, outlet));
        if is_check
            && self.delegator.is_delegated(id.0)
            && let Some((sequence, delta)) = self.fetch(now, id, since)
        {
            let variables = self.space.variables(id).unwrap_or_default();
            return Some(Subscribed {
                id,
                name: seen.name.clone(),
                begun: Begun::Missed { sequence, variables, delta },
            });
        }
        match self.space.check(id, since) {
            Ok(CatchUp::Missed { sequence, delta, .. }) => {
                let variables = self.space.variables(id).unwrap_or_default();
                if !is_check {
                    let terms = if outlet.is_some() { terms } else { DelegationTerms::default() };
                    self.delegator.begin(now, id.0, terms);
                }
                if let Some(displaced) = self.registry.attach(now, id, outlet.cloned())
                    && outlet != Some(&displaced)
                {
                    self.events.push_back(WriterEvent::Displaced(id, displaced));
                }
                let sequence = self.registry.get_mut(id)?.number(sequence);
                let begun = Begun::Missed { sequence, variables, delta };
                Some(Subscribed { id, name: seen.name.clone(), begun })
            }
            Ok(CatchUp::Fresh(_)) | Err(_) => {
                self.leave(id);
                None
            }
        }
    }

    /// Hands over what a request did, as one.
    fn changed(&mut self, outcome: UpdateOutcome, rule: Option<RuleChange>, requester: &R) -> ResponseBody {
        let UpdateOutcome { deltas, stopped, blanks, bytes } = outcome;
        let is_change = !deltas.is_empty();
        for delta in &deltas {
            self.touched.note(delta);
        }
        let mut removed = Vec::with_capacity(stopped.len());
        for (stopped, error) in stopped {
            self.rules.retain(|_, id| *id != stopped);
            removed.push(stopped);
            self.events.push_back(WriterEvent::RuleStopped(stopped, error));
        }
        if self.store.is_some() && (is_change || rule.is_some() || !removed.is_empty()) {
            // Said before: whoever hears nothing must not take it for undone.
            requester.submit();
            self.writes.push_back(Write { rule, stopped: removed, deltas, bytes });
        } else {
            for delta in deltas {
                self.space.let_go(delta);
            }
        }
        ResponseBody::Changed { is_change, blanks }
    }
}
