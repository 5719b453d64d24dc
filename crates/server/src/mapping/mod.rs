//! The maps between MQTT and the smart space, at work: a thread that carries messages from the shards to the writer of the
//! space, and solutions of standing queries back. What becomes of each is decided in `tidegate_map`.

mod counts;
mod worker;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use tidegate_broker::{Handle as Broker, Tap, Tapped};
use tidegate_space::SpaceHandle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tracing::{error, warn};

pub use counts::MapCounts;
use worker::Worker;

use crate::config::map::Maps;

/// Messages on their way to the maps, and their bytes; what comes when there are as many is counted and lost.
const QUEUE_MAX: usize = 8192;
const QUEUE_BYTES_MAX: usize = 16 << 20;

/// How long the start waits for the standing queries of maps, all together: doors are closed meanwhile. What does not
/// stand by then is tried again behind open doors.
const START_MAX: Duration = Duration::from_secs(30);

/// Between a fault of the maps and their new beginning: whoever can cause one must not keep the machine busy.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// A message on its way.
struct QueuedMessage {
    tapped: Tapped,
    bytes: usize,
    /// Bytes of all that are on their way.
    waiting: Arc<AtomicUsize>,
}

impl Drop for QueuedMessage {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The maps while they work. Dropping it ends them.
#[derive(Debug)]
pub struct Mapping {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    counts: Arc<MapCounts>,
}

impl Mapping {
    /// Begins: standing queries stand before the first message is taken, unless that takes too long.
    pub fn start(maps: Maps, user: Option<&str>, broker: &Broker, space: &SpaceHandle) -> Result<Self> {
        let filters: Arc<[Box<str>]> = maps.ingest.iter().map(|(_, ingest, _)| ingest.filter().into()).collect();
        let (queue, mut messages) = mpsc::channel(QUEUE_MAX);
        let (stop, mut stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
        let counts = Arc::new(MapCounts::default());
        let (own, broker_too, space) = (Arc::clone(&counts), broker.clone(), space.clone());
        let make = move || Worker::new(maps.clone(), broker_too.clone(), space.clone(), Arc::clone(&own));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let life = move || {
            let mut worker = make();
            // Inside the runtime: its clock is needed.
            let outcome = runtime.block_on(async { worker.stand(Instant::now() + START_MAX).await });
            let is_standing = outcome.is_ok();
            let _ = ready.send(outcome);
            if !is_standing {
                return;
            }
            let mut live = |worker: &mut Worker| runtime.block_on(worker.run(&mut messages, &mut stopped));
            // A message that makes a map panic costs itself and what was under way; the maps go on.
            while catch_unwind(AssertUnwindSafe(|| live(&mut worker))).is_err() {
                warn!(event = "maps_restarted", "the maps have failed and begin anew");
                thread::sleep(RESTART_PAUSE);
                worker = make();
                worker.stand_later();
            }
        };
        // Whoever asks the space may have to drop the query of somebody who waited too long.
        let builder = thread::Builder::new().name("maps".to_owned()).stack_size(tidegate_space::limits::STACK_BYTES);
        let thread = builder.spawn(life)?;
        let mapping = Self { stop: Some(stop), thread: Some(thread), counts };
        is_ready.recv().context("the maps did not start")??;
        let waiting = Arc::new(AtomicUsize::new(0));
        let take = move |tapped: Tapped| {
            let bytes = tapped.topic.len() + tapped.payload.len();
            let before = waiting.fetch_add(bytes, Ordering::Relaxed);
            let queued = QueuedMessage { tapped, bytes, waiting: Arc::clone(&waiting) };
            before <= QUEUE_BYTES_MAX && queue.try_send(queued).is_ok()
        };
        broker.tap(Tap { filters, user: user.map(Into::into), take: Box::new(take) });
        Ok(mapping)
    }

    /// What became of messages and solutions.
    pub fn counts(&self) -> Arc<MapCounts> {
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
