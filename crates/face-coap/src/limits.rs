//! Every maximum of this door, and the times of RFC 7252 (section 4.8) that they go with.

use core::time::Duration;

/// Addresses that one shard speaks with at the same time. Others hear 5.03.
pub(crate) const PEERS_MAX: usize = 10_000;
/// The same at one address (IPv4) or in one network of 64 bits (IPv6), by port: one site must not take all of it.
pub(crate) const ADDRESS_PEERS_MAX: usize = 1_000;
/// Observations of one address.
pub(crate) const OBSERVERS_MAX: usize = 32;
/// States that wait for the observations of one address: the newest of each topic.
pub(crate) const WAITING_MAX: usize = 64;
/// Confirmable requests of one address that wait for the core.
pub(crate) const EXCHANGES_MAX: usize = 16;
/// Requests of one address that are recognised when they come again.
pub(crate) const REMEMBERED_MAX: usize = 64;
/// Confirmable messages to one address that are not acknowledged yet.
pub(crate) const CONFIRMABLES_MAX: usize = 16;
/// Bytes of a body that comes in blocks; the largest packet of the broker's settings holds as well.
pub(crate) const BODY_BYTES_MAX: usize = 1 << 20;
/// Bytes of a payload in one datagram: what goes through everywhere with its options.
pub(crate) const BLOCK_BYTES: usize = 1024;
/// The exponent of that in a block option: 2 to the power of 4 more.
pub(crate) const BLOCK_EXPONENT: u8 = 6;
/// The same in a notification that has to name its topic, and the longest topic that is named.
pub(crate) const WIDE_BLOCK_EXPONENT: u8 = 5;
pub(crate) const WIDE_TOPIC_BYTES_MAX: usize = 300;
/// An answer before the address is proved, in sizes of the request (RFC 9175, section 2.4).
pub(crate) const AMPLIFICATION_MAX: usize = 3;

/// How long a message identifier means the same message.
pub(crate) const EXCHANGE_LIFETIME: Duration = Duration::from_secs(247);
/// Silence after which an address without observations is forgotten: longer than a message identifier lives.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(300);
/// Silence after which an address with observations is asked for a sign of life.
pub(crate) const PING_AFTER: Duration = Duration::from_secs(600);
/// A request whose answer takes longer than this is acknowledged first, before its sender repeats it.
pub(crate) const ACK_SOON: Duration = Duration::from_secs(1);
/// Times that a confirmable message is sent again.
pub(crate) const RETRANSMITS_MAX: u8 = 4;
/// Notifications of which nobody says that they came, before one that has to be acknowledged.
pub(crate) const UNCONFIRMED_MAX: u8 = 8;
/// The same as time. (RFC 7641, section 4.5 asks for one day.)
pub(crate) const UNCONFIRMED_TIME: Duration = Duration::from_secs(20);
/// How long the proof of an address may take to come back.
pub(crate) const ECHO_SECONDS: u32 = 120;
/// What somebody is told to wait who finds no room.
pub(crate) const BUSY: Duration = Duration::from_secs(1);

const _: () = assert!(IDLE_MAX.as_secs() > EXCHANGE_LIFETIME.as_secs());
const _: () = assert!(BLOCK_BYTES == 1 << (BLOCK_EXPONENT + 4));
