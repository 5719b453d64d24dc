//! What is to outlive the process: told as changes, one batch for each turn, and promised only when they are kept.
//!
//! The shard says *what* changed ([`StoreChange`]); who drives it writes that down somewhere and says when it is there
//! (`Shard::handle_synced`). Until then everything that would promise it waits: answers in `owed`, QoS 2 messages to
//! lasting sessions in their windows. Only what outlives its connection is told: lasting sessions with what belongs to
//! them, and retained messages. Without a journal (the default) nothing here costs more than a look at a flag.
//!
//! Turns are numbered. A turn is *synced* when its own batch is kept, and *kept* when the shards that its messages went
//! to have said the same of theirs: they are asked with an envelope at the end of the turn (`Ask`), and answer when
//! their own batch is synced (`Kept`). If they have passed something of it on (the last member of a group has left), the
//! answer also waits for that shard's. That one was asked later than they were, so nobody waits in a circle.

mod health;
mod journal;
mod note;
mod owed;
mod page;
mod restore;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{PacketId, QoS};

use crate::access::Identity;
use crate::message::{Message, Publication};
pub use crate::queue::ID_SETS_MAX;
pub use crate::subscriptions::SubscriberOptions;

pub use crate::gate::SavedRhythm;
pub use health::Trouble;
pub(crate) use journal::{Journal, Until};
pub use page::Fetch;
pub(crate) use page::PageRequests;
pub use restore::{SavedDelivery, SavedMessage, SavedSession, SavedStage, SavedWill, wants_latest};

/// Where the store has a message, in the store's own words; zeroes are nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spot(pub [u64; 2]);

/// A message that somebody keeps; a handle to it.
#[derive(Clone, Debug)]
pub struct StoredMessage(pub(crate) Arc<Message>);

impl StoredMessage {
    /// Its number in the store.
    pub fn number(&self) -> u64 {
        self.0.number()
    }

    /// The store has it here under that number: it need not stay in memory for those who wait for it. To be told before
    /// `Shard::handle_synced` is, which acts upon it; that it was never told is all right, too.
    pub fn set_spot(&self, number: u64, spot: Spot) {
        // It may have been written a second time, under another number.
        if self.0.number() == number {
            self.0.set_spot(spot);
        }
    }

    /// Calls with what it is.
    pub fn read<T>(&self, with: impl FnOnce(&SavedMessage<'_>) -> T) -> T {
        let Publication { topic, payload, properties, qos, retain, expires, origin, standing } = self.0.view();
        let mut encoded = Vec::new();
        if !properties.is_empty() {
            properties.encode(&mut encoded, |_| true);
        }
        let standing = standing.bits();
        with(&SavedMessage { qos, retain, expires, origin, standing, topic, properties: &encoded, payload })
    }
}

/// One thing that is to be kept. Sessions and messages are numbers: those of this shard are its own, for ever.
#[derive(Clone, Debug)]
pub enum StoreChange {
    /// What came before belongs together: it may be kept without what follows, but only as a whole.
    Whole,
    /// A message, which is [`StoredMessage::number`]ed; those who need it follow.
    Message(StoredMessage),
    /// A session is there, or has changed.
    Session {
        session: u64,
        client_id: Arc<str>,
        /// Whose it is; where its client connects from is not kept.
        owner: Box<Identity>,
        /// How long it outlives its connection; `Duration::MAX` is for ever.
        expiry: Duration,
        /// When it ends; none while it is connected.
        ends: Option<Timestamp>,
    },
    /// A session and everything that waits for it is gone.
    SessionEnded { session: u64 },
    /// A subscription was made or changed.
    Subscribed {
        session: u64,
        /// As the client wrote it.
        filter: Box<str>,
        /// How it wants its messages.
        wish: SubscriberOptions,
    },
    /// A subscription is gone.
    Unsubscribed {
        session: u64,
        /// As the client wrote it.
        filter: Box<str>,
    },
    /// A message waits for a session.
    Queued {
        session: u64,
        /// Its place in the order of the session's messages.
        place: u64,
        message: u64,
        /// Quality of service of the delivery.
        qos: QoS,
        /// Flag of the delivery.
        retain: bool,
        /// Identifiers of the subscriptions that want it.
        ids: Box<[NonZeroU32]>,
    },
    /// It does not any more: acknowledged, expired or dropped.
    Dequeued { session: u64, place: u64 },
    /// It has this identifier now.
    Sent { session: u64, place: u64, packet_id: PacketId },
    /// The client has a QoS 2 message.
    Released { session: u64, place: u64 },
    /// A QoS 2 message of the client was taken.
    InboundNoted { session: u64, packet_id: PacketId },
    /// The identifier is free again.
    InboundReleased { session: u64, packet_id: PacketId },
    /// A topic has a retained message.
    Retained { topic: Box<str>, message: u64 },
    /// A topic has none any more.
    RetainedCleared { topic: Box<str> },
    /// A session has a will.
    Will {
        session: u64,
        message: u64,
        /// How long after the loss of the connection.
        delay: Duration,
        /// When it is due; none while the client is connected.
        due: Option<Timestamp>,
    },
    /// A will was published or taken back.
    WillCleared { session: u64 },
    /// A QoS 2 message of a lasting session is on its way to other shards, and was noted as taken.
    Routing { message: u64 },
    /// It has reached a session, or (0) those who keep retained messages.
    Reached { message: u64, session: u64 },
    /// It has reached a member of a shared subscription. That one may leave before a crash, or have another subscription
    /// by which the message reaches it, too: so its session does not tell.
    ReachedGroup {
        message: u64,
        /// Which group, as `$share/group/filter`.
        group: Box<str>,
    },
    /// It has reached everybody.
    Routed { message: u64 },
}

/// What one turn has to have written. To be written in order, each as a whole; see [`StoreChange::Whole`].
#[derive(Debug)]
pub struct Turn {
    /// To be told with [`Shard::handle_synced`](crate::Shard::handle_synced).
    pub position: u64,
    /// What changed; never empty.
    pub changes: Vec<StoreChange>,
}
