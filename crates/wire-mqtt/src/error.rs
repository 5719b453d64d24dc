//! What a peer did wrong.
//!
//! A [`Violation`] is a constant of this crate: one rule of the specification, the reason code that it asks for, and
//! the number of the statement. Inside the crate errors travel as `&'static Violation`, one word, so that the path of a
//! good packet carries no weight for them. At the border a violation becomes a [`PeerError`], which adds the packet.
//! Numbers are those of MQTT 5; `(3.1.1)` marks the few rules that only the older version has. A rule without a number
//! is cited by its section.

use core::fmt;

use crate::kind::PacketType;
use crate::reason::ReasonCode;

/// A rule that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What to tell the peer, if its version has words for it.
    pub reason: ReasonCode,
    /// What was wrong, in a few words.
    pub detail: &'static str,
    /// The statement of the specification, `MQTT-3.3.2-2`, or the section.
    pub section: &'static str,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (0x{:02x} {}) [{}]", self.detail, self.reason.code(), self.reason.name(), self.section)
    }
}

impl core::error::Error for Violation {}

/// A packet that the sender should not have sent: answer with the reason if the version can say it, then close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerError {
    /// The reason code for DISCONNECT or CONNACK.
    pub reason: ReasonCode,
    /// The packet in question; `None` if its type is reserved.
    pub packet: Option<PacketType>,
    /// What was wrong, in a few words.
    pub detail: &'static str,
    /// The statement of the specification, `MQTT-3.3.2-2`, or the section.
    pub section: &'static str,
}

impl PeerError {
    #[cold]
    pub(crate) fn new(violation: &'static Violation, packet: Option<PacketType>) -> Self {
        let Violation { reason, detail, section } = *violation;
        Self { reason, packet, detail, section }
    }
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packet = self.packet.map_or("packet", PacketType::name);
        let (code, name) = (self.reason.code(), self.reason.name());
        write!(f, "{packet}: {} (0x{code:02x} {name}) [{}]", self.detail, self.section)
    }
}

impl core::error::Error for PeerError {}

/// Result of reading a part of a packet.
pub(crate) type Parse<T> = Result<T, &'static Violation>;

/// A violation as a promoted constant: `violation!(MalformedPacket, "body on PINGREQ", "3.12")`.
macro_rules! violation {
    ($reason:ident, $detail:literal, $section:literal) => {
        &$crate::error::Violation { reason: $crate::reason::ReasonCode::$reason, detail: $detail, section: $section }
    };
}
pub(crate) use violation;

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn an_error_reads_as_a_sentence() {
        let rule = violation!(TopicNameInvalid, "wildcard in a topic name", "MQTT-3.3.2-2");
        let error = PeerError::new(rule, Some(PacketType::Publish));
        assert_eq!(error.to_string(), "PUBLISH: wildcard in a topic name (0x90 Topic Name invalid) [MQTT-3.3.2-2]");
    }
}
