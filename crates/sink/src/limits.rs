//! Every maximum of a sink.

use std::time::Duration;

/// Sinks of one broker.
pub const SINKS_MAX: usize = 32;
/// Letters of a sink's name.
pub const NAME_BYTES_MAX: usize = 64;
/// Topics of one sink.
pub const TOPICS_MAX: usize = 64;
/// Levels of a topic: the codec takes no more.
pub const TOPIC_LEVELS_MAX: usize = 64;

/// Messages of one batch, at most: the broker has 1024 under way to one receiver.
pub const BATCH_MESSAGES_MAX: usize = 1000;
/// ...and unless something else is said.
pub const BATCH_MESSAGES: usize = 500;
/// Bytes of topics and payloads of one batch, unless something else is said. A message that is larger goes alone.
pub const BATCH_BYTES: usize = 1 << 20;
/// The same, at most.
pub const BATCH_BYTES_MAX: usize = 16 << 20;
/// How long a message waits for others, unless something else is said.
pub const BATCH_WAIT: Duration = Duration::from_millis(100);
/// The first batch after an outage has so many messages.
pub const BATCH_FIRST: usize = 16;

/// Messages that the broker may have under way to a sink.
pub const RECEIVE_MAX: u16 = 1024;
/// Bytes in a sink's hands before it stops reading.
pub const HELD_BYTES_MAX: usize = 32 << 20;
/// Messages of QoS 0 in a sink's hands: more are dropped, and counted.
pub const HELD_UNKEPT_MAX: usize = 4096;
/// Bytes of one packet of the broker.
pub const PACKET_BYTES_MAX: u32 = 32 << 20;
/// Filters in one SUBSCRIBE.
pub const FILTERS_PER_PACKET: usize = 16;

/// How long the broker may take to let the sink in.
pub const ATTACH_TIMEOUT: Duration = Duration::from_secs(15);
/// The same batch is sent so often before a smaller one is tried.
pub const SAME_BATCH_TRIES: u32 = 2;
/// The longest pause that a receiver can ask for: it may lie, and messages wait.
pub const PAUSE_MAX: Duration = Duration::from_secs(300);
/// Messages of a rate that may go at once after a silence: as much as in this time, and one batch at least.
pub const RATE_BURST: Duration = Duration::from_millis(100);
/// Fields of a JSON payload that become fields of a line of InfluxDB.
pub const LINE_FIELDS_MAX: usize = 64;
/// Objects within objects of such a payload.
pub const LINE_DEPTH_MAX: usize = 4;
