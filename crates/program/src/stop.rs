//! Whether somebody pressed Ctrl-C: the client tools then say goodbye instead of leaving their will behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use signal_hook::consts::{SIGINT, SIGTERM};

/// Set by INT and TERM.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// From now on a first signal is noted; a second one ends the process as usual.
    pub fn on_signals() -> Result<Self> {
        let wanted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // Order matters: the second signal sees the flag that the first one set.
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&wanted))?;
            signal_hook::flag::register(signal, Arc::clone(&wanted))?;
        }
        Ok(Self(wanted))
    }

    /// Whether a signal came.
    pub fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag itself, for threads that look at it.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }
}
