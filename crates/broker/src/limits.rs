//! Every maximum of the process that is not the operator's to set, with the reason for the number.
//!
//! What sessions and queues may hold is in `core::settings`; what a packet may ask for is in `wire_mqtt::Limits`.

use std::time::Duration;

/// Connections of the broker's own bridges and sinks: twice as many as there can be, because one that ends may overlap with the next.
pub(crate) const BRIDGES_MAX: usize = 192;

/// Bytes of the one read buffer of a thread. What a connection left over goes to its front, new bytes behind.
pub(crate) const SCRATCH_BYTES: usize = 64 * 1024;

/// Bytes read from one connection in one turn: some 200 small messages, one system call.
pub(crate) const READ_BYTES_MAX: usize = 16 * 1024;

/// The same while others wait, at least: a system call is worth some twenty small messages. As much of each connection that
/// waits may be kept here until its turn comes.
pub(crate) const READ_BYTES_MIN: usize = 2 * 1024;

/// Bytes that are read for each unit of work that a connection may have in its turn: a small message and its header.
pub(crate) const UNIT_BYTES: usize = 128;

/// Bytes that are a unit of work by themselves, as the core counts them.
pub(crate) const BYTES_OF_A_UNIT: usize = 1024;

/// Bytes read in one turn while everybody is read dry. Keeps a turn at about a millisecond, whatever comes in; who is left
/// is read in order from then on.
pub(crate) const TURN_READ_BYTES_MAX: usize = 256 * 1024;

/// Units of work of a turn that reads in order: a small message each, so this is a millisecond, too. Whoever becomes ready
/// meanwhile is seen after it.
pub(crate) const TURN_UNITS_MAX: u32 = 2048;

/// Questions to the kernel about clients that may be sent nothing in excess, in one turn: some 4 µs each.
pub(crate) const WINDOW_LOOKS_PER_TURN_MAX: usize = 64;

/// Bytes that the kernel takes for a connection beyond what it could send at once. What is in there cannot be overtaken:
/// a slow client's link takes a second for this at 1 Mbit/s. By itself the kernel would take up to 4 MiB.
pub(crate) const UNSENT_MAX: usize = 128 * 1024;

/// The same, at least, for a receiver that has refused something and is slow: a few packets, so that it never runs dry
/// between two turns.
pub(crate) const UNSENT_MIN: usize = 2 * 1024;
/// Who takes more than this in a moment (1 MB/s) is not slow: its unsent bytes wait for a tenth of a second at most, and small
/// writes would cost more than they spare.
pub(crate) const UNSENT_OF_THE_SLOW: usize = 8 * 1024;

/// Readiness events taken in one turn; the kernel keeps the others.
pub(crate) const EVENTS_MAX: usize = 1024;

/// Connections accepted in one turn, so that a storm of them cannot hold up those that are connected.
pub(crate) const ACCEPTS_PER_TURN_MAX: usize = 64;

/// Connections that the kernel keeps for us to accept (it takes the smaller of this and `net.core.somaxconn`).
pub(crate) const BACKLOG: i32 = 4096;

/// How often a node of a cluster that may say nothing looks whether it may.
pub(crate) const SILENCE: Duration = Duration::from_millis(50);
/// How long accepting rests when the process has no file descriptors or memory left: long enough for others to end,
/// short enough that nobody's SYN times out (1 s).
pub(crate) const ACCEPT_PAUSE_EXHAUSTED: Duration = Duration::from_millis(100);

/// How long accepting rests when as many handshakes are under way as are allowed. The others wait in the backlog.
pub(crate) const ACCEPT_PAUSE_BUSY: Duration = Duration::from_millis(5);

/// Silence after which the kernel asks whether the peer is still there. Finds half-open peers without keep-alive.
pub(crate) const TCP_KEEPALIVE_IDLE: Duration = Duration::from_secs(300);

/// Batches from other shards that wait for one shard. A sender makes one per turn, of what it read in that turn, so
/// they have at most about twice `TURN_READ_BYTES_MAX` each; when they are refused, the core makes larger ones of them.
pub(crate) const INBOX_BATCHES_MAX: usize = 64;

/// The same for changes of interest: a SUBACK that is about to be written depends on them, so they are let in when
/// messages are not. Each is a few hundred bytes.
pub(crate) const INBOX_INTEREST_MAX: usize = 4096;

/// Sockets on their way to another thread.
pub(crate) const INBOX_SOCKETS_MAX: usize = 16 * 1024;

/// How long a shard waits before it offers a refused batch again.
pub(crate) const BATCH_RETRY: Duration = Duration::from_millis(1);

/// Password checks that wait for each password thread. At some 140 ms a check, a thread does two hundred while somebody
/// is patient (`PASSWORD_PATIENCE`); those behind them are told when to come back. Each costs a handshake's place.
pub(crate) const PASSWORD_QUEUE_PER_THREAD: usize = 640;

/// What one password check takes, about.
pub(crate) const PASSWORD_TIME: Duration = Duration::from_millis(140);

/// How long a client that has said hello is kept waiting for its turn at a password thread, beyond the time for its
/// handshake. Client libraries give up after half a minute or later.
pub(crate) const PASSWORD_PATIENCE: Duration = Duration::from_secs(20);
/// Threads that ask somebody elsewhere who may come in: they only wait, and so many wait at once. There are none before the first
/// is needed.
pub(crate) const ELSEWHERE_THREADS: usize = 8;

/// How long a socket is still read (and the bytes thrown away) after the last word was written to it. Closing earlier
/// would make the kernel send a reset if anything arrives, and a reset destroys that last word on its way.
pub(crate) const LINGER: Duration = Duration::from_secs(1);

/// Deadlines of handshakes that are gone, beyond a multiple of those that are there, before they are cleared away.
pub(crate) const STALE_DEADLINES_MAX: usize = 1024;

/// Reads of such a socket in one turn; who still sends then is not listening and is closed.
pub(crate) const DRAIN_READS_MAX: usize = 16;

/// Bytes of an HTTP request head.
pub(crate) const HTTP_HEAD_BYTES_MAX: usize = 8 * 1024;

/// Headers of an HTTP request. Browsers send about fifteen.
pub(crate) const HTTP_HEADERS_MAX: usize = 64;

/// Bytes of one WebSocket frame. Frames are never held whole, so this only refuses nonsense; an MQTT packet has at most
/// 256 MiB.
pub(crate) const WS_FRAME_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Bytes of one WebSocket frame that we send: a reader that holds whole frames should not need much for it.
pub(crate) const WS_FRAME_SEND_MAX: usize = 64 * 1024;

/// Bytes of plain text that wait inside one TLS session for the socket.
pub(crate) const TLS_BUFFER_BYTES: usize = 64 * 1024;

/// Reads of a TLS socket in one turn, each of up to 4 KiB: rustls's own step.
pub(crate) const TLS_READS_MAX: usize = 8;

/// Steps of TLS handshakes in one turn. A step that answers a greeting signs with the private key: some 0.1 ms with an
/// elliptic curve, 1 ms with RSA; four of them keep a turn near its millisecond. The others wait for the next turn, in
/// order, so that a storm of greetings costs those who are connected a few milliseconds and not their keep-alive.
pub(crate) const TLS_STEPS_PER_TURN_MAX: usize = 4;

/// Bytes of a certificate, key or CA file. A chain has a few kilobytes, the world's CAs have 250 KiB.
pub(crate) const PEM_FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Lines of each kind of event that one thread logs in a second; the others are counted.
pub(crate) const LOG_LINES_PER_SECOND: u32 = 20;

/// Messages a second that a log line says at most: one publisher cannot send more over one connection, and a larger
/// figure is only that of a few that came in one read.
pub(crate) const RATE_TOLD_MAX: f64 = 1_000_000.0;

/// Connections that have ended and are remembered by each shard, with the reason: some 0.7 MiB without their texts.
pub(crate) const CLOSED_MAX: usize = 4096;

/// Bytes of their names, addresses and reasons: a hundred for each, and names of 64 KiB push out many others.
pub(crate) const CLOSED_TEXT_BYTES_MAX: usize = 512 * 1024;

/// How many of them are told in one answer.
pub(crate) const CLOSED_PER_PAGE: usize = 500;

/// Questions of operators under way at the same time. Each answer may have a few hundred kilobytes.
pub(crate) const QUESTIONS_MAX: usize = 64;

/// Questions that one shard answers in one turn: with two pages of clients about half a millisecond.
pub(crate) const ANSWERS_PER_TURN_MAX: usize = 2;

/// How often a shard gives what it measured to its gauge.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// Sockets accepted per second, and at once, at levels 2, 3 and 4 of pressure. The others wait in the backlog, which
/// costs nothing; a handshake costs a hash or a signature, and those who are in come first.
pub(crate) const ACCEPT_RATES: [(u32, u32); 3] = [(2000, 256), (200, 32), (20, 4)];

/// Memory that a socket in its handshake takes, about.
pub(crate) const HANDSHAKE_BYTES: usize = 4096;

/// The smallest memory budget: one turn of every kind of input has to fit into what is kept free.
pub(crate) const MEMORY_MIN: u64 = 16 * 1024 * 1024;

/// Limits of single clients and users; as many as a shard takes.
pub(crate) const OPERATOR_LIMITS_MAX: usize = 10_000;

/// Bans at the same time.
pub(crate) const BANS_MAX: usize = 65_536;

/// Addresses, and users of addresses, whose wrong passwords are counted.
pub(crate) const ATTEMPTS_MAX: usize = 65_536;

/// Passwords that are known to have been right of late: some 10 MiB.
pub(crate) const KNOWN_MAX: usize = 65_536;

/// Messages that maps have published and no shard has taken yet.
pub(crate) const MAPPED_MAX: usize = 4096;

/// How often a shard shows its counters to the others.
pub(crate) const STATS_INTERVAL: Duration = Duration::from_millis(100);

/// Shard threads at most: as many as the configuration takes, and more than there are cores.
pub(crate) const SHARDS_MAX: usize = 1024;

/// Shards that are started unasked: what they tell each other grows with their number, and a client's share of descriptors is
/// worked out for so many.
pub(crate) const SHARDS_AUTO_MAX: usize = 64;

/// How long a machine that has other things to do may let a ready thread wait. What publishers send in such a time is not
/// taken for a burst of theirs; a real burst is spread over as much, and no more.
pub(crate) const WAKE_LAG_MAX: Duration = Duration::from_millis(50);

/// Timers that are later than this let sockets go first: longer than any turn, shorter than what a client would notice.
pub(crate) const LATE_MIN: Duration = Duration::from_millis(250);

/// How long they do so at most. Some 100 000 connections can be read in that time; a flood has no end.
pub(crate) const CATCH_UP_MAX: Duration = Duration::from_secs(2);

/// Bytes of one client that wait to be sent to the broker behind a guard, at most, and a read's worth: beyond, it is not read.
pub(crate) const UPSTREAM_OUT_MAX: usize = 64 * 1024;
/// Bytes that a turn of a guard reads of what comes from behind.
pub(crate) const DOWN_TURN_BYTES_MAX: usize = 2 * 1024 * 1024;
/// What a read counts for there at least.
pub(crate) const DOWN_LOOK_BYTES: usize = 256;
/// The largest packet of MQTT (section 2.1.4): what the broker behind sends is not smaller for a guard.
pub(crate) const UPSTREAM_PACKET_MAX: usize = 268_435_460;
/// Steps of one authentication (AUTH of MQTT 5) that pass a guard; methods in use have two or three.
pub(crate) const AUTH_STEPS_MAX: u32 = 16;
/// What a step of a TLS handshake with the broker behind counts for, in bytes of a turn: it costs a tenth of a millisecond.
pub(crate) const UPSTREAM_SHAKE_BYTES: usize = 128 * 1024;
/// How long the broker behind may take to say that it is still there, when it has closed a connection without a word.
pub(crate) const UPSTREAM_ASK_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a connection that asks this must last: a process that is killed closes its connections before its door, and takes
/// some more in between, which are reset.
pub(crate) const UPSTREAM_STAYS: Duration = Duration::from_millis(100);
/// How long what a client has said on its way out may take to reach the broker behind.
pub(crate) const UPSTREAM_LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

const _: () = assert!(READ_BYTES_MAX <= SCRATCH_BYTES / 2, "what is left over must fit beside what is read");
const _: () = assert!(READ_BYTES_MAX <= TURN_READ_BYTES_MAX);
const _: () = assert!(READ_BYTES_MIN <= READ_BYTES_MAX);
const _: () = assert!(HTTP_HEAD_BYTES_MAX <= READ_BYTES_MAX);

/// Bytes of datagrams that the system keeps for us between two turns.
pub(crate) const DATAGRAM_BUFFER_BYTES: usize = 1 << 20;
/// The longest datagram that is read whole: those of CoAP and MQTT-SN are shorter, and a longer one is cut, and refused as malformed.
pub(crate) const DATAGRAM_BYTES_MAX: usize = 2048;
/// Datagrams that are read in one turn: sockets of others wait meanwhile.
pub(crate) const DATAGRAMS_PER_TURN_MAX: usize = 64;
/// Datagrams on their way from the thread that reads them to others.
pub(crate) const DATAGRAMS_UNDER_WAY_MAX: usize = 1024;
