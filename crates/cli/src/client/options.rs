//! Where the broker is, and what a client says when it connects.

use super::properties::Typed;
use std::net::IpAddr;
use tidegate_program::Trust;
use tidegate_wire_mqtt::{QoS, Version};

/// Where the broker is.
#[derive(Clone, Debug)]
pub(crate) struct BrokerAddress {
    /// Name or address.
    pub(crate) host: String,
    /// Port.
    pub(crate) port: u16,
    /// TLS, if it is to be used.
    pub(crate) tls: Option<Trust>,
    /// Our own end, if it matters.
    pub(crate) from: Option<IpAddr>,
}

/// What to say in CONNECT.
#[derive(Clone, Debug)]
pub(crate) struct ConnectOptions {
    /// The version of the connection.
    pub(crate) version: Version,
    /// Empty: the broker chooses.
    pub(crate) client_id: String,
    /// Forget a session from before.
    pub(crate) clean_start: bool,
    /// Seconds; 0 is never.
    pub(crate) keep_alive: u16,
    /// User name.
    pub(crate) user: Option<String>,
    /// Password.
    pub(crate) password: Option<String>,
    /// What to publish when we die.
    pub(crate) will: Option<WillMessage>,
    /// Properties of all packets.
    pub(crate) properties: Vec<Typed>,
    /// Seconds that the session outlives the connection (MQTT 5).
    pub(crate) session_expiry: Option<u32>,
    /// Print what is sent and received.
    pub(crate) debug: bool,
}

impl ConnectOptions {
    /// A fresh session of nobody in particular.
    pub(crate) fn new(version: Version, client_id: &str) -> Self {
        Self {
            version,
            client_id: client_id.to_owned(),
            clean_start: true,
            keep_alive: 60,
            user: None,
            password: None,
            will: None,
            properties: Vec::new(),
            session_expiry: None,
            debug: false,
        }
    }
}

/// A will.
#[derive(Clone, Debug)]
pub(crate) struct WillMessage {
    pub(crate) topic: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
}
