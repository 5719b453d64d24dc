//! Connections to the broker behind a guard, one for each client, and the table of them.
//!
//! An upstream connection waits for the answer to a client's CONNECT, then it belongs to a connection that the core knows;
//! and when that is gone, it is closed when its last byte is out and the other side has closed, too.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};

use mio::net::TcpStream;
use mio::{Interest, Registry};
use rustls::ClientConnection;
use tidegate_control::Timestamp;
use tidegate_core::ConnId;
use tidegate_guard::LifeWatch;

use super::token;
use crate::limits::UPSTREAM_OUT_MAX;
use crate::link::{self, Encrypted, SourceState};
use crate::thread_message::Handover;

/// Whom an upstream connection is for.
#[derive(Debug)]
pub(super) enum UpstreamClient {
    /// A client whose CONNECT is not answered yet.
    Waiting(Box<Handover>),
    /// A client that was let in.
    Connected(ConnId),
    /// Its connection has ended without a last word: is the broker behind still there?
    Asking(ConnId),
    /// Nobody any more.
    Gone,
}

/// One connection to the broker behind.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about one socket")]
pub(super) struct UpstreamConnection {
    stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// Something was computed for the TLS handshake, and not charged yet.
    has_shaken: bool,
    pub(super) client: UpstreamClient,
    /// Steps of an authentication that were asked for, and whether the client owes the next word.
    pub(super) steps: u32,
    pub(super) is_clients_turn: bool,
    /// The address has answered.
    pub(super) is_open: bool,
    /// Bytes for the broker behind, from `sent` on.
    out: Vec<u8>,
    sent: usize,
    is_blocked: bool,
    /// Nothing more is sent after what is in `out`.
    is_finished: bool,
    /// Bytes of it that were not used yet, and how many must be there before it is worth looking.
    pub(super) kept: Vec<u8>,
    pub(super) at_least: usize,
    /// It is in the list of those that are read next.
    pub(super) is_queued: bool,
    /// It is not read until its client has taken something.
    pub(super) is_full: bool,
    /// The end was announced: a short read does not mean that there is nothing.
    pub(super) is_ending: bool,
    /// It has said its last word.
    pub(super) is_last: bool,
    /// Signs of life of its client.
    pub(super) life: LifeWatch,
    deadline: Option<Timestamp>,
    /// How much memory of it is in `Upstreams::bytes`.
    counted: usize,
}

/// What a read came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DownRead {
    /// So many bytes, and there may be more.
    Some(usize),
    /// So many bytes, and no more for now.
    Short(usize),
    /// Nothing for now.
    Nothing,
    /// The end.
    Ended,
}

impl UpstreamConnection {
    /// Begins to connect.
    pub(super) fn open(
        to: SocketAddr,
        tls: Option<ClientConnection>,
        client: UpstreamClient,
        now: Timestamp,
    ) -> io::Result<Self> {
        let stream = TcpStream::connect(to)?;
        // Messages are passed on as they come.
        let _ = stream.set_nodelay(true);
        Ok(Self {
            stream,
            tls: tls.map(Box::new),
            has_shaken: false,
            client,
            steps: 0,
            is_clients_turn: false,
            is_open: false,
            out: Vec::new(),
            sent: 0,
            is_blocked: true,
            is_finished: false,
            kept: Vec::new(),
            at_least: 1,
            is_queued: false,
            is_full: false,
            is_ending: false,
            is_last: false,
            life: LifeWatch::new(0, now),
            deadline: None,
            counted: 0,
        })
    }

    /// Whether a connection attempt came to something; none if that is not known yet.
    pub(super) fn is_connected(&mut self) -> Option<io::Result<()>> {
        match self.stream.take_error() {
            Ok(Some(error)) | Err(error) => return Some(Err(error)),
            Ok(None) => {}
        }
        match self.stream.peer_addr() {
            Ok(_) => Some(Ok(())),
            Err(error) if error.kind() == ErrorKind::NotConnected => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// The socket can be written to.
    pub(super) fn unblock(&mut self) {
        self.is_blocked = false;
    }

    /// Bytes for the broker behind, to be sent by `flush`.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// So much waits that its client is not to be read.
    pub(super) fn is_clogged(&self) -> bool {
        self.out.len() - self.sent >= UPSTREAM_OUT_MAX
    }

    /// Bytes of memory that it has.
    pub(super) fn bytes(&self) -> usize {
        self.out.capacity() + self.kept.capacity()
    }

    /// TLS has not been agreed on yet.
    pub(super) fn is_shaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.is_handshaking())
    }

    /// Whether something was computed for the TLS handshake since the last call.
    pub(super) fn take_shaken(&mut self) -> bool {
        core::mem::take(&mut self.has_shaken)
    }

    /// TLS has something to say of its own, or has just become ready for what waits.
    pub(super) fn wants_flush(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.wants_write() || self.sent < self.out.len())
    }

    /// Sends as much as the socket takes.
    pub(super) fn flush(&mut self, now: Timestamp) -> io::Result<()> {
        if !self.is_blocked {
            self.write_out(now)?;
        }
        let is_all = self.sent == self.out.len();
        if is_all {
            // A client that is silent costs no buffer.
            self.sent = 0;
            if self.out.capacity() > OUT_KEPT_BYTES {
                self.out = Vec::new();
            } else {
                self.out.clear();
            }
        } else if self.sent > UPSTREAM_OUT_MAX {
            self.out.drain(..core::mem::take(&mut self.sent));
        }
        if is_all && self.is_finished {
            self.say_end()?;
        }
        Ok(())
    }

    /// Writes what waits. During a TLS handshake that is its own words only.
    fn write_out(&mut self, now: Timestamp) -> io::Result<()> {
        let rest = self.out.get(self.sent..).unwrap_or_default();
        let sent = match &mut self.tls {
            None => link::send_to(&mut self.stream, [rest, &[]])?,
            Some(session) => {
                let rest = if session.is_handshaking() { &[] } else { rest };
                let sent = link::send_to(&mut Encrypted { session, stream: &mut self.stream }, [rest, &[]])?;
                let blocked = link::flush(session, &mut self.stream)?;
                link::SentBytes { blocked: sent.blocked || blocked, ..sent }
            }
        };
        if sent.taken > 0 {
            self.life.on_sent(now);
        }
        self.sent += sent.taken;
        self.is_blocked = sent.blocked;
        Ok(())
    }

    /// After the last byte, in TLS's words as well.
    fn say_end(&mut self) -> io::Result<()> {
        if let Some(session) = &mut self.tls {
            session.send_close_notify();
            self.is_blocked = link::flush(session, &mut self.stream)?;
        }
        if !self.is_blocked {
            self.is_finished = false;
            let _ = self.stream.shutdown(Shutdown::Write);
        }
        Ok(())
    }

    /// Nobody sends any more: what waits is sent, then the other side hears the end.
    pub(super) fn finish(&mut self, now: Timestamp) -> io::Result<()> {
        self.is_finished = true;
        self.flush(now)
    }

    /// One read into the start of `buffer`.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<DownRead> {
        let received = match &mut self.tls {
            None => link::receive_from(&mut self.stream, buffer)?,
            Some(session) => link::receive_tls(session, &mut self.stream, buffer, &mut self.has_shaken)?,
        };
        Ok(match (received.source, received.bytes) {
            (SourceState::Ended, 0) => DownRead::Ended,
            (SourceState::Drained, 0) => DownRead::Nothing,
            (SourceState::Drained, bytes) => DownRead::Short(bytes),
            (SourceState::Short, bytes) if !self.is_ending => DownRead::Short(bytes),
            (_, bytes) => DownRead::Some(bytes),
        })
    }
}

/// A buffer that is kept for the next message.
const OUT_KEPT_BYTES: usize = 4 * 1024;

/// All of a thread.
#[derive(Debug, Default)]
pub(super) struct Upstreams {
    slots: Vec<Option<UpstreamConnection>>,
    free: Vec<usize>,
    deadlines: BTreeSet<(Timestamp, usize)>,
    /// How many of a name wait for an answer to their CONNECT.
    waiting: BTreeMap<Box<str>, usize>,
    /// Those with something to read, in order.
    pub(super) ready: VecDeque<usize>,
    /// Those with something to send.
    pub(super) flush_next: Vec<usize>,
    /// Those whose clients have no room.
    pub(super) full: Vec<usize>,
    /// When a client that is not read is to be looked at.
    pub(super) look_at: Option<Timestamp>,
    bytes: usize,
}

impl Upstreams {
    /// Takes one in, known to the poll.
    pub(super) fn insert(
        &mut self,
        mut connection: UpstreamConnection,
        deadline: Timestamp,
        registry: &Registry,
    ) -> io::Result<usize> {
        let index = self.free.last().copied().unwrap_or(self.slots.len());
        registry.register(&mut connection.stream, token::upstream(index), Interest::READABLE | Interest::WRITABLE)?;
        self.free.pop();
        if index == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[index] = Some(connection);
        self.weigh(index);
        self.set_deadline(index, Some(deadline));
        Ok(index)
    }

    pub(super) fn get(&mut self, index: usize) -> Option<&mut UpstreamConnection> {
        self.slots.get_mut(index)?.as_mut()
    }

    pub(super) fn peek(&self, index: usize) -> Option<&UpstreamConnection> {
        self.slots.get(index)?.as_ref()
    }

    /// It is over.
    pub(super) fn remove(&mut self, index: usize) -> Option<UpstreamConnection> {
        self.set_deadline(index, None);
        let removed = self.slots.get_mut(index)?.take()?;
        if let UpstreamClient::Waiting(handover) = &removed.client {
            self.wait_no_longer(&handover.client_id);
        }
        self.bytes -= removed.counted;
        self.free.push(index);
        Some(removed)
    }

    /// A client's CONNECT goes to the broker behind, and it waits for the answer.
    pub(super) fn ask_for(&mut self, index: usize, handover: Handover) {
        let Some(connection) = self.slots.get_mut(index).and_then(Option::as_mut) else { return };
        *self.waiting.entry((*handover.client_id).into()).or_default() += 1;
        connection.push(&handover.connect);
        connection.client = UpstreamClient::Waiting(Box::new(handover));
        self.weigh(index);
    }

    /// Who waited there for an answer, which has come.
    pub(super) fn take_waiting(&mut self, index: usize) -> Option<Handover> {
        let client = &mut self.slots.get_mut(index)?.as_mut()?.client;
        let UpstreamClient::Waiting(handover) = std::mem::replace(client, UpstreamClient::Gone) else { return None };
        self.wait_no_longer(&handover.client_id);
        Some(*handover)
    }

    fn wait_no_longer(&mut self, name: &str) {
        if let Some(count) = self.waiting.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                self.waiting.remove(name);
            }
        }
    }

    /// Whether a client of this name waits for an answer.
    pub(super) fn awaits(&self, name: &str) -> bool {
        self.waiting.contains_key(name)
    }

    /// By when something has to have happened; none: never.
    pub(super) fn set_deadline(&mut self, index: usize, deadline: Option<Timestamp>) {
        let Some(connection) = self.slots.get_mut(index).and_then(Option::as_mut) else { return };
        if let Some(before) = std::mem::replace(&mut connection.deadline, deadline) {
            self.deadlines.remove(&(before, index));
        }
        self.deadlines.extend(deadline.map(|at| (at, index)));
    }

    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// One whose time is up.
    pub(super) fn pop_due(&mut self, now: Timestamp) -> Option<usize> {
        let (at, index) = *self.deadlines.first()?;
        if at > now {
            return None;
        }
        self.set_deadline(index, None);
        Some(index)
    }

    /// It has something to read, once.
    pub(super) fn queue(&mut self, index: usize) {
        if let Some(connection) = self.get(index)
            && !connection.is_queued
            && !connection.is_full
        {
            connection.is_queued = true;
            self.ready.push_back(index);
        }
    }

    /// These bytes go on by this one.
    pub(super) fn take(&mut self, index: usize, bytes: &[u8]) {
        if let Some(connection) = self.get(index).filter(|_| !bytes.is_empty()) {
            connection.push(bytes);
            self.flush_next.push(index);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }

    /// Every place that is taken.
    pub(super) fn indices(&self) -> Vec<usize> {
        (0..self.slots.len()).filter(|index| self.slots[*index].is_some()).collect()
    }

    /// Bytes of memory of all of them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts the memory of one, after that has changed.
    pub(super) fn weigh(&mut self, index: usize) {
        let Some(connection) = self.get(index) else { return };
        let after = connection.bytes();
        let before = std::mem::replace(&mut connection.counted, after);
        self.bytes = self.bytes - before + after;
    }
}
