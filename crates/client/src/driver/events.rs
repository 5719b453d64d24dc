//! Events on their way to whoever wants them. Nobody who tells them ever waits, and nothing is kept for nobody.

use std::sync::OnceLock;

use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::broadcast::{self, Receiver, Sender};

use crate::limits::EVENTS_MAX;
use crate::session::event::{ClientEvent, EventKind};

/// Where a client tells what happens.
#[derive(Debug, Default)]
pub(crate) struct Notices(OnceLock<Sender<ClientEvent>>);

impl Notices {
    /// Whether anybody has ever asked.
    pub(crate) fn are_wanted(&self) -> bool {
        self.0.get().is_some_and(|sender| sender.receiver_count() > 0)
    }

    pub(crate) fn tell(&self, query: Option<u64>, kind: EventKind) {
        if let Some(sender) = self.0.get() {
            // Without a reader it is not wanted any more.
            let _ = sender.send(ClientEvent { query, kind });
        }
    }

    pub(crate) fn read(&self) -> Events {
        Events(self.0.get_or_init(|| broadcast::channel(EVENTS_MAX).0).subscribe())
    }
}

/// A stream of what happens from now on. Whoever reads too slowly is told how many were left out
/// ([`EventKind::Missed`]), and goes on with the oldest that is still there.
#[derive(Debug)]
pub struct Events(Receiver<ClientEvent>);

impl Events {
    /// The next one; none when the client is gone.
    pub async fn next(&mut self) -> Option<ClientEvent> {
        match self.0.recv().await {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(number)) => Some(missed(number)),
            Err(RecvError::Closed) => None,
        }
    }

    /// One that is there already.
    pub fn try_next(&mut self) -> Option<ClientEvent> {
        match self.0.try_recv() {
            Ok(event) => Some(event),
            Err(TryRecvError::Lagged(number)) => Some(missed(number)),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }
}

fn missed(number: u64) -> ClientEvent {
    ClientEvent { query: None, kind: EventKind::Missed(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_reader_is_told_how_many_it_missed() {
        let notices = Notices::default();
        notices.tell(None, EventKind::Connected);
        assert!(!notices.are_wanted());
        let (mut slow, mut fast) = (notices.read(), notices.read());
        for number in 0..EVENTS_MAX as u64 + 7 {
            notices.tell(Some(number), EventKind::CheckSent);
            assert_eq!(fast.next().await.and_then(|event| event.query), Some(number));
        }
        assert_eq!(slow.next().await, Some(missed(7)), "what nobody asked for yet is not among them");
        assert_eq!(slow.try_next().and_then(|event| event.query), Some(7));
        drop(notices);
        assert_eq!(std::iter::from_fn(|| slow.try_next()).count(), EVENTS_MAX - 1);
        assert_eq!(slow.next().await, None);
    }
}
