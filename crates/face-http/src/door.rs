//! All that a shard speaks HTTP with, as far as it outlives a request: streams, those whose connections are gone included.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use tidegate_control::Timestamp;
use tidegate_core::access::{HTTP_IDS, Identity};
use tidegate_core::event::{LedgerSide, Why};
use tidegate_core::ledger::Loss;
use tidegate_core::{ConnId, Hello, Portion, Progress, Shard};

use crate::answer::{Manner, put_stream};
use crate::event::put_missed;
use crate::first::HttpHello;
use crate::limits::{EXCHANGES_MAX, HEARTBEAT, KEEP_ALIVE_SECONDS, RESUME_FOR, TIMERS_PER_TURN_MAX, WAITING_MAX};
use crate::link::HttpLink;
pub use crate::link::Waits;
use crate::pages::Pages;
use crate::request;
use crate::stream::{Stream, StreamState};

/// What was counted at this door.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HttpStats {
    /// Requests that were read.
    pub requests: u64,
    /// Such as could not be understood, or not be answered to who sent them.
    pub malformed: u64,
    /// Streams that were begun.
    pub streams_begun: u64,
    /// Streams that somebody came back to.
    pub resumed: u64,
    /// Those that somebody came back to in vain.
    pub forgotten: u64,
    /// Events that were sent again.
    pub replayed: u64,
    /// Events of which somebody was told that they are missing.
    pub missed: u64,
    /// Streams that somebody listens to now.
    pub streams: u64,
    /// Streams that wait for who comes back.
    pub waiting: u64,
}

/// Somebody that was let in.
#[derive(Debug)]
pub struct Arrival<'a> {
    pub client_id: &'a str,
    pub identity: Identity,
    pub peer: SocketAddr,
    pub hello: &'a HttpHello,
}

/// The connection of somebody that was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entered {
    pub conn: ConnId,
    /// It is one that there was: a socket that it still has is to go.
    pub is_resumed: bool,
}

#[derive(Debug)]
struct Listening {
    token: Box<str>,
    due: Timestamp,
    /// Since when nobody listens.
    waits_since: Option<Timestamp>,
}

/// The door of one shard.
#[derive(Debug, Default)]
pub struct HttpDoor {
    tokens: BTreeMap<Box<str>, ConnId>,
    streams: BTreeMap<ConnId, Listening>,
    timers: BTreeSet<(Timestamp, ConnId)>,
    /// Those that nobody listens to, oldest first.
    waiting: BTreeSet<(Timestamp, ConnId)>,
    stats: HttpStats,
}

impl HttpDoor {
    /// What was counted.
    pub fn stats(&self) -> HttpStats {
        let waiting = self.waiting.len() as u64;
        HttpStats { streams: self.streams.len() as u64 - waiting, waiting, ..self.stats }
    }

    /// When to be called without being told.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Somebody comes in. None: the table of connections is full.
    pub fn enter(&mut self, shard: &mut Shard, arrival: Arrival<'_>, now: Timestamp) -> Option<Entered> {
        let Arrival { client_id, identity, peer, hello } = arrival;
        if let Some(conn) = self.resume(shard, &identity, hello, now) {
            // From now on it is there: what is said of addresses is said of this one.
            shard.set_peer(conn, &identity.peer);
            if let Some((link, _)) = shard.face_mut::<HttpLink>(conn) {
                link.peer = peer;
            }
            return Some(Entered { conn, is_resumed: true });
        }
        let token = client_id.strip_prefix(HTTP_IDS).unwrap_or(client_id);
        let manner = Manner { is_head: false, is_keep_alive: false, origin: hello.origin.as_deref().map(Box::from) };
        let mut link = HttpLink::new(peer, hello.proof.clone(), manner);
        if let Some(target) = &hello.stream {
            let charge = shard.memory().charge();
            // One that is not there any more begins anew under its name, and behind what its client has seen.
            let after = hello.after.as_ref().map(|after| after.number);
            link.stream = Some(Box::new(Stream::new(token, target, identity.clone(), after, charge)));
            link.is_unknown = hello.is_back;
            self.stats.streams_begun += 1;
            self.stats.forgotten += u64::from(hello.is_back);
        }
        let is_stream = link.stream.is_some();
        let token: Box<str> = token.into();
        let core_hello = Hello {
            client_id,
            identity,
            face: Box::new(link),
            objection: None,
            is_clean: true,
            expiry: Duration::ZERO,
            // A stream says that it is there; who reads it says nothing.
            keep_alive: if is_stream { 0 } else { KEEP_ALIVE_SECONDS },
            window: 1,
            // More than there are exchanges: the face says no before the core has to.
            inbound_max: EXCHANGES_MAX as u16 * 2,
            will: None,
            bytes: 0,
        };
        let conn = shard.connect(core_hello, now)?;
        if is_stream && shard.face_mut::<HttpLink>(conn).is_some() {
            self.tokens.insert(token.clone(), conn);
            self.streams.insert(conn, Listening { token, due: now, waits_since: None });
            self.watch(conn, now + HEARTBEAT);
        }
        Some(Entered { conn, is_resumed: false })
    }

    /// A stream that is still there goes on with another connection.
    fn resume(&mut self, shard: &mut Shard, identity: &Identity, hello: &HttpHello, now: Timestamp) -> Option<ConnId> {
        let (target, after) = (hello.stream.as_ref()?, hello.after.as_ref()?);
        let conn = *self.tokens.get(after.token.as_str())?;
        // Its session is gone already: nothing would ever come.
        if shard.is_closing(conn) {
            return None;
        }
        let lost = self.lost_of(shard, conn, now);
        let (link, _) = shard.face_mut::<HttpLink>(conn)?;
        let stream = link.stream.as_mut()?;
        if stream.state == StreamState::Closed || !stream.is_of(identity, target) {
            return None;
        }
        // What is in its outbox is remembered, and so is what waits behind that.
        stream.state = StreamState::Waiting;
        drain(shard, conn, now);
        let (link, _) = shard.face_mut::<HttpLink>(conn)?;
        let stream = link.stream.as_mut()?;
        stream.state = StreamState::Open;
        let mut out = Vec::new();
        let manner = Manner { origin: hello.origin.as_deref().map(Box::from), ..Manner::last() };
        put_stream(&manner, &mut out);
        out.push(b'\n');
        let (replayed, missing) = stream.put_after(after.number, &mut out);
        let more = lost.saturating_sub(core::mem::replace(&mut stream.lost_told, lost));
        if more > 0 {
            put_missed(Some(more), &mut out);
        }
        link.outgoing.append(&mut out);
        self.stats.resumed += 1;
        self.stats.replayed += replayed;
        self.stats.missed += missing.unwrap_or(0) + more;
        self.heard(conn);
        self.watch(conn, now + HEARTBEAT);
        shard.say_due(conn);
        Some(conn)
    }

    /// Bytes of a connection that were read as this portion.
    pub fn handle_portion(
        &mut self,
        shard: &mut Shard,
        conn: ConnId,
        bytes: &[u8],
        portion: &Portion,
        (pages, now): (&dyn Pages, Timestamp),
    ) -> Progress {
        let before = counted(shard, conn);
        let progress = shard.handle_portion_by(conn, bytes, portion, now, |shard, rest, moment| {
            request::step(shard, conn, rest, moment, pages)
        });
        let after = counted(shard, conn);
        self.stats.requests += after.0.saturating_sub(before.0);
        self.stats.malformed += after.1.saturating_sub(before.1);
        progress
    }

    /// What a connection waits for, if everything that was asked is answered.
    pub fn waits(&self, shard: &mut Shard, conn: ConnId) -> Option<Waits> {
        // An answer that waits for the disk is not in the outbox yet.
        if shard.owes(conn) {
            return None;
        }
        shard.face_mut::<HttpLink>(conn)?.0.settled()
    }

    /// Whether a connection waits for something when everything is answered.
    pub fn will_wait(&self, shard: &mut Shard, conn: ConnId) -> bool {
        shard.face_mut::<HttpLink>(conn).is_some_and(|(link, _)| link.waits != Waits::Nothing)
    }

    /// A client says no more. True: it is to be closed when it has its answers. (The reader of a stream has left.)
    pub fn handle_end(&self, shard: &mut Shard, conn: ConnId) -> bool {
        let link = shard.face_mut::<HttpLink>(conn).map(|(link, _)| link).filter(|link| link.stream.is_none());
        let Some(link) = link else { return false };
        // A request of somebody else is to be answered first: its connection hears of the end again.
        if link.waits != Waits::Switch {
            link.waits = Waits::Close;
        }
        true
    }

    /// The socket of a connection is gone. True: the connection stays, and waits for who comes back.
    pub fn handle_lost(&mut self, shard: &mut Shard, conn: ConnId, now: Timestamp) -> bool {
        let Some((link, _)) = shard.face_mut::<HttpLink>(conn) else { return false };
        let is_open = |stream: &&mut Box<Stream>| stream.state == StreamState::Open;
        let Some(stream) = link.stream.as_mut().filter(is_open).filter(|_| self.streams.contains_key(&conn)) else {
            return false;
        };
        stream.state = StreamState::Waiting;
        drain(shard, conn, now);
        if self.waiting.len() >= WAITING_MAX
            && let Some(&(_, oldest)) = self.waiting.first()
        {
            self.end(shard, oldest, now);
        }
        if let Some(listening) = self.streams.get_mut(&conn) {
            listening.waits_since = Some(now);
            self.waiting.insert((now, conn));
            self.watch(conn, now + RESUME_FOR);
        }
        true
    }

    /// A connection without a socket has something to write: it is remembered already. False if it is none of this door's.
    pub fn write_nowhere(&mut self, shard: &mut Shard, conn: ConnId, now: Timestamp) -> bool {
        let is_here = self.streams.contains_key(&conn);
        if is_here {
            drain(shard, conn, now);
        }
        is_here
    }

    /// The core has ended a connection.
    pub fn forget(&mut self, conn: ConnId) {
        self.heard(conn);
        if let Some(listening) = self.streams.remove(&conn) {
            self.timers.remove(&(listening.due, conn));
            // Another may have its name by now.
            if self.tokens.get(&listening.token) == Some(&conn) {
                self.tokens.remove(&listening.token);
            }
        }
    }

    /// Streams that have been silent, and those that nobody came back to.
    pub fn turn(&mut self, shard: &mut Shard, now: Timestamp) {
        for _ in 0..TIMERS_PER_TURN_MAX {
            let Some(&(at, conn)) = self.timers.first().filter(|(at, _)| *at <= now) else { return };
            self.timers.remove(&(at, conn));
            let is_waiting = self.streams.get(&conn).is_some_and(|listening| listening.waits_since.is_some());
            if is_waiting || shard.face_mut::<HttpLink>(conn).is_none() {
                self.end(shard, conn, now);
                continue;
            }
            self.tell_lost(shard, conn, now);
            if let Some((link, _)) = shard.face_mut::<HttpLink>(conn) {
                link.beat();
            }
            shard.say_due(conn);
            self.watch(conn, now + HEARTBEAT);
        }
    }

    /// Whoever reads too slowly is told what that has cost.
    fn tell_lost(&mut self, shard: &mut Shard, conn: ConnId, now: Timestamp) {
        let lost = self.lost_of(shard, conn, now);
        let Some((link, _)) = shard.face_mut::<HttpLink>(conn) else { return };
        let Some(stream) = link.stream.as_mut() else { return };
        let more = lost.saturating_sub(core::mem::replace(&mut stream.lost_told, lost));
        if more > 0 {
            put_missed(Some(more), &mut link.outgoing);
            self.stats.missed += more;
        }
    }

    /// Messages that were for a stream and that it does not get. Not those that it may not have: they are none of its
    /// reader's business.
    fn lost_of(&self, shard: &Shard, conn: ConnId, now: Timestamp) -> u64 {
        let client_id = self.streams.get(&conn).map(|listening| format!("{HTTP_IDS}{}", listening.token));
        let ledger = client_id.and_then(|client_id| Some(shard.client(&client_id, now)?.client.ledger));
        ledger.map_or(0, |ledger| ledger.lost_on(LedgerSide::Out) - ledger.lost(Loss::NotAllowed))
    }

    fn end(&mut self, shard: &mut Shard, conn: ConnId, now: Timestamp) {
        shard.handle_closed(conn, Why::Lost, now);
        self.forget(conn);
    }

    /// Somebody listens again, or never will.
    fn heard(&mut self, conn: ConnId) {
        if let Some(since) = self.streams.get_mut(&conn).and_then(|listening| listening.waits_since.take()) {
            self.waiting.remove(&(since, conn));
        }
    }

    fn watch(&mut self, conn: ConnId, due: Timestamp) {
        let Some(listening) = self.streams.get_mut(&conn) else { return };
        self.timers.remove(&(listening.due, conn));
        listening.due = due;
        self.timers.insert((due, conn));
    }
}

fn counted(shard: &mut Shard, conn: ConnId) -> (u64, u64) {
    shard.face_mut::<HttpLink>(conn).map_or((0, 0), |(link, _)| (link.requests, link.malformed))
}

/// Takes what is in the outbox of a connection that has no socket.
fn drain(shard: &mut Shard, conn: ConnId, now: Timestamp) {
    // An outbox has a lane for answers: it is empty after the second time.
    for _ in 0..4 {
        let bytes = shard.outbox(conn).iter().map(|slice| slice.len()).sum();
        if bytes == 0 {
            return;
        }
        shard.handle_written(conn, bytes, now);
    }
}
