//! What clients want: how often each would like to ask, and by how much all have to stretch that.
//!
//! A client that was sent away comes when it was told to, not of its own accord: until then nothing is expected of it, and
//! when it comes that is not counted. Of what one client asks no more is counted than twice what it says, so that one that asks
//! a thousand times as often does not slow everybody.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::admission::Class;
use tidegate_control::advice::{Declared, Strain};

use super::{Caller, MEANT_WAIT, RequestQueue, denial_cost};
use crate::limits::WANTS_MAX;
use crate::machine::order::{KpPlace, Shape};
use crate::machine::standing::KpRole;

/// What a client wants.
#[derive(Debug, Default)]
pub(super) struct Want {
    declared: Declared,
    until: Timestamp,
    /// When it may be counted again.
    counts_from: Timestamp,
    /// It was sent away: when it comes next, that is not of its own accord.
    pub(super) is_refused: bool,
}

impl<T> RequestQueue<T> {
    /// The factor by which this want, like everybody's, is to be stretched.
    pub(super) fn declare(&mut self, now: Timestamp, class: Class, caller: &Caller, wanted: Duration) -> f64 {
        let client = caller.client;
        let before = self.stretch(now, class);
        // A service is not slowed for what customers want, as long as there is time for services.
        let is_ahead = caller.standing.role == KpRole::Service && self.is_room_for_services(now, class, caller);
        let before = if is_ahead { 1.0 } else { before };
        // What newcomers want is not counted: a name in each request would slow everybody.
        let is_new = caller.household != 0 && !self.names.knows(caller.household, client);
        if is_new || self.wants.len() >= WANTS_MAX && !self.wants.contains_key(&client) {
            return before;
        }
        let mut want = self.wants.remove(&client).unwrap_or_default();
        self.silent.remove(&(want.until, client));
        let was_refused = std::mem::take(&mut want.is_refused);
        if caller.ticket.is_none() && !was_refused && now >= want.counts_from {
            self.advice.on_check(now);
            let meant = self.order.delay_max(class).mul_f64(MEANT_WAIT);
            self.advice.on_book(now, before, self.book.wait(now), meant);
            want.counts_from = now + wanted.mul_f64(before / 2.0);
        }
        self.advice.declare(&mut want.declared, wanted);
        let stretch = if is_ahead { 1.0 } else { self.stretch(now, class) };
        self.advice.tell(&mut want.declared, stretch);
        want.until = now + self.advice.patience(&want.declared, stretch);
        self.silent.insert((want.until, client));
        self.wants.insert(client, want);
        stretch
    }

    fn is_room_for_services(&self, now: Timestamp, class: Class, caller: &Caller) -> bool {
        let kp = KpPlace { household: caller.household, client: caller.client, standing: caller.standing };
        self.order.wait_of(now, class, kp, Shape::default()) <= self.order.delay_max(class).mul_f64(MEANT_WAIT)
    }

    pub(super) fn stretch(&self, now: Timestamp, class: Class) -> f64 {
        if self.is_untried {
            return self.advice.stretch(self.order.cost(class) / self.worth);
        }
        let wait = self.book.wait(now);
        // The book sees only those who find others before them; when nobody does, nobody is refused.
        let refused = if wait.is_zero() { 0.0 } else { self.book.refused() };
        let denials = denial_cost(self.order.cost(class) / self.worth).mul_f64(refused);
        self.advice.advise(&Strain { denials, wait })
    }

    /// A client comes back after this time, and says nothing until then.
    pub(super) fn note_sent_away(&mut self, client: u64, retry_after: Duration) {
        if let Some(want) = self.wants.get_mut(&client) {
            want.is_refused = true;
            self.advice.send_away(&mut want.declared);
            self.silent.remove(&(want.until, client));
            want.until = want.until + retry_after;
            self.silent.insert((want.until, client));
        }
    }

    /// Whoever has been silent for several intervals wants nothing any more.
    pub(super) fn forget_silent(&mut self, now: Timestamp) {
        for _ in 0..SILENT_LOOKS {
            let Some((_, client)) = self.silent.first().copied().filter(|(until, _)| *until <= now) else { return };
            self.silent.pop_first();
            if let Some(mut want) = self.wants.remove(&client) {
                self.advice.withdraw(&mut want.declared);
            }
        }
    }
}

/// Silent ones looked at with each request: more than come, so that none stays.
const SILENT_LOOKS: usize = 4;
