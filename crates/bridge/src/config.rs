//! What a bridge is to do. Plain values; where they come from is not known here.

use tidegate_wire_mqtt::Version;

use crate::pace::PaceConfig;
use crate::topics::TopicMap;

/// What waits while the other broker cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpoolKeep {
    /// Every message, until the spool is full.
    #[default]
    All,
    /// Of each topic the newest message only.
    Latest,
}

/// One bridge.
#[derive(Clone, Debug, PartialEq)]
pub struct BridgeConfig {
    /// The operator's name for it.
    pub name: String,
    /// How many addresses there are to try.
    pub addresses: usize,
    /// The client identifier of the session here.
    pub local_id: String,
    /// The client identifier of the session there.
    pub remote_id: String,
    /// User name and password there.
    pub user: Option<(String, Option<String>)>,
    /// The version that is spoken there; here it is always MQTT 5.
    pub version: Version,
    /// Forget the session there at each connection.
    pub is_clean: bool,
    /// Seconds between signs of life.
    pub keep_alive: u16,
    /// Tell the other broker, at `$SYS/broker/connection/ID/state`, whether the bridge stands.
    pub notifies: bool,
    /// Which topics go where.
    pub topics: TopicMap,
    /// What waits.
    pub keep: SpoolKeep,
    /// How fast it drains.
    pub pace: PaceConfig,
}
