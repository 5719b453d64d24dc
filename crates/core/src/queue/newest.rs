//! Topics of which only the newest message waits.

use alloc::boxed::Box;

use foldhash::quality::FixedState;
use hashbrown::HashMap;

use crate::session::Queued;

type ByTopic = HashMap<Box<str>, Queued, FixedState>;

/// The newest message of each topic, of QoS 0 and of the others by themselves: one that nobody was promised does not
/// replace what was acknowledged.
#[derive(Debug, Default)]
pub(super) struct Newest {
    pub(super) passing: ByTopic,
    pub(super) kept: ByTopic,
}

impl Newest {
    pub(super) fn get(&self, topic: &str, is_passing: bool) -> Option<&Queued> {
        if is_passing { &self.passing } else { &self.kept }.get(topic)
    }

    pub(super) fn of_mut(&mut self, is_passing: bool) -> &mut ByTopic {
        if is_passing { &mut self.passing } else { &mut self.kept }
    }
}
