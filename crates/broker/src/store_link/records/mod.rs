//! What the broker keeps, as records of the store: the words are the core's, the layout of their bytes is decided here and
//! nowhere else. The store knows bytes alone.
//!
//! A message is one record, however many sessions it waits for; they refer to it by number. Sessions, too, are numbers:
//! client identifiers are long. Times are milliseconds of the wall clock since 1970. Each tag has a version; a release
//! reads the versions it knows and refuses others, unless the record is marked as one that may be skipped.

mod fields;
mod image;
#[cfg(test)]
mod tests;

use std::num::NonZeroU32;

use tidegate_core::persist::SubscriberOptions;
use tidegate_store::{Location, RawRecord, RecordBatch, StoreError};
use tidegate_wire_mqtt::{PacketId, QoS};

use fields::{Field, RecordFields, put_bytes, put_number, put_option};

pub use fields::TEXT_BYTES_MAX;
pub use image::{DeliveryStage, Outline, QueueEntry, RoutingImage, SessionImage, StoreImage, WillImage};

/// Subscription identifiers of one delivery.
pub const IDS_MAX: usize = 1024;
/// What a publisher's rhythm may take.
pub const RHYTHM_BYTES_MAX: usize = 1024;
/// Properties of a message, as on the wire.
pub const PROPERTIES_BYTES_MAX: usize = 256 * 1024 * 1024;

/// What was learned of a publisher is of use for so long after its last message: who is away for a day begins anew.
pub const RHYTHM_MS_MAX: u64 = 24 * 3600 * 1000;

/// The layout that this release writes, for every tag.
const VERSION: u8 = 1;

/// A message that somebody keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRecord<'a> {
    /// Names it among all, for ever: a number is never used again.
    pub id: u64,
    /// Quality of service it was published with.
    pub qos: QoS,
    /// The flag it was published with.
    pub retain: bool,
    /// When the message expires, in milliseconds of the epoch.
    pub expires_ms: Option<u64>,
    /// The session that published it, for "no local"; 0 if it does not matter.
    pub origin: u64,
    /// How it stands among others that wait, in the words of who decides it.
    pub standing: Option<u64>,
    pub topic: &'a str,
    /// Its properties, as on the wire.
    pub properties: &'a [u8],
    pub payload: &'a [u8],
}

impl<'a> MessageRecord<'a> {
    /// Reads the payload of a message's record, as a reader or a log gives it.
    pub fn decode(payload: &'a [u8]) -> Result<Self, StoreError> {
        decode_message(&mut RecordFields::new(MESSAGE, payload))
    }
}

macro_rules! records {
    ($($(#[doc = $doc:literal])+ $tag:literal $name:ident { $($(#[doc = $field_doc:literal])* $field:ident: $type:ty),* $(,)? })+) => {
        /// One thing that happened to what is kept.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Record<'a> {
            /// A message; those who keep it come after it in the same batch.
            Message(MessageRecord<'a>),
            $($(#[doc = $doc])+ $name { $($(#[doc = $field_doc])* $field: $type),* },)+
        }

        impl<'a> Record<'a> {
            /// The tag on disk.
            pub fn tag(&self) -> u8 {
                match self {
                    Self::Message(_) => MESSAGE,
                    $(Self::$name { .. } => $tag,)+
                }
            }

            fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    Self::Message(message) => encode_message(message, out),
                    $(Self::$name { $($field),* } => { $($field.put(out);)* })+
                }
            }

            /// Reads a record; None for one that is not known and may be skipped.
            pub fn decode(raw: RawRecord<'a>) -> Result<Option<Self>, StoreError> {
                let mut fields = RecordFields::new(raw.tag, raw.payload);
                if raw.version != VERSION {
                    let error = fields.wrong("has a version that this release does not know");
                    return if raw.is_skippable { Ok(None) } else { Err(error) };
                }
                let record = match raw.tag {
                    MESSAGE => Self::Message(decode_message(&mut fields)?),
                    $($tag => Self::$name { $($field: Field::take(&mut fields)?),* },)+
                    _ if raw.is_skippable => return Ok(None),
                    _ => return Err(fields.wrong("is not known to this release")),
                };
                fields.end()?;
                Ok(Some(record))
            }
        }
    };
}

const MESSAGE: u8 = 1;
/// In the flags of a message: a number that most do not have.
const HAS_STANDING: u8 = 8;

records! {
    /// Where a message stands; only in snapshots, and only in those of earlier releases.
    2 MessageAt {
        /// The message.
        id: u64,
        /// Where the message's record is.
        at: Location,
    }
    /// The same, with what has to be known of it without reading it; only in snapshots.
    27 MessageStands {
        /// The message.
        id: u64,
        /// Where the message's record is.
        at: Location,
        /// The session that published it.
        origin: u64,
        /// Bytes of its topic, properties and payload.
        bytes: u32,
        /// As in [`Outline`].
        class: u16,
    }
    /// A session is there, or has changed; its subscriptions and messages stay.
    3 Session {
        session: u64,
        client_id: &'a str,
        /// Who the client is, if it said so.
        principal: Option<&'a str>,
        /// Seconds that it outlives its connection; None is for ever.
        expiry_s: Option<u32>,
        /// When it ends; None while it is connected.
        ends_ms: Option<u64>,
    }
    /// A session and everything that waits for it is gone.
    4 SessionEnded {
        session: u64,
    }
    /// A subscription was made or changed.
    5 Subscribed {
        session: u64,
        /// As the client wrote it.
        filter: &'a str,
        /// The options of the subscription.
        wish: SubscriberOptions,
    }
    /// A subscription is over.
    6 Unsubscribed {
        session: u64,
        /// As the client wrote it.
        filter: &'a str,
    }
    /// A message waits for a session.
    7 Queued {
        session: u64,
        /// Its place in the order of the session's messages: later is higher.
        place: u64,
        message: u64,
        /// Quality of service of the delivery.
        qos: QoS,
        /// Flag of the delivery.
        retain: bool,
        /// Identifiers of the subscriptions that want it.
        ids: Vec<NonZeroU32>,
    }
    /// A message no longer waits: acknowledged, expired or dropped.
    8 Dequeued {
        session: u64,
        /// The message's place.
        place: u64,
    }
    /// A message was sent under this identifier, and is to be sent again under it.
    9 Sent {
        session: u64,
        /// The message's place.
        place: u64,
        packet_id: PacketId,
    }
    /// The client has a QoS 2 message; only its identifier is still in use.
    10 Released {
        session: u64,
        /// The message's place.
        place: u64,
    }
    /// A QoS 2 message of the client was taken: one with this identifier is the same.
    11 InboundNoted {
        session: u64,
        packet_id: PacketId,
    }
    /// The identifier is free again.
    12 InboundReleased {
        session: u64,
        packet_id: PacketId,
    }
    /// A topic has a retained message.
    13 Retained {
        topic: &'a str,
        message: u64,
    }
    /// A topic has none any more.
    14 RetainedCleared {
        topic: &'a str,
    }
    /// A session has a will.
    15 Will {
        session: u64,
        message: u64,
        /// Seconds between the loss of the connection and the will.
        delay_s: u32,
        /// When it is due; None while the client is connected.
        due_ms: Option<u64>,
    }
    /// A will was published or taken back.
    16 WillCleared {
        session: u64,
    }
    /// What was learned about a publisher.
    17 Rhythm {
        /// Who, in the words of who learned it.
        key: &'a str,
        /// When the publisher published last, in milliseconds of the epoch.
        seen_ms: u64,
        /// The rhythm, in the words of who learned it.
        state: &'a [u8],
    }
    /// Nothing is known about a publisher any more.
    18 RhythmForgotten {
        /// The publisher's key.
        key: &'a str,
    }
    /// Somebody may not come in.
    19 Ban {
        /// Who, in the words of who decides it.
        subject: &'a str,
        /// Until when; None is for ever.
        until_ms: Option<u64>,
        /// Why, for people.
        reason: &'a str,
    }
    /// Somebody may come in again.
    20 BanLifted {
        /// The client, user or network that is banned.
        subject: &'a str,
    }
    /// An operator has set the rate of somebody.
    29 Limit {
        /// What is set and for whom, in the words of who decides it.
        subject: &'a str,
        /// Nanoseconds between two messages.
        interval_ns: u64,
        /// How many may come at once.
        burst: u32,
    }
    /// Nothing is set any more.
    30 LimitLifted {
        /// The setting, and the client or user that it holds for.
        subject: &'a str,
    }
    /// The wall clock was here: a start at an earlier time, or years later, knows that the clock has jumped.
    21 Clock {
        /// Milliseconds of the epoch.
        now_ms: u64,
    }
    /// A QoS 2 message that was released; only in snapshots.
    22 ReleasedAt {
        session: u64,
        /// The message's place.
        place: u64,
        packet_id: PacketId,
    }
    /// A QoS 2 message was taken from its publisher and is on its way to sessions elsewhere; it is kept until it is there.
    24 Routing {
        message: u64,
    }
    /// Such a message has reached a session.
    25 Reached {
        message: u64,
        /// Which session; 0 is whoever keeps the retained messages.
        session: u64,
    }
    /// Such a message has reached a member of a shared subscription.
    28 ReachedGroup {
        message: u64,
        /// Which group, as its members write it.
        group: &'a str,
    }
    /// Such a message has reached everybody.
    26 Routed {
        message: u64,
    }
    /// Numbers up to this one are used, though nothing may be left that has them; only in snapshots.
    23 Numbers {
        /// The highest.
        id_max: u64,
    }
}

impl Record<'_> {
    /// Losing it costs nothing that was promised.
    pub fn is_skippable(&self) -> bool {
        matches!(self, Self::Rhythm { .. } | Self::RhythmForgotten { .. } | Self::Clock { .. })
    }

    /// Adds it to a batch.
    pub fn push_to(&self, batch: &mut RecordBatch) -> Result<(), StoreError> {
        if self.is_skippable() {
            return self.with_raw(|raw| batch.push(raw));
        }
        batch.push_with(self.tag(), VERSION, |out| self.encode(out))
    }

    /// Calls with the record as bytes.
    pub fn with_raw<T>(&self, then: impl FnOnce(RawRecord<'_>) -> T) -> T {
        let mut payload = Vec::new();
        self.encode(&mut payload);
        let is_skippable = self.is_skippable();
        then(RawRecord { tag: self.tag(), version: VERSION, is_skippable, payload: &payload })
    }
}

fn encode_message(message: &MessageRecord<'_>, out: &mut Vec<u8>) {
    put_number(out, message.id);
    let has_standing = if message.standing.is_some() { HAS_STANDING } else { 0 };
    out.push(has_standing | message.qos.bits() << 1 | u8::from(message.retain));
    put_option(out, message.expires_ms);
    put_number(out, message.origin);
    if let Some(standing) = message.standing {
        put_number(out, standing);
    }
    put_bytes(out, message.topic.as_bytes());
    put_bytes(out, message.properties);
    // The rest of the record, without a length: it is the long one.
    out.extend_from_slice(message.payload);
}

fn decode_message<'a>(fields: &mut RecordFields<'a>) -> Result<MessageRecord<'a>, StoreError> {
    let id = fields.number()?;
    let flags: u8 = fields.small()?;
    let (qos, retain) = ((flags & !HAS_STANDING) >> 1, flags & 1 == 1);
    Ok(MessageRecord {
        id,
        qos: fields.qos(qos)?,
        retain,
        expires_ms: fields.option()?,
        origin: fields.number()?,
        standing: if flags & HAS_STANDING == 0 { None } else { Some(fields.number()?) },
        topic: fields.text()?,
        properties: fields.bytes(PROPERTIES_BYTES_MAX)?,
        payload: fields.rest(),
    })
}
