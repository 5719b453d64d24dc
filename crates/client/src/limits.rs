//! Every maximum of the client.

use core::time::Duration;

/// Persistent queries of one connection to a space.
pub const WATCHES_MAX: usize = 100_000;
/// Bytes of one answer or message of a broker.
pub const ANSWER_BYTES_MAX: usize = 32 << 20;
/// Rows that one persistent query may hold; a result with more is refused, and the last view is kept.
pub const ROWS_MAX: usize = 1_000_000;
/// States of a view that are remembered while a check is under way.
pub const TRAIL_MAX: usize = 64;
/// Rows of notifications that are remembered while a check is under way; with more, the check is made anew.
pub const OVERLAP_ROWS_MAX: usize = 10_000;

/// Notifications that one answer to a check may stand for; one that claims more is not believed.
pub const MISSED_MAX: u64 = 4096;

/// How long a notification may be on its way behind the answer to a check.
pub const GRACE: Duration = Duration::from_secs(1);
/// No advice to come back makes a subscription or a connection wait longer: a little more than what a broker of ours says
/// at most.
pub const HINT_MAX: Duration = Duration::from_secs(300);
/// The shortest and the longest time between two checks that a broker can ask for when it hands a subscription over.
pub const DELEGATED_MIN: Duration = Duration::from_millis(10);
/// See [`DELEGATED_MIN`].
pub const DELEGATED_MAX: Duration = Duration::from_secs(300);
/// First window of coming back.
pub const COMEBACK_MIN: Duration = Duration::from_millis(100);
/// Widest window of coming back.
pub const COMEBACK_MAX: Duration = Duration::from_secs(60);
/// A connection that lasted so long was a good one.
pub const STABLE_AFTER: Duration = Duration::from_secs(30);

/// How long a broker may take to accept a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it may take to answer, unless a request says less.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// The part of that time which a broker is told as deadline: the answer has to travel (CONTROL §8.2).
pub const DEADLINE_SHARE: f64 = 0.9;
/// Bytes that are written at once: a slow line has [`WRITE_TIMEOUT`] for each so many.
pub const WRITE_BYTES: usize = 16 << 10;
/// How long a broker may take to take what we send.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(15);
/// How often the system asks a silent peer whether it is there.
pub const SIGN_INTERVAL: Duration = Duration::from_secs(30);
/// How often a silent WebSocket is pinged, and after how many unanswered pings it is over.
pub const PING_INTERVAL: Duration = Duration::from_secs(20);
/// Pings without any sign of life before a WebSocket is taken for dead.
pub const PINGS_MAX: u32 = 3;
/// Checks under way at once on one connection to a space.
pub const CHECKS_MAX: usize = 32;
/// Requests under way at once on one connection to a space, each on a line of its own; more wait.
pub const LINES_MAX: usize = 64;
/// Lines without a request that are kept for the next one, if none waits.
pub const IDLE_LINES_MAX: usize = 8;
/// How long one is kept.
pub const IDLE_TIME: Duration = Duration::from_secs(10);
/// Subscriptions on one WebSocket.
pub const SUBSCRIPTIONS_PER_SOCKET: usize = 500;
/// Events that wait for a slow reader; it is told how many more there were.
pub const EVENTS_MAX: usize = 256;
/// Different settings of pace that the queries of one space share; more have their own.
pub const PLANS_MAX: usize = 8;
/// Messages between the tasks of one connection.
pub const CHANNEL: usize = 256;

/// Messages of ours that may be under way, whatever the broker allows.
pub const WINDOW_MAX: usize = 1024;
/// Messages of the broker's that may be under way: those that nobody has taken yet.
pub const RECEIVE_MAX: u16 = 64;
/// Messages of QoS 0 that wait for their reader; the newest are dropped beyond.
pub const INBOX_MAX: usize = 1024;
/// Bytes of one packet of a broker.
pub const MQTT_PACKET_BYTES_MAX: u32 = 32 << 20;
/// Between two messages of a backlog that grew while there was no connection.
pub const DRAIN_INTERVAL: Duration = Duration::from_millis(2);
/// Bytes that wait for a socket before no new message is begun.
pub const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// Subscriptions of one MQTT client.
pub const FILTERS_MAX: usize = 1024;
/// Topics that a broker may shorten to a number.
pub const ALIASES_MAX: usize = 1024;
