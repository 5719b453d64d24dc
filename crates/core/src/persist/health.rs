//! Whether anything can be kept, as the driver says. What follows from it for messages that come in: `gate/store.rs`.

use core::time::Duration;

use crate::event::Event;
use crate::limits::STORE_STALL;
use crate::state::ShardState;

/// Why nothing can be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// There is room only for what makes less of what is kept.
    Full,
    /// The disk fails.
    Failing,
}

impl Trouble {
    /// In words, for clients and people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Full => "the broker's store is full",
            Self::Failing => "the broker's disk fails",
        }
    }
}

impl ShardState {
    pub(crate) fn handle_store_health(&mut self, trouble: Option<Trouble>) {
        if self.journal.set_trouble(trouble) {
            self.tell(Event::Store { trouble });
        }
    }

    pub(crate) fn handle_store_lag(&mut self, lag: Duration) {
        self.journal.set_stalled(lag >= STORE_STALL);
    }

    pub(crate) fn store_trouble(&self) -> Option<Trouble> {
        self.journal.trouble()
    }
}
