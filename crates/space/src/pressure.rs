//! How hard the process is pressed: asked now and then, and told to the front desk, which decides what that changes
//! (`machine::yielding`).

use std::fmt;
use std::time::Duration;

use crate::machine::yielding::SpacePressure;
use crate::shared_state::{LockedState, Shared, lock};

/// The broker beside the space, as far as the space has to know how it is.
pub trait PressureSource: fmt::Debug + Send + Sync {
    /// How hard it is pressed now.
    fn pressure(&self) -> SpacePressure;
}

impl Shared {
    /// How long whoever works beside the writer rests after a turn of this length, because the broker is pressed.
    pub(crate) fn rest(&self, took: Duration) -> Duration {
        lock(&self.desk).front.rest(took)
    }

    /// Asks, if it is time. Called by whoever is about to ask the front desk what to do.
    pub(crate) fn hear_pressure(&self, desk: &mut LockedState) {
        let Some(source) = &self.pressure else { return };
        let now = self.now();
        if desk.front.is_pressure_due(now) && desk.front.handle_pressure(now, source.pressure()) {
            // Some of them may wait with nothing but what takes long.
            self.reader.notify_all();
        }
    }
}
