//! What a node that stands by looks at twice a second: who carries the lineage, whether that one lives, and whether it is this node's turn.
//! What a look means is decided in `tidegate-cluster`.

use std::time::{Instant, SystemTime};

use tidegate_cluster::limits::RENEW_INTERVAL;
use tidegate_cluster::{Answer, Decision, DiskOp, Entry, HandOver, Lease, LeaseWatch, NodeName, Note, Opening, Reason};

use crate::engine::{ClusterError, Engine, Owner};
use crate::standby::{Membership, News};

/// What a node says of itself while it carries nothing yet.
pub(crate) struct SignOfLife<'m> {
    membership: &'m Membership,
    renewed: Option<Instant>,
}

impl<'m> SignOfLife<'m> {
    pub(crate) fn new(membership: &'m Membership) -> Self {
        Self { membership, renewed: None }
    }

    fn is_due(&self) -> bool {
        self.renewed.is_none_or(|at| at.elapsed() >= RENEW_INTERVAL)
    }

    async fn renew(&mut self, engine: &Engine) {
        if self.is_due() && engine.renew(&self.membership.node, &self.lease(false)).await {
            self.renewed = Some(Instant::now());
        }
    }

    /// The same without waiting for the engine: there is a log to read. It goes on while the runtime runs.
    pub(crate) fn renew_beside(&mut self, engine: &Engine) {
        if self.is_due() {
            self.renewed = Some(Instant::now());
            let (engine, node, lease) = (engine.clone(), self.membership.node.clone(), self.lease(false));
            tokio::spawn(async move { engine.renew(&node, &lease).await });
        }
    }

    /// Nobody has to wait for it.
    pub(crate) async fn leave(&self, engine: &Engine) {
        engine.renew(&self.membership.node, &self.lease(true)).await;
    }

    fn lease(&self, has_left: bool) -> Lease {
        let Membership { incarnation, address, .. } = self.membership;
        Lease { incarnation: *incarnation, epoch: 0, has_left, address: address.clone() }
    }
}

/// What is looked at, and what was seen before.
pub(crate) struct Look<'m> {
    membership: &'m Membership,
    has_files: bool,
    watch: LeaseWatch,
    began: Instant,
    sign: SignOfLife<'m>,
    /// From whom the lineage was to be taken at the last try, and why.
    taken: (Option<(NodeName, u64)>, Reason),
    counted: Option<Instant>,
    said: Option<News>,
}

/// An opening that is this node's: its sequence, its epoch, what it says, and whether it is the first.
pub(crate) type OwnOpening = (u64, u64, Opening, bool);

impl<'m> Look<'m> {
    pub(crate) fn new(membership: &'m Membership, has_files: bool) -> Self {
        Self {
            membership,
            has_files,
            watch: LeaseWatch::new(membership.node.clone(), membership.incarnation),
            began: Instant::now(),
            sign: SignOfLife::new(membership),
            taken: (None, Reason::First),
            counted: None,
            said: None,
        }
    }

    /// Each thing once, until it is another.
    pub(crate) fn tell(&mut self, news: News, say: &dyn Fn(News)) {
        if self.said.as_ref() != Some(&news) {
            self.said = Some(news.clone());
            say(news);
        }
    }

    /// The opening, if the lineage is this node's now.
    pub(crate) async fn look(
        &mut self,
        engine: &Engine,
        note: Option<&Note>,
        say: &dyn Fn(News),
    ) -> Result<Option<OwnOpening>, ClusterError> {
        let Membership { node, incarnation, .. } = self.membership;
        let owner = engine.owner().await?;
        if let Some((at, epoch, opening)) = owner.clone().filter(|(.., opening)| opening.incarnation == *incarnation) {
            // It was taken, and the answer had been a maybe.
            return Ok(Some((at, epoch, opening, at == 1)));
        }
        let opening = owner.as_ref().map(|(.., opening)| opening);
        self.check(note, opening)?;
        let nodes: Vec<&NodeName> =
            [node].into_iter().chain(opening.map(|opening| &opening.node).filter(|other| *other != node)).collect();
        let table = engine.leases(&nodes).await?;
        let now = self.began.elapsed();
        self.watch.on_reading(now, table);
        match self.watch.decide(now, None) {
            Decision::NameTaken { address } => return Err(self.name_taken(&address)),
            Decision::Wait => return Ok(None),
            Decision::Adopt => self.sign.renew(engine).await,
        }
        if self.watch.decide(now, opening) != Decision::Adopt {
            let who = opening.map_or_else(|| node.clone(), |opening| opening.node.clone());
            let seen = self.watch.nodes().find(|(node, _)| **node == who);
            let address = seen.map(|(_, seen)| seen.lease.address.clone());
            let epoch = owner.as_ref().map_or(0, |(_, epoch, _)| *epoch);
            self.tell(News::StandsBy { owner: who, address, epoch }, say);
            return Ok(None);
        }
        let from = opening.map(|opening| (opening.node.clone(), opening.incarnation));
        self.taken = (from, self.watch.reason(now, opening));
        Ok(self.open(engine, note, owner.as_ref()).await)
    }

    /// For who asks later.
    pub(crate) fn handover(&self, epoch: u64) -> HandOver {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let at_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let (from, reason) = self.taken.clone();
        HandOver { epoch, node: self.membership.node.clone(), from, reason, at_ms }
    }

    async fn open(&self, engine: &Engine, note: Option<&Note>, owner: Option<&Owner>) -> Option<OwnOpening> {
        let Membership { node, incarnation, .. } = self.membership;
        let (behind, epoch, cluster) =
            owner.map_or((0, 0, *incarnation), |(at, epoch, opening)| (*at, *epoch, opening.cluster));
        let epoch = epoch.max(note.map_or(0, |note| note.epoch)) + 1;
        let opening = Opening { node: node.clone(), incarnation: *incarnation, cluster };
        let message = Entry { epoch, number: 0, op: DiskOp::Open(opening.clone()) }.encode();
        match engine.open(message, behind).await {
            Answer::Kept(at) => Some((at, epoch, opening, owner.is_none())),
            // Somebody was faster, or the next look tells.
            Answer::WrongLast | Answer::Maybe => None,
        }
    }

    /// How far the stream is, now and then.
    pub(crate) async fn last_sequence(&mut self, engine: &Engine) -> Option<u64> {
        if self.counted.is_some_and(|at| at.elapsed() < RENEW_INTERVAL) {
            return None;
        }
        self.counted = Some(Instant::now());
        engine.last_sequence().await
    }

    /// What no waiting mends.
    fn check(&self, note: Option<&Note>, opening: Option<&Opening>) -> Result<(), ClusterError> {
        let (store, cluster) = (self.membership.store.display(), &self.membership.engine.cluster);
        let words = match (note, opening) {
            (Some(note), Some(opening)) if note.cluster != opening.cluster => format!(
                "{store} is of another cluster that is called {cluster}, too: give one of them another name \
                 (cluster.name), or this node an empty folder"
            ),
            (Some(_), None) => format!(
                "{store} is of the cluster {cluster}, of which the engine knows nothing: is it the right engine? If its data \
                 is lost for good, remove the file CLUSTER of the node that was the last to serve, and start that one first"
            ),
            (None, Some(_)) if self.has_files => format!(
                "{store} has messages that are not the cluster's, and {cluster} has its own: give this node an empty folder"
            ),
            _ => return Ok(()),
        };
        Err(ClusterError::Refused(words))
    }

    fn name_taken(&self, address: &str) -> ClusterError {
        let Membership { node, engine, .. } = self.membership;
        ClusterError::Refused(format!(
            "another node of {} is called {node} and is alive ({address}): each needs a name of its own (cluster.node)",
            engine.cluster
        ))
    }
}
