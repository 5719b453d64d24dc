//! What a task of the broker's own has besides what it does: its session in this broker, a clock, chance, and halves of sockets.

use std::future::pending;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use tidegate_broker::Handle as Broker;
use tidegate_broker::ask::{Answer, Question};
use tidegate_control::Timestamp;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;

/// How long this broker may take to say what a session is subscribed to.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// The session of one of them, whose queue is its spool.
#[derive(Clone, Debug)]
pub(crate) struct OwnSession {
    broker: Broker,
    client_id: Arc<str>,
}

impl OwnSession {
    pub(crate) fn new(broker: Broker, client_id: &str) -> Self {
        Self { broker, client_id: client_id.into() }
    }

    /// A connection to this broker.
    pub(crate) fn attach(&self) -> io::Result<UnixStream> {
        let stream = self.broker.attach_own()?;
        stream.set_nonblocking(true)?;
        UnixStream::from_std(stream)
    }

    /// What it is subscribed to, from before a restart. Without an answer nothing is given up: none.
    pub(crate) async fn filters(&self) -> Option<Vec<String>> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let asked = self.ask(move |answer| drop(sender.send(answer)));
        match (asked, tokio::time::timeout(ANSWER_MAX, receiver).await) {
            (true, Ok(Ok(Answer::Client(Some(detail))))) => {
                Some(detail.filters.iter().map(|(filter, _)| filter.to_string()).collect())
            }
            _ => None,
        }
    }

    /// Messages and bytes that wait in its spool. Nobody waits for the answer; a broker that has no time says nothing.
    pub(crate) fn ask_spool(&self, told: impl FnOnce((u64, u64)) + Send + 'static) {
        self.ask(move |answer| {
            if let Answer::Client(Some(detail)) = answer {
                let (messages, bytes) = detail.client.queued;
                told(((messages + detail.client.inflight) as u64, bytes as u64));
            }
        });
    }

    /// Says something below `$SYS`. False: there is no room for it now.
    pub(crate) fn say_system(&self, topic: String, value: String) -> bool {
        self.broker.say_system(topic, value)
    }

    fn ask(&self, told: impl FnOnce(Answer) + Send + 'static) -> bool {
        let question = Question::Client { client_id: Arc::clone(&self.client_id) };
        self.broker.ask(self.broker.shard_of(&self.client_id), question, told).is_ok()
    }
}

/// Time since a task began, as its machine counts it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskClock(Instant);

impl TaskClock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.0.elapsed()
    }

    /// When that is.
    pub(crate) fn at(&self, time: Timestamp) -> Instant {
        self.0 + time.since(Timestamp::ZERO)
    }
}

/// Chance, of another seed each time.
pub(crate) fn chance() -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(std::hash::RandomState::new().build_hasher().finish())
}

/// Reads; never, if there is nothing to read from.
pub(crate) async fn read_some(read: Option<&mut (impl AsyncRead + Unpin)>, buffer: &mut [u8]) -> io::Result<usize> {
    match read {
        Some(read) => read.read(buffer).await,
        None => pending().await,
    }
}

/// Writes, or flushes what was written: each alone can be given up and begun again.
pub(crate) async fn write_some(write: Option<&mut (impl AsyncWrite + Unpin)>, out: &[u8]) -> io::Result<usize> {
    match write {
        Some(write) if out.is_empty() => write.flush().await.map(|()| 0),
        Some(write) => write.write(out).await,
        None => pending().await,
    }
}
