//! Pages of long queues, read by a thread of their own: a shard must not wait for a disk, and the writer should not.

use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_core::Shard;
use tidegate_core::persist::Fetch;
use tidegate_store::disk::FsFiles;
use tidegate_store::{Location, Reader, StoreError};

use super::restore::saved;
use super::spot::location_of;
use super::wall::Wall;

/// Jobs that wait, of all shards: a shard asks for a few at a time, so there is room for all that 64 of them ask for.
const JOBS_MAX: usize = 1024;
/// How often a file that cannot be read is tried before what is in it counts as lost...
const ATTEMPTS: u32 = 5;
/// ...and how long after the last time.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(200);

/// Records as they were read; none for those that could not be.
type Page = Vec<Option<Vec<u8>>>;

struct Job {
    fetch: Fetch,
    answers: Arc<Answers>,
}

/// Where the pages of one shard come back.
struct Answers {
    done: Mutex<Vec<(Fetch, Page)>>,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// The thread. It ends when this and the desks are gone; nobody waits for that, because it only reads.
pub(crate) struct Fetcher(SyncSender<Job>);

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fetcher")
    }
}

impl Fetcher {
    /// Starts it with what makes a reader.
    pub(crate) fn start(reader: impl Fn() -> Reader<FsFiles> + Send + 'static) -> io::Result<Self> {
        let (jobs, receiver) = sync_channel(JOBS_MAX);
        thread::Builder::new().name("store-read".to_owned()).spawn(move || run(&receiver, reader))?;
        Ok(Self(jobs))
    }

    /// A desk for one shard; `wake` is called after pages of it came back.
    pub(crate) fn desk(&self, wake: impl Fn() + Send + Sync + 'static) -> Desk {
        let answers = Arc::new(Answers { done: Mutex::default(), wake: Box::new(wake) });
        Desk { jobs: Some(self.0.clone()), answers, refused: None }
    }
}

fn run(jobs: &Receiver<Job>, reader: impl Fn() -> Reader<FsFiles>) {
    let mut current = None;
    loop {
        let job = match jobs.try_recv() {
            Ok(job) => job,
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => {
                // Its open files keep the space of those that were removed.
                current = None;
                match jobs.recv() {
                    Ok(job) => job,
                    Err(_) => return,
                }
            }
        };
        let reader = current.get_or_insert_with(&reader);
        let spots = job.fetch.messages.iter().map(|(_, spot)| location_of(*spot));
        let page = spots.map(|at| read(reader, at)).collect();
        job.answers.done.lock().unwrap_or_else(PoisonError::into_inner).push((job.fetch, page));
        (job.answers.wake)();
    }
}

fn read(reader: &mut Reader<FsFiles>, at: Location) -> Option<Vec<u8>> {
    let mut record = Vec::new();
    for attempt in 1.. {
        match reader.read(at, &mut record) {
            Ok(()) => return Some(record),
            // Perhaps it is over soon: too many open files, a network that is down.
            Err(StoreError::Io { .. }) if attempt < ATTEMPTS => thread::sleep(ATTEMPT_PAUSE),
            Err(error) => {
                tracing::error!(
                    event = "store_error", %error, file = %at.file, offset = at.offset,
                    "a message that waited cannot be read and is lost; its session goes on"
                );
                return None;
            }
        }
    }
    None
}

/// One shard's way to the thread.
pub(crate) struct Desk {
    /// None once nobody reads any more.
    jobs: Option<SyncSender<Job>>,
    answers: Arc<Answers>,
    /// There was no room for it.
    refused: Option<Fetch>,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("refused", &self.refused).finish_non_exhaustive()
    }
}

impl Desk {
    /// Hands over what the shard wants to have read.
    pub(crate) fn ask(&mut self, shard: &mut Shard) {
        while let Some(fetch) = self.refused.take().or_else(|| shard.poll_fetch()) {
            let Some(jobs) = &self.jobs else { return };
            match jobs.try_send(Job { fetch, answers: Arc::clone(&self.answers) }) {
                Ok(()) => {}
                Err(TrySendError::Full(job)) => {
                    self.refused = Some(job.fetch);
                    return;
                }
                Err(TrySendError::Disconnected(_)) => self.jobs = None,
            }
        }
    }

    /// Tells the shard what was read.
    pub(crate) fn hear(&mut self, shard: &mut Shard, wall: &Wall, now: Timestamp) {
        let done = std::mem::take(&mut *self.answers.done.lock().unwrap_or_else(PoisonError::into_inner));
        for (fetch, page) in done {
            shard.handle_fetched(&fetch, |at| saved(page.get(at)?.as_deref()?, wall), now);
        }
    }
}
