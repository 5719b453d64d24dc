//! Answers to one connection that may not be given yet, and a welcome that holds everything else. `persist::owed` says when they may.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use tidegate_control::Timestamp;

use super::Connection;
use crate::limits::OWED_BYTES_MAX;
use crate::measures::{AwaitedAck, Meters};
use crate::persist::{Journal, Until};

#[derive(Debug, Default)]
pub(super) struct Owed {
    bytes: VecDeque<u8>,
    /// What each answer waits for, its length, and what it answers if that is measured.
    answers: VecDeque<(Until, u32, Option<AwaitedAck>)>,
}

impl Connection {
    /// More is owed than the client should add to.
    pub(crate) fn is_owed_much(&self) -> bool {
        self.owed.as_ref().is_some_and(|owed| owed.bytes.len() > OWED_BYTES_MAX)
    }

    /// An answer is owed: what comes later has to wait, too.
    #[inline]
    pub(crate) fn is_owed(&self) -> bool {
        self.owed.is_some()
    }

    /// Answers that wait.
    pub(crate) fn owed_answers(&self) -> usize {
        self.owed.as_ref().map_or(0, |owed| owed.answers.len())
    }

    pub(crate) fn owed_bytes(&self) -> usize {
        self.owed.as_ref().map_or(0, |owed| owed.bytes.len())
    }

    /// Something is to be said to it later.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_owed() || !self.is_welcomed()
    }

    /// These words are to be said when what they promise is kept.
    pub(crate) fn owe(&mut self, bytes: Vec<u8>, until: Until, asked: Option<AwaitedAck>) {
        let owed = self.owed.get_or_insert_with(Box::default);
        owed.answers.push_back((until, bytes.len() as u32, asked));
        owed.bytes.extend(bytes);
    }

    /// Its welcome may be written, and what comes after it.
    #[inline]
    pub(crate) fn is_welcomed(&self) -> bool {
        self.welcome_after.is_none()
    }

    /// What its welcome waits for.
    pub(crate) fn welcome_after(&self) -> Option<Until> {
        self.welcome_after
    }

    /// Its welcome may not be written before this, nor anything else.
    pub(crate) fn hold_welcome(&mut self, until: Until) {
        self.welcome_after = Some(until);
    }

    pub(crate) fn release_welcome(&mut self) {
        self.welcome_after = None;
    }

    /// Takes what may be said now out of what is owed.
    pub(crate) fn take_due(&mut self, journal: &Journal, meters: &mut Meters, now: Timestamp) -> (Vec<u8>, usize) {
        let Some(owed) = self.owed.as_mut() else { return (Vec::new(), 0) };
        let (mut length, mut answers) = (0, 0);
        for (until, bytes, asked) in &owed.answers {
            if !journal.is_met(*until) {
                break;
            }
            if let Some(asked) = asked {
                meters.note_answer(*asked, now);
            }
            (length, answers) = (length + *bytes as usize, answers + 1);
        }
        owed.answers.drain(..answers);
        let due = owed.bytes.drain(..length).collect();
        if owed.answers.is_empty() {
            self.owed = None;
        }
        (due, answers)
    }
}
