//! Every maximum of sessions, and their times.

use core::time::Duration;

/// Sessions of one shard, and of those, handshakes that are under way. Whoever finds no room hears nothing, and says hello again.
pub(crate) const SESSIONS_MAX: usize = 10_000;
pub(crate) const HANDSHAKES_MAX: usize = 256;
/// The same of one address (IPv4), or of one network of 64 bits (IPv6): one site must not take all of it.
pub(crate) const ADDRESS_SESSIONS_MAX: u32 = 1_000;
pub(crate) const ADDRESS_HANDSHAKES_MAX: u32 = 32;

/// A cookie is good in the period that it was made in, and in the next.
pub(crate) const COOKIE_PERIOD: Duration = Duration::from_secs(60);
/// Silence after which a session is ended.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(3600);
/// What our datagrams may have at most; CoAP's are cut to blocks before.
pub(crate) const DATAGRAM_BYTES: usize = 1400;
/// Bytes of a datagram that is made: the longest that comes in, and what protects it.
pub(crate) const BUFFER_BYTES: usize = 4096;
/// Datagrams of a client that wait for one that comes before them in a handshake.
pub(crate) const EARLY_MAX: usize = 16;
/// Times that a part of a handshake is sent again.
pub(crate) const RETRIES_MAX: usize = 4;
/// Parts of handshakes that are dealt with in one turn: each may take the time of a signature, or of a shared secret, and everybody's
/// messages wait for that. What comes beyond waits for the next turns...
pub(crate) const STEPS_PER_TURN_MAX: usize = 8;
/// ...so many datagrams, and so many of one address (IPv6: of one network); others are lost, and said again.
pub(crate) const PUT_OFF_MAX: usize = 256;
pub(crate) const ADDRESS_PUT_OFF_MAX: usize = 32;
/// Timers that are looked at in one turn.
pub(crate) const TIMERS_PER_TURN_MAX: usize = 256;
/// An identity of somebody with a key, as RFC 4279 asks for (section 5.3).
pub(crate) const IDENTITY_BYTES_MAX: usize = 128;

/// What a session takes of memory, for those who keep accounts: one by certificate has 10 243 bytes when its handshake is over, with the client's
/// certificate, as a test counts them; one by key has less.
pub const SESSION_BYTES: usize = 12 * 1024;
