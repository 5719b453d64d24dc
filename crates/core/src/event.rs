//! What happened: one type that feeds logs, metrics and checkers.
//!
//! *The ledger.* Every message is somewhere, at any time, on every shard; [`Stats::check`] is asked in every test.
//! ```text
//! in   publish_received = publish_passed + publish_repeated + publish_denied + publish_rejected + publish_refused
//!                       + publish_memory_budget + publish_store_error + publish_class_full + dropped_retained_full
//!                       + held_messages + dropped_held_full + dropped_rhythm + dropped_held_ended
//!                       + dropped_held_expired
//! out  deliveries       = delivered + queued_messages + inflight_messages
//!                       + dropped_{outbox_full, queue_full, class_bytes, class_delay, conflated, expired, too_large,
//!                         denied, session_ended, no_member, away, unreadable, memory_budget, absent_budget}
//! ```
//! A delivery is one message for one receiver. A retained message that answers a subscription becomes one when its turn
//! comes, and not before: what is still to be sent of them is in neither sum. `dropped_shard_full` is in neither sum: nobody knows how many receivers
//! the other shard has. Wills and `$SYS` come in by no PUBLISH, and go out as deliveries like all others; a will that
//! is forbidden (`wills_denied`) goes nowhere, and is in neither sum.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::ReasonCode;

use crate::access::Identity;
use crate::classes::{CLASSES_MAX, ClassId};
use crate::persist::Trouble;
use crate::report::Parting;
use crate::shard::ConnId;

/// Something worth telling. Per-message facts are counted in [`Stats`] instead.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A client is connected.
    Connected {
        /// Its connection.
        conn: ConnId,
        client_id: Arc<str>,
        /// It went on with a session from before.
        session_present: bool,
        /// Who it is and where it came in.
        identity: Identity,
        /// The protocol that it speaks, and its version.
        protocol: &'static str,
        /// Seconds of silence that were agreed on; 0 is without end.
        keep_alive: u16,
    },
    /// A client was answered with a refusal; it never became connected.
    Refused {
        client_id: Arc<str>,
        /// Who it is and where it came in.
        identity: Identity,
        reason: ReasonCode,
    },
    /// A connection ended.
    Disconnected {
        /// Its connection.
        conn: ConnId,
        client_id: Arc<str>,
        why: Why,
        /// Whose connection it was and what went over it.
        parting: Box<Parting>,
    },
    /// A session ended: expired, cleaned or replaced.
    SessionEnded { client_id: Arc<str> },
    /// A request was refused by the rules of access.
    Denied {
        /// Who asked.
        client_id: Arc<str>,
        /// What for: `publish`, `subscribe` or `will`.
        what: &'static str,
        /// The topic or filter.
        topic: String,
    },
    /// A publisher is too fast, and its messages have to wait; told once, until it has recovered.
    Slowed {
        client_id: Arc<str>,
        /// Its usual interval; none if that is not known yet.
        interval: Option<Duration>,
        /// Messages per second of late.
        rate: f64,
        /// Until when the first of them waits.
        until: Timestamp,
    },
    /// A publisher was disconnected for its rate again and again, and should not be let in for this time.
    Outlawed {
        client_id: Arc<str>,
        /// Who it is and where it came in.
        identity: Identity,
        /// For how long; capped.
        time: Duration,
    },
    /// The rhythm that is known of a publisher has become four times as fast, slowly enough to be learned.
    Drifted {
        client_id: Arc<str>,
        /// The interval between its messages before.
        from: Duration,
        /// The interval now.
        to: Duration,
    },
    /// The store takes nothing (with the reason), or takes again what it is given.
    Store {
        /// Why; none if all is well.
        trouble: Option<Trouble>,
    },
    /// A publisher that was slowed has kept its rhythm for some time.
    Recovered { client_id: Arc<str> },
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
        reason: ReasonCode,
        /// What was wrong, with the section of the specification.
        detail: String,
    },
    /// The client published too fast for too long.
    TooFast {
        /// The interval between its messages that was learned.
        interval: Option<Duration>,
        /// When it may come back.
        retry_after: Duration,
    },
    /// The client took nothing of what waited for it for too long.
    NotReading {
        /// Bytes that waited in its outbox.
        bytes: usize,
        /// Messages that waited behind them.
        messages: usize,
    },
    /// The broker ended it, with this reason code (shutdown, kick, quota).
    Ended(ReasonCode),
    /// The other broker, behind this one, has ended it: with its own last word, or none.
    UpstreamClosed,
    /// The other broker, behind this one, cannot be reached any more.
    UpstreamLost,
}

macro_rules! stats {
    ($($(#[$meta:meta])* $name:ident,)+) => {
        /// Counters and gauges of one shard; sums over shards are meaningful.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$meta])* pub $name: u64,)+
            /// The same, in short, by class.
            pub by_class: [ClassStats; CLASSES_MAX],
        }

        impl Stats {
            /// Names and values, in order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }

            /// Adds another shard's.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
                for (sum, class) in self.by_class.iter_mut().zip(&other.by_class) {
                    sum.received += class.received;
                    sum.deliveries += class.deliveries;
                    sum.delivered += class.delivered;
                    sum.dropped += class.dropped;
                }
            }
        }
    };
}

/// What became of the messages of one class, by [`ClassId::index`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Messages taken from publishers.
    pub received: u64,
    /// Messages times receivers.
    pub deliveries: u64,
    /// Of those: put into an outbox at QoS 0, or acknowledged.
    pub delivered: u64,
    /// Of those: dropped, for whatever reason.
    pub dropped: u64,
}

impl ClassStats {
    /// Deliveries that wait in a queue, or for an acknowledgement.
    pub fn waiting(&self) -> u64 {
        self.deliveries.saturating_sub(self.delivered + self.dropped)
    }
}

impl Stats {
    /// Deliveries are counted once each, by class; the sums are made when somebody looks.
    pub(crate) fn with_sums(self) -> Self {
        let sum = |part: fn(&ClassStats) -> u64| self.by_class.iter().map(part).sum();
        Self { deliveries: sum(|class| class.deliveries), delivered: sum(|class| class.delivered), ..self }
    }

    /// One message is to go to one receiver. Exactly one of the two below follows, sooner or later.
    #[inline]
    pub(crate) fn begin_delivery(&mut self, class: ClassId) {
        self.by_class[class.index()].deliveries += 1;
    }

    #[inline]
    pub(crate) fn finish_delivery(&mut self, class: ClassId) {
        self.by_class[class.index()].delivered += 1;
    }

    /// Whether every message is accounted for; see the head of this file.
    pub fn check(&self) -> Result<(), Imbalance> {
        let balance = |side, total, parts: &[u64]| {
            let found = parts.iter().sum();
            if total == found { Ok(()) } else { Err(Imbalance { side, total, found }) }
        };
        balance(
            LedgerSide::In,
            self.publish_received,
            &[
                self.publish_passed,
                self.publish_repeated,
                self.publish_denied,
                self.publish_rejected,
                self.publish_refused,
                self.publish_memory_budget,
                self.publish_store_error,
                self.publish_class_full,
                self.dropped_retained_full,
                self.held_messages,
                self.dropped_held_full,
                self.dropped_rhythm,
                self.dropped_held_ended,
                self.dropped_held_expired,
            ],
        )?;
        balance(
            LedgerSide::Out,
            self.deliveries,
            &[
                self.delivered,
                self.queued_messages,
                self.inflight_messages,
                self.dropped_outbox_full,
                self.dropped_queue_full,
                self.dropped_class_bytes,
                self.dropped_class_delay,
                self.dropped_no_member,
                self.dropped_expired,
                self.dropped_too_large,
                self.dropped_denied,
                self.dropped_session_ended,
                self.dropped_away,
                self.dropped_memory_budget,
                self.dropped_absent_budget,
                self.dropped_unreadable,
                self.dropped_conflated,
            ],
        )?;
        let classes = |part: fn(&ClassStats) -> u64| self.by_class.iter().map(part).collect::<Vec<_>>();
        balance(LedgerSide::Classes, self.queued_messages + self.inflight_messages, &classes(ClassStats::waiting))
    }
}

/// Messages are missing from the ledger, or in it twice: a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imbalance {
    pub side: LedgerSide,
    /// Messages or deliveries that there are.
    pub total: u64,
    /// Those whose fate is known.
    pub found: u64,
}

/// A side of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerSide {
    /// From publishers.
    In,
    /// To receivers.
    Out,
    /// The same by class.
    Classes,
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
    /// Clients not let in because the broker is too busy, or has no memory.
    connects_refused_busy,
    /// Clients not let in because their user or network brought too many new names.
    connects_refused_rate,
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
    /// Of those: taken, that is retained and routed, at once or after a hold.
    publish_passed,
    /// Recognised as sent again; what they repeat is counted once.
    publish_repeated,
    /// Forbidden by the rules of access.
    publish_denied,
    /// Not taken for what they are: broken rules of the protocol, a wrong payload format.
    publish_rejected,
    /// Refused because the publisher is too fast, and told so: QoS 1 and 2, and QoS 0 where there is a word for it.
    publish_refused,
    /// PUBLISH packets not taken because the memory budget is used up; those of QoS 1 and 2 were told so.
    publish_memory_budget,
    /// PUBLISH packets of QoS 1 and 2 not taken because the disk fails; they were told so.
    publish_store_error,
    /// PUBLISH packets of QoS 1 and 2 not taken because the queue of a receiver has no more room for their class, which
    /// wants them refused; they were told so.
    publish_class_full,
    /// QoS 0 messages that were delivered and not retained, because the disk fails and too much waits for it.
    retained_store_error,
    /// Messages that were delivered and not retained, because there is no room for them: of clients before MQTT 5, wills, and
    /// copies on other shards.
    retained_memory_budget,
    /// Clients of whom messages are held now.
    clients_held,
    /// Clients that do not take what waits for them, or not as fast as it comes.
    clients_slow,
    /// Of those received: had to wait because their publisher was too fast, however long and whatever became of them.
    publish_held,
    /// Messages of publishers that are held now.
    held_messages,
    /// Bytes of them.
    held_bytes,
    /// PUBLISH packets sent, retransmissions included.
    publish_sent,
    /// Messages times receivers.
    deliveries,
    /// Of those: put into an outbox at QoS 0, or acknowledged.
    delivered,
    /// Sent at QoS 1 or 2, and not yet acknowledged.
    inflight_messages,
    /// Messages waiting in queues of sessions now.
    queued_messages,
    /// Bytes of them.
    queued_bytes,
    /// Of those messages: on disk, and not in memory.
    queued_on_disk,
    /// QoS 0 messages dropped because the receiver's outbox was full.
    dropped_outbox_full,
    /// Messages dropped because the session's queue was full. Never retained ones that answer a subscription: those wait
    /// where they are kept.
    dropped_queue_full,
    /// Of those: messages that had waited the longest for their publisher, and made room for another one.
    dropped_queue_oldest,
    /// Messages dropped because the bytes that their class may have waiting in one queue were used up.
    dropped_class_bytes,
    /// Messages that waited longer for their receiver than their class may.
    dropped_class_delay,
    /// Messages replaced, while they waited, by a newer one of their topic, in a class that wants only the newest.
    dropped_conflated,
    /// Messages whose sender claimed a class that it has no right to; they went on without it.
    class_claims_ignored,
    /// Messages dropped because their lifetime was over.
    dropped_expired,
    /// Messages not sent because they are larger than the receiver accepts.
    dropped_too_large,
    /// Messages not delivered because the rules of access forbid the receiver to have them.
    dropped_denied,
    /// Wills not published because the rules of access forbid them by now.
    wills_denied,
    /// PUBLISH packets not taken because there is no room to retain them.
    dropped_retained_full,
    /// Messages dropped with a session that ended.
    dropped_session_ended,
    /// Messages of a shared subscription whose last member left while they were on their way.
    dropped_no_member,
    /// Messages dropped because the way to another shard was full.
    dropped_shard_full,
    /// Messages for clients that are away and for which this kind of message is not kept.
    dropped_away,
    /// Messages that waited on disk and cannot be read any more: damage has taken them.
    dropped_unreadable,
    /// Deliveries dropped because the memory budget is used up.
    dropped_memory_budget,
    /// Deliveries dropped because those who are away have more waiting than their part of the memory budget.
    dropped_absent_budget,
    /// QoS 0 messages of a publisher that was too fast and had no room left to wait in.
    dropped_held_full,
    /// QoS 0 messages of a publisher that was too fast for too long.
    dropped_rhythm,
    /// Held messages, never acknowledged, whose session ended.
    dropped_held_ended,
    /// Held messages whose lifetime was over before they were released.
    dropped_held_expired,
    /// Sessions that ended by expiry.
    sessions_expired,
    /// Messages that a map wanted and had no room for.
    map_queue_full,
    /// Messages that maps have published.
    map_published,
    /// Messages of maps that the rules of access forbid, whose topic has too many levels or begins with `$`.
    map_publish_denied,
}
