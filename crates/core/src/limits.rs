//! Every maximum of this crate that is not a setting, with the relations between them.

/// Connections of one shard; the driver has a smaller limit of its own.
pub(crate) const CONNECTIONS_MAX: usize = 4_000_000;
/// Packets handled per call of `handle_input`: the driver bounds the bytes, this bounds the tiny ones.
pub(crate) const PACKETS_PER_INPUT_MAX: usize = 4096;
/// Timers handled per turn, so that a thousand expiring sessions do not make one long turn.
pub(crate) const TIMERS_PER_TURN_MAX: usize = 1024;
/// Events kept for a driver that does not drain them.
pub(crate) const EVENTS_MAX: usize = 4096;
/// Topics whose matches are remembered; beyond, all are forgotten at once.
pub(crate) const CACHE_TOPICS_MAX: usize = 65_536;
/// Bytes waiting for another shard at which publishers are no longer read.
pub(crate) const BATCH_BYTES_PAUSE: usize = 1024 * 1024;
/// Bytes waiting for another shard at which QoS 0 messages to it are dropped.
pub(crate) const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;
/// QoS 2 messages received and not released that a session keeps for a client that announced no window.
pub(crate) const INBOUND_MAX: usize = 65_535;

const _: () = assert!(BATCH_BYTES_PAUSE < BATCH_BYTES_MAX, "publishers are paused before anything is dropped");
