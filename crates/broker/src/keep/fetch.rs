//! Pages of long queues, read by a thread of their own: a shard must not wait for a disk, and the writer should not.
//!
//! What is damaged or gone is lost. What the system does not let us read is not: it was acknowledged, and perhaps it is
//! over soon (too many open files, a network that is down), so its page is tried again, after pauses that grow. The others
//! go on meanwhile.

use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

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
/// How long after the first time a page that cannot be read is tried again; each time twice as long...
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// ...up to this.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Records as they were read; none for those that could not be.
type Page = Vec<Option<Vec<u8>>>;

struct Job {
    fetch: Fetch,
    answers: Arc<Answers>,
    /// How long it was put off the last time; zero if it never was.
    pause: Duration,
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
    let (mut current, mut later) = (None, Later::default());
    loop {
        let job = match later.due(Instant::now()).map_or_else(|| jobs.try_recv(), Ok) {
            Ok(job) => job,
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => {
                // Its open files keep the space of those that were removed.
                current = None;
                match jobs.recv_timeout(later.wait(Instant::now())) {
                    Ok(job) => job,
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        let reader = current.get_or_insert_with(&reader);
        let spots = job.fetch.messages.iter().map(|(_, spot)| location_of(*spot));
        match read_page(spots, |at, into| reader.read(at, into)) {
            Ok(page) => {
                job.answers.done.lock().unwrap_or_else(PoisonError::into_inner).push((job.fetch, page));
                (job.answers.wake)();
            }
            Err(error) => {
                let pause = pause_after(job.pause);
                tracing::error!(
                    event = "store_error", %error, pause_ms = pause.as_millis() as u64,
                    "messages that wait cannot be read now; their session waits, and it is tried again"
                );
                // Perhaps with files that are opened anew.
                current = None;
                later.put(Job { pause, ..job }, Instant::now() + pause);
            }
        }
    }
}

/// Records of a page, but for those that are lost; an error if it is worth another try.
fn read_page(
    spots: impl Iterator<Item = Location>,
    mut read: impl FnMut(Location, &mut Vec<u8>) -> Result<(), StoreError>,
) -> Result<Page, StoreError> {
    let read = |at: Location| {
        let mut record = Vec::new();
        match read(at, &mut record) {
            Ok(()) => Ok(Some(record)),
            Err(error @ StoreError::Io { .. }) => Err(error),
            Err(error) => {
                tracing::error!(
                    event = "store_error", %error, file = %at.file, offset = at.offset,
                    "a message that waited cannot be read and is lost; its session goes on"
                );
                Ok(None)
            }
        }
    };
    spots.map(read).collect()
}

fn pause_after(pause: Duration) -> Duration {
    (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX)
}

/// What is to be tried again, and when: no more than shards have under way.
struct Later<T>(Vec<(Instant, T)>);

impl<T> Default for Later<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Later<T> {
    fn put(&mut self, job: T, at: Instant) {
        self.0.push((at, job));
    }

    fn due(&mut self, now: Instant) -> Option<T> {
        let index = self.0.iter().position(|(at, _)| *at <= now)?;
        Some(self.0.swap_remove(index).1)
    }

    /// Until the next one is due.
    fn wait(&self, now: Instant) -> Duration {
        let next = self.0.iter().map(|(at, _)| at.saturating_duration_since(now)).min();
        // Whoever waits for nothing looks again now and then.
        next.unwrap_or(PAUSE_MAX)
    }
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
            match jobs.try_send(Job { fetch, answers: Arc::clone(&self.answers), pause: Duration::ZERO }) {
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

#[cfg(test)]
mod tests {
    use tidegate_store::FileId;

    use super::*;

    fn page(error: fn() -> StoreError) -> Result<Page, StoreError> {
        let spots = (0..3).map(|offset| Location { file: FileId::segment(1), offset, len: 1 });
        read_page(spots, |at, into| {
            into.push(at.offset as u8);
            if at.offset == 1 { Err(error()) } else { Ok(()) }
        })
    }

    #[test]
    fn only_what_is_damaged_or_gone_is_lost() {
        let lost = [
            page(|| StoreError::Damaged { file: "segment".to_owned(), offset: 1 }),
            page(|| StoreError::Gone { file: "segment".to_owned() }),
        ];
        for page in lost {
            assert_eq!(page.ok(), Some(vec![Some(vec![0]), None, Some(vec![2])]));
        }
        let busy =
            page(|| StoreError::Io { action: "open", file: "segment".to_owned(), source: io::Error::other("busy") });
        assert!(matches!(busy, Err(StoreError::Io { .. })), "nothing of it is lost: {busy:?}");
    }

    #[test]
    fn what_cannot_be_read_now_is_tried_again_after_pauses_that_grow() {
        let (mut later, now) = (Later::default(), Instant::now());
        let (mut pause, mut pauses) = (Duration::ZERO, Vec::new());
        for _ in 0..10 {
            pause = pause_after(pause);
            pauses.push(pause);
        }
        assert!(pauses[0] == PAUSE_MIN && pauses[9] == PAUSE_MAX && pauses.is_sorted());
        later.put("second", now + 2 * PAUSE_MIN);
        later.put("first", now + PAUSE_MIN);
        assert_eq!((later.due(now), later.wait(now)), (None, PAUSE_MIN));
        assert_eq!(later.due(now + PAUSE_MIN), Some("first"));
        assert_eq!((later.due(now + PAUSE_MIN), later.wait(now + PAUSE_MIN)), (None, PAUSE_MIN));
        assert_eq!(later.due(now + PAUSE_MAX), Some("second"));
        assert_eq!(later.wait(now), PAUSE_MAX);
    }
}
