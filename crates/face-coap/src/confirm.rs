//! Confirmable messages of ours: sent again until they are acknowledged, or given up (RFC 7252, section 4.2).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_core::datagrams::Chance;

use crate::frame;
use crate::limits::CONFIRMABLES_MAX;
use crate::message::Token;
use crate::rto::{RtoEstimator, RtoRule};
use crate::scarce::Fresh;

/// All of one address.
#[derive(Debug)]
pub(crate) struct Confirmables {
    messages: Vec<Confirmable>,
    rto: RtoEstimator,
    /// How often something was sent again.
    pub(crate) repetitions: u64,
    /// What nobody acknowledged.
    pub(crate) given_up: u64,
}

#[derive(Debug)]
struct Confirmable {
    message: u16,
    /// The observation that it belongs to.
    observer: Option<Token>,
    bytes: Box<[u8]>,
    sent_at: Timestamp,
    repetitions: u8,
    wait: Duration,
    due: Timestamp,
}

impl Fresh for Confirmables {
    const FRESH: Self = Self { messages: Vec::new(), rto: RtoEstimator::FRESH, repetitions: 0, given_up: 0 };

    fn fresh() -> &'static Self {
        static FRESH: Confirmables = Confirmables::FRESH;
        &FRESH
    }

    fn is_fresh(&self) -> bool {
        self.messages.is_empty() && self.rto.is_fresh() && self.repetitions == 0 && self.given_up == 0
    }
}

impl Confirmables {
    /// When what was learned of the way will be forgotten.
    pub(crate) fn rests_at(&self) -> Option<Timestamp> {
        self.rto.rests_at().filter(|_| self.messages.is_empty())
    }

    /// What was learned of the way long ago is forgotten.
    pub(crate) fn forget_old(&mut self, now: Timestamp) {
        if self.rests_at().is_some_and(|at| at <= now) {
            self.rto = RtoEstimator::FRESH;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The usual time there and back.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.rto.round_trip()
    }

    /// A message was sent for the first time. One too many makes the oldest go, as if nobody had acknowledged it.
    pub(crate) fn push(
        &mut self,
        message: u16,
        observer: Option<Token>,
        bytes: &[u8],
        (chance, rule): (&mut Chance, RtoRule),
        now: Timestamp,
    ) {
        if self.messages.len() >= CONFIRMABLES_MAX {
            self.messages.remove(0);
            self.given_up += 1;
        }
        let wait = chance.stretch(self.rto.first(rule, now));
        let (bytes, due) = (bytes.into(), now + wait);
        self.messages.push(Confirmable { message, observer, bytes, sent_at: now, repetitions: 0, wait, due });
    }

    /// A message came there. False: none of ours that was waited for.
    pub(crate) fn acknowledge(&mut self, message: u16, now: Timestamp) -> bool {
        let Some(at) = self.messages.iter().position(|known| known.message == message) else { return false };
        let known = self.messages.remove(at);
        self.rto.on_acknowledged(now.since(known.sent_at), known.repetitions, now);
        true
    }

    /// A message means nothing there; the observation that it belongs to, if any.
    pub(crate) fn reset(&mut self, message: u16, now: Timestamp) -> Option<Token> {
        let at = self.messages.iter().position(|known| known.message == message)?;
        let known = self.messages.remove(at);
        self.rto.on_acknowledged(now.since(known.sent_at), known.repetitions, now);
        known.observer
    }

    /// Forgets what belongs to an observation that ended.
    pub(crate) fn forget(&mut self, observer: Token) {
        self.messages.retain(|known| known.observer != Some(observer));
    }

    /// Whether a notification is on its way that is not acknowledged yet.
    pub(crate) fn has_notification(&self) -> bool {
        self.messages.iter().any(|known| known.observer.is_some())
    }

    pub(crate) fn due(&self) -> Option<Timestamp> {
        self.messages.iter().map(|known| known.due).min()
    }

    /// Sends again what is due. True: somebody does not answer any more.
    pub(crate) fn repeat(&mut self, out: &mut Vec<u8>, rule: RtoRule, now: Timestamp) -> bool {
        let before = self.messages.len();
        self.messages.retain(|known| known.due > now || !RtoEstimator::is_over(known.repetitions));
        let given_up = before - self.messages.len();
        self.given_up += given_up as u64;
        for known in self.messages.iter_mut().filter(|known| known.due <= now) {
            known.repetitions += 1;
            known.wait = RtoEstimator::next(rule, known.wait);
            known.due = now + known.wait;
            self.repetitions += 1;
            frame::put_datagram(&known.bytes, out);
        }
        given_up > 0
    }
}
