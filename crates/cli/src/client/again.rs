//! Coming back after a connection broke: with pauses that double up to half a minute, so that a broker that restarts is
//! found soon and one that is gone is not hammered.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{BlockingClient, ClientError};

const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How often it is asked meanwhile whether it is over.
const GLANCE: Duration = Duration::from_millis(100);

/// Connects again. `Ok(Err(…))` if `is_over` says so meanwhile; an error if somebody says no.
pub(crate) fn come_back<T>(
    error: &anyhow::Error,
    connect: impl Fn() -> Result<BlockingClient, ClientError>,
    is_over: impl Fn() -> Option<T>,
    is_quiet: bool,
) -> Result<Result<BlockingClient, T>> {
    let mut pause = PAUSE_MIN;
    let mut why = error.to_string();
    loop {
        if !is_quiet {
            eprintln!("{why}; trying again in {} s", pause.as_secs());
        }
        let end = Instant::now() + pause;
        while Instant::now() < end {
            if let Some(outcome) = is_over() {
                return Ok(Err(outcome));
            }
            std::thread::sleep(GLANCE);
        }
        pause = (pause * 2).min(PAUSE_MAX);
        match connect() {
            Ok(client) => return Ok(Ok(client)),
            Err(error) if error.is_passing() => why = error.to_string(),
            Err(error) => return Err(error.into()),
        }
    }
}
