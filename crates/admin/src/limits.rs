//! Every maximum of the operator's door, with the reason for the number.

use std::time::Duration;

/// Connections at the same time: a few dashboards with six each, scrapers and command lines. More are closed at once.
pub(crate) const CONNECTIONS_MAX: usize = 64;

/// Time for the head of a request; also how long a connection may stay open between requests.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

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

/// Walks over all clients at the same time. A walk asks shards for some 200 µs in each of their turns.
pub(crate) const WALKS_MAX: usize = 2;

/// Time for a shard to answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Password checks of operators at the same time: clients use the same threads.
pub(crate) const CHECKS_MAX: usize = 2;

/// Right passwords that are remembered, and for how long: a dashboard asks every second, and a hash costs a tenth of one.
pub(crate) const REMEMBERED_MAX: usize = 16;
pub(crate) const REMEMBERED_FOR: Duration = Duration::from_secs(60);
