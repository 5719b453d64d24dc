//! Every maximum of a bridge.

use std::time::Duration;

/// Bridges of one broker: each has a task, two sockets and a session.
pub const BRIDGES_MAX: usize = 64;
/// Topics of one bridge: every message is held against them one after the other.
pub const TOPICS_MAX: usize = 256;
/// Addresses of one bridge.
pub const ADDRESSES_MAX: usize = 16;
/// Bytes of a bridge's name: it is part of client identifiers and of topics.
pub const NAME_BYTES_MAX: usize = 64;

/// Messages under way to the other broker, unless the configuration says less. With acknowledgements that take 5 ms (a disk
/// that syncs) this is 50 000 messages a second; what is under way cannot be overtaken by what is more urgent.
pub const WINDOW_DEFAULT: u16 = 256;
/// The most that the configuration may say: the broker looks for a free number among as many.
pub const WINDOW_MAX: u16 = 1024;
/// Messages of the other broker that may be under way to us (Receive Maximum).
pub const RECEIVE_MAX: u16 = 256;
/// Messages of a broker of MQTT 3.1.1 that may be under way here, which cannot say how many it takes itself: mosquitto's default.
pub const KEPT_BEFORE_V5: u16 = 20;
/// Bytes of messages that came and wait to be sent on; beyond, the connection they came from is not read.
pub const HELD_BYTES_MAX: usize = 16 << 20;
/// The same for messages: those of QoS 0 have no window.
pub const HELD_MAX: usize = 4096;
/// Bytes that a message costs beside its own: two strings, its place and its flight.
pub const MESSAGE_OVERHEAD: usize = 256;
/// Bytes of messages of the other broker beyond which none is taken: as many as Receive Maximum allows, of 1 MiB each. What is awaited
/// is read on, and the messages before it are left without an answer: they are sent again on the next connection.
pub const BRIM_BYTES_MAX: usize = 256 << 20;
/// The same for messages: as many as there are numbers.
pub const BRIM_MAX: usize = 65_536;
/// Bytes that wait for a socket before the other broker is not read: more than the largest packet behind [`OUTPUT_BYTES_MAX`], so that
/// only answers to somebody who asks and does not read come so far.
pub const UNWRITTEN_BYTES_MAX: usize = 48 << 20;
/// Bytes that wait for a socket before no new message is begun.
pub const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// Bytes of one packet of either broker.
pub const PACKET_BYTES_MAX: u32 = 32 << 20;
/// Levels of a topic of either broker: the codec takes no more.
pub const TOPIC_LEVELS_MAX: usize = 64;

/// How many bridges in a row a message may come through: more than any chain of sites that we know of, and few enough that a loop
/// costs eight copies of a message and not the network.
pub const HOPS_MAX: u8 = 8;

/// How long opening a connection, with TLS, may take.
pub const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a broker may take to answer a greeting or a subscription.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// Seconds between signs of life, unless the configuration says otherwise.
pub const KEEP_ALIVE_DEFAULT: u16 = 60;

/// Messages after which a connection was a good one, however short it was: a broker that takes so many and ends was restarted, and is
/// worth being looked for at once.
pub const GOOD_AFTER: u64 = 16;

/// A drain begins with so many under way, and again after each outage.
pub const WINDOW_FIRST: f64 = 4.0;
/// First pause after a refusal that does not say how long; it doubles with each refusal in a row.
pub const REFUSAL_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause after a refusal, also if the other broker says more: it may lie, and messages wait.
pub const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Messages of a rate that may go at once after a silence: a tenth of a second's worth, and one at least.
pub const RATE_BURST: Duration = Duration::from_millis(100);
