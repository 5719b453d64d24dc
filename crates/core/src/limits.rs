//! Every maximum of this crate that is not a setting, with the relations between them.

use core::time::Duration;

/// Messages under way to a bridge of ours, at most: its own settings say how many it wants. A free number is looked for among them.
pub(crate) const BRIDGE_WINDOW_MAX: u16 = 1024;

/// Connections of one shard; the driver has a smaller limit of its own.
pub(crate) const CONNECTIONS_MAX: usize = 4_000_000;
/// Shared subscriptions of one session. Each is told to every other shard whenever the client comes or goes, so this is
/// what a reconnect costs: 100 of them are some 10 KiB for each shard. More are refused with 0x97, "quota exceeded".
pub(crate) const SHARED_SUBSCRIPTIONS_MAX: u32 = 100;
/// Packets handled per call of `handle_input`: the driver bounds the bytes, this bounds the tiny ones.
pub(crate) const PACKETS_PER_INPUT_MAX: usize = 4096;
/// What the timers of one turn may do, counted in timers, subscriptions that end and messages that are delivered: a
/// thousand sessions that expire with all they have do not make one long turn. One timer's work is done as a whole.
pub(crate) const TIMER_WORK_PER_TURN_MAX: u64 = 4096;
/// How long a packet may take to arrive, whatever the number of pieces it comes in...
pub(crate) const PACKET_PATIENCE: Duration = Duration::from_secs(30);
/// ...and how many bytes of it must come in each further second: a bad modem is faster.
pub(crate) const PACKET_BYTES_PER_SECOND_MIN: usize = 2048;
/// Places of the table of sessions that are looked at for one answer to an operator: some 200 µs.
pub(crate) const SLOTS_PER_PAGE: usize = 512;
/// Filters of a client that are named to an operator; the number of all of them is told, too.
pub(crate) const FILTERS_SHOWN_MAX: usize = 100;
/// Topics in a sample of what is published to, bytes kept of each, and the time that one is about.
pub(crate) const SAMPLE_TOPICS_MAX: usize = 512;
pub(crate) const SAMPLED_TOPIC_BYTES_MAX: usize = 512;
pub(crate) const SAMPLE_WINDOW: Duration = Duration::from_secs(10);
/// Retained messages on one page, bytes of payload shown of each, and looks into the order for it.
pub(crate) const RETAINED_SHOWN_MAX: usize = 100;
pub(crate) const RETAINED_PREVIEW_BYTES: usize = 256;
pub(crate) const RETAINED_STEPS_PER_PAGE: usize = 400;
/// Bytes in an outbox that need no room in the memory budget: who takes what it is given does not pay for others.
pub(crate) const OUTBOX_FREE_BYTES: usize = 16 * 1024;
/// Outboxes of receivers that take so much within 20 ms may have so many times `outbox_bytes_max`: those of 52 MiB a second and
/// more, if that is a MiB.
pub(crate) const OUTBOX_OF_THE_FAST: usize = 4;
/// Events kept for a driver that does not drain them.
pub(crate) const EVENTS_MAX: usize = 4096;
/// Topics whose matches are remembered; beyond, all are forgotten at once.
pub(crate) const CACHE_TOPICS_MAX: usize = 65_536;
/// Bytes of those matches, receivers and subscription identifiers included: with a thousand clients on `#`, topics alone
/// would not bound anything.
pub(crate) const CACHE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Counters of changes, by beginnings of filters: half a page of the first-level cache.
pub(crate) const CHANGE_COUNTERS: usize = 4096;
/// Levels that tell beginnings apart. Deeper changes concern everything below.
pub(crate) const CHANGE_LEVELS_MAX: usize = 8;
/// Subscriptions of one session that have an identifier and a wildcard. A message names all identifiers that match, and
/// of filters without a wildcard only one can: so no message has more than one more of them than this, 5 KiB.
pub(crate) const WILDCARD_IDS_MAX: u32 = 1024;
/// Nodes of the tree that a match visits at most for the filters of one shard, whatever they are; see `shapes`. Some 20 ns
/// each. Who asks for another shape beyond that is told 0x97, "quota exceeded".
pub(crate) const SHAPE_NODES_MAX: usize = 32 * 1024;
/// Filters with so many levels, and `+` at the first few of them only, are never refused for their shape. They have some
/// 1500 nodes together.
pub(crate) const ORDINARY_LEVELS: usize = 16;
pub(crate) const ORDINARY_PLUS_LEVELS: usize = 6;
/// Bytes of a topic that is worth remembering.
pub(crate) const CACHE_TOPIC_BYTES_MAX: usize = 512;
/// Steps through the retained messages for one session before others have theirs, at up to a microsecond each...
pub(crate) const BURST_STEPS_MAX: usize = 256;
/// ...and for all sessions in one turn.
pub(crate) const BURST_STEPS_PER_TURN_MAX: usize = 1024;
/// Bytes of a queue on disk that stay in memory while its client is away.
pub(crate) const AWAY_WINDOW_BYTES: usize = 4 * 1024;
/// Messages that those who are away lose at once, when they have more than their part of the memory.
pub(crate) const ABSENT_DROPS_MAX: usize = 1024;
/// Retained messages that are forgotten at once when their lifetime is over.
pub(crate) const RETAINED_SWEEP_MAX: usize = 1024;
/// Bytes of topics whose retained message was deleted a moment ago.
pub(crate) const EMPTIED_BYTES_MAX: usize = 1024 * 1024;
/// Levels of all filters of a session together: six of each of its 10 000. Each may be a node of the tree.
pub(crate) const FILTER_LEVELS_MAX: u32 = 65_536;
/// Shards of one node: one for each core, and machines have fewer. A position has 16 bits where it travels.
pub(crate) const SHARDS_MAX: usize = 4096;
/// Bytes waiting for another shard, messages or changes of interest, at which clients are no longer read.
pub(crate) const BATCH_BYTES_PAUSE: usize = 1024 * 1024;
/// Bytes waiting for another shard at which QoS 0 messages to it are dropped.
pub(crate) const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Publishers and topics for which other shards have said that nobody there has room, or were told; others are taken.
pub(crate) const SATURATED_MAX: usize = 4096;
/// Flows that a session's queue tells apart; more than messages wait by default. Others share one.
pub(crate) const FLOWS_MAX: u32 = 16 * 1024;
/// How often a queue is searched for what waited longer than its class may, at most; nothing is ever sent too late...
pub(crate) const OVERDUE_EVERY: Duration = Duration::from_millis(250);
/// ...and how many messages it loses for that at once.
pub(crate) const OVERDUE_MAX: usize = 1024;
/// How long a client is told to wait, or not read, while the queue of a receiver has no more room for its class.
pub(crate) const CLASS_PAUSE: Duration = Duration::from_secs(1);
/// Publishers without a connection that are remembered.
pub(crate) const PUBLISHERS_IDLE_MAX: usize = 65_536;
/// Publishers that left since what was learned of them was last written down, and are written down the next time; the
/// oldest go first.
pub(crate) const LEFT_MAX: usize = 8192;
/// Sessions that ended and still hold QoS 0 messages, and how long such a message may still have to wait.
pub(crate) const GHOSTS_MAX: usize = 65_536;
pub(crate) const GHOST_AHEAD_MAX: Duration = Duration::from_secs(60);
/// A connection is not left unread for longer, whatever a rule says: the paper's asks for years.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(3600);
/// The longest that QoS 0 of a publisher that is too fast is left unread before it is dropped.
pub(crate) const UNREAD_MAX: Duration = Duration::from_secs(30);
/// Refused for so many D_max, a publisher is disconnected; as in `tidegate_control::rhythm`.
pub(crate) const PATIENCE: u32 = 5;
/// Users and networks whose new names are counted; the others share one count.
pub(crate) const NEWCOMERS_MAX: usize = 65_536;
/// Whoever is sent away is told to stay away for at least this...
pub(crate) const APPOINTMENT_MIN: Duration = Duration::from_secs(1);
/// ...and at most this: CONTROL §10.
pub(crate) const APPOINTMENT_MAX: Duration = Duration::from_secs(120);
/// A stranger costs a connection, a session and a few subscriptions.
pub(crate) const STRANGER_BYTES: usize = 4096;
/// An outbox that is worth cutting a connection for.
pub(crate) const SHED_BYTES_MIN: usize = 64 * 1024;
/// How long a client that may not wait here is left unread, or told to stay away, while there is no memory.
pub(crate) const MEMORY_PAUSE: Duration = Duration::from_secs(1);
/// Disconnected so often for its rate within an hour, a publisher is banned...
pub(crate) const STRIKES_MAX: u32 = 3;
/// ...for this long, twice as long the next time, up to the maximum.
pub(crate) const BAN_MIN: Duration = Duration::from_secs(60);
pub(crate) const BAN_MAX: Duration = Duration::from_secs(3600);
/// Limits of the operator's for single clients and users.
pub(crate) const LIMITS_MAX: usize = 10_000;
/// Publishers without a connection whose rhythm was not learned, remembered apart: they must not push out the others.
pub(crate) const STRANGERS_IDLE_MAX: usize = 8192;
/// Nothing had to wait for this long: the publisher has recovered. At most one change of mind in this time.
pub(crate) const CALM: Duration = Duration::from_secs(10);

/// Bytes of answers that a connection is owed, at which it is not read on: some 16 000 PUBACKs.
pub(crate) const OWED_BYTES_MAX: usize = 64 * 1024;
/// Pages of queues that are read from disk for one shard at the same time.
pub(crate) const FETCHES_MAX: usize = 16;
/// Bytes of one shard that wait for the disk, at which no more are taken from publishers...
pub(crate) const UNSYNCED_BYTES_MAX: usize = 8 * 1024 * 1024;
/// ...and the same while the disk stalls, that is, has been with one thing for so long...
pub(crate) const UNSYNCED_BYTES_STALLED: usize = UNSYNCED_BYTES_MAX / 16;
/// (longer than any disk takes that is not in trouble)
pub(crate) const STORE_STALL: Duration = Duration::from_secs(1);
/// ...and how long those are not read then.
pub(crate) const UNSYNCED_PAUSE: Duration = Duration::from_millis(20);
/// The same while the disk fails; it is tried again every two seconds at the latest.
pub(crate) const STORE_PAUSE: Duration = Duration::from_secs(1);

/// Bytes of messages that maps want to see and that nobody has fetched yet: several turns of reading.
pub(crate) const TAPPED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Messages that are written down for a recording and that nobody has fetched yet; 40 bytes each.
pub(crate) const RECORDED_MAX: usize = 65_536;
/// A recording ends if nobody has fetched anything for so long.
pub(crate) const RECORDING_LEASE: Duration = Duration::from_secs(5);

/// Logs of what clients do, followed at the same time: two operators with a page and a terminal each.
pub(crate) const ACTIVITY_LOGS_MAX: usize = 4;
/// Lines of one that nobody has fetched yet; some 200 bytes each, and a topic of so many bytes at most.
pub(crate) const ACTIVITIES_MAX: usize = 4096;
pub(crate) const ACTIVITY_TOPIC_BYTES: usize = 256;
/// A log ends if nobody has fetched anything for so long.
pub(crate) const ACTIVITY_LEASE: Duration = Duration::from_secs(5);

const _: () = assert!(CHANGE_COUNTERS <= 1 << 16, "the number of a counter has 16 bits");
const _: () = assert!(BATCH_BYTES_PAUSE < BATCH_BYTES_MAX, "clients are paused before anything is dropped");
const _: () = assert!(SHARDS_MAX <= 1 << 16, "an address has 16 bits for a shard");
