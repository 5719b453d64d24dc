//! A node that stands by: it follows the lineage into a folder of its own, looks whether its owner lives, and carries it on when it does not.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::pull::Ordered;
use futures_util::StreamExt;
use tidegate_cluster::limits::LOOK_INTERVAL;
use tidegate_cluster::{Ending, HandOver, NodeName, Note, Opening, Verdict, judge};
use tokio::time::MissedTickBehavior;

use crate::access::AccessFile;
use crate::carrier::Carrier;
use crate::engine::{ClusterError, Engine, EngineOptions, unanswered};
use crate::folder::Folders;
use crate::follower::Follower;
use crate::look::{Look, SignOfLife};

/// How long a stream may be silent while there is more of it.
const READ_MAX: Duration = Duration::from_secs(5);
/// Readings that may fail one after the other in a takeover, half a second each: longer than an election.
const FAILURES_MAX: u32 = 60;

/// How often a caller is asked whether to stop while disks are waited for.
const GLANCE: Duration = Duration::from_millis(50);

/// How long what goes on beside that has then.
const BESIDE: Duration = Duration::from_millis(5);

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
    say(News::TakesOver { epoch: turn.handover.epoch });
    let mut sign = SignOfLife::new(membership);
    if !runtime.block_on(turn.catch_up(&mut sign, is_stopping))? {
        runtime.block_on(sign.leave(&turn.engine));
        return Ok(None);
    }
    let Turn { engine, follower, opened_at, handover, opening, is_first, note, .. } = turn;
    // It may take as long as a disk takes for all of a store.
    let settle = |told: &AtomicBool| {
        let has_files = folders.has_files()?;
        let verdict = if is_first { Verdict::Begin } else { judge(note.as_ref(), has_files, &follower.replica) };
        let copied = follower.finish()?;
        let Opening { incarnation, cluster, node } = opening;
        let note = Note { cluster, epoch: handover.epoch, incarnation, node };
        // Told when this thread is done: whoever hears it is another's.
        let news = std::cell::RefCell::new(Vec::new());
        let lacks = folders.settle(verdict, &copied, &note, &|said| news.borrow_mut().push(said))?;
        Ok((copied, lacks, handover, news.into_inner(), told.load(Ordering::Relaxed)))
    };
    let say_that_it_lives = || {
        runtime.block_on(async {
            sign.renew_beside(&engine);
            tokio::time::sleep(BESIDE).await;
        });
    };
    let settled = attend(is_stopping, say_that_it_lives, settle);
    let (copied, lacks, handover, news, is_told) = settled?;
    news.into_iter().for_each(say);
    if is_told {
        runtime.block_on(sign.leave(&engine));
        return Ok(None);
    }
    Carrier::start(runtime, engine, membership, (handover, opened_at), (&copied, lacks), is_stopping, on_end)
}

/// Does work that waits for disks on a thread of its own. Meanwhile it is looked whether to stop, by which a caller also tells its supervisor
/// that this process lives; the work is told.
pub(crate) fn attend<T: Send>(
    is_stopping: &dyn Fn() -> bool,
    mut meanwhile: impl FnMut(),
    work: impl FnOnce(&AtomicBool) -> T + Send,
) -> T {
    let told = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        let told = &told;
        let worker = scope.spawn(move || {
            // Dropped when the work has ended, however it did.
            let _done = done;
            work(told)
        });
        while is_done.recv_timeout(GLANCE) == Err(RecvTimeoutError::Timeout) {
            if is_stopping() {
                told.store(true, Ordering::Relaxed);
            }
            meanwhile();
        }
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A lineage that is this node's.
struct Turn {
    engine: Engine,
    follower: Follower,
    messages: Option<Ordered>,
    opened_at: u64,
    handover: HandOver,
    opening: Opening,
    /// Nobody had it before.
    is_first: bool,
    note: Option<Note>,
}

impl Turn {
    /// Reads up to the opening: what is behind it is this node's own. False if it was told to stop before.
    async fn catch_up(
        &mut self,
        sign: &mut SignOfLife<'_>,
        is_stopping: &dyn Fn() -> bool,
    ) -> Result<bool, ClusterError> {
        // The server that read for this node may have died with the owner.
        self.messages = None;
        let (mut failures, mut heard) = (0, Instant::now());
        let mut tick = tokio::time::interval(LOOK_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.follower.replica.sequence() < self.opened_at {
            tokio::select! {
                next = next_of(&mut self.messages), if self.messages.is_some() => {
                    if take_next(&self.engine, &mut self.follower, next)? {
                        (failures, heard) = (0, Instant::now());
                    } else {
                        // Begun anew at the next tick.
                        self.messages = None;
                    }
                }
                _ = tick.tick() => {
                    if is_stopping() {
                        return Ok(false);
                    }
                    // Long reading is no silence: others would take the lineage in the middle of it.
                    sign.renew_beside(&self.engine);
                    if self.messages.is_some() && heard.elapsed() < READ_MAX {
                        continue;
                    }
                    failures += 1;
                    if failures > FAILURES_MAX {
                        return Err(unanswered(&"it does not let this node read the log"));
                    }
                    self.messages = self.engine.messages(self.follower.replica.sequence()).await.ok();
                    heard = Instant::now();
                }
            }
        }
        Ok(true)
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
    let mut look = Look::new(membership, folders.has_files()?);
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
                        let handover = look.handover(epoch);
                        return Ok(Some(Turn { engine, follower, messages, opened_at, handover, opening, is_first, note }));
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
