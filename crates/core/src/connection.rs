//! One connection: what is only true as long as the socket is open.

use alloc::boxed::Box;
use core::time::Duration;

use tidegate_control::Timestamp;

use crate::drain::Drain;
use crate::face::Face;
use crate::gate::Silent;
use crate::ledger::Ledger;
use crate::limits::UNREAD_MAX;
use crate::outbox::{Outbox, Spares};
use crate::persist::{Owed, Until};

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one socket, and each a byte")]
pub(crate) struct Connection {
    pub(crate) session: u32,
    pub(crate) outbox: Outbox,
    /// How it is spoken to.
    pub(crate) face: Box<dyn Face>,
    /// There is a word to refuse a message with.
    pub(crate) hears_refusals: bool,
    /// And a message of QoS 0, too.
    pub(crate) hears_every_refusal: bool,
    /// Its face is asked before each message.
    is_credited: bool,
    /// Messages of it, at most, that wait for an answer.
    pub(crate) inbound_max: u16,
    pub(crate) since: Timestamp,
    pub(crate) seen_at: Timestamp,
    /// When it was last known to be read dry, as of the last time it was read.
    pub(crate) dry_at: Timestamp,
    /// The driver has something to read of it, and reads others first.
    pub(crate) is_unread: bool,
    /// When it was last told of a pace.
    hinted_at: Timestamp,
    /// How it stands as long as it does not publish.
    pub(crate) silent: Silent,
    /// Counted here because a connection is touched for every packet anyway.
    pub(crate) traffic: Traffic,
    /// One and a half keep-alives; none if the client may be silent for ever.
    pub(crate) patience: Option<Duration>,
    /// Not read now: its publisher is too fast, and its version has no other word for it.
    pub(crate) pause: Option<Pause>,
    /// Since when QoS 0 of it is left unread now and then, and nothing but messages was read.
    unread_since: Option<Timestamp>,
    /// Whether it goes on with a session from before, so that packets of the connection before may be repeated.
    pub(crate) is_resumed: bool,
    /// Since when a packet is being received, and how long it may take.
    partial: Option<(Timestamp, Duration)>,
    /// Since when it takes nothing of what waits for it.
    stalled_since: Option<Timestamp>,
    /// How fast it takes it.
    drain: Drain,
    /// The room that follows from that, and as of when.
    room: (Timestamp, usize),
    /// Bytes in the outbox, at most, that answer what the client sent.
    answer_bytes: usize,
    /// A timer for one of the two is set.
    is_watched: bool,
    /// Answers that wait until what they promise is kept.
    pub(crate) owed: Option<Box<Owed>>,
    /// Its welcome may not be written before this, nor anything else.
    pub(crate) welcome_after: Option<Until>,
    /// It was told that there is no room for retained messages.
    is_told_of_room: bool,
    /// Named by `poll_write` already.
    is_listed: bool,
    /// Nothing more is read or sent; the rest of the outbox is written, then it closes.
    pub(crate) is_closing: bool,
}

/// What went over a connection; handed to the session's ledger when it ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) received: u64,
    pub(crate) delivered: u64,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_sent: u64,
}

impl Traffic {
    pub(crate) fn as_ledger(&self) -> Ledger {
        let Self { received, delivered, bytes_received, bytes_sent } = *self;
        Ledger { received, delivered, bytes_received, bytes_sent, ..Ledger::default() }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    pub(crate) since: Timestamp,
    pub(crate) until: Timestamp,
    /// Too short to be told of.
    pub(crate) is_brief: bool,
}

impl Connection {
    pub(crate) fn new(face: Box<dyn Face>, session: u32, inbound_max: u16, now: Timestamp) -> Self {
        Self {
            session,
            outbox: Outbox::new((!face.keeps_order()).then(|| face.packet_length())),
            is_credited: face.is_credited(),
            hears_refusals: face.hears_refusals(),
            hears_every_refusal: face.hears_every_refusal(),
            face,
            inbound_max,
            since: now,
            seen_at: now,
            dry_at: now,
            is_unread: false,
            hinted_at: Timestamp::ZERO,
            silent: Silent::default(),
            traffic: Traffic::default(),
            patience: None,
            pause: None,
            unread_since: None,
            is_resumed: false,
            partial: None,
            stalled_since: None,
            drain: Drain::new(now),
            room: (Timestamp::MAX, 0),
            answer_bytes: 0,
            is_watched: false,
            owed: None,
            welcome_after: None,
            is_told_of_room: false,
            is_listed: false,
            is_closing: false,
        }
    }
}

impl Connection {
    /// Until when messages of QoS 0 that have no room may stay unread; none if they are to be dropped. A ping may be behind
    /// them: half a keep-alive on the wire, then as long without, so that what is behind comes in sight.
    pub(crate) fn may_leave_unread(&mut self, now: Timestamp) -> Option<Timestamp> {
        let time = self.patience.map_or(UNREAD_MAX, |patience| (patience / 3).min(UNREAD_MAX));
        let since = self.unread_since.filter(|since| now.since(*since) < 2 * time).unwrap_or(now);
        self.unread_since = Some(since);
        Some(since + time).filter(|until| *until > now)
    }

    /// From now on the driver has to be told of it; false if it was told already.
    #[inline]
    pub(crate) fn list(&mut self) -> bool {
        !core::mem::replace(&mut self.is_listed, true)
    }

    /// The driver was told of it.
    pub(crate) fn unlist(&mut self) {
        self.is_listed = false;
    }

    /// Since when it takes nothing of what waits for it.
    #[inline]
    pub(crate) fn stalled_since(&self) -> Option<Timestamp> {
        self.stalled_since
    }

    /// Bytes that may wait for it where nothing can be overtaken. Never less than [`Connection::reach`], up to `most`. The same for all
    /// messages of a turn, so it is worked out for the first of them. Unless it is known to take more in a moment, `most`.
    pub(crate) fn room(&mut self, most: usize, now: Timestamp) -> usize {
        if self.room.0 != now {
            let is_stalled = self.stalled_since.is_some();
            let hoped = if is_stalled { self.drain.reach() } else { self.drain.reach_for_burst(now) };
            self.room = (now, self.drain.ahead(now).max(hoped.min(most)));
        }
        self.room.1
    }

    /// The same, less exactly, without asking what time it is.
    #[inline]
    pub(crate) fn reach(&self) -> usize {
        self.drain.reach()
    }

    /// Whether its client takes no more messages for now, and has said so.
    #[inline]
    pub(crate) fn is_without_credit(&self) -> bool {
        self.is_credited && !self.face.has_room()
    }

    pub(crate) fn drain(&self) -> &Drain {
        &self.drain
    }

    /// An answer to the client is in its outbox.
    pub(crate) fn note_answer(&mut self, bytes: usize) {
        self.answer_bytes += bytes;
        self.traffic.bytes_sent += bytes as u64;
    }

    /// Bytes in the outbox, at most, that answer what the client sent.
    #[inline]
    pub(crate) fn answer_bytes(&self) -> usize {
        self.answer_bytes
    }

    /// Something else than a message was read: what is behind messages that have no room is in sight.
    pub(crate) fn note_other_packet(&mut self, now: Timestamp) {
        self.unread_since = None;
        self.silent.spend(now);
    }

    /// A packet has begun to arrive, and has so much time. Since when it has: the length may come after the first byte, and
    /// the time counts from there.
    pub(crate) fn expect_rest(&mut self, time: Duration, now: Timestamp) -> Timestamp {
        let since = self.partial.map_or(now, |(since, _)| since);
        self.partial = Some((since, time));
        since
    }

    /// Since when a packet is being received, and how long it may take.
    pub(crate) fn partial(&self) -> Option<(Timestamp, Duration)> {
        self.partial
    }

    /// What was being received is here.
    #[inline]
    pub(crate) fn end_partial(&mut self) {
        self.partial = None;
    }

    /// A timer is to be set for what may take too long; false if one is.
    pub(crate) fn begin_watch(&mut self) -> bool {
        !core::mem::replace(&mut self.is_watched, true)
    }

    /// The timer has come.
    pub(crate) fn end_watch(&mut self) {
        self.is_watched = false;
    }

    /// Whether it is time to tell it of a pace again; then it is told.
    pub(crate) fn take_hint(&mut self, every: Duration, now: Timestamp) -> bool {
        let is_due = now.since(self.hinted_at) >= every;
        if is_due {
            self.hinted_at = now;
        }
        is_due
    }

    /// It is told that there is no room for retained messages; false if it was.
    pub(crate) fn take_word_on_room(&mut self) -> bool {
        !core::mem::replace(&mut self.is_told_of_room, true)
    }

    /// So many bytes of the outbox were taken, of those that were shown.
    pub(crate) fn on_written(&mut self, bytes: usize, shown: usize, spares: &mut Spares, now: Timestamp) {
        self.outbox.on_written(bytes, spares);
        self.drain.on_written(bytes, shown, now);
        self.room.0 = Timestamp::MAX;
        self.answer_bytes = self.answer_bytes.saturating_sub(bytes);
        self.stalled_since = match self.stalled_since {
            _ if self.outbox.len() == 0 || self.welcome_after.is_some() => None,
            Some(since) if bytes == 0 => Some(since),
            _ => Some(now),
        };
    }
}
