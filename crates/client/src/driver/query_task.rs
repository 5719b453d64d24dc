//! The task that keeps all persistent queries of a space: one hub, one agenda, bounded channels. It never waits for
//! anybody: sockets have tasks of their own, and whoever reads slowly gets the sum of changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use rand_xoshiro::Xoshiro256PlusPlus;
use tidegate_control::hints::Asks;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::debug;

use super::events::Notices;
use super::outlet::Outlet;
use super::socket::SocketPool;
use super::space::Endpoint;
use super::ssap::{MissedCheck, failure_of};
use super::{CheckAnswer, DriverClock, SpaceQuery, chance};
use crate::error::Error;
use crate::limits::{ANSWER_TIMEOUT, CHANNEL, CHECKS_MAX};
use crate::session::event::EventKind;
use crate::session::hub::{Hub, WatchId};
use crate::session::row::Row;
use crate::session::watch::{Attempt, ChangeSource, Input, ResultChange, Watch, WatchAction, WatchPlan, WatchStats};

/// What the handles of a space ask of its task.
pub(crate) enum SpaceCommand {
    Open {
        what: SpaceQuery,
        plan: Arc<WatchPlan>,
        outlet: Weak<Outlet>,
        opened: oneshot::Sender<Result<WatchId, Error>>,
    },
    Close(WatchId),
    CheckNow(WatchId),
    Stats(WatchId, oneshot::Sender<WatchStats>),
    View(WatchId, oneshot::Sender<Vec<Row>>),
}

/// News from a socket or a check.
pub(crate) type News = (WatchId, Result<Input, (Attempt, Error)>);

/// How a task tells news of one watch.
#[derive(Clone, Debug)]
pub(crate) struct WatchReporter {
    pub(crate) id: WatchId,
    pub(crate) news: mpsc::Sender<News>,
}

impl WatchReporter {
    pub(crate) async fn input(&self, input: Input) {
        // Without a task nobody is interested.
        let _ = self.news.send((self.id, Ok(input))).await;
    }

    pub(crate) async fn refused(&self, attempt: Attempt, error: Error) {
        let _ = self.news.send((self.id, Err((attempt, error)))).await;
    }
}

struct WatchedQuery {
    what: SpaceQuery,
    outlet: Weak<Outlet>,
    /// Whoever waits for the first result.
    opened: Option<oneshot::Sender<Result<WatchId, Error>>>,
    /// Dropping one ends its subscription: the one that stands, and the one that is asked for.
    lanes: Vec<(Attempt, mpsc::Sender<MissedCheck>)>,
}

pub(crate) struct QueryTask {
    endpoint: Arc<Endpoint>,
    hub: Hub,
    clock: DriverClock,
    rng: Xoshiro256PlusPlus,
    kept: BTreeMap<WatchId, WatchedQuery>,
    sockets: SocketPool,
    checks: Arc<Semaphore>,
    news: mpsc::Sender<News>,
    notices: Arc<Notices>,
}

impl QueryTask {
    /// Begins; the task ends when nobody can command it any more.
    pub(crate) fn start(endpoint: Arc<Endpoint>, notices: Arc<Notices>) -> mpsc::Sender<SpaceCommand> {
        let (commands, orders) = mpsc::channel(CHANNEL);
        let (news, incoming) = mpsc::channel(CHANNEL);
        let task = Self {
            sockets: SocketPool::new(Arc::clone(&endpoint), news.clone()),
            endpoint,
            hub: Hub::default(),
            clock: DriverClock::new(),
            rng: chance(),
            kept: BTreeMap::new(),
            checks: Arc::new(Semaphore::new(CHECKS_MAX)),
            news,
            notices,
        };
        tokio::spawn(task.run(orders, incoming));
        commands
    }

    async fn run(mut self, mut orders: mpsc::Receiver<SpaceCommand>, mut incoming: mpsc::Receiver<News>) {
        loop {
            let due = self.hub.poll_timeout().map(|at| self.clock.instant(at));
            let timer = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                order = orders.recv() => match order {
                    Some(order) => self.obey(order),
                    None => return,
                },
                Some((id, news)) = incoming.recv() => self.hear(id, news),
                () = timer => self.hub.turn(self.clock.now(), &mut self.rng),
            }
            while let Some((id, action)) = self.hub.poll_action() {
                self.act(id, action);
            }
            while let Some((id, change)) = self.hub.poll_change() {
                self.deliver(id, change);
            }
        }
    }

    fn obey(&mut self, order: SpaceCommand) {
        let now = self.clock.now();
        match order {
            SpaceCommand::Open { what, plan, outlet, opened } => {
                let Some(id) = self.hub.open(&plan, now, &mut self.rng) else {
                    let _ = opened.send(Err(Error::TooMany("persistent queries")));
                    return;
                };
                self.kept.insert(id, WatchedQuery { what, outlet, opened: Some(opened), lanes: Vec::new() });
            }
            SpaceCommand::Close(id) => self.close(id),
            SpaceCommand::CheckNow(id) => self.hub.tell(id, now, &mut self.rng, |watch| watch.check_now(now)),
            SpaceCommand::Stats(id, answer) => {
                if let Some(watch) = self.hub.watch(id) {
                    let _ = answer.send(watch.stats());
                }
            }
            SpaceCommand::View(id, answer) => {
                if let Some(watch) = self.hub.watch(id) {
                    let _ = answer.send(watch.view().rows().cloned().collect());
                }
            }
        }
    }

    fn close(&mut self, id: WatchId) {
        self.hub.close(id);
        self.kept.remove(&id);
        self.sockets.leave(id);
        if let Endpoint::Ssap(endpoint) = &*self.endpoint {
            endpoint.forget(id);
        }
    }

    fn hear(&mut self, id: WatchId, news: Result<Input, (Attempt, Error)>) {
        let input = match news {
            Ok(input) => input,
            Err((attempt, error)) => {
                debug!(event = "request_failed", watch = id.0, %error);
                let failure = failure_of(&error);
                // Whoever waits for the first result hears of what will not pass.
                if !error.is_passing()
                    && let Some(opened) = self.kept.get_mut(&id).and_then(|kept| kept.opened.take())
                {
                    let _ = opened.send(Err(error));
                    return self.close(id);
                }
                Input::Refused { attempt, failure }
            }
        };
        if let Input::Subscribed { attempt, .. } | Input::Resumed { attempt, .. } = input {
            // The one before is not needed any more.
            if let Some(kept) = self.kept.get_mut(&id) {
                kept.lanes.retain(|(lane, _)| *lane == attempt);
            }
            self.sockets.stands(id, attempt);
        }
        if let Input::Ended { attempt, .. } = input {
            self.sockets.ended(id, attempt);
        }
        if let (Input::Whole { hints, .. }, Endpoint::Ssap(endpoint)) = (&input, &*self.endpoint)
            && endpoint.can_tell(hints)
        {
            self.hub.tell(id, self.clock.now(), &mut self.rng, Watch::allow_missed);
        }
        let now = self.clock.now();
        if !self.notices.are_wanted() {
            return self.hub.handle(id, input, now, &mut self.rng);
        }
        let is_live = |hub: &Hub| hub.watch(id).is_some_and(|watch| watch.stats().is_live);
        let (kind, advice) = (EventKind::of_input(&input), EventKind::advice_in(&input));
        let was_live = is_live(&self.hub);
        self.hub.handle(id, input, now, &mut self.rng);
        let connected = (!was_live && is_live(&self.hub)).then_some(EventKind::Connected);
        let is_cut = matches!(kind, Some(EventKind::Cut | EventKind::Refused { .. } | EventKind::Failed));
        let again = is_cut.then(|| self.hub.watch(id)?.returns_at()).flatten();
        let again = again.map(|at| EventKind::Returning { after: at.since(now) });
        for kind in [connected, kind, advice, again].into_iter().flatten() {
            self.notices.tell(Some(id.0), kind);
        }
    }

    fn act(&mut self, id: WatchId, action: WatchAction) {
        let Some(kept) = self.kept.get_mut(&id) else { return };
        if kept.outlet.strong_count() == 0 {
            return self.close(id);
        }
        if self.notices.are_wanted()
            && let Some(kind) = EventKind::of_action(&action)
        {
            self.notices.tell(Some(id.0), kind);
        }
        let tell = WatchReporter { id, news: self.news.clone() };
        let (endpoint, what) = (Arc::clone(&self.endpoint), kept.what.clone());
        match action {
            WatchAction::Subscribe { attempt, resume, asks } => match &*endpoint {
                Endpoint::Ssap(_) => {
                    let (lane, orders) = mpsc::channel(1);
                    kept.lanes.retain(|(_, lane)| !lane.is_closed());
                    kept.lanes.push((attempt, lane));
                    tokio::spawn(async move {
                        if let Endpoint::Ssap(endpoint) = &*endpoint {
                            endpoint.follow(&what, attempt, resume, &asks, &tell, orders).await;
                        }
                    });
                }
                Endpoint::Http(_) => self.sockets.subscribe(id, attempt, what, resume, asks),
            },
            WatchAction::Check { attempt, since, version, mut asks } => {
                if let Some((live, last)) = since
                    && let Some((_, lane)) = kept.lanes.iter().find(|(lane, _)| *lane == live)
                    && lane.try_send(MissedCheck { attempt, last, asks: asks.clone() }).is_ok()
                {
                    return;
                }
                if let (Some(since), Endpoint::Http(_)) = (since, &*endpoint)
                    && self.sockets.ask_missed(id, attempt, what.clone(), since, asks.clone())
                {
                    return;
                }
                // Nobody can tell what was missed: the whole result shows it.
                let checks = Arc::clone(&self.checks);
                tokio::spawn(async move {
                    let Some(_place) = place_for(checks, &mut asks).await else { return };
                    match endpoint.check(&what, version.as_deref(), &asks).await {
                        Ok(CheckAnswer::Whole { rows, version, hints }) => {
                            tell.input(Input::Whole { attempt, rows, version, hints }).await;
                        }
                        Ok(CheckAnswer::NotModified { hints }) => {
                            tell.input(Input::NotModified { attempt, hints }).await;
                        }
                        Err(error) => tell.refused(attempt, error).await,
                    }
                });
            }
        }
    }

    fn deliver(&mut self, id: WatchId, change: ResultChange) {
        let Some(kept) = self.kept.get_mut(&id) else { return };
        let is_first = change.source == ChangeSource::Baseline;
        if change.lost > 0 {
            debug!(event = "losses", watch = id.0, lost = change.lost);
            self.notices.tell(Some(id.0), EventKind::LossFound { losses: change.lost });
        }
        match kept.outlet.upgrade() {
            Some(outlet) => outlet.put(change),
            None => return self.close(id),
        }
        if is_first && let Some(opened) = kept.opened.take() {
            let _ = opened.send(Ok(id));
        }
    }
}

/// Waits for a place, but not beyond the deadline: by then the watch has given the check up and asks anew. What is left of
/// the deadline is for the answer.
async fn place_for(checks: Arc<Semaphore>, asks: &mut Asks) -> Option<OwnedSemaphorePermit> {
    let (all, since) = (asks.deadline.unwrap_or(ANSWER_TIMEOUT), Instant::now());
    let place = timeout(all, checks.acquire_owned()).await.ok()?.ok()?;
    asks.deadline = Some(all.saturating_sub(since.elapsed()));
    Some(place)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_check_waits_for_a_place_no_longer_than_for_its_answer() {
        let checks = Arc::new(Semaphore::new(1));
        let mut asks = Asks { deadline: Some(Duration::from_secs(60)), ..Asks::default() };
        let place = place_for(Arc::clone(&checks), &mut asks).await;
        assert!(place.is_some() && asks.deadline < Some(Duration::from_secs(60)));
        let mut late = Asks { deadline: Some(Duration::from_millis(1)), ..Asks::default() };
        assert!(place_for(Arc::clone(&checks), &mut late).await.is_none());
        drop(place);
        assert_eq!(checks.available_permits(), 1);
    }
}
