//! Every maximum of this door.

use core::time::Duration;

/// Bytes of a frame that is taken, as `open` says. A payload that is longer comes in several.
pub(crate) const FRAME_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a frame before that is agreed on: 512 by section 2.4.1, and more where somebody shows a token for a password.
pub(crate) const GREETING_FRAME_BYTES_MAX: usize = 16 * 1024;
/// The least that a peer may take in a frame (section 2.7.1).
pub(crate) const FRAME_BYTES_MIN: u32 = 512;
/// The last channel: sessions of a connection, less one. Most clients have one session.
pub(crate) const CHANNEL_MAX: u16 = 31;
/// The last handle: links of a session, less one.
pub(crate) const HANDLE_MAX: u32 = 255;
/// Links of all sessions of a connection.
pub(crate) const LINKS_MAX: usize = 512;
/// Transfers that a session may have sent before it hears of more.
pub(crate) const INCOMING_WINDOW: u32 = 2048;
/// Transfers that this side says it might send: it keeps none for a session that has no room.
pub(crate) const OUTGOING_WINDOW: u32 = 2048;
/// The most credit that a sender link has: messages that may be on their way or wait for their answers.
pub(crate) const CREDIT_MAX: u32 = 128;
/// Messages of one connection that wait for their answers. No link has more credit than its part of half of them.
pub(crate) const INBOUND_MAX: u16 = 8192;
/// Messages that wait here for the credit of a receiver's link, and their bytes; more wait in the queue of the session.
pub(crate) const PARKED_MAX: usize = 64;
pub(crate) const PARKED_BYTES_MAX: usize = 256 * 1024;
/// Deliveries of a session that wait for the answer of their receiver; beyond them nothing is sent that wants one.
pub(crate) const UNSETTLED_MAX: usize = 4096;
/// Bytes of copies beyond the first of a message, and of messages that had waited, that are written before the outbox is looked at.
pub(crate) const AHEAD_BYTES_MAX: usize = 256 * 1024;
/// Messages of QoS 1 for subscriptions of a lasting session that have no link now. They are in flight in the core; of more, the oldest
/// is given up.
pub(crate) const HOMELESS_MAX: usize = 4096;
/// The largest messages that the beginnings of deliveries of one connection may be together.
pub(crate) const PARTIALS_MAX: usize = 2;
/// How long the rest of a delivery may take whose first frames are there, and...
pub(crate) const PARTIAL_PATIENCE: Duration = Duration::from_secs(60);
/// ...how fast it has to come beyond that.
pub(crate) const PARTIAL_BYTES_PER_SECOND_MIN: usize = 1024;
/// How often is looked whether all that a receiver wants to have drained has been sent.
pub(crate) const DRAIN_EVERY: Duration = Duration::from_millis(100);
/// Bytes of the name of a link, and of an address.
pub(crate) const NAME_BYTES_MAX: usize = 1024;
/// Bytes of a delivery tag (section 2.8.7).
pub(crate) const TAG_BYTES_MAX: usize = 32;
/// Descriptors of descriptors: none is known that has more than one.
pub(crate) const DESCRIPTORS_MAX: usize = 4;
/// Application properties of a message; those beyond are a reason to reject it.
pub(crate) const PROPERTIES_MAX: usize = 128;
/// Seconds of silence that a client is told of; the connection ends after one and a half times that.
pub(crate) const IDLE_SECONDS: u16 = 60;
/// Who wants a sign of life more often than this is not served: it would be more than a message costs.
pub(crate) const IDLE_MIN: Duration = Duration::from_millis(200);
/// How long a publisher that was told of a pace gets its credit by the second; from the last time that it was told.
pub(crate) const PACED_FOR: Duration = Duration::from_secs(10);
/// Credit that is paced is given for this long at a time.
pub(crate) const PACE_EVERY: Duration = Duration::from_secs(1);
/// The longest that a link is left without credit because of one refusal.
pub(crate) const CREDIT_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Times that a receiver may give one message back before that means that it does not want it.
pub(crate) const RETURNS_MAX: u8 = 8;
/// Timers that are looked at in one turn.
pub(crate) const TIMERS_PER_TURN_MAX: usize = 256;

const _: () = assert!(FRAME_BYTES_MAX as u64 >= FRAME_BYTES_MIN as u64 && GREETING_FRAME_BYTES_MAX <= FRAME_BYTES_MAX);
const _: () = assert!(CREDIT_MAX < INCOMING_WINDOW && CREDIT_MAX < INBOUND_MAX as u32);
