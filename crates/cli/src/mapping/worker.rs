//! The thread of the maps: one message after the other into the space, one solution after the other out of it.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow};
use tidegate_broker::{Handle as Broker, Mapped};
use tidegate_graph::ResultDelta;
use tidegate_map::{Arrived, Chain, Edit, Emit, Ingest, Kept, Loss};
use tidegate_space::{
    Answer, Answered, Ask, Asker, Begun, Handle as Space, Inlet, Outlet, Refused, Told, Waiting, Watched,
};
use tokio::sync::{mpsc, oneshot};
use tracing::warn;

use super::{Counts, Queued};
use crate::config::map::Maps;
use crate::format::iso_time;

/// Changes under way; more wait in the queue, where they are counted if they are too many.
const WINDOW: usize = 64;
/// How often a standing query is tried again while the space is busy, at the start.
const TRIES: u32 = 50;

pub(super) struct Worker {
    ingest: Vec<Ingest>,
    emit: Vec<Emit>,
    /// The standing queries, by subscriber: which rule, and the version it was told last.
    standing: BTreeMap<u64, (usize, u64)>,
    kept: Kept,
    chain: Chain,
    /// In order, with the chain that each belongs to.
    under_way: VecDeque<(u8, Waiting)>,
    broker: Broker,
    space: Space,
    outlet: Arc<Outlet>,
    inlet: Option<Inlet>,
    counts: Arc<Counts>,
    /// What names of messages begin with, so that no other run has used them.
    boot: u64,
    number: u64,
}

impl Worker {
    pub(super) fn new(maps: Maps, broker: Broker, space: Space, counts: Arc<Counts>) -> Self {
        let (outlet, inlet) = tidegate_space::outlet(&space);
        let boot = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        Self {
            ingest: maps.ingest.into_iter().map(|(_, ingest, _)| ingest).collect(),
            emit: maps.emit.into_iter().map(|(_, emit, _)| emit).collect(),
            standing: BTreeMap::new(),
            kept: Kept::new(boot),
            chain: Chain::default(),
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

    /// Makes the standing queries stand.
    pub(super) async fn stand(&mut self) -> Result<()> {
        for rule in 0..self.emit.len() {
            self.stand_one(rule).await?;
        }
        Ok(())
    }

    async fn stand_one(&mut self, rule: usize) -> Result<()> {
        for _ in 0..TRIES {
            let query = Box::new(self.emit[rule].query().clone());
            // Whoever knew the name could go on with it.
            let name = format!("map {rule} {:x}", RandomState::new().build_hasher().finish());
            let (what, outlet) = (Watched::Query(query), Some(Arc::clone(&self.outlet)));
            let ask = Ask::Subscribe { what, name, seen: None, outlet };
            match self.space.ask(ask, Asker::new(0, None)).await {
                Ok(Answered { answer: Answer::Subscribed(subscribed), version, .. }) => {
                    let version =
                        if let Begun::Whole(baseline) = &subscribed.begun { baseline.version } else { version };
                    self.standing.insert(subscribed.id.0, (rule, version));
                    return Ok(());
                }
                Err(Refused::Busy(hints)) => tokio::time::sleep(hints.retry_after.unwrap_or_default()).await,
                other => return Err(anyhow!("the query of map.emit number {} does not stand: {other:?}", rule + 1)),
            }
        }
        Err(anyhow!("the query of map.emit number {} does not stand: the smart space is busy", rule + 1))
    }

    pub(super) async fn run(&mut self, mut messages: mpsc::Receiver<Queued>, mut stopped: oneshot::Receiver<()>) {
        let Some(mut inlet) = self.inlet.take() else { return };
        loop {
            let has_room = self.under_way.len() < WINDOW;
            tokio::select! {
                biased;
                _ = &mut stopped => return,
                (chain, outcome) = next(&mut self.under_way) => self.changed(chain, &outcome),
                Some((id, told)) = inlet.next() => self.told(id.0, told).await,
                message = messages.recv(), if has_room => match message {
                    Some(queued) => self.take(&queued),
                    None => return,
                },
            }
        }
    }

    /// A message came: every map that wants it has its say, each by itself.
    fn take(&mut self, queued: &Queued) {
        self.number += 1;
        let (now, id) = (iso_time(), format!("{:x}-{:x}", self.boot, self.number));
        let tapped = &queued.tapped;
        let (topic, payload, chain) = (&*tapped.topic, &*tapped.payload, tapped.chain);
        let arrived = Arrived { topic, payload, now: &now, id: &id, chain };
        for (number, ingest) in self.ingest.iter().enumerate() {
            match ingest.apply(number, &arrived, &mut self.kept) {
                None => {}
                Some(Err(loss)) => self.counts.lost(loss),
                Some(Ok(Edit { remove, insert })) => {
                    self.chain.begin(chain);
                    let waiting = self.space.start(Ask::Edit { remove, insert }, Asker::new(0, None));
                    self.under_way.push_back((chain, waiting));
                }
            }
        }
    }

    fn changed(&mut self, chain: u8, outcome: &Result<Answered, Refused>) {
        self.chain.end(chain, outcome.as_ref().ok().map(|answered| answered.version));
        match outcome {
            Ok(_) => self.counts.ingested(),
            Err(Refused::Busy(_) | Refused::Late) => self.counts.lost(Loss::SpaceBusy),
            Err(_) => self.counts.lost(Loss::SpaceFailed),
        }
    }

    async fn told(&mut self, id: u64, told: Told) {
        let Some((rule, seen)) = self.standing.get(&id).copied() else { return };
        match told {
            Told::Changed { version, delta, .. } => {
                let chain = self.chain.length(seen, version);
                self.standing.insert(id, (rule, version));
                self.publish(rule, chain, &delta);
            }
            Told::Ended(why) => {
                self.standing.remove(&id);
                self.counts.lost(Loss::EmitMissed);
                let why = why.map_or_else(|| "too much was missed".to_owned(), |error| error.to_string());
                warn!(
                    event = "map_emit_ended",
                    rule = rule + 1,
                    why,
                    "a standing query begins anew; changes were missed"
                );
                if let Err(error) = self.stand_one(rule).await {
                    warn!(event = "map_emit_off", %error, "a map publishes nothing any more");
                }
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
async fn next(under_way: &mut VecDeque<(u8, Waiting)>) -> (u8, Result<Answered, Refused>) {
    let Some((chain, waiting)) = under_way.front_mut() else { return std::future::pending().await };
    let (chain, outcome) = (*chain, waiting.wait().await);
    under_way.pop_front();
    (chain, outcome)
}
