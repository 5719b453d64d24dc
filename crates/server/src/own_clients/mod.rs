//! The broker's own clients, bridges and sinks, at work: one thread for all of a kind, a task for each of them, which begins anew
//! after a fault. What each does is its own; here is what they have in common.

mod session;
mod start;

use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;
use tokio::sync::watch;
use tracing::error;

pub(crate) use session::{OwnSession, TaskClock, chance, read_some, write_some};
pub use start::{OwnClient, OwnClients};

/// Between a fault of a task and its new beginning.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// What tasks of a kind are called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnKind {
    /// The name of their thread.
    pub(crate) thread: &'static str,
    /// Says in the log that the one of this name has failed and begins anew.
    pub(crate) tell_restart: fn(&str),
}

/// All tasks of a kind while they run. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct OwnTasks {
    kind: OwnKind,
    stop: Option<watch::Sender<bool>>,
    thread: Option<JoinHandle<()>>,
}

impl OwnTasks {
    /// Begins. Each has a name, and what makes a life of it, which lasts until it is told to stop: again after each fault, which costs
    /// a connection, and nothing that is kept. None: it cannot live any more.
    pub(crate) fn start<Begin, Life>(kind: OwnKind, tasks: Vec<(String, Begin)>) -> Result<Self>
    where
        Begin: Fn(watch::Receiver<bool>) -> Option<Life> + Send + 'static,
        Life: Future<Output = ()> + Send + 'static,
    {
        let (stop, stopped) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let life = move || {
            runtime.block_on(async {
                let watched = tasks.into_iter().map(|task| tokio::spawn(watch_over(kind, task, stopped.clone())));
                for task in watched.collect::<Vec<_>>() {
                    let _ = task.await;
                }
            });
            // A look-up of a name cannot be given up, and may take as long as its servers like: nobody waits for it.
            runtime.shutdown_background();
        };
        let thread: io::Result<_> = thread::Builder::new().name(kind.thread.to_owned()).spawn(life);
        Ok(Self { kind, stop: Some(stop), thread: Some(thread?) })
    }
}

/// One of them, for as long as the process lives.
async fn watch_over<Begin, Life>(kind: OwnKind, (name, begin): (String, Begin), stopped: watch::Receiver<bool>)
where
    Begin: Fn(watch::Receiver<bool>) -> Option<Life>,
    Life: Future<Output = ()> + Send + 'static,
{
    while let Some(life) = begin(stopped.clone()) {
        if tokio::spawn(life).await.is_ok() {
            return;
        }
        (kind.tell_restart)(&name);
        tokio::time::sleep(RESTART_PAUSE).await;
    }
}

impl Drop for OwnTasks {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(true);
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            error!(event = "panic", thread = self.kind.thread, "a thread of the broker's own clients has panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_task_that_panics_begins_anew_and_all_end_when_they_are_dropped() {
        static RESTARTS: AtomicU32 = AtomicU32::new(0);
        let kind = OwnKind { thread: "test", tell_restart: |_| _ = RESTARTS.fetch_add(1, Ordering::SeqCst) };
        let (begun, ended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (sender, receiver) = std::sync::mpsc::channel();
        let counts = (Arc::clone(&begun), Arc::clone(&ended));
        let begin = move |mut stopped: watch::Receiver<bool>| {
            let (number, ended, sender) =
                (counts.0.fetch_add(1, Ordering::SeqCst), Arc::clone(&counts.1), sender.clone());
            Some(async move {
                assert!(number > 0, "the first one fails");
                let _ = sender.send(());
                let _ = stopped.changed().await;
                ended.fetch_add(1, Ordering::SeqCst);
            })
        };
        let tasks = OwnTasks::start(kind, vec![("one".to_owned(), begin)]).unwrap();
        receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        drop(tasks);
        let counted = [&begun, &ended].map(|count| count.load(Ordering::SeqCst));
        assert_eq!((counted, RESTARTS.load(Ordering::SeqCst)), ([2, 1], 1));
    }
}
