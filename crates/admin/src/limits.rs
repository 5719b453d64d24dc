//! Every maximum of the admin API, with the reason for the number.

use std::time::Duration;

/// Connections at the same time: a few dashboards with six each, scrapers and command lines. For more, those make room
/// that have been silent the longest (`seats`).
pub(crate) const CONNECTIONS_MAX: usize = 256;

/// Of those: requests of users, which make room for nobody. The rest is enough for health checks, which take a
/// millisecond.
pub(crate) const KNOWN_MAX: usize = 96;

/// Connections of one address that have sent no request. Beyond, its own make room. Enough that a client on a busy machine,
/// or behind a slow line, has some tens of milliseconds between connecting and asking while thousands a second connect.
pub(crate) const SILENT_PER_ADDRESS_MAX: usize = 128;

/// Descriptors that are kept for this door: a health check, an operator, and a file that is read for the answer.
pub(crate) const RESERVE: usize = 8;

/// Silence after which another crowd is worth another line in the log.
pub(crate) const CROWDED_FOR: Duration = Duration::from_secs(60);

/// How long accepting rests when even the reserve is gone.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Threads for what waits: reloads, certificates and backups for files, the demonstration for its threads.
pub(crate) const BLOCKING_MAX: usize = 2;

/// The thread's stack: what a thread gets if nobody asks for more.
pub(crate) const STACK_BYTES: usize = 2 * 1024 * 1024;

/// Time for the head of a request; also how long a connection may stay open between requests. A head is one packet of
/// somebody who wants something.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for a request to be answered.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// A connection is closed after this time, whatever it is doing: who reads a kilobyte a minute does not keep its place.
pub(crate) const CONNECTION_TIMEOUT: Duration = Duration::from_secs(120);

/// Bytes of a request's head and, at the same time, of what is buffered of a connection. (hyper's least.)
pub(crate) const BUFFER_BYTES: usize = 8 * 1024;

/// Bytes of a request's body: a limit or a ban.
pub(crate) const BODY_BYTES_MAX: usize = 16 * 1024;

/// Rows in one answer.
pub(crate) const ROWS_MAX: usize = 1000;

/// Rows in one answer when nothing is said.
pub(crate) const ROWS_USUAL: usize = 100;

/// Walks over all clients at the same time: two of operators and the one of `watch`. A walk asks shards for some 200 µs in
/// each of their turns.
pub(crate) const WALKS_MAX: usize = 3;

/// Time for a shard to answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Password checks of operators at the same time: clients use the same threads.
pub(crate) const CHECKS_MAX: usize = 2;

/// Right passwords that are remembered, and for how long: a dashboard asks every second, and a hash costs a tenth of one.
/// By the same users the same password stays right (a reload forgets all of them); a day is what an operator who comes
/// back is known for while somebody else guesses.
pub(crate) const REMEMBERED_MAX: usize = 64;
pub(crate) const REMEMBERED_FOR: Duration = Duration::from_secs(86_400);

/// Pages that listen to `/api/v1/events`. Each has a socket and four messages of a few kilobytes at most.
pub(crate) const LISTENERS_MAX: usize = 128;

/// Messages that wait for one of them; what it does not take in time it misses.
pub(crate) const FEED_MESSAGES_MAX: usize = 4;

/// How long one is served; browsers come back by themselves. Less than a connection may last, so that it ends in order.
pub(crate) const FEED_TIME: Duration = Duration::from_secs(100);

/// Time between two looks at the counters, and least time between two walks for the top lists.
pub(crate) const TICK: Duration = Duration::from_secs(1);
pub(crate) const TOP_TICKS: u32 = 2;
/// What was found so lately is told to whoever asks for the state of the broker; else there is another look first.
pub(crate) const FRESH_FOR: Duration = Duration::from_secs(2);
/// The same while nothing is wrong and nobody listens.
pub(crate) const CALM_TICKS: u32 = 10;

/// A walk for the top lists takes at most this part of the time: whoever has a million clients gets lists less often.
pub(crate) const TOP_SHARE: u32 = 50;
/// But not less often than this: the time of a walk is that of a clock, so on a starved machine one of four seconds would have
/// silenced the first sentence for more than three minutes.
pub(crate) const LOOK_REST_MAX: Duration = Duration::from_secs(10);

/// Rows of a top list.
pub(crate) const TOP_ROWS: usize = 10;

/// An hour in points of ten seconds, and its last five minutes in points of one.
pub(crate) const HISTORY_SECONDS: usize = 300;
pub(crate) const HISTORY_TENS: usize = 360;

/// Operators that are logged in at the same time; the one that was idle the longest makes room.
pub(crate) const SESSIONS_MAX: usize = 64;
pub(crate) const SESSION_LIFE: Duration = Duration::from_secs(12 * 3600);
pub(crate) const SESSION_IDLE: Duration = Duration::from_secs(3600);

/// Changes through the admin API that are remembered.
pub(crate) const AUDIT_MAX: usize = 200;

/// Topics in the tree of a sample.
pub(crate) const TOPICS_MAX: usize = 1000;

/// Bytes of a topic filter, as MQTT has it.
pub(crate) const FILTER_BYTES_MAX: usize = 65_535;

/// Time for a query from the dashboard.
pub(crate) const QUERY_TIME: Duration = Duration::from_secs(10);

/// How long the certificates' files are not looked at again for metrics.
pub(crate) const CERTIFICATES_FOR: Duration = Duration::from_secs(60);

/// Publishers, and topics, that a recording tells apart; the rest is one. 16 bytes each while it lasts.
pub(crate) const TRACED_MAX: usize = 1_000_000;

/// Nobody has fetched anything for so long: another recording may begin. As long as shards go on writing.
pub(crate) const RECORDING_LEASE: Duration = Duration::from_secs(5);

/// Logs of clients and topics that are followed at the same time, as many as shards allow.
pub(crate) const LOGS_MAX: usize = 4;
/// Nobody has fetched anything for so long: a log has ended. As long as shards go on writing.
pub(crate) const LOG_LEASE: Duration = Duration::from_secs(5);

/// Time to connect to a collector of metrics or a receiver of alarms, to write to it, and to hear from it: for all of it together.
pub(crate) const POST_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of its answer that are read: the first line is enough.
pub(crate) const ANSWER_BYTES_MAX: usize = 4096;

/// Changes of alarms that wait for their receiver: more than that are lost, and the log says so.
pub(crate) const WEBHOOK_WAITING_MAX: usize = 256;
/// How often one is tried, and the time after the first try; twice as long after each.
pub(crate) const WEBHOOK_TRIES: u32 = 5;
pub(crate) const WEBHOOK_PAUSE: Duration = Duration::from_secs(1);

/// Pages that speak MQTT at the same time: somebody tries something.
pub(crate) const PAGE_MQTT_MAX: usize = 8;
/// How long one may: who forgot it does not keep its place.
pub(crate) const PAGE_MQTT_TIME: Duration = Duration::from_secs(30 * 60);
/// Bytes of one of its messages, and of a piece of what it receives.
pub(crate) const PAGE_MQTT_BYTES: usize = 64 * 1024;

/// Clients of which an hour is kept, in points of ten seconds: twenty of the top lists at a time, and whom operators look at.
/// 32 bytes a point, so 740 KB at most.
pub(crate) const TRACKED_CLIENTS_MAX: usize = 64;
/// Seconds between two points of one.
pub(crate) const TRACK_STEP_S: u64 = 10;
/// Without a look for so many seconds nothing is said of what was in between; the page has the same number.
pub(crate) const TRACK_GAP_S: u64 = 60;
