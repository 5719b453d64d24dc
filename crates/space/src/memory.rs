//! Memory of the space, a part of that of the process.
//!
//! ```text
//! texts     what arrives is charged before it is kept, and given back when its request is done; no room: refused, and counted
//! answers   charged as long as somebody has them, remembered ones and rows included; no room: no other is begun while some
//!           are on their way
//! data      charged by an estimate, in steps; no room: what makes them grow is refused (`tidegate_graph::DataBudget`)
//! ```
//! Before anybody is refused, all remembered answers are forgotten.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use tidegate_graph::DataBudget;

use crate::limits::{ANSWER_ROOM_BYTES, ANSWERS_BYTES_MAX, TEXTS_BYTES_MAX};
use crate::machine::cache::Cache;
use crate::shared_state::lock;

/// The memory budget of the process, as far as the space needs it.
pub trait MemoryBudget: fmt::Debug + Send + Sync {
    /// Charges so many bytes; false if there is no room, and then nothing was charged.
    fn take(&self, bytes: usize) -> bool;

    /// Charges so many bytes that are used already, and not for long, whether there is room or not.
    fn charge(&self, bytes: usize);

    /// So many are not used any more.
    fn give(&self, bytes: usize);

    /// The same for data, which stay: false if they have their part of the budget already.
    fn take_data(&self, bytes: usize) -> bool;

    /// Charges data that are there already.
    fn charge_data(&self, bytes: usize);

    /// So many bytes of data are not there any more.
    fn give_data(&self, bytes: usize);
}

/// The budget of the process, and what can be done without when it is used up.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpaceMemory {
    process: Option<Arc<dyn MemoryBudget>>,
    /// Not its owner: what the cache has is charged here.
    cache: Weak<Mutex<Cache>>,
}

impl SpaceMemory {
    pub(crate) fn new(process: Option<Arc<dyn MemoryBudget>>, cache: &Arc<Mutex<Cache>>) -> Self {
        Self { process, cache: Arc::downgrade(cache) }
    }

    /// Asks for memory, and once more without the answers that are remembered.
    fn ask(&self, take: impl Fn(&dyn MemoryBudget) -> bool) -> bool {
        self.process.as_deref().is_none_or(|process| take(process) || self.shrink() && take(process))
    }

    /// Forgets all answers; false if there are none.
    fn shrink(&self) -> bool {
        self.cache.upgrade().is_some_and(|cache| lock(&cache).forget_answers())
    }
}

/// What is charged for answers.
#[derive(Debug, Default)]
pub(crate) struct AnswerBytes {
    sum: AtomicUsize,
    memory: SpaceMemory,
}

impl AnswerBytes {
    pub(crate) fn new(memory: &SpaceMemory) -> Arc<Self> {
        Arc::new(Self { sum: AtomicUsize::new(0), memory: memory.clone() })
    }

    pub(crate) fn sum(&self) -> usize {
        self.sum.load(Ordering::Relaxed)
    }

    /// Whether another answer may be begun. If none is on its way there is nobody to wait for.
    pub(crate) fn is_room(&self) -> bool {
        let take = |process: &dyn MemoryBudget| {
            let is_room = process.take(ANSWER_ROOM_BYTES);
            if is_room {
                process.give(ANSWER_ROOM_BYTES);
            }
            is_room
        };
        self.sum() <= ANSWERS_BYTES_MAX && (self.memory.ask(take) || self.sum() == 0)
    }

    /// So many bytes are charged until this is dropped.
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize) -> AnswerCharge {
        self.sum.fetch_add(bytes, Ordering::Relaxed);
        if let Some(process) = &self.memory.process {
            process.charge(bytes);
        }
        AnswerCharge { answers: Arc::clone(self), bytes }
    }
}

/// Bytes of an answer that are charged until this is dropped.
#[derive(Debug)]
pub(crate) struct AnswerCharge {
    answers: Arc<AnswerBytes>,
    bytes: usize,
}

impl Drop for AnswerCharge {
    fn drop(&mut self) {
        self.answers.sum.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some(process) = &self.answers.memory.process {
            process.give(self.bytes);
        }
    }
}

/// What is charged for the data.
#[derive(Debug, Default)]
pub(crate) struct DataMemory {
    used: AtomicUsize,
    refused: AtomicU64,
    memory: SpaceMemory,
}

impl DataMemory {
    pub(crate) fn new(memory: &SpaceMemory) -> Arc<Self> {
        Arc::new(Self { memory: memory.clone(), ..Self::default() })
    }

    /// Bytes that are charged now, and how often there was no room for more.
    pub(crate) fn report(&self) -> (usize, u64) {
        (self.used.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }
}

impl DataBudget for DataMemory {
    fn take(&self, bytes: usize) -> bool {
        let is_taken = self.memory.ask(|process| process.take_data(bytes));
        if is_taken {
            self.used.fetch_add(bytes, Ordering::Relaxed);
        } else {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        is_taken
    }

    fn charge(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        if let Some(process) = &self.memory.process {
            process.charge_data(bytes);
        }
    }

    fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(process) = &self.memory.process {
            process.give_data(bytes);
        }
    }
}

/// What is charged for texts.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    used: AtomicUsize,
    refused: AtomicU64,
    memory: SpaceMemory,
}

/// Bytes that are charged until this is dropped.
#[derive(Debug)]
pub(crate) struct TextCharge {
    texts: Arc<Texts>,
    bytes: usize,
}

impl Texts {
    pub(crate) fn new(memory: &SpaceMemory) -> Arc<Self> {
        Arc::new(Self { memory: memory.clone(), ..Self::default() })
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
        if !self.memory.ask(|process| process.take(bytes)) {
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
        if let Some(process) = &self.texts.memory.process {
            process.give(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Small {
        passing: AtomicUsize,
        data: AtomicUsize,
    }

    fn take(used: &AtomicUsize, bytes: usize) -> bool {
        let more = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= MAX);
        used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    const MAX: usize = 1_000_000;

    impl MemoryBudget for Small {
        fn take(&self, bytes: usize) -> bool {
            take(&self.passing, bytes)
        }

        fn charge(&self, bytes: usize) {
            self.passing.fetch_add(bytes, Ordering::Relaxed);
        }

        fn give(&self, bytes: usize) {
            self.passing.fetch_sub(bytes, Ordering::Relaxed);
        }

        // What passes and what stays share the room.
        fn take_data(&self, bytes: usize) -> bool {
            bytes + self.passing.load(Ordering::Relaxed) <= MAX && take(&self.data, bytes)
        }

        fn charge_data(&self, bytes: usize) {
            self.data.fetch_add(bytes, Ordering::Relaxed);
        }

        fn give_data(&self, bytes: usize) {
            self.data.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    fn small() -> (Arc<Small>, SpaceMemory, Arc<Mutex<Cache>>) {
        let (process, cache) = (Arc::new(Small::default()), Arc::default());
        let memory = SpaceMemory::new(Some(Arc::clone(&process) as Arc<dyn MemoryBudget>), &cache);
        (process, memory, cache)
    }

    impl Small {
        fn passing(&self) -> usize {
            self.passing.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn f066_what_finds_no_room_is_refused_counted_and_charged_nowhere() {
        let (process, memory, _cache) = small();
        let texts = Texts::new(&memory);
        let charge = texts.charge(600_000).unwrap();
        assert!(texts.charge(600_000).is_none() && texts.charge(TEXTS_BYTES_MAX).is_none());
        assert_eq!((texts.report(), process.passing()), ((600_000, 2), 600_000));
        let mut charge = charge;
        assert!(charge.more(300_000) && !charge.more(300_000));
        assert_eq!((texts.report(), process.passing()), ((900_000, 3), 900_000));
        drop(charge);
        assert_eq!((texts.report(), process.passing()), ((0, 3), 0));
        let alone = Texts::new(&SpaceMemory::default());
        assert!(alone.charge(TEXTS_BYTES_MAX + 1).is_none(), "without a process's budget there is our own");
    }

    #[test]
    fn f066_answers_are_charged_and_what_is_remembered_goes_first() {
        let (process, memory, cache) = small();
        let (answers, texts, data) = (AnswerBytes::new(&memory), Texts::new(&memory), DataMemory::new(&memory));
        let remember = |bytes: usize| {
            let held = crate::render::held(vec![0; bytes], &answers);
            lock(&cache).keep(&crate::machine::cache::tests::name(7), 0, held);
        };
        remember(950_000);
        assert_eq!((answers.sum(), process.passing()), (950_000, 950_000));
        assert!(answers.is_room(), "it is forgotten, and there is room");
        assert_eq!((answers.sum(), process.passing()), (0, 0));
        remember(900_000);
        assert!(texts.charge(200_000).is_some() && answers.sum() == 0, "for a text");
        remember(900_000);
        assert!(data.take(200_000) && answers.sum() == 0, "and for data");
        assert!(!data.take(900_000));
        assert_eq!(data.report(), (200_000, 1));
        // On its way to somebody, and therefore not to be forgotten.
        let under_way = answers.hold(2_000_000);
        assert!(!answers.is_room() && texts.charge(1).is_none());
        drop(under_way);
        assert!(answers.is_room() && process.passing() == 0);
        process.charge(MAX);
        assert!(answers.is_room(), "others have all of it: nobody waits for an answer that will not end");
    }
}
