//! The thread of the maps: one message after the other into the space, one solution after the other out of it.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow};
use oxrdf::Quad;
use tidegate_broker::{Handle as Broker, Mapped};
use tidegate_graph::ResultDelta;
use tidegate_map::{Additions, Chain, Edit, Emit, IncomingMessage, Ingest, Loss};
use tidegate_space::{
    Begun, NotificationInlet, NotificationOutlet, PendingReply, Refused, RequestOrigin, ResponseBody, SpaceHandle,
    SpaceNotification, SpaceRequest, SpaceResponse, Watched,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tracing::warn;

use super::{MapCounts, QueuedMessage};
use crate::config::map::Maps;
use crate::log::iso_time;

/// Changes under way; more wait in the queue, where they are counted if they are too many.
const WINDOW: usize = 64;
/// Between two tries of a standing query, whatever the space advises.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// A change under way.
#[derive(Default)]
struct SpaceChange {
    /// The length of the chain that it belongs to.
    chain: u8,
    /// What stays for ever if it is refused, unless a later one removes it.
    debt: Vec<Quad>,
}

/// What came of a try.
enum TryOutcome {
    Stands,
    Later(Duration),
    Never(String),
}

pub(super) struct Worker {
    ingest: Vec<Ingest>,
    emit: Vec<Emit>,
    /// The standing queries, by subscriber: which rule, and the version it was told last.
    standing: BTreeMap<u64, (usize, u64)>,
    kept: Additions,
    chain: Chain,
    /// Standing queries that have ended or never stood, and when to try whether they stand.
    due: Vec<(Instant, usize)>,
    /// In order.
    under_way: VecDeque<(SpaceChange, PendingReply)>,
    broker: Broker,
    space: SpaceHandle,
    outlet: Arc<NotificationOutlet>,
    inlet: Option<NotificationInlet>,
    counts: Arc<MapCounts>,
    /// What names of messages begin with, so that no other run has used them.
    boot: u64,
    number: u64,
}

impl Worker {
    pub(super) fn new(maps: Maps, broker: Broker, space: SpaceHandle, counts: Arc<MapCounts>) -> Self {
        let (outlet, inlet) = tidegate_space::outlet(&space);
        let boot = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        Self {
            ingest: maps.ingest.into_iter().map(|(_, ingest, _)| ingest).collect(),
            emit: maps.emit.into_iter().map(|(_, emit, _)| emit).collect(),
            standing: BTreeMap::new(),
            kept: Additions::new(boot),
            chain: Chain::default(),
            due: Vec::new(),
            under_way: VecDeque::new(),
            broker,
            space,
            outlet,
            inlet: Some(inlet),
            counts,
            boot,
            number: 0,
        }
    }

    /// Makes the standing queries stand. For those that do not by then nobody waits any longer.
    pub(super) async fn stand(&mut self, until: Instant) -> Result<()> {
        for rule in 0..self.emit.len() {
            if Instant::now() < until
                && let Ok(outcome) = timeout_at(until, self.stand_one(rule)).await
            {
                outcome?;
            } else {
                self.due.push((Instant::now(), rule));
            }
        }
        if !self.due.is_empty() {
            let (late, all) = (self.due.len(), self.emit.len());
            warn!(
                event = "map_emit_late",
                late, all, "the smart space is busy: queries of map.emit do not stand yet and are tried again"
            );
        }
        Ok(())
    }

    /// Has the standing queries tried while messages are taken.
    pub(super) fn stand_later(&mut self) {
        let now = Instant::now();
        self.due.extend((0..self.emit.len()).map(|rule| (now, rule)));
    }

    /// As often as the space is busy.
    async fn stand_one(&mut self, rule: usize) -> Result<()> {
        loop {
            match self.try_to_stand(rule).await {
                TryOutcome::Stands => return Ok(()),
                TryOutcome::Later(pause) => sleep(pause).await,
                TryOutcome::Never(why) => {
                    return Err(anyhow!("the query of map.emit number {} does not stand: {why}", rule + 1));
                }
            }
        }
    }

    async fn try_to_stand(&mut self, rule: usize) -> TryOutcome {
        let query = Box::new(self.emit[rule].query().clone());
        // Whoever knew the name could go on with it.
        let name = format!("map {rule} {:x}", RandomState::new().build_hasher().finish());
        let (what, outlet) = (Watched::Query(query), Some(Arc::clone(&self.outlet)));
        let ask = SpaceRequest::Subscribe { what, name, seen: None, outlet };
        match self.space.ask(ask, RequestOrigin::new(0, None)).await {
            Ok(SpaceResponse { answer: ResponseBody::Subscribed(subscribed), version, .. }) => {
                let version = if let Begun::Whole(baseline) = &subscribed.begun { baseline.version } else { version };
                self.standing.insert(subscribed.id.0, (rule, version));
                TryOutcome::Stands
            }
            Err(refused) => {
                pause_after(&refused).map_or_else(|| TryOutcome::Never(format!("{refused:?}")), TryOutcome::Later)
            }
            other => TryOutcome::Never(format!("{other:?}")),
        }
    }

    /// A standing query has ended, or did not stand in time: tries whether it stands now.
    async fn stand_again(&mut self, rule: usize) {
        match self.try_to_stand(rule).await {
            TryOutcome::Stands => {}
            TryOutcome::Later(pause) => self.due.push((Instant::now() + pause, rule)),
            TryOutcome::Never(why) => {
                warn!(event = "map_emit_off", rule = rule + 1, why, "a map publishes nothing any more");
            }
        }
    }

    pub(super) async fn run(
        &mut self,
        messages: &mut mpsc::Receiver<QueuedMessage>,
        stopped: &mut oneshot::Receiver<()>,
    ) {
        let Some(mut inlet) = self.inlet.take() else { return };
        loop {
            let has_room = self.under_way.len() < WINDOW;
            tokio::select! {
                biased;
                _ = &mut *stopped => return,
                (change, outcome) = next(&mut self.under_way) => self.changed(change, &outcome),
                place = next_due(&self.due) => {
                    let (_, rule) = self.due.swap_remove(place);
                    tokio::select! {
                        _ = &mut *stopped => return,
                        () = self.stand_again(rule) => {}
                    }
                }
                Some((id, told)) = inlet.next() => self.told(id.0, told),
                message = messages.recv(), if has_room => match message {
                    Some(queued) => self.take(&queued),
                    None => return,
                },
            }
        }
    }

    /// A message came: every map that wants it has its say, each by itself.
    fn take(&mut self, queued: &QueuedMessage) {
        self.number += 1;
        let (now, id) = (iso_time(), format!("{:x}-{:x}", self.boot, self.number));
        let tapped = &queued.tapped;
        let (topic, payload, chain) = (&*tapped.topic, &*tapped.payload, tapped.chain);
        let arrived = IncomingMessage { topic, payload, now: &now, id: &id, chain };
        for (number, ingest) in self.ingest.iter().enumerate() {
            match ingest.apply(number, &arrived, &mut self.kept) {
                None => {}
                Some(Err(loss)) => self.counts.lost(loss),
                Some(Ok(edit)) => {
                    self.chain.begin(chain);
                    let change = SpaceChange { chain, debt: edit.debt() };
                    let Edit { remove, insert } = edit;
                    let waiting = self.space.start(SpaceRequest::Edit { remove, insert }, RequestOrigin::new(0, None));
                    self.under_way.push_back((change, waiting));
                }
            }
        }
    }

    fn changed(&mut self, change: SpaceChange, outcome: &Result<SpaceResponse, Refused>) {
        self.chain.end(change.chain, outcome.as_ref().ok().map(|answered| answered.version));
        // What is not confirmed was done all the same.
        if !matches!(outcome, Ok(_) | Err(Refused::Unconfirmed)) {
            for _ in 0..self.kept.owe(change.debt) {
                self.counts.lost(Loss::OwedTooMany);
            }
        }
        match outcome {
            Ok(_) => self.counts.ingested(),
            Err(Refused::Busy(_) | Refused::Late) => self.counts.lost(Loss::SpaceBusy),
            Err(_) => self.counts.lost(Loss::SpaceFailed),
        }
    }

    fn told(&mut self, id: u64, told: SpaceNotification) {
        let Some((rule, seen)) = self.standing.get(&id).copied() else { return };
        match told {
            SpaceNotification::Changed { version, delta, .. } => {
                let chain = self.chain.length(seen, version);
                self.standing.insert(id, (rule, version));
                self.publish(rule, chain, &delta);
            }
            // Maps accept no delegation.
            SpaceNotification::Delegated { .. } => {}
            over @ (SpaceNotification::Ended(_) | SpaceNotification::Restarting { .. }) => {
                self.standing.remove(&id);
                self.counts.lost(Loss::EmitMissed);
                let why = match over {
                    SpaceNotification::Ended(Some(error)) => error.to_string(),
                    SpaceNotification::Restarting { .. } => "the space begins anew".to_owned(),
                    _ => "too much was missed".to_owned(),
                };
                warn!(
                    event = "map_emit_ended",
                    rule = rule + 1,
                    why,
                    "a standing query begins anew; changes were missed"
                );
                self.due.push((Instant::now(), rule));
            }
        }
    }

    fn publish(&self, rule: usize, chain: u8, delta: &ResultDelta) {
        let Some(emit) = self.emit.get(rule) else { return };
        let changes = [(&delta.removed, false), (&delta.added, true)];
        let rows = changes.into_iter().flat_map(|(rows, is_added)| rows.iter().map(move |row| (row, is_added)));
        for message in rows.filter_map(|(row, is_added)| emit.apply(row, is_added)) {
            let published = message.and_then(|message| {
                let (topic, payload) = (message.topic.into(), message.payload.into());
                let mapped = Mapped { topic, payload, qos: message.qos, retain: message.retain, chain };
                self.broker.publish(mapped).map_err(|_| Loss::PublishBusy)
            });
            match published {
                Ok(()) => self.counts.emitted(),
                Err(loss) => self.counts.lost(loss),
            }
        }
    }
}

/// The answer to the change that came first; never, if there is none.
async fn next(under_way: &mut VecDeque<(SpaceChange, PendingReply)>) -> (SpaceChange, Result<SpaceResponse, Refused>) {
    let Some((_, waiting)) = under_way.front_mut() else { return std::future::pending().await };
    let outcome = waiting.wait().await;
    let change = under_way.pop_front().map(|(change, _)| change).unwrap_or_default();
    (change, outcome)
}

/// The place of the one that is due first, when it is; never, if there is none.
async fn next_due(due: &[(Instant, usize)]) -> usize {
    let first = due.iter().enumerate().min_by_key(|(_, (at, _))| *at);
    let Some((place, (at, _))) = first else { return std::future::pending().await };
    sleep_until(*at).await;
    place
}

/// When a standing query that was refused is tried again; never, if it is at fault itself.
fn pause_after(refused: &Refused) -> Option<Duration> {
    let advice = match refused {
        Refused::Failed(_) => return None,
        Refused::Busy(hints) => hints.retry_after,
        _ => None,
    };
    Some(advice.unwrap_or(PAUSE_MIN).clamp(PAUSE_MIN, PAUSE_MAX))
}

#[cfg(test)]
mod tests {
    use tidegate_broker::authenticate::Anonymous;
    use tidegate_broker::config::Config;
    use tidegate_control::hints::Hints;
    use tidegate_core::access::Open;
    use tidegate_graph::SpaceLimits;
    use tidegate_space::Service;

    use super::*;
    use crate::config::{Sources, load};

    #[test]
    fn a_standing_query_is_tried_again_after_a_pause_of_a_bearable_length() {
        let busy = |seconds: Option<u64>| {
            let retry_after = seconds.map(Duration::from_secs);
            pause_after(&Refused::Busy(Box::new(Hints { retry_after, ..Hints::default() })))
        };
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!([busy(None), busy(Some(0)), busy(Some(5)), busy(Some(240))], [1, 1, 5, 30].map(seconds));
        assert_eq!([Refused::Late, Refused::TooLong].map(|refused| pause_after(&refused)), [1, 1].map(seconds));
    }

    fn maps(text: &str) -> Maps {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("maps.toml");
        std::fs::write(&file, text).unwrap();
        load(&Sources { file: Some(file), ..Sources::default() }).unwrap().maps
    }

    #[tokio::test]
    async fn what_does_not_stand_in_time_is_tried_behind_open_doors() {
        let config = Config { shards: 1, ..Config::default() };
        let broker = tidegate_broker::Broker::start_by_hand(config, Arc::new(Anonymous), Arc::new(Open)).unwrap();
        let service = Service::start(SpaceLimits::default()).unwrap();
        let maps = maps(&"[[map.emit]]\nquery = \"SELECT ?s { ?s ?p ?o }\"\ntopic = \"t/{s}\"\n".repeat(2));
        let mut worker = Worker::new(maps, broker.handle(), service.handle(), Arc::default());
        worker.stand(Instant::now()).await.unwrap();
        assert_eq!((worker.standing.len(), worker.due.len()), (0, 2), "there was no time");
        while let Some((_, rule)) = worker.due.pop() {
            worker.stand_again(rule).await;
        }
        assert_eq!(worker.standing.len(), 2);
        let (standing, soon) = (worker.standing.len(), Instant::now() + PAUSE_MAX);
        worker.stand(soon).await.unwrap();
        assert_eq!((worker.standing.len(), worker.due.len()), (standing + 2, 0), "with time all of them stand");
    }

    #[tokio::test]
    async fn the_one_that_is_due_first_is_first() {
        let now = Instant::now();
        assert_eq!(next_due(&[(now + PAUSE_MAX, 7), (now, 8), (now + PAUSE_MIN, 9)]).await, 1);
    }
}
