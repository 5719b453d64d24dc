//! What the operator can set. Plain values; where they come from is not known here.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use tidegate_control::rhythm::{RhythmConfig, RhythmRule};
use tidegate_control::{ConfigError, Timestamp};
use tidegate_wire_mqtt::QoS;

use crate::classes::Priority;

/// So many per time, and so many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    interval: Duration,
    burst: u32,
}

impl Rate {
    /// `count` per `per`, of which `burst` may come at once; each at least one.
    pub fn new(count: u32, per: Duration, burst: u32) -> Self {
        Self { interval: (per / count.max(1)).max(Duration::from_nanos(1)), burst: burst.max(1) }
    }

    /// The time between two, if they come evenly.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// How many may come at once.
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// Whether one more is within the rate, and counts it if so. `due` is the state: the origin of time at first.
    pub fn conforms(&self, due: &mut Timestamp, now: Timestamp) -> bool {
        // Nobody owes more than a whole burst, whatever the clock did.
        let tolerance = self.interval * (self.burst - 1);
        let start = (*due).max(now).min(now + tolerance + self.interval);
        if start.since(now) > tolerance {
            *due = start;
            return false;
        }
        *due = start + self.interval;
        true
    }
}

/// Settings of the broker that sessions and routing look at.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Bytes of one packet from a client.
    pub packet_bytes_max: u32,
    /// Unacknowledged QoS 1 and 2 messages that a client may have under way to the broker (Receive Maximum).
    pub receive_max: u16,
    /// Unacknowledged QoS 1 and 2 messages that the broker has under way to a client.
    pub inflight_max: u16,
    /// Messages that wait for a client beyond those under way, connected or not.
    pub queue_messages_max: usize,
    /// Bytes of those messages.
    pub queue_bytes_max: usize,
    /// Bytes of those messages that are in memory, if the others are on disk; and of those that are read back at once.
    pub queue_memory_max: usize,
    /// Bytes that wait in a connection's outbox before QoS 0 messages to it are dropped.
    pub outbox_bytes_max: usize,
    /// Whether QoS 0 messages are kept for clients that are away.
    pub queue_qos0: bool,
    /// Topic aliases that a client may use.
    pub topic_alias_max: u16,
    /// Topic aliases that the broker uses towards a client that offers them.
    pub topic_alias_out_max: u16,
    /// Longest keep-alive that a client may ask for; a longer one, or none, is replaced by this (MQTT 5) or kept (3.1.1).
    pub keep_alive_max: Option<u16>,
    /// Longest time that a session is kept without a connection.
    pub session_expiry_max: Duration,
    /// Expiry of sessions of clients before MQTT 5 that did not ask for a clean session.
    pub session_expiry_v3: Duration,
    /// Best quality of service that is granted.
    pub qos_max: QoS,
    /// Whether messages are retained.
    pub retain_available: bool,
    /// Retained messages kept at most.
    pub retained_messages_max: usize,
    /// Bytes of retained messages kept at most.
    pub retained_bytes_max: usize,
    /// Subscriptions of one session.
    pub subscriptions_max: usize,
    /// Sessions, connected or not, of one shard.
    pub sessions_max: usize,
    /// Bytes of a client identifier.
    pub client_id_bytes_max: usize,
    /// Whether a user's session keeps its identifier from other users also while it is not connected.
    pub bind_sessions: bool,
    pub topic_levels_max: usize,
    /// How publishers that break their rhythm are slowed.
    pub back_off: BackOff,
    /// How many new clients are let in.
    pub arrivals: ArrivalRules,
    /// Which messages come first when not all can.
    pub priority: Priority,
    /// How long a client may take nothing of what waits for it, before the connection is given up.
    pub write_timeout: Duration,
    /// What may wait for the broker's own bridges and sinks; a few.
    pub spools: Vec<Spool>,
}

/// What may wait for one bridge or sink, instead of what may wait for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spool {
    /// The client identifier of its session.
    pub client_id: Box<str>,
    /// Bytes of messages.
    pub bytes_max: usize,
}

impl Settings {
    /// Bytes that may wait for this client's bridge; none if that is no bridge of ours.
    pub(crate) fn spool_of(&self, client_id: &str) -> Option<usize> {
        self.spools.iter().find(|spool| *spool.client_id == *client_id).map(|spool| spool.bytes_max)
    }
}

/// How many new clients are let in. Those that are known (a session, or a rhythm that was learned) are not counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArrivalRules {
    /// From one user, or from one network (/24, /64) without users, at any time.
    pub new_clients: Rate,
    /// From everybody, while the broker is strained.
    pub paced: Rate,
}

impl Default for ArrivalRules {
    fn default() -> Self {
        // A fleet behind one NAT may come at once; who goes on bringing new names is no fleet.
        let new_clients = Rate::new(200, Duration::from_secs(1), 20_000);
        // A CONNECT costs some 35 µs: this is a fifteenth of a core. Fewer would turn a benign rush away.
        Self { new_clients, paced: Rate::new(2000, Duration::from_secs(1), 2000) }
    }
}

/// How publishers that break their rhythm are slowed (CONTROL §9).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackOff {
    /// By which rule, and whether always or under pressure only; none: never.
    pub rhythm: Option<RhythmConfig>,
    /// Messages of one session that may wait.
    pub hold_messages_max: usize,
    pub hold_bytes_max: usize,
    /// After how long a typical client sends a message again that was not acknowledged. QoS 1 and 2 are held for three
    /// quarters of it at most: a retransmission would double the load.
    pub client_retry: Duration,
    /// How long a publisher is remembered after its last connection.
    pub memory: Duration,
    /// What every publisher is limited to, whatever its rhythm; none: not at all.
    pub rate: Option<Rate>,
}

impl Default for BackOff {
    fn default() -> Self {
        Self {
            // A publisher that was always fast is no offender: how fast one may be at most is for the operator to say.
            rhythm: Some(RhythmConfig { interval_min: Duration::from_micros(1), ..RhythmConfig::default() }),
            hold_messages_max: 32,
            hold_bytes_max: 64 * 1024,
            client_retry: Duration::from_secs(10),
            memory: Duration::from_secs(3600),
            rate: None,
        }
    }
}

impl BackOff {
    /// Whether the rule's numbers make sense. A shard takes the default ones if they do not.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.rhythm.map_or(Ok(()), |config| config.build().map(|_| ()))
    }

    /// The longest time that a message of QoS 1 or 2 is held. The paper's rules hold for as long as they say, with the
    /// maximum of the rhythm's own settings: a client that repeats itself meanwhile is the paper's affair.
    pub(crate) fn hold_max(&self) -> Duration {
        match self.rhythm.map(|rhythm| rhythm.rule) {
            Some(RhythmRule::Paper | RhythmRule::PaperTable) => Duration::MAX,
            Some(RhythmRule::Practical) | None => self.client_retry * 3 / 4,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            packet_bytes_max: 1024 * 1024,
            // MQTT.js ignores the Receive Maximum and publishes a burst at once. Only QoS 2 is ever under way to the broker,
            // at two bytes each, so there is room for such a burst.
            receive_max: 1024,
            inflight_max: 64,
            queue_messages_max: 10_000,
            queue_bytes_max: 16 * 1024 * 1024,
            queue_memory_max: 64 * 1024,
            outbox_bytes_max: 1024 * 1024,
            queue_qos0: false,
            topic_alias_max: 64,
            topic_alias_out_max: 16,
            keep_alive_max: None,
            session_expiry_max: Duration::from_secs(7 * 86_400),
            session_expiry_v3: Duration::from_secs(7 * 86_400),
            qos_max: QoS::ExactlyOnce,
            retain_available: true,
            retained_messages_max: 1_000_000,
            retained_bytes_max: 256 * 1024 * 1024,
            subscriptions_max: 10_000,
            sessions_max: 1_000_000,
            client_id_bytes_max: 256,
            bind_sessions: true,
            topic_levels_max: 64,
            back_off: BackOff::default(),
            arrivals: ArrivalRules::default(),
            priority: Priority::default(),
            write_timeout: Duration::from_secs(60),
            spools: Vec::new(),
        }
    }
}
