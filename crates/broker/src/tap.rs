//! The way to the maps of the smart space and back, as the rim has it: a tap on every shard, and a publisher without a
//! connection.

use std::fmt;
use std::sync::Arc;

pub use tidegate_core::{Mapped, Tapped};

use crate::ask::Busy;
use crate::handle::Handle;
use crate::limits::MAPPED_MAX;
use crate::permit::Permit;
use crate::shard_thread::ShardThread;
use crate::thread_message::ThreadMessage;

/// Which messages are to be seen, and by whom.
pub struct Tap {
    /// Topic filters, which have been checked.
    pub filters: Arc<[Box<str>]>,
    /// The user as whom the maps receive and publish; the rules of access concern it. Without one they may do everything.
    pub user: Option<Arc<str>>,
    /// Takes a message, or says that there is no room. Called on the threads of the shards: it must not wait.
    pub take: Box<dyn Fn(Tapped) -> bool + Send + Sync>,
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap").field("filters", &self.filters).field("user", &self.user).finish_non_exhaustive()
    }
}

/// A message of a map on its way to a shard.
#[derive(Debug)]
pub(crate) struct OutgoingMapped {
    mapped: Mapped,
    _permit: Permit,
}

impl Handle {
    /// Shows these messages to whoever takes them, from now on. There is one tap; another takes its place.
    pub fn tap(&self, tap: Tap) {
        let tap = Arc::new(tap);
        self.shared().tell_all(|| ThreadMessage::Tap(Arc::clone(&tap)));
    }

    /// Publishes a message of a map. Messages of one topic stay in order.
    pub fn publish(&self, mapped: Mapped) -> Result<(), Busy> {
        let permit = self.shared().mapped.take(MAPPED_MAX).ok_or(Busy)?;
        let inbox = self.shared().inboxes.get(self.shard_of(&mapped.topic)).ok_or(Busy)?;
        inbox.send(ThreadMessage::Mapped(Box::new(OutgoingMapped { mapped, _permit: permit }))).map_err(|_| Busy)
    }
}

impl ShardThread {
    pub(crate) fn publish_mapped(&mut self, outgoing: &OutgoingMapped) {
        self.shard.handle_mapped(&outgoing.mapped, self.now);
    }

    pub(crate) fn set_tap(&mut self, tap: Arc<Tap>) {
        self.shard.set_taps(Arc::clone(&tap.filters), tap.user.clone());
        self.tap = Some(tap);
    }

    /// What was seen in this turn.
    pub(crate) fn hand_tapped(&mut self) {
        let Some(tap) = &self.tap else { return };
        while let Some(tapped) = self.shard.poll_tapped() {
            if !(tap.take)(tapped) {
                self.shard.handle_tap_full();
            }
        }
    }
}
