//! Every maximum of the service and its doors.

use std::time::Duration;

/// Threads that read. Each evaluates one query at a time. The last free one is kept for what is known to be short.
pub const READERS: usize = 4;
/// Steps up to which a commit evaluates a standing query itself: about half a millisecond.
pub const INLINE_STEPS_MAX: u64 = 2_000;
/// Quads that a change names, or clears, before it is made in pieces: about two milliseconds for everybody else.
pub const LARGE_QUADS: usize = 512;
/// Steps of one piece: as long.
pub const PIECE_STEPS: usize = 512;
/// Of the writer's time, parts that requests have beside one part for pieces, while any wait.
pub const REQUESTS_PER_PIECE: u32 = 3;
/// How many times as long as its request allows a large change may take once it is begun: while others wait, one part of
/// the writer's time in so many is its own. At most [`BEGUN_GRACE`] longer, because its door waits no longer.
pub const LARGE_TIME_FACTOR: u32 = REQUESTS_PER_PIECE + 1;
/// Large changes and long updates that the writer may have beside its commits; others wait in the order of service.
pub const APART_MAX: usize = 8;
/// The same with those that were found to be long only when they were tried.
pub const APART_WAITING_MAX: usize = 256;
/// Of these, updates of one household that wait to be worked out: others find a place beside them, and they take turns.
pub const DRAFTS_OF_HOUSEHOLD_MAX: usize = APART_WAITING_MAX / 4;
/// Quads that an update may read within the commit: some milliseconds. One that reads more is worked out beside.
pub const UPDATE_INLINE_STEPS: u64 = 10_000;
/// For how long an update may read within the commit; it is looked at every [`WATCH_INTERVAL`].
pub const UPDATE_INLINE_TIME: Duration = Duration::from_millis(10);
/// How often an update is worked out beside the commits before the writer does it, whatever it takes: so nobody starves
/// whose data others change all the time.
pub const DRAFTS_MAX: u32 = 3;
/// Subscriptions that wait for a standing query to be evaluated.
pub const STANDING_WAITING_MAX: usize = 1024;
/// Of these, those that may be busy with what takes long.
pub const LONG_READERS: usize = 2;
/// Threads of the space that may be busy for long at once: [`LONG_READERS`], the writer, and those for standing queries and
/// for long updates.
pub const BUSY_THREADS: usize = LONG_READERS + 3;
/// How often it is asked how hard the process is pressed: as often as the broker measures that.
pub const PRESSURE_INTERVAL: Duration = Duration::from_millis(100);
/// Processors that readers are taken to have together, when it is estimated how long others wait.
pub const PROCESSORS_READING: u32 = 2;
/// Longest time of a query or update, unless a request asks for less.
pub const TIME_MAX: Duration = Duration::from_secs(10);
/// Least time that a request may ask for.
pub const TIME_MIN: Duration = Duration::from_millis(1);
/// How often running evaluations are compared with their time and with who still waits for them.
pub const WATCH_INTERVAL: Duration = Duration::from_millis(25);
/// How often a disk that has something to keep is asked how it is; it says by itself when it is done.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(25);
/// Requests that are kept together, with one sync.
pub const GROUP_MAX: usize = 1024;
/// Time after which no more are taken into the group.
pub const GROUP_TIME: Duration = Duration::from_millis(5);
/// When to come back if the disk fails: as often as it is tried again.
pub const DISK_RETRY: Duration = Duration::from_secs(2);
/// Requests that may join an evaluation under way: as many as wait together at most when every connection asks the same.
pub const JOINED_RUNNING_MAX: usize = READINGS_MAX;
/// Bytes of one answer, as it is sent.
pub const ANSWER_BYTES_MAX: usize = 32 << 20;
/// Bytes of all answers that are being made, sent or remembered.
pub const ANSWERS_BYTES_MAX: usize = 256 << 20;
/// Bytes for which there has to be room in the budget of the process before another answer is begun: most are shorter.
pub const ANSWER_ROOM_BYTES: usize = 64 << 10;
/// Answers beyond [`ANSWER_BYTES_MAX`] that are sent at once, each by a thread of its own: as many as there are readers for
/// what takes long.
pub const STREAMERS: usize = 2;
/// The most that an operator can choose.
pub const STREAMERS_MAX: usize = 16;
/// Such answers that wait for a place; each holds a snapshot of the data, for as long as its request waits.
pub const STREAMS_WAITING_MAX: usize = 64;
/// Bytes of one piece of such an answer, beside its last value: few system calls, and soon on its way.
pub const STREAM_PIECE_BYTES: usize = 64 << 10;
/// Pieces on their way to one reader: 512 KiB, so that a fast one does not wait for each.
pub const STREAM_PIECES_MAX: usize = 8;
/// Bytes of the terms of `CONSTRUCT` and `DESCRIBE` answers that are sent at once, together: the evaluator keeps what it has
/// given out, so as not to give it twice, and these bytes stay in memory until the answer ends. Rows and graphs of the store
/// are not kept, and have no such end.
pub const STREAM_GRAPH_BYTES_MAX: usize = 512 << 20;
/// Bytes of one answer to a query that is sent while it is made. A product of two patterns over a thousand triples each has a
/// hundred megabytes: what is ten times as long was hardly meant, and nobody should have to find out by a full disk.
pub const STREAM_BYTES_MAX: u64 = 1 << 30;
/// How long a reader may take nothing before its answer is ended.
pub const STREAM_STALL: Duration = Duration::from_secs(10);
/// How long such an answer may take in all: its connection does not live longer.
pub const STREAM_TIME_MAX: Duration = HTTP_CONNECTION_TIME;
/// Answers that are remembered, and their bytes.
pub const CACHE_ENTRIES_MAX: usize = 4096;
/// Bytes of the answers that are remembered.
pub const CACHE_BYTES_MAX: usize = 32 << 20;
/// Bytes of a result that is also remembered as rows, to be written for those who call its columns by other names: writing
/// it takes about as long as reading a text that is short.
pub const ROWS_KEPT_BYTES_MAX: usize = 64 << 10;
/// Events on their way to one connection; more wait in the graph's queue, where they merge.
pub const OUTLET_EVENTS: usize = 16;
/// Bytes of notifications that are written together, beside the last one: they share the time of one.
pub const BATCH_BYTES: usize = 64 << 10;
/// Stack of threads that parse and evaluate: four times what the deepest text that is accepted needs, at least. Only what
/// is used of it takes memory.
pub const STACK_BYTES: usize = tidegate_graph::PARSE_STACK_BYTES;

/// Texts up to this are short.
pub const INLINE_BYTES: usize = 64 << 10;
/// Threads that read short texts, and as many for long ones.
pub const PARSERS: usize = 2;
/// Texts of each kind that may wait to be read: as many as there may be connections.
pub const READINGS_MAX: usize = HTTP_CONNECTIONS_MAX + SSAP_CONNECTIONS_MAX;
/// Of these, those of one client: others find a place beside it.
pub const READINGS_OF_CLIENT_MAX: usize = READINGS_MAX / 4;
/// Threads that may be given up at once because they do not come back, of each kind.
pub const RUNAWAYS_MAX: usize = 4;
/// How long a thread may go on after it was told to end, before it is given up.
pub const RUNAWAY_AFTER: Duration = Duration::from_secs(5);
/// What an answer may be late by: the writer or reader itself says that it ended, or that it did not.
pub const GRACE: Duration = Duration::from_secs(1);
/// How much longer a door waits for a change that was begun and told to end, before it says that nothing is known.
pub const BEGUN_GRACE: Duration = Duration::from_secs(30);
/// Bytes of memory that are charged for each byte of a text while it is read and asked: terms are strings of their own.
pub const TEXT_COST: usize = 6;
/// Bytes that all texts may be charged with.
pub const TEXTS_BYTES_MAX: usize = 512 << 20;

/// Endpoints that queries with `SERVICE` may ask.
pub const SERVICES_MAX: usize = 32;
/// `SERVICE` clauses of one query: each is a call.
pub const SERVICE_CALLS_MAX: usize = 4;
/// Calls of all queries at once; more are refused.
pub const SERVICE_CALLS_AT_ONCE: usize = 32;
/// Time for one call: half of what a query has, so that something is left for its own part.
pub const SERVICE_TIME_MAX: Duration = Duration::from_secs(5);
/// Bytes of the answer to one call.
pub const SERVICE_BYTES_MAX: usize = 4 << 20;
/// Rows of the answer to one call: they become a part of the query, and their products are bounded as those of `VALUES` are.
pub const SERVICE_ROWS_MAX: usize = 10_000;

/// Clients whose wanted interval is remembered, in each pool; more are advised and not counted.
pub const WANTS_MAX: usize = 65_536;
/// The longest interval that a client can want; a longer one is taken for this.
pub const WANT_MAX: Duration = Duration::from_secs(86_400);

/// Connections of the HTTP door.
pub const HTTP_CONNECTIONS_MAX: usize = 4096;
/// WebSockets beside them.
pub const SOCKETS_MAX: usize = 4096;
/// Connections that are told at once that there is no place for them, and listened to for a moment.
pub const REFUSALS_MAX: usize = 32;
/// How long they are listened to.
pub const REFUSAL_TIME: Duration = Duration::from_secs(1);
/// What is taken of what they say.
pub const REFUSAL_BYTES: usize = 64 << 10;
/// Connections of all doors together, if whoever opens them does not say less.
pub const DOORS_CONNECTIONS_MAX: usize = HTTP_CONNECTIONS_MAX + SOCKETS_MAX + SSAP_CONNECTIONS_MAX + REFUSALS_MAX;
/// After this time an HTTP connection takes no new request, and whoever has not read its answer is cut soon after.
pub const HTTP_CONNECTION_TIME: Duration = Duration::from_secs(240);
/// Time for the last answer of such a connection.
pub const HTTP_LAST_TIME: Duration = Duration::from_secs(60);
/// Bytes of a request's body.
pub const BODY_BYTES_MAX: usize = 16 << 20;
/// Time for a request's head, and again for its body.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a request's body.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Buffer of an HTTP connection, which bounds its head.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// Graphs that one request may name.
pub const GRAPHS_MAX: usize = 256;
/// Bytes of one message of a WebSocket.
pub const SOCKET_MESSAGE_BYTES_MAX: usize = 1 << 20;
/// How long a subscription whose connection was lost is kept up to date, for its client to come back.
pub const LINGER_TIME: Duration = Duration::from_secs(120);
/// How often it is looked which connections have gone without saying so.
pub const DESERTED_INTERVAL: Duration = Duration::from_secs(10);
/// Such subscriptions; more, and the oldest go.
pub const LINGER_MAX: usize = 4096;
/// Times that the graph may leave a number out before it is not known any more what an old one meant.
pub const SKIPS_MAX: usize = 16;
/// Subscriptions of one connection.
pub const SUBSCRIPTIONS_MAX: usize = 1024;
/// How long a reader of notifications may take for one message before it is cut.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Connections of the SSAP door.
pub const SSAP_CONNECTIONS_MAX: usize = 4096;
/// Bytes of one SSAP message.
pub const SSAP_MESSAGE_BYTES_MAX: usize = tidegate_wire_ssap::limits::MESSAGE_BYTES_MAX;
/// Bytes of all SSAP messages that are not whole yet, beside the first few of each. A message takes more as it grows, so
/// that many half ones can use it up; then those are cut that do not go on at [`SSAP_ROOM_PACE`].
pub const SSAP_BUFFERS_BYTES_MAX: usize = 32 * SSAP_MESSAGE_BYTES_MAX;
/// How often it is looked at a half message that takes room.
pub const SSAP_ROOM_INTERVAL: Duration = Duration::from_secs(1);
/// How long one that waits for more room may keep what it has.
pub const SSAP_ROOM_WAIT: Duration = Duration::from_secs(5);
/// Bytes that must have come of it since, while others wait for room.
pub const SSAP_ROOM_PACE: usize = 64 << 10;
/// Requests of one connection that may be under way; more wait in its socket.
pub const SSAP_WINDOW: usize = 64;
/// Time for the rest of a message that has begun.
pub const SSAP_MESSAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time that a connection without a subscription may say nothing.
pub const SSAP_IDLE_TIMEOUT: Duration = Duration::from_secs(3600);
/// How often a silent subscription is sent a blank.
pub const SSAP_KEEP_ALIVE: Duration = Duration::from_secs(10);
/// What is taken of a message that is too long, and thrown away, after its sender was told so.
pub const SSAP_LINGER_BYTES: usize = 16 << 20;
/// How long the rest of such a message is taken.
pub const SSAP_LINGER_TIME: Duration = Duration::from_secs(2);
/// Ends of subscriptions, asked for by other connections, on their way to one connection.
pub const SSAP_FAREWELLS: usize = 64;

/// Passwords that are remembered, and for how long.
pub const REMEMBERED_MAX: usize = 64;
/// How long a password that was right is not checked again.
pub const REMEMBERED_FOR: Duration = Duration::from_secs(60);

/// An evaluation that took this long is remembered as slow, and so many of them are.
pub(crate) const SLOW: Duration = Duration::from_millis(100);
pub(crate) const SLOW_SHOWN_MAX: usize = 50;

/// Standing queries in the operator's list; the others are counted.
pub(crate) const STANDING_SHOWN_MAX: usize = 200;

/// Bytes of a query's text in those lists.
pub(crate) const TEXT_SHOWN_BYTES: usize = 1000;
