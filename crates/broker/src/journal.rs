//! What happened, as lines in a log: one per event, and not more than so many per second and kind. What was left out is
//! counted in the next line of its kind. Client identifiers and topics are written quoted and escaped: they are not ours.

use std::net::SocketAddr;

use tidegate_control::Timestamp;
use tidegate_core::event::{Event, Why};
use tracing::{debug, info, warn};

use crate::limits::LOG_LINES_PER_SECOND;

/// The log of one thread.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    connected: Ration,
    disconnected: Ration,
    broken: Ration,
    session_ended: Ration,
    denied: Ration,
    slowed: Ration,
    recovered: Ration,
    /// Trouble with accepting, and with those that never became clients.
    accept: Ration,
    handshake: Ration,
}

impl Journal {
    /// Writes an event down.
    pub(crate) fn tell(&mut self, event: &Event, now: Timestamp) {
        match event {
            Event::Connected { client_id, session_present, .. } => {
                let Some(suppressed) = self.connected.take(now) else { return };
                info!(client = ?client_id, session_present, suppressed, "connected");
            }
            Event::Disconnected { client_id, why: Why::Protocol { reason, detail }, .. } => {
                let Some(suppressed) = self.broken.take(now) else { return };
                warn!(client = ?client_id, reason = reason.name(), detail, suppressed, "broke the protocol");
            }
            Event::Disconnected { client_id, why, .. } => {
                let Some(suppressed) = self.disconnected.take(now) else { return };
                info!(client = ?client_id, why = ?why, suppressed, "disconnected");
            }
            Event::SessionEnded { client_id } => {
                let Some(suppressed) = self.session_ended.take(now) else { return };
                debug!(client = ?client_id, suppressed, "session ended");
            }
            Event::Slowed { client_id, interval, rate, .. } => {
                let Some(suppressed) = self.slowed.take(now) else { return };
                warn!(client = ?client_id, usual_interval = ?interval, rate, suppressed, "publishes too fast: slowed");
            }
            Event::Recovered { client_id } => {
                let Some(suppressed) = self.recovered.take(now) else { return };
                info!(client = ?client_id, suppressed, "no longer slowed");
            }
            Event::Denied { client_id, what, topic } => {
                let Some(suppressed) = self.denied.take(now) else { return };
                warn!(client = ?client_id, what, topic = ?topic, suppressed, "denied");
            }
        }
    }

    /// Accepting rests, or somebody was turned away at the door.
    pub(crate) fn accept_trouble(&mut self, listener: &str, why: &str, now: Timestamp) {
        let Some(suppressed) = self.accept.take(now) else { return };
        warn!(listener, why, suppressed, "cannot accept");
    }

    /// Somebody did not become a client.
    pub(crate) fn handshake_trouble(&mut self, peer: SocketAddr, listener: &str, why: &str, now: Timestamp) {
        let Some(suppressed) = self.handshake.take(now) else { return };
        info!(%peer, listener, why, suppressed, "handshake failed");
    }
}

/// So many lines a second.
#[derive(Debug, Default)]
struct Ration {
    second: u64,
    written: u32,
    suppressed: u64,
}

impl Ration {
    /// Whether a line may be written, with the number of those that were not since the last.
    fn take(&mut self, now: Timestamp) -> Option<u64> {
        let second = now.as_nanos() / 1_000_000_000;
        if second != self.second {
            *self = Self { second, written: 0, suppressed: self.suppressed };
        }
        if self.written >= LOG_LINES_PER_SECOND {
            self.suppressed += 1;
            return None;
        }
        self.written += 1;
        Some(core::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_left_out_is_counted() {
        let mut ration = Ration::default();
        let now = Timestamp::ZERO;
        for _ in 0..LOG_LINES_PER_SECOND {
            assert_eq!(ration.take(now), Some(0));
        }
        for _ in 0..7 {
            assert_eq!(ration.take(now), None);
        }
        assert_eq!(ration.take(now + Duration::from_secs(1)), Some(7));
        assert_eq!(ration.take(now + Duration::from_secs(1)), Some(0));
    }
}
