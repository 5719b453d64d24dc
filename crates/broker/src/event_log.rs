//! What happened, as lines in a log: one per event, and not more than so many per second and kind. What was left out is
//! counted in the next line of its kind. Client identifiers and topics are written quoted and escaped: they are not ours.
//!
//! Every line has a field `event` whose names do not change: `connected`, `connect_refused`, `disconnected`,
//! `protocol_error`, `session_ended`, `denied`, `accept_failed`, `handshake_failed`.

use std::borrow::Cow;

use tidegate_control::Timestamp;
use tidegate_control::pressure::Cause;
use tidegate_core::event::{Event, Why};
use tidegate_wire_mqtt::ReasonCode;
use tracing::{debug, info, warn};

use crate::handshake::HandshakeFailure;
use crate::limits::{LOG_LINES_PER_SECOND, RATE_TOLD_MAX};
use crate::pressure::PressureReport;

/// The log of one thread.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    connected: Ration,
    refused: Ration,
    disconnected: Ration,
    broken: Ration,
    session_ended: Ration,
    denied: Ration,
    slowed: Ration,
    recovered: Ration,
    outlawed: Ration,
    drifted: Ration,
    pressure: Ration,
    /// Trouble with accepting, and with those that never became clients.
    accept: Ration,
    handshake: Ration,
}

impl EventLog {
    /// Writes an event down.
    pub(crate) fn tell(&mut self, event: &Event, now: Timestamp) {
        match event {
            // The store's own thread says more of it, once for all shards.
            Event::Store { .. } => {}
            Event::Connected { client_id, session_present, identity, protocol, keep_alive, .. } => {
                let Some(Suppressed(suppressed)) = self.connected.take(now) else { return };
                let (peer, listener, user) = (&*identity.peer, identity.listener, identity.user.as_deref());
                info!(
                    event = "connected",
                    client = %client_id,
                    user,
                    peer,
                    listener,
                    protocol,
                    keep_alive,
                    session_present,
                    suppressed,
                    "connected"
                );
            }
            Event::Refused { client_id, identity, reason } => {
                let Some(Suppressed(suppressed)) = self.refused.take(now) else { return };
                let (peer, listener, user) = (&*identity.peer, identity.listener, identity.user.as_deref());
                let why = reason.name();
                info!(event = "connect_refused", client = %client_id, user, peer, listener, why, suppressed, "refused");
            }
            Event::Disconnected { client_id, why: Why::Protocol { reason, detail }, .. } => {
                let Some(Suppressed(suppressed)) = self.broken.take(now) else { return };
                let (reason, setting) = (reason.name(), setting_of(*reason));
                warn!(
                    event = "protocol_error",
                    client = %client_id,
                    reason,
                    detail,
                    setting,
                    suppressed,
                    "broke the protocol"
                );
            }
            Event::Disconnected { client_id, why, .. } => {
                let Some(Suppressed(suppressed)) = self.disconnected.take(now) else { return };
                let why = &*in_words(why);
                info!(event = "disconnected", client = %client_id, why, suppressed, "disconnected");
            }
            Event::SessionEnded { client_id } => {
                let Some(Suppressed(suppressed)) = self.session_ended.take(now) else { return };
                debug!(event = "session_ended", client = %client_id, suppressed, "session ended");
            }
            Event::Slowed { client_id, interval, rate, .. } => {
                let Some(Suppressed(suppressed)) = self.slowed.take(now) else { return };
                let rate = told(*rate);
                warn!(
                    event = "publisher_slowed",
                    client = %client_id,
                    usual_interval = interval.map(tracing::field::debug),
                    rate,
                    suppressed,
                    "publishes too fast: slowed"
                );
            }
            Event::Outlawed { client_id, identity, time } => {
                let Some(Suppressed(suppressed)) = self.outlawed.take(now) else { return };
                let (peer, user, time) = (&*identity.peer, identity.user.as_deref(), time.as_secs());
                warn!(event = "publisher_banned", client = %client_id, user, peer, seconds = time, suppressed, "banned");
            }
            Event::Drifted { client_id, from, to } => {
                let Some(Suppressed(suppressed)) = self.drifted.take(now) else { return };
                warn!(
                    event = "rhythm_drifted",
                    client = %client_id,
                    usual_interval = ?from,
                    interval = ?to,
                    suppressed,
                    "publishes four times as fast as it used to: set a limit if that is not wanted"
                );
            }
            Event::Recovered { client_id } => {
                let Some(Suppressed(suppressed)) = self.recovered.take(now) else { return };
                info!(event = "publisher_recovered", client = %client_id, suppressed, "no longer slowed");
            }
            Event::Denied { client_id, what, topic } => {
                let Some(Suppressed(suppressed)) = self.denied.take(now) else { return };
                let what = match *what {
                    "publish" => "not allowed to publish to this topic",
                    "subscribe" => "not allowed to subscribe to this topic",
                    "will" => "not allowed to have a will at this topic",
                    other => other,
                };
                warn!(event = "denied", client = %client_id, topic = %topic, suppressed, "{what}");
            }
        }
    }

    /// The level of pressure has changed.
    pub(crate) fn pressure_changed(&mut self, report: &PressureReport, now: Timestamp) {
        let Some(Suppressed(suppressed)) = self.pressure.take(now) else { return };
        let (level, name) = (report.level.number(), report.level.name());
        let cause = report.cause.map(Cause::name);
        let (memory_used, memory_max) = (report.memory_used, report.memory_max);
        warn!(event = "pressure", level, name, cause, memory_used, memory_max, suppressed, "level of pressure changed");
    }

    /// Accepting rests, or somebody was turned away at the door.
    pub(crate) fn accept_trouble(&mut self, listener: &str, why: &str, now: Timestamp) {
        let Some(Suppressed(suppressed)) = self.accept.take(now) else { return };
        warn!(event = "accept_failed", listener, why, suppressed, "cannot accept");
    }

    /// Somebody did not become a client.
    pub(crate) fn handshake_trouble(&mut self, trouble: &HandshakeFailure, now: Timestamp) {
        let Some(Suppressed(suppressed)) = self.handshake.take(now) else { return };
        let HandshakeFailure { peer, listener, client_id, user, why } = trouble;
        let (client, user, why) = (client_id.as_deref(), user.as_deref(), &**why);
        info!(event = "handshake_failed", %peer, listener, client, user, why, suppressed, "handshake failed");
    }
}

/// A rate for people, in messages a second. Of a few that came in one read it is not known better than this.
fn told(rate: f64) -> f64 {
    (rate.min(RATE_TOLD_MAX) * 10.0).round() / 10.0
}

/// The setting to change if this should be accepted.
fn setting_of(reason: ReasonCode) -> Option<&'static str> {
    match reason {
        ReasonCode::PacketTooLarge => Some("limits.packet_bytes_max"),
        ReasonCode::ReceiveMaximumExceeded => Some("limits.receive_max"),
        ReasonCode::TopicAliasInvalid => Some("limits.topic_alias_max"),
        _ => None,
    }
}

/// Why a connection ended, for people.
pub fn in_words(why: &Why) -> Cow<'static, str> {
    match why {
        Why::Goodbye => "said goodbye".into(),
        Why::Lost => "connection lost".into(),
        Why::KeepAlive => "keep-alive timeout".into(),
        Why::TakenOver => "session taken over".into(),
        Why::TooFast { .. } => "published too fast for too long".into(),
        // Closed because 3.1.1 has no other answer to a message that is not taken.
        Why::NotReading { bytes, messages } => {
            format!("does not read: {bytes} bytes and {messages} messages wait for it").into()
        }
        Why::Ended(ReasonCode::NotAuthorized) => "message refused: not authorized".into(),
        Why::Ended(ReasonCode::QuotaExceeded) => "message refused: quota exceeded".into(),
        Why::Ended(reason) => reason.name().to_lowercase().into(),
        Why::UpstreamClosed => "closed by the broker behind".into(),
        Why::UpstreamLost => "the broker behind is gone".into(),
        Why::Protocol { detail, .. } => detail.clone().into(),
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
    fn take(&mut self, now: Timestamp) -> Option<Suppressed> {
        let second = now.as_nanos() / 1_000_000_000;
        if second != self.second {
            *self = Self { second, written: 0, suppressed: self.suppressed };
        }
        if self.written >= LOG_LINES_PER_SECOND {
            self.suppressed += 1;
            return None;
        }
        self.written += 1;
        Some(Suppressed(Some(core::mem::take(&mut self.suppressed)).filter(|count| *count > 0)))
    }
}

/// Lines that were left out, if there were any.
#[derive(Debug, PartialEq, Eq)]
struct Suppressed(Option<u64>);

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn f068_lines_beyond_the_ration_are_counted() {
        let mut ration = Ration::default();
        let now = Timestamp::ZERO;
        for _ in 0..LOG_LINES_PER_SECOND {
            assert_eq!(ration.take(now), Some(Suppressed(None)));
        }
        for _ in 0..7 {
            assert_eq!(ration.take(now), None);
        }
        assert_eq!(ration.take(now + Duration::from_secs(1)), Some(Suppressed(Some(7))));
        assert_eq!(ration.take(now + Duration::from_secs(1)), Some(Suppressed(None)));
    }
    #[test]
    fn reasons_are_words() {
        assert_eq!(in_words(&Why::TakenOver), "session taken over");
        assert_eq!(in_words(&Why::Ended(ReasonCode::ServerShuttingDown)), "server shutting down");
        assert_eq!(setting_of(ReasonCode::PacketTooLarge), Some("limits.packet_bytes_max"));
    }
}
