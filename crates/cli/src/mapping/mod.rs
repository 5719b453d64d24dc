//! The maps between MQTT and the smart space, at work: a thread that carries messages from the shards to the writer of the
//! space, and solutions of standing queries back. What becomes of each is decided in `tidegate_map`.

mod counts;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use tidegate_broker::{Handle as Broker, Tap, Tapped};
use tidegate_space::Handle as Space;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tracing::error;

pub(crate) use counts::Counts;
use worker::Worker;

use crate::config::map::Maps;

/// Messages on their way to the maps, and their bytes; what comes when there are as many is counted and lost.
const QUEUE_MAX: usize = 8192;
const QUEUE_BYTES_MAX: usize = 16 << 20;

/// How long the start waits for the standing queries of maps, all together: doors are closed meanwhile. What does not
/// stand by then is tried again behind open doors.
const START_MAX: Duration = Duration::from_secs(30);

/// A message on its way.
struct Queued {
    tapped: Tapped,
    bytes: usize,
    /// Bytes of all that are on their way.
    waiting: Arc<AtomicUsize>,
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The maps while they work. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Mapping {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    counts: Arc<Counts>,
}

impl Mapping {
    /// Begins: standing queries stand before the first message is taken, unless that takes too long.
    pub(crate) fn start(maps: Maps, user: Option<&str>, broker: &Broker, space: &Space) -> Result<Self> {
        let filters: Arc<[Box<str>]> = maps.ingest.iter().map(|(_, ingest, _)| ingest.filter().into()).collect();
        let (queue, messages) = mpsc::channel(QUEUE_MAX);
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
        let counts = Arc::new(Counts::default());
        let worker = Worker::new(maps, broker.clone(), space.clone(), Arc::clone(&counts));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let life = move || {
            runtime.block_on(async move {
                let mut worker = worker;
                let outcome = worker.stand(Instant::now() + START_MAX).await;
                let is_standing = outcome.is_ok();
                let _ = ready.send(outcome);
                if is_standing {
                    worker.run(messages, stopped).await;
                }
            });
        };
        let thread = thread::Builder::new().name("maps".to_owned()).spawn(life)?;
        let mapping = Self { stop: Some(stop), thread: Some(thread), counts };
        is_ready.recv().context("the maps did not start")??;
        let waiting = Arc::new(AtomicUsize::new(0));
        let take = move |tapped: Tapped| {
            let bytes = tapped.topic.len() + tapped.payload.len();
            let before = waiting.fetch_add(bytes, Ordering::Relaxed);
            let queued = Queued { tapped, bytes, waiting: Arc::clone(&waiting) };
            before <= QUEUE_BYTES_MAX && queue.try_send(queued).is_ok()
        };
        broker.tap(Tap { filters, user: user.map(Into::into), take: Box::new(take) });
        Ok(mapping)
    }

    /// What became of messages and solutions.
    pub(crate) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            error!(event = "panic", "the thread of the maps has panicked");
        }
    }
}
