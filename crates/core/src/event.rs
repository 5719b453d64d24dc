//! What happened: one type that feeds logs, metrics and checkers.

use alloc::string::String;
use alloc::sync::Arc;

use tidegate_wire_mqtt::{ReasonCode, Version};

use crate::access::Identity;
use crate::shard::ConnId;

/// Something worth telling. Per-message facts are counted in [`Stats`] instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client is connected.
    Connected {
        /// Its connection.
        conn: ConnId,
        /// Its identifier.
        client_id: Arc<str>,
        /// It went on with a session from before.
        session_present: bool,
        /// Who it is and where it came in.
        identity: Identity,
        /// The protocol that it speaks.
        version: Version,
        /// Seconds of silence that were agreed on; 0 is without end.
        keep_alive: u16,
    },
    /// A client was answered with a refusal; it never became connected.
    Refused {
        /// Its identifier.
        client_id: Arc<str>,
        /// Who it is and where it came in.
        identity: Identity,
        /// Why.
        reason: ReasonCode,
    },
    /// A connection ended.
    Disconnected {
        /// Its connection.
        conn: ConnId,
        /// Whose it was.
        client_id: Arc<str>,
        /// Why.
        why: Why,
    },
    /// A session ended: expired, cleaned or replaced.
    SessionEnded {
        /// Whose it was.
        client_id: Arc<str>,
    },
    /// A request was refused by the rules of access.
    Denied {
        /// Who asked.
        client_id: Arc<str>,
        /// What for: `publish`, `subscribe` or `will`.
        what: &'static str,
        /// The topic or filter.
        topic: String,
    },
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The client said goodbye.
    Goodbye,
    /// The socket was closed without a DISCONNECT, or failed.
    Lost,
    /// Nothing was heard for one and a half keep-alives.
    KeepAlive,
    /// Another connection took over the session.
    TakenOver,
    /// The client broke the protocol.
    Protocol {
        /// The reason code.
        reason: ReasonCode,
        /// What was wrong, with the section of the specification.
        detail: String,
    },
    /// The broker ended it, with this reason code (shutdown, kick, quota).
    Ended(ReasonCode),
}

macro_rules! stats {
    ($($(#[$meta:meta])* $name:ident,)+) => {
        /// Counters and gauges of one shard; sums over shards are meaningful.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats { $($(#[$meta])* pub $name: u64,)+ }

        impl Stats {
            /// Names and values, in order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }

            /// Adds another shard's.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
            }
        }
    };
}

stats! {
    /// Connections open now.
    connections,
    /// Sessions, connected or not.
    sessions,
    /// Subscriptions.
    subscriptions,
    /// Retained messages (each shard holds all of them; counted by the first shard only).
    retained_messages,
    /// Bytes of retained messages (first shard only).
    retained_bytes,
    /// Connections ever accepted by a session.
    connects,
    /// Packets received.
    packets_received,
    /// Packets sent.
    packets_sent,
    /// Bytes received.
    bytes_received,
    /// Bytes put into outboxes.
    bytes_sent,
    /// PUBLISH packets received.
    publish_received,
    /// PUBLISH packets sent, retransmissions included.
    publish_sent,
    /// Messages waiting in queues of sessions now.
    queued_messages,
    /// Bytes of them.
    queued_bytes,
    /// QoS 0 messages dropped because the receiver's outbox was full.
    dropped_outbox_full,
    /// Messages dropped because the session's queue was full; of retained ones, one for each filter that found no room.
    dropped_queue_full,
    /// Messages dropped because their lifetime was over.
    dropped_expired,
    /// Messages not sent because they are larger than the receiver accepts.
    dropped_too_large,
    /// Messages not delivered because the rules of access forbid it.
    dropped_denied,
    /// Messages refused because there is no room to retain them.
    dropped_retained_full,
    /// Messages dropped with a session that ended.
    dropped_session_ended,
    /// Messages of a shared subscription whose last member left while they were on their way.
    dropped_no_member,
    /// Messages dropped because the way to another shard was full.
    dropped_shard_full,
    /// Sessions that ended by expiry.
    sessions_expired,
}
