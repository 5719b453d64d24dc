//! Pages of long queues, read by a thread of their own: a shard must not wait for a disk, and the writer should not.
//!
//! What is damaged or gone is lost. What the system does not let us read is not: it was acknowledged, so its page is tried
//! again, after pauses that grow. The others go on meanwhile, and have its place. Most errors say nothing about the data
//! (too many open files, a network that is down): they have no end. If the device itself cannot read it for minutes, it is
//! lost, too, and its session goes on: compactions could not copy it either.

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
use tidegate_store::{DiskTrouble, Location, RecordReader, StoreError, VitalThread};

use super::disk_address::location_of;
use super::restore::saved;
use super::wall_clock::WallClock;

/// Jobs that wait, of all shards: a shard asks for a few at a time, so there is room for all that 64 of them ask for; who finds none asks again.
const JOBS_MAX: usize = 1024;
/// How long after the first time a page that cannot be read is tried again; each time twice as long...
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// ...up to this.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How often the device may fail to read a page: for seven minutes.
const FAILURES_MAX: u32 = 20;
/// After so long a page is asked for again that there was no room for: the thread may be at others' for long.
const ROOM_PAUSE: Duration = Duration::from_millis(10);
/// Pages of a shard that wait for their next attempt without a place; further ones keep theirs.
const PUT_OFF_MAX: usize = 1024;

/// Records as they were read; none for those that could not be.
type Page = Vec<Option<Vec<u8>>>;

/// A page, and what came of it before.
#[derive(Debug)]
struct FetchAttempt {
    fetch: Fetch,
    before: PastTries,
}

#[derive(Clone, Copy, Debug, Default)]
struct PastTries {
    /// How often it was tried.
    tries: u32,
    /// How often that was because of the device.
    failures: u32,
}

/// It is worth another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetryReason {
    /// The system does not let us read; that says nothing about the data.
    Refused,
    /// The device cannot read it.
    Failed,
}

struct FetchJob {
    attempt: FetchAttempt,
    answers: Arc<Answers>,
}

/// Where the pages of one shard come back.
struct Answers {
    done: Mutex<Vec<(FetchAttempt, Result<Page, RetryReason>)>>,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// The thread. It ends when this and the desks are gone; nobody waits for that, because it only reads.
pub(crate) struct Fetcher(SyncSender<FetchJob>);

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fetcher")
    }
}

impl Fetcher {
    /// Starts it with what makes a reader.
    pub(crate) fn start(reader: impl Fn() -> RecordReader<FsFiles> + Send + 'static) -> io::Result<Self> {
        let (jobs, receiver) = sync_channel(JOBS_MAX);
        thread::Builder::new().name("store-read".to_owned()).spawn(move || {
            let _vital = VitalThread::guard();
            run(&receiver, reader);
        })?;
        Ok(Self(jobs))
    }

    /// A page reader for one shard; `wake` is called after pages of it came back.
    pub(crate) fn page_reader(&self, wake: impl Fn() + Send + Sync + 'static) -> PageReader {
        let answers = Arc::new(Answers { done: Mutex::default(), wake: Box::new(wake) });
        PageReader { jobs: Some(self.0.clone()), answers, refused: None, later: Vec::new() }
    }
}

fn run(jobs: &Receiver<FetchJob>, reader: impl Fn() -> RecordReader<FsFiles>) {
    let mut current = None;
    loop {
        let job = match jobs.try_recv() {
            Ok(job) => job,
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => {
                // Its open files keep the space of those that were removed.
                current = None;
                let Ok(job) = jobs.recv() else { return };
                job
            }
        };
        let FetchJob { attempt, answers } = job;
        let reader = current.get_or_insert_with(&reader);
        let spots = attempt.fetch.messages.iter().map(|(_, spot)| location_of(*spot));
        let page = read_page(spots, attempt.before, |at, into| reader.read(at, into));
        if page.is_err() {
            // Perhaps with files that are opened anew.
            current = None;
        }
        answers.done.lock().unwrap_or_else(PoisonError::into_inner).push((attempt, page));
        (answers.wake)();
    }
}

/// Records of a page, but for those that are lost.
fn read_page(
    spots: impl Iterator<Item = Location>,
    PastTries { tries, failures }: PastTries,
    mut read: impl FnMut(Location, &mut Vec<u8>) -> Result<(), StoreError>,
) -> Result<Page, RetryReason> {
    let read = |at: Location| {
        let mut record = Vec::new();
        let Err(error) = read(at, &mut record) else { return Ok(Some(record)) };
        let is_device = error.trouble() == DiskTrouble::Device;
        if matches!(error, StoreError::Io { .. }) && !(is_device && failures + 1 >= FAILURES_MAX) {
            // It may last for days.
            if (tries + 1).is_power_of_two() {
                tracing::error!(
                    event = "store_error", %error, pause_ms = pause_after(tries).as_millis() as u64, tries = tries + 1,
                    "messages that wait cannot be read now; their session waits, and it is tried again"
                );
            }
            return Err(if is_device { RetryReason::Failed } else { RetryReason::Refused });
        }
        tracing::error!(
            event = "store_error", %error, file = %at.file, offset = at.offset, tries = tries + 1,
            "a message that waited cannot be read and is lost; its session goes on"
        );
        Ok(None)
    };
    spots.map(read).collect()
}

fn pause_after(tries: u32) -> Duration {
    PAUSE_MIN.saturating_mul(1 << tries.min(16)).min(PAUSE_MAX)
}

/// One shard's way to the thread.
pub(crate) struct PageReader {
    /// None once nobody reads any more.
    jobs: Option<SyncSender<FetchJob>>,
    answers: Arc<Answers>,
    /// There was no room for it; when it is tried again.
    refused: Option<(Timestamp, FetchAttempt)>,
    /// What is to be tried again, and when: one page of a session at most.
    later: Vec<(Timestamp, FetchAttempt)>,
}

impl fmt::Debug for PageReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("refused", &self.refused).field("later", &self.later).finish_non_exhaustive()
    }
}

impl PageReader {
    /// Hands over what the shard wants to have read, and what is to be tried again.
    pub(crate) fn ask(&mut self, shard: &mut Shard, now: Timestamp) {
        while let Some(attempt) = self.next(shard, now) {
            let Some(jobs) = &self.jobs else { return };
            match jobs.try_send(FetchJob { attempt, answers: Arc::clone(&self.answers) }) {
                Ok(()) => {}
                Err(TrySendError::Full(job)) => {
                    self.refused = Some((now + ROOM_PAUSE, job.attempt));
                    return;
                }
                Err(TrySendError::Disconnected(_)) => self.jobs = None,
            }
        }
    }

    fn next(&mut self, shard: &mut Shard, now: Timestamp) -> Option<FetchAttempt> {
        if let Some((_, refused)) = self.refused.take() {
            return Some(refused);
        }
        if let Some(at) = self.later.iter().position(|(at, _)| *at <= now) {
            return Some(self.later.swap_remove(at).1);
        }
        shard.poll_fetch().map(|fetch| FetchAttempt { fetch, before: PastTries::default() })
    }

    /// Tells the shard what was read.
    pub(crate) fn hear(&mut self, shard: &mut Shard, wall: &WallClock, now: Timestamp) {
        let done = std::mem::take(&mut *self.answers.done.lock().unwrap_or_else(PoisonError::into_inner));
        for (mut attempt, page) in done {
            let page = match page {
                Ok(page) => page,
                Err(again) => {
                    if self.later.len() < PUT_OFF_MAX {
                        shard.handle_fetch_put_off(&mut attempt.fetch);
                    }
                    let PastTries { tries, failures } = &mut attempt.before;
                    let at = now + pause_after(*tries);
                    *tries = tries.saturating_add(1);
                    *failures += u32::from(again == RetryReason::Failed);
                    self.later.push((at, attempt));
                    continue;
                }
            };
            shard.handle_fetched(&attempt.fetch, |at| saved(page.get(at)?.as_deref()?, wall), now);
        }
    }

    /// When something is to be tried again. While there is no room, nothing else is: what is overdue must not keep the
    /// shard awake.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        if let Some((at, _)) = &self.refused {
            return Some(*at);
        }
        self.later.iter().map(|(at, _)| *at).min()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use tidegate_core::access::{Identity, Open};
    use tidegate_core::persist::SubscriberOptions;
    use tidegate_core::settings::Settings;
    use tidegate_core::shard_of;
    use tidegate_face_mqtt::{MqttHello, MqttShard};
    use tidegate_store::{FileId, LogState as _};
    use tidegate_wire_mqtt::{Connect, Properties, QoS, Version};

    use super::super::records::{MessageRecord, Record, StoreImage};
    use super::super::restore::restore;
    use super::*;

    fn page(before: PastTries, error: fn() -> StoreError) -> Result<Page, RetryReason> {
        let spots = (0..3).map(|offset| Location { file: FileId::segment(1), offset, len: 1 });
        read_page(spots, before, |at, into| {
            into.push(at.offset as u8);
            if at.offset == 1 { Err(error()) } else { Ok(()) }
        })
    }

    fn system(code: i32) -> StoreError {
        let source = io::Error::from_raw_os_error(code);
        StoreError::Io { action: "open", file: "segment".to_owned(), source }
    }

    fn broken() -> StoreError {
        system(5)
    }

    fn lost() -> Page {
        vec![Some(vec![0]), None, Some(vec![2])]
    }

    #[test]
    fn only_what_is_damaged_or_gone_is_lost_at_once() {
        let fresh = PastTries::default();
        assert_eq!(page(fresh, || StoreError::Damaged { file: "segment".to_owned(), offset: 1 }), Ok(lost()));
        assert_eq!(page(fresh, || StoreError::Gone { file: "segment".to_owned() }), Ok(lost()));
        for failures in 0..FAILURES_MAX - 1 {
            let before = PastTries { tries: failures, failures };
            assert_eq!(page(before, broken), Err(RetryReason::Failed), "nothing of it is lost");
        }
        let before = PastTries { tries: FAILURES_MAX - 1, failures: FAILURES_MAX - 1 };
        assert_eq!(page(before, broken), Ok(lost()), "and it has an end");
    }

    /// Interrupted, again, out of memory, not allowed, too many files of all and of ours: nothing about the data.
    #[test]
    fn what_the_system_refuses_is_never_lost() {
        let errors: [fn() -> StoreError; 6] =
            [|| system(4), || system(11), || system(12), || system(13), || system(23), || system(24)];
        for error in errors {
            for before in [PastTries::default(), PastTries { tries: u32::MAX - 1, failures: FAILURES_MAX - 1 }] {
                assert_eq!(page(before, error), Err(RetryReason::Refused), "{}", error());
            }
        }
        let before = PastTries { tries: 1000, failures: 0 };
        assert_eq!(page(before, broken), Err(RetryReason::Failed), "those do not count for the device");
    }

    #[test]
    fn pauses_grow_and_come_to_minutes() {
        let pauses: Vec<Duration> = (0..FAILURES_MAX - 1).map(pause_after).collect();
        assert!(pauses[0] == PAUSE_MIN && pauses.last() == Some(&PAUSE_MAX) && pauses.is_sorted());
        let all = pauses.iter().sum::<Duration>();
        assert!((300..600).contains(&all.as_secs()), "{all:?}");
    }

    /// A shard with this many connected sessions that have a message on disk each.
    fn shard_with_pages(sessions: u64, wall: &WallClock, now: Timestamp) -> Shard {
        let mut image = StoreImage::default();
        let mut take = |record: Record<'_>, offset| {
            let at = Location { file: FileId::segment(1), offset, len: 1 };
            record.with_raw(|raw| image.apply(raw, at)).unwrap();
        };
        let client = |id: u64| format!("reader-{id}");
        for id in 1..=sessions {
            let client_id = client(id);
            let ends_ms = None;
            take(Record::Session { session: id, client_id: &client_id, principal: None, expiry_s: None, ends_ms }, 0);
            let (qos, topic, payload) = (QoS::AtLeastOnce, "t", &b"21.5"[..]);
            let (no_local, retain_as_published, is_latest) = (false, false, false);
            let wish = SubscriberOptions { qos, no_local, retain_as_published, is_latest, id: None };
            take(Record::Subscribed { session: id, filter: "t", wish }, 0);
            let (retain, expires_ms, origin, standing, properties) = (false, None, 7, None, &[][..]);
            let message = MessageRecord { id, qos, retain, expires_ms, origin, standing, topic, properties, payload };
            take(Record::Message(message), id);
            take(Record::Queued { session: id, place: 1, message: id, qos, retain, ids: Vec::new() }, 0);
        }
        let mut shards = [Shard::new(0, 1, Arc::new(Settings::default()), Arc::new(Open), 7)];
        let restored = restore(&image, &mut |_, _| Ok(()), &mut shards, wall, now);
        assert_eq!((restored.deliveries, restored.lost), (sessions as usize, 0));
        let [mut shard] = shards;
        for id in 1..=sessions {
            let client_id = client(id);
            assert_eq!(shard_of(&client_id, 1), 0);
            let connect = Connect {
                version: Version::V311,
                is_bridge: false,
                clean_start: false,
                keep_alive: 0,
                properties: Properties::EMPTY,
                client_id: &client_id,
                will: None,
                user_name: None,
                password: None,
            };
            let hello = MqttHello { connect: &connect, client_id: &client_id, identity: Identity::default() };
            shard.handle_connect(&hello, now).unwrap();
        }
        shard
    }

    /// A file that cannot be read holds up neither other sessions nor, for ever, its own.
    #[test]
    fn what_cannot_be_read_gives_its_place_to_others_and_is_lost_in_the_end() {
        let mut now = Timestamp::from_secs_f64(1.0);
        let wall = WallClock::new(now, 1_800_000_000_000, 0);
        let mut shard = shard_with_pages(40, &wall, now);
        let (jobs, receiver) = sync_channel(JOBS_MAX);
        let mut page_reader = Fetcher(jobs).page_reader(|| {});
        let begun = now;
        let mut first = 0;
        for round in 0..1000 {
            page_reader.ask(&mut shard, now);
            for FetchJob { attempt, answers } in receiver.try_iter() {
                first += usize::from(attempt.before.tries == 0);
                let spots = attempt.fetch.messages.iter().map(|(_, spot)| location_of(*spot));
                let page = read_page(spots, attempt.before, |_, _| Err(broken()));
                answers.done.lock().unwrap().push((attempt, page));
            }
            page_reader.hear(&mut shard, &wall, now);
            match round {
                0 => assert_eq!(first, 16, "so many have a place"),
                1 => assert_eq!(first, 32),
                2 => assert_eq!(first, 40, "all had their turn before any was tried again"),
                _ => now = page_reader.due().unwrap_or(now),
            }
            assert_eq!(shard.audit(), Ok(()));
            if round > 2 && page_reader.due().is_none() {
                break;
            }
        }
        assert_eq!(shard.stats().dropped_unreadable, 40);
        assert_eq!((shard.stats().queued_messages, shard.stats().queued_on_disk), (0, 0));
        assert!(now.since(begun) < Duration::from_secs(600), "{:?}", now.since(begun));
        assert!(shard.poll_fetch().is_none());
    }

    /// A thread that hangs has no room; what is overdue meanwhile must not keep the shard awake.
    #[test]
    fn a_shard_sleeps_while_the_thread_hangs() {
        let mut now = Timestamp::from_secs_f64(1.0);
        let wall = WallClock::new(now, 1_800_000_000_000, 0);
        let mut shard = shard_with_pages(8, &wall, now);
        let (jobs, receiver) = sync_channel(2);
        let mut page_reader = Fetcher(jobs).page_reader(|| {});
        page_reader.ask(&mut shard, now);
        for FetchJob { attempt, answers } in receiver.try_iter() {
            answers.done.lock().unwrap().push((attempt, Err(RetryReason::Refused)));
        }
        page_reader.hear(&mut shard, &wall, now);
        for _ in 0..100 {
            page_reader.ask(&mut shard, now);
            let due = page_reader.due().unwrap();
            assert!(due > now, "at {now:?} it wants to be called at {due:?}");
            now = due;
        }
        // It goes on when there is room, with what was put off, too.
        let mut pages = 0;
        while let Ok(FetchJob { attempt, answers }) = receiver.try_recv() {
            pages += 1;
            answers.done.lock().unwrap().push((attempt, Ok(vec![None])));
            page_reader.ask(&mut shard, now);
        }
        page_reader.hear(&mut shard, &wall, now);
        assert_eq!((pages, page_reader.due(), shard.stats().queued_on_disk), (8, None, 0));
    }
}
