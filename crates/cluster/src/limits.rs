//! Every bound of the protocol, with the reason for the number.

use std::time::Duration;

/// Bytes of a file in one message: half of what an engine takes that nobody has configured (1 MiB), with room for what
/// is said beside them.
pub const PIECE_BYTES_MAX: usize = 512 * 1024;
/// Messages under way at once. More than one would not be fenced: with operations n and n + 1 under way, an opening that takes
/// the place of n is the very sequence that n + 1 expects to be the last. (The simulation finds it within 20 seeds.)
pub const UNDER_WAY_MAX: usize = 1;
/// Bytes that may wait for the engine: four groups of the store's writer, at 8 MiB. Beyond, a disk refuses, as a full one does.
pub const QUEUE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// And operations: what a store that fails over and over leaves behind is small.
pub const QUEUE_OPS_MAX: usize = 4096;
/// What may wait before whoever is in no hurry (a compaction) has to: a commit stands behind it in the queue.
pub const QUEUE_BYTES_CALM: usize = 2 * 1024 * 1024;
/// Files of all folders; a table of them has to fit into a message. At 64 MiB a segment this is half a terabyte.
pub const FILES_MAX: usize = 8192;
/// Bytes of a file's name with its folder; the longest has 34.
pub const FILE_NAME_BYTES_MAX: usize = 40;
/// Changes of names between two tables: so many small messages are read again by whoever starts.
pub const NAMES_BETWEEN_TABLES: u64 = 64;
/// Bytes of a node's or cluster's name: it is part of subjects and of names of streams.
pub const NAME_BYTES_MAX: usize = 32;
/// Nodes of a cluster that are looked at. Beyond 7 the engine's own quorum is the wrong tool.
pub const NODES_MAX: usize = 16;
/// Hand-overs of a lineage that are remembered for people who ask: a bad night is seen, and the list stays one small message.
pub const HANDOVERS_MAX: usize = 8;
/// Bytes of an address that a node gives to others.
pub const ADDRESS_BYTES_MAX: usize = 256;
/// How often a node says that it is there.
pub const RENEW_INTERVAL: Duration = Duration::from_secs(2);
/// A node that has not said so for as long is dead. The engine's election takes 4 to 9 s and stalls all alike: what is not
/// read does not count as silence.
pub const LEASE: Duration = Duration::from_secs(6);
/// An owner whose lease was not confirmed for as long says nothing to anybody until it is: others may have the lineage a second later.
pub const HOLD: Duration = Duration::from_secs(5);
/// Readings of a silent lease within [`LEASE`] before it counts as over.
pub const READINGS_MIN: u32 = 3;
/// How often others are looked at.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// First and longest wait before an engine that did not answer is asked again.
pub const RETRY_MIN: Duration = Duration::from_millis(100);
/// See [`RETRY_MIN`].
pub const RETRY_MAX: Duration = Duration::from_secs(2);
