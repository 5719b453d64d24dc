//! Panics of the smart space, where they end and how they are counted. A fault of the space costs the request that met
//! it, or at most the space: never the process, which carries MQTT, too. What a panic said is written to the log by the
//! process's panic hook; here it is only kept from going further.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;

/// What has panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A thread that reads texts.
    Parser,
    /// A thread that evaluates queries and writes their answers.
    Reader,
    /// The owner of the data.
    Writer,
    /// The thread that evaluates standing queries beside the commits.
    Evaluator,
    /// Who ends what takes too long.
    Watcher,
    /// SPARQL over HTTP and WebSocket.
    Http,
    /// Smart-M3.
    Ssap,
}

/// Names of the parts, in the order of their counters.
const PARTS: [&str; 7] = ["parser", "reader", "writer", "evaluator", "watcher", "http", "ssap"];

/// How often each part has panicked.
#[derive(Debug, Default)]
pub(crate) struct Panics([AtomicU64; PARTS.len()]);

/// Something panicked; it was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Panicked;

impl Panics {
    /// Does something that may panic. What it worked on must not be used again unless nothing of it was half changed.
    pub(crate) fn catch<T>(&self, part: Part, work: impl FnOnce() -> T) -> Result<T, Panicked> {
        catch_unwind(AssertUnwindSafe(work)).map_err(|_| self.count(part))
    }

    /// The same for what is waited for.
    pub(crate) async fn catch_async<T>(&self, part: Part, work: impl Future<Output = T>) -> Result<T, Panicked> {
        AssertUnwindSafe(work).catch_unwind().await.map_err(|_| self.count(part))
    }

    /// One that was caught elsewhere.
    pub(crate) fn count(&self, part: Part) -> Panicked {
        self.0[part as usize].fetch_add(1, Ordering::Relaxed);
        Panicked
    }

    /// Parts and how often each has panicked.
    pub(crate) fn all(&self) -> [(&'static str, u64); PARTS.len()] {
        let mut numbers = self.0.iter().map(|number| number.load(Ordering::Relaxed));
        PARTS.map(|part| (part, numbers.next().unwrap_or(0)))
    }
}

/// Where a test may make something go wrong. Nothing in the program implements it.
pub trait Probe: std::fmt::Debug + Send + Sync {
    /// Called at the beginning of each piece of work of this part.
    fn at(&self, part: Part);

    /// Called before an answer is written.
    fn at_rendering(&self) {}

    /// How long what comes is said to have to wait, in place of what is measured.
    fn wait(&self) -> Option<std::time::Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_where_it_is_caught_and_is_counted_for_its_part() {
        let panics = Panics::default();
        assert_eq!(panics.catch(Part::Reader, || 7), Ok(7));
        assert_eq!(panics.catch(Part::Reader, || -> u8 { panic!("injected") }), Err(Panicked));
        let counted: Vec<_> = panics.all().into_iter().filter(|(_, number)| *number > 0).collect();
        assert_eq!(counted, [("reader", 1)]);
    }

    #[tokio::test]
    async fn the_same_holds_for_what_is_waited_for() {
        let panics = Panics::default();
        let late = async {
            tokio::task::yield_now().await;
            panic!("injected")
        };
        assert_eq!(panics.catch_async::<()>(Part::Ssap, late).await, Err(Panicked));
        assert_eq!(panics.all()[Part::Ssap as usize], ("ssap", 1));
    }
}
