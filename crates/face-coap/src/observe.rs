//! Who observes at one address (RFC 7641), and what waits to be told: of each topic the newest state only, so that a slow
//! observer is behind by one state and never by many.
//!
//! One confirmable notification is on its way at most. Between them there are some that nobody confirms, one in each round trip:
//! before the first round trip is known there are none of these.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hasher};
use core::num::NonZeroU32;

use foldhash::fast::FixedState;
use tidegate_control::Timestamp;
use tidegate_core::{Charge, Kind, Memory};

use crate::confirm::Confirmables;
use crate::limits::{
    EXCHANGE_LIFETIME, OBSERVERS_MAX, UNCONFIRMED_MAX, UNCONFIRMED_TIME, WAITING_MAX, WIDE_BLOCK_EXPONENT,
    WIDE_TOPIC_BYTES_MAX,
};
use crate::message::{Answer, Block, MessageKind, Token, code, write};
use crate::scarce::{Fresh, Scarce};

/// All observations of one address.
#[derive(Debug)]
pub(crate) struct Observations {
    observers: Vec<Observer>,
    last_id: u32,
    sequence: u32,
    passing: Scarce<Passing>,
}

/// What there is while something is told.
#[derive(Debug)]
struct Passing {
    waiting: VecDeque<WaitingState>,
    /// The last body that was too large for a datagram, for whoever asks for the rest of it.
    large: Option<WaitingState>,
    /// The answer to a request comes before any notification of it.
    is_held: bool,
    unconfirmed: u8,
    confirmed_at: Timestamp,
    next_at: Timestamp,
    /// The last notifications, by their message: one that nobody confirms may be reset, too.
    recent: VecDeque<(u16, Token)>,
    /// When the last of them was sent.
    sent_at: Timestamp,
    /// States that gave way to newer ones.
    conflated: u64,
    /// States for which there was no room.
    dropped: u64,
}

impl Fresh for Passing {
    const FRESH: Self = Self {
        waiting: VecDeque::new(),
        large: None,
        is_held: false,
        unconfirmed: 0,
        confirmed_at: Timestamp::ZERO,
        next_at: Timestamp::ZERO,
        recent: VecDeque::new(),
        sent_at: Timestamp::ZERO,
        conflated: 0,
        dropped: 0,
    };

    fn fresh() -> &'static Self {
        static FRESH: Passing = Passing::FRESH;
        &FRESH
    }

    fn is_fresh(&self) -> bool {
        let is_silent = self.waiting.is_empty() && self.large.is_none() && self.recent.is_empty() && !self.is_held;
        is_silent && self.conflated == 0 && self.dropped == 0
    }
}

#[derive(Debug)]
struct Observer {
    token: Token,
    filter: Box<str>,
    id: NonZeroU32,
    /// Notifications have to say which topic they are about.
    is_wide: bool,
}

#[derive(Debug)]
struct WaitingState {
    token: Token,
    topic: Box<str>,
    payload: Box<[u8]>,
    format: Option<u16>,
    max_age: Option<u32>,
    is_wide: bool,
}

impl WaitingState {
    fn bytes(&self) -> usize {
        self.topic.len() + self.payload.len()
    }
}

/// What became of the wish to observe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registration {
    /// Nobody here observed that before: it has to be subscribed to, by this identifier.
    First(NonZeroU32),
    /// Somebody here does already.
    Joined,
    /// There are too many.
    Full,
}

/// A notification that may be sent now.
#[derive(Debug)]
pub(crate) struct ReadyNotification {
    pub(crate) token: Token,
    pub(crate) is_confirmable: bool,
    bytes: NotificationBytes,
}

#[derive(Debug)]
struct NotificationBytes {
    sequence: u32,
    state: WaitingState,
}

impl ReadyNotification {
    pub(crate) fn write(&self, kind: MessageKind, message: u16) -> Vec<u8> {
        let NotificationBytes { sequence, state } = &self.bytes;
        let answer = Answer {
            observe: Some(*sequence),
            etag: Some(etag_of(&state.payload)),
            location: state.is_wide.then_some(&*state.topic),
            content_format: state.format,
            max_age: state.max_age,
            payload: &state.payload,
            ..Answer::new(code::CONTENT)
        };
        let first = state.is_wide.then_some(Block { number: 0, has_more: false, exponent: WIDE_BLOCK_EXPONENT });
        answer.cut(first).map_or_else(Vec::new, |answer| write(kind, message, self.token, &answer))
    }
}

/// A short name of a state.
pub(crate) fn etag_of(payload: &[u8]) -> u32 {
    let mut hasher = FixedState::with_seed(0).build_hasher();
    hasher.write(payload);
    hasher.finish() as u32
}

impl Passing {
    fn keep_large(&mut self, state: &WaitingState, charge: &mut Charge) {
        if state.payload.len() <= 1 << (WIDE_BLOCK_EXPONENT + 4) {
            return self.forget_large_of(&state.topic, charge);
        }
        let (topic, payload) = (state.topic.clone(), state.payload.clone());
        let copy = WaitingState { topic, payload, ..*state };
        let before = self.large.as_ref().map_or(0, WaitingState::bytes);
        charge.change(copy.bytes(), before);
        self.large = Some(copy);
    }

    fn forget_large_of(&mut self, topic: &str, charge: &mut Charge) {
        if self.large.as_ref().is_some_and(|large| &*large.topic == topic) {
            self.forget_large(charge);
        }
    }

    fn forget_large(&mut self, charge: &mut Charge) {
        if let Some(large) = self.large.take() {
            charge.change(0, large.bytes());
        }
    }
}

impl Observations {
    pub(crate) fn new() -> Self {
        Self { observers: Vec::new(), last_id: 0, sequence: 1, passing: Scarce::new() }
    }

    /// What was told long ago is not asked about any more: no message of it means anything now.
    pub(crate) fn forget_old(&mut self, charge: &mut Charge, now: Timestamp) {
        if self.rests_at().is_none_or(|at| now < at) {
            return;
        }
        self.passing.recent = VecDeque::new();
        if let Some(large) = self.passing.large.take() {
            charge.change(0, large.bytes());
        }
    }

    /// When what was told will not be asked about any more.
    pub(crate) fn rests_at(&self) -> Option<Timestamp> {
        let is_kept = !self.passing.recent.is_empty() || self.passing.large.is_some();
        is_kept.then(|| self.passing.sent_at + EXCHANGE_LIFETIME)
    }

    /// Gives back memory that nothing is in.
    pub(crate) fn rest(&mut self) {
        self.passing.rest();
    }

    /// States that gave way to newer ones, and such as there was no room for, since this was last asked.
    pub(crate) fn take_counts(&mut self) -> (u64, u64) {
        let counts = (self.passing.conflated, self.passing.dropped);
        if counts != (0, 0) {
            (self.passing.conflated, self.passing.dropped) = (0, 0);
        }
        counts
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.observers.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.observers.len()
    }

    /// Nothing is told until a request is answered.
    pub(crate) fn hold(&mut self) {
        self.passing.is_held = true;
    }

    /// It is.
    pub(crate) fn release(&mut self) {
        if self.passing.is_held {
            self.passing.is_held = false;
        }
    }

    /// The number of the next notification: 24 bits (RFC 7641, section 3.4).
    pub(crate) fn next_sequence(&mut self) -> u32 {
        self.sequence = (self.sequence + 1) & 0xff_ffff;
        self.sequence
    }

    /// Somebody wants to observe. The same token again is the same observation.
    pub(crate) fn register(&mut self, token: Token, filter: &str, is_wide: bool) -> Registration {
        if self.observers.iter().any(|known| known.token == token && &*known.filter == filter) {
            return Registration::Joined;
        }
        if self.observers.len() >= OBSERVERS_MAX {
            return Registration::Full;
        }
        let same = self.observers.iter().find(|known| &*known.filter == filter).map(|known| known.id);
        let id = same.unwrap_or_else(|| {
            self.last_id = self.last_id % 0xfff_ffff + 1;
            NonZeroU32::new(self.last_id).unwrap_or(NonZeroU32::MIN)
        });
        if self.observers.is_empty() {
            // Most addresses observe one thing.
            self.observers.reserve_exact(1);
        }
        self.observers.push(Observer { token, filter: filter.into(), id, is_wide });
        if same.is_some() { Registration::Joined } else { Registration::First(id) }
    }

    /// The filter that a token observes.
    pub(crate) fn filter_of(&self, token: Token) -> Option<&str> {
        self.observers.iter().find(|known| known.token == token).map(|known| &*known.filter)
    }

    /// Ends an observation; its filter, if nobody else here observes that.
    pub(crate) fn remove(&mut self, token: Token, charge: &mut Charge) -> Option<Box<str>> {
        let at = self.observers.iter().position(|known| known.token == token)?;
        let gone = self.observers.swap_remove(at);
        if !self.passing.waiting.is_empty() {
            self.passing.waiting.retain(|state| {
                let stays = state.token != token;
                if !stays {
                    charge.change(0, state.bytes());
                }
                stays
            });
        }
        if self.passing.large.as_ref().is_some_and(|large| large.token == token) {
            self.passing.forget_large(charge);
        }
        self.observers.iter().all(|known| known.filter != gone.filter).then_some(gone.filter)
    }

    /// Ends all of them; who they were.
    pub(crate) fn take_tokens(&mut self) -> Vec<Token> {
        core::mem::take(&mut self.observers).into_iter().map(|known| known.token).collect()
    }

    /// The observation that a message belonged to.
    pub(crate) fn observer_of(&self, message: u16) -> Option<Token> {
        self.passing.recent.iter().find(|(known, _)| *known == message).map(|(_, token)| *token)
    }

    pub(crate) fn note_sent(&mut self, message: u16, token: Token, now: Timestamp) {
        const RECENT_MAX: usize = 8;
        let passing = &mut *self.passing;
        passing.sent_at = now;
        if passing.recent.len() >= RECENT_MAX {
            passing.recent.pop_front();
        }
        passing.recent.push_back((message, token));
    }

    /// A state for those who observe by these identifiers.
    pub(crate) fn offer(
        &mut self,
        ids: &[NonZeroU32],
        (topic, payload, format, max_age): (&str, &[u8], Option<u16>, Option<u32>),
        memory: &Memory,
        charge: &mut Charge,
    ) {
        let passing = &mut *self.passing;
        for observer in self.observers.iter().filter(|observer| ids.contains(&observer.id)) {
            let (token, is_wide) = (observer.token, observer.is_wide);
            if is_wide && topic.len() > WIDE_TOPIC_BYTES_MAX {
                passing.dropped += 1;
                continue;
            }
            let state = WaitingState { token, topic: topic.into(), payload: payload.into(), format, max_age, is_wide };
            let older = passing.waiting.iter().position(|known| known.token == token && &*known.topic == topic);
            if let Some((place, older)) = older.and_then(|place| Some((place, passing.waiting.get_mut(place)?))) {
                let (before, after) = (older.bytes(), state.bytes());
                passing.conflated += 1;
                if after <= before || memory.has_room(Kind::Passing, after - before) {
                    charge.change(after, before);
                    *older = state;
                } else {
                    // What is not true any more is not told either.
                    charge.change(0, before);
                    passing.waiting.remove(place);
                    passing.dropped += 1;
                }
                continue;
            }
            if !memory.has_room(Kind::Passing, state.bytes()) {
                passing.dropped += 1;
                continue;
            }
            if passing.waiting.len() >= WAITING_MAX
                && let Some(oldest) = passing.waiting.pop_front()
            {
                charge.change(0, oldest.bytes());
                passing.dropped += 1;
            }
            charge.change(state.bytes(), 0);
            passing.waiting.push_back(state);
        }
    }

    /// The next notification, if one may be sent now.
    pub(crate) fn next(
        &mut self,
        confirmables: &Confirmables,
        charge: &mut Charge,
        now: Timestamp,
    ) -> Option<ReadyNotification> {
        let passing = &self.passing;
        if passing.waiting.is_empty() || passing.is_held || confirmables.has_notification() || now < passing.next_at {
            return None;
        }
        let passing = &mut *self.passing;
        let state = passing.waiting.pop_front()?;
        charge.change(0, state.bytes());
        passing.keep_large(&state, charge);
        let is_due = passing.unconfirmed >= UNCONFIRMED_MAX || now.since(passing.confirmed_at) >= UNCONFIRMED_TIME;
        let round_trip = confirmables.round_trip().filter(|_| !is_due);
        if let Some(time) = round_trip {
            passing.unconfirmed += 1;
            passing.next_at = now + time;
        } else {
            (passing.unconfirmed, passing.confirmed_at) = (0, now);
        }
        let sequence = self.next_sequence();
        let (token, is_confirmable) = (state.token, round_trip.is_none());
        Some(ReadyNotification { token, is_confirmable, bytes: NotificationBytes { sequence, state } })
    }

    /// The first block of a topic's state was just asked for: the others are to be of the same body, whatever is told of before.
    pub(crate) fn keep_rest(
        &mut self,
        (token, topic): (Token, &str),
        body: Option<(&[u8], Option<u16>)>,
        memory: &Memory,
        charge: &mut Charge,
    ) {
        if self.passing.large.is_some() {
            self.passing.forget_large_of(topic, charge);
        }
        let Some((payload, format)) = body.filter(|(body, _)| memory.has_room(Kind::Passing, topic.len() + body.len()))
        else {
            return;
        };
        let passing = &mut *self.passing;
        passing.forget_large(charge);
        let (topic, payload) = (topic.into(), payload.into());
        let large = WaitingState { token, topic, payload, format, max_age: None, is_wide: false };
        charge.change(large.bytes(), 0);
        passing.large = Some(large);
    }

    /// The body of a topic whose first block was said last, with its format.
    pub(crate) fn large_of(&self, topic: &str) -> Option<(&[u8], Option<u16>)> {
        let large = self.passing.large.as_ref().filter(|large| &*large.topic == topic)?;
        Some((&large.payload, large.format))
    }

    /// When the next notification may be sent without anything else happening.
    pub(crate) fn due(&self, confirmables: &Confirmables) -> Option<Timestamp> {
        (!self.passing.waiting.is_empty() && !confirmables.has_notification()).then_some(self.passing.next_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_state_that_finds_no_room_takes_the_older_with_it() {
        let memory = Memory::new(16 << 20);
        let (mut charge, token) = (memory.charge(), Token::default());
        let mut observations = Observations::new();
        let Registration::First(id) = observations.register(token, "a", false) else { panic!() };
        let mut offer = |payload: &[u8], memory: &Memory, charge: &mut Charge| {
            observations.offer(&[id], ("a", payload, None, None), memory, charge);
            (observations.passing.waiting.len(), observations.passing.conflated, observations.passing.dropped)
        };
        assert_eq!(offer(&[0; 100], &memory, &mut charge), (1, 0, 0));
        assert_eq!(offer(&[0; 200], &memory, &mut charge), (1, 1, 0), "there is room to grow");
        let full = Memory::new(0);
        assert_eq!(offer(&[0; 150], &full, &mut charge), (1, 2, 0), "what is smaller needs none");
        assert_eq!(memory.charged(), 151);
        assert_eq!(offer(&[0; 300], &full, &mut charge), (0, 3, 1));
        assert_eq!(memory.charged(), 0);
    }
}
