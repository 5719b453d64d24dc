//! What a panic leaves in the log: one line with the thread, the place and the reason, whoever catches it afterwards.
//! Somebody who can make something panic must not be able to fill a disk by it: one line a second, and how many were left
//! out.

use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tracing::error;

/// Bytes of a reason; it may quote what somebody has sent.
const REASON_BYTES: usize = 500;

/// From now on panics are log lines.
pub fn log() {
    let (began, pace) = (Instant::now(), LineLimiter::default());
    std::panic::set_hook(Box::new(move |info| {
        if let Some(suppressed) = pace.next(began.elapsed().as_secs()) {
            let current = std::thread::current();
            let thread = current.name().unwrap_or("?");
            let at = info.location().map(ToString::to_string).unwrap_or_default();
            error!(event = "panic", thread, at, reason = reason(info), suppressed, "a fault of the program");
        }
    }));
}

fn reason(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("?").chars().take(REASON_BYTES).collect()
}

/// One line a second.
#[derive(Debug, Default)]
struct LineLimiter {
    /// The second of the last line, plus one.
    last: AtomicU64,
    suppressed: AtomicU64,
}

impl LineLimiter {
    /// How many were left out since the last line; none if this one is, too.
    fn next(&self, second: u64) -> Option<u64> {
        if self.last.fetch_max(second + 1, Ordering::Relaxed) > second {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.suppressed.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_line_a_second_and_none_is_forgotten() {
        let pace = LineLimiter::default();
        let lines: Vec<_> = [0, 0, 0, 1, 1, 7].map(|second| pace.next(second)).into();
        assert_eq!(lines, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
