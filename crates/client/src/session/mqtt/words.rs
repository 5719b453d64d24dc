//! What an MQTT session is told and what it tells.

use crate::prelude::*;
use core::time::Duration;
use tidegate_control::hints::Hints;
use tidegate_wire_mqtt::{PacketId, QoS, ReasonCode};

/// What happens to a message that finds the backlog full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BacklogPolicy {
    /// Whoever publishes waits for room.
    #[default]
    Wait,
    /// It is not taken, and that is said.
    Reject,
    /// The oldest message that waits is dropped, and its publisher is told.
    DropOldest,
    /// It takes the place of one that waits with the same topic; without one it is not taken.
    Latest,
}

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct MqttConfig {
    /// The client identifier; empty if the broker shall choose.
    pub client_id: String,
    /// User name and password.
    pub user: Option<(String, String)>,
    /// Seconds between signs of life; at least 1.
    pub keep_alive: u16,
    /// Seconds that the session outlives a connection (MQTT 5).
    pub session_expiry: u32,
    /// Messages that may wait.
    pub backlog_messages: usize,
    /// Bytes of topics and payloads that may wait.
    pub backlog_bytes: usize,
    /// What happens to a message that finds the backlog full.
    pub on_full: BacklogPolicy,
    /// Certificates to trust (PEM), instead of those of this machine: for `mqtts` and `wss`.
    pub ca: Option<Vec<u8>>,
}

impl Default for MqttConfig {
    fn default() -> Self {
        Self {
            client_id: String::new(),
            user: None,
            keep_alive: 30,
            session_expiry: 300,
            backlog_messages: 10_000,
            backlog_bytes: 16 << 20,
            on_full: BacklogPolicy::default(),
            ca: None,
        }
    }
}

/// A message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MqttMessage {
    /// The topic.
    pub topic: String,
    /// The payload.
    pub payload: Vec<u8>,
    /// Quality of service.
    pub qos: QoS,
    /// To be kept for later subscribers; or it was.
    pub retain: bool,
}

impl MqttMessage {
    pub(super) fn bytes(&self) -> usize {
        self.topic.len() + self.payload.len()
    }
}

/// The owner's name for a message or a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(pub u64);

/// What happened to a connection or a message.
#[derive(Clone, Debug, PartialEq)]
pub enum MqttEvent {
    /// The broker is there; whether it has kept the session.
    Connected {
        /// Whether the broker has kept the session.
        session_present: bool,
    },
    /// The broker does not want us.
    Refused {
        /// The reason code of the CONNACK.
        reason: ReasonCode,
        /// What it said about coming back.
        hints: Hints,
    },
    /// The broker ends the connection; nothing of it is to be trusted.
    Ended {
        /// The reason code of the DISCONNECT.
        reason: ReasonCode,
        /// What it said about coming back.
        hints: Hints,
    },
    /// A message is where it should be.
    Published {
        /// The message's token.
        token: Token,
        /// From the first sending to the answer; nothing at QoS 0.
        after: Duration,
    },
    /// The broker did not take a message.
    Rejected {
        /// The message's token.
        token: Token,
        /// The reason code of the PUBACK or PUBREC.
        reason: ReasonCode,
        /// The broker's reason string.
        detail: Option<String>,
        /// What it said about coming back.
        hints: Hints,
    },
    /// A message had to make room.
    Dropped {
        /// The message's token.
        token: Token,
    },
    /// A message is larger than the broker takes.
    TooLarge {
        /// The message's token.
        token: Token,
    },
    /// A subscription was answered.
    Subscribed {
        /// The subscription's token.
        token: Token,
        /// The reason code of the SUBACK: what was granted, or why not.
        reason: ReasonCode,
    },
    /// A message came. If it has a number, [`hand_over`](super::MqttSession::hand_over) acknowledges it.
    Message(MqttMessage, Option<PacketId>),
    /// What the broker sends is no MQTT.
    Nonsense(String),
}

/// There is no room for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BacklogFull;
