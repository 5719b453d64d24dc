//! The whole outside surface of the broker's core.
//!
//! A [`Shard`] owns its connections, sessions, queues and outboxes; nothing in it is locked, and it knows no socket and
//! no clock. Its methods come in families: settings; verbs of
//! clients, which their face calls; `handle_*` (something else happened outside); `turn` (act); `poll_*` (what
//! the driver must do); questions (`ask.rs`); and the way back after a start (`restore.rs`). Nothing is decided here: each
//! method is one call of what has the same name on [`ShardState`].

mod ask;
mod passage;
mod read;
mod restore;

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use core::hash::BuildHasher;
use core::time::Duration;

use foldhash::quality::FixedState;
use tidegate_control::Timestamp;
use tidegate_control::pressure::Level;
use tidegate_control::rhythm::ArrivalTime;
use tidegate_wire_mqtt::{PacketId, ReasonCode, Subscription, TopicFilter};

use crate::access::{Identity, Policy};
use crate::between::{Batch, Unread};
use crate::connect::{ClientWill, Hello};
use crate::connection::Connection;
use crate::event::{Event, Why};
use crate::face::Face;
use crate::gate::{LimitsFull, Memory, Whom};
use crate::handover::{Confirmation, Misstep};
use crate::input::{Ending, Flow, NotLasting};
use crate::ledger::Loss;
use crate::persist::{Fetch, SavedMessage, Trouble, Turn};
use crate::publish::Incoming;
use crate::settings::{Rate, Settings};
use crate::state::ShardState;
use crate::subscribe::SubscriptionRequest;
use crate::tap::{Mapped, Tapped};

/// A connection of one shard. The driver keeps it beside the socket; a stale one is harmless everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId {
    /// Position in the shard's table: small and dense, usable as an index into the driver's own table.
    pub index: u32,
    /// Which of the connections that had this position.
    pub generation: u32,
}

/// Which shard owns the session of this client. All connections of a client belong there.
pub fn shard_of(client_id: &str, shards: usize) -> usize {
    // Any hash will do that all threads agree on; it decides about balance, not about safety.
    let hash = FixedState::with_seed(0).hash_one(client_id);
    (hash % shards.max(1) as u64) as usize
}

/// What reading a connection's bytes came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that were used; the driver keeps the rest.
    pub consumed: usize,
    /// Bytes (from the start of what is kept) that must be there before it is worth calling again.
    pub at_least: usize,
    /// Go on reading, or not.
    pub then: Then,
    /// Units of work that it was; see [`Portion`](crate::Portion).
    pub units: u32,
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Read on.
    Continue,
    /// Do not read this connection until [`Shard::may_read`] says so.
    Pause,
    /// It is over: write what is in the outbox (bounded in time) and close. `poll_close` names it too.
    Close,
}

/// One shard: the sessions of its clients and what it knows of all topics.
///
/// The contract in one sentence: *handle what arrived, turn once, drain every poll, sleep until `poll_timeout`*. The
/// driver must take batches from its inbox **after** it has read a socket's bytes and **before** it hands them to
/// a face: then a message published after a SUBACK was seen anywhere finds the subscription everywhere.
#[derive(Debug)]
pub struct Shard {
    state: ShardState,
}

impl Shard {
    /// For tests and drains: how long a closing connection may take to flush.
    pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
    /// The allowance of a connection to which nothing in excess was sent yet; see [`Shard::excess_allowance`].
    pub const NO_EXCESS_YET: u32 = crate::connection::NO_EXCESS_YET;

    /// A shard among `shards` of this process. The seed feeds the hash tables and numbers parents: it is drawn at each start,
    /// told to nobody, and the same for all shards of a broker.
    pub fn new(index: usize, shards: usize, settings: Arc<Settings>, policy: Arc<dyn Policy>, seed: u64) -> Self {
        Self { state: ShardState::new(index, shards, settings, policy, seed) }
    }

    /// New rules of access; they hold for what comes next, deliveries included.
    pub fn set_policy(&mut self, policy: Arc<dyn Policy>) {
        self.state.set_policy(policy);
    }

    /// The time of day, since 1970, when the clock that `now` is read from showed zero: times that leave the process are
    /// times of day. The same for all shards of a process; to be said before they talk.
    pub fn set_wall_clock(&mut self, zero: Duration) {
        self.state.set_wall_clock(zero);
    }

    /// New settings; they hold for new connections and new messages.
    pub fn set_settings(&mut self, settings: Arc<Settings>) {
        self.state.set_settings(settings);
    }

    /// What this shard may use, and how much of it the driver uses for it (buffers for input, batches that wait). To be
    /// told at the end of every turn, and at the beginning: a shard that was told nothing is not limited.
    pub fn set_memory(&mut self, max: usize, outside: usize) {
        self.state.set_memory(max, outside);
    }

    /// The driver has measured how hard the broker is pressed. No publisher is slowed for that.
    pub fn set_level(&mut self, level: Level) {
        self.state.set_level(level);
    }

    /// Limits the messages of a client or user, or stops doing so. Holds for what comes next; what is held stays held.
    pub fn set_limit(&mut self, whom: &Whom, rate: Option<Rate>, now: Timestamp) -> Result<(), LimitsFull> {
        self.state.set_limit(whom, rate, now)
    }

    /// Entitles a client, or each client of a user, to a rate, or stops doing so.
    pub fn set_grant(&mut self, whom: &Whom, rate: Option<Rate>, now: Timestamp) -> Result<(), LimitsFull> {
        self.state.set_grant(whom, rate, now)
    }

    /// Which messages are to be seen from now on, and as which user; the filters have been checked.
    pub fn set_taps(&mut self, filters: Arc<[Box<str>]>, user: Option<Arc<str>>) {
        self.state.set_taps(filters, user);
    }
}

/// Something happened.
impl Shard {
    /// A client says hello. What it is told is in the outbox when this returns, and a refused connection is named by
    /// `poll_close`. `None`: the table of connections is full.
    pub fn connect(&mut self, hello: Hello<'_>, now: Timestamp) -> Option<ConnId> {
        self.state.connect(hello, now)
    }

    /// A client sends a message. It is answered through the client's face: now, or when what the answer promises is true.
    pub fn publish(
        &mut self,
        conn: ConnId,
        incoming: &Incoming<'_>,
        came: ArrivalTime,
        now: Timestamp,
    ) -> Result<Flow, Ending> {
        self.state.publish_from(conn, incoming, came, now)
    }

    /// A client has sent a message that cannot be taken, for this reason; it is counted.
    pub fn note_lost_input(&mut self, conn: ConnId, loss: Loss) {
        self.state.note_lost_input(conn, loss);
    }

    /// A datagram with a message of so many bytes came while its connection is paused. Unlike bytes of a stream it does not wait
    /// anywhere until the connection is read again: it is counted as refused, and its sender is to be told.
    pub fn refuse_unread(&mut self, conn: ConnId, size: usize, now: Timestamp) {
        self.state.refuse_unread(conn, size, now);
    }

    /// A client says what became of a message that it was sent.
    pub fn confirm(
        &mut self,
        conn: ConnId,
        number: PacketId,
        confirmation: Confirmation,
        now: Timestamp,
    ) -> Result<(), Misstep> {
        self.state.confirm(conn, number, confirmation, now)
    }

    /// Nobody at a client will confirm a message that it was sent at least once: it is counted as lost.
    pub fn lose_inflight(&mut self, conn: ConnId, number: PacketId, loss: Loss, now: Timestamp) {
        self.state.lose_inflight(conn, number, loss, now);
    }

    /// Messages that the client has not confirmed and would have again: it gave them back, or nobody there took them before. The
    /// face is handed them once more, with the same numbers.
    pub fn offer_again(&mut self, conn: ConnId, numbers: &BTreeSet<PacketId>, now: Timestamp) {
        self.state.offer_again(conn, numbers, now);
    }

    /// Whether a client may publish to this topic, by the rules of now; for faces that would have to keep the beginning of a
    /// message before there is one to ask about.
    pub fn may_publish(&self, conn: ConnId, topic: &str) -> bool {
        let session = self.state.session_at(conn).and_then(|index| self.state.sessions.get(index));
        session.is_some_and(|session| self.state.may_publish(session.identity(), session.client_id(), topic, &[]))
    }

    /// A client will not send a message again that it sent exactly once: its number is free.
    pub fn release(&mut self, conn: ConnId, number: PacketId) {
        self.state.release_number(conn, number);
    }

    /// A client subscribes.
    pub fn subscribe<'s>(
        &mut self,
        conn: ConnId,
        request: SubscriptionRequest,
        subscriptions: impl Iterator<Item = Subscription<'s>>,
        now: Timestamp,
    ) {
        self.state.subscribe(conn, request, subscriptions, now);
    }

    /// A client wants no more of these.
    pub fn unsubscribe<'s>(&mut self, conn: ConnId, number: PacketId, filters: impl Iterator<Item = TopicFilter<'s>>) {
        self.state.unsubscribe(conn, number, filters);
    }

    /// A client asks for a sign of life.
    pub fn say_alive(&mut self, conn: ConnId) {
        self.state.say_alive(conn);
    }

    /// The face of a connection has something to say of itself: a repetition, an answer of the protocol alone.
    pub fn say_due(&mut self, conn: ConnId) {
        self.state.say_due(conn);
    }

    /// The same where answers have an order: behind those that wait for the disk.
    pub fn say_in_turn(&mut self, conn: ConnId) {
        self.state.say_in_turn(conn);
    }

    /// Answers to a client that wait for the disk.
    pub fn owed(&self, conn: ConnId) -> usize {
        self.state.connection(conn).map_or(0, Connection::owed_answers)
    }

    /// Whether an answer to this connection waits for the disk.
    pub fn owes(&self, conn: ConnId) -> bool {
        self.state.owes(conn)
    }

    /// Whether a connection is on its way out: it is told the last of what there is to say.
    pub fn is_closing(&self, conn: ConnId) -> bool {
        self.state.connection(conn).is_none_or(Connection::is_closing)
    }

    /// A client goes on from another address: bans and logs mean that one from now on.
    pub fn set_peer(&mut self, conn: ConnId, peer: &Arc<str>) {
        let session = self.state.connection(conn).map(Connection::session);
        if let Some(session) = session.and_then(|index| self.state.sessions.get_mut(index)) {
            session.set_peer(peer);
        }
    }

    /// A client that is about to leave says how long its session is to outlive the connection.
    pub fn set_session_expiry(&mut self, conn: ConnId, expiry: Duration) -> Result<(), NotLasting> {
        self.state.set_session_expiry(conn, expiry)
    }

    /// A client says what is to be published when its connection is lost, in place of what it said before.
    pub fn set_will(&mut self, conn: ConnId, will: Option<ClientWill<'_>>) -> Result<(), ReasonCode> {
        self.state.set_will(conn, will)
    }

    /// The face of a connection, if it is of this kind, and the memory that it may charge.
    pub fn face_mut<F: Face>(&mut self, conn: ConnId) -> Option<(&mut F, &Memory)> {
        self.state.face_mut(conn)
    }

    /// More of a packet came that is not whole yet: so much of it is there now. A sign of life, as long as the packet comes
    /// fast enough; slow ones have their own end.
    pub fn handle_partial(&mut self, conn: ConnId, bytes: usize, now: Timestamp) {
        self.state.handle_partial(conn, bytes, now);
    }

    /// The driver has something of this connection that it does not read yet, because others come first; or not any more. Who
    /// is not read cannot be blamed for silence.
    pub fn set_unread(&mut self, conn: ConnId, is_unread: bool) {
        self.state.set_unread(conn, is_unread);
    }

    /// So many bytes were written; none, if the socket takes no more. May refill the outbox from the session's queue; the connection is then named by
    /// `poll_write` again.
    pub fn handle_written(&mut self, conn: ConnId, bytes: usize, now: Timestamp) {
        self.state.handle_written(conn, bytes, now);
    }

    /// Bytes that may still be sent to this connection of what publishers send beyond their claims:
    /// [`Shard::NO_EXCESS_YET`] as long as there was nothing of it. None where everybody waits in one line.
    pub fn excess_allowance(&self, conn: ConnId) -> Option<u32> {
        self.state.excess_allowance(conn)
    }

    /// What the client has not read yet is known to the driver: of messages in excess it may be sent so many bytes more,
    /// whatever its socket would take; others do not wait for that.
    pub fn set_excess_allowance(&mut self, conn: ConnId, bytes: u32, now: Timestamp) {
        self.state.set_excess_allowance(conn, bytes, now);
    }

    /// The face of a connection has room for messages again; those that waited for it come.
    pub fn handle_room(&mut self, conn: ConnId, now: Timestamp) {
        self.state.handle_room(conn, now);
    }

    /// The socket is gone (or the driver gave up on it), and its place is free again. Harmless for one that is gone.
    pub fn handle_closed(&mut self, conn: ConnId, why: Why, now: Timestamp) {
        self.state.handle_closed(conn, why, now);
    }

    /// End one client's connection.
    pub fn handle_kick(&mut self, client_id: &str, reason: ReasonCode, now: Timestamp) {
        self.state.handle_kick(client_id, reason, now);
    }

    /// End one client's session, and its connection if it has one: its will is published, what waits for it is lost.
    pub fn handle_session_end(&mut self, client_id: &str, reason: ReasonCode, now: Timestamp) {
        self.state.handle_session_end(client_id, reason, now);
    }

    /// What a connection has shown is not valid any more: goodbye (MQTT 5: 0xA0), and it may come back with something new.
    pub fn handle_login_end(&mut self, conn: ConnId, now: Timestamp) {
        self.state.handle_login_end(conn, now);
    }

    /// End the connections of all clients that this is said of.
    pub fn handle_expel(&mut self, concerns: impl Fn(&str, &Identity) -> bool, reason: ReasonCode, now: Timestamp) {
        self.state.handle_expel(concerns, reason, now);
    }

    /// The broker is going down: goodbye with this reason to everybody that understands it, and close.
    pub fn handle_shutdown(&mut self, reason: ReasonCode, now: Timestamp) {
        self.state.handle_shutdown(reason, now);
    }

    /// A batch from another shard. One that cannot be read is not taken, and that is worth a line in the log: shards of one
    /// process write nothing of the kind.
    pub fn handle_batch(&mut self, batch: &Batch, now: Timestamp) -> Result<(), Unread> {
        self.state.handle_batch(batch, now)
    }

    /// The inbox of that shard was full: try again next turn. If these were changes of interest, nothing may be written
    /// until then; see [`Shard::may_write`].
    pub fn handle_batch_refused(&mut self, to: usize, batch: Batch) {
        self.state.handle_batch_refused(to, batch);
    }

    /// The broker itself publishes: `$SYS` topics. Retained, QoS 0, to all shards.
    pub fn handle_system(&mut self, topic: &str, payload: &[u8], now: Timestamp) {
        self.state.handle_system(topic, payload, now);
    }

    /// A map publishes.
    pub fn handle_mapped(&mut self, mapped: &Mapped, now: Timestamp) {
        self.state.handle_mapped(mapped, now);
    }

    /// A message that was seen found no room further on.
    pub fn handle_tap_full(&mut self) {
        self.state.handle_tap_full();
    }

    /// Every turn up to this one is written, and survives what it should survive.
    pub fn handle_synced(&mut self, position: u64, now: Timestamp) {
        self.state.handle_synced(position, now);
    }

    /// Whether anything can be kept at the moment; what could be before is told by `handle_synced` all the same.
    pub fn handle_store_health(&mut self, trouble: Option<Trouble>) {
        self.state.handle_store_health(trouble);
    }

    /// How long the store has been busy with one thing while something of this shard waits for it. A disk that stalls is not
    /// given much more to do: publishers of what has to be kept wait at a sixteenth of the bytes.
    pub fn handle_store_lag(&mut self, lag: Duration) {
        self.state.handle_store_lag(lag);
    }

    /// What was to be read: each message with its number, or none if it cannot be. Those are lost, and counted; the
    /// session goes on.
    pub fn handle_fetched<'a>(
        &mut self,
        fetch: &Fetch,
        read: impl FnMut(usize) -> Option<(u64, SavedMessage<'a>)>,
        now: Timestamp,
    ) {
        self.state.handle_fetched(fetch, read, now);
    }

    /// It cannot be read now and will be tried again later: others may have its place meanwhile. The answer is still
    /// [`Shard::handle_fetched`].
    pub fn handle_fetch_put_off(&mut self, fetch: &mut Fetch) {
        self.state.handle_fetch_put_off(fetch);
    }

    /// The turn is over, with all its writes, and took so long.
    pub fn handle_turned(&mut self, took: Duration) {
        self.state.handle_turned(took);
    }
}

/// What to do about it.
impl Shard {
    /// Timers: keep-alives, wills, expiries, releases. Retained messages that were not all sent. Bounded work.
    pub fn turn(&mut self, now: Timestamp) {
        self.state.turn(now);
    }

    /// A turn of a driver that comes so late that timers are long due, and that has not read yet what came in time.
    pub fn turn_without_timers(&mut self, now: Timestamp) {
        self.state.turn_without_timers(now);
    }

    /// Whether anything may be written. Not while another shard has refused a change of interest: the answer to who caused
    /// it may be in any outbox, and must not be seen before it is true.
    pub fn may_write(&self) -> bool {
        self.state.may_write()
    }

    /// A connection that has new bytes to write; each is named once until its outbox is written. None while nothing may be.
    pub fn poll_write(&mut self) -> Option<ConnId> {
        self.state.poll_write()
    }

    /// The bytes to write next, as up to two slices (for one vectored write); what `handle_written` then lists again has
    /// more.
    pub fn outbox(&self, conn: ConnId) -> [&[u8]; 2] {
        self.state.outbox(conn)
    }

    /// Bytes that this connection takes in a moment, by its pace of late: what may lie before it where nothing can be
    /// overtaken. Without priorities nothing is, and there is no need to keep it short.
    pub fn room_ahead(&self, conn: ConnId, now: Timestamp) -> usize {
        self.state.room_ahead(conn, now)
    }

    /// Whether a paused connection may be read again; asked at the end of a turn for those that were paused.
    pub fn may_read(&self, conn: ConnId) -> bool {
        self.state.may_read(conn)
    }

    /// A connection to close once its outbox has been written, or at the latest after a bounded time. The driver closes
    /// the socket and says so with `handle_closed`, which frees its place.
    pub fn poll_close(&mut self) -> Option<ConnId> {
        self.state.poll_close()
    }

    /// What waits for another shard, changes of interest first. Push it into that shard's bounded inbox before anything
    /// is written to a socket; if the inbox is full, give it back and ask again next turn.
    pub fn poll_batch(&mut self, to: usize) -> Option<Batch> {
        self.state.poll_batch(to)
    }

    /// What this turn has to have written, if anything. To be asked once at the end of each turn, after `turn` and before
    /// `poll_batch`: what goes to other shards must not be kept there before this is here.
    pub fn poll_journal(&mut self) -> Option<Turn> {
        self.state.poll_journal()
    }

    /// The last turn that somebody waits for: a client for an answer, a session for what it may send, another shard. What is
    /// written of later ones (that something was acknowledged, mostly) may wait for company a little.
    pub fn awaited_turn(&self) -> u64 {
        self.state.awaited_turn()
    }

    /// Something is to be read from the store. The answer is [`Shard::handle_fetched`], for each, in any order.
    pub fn poll_fetch(&mut self) -> Option<Fetch> {
        self.state.poll_fetch()
    }

    /// The next message that was seen.
    pub fn poll_tapped(&mut self) -> Option<Tapped> {
        self.state.poll_tapped()
    }

    /// What happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.state.poll_event()
    }

    /// When `turn` should be called at the latest.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.state.poll_timeout()
    }

    /// When the first timer is due; it may mean nothing any more.
    pub fn next_timer(&self) -> Option<Timestamp> {
        self.state.next_timer()
    }
}
