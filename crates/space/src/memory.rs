//! Memory for texts: what arrives is charged before it is kept, to a budget of the space and to that of the process, and
//! given back when its request is done. What finds no room is refused and counted.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::limits::TEXTS_BYTES_MAX;

/// The memory budget of the process, as far as the space needs it.
pub trait MemoryBudget: fmt::Debug + Send + Sync {
    /// Charges so many bytes; false if there is no room, and then nothing was charged.
    fn take(&self, bytes: usize) -> bool;

    /// So many are not used any more.
    fn give(&self, bytes: usize);
}

/// What is charged for texts.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    used: AtomicUsize,
    refused: AtomicU64,
    process: Option<Arc<dyn MemoryBudget>>,
}

/// Bytes that are charged until this is dropped.
#[derive(Debug)]
pub(crate) struct TextCharge {
    texts: Arc<Texts>,
    bytes: usize,
}

impl Texts {
    pub(crate) fn new(process: Option<Arc<dyn MemoryBudget>>) -> Arc<Self> {
        Arc::new(Self { process, ..Self::default() })
    }

    /// Charges so many bytes; none if there is no room for them.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Option<TextCharge> {
        self.take(bytes).then(|| TextCharge { texts: Arc::clone(self), bytes })
    }

    fn take(&self, bytes: usize) -> bool {
        let more = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= TEXTS_BYTES_MAX);
        let is_room = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if !is_room {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        if self.process.as_ref().is_some_and(|process| !process.take(bytes)) {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            self.refused.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Bytes that are charged now, and how often there was no room.
    pub(crate) fn report(&self) -> (usize, u64) {
        (self.used.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }
}

impl TextCharge {
    /// Charges so many bytes more; false if there is no room for them.
    pub(crate) fn more(&mut self, bytes: usize) -> bool {
        let is_taken = self.texts.take(bytes);
        self.bytes += if is_taken { bytes } else { 0 };
        is_taken
    }
}

impl Drop for TextCharge {
    fn drop(&mut self) {
        self.texts.used.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some(process) = &self.texts.process {
            process.give(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Small(AtomicUsize);

    impl MemoryBudget for Small {
        fn take(&self, bytes: usize) -> bool {
            let more = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= 1000);
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
        }

        fn give(&self, bytes: usize) {
            self.0.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    #[test]
    fn f066_what_finds_no_room_is_refused_counted_and_charged_nowhere() {
        let process = Arc::new(Small::default());
        let texts = Texts::new(Some(Arc::clone(&process) as Arc<dyn MemoryBudget>));
        let charge = texts.charge(600).unwrap();
        assert!(texts.charge(600).is_none() && texts.charge(TEXTS_BYTES_MAX).is_none());
        assert_eq!((texts.report(), process.0.load(Ordering::Relaxed)), ((600, 2), 600));
        let mut charge = charge;
        assert!(charge.more(300) && !charge.more(300));
        assert_eq!((texts.report(), process.0.load(Ordering::Relaxed)), ((900, 3), 900));
        drop(charge);
        assert_eq!((texts.report(), process.0.load(Ordering::Relaxed)), ((0, 3), 0));
        assert!(Texts::new(None).charge(TEXTS_BYTES_MAX + 1).is_none(), "without a process's budget there is our own");
    }
}
