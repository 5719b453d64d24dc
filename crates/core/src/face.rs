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

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{Delivery, PacketId, Properties, QoS, ReasonCode};

use crate::event::Why;
use crate::gate::{Memory, Refusal};
use crate::message::Publication;
use crate::session::SubscriptionIds;

/// How one connection is spoken to; made by its face, and gone with the connection.
pub trait Face: Any + Debug + Send {
    /// Appends an answer, as whole packets. Nothing, where the protocol has no word for it or the client would not accept
    /// it.
    fn answer(&mut self, answer: &ClientAnswer<'_>, out: &mut Vec<u8>);

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

    /// The same of a message that nobody waits for an answer to (QoS 0): in some protocols every request has an answer.
    fn hears_every_refusal(&self) -> bool {
        false
    }

    /// What its client identifiers begin with, where the protocol has none and they are given to its clients.
    fn given_ids(&self) -> Option<&'static str> {
        None
    }

    /// Whether what is in the outbox lies there by agreement: the client sleeps, or has to be told something first. Then nobody
    /// is blamed for not taking it.
    fn holds_outbox(&self) -> bool {
        false
    }

    /// The protocol and its version, as people call it.
    fn protocol(&self) -> &'static str;

    /// How long the packet is that begins these bytes, which this face wrote; none if they are too few to tell.
    fn packet_length(&self) -> PacketLength;

    /// Whether no answer may overtake a message: what is written comes in the order in which it was said.
    fn keeps_order(&self) -> bool {
        false
    }

    /// Whether its client says how many messages it takes: then [`Face::has_room`] is asked before each.
    fn is_credited(&self) -> bool {
        false
    }

    /// Whether it keeps back something that it has words for, until there is room in the outbox: then it is told to
    /// [catch up](Face::catch_up).
    fn is_behind(&self) -> bool {
        false
    }

    /// So many of the answers that were owed are said now, in their order; see [`Shard::owed`](crate::Shard::owed).
    fn note_said(&mut self, _answers: usize) {}

    /// There is room: what was kept back may be said, and is asked for as [`ClientAnswer::Due`].
    fn catch_up(&mut self) {}

    /// Whether it takes one more message. Without room they wait in the queue of the session, until
    /// [`Shard::handle_room`](crate::Shard::handle_room).
    fn has_room(&self) -> bool {
        true
    }
}

/// See [`Face::packet_length`].
pub type PacketLength = fn(&[u8]) -> Option<usize>;

/// What a shard has to say to a client. Answers about messages name them by their delivery, as the client did.
#[derive(Clone, Copy, Debug)]
pub enum ClientAnswer<'a> {
    /// The client is connected, and goes on with a session from before or not.
    Welcome {
        /// There is a session from before.
        is_resumed: bool,
    },
    /// The client is not let in.
    Unwelcome {
        reason: ReasonCode,
        /// Why, in words, and when it may come back; none if that would change nothing.
        later: Option<(&'a str, Duration)>,
    },
    /// A message was taken.
    Taken {
        delivery: Delivery,
        /// Somebody gets it.
        is_reached: bool,
        /// The interval that would do, for who sends faster than it is read.
        interval: Option<Duration>,
    },
    /// A gate refused a message: there may be room for it later.
    Refused {
        delivery: Delivery,
        /// Why, and when.
        refusal: &'a Refusal,
    },
    /// A message was not taken, and will not be.
    Rejected { delivery: Delivery, reason: ReasonCode },
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
    /// Time has passed, or the driver wants to know: what the face has to say of itself, if anything.
    Due,
    /// The connection ends; nothing comes after this.
    Goodbye(&'a Why),
}

/// One copy of a publication, for one receiver. What all receivers have in common is behind a reference: a copy is made for
/// each of thousands.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingPublication<'a> {
    pub(crate) publication: &'a Publication<'a>,
    pub(crate) delivery: Delivery,
    pub(crate) retain: bool,
    pub(crate) ids: &'a SubscriptionIds,
    pub(crate) now: Timestamp,
}

impl<'a> OutgoingPublication<'a> {
    /// Its topic.
    #[inline]
    pub fn topic(&self) -> &'a str {
        self.publication.topic
    }

    /// What it says.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.publication.payload
    }

    /// Its attributes, with those that belong to the publisher's connection.
    #[inline]
    pub fn properties(&self) -> &'a Properties<'a> {
        &self.publication.properties
    }

    /// Guarantee and number.
    #[inline]
    pub fn delivery(&self) -> Delivery {
        self.delivery
    }

    /// The flag for this receiver.
    #[inline]
    pub fn retain(&self) -> bool {
        self.retain
    }

    /// Identifiers of the receiver's subscriptions that wanted it.
    #[inline]
    pub fn ids(&self) -> &'a [NonZeroU32] {
        self.ids.as_slice()
    }

    /// The time.
    #[inline]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Seconds left to live, if it has a lifetime.
    #[inline]
    pub fn seconds_left(&self) -> Option<u32> {
        self.publication.seconds_left(self.now)
    }
}

/// Encodings of one publication that its receivers share. Each face has its own type of them, and numbers for its shapes.
#[derive(Debug)]
pub struct Frames {
    /// Encoding once pays from the second receiver on.
    is_shared: bool,
    slots: [Option<Box<dyn Any>>; SHAPES_MAX],
}

/// Shapes of a publication, of all faces together: MQTT has two versions, with and without number; AMQP has one.
const SHAPES_MAX: usize = 5;

impl Frames {
    pub(crate) fn for_receivers(count: usize) -> Self {
        Self { is_shared: count > 1, slots: [const { None }; SHAPES_MAX] }
    }

    /// The encoding of this shape, if there is one of this type.
    #[inline]
    pub fn find<T: Any>(&self, shape: usize) -> Option<&T> {
        self.slots.get(shape)?.as_ref()?.downcast_ref()
    }

    /// The same, which is made if it is not there; none if it is not worth it, or cannot be made.
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
