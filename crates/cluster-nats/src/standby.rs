//! A node that stands by: it follows the lineage into a folder of its own, looks whether its owner lives, and carries it on when it does not.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::pull::Ordered;
use futures_util::StreamExt;
use tidegate_cluster::limits::{LOOK_INTERVAL, RENEW_INTERVAL};
use tidegate_cluster::{
    Answer, Decision, DiskOp, Ending, Entry, Lease, LeaseWatch, NodeName, Note, Opening, Verdict, judge,
};

use crate::access::AccessFile;
use crate::carrier::Carrier;
use crate::engine::{ClusterError, Engine, EngineOptions, Owner, unanswered};
use crate::folder::Folders;
use crate::follower::Follower;

/// How long a stream may be silent while there is more of it.
const READ_MAX: Duration = Duration::from_secs(5);
/// Readings that may fail one after the other in a takeover, half a second each: longer than an election.
const FAILURES_MAX: u32 = 60;

/// Who a node is.
#[derive(Clone, Debug)]
pub struct Membership {
    /// The engine, and what of it is the cluster's.
    pub engine: EngineOptions,
    /// The node's name, which no other of the cluster has.
    pub node: NodeName,
    /// A number that no other process has: from the system's generator.
    pub incarnation: u64,
    /// Where clients find it; for other nodes' operators to read.
    pub address: String,
    /// The folder of its store. Beside it are `NAME.following` and `NAME.before`.
    pub store: PathBuf,
    /// The folder of its smart space, on the same file system. Beside it is `NAME.before`.
    pub space: PathBuf,
    /// Users and rules: taken over with the log.
    pub access: Vec<AccessFile>,
}

/// What an operator may want to know meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The engine does not answer; it is asked until it does.
    Unreachable(String),
    /// Another node carries the lineage.
    StandsBy {
        /// That one.
        owner: NodeName,
        /// Where clients find it, in its own words.
        address: Option<String>,
        /// Its epoch.
        epoch: u64,
    },
    /// How far the copy is, now and then.
    Follows {
        /// Messages of the stream that are not here yet.
        behind: u64,
    },
    /// A file of users or rules cannot be replaced by the cluster's.
    AccessStays(String),
    /// The lineage is this node's from this epoch on; what is there is being read.
    TakesOver {
        /// The epoch.
        epoch: u64,
    },
}

/// Waits until the lineage is this node's, and makes its folders what counts. None if `is_stopping` said so before;
/// `on_end` is called when the lineage is another's.
pub fn stand_by(
    membership: &Membership,
    say: &dyn Fn(News),
    is_stopping: &dyn Fn() -> bool,
    on_end: impl FnOnce(Ending) + Send + 'static,
) -> Result<Option<Carrier>, ClusterError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| ClusterError::Io { what: "cannot start".to_owned(), source })?;
    let folders = Folders::new(membership);
    let Some(mut turn) = runtime.block_on(wait_for_turn(membership, &folders, say, is_stopping))? else {
        return Ok(None);
    };
    say(News::TakesOver { epoch: turn.epoch });
    runtime.block_on(turn.catch_up())?;
    let Turn { engine, follower, opened_at, epoch, opening, is_first, note, .. } = turn;
    let verdict = if is_first { Verdict::Begin } else { judge(note.as_ref(), folders.has_files()?, &follower.replica) };
    let copied = follower.finish()?;
    let Opening { incarnation, cluster, node } = opening;
    let note = Note { cluster, epoch, incarnation, node };
    let lacks = folders.settle(verdict, &copied, &note, say)?;
    Carrier::start(runtime, engine, membership, (epoch, opened_at), &copied, lacks, on_end).map(Some)
}

/// A lineage that is this node's.
struct Turn {
    engine: Engine,
    follower: Follower,
    messages: Option<Ordered>,
    opened_at: u64,
    epoch: u64,
    opening: Opening,
    /// Nobody had it before.
    is_first: bool,
    note: Option<Note>,
}

impl Turn {
    /// Reads up to the opening: what is behind it is this node's own.
    async fn catch_up(&mut self) -> Result<(), ClusterError> {
        // The server that read for this node may have died with the owner.
        self.messages = None;
        let mut failures = 0;
        while self.follower.replica.sequence() < self.opened_at {
            let next = tokio::time::timeout(READ_MAX, next_of(&mut self.messages)).await;
            if self.messages.is_some() && take_next(&self.engine, &mut self.follower, next.ok().flatten())? {
                failures = 0;
                continue;
            }
            failures += 1;
            if failures > FAILURES_MAX {
                return Err(unanswered(&"it does not let this node read the log"));
            }
            self.messages = self.engine.messages(self.follower.replica.sequence()).await.ok();
            if self.messages.is_none() {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        }
        Ok(())
    }
}

/// The next message of a reading; at once none if there is no reading.
async fn next_of(messages: &mut Option<Ordered>) -> NextMessage {
    match messages {
        Some(messages) => messages.next().await,
        None => None,
    }
}

type NextMessage = Option<Result<async_nats::jetstream::Message, async_nats::jetstream::consumer::pull::OrderedError>>;

/// False if the reading has to begin anew.
fn take_next(engine: &Engine, follower: &mut Follower, next: NextMessage) -> Result<bool, ClusterError> {
    let Some(Ok(message)) = next else { return Ok(false) };
    let Ok(sequence) = message.info().map(|info| info.stream_sequence) else { return Ok(false) };
    if sequence > follower.replica.sequence() {
        follower.take(engine, sequence, &message.payload)?;
    }
    Ok(true)
}

async fn connect(
    membership: &Membership,
    say: &dyn Fn(News),
    is_stopping: &dyn Fn() -> bool,
) -> Result<Option<Engine>, ClusterError> {
    let mut is_said = false;
    while !is_stopping() {
        match Engine::connect(&membership.engine).await {
            Err(ClusterError::Unreachable(words)) => {
                if !std::mem::replace(&mut is_said, true) {
                    say(News::Unreachable(words));
                }
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
            result => return result.map(Some),
        }
    }
    Ok(None)
}

async fn wait_for_turn(
    membership: &Membership,
    folders: &Folders,
    say: &dyn Fn(News),
    is_stopping: &dyn Fn() -> bool,
) -> Result<Option<Turn>, ClusterError> {
    let note = folders.note()?;
    let mut follower = Follower::begin(&folders.following)?;
    let Some(engine) = connect(membership, say, is_stopping).await? else { return Ok(None) };
    let mut messages = None;
    let mut look = Look {
        membership,
        has_files: folders.has_files()?,
        watch: LeaseWatch::new(membership.node.clone(), membership.incarnation),
        began: Instant::now(),
        renewed: None,
        counted: None,
        said: None,
    };
    let mut tick = tokio::time::interval(LOOK_INTERVAL);
    loop {
        tokio::select! {
            next = next_of(&mut messages), if messages.is_some() => {
                if !take_next(&engine, &mut follower, next)? {
                    // Begun anew at the next look: whether the owner lives is not forgotten for it.
                    messages = None;
                }
            }
            _ = tick.tick() => {
                if is_stopping() {
                    return Ok(None);
                }
                match look.look(&engine, note.as_ref(), say).await {
                    Ok(Some((opened_at, epoch, opening, is_first))) => {
                        return Ok(Some(Turn { engine, follower, messages, opened_at, epoch, opening, is_first, note }));
                    }
                    Ok(None) => {
                        if let Some(last) = look.last_sequence(&engine).await {
                            say(News::Follows { behind: last.saturating_sub(follower.replica.sequence()) });
                        }
                    }
                    Err(ClusterError::Unreachable(words)) => look.tell(News::Unreachable(words), say),
                    Err(error) => return Err(error),
                }
                if messages.is_none() {
                    messages = engine.messages(follower.replica.sequence()).await.ok();
                }
            }
        }
    }
}

struct Look<'m> {
    membership: &'m Membership,
    has_files: bool,
    watch: LeaseWatch,
    began: Instant,
    renewed: Option<Instant>,
    counted: Option<Instant>,
    said: Option<News>,
}

impl Look<'_> {
    /// Each thing once, until it is another.
    fn tell(&mut self, news: News, say: &dyn Fn(News)) {
        if self.said.as_ref() != Some(&news) {
            self.said = Some(news.clone());
            say(news);
        }
    }

    /// The opening, if the lineage is this node's now: sequence, epoch, what it says, and whether it is the first.
    async fn look(
        &mut self,
        engine: &Engine,
        note: Option<&Note>,
        say: &dyn Fn(News),
    ) -> Result<Option<(u64, u64, Opening, bool)>, ClusterError> {
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
            Decision::Adopt => self.renew(engine).await,
        }
        if self.watch.decide(now, opening) != Decision::Adopt {
            let who = opening.map_or_else(|| node.clone(), |opening| opening.node.clone());
            let seen = self.watch.nodes().find(|(node, _)| **node == who);
            let address = seen.map(|(_, seen)| seen.lease.address.clone());
            let epoch = owner.as_ref().map_or(0, |(_, epoch, _)| *epoch);
            self.tell(News::StandsBy { owner: who, address, epoch }, say);
            return Ok(None);
        }
        Ok(self.open(engine, note, owner.as_ref()).await)
    }

    async fn open(
        &self,
        engine: &Engine,
        note: Option<&Note>,
        owner: Option<&Owner>,
    ) -> Option<(u64, u64, Opening, bool)> {
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
    async fn last_sequence(&mut self, engine: &Engine) -> Option<u64> {
        if self.counted.is_some_and(|at| at.elapsed() < RENEW_INTERVAL) {
            return None;
        }
        self.counted = Some(Instant::now());
        engine.last_sequence().await
    }

    async fn renew(&mut self, engine: &Engine) {
        if self.renewed.is_none_or(|at| at.elapsed() >= RENEW_INTERVAL) {
            let Membership { node, incarnation, address, .. } = self.membership;
            let lease = Lease { incarnation: *incarnation, epoch: 0, has_left: false, address: address.clone() };
            if engine.renew(node, &lease).await {
                self.renewed = Some(Instant::now());
            }
        }
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
