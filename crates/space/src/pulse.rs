//! How long the doors take to get to what they are told. They are one thread: when it has too much to write, everybody waits,
//! and no queue shows it. So they are called now and then, and it is measured when they answer.
//!
//! Called by the writer, while it is interested; answered by a task beside the doors.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidegate_control::Timestamp;
use tokio::sync::Notify;

use crate::shared_state::{Shared, lock};

#[derive(Debug, Default)]
pub(crate) struct DoorPulse {
    /// There are doors.
    is_heard: AtomicBool,
    /// When they were called and have not answered, in nanoseconds; 0 if they have.
    called: AtomicU64,
    /// How long the last answer took, in nanoseconds.
    took: AtomicU64,
    call: Notify,
}

impl DoorPulse {
    /// How long the doors took of late, or take already; and calls them again.
    pub(crate) fn beat(&self, now: Timestamp) -> Duration {
        if !self.is_heard.load(Ordering::Relaxed) {
            return Duration::ZERO;
        }
        let called = self.called.load(Ordering::Acquire);
        if called > 0 {
            return now.since(Timestamp::from_nanos(called));
        }
        let took = Duration::from_nanos(self.took.load(Ordering::Relaxed));
        self.called.store(now.as_nanos().max(1), Ordering::Release);
        self.call.notify_one();
        took
    }

    /// Answers for ever.
    pub(crate) async fn listen(&self, now: impl Fn() -> Timestamp) {
        self.is_heard.store(true, Ordering::Relaxed);
        loop {
            self.call.notified().await;
            let called = Timestamp::from_nanos(self.called.load(Ordering::Acquire));
            let took = u64::try_from(now().since(called).as_nanos()).unwrap_or(u64::MAX);
            self.took.store(took, Ordering::Relaxed);
            self.called.store(0, Ordering::Release);
        }
    }
}

impl Shared {
    /// How long what comes now has to wait: at the writer, or until the doors have a moment for it.
    pub(crate) fn wait_of_late(&self) -> Duration {
        if let Some(wait) = self.probe.as_ref().and_then(|probe| probe.wait()) {
            return wait;
        }
        let now = self.now();
        let at_writer = lock(&self.desk).front.write_backlog(now);
        at_writer.max(self.pulse.beat(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn doors_that_do_not_answer_are_late_and_none_are_not() {
        let (pulse, at) = (DoorPulse::default(), Timestamp::from_nanos);
        assert_eq!((pulse.beat(at(1)), pulse.beat(at(5_000))), (Duration::ZERO, Duration::ZERO), "there are none");
        let listen = pulse.listen(|| at(70_000));
        tokio::pin!(listen);
        let turn = async |listen: &mut std::pin::Pin<&mut _>| {
            tokio::select! { biased; () = listen => {}, () = std::future::ready(()) => {} }
        };
        turn(&mut listen).await;
        assert_eq!(pulse.beat(at(10_000)), Duration::ZERO, "called");
        assert_eq!(pulse.beat(at(30_000)), Duration::from_micros(20), "and still not answered");
        turn(&mut listen).await;
        assert_eq!(pulse.beat(at(80_000)), Duration::from_micros(60), "what it took");
    }
}
