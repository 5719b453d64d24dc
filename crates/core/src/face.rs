//! What a shard asks of a protocol.
//!
//! A face reads the packets of its clients and calls the verbs of a [`Shard`](crate::Shard): connect, publish, subscribe,
//! confirm, disconnect. The shard decides; what is to be said about it goes through the [`Face`] of the connection, which
//! has the words: versions, reason codes, aliases. The shard never sees a packet, in either direction, and a face never
//! decides about a message. Several faces may stand at one shard, each with connections of its own.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt::Debug;
use core::num::NonZeroU32;
use core::time::Duration;

use tidegate_wire_mqtt::{Delivery, PacketId, Properties, QoS, ReasonCode};

use crate::event::Why;
use crate::gate::{Memory, Refusal};

/// How one connection is spoken to; made by its face, and gone with the connection.
pub trait Face: Any + Debug + Send {
    /// Appends an answer, as whole packets. Nothing, where the protocol has no word for it or the client would not accept
    /// it.
    fn answer(&mut self, answer: &Answer<'_>, out: &mut Vec<u8>);

    /// Appends a copy of a publication, as one whole packet; how many bytes that was. None if the client does not accept a
    /// packet of that size. What the face remembers about topics is charged to `memory`.
    fn publication(
        &mut self,
        outgoing: &OutgoingPublication<'_>,
        frames: &mut Frames,
        memory: &Memory,
        out: &mut Vec<u8>,
    ) -> Option<usize>;

    /// Whether an answer can say that a message was not taken, and carry hints. Who cannot be told is not read instead.
    fn hears_refusals(&self) -> bool;

    /// The protocol and its version, as people call it.
    fn protocol(&self) -> &'static str;

    /// How long the packet is that begins these bytes, which this face wrote; none if they are too few to tell.
    fn packet_length(&self) -> PacketLength;
}

/// See [`Face::packet_length`].
pub type PacketLength = fn(&[u8]) -> Option<usize>;

/// What a shard has to say to a client. Answers about messages name them by their delivery, as the client did.
#[derive(Clone, Copy, Debug)]
pub enum Answer<'a> {
    /// The client is connected, and goes on with a session from before or not.
    Welcome {
        /// There is a session from before.
        is_resumed: bool,
    },
    /// The client is not let in.
    Unwelcome {
        /// Why.
        reason: ReasonCode,
        /// Why, in words, and when it may come back; none if that would change nothing.
        later: Option<(&'a str, Duration)>,
    },
    /// A message was taken.
    Taken {
        /// Which.
        delivery: Delivery,
        /// Somebody gets it.
        is_reached: bool,
        /// The interval that would do, for who sends faster than it is read.
        interval: Option<Duration>,
    },
    /// A gate refused a message: there may be room for it later.
    Refused {
        /// Which.
        delivery: Delivery,
        /// Why, and when.
        refusal: &'a Refusal,
    },
    /// A message was not taken, and will not be.
    Rejected {
        /// Which.
        delivery: Delivery,
        /// Why.
        reason: ReasonCode,
    },
    /// The client has a message that it is to have exactly once, and may forget its number.
    Release {
        /// The number of the message.
        number: PacketId,
        /// The shard knows it.
        is_known: bool,
    },
    /// A message that was taken exactly once is done.
    Complete {
        /// The number of the message.
        number: PacketId,
        /// The shard knew it.
        is_known: bool,
    },
    /// What became of each subscription that was asked for.
    Subscribed {
        /// The number of the request.
        number: PacketId,
        /// What was granted, or why nothing was.
        grants: &'a [Result<QoS, ReasonCode>],
    },
    /// What became of each subscription that was to end.
    Unsubscribed {
        /// The number of the request.
        number: PacketId,
        /// Whether there was one.
        existed: &'a [bool],
    },
    /// The client asked for a sign of life.
    Alive,
    /// The connection ends; nothing comes after this.
    Goodbye(&'a Why),
}

/// One copy of a publication, for one receiver.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingPublication<'a> {
    /// Its topic.
    pub topic: &'a str,
    /// What it says.
    pub payload: &'a [u8],
    /// Its attributes, with those that belong to the publisher's connection.
    pub properties: Properties<'a>,
    /// Guarantee and number.
    pub delivery: Delivery,
    /// The flag for this receiver.
    pub retain: bool,
    /// Identifiers of the receiver's subscriptions that wanted it.
    pub ids: &'a [NonZeroU32],
    /// Seconds left to live, if it has a lifetime.
    pub seconds_left: Option<u32>,
}

/// Encodings of one publication that its receivers share. Each face has its own type of them, and numbers for its shapes.
#[derive(Debug)]
pub struct Frames {
    /// Encoding once pays from the second receiver on.
    is_shared: bool,
    slots: [Option<Box<dyn Any>>; SHAPES_MAX],
}

/// Shapes of a publication, of all faces together: MQTT has two versions, with and without number.
const SHAPES_MAX: usize = 4;

impl Frames {
    pub(crate) fn for_receivers(count: usize) -> Self {
        Self { is_shared: count > 1, slots: [const { None }; SHAPES_MAX] }
    }

    /// The encoding of this shape, which is made if it is not there; none if it is not worth it, or cannot be made.
    #[inline]
    pub fn get<T: Any>(&mut self, shape: usize, make: impl FnOnce() -> Option<T>) -> Option<&T> {
        if !self.is_shared {
            return None;
        }
        let slot = self.slots.get_mut(shape)?;
        if slot.is_none() {
            *slot = make().map(|frame| Box::new(frame) as Box<dyn Any>);
        }
        slot.as_ref()?.downcast_ref()
    }
}
