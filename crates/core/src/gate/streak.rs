//! Messages of QoS 0 that a client has sent in a row: its claim is told of all of them at once.
//!
//! Within one portion of a connection's bytes neither the time nor what is known of its publisher changes: the first message
//! goes through all gates, and if those have nothing more to ask, what it found holds for those that follow. What is left to
//! do for each is to count it, and to say which are within the claim. A streak ends with its portion, with a message of
//! another kind, and as soon as something new is remembered against its publisher. Who was slowed has streaks like others:
//! whoever sends as fast as it is read has been, and the time at which that is forgotten does not come within a portion. Who
//! has a limit has none.

use tidegate_control::Timestamp;
use tidegate_control::claim::Colour;

use super::publisher::Publisher;
use super::publishers::Publishers;
use crate::message::Precedence;

/// What holds for the messages that follow.
#[derive(Debug)]
pub(crate) struct Streak {
    session: u32,
    /// Who is told of it; nobody where publishers are not watched.
    slot: Option<u32>,
    now: Timestamp,
    standing: Precedence,
    /// How many are within the claim still.
    tokens: u32,
    /// How many came, and how many of them were within it.
    count: u32,
    entitled: u32,
}

impl Streak {
    /// How the next message stands.
    #[inline]
    fn next(&mut self) -> Precedence {
        self.count += 1;
        let is_entitled = self.entitled < self.tokens;
        self.entitled += u32::from(is_entitled);
        let colour = if is_entitled { Colour::Entitled } else { Colour::Excess };
        Precedence { colour, ..self.standing }
    }
}

impl Publishers {
    /// A message of this session has passed, and the next ones of its kind need not be asked about: they stand like it, as
    /// far as its publisher's claim goes. Not if that has a limit, which asks of each.
    pub(super) fn begin_streak(&mut self, session: u32, slot: Option<u32>, standing: Precedence, now: Timestamp) {
        self.end_streak();
        let publisher = slot.and_then(|slot| self.get(slot));
        let is_limited = |slot| self.trouble(slot).is_some_and(|trouble| trouble.pin().is_some());
        if publisher.is_some_and(Publisher::is_troubled) && slot.is_some_and(is_limited) {
            return;
        }
        let tokens = publisher.map_or(u32::MAX, |publisher| publisher.claim.tokens());
        self.streak = Some(Streak { session, slot, now, standing, tokens, count: 0, entitled: 0 });
    }

    /// How the next message of this session stands, if it follows another one of its kind.
    #[inline]
    pub(super) fn go_on(&mut self, session: u32, now: Timestamp) -> Option<Precedence> {
        let streak = self.streak.as_mut().filter(|streak| (streak.session, streak.now) == (session, now))?;
        Some(streak.next())
    }

    /// Tells the claim of what has come.
    #[inline]
    pub(crate) fn end_streak(&mut self) {
        if self.streak.is_some() {
            self.settle_streak();
        }
    }

    fn settle_streak(&mut self) {
        let Some(Streak { slot, count, entitled, .. }) = self.streak.take() else { return };
        let Some((publisher, trouble, _)) = slot.and_then(|slot| self.get_all(slot)).filter(|_| count > 0) else {
            return;
        };
        publisher.claim.on_more(count, entitled);
        // The entitled come first: the last is one of them only if all are.
        publisher.set_entitled(if entitled == count { Colour::Entitled } else { Colour::Excess });
        if let Some(trouble) = trouble.filter(|trouble| trouble.slowed().is_some()) {
            trouble.note_taken(count);
        }
    }
}
