//! Every maximum of this door.

use core::time::Duration;

/// Bytes of the head of a request. Browsers send about one KiB, and cookies.
pub(crate) const HEAD_BYTES_MAX: usize = 8 * 1024;
/// Headers of a request. Browsers send about fifteen.
pub(crate) const HEADERS_MAX: usize = 64;
/// Bytes of the line that says how long a chunk is, and of the trailers after the last one.
pub(crate) const CHUNK_LINE_BYTES_MAX: usize = 256;
pub(crate) const TRAILER_BYTES_MAX: usize = 4 * 1024;
/// Bytes of a body in chunks that are not the body.
pub(crate) const CHUNKING_BYTES_MAX: usize = 64 * 1024;
/// Requests of one connection that wait for their answers. Hardly anybody sends a second one before the first is answered.
pub(crate) const EXCHANGES_MAX: usize = 32;
/// Bytes of answers that wait for the answer to an earlier request.
pub(crate) const BEHIND_BYTES_MAX: usize = 256 * 1024;
/// Filters of one stream.
pub(crate) const FILTERS_MAX: usize = 16;
/// Events that a stream remembers for who comes back, and their bytes.
pub(crate) const RING_EVENTS_MAX: usize = 256;
pub(crate) const RING_BYTES_MAX: usize = 256 * 1024;
/// How long a stream whose connection is gone goes on remembering.
pub(crate) const RESUME_FOR: Duration = Duration::from_secs(60);
/// Streams of one shard that wait for who comes back; the oldest goes first.
pub(crate) const WAITING_MAX: usize = 1024;
/// A silent stream says that it is there this often: proxies close what is silent for a minute.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);
/// Seconds of silence between two requests; the connection ends after one and a half times that.
pub(crate) const KEEP_ALIVE_SECONDS: u16 = 60;
/// How long a browser is told to wait before it comes back to a stream that broke off...
pub(crate) const RETRY: Duration = Duration::from_secs(2);
/// ...and the same of one that the broker has ended.
pub(crate) const RETRY_AFTER_END: Duration = Duration::from_secs(5);
/// What somebody is told to wait who finds no room.
pub(crate) const BUSY: Duration = Duration::from_secs(1);
/// Timers that are looked at in one turn.
pub(crate) const TIMERS_PER_TURN_MAX: usize = 256;

const _: () = assert!(KEEP_ALIVE_SECONDS as u64 <= RESUME_FOR.as_secs());
