//! Answers that still hold. An answer is kept with the version of the data that it was worked out on and with what it
//! reads; it holds until a change touches that. The table of changes is told of a change before that is confirmed, so
//! there is no way to get an answer that is older than a confirmed change.
//!
//! Short results are kept a second time as rows: they are written anew for whoever calls the columns by other names or
//! wants another format, and cut down for whoever asks for a part of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_graph::{ChangeTable, Footprint, FreedQuery, PatternKind, Row, TouchedPlaces};

use super::query_name::QueryName;
use crate::limits::{CACHE_BYTES_MAX, CACHE_ENTRIES_MAX};
use crate::memory::AnswerCharge;

/// A whole result as rows.
#[derive(Debug)]
pub(crate) struct CachedRows {
    /// The number of each column, as the canonical form has them.
    pub(crate) columns: Vec<u32>,
    pub(crate) rows: Vec<Row>,
    pub(crate) bytes: usize,
    /// What they are charged with.
    pub(crate) _charge: AnswerCharge,
}

/// An answer that was remembered, of the data of this version at least.
#[derive(Debug)]
pub(crate) enum Remembered {
    Written(Bytes),
    /// To be written.
    Rows(Arc<CachedRows>),
}

#[derive(Debug)]
struct CacheEntry {
    /// The version that it was worked out on.
    at: u64,
    footprint: Footprint,
    answer: Remembered,
    bytes: usize,
    /// Its place in the order of coming.
    number: u64,
    /// Of rows that are there for those who ask for a part of them.
    kind: Option<PatternKind>,
}

#[derive(Debug)]
pub(crate) struct Cache {
    changes: ChangeTable,
    entries: BTreeMap<u128, CacheEntry>,
    /// The first to come is the first to go.
    order: BTreeMap<u64, u128>,
    made: u64,
    bytes: usize,
    /// How many entries there are of each kind.
    kinds: BTreeMap<PatternKind, usize>,
}

impl Default for Cache {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Cache {
    pub(crate) fn new(version: u64) -> Self {
        let (entries, order, kinds) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { changes: ChangeTable::new(version), entries, order, made: 0, bytes: 0, kinds }
    }

    /// The answer to this question, in its own words, and the version that it is of: the present one.
    pub(crate) fn find(&mut self, name: &QueryName) -> Option<(Remembered, u64)> {
        let found = self.get(name.written).or_else(|| self.get(name.question))?;
        Some((found, self.changes.last()))
    }

    /// Whether there are rows of a pattern of this kind.
    pub(crate) fn has(&self, kind: PatternKind) -> bool {
        self.kinds.contains_key(&kind)
    }

    /// The rows of a question that contains this one, with the version.
    pub(crate) fn find_containing(&mut self, pattern: u128, freed: &FreedQuery) -> Option<(Arc<CachedRows>, u64)> {
        let Some(Remembered::Rows(rows)) = self.get(pattern) else { return None };
        let is_whole = freed.columns.iter().chain([&freed.freed]).all(|column| rows.columns.contains(column));
        is_whole.then(|| (rows, self.changes.last()))
    }

    fn get(&mut self, key: u128) -> Option<Remembered> {
        let entry = self.entries.get(&key)?;
        if self.changes.version_of(&entry.footprint) > entry.at {
            self.remove(key);
            return None;
        }
        Some(match &entry.answer {
            Remembered::Written(bytes) => Remembered::Written(bytes.clone()),
            Remembered::Rows(rows) => Remembered::Rows(Arc::clone(rows)),
        })
    }

    /// An answer that was worked out on the data of this version.
    pub(crate) fn keep(&mut self, name: &QueryName, at: u64, answer: Bytes) {
        let bytes = answer.len();
        self.file((name.written, None), name, at, Remembered::Written(answer), bytes);
    }

    /// The same as rows, also for those who ask for a part of them.
    pub(crate) fn keep_rows(&mut self, name: &QueryName, at: u64, rows: &Arc<CachedRows>) {
        let pattern = name.pattern.map(|(key, kind)| (key, Some(kind)));
        for key in [Some((name.question, None)), pattern].into_iter().flatten() {
            self.file(key, name, at, Remembered::Rows(Arc::clone(rows)), rows.bytes);
        }
    }

    fn file(
        &mut self,
        (key, kind): (u128, Option<PatternKind>),
        name: &QueryName,
        at: u64,
        answer: Remembered,
        bytes: usize,
    ) {
        let bytes = bytes + ENTRY_BYTES;
        if bytes > CACHE_BYTES_MAX / 8 || self.changes.version_of(&name.footprint) > at {
            return;
        }
        self.remove(key);
        while self.entries.len() >= CACHE_ENTRIES_MAX || self.bytes + bytes > CACHE_BYTES_MAX {
            let Some((_, oldest)) = self.order.first_key_value() else { return };
            self.remove(*oldest);
        }
        self.made += 1;
        self.bytes += bytes;
        self.order.insert(self.made, key);
        if let Some(kind) = kind {
            *self.kinds.entry(kind).or_default() += 1;
        }
        let footprint = name.footprint.clone();
        self.entries.insert(key, CacheEntry { at, footprint, answer, bytes, number: self.made, kind });
    }

    fn remove(&mut self, key: u128) {
        if let Some(entry) = self.entries.remove(&key) {
            self.order.remove(&entry.number);
            self.bytes -= entry.bytes;
            if let Some(kind) = entry.kind
                && let Some(count) = self.kinds.get_mut(&kind)
            {
                *count -= 1;
                if *count == 0 {
                    self.kinds.remove(&kind);
                }
            }
        }
    }

    /// The present version, if whoever has seen that one has the answer of it to what reads this. One look for both: a
    /// change in between would give the old answer a new name.
    pub(crate) fn unchanged_at(&self, footprint: &Footprint, seen: u64) -> Option<u64> {
        let last = self.changes.last();
        (self.changes.version_of(footprint)..=last).contains(&seen).then_some(last)
    }

    /// A change is about to be seen.
    pub(crate) fn show(&mut self, touched: &TouchedPlaces, version: u64) {
        self.changes.show(touched, version);
    }

    /// Forgets all answers, because there is no memory for them; false if there are none. What has changed stays known.
    pub(crate) fn forget_answers(&mut self) -> bool {
        let is_any = !self.entries.is_empty();
        (self.entries, self.order, self.kinds) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        self.bytes = 0;
        is_any
    }

    /// Nothing is known of what was before this version.
    pub(crate) fn forget(&mut self, version: u64) {
        *self = Self::new(version);
    }
}

/// What an entry takes beside its answer, about.
const ENTRY_BYTES: usize = 256;

#[cfg(test)]
pub(crate) mod tests {
    use oxrdf::{NamedNode, Quad};
    use tidegate_graph::QuadDelta;

    use super::*;

    pub(crate) fn name(key: u128) -> QueryName {
        let node = |text: &str| NamedNode::new_unchecked(text);
        let mask = tidegate_graph::Mask { predicate: Some(node(&format!("urn:{key}"))), ..Default::default() };
        let footprint = Footprint::of_masks(&[mask]);
        QueryName { question: key, written: key + 1000, pattern: None, columns: Vec::new(), footprint }
    }

    /// A change of what this one reads.
    fn touched(key: u128) -> TouchedPlaces {
        let node = NamedNode::new_unchecked(format!("urn:{key}"));
        let quad = Quad::new(node.clone(), node.clone(), node, oxrdf::GraphName::DefaultGraph);
        let mut touched = TouchedPlaces::default();
        touched.note(&QuadDelta { version: 0, added: vec![quad], removed: Vec::new() });
        touched
    }

    fn is_kept(cache: &mut Cache, key: u128) -> Option<u64> {
        cache.find(&name(key)).map(|(_, version)| version)
    }

    #[test]
    fn f106_an_answer_lives_until_a_change_touches_what_it_reads() {
        let mut cache = Cache::new(7);
        cache.keep(&name(1), 7, Bytes::from_static(b"a"));
        assert_eq!((is_kept(&mut cache, 1), is_kept(&mut cache, 2)), (Some(7), None));
        cache.show(&touched(2), 8);
        assert_eq!(is_kept(&mut cache, 1), Some(8), "it is the answer of now");
        cache.show(&touched(1), 9);
        assert_eq!(is_kept(&mut cache, 1), None);
        // Worked out on what was before the change.
        cache.keep(&name(1), 8, Bytes::from_static(b"a"));
        assert_eq!((is_kept(&mut cache, 1), cache.bytes), (None, 0));
        cache.keep(&name(1), 9, Bytes::from_static(b"b"));
        assert_eq!(is_kept(&mut cache, 1), Some(9));
        cache.forget(20);
        assert_eq!(is_kept(&mut cache, 1), None);
    }

    #[test]
    fn who_has_seen_a_version_since_the_last_touch_has_the_answer() {
        let mut cache = Cache::new(7);
        cache.show(&touched(1), 8);
        cache.show(&touched(2), 9);
        let seen =
            |key, versions: [u64; 4]| versions.map(|seen| cache.unchanged_at(&name(key).footprint, seen).is_some());
        assert_eq!(seen(1, [7, 8, 9, 10]), [false, true, true, false]);
        assert_eq!(seen(3, [6, 7, 9, 10]), [false, true, true, false]);
    }

    #[test]
    fn it_stays_within_its_bounds() {
        let mut cache = Cache::new(1);
        let large = Bytes::from(vec![0; CACHE_BYTES_MAX / 8 - ENTRY_BYTES]);
        for key in 0..100 {
            cache.keep(&name(key), 1, large.clone());
            assert!(cache.bytes <= CACHE_BYTES_MAX && cache.entries.len() == cache.order.len());
        }
        assert_eq!((is_kept(&mut cache, 99).is_some(), is_kept(&mut cache, 91).is_some()), (true, false));
        cache.keep(&name(1), 1, Bytes::from(vec![0; CACHE_BYTES_MAX / 8 + 1]));
        assert!(is_kept(&mut cache, 1).is_none(), "too large to keep");
        for key in 0..CACHE_ENTRIES_MAX as u128 + 10 {
            cache.keep(&name(key), 1, Bytes::new());
        }
        assert_eq!(cache.entries.len(), CACHE_ENTRIES_MAX);
    }
}
