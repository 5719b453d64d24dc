//! Every maximum of this door, and the times of MQTT-SN 1.2 (section 7.2) that they go with.

use core::time::Duration;

/// Addresses that one shard speaks with at the same time. Others hear "congestion".
pub(crate) const PEERS_MAX: usize = 10_000;
/// Those of one address (IPv4), or of one network of 64 bits (IPv6), unless it is this machine's.
pub(crate) const PEERS_PER_NETWORK_MAX: u32 = 1024;
/// Those beyond this machine that have not shown yet that they hear us; one more makes the oldest go...
pub(crate) const UNPROVED_MAX: usize = 1024;
/// ...which goes anyway after this time: whoever made up its address could not know more than that it did.
pub(crate) const UNPROVED_TIME: Duration = Duration::from_secs(60);
/// IP addresses that publish without being connected. What comes from others is dropped, and counted.
pub(crate) const SENDERS_MAX: usize = 1024;
/// Those of one network of 64 bits (IPv6).
pub(crate) const SENDERS_PER_NETWORK_MAX: u32 = 64;
/// Clients that were asked for their will and have not said it yet. One more makes the oldest go.
pub(crate) const GREETINGS_MAX: usize = 256;
/// Topics that one client has named: by REGISTER, or by SUBSCRIBE without wildcards.
pub(crate) const NAMED_MAX: usize = 256;
/// Topics that were registered with a client because a message of them came; the oldest makes room for the next.
pub(crate) const LENT_MAX: usize = 256;
/// Bytes of the topics of one client, and of those that it has named.
pub(crate) const NAMES_BYTES_MAX: usize = 64 * 1024;
pub(crate) const NAMED_BYTES_MAX: usize = NAMES_BYTES_MAX / 2;
/// Messages and requests of one client that wait for the core.
pub(crate) const WAITING_MAX: usize = 16;
/// Messages of one client that are recognised when they come again.
pub(crate) const REMEMBERED_MAX: usize = 16;
/// Messages that were taken out of an outbox, so that answers behind them do not wait.
pub(crate) const HELD_MAX: usize = 8;
/// Numbers of messages that a client has and that wait for their turn to be released.
pub(crate) const RELEASES_MAX: usize = 1024;
/// Bytes of a message to a client, with its header: what goes through everywhere.
pub(crate) const PACKET_BYTES_MAX: usize = 1280;
/// What goes to an address that has not proved that it hears, in sizes of what came from there...
pub(crate) const AMPLIFICATION_MAX: usize = 3;
/// ...where each datagram counts with its headers of UDP and IPv4.
pub(crate) const HEADER_BYTES: usize = 28;
/// A DISCONNECT: there is always so much left for it.
pub(crate) const LAST_WORD_BYTES: usize = 2 + HEADER_BYTES;

/// How long an answer may take before a message is sent again...
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(10);
/// ...and how often that is done, before its receiver is taken for lost.
pub(crate) const RETRIES_MAX: u8 = 4;
/// The same of questions to somebody who is not connected yet: with the question itself no more than three times a CONNECT.
pub(crate) const QUESTIONS_MAX: u8 = 2;
/// How long a client that says "congestion" is left alone.
pub(crate) const WAIT_AFTER_CONGESTION: Duration = Duration::from_secs(300);
/// How long a message is recognised as one that came before: longer than its sender tries.
pub(crate) const REMEMBERED_FOR: Duration = Duration::from_secs(120);
/// Silence after which a client is forgotten that has agreed on no keep-alive: a datagram says nothing of its sender's end.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(3600);
/// The same of who publishes without being connected.
pub(crate) const SENDER_IDLE_MAX: Duration = Duration::from_secs(60);
