//! The ledger of one client: what became of every message that it sent, and of every one that was for it.
//!
//! ```text
//! in   received   = passed    + held   + losses whose side is In
//! out  deliveries = delivered + queued + under way + losses whose side is Out
//! ```
//! Both hold for each session at any time; and the ledgers of all sessions, with what those left behind that have
//! ended, are the counters of the shard ([`Shard::audit`](crate::Shard::audit) checks both). That is so because there is one way to count a
//! loss, which counts it in both places. The numbers that change with every message lie in the structures that are
//! touched for it anyway; losses are rare, and cost nothing until there is one.

use alloc::boxed::Box;

use crate::classes::ClassId;
use crate::event::{Imbalance, LedgerSide, Stats};
use crate::session::Session;
use crate::state::ShardState;

/// What became of one client's messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// PUBLISH packets received.
    pub received: u64,
    /// Of those: taken, that is retained and routed, at once or after a hold.
    pub passed: u64,
    /// Messages that were for this client.
    pub deliveries: u64,
    /// Of those: put into its outbox at QoS 0, or acknowledged.
    pub delivered: u64,
    pub bytes_received: u64,
    /// Bytes put into its outbox.
    pub bytes_sent: u64,
    pub(crate) losses: Option<Box<[u64; Loss::ALL.len()]>>,
}

macro_rules! losses {
    ($($(#[$meta:meta])* $loss:ident, $side:ident, $counter:ident;)+) => {
        /// Why a message went nowhere. Each is a counter of [`Stats`], too.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Loss { $($(#[$meta])* $loss,)+ }

        impl Loss {
            /// All of them.
            pub const ALL: [Self; [$(stringify!($loss)),+].len()] = [$(Self::$loss),+];

            /// The counter's name, for machines.
            pub fn name(self) -> &'static str {
                match self { $(Self::$loss => stringify!($counter),)+ }
            }

            /// Whether it was from the client or for it.
            pub fn side(self) -> LedgerSide {
                match self { $(Self::$loss => LedgerSide::$side,)+ }
            }

            /// The shard's counter.
            pub fn count(self, stats: &Stats) -> u64 {
                match self { $(Self::$loss => stats.$counter,)+ }
            }

            fn counter(self, stats: &mut Stats) -> &mut u64 {
                match self { $(Self::$loss => &mut stats.$counter,)+ }
            }
        }
    };
}

losses! {
    /// Recognised as sent again: not lost at all, what it repeats is counted once.
    Repeated, In, publish_repeated;
    /// Forbidden by the rules of access.
    Denied, In, publish_denied;
    /// It broke a rule of the protocol, or its payload was not what it says.
    Rejected, In, publish_rejected;
    /// Refused because the client is too fast, and told so.
    Refused, In, publish_refused;
    /// The memory budget is used up; at QoS 1 and 2 the client was told so.
    MemoryIn, In, publish_memory_budget;
    /// The queue of a receiver has no more room for its class, which wants it refused; the client was told so.
    ClassRefused, In, publish_class_full;
    /// The disk fails, and the client was told so.
    StoreError, In, publish_store_error;
    /// No room to retain it.
    RetainedFull, In, dropped_retained_full;
    /// The client was too fast, and had no room left to wait in.
    HeldFull, In, dropped_held_full;
    /// The client was too fast for too long.
    Rhythm, In, dropped_rhythm;
    /// The session ended while it was held.
    HeldEnded, In, dropped_held_ended;
    /// Its lifetime was over while it was held.
    HeldExpired, In, dropped_held_expired;
    /// The client does not take what waits for it.
    OutboxFull, Out, dropped_outbox_full;
    /// The client's queue was full.
    QueueFull, Out, dropped_queue_full;
    /// The bytes that its class may have waiting were used up.
    ClassBytes, Out, dropped_class_bytes;
    /// It waited longer than its class may.
    ClassDelay, Out, dropped_class_delay;
    /// A newer message of its topic took its place in the queue, as the class wants it.
    Conflated, Out, dropped_conflated;
    /// Its lifetime was over.
    Expired, Out, dropped_expired;
    /// Larger than the client accepts.
    TooLarge, Out, dropped_too_large;
    /// The rules of access forbid the client to have it.
    NotAllowed, Out, dropped_denied;
    /// The session ended.
    SessionEnded, Out, dropped_session_ended;
    /// The last member of a shared subscription left; nobody's in particular.
    NoMember, Out, dropped_no_member;
    /// The memory budget is used up.
    MemoryOut, Out, dropped_memory_budget;
    /// Those who are away have more waiting than their part of the memory budget.
    AbsentBudget, Out, dropped_absent_budget;
    /// The client is away, and this kind of message is not kept.
    Away, Out, dropped_away;
    /// It waited on disk and cannot be read any more.
    Unreadable, Out, dropped_unreadable;
}

impl Loss {
    /// Whether that is a refusal: the sender is told where its protocol and quality of service have a word for it. All others are
    /// losses: nobody is told.
    pub fn is_refusal(self) -> bool {
        matches!(
            self,
            Self::Denied | Self::Rejected | Self::Refused | Self::MemoryIn | Self::ClassRefused | Self::StoreError
        )
    }
}

impl Ledger {
    /// A message of the client's was taken.
    #[inline]
    pub(crate) fn pass(&mut self) {
        self.passed += 1;
    }

    /// A message is for the client.
    #[inline]
    pub(crate) fn begin_delivery(&mut self) {
        self.deliveries += 1;
    }

    /// The client has it.
    #[inline]
    pub(crate) fn finish_delivery(&mut self) {
        self.delivered += 1;
    }

    /// A message that waits is in one ledger at a time: from now on in that of another session of the same client.
    pub(crate) fn hand_over_received(&mut self, other: &mut Self) {
        self.received -= 1;
        other.received += 1;
    }

    /// Counts a loss, here and in the shard's counters.
    #[cold]
    pub(crate) fn lose(&mut self, loss: Loss, count: u64, stats: &mut Stats) {
        self.losses.get_or_insert_default()[loss as usize] += count;
        *loss.counter(stats) += count;
    }

    /// Counts a loss on the way out, in its class, too.
    pub(crate) fn lose_delivery(&mut self, loss: Loss, class: ClassId, stats: &mut Stats) {
        self.lose(loss, 1, stats);
        stats.by_class[class.index()].dropped += 1;
    }

    /// As it was when this many had been lost for this reason: for whoever kept the figures in another form.
    pub fn set_lost(&mut self, loss: Loss, count: u64) {
        if count > 0 {
            self.losses.get_or_insert_default()[loss as usize] = count;
        }
    }

    /// How many were lost for this reason.
    pub fn lost(&self, loss: Loss) -> u64 {
        self.losses.as_ref().map_or(0, |losses| losses[loss as usize])
    }

    /// How many were lost on this side; repetitions are not losses.
    pub fn lost_on(&self, side: LedgerSide) -> u64 {
        let counts = |loss: &&Loss| loss.side() == side && **loss != Loss::Repeated;
        Loss::ALL.iter().filter(counts).map(|loss| self.lost(*loss)).sum()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.passed += other.passed;
        self.deliveries += other.deliveries;
        self.delivered += other.delivered;
        self.bytes_received += other.bytes_received;
        self.bytes_sent += other.bytes_sent;
        if let Some(others) = &other.losses {
            let mine = self.losses.get_or_insert_default();
            mine.iter_mut().zip(others.iter()).for_each(|(mine, other)| *mine += other);
        }
    }

    /// How many of its messages were refused: its sender was told, where the protocol has a word for it.
    pub fn refused(&self) -> u64 {
        Loss::ALL.iter().filter(|loss| loss.is_refusal()).map(|loss| self.lost(*loss)).sum()
    }

    fn check(&self, held: usize, waiting: usize) -> Result<(), Imbalance> {
        let balance = |side, total, found| if total == found { Ok(()) } else { Err(Imbalance { side, total, found }) };
        let repeated = self.lost(Loss::Repeated);
        balance(LedgerSide::In, self.received, self.passed + repeated + held as u64 + self.lost_on(LedgerSide::In))?;
        balance(LedgerSide::Out, self.deliveries, self.delivered + waiting as u64 + self.lost_on(LedgerSide::Out))
    }
}

impl ShardState {
    /// The ledger of a session, with what its open connection has not handed in yet.
    pub(crate) fn ledger_of(&self, session: &Session) -> Ledger {
        let mut ledger = session.ledger.clone();
        if let Some(connection) = session.conn().and_then(|conn| self.connections.get(conn)) {
            ledger.add(&connection.traffic().as_ledger());
        }
        ledger
    }

    /// Counts a loss of the session at this place, or of nobody in particular.
    pub(crate) fn lose(&mut self, session: u32, loss: Loss) {
        let ledger = self.sessions.get_mut(session).map_or(&mut self.departed, |session| &mut session.ledger);
        ledger.lose(loss, 1, &mut self.stats);
    }

    /// The same on the way out.
    pub(crate) fn lose_delivery(&mut self, session: u32, loss: Loss, class: ClassId) {
        let ledger = self.sessions.get_mut(session).map_or(&mut self.departed, |session| &mut session.ledger);
        ledger.lose_delivery(loss, class, &mut self.stats);
    }

    pub(crate) fn audit(&self) -> Result<(), Imbalance> {
        let mut sum = self.departed.clone();
        for (_, session) in self.sessions.iter() {
            let ledger = self.ledger_of(session);
            ledger.check(session.held_len(), session.queue_len() + session.unconfirmed_len())?;
            sum.add(&ledger);
        }
        let stats = &self.stats();
        let held = self.sessions.iter().filter(|(_, session)| session.is_holding()).count() as u64;
        let away = self.sessions.iter().map(|(_, session)| session.away_bytes() as u64).sum();
        let slow = self.connections.iter().filter(|(_, it)| it.stalled_since().is_some()).count() as u64;
        let pairs = [
            (LedgerSide::In, stats.clients_held, held),
            (LedgerSide::Out, stats.clients_slow, slow),
            (LedgerSide::Out, self.memory.absent_bytes() as u64, away),
            (LedgerSide::In, stats.publish_received, sum.received),
            (LedgerSide::In, stats.publish_passed, sum.passed),
            (LedgerSide::Out, stats.deliveries, sum.deliveries),
            (LedgerSide::Out, stats.delivered, sum.delivered),
        ];
        let losses = Loss::ALL.iter().map(|loss| (loss.side(), loss.count(stats), sum.lost(*loss)));
        match pairs.into_iter().chain(losses).find(|(_, total, found)| total != found) {
            Some((side, total, found)) => Err(Imbalance { side, total, found }),
            None => Ok(()),
        }
    }
}
