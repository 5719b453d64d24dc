//! One connection: what is only true as long as the socket is open.
//!
//! What waits until it is kept is in [`owed`], what is written to it in [`write`](mod@write).

mod owed;
mod write;

use alloc::boxed::Box;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::claim::Claim;

use crate::drain::Drain;
use crate::face::Face;
use crate::gate::Silent;
use crate::ledger::Ledger;
use crate::limits::UNREAD_MAX;
use crate::outbox::Outbox;
use crate::persist::Until;
use crate::some_time::SomeTime;
pub(crate) use write::NO_EXCESS_YET;

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one socket, and each a byte")]
pub(crate) struct Connection {
    session: u32,
    outbox: Outbox,
    /// How it is spoken to.
    face: Box<dyn Face>,
    /// There is a word to refuse a message with.
    hears_refusals: bool,
    /// And a message of QoS 0, too.
    hears_every_refusal: bool,
    /// Its face is asked before each message.
    is_credited: bool,
    /// Messages of it, at most, that wait for an answer.
    inbound_max: u16,
    since: Timestamp,
    seen_at: Timestamp,
    /// When it was last known to be read dry, as of the last time it was read.
    dry_at: Timestamp,
    /// The driver has something to read of it, and reads others first.
    is_unread: bool,
    /// When it was last told of a pace.
    hinted_at: Timestamp,
    /// How it stands as long as it does not publish.
    silent: Silent,
    /// Counted here because a connection is touched for every packet anyway.
    traffic: Traffic,
    /// Seconds of silence that are agreed on; 0 is without end.
    keep_alive: u16,
    /// Not read now: its publisher is too fast, and its version has no other word for it.
    pause: Option<Box<Pause>>,
    /// Since when QoS 0 of it is left unread now and then, and nothing but messages was read.
    unread_since: SomeTime,
    /// Whether it goes on with a session from before, so that packets of the connection before may be repeated.
    is_resumed: bool,
    /// Since when a packet is being received, and how long it may take. Nearly always there is none: a word instead of three.
    partial: Option<Box<(Timestamp, Duration)>>,
    /// Since when it takes nothing of what waits for it.
    stalled_since: SomeTime,
    /// How fast it takes it.
    drain: Drain,
    /// The room that follows from that, and as of when.
    room: (Timestamp, usize),
    /// Bytes that it may still be sent of what publishers send beyond their claims.
    excess_allowance: u32,
    /// Bytes in the outbox, at most, that answer what the client sent.
    answer_bytes: usize,
    /// A timer for one of the two is set.
    is_watched: bool,
    /// What it was seen to send while the gate is off; none where publishers are watched.
    observed: Option<Box<Claim>>,
    /// Answers that wait until what they promise is kept.
    owed: Option<Box<owed::Owed>>,
    /// Its welcome may not be written before this, nor anything else.
    welcome_after: Option<Until>,
    /// It was told that there is no room for retained messages.
    is_told_of_room: bool,
    /// Named by `poll_write` already.
    is_listed: bool,
    /// Nothing more is read or sent; the rest of the outbox is written, then it closes.
    is_closing: bool,
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
            keep_alive: 0,
            pause: None,
            unread_since: SomeTime::NONE,
            is_resumed: false,
            partial: None,
            stalled_since: SomeTime::NONE,
            drain: Drain::new(now),
            room: (Timestamp::MAX, 0),
            excess_allowance: NO_EXCESS_YET,
            answer_bytes: 0,
            is_watched: false,
            observed: None,
            owed: None,
            welcome_after: None,
            is_told_of_room: false,
            is_listed: false,
            is_closing: false,
        }
    }

    /// With so many seconds of silence that are agreed on; 0 is without end.
    pub(crate) fn with_keep_alive(self, seconds: u16) -> Self {
        Self { keep_alive: seconds, ..self }
    }

    /// Its session's place.
    #[inline]
    pub(crate) fn session(&self) -> u32 {
        self.session
    }

    pub(crate) fn since(&self) -> Timestamp {
        self.since
    }

    /// How it is spoken to.
    pub(crate) fn face(&self) -> &dyn Face {
        &*self.face
    }

    pub(crate) fn face_mut(&mut self) -> &mut dyn Face {
        &mut *self.face
    }

    /// There is a word to refuse a message with.
    #[inline]
    pub(crate) fn hears_refusals(&self) -> bool {
        self.hears_refusals
    }

    /// And a message of QoS 0, too.
    #[inline]
    pub(crate) fn hears_every_refusal(&self) -> bool {
        self.hears_every_refusal
    }

    /// Messages of it, at most, that wait for an answer.
    #[inline]
    pub(crate) fn inbound_max(&self) -> u16 {
        self.inbound_max
    }

    /// Whether it goes on with a session from before, so that packets of the connection before may be repeated.
    pub(crate) fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    pub(crate) fn set_resumed(&mut self, is_resumed: bool) {
        self.is_resumed = is_resumed;
    }

    /// Nothing more is read or sent; the rest of the outbox is written, then it closes.
    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing
    }

    pub(crate) fn close(&mut self) {
        self.is_closing = true;
    }

    /// One and a half keep-alives; none if the client may be silent for ever.
    pub(crate) fn patience(&self) -> Option<Duration> {
        (self.keep_alive > 0).then(|| Duration::from_millis(u64::from(self.keep_alive) * 1500))
    }

    /// When something of it was last read; what was a pause does not count.
    pub(crate) fn seen_at(&self) -> Timestamp {
        self.seen_at
    }

    #[inline]
    pub(crate) fn note_seen(&mut self, now: Timestamp) {
        self.seen_at = now;
    }

    /// When it was last known to be read dry, as of the last time it was read.
    #[inline]
    pub(crate) fn dry_at(&self) -> Timestamp {
        self.dry_at
    }

    pub(crate) fn note_dry(&mut self, dry_at: Timestamp) {
        self.dry_at = dry_at;
    }

    /// The driver has something to read of it, and reads others first.
    pub(crate) fn is_unread(&self) -> bool {
        self.is_unread
    }

    pub(crate) fn set_unread(&mut self, is_unread: bool) {
        self.is_unread = is_unread;
    }

    /// How it stands as long as it does not publish.
    pub(crate) fn silent(&self) -> &Silent {
        &self.silent
    }

    /// What is handled now was to be expected.
    pub(crate) fn note_expected(&mut self) {
        self.silent.note_answer();
    }

    pub(crate) fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// What it was seen to send while the gate is off.
    pub(crate) fn observed(&self) -> Option<&Claim> {
        self.observed.as_deref()
    }

    /// The same, to be told of more.
    pub(crate) fn observed_mut(&mut self) -> &mut Claim {
        self.observed.get_or_insert_default()
    }

    /// The same, once.
    pub(crate) fn take_observed(&mut self) -> Option<Box<Claim>> {
        self.observed.take()
    }

    /// What went over it, once.
    pub(crate) fn take_traffic(&mut self) -> Traffic {
        core::mem::take(&mut self.traffic)
    }

    /// A packet of it was dealt with.
    #[inline]
    pub(crate) fn note_received(&mut self, size: usize, is_publication: bool, now: Timestamp) {
        self.traffic.bytes_received += size as u64;
        self.traffic.received += u64::from(is_publication);
        if !is_publication {
            // What is behind messages that have no room is in sight.
            self.unread_since.set(None);
            self.silent.spend(now);
        }
    }

    /// A message for it is done.
    #[inline]
    pub(crate) fn note_delivered(&mut self) {
        self.traffic.delivered += 1;
    }

    /// Not read until then. Its keep-alive clock stands still.
    pub(crate) fn pause(&mut self, pause: Pause) {
        self.pause = Some(Box::new(pause));
    }

    /// Not read now: its publisher is too fast, and its version has no other word for it.
    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.pause.is_some()
    }

    /// The same, for longer than nobody is told of.
    pub(crate) fn is_paused_for_long(&self) -> bool {
        self.pause.as_ref().is_some_and(|pause| !pause.is_brief)
    }

    pub(crate) fn paused_until(&self) -> Option<Timestamp> {
        self.pause.as_ref().map(|pause| pause.until)
    }

    /// A pause ends now at the latest.
    pub(crate) fn shorten_pause(&mut self, now: Timestamp) {
        if let Some(pause) = &mut self.pause {
            pause.until = pause.until.min(now);
        }
    }

    /// It is read again if its time has come. What the pause took does not count as silence.
    pub(crate) fn end_pause(&mut self, now: Timestamp) {
        if let Some(pause) = self.pause.take_if(|pause| pause.until <= now) {
            self.seen_at = self.seen_at + now.since(pause.since);
        }
    }

    /// Until when messages of QoS 0 that have no room may stay unread; none if they are to be dropped. A ping may be behind
    /// them: half a keep-alive on the wire, then as long without, so that what is behind comes in sight.
    pub(crate) fn may_leave_unread(&mut self, now: Timestamp) -> Option<Timestamp> {
        let time = self.patience().map_or(UNREAD_MAX, |patience| (patience / 3).min(UNREAD_MAX));
        let since = self.unread_since.get().filter(|since| now.since(*since) < 2 * time).unwrap_or(now);
        self.unread_since.set(Some(since));
        Some(since + time).filter(|until| *until > now)
    }

    /// A packet has begun to arrive, and has so much time. Since when it has: the length may come after the first byte, and
    /// the time counts from there.
    pub(crate) fn expect_rest(&mut self, time: Duration, now: Timestamp) -> Timestamp {
        let partial = self.partial.get_or_insert_with(|| Box::new((now, time)));
        partial.1 = time;
        partial.0
    }

    /// Since when a packet is being received, and how long it may take.
    pub(crate) fn partial(&self) -> Option<(Timestamp, Duration)> {
        self.partial.as_deref().copied()
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
}
